"""Marked phases and time ranges of the history as one side of a comparison. Never writes."""

from __future__ import annotations

import contextlib
import math
import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from exporter.compare.rows import Row
from exporter.history import schema
from exporter.history.store import FILE, rows_of
from exporter.model import ConfigError

RESULTS_MOST = 6000  # of one side; of more, an even share of the windows is taken
_NUMBER = re.compile(r"\d+(\.\d+)?")


class Past:
    """A history opened to be read. Errors: ConfigError that names the file and the way out."""

    def __init__(self, folder: str | Path) -> None:
        self.file = Path(folder) / FILE
        if not self.file.is_file():
            raise ConfigError(f"{self.file}: no history there; name the daemon's configuration with --config")
        try:
            self._db = sqlite3.connect(f"{self.file.as_uri()}?mode=ro", uri=True, timeout=2.0)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
        except (sqlite3.Error, ValueError) as e:
            raise ConfigError(f"{self.file}: cannot be read as a history: {e}") from None
        if version != schema.VERSION:
            raise ConfigError(f"{self.file}: is of version {version}, this reads {schema.VERSION}")

    def close(self) -> None:
        self._db.close()

    def rows(self, side: str, notes: list[str]) -> list[Row]:
        """Rows of a phase, all times that it was marked, or of a time range ``SINCE..UNTIL``."""
        try:
            times = self._times(side)
            count = sum(self._results(since, until) for since, until in times)
            every = max(1, math.ceil(count / RESULTS_MOST))
            if every > 1:
                notes.append(f"{side}: {count} results; of {every} windows one is used")
            found = [row for since, until in times for row in rows_of(self._db, since, until, every)]
        except sqlite3.Error as e:
            raise ConfigError(f"{self.file}: {e}") from None
        if not found:
            raise ConfigError(f"{side}: no windows in {self.file} at that time")
        return found

    def _results(self, since: float, until: float) -> int:
        query = "SELECT count(*) FROM window w JOIN result r ON r.window = w.id WHERE w.at >= ? AND w.at < ?"
        return int(self._db.execute(query, (since, until)).fetchone()[0])

    def _times(self, side: str) -> list[tuple[float, float]]:
        if ".." in side:
            return [time_range(side)]
        marks = list(self._db.execute("SELECT at, name FROM phase ORDER BY at, id"))
        found = list(_spans(marks, side))
        if not found:
            known = ", ".join(dict.fromkeys(name for _, name in marks)) or "none; see amdgpu-exporter mark"
            raise ConfigError(f"{side}: no such folder, phase or time range; marked phases: {known}")
        return found


def _spans(marks: list[tuple[float, str]], phase: str) -> Iterator[tuple[float, float]]:
    for index, (at, name) in enumerate(marks):
        if name == phase:
            yield at, marks[index + 1][0] if index + 1 < len(marks) else math.inf


def time_range(text: str) -> tuple[float, float]:
    """``SINCE..UNTIL`` as seconds since 1970; ISO 8601 without a zone is UTC. Errors: ConfigError."""
    since, _, until = text.partition("..")
    found = _time(since), _time(until)
    if found[0] is None or found[1] is None or found[0] >= found[1]:
        raise ConfigError(
            f"{text}: expected SINCE..UNTIL, such as 2026-05-01T10:00..2026-05-01T12:00 or two UNIX times"
        )
    return found[0], found[1]


def _time(text: str) -> float | None:
    if _NUMBER.fullmatch(text):
        return float(text)
    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return None
