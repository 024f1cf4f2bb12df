"""A capture folder as the roots of the sysfs backend: the same files, some of which change with time.

Computes no value. A capture is ``capture.json``, the tree ``sys/`` (and ``proc/``), and ``frames/``: beside a
file of the tree, a file of equal-length records that take turns.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.host import READ_LIMIT, Clock, Root
from exporter.model import ConfigError

VERSION = 1
_MAKE_ONE = "make one with: amdgpu-exporter record DIR"


@dataclass(frozen=True, slots=True)
class Capture:
    """What ``capture.json`` says."""

    name: str
    description: str
    synthetic: bool
    count: int  # records in every frames file
    seconds: float  # how long each lasts
    windows: tuple[Any, ...]


def demo_path() -> Path:
    """The capture that comes with the package."""
    return Path(__file__).resolve().parent.parent / "demo" / "mi300x-8x"


def describe(path: Path) -> Capture:
    """Read ``capture.json``; ConfigError names the file, the key and the way out."""
    file = path / "capture.json"
    try:
        with open(file, encoding="utf-8") as f:
            data = json.load(f)
    except OSError as e:
        raise ConfigError(f"{file}: {e.strerror}; {_MAKE_ONE}") from e
    except ValueError as e:
        raise ConfigError(f"{file}: not JSON: {e}") from e
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: must hold one object; {_MAKE_ONE}")
    if data.get("version") != VERSION:
        raise ConfigError(f"{file}: version is {data.get('version')!r}, this program reads {VERSION}")
    frames = data.get("frames", {"count": 1, "seconds": 1})
    try:
        count, seconds = int(frames["count"]), float(frames["seconds"])
    except (TypeError, KeyError, ValueError) as e:
        raise ConfigError(f'{file}: frames must be {{"count": N, "seconds": S}}') from e
    if count < 1 or not 0 < seconds < 1e9:
        raise ConfigError(f"{file}: frames: count must be 1 or more and seconds above 0")
    windows = data.get("windows", [])
    return Capture(
        name=str(data.get("name") or path.name),
        description=str(data.get("description", "")),
        synthetic=data.get("synthetic") is True,
        count=count,
        seconds=seconds,
        windows=tuple(windows) if isinstance(windows, list) else (),
    )


class ReplayRoot(Root):
    """A captured tree whose framed files show the record of the moment.

    A frames file without its base file does not exist: deleting one file of the tree removes its readings.
    """

    def __init__(self, tree: Path, frames: Path, capture: Capture, clock: Clock) -> None:
        super().__init__(str(tree))
        self._clock, self._capture = clock, capture
        self._start = clock.monotonic()
        self._records = {str(f.relative_to(frames)): f for f in _files(frames)}
        self._lengths = {rel: _record_length(file, capture.count) for rel, file in self._records.items()}

    def read(self, rel: str, limit: int = READ_LIMIT) -> bytes:
        still = super().read(rel, limit)
        file = self._records.get(rel)
        if file is None:
            return still
        length = self._lengths[rel]
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, min(length, limit), self._index() * length)
        finally:
            os.close(fd)

    def _index(self) -> int:
        elapsed = self._clock.monotonic() - self._start
        return int(elapsed / self._capture.seconds) % self._capture.count


def open_capture(path: str | Path, clock: Clock) -> tuple[Root, Root]:
    """The sysfs and procfs roots of a capture; time starts now. ConfigError where it is none."""
    folder = Path(path)
    capture = describe(folder)
    tree = folder / "sys"
    if not tree.is_dir():
        raise ConfigError(f"{tree}: no such folder; {_MAKE_ONE}")
    return ReplayRoot(tree, folder / "frames", capture, clock), Root(str(folder / "proc"))


def _files(folder: Path) -> list[Path]:
    return [f for f in folder.rglob("*") if f.is_file()] if folder.is_dir() else []


def _record_length(file: Path, count: int) -> int:
    size = file.stat().st_size
    if size % count:
        raise ConfigError(
            f"{file}: {size} bytes are not {count} records of one length; record the capture again or delete "
            "this file"
        )
    return size // count
