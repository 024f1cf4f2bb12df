"""What was known of a GPU when a window was taken: what must be the same, and what may explain. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from exporter.model import Device, DeviceId, Series, Slot, Value, WindowResult

# Rounded, so that contexts repeat and each stands in the file once: nobody compares half a degree.
_MEASURED = (
    ("power_limit_watts", "amdgpu_power_limit_watts", ((),), 1.0),
    ("clock_hertz", "amdgpu_clock_hertz", (("sclk", ""), ("sclk", "0")), 50e6),
    ("temperature_celsius", "amdgpu_temperature_celsius", (("junction",), ("edge",)), 2.0),
)
_IDENTITY = ("model", "gfx", "compute_partition", "memory_partition", "driver", "vbios")
_INFO = "amdgpu_workload_info"


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
            if series.metric == _INFO and series.device is not None:
                holders.setdefault(series.device, []).append(series.labels)
    found = {}
    for result in results:
        device = devices.get(result.device) if result.device else None
        if device is None:
            continue
        about: dict[str, Any] = {k: v for k in _IDENTITY if (v := getattr(device, k)) is not None}
        if rocm:
            about["rocm"] = rocm
        for name, metric, labels, step in _MEASURED:
            measured = _first(values, metric, device.id, labels)
            if measured is not None:
                about[name] = round(measured / step) * step
        mine = holders.get(device.id) or holders.get(device.id.socket) or []
        if mine:
            about["co_tenants"] = len(mine) - 1
            about["workload"] = "/".join(part for part in min(mine) if part)
        found[result.gpu] = about
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
