"""The driver's error records (CPER) of one GPU, as the library hands them out: how many, how new, what of.

The driver keeps them since it was loaded. A look goes on where the last one ended, and never takes long.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from typing import Any, Protocol

from exporter.model import Raw, Reason

# The library's words -> ours. What is neither fatal nor corrected cost somebody data.
SEVERITIES = {"fatal": "fatal", "non_fatal_uncorrected": "uncorrected", "non_fatal_corrected": "corrected"}
OTHER = "other"
_EVERY_SEVERITY = 0b111
_BUFFER_BYTES = 1 << 20
_CALLS_MOST = 8  # of 20 records each; what is left is for the next look
_IDS_MOST = 32
_RECORD_BYTES_MOST = 1 << 16
# Before these the library freed memory that was not its own when it read records.
_SOUND_LIBRARY, _SOUND_ROCM, _FIRST_LIBRARY = (26, 5), (7, 14), 20
_TIME = re.compile(r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)\Z", re.ASCII)


class Calls(Protocol):
    """The library as it is seen here."""

    version: str

    def call(self, name: str, *args: Any) -> Raw: ...


def sound(version: str) -> bool:
    """Whether a module of this version may be asked for records at all; one that does not say may not."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    return numbers >= (_SOUND_LIBRARY if numbers[:1] >= (_FIRST_LIBRARY,) else _SOUND_ROCM)


def seconds(text: object) -> int | None:
    """Seconds since 1970 of a record's time, which is UTC; None for what is no time."""
    found = _TIME.match(text) if isinstance(text, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups())
    fits = 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60
    return calendar.timegm((year, month, day, hour, minute, second)) if fits and year >= 1970 else None


class Records:
    """What one GPU's records have said so far."""

    def __init__(self) -> None:
        self._cursor = 0
        self._counts = dict.fromkeys(SEVERITIES.values(), 0)
        self._newest: dict[str, int] = {}
        self._ids: dict[str, int] = {}

    def read(self, lib: Calls, handle: Any) -> Raw:
        """Take in what is new.

        Shape:  ``count`` and ``newest`` (seconds since 1970) by severity, ``afid``: how often by id.
        Absent: a Reason where the driver keeps no records, or the library is one that crashes on them.
        """
        if not sound(lib.version):
            return Reason.UNSUPPORTED
        for turn in range(_CALLS_MOST):
            answer = lib.call("get_gpu_cper_entries", handle, _EVERY_SEVERITY, _BUFFER_BYTES, self._cursor)
            if turn and answer is Reason.NO_DATA:
                break
            if isinstance(answer, Reason):
                return answer
            parts = _parts(answer)
            if parts is None:
                return Reason.MALFORMED
            entries, cursor, raw = parts
            if not entries or cursor == self._cursor:  # one that stays would count the same again
                break
            self._cursor = cursor
            self._take(lib, entries, raw)
        return {"count": dict(self._counts), "newest": dict(self._newest), "afid": dict(self._ids)}

    def _take(self, lib: Calls, entries: Mapping[Any, Any], raw: list[Any]) -> None:
        for place, entry in enumerate(entries.values()):
            word = entry.get("error_severity") if isinstance(entry, Mapping) else None
            severity = SEVERITIES.get(word) if isinstance(word, str) else None
            if severity is None:
                continue  # of no severity that is known: nobody could act on it
            self._counts[severity] += 1
            at = seconds(entry.get("timestamp"))
            if at is not None:
                self._newest[severity] = max(at, self._newest.get(severity, 0))
            for ident in _ids(lib, raw[place] if place < len(raw) else None):
                known = ident in self._ids or len(self._ids) < _IDS_MOST
                key = ident if known else OTHER
                self._ids[key] = self._ids.get(key, 0) + 1


def _parts(answer: Raw) -> tuple[Mapping[Any, Any], int, list[Any]] | None:
    """Entries, cursor and raw records of an answer that has the shape it should."""
    if not isinstance(answer, tuple) or len(answer) != 4:
        return None
    entries, cursor, raw, _ = answer
    if not isinstance(entries, Mapping) or type(cursor) is not int or not isinstance(raw, list):
        return None
    return (entries, cursor, raw) if cursor >= 0 else None


def _ids(lib: Calls, record: object) -> list[str]:
    """The AMD field ids in one record; none where it cannot be read."""
    data = record.get("bytes") if isinstance(record, Mapping) else None
    if not isinstance(data, list) or not 0 < len(data) <= _RECORD_BYTES_MOST:
        return []
    if not all(type(b) is int and -128 <= b < 256 for b in data):
        return []
    # The module hands bytes out signed and does not take them back so.
    answer = lib.call("get_afids_from_cper", bytes(b & 0xFF for b in data))
    found = answer[0] if isinstance(answer, tuple) and answer else None
    ids = found if isinstance(found, list) else []
    return [str(i) for i in ids if type(i) is int and 0 <= i < 1 << 16]
