"""Kernel names short enough for a label, and the bounded set of kernels with a series of their own. Pure.

Knows nothing of files or devices; time is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from exporter.model import KernelStat

NAME_LIMIT = 96
OTHER = "other"
UNKNOWN = "unknown"
UNSEEN_S = 24 * 3600.0
_RETIRED_MAX = 4096

# Compilers number the kernels they write anew for each graph; the number says nothing and never ends.
_NUMBERED = re.compile(r"(?:triton|fused|loop|input|wrapped)_[\w.]*|[\w.]*fusion[\w.]*")
_NUMBER_TAIL = re.compile(r"(?:[._]\d+(?:d\d*[ce]*)*)+\Z|(?<=_kernel)\d+\Z")
_HASH = re.compile(r"(?<![0-9A-Za-z])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{12,}(?![0-9A-Za-z])")
_TENSILE_TILE = re.compile(r"Cijk_\w*?_MT\d+x\d+(?:x\d+)*")
_SURROGATE = re.compile("[\ud800-\udfff]")


def short(name: str) -> str:
    """The label value for a kernel: at most NAME_LIMIT characters, stable from run to run.

    Names that are cut carry a tail made from the whole name, so that two of them never become one.
    """
    name = _SURROGATE.sub("\ufffd", name.strip())
    if not name:
        return UNKNOWN
    name = _HASH.sub("H", name)
    if _NUMBERED.fullmatch(name):
        name = _NUMBER_TAIL.sub("_N", name)
    if len(name) <= NAME_LIMIT:
        # A kernel that is really called like the rest must not be added to the rest.
        return name if name != OTHER else _tailed(name, name)
    tile = _TENSILE_TILE.match(name)
    keep = tile.group() if tile and tile.end() <= NAME_LIMIT - 9 else name[: NAME_LIMIT - 9]
    return _tailed(keep, name)


def _tailed(head: str, whole: str) -> str:
    return f"{head}~{sha256(whole.encode()).hexdigest()[:8]}"


@dataclass(slots=True)
class Total:
    """What one series has counted."""

    ns: int = 0
    calls: int = 0
    seen: float = 0.0

    def grow(self, ns: int, calls: int) -> None:
        self.ns += ns
        self.calls += calls


@dataclass(slots=True)
class _Merged:
    """All kernels of one window that share a short name; a median of several cannot be known."""

    ns: int
    calls: int
    p50_ns: int | None
    example: str


class KernelSet:
    """The kernels of one GPU that have their own series, and what all others add up to.

    No total ever falls. A kernel that was named, forgotten and named again goes on from its old total:
    its series may be the same one in the database.
    """

    def __init__(self) -> None:
        self.named: dict[str, Total] = {}
        self.other = Total()
        self.examples: dict[str, str] = {}
        self._retired: dict[str, Total] = {}
        self._floor = Total()

    def add(
        self, stats: Iterable[KernelStat], at: float, limit: int, unseen_s: float = UNSEEN_S
    ) -> dict[str, int]:
        """Take in one window; the medians (ns) of its named kernels.

        A kernel gets a series when it is among the heaviest of its window and one of ``limit`` is free.
        """
        self.expire(at, unseen_s)
        medians: dict[str, int] = {}
        window = merge(stats)
        # The heaviest first, so that free places go to them; names break ties the same way every time.
        heaviest = sorted(window.items(), key=lambda item: (-item[1].ns, item[0]))
        for name, kernel in heaviest:
            total = self.named.get(name)
            if total is None and len(self.named) < limit:
                total = self.named[name] = self._revived(name)
                self.examples[name] = kernel.example
            if total is None:
                self.other.grow(kernel.ns, kernel.calls)
                continue
            total.grow(kernel.ns, kernel.calls)
            total.seen = max(total.seen, at)
            if kernel.p50_ns is not None:
                medians[name] = kernel.p50_ns
        return medians

    def expire(self, now: float, unseen_s: float = UNSEEN_S) -> None:
        """Take the series from kernels unseen that long; what they did so far is not added anywhere."""
        for name in [n for n, total in self.named.items() if total.seen + unseen_s <= now]:
            self._retired[name] = self.named.pop(name)
            self.examples.pop(name, None)
        while len(self._retired) > _RETIRED_MAX:
            lost = self._retired.pop(next(iter(self._retired)))
            self._floor = Total(max(self._floor.ns, lost.ns), max(self._floor.calls, lost.calls))

    def expiries(self, unseen_s: float = UNSEEN_S) -> Iterator[float]:
        """When each named kernel would lose its series."""
        return (total.seen + unseen_s for total in self.named.values())

    def dump(self) -> dict[str, Any]:
        """All of it as JSON values."""

        def each(totals: Mapping[str, Total]) -> dict[str, list[float]]:
            return {name: [t.ns, t.calls, t.seen] for name, t in totals.items()}

        rest = each({"other": self.other, "floor": self._floor})
        return {"named": each(self.named), "retired": each(self._retired), "examples": self.examples, **rest}

    def restore(self, raw: Mapping[str, Any]) -> None:
        """Take over what ``dump`` gave. Errors: ValueError, KeyError, TypeError; then nothing is changed."""
        named = {str(name): _total(row) for name, row in raw["named"].items()}
        retired = {str(name): _total(row) for name, row in raw["retired"].items()}
        examples = {str(name): str(full) for name, full in raw["examples"].items() if name in named}
        other, floor = _total(raw["other"]), _total(raw["floor"])
        self.named, self._retired, self.examples, self.other, self._floor = (
            named,
            retired,
            examples,
            other,
            floor,
        )

    def _revived(self, name: str) -> Total:
        # Totals too old to be kept one by one are remembered by their maximum: starting there is never lower.
        return self._retired.pop(name, None) or Total(self._floor.ns, self._floor.calls)


def checked(value: Any) -> Any:
    """A number that a counter may stand at. Errors: ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"{value!r} is no amount")
    return value


def _total(row: Any) -> Total:
    ns, calls, seen = row
    return Total(int(checked(ns)), int(checked(calls)), float(checked(seen)))


def merge(stats: Iterable[KernelStat]) -> dict[str, _Merged]:
    """The kernels of one window by short name."""
    window: dict[str, _Merged] = {}
    for stat in stats:
        name = short(stat.kernel)
        known = window.get(name)
        if known is None:
            window[name] = _Merged(stat.total_ns, stat.calls, stat.p50_ns, stat.kernel)
        else:
            known.ns += stat.total_ns
            known.calls += stat.calls
            known.p50_ns = None
    return window
