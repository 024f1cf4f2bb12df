"""Rows in columns: choosing some of them, and appending one table to another. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress

from exporter.formats.trace import Calls, Kernels, Lane, packed


def selected(rows: Kernels | Calls, lanes: set[int], into: Kernels | Calls) -> Kernels | Calls:
    mask = bytes(map(lanes.__contains__, rows.lane))
    for name in rows.__slots__:
        column = getattr(rows, name)
        setattr(into, name, packed(column.typecode, compress(column, mask)))
    return into


def extend(
    rows: Kernels | Calls, lanes: list[Lane], part: Kernels | Calls, part_lanes: Iterable[Lane]
) -> None:
    """Append; the first part is taken as it is, without a copy."""
    if not len(rows):
        lanes.extend(part_lanes)
        for name in rows.__slots__:
            setattr(rows, name, getattr(part, name))
        return
    at = {lane: i for i, lane in enumerate(lanes)}
    for lane in part_lanes:
        if lane not in at:
            at[lane] = len(lanes)
            lanes.append(lane)
    numbers = [at[lane] for lane in part_lanes]
    for name in rows.__slots__:
        column, more = getattr(rows, name), getattr(part, name)
        if name == "lane":
            more = packed("i", map(numbers.__getitem__, more))
        setattr(rows, name, column + more)
