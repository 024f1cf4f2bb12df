"""One GPU in one window: from joined kernels and calls to a WindowResult. Pure.

The words (queue time, launch duration, exposed delay, the four states) are defined in the handbook; the parts
that compute them are ``join``, ``timeline``, ``density`` and ``bottleneck``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import compress
from operator import sub

from exporter.formats.trace import packed
from exporter.model import (
    Bottleneck,
    DeviceId,
    KernelStat,
    LaunchStats,
    TimelineState,
    WindowResult,
)
from exporter.windows import timeline
from exporter.windows.bottleneck import Facts, Thresholds, verdict
from exporter.windows.density import Totals
from exporter.windows.executions import ByName, buckets, class_totals, inside, kernel_class, quantile
from exporter.windows.join import GRAPH, Executions, Joined, merged, taken

NO_CALLS, SKEWED, DISJOINT, NO_KERNELS = (
    "no_launch_calls",
    "clock_skew",
    "disjoint_processes",
    "no_kernel_times",
)
UNTRACED, INCOMPLETE = "untraced_process", "incomplete_trace"
_BUSY_APART = 0.10  # the GPU's own counter and the trace may differ by this much of the window


@dataclass
class Part:
    """One process on the GPU.

    ``calls`` are starts and ends of its launch calls that count for this GPU, ``apart`` if none overlap.
    """

    kernels: Executions
    joined: Joined | None
    calls: tuple[array[int], array[int]] | None = None
    unmatched_calls: int = 0
    apart: bool = False


@dataclass
class GpuTrace:
    """Everything known of one GPU in one window. ``copies`` is None without a copy trace.

    ``planned`` says that the bounds were, and are not those of the rows. ``holders`` is how many processes
    were seen on the GPU meanwhile, ``busy`` the share in which its own counter says it worked.
    """

    gpu: str
    device: DeviceId | None
    names: Sequence[str]
    parts: list[Part]
    bounds: tuple[int, int] | None = None
    copies: list[tuple[int, int, str]] | None = None
    totals: Totals = field(default_factory=Totals)
    stats: tuple[KernelStat, ...] = ()
    planned: bool = True
    holders: int | None = None
    busy: float | None = None


@dataclass
class _Queue:
    """Sums over the paired launches whose kernel starts in the window."""

    queue: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    graph: bytearray = field(default_factory=bytearray)
    call: array[int] = field(default_factory=lambda: array("q"))
    skewed: int = 0
    exposed: int = 0
    depth: int = 0
    timed: bool = True


def reduce(trace: GpuTrace, limits: Thresholds | None = None) -> WindowResult:
    """The window's result for one GPU."""
    limits = limits or Thresholds()
    bounds = trace.bounds or timeline.first_last(
        (p.kernels.rows.start, p.kernels.rows.end) for p in trace.parts
    )
    reason = None
    if bounds is None and any(len(part.kernels) for part in trace.parts):
        rows = [part.kernels.rows for part in trace.parts if len(part.kernels)]
        bounds, reason = (min(r.start[0] for r in rows), max(max(r.end) for r in rows)), DISJOINT
    if bounds is None:
        return _without_times(trace)
    low, high = bounds
    blank = _without_times(trace)
    by_name = ByName(low, high)
    for part in trace.parts:
        by_name.add(part.kernels.rows)
    stats, count = by_name.stats(trace.names), by_name.count()
    del by_name
    classes = class_totals(stats)
    execution = sum(classes.values())
    table = timeline.by_start((p.kernels.rows.start, p.kernels.rows.end, _submitted(p)) for p in trace.parts)
    start, end, submitted = table or (array("q"), array("q"), array("q"))
    idle = timeline.gaps(start, end, low, high)
    executing = high - low - idle.total()
    queue = _queues(trace, low, high)
    paired = len(queue.queue) + queue.skewed
    known = all(part.joined is not None for part in trace.parts)
    distrust = paired > 0 and queue.skewed > limits.skewed_most * paired
    reason = reason or _doubt(trace, executing, high - low)
    if reason is None:
        reason = NO_CALLS if not known or not queue.timed else SKEWED if distrust else None
    states: dict[str, int | None] = {str(state): None for state in TimelineState}
    states[TimelineState.EXECUTING] = executing
    collective = _exposed_collectives(trace, low, high, executing) if classes["collective"] else 0
    copies, copied = (None, None)
    if trace.copies is not None:
        copies, copied = timeline.exposed_copies(idle, trace.copies, low, high)
    cause = Bottleneck.UNKNOWN
    if reason is None:
        queued, launching = timeline.split(idle, timeline.earliest_waiting(submitted, high), _calls(trace))
        starved = high - low - executing - queued - launching
        states.update({"queued": queued, "launching": launching, "starved": starved})
        facts = Facts(
            high - low,
            executing,
            queued,
            launching,
            starved,
            collective,
            copied,
            sum(1 for part in trace.parts if len(part.kernels)),
            len(queue.queue),
            execution,
            _graph_execution(trace, low, high),
            execution / count if count else 0.0,
            sum(queue.call) / len(queue.call) if queue.call else None,
        )
        cause = verdict(facts, limits)
    del table, start, end, submitted, idle  # the sort below needs the room
    result = replace(
        blank,
        kernels=count,
        span_ns=high - low,
        span_kind="planned" if trace.bounds and trace.planned else "kernels",
        execution_ns=execution,
        busy_ns=executing,
        timeline_ns=states,
        timeline_reason=reason,
        bottleneck=cause,
        copy_exposed_ns=copies,
        collective_exposed_ns=collective,
        execution_class_ns=classes,
        kernel_stats=stats,
        unmatched_kernels=sum(_unmatched(part, low, high) for part in trace.parts),
        unmatched_calls=sum(part.unmatched_calls for part in trace.parts),
    )
    return _with_queue(result, queue, paired, distrust) if any(p.joined for p in trace.parts) else result


def _with_queue(result: WindowResult, queue: _Queue, paired: int, distrust: bool) -> WindowResult:
    result = replace(result, launches=paired, paired=len(queue.queue), skewed=queue.skewed)
    if queue.timed and queue.call:
        result = replace(
            result,
            launch_call_ns=sum(queue.call),
            launch_call_count=len(queue.call),
            launch_call_buckets=buckets(queue.call),
        )
    if distrust or not queue.queue:
        return result
    ordered = sorted(queue.queue)
    return replace(
        result,
        queue_ns=sum(queue.queue),
        launch_duration_ns=sum(queue.duration),
        launch_stats=tuple(_launch_stats(queue, ordered)),
        queue_p50_ns=quantile(ordered, 0.5),
        queue_p95_ns=quantile(ordered, 0.95),
        queue_depth_ns=queue.depth,
        exposed_delay_ns=queue.exposed,
    )


def _without_times(trace: GpuTrace) -> WindowResult:
    """What can be said where no kernel has believable times: counts and counters, the rest unknown."""
    totals = trace.totals
    stats = trace.stats
    return WindowResult(
        gpu=trace.gpu,
        device=trace.device,
        kernels=sum(stat.calls for stat in stats) or totals.dispatches,
        launches=0,
        span_ns=None,
        span_kind="kernels",
        execution_ns=sum(stat.total_ns for stat in stats) if stats else None,
        busy_ns=None,
        queue_ns=None,
        launch_duration_ns=None,
        launch_call_ns=None,
        launch_call_count=None,
        launch_call_buckets=None,
        launch_stats=(),
        queue_p50_ns=None,
        queue_p95_ns=None,
        queue_depth_ns=None,
        paired=0,
        skewed=0,
        unmatched_kernels=0,
        unmatched_calls=0,
        timeline_ns={str(state): None for state in TimelineState},
        timeline_reason=NO_KERNELS,
        bottleneck=Bottleneck.UNKNOWN,
        exposed_delay_ns=None,
        copy_exposed_ns=None,
        collective_exposed_ns=None,
        execution_class_ns={},
        counters=totals.sums,
        l2_hits=totals.l2_hits,
        l2_requests=totals.l2_requests,
        valu_instructions=totals.valu,
        slots_available=totals.slots,
        slots_active=totals.slots_active,
        counter_observed_ns=totals.observed_ns,
        kernel_stats=stats,
    )


def _doubt(trace: GpuTrace, executing: int, span: int) -> str | None:
    """Why others may have used the GPU: idle time cannot be explained by one of several users."""
    if trace.holders is not None and trace.holders > sum(1 for part in trace.parts if len(part.kernels)):
        return UNTRACED
    if trace.busy is not None and trace.planned and trace.bounds and span:
        return INCOMPLETE if abs(executing / span - trace.busy) > _BUSY_APART else None
    return None


# --- the parts -----------------------------------------------------------------------------------------


def _submitted(part: Part) -> array[int]:
    """When each kernel was handed to the GPU: the end of its launch call, but not after its own start."""
    return part.kernels.rows.start if part.joined is None else part.joined.submitted


def _calls(trace: GpuTrace) -> tuple[array[int], array[int]]:
    """Union of the launch calls; those of a single process often lie apart already."""
    having = [part for part in trace.parts if part.calls is not None]
    if len(having) == 1 and having[0].apart and having[0].calls is not None:
        return having[0].calls
    return merged(part.calls for part in having if part.calls is not None)


def _unmatched(part: Part, low: int, high: int) -> int:
    """Kernels in the window without any call seen; those of memory calls have one."""
    rows = part.kernels.rows
    if not len(rows):
        return 0
    alone = range(len(rows)) if part.joined is None else part.joined.alone
    mask = inside(rows.start, rows.end, low, high) if alone else None
    return len(alone) if mask is None else sum(mask[k] for k in alone)


def _graph_execution(trace: GpuTrace, low: int, high: int) -> int:
    total = 0
    for part in trace.parts:
        if part.joined is None or GRAPH not in part.joined.index.kinds:
            continue
        kinds = part.joined.index.kinds
        mask = bytes(c >= 0 and kinds[c] == GRAPH for c in part.joined.call)
        start, end = _where(mask, part.kernels.rows.start, part.kernels.rows.end)
        total += sum(timeline.clipped(start, end, low, high))
    return total


def _exposed_collectives(trace: GpuTrace, low: int, high: int, executing: int) -> int:
    """Time in which collectives and nothing else ran: the union of all kernels minus that of the others."""
    others: list[Iterable[tuple[int, int]]] = []
    for part in trace.parts:
        rows = part.kernels.rows
        counts = {i: kernel_class(trace.names[i]) != "collective" for i in set(rows.name)}
        mask = map(counts.__getitem__, rows.name)
        others.append(compress(zip(rows.start, rows.end, strict=True), mask))
    return executing - timeline.busy(others[0] if len(others) == 1 else merge(*others), low, high)


def _queues(trace: GpuTrace, low: int, high: int) -> _Queue:
    queue = _Queue()
    stop = high if trace.bounds and trace.planned else high + 1
    for part in trace.parts:
        if part.joined is not None and len(part.kernels):
            queue.timed = queue.timed and part.joined.timed
            _add_pairs(queue, part.kernels, part.joined, low, high, stop)
    return queue


def _add_pairs(queue: _Queue, kernels: Executions, joined: Joined, low: int, high: int, stop: int) -> None:
    """Pairs count where their kernel starts, before ``stop``; only the waiting for the depth is clipped."""
    rows, calls = kernels.rows, joined.index.calls
    first, paired = joined.first, joined.paired
    whole = len(first) == len(rows)  # they ascend, so as many as all are all
    start, end = (rows.start, rows.end) if whole else (taken(rows.start, first), taken(rows.end, first))
    called = taken(calls.start, paired)
    queue.depth += _depth(start, called, low, high)
    if len(start) and (start[0] < low or start[-1] >= stop):
        here = bytes(low <= s < stop for s in start)
        first, paired, start, end, called = _where(here, first, paired, start, end, called)
    if joined.timed:
        queue.call.extend(map(sub, taken(calls.end, paired), called))
    wait = packed("q", map(sub, start, called))
    if len(wait) and min(wait) < 0:
        good = bytes(w >= 0 for w in wait)
        queue.skewed += len(good) - sum(good)
        first, paired, wait, end, called = _where(good, first, paired, wait, end, called)
    queue.queue = queue.queue + wait if queue.queue else wait
    queue.duration.extend(map(sub, end, called))
    kinds = joined.index.kinds
    queue.graph.extend(bytes(kinds[c] == GRAPH for c in paired) if GRAPH in kinds else bytes(len(paired)))
    by_kernel = _by_kernel(first, called, len(rows))
    queue.exposed += timeline.exposed_delay(rows.start, rows.end, _streams(kernels), by_kernel)


def _where(mask: bytes | bytearray, *columns: array[int]) -> tuple[array[int], ...]:
    return tuple(packed(column.typecode, compress(column, mask)) for column in columns)


def _depth(start: array[int], called: array[int], low: int, high: int) -> int:
    """Waiting time inside the window, of all pairs that are not skewed."""
    if not start:
        return 0
    total = 0
    for s, c in zip(start, called, strict=True):
        if s > high:
            s = high
        if c < low:
            c = low
        if s > c:
            total += s - c
    return total


def _streams(kernels: Executions) -> array[int] | None:
    """The in-order stream of each kernel, None where there is only one."""
    numbers: dict[str | None, int] = {}
    stream_of = [numbers.setdefault(lane.stream or lane.queue, len(numbers)) for lane in kernels.lanes]
    return None if len(numbers) < 2 else packed("i", map(stream_of.__getitem__, kernels.rows.lane))


def _by_kernel(first: array[int], called: array[int], count: int) -> array[int]:
    """Call starts by place of the kernel, NEVER where none counts."""
    if len(first) == count:
        return called
    out = array("q", [timeline.NEVER]) * count
    for i, c in zip(first, called, strict=True):
        out[i] = c
    return out


def _launch_stats(queue: _Queue, ordered: Sequence[int]) -> Iterator[LaunchStats]:
    for launch, flag in (("kernel", 0), ("graph", 1)):
        mask = queue.graph.translate(bytes([1 - flag, flag]) + bytes(254))
        if not any(mask):
            continue
        waits, lengths = queue.queue, queue.duration
        counts = buckets(ordered, ordered=True) if all(mask) else ()
        if not all(mask):
            waits, lengths = _where(mask, waits, lengths)
        yield LaunchStats(
            launch, len(waits), sum(waits), sum(lengths), counts or buckets(waits), buckets(lengths)
        )
