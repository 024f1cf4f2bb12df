"""What a metric entry is, and the laws every entry obeys. Pure.

A metric is one ``Metric`` value in one of the catalogue's modules. Its name, HELP, unit, documentation,
range check and the checks of dashboards and rules all derive from that value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

PREFIX = "amdgpu"


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"  # constant 1; all it says is in its labels
    STATE = "state"  # one series per state, exactly one is 1


class Unit(StrEnum):
    """Base units; the value is the word a metric name carries."""

    NONE = ""
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes_per_second"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    JOULES = "joules"
    LANES = "lanes"
    PER_SECOND = "per_second"
    RATIO = "ratio"
    RPM = "rpm"
    SECONDS = "seconds"
    TIMESTAMP = "timestamp_seconds"
    TRANSFERS_PER_SECOND = "transfers_per_second"
    VOLTS = "volts"
    WATTS = "watts"


class Scope(StrEnum):
    NODE = "node"  # no device labels
    SOCKET = "socket"  # gpu, pci; never a partition
    PARTITION = "partition"  # gpu, pci, and partition where the socket is partitioned


@dataclass(frozen=True, slots=True)
class Field:
    """Where a backend's raw groups hold the value: data, never an expression.

    ``path`` is dotted inside the group; each ``*`` stands for every key (or list index) there and becomes
    the value of the label of the same position in ``each``. ``scale`` turns the raw number into base units.
    Fields of one metric are tried in order; the first that has a value for a label set wins.
    """

    backend: str
    group: str
    path: str
    scale: float = 1.0
    each: tuple[str, ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: everything anyone needs to know about it.

    ``range`` is inclusive, in base units; a value outside it is a Gap, never clamped.
    ``peers`` are other exporters' names for the same thing, as ``exporter:name``.
    ``states`` are the values of the last label of a state metric.
    ``seen_on`` names the hardware that shows it, for a reading that no captured machine has shown yet.
    ``set`` names the counter set a sampled counter belongs to; ratios divide within one set.
    """

    key: str
    kind: Kind
    unit: Unit
    help: str
    scope: Scope
    range: tuple[float, float]
    labels: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    peers: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    set: str | None = None
    check: str | None = None  # a command that shows the number by hand
    seen_on: str | None = None

    @property
    def name(self) -> str:
        """The full name: prefix, key, unit word, and ``_total``, ``_info`` or ``_state``."""
        parts = [PREFIX, self.key]
        if self.unit and not self.key.endswith(self.unit):
            parts.append(self.unit)
        if suffix := _SUFFIX.get(self.kind):
            parts.append(suffix)
        return "_".join(p for p in parts if p)


_SUFFIX = {Kind.COUNTER: "total", Kind.INFO: "info", Kind.STATE: "state"}
_KEY = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
_RESERVED_LABELS = frozenset({"job", "instance", "gpu", "pci", "partition", "le", "quantile"})


def faults(metric: Metric) -> Iterator[str]:
    """Every law that ``metric`` breaks, in words."""
    name = metric.name
    yield from _word_faults(metric)
    low, high = metric.range
    if not low < high:
        yield f"{name}: an empty range"
    if metric.unit is Unit.RATIO and high > 2:
        yield f"{name}: a ratio's range may not reach beyond 2"
    if metric.kind is Kind.COUNTER and low < 0:
        yield f"{name}: a counter cannot be negative"
    if (metric.kind is Kind.HISTOGRAM) != bool(metric.buckets):
        yield f"{name}: buckets belong to histograms, and each histogram has some"
    if len(metric.buckets) > 11 or list(metric.buckets) != sorted(set(metric.buckets)):
        yield f"{name}: buckets must rise and be at most 11 (+Inf is the twelfth)"
    if (metric.kind is Kind.STATE) != bool(metric.states):
        yield f"{name}: states belong to state metrics, and each of those has some"
    if metric.kind is Kind.STATE and not metric.labels:
        yield f"{name}: a state metric's last label names the state"
    if bad := _RESERVED_LABELS & set(metric.labels):
        yield f"{name}: label {min(bad)} is given by the exposition or owned by Prometheus"
    if len(set(metric.labels)) != len(metric.labels):
        yield f"{name}: a label stands twice"
    for f in metric.fields:
        if f.path.split(".").count("*") != len(f.each):
            yield f"{name}: field {f.path} needs one label in each for every *"
        given = {*f.each, *(k for k, _ in f.fixed)}
        if given - set(metric.labels):
            yield f"{name}: field {f.path} sets a label the metric does not have"


def _word_faults(metric: Metric) -> Iterator[str]:
    name = metric.name
    if metric.key and not _KEY.match(metric.key):
        yield f"{name}: the key must be lower-case words joined by _"
    if not metric.help.endswith(".") or len(metric.help) < 15:
        yield f"{name}: HELP must be a sentence"
    if "\n" in metric.help:
        yield f"{name}: HELP is one line"
    if metric.seen_on is not None and (len(metric.seen_on) < 10 or metric.seen_on.endswith(".")):
        yield f"{name}: seen_on is words for hardware, without a full stop"


@dataclass(frozen=True, slots=True, init=False)
class Catalogue:
    """All metrics by name, in the order they are documented. Raises ValueError on any broken law."""

    metrics: dict[str, Metric]

    def __init__(self, metrics: Iterable[Metric]) -> None:
        table: dict[str, Metric] = {}
        problems: list[str] = []
        for m in metrics:
            problems.extend(faults(m))
            if m.name in table:
                problems.append(f"{m.name}: defined twice")
            table[m.name] = m
        if problems:
            raise ValueError("; ".join(problems))
        object.__setattr__(self, "metrics", table)

    def __getitem__(self, name: str) -> Metric:
        return self.metrics[name]

    def __iter__(self) -> Iterator[Metric]:
        return iter(self.metrics.values())

    def __contains__(self, name: object) -> bool:
        return name in self.metrics

    def __len__(self) -> int:
        return len(self.metrics)
