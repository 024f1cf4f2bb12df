"""Which launch call each kernel came from. Pure.

The key is the process instance and the correlation id; 0 is "unknown" and never joins.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, islice
from operator import ge, gt
from typing import NamedTuple

from exporter.formats.trace import Calls, Kernels, Lane
from exporter.windows.timeline import in_order, running_max

OTHER, KERNEL, GRAPH, MEMORY = range(4)
_LAUNCH = re.compile(r"(?:hip|cuda|cu)(?:Hcc|Drv)?(?:Ext)?(?:Module|Graph)?Launch(?!HostFunc)\w*")
_KNOWN_LAUNCHES = frozenset({"hipLaunchByPtr", "hipModuleLaunchCooperativeKernelMultiDevice"})
_MEMORY = re.compile(r"(?:hip|cuda|cu)(?:Drv)?(?:Mem(?:cpy|set)|Memory\w*Copy)\w*")
_MAYBE = re.compile(r"launch", re.IGNORECASE)


def call_kind(function: str) -> int:
    """OTHER, KERNEL, GRAPH or MEMORY by the function's name."""
    if _LAUNCH.fullmatch(function) or function in _KNOWN_LAUNCHES:
        return GRAPH if "GraphLaunch" in function else KERNEL
    return MEMORY if _MEMORY.fullmatch(function) else OTHER


def unknown_launch(function: str) -> bool:
    """Whether the name speaks of a launch and is not one we know: counted, not used."""
    return bool(_MAYBE.search(function)) and call_kind(function) == OTHER and "HostFunc" not in function


def order_of(column: array[int]) -> array[int]:
    """Places in ascending order of the values, equal ones as they were."""
    if not column:
        return array("i")
    base, shift = min(column), len(column).bit_length()
    mask = (1 << shift) - 1
    packed = [(value - base) << shift | i for i, value in enumerate(column)]
    packed.sort()
    return array("i", [value & mask for value in packed])


def taken(column: array[int], places: Sequence[int]) -> array[int]:
    """The values at some places. Places that are all there are, and ascending, give the column itself."""
    n = len(places)
    if n == len(column) and (not n or (places[0] == 0 and places[-1] == n - 1 and in_order(places))):
        return column
    return array(column.typecode, map(column.__getitem__, places))


@dataclass
class Executions:
    """The kernels of one process on one GPU by ascending start; lanes tell stream and thread."""

    rows: Kernels
    lanes: list[Lane]

    def __len__(self) -> int:
        return len(self.rows)

    def sort(self) -> None:
        if not in_order(self.rows.start):
            self.keep(order_of(self.rows.start))

    def keep(self, places: Sequence[int]) -> None:
        rows = self.rows
        for name in ("start", "end", "correlation", "name", "lane", "dispatched"):
            column = getattr(rows, name)
            if column:
                setattr(rows, name, taken(column, places))

    def drop_duplicates(self) -> list[int]:
        """Lanes of the rows removed: those that repeat another in every column we keep."""
        rows = self.rows
        if not any(map(ge, rows.start, islice(rows.start, 1, None))):
            return []
        keep, gone = array("i"), []
        seen: set[tuple[int, ...]] = set()
        last = -1
        for i, start in enumerate(rows.start):
            if start != last:
                seen.clear()
                last = start
            key = rows.end[i], rows.correlation[i], rows.name[i], rows.lane[i]
            if key in seen:
                gone.append(rows.lane[i])
            else:
                seen.add(key)
                keep.append(i)
        if gone:
            self.keep(keep)
        return gone


class Pair(NamedTuple):
    """A kernel that is its call's first on the GPU, with that call; nanoseconds.

    ``queue_ns`` is from the call's start, ``end_delay_ns`` from its end, which is legal below 0.
    """

    function: str
    kernel: str
    kind: int
    queue_ns: int
    end_delay_ns: int | None
    execution_ns: int
    call_ns: int | None

    @property
    def skewed(self) -> bool:
        return self.queue_ns < 0


@dataclass
class Launches:
    """The launch calls of one process by ascending start. ``timed`` is False where their ends are unknown."""

    start: array[int]
    end: array[int]
    correlation: array[int]
    function: array[int]
    kind: array[int]
    thread: array[int]
    threads: list[int | None]
    timed: bool = True
    outer: array[int] | None = None
    matched: bytearray = field(default_factory=bytearray)
    gpus_of_thread: dict[int, set[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    def is_outer(self) -> Sequence[int]:
        """1 for each call that is not inside another launch call of its thread."""
        if self.outer is None:
            return b"\1" * len(self)
        return [int(o == i) for i, o in enumerate(self.outer)]


class CallIndex:
    """All calls of one process, asked by correlation id."""

    def __init__(self, calls: Calls, lanes: Sequence[Lane], texts: Sequence[str]) -> None:
        self._calls = calls
        self._tids = [lane.tid for lane in lanes]
        numbers = {tid: i for i, tid in enumerate(dict.fromkeys(self._tids))}
        self._thread_of = [numbers[tid] for tid in self._tids]
        self._kind_of = {i: call_kind(texts[i]) for i in set(calls.function)}
        self.launches = self._select(list(numbers))
        self._table: array[int] | dict[int, int] | None = None
        self._base = 0
        self._others: dict[int, int] = {}

    def _select(self, threads: list[int | None]) -> Launches:
        calls, kind_of = self._calls, self._kind_of
        kinds = array("b", map(kind_of.__getitem__, calls.function))
        columns = (calls.start, calls.end, calls.correlation, calls.function, kinds)
        lane = calls.lane
        if not all(kind in (KERNEL, GRAPH) for kind in kind_of.values()):
            mask = kinds.tobytes().translate(bytes([0, 1, 1, 0]) + bytes(252))
            columns = tuple(array(c.typecode, compress(c, mask)) for c in columns)  # type: ignore[assignment]
            lane = array("i", compress(lane, mask))
        if len(threads) == 1:
            thread = array("i", bytes(4 * len(lane)))
        else:
            thread = array("i", map(self._thread_of.__getitem__, lane))
        columns = (*columns, thread)  # type: ignore[assignment]
        if not in_order(columns[0]):
            places = order_of(columns[0])
            columns = tuple(taken(c, places) for c in columns)  # type: ignore[assignment]
        launches = Launches(*columns, threads)  # type: ignore[arg-type, call-arg]
        launches.matched = bytearray(len(launches))
        launches.outer = _outermost(launches)
        return launches

    def _lookup(self, correlations: array[int]) -> array[int]:
        """Place of the launch call with each correlation id, -1 for none."""
        ids = self.launches.correlation
        if not ids:
            return array("i", [-1]) * len(correlations)
        table = self._table if self._table is not None else self._build(ids)
        if isinstance(table, dict):
            return array("i", [table.get(c, -1) for c in correlations])
        base, size = self._base, len(table)
        return array("i", [table[c - base] if base <= c < base + size else -1 for c in correlations])

    def _build(self, ids: array[int]) -> array[int] | dict[int, int]:
        self._base, high = max(1, min(ids)), max(ids)
        if high - self._base <= 8 * len(ids) + 65536:
            base = self._base
            table = array("i", [-1]) * (high - base + 1)
            for i in range(len(ids) - 1, -1, -1):
                if ids[i] >= base:
                    table[ids[i] - base] = i
            self._table = table
        else:
            self._table = {c: i for i, c in zip(range(len(ids) - 1, -1, -1), reversed(ids), strict=True) if c}
        return self._table

    def join(self, kernels: Executions, gpu: str) -> Joined:
        """The launch of each kernel; marks the calls as matched."""
        rows, launches = kernels.rows, self.launches
        call = self._lookup(rows.correlation)
        self._forget_other_threads(call, kernels)
        memory = self._elsewhere(call, rows.correlation)
        outer = launches.outer
        if outer is not None:
            call = array("i", [outer[c] if c >= 0 else -1 for c in call])
        seen, first, paired = bytearray(len(launches)), array("i"), array("i")
        for i, c in enumerate(call):
            if c >= 0 and not seen[c]:
                seen[c] = 1
                first.append(i)
                paired.append(c)
        self._mark(paired, gpu)
        return Joined(call, first, paired, launches, memory, self)

    def _mark(self, paired: array[int], gpu: str) -> None:
        launches = self.launches
        for c in paired:
            launches.matched[c] = 1
        for thread in set(taken(launches.thread, paired)):
            launches.gpus_of_thread.setdefault(thread, set()).add(gpu)

    def _forget_other_threads(self, call: array[int], kernels: Executions) -> None:
        """A kernel row that names its launching thread cannot belong to a call of another one."""
        launches = self.launches
        tids = [lane.tid for lane in kernels.lanes]
        if None in launches.threads or set(tids) <= {None} or set(tids) | set(launches.threads) == {tids[0]}:
            return
        thread, threads, lane = launches.thread, launches.threads, kernels.rows.lane
        for i, c in enumerate(call):
            if c >= 0 and tids[lane[i]] not in (None, threads[thread[c]]):
                call[i] = -1

    def _elsewhere(self, call: array[int], correlations: array[int]) -> dict[int, int]:
        """Kernels of memory calls by place; kernels of other calls inside a launch go to that launch."""
        calls, kind_of = self._calls, self._kind_of
        if len(calls) == len(self.launches):
            return {}
        wanted = {c for c, at in zip(correlations, call, strict=True) if at < 0 and c}
        if not wanted:
            return {}
        hits = compress(range(len(calls)), map(wanted.__contains__, calls.correlation))
        found = {calls.correlation[i]: i for i in hits if kind_of[calls.function[i]] in (MEMORY, OTHER)}
        memory: dict[int, int] = {}
        spans: dict[int, tuple[list[int], list[int]]] = {}
        for k, c in enumerate(correlations):
            i = found.get(c) if call[k] < 0 else None
            if i is None:
                continue
            if kind_of[calls.function[i]] == MEMORY:
                memory[k] = i
            else:
                call[k] = self._around(i, spans)
        return memory

    def _around(self, i: int, spans: dict[int, tuple[list[int], list[int]]]) -> int:
        """The launch call of the same thread that holds call ``i`` inside itself; -1 if none does."""
        calls, launches = self._calls, self.launches
        thread = self._thread_of[calls.lane[i]]
        if thread not in spans:
            places = [j for j, t in enumerate(launches.thread) if t == thread]
            if launches.outer is not None:
                places = [j for j in places if launches.outer[j] == j]
            spans[thread] = [launches.start[j] for j in places], places
        starts, places = spans[thread]
        at = bisect_right(starts, calls.start[i]) - 1
        return places[at] if at >= 0 and launches.end[places[at]] >= calls.end[i] else -1

    def function_of(self, i: int) -> tuple[int, int, int]:
        """Function, start and end of any call by its place."""
        return self._calls.function[i], self._calls.start[i], self._calls.end[i]


@dataclass
class Joined:
    """For each kernel its launch or -1. ``first`` (kernels) and ``paired`` (launches) run in parallel."""

    call: array[int]
    first: array[int]
    paired: array[int]
    launches: Launches
    memory: dict[int, int]
    index: CallIndex | None = None


def from_dispatched(kernels: Executions) -> Joined:
    """Launches made of the rows' own dispatch times: their starts are known, their ends are not."""
    starts = kernels.rows.dispatched
    first = array("i", [i for i, start in enumerate(starts) if start >= 0])
    start = taken(starts, first)
    n = len(first)
    zero, byte = array("i", bytes(4 * n)), array("b", [KERNEL]) * n
    launches = Launches(start, start, array("q", bytes(8 * n)), zero, byte, zero, [None], timed=False)
    launches.matched = bytearray(b"\1" * n)
    call = array("i", [-1]) * len(kernels)
    for c, i in enumerate(first):
        call[i] = c
    return Joined(call, first, array("i", range(n)), launches, {})


def pairs(kernels: Executions, joined: Joined, texts: Sequence[str]) -> list[Pair]:
    """Every pair one by one, memory calls and skewed ones too, in order of the kernels' starts."""
    rows, launches = kernels.rows, joined.launches
    found: list[tuple[int, Pair]] = []

    def add(k: int, function: str, kind: int, start: int, end: int | None) -> None:
        s, e = rows.start[k], rows.end[k]
        call_ns, after = (None, None) if end is None else (end - start, s - end)
        found.append((k, Pair(function, texts[rows.name[k]], kind, s - start, after, e - s, call_ns)))

    for k, c in zip(joined.first, joined.paired, strict=True):
        function = texts[launches.function[c]] if launches.timed else ""
        add(k, function, launches.kind[c], launches.start[c], launches.end[c] if launches.timed else None)
    for k, i in joined.memory.items():
        if joined.index is None:
            continue
        number, start, end = joined.index.function_of(i)
        add(k, texts[number], MEMORY, start, end)
    return [pair for _, pair in sorted(found, key=lambda item: item[0])]


def _outermost(launches: Launches) -> array[int] | None:
    """For each call the outermost launch call of its thread around it; None where no calls are nested."""
    if len(launches.threads) == 1:
        if not any(map(gt, running_max(launches.end), islice(launches.start, 1, None))):
            return None
        places: dict[int, list[int]] = {0: list(range(len(launches)))}
    else:
        places = {}
        for i, thread in enumerate(launches.thread):
            places.setdefault(thread, []).append(i)
    outer = array("i", range(len(launches)))
    nested = False
    for mine in places.values():
        mine.sort(key=lambda i: (launches.start[i], -launches.end[i]))
        holder = -1
        for i in mine:
            if holder >= 0 and launches.start[i] < launches.end[holder]:
                outer[i] = holder
                nested = True
            else:
                holder = i
    return outer if nested else None


def merged(spans: Iterable[tuple[array[int], array[int]]]) -> tuple[list[int], list[int]]:
    """Union of intervals given as columns of starts (ascending) and ends."""
    columns = [(s, e) for s, e in spans if len(s)]
    if not columns:
        return [], []
    if len(columns) == 1:
        start, end = columns[0]
    else:
        both = sorted(chain.from_iterable(zip(s, e, strict=True) for s, e in columns))
        start, end = array("q", (s for s, _ in both)), array("q", (e for _, e in both))
    high = running_max(end)
    fresh = bytes(map(gt, islice(start, 1, None), high))
    starts = [start[0], *compress(islice(start, 1, None), fresh)]
    return starts, [*compress(high, fresh), high[-1]]
