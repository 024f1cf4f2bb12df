"""Which GPUs left their usual values, or those of a healthy one: they get the deep counter sets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.model import DeviceId

_LEAST = 12  # windows before anything is usual
_WEIGHT = 0.1  # of the newest window
_DEVIATIONS = 5.0
_SHARE = 0.2  # a fifth away from the usual at least, so that a steady GPU does not leave by a hair
_DEVICES_MOST = 1_024


@dataclass(frozen=True, slots=True)
class Healthy:
    """What a healthy GPU shows; ratios, and seconds for the queue time."""

    compute_density_least: float = 0.80
    matrix_busy_least: float = 0.30
    l2_hit_least: float = 0.85
    valu_utilization_least: float = 0.70
    memory_busy_most: float = 0.90
    atomic_most: float = 0.05
    launch_queue_most: float = 50e-6
    bandwidth_least: float = 0.60


_NAMES = {
    "amdgpu_l2_hit_ratio": "l2_hit",
    "amdgpu_compute_density_active_ratio": "compute_density",
    "amdgpu_matrix_busy_ratio": "matrix_busy",
    "amdgpu_valu_utilization_ratio": "valu_utilization",
    "amdgpu_atomic_ratio": "atomic",
}


def named(gauges: Mapping[tuple[str, tuple[str, ...]], float]) -> dict[str, float]:
    """The values that are watched here, of all that a counter window showed."""
    return {_NAMES[metric]: value for (metric, _), value in gauges.items() if metric in _NAMES}


def beyond(values: Mapping[str, float], healthy: Healthy) -> tuple[str, ...]:
    """Names of the values beyond the limits. What is not known is beyond none."""
    found = []
    for name, least in (
        ("l2_hit", healthy.l2_hit_least),
        ("valu_utilization", healthy.valu_utilization_least),
        ("bandwidth", healthy.bandwidth_least),
    ):
        if name in values and values[name] < least:
            found.append(name)
    for name, most in (
        ("memory_busy", healthy.memory_busy_most),
        ("atomic", healthy.atomic_most),
        ("launch_queue", healthy.launch_queue_most),
    ):
        if name in values and values[name] > most:
            found.append(name)
    # One matrix instruction holds the pipe for many cycles: few instructions are then full work.
    density, matrix = values.get("compute_density"), values.get("matrix_busy")
    few = density is not None and density < healthy.compute_density_least
    if few and matrix is not None and matrix < healthy.matrix_busy_least:
        found.append("compute_density")
    return tuple(found)


@dataclass(slots=True)
class _Usual:
    """A value's running mean and mean deviation, the newest weighing most."""

    count: int = 0
    mean: float = 0.0
    deviation: float = 0.0

    def left(self, value: float) -> bool:
        distance = abs(value - self.mean)
        limit = max(_DEVIATIONS * self.deviation, _SHARE * abs(self.mean))
        return self.count >= _LEAST and distance > limit

    def take(self, value: float) -> None:
        weight = max(_WEIGHT, 1 / (self.count + 1))
        self.deviation += weight * (abs(value - self.mean) - self.deviation) if self.count else 0.0
        self.mean += weight * (value - self.mean)
        self.count = min(self.count + 1, _LEAST)


class Baselines:
    """What is usual for each GPU, from its light windows. A value that left pulls its mean along slowly."""

    def __init__(self) -> None:
        self._usual: dict[DeviceId, dict[str, _Usual]] = {}

    def take(self, device: DeviceId, values: Mapping[str, float]) -> tuple[str, ...]:
        """Take in one window; gives the names of the values that left the usual."""
        own = self._usual.setdefault(device, {})
        left = []
        for name, value in values.items():
            usual = own.setdefault(name, _Usual())
            if usual.left(value):
                left.append(name)
            usual.take(value)
        return tuple(left)

    def dump(self) -> list[list[Any]]:
        """What outlives a restart, as JSON values."""
        return [
            [device.pci, device.partition, name, u.count, u.mean, u.deviation]
            for device, own in self._usual.items()
            for name, u in own.items()
        ]

    def restore(self, kept: list[list[Any]]) -> None:
        """Go on where ``dump`` left off. Raises ValueError or TypeError for anything else."""
        found: dict[DeviceId, dict[str, _Usual]] = {}
        for pci, partition, name, count, mean, deviation in kept:
            usual = _Usual(int(count), float(mean), float(deviation))
            if not abs(usual.mean) < float("inf") or not 0 <= usual.deviation < float("inf"):
                raise ValueError("a baseline that is none")
            device = DeviceId(str(pci), None if partition is None else int(partition))
            if len(found) < _DEVICES_MOST or device in found:
                found.setdefault(device, {})[str(name)] = usual
        self._usual = found
