"""What the calls of a probe printed, as values of GPUs that are known by name. Pure.

Absent: a value whose GPU cannot be told, or that no GPU of its kind could reach, is counted with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from exporter.formats import copies, empty_kernels, launch_loop, rocblas_bench
from exporter.formats.copies import Copies, Gpu
from exporter.model import Device, DeviceId, FormatError
from exporter.probes.plans import BANDWIDTH_TEST, BATCH, OVERRIDE, TORCH, Step, Tool
from exporter.probes.record import SELF, Value

# Operations per compute unit and cycle that no chip reaches today.
_PEAK = {"f64": 512, "f32": 1200, "f16": 4608, "bf16": 4608}
_CLOCK_MOST = 3.5e9
_UNITS_MOST = 512


@dataclass(frozen=True, slots=True)
class Printed:
    """What one call printed, or why it gave nothing; ``fault``: it printed this and did not end well."""

    step: Step
    text: str | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The values of a whole probe."""

    version: str
    values: tuple[Value, ...]
    missing: dict[str, int]
    notes: tuple[str, ...]


def reduce(
    tool: Tool,
    printed: Sequence[Printed],
    devices: Sequence[Device],
    listed: Collection[DeviceId] | None = None,
) -> Found:
    """All values. ``devices`` are those that the runtime counts, ``listed`` the ones that matter.

    Errors: FormatError with the reason where there is no value.
    """
    missing: Counter[str] = Counter()
    notes: list[str] = []
    values: list[Value] = []
    version = ""
    gpus: tuple[Gpu, ...] = ()
    for one in printed:
        step = one.step
        if one.text is None:
            if not step.optional:
                missing["not_measured"] += 1
                notes.append(_said(step, one.fault))
            continue
        if one.fault and not step.optional:
            notes.append(_said(step, one.fault))
        if step.key == "topology":
            gpus = copies.topology(one.text)
            continue
        try:
            if step.key == "table":
                table = _table(tool, one.text)
                version = table.version or ""
                missing.update(table.missing)
                values += _copies(table, gpus or table.gpus, devices, missing)
            elif step.key == "empty":
                version, found = _launches(one.text, gpus, devices, missing)
                values += found
            else:
                version, found = _of_one(tool, step, one.text, len(devices))
                values += found
        except FormatError as e:
            missing["not_understood"] += 1
            notes.append(_said(step, str(e)))
    if listed is not None:
        hidden = {_label(d.id) for d in devices if d.id not in listed}
        values = [v for v in values if v.device in listed and v.labels[0] not in hidden]
    if not values:
        raise FormatError(notes[0] if notes else "nothing was measured")
    counted = {reason: n for reason, n in missing.items() if n}
    return Found(version, tuple(values), counted, tuple(dict.fromkeys(notes)))


def places(gpus: Sequence[Gpu], devices: Sequence[Device]) -> dict[int, DeviceId]:
    """Which GPU each number of a tool means: by address, partitions of one in the runtime's order.

    Without addresses the numbers are the runtime's own, as long as it sees every GPU that we see.
    """
    ordered = sorted(devices, key=lambda d: (d.indices.get("hip", 1 << 20), d.id.pci, d.id.partition or 0))
    if any(gpu.pci is None for gpu in gpus):
        same = len(gpus) == len(ordered) and all("hip" in d.indices for d in ordered)
        return {d.indices["hip"]: d.id for d in ordered} if same else {}
    found: dict[int, DeviceId] = {}
    for slot in dict.fromkeys(_slot(gpu.pci or "") for gpu in gpus):
        mine = [gpu.number for gpu in gpus if _slot(gpu.pci or "") == slot]
        there = [d.id for d in ordered if _slot(d.id.pci) in (slot, f"{d.id.pci[:5]}{slot}")]
        if len(there) == len(mine) and len({d.pci for d in there}) == 1:
            found.update(zip(mine, there, strict=True))
    return found


def _slot(pci: str) -> str:
    """An address without its function, which some tools use to tell partitions apart."""
    return pci.rpartition(".")[0]


def _table(tool: Tool, text: str) -> Copies:
    old = tool.name == BANDWIDTH_TEST and not tool.plugin
    return copies.bandwidth_test(text) if old else copies.transferbench(text)


def _copies(
    table: Copies, gpus: Sequence[Gpu], devices: Sequence[Device], missing: Counter[str]
) -> list[Value]:
    where = places(gpus, devices)
    values = []
    for cell in table.cells:
        if cell.both or cell.source.kind == cell.target.kind == "cpu":
            continue
        ends = [where.get(e.number) if e.kind == "gpu" else f"cpu{e.number}" for e in cell[:2]]
        if None in ends:
            missing["unknown_gpu"] += 1
        elif isinstance(ends[0], DeviceId):
            peer = SELF if ends[0] == ends[1] else _label(ends[1])
            values.append(Value(ends[0], (peer, "transmitted"), cell.bytes_per_second))
        elif isinstance(ends[1], DeviceId):
            values.append(Value(ends[1], (_label(ends[0]), "received"), cell.bytes_per_second))
    if missing["unknown_gpu"] and not values:
        raise _nobodys(len(gpus), len(devices))
    return values


def _launches(
    text: str, gpus: Sequence[Gpu], devices: Sequence[Device], missing: Counter[str]
) -> tuple[str, list[Value]]:
    """Launches of kernels that do nothing, on each GPU that the tool counts."""
    read = empty_kernels.read(text, BATCH)
    numbers = sorted({*read.alone, *read.batch})
    where = places(gpus or [Gpu(n, None) for n in numbers], devices)
    values = []
    for pattern, times in (("back_to_back", read.batch), ("round_trip", read.alone)):
        missing["not_measured"] += len(numbers) - len(times)
        for number, seconds in times.items():
            if device := where.get(number):
                values.append(Value(device, (pattern,), seconds))
            else:
                missing["unknown_gpu"] += 1
    if not values:
        raise _nobodys(len(numbers), len(devices))
    return read.version or "", sorted(values)


def _nobodys(seen: int, here: int) -> FormatError:
    return FormatError(
        f"the tool sees {seen} GPUs that cannot be told apart among the {here} here; "
        "run it where all of them are visible"
    )


def _label(end: DeviceId | str | None) -> str:
    if isinstance(end, DeviceId):
        return end.pci if end.partition is None else f"{end.pci}/{end.partition}"
    return end or ""


def _of_one(tool: Tool, step: Step, text: str, here: int) -> tuple[str, list[Value]]:
    """The values of a call that measures one GPU. Errors: FormatError."""
    device = step.device
    if device is None:
        raise FormatError("no GPU was named")
    if tool.name == TORCH:
        loop = launch_loop.read(text)
        _check_sight(loop.devices, here, loop.gfx, step, device)
        pairs = (("back_to_back", loop.back_to_back), ("round_trip", loop.round_trip))
        return loop.version, [Value(device.id, (name,), seconds) for name, seconds in pairs]
    bench = rocblas_bench.read(text)
    name = bench.names.get(device.indices["hip"], "")
    _check_sight(bench.devices, here, name.rpartition(" ")[2] if "gfx" in name else None, step, device)
    if step.key == "launch":
        return bench.version or "", [Value(device.id, ("back_to_back",), bench.seconds)]
    most = (device.compute_units or _UNITS_MOST) * _CLOCK_MOST * _PEAK[step.key]
    if bench.operations is None or bench.operations > most:
        rate = "none" if bench.operations is None else f"{bench.operations:.3g}"
        raise FormatError(
            f"{rate} operations per second are more than the chip can do; the kernel did not run"
        )
    return bench.version or "", [Value(device.id, (step.key,), bench.operations)]


def _check_sight(seen: int | None, here: int, gfx: str | None, step: Step, device: Device) -> None:
    """A runtime that sees other GPUs than we do counts them otherwise."""
    overridden = OVERRIDE in step.env  # it then says what it was told
    if seen is not None and seen != here:
        raise FormatError(
            f"the tool sees {seen} of {here} GPUs, so that its numbers cannot be told apart; "
            "run it where all of them are visible"
        )
    if gfx and device.gfx and not overridden and gfx.partition(":")[0] != device.gfx:
        raise FormatError(f"GPU {device.gpu} is a {device.gfx}, and the tool measured a {gfx}")


def _said(step: Step, words: str) -> str:
    gpu = f"GPU {step.device.gpu}, " if step.device else ""
    return f"{gpu}{step.key}: {words}"
