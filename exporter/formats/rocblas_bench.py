"""What rocblas-bench prints: one line of names and one of values, below what it says of the machine. Pure.

Units: it prints Gflops and microseconds; operations per second and seconds here.
Absent: FormatError where the line of values is missing, cut off, or contradicts itself.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from exporter.formats.copies import said
from exporter.model import FormatError

_VERSION = re.compile(r"rocBLAS version:\s*(\d+(?:\.\d+){1,2})")
_DEVICES = re.compile(r"there are (\d+) devices")
_DEVICE = re.compile(r"Device ID (\d+)\s*:\s*(.*\S)")
_TOLERANCE = 0.02  # both numbers are printed with three digits at least
_LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Bench:
    """One measured call. ``operations`` per second: None for calls that are not of matrices.

    ``devices`` is how many GPUs the tool sees, ``names`` what it calls them by its number for them.
    """

    version: str | None
    devices: int | None
    names: dict[int, str]
    seconds: float
    operations: float | None


def read(text: str) -> Bench:
    """The last measurement in an output. Errors: FormatError, with what the tool said."""
    lines = text.splitlines()[: None if text.endswith("\n") else -1]
    at = max((i for i, line in enumerate(lines) if ",rocblas-Gflops" in line), default=None)
    values = lines[at + 1].split(",") if at is not None and at + 1 < len(lines) else None
    if at is None or values is None:
        raise FormatError(f"no measurement in it; it says: {said(text)}" if said(text) else "it is empty")
    names = [name.strip() for name in lines[at].rstrip(",").split(",")]
    row = dict(zip(reversed(names), reversed([v.strip() for v in values][: len(names)]), strict=False))
    if len(values) < len(names):
        raise FormatError(f"{len(values)} values below {len(names)} names")
    seconds = _positive(row, "us") * 1e-6
    if seconds > _LONGEST_S:
        raise FormatError(f"a call of {seconds:g} s")
    version, devices = _VERSION.search(text), _DEVICES.search(text)
    return Bench(
        version[1] if version else None,
        int(devices[1]) if devices else None,
        {int(number): name for number, name in _DEVICE.findall(text)},
        seconds,
        _operations(row, seconds) if {"M", "N", "K"} <= row.keys() else None,
    )


def _operations(row: dict[str, str], seconds: float) -> float:
    """The rate as printed, which has to be that of the sizes and the time beside it."""
    rate = _positive(row, "rocblas-Gflops") * 1e9
    expected = 2.0 * math.prod(_positive(row, name) for name in "MNK") / seconds
    if "batch_count" in row:
        expected *= _positive(row, "batch_count")
    if abs(rate - expected) > _TOLERANCE * expected:
        raise FormatError(f"{rate:.4g} operations per second do not fit its sizes and time ({expected:.4g})")
    return rate


def _positive(row: dict[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except (KeyError, ValueError):
        raise FormatError(f"no number for {name}: {row.get(name, 'no such column')!r}") from None
    if not (math.isfinite(value) and value > 0):
        raise FormatError(f"{value:g} for {name}")
    return value
