"""Tables of copy bandwidth as the vendor's tools print them: rocm-bandwidth-test and TransferBench. Pure.

Units: the tools print GB/s of 10^9 bytes; bytes per second here, each copied byte counted once.
rocm-bandwidth-test counts a copy within one device twice, as it is read and written there: half of that here.
Absent: cells of N/A, and rows that were cut off, are counted by reason; no number is made up for them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.model import FormatError

_MOST = 1e14  # 100 TB/s: no memory of one GPU comes near
_ENDPOINTS_MOST = 256
_TITLE = re.compile(r"\s*(Uni|Bi|B)directional copy peak bandwidth GB/s\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,9}\.\d{2,9}")
_FAULT = re.compile(
    r"error|fail|denied|permission|cannot|unable|no .*device|not found|invalid", re.IGNORECASE
)


class Endpoint(NamedTuple):
    """One end of a copy as the tool counts them: ``kind`` is cpu (a NUMA node) or gpu."""

    kind: str
    number: int


class Cell(NamedTuple):
    """One measured copy. ``both``: copies went both ways at once, and the number is of both together."""

    source: Endpoint
    target: Endpoint
    both: bool
    bytes_per_second: float


class Gpu(NamedTuple):
    """What a tool says of one GPU; ``pci`` without a domain where the tool leaves that out."""

    number: int
    pci: str | None


@dataclass(frozen=True, slots=True)
class Copies:
    """All that one run printed.

    ``missing`` counts copies one way with a GPU at an end by reason: not_measured, truncated, implausible.
    """

    version: str | None
    cells: tuple[Cell, ...]
    gpus: tuple[Gpu, ...]
    cpus: int
    missing: Mapping[str, int]


def said(text: str) -> str:
    """The line of an output that tells best what went wrong; empty where nothing was printed."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return next((line for line in lines if _FAULT.search(line)), lines[-1] if lines else "")[:200]


# --- rocm-bandwidth-test up to ROCm 6.x ----------------------------------------------------------------

_RBT_VERSION = re.compile(r"RocmBandwidthTest Version:\s*(\d+(?:\.\d+)+)")
_RBT_DEVICE = re.compile(r"\s*Device:\s*(\d+),\s*(.*?)\s*")
_RBT_PCI = re.compile(r".*,\s*([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])")
_RBT_HEAD = re.compile(r"\s*D/D((?:\s+\d+)+)\s*")
_RBT_ROW = re.compile(r"\s*(\d+)((?:\s+(?:N/A|[\d.]+))+)\s*")


def bandwidth_test(text: str) -> Copies:
    """The output of ``rocm-bandwidth-test -a`` or ``-A``. Errors: FormatError where no table is in it."""
    lines = _whole_lines(text)
    ends: dict[int, Endpoint] = {}
    gpus: list[Gpu] = []
    cpus = 0
    for line in lines:
        if not (found := _RBT_DEVICE.fullmatch(line)) or int(found[1]) in ends:
            continue
        if pci := _RBT_PCI.fullmatch(found[2]):
            bus, device, function = (int(part, 16) for part in pci.groups())
            gpus.append(Gpu(len(gpus), f"{bus:02x}:{device:02x}.{function:x}"))
            ends[int(found[1])] = Endpoint("gpu", len(gpus) - 1)
        else:
            ends[int(found[1])] = Endpoint("cpu", cpus)
            cpus += 1
    table = _Table(text, within=0.5)
    for both, part in _sections(lines):
        head = next((m for line in part if (m := _RBT_HEAD.fullmatch(line))), None)
        if head is None:
            raise FormatError(f"a table of bandwidth without its heading; it says: {said(text)}")
        columns = [_known(ends, int(n)) for n in head[1].split()]
        rows = (m for line in part if (m := _RBT_ROW.fullmatch(line)))
        table.add(both, columns, ((_known(ends, int(m[1])), m[2].split()) for m in rows))
    version = _RBT_VERSION.search(text)
    return table.made(version[1] if version else None, gpus, cpus)


def _known(ends: Mapping[int, Endpoint], number: int) -> Endpoint:
    if number not in ends:
        raise FormatError(f"device {number} stands in a table and is not in the list of devices")
    return ends[number]


# --- TransferBench, alone or as a plugin of rocm_bandwidth_test ----------------------------------------

_TB_VERSION = re.compile(r"TransferBench v(\d+(?:\.\d+)+)")
_TB_HEAD = re.compile(r"\s*SRC(?:\+EXE)?\\(?:EXE\+)?DST((?:\s+(?:CPU|GPU)\s+\d+)+)\s*")
_TB_ENDS = re.compile(r"(CPU|GPU)\s+(\d+)")
_TB_ROW = re.compile(r"\s*(CPU|GPU)\s+(\d+)\s+(->|<-|<->)((?:\s+(?:N/A|[\d.]+))+)\s*")
_TB_GPU = re.compile(
    r"\s*GPU\s+(\d+)\s*\|.*\|\s*([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])\s*\|.*", re.IGNORECASE
)


def transferbench(text: str) -> Copies:
    """The output of the preset p2p. Errors: FormatError where no table is in it."""
    lines = [line.replace("│", " ") for line in _whole_lines(text)]
    table, seen = _Table(text), set[Endpoint]()
    for both, part in _sections(lines):
        head = next((m for line in part if (m := _TB_HEAD.fullmatch(line))), None)
        if head is None:
            raise FormatError(f"a table of bandwidth without its heading; it says: {said(text)}")
        columns = [Endpoint(kind.lower(), int(n)) for kind, n in _TB_ENDS.findall(head[1])]
        seen.update(columns)
        arrow = "<->" if both else "->"
        rows = (m for line in part if (m := _TB_ROW.fullmatch(line)) and m[3] == arrow)
        table.add(both, columns, ((Endpoint(m[1].lower(), int(m[2])), m[4].split()) for m in rows))
    version = _TB_VERSION.search(text)
    numbers = sorted(end.number for end in seen if end.kind == "gpu")
    cpus = sum(end.kind == "cpu" for end in seen)
    return table.made(version[1] if version else None, [Gpu(n, None) for n in numbers], cpus)


def topology(text: str) -> tuple[Gpu, ...]:
    """Which GPU is which, from what TransferBench prints without arguments; none where it does not say."""
    rows = (m for line in text.splitlines() if (m := _TB_GPU.fullmatch(line)))
    found = tuple(Gpu(int(m[1]), f"{m[2]}:{m[3]}:{m[4]}.{m[5]}".lower()) for m in rows)
    return found if len({gpu.number for gpu in found}) == len(found) else ()


# --- both ----------------------------------------------------------------------------------------------


class _Table:
    """Collects cells; every one of a GPU that the heading announces is either there or counted as missing.

    ``within`` is what to multiply a copy within one device by.
    """

    def __init__(self, text: str, within: float = 1.0) -> None:
        self._text, self._within = text, within
        self._cells: list[Cell] = []
        self._missing: Counter[str] = Counter()
        self._tables = 0

    def add(
        self, both: bool, columns: Sequence[Endpoint], rows: Iterator[tuple[Endpoint, Sequence[str]]]
    ) -> None:
        if len(set(columns)) != len(columns) or len(columns) > _ENDPOINTS_MOST:
            raise FormatError("the heading of a table names a device twice, or far too many")
        self._tables += 1
        here = set()
        for source, cells in rows:
            if source in here or source not in columns:
                raise FormatError(f"{source.kind} {source.number} has a row twice, or no column")
            if len(cells) != len(columns):
                continue  # cut off: counted below
            here.add(source)
            for target, cell in zip(columns, cells, strict=True):
                self._take(Cell(source, target, both, 0.0), cell)
        for source in columns:
            if source not in here:
                for target in columns:
                    self._lack(Cell(source, target, both, 0.0), "truncated")

    def made(self, version: str | None, gpus: Sequence[Gpu], cpus: int) -> Copies:
        if not self._tables:
            words = said(self._text)
            raise FormatError(f"no table of bandwidth in it; it says: {words}" if words else "it is empty")
        return Copies(version, tuple(self._cells), tuple(gpus), cpus, dict(self._missing))

    def _lack(self, cell: Cell, reason: str) -> None:
        """Count a cell that is missed: copies between CPUs say nothing of a GPU, and few tools make them."""
        if not cell.both and "gpu" in (cell.source.kind, cell.target.kind):
            self._missing[reason] += 1

    def _take(self, cell: Cell, text: str) -> None:
        if text == "N/A":
            self._lack(cell, "not_measured")
            return
        value = float(text) * 1e9 if _NUMBER.fullmatch(text) else math.nan
        if 0 < value <= _MOST:
            share = self._within if cell.source == cell.target else 1.0
            self._cells.append(cell._replace(bytes_per_second=value * share))
        else:
            self._lack(cell, "implausible")


def _whole_lines(text: str) -> list[str]:
    """The lines that were written to their end: a number may be cut where an output was."""
    return text.splitlines()[: None if text.endswith("\n") else -1]


def _sections(lines: Sequence[str]) -> Iterator[tuple[bool, Sequence[str]]]:
    """The lines below each title of a table, up to the next; true for copies both ways."""
    titles = [(i, m) for i, line in enumerate(lines) if (m := _TITLE.match(line))]
    for n, (at, found) in enumerate(titles):
        end = titles[n + 1][0] if n + 1 < len(titles) else len(lines)
        yield found[1].lower() != "uni", lines[at + 1 : end]
