"""Where records of probes are kept: one file each in the state folder, the newest of each probe standing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from pathlib import Path

from exporter.model import FormatError
from exporter.probes.record import KINDS, Record, from_json

FOLDER = "probes"
KEPT = 20
_SIZE_MOST = 4 << 20
_NAME = re.compile(r"(bandwidth|gemm|launch)-(\d{13})\.json")


class Shelf:
    """The records below one state folder. Nothing is read twice while its file stays."""

    def __init__(self, state: Path) -> None:
        self.folder = state / FOLDER
        self._read: dict[str, tuple[tuple[int, int, int], Record | str]] = {}

    def put(self, record: Record) -> Path:
        """Keep one record, whole or not at all, and let the oldest of its kind go. Errors: OSError."""
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = self.folder / f"{record.probe}-{int(record.at * 1000):013d}.json"
        fd, name = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as f:
                json.dump(record.as_json(), f, allow_nan=False)
                f.flush()
                os.fsync(f.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        for old in self._names(record.probe)[KEPT:]:
            with contextlib.suppress(OSError):
                (self.folder / old).unlink()
        return path

    def latest(self) -> tuple[list[Record], list[str]]:
        """The newest record of each probe, and in words what cannot be read. No errors."""
        records, problems = [], []
        for kind in KINDS:
            names = self._names(kind)
            if not names:
                continue
            found = self._load(names[0])
            if isinstance(found, Record):
                records.append(found)
            else:
                problems.append(f"{self.folder / names[0]}: {found}; run the probe again")
        return records, problems

    def _names(self, kind: str) -> list[str]:
        """The files of one probe, the newest first."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        return sorted((n for n in names if (m := _NAME.fullmatch(n)) and m[1] == kind), reverse=True)

    def _load(self, name: str) -> Record | str:
        path = self.folder / name
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as f:
                info = os.fstat(f.fileno())
                stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
                known = self._read.get(name)
                if known and known[0] == stamp:
                    return known[1]
                found = _parsed(f.read(_SIZE_MOST + 1))
        except OSError as e:
            return e.strerror or str(e)
        self._read = {n: v for n, v in self._read.items() if n.partition("-")[0] != name.partition("-")[0]}
        self._read[name] = (stamp, found)
        return found


def _parsed(blob: bytes) -> Record | str:
    if len(blob) > _SIZE_MOST:
        return f"larger than {_SIZE_MOST} bytes"
    try:
        return from_json(json.loads(blob))
    except (ValueError, RecursionError, FormatError) as e:
        return f"not understood ({' '.join(str(e).split())[:120]})"
