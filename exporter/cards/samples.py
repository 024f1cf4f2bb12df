"""What was read of the GPUs while a command ran, and what one run took of each. Pure.

Units: base units; times on the monotonic clock, which is one for all processes.
Absent: a value without enough samples is None, and ``use`` says by which way an energy was had.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, NamedTuple

from exporter.model import Series, Value

# What is kept of a reading, by its name here; the first label set that has a value stands.
_KEPT: Mapping[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "energy": ("amdgpu_energy_joules_total", ((),)),
    "power": ("amdgpu_power_watts", ((),)),
    "memory": ("amdgpu_memory_used_bytes", (("vram",),)),
    "busy": ("amdgpu_busy_ratio", (("gfx",),)),
    "clock": ("amdgpu_clock_hertz", (("sclk", ""), ("sclk", "0"))),
    "temperature": ("amdgpu_temperature_celsius", (("junction",), ("edge",))),
}
_AROUND_S = 0.75  # how far before and after a run the readings of its energy may lie
_CURVE_MOST = 120
_SAMPLES_LEAST = 3
_USED_BUSY, _USED_BYTES = 0.05, 64 << 20


class Sample(NamedTuple):
    """One look at all GPUs, by PCI address."""

    at: float
    gpus: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command. ``kind``: cold, warm or profiled."""

    kind: str
    began: float
    ended: float
    code: int

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Use:
    """What one run took of one GPU, whoever else used it meanwhile."""

    energy_joules: float | None = None
    energy_from: str | None = None  # "counter", or "power": a mean of samples times the time
    power_mean_watts: float | None = None
    power_peak_watts: float | None = None
    memory_peak_bytes: float | None = None
    memory_rise_bytes: float | None = None
    busy_mean_ratio: float | None = None
    clock_mean_hertz: float | None = None
    temperature_peak_celsius: float | None = None
    samples: int = 0
    curve: tuple[tuple[float, float], ...] = field(default_factory=tuple)

    @property
    def used(self) -> bool:
        """Whether the run did anything with this GPU that shows."""
        busy, rise = self.busy_mean_ratio or 0.0, self.memory_rise_bytes or 0.0
        return busy >= _USED_BUSY or rise >= _USED_BYTES


def taken(at: float, readings: Mapping[Series, Value]) -> Sample:
    """What is kept of one poll."""
    gpus: dict[str, dict[str, float]] = {}
    sockets = {s.device.pci: s.device.socket for s in readings if s.device is not None}
    for pci, socket in sockets.items():
        for name, (metric, labels) in _KEPT.items():
            found = (readings.get(Series(metric, socket, one)) for one in labels)
            value = next((v for v in found if isinstance(v, int | float)), None)
            if value is not None:
                gpus.setdefault(pci, {})[name] = float(value)
    return Sample(at, gpus)


def line(sample: Sample) -> str:
    return json.dumps({"at": sample.at, "gpus": sample.gpus})


def read(lines: Iterable[str]) -> list[Sample]:
    """Samples as ``line`` wrote them; what was cut off or is none is left out."""
    found = []
    for text in lines:
        try:
            one = json.loads(text)
            at, gpus = float(one["at"]), one["gpus"]
            values = {
                str(pci): {k: float(v) for k, v in kept.items() if k in _KEPT and math.isfinite(v)}
                for pci, kept in gpus.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        found.append(Sample(at, values))
    return found


def use(samples: Sequence[Sample], run: Run) -> dict[str, Use]:
    """What a run took of each GPU."""
    addresses = sorted({pci for s in samples for pci in s.gpus})
    return {pci: _of_gpu(pci, samples, run) for pci in addresses}


def _of_gpu(pci: str, samples: Sequence[Sample], run: Run) -> Use:
    inside = [s for s in samples if run.began <= s.at <= run.ended]

    def column(name: str) -> list[float]:
        return [v for s in inside if (v := s.gpus.get(pci, {}).get(name)) is not None]

    power, memory, busy = column("power"), column("memory"), column("busy")
    energy, way = _energy(pci, samples, run), "counter"
    if energy is None and len(power) >= _SAMPLES_LEAST:
        energy, way = fmean(power) * run.seconds, "power"
    before = _nearest(pci, "memory", samples, run.began, after=False)
    peak = max(memory, default=None)
    clocks, heat = column("clock"), column("temperature")
    return Use(
        energy,
        None if energy is None else way,
        energy / run.seconds if energy is not None and run.seconds > 0 else None,
        max(power, default=None),
        peak,
        None if peak is None or before is None else peak - before[1],
        fmean(busy) if busy else None,
        fmean(clocks) if clocks else None,
        max(heat, default=None),
        len(inside),
        _curve(pci, inside, run),
    )


def _energy(pci: str, samples: Sequence[Sample], run: Run) -> float | None:
    """The rise of the counter over a run, by the readings just before and after it."""
    first = _nearest(pci, "energy", samples, run.began, after=False)
    last = _nearest(pci, "energy", samples, run.ended, after=True)
    if first is None or last is None:
        return None
    (began, low), (ended, high) = first, last
    around = max(_AROUND_S, 0.05 * run.seconds)
    if high <= low or run.began - began > around or ended - run.ended > around:
        return None  # it started over, stands still as no GPU does that is on, or was not read in time
    return (high - low) * run.seconds / (ended - began)


def _nearest(
    pci: str, name: str, samples: Sequence[Sample], at: float, *, after: bool
) -> tuple[float, float] | None:
    """The reading that is nearest to a time, on one side of it."""
    known = [(s.at, v) for s in samples if (v := s.gpus.get(pci, {}).get(name)) is not None]
    if after:
        return min((one for one in known if one[0] >= at), default=None)
    return max((one for one in known if one[0] <= at), default=None)


def _curve(pci: str, inside: Sequence[Sample], run: Run) -> tuple[tuple[float, float], ...]:
    """Memory over time since the start; of many points the highest of each stretch."""
    points = [(s.at - run.began, v) for s in inside if (v := s.gpus.get(pci, {}).get("memory")) is not None]
    step = math.ceil(len(points) / _CURVE_MOST) or 1
    return tuple(max(points[i : i + step], key=lambda p: p[1]) for i in range(0, len(points), step))


def together(uses: Sequence[Use]) -> Use:
    """The middle of several runs on one GPU; of what is a peak, the highest."""

    def middle(name: str) -> float | None:
        known = [v for one in uses if (v := getattr(one, name)) is not None]
        return median(known) if known else None

    def most(name: str) -> float | None:
        return max((v for one in uses if (v := getattr(one, name)) is not None), default=None)

    ways = {one.energy_from for one in uses} - {None}
    return Use(
        middle("energy_joules"),
        max((w for w in ways if w), default=None),  # power where any is from there: the weaker of the two
        middle("power_mean_watts"),
        most("power_peak_watts"),
        most("memory_peak_bytes"),
        most("memory_rise_bytes"),
        middle("busy_mean_ratio"),
        middle("clock_mean_hertz"),
        most("temperature_peak_celsius"),
        sum(one.samples for one in uses),
    )


def as_json(one: Use) -> dict[str, Any]:
    """The use of one GPU, the curve left out."""
    names = (
        *("energy_joules", "energy_from", "power_mean_watts", "power_peak_watts", "memory_peak_bytes"),
        *("memory_rise_bytes", "busy_mean_ratio", "clock_mean_hertz", "temperature_peak_celsius", "samples"),
    )
    return {name: getattr(one, name) for name in names}
