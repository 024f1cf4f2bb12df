"""Opens a rocpd database that nobody vouches for: read-only, no views, no extensions, bounded work."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from exporter.formats.rocpd import MAJOR, Rocpd, plan
from exporter.formats.trace import Decoded, Names
from exporter.model import FormatError

_BATCH = 4096
_TABLES_MOST = 20_000
_VALUE_MOST = 16 << 20
_GRIDS_MOST = 10_000
_STEPS = 100_000  # of SQLite's machine between two looks at the budget
_STEPS_LEAST, _STEPS_PER_BYTE = 50_000_000, 20
_PRAGMAS = ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "temp_store=MEMORY", "mmap_size=0")
_PLAIN = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)


def read(path: Path, names: Names, notes: list[str]) -> Decoded:
    """Decode one database. Never raises for what is in it: the reason goes to ``notes``.

    Errors: OSError when the file cannot be looked at.
    """
    writing = [j for j in (Path(f"{path}-wal"), Path(f"{path}-journal")) if _holds_data(j)]
    if writing:
        why = (
            f"is still being written, or its writer was killed: {writing[0].name} beside it holds data; "
            "let the profiled program end first"
        )
        return _refused(path, why, notes)
    rocpd = Rocpd(names)
    try:
        with closing(_opened(path)) as database:
            _read(database, rocpd)
    except FormatError as e:
        return _refused(path, str(e), notes)
    except (sqlite3.Error, UnicodeDecodeError) as e:  # the text of an error may quote what the damage left
        return _broken(path, rocpd, e, notes)
    if _is_cut(path):
        # SQLite reads such a file to the end if no page that it needs is among those missing.
        return _broken(path, rocpd, "it is shorter than its own page count says", notes)
    rocpd.finish()
    _remarks(path, rocpd, notes)
    return rocpd.decoded


def grids(path: Path) -> Counter[str]:
    """How many dispatches had which grid size; none where the database does not say, or is no good."""
    found: Counter[str] = Counter()
    axes = [f"grid_size_{axis}" for axis in "xyz"]
    try:
        with closing(_opened(path)) as database:
            for name, columns in _tables(database).items():
                if name.startswith("rocpd_kernel_dispatch") and set(axes) <= set(columns):
                    chosen = ", ".join(axes)
                    query = f'SELECT {chosen}, count(*) FROM "{name}" GROUP BY {chosen} LIMIT {_GRIDS_MOST}'  # noqa: S608
                    for x, y, z, count in database.execute(query):
                        found[f"{x}x{y}x{z}"] += count
    except (sqlite3.Error, UnicodeDecodeError, OSError):
        return Counter()  # what is wrong with it is said where its rows are read
    return found


def _opened(path: Path) -> sqlite3.Connection:
    size = path.stat().st_size
    # immutable: no lock is taken and no journal looked for, so a window on a read-only mount can be read
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_MOST)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    left = (_STEPS_LEAST + _STEPS_PER_BYTE * size) // _STEPS

    def overdrawn() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    database.set_progress_handler(overdrawn, _STEPS)
    database.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for pragma in _PRAGMAS:
        database.execute(f"PRAGMA {pragma}")
    return database


def _read(database: sqlite3.Connection, rocpd: Rocpd) -> None:
    for query in plan(_tables(database)):
        rows = database.execute(query.sql)
        while batch := rows.fetchmany(_BATCH):
            rocpd.take(query.kind, batch)


def _tables(database: sqlite3.Connection) -> Mapping[str, list[str]]:
    """Ordinary tables and their stored columns; what is computed on reading is no data."""
    rows = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    found = rows.fetchmany(_TABLES_MOST)
    names = [name for name, sql in found if isinstance(sql, str) and _PLAIN.match(sql) and '"' not in name]
    return {
        name: [row[1] for row in database.execute(f'PRAGMA table_info("{name}")')]
        for name in names
        if name.startswith("rocpd_")
    }


def _holds_data(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _is_cut(path: Path) -> bool:
    """Whether pages are missing, by the header's count where that is said to be valid."""
    with path.open("rb") as file:
        header = file.read(100)
    size, changed, valid_for = path.stat().st_size, header[24:28], header[92:96]
    page = int.from_bytes(header[16:18], "big")
    page = 1 << 16 if page == 1 else page
    if size % max(page, 1):
        return True
    return changed == valid_for and size < page * int.from_bytes(header[28:32], "big")


def _refused(path: Path, why: str, notes: list[str]) -> Decoded:
    notes.append(f"{path}: {why}")
    return Decoded(note=why)


def _broken(path: Path, rocpd: Rocpd, error: Exception | str, notes: list[str]) -> Decoded:
    text = "".join(ch if ch.isprintable() else "\ufffd" for ch in str(error))[:200]
    if "interrupted" in text:
        why = "takes more work to read than a database of its size should"
    elif "locked" in text or "busy" in text:
        why = "is locked by another process; let the profiled program end first"
    else:
        why = f"is a cut or damaged SQLite database (rocpd): {text}"
    rocpd.finish(cut=True)
    if not rocpd.decoded.rows:
        return _refused(path, why, notes)
    notes.append(f"{path}: {why}; what could be read is used")
    return rocpd.decoded


def _remarks(path: Path, rocpd: Rocpd, notes: list[str]) -> None:
    if rocpd.version is not None and rocpd.version.split(".")[0] != MAJOR:
        notes.append(f"{path}: schema version {rocpd.version[:20]!r} is not {MAJOR}; read as far as it fits")
    if rocpd.hidden:
        notes.append(
            f"{path}: {rocpd.hidden} dispatches refer to missing rows; the file's own view hides them"
        )
