"""What was known of a GPU when a window was taken: what must be the same, and what may explain. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from exporter.model import Device, DeviceId, Series, Slot, Value, WindowResult

# Rounded, so that contexts repeat and each stands in the file once: nobody compares half a degree.
MEASURED = (
    ("power_limit_watts", "amdgpu_power_limit_watts", ((),), 1.0),
    ("clock_hertz", "amdgpu_clock_hertz", (("sclk", ""), ("sclk", "0")), 50e6),
    ("temperature_celsius", "amdgpu_temperature_celsius", (("junction",), ("edge",)), 2.0),
)
IDENTITY = ("model", "gfx", "compute_partition", "memory_partition", "driver", "vbios")
HOLDERS = "amdgpu_workload_info"


def contexts(
    results: Iterable[WindowResult],
    devices: Mapping[DeviceId, Device],
    slots: Iterable[Slot],
    rocm: str | None,
) -> dict[str, dict[str, Any]]:
    """Context by the GPU's name in the result; what is not known is left out."""
    values: dict[Series, Value] = {}
    holders: dict[DeviceId, list[tuple[str, ...]]] = {}
    for slot in slots:
        for series, value in zip(slot.series, slot.values, strict=True):
            values.setdefault(series, value)
            if series.metric == HOLDERS and series.device is not None:
                holders.setdefault(series.device, []).append(series.labels)
    found = {}
    for result in results:
        device = devices.get(result.device) if result.device else None
        if device is None:
            continue
        about: dict[str, Any] = {k: v for k in IDENTITY if (v := getattr(device, k)) is not None}
        if rocm:
            about["rocm"] = rocm
        about |= surroundings(device.id, values, holders)
        found[result.gpu] = about
    return found


def surroundings(
    device: DeviceId,
    values: Mapping[Series, Value],
    holders: Mapping[DeviceId, Sequence[tuple[str, ...]]],
) -> dict[str, Any]:
    """What was measured of a GPU, and who held it, by label values of amdgpu_workload_info."""
    found: dict[str, Any] = {}
    for name, metric, labels, step in MEASURED:
        measured = _first(values, metric, device, labels)
        if measured is not None:
            found[name] = round(measured / step) * step
    mine = holders.get(device) or holders.get(device.socket) or ()
    if mine:
        found["co_tenants"] = len(mine) - 1
        found["workload"] = "/".join(part for part in min(mine) if part)
    return found


def _first(
    values: Mapping[Series, Value], metric: str, key: DeviceId, labels: Sequence[tuple[str, ...]]
) -> float | None:
    for one in labels:
        for device in (key, key.socket):
            value = values.get(Series(metric, device, one))
            if isinstance(value, int | float):
                return value
    return None
