"""What the daemon says of itself and of the node: identity, presence, sources, cost. Pure.

Builds one Slot per generation from plain facts; the series tuple is reused while its series stay.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exporter import __version__
from exporter.catalogue.schema import Catalogue
from exporter.model import Device, DeviceId, Outcome, Reason, Series, Slot, Value

SOURCE = "exporter"


class SlotBuilder:
    """Collects readings of our own making; keeps the identity of the series tuple between generations."""

    def __init__(self) -> None:
        self._last: tuple[Series, ...] = ()
        self._series: list[Series] = []
        self._values: list[Value] = []

    def add(self, metric: str, value: Value | None, *labels: str, device: DeviceId | None = None) -> None:
        """One reading; nothing is added for None."""
        if value is not None:
            self._series.append(Series(metric, device, labels))
            self._values.append(value)

    def finish(self, outcome: Outcome) -> Slot:
        series = tuple(self._series)
        if series == self._last:
            series = self._last
        self._last = series
        values = tuple(self._values)
        self._series, self._values = [], []
        return Slot(outcome, series, values)


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """One source as it stands: how the last poll went, what it lacks, how often it failed."""

    name: str
    backend: str
    root: str
    outcome: Outcome | None
    missing: Mapping[Reason, int] | None  # None: no fresh data, so nothing can be said
    failures: Mapping[Reason, int]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the vitals are built from."""

    at: float
    devices: Mapping[DeviceId, Device]
    present: frozenset[DeviceId]
    expected: int | None
    sources: tuple[SourceFacts, ...]
    children: Mapping[str, int]
    processes: Mapping[str, tuple[float, int]]  # name -> processor seconds, resident bytes
    replay: tuple[str, bool] | None  # capture name, synthetic
    reload_ok: bool
    reload_at: float
    generation: int
    dropped_total: int
    render_seconds: float | None
    observed: bool  # a source has answered at least once
    extra: Mapping[str, float] = field(default_factory=dict)
    health: Mapping[DeviceId, str] = field(default_factory=dict)  # socket -> state
    textfiles: tuple[tuple[str, float | None, int], ...] = ()  # name, when it was changed, times refused
    refused: Mapping[str, int] = field(default_factory=dict)  # connections and requests, by reason


def fill(builder: SlotBuilder, catalogue: Catalogue, facts: Facts) -> None:
    """Add all vitals but ``amdgpu_exporter_series``, which only the layout knows."""
    add = builder.add
    _identity(builder, catalogue, facts)
    for socket, state in facts.health.items():
        for each in catalogue["amdgpu_health_state"].states:
            add("amdgpu_health_state", int(each == state), each, device=socket)
    if facts.observed:
        add("amdgpu_devices", len({d.pci for d in facts.present}))
    add("amdgpu_expected_devices", facts.expected)
    add("amdgpu_exporter_build_info", 1, __version__, platform.python_version())
    if facts.replay:
        add("amdgpu_exporter_replay_info", 1, facts.replay[0], str(facts.replay[1]).lower())
    for s in facts.sources:
        add("amdgpu_exporter_source_info", 1, s.name, s.backend, s.root)
        if s.outcome:
            add("amdgpu_exporter_source_up", int(s.outcome.ok), s.name)
            add("amdgpu_exporter_source_duration_seconds", s.outcome.seconds, s.name)
            add("amdgpu_exporter_source_last_success_timestamp_seconds", s.outcome.last_ok, s.name)
        for reason in Reason:
            add("amdgpu_exporter_source_failures_total", s.failures.get(reason, 0), s.name, reason)
            if s.missing is not None:
                add("amdgpu_exporter_readings_missing", s.missing.get(reason, 0), s.name, reason)
    for name, starts in facts.children.items():
        add("amdgpu_exporter_child_starts_total", starts, name)
    for name, changed, refused in facts.textfiles:
        add("amdgpu_exporter_textfile_modified_timestamp_seconds", changed, name)
        add("amdgpu_exporter_textfile_errors_total", refused, name)
    for name, (cpu, memory) in facts.processes.items():
        add("amdgpu_exporter_cpu_seconds_total", cpu, name)
        add("amdgpu_exporter_resident_memory_bytes", memory, name)
    for why, times in facts.refused.items():
        add("amdgpu_exporter_requests_refused_total", times, why)
    add("amdgpu_exporter_series_dropped_total", facts.dropped_total)
    add("amdgpu_exporter_generation_total", facts.generation)
    add("amdgpu_exporter_render_duration_seconds", facts.render_seconds)
    add("amdgpu_exporter_config_last_reload_successful", int(facts.reload_ok))
    add("amdgpu_exporter_config_last_reload_success_timestamp_seconds", facts.reload_at)


def _identity(builder: SlotBuilder, catalogue: Catalogue, facts: Facts) -> None:
    for key, device in facts.devices.items():
        here = key in facts.present
        builder.add("amdgpu_up", int(here), device=key)
        if not here:
            continue
        for name in ("amdgpu_info", "amdgpu_partition_info"):
            if name in catalogue and (name == "amdgpu_info" or device.compute_partition):
                labels = (_text(device, label) for label in catalogue[name].labels)
                builder.add(name, 1, *labels, device=key)


def _text(device: Device, label: str) -> str:
    """The text of one identity label: a field of Device, or one of its indices."""
    value = device.indices.get(label) if label in device.indices else getattr(device, label, None)
    return "" if value is None else str(value)


def count(reasons: Iterable[Reason]) -> dict[Reason, int]:
    return dict(Counter(reasons))
