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
from operator import gt, lt
from typing import NamedTuple

from exporter.formats.trace import Calls, Kernels, Lane, packed
from exporter.windows.timeline import in_order, running_max

OTHER, KERNEL, GRAPH, MEMORY = range(4)  # launches lie between the other two
_LAUNCH = re.compile(r"(?:hip|cuda|cu)(?:Hcc|Drv)?(?:Ext)?(?:Module|Graph)?Launch(?!HostFunc)\w*")
_KNOWN_LAUNCHES = frozenset({"hipLaunchByPtr", "hipModuleLaunchCooperativeKernelMultiDevice"})
_MEMORY = re.compile(r"(?:hip|cuda|cu)(?:Drv)?(?:Mem(?:cpy|set)|Memory\w*Copy)\w*")
_DISPATCH = "hipLaunchKernel"
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


def taken(column: array[int], places: Iterable[int]) -> array[int]:
    return packed(column.typecode, map(column.__getitem__, places))


@dataclass
class Executions:
    """The kernels of one process on one GPU by ascending start; lanes tell stream and thread."""

    rows: Kernels
    lanes: list[Lane]

    def __len__(self) -> int:
        return len(self.rows)

    def sort(self) -> None:
        """Bring the rows in order of their starts; most files are nearly so, and few rows move."""
        start = self.rows.start
        late = packed("i", compress(range(1, len(start)), map(gt, start, islice(start, 1, None))))
        if not late:
            return
        budget = 4 * len(start)
        for place in late:
            value = start[place]
            to = bisect_right(start, value, 0, place)
            budget -= place - to + 64
            if budget < 0:
                self.keep(order_of(start))
                return
            for column in self._columns():
                column[to : place + 1] = column[place : place + 1] + column[to:place]

    def _columns(self) -> list[array[int]]:
        rows = self.rows
        columns = (rows.start, rows.end, rows.correlation, rows.name, rows.lane, rows.dispatched)
        return [column for column in columns if column]

    def keep(self, places: Sequence[int]) -> None:
        rows = self.rows
        for name in ("start", "end", "correlation", "name", "lane", "dispatched"):
            column = getattr(rows, name)
            if column:
                setattr(rows, name, taken(column, places))

    def drop_duplicates(self) -> list[int]:
        """Lanes of the rows removed: those that repeat another in every column we keep."""
        rows = self.rows
        if all(map(lt, rows.start, islice(rows.start, 1, None))):
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


class CallIndex:
    """All calls of one process, asked by correlation id; ``kinds`` says what each is.

    ``outer`` leads from a launch call inside another one of its thread to the outermost. ``apart`` are the
    launch calls' starts and ends if each begins after the one before has ended.
    """

    def __init__(self, calls: Calls, lanes: Sequence[Lane], texts: Sequence[str]) -> None:
        self.calls = calls
        self.tids = [lane.tid for lane in lanes]
        kind_of = {i: call_kind(texts[i]) for i in set(calls.function)}
        self.kinds = bytes(map(kind_of.__getitem__, calls.function))
        self.is_launch = self.kinds.translate(bytes([0, 1, 1, 0]) + bytes(252))
        self.matched = bytearray(len(calls))
        self.gpus_of_thread: dict[int | None, set[str]] = {}
        self.apart: tuple[array[int], array[int]] | None = None
        self.outer = self._nested()
        self._table: Sequence[int] | dict[int, int] | None = None
        self._base = 0
        self._again: dict[tuple[int, int | None], tuple[list[int], list[int]]] = {}

    def launches(self) -> array[int]:
        """Places of the outermost launch calls."""
        found = packed("i", compress(range(len(self.calls)), self.is_launch))
        return array("i", [i for i in found if i not in self.outer]) if self.outer else found

    def tid_of(self, call: int) -> int | None:
        return self.tids[self.calls.lane[call]]

    def _nested(self) -> dict[int, int]:
        start = packed("q", compress(self.calls.start, self.is_launch))
        end = packed("q", compress(self.calls.end, self.is_launch))
        if not any(map(gt, end, islice(start, 1, None))):
            self.apart = start, end
            return {}
        by_thread: dict[int | None, list[int]] = {}
        for i in compress(range(len(self.calls)), self.is_launch):
            by_thread.setdefault(self.tid_of(i), []).append(i)
        outer: dict[int, int] = {}
        start, end = self.calls.start, self.calls.end
        for mine in by_thread.values():
            mine.sort(key=lambda i: (start[i], -end[i]))
            holder = -1
            for i in mine:
                if holder >= 0 and start[i] < end[holder] and end[i] <= end[holder]:
                    outer[i] = holder
                else:
                    holder = i
        return outer

    def _places(self, correlations: array[int]) -> array[int]:
        """Place of the call with each correlation id, -1 for none."""
        ids = self.calls.correlation
        if not ids or not correlations:
            return array("i", [-1]) * len(correlations)
        table = self._table if self._table is not None else self._build(ids)
        if isinstance(table, dict):
            return array("i", [table.get(c, -1) for c in correlations])
        base, end = self._base, self._base + len(table)
        return array("i", [table[c - base] if base <= c < end else -1 for c in correlations])

    def _build(self, ids: array[int]) -> Sequence[int] | dict[int, int]:
        self._base, high = max(1, min(ids)), max(ids)
        base, count = self._base, len(ids)
        if high - base + 1 == count and ids == array("q", range(base, high + 1)):
            self._table = range(count)
        elif high - base <= 8 * count + 65536:
            table = array("i", [-1]) * (high - base + 1)
            for i in range(count - 1, -1, -1):
                if ids[i] >= base:
                    table[ids[i] - base] = i
            self._table = table
        else:
            self._table = {c: i for i, c in zip(range(count - 1, -1, -1), reversed(ids), strict=True) if c}
        held = len(self._table) - (self._table.count(-1) if isinstance(self._table, array) else 0)
        if held < count - ids.count(0):
            self._again = self._repeated(ids, self._places(ids))
        return self._table

    def _repeated(
        self, ids: array[int], firsts: array[int]
    ) -> dict[tuple[int, int | None], tuple[list[int], list[int]]]:
        """Calls of ids that several calls have: starts and places by id and thread, and by id alone.

        Threads number their calls apart in a converted database; other tools start again at 1.
        """
        ids_again = {c for i, (c, first) in enumerate(zip(ids, firsts, strict=True)) if c and first != i}
        again = [i for i, c in enumerate(ids) if c in ids_again]
        again.sort(key=lambda i: (self.calls.start[i], -self.calls.end[i]))
        found: dict[tuple[int, int | None], tuple[list[int], list[int]]] = {}
        for wanted in (True, False):
            known = set(found)
            for i in again:
                for key in {(ids[i], self.tid_of(i)), (ids[i], None)} - known:
                    if (self.kinds[i] != OTHER) == wanted:
                        starts, places = found.setdefault(key, ([], []))
                        starts.append(self.calls.start[i])
                        places.append(i)
        return found

    def _tell_apart(self, call: array[int], kernels: Executions) -> None:
        """Of calls with one id: of the kernel's thread the last that began before the kernel did."""
        if not self._again:
            return
        rows, nameless = kernels.rows, None in self.tids
        for i, c in enumerate(rows.correlation):
            if call[i] >= 0 and (c, None) in self._again:
                tid = kernels.lanes[rows.lane[i]].tid
                starts, places = self._again.get((c, tid)) or (self._again[c, None] if nameless else ([], []))
                call[i] = places[max(0, bisect_right(starts, rows.start[i]) - 1)] if places else -1

    def join(self, kernels: Executions, gpu: str) -> Joined:
        """The launch of each kernel; marks the calls as matched."""
        start, calls, kinds = kernels.rows.start, self.calls, self.kinds
        call = self._places(kernels.rows.correlation)
        self._tell_apart(call, kernels)
        self._forget_other_threads(call, kernels)
        self._climb(call)
        out = Joined(self, call)
        seen = self._one_each(call)
        if seen is not None:
            out.first, out.paired = array("i", range(len(call))), call[:]
            out.submitted = packed("q", map(min, start, map(calls.end.__getitem__, call)))
            self._mark(out.paired, seen, gpu)
            return out
        ends, seen = calls.end, bytearray(len(calls))
        add_first, add_paired, submitted = out.first.append, out.paired.append, out.submitted.append
        i = -1
        for c, s in zip(call, start, strict=True):
            i += 1
            if c >= 0 and 0 < kinds[c] < MEMORY:
                if not seen[c]:
                    seen[c] = 1
                    add_first(i)
                    add_paired(c)
                e = ends[c]
                submitted(min(s, e))
                continue
            submitted(s)
            if c >= 0 and kinds[c] == MEMORY:
                out.memory[i] = c
            else:
                out.alone.append(i)
        self._mark(out.paired, seen, gpu)
        return out

    def _one_each(self, call: array[int]) -> bytearray | None:
        """Marks of the calls, if each kernel has a launch of its own, as most traces have; else None."""
        if not call or min(call) < 0:
            return None
        if not set(map(self.kinds.__getitem__, call)) <= {KERNEL, GRAPH}:
            return None
        seen = bytearray(len(self.calls))
        for c in call:
            seen[c] = 1
        return seen if sum(seen) == len(call) else None

    def _mark(self, paired: array[int], seen: bytearray, gpu: str) -> None:
        joined = int.from_bytes(self.matched) | int.from_bytes(seen)
        self.matched = bytearray(joined.to_bytes(len(seen)))
        lanes = set(taken(self.calls.lane, paired)) if len(set(self.tids)) > 1 else set(self.calls.lane[:1])
        for tid in {self.tids[lane] for lane in lanes}:
            self.gpus_of_thread.setdefault(tid, set()).add(gpu)

    def _forget_other_threads(self, call: array[int], kernels: Executions) -> None:
        """A kernel row that names its launching thread cannot belong to a call of another one."""
        tids = [lane.tid for lane in kernels.lanes]
        if None in self.tids or set(tids) <= {None} or len({*tids, *self.tids}) == 1:
            return
        lane = kernels.rows.lane
        for i, c in enumerate(call):
            if c >= 0 and tids[lane[i]] not in (None, self.tid_of(c)):
                call[i] = -1

    def _climb(self, call: array[int]) -> None:
        """Lead from calls inside a launch call to that launch: nested ones, and others of the same thread."""
        if self.outer:
            outer = self.outer
            for i, c in enumerate(call):
                if c in outer:
                    call[i] = outer[c]
        if all(self.is_launch):
            return
        spans: dict[int | None, tuple[list[int], list[int]]] = {}
        for i, c in enumerate(call):
            if c >= 0 and self.kinds[c] == OTHER:
                call[i] = self._around(c, spans)

    def _around(self, i: int, spans: dict[int | None, tuple[list[int], list[int]]]) -> int:
        """The launch call of the same thread that holds call ``i`` inside itself, else the call."""
        calls, tid = self.calls, self.tid_of(i)
        if not spans:
            for j in sorted(self.launches(), key=calls.start.__getitem__):
                starts, places = spans.setdefault(self.tid_of(j), ([], []))
                starts.append(calls.start[j])
                places.append(j)
        starts, places = spans.get(tid, ([], []))
        at = bisect_right(starts, calls.start[i]) - 1
        return places[at] if at >= 0 and calls.end[places[at]] >= calls.end[i] else i


@dataclass
class Joined:
    """For each kernel its call or -1, and when it was handed over.

    ``first`` (kernels) and ``paired`` (their launches) run in parallel, kernels ascending. ``alone`` are the
    kernels without a launch or memory call. ``timed`` is False where only the starts of launches are known.
    """

    index: CallIndex
    call: array[int]
    first: array[int] = field(default_factory=lambda: array("i"))
    paired: array[int] = field(default_factory=lambda: array("i"))
    submitted: array[int] = field(default_factory=lambda: array("q"))
    alone: array[int] = field(default_factory=lambda: array("i"))
    memory: dict[int, int] = field(default_factory=dict)
    timed: bool = True


def from_dispatched(kernels: Executions) -> Joined:
    """Launches made of the rows' own dispatch times: their starts are known, their ends are not."""
    rows = kernels.rows
    calls, call = Calls(), array("i")
    for place, start in enumerate(rows.dispatched):
        call.append(place if start >= 0 else -1)
    calls.start, calls.end = rows.dispatched, rows.dispatched
    calls.function = calls.lane = array("i", bytes(4 * len(rows)))
    index = CallIndex(calls, [Lane()], [_DISPATCH])
    first = array("i", [place for place in call if place >= 0])
    alone = array("i", [place for place, c in enumerate(call) if c < 0])
    return Joined(index, call, first, first, rows.start, alone, timed=False)


def pairs(kernels: Executions, joined: Joined, texts: Sequence[str]) -> list[Pair]:
    """Every pair one by one, memory calls and skewed ones too, in order of the kernels' starts."""
    rows, index = kernels.rows, joined.index
    calls = index.calls
    found = sorted([*zip(joined.first, joined.paired, strict=True), *joined.memory.items()])
    out = []
    for k, c in found:
        s, e, start, end = rows.start[k], rows.end[k], calls.start[c], calls.end[c]
        function = texts[calls.function[c]] if joined.timed else ""
        call_ns, after = (end - start, s - end) if joined.timed else (None, None)
        name = texts[rows.name[k]]
        out.append(Pair(function, name, index.kinds[c], s - start, after, e - s, call_ns))
    return out


def merged(spans: Iterable[tuple[array[int], array[int]]]) -> tuple[array[int], array[int]]:
    """Union of intervals given as columns of starts and ends."""
    columns = [(s, e) for s, e in spans if len(s)]
    if not columns:
        return array("q"), array("q")
    if len(columns) == 1:
        start, end = columns[0]
        if not in_order(start):
            places = order_of(start)
            start, end = taken(start, places), taken(end, places)
    else:
        both = sorted(chain.from_iterable(zip(s, e, strict=True) for s, e in columns))
        start, end = array("q", (s for s, _ in both)), array("q", (e for _, e in both))
    high = running_max(end)
    fresh = bytes(map(gt, islice(start, 1, None), high))
    starts = packed("q", chain(start[:1], compress(islice(start, 1, None), fresh)))
    return starts, packed("q", chain(compress(high, fresh), high[-1:]))
