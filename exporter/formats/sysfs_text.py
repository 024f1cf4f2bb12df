"""The driver's small text files -> numbers. Pure; every parser gets the bytes of one file.

A parser returns the value, None where the file says "nothing" (it is empty, no level is active), or a Reason.
It never raises: one strange file costs exactly its own reading.
"""

from __future__ import annotations

import re

from exporter.model import Reason

_PADDING = b"\0 \t\r\n"
_LEAST, _MOST = -(2**63), 2**64 - 1


def integer(data: bytes) -> int | Reason | None:
    """A decimal number of at most 64 bits."""
    try:
        # int() takes the 1_000 of source code, a file never means that.
        number = int(data) if b"_" not in data else None
    except ValueError:
        stripped = data.strip(_PADDING)
        if not stripped:
            return None
        return integer(stripped) if len(stripped) < len(data) else Reason.MALFORMED
    return number if number is not None and _LEAST <= number <= _MOST else Reason.MALFORMED


def hexadecimal(data: bytes) -> int | None:
    """``0x1002`` or ``a5a5...`` without the prefix, at most 64 bits; None for anything else."""
    try:
        number = int(data.strip(_PADDING), 16)
    except ValueError:
        return None
    return number if 0 <= number <= _MOST else None


def text(data: bytes) -> str | None:
    """Text without padding; None where nothing is left."""
    return data.strip(_PADDING).decode("utf-8", "replace") or None


_LEVEL = re.compile(rb"^[ \t]*(?:\d+|S):[ \t]*(\d{1,9})[ \t]*[Mm][Hh]z[ \t]*(\*?)[ \t]*\r?$", re.MULTILINE)


def active_megahertz(data: bytes) -> int | Reason | None:
    """The active level of a ``pp_dpm_*`` table; rows are ``n: 500Mhz *``, ``S:`` is the deep-sleep row.

    Absent: None without an active row (an idle domain on some chips) and for an empty file. Several active
    rows are the value only if they agree, as the driver marks duplicates of one level.
    """
    if (star := data.find(b"*")) >= 0 and data.find(b"*", star + 1) < 0:
        # Nearly always: one active row, and only that one is worth a look.
        start, end = data.rfind(b"\n", 0, star) + 1, data.find(b"\n", star)
        if row := _LEVEL.fullmatch(data, start, end if end >= 0 else len(data)):
            return int(row[1])
    rows = _LEVEL.findall(data)
    active = {int(mhz) for mhz, star in rows if star}
    if len(active) == 1:
        return active.pop()
    if active:
        return Reason.MALFORMED
    return None if rows or not data.strip(_PADDING) else Reason.MALFORMED


_SPEED = re.compile(rb"(\d{1,6}(?:\.\d{1,6})?) GT/s")


def transfers_per_second(data: bytes) -> float | Reason | None:
    """``16.0 GT/s PCIe`` -> 16e9; the kernel writes ``Unknown`` (with or without speed unit) for no link."""
    found = _SPEED.match(data.lstrip())
    if found:
        return float(round(float(found[1]) * 1e9))
    word = data.strip(_PADDING)
    if not word:
        return None
    return Reason.UNSUPPORTED if word.lower().startswith(b"unknown") else Reason.MALFORMED


def lanes(data: bytes) -> int | Reason | None:
    """A link width; 0 and 255 are what the kernel writes for a link it cannot see."""
    width = integer(data)
    return Reason.UNSUPPORTED if width in (0, 255) else width


_COUNT = re.compile(rb"^[ \t]*(ue|ce|de)[ \t]*:[ \t]*(\d{1,20})[ \t]*\r?$", re.MULTILINE)
_INACCESSIBLE = b"Query currently inaccessible"


def ras_counts(data: bytes) -> dict[str, int] | Reason | None:
    """One ``ras/<block>_err_count``: any of ue, ce, de. BUSY while the driver resets the GPU."""
    found = {key.decode(): int(count) for key, count in _COUNT.findall(data)}
    if found:
        return found
    if data.lstrip().startswith(_INACCESSIBLE):
        return Reason.BUSY
    return Reason.MALFORMED if data.strip(_PADDING) else None


_PAGE = re.compile(
    rb"^[ \t]*0x[0-9a-fA-F]+[ \t]*:[ \t]*0x[0-9a-fA-F]+[ \t]*:[ \t]*([RPF])[ \t]*\r?$", re.MULTILINE
)
_PAGE_STATES = {b"R": "reserved", b"P": "pending", b"F": "unreservable"}


def retired_pages(data: bytes) -> dict[str, int] | Reason:
    """Pages by state in ``ras/gpu_vram_bad_pages``; an empty list is zero pages, not an absent value."""
    states = _PAGE.findall(data)
    if len(states) != sum(1 for line in data.split(b"\n") if line.strip(_PADDING)):
        return Reason.MALFORMED
    return {name: states.count(letter) for letter, name in _PAGE_STATES.items()}


_FIRMWARE = re.compile(rb"0x([0-9a-fA-F]{1,8})\Z")
_LISTED = re.compile(
    rb"^([A-Za-z0-9 ]{1,32}) feature version: \d+, firmware version: 0x([0-9a-fA-F]{1,8})\r?$", re.MULTILINE
)


def firmware_version(data: bytes) -> str | Reason | None:
    """``0x00561a00``; None for zero, which is what the kernel writes for firmware that is not loaded."""
    word = data.strip(_PADDING)
    found = _FIRMWARE.match(word)
    if found is None:
        return Reason.MALFORMED if word else None
    number = int(found[1], 16)
    return f"0x{number:08x}" if number else None


def firmware_listing(data: bytes) -> dict[str, str]:
    """Version by block in debugfs' ``amdgpu_firmware_info``; blocks that are not loaded are left out."""
    blocks = ((name.decode().lower().replace(" ", "_"), int(v, 16)) for name, v in _LISTED.findall(data))
    return {name: f"0x{number:08x}" for name, number in blocks if number}


def properties(data: bytes) -> dict[str, int]:
    """A KFD ``properties`` file: ``name number`` a line; lines of any other shape are left out."""
    out: dict[str, int] = {}
    for line in data.split(b"\n"):
        name, _, number = line.partition(b" ")
        value = integer(number)
        if isinstance(value, int) and name.isascii():
            out[name.decode()] = value
    return out


def uevent(data: bytes) -> dict[str, str]:
    """``KEY=value`` lines."""
    pairs = (line.partition("=") for line in data.decode("utf-8", "replace").splitlines())
    return {key.strip(): value.strip() for key, sep, value in pairs if sep}


_PCI = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])\Z")


def pci_address(name: str) -> str | None:
    """Lower-case ``dddd:bb:dd.f``; None if the name is no PCI address."""
    found = _PCI.match(name)
    return None if found is None else name.lower()


def pci_order(pci: str) -> tuple[int, ...]:
    """Sort key of an address: numeric, so that a five-digit domain follows a four-digit one."""
    found = _PCI.match(pci)
    return tuple(int(part, 16) for part in found.groups()) if found else (1 << 32,)
