"""What every decoder gives: columns of kernels, calls, copies and counters, and what they point into. Pure.

One number per row and column, no object per row: a window may hold millions of rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol

_PART = 1 << 14


class Ids(dict[Hashable, int]):
    """Numbers things in the order they are first asked for."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = number = len(self)
        return number


class Lane(NamedTuple):
    """Where a row happened, as the file tells it; None where it does not."""

    agent: str | None = None
    queue: str | None = None
    stream: str | None = None
    tid: int | None = None
    pid: int | None = None
    guid: str | None = None


class Kernels:
    """Kernel executions. ``dispatched`` is the launch's start where the row itself tells it, else empty."""

    __slots__ = ("correlation", "dispatched", "end", "lane", "name", "start")

    def __init__(self) -> None:
        self.start, self.end, self.correlation = array("q"), array("q"), array("q")
        self.name, self.lane = array("i"), array("i")
        self.dispatched = array("q")

    def __len__(self) -> int:
        return len(self.start)


class Calls:
    """API calls on host threads; ``function`` points into the names."""

    __slots__ = ("correlation", "end", "function", "lane", "start")

    def __init__(self) -> None:
        self.start, self.end, self.correlation = array("q"), array("q"), array("q")
        self.function, self.lane = array("i"), array("i")

    def __len__(self) -> int:
        return len(self.start)


class Copies:
    """Copies by engines. ``lane`` names the source agent, ``target`` the destination's; -1 is unknown.

    ``size`` are their bytes where the file tells them (-1 where a row does not), else empty.
    """

    __slots__ = ("direction", "end", "lane", "size", "start", "target")

    def __init__(self) -> None:
        self.start, self.end, self.size = array("q"), array("q"), array("q")
        self.direction, self.lane, self.target = array("i"), array("i"), array("i")

    def __len__(self) -> int:
        return len(self.start)


DEVICE_WIDE = ""  # in place of a kernel: all that a device did for a while


class Dispatch(NamedTuple):
    """One dispatch under the counters of one pass. ``duration_ns`` is None where its times cannot be trusted.

    ``run`` numbers the passes that one file holds of this dispatch; ``dies`` says over how many dies GRBM was
    added up, where the file tells.
    """

    number: int
    kernel: str
    lane: int
    duration_ns: int | None
    counters: dict[str, float]
    run: int = 0
    dies: int | None = None


class Agent(NamedTuple):
    """One row of a tool's list of agents; -1 where the list does not say."""

    node: int
    is_gpu: bool
    pci: str | None
    gpu_id: int
    render_minor: int
    device_id: int
    gfx: str | None
    compute_units: int | None
    xccs: int | None


class Stat(NamedTuple):
    """One row of a summary: nanoseconds; None where the cell is no finite number."""

    name: str
    calls: int
    total_ns: int | None
    mean_ns: float | None
    share: float | None
    min_ns: float | None
    max_ns: float | None
    deviation_ns: float | None


@dataclass
class Decoded:
    """One file, decoded. ``rows`` counts the rows used; ``note`` says in one line why a file was not."""

    format: str | None = None
    tool: str | None = None
    rows: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    partial: bool = False
    note: str | None = None
    kernels: Kernels = field(default_factory=Kernels)
    calls: Calls = field(default_factory=Calls)
    copies: Copies = field(default_factory=Copies)
    traces_calls: bool = False
    traces_copies: bool = False
    timed_by_counters: bool = False
    lanes: list[Lane] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)
    agents: list[Agent] = field(default_factory=list)
    stats: list[Stat] = field(default_factory=list)

    def skip(self, reason: str, count: int = 1) -> None:
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def empty_out(self) -> bool:
        """Give up all rows, which are known from elsewhere; agents stay. False if there were none."""
        had = bool(self.kernels or self.calls or self.copies or self.dispatches or self.stats)
        self.skip("same_run", self.rows if had else 0)
        if had:
            self.kernels, self.calls, self.copies = Kernels(), Calls(), Copies()
            self.dispatches, self.stats, self.rows = [], [], 0
            self.traces_calls = False
        return had


class Decoder(Protocol):
    """Fed a file's bytes in order; ``finish`` says whether its container was cut."""

    decoded: Decoded

    def feed(self, data: bytes) -> None: ...

    def finish(self, cut: bool = False) -> None: ...


class Names:
    """Kernel and function names of one analysis, shared by all its files."""

    def __init__(self) -> None:
        self.ids = Ids()
        self._texts: list[str] = []

    def add(self, text: str) -> int:
        return self.ids[text.encode("utf-8", "surrogatepass")]

    def column(self, raw: Iterable[bytes]) -> array[int]:
        return array("i", [*map(self.ids.__getitem__, raw)])

    def texts(self) -> list[str]:
        """Name by number; bytes that are no UTF-8 become U+FFFD."""
        known = len(self._texts)
        for key in list(self.ids)[known:]:
            self._texts.append(bytes(key).decode("utf-8", "replace"))  # type: ignore[call-overload]
        return self._texts


def whole(text: bytes | str) -> int | None:
    """A whole number as the tools write it; None for anything else, more digits than theirs too."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def packed(code: str, values: Iterable[int]) -> array[int]:
    """A column of some values. Lists in between are quicker than an iterator, and stay small."""
    out = array(code)
    rest = iter(values)
    while part := [*islice(rest, _PART)]:
        out.fromlist(part)
    return out


def lane_numbers(ids: Ids, columns: Sequence[Sequence[bytes]], rows: int) -> array[int]:
    """Numbers for rows of raw lane columns; quick where a block has one lane, as most have."""
    varying = [i for i, column in enumerate(columns) if column.count(column[0]) < rows]
    if not varying:
        return array("i", [ids[tuple(column[0] for column in columns)]]) * rows
    if len(varying) > 1:
        return array("i", [*map(ids.__getitem__, zip(*columns, strict=True))])
    at = varying[0]
    rest = [column[0] for column in columns]
    numbers = {value: ids[(*rest[:at], value, *rest[at + 1 :])] for value in dict.fromkeys(columns[at])}
    return array("i", [*map(numbers.__getitem__, columns[at])])
