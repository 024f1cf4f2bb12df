"""What was known of a GPU when a window was taken: what must be the same, and what may explain. Pure."""

from __future__ import annotations

from collections import Counter
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
_FIRMWARE = "amdgpu_firmware_info"
_LINK = "amdgpu_link_info"
_HELD, _SAMPLES = "amdgpu_throttle_residency_total", "amdgpu_throttle_samples_total"
_SHARE = 0.05
_JOBS = ("pod", "slurm", "job")


def contexts(
    results: Iterable[WindowResult],
    devices: Mapping[DeviceId, Device],
    slots: Iterable[Slot],
    about: Mapping[str, str | None],
    held: Throttle,
) -> dict[str, dict[str, Any]]:
    """Context by the GPU's name in the result; what is not known is left out. ``about``: of the node."""
    values: dict[Series, Value] = {}
    holders: dict[DeviceId, list[tuple[str, ...]]] = {}
    firmware: dict[DeviceId, list[str]] = {}
    links: dict[DeviceId, Counter[str]] = {}
    for slot in slots:
        for series, value in zip(slot.series, slot.values, strict=True):
            values.setdefault(series, value)
            if series.device is None:
                continue
            if series.metric == HOLDERS:
                holders.setdefault(series.device, []).append(series.labels)
            elif series.metric == _FIRMWARE:
                firmware.setdefault(series.device, []).append(" ".join(series.labels))
            elif series.metric == _LINK and not series.labels[0].startswith("cpu"):
                links.setdefault(series.device, Counter())[
                    f"{series.labels[1]} of {series.labels[2]} hops"
                ] += 1
    shares = held.shares(values)
    found = {}
    for result in results:
        device = devices.get(result.device) if result.device else None
        if device is None:
            continue
        one: dict[str, Any] = {k: v for k in IDENTITY if (v := getattr(device, k)) is not None}
        one |= {k: v for k, v in about.items() if v}
        socket = device.id.socket
        if blocks := firmware.get(socket):
            one["firmware"] = ", ".join(sorted(blocks))
        if kinds := links.get(socket):
            one["links"] = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        if (share := shares.get(socket)) is not None:
            one["throttle_ratio"] = share
        one |= surroundings(device.id, values, holders)
        if ranks := _ranks(device.id, holders):
            one["ranks"] = ranks
        found[result.gpu] = one
    return found


class Throttle:
    """What share of the firmware's samples held clocks down, from one window to the next."""

    def __init__(self) -> None:
        self._last: dict[Series, float] = {}

    def shares(self, values: Mapping[Series, Value]) -> dict[DeviceId, float]:
        """Of each GPU, the reason that held most. Absent: nothing before, or counters fell."""
        kept = ((s, v) for s, v in values.items() if s.metric in (_HELD, _SAMPLES))
        now = {s: v for s, v in kept if isinstance(v, int | float)}
        last, self._last = self._last, now
        found: dict[DeviceId, float] = {}
        for series, value in now.items():
            samples = Series(_SAMPLES, series.device)
            if series.metric != _HELD or series.device is None or series not in last or samples not in last:
                continue
            taken, share = now.get(samples, 0.0) - last[samples], value - last[series]
            if taken > 0 and 0 <= share <= taken:
                share = round(round(share / taken / _SHARE) * _SHARE, 2)
                found[series.device] = max(share, found.get(series.device, 0.0))
        return found


def _ranks(device: DeviceId, holders: Mapping[DeviceId, Sequence[tuple[str, ...]]]) -> int | None:
    """On how many GPUs of the node the job runs that holds this one; None where no job is known."""
    mine = [
        labels for labels in holders.get(device) or holders.get(device.socket) or () if labels[0] in _JOBS
    ]
    return sum(min(mine) in held for held in holders.values()) if mine else None


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
