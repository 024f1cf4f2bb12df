"""What a machine is, apart from what it does: GPUs, links, driver, ROCm, firmware, kernel, PyTorch. Pure.

Absent: what is not known is null in the object, and its reason, where there is one, stands in ``missing``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.model import Device, DeviceId, Series, Value

VERSION = 1


@dataclass(frozen=True, slots=True)
class Host:
    """What is known besides the GPUs. ``profiles``: the power profile by PCI address."""

    node: str | None = None
    kernel: str | None = None
    rocm: str | None = None
    pytorch: Mapping[str, str | None] | None = None
    profiles: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


def of(devices: Sequence[Device], readings: Mapping[Series, Value], host: Host) -> dict[str, Any]:
    """The fingerprint as a JSON object, the same for the same machine."""
    firmware: dict[DeviceId, dict[str, str]] = {}
    links: list[dict[str, Any]] = []
    for series in readings:
        if series.device is None:
            continue
        if series.metric == "amdgpu_firmware_info":
            firmware.setdefault(series.device, {})[series.labels[0]] = series.labels[1]
        elif series.metric == "amdgpu_link_info":
            peer, kind, hops, weight = series.labels
            links.append(
                {"from": series.device.pci, "to": peer, "type": kind, "hops": hops, "weight": weight}
            )
    return {
        "version": VERSION,
        "node": host.node,
        "kernel": host.kernel,
        "driver": _one(d.driver for d in devices),
        "rocm": host.rocm,
        "pytorch": dict(host.pytorch) if host.pytorch else None,
        "gpus": [_gpu(d, readings, firmware.get(d.id.socket, {}), host) for d in devices],
        "links": sorted(links, key=lambda link: (link["from"], link["to"])),
        "missing": dict(host.missing),
    }


def _gpu(
    d: Device, readings: Mapping[Series, Value], firmware: Mapping[str, str], host: Host
) -> dict[str, Any]:
    cap = readings.get(Series("amdgpu_power_limit_watts", d.id.socket))
    return {
        "pci": d.id.pci,
        "partition": d.id.partition,
        "model": d.model,
        "gfx": d.gfx,
        "compute_units": d.compute_units,
        "vbios": d.vbios,
        "compute_partition": d.compute_partition,
        "memory_partition": d.memory_partition,
        "power_limit_watts": cap if isinstance(cap, int | float) else None,
        "power_profile": host.profiles.get(d.id.pci),
        "firmware": dict(sorted(firmware.items())),
    }


def lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fingerprint for people: a name and a value each; unknown where it is not known."""
    gpus = found["gpus"]
    torch = found["pytorch"]
    words = [
        ("GPUs", _counted(" ".join(filter(None, (g["model"], _in_brackets(g["gfx"])))) for g in gpus)),
        ("Partitions", _counted(_modes(g) for g in gpus)),
        ("Links", _links(found["links"])),
        ("Driver", found["driver"]),
        ("ROCm", found["rocm"]),
        ("PyTorch", f"{torch['version']} (HIP {torch['hip'] or 'none'})" if torch else None),
        ("Kernel", found["kernel"]),
        ("VBIOS", _counted(g["vbios"] for g in gpus)),
        ("Firmware", _firmware(gpus)),
        ("Power limit", _counted(_watts(g["power_limit_watts"]) for g in gpus)),
        ("Power profile", _counted(g["power_profile"] for g in gpus)),
        ("Node", found["node"]),
    ]
    missing = found["missing"]
    return [(name, value or _unknown(missing.get(name.lower()))) for name, value in words]


def _unknown(reason: str | None) -> str:
    return f"unknown ({reason})" if reason else "unknown"


def _one(values: Iterable[str | None]) -> str | None:
    known = sorted({v for v in values if v})
    return ", ".join(known) or None


def _counted(values: Iterable[str | None]) -> str | None:
    """Each value once; with how many have it where they differ, or where there are several."""
    counts = Counter(v for v in values if v)
    return ", ".join(f"{n} x {v}" if n > 1 else v for v, n in sorted(counts.items())) or None


def _in_brackets(word: str | None) -> str | None:
    return f"({word})" if word else None


def _modes(gpu: Mapping[str, Any]) -> str | None:
    return "/".join(filter(None, (gpu["compute_partition"], gpu["memory_partition"]))) or None


def _watts(value: float | None) -> str | None:
    return None if value is None else f"{value:g} W"


def _links(links: Sequence[Mapping[str, Any]]) -> str | None:
    """How the GPUs reach one another, each kind with the number of pairs; links to CPUs are left out."""
    pairs = {
        frozenset(
            (link["from"], link["to"])
        ): f"{link['type']} of {link['hops']} hops, weight {link['weight']}"
        for link in links
        if not link["to"].startswith("cpu")
    }
    counts = Counter(pairs.values())
    return "; ".join(f"{n} pairs by {kind}" for kind, n in sorted(counts.items())) or None


def _firmware(gpus: Sequence[Mapping[str, Any]]) -> str | None:
    """Blocks with their versions; several versions of one block stand side by side."""
    blocks: dict[str, set[str]] = {}
    for gpu in gpus:
        for block, version in gpu["firmware"].items():
            blocks.setdefault(block, set()).add(version)
    return ", ".join(f"{block} {'/'.join(sorted(v))}" for block, v in sorted(blocks.items())) or None
