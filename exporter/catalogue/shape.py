"""How the leaves of one device came out, so that the next poll need not ask of each what it is. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from operator import le
from typing import Any, NamedTuple

from exporter.model import Gap, Raw, RawGroups, Reason, Series, Value

# What part a leaf plays; one that is absent plays its Reason or None.
USED = object()  # its number counts
REFUSED = object()  # its number cannot be true
SERVED = object()  # an earlier leaf spoke for the same labels
MALFORMED = object()  # not a thing that could come again

Path = tuple[str, ...]
_NUMBERS = frozenset((int, float))


class Scaling(NamedTuple):
    """From a leaf's number to a value, and the values that can be true. A divisor of 0: multiply."""

    divisor: int
    scale: float
    low: float
    high: float


class Leaf(NamedTuple):
    """One leaf: its part, and its place among the values."""

    part: object
    scaling: Scaling
    at: int


class Shape:
    """It serves again while each leaf is a number, or absent, as it was."""

    __slots__ = ("_found", "_groups", "_known", "_walk", "gaps", "series", "values")

    def __init__(self, groups: RawGroups) -> None:
        self.series: list[Series] = []
        self.values: list[Value] = []
        self.gaps: list[Gap] = []
        self._known = True
        self._groups = groups
        self._found: list[tuple[str, Path, int, list[Leaf]]] = []
        self._walk: _Walk | None = None

    def add(self, group: str, path: Path, stars: int | None, leaves: list[Leaf]) -> None:
        """Take note of what lies at ``path``, or under the stars at its end; None: stars further on."""
        if stars is None and type(_at(self._groups.get(group), path)) is not dict:
            stars = 1
        if stars is None or any(leaf.part is MALFORMED for leaf in leaves):
            self._known = False
        else:
            self._found.append((group, path, stars, leaves))

    def follow(self, groups: RawGroups) -> list[Value] | None:
        """The values now; None where a leaf is another kind of thing than before."""
        if self._known and self._walk is None:
            # Not before it is asked for a second time: a shape that keeps changing would pay for nothing.
            self._walk = _Walk(self._groups, self._found)
            self._known = self._walk.known
        return self._walk.values(groups) if self._known and self._walk else None


class _Walk:
    """The way through the groups of a device: every leaf in one list, then all numbers at once."""

    __slots__ = ("_absent", "_from", "_high", "_low", "_named", "_refused", "_scales", "_starred", "known")

    def __init__(self, groups: RawGroups, found: Sequence[tuple[str, Path, int, list[Leaf]]]) -> None:
        named: dict[tuple[str, Path], tuple[list[str], list[Leaf]]] = {}
        for group, path, stars, leaves in found:
            if not stars:
                names, into = named.setdefault((group, path[:-1]), ([], []))
                names.append(path[-1])
                into += leaves
        every = [leaf for _, leaves in named.values() for leaf in leaves]
        self._named = [(group, path, names) for (group, path), (names, _) in named.items()]
        self._starred: list[tuple[str, Path, int, list[Any] | None]] = []
        self.known = len(every) == sum(len(names) for _, _, names in self._named)
        for group, path, stars, leaves in found:
            if stars:
                keys, raws = _under(_at(groups.get(group), path), stars)
                self._starred.append((group, path, stars, keys))
                every += leaves
                self.known = self.known and raws is not None and len(raws) == len(leaves)
        used = [(i, leaf) for i, leaf in enumerate(every) if leaf.part is USED]
        used.sort(key=lambda found: found[1].at)
        self._from = [i for i, _ in used]
        self._scales = [leaf.scaling[:2] for _, leaf in used]
        self._low = [leaf.scaling.low for _, leaf in used]
        self._high = [leaf.scaling.high for _, leaf in used]
        self._refused = [(i, leaf.scaling) for i, leaf in enumerate(every) if leaf.part is REFUSED]
        spoken = (USED, REFUSED, SERVED)
        self._absent = [(i, leaf.part) for i, leaf in enumerate(every) if leaf.part not in spoken]

    def values(self, groups: RawGroups) -> list[Value] | None:
        """The value of each leaf that counts; None where one came out as another kind of thing."""
        raws: list[Any] = []
        for group, path, names in self._named:
            node = _at(groups.get(group), path)
            raws += map(node.get, names) if type(node) is dict else [node] * len(names)
        for group, path, stars, keys in self._starred:
            node = groups.get(group)
            for part in path:
                if type(node) is not dict:
                    break
                node = node.get(part)
            if stars == 1 and type(node) is dict:
                # By far the most; the calls would cost more than the work.
                if list(node) != keys:
                    return None
                raws += node.values()
                continue
            now, found = _under(node, stars)
            if found is None or now != keys:
                return None
            raws += found
        for i, role in self._absent:
            if raws[i] is not role:
                return None
        mine = [raws[i] for i in self._from]
        if not _NUMBERS.issuperset(map(type, mine)):
            return None
        try:
            out = [
                raw / divisor if divisor else raw * scale
                for raw, (divisor, scale) in zip(mine, self._scales, strict=True)
            ]
            if not all(_still_refused(raws[i], scaling) for i, scaling in self._refused):
                return None
        except OverflowError:  # an integer that no float holds
            return None
        # Finite bounds refuse NaN and the infinities too.
        fits = all(map(le, self._low, out)) and all(map(le, out, self._high))
        return out if fits else None


def _still_refused(raw: Any, by: Scaling) -> bool:
    if type(raw) not in _NUMBERS:
        return False
    value = raw / by.divisor if by.divisor else raw * by.scale
    return isfinite(value) and not by.low <= value <= by.high


def _at(node: Raw, path: Path) -> Raw:
    """What lies at the path, or what stands in its way: a reason for all that would lie below."""
    for part in path:
        if type(node) is not dict:
            break
        node = node.get(part)
    return node


def _under(node: Raw, stars: int) -> tuple[list[Any] | None, Collection[Raw] | None]:
    """Keys under the stars, and the leaves; no keys if nothing is below, no leaves in a shape seldom seen."""
    if type(node) is not dict:
        return None, (node,) if node is None or type(node) is Reason else None
    if stars == 1:
        return list(node), node.values()
    keys: list[Any] = []
    found: list[Raw] = []
    for key, sub in node.items():
        if type(sub) is not dict:
            return None, None
        keys += (key, len(sub), *sub)
        found += sub.values()
    return keys, found
