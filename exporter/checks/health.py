"""Healthy, degraded, unhealthy or unknown, for each GPU, with the reasons: rules over its readings. Pure.

Degraded: it works and something is wrong. Unhealthy: do not give it work. Unknown: nothing was read that
could tell, which is never the same as healthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from exporter.checks.thermal import Thermal
from exporter.model import Device, DeviceId, Reason, Series, Slot

_UNCORRECTABLE = "amdgpu_ecc_uncorrectable_errors_total"
_DEFERRED = "amdgpu_ecc_deferred_errors_total"
_PAGES = "amdgpu_retired_pages"
_RESETS = "amdgpu_resets_total"
_RECORD_AT = "amdgpu_error_record_last_timestamp_seconds"
_HEAT, _HEAT_LIMIT = "amdgpu_temperature_celsius", "amdgpu_temperature_limit_celsius"
_RESIDENCY, _SAMPLES = "amdgpu_throttle_residency_total", "amdgpu_throttle_samples_total"
_BUSY = "amdgpu_busy_ratio"
_LINKS = (
    ("amdgpu_pcie_link_width_lanes", "amdgpu_pcie_max_link_width_lanes", "{:.0f} of {:.0f} lanes", 1.0),
    (
        "amdgpu_pcie_link_transfers_per_second",
        "amdgpu_pcie_max_link_transfers_per_second",
        "{:g} of {:g} GT/s",
        1e-9,
    ),
)
_THERMAL = frozenset({"prochot", "socket_thermal", "vr_thermal", "hbm_thermal"})
# Any of these shows that the GPU answers; without one of them nothing is said about its health.
_SIGNS = frozenset({_UNCORRECTABLE, _HEAT, _BUSY, "amdgpu_power_watts"})
_RISING = frozenset({_UNCORRECTABLE, _RESETS})
_READ = (
    _SIGNS
    | _RISING
    | {
        _DEFERRED,
        _PAGES,
        _RECORD_AT,
        _HEAT_LIMIT,
        _RESIDENCY,
        _SAMPLES,
        *(name for link in _LINKS for name in link[:2]),
    }
)


_Name = tuple[str, tuple[str, ...]]
_Readings = dict[_Name, float]


class Status(StrEnum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


REASONS: tuple[tuple[str, str, str], ...] = (
    (
        "uncorrectable_errors",
        "degraded; unhealthy for 15 min after a rise",
        "ECC counted errors that were not corrected.",
    ),
    ("deferred_errors", "degraded", "ECC found bad data before anyone used it."),
    ("pages_pending", "degraded", "Bad memory pages wait for a reset."),
    ("pages_in_use", "unhealthy", "Bad memory pages cannot be taken out of use."),
    ("reset", "degraded", "The GPU was reset in the last 15 min."),
    (
        "error_record",
        "degraded for a day; unhealthy for 15 min",
        "The driver wrote an error record (CPER), fatal or uncorrected.",
    ),
    (
        "over_temperature",
        "degraded; unhealthy at the emergency limit",
        "A sensor is at the limit the GPU itself states.",
    ),
    (
        "thermal_throttling",
        "degraded",
        "Heat held clocks down for more than 5 % of the last 5 to 10 min; the power limit is no fault.",
    ),
    (
        "pcie_link",
        "degraded",
        "PCIe lanes or speed are below the maximum while the GPU is at least half busy.",
    ),
    ("gone", "unhealthy", "The GPU was seen since the start and is gone or does not answer."),
    ("asleep", "unknown", "The kernel has suspended it; reading would wake it."),
    ("no_readings", "unknown", "Nothing that tells of its health can be read."),
    ("no_data", "unknown", "No source has answered lately."),
)

_WORST = (Status.UNHEALTHY, Status.DEGRADED, Status.UNKNOWN, Status.HEALTHY)


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on something counts. ``recent_s``: how long a rise is held against a GPU."""

    recent_s: float = 900.0
    record_s: float = 86_400.0
    thermal_share: float = 0.05
    load: float = 0.5


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a GPU is not simply healthy: a stable id, what it makes of the GPU, and words."""

    id: str
    status: Status
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    device: Device
    status: Status
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True, slots=True)
class Sight:
    """One GPU as it is seen: readings by (metric, labels), and what has changed since it was seen first.

    ``risen`` holds counters that rose lately, with by how much and how many seconds ago. ``thermal`` is the
    share of firmware samples, lately, in which heat held clocks down, by reason. ``at`` is the time of it.
    """

    readings: Mapping[_Name, float]
    risen: Mapping[_Name, tuple[float, float]] = field(default_factory=dict)
    thermal: Mapping[str, float] = field(default_factory=dict)
    at: float = 0.0


def judge(device: Device, sight: Sight | None, *, asleep: bool, watched: bool, limits: Limits) -> Verdict:
    """What one GPU's readings add up to.

    ``sight`` is None for a GPU that no source lists any more; ``watched`` is false while no source answers.
    """
    if not watched:
        return _unknown(device, "no_data", "no source has answered lately")
    if sight is None:
        return _verdict(device, [Cause("gone", Status.UNHEALTHY, "is gone or does not answer")])
    if asleep:
        return _unknown(device, "asleep", "asleep; reading it would wake it")
    causes = [*_errors(sight), *_records(sight, limits), *_heat(sight, limits), *_link(sight, limits)]
    if not causes and not any(metric in _SIGNS for metric, _ in sight.readings):
        return _unknown(device, "no_readings", "nothing that tells of its health can be read")
    return _verdict(device, causes)


def _unknown(device: Device, ident: str, text: str) -> Verdict:
    return Verdict(device, Status.UNKNOWN, (Cause(ident, Status.UNKNOWN, text),))


def _verdict(device: Device, causes: list[Cause]) -> Verdict:
    causes.sort(key=lambda c: _WORST.index(c.status))
    return Verdict(device, causes[0].status if causes else Status.HEALTHY, tuple(causes))


def _errors(sight: Sight) -> Iterator[Cause]:
    for (metric, labels), value in sight.readings.items():
        if value <= 0:
            continue
        if metric == _UNCORRECTABLE:
            if risen := sight.risen.get((metric, labels)):
                text = f"{risen[0]:.0f} new uncorrectable errors in {labels[0]}, {risen[1]:.0f} s ago"
                yield Cause("uncorrectable_errors", Status.UNHEALTHY, text)
            else:
                text = f"{value:.0f} uncorrectable errors in {labels[0]} since the driver started"
                yield Cause("uncorrectable_errors", Status.DEGRADED, text)
        elif metric == _DEFERRED:
            text = f"{value:.0f} deferred errors in {labels[0]} since the driver started"
            yield Cause("deferred_errors", Status.DEGRADED, text)
        elif metric == _PAGES and labels[0] == "pending":
            yield Cause("pages_pending", Status.DEGRADED, f"{value:.0f} bad pages wait for a reset")
        elif metric == _PAGES and labels[0] == "unreservable":
            yield Cause("pages_in_use", Status.UNHEALTHY, f"{value:.0f} bad pages are still in use")
        elif metric == _RESETS and (risen := sight.risen.get((metric, labels))):
            yield Cause("reset", Status.DEGRADED, f"was reset {risen[1]:.0f} s ago")


def _records(sight: Sight, limits: Limits) -> Iterator[Cause]:
    for severity in ("fatal", "uncorrected"):
        written = sight.readings.get((_RECORD_AT, (severity,)))
        age = None if written is None else sight.at - written
        if age is not None and -limits.recent_s <= age <= limits.record_s:
            status = Status.UNHEALTHY if age <= limits.recent_s else Status.DEGRADED
            yield Cause("error_record", status, f"{severity} error record, {max(age, 0):.0f} s ago")


def _heat(sight: Sight, limits: Limits) -> Iterator[Cause]:
    for (metric, labels), value in sight.readings.items():
        if metric != _HEAT:
            continue
        for limit, status in (("emergency", Status.UNHEALTHY), ("critical", Status.DEGRADED)):
            most = sight.readings.get((_HEAT_LIMIT, (labels[0], limit)))
            if most is not None and most > 0 and value >= most:
                text = f"{labels[0]} at {value:.0f} °C, {limit} limit {most:.0f} °C"
                yield Cause("over_temperature", status, text)
                break
    for reason, share in sight.thermal.items():
        if share > limits.thermal_share:
            text = f"{reason.replace('_', ' ')} holds clocks down {share:.0%} of the time"
            yield Cause("thermal_throttling", Status.DEGRADED, text)


def _link(sight: Sight, limits: Limits) -> Iterator[Cause]:
    busy = sight.readings.get((_BUSY, ("gfx",)))
    if busy is None or busy < limits.load:
        return  # an idle link slows down, and may narrow, to save power
    for now, most, words, scale in _LINKS:
        is_, can = sight.readings.get((now, ())), sight.readings.get((most, ()))
        if is_ is not None and can is not None and is_ < can:
            yield Cause(
                "pcie_link", Status.DEGRADED, "PCIe under load: " + words.format(is_ * scale, can * scale)
            )


class Watch:
    """Judges every GPU again and again, and remembers what it takes to see a counter rise."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.verdicts: tuple[Verdict, ...] = ()
        self._key: list[object] = []
        self._plan: dict[DeviceId, list[tuple[int, int, _Name, Series | None]]] = {}
        self._asleep: frozenset[DeviceId] = frozenset()
        self._last: dict[Series, float] = {}
        self._risen: dict[Series, tuple[float, float]] = {}  # by how much, and when last
        self._thermal: dict[DeviceId, Thermal] = {}

    def look(
        self, at: float, devices: Mapping[DeviceId, Device], slots: Iterable[Slot], here: Iterable[DeviceId]
    ) -> dict[DeviceId, str]:
        """The state of each socket. ``here``: what answers; ``slots``: fresh ones, in order of trust."""
        polled = list(slots)
        readings, asleep = self._gather(at, polled)
        present = {key.socket for key in here}
        sockets: dict[DeviceId, Device] = {}
        for key, device in devices.items():
            sockets.setdefault(key.socket, device)
        self.verdicts = tuple(
            judge(
                device,
                self._sight(at, key, readings.get(key, {})) if key in present else None,
                asleep=key in asleep and not readings.get(key),
                watched=bool(polled),
                limits=self.limits,
            )
            for key, device in sockets.items()
        )
        return {v.device.id.socket: v.status.value for v in self.verdicts}

    def _gather(
        self, at: float, slots: Sequence[Slot]
    ) -> tuple[dict[DeviceId, _Readings], frozenset[DeviceId]]:
        key: list[object] = [part for slot in slots for part in (slot.series, slot.gaps)]
        # Sources hand out the same tuples while nothing came or went, so where things lie is found once.
        if len(key) != len(self._key) or any(a is not b for a, b in zip(key, self._key, strict=True)):
            self._key, self._plan, self._asleep = key, _plan(slots), _asleep(slots)
        values = [slot.values for slot in slots]
        readings: dict[DeviceId, _Readings] = {}
        for socket, rows in self._plan.items():
            of: _Readings = {}
            readings[socket] = of
            for n, place, name, series in rows:
                value = values[n][place]
                if isinstance(value, int | float):
                    if series is not None:
                        self._count(series, value, at)
                    if name not in of or value > of[name]:  # the busiest partition stands for its socket
                        of[name] = value
        return readings, self._asleep

    def _count(self, series: Series, value: float, at: float) -> None:
        last = self._last.get(series)
        self._last[series] = value
        if last is not None and value > last:
            self._risen[series] = (value - last, at)

    def _sight(self, at: float, key: DeviceId, readings: Mapping[_Name, float]) -> Sight:
        risen = {
            (s.metric, s.labels): (by, at - when)
            for s, (by, when) in self._risen.items()
            if s.device and s.device.socket == key and at - when <= self.limits.recent_s
        }
        samples = readings.get((_SAMPLES, ()))
        residency = {
            labels[0]: value
            for (metric, labels), value in readings.items()
            if metric == _RESIDENCY and labels[0] in _THERMAL
        }
        if samples is None or not residency:
            return Sight(readings, risen, at=at)
        thermal = self._thermal.setdefault(key, Thermal())
        return Sight(readings, risen, thermal.share(at, samples, residency, self.limits.recent_s), at)


def _plan(slots: Sequence[Slot]) -> dict[DeviceId, list[tuple[int, int, _Name, Series | None]]]:
    """By socket: slot and place of each reading that matters, its name, and its series if a rise counts.

    The first slot speaks for a series.
    """
    plan: dict[DeviceId, list[tuple[int, int, _Name, Series | None]]] = {}
    seen: set[Series] = set()
    for n, slot in enumerate(slots):
        for place, series in enumerate(slot.series):
            if series.metric in _READ and series.device is not None and series not in seen:
                seen.add(series)
                rises = series if series.metric in _RISING else None
                row = n, place, (series.metric, series.labels), rises
                plan.setdefault(series.device.socket, []).append(row)
    return plan


def _asleep(slots: Sequence[Slot]) -> frozenset[DeviceId]:
    return frozenset(
        g.device.socket for slot in slots for g in slot.gaps if g.reason is Reason.SUSPENDED and g.device
    )


def overall(
    verdicts: Sequence[Verdict], expected: int | None, sources: Mapping[str, str] | None = None
) -> tuple[Status, int]:
    """The state of the node, and how many GPUs it should have and has not.

    While none of ``sources`` is "up" nothing can be said, so nothing is missing.
    """
    if sources and "up" not in sources.values():
        return Status.UNKNOWN, 0
    found = len({v.device.id.pci for v in verdicts})
    missing = max(0, (expected or 0) - found)
    if missing:
        return Status.UNHEALTHY, missing
    states = {v.status for v in verdicts}
    return next((s for s in _WORST if s in states), Status.UNKNOWN), 0


def as_json(verdicts: Sequence[Verdict], expected: int | None, sources: Mapping[str, str]) -> dict[str, Any]:
    """One object, all keys always there; ``sources`` says of each "up" or why it is down."""
    status, missing = overall(verdicts, expected, sources)
    return {
        "version": 1,
        "status": status.value,
        "expected": expected,
        "missing": missing,
        "sources": dict(sources),
        "gpus": [
            {
                "gpu": v.device.gpu,
                "pci": v.device.id.pci,
                "status": v.status.value,
                "reasons": [{"id": c.id, "status": c.status.value, "text": c.text} for c in v.causes],
            }
            for v in verdicts
        ],
    }


LINE_LIMIT = 80  # bytes of a plugin's output that node-problem-detector keeps


def line(verdicts: Sequence[Verdict], expected: int | None, sources: Mapping[str, str] | None = None) -> str:
    """One line for a supervisor: the worst GPU and its first reason."""
    status, missing = overall(verdicts, expected, sources)
    if sources and "up" not in sources.values():
        return _cut(f"unknown: {'; '.join(f'{name}: {why}' for name, why in sources.items())}")
    if missing:
        return f"unhealthy: {missing} of {expected} GPUs are missing"
    if not verdicts:
        return "unknown: no AMD GPU is visible"
    if status is Status.HEALTHY:
        return f"healthy: {len(verdicts)} GPU{'s' * (len(verdicts) != 1)}"
    worst = [v for v in verdicts if v.status is status]
    more = f" (+{len(worst) - 1})" if len(worst) > 1 else ""
    text = f"{status}: {worst[0].device.id.pci}{more}: {worst[0].causes[0].text}"
    return _cut(text)


def _cut(text: str) -> str:
    return " ".join(text.split()).encode()[:LINE_LIMIT].decode("utf-8", "ignore")


def exit_code(status: Status) -> int:
    """As node-problem-detector reads it: 0 OK, 1 not OK, 2 unknown."""
    return {Status.HEALTHY: 0, Status.UNKNOWN: 2}.get(status, 1)
