"""What the vendor's two command line tools print with ``--json``: the part they share. Pure.

``amd_smi`` and ``rocm_smi`` turn one tool's records into ``Entry`` objects; this module finds the JSON in the
output, reads leaves, and places entries on sockets and partitions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from exporter.model import FormatError, Raw, Reason

Record = Mapping[str, Any]
Socket = Callable[[str], str]
"""A PCI address as a tool shows it -> that of the socket's function."""

DEVICES_MAX = 1024
_TEXT_MAX = 128
_ATTEMPTS_MAX = 200
_COUNT_MAX = 2**64  # beyond it arithmetic fails, and no counter of a GPU is wider


@dataclass(slots=True)
class Entry:
    """One device as a tool shows it.

    Shape: ``groups`` as in ``Backend``; one set of names for both tools, so one catalogue field serves both.
    Units: base units, except percent in ``busy``. Absent: None or a Reason.
    """

    index: int
    bdf: str | None
    partition: int | None
    groups: dict[str, dict[str, Raw]]
    identity: dict[str, str | int] = field(default_factory=dict)
    pci: str | None = None


# --- finding the JSON ----------------------------------------------------------------------------------

_LINE_START = re.compile(r"^[{\[]", re.MULTILINE)
_ANYWHERE = re.compile(r'\[\s*\{|\{\s*"')


def documents(data: bytes) -> list[Any]:
    """Every JSON object and array in ``data``, in order, whatever text stands before, between and after.

    Keys are folded to lower case, as releases differ in it; a key that stands twice with two values is
    MALFORMED. Errors: FormatError where there is none; its text tells a broken one from none at all.
    """
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    found, seen = _from(text, _LINE_START)
    if not seen:
        # Nothing begins a line: a warning without an end of line stands before it, or it is indented.
        found, seen = _from(text, _ANYWHERE)
    if not found:
        raise FormatError(f"broken JSON in {len(data)} bytes" if seen else _no_json(text))
    return found


def _from(text: str, start: re.Pattern[str]) -> tuple[list[Any], bool]:
    found: list[Any] = []
    at, looked_like_json = 0, False
    for _ in range(_ATTEMPTS_MAX):
        match = start.search(text, at)
        if match is None:
            break
        try:
            document, at = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            looked_like_json |= _ANYWHERE.match(text, match.start()) is not None
            # The inside of a broken document is no document: go on where a line begins anew.
            at = text.find("\n", match.start())
            if at < 0:
                break
            continue
        found.append(document)
        looked_like_json = True
    return found, looked_like_json


def _fold(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        key = key.strip().lower()
        out[key] = Reason.MALFORMED if key in out and out[key] != value else value
    return out


def merge(known: dict[str, Any], more: Record) -> None:
    """Add what another document says of the same device; where two contradict each other, neither counts."""
    try:
        for key, value in more.items():
            known[key] = Reason.MALFORMED if key in known and known[key] != value else value
    except RecursionError:
        raise FormatError("JSON nested too deep") from None


def _no_number(_: str) -> Reason:
    return Reason.MALFORMED


_DECODER = json.JSONDecoder(object_pairs_hook=_fold, parse_constant=_no_number)


def _no_json(text: str) -> str:
    return f"no JSON; it says: {line}" if (line := last_line(text)) else "no output"


def last_line(text: str) -> str:
    """The last line with words in it, for one line of explanation."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


# --- leaves --------------------------------------------------------------------------------------------

# Unit -> (quantity, factor, divisor): two numbers, so that 0.78 V does not become 0.7800000000000001.
_UNITS: dict[str, tuple[str, int, int]] = {
    "%": ("percent", 1, 1),
    "c": ("celsius", 1, 1),
    "°c": ("celsius", 1, 1),
    "w": ("watts", 1, 1),
    "mw": ("watts", 1, 1000),
    "uw": ("watts", 1, 1_000_000),
    "v": ("volts", 1, 1),
    "mv": ("volts", 1, 1000),
    "j": ("joules", 1, 1),
    "mj": ("joules", 1, 1000),
    "uj": ("joules", 1, 1_000_000),
    "hz": ("hertz", 1, 1),
    "khz": ("hertz", 1000, 1),
    "mhz": ("hertz", 1_000_000, 1),
    "ghz": ("hertz", 1_000_000_000, 1),
    "mt/s": ("transfers", 1_000_000, 1),
    "gt/s": ("transfers", 1_000_000_000, 1),
    "b": ("bytes", 1, 1),
    # The tools write MB and mean MiB.
    "kb": ("bytes", 1024, 1),
    "mb": ("bytes", 1024**2, 1),
    "gb": ("bytes", 1024**3, 1),
    "rpm": ("rpm", 1, 1),
    "": ("count", 1, 1),
}
_QUANTITY = re.compile(r"\(?\s*([-+]?\d{1,24}(?:\.\d{1,24})?(?:[eE][-+]?\d{1,3})?)\s*([^\s\d()]*)\s*\)?\Z")
_ABSENT = frozenset(("", "n/a", "na", "none", "null", "unknown", "not supported", "unsupported", "-"))
_EXCUSES = (
    (re.compile(r"no_perm|permission|denied", re.IGNORECASE), Reason.DENIED),
    (re.compile(r"not[_ ](yet[_ ])?(supported|implemented|applicable)", re.IGNORECASE), Reason.UNSUPPORTED),
    (re.compile(r"busy|retry", re.IGNORECASE), Reason.BUSY),
    (re.compile(r"time(d )?_?out", re.IGNORECASE), Reason.TIMEOUT),
)


def number(leaf: Any, unit: str = "") -> int | float | Reason | None:
    """A leaf in base units; ``unit`` is what it is in where it does not say so itself.

    Shape: a number, a number as text with or without a unit, or an object of value and unit.
    Absent: None for "N/A" in all its spellings; a Reason for anything that is no finite number in that unit.
    """
    if isinstance(leaf, Mapping) and "value" in leaf:
        own = leaf.get("unit")
        if isinstance(own, str) and own.strip().lower() not in _ABSENT:
            return _measured(leaf["value"], own, unit)
        leaf = leaf["value"]
    return _measured(leaf, unit, unit)


def _measured(leaf: Any, unit: str, wanted: str) -> int | float | Reason | None:
    if leaf is None or isinstance(leaf, Reason):
        return leaf
    if isinstance(leaf, str):
        match = _QUANTITY.match(leaf.strip())
        if match is None:
            return _excuse(leaf)
        digits, own = match.groups()
        leaf = int(digits) if digits.lstrip("+-").isdigit() else float(digits)
        unit = own or unit
    if isinstance(leaf, bool) or not isinstance(leaf, int | float) or not isfinite(_bounded(leaf)):
        return Reason.MALFORMED
    scale = _UNITS.get(unit.strip().lower())
    if scale is None or scale[0] != _UNITS[wanted.lower()][0]:
        return Reason.MALFORMED
    quantity, factor, divisor = scale
    if quantity == "count" and leaf == _COUNT_MAX - 1:
        return None  # all ones in the library's 64-bit counters: their own "not available"
    value = leaf * factor if divisor == 1 else leaf / divisor
    return value if isfinite(_bounded(value)) else Reason.MALFORMED


def _bounded(value: float) -> float:
    return float("inf") if abs(value) > _COUNT_MAX * 1_000_000_000 else float(value)


def _excuse(text: str) -> Reason | None:
    plain = text.strip().lower()
    if plain in _ABSENT or plain.startswith("n/a"):
        return None
    return next((reason for pattern, reason in _EXCUSES if pattern.search(plain)), Reason.MALFORMED)


def branch(node: Any, *path: str) -> Record:
    """The object at ``path``; an empty one where "N/A" or anything else stands in its place."""
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else {}


def word(leaf: Any) -> str | None:
    """A name or identifier; None for the ways of saying that there is none. Numbers become text."""
    if isinstance(leaf, Reason | bool) or not isinstance(leaf, str | int):
        return None
    if isinstance(leaf, int):
        return str(leaf) if abs(leaf) < _COUNT_MAX else None
    text = leaf.strip()
    if text.lower() in _ABSENT or text.lower().startswith(("n/a", "amdsmi_status")):
        return None
    return text[:_TEXT_MAX] if text.isprintable() else None


def identifier(leaf: Any) -> str | None:
    """As ``word``; all zeros is what firmware without an identity says."""
    text = word(leaf)
    return text if text and text.lower().strip("0x-") else None


def ordinal(leaf: Any) -> int | None:
    """A small whole number, also as text; anything else is None."""
    if isinstance(leaf, str) and leaf.strip().isascii() and leaf.strip().isdigit() and len(leaf) < 12:
        leaf = int(leaf)
    return leaf if isinstance(leaf, int) and not isinstance(leaf, bool) and 0 <= leaf < 2**32 else None


def present(**readings: Any) -> dict[str, Raw]:
    """The readings a tool knows of: without those it says "N/A" to, unlike those that failed."""
    return {name: value for name, value in readings.items() if value is not None}


# --- sockets and partitions ----------------------------------------------------------------------------

_BDF = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])\Z")


def bdf(leaf: Any) -> str | None:
    """Lower-case ``dddd:bb:dd.f``; None for anything else."""
    match = _BDF.match(leaf.strip()) if isinstance(leaf, str) and not isinstance(leaf, Reason) else None
    if match is None:
        return None
    domain, bus, slot, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(slot, 16):02x}.{function}"


def first_function(address: str) -> str:
    """The socket of an address where nothing else is known: function 0 of the same slot."""
    return address[:-1] + "0"


def place(entries: Iterable[Entry], socket: Socket = first_function) -> list[Entry]:
    """Give each entry its socket and, on a partitioned one, its number; sorted by socket and partition.

    The tools give partitions function digits of their own. ``partition`` stays None on an undivided socket.
    """
    groups: dict[str, list[Entry]] = {}
    rest: list[Entry] = []
    for entry in entries:
        if entry.bdf is None:
            rest.append(entry)
            continue
        entry.pci = socket(entry.bdf)
        groups.setdefault(entry.pci, []).append(entry)
    out: list[Entry] = []
    for pci in sorted(groups, key=_pci_order):
        (out if _number(groups[pci]) else rest).extend(sorted(groups[pci], key=lambda e: e.partition or 0))
    return out + rest


def _number(members: list[Entry]) -> bool:
    """Number the partitions of one socket; False, and no address, where two claim to be the same."""
    numbers = [e.partition if e.partition is not None else _function(e) for e in members]
    if len(set(numbers)) != len(numbers):
        # Some releases number every partition 0: the function digits tell them apart.
        numbers = [_function(e) for e in members]
    unique = len(set(numbers)) == len(numbers)
    divided = len(members) > 1 or numbers[0] > 0 or _mode_divides(members[0])
    for entry, partition in zip(members, numbers, strict=True):
        entry.partition = partition if divided and unique else None
        entry.pci = entry.pci if unique else None
    return unique


def _function(entry: Entry) -> int:
    return int((entry.bdf or "0")[-1]) - int((entry.pci or "0")[-1])


def _mode_divides(entry: Entry) -> bool:
    return str(entry.identity.get("compute_partition", "SPX")) in ("DPX", "TPX", "QPX", "CPX")


def _pci_order(pci: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in re.split("[:.]", pci))


# --- failure -------------------------------------------------------------------------------------------

_DENIED = re.compile(
    rb"permission (denied|needed)|missing the following required groups|no_perm|not permitted|must be root",
    re.IGNORECASE,
)


def why_nothing(stdout: bytes, stderr: bytes) -> Reason:
    """Why output without a single device is without: DENIED, NO_DATA, or MALFORMED for broken JSON."""
    if _DENIED.search(stdout[:65536]) or _DENIED.search(stderr[:65536]):
        return Reason.DENIED
    return Reason.MALFORMED if _ANYWHERE.search(stdout.decode("utf-8", "replace")) else Reason.NO_DATA
