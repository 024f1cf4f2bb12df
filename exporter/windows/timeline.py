"""The launch timeline: every instant of a window is executing, queued, launching or starved. Pure.

Shape: integer nanoseconds; instants are half-open, so a kernel of no length splits nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from operator import le
from typing import NamedTuple

from exporter.formats.trace import packed

Columns = tuple[Sequence[int], Sequence[int]]
NEVER = (1 << 63) - 1  # the last instant a column can hold
_BEYOND = (1 << 64, 1 << 64)  # an interval after every instant, so that a walk over intervals ends there


class Gaps(NamedTuple):
    """Times in which no kernel ran. ``after`` is the place of the first kernel from the end on."""

    start: array[int]
    end: array[int]
    after: array[int]

    def total(self) -> int:
        return sum(self.end) - sum(self.start)


def in_order(column: Sequence[int]) -> bool:
    return all(map(le, column, islice(column, 1, None)))


def running_max(column: array[int]) -> array[int]:
    """The highest value so far at each place; the column itself where it never falls, as most do."""
    return column if in_order(column) else packed("q", accumulate(column, max))


def gaps(start: array[int], end: array[int], low: int, high: int) -> Gaps:
    """Idle times between ``low`` and ``high`` of kernels that come by ascending start."""
    out = Gaps(array("q"), array("q"), array("i"))
    froms, untils, afters = out.start.append, out.end.append, out.after.append
    reached, place = low, 0
    for place, (s, e) in enumerate(zip(start, end, strict=True)):
        if s > reached:
            if s >= high:
                break
            froms(reached)
            untils(s)
            afters(place)
        if e > reached:
            reached = e
    else:
        place = len(start)
    if reached < high:
        froms(reached)
        untils(high)
        afters(place)
    return out


def earliest_waiting(submitted: array[int], high: int) -> array[int]:
    """For each place, when the first of the kernels from there on was submitted; the last says never."""
    never = array("q", (max(high, max(submitted, default=high)),))
    if in_order(submitted):
        return submitted + never
    back = packed("q", accumulate(chain(never, reversed(submitted)), min))
    back.reverse()
    return back


def split(idle: Gaps, waiting: Sequence[int], calls: Columns) -> tuple[int, int]:
    """How much of the idle time is queued, and how much of the rest launching.

    While the GPU idles every kernel that is submitted has not started, so that one of them waits from the
    earliest submission among all later kernels on. ``calls`` is a union of intervals.
    """
    queued = launching = 0
    intervals = zip(*calls, strict=True)
    s, e = next(intervals, _BEYOND)
    for a, b, after in zip(idle.start, idle.end, idle.after, strict=True):
        wait = waiting[after]
        if wait < b:
            if wait <= a:
                queued += b - a
                continue
            queued += b - wait
            b = wait
        while e <= a:
            s, e = next(intervals, _BEYOND)
        while s < b:
            if s < a:
                s = a
            if e >= b:
                launching += b - s
                break
            launching += e - s
            s, e = next(intervals, _BEYOND)
    return queued, launching


def covered(spans: Iterable[tuple[int, int]], union: Gaps) -> int:
    """How much of some ascending intervals that do not overlap lies in a union of others."""
    total = 0
    others = zip(union.start, union.end, strict=True)
    s, e = next(others, _BEYOND)
    for a, b in spans:
        while e <= a:
            s, e = next(others, _BEYOND)
        while s < b:
            total += (min(b, e)) - (max(a, s))
            if e >= b:
                break
            s, e = next(others, _BEYOND)
    return total


def by_start(parts: Iterable[tuple[Sequence[int], ...]]) -> tuple[array[int], ...]:
    """Rows of several processes as one table by ascending first column."""
    columns = list(parts)
    if len(columns) == 1:
        return tuple(c if isinstance(c, array) else array("q", c) for c in columns[0])
    rows = sorted(chain.from_iterable(zip(*c, strict=True) for c in columns))
    width = len(columns[0]) if columns else 0
    return tuple(array("q", (row[i] for row in rows)) for i in range(width))


def exposed_delay(
    start: array[int], end: array[int], stream: Sequence[int] | None, called: Sequence[int]
) -> int:
    """Waiting that no kernel of the same stream explains.

    ``called`` is each kernel's call start, NEVER for a kernel that does not count; ``stream`` is None where
    there is one only.
    """
    if stream is None:
        return _exposed_in_order(start, end, called)
    total = 0
    ends = [0] * (max(stream, default=0) + 1)
    for s, e, since, number in zip(start, end, called, stream, strict=True):
        before = ends[number]
        if e > before:
            ends[number] = e
        if before > since:
            since = before
        if s > since:
            total += s - since
    return total


def _exposed_in_order(start: Sequence[int], end: Sequence[int], called: Sequence[int]) -> int:
    total = before = 0
    for s, e, since in zip(start, end, called, strict=True):
        if before > since:
            since = before
        if s > since:
            total += s - since
        if e > before:
            before = e
    return total


def exposed_copies(
    idle: Gaps, copies: Sequence[tuple[int, int, str]], low: int, high: int
) -> tuple[dict[str, int], int]:
    """Idle time in which a copy ran, by direction, and their union."""
    ways: dict[str, list[tuple[int, int]]] = {}
    for s, e, way in copies:
        ways.setdefault(way, []).append((s, e))
    found = {way: covered(_apart(spans, low, high), idle) for way, spans in sorted(ways.items())}
    return found, covered(_apart([(s, e) for s, e, _ in copies], low, high), idle)


def _apart(spans: list[tuple[int, int]], low: int, high: int) -> Iterator[tuple[int, int]]:
    reached = low
    for s, e in sorted(spans):
        s, e = max(s, reached), min(e, high)
        if e > s:
            yield s, e
            reached = e


def busy(rows: Iterable[tuple[int, int]], low: int, high: int) -> int:
    """Union of kernels (start, end) that come by ascending start, clipped."""
    total, reached = 0, low
    for s, e in rows:
        if e > reached:
            if e > high:
                e = high
            if s < reached:
                s = reached
            if e > s:
                total += e - s
                reached = e
    return total


def clipped(start: Sequence[int], end: Sequence[int], low: int, high: int) -> array[int]:
    """Length of each interval inside the bounds."""
    if not start or (min(start) >= low and max(end) <= high):
        return array("q", (e - s for s, e in zip(start, end, strict=True)))
    return array("q", (max(0, min(e, high) - max(s, low)) for s, e in zip(start, end, strict=True)))


def first_last(parts: Iterable[Columns]) -> tuple[int, int] | None:
    """The time in which all processes were seen: latest first start to earliest last end."""
    spans = [(start[0], max(end)) for start, end in parts if len(start)]
    if not spans:
        return None
    low, high = max(s for s, _ in spans), min(e for _, e in spans)
    return (low, high) if low <= high else None
