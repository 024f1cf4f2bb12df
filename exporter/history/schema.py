"""The tables of the history, and how one window's word on one GPU is packed. Pure.

Texts that repeat (kernels, tools, contexts) stand once and are referred to by number. A result is one blob of
fixed-width numbers, so that a year of them can be read in seconds.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

from exporter.model import KernelStat, TimelineState, WindowResult

VERSION = 2
KERNELS = 16  # of one window and GPU, the heaviest; the rest is one row without a name
TABLES = """
CREATE TABLE IF NOT EXISTS text (id INTEGER PRIMARY KEY, value TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS phase (id INTEGER PRIMARY KEY, at REAL NOT NULL, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS window (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, origin TEXT UNIQUE, name INTEGER NOT NULL, tool INTEGER NOT NULL,
  mode INTEGER NOT NULL, run INTEGER, first INTEGER NOT NULL, outcome INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS window_at ON window (at);
CREATE TABLE IF NOT EXISTS result (
  window INTEGER NOT NULL, gpu INTEGER NOT NULL, context INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (window, gpu)
) WITHOUT ROWID;
"""
# Whole numbers and times of one result; what is not known is NaN. The order is part of VERSION.
FIELDS = (
    "span_ns",
    "execution_ns",
    "busy_ns",
    "queue_ns",
    "launch_duration_ns",
    "launch_call_ns",
    "queue_p50_ns",
    "exposed_delay_ns",
    "collective_exposed_ns",
    "l2_hits",
    "l2_requests",
    "valu_instructions",
    "slots_available",
    "counter_observed_ns",
)
COUNTS = ("kernels", "launches", "paired", "unmatched_kernels")
_HEAD = struct.Struct(f"<{len(FIELDS) + len(TimelineState)}d{len(COUNTS)}Q?H")
_KERNEL = struct.Struct("<IIdf")  # sixteen of these are most of a result


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of one packed result; ``name`` is the number of its text, 0 for the rest together."""

    name: int
    calls: int
    total_ns: float
    p50_ns: float | None


@dataclass(frozen=True, slots=True)
class Body:
    """One packed result; amounts by the names of FIELDS, COUNTS and of the timeline's states."""

    amounts: Mapping[str, float | None]
    planned: bool
    kernels: tuple[Kernel, ...]


def heaviest(stats: Sequence[KernelStat]) -> tuple[Sequence[KernelStat], KernelStat | None]:
    """The kernels that are kept one by one, and all others as one."""
    ranked = sorted(stats, key=lambda k: (-k.total_ns, k.kernel))
    rest = ranked[KERNELS:]
    if not rest:
        return ranked, None
    return ranked[:KERNELS], KernelStat("", sum(k.calls for k in rest), sum(k.total_ns for k in rest), 0, 0)


def pack(result: WindowResult, names: Mapping[str, int]) -> bytes:
    """One result as bytes; ``names`` numbers the kernels that ``heaviest`` keeps."""
    amounts = [_float(getattr(result, name)) for name in FIELDS]
    amounts += [_float(result.timeline_ns.get(state.value)) for state in TimelineState]
    counts = [int(getattr(result, name)) for name in COUNTS]
    kept, rest = heaviest(result.kernel_stats)
    rows = [_KERNEL.pack(names[k.kernel], k.calls, k.total_ns, k.p50_ns) for k in kept]
    if rest is not None:
        rows.append(_KERNEL.pack(0, rest.calls, rest.total_ns, nan))
    return _HEAD.pack(*amounts, *counts, result.span_kind == "planned", len(rows)) + b"".join(rows)


def unpack(body: bytes) -> Body:
    """What ``pack`` made. Errors: struct.error for anything else."""
    head = _HEAD.unpack_from(body)
    names = (*FIELDS, *(state.value for state in TimelineState))
    amounts: dict[str, float | None] = {
        name: None if isnan(value) else value for name, value in zip(names, head, strict=False)
    }
    amounts.update(zip(COUNTS, head[len(names) :], strict=False))
    planned, count = head[-2], head[-1]
    if len(body) != _HEAD.size + count * _KERNEL.size:
        raise struct.error(f"{len(body)} bytes are no result with {count} kernels")
    kernels = tuple(
        Kernel(name, calls, total, None if isnan(p50) else p50)
        for name, calls, total, p50 in _KERNEL.iter_unpack(body[_HEAD.size :])
    )
    return Body(amounts, bool(planned), kernels)


def _float(value: float | None) -> float:
    return nan if value is None else float(value)
