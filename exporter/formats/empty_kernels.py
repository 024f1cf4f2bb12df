"""What the preset ``empty`` of TransferBench prints: the time of a launch of nothing. Pure.

Units: microseconds per launch there, by the host's clock; seconds here.
Absent: a GPU without a whole row for both batches gives nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.formats.copies import said
from exporter.model import FormatError

_VERSION = re.compile(r"TransferBench v(\d+(?:\.\d+)+)")
_TIME = re.compile(r"\d{1,8}\.\d{3}")
_MEAN = "CpuAvg"


@dataclass(frozen=True, slots=True)
class Launches:
    """Seconds per launch by the tool's number of the GPU: ``alone`` is waited for each time."""

    version: str | None
    alone: Mapping[int, float]
    batch: Mapping[int, float]


def read(text: str, batch: int) -> Launches:
    """Launches one by one and in batches of a size. Errors: FormatError where no row is whole."""
    lines = text.splitlines()[: None if text.endswith("\n") else -1]
    found: dict[int, dict[int, float]] = {1: {}, batch: {}}
    names: list[str] = []
    for line in lines:
        words = line.split()
        if words[:1] == ["BatS"]:
            names = words
        elif names and len(words) == len(names) and all(w.isdecimal() for w in words[:5]):
            row = dict(zip(names, words, strict=True))
            size, gpu = int(row.get("BatS", "0")), int(row.get("GPU", "-1"))
            mean = row.get(_MEAN, "")
            if size not in found or not _TIME.fullmatch(mean):
                continue
            if gpu in found[size]:
                raise FormatError(f"GPU {gpu} has two rows of batch {size}")
            if (seconds := float(mean) * 1e-6) > 0:
                found[size][gpu] = seconds
    if not (found[1] or found[batch]):
        raise FormatError(f"no row of times in it; it says: {said(text)}" if said(text) else "it is empty")
    version = _VERSION.search(text)
    return Launches(version[1] if version else None, found[1], found[batch])
