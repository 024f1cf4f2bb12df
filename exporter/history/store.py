"""The history's file: windows, totals, phases in SQLite. Blocks; lives in a child process of its own.

Every change is one transaction in write-ahead mode, so that being killed loses nothing that was answered.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.compare.rows import Row
from exporter.history import schema
from exporter.history.amounts import metrics
from exporter.model import DeviceId, Reason, SourceError, Window, WindowResult

FILE = "history.db"
_BUSY_S = 2.0
_CHUNK = 5000
_ROOM = 0.9  # of the cap, down to which the oldest windows make way
_ASIDE_MAX = 3
_CHECKED = 64 << 20


class Store:
    """One open file. ``at`` in wall-clock seconds everywhere.

    Errors: SourceError that names the file and says what is wrong with it.
    """

    def __init__(self, folder: str | Path, max_bytes: int, max_age_s: float) -> None:
        self.path = Path(folder) / FILE
        self.notes: list[str] = []
        self._max_bytes, self._max_age_s = max_bytes, max_age_s
        self._texts: dict[str, int] = {}
        self._db = self._opened()

    def close(self) -> None:
        self._db.close()

    def state(self) -> dict[str, Any]:
        """All that is kept by key."""
        found = {}
        for key, text in self._db.execute("SELECT key, value FROM state"):
            with contextlib.suppress(ValueError):
                found[key] = json.loads(text)
        return found

    def set_state(self, values: Mapping[str, Any]) -> None:
        with self._changing():
            self._put(values)

    def has(self, origin: str) -> bool:
        """Whether the window that came from there was taken in already."""
        return self._db.execute("SELECT 1 FROM window WHERE origin = ?", (origin,)).fetchone() is not None

    def append(
        self,
        window: Window,
        results: Sequence[WindowResult],
        outcome: str,
        at: float,
        origin: str | None = None,
        contexts: Mapping[str, Mapping[str, Any]] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep one window, and with it whatever ``state`` it changed: both or neither.

        ``contexts`` holds what was known of each GPU then, by the name the result has.
        """
        with self._changing():
            number = self._number
            row = (
                at,
                origin,
                number(window.id),
                number(window.tool),
                number(window.mode),
                None if window.run is None else number(window.run),
                window.first,
                number(outcome),
            )
            columns = "at, origin, name, tool, mode, run, first, outcome"
            made = self._db.execute(f"INSERT INTO window ({columns}) VALUES (?,?,?,?,?,?,?,?)", row)  # noqa: S608
            for result in results:
                kept, _ = schema.heaviest(result.kernel_stats)
                body = schema.pack(result, {k.kernel: number(k.kernel) for k in kept})
                about = {**(contexts or {}).get(result.gpu, {})}
                if window.pytorch:
                    about["pytorch"] = window.pytorch
                if window.grid_mix:
                    about["grid_mix"] = dict(window.grid_mix)
                context = json.dumps(about, sort_keys=True)
                gpu = number(_gpu_text(result))
                self._db.execute(
                    "INSERT OR REPLACE INTO result VALUES (?,?,?,?)",
                    (made.lastrowid, gpu, number(context), body),
                )
            self._put(state or {})

    def mark(self, phase: str, at: float) -> None:
        with self._changing():
            self._db.execute("INSERT INTO phase (at, name) VALUES (?,?)", (at, phase))

    def phases(self) -> list[tuple[float, str]]:
        """When each phase began, oldest first."""
        return list(self._db.execute("SELECT at, name FROM phase ORDER BY at, id"))

    def rows(self, since: float, until: float) -> Iterator[Row]:
        """What windows between two times say, GPU by GPU and kernel by kernel, oldest first."""
        yield from rows_of(self._db, since, until)

    def counts(self) -> dict[str, int]:
        """Windows kept and bytes on disk."""
        windows = self._db.execute("SELECT count(*) FROM window").fetchone()[0]
        return {"windows": windows, "bytes": self._bytes()}

    def trim(self, now: float) -> int:
        """Let the oldest windows go, by age and by size; returns how many."""
        gone = self._forget("at < ?", now - self._max_age_s)
        while self._bytes() > self._max_bytes:
            cut = self._db.execute("SELECT at FROM window ORDER BY at LIMIT 1 OFFSET ?", (_CHUNK,)).fetchone()
            now_gone = self._forget("at < ?", cut[0] if cut else float("inf"))
            gone += now_gone
            if not now_gone or self._bytes() <= _ROOM * self._max_bytes:
                break
        return gone

    # --- inside -----------------------------------------------------------------------------------------

    def _forget(self, where: str, value: float) -> int:
        with self._changing():
            self._db.execute(
                f"DELETE FROM result WHERE window IN (SELECT id FROM window WHERE {where})",  # noqa: S608
                (value,),
            )
            gone = self._db.execute(f"DELETE FROM window WHERE {where}", (value,)).rowcount  # noqa: S608
        if gone:
            self._db.execute("PRAGMA incremental_vacuum").fetchall()
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return gone

    def _bytes(self) -> int:
        total = 0
        for suffix in ("", "-wal"):
            with contextlib.suppress(OSError):
                total += os.stat(f"{self.path}{suffix}").st_size
        return total

    def _number(self, text: str) -> int:
        known = self._texts.get(text)
        if known is None:
            self._db.execute("INSERT OR IGNORE INTO text (value) VALUES (?)", (text,))
            known = int(self._db.execute("SELECT id FROM text WHERE value = ?", (text,)).fetchone()[0])
            if len(self._texts) > 100_000:
                self._texts.clear()
            self._texts[text] = known
        return known

    def _put(self, values: Mapping[str, Any]) -> None:
        rows = [(key, json.dumps(value, allow_nan=False)) for key, value in values.items()]
        self._db.executemany("INSERT OR REPLACE INTO state VALUES (?,?)", rows)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as e:
            self._texts.clear()  # numbers given in what was taken back are not given
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            if "malformed" in str(e):
                self._begin_anew(e)
            raise SourceError(_reason(e), f"{self.path}: {_words(e)}") from None

    def _opened(self) -> sqlite3.Connection:
        """The file, whole and of our version; one that is not is set aside, and a new one begun."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._connect()
        except sqlite3.DatabaseError as e:
            if isinstance(e, sqlite3.OperationalError):
                raise SourceError(_reason(e), f"{self.path}: {_words(e)}") from None
            return self._begin_anew(e)

    def _begin_anew(self, error: sqlite3.Error) -> sqlite3.Connection:
        with contextlib.suppress(AttributeError):  # at the start there is none to close
            self._db.close()
        aside = self._set_aside()
        self.notes.append(f"{self.path}: {_words(error)}; kept as {aside.name}, and a new one is begun")
        self._db = self._connect()
        return self._db

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        try:
            # Before the first table: it cannot be changed later.
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL").fetchall()
            db.execute("PRAGMA synchronous = FULL")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if (tables and version != schema.VERSION) or version > schema.VERSION:
                raise sqlite3.DatabaseError(f"is of version {version}, not {schema.VERSION}")
            # Of a large file this takes long, and its damage shows when it is used.
            small = self._bytes() <= _CHECKED
            if small and db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("is damaged")
            db.executescript(f"BEGIN; {schema.TABLES} PRAGMA user_version = {schema.VERSION}; COMMIT;")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _set_aside(self) -> Path:
        for n in range(1, _ASIDE_MAX + 1):
            aside = self.path.with_name(f"{FILE}.set-aside-{n}")
            if not aside.exists() or n == _ASIDE_MAX:
                break
        os.replace(self.path, aside)
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.path}{suffix}")
        return aside


def rows_of(db: sqlite3.Connection, since: float, until: float, every: int = 1) -> Iterator[Row]:
    """What windows between two times say, oldest first; of many, one in ``every``.

    Which one is scattered: windows take turns over GPUs, so that each second one may be of the same half.
    """
    texts = dict(db.execute("SELECT id, value FROM text"))
    contexts: dict[int, Any] = {}
    query = (
        "SELECT w.at, w.name, w.tool, w.mode, w.run, w.first, r.gpu, r.context, r.body FROM window w "
        "JOIN result r ON r.window = w.id WHERE w.at >= ? AND w.at < ? "
        "AND (w.id * 2654435761 / 65536) % ? = 0 ORDER BY w.at, w.id"
    )
    for at, name, tool, mode, run, first, gpu, context, body in db.execute(query, (since, until, every)):
        try:
            found = schema.unpack(body)
        except struct.error:
            continue  # written by another version
        if context not in contexts:
            contexts[context] = json.loads(texts[context])
        yield from _rows(
            found,
            at,
            texts[run] if run is not None else texts[name],
            texts[gpu],
            texts[mode],
            texts[tool],
            bool(first),
            contexts[context],
            texts,
        )


def _gpu_text(result: WindowResult) -> str:
    if result.device is None:
        return result.gpu
    part = result.device.partition
    return result.device.pci if part is None else f"{result.device.pci}/{part}"


def _device(text: str) -> DeviceId | None:
    pci, _, part = text.partition("/")
    if len(pci) != 12 or pci[4] != ":":
        return None
    return DeviceId(pci, int(part) if part else None)


def _rows(
    body: schema.Body,
    at: float,
    run: str,
    gpu: str,
    mode: str,
    tool: str,
    first: bool,
    context: Mapping[str, Any],
    texts: Mapping[int, str],
) -> Iterator[Row]:
    amounts = body.amounts
    span = amounts["span_ns"] if mode != "counters" else amounts["counter_observed_ns"]
    seconds = span / 1e9 if span else None
    kernels, unmatched = amounts["kernels"] or 0, amounts["unmatched_kernels"] or 0
    coverage = (kernels - unmatched) / kernels if kernels and amounts["launches"] else None
    device, workload = _device(gpu), context.get("workload")

    def row(kernel: str | None, metrics: Mapping[str, float]) -> Row:
        return Row(
            at, run, device, gpu, kernel, mode, tool, seconds, metrics, workload, coverage, first, context
        )

    yield row(None, metrics(amounts, planned=body.planned))
    if mode == "counters":
        return  # kernels of a counter pass run one by one: their times are none of the application's
    for kernel in body.kernels:
        if kernel.name and kernel.calls:
            found = {"kernel_seconds": kernel.total_ns / kernel.calls / 1e9}
            if kernel.p50_ns is not None:
                found["kernel_median_seconds"] = kernel.p50_ns / 1e9
            if span:
                found["kernel_share_ratio"] = kernel.total_ns / span
            yield row(texts[kernel.name], found)


def _reason(error: sqlite3.Error) -> Reason:
    text = str(error)
    if "locked" in text:
        return Reason.BUSY
    return Reason.DENIED if "readonly" in text or "unable to open" in text else Reason.MALFORMED


def _words(error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text:
        return "another daemon writes into it; give each its own state_dir"
    if "readonly" in text or "unable to open" in text:
        return "cannot be written; set state_dir to a folder that can"
    if "full" in text:
        return "no room left on the disk"
    return text
