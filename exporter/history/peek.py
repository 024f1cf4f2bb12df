"""What a daemon keeps, read by somebody beside it: never waits for it, never writes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from exporter.history.store import FILE


def state(folder: Path, key: str) -> Any:
    """The value kept under a key; None where there is none, or it may not be read."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        database = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=1.0)
        try:
            found = database.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        finally:
            database.close()
        return json.loads(found[0]) if found else None
    except (sqlite3.Error, ValueError):
        return None
