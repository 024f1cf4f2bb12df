"""What the writer of a window knew that its rows do not say, and the windows that one file holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Bounds = tuple[int, int]
Columns = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Terms:
    """How a window was taken.

    ``bounds`` are the planned ones; ``pause_ns`` is the time between two windows in one file.
    ``holders`` is how many processes were seen to use a GPU, ``busy`` the share of the bounds in which its
    own counter says it worked; both by PCI address, with ``/3`` for a partition.
    """

    bounds: Bounds | None = None
    pause_ns: int | None = None
    holders: Mapping[str, int] = field(default_factory=dict)
    busy: Mapping[str, float] = field(default_factory=dict)


def split(parts: Iterable[Columns], pause_ns: int) -> list[Bounds]:
    """The windows in rows (starts, ends) of several processes: what lies half a pause apart is another one.

    A window is where all processes that have rows in it were seen: from the latest first row to the earliest
    last one. Where they do not meet, each has its own rows only, and there is no window.
    """
    columns = [(start, end) for start, end in parts if len(start)]
    groups: list[list[tuple[int, int, int]]] = []
    reached = None
    for low, high, part in sorted(
        (s, e, n) for n, (start, end) in enumerate(columns) for s, e in zip(start, end, strict=True)
    ):
        if reached is None or low > reached + pause_ns // 2:
            groups.append([])
        groups[-1].append((low, high, part))
        reached = high if reached is None else max(reached, high)
    return [bounds for group in groups if (bounds := _shared(group))]


def _shared(rows: list[tuple[int, int, int]]) -> Bounds | None:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for low, high, part in rows:
        first[part] = min(low, first.get(part, low))
        last[part] = max(high, last.get(part, high))
    low, high = max(first.values()), min(last.values())
    return (low, high) if low < high else None
