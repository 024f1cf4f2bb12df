"""The launch timeline: every instant of a window is executing, queued, launching or starved. Pure.

Shape: integer nanoseconds; instants are half-open, so a kernel of no length splits nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

Columns = tuple[Sequence[int], Sequence[int]]


class Gaps(NamedTuple):
    """Times in which no kernel ran. ``after`` is the place of the first kernel that starts at or after the end."""

    start: array[int]
    end: array[int]
    after: array[int]

    def total(self) -> int:
        return sum(self.end) - sum(self.start)


class Cover:
    """How much of the time up to an instant a union of intervals covers."""

    def __init__(self, starts: Sequence[int], ends: Sequence[int]) -> None:
        self._starts, self._ends = starts, ends
        self._before = array("q", accumulate((e - s for s, e in zip(starts, ends, strict=True)), initial=0))

    def until(self, instant: int) -> int:
        at = bisect_right(self._starts, instant)
        if at == 0:
            return 0
        return self._before[at - 1] + min(instant, self._ends[at - 1]) - self._starts[at - 1]

    def within(self, start: int, end: int) -> int:
        return self.until(end) - self.until(start)


def gaps(start: Sequence[int], end: Sequence[int], low: int, high: int) -> Gaps:
    """Idle times between ``low`` and ``high`` of kernels that come by ascending start."""
    out = Gaps(array("q"), array("q"), array("i"))
    reached = accumulate(chain((low,), end), max)
    for i, (free, s) in enumerate(zip(reached, start, strict=False)):
        if s > free:
            if s >= high:
                if free < high:
                    _append(out, free, high, i)
                return out
            _append(out, free, s, i)
    free = max(max(end, default=low), low)
    if free < high:
        _append(out, free, high, len(start))
    return out


def _append(out: Gaps, start: int, end: int, after: int) -> None:
    out.start.append(start)
    out.end.append(end)
    out.after.append(after)


def earliest_waiting(submitted: Sequence[int], high: int) -> array[int]:
    """For each place, when the first of the kernels from there on was submitted; one more entry says never."""
    never = max(high, max(submitted, default=high))
    back = array("q", accumulate(chain((never,), reversed(submitted)), min))
    back.reverse()
    return back


def split(idle: Gaps, waiting: Sequence[int], calls: Cover) -> tuple[int, int]:
    """How much of the idle time is queued, and how much of the rest launching.

    While the GPU idles every kernel that is submitted has not started, so that one of them waits from the
    earliest submission among all later kernels on.
    """
    queued = launching = 0
    for a, b, after in zip(idle.start, idle.end, idle.after, strict=True):
        wait = waiting[after]
        if wait <= a:
            queued += b - a
            continue
        if wait < b:
            queued += b - wait
            b = wait
        launching += calls.within(a, b)
    return queued, launching


def by_start(parts: Iterable[tuple[Sequence[int], ...]]) -> tuple[array[int], ...]:
    """Rows of several processes as one table by ascending first column."""
    columns = list(parts)
    if len(columns) == 1:
        return tuple(c if isinstance(c, array) else array("q", c) for c in columns[0])
    rows = sorted(chain.from_iterable(zip(*c, strict=True) for c in columns))
    width = len(columns[0]) if columns else 0
    return tuple(array("q", (row[i] for row in rows)) for i in range(width))


def exposed_delay(
    start: Sequence[int], end: Sequence[int], stream: Iterable[int], counted: Iterable[int], called: Iterable[int]
) -> int:
    """Waiting that no kernel of the same stream explains, over the kernels at the places ``counted``.

    ``called`` is the call start for each of those places; both run by ascending place.
    """
    total = 0
    ends: dict[int, int] = {}
    wanted = iter(zip(counted, called, strict=True))
    place, call = next(wanted, (-1, 0))
    for i, (s, e, lane) in enumerate(zip(start, end, stream, strict=True)):
        before = ends.get(lane, 0)
        if i == place:
            since = call if call > before else before
            if s > since:
                total += s - since
            place, call = next(wanted, (-1, 0))
        if e > before:
            ends[lane] = e
    return total


def exposed_copies(idle: Gaps, copies: Sequence[tuple[int, int, str]], low: int, high: int) -> tuple[dict[str, int], int]:
    """Idle time in which a copy ran, by direction, and their union."""
    free = Cover(idle.start, idle.end)

    def total(spans: list[tuple[int, int]]) -> int:
        amount, reached = 0, low
        for s, e in sorted(spans):
            s, e = max(s, reached), min(e, high)
            if e > s:
                amount += free.within(s, e)
                reached = e
        return amount

    ways: dict[str, list[tuple[int, int]]] = {}
    for s, e, way in copies:
        ways.setdefault(way, []).append((s, e))
    everything = [(s, e) for s, e, _ in copies]
    return {way: total(spans) for way, spans in sorted(ways.items())}, total(everything)


def busy(start: Sequence[int], end: Sequence[int], low: int, high: int) -> int:
    """Union of kernels that come by ascending start, clipped."""
    return high - low - gaps(start, end, low, high).total()


def clipped(start: Sequence[int], end: Sequence[int], low: int, high: int) -> array[int]:
    """Length of each interval inside the bounds."""
    if not start or (min(start) >= low and max(end) <= high):
        return array("q", (e - s for s, e in zip(start, end, strict=True)))
    return array(
        "q", (max(0, (e if e < high else high) - (s if s > low else low)) for s, e in zip(start, end, strict=True))
    )


def first_last(parts: Iterable[Columns]) -> tuple[int, int] | None:
    """The time in which all processes were seen: latest first start to earliest last end; None if there is none."""
    spans = [(start[0], max(end)) for start, end in parts if len(start)]
    if not spans:
        return None
    low, high = max(s for s, _ in spans), min(e for _, e in spans)
    return (low, high) if low <= high else None


