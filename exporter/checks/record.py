"""Make a capture of this machine: what the sysfs backend reads, identifiers masked.

Runs the real backend over a root that remembers, so that a capture holds what a poll needs and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from exporter.backends.sysfs import SysfsBackend
from exporter.host import READ_LIMIT, Clock, Root, reason_of
from exporter.model import ConfigError

_SECRET_FILES = frozenset({"unique_id", "serial_number"})
_PROGRAM = re.compile(rb"\(.*\)", re.DOTALL)
_UID_LINE = re.compile(rb"^Uid:.*$", re.MULTILINE)
_SECRET_LINE = re.compile(rb"^(unique_id|hive_id) (\d+)$", re.MULTILINE)


class RecordingRoot(Root):
    """A root that remembers what was read, and which links led there."""

    def __init__(self, inner: Root) -> None:
        super().__init__(inner.path)
        self._inner = inner
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.folders: set[str] = set()
        self.unreadable: dict[str, str] = {}

    def read(self, rel: str, limit: int = READ_LIMIT) -> bytes:
        try:
            data = self._inner.read(rel, limit)
        except OSError as e:
            if os.path.lexists(self._at(rel)):
                self.unreadable[rel] = str(reason_of(e))
            raise
        self.files[rel] = data
        return data

    def listdir(self, rel: str) -> list[str]:
        names = self._inner.listdir(rel)
        for name in names:
            full = self._at(f"{rel}/{name}")
            if os.path.isdir(full) and not os.path.islink(full):
                self.folders.add(f"{rel}/{name}")
        return names

    def names(self, rel: str) -> list[str]:
        names = self._inner.names(rel)
        self.folders.add(rel)
        return names

    def _link(self, rel: str) -> str | None:
        target = super()._link(rel)
        if target is not None:
            self.links[rel] = target
        return target


class _Every(Clock):
    """A clock that lets every poll read the slow files too."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 1e6
        return self._now


def record(
    sysfs: Root,
    procfs: Root,
    dest: Path,
    frames: int = 1,
    every: float = 5.0,
    *,
    sleep: Callable[[float], None] = time.sleep,
    mask: Mask | None = None,
) -> None:
    """Write a capture of ``frames`` polls into ``dest``, a new or empty folder.

    Unique ids, hive ids and serial numbers become made-up ones, the same wherever the real one stood.
    Errors: ConfigError where ``dest`` cannot be used or no AMD GPU is seen; nothing is written then.
    """
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise ConfigError(f"{dest}: not an empty folder; name a new one")
    root, processes = RecordingRoot(sysfs), RecordingRoot(procfs)
    backend = SysfsBackend(root, processes, show_integrated=True, serials=True, clock=_Every())
    polls: list[Mapping[str, bytes]] = []
    for n in range(max(frames, 1)):
        if n:
            sleep(every)
        root.files = {}
        if not backend.poll() and not n:
            raise ConfigError(f"{sysfs.path}: no AMD GPU here, so nothing to record; is --path.sysfs right?")
        polls.append(root.files)
    try:
        _write(dest, root, _masked(polls, mask or Mask()), every)
        _write_processes(dest / "proc", processes.files)
    except OSError as e:
        raise ConfigError(f"{e.filename or dest}: {e.strerror}; name a folder that can be written") from e


def _masked(polls: list[Mapping[str, bytes]], mask: Mask) -> list[dict[str, bytes]]:
    return [{rel: mask.file(rel, data) for rel, data in poll.items()} for poll in polls]


class Mask:
    """Made-up identifiers: equal where the real ones were equal, not to be led back to them."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)

    def file(self, rel: str, data: bytes) -> bytes:
        name = posixpath.basename(rel)
        if name == "unique_id":
            return self._hexadecimal(data)
        if name in _SECRET_FILES:
            return b"MASKED\n" if data.strip() else data
        if name == "properties":
            return _SECRET_LINE.sub(
                lambda m: m[1] + b" %d" % self.number(int(m[2])),
                data,
            )
        return data

    def _hexadecimal(self, data: bytes) -> bytes:
        try:
            # KFD writes the same number in decimal, so the number is masked, not its text.
            return b"%016x\n" % self.number(int(data, 16))
        except ValueError:
            return b"" if not data.strip() else b"MASKED\n"

    def number(self, real: int) -> int:
        if not real:
            return 0
        digest = hashlib.blake2b(real.to_bytes(16, "big"), key=self._salt, digest_size=8).digest()
        return int.from_bytes(digest, "big") or 1


def _write(dest: Path, root: RecordingRoot, polls: list[dict[str, bytes]], every: float) -> None:
    dest.mkdir(parents=True, exist_ok=True)
    tree = dest / "sys"
    for rel, target in root.links.items():
        link = tree / rel
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(_relative(rel, target, root.path))
    for rel in root.folders:
        (tree / rel).mkdir(parents=True, exist_ok=True)
    first: dict[str, bytes] = {}
    for poll in polls:
        for rel, data in poll.items():
            first.setdefault(rel, data)
    for rel, data in first.items():
        _put(tree / rel, data)
        if len(polls) > 1:
            records = _records(rel, data, polls)
            if records is not None:
                _put(dest / "frames" / rel, records)
    _put(
        dest / "capture.json",
        json.dumps(
            {
                "version": 1,
                "name": dest.name,
                "description": "",
                "synthetic": False,
                "frames": {"count": len(polls), "seconds": every},
                "windows": [],
                "unreadable": dict(sorted(root.unreadable.items())),
            },
            indent=1,
        ).encode()
        + b"\n",
    )


def _write_processes(dest: Path, files: Mapping[str, bytes]) -> None:
    """Who was alive and whose they were; names and all else of a process stay out."""
    for rel, data in files.items():
        name = posixpath.basename(rel)
        if name == "stat":
            _put(dest / rel, _PROGRAM.sub(b"(masked)", data))
        elif name == "status" and (found := _UID_LINE.search(data)):
            _put(dest / rel, found[0] + b"\n")
        elif rel == "2/comm":
            _put(dest / rel, data)


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _relative(rel: str, target: str, root: str) -> str:
    """Links stay inside the capture: an absolute one is made relative to the tree."""
    if not target.startswith("/"):
        return target
    inside = target.removeprefix(root).lstrip("/")
    return posixpath.relpath(inside, posixpath.dirname(rel))


def _records(rel: str, first: bytes, polls: list[dict[str, bytes]]) -> bytes | None:
    """Equal-length records of a file that changed; None for one that did not, or whose size varies oddly."""
    taken: list[bytes] = []
    last = first
    for poll in polls:
        last = poll.get(rel, last)
        taken.append(last)
    if all(data == taken[0] for data in taken):
        return None
    length = max(len(data) for data in taken)
    if posixpath.basename(rel) == "gpu_metrics":
        return b"".join(taken) if all(len(data) == length for data in taken) else None
    return b"".join(data.ljust(length, b"\n") for data in taken)
