"""What sampling keeps over a restart, in one small file of the state folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from exporter.logs import event

log = logging.getLogger(__name__)

_MOST = 4 << 20


class FileKeeper:
    """A Keeper on disk. What cannot be read or written is said once, and kept in memory alone."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._kept: dict[str, Any] | None = None
        self._said = False
        self._lock = asyncio.Lock()

    async def state(self, key: str) -> Any:
        async with self._lock:
            if self._kept is None:
                self._kept = await asyncio.to_thread(self._load)
            return self._kept.get(key)

    async def set_state(self, key: str, value: Any) -> None:
        async with self._lock:
            if self._kept is None:
                self._kept = await asyncio.to_thread(self._load)
            self._kept[key] = value
            await asyncio.to_thread(self._store, json.dumps(self._kept))

    def _load(self) -> dict[str, Any]:
        try:
            with self._file.open("rb") as file:
                kept = json.loads(file.read(_MOST))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as e:
            self._complain(e)
            return {}
        return kept if isinstance(kept, dict) else {}

    def _store(self, text: str) -> None:
        """Replace the file whole, so that a crash leaves the old one or the new one."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fd, name = tempfile.mkstemp(dir=self._file.parent, prefix=f".{self._file.name}.")
            try:
                with os.fdopen(fd, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, self._file)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as e:
            self._complain(e)

    def _complain(self, error: Exception) -> None:
        if not self._said:
            self._said = True
            event(log, logging.WARNING, "sampling forgets at a restart", file=self._file, detail=error)
