"""A record of a probe for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.model import Device, DeviceId
from exporter.probes.record import SELF, Record
from exporter.probes.since import since


def text(record: Record, devices: Sequence[Device], before: Record | None = None) -> str:
    """Lines for a terminal; ``before`` is the last record of the same probe."""
    names = {d.id: _name(d) for d in devices}
    body = {"bandwidth": _bandwidth, "gemm": _gemm, "launch": _launch}[record.probe](record, names)
    version = f" {record.version}" if record.version else ""
    lines = [f"probe {record.probe} by {record.tool}{version}", *body]
    if record.missing:
        lines.append("missing: " + ", ".join(f"{n} {reason}" for reason, n in sorted(record.missing.items())))
    lines += [*(f"note: {note}" for note in record.notes), *since(record, before, names)]
    return "\n".join(lines) + "\n"


def _name(device: Device) -> str:
    return f"{device.gpu}" if device.id.partition is None else f"{device.gpu}/{device.id.partition}"


def _bandwidth(record: Record, names: Mapping[DeviceId, str]) -> list[str]:
    """Copies in GB/s, from the row to the column."""
    cells = {(v.device, *v.labels): v.value / 1e9 for v in record.values}
    gpus = [d for d in names if any(v.device == d for v in record.values)]
    cpus = sorted({v.labels[0] for v in record.values if v.labels[0].startswith("cpu")})
    width = max(8, *(len(names[d]) + 5 for d in gpus))

    def row(head: str, values: Sequence[float | None]) -> str:
        return f"{head:<{width}}" + "".join(f"{'-' if v is None else f'{v:.1f}':>{width}}" for v in values)

    heads = [*(f"GPU {names[d]}" for d in gpus), *cpus]
    lines = ["GB/s, from row to column", f"{'':<{width}}" + "".join(f"{h:>{width}}" for h in heads)]
    for source in gpus:
        peers = [SELF if source == d else _label(d) for d in gpus]
        values = [cells.get((source, peer, "transmitted")) for peer in (*peers, *cpus)]
        lines.append(row(f"GPU {names[source]}", values))
    lines += [row(cpu, [cells.get((d, cpu, "received")) for d in gpus]) for cpu in cpus]
    return lines


def _label(device: DeviceId) -> str:
    return device.pci if device.partition is None else f"{device.pci}/{device.partition}"


def _gemm(record: Record, names: Mapping[DeviceId, str]) -> list[str]:
    kinds = list(dict.fromkeys(v.labels[0] for v in record.values))
    cells = {(v.device, v.labels[0]): f"{v.value / 1e12:.1f}" for v in record.values}
    lines = ["TFLOP/s of a product of 8192 x 8192", f"{'':<10}" + "".join(f"{k:>10}" for k in kinds)]
    gpus = dict.fromkeys(v.device for v in record.values)
    for gpu in gpus:
        row = "".join(f"{cells.get((gpu, kind), '-'):>10}" for kind in kinds)
        lines.append(f"{'GPU ' + names.get(gpu, _label(gpu)):<10}{row}")
    return lines


def _launch(record: Record, names: Mapping[DeviceId, str]) -> list[str]:
    lines = ["time per launch of a kernel that does nothing"]
    for v in record.values:
        rate = f", {1 / v.value:,.0f} launches per second" if v.labels[0] == "back_to_back" else ""
        words = v.labels[0].replace("_", " ")
        lines.append(
            f"{'GPU ' + names.get(v.device, _label(v.device)):<10}{v.value * 1e6:10.2f} us {words}{rate}"
        )
    return lines
