"""Windows out of scraped series: what the counters grew by when a window was taken in. Pure.

Every scrape is one moment, so that all series of a node agree. What cannot be told apart is left out and
counted: two windows between two scrapes, a window without a scrape before it, counters that fell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from exporter.catalogue import CATALOGUE
from exporter.compare.rows import Row
from exporter.history import context
from exporter.history.amounts import metrics
from exporter.model import DeviceId, Series
from exporter.windows.kernels import OTHER

LAST = "amdgpu_window_last_timestamp_seconds"
PHASE = "amdgpu_phase_info"
_RUN = "amdgpu_window_run_info"
_INFO = "amdgpu_info"
_PARTITION = "amdgpu_partition_info"
_COVERAGE = "amdgpu_window_coverage_ratio"
_OBSERVED = "amdgpu_window_observed_seconds_total"
_TAKEN = "amdgpu_windows_total"
_KERNEL = "amdgpu_kernel_seconds_total"
_CALLS = "amdgpu_kernel_dispatches_total"
# What history calls the sums of one window, by the counters that they went into. Ratios of them need no unit.
_SUMS = {
    "amdgpu_launch_queue_seconds_sum": "queue_ns",
    "amdgpu_launch_duration_seconds_sum": "launch_duration_ns",
    "amdgpu_launch_exposed_delay_seconds_total": "exposed_delay_ns",
    "amdgpu_cache_hits_total": "l2_hits",
    "amdgpu_cache_requests_total": "l2_requests",
    "amdgpu_valu_instructions_total": "valu_instructions",
    "amdgpu_counters_available_instructions_total": "slots_available",
}
_COUNTERS = frozenset((*_SUMS, _OBSERVED, _TAKEN, _KERNEL, _CALLS))
_GAUGES = tuple(metric for _, metric, _, _ in context.MEASURED)
NAMES = (*_SUMS, _OBSERVED, _TAKEN, _KERNEL, _CALLS, LAST, _RUN, _INFO, _PARTITION, _COVERAGE)
NAMES = (*NAMES, context.HOLDERS, *_GAUGES)
_WITH_RESULT = ("ok", "partial")

Points = Sequence[tuple[float, float]]
_Key = tuple[str, tuple[tuple[str, str], ...]]  # metric, its own labels


class Gpu(NamedTuple):
    """One GPU as its node's page names it."""

    instance: str
    id: DeviceId


@dataclass(frozen=True, slots=True)
class Span:
    """A time whose windows are wanted, on one node or on all.

    ``begun`` and ``ended``: between these and its ends nobody knows.
    """

    since: float
    until: float
    begun: float | None = None
    ended: float | None = None
    instance: str | None = None

    def holds(self, at: float) -> bool | None:
        """Whether a window of that time is in it; None where that cannot be told."""
        if self.since <= at < self.until:
            return True
        known = (self.since if self.begun is None else self.begun) <= at
        known = known and at < (self.until if self.ended is None else self.ended)
        return None if known else False


@dataclass
class Found:
    """Rows of one side so far, and what had to be left out."""

    rows: list[Row] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    seen: set[tuple[Gpu, str, float]] = field(default_factory=set)
    instances: set[str] = field(default_factory=set)

    def notes(self) -> Iterator[str]:
        """What the report has to say of it."""
        for why, count in sorted(self.left.items()):
            yield f"{count} windows of a GPU left out: {why}"
        yield "kernels are those with a series of their own; all others are in none"

    def chosen(self, every: int) -> list[Row]:
        """Windows by time; one in ``every``, scattered. GPUs of several nodes are named with these."""
        rows = [r for r in self.rows if int(r.at * 1000) * 2654435761 // 65536 % every == 0]
        if len(self.instances) > 1:
            rows = [replace(r, gpu_name=f"{r.context['node']} {r.gpu_name}") for r in rows]
        return sorted(rows, key=lambda r: r.at)


def phases(marked: Mapping[tuple[str, str], Sequence[float]], now: float) -> dict[str, list[Span]]:
    """When each phase was in force, from when each node showed it; in between, nobody knows."""
    spans: dict[str, list[Span]] = {}
    for instance in sorted({instance for instance, _ in marked}):
        runs: list[tuple[str, float, float]] = []
        seen = ((at, name) for (node, name), times in marked.items() if node == instance for at in set(times))
        for at, name in sorted(seen):
            if runs and runs[-1][0] == name:
                runs[-1] = name, runs[-1][1], at
            else:
                runs.append((name, at, at))
        for n, (name, first, last) in enumerate(runs):
            begun = runs[n - 1][2] if n else None
            # Of the last one nobody has seen the end.
            until, ended = (last, runs[n + 1][1]) if n + 1 < len(runs) else (now, None)
            spans.setdefault(name, []).append(Span(first, until, begun, ended, instance))
    return spans


def step(last: Iterable[tuple[Mapping[str, str], Points]], least: float, most: float) -> float | None:
    """How far apart the looks at the counters may be, so that one lies between any two windows of a GPU."""
    times: dict[tuple[str, str, str], set[float]] = {}
    for labels, points in last:
        key = labels.get("instance", ""), labels.get("pci", ""), labels.get("partition", "")
        times.setdefault(key, set()).update(value for _, value in points)
    gaps = [b - a for found in times.values() for a, b in _pairs(sorted(found))]
    if not times:
        return None
    found = most
    while found > least and found > min(gaps, default=most) / 2:
        found /= 2
    return max(found, least)


def take(
    series: Iterable[tuple[Mapping[str, str], Points]],
    span: Span,
    part: tuple[float, float],
    found: Found,
) -> None:
    """Add the rows of all windows that were taken in during ``part`` of a span."""
    pages = {gpu: p for gpu, p in _pages(series).items() if span.instance in (None, gpu.instance)}
    found.instances |= {gpu.instance for gpu in pages}
    for gpu, moments in pages.items():
        for before, after in _pairs(sorted(moments)):
            _between(gpu, (before, moments[before]), (after, moments[after]), span, part, found)


def _between(
    gpu: Gpu,
    before: tuple[float, Mapping[_Key, float]],
    after: tuple[float, Mapping[_Key, float]],
    span: Span,
    part: tuple[float, float],
    found: Found,
) -> None:
    """One window of a GPU, if one was taken in between two looks."""
    old, new = before[1], after[1]
    lasts = {key: at for key, at in new.items() if key[0] == LAST and old.get(key) != at}
    events = [(dict(key[1])["mode"], at) for key, at in lasts.items()]
    fresh = [(mode, at) for mode, at in events if (gpu, mode, at) not in found.seen]
    # A window belongs to the part in which it was taken in; the looks around it may lie outside.
    inside = [(mode, at) for mode, at in fresh if span.holds(at) and part[0] <= at < part[1]]
    unsure = [(mode, at) for mode, at in fresh if span.holds(at) is None]
    found.seen.update((gpu, mode, at) for mode, at in (*inside, *unsure))
    if unsure:
        found.left["taken in while the phase changed"] += len(unsure)
    if not inside:
        return
    if len(events) > 1 or _grown(_TAKEN, old, new, result=_WITH_RESULT) > 1:
        found.left["several between two scrapes"] += len(inside)
    elif any(key[0] in _COUNTERS and value < old.get(key, 0.0) for key, value in new.items()):
        found.left["a counter fell"] += len(inside)
    elif not any(key[0] == _OBSERVED for key in old):
        found.left["no scrape before it"] += len(inside)
    else:
        [(mode, at)] = inside
        found.rows += _rows(gpu, mode, at, old, new)


def _rows(
    gpu: Gpu, mode: str, at: float, old: Mapping[_Key, float], new: Mapping[_Key, float]
) -> Iterator[Row]:
    observed = _grown(_OBSERVED, old, new, mode=(mode,))
    amounts: dict[str, float | None] = {"span_ns": observed or None}
    for metric, name in _SUMS.items():
        # A sum that did not grow was not part of this window: it adds nothing, or nothing to divide by.
        amounts[name] = _grown(metric, old, new)
    if not amounts["launch_duration_ns"]:
        amounts["exposed_delay_ns"] = None
    tool, run, first = _run(old, new, mode, at)
    about = _about(gpu, new)
    name = gpu.id.pci if gpu.id.partition is None else f"{gpu.id.pci}/{gpu.id.partition}"
    coverage = next((v for k, v in new.items() if k == (_COVERAGE, (("mode", mode),))), None)

    def row(kernel: str | None, values: Mapping[str, float]) -> Row:
        seconds = observed or None
        load = about.get("workload")
        return Row(at, run, gpu.id, name, kernel, mode, tool, seconds, values, load, coverage, first, about)

    yield row(None, metrics(amounts, planned=False))
    if mode == "counters":
        return  # kernels of a counter pass run one by one: their times are none of the application's
    for key, value in new.items():
        kernel = dict(key[1]).get("kernel", OTHER)
        calls = (_CALLS, key[1])
        # One that has just got its series may go on from a total of long ago.
        if key[0] != _KERNEL or kernel == OTHER or key not in old or calls not in old:
            continue
        seconds, dispatches = value - old[key], new.get(calls, 0.0) - old[calls]
        if dispatches > 0 and observed:
            shares = {"kernel_share_ratio": seconds / observed}
            yield row(kernel, {"kernel_seconds": seconds / dispatches, **shares})


def _run(old: Mapping[_Key, float], new: Mapping[_Key, float], mode: str, at: float) -> tuple[str, str, bool]:
    """Tool, run and whether it is a warm-up; without a word on it each window is a run of its own."""
    mine = [key for key in new if key[0] == _RUN and dict(key[1]).get("mode") == mode]
    # The one before may be seen for a while where nothing says that it is gone.
    for _, labels in sorted(mine, key=lambda key: key in old):
        known = dict(labels)
        return known.get("tool", ""), known.get("run", ""), known.get("first") == "1"
    return "", f"{mode} {at}", False


def _about(gpu: Gpu, new: Mapping[_Key, float]) -> dict[str, Any]:
    about: dict[str, Any] = {"node": gpu.instance}
    values: dict[Series, float] = {}
    holders: list[tuple[str, ...]] = []
    for (metric, labels), value in new.items():
        if metric in (_INFO, _PARTITION):
            about |= {k: v for k, v in labels if k in context.IDENTITY and v}
        elif metric in (context.HOLDERS, *_GAUGES):
            given = dict(labels)
            own = tuple(given.get(label, "") for label in CATALOGUE[metric].labels)
            values[Series(metric, gpu.id, own)] = value
            if metric == context.HOLDERS:
                holders.append(own)
    return about | context.surroundings(gpu.id, values, {gpu.id: holders})


def _grown(metric: str, old: Mapping[_Key, float], new: Mapping[_Key, float], **only: Sequence[str]) -> float:
    """By how much the series of a metric grew, together."""
    total = 0.0
    for key, value in new.items():
        if key[0] == metric and all(dict(key[1]).get(k) in v for k, v in only.items()):
            total += value - old.get(key, 0.0)
    return total


def _pages(series: Iterable[tuple[Mapping[str, str], Points]]) -> dict[Gpu, dict[float, dict[_Key, float]]]:
    """What was known of each GPU at each look. What is the socket's is its partitions' too."""
    pages: dict[Gpu, dict[float, dict[_Key, float]]] = {}
    sockets: list[tuple[Gpu, _Key, Points]] = []
    for labels, points in series:
        if "pci" not in labels:
            continue
        part = labels.get("partition", "")
        gpu = Gpu(labels.get("instance", ""), DeviceId(labels["pci"], int(part) if part.isdigit() else None))
        metric = labels["__name__"]
        known = _OWN.get(metric, ())
        key = metric, tuple((name, labels[name]) for name in known if name in labels)
        if gpu.id.partition is None:
            sockets.append((gpu, key, points))
        moments = pages.setdefault(gpu, {})
        for at, value in points:
            moments.setdefault(at, {})[key] = value
    for gpu, key, points in sockets:
        for other, moments in pages.items():
            if other.instance == gpu.instance and other.id.pci == gpu.id.pci and other.id != gpu.id:
                for at, value in points:
                    if at in moments:
                        moments[at].setdefault(key, value)
    return pages


def _own(metric: str) -> tuple[str, ...]:
    # A histogram's sum has the histogram's labels; what a scrape or a rule adds is none of the key.
    return CATALOGUE[metric.removesuffix("_sum")].labels


_OWN = {metric: _own(metric) for metric in NAMES}


def _pairs(found: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return pairwise(found)
