"""Kernels of one GPU in one window by name and class, and what the launches' sums are made of. Pure."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, repeat
from operator import sub

from exporter.formats.trace import Kernels, packed
from exporter.model import LAUNCH_BUCKETS_NS, KernelStat

_COLLECTIVE = re.compile(
    r"(?:nccl|rccl)(?:Dev)?Kernel|(?:nccl|rccl|msccl|mscclpp)_?\w*(?:kernel|AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv)"
    r"|cross_device_reduce|quick_?reduce|one_?shot_all_?reduce|two_?shot_all_?reduce",
    re.IGNORECASE,
)
_BLIT = re.compile(
    r"__amd_rocclr_(?:copy|fill|stream|init)|^(?:copyBuffer|fillBuffer)\w*$|\bCopyBuffer\w*Aligned"
)


def kernel_class(name: str) -> str:
    """``collective``, ``copy`` (blit kernels of copies and fills) or ``compute``."""
    if _COLLECTIVE.search(name):
        return "collective"
    return "copy" if _BLIT.search(name) else "compute"


def quantile(ordered: Sequence[int], share: float) -> int | None:
    """A value that occurred: the first that more than ``share`` of all do not exceed; None of nothing."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def buckets(values: Sequence[int], ordered: bool = False) -> tuple[int, ...]:
    """Cumulative counts for LAUNCH_BUCKETS_NS; quicker where the values are ``ordered`` already."""
    if ordered:
        return tuple(bisect_right(values, bound) for bound in LAUNCH_BUCKETS_NS)
    found = Counter(map(bisect_left, repeat(LAUNCH_BUCKETS_NS), values))
    return tuple(accumulate(found[i] for i in range(len(LAUNCH_BUCKETS_NS))))


def inside(start: Sequence[int], end: Sequence[int], low: int, high: int) -> bytes | None:
    """1 for each kernel that overlaps the window; None when all do. One of no length may lie on a bound."""
    if start[0] >= low and max(end) <= high:
        return None
    return bytes(
        (e > low and s < high) or (s == e and low <= s <= high) for s, e in zip(start, end, strict=True)
    )


class ByName:
    """Lengths of the kernels in the window by name; totals are clipped to it, quantiles are not."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self._lengths: dict[int, array[int]] = {}
        self._outside: dict[int, int] = {}

    def add(self, rows: Kernels) -> None:
        if not len(rows):
            return
        name, start, end = rows.name, rows.start, rows.end
        mask = inside(start, end, self._low, self._high)
        if mask is not None:
            name, start, end = (packed(c.typecode, compress(c, mask)) for c in (name, start, end))
            self._cut(name, start, end)
        append = {number: self._lengths.setdefault(number, array("q")).append for number in set(name)}
        for number, length in zip(name, map(sub, end, start), strict=True):
            append[number](length)

    def _cut(self, name: Sequence[int], start: Sequence[int], end: Sequence[int]) -> None:
        low, high = self._low, self._high
        for number, s, e in zip(name, start, end, strict=True):
            if s < low or e > high:
                self._outside[number] = self._outside.get(number, 0) + max(0, low - s) + max(0, e - high)

    def count(self) -> int:
        return sum(map(len, self._lengths.values()))

    def stats(self, names: Sequence[str]) -> tuple[KernelStat, ...]:
        """Most time first."""
        found = []
        for number, lengths in self._lengths.items():
            total = sum(lengths) - self._outside.get(number, 0)
            ordered = sorted(lengths)
            middle, high = quantile(ordered, 0.5) or 0, quantile(ordered, 0.95) or 0
            name = names[number]
            found.append(KernelStat(name, len(lengths), total, middle, high, kernel_class(name)))
        return tuple(sorted(found, key=lambda stat: (-stat.total_ns, stat.kernel)))


def class_totals(stats: Iterable[KernelStat]) -> dict[str, int]:
    totals = {"compute": 0, "collective": 0, "copy": 0}
    for stat in stats:
        totals[stat.kind] += stat.total_ns
    return totals
