"""Decode the driver's binary ``gpu_metrics`` table, every published version. Pure; knows no file.

Which table it is follows from the header alone; a table that is unknown or shorter than its layout is an
error, never read by the layout of a neighbour.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from exporter.formats.gpu_metrics_tables import (
    ATTRIBUTES,
    LAYOUTS,
    PARTITION_LAYOUTS,
    PARTITION_OWN,
    PARTITIONS,
)
from exporter.model import FormatError

Decoded = dict[str, "int | list[int | None] | list[dict[str, list[int | None]]] | None"]

_FIELD = re.compile(r"(-|\w+)(?:\*(\d+))?(?::(\d))?(?:@([\d.]+))?\Z")
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_HEADER = 4


class _Slot(NamedTuple):
    name: str
    first: int  # place of the first value in the unpacked tuple
    number: int
    missing: int  # all ones of the field's own width


@dataclass(frozen=True, slots=True)
class Table:
    """One fixed layout, compiled."""

    size: int
    unpack: struct.Struct
    slots: tuple[_Slot, ...]
    offsets: dict[str, tuple[int, int, int]]  # name -> offset, bytes, count
    partitions: tuple[str, int] | None = None  # layout of xcp_stats and where it starts


def _compile(text: str, start: int) -> Table:
    at, index, codes = start, 0, "<"
    slots: list[_Slot] = []
    offsets: dict[str, tuple[int, int, int]] = {}
    partitions: tuple[str, int] | None = None
    widest = 1
    for word in text.split():
        match = _FIELD.match(word)
        if match is None:
            raise ValueError(f"layout word {word}")
        name, count, width = match[1], int(match[2] or 1), int(match[3] or 2)
        if match[4]:
            nested = partition_table(match[4])
            gap = -at % 8
            partitions = (match[4], at + gap)
            codes += f"{gap + nested.size * PARTITIONS}x"
            at += gap + nested.size * PARTITIONS
            widest = 8
            continue
        gap = -at % width
        codes += f"{gap}x" + (f"{count * width}x" if name == "-" else f"{count}{_CODES[width]}")
        at += gap
        if name != "-":
            slots.append(_Slot(name, index, count, (1 << 8 * width) - 1))
            offsets[name] = (at, width, count)
            index += count
        at += count * width
        widest = max(widest, width)
    return Table(at + -at % widest, struct.Struct(codes), tuple(slots), offsets, partitions)


@cache
def table(version: tuple[int, int]) -> Table:
    """The fixed layout of one version; KeyError where there is none."""
    return _compile(LAYOUTS[version], _HEADER)


@cache
def partition_table(version: str) -> Table:
    """The layout of one ``xcp_stats`` slot."""
    return _compile(PARTITION_LAYOUTS[version], 0)


def decode(blob: bytes) -> Decoded:
    """Decode one gpu_metrics table.

    Shape:  scalars -> int; arrays -> list in hardware order; xcp_stats -> list of such mappings,
            empty for a slot without a partition.
    Units:  raw, and not the same in every version (``gpu_metrics_units``).
    Absent: None where a field holds all ones of *its own* width, nothing else is special.
    Errors: FormatError for an unknown header or a short blob; nothing else.
    Source: kernel header kgd_pp_interface.h; check by hand: ``amd-smi metric --json``.
    """
    size, version = _header(blob)
    if version == (1, 9):
        return decode_attributes(blob)
    if version not in LAYOUTS:
        raise FormatError(f"gpu_metrics: unknown table {version[0]}.{version[1]} of {size} bytes")
    layout = table(version)
    # A partition's own table also calls itself 1.1; only the size tells it from the card's.
    if size < layout.size or len(blob) < size or (version == (1, 1) and size != layout.size):
        raise FormatError(
            f"gpu_metrics: table {version[0]}.{version[1]} needs {layout.size} bytes; "
            f"the header says {size}, {len(blob)} are there"
        )
    out = _fields(layout, blob, _HEADER)
    if layout.partitions:
        name, start = layout.partitions
        nested = partition_table(name)
        size, ones = nested.size, _ones(nested.size)
        # Unpartitioned, seven of the eight slots are all ones: 644 values not worth unpacking on every poll.
        slots = [
            {} if blob[at : at + size] == ones else _fields(nested, blob, at)
            for at in range(start, start + PARTITIONS * size, size)
        ]
        out["xcp_stats"] = slots  # type: ignore[assignment]  # every field of a slot is an array
    return out


@cache
def own_table() -> Table:
    """The fixed layout of a partition's own table, 1.0."""
    return _compile(PARTITION_OWN, _HEADER)


def decode_partition(blob: bytes) -> Decoded:
    """Decode a partition's own table, ``xcp_metrics``: 1.0 is fixed, 1.1 describes itself.

    Shape, Absent, Errors: as ``decode``. The fields are those of this partition alone.
    """
    size, version = _header(blob)
    if version == (1, 1):
        return decode_attributes(blob)
    layout = own_table()
    if version != (1, 0) or size < layout.size or len(blob) < size:
        raise FormatError(f"xcp_metrics: unknown table {version[0]}.{version[1]} of {size} bytes")
    return _fields(layout, blob, _HEADER)


def version_of(blob: bytes) -> tuple[int, int]:
    """Format and content revision of the header; FormatError where there is none."""
    return _header(blob)[1]


def _header(blob: bytes) -> tuple[int, tuple[int, int]]:
    if len(blob) < _HEADER:
        raise FormatError(f"gpu_metrics: {len(blob)} bytes are no table")
    return blob[0] | blob[1] << 8, (blob[2], blob[3])


@cache
def _ones(size: int) -> bytes:
    return b"\xff" * size


def _fields(layout: Table, blob: bytes, start: int) -> Decoded:
    values = layout.unpack.unpack_from(blob, start)
    out: Decoded = {}
    for name, first, count, missing in layout.slots:
        if count == 1:
            value = values[first]
            out[name] = None if value == missing else value
        else:
            part = values[first : first + count]
            out[name] = [None if v == missing else v for v in part] if missing in part else list(part)
    return out


_ENCODING = struct.Struct("<Q")
_TYPES = "BbHhIiQq"
_WIDTHS = (1, 1, 2, 2, 4, 4, 8, 8)
_FIRST_UNSTABLE = 49


def decode_attributes(blob: bytes) -> Decoded:
    """Decode a self-describing table: device table 1.9, or a partition's own table 1.1.

    Shape:  as the table says: one instance -> int, several -> list.
    Absent: None for all ones of the attribute's own width. An unknown id is stepped over by its size.
    Errors: FormatError for a type without a width or a table that ends inside an attribute.
    """
    if len(blob) < _HEADER + 4:
        raise FormatError(f"gpu_metrics: {len(blob)} bytes are no self-describing table")
    (count,) = struct.unpack_from("<i", blob, _HEADER)
    if not 0 <= count <= 1024:
        raise FormatError(f"gpu_metrics: a table of {count} attributes is not plausible")
    at = _HEADER + 4
    out: Decoded = {}
    unstable: dict[int, list[int | None]] = {}
    for nth in range(count):
        if len(blob) < at + 8:
            raise FormatError(f"gpu_metrics: the table ends before attribute {nth} of {count}")
        (code,) = _ENCODING.unpack_from(blob, at)
        instances, ident, kind = code & 0x3FF, code >> 10 & 0x3FF, code >> 20 & 0xF
        if kind >= len(_TYPES):
            raise FormatError(f"gpu_metrics: attribute {ident} has the unknown type {kind}")
        width, at = _WIDTHS[kind], at + 8
        if len(blob) < at + width * instances:
            raise FormatError(f"gpu_metrics: the table ends inside attribute {ident}")
        if instances and (ident < len(ATTRIBUTES) or ident >= _FIRST_UNSTABLE):
            missing = -1 if kind & 1 else (1 << 8 * width) - 1
            raw = _values(instances, kind).unpack_from(blob, at)
            values = [None if v == missing else v for v in raw] if missing in raw else list(raw)
            if ident >= _FIRST_UNSTABLE:
                unstable[ident] = values
            else:
                out[ATTRIBUTES[ident]] = values[0] if instances == 1 else values
        at += width * instances
    _temperatures(unstable, out)
    return out


@lru_cache(maxsize=256)
def _values(instances: int, kind: int) -> struct.Struct:
    return struct.Struct(f"<{instances}{_TYPES[kind]}")


def _temperatures(unstable: dict[int, list[int | None]], out: Decoded) -> None:
    """Name the die temperatures, whose ids a later kernel moved by one.

    Three ids from 49 on are the later numbering. Two, the second larger (an AID carries several XCDs), are
    the earlier one. Anything else stays unnamed: a guess would show one die's heat as another's.
    """
    if 51 in unstable:
        names = {49: "temperature_mid", 50: "temperature_aid", 51: "temperature_xcd"}
    elif 49 in unstable and 50 in unstable and len(unstable[50]) > len(unstable[49]):
        names = {49: "temperature_aid", 50: "temperature_xcd"}
    else:
        return
    for ident, name in names.items():
        values = unstable.get(ident)
        if values is not None:
            out[name] = values if len(values) > 1 else values[0]
