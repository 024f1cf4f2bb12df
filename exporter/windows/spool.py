"""Where finished windows arrive: the spool folder that jobs write into, and a replayed capture's schedule.

Both have the same face: ``complete()`` names windows to take in, ``done(path)`` ends one. Whoever writes into
the spool is not trusted: links are never followed, and nothing outside the spool is ever touched.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.host import Clock
from exporter.model import ConfigError
from exporter.windows import quota
from exporter.windows.quota import Share

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
QUARANTINE = ".quarantine"
_BATCH = 64
_SETTLED_S = 10.0
_QUARANTINE_MAX = 20
_ENTRIES_MAX = 2_000
_DEPTH_MAX = 4
_BYTES_MAX = 2 << 30
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Look:
    """What a walk through a window saw."""

    newest: float
    entries: int = 0
    size: int = 0
    manifest: bool = False
    fault: str | None = None


class Spool:
    """``PATH/<uid>/<window>/``, or ``PATH/<window>/`` for a folder dropped in by hand.

    A window is complete when its name neither starts with ``.`` nor ends with ``.partial`` and it holds a
    manifest, or when nothing in it changed for ten seconds. ``share`` is what one user may leave here.
    """

    def __init__(self, path: Path, clock: Clock | None = None, share: Share | None = None) -> None:
        self.path = path.absolute()
        self.share = share or Share()
        self.dropped = 0
        self._clock = clock or Clock()
        self._stuck: set[Path] = set()

    def complete(self) -> list[Path]:
        """Windows that can be taken in, oldest first, a bounded number; unfit ones go to quarantine."""
        found: list[tuple[float, Path]] = []
        for folder, owners in self._folders():
            if folder in self._stuck:
                continue
            try:
                look = _walk(folder, owners)
            except OSError as e:
                self._leave(folder, e)
                continue
            if look.fault:
                self.quarantine(folder, look.fault)
            elif look.manifest or look.newest + _SETTLED_S <= self._clock.now():
                found.append((look.newest, folder))
        return [folder for _, folder in sorted(_fair(found)[:_BATCH])]

    def done(self, path: Path) -> None:
        """Remove a window. Raises ValueError for a path that is no window of this spool."""
        parent, name = self._inside(path)
        try:
            # Relative to the open folder and without following links, whatever the writer swaps meanwhile.
            with self._open(parent) as fd, contextlib.suppress(FileNotFoundError):
                shutil.rmtree(name, dir_fd=fd)
        except OSError as e:
            self._leave(path, e)

    def quarantine(self, path: Path, reason: str) -> None:
        """Move a window aside with a line that says why; the oldest beyond a fixed number are removed."""
        parent, name = self._inside(path)
        prefix = f"{parent[0]}-" if parent else ""
        shelf = self.path / QUARANTINE
        shelf.mkdir(mode=0o700, exist_ok=True)
        aside = f"{prefix}{name}"
        for n in range(1, _QUARANTINE_MAX + 2):
            if not os.path.lexists(shelf / aside):
                break
            aside = f"{prefix}{name}.{n}"
        try:
            with self._open(parent) as source, self._open((QUARANTINE,)) as target:
                os.rename(name, aside, src_dir_fd=source, dst_dir_fd=target)
        except FileNotFoundError:
            return
        except OSError as e:
            self._leave(path, e)
            return
        line = " ".join(reason.split())
        (shelf / f"{aside}.reason").write_text(f"{line}\n", encoding="utf-8", errors="replace")
        log.warning("window %s set aside in %s: %s", path, shelf, line)
        self._trim(shelf)

    def _folders(self) -> Iterator[tuple[Path, frozenset[int] | None]]:
        """Candidate windows, and who may own them (None: anyone)."""
        for entry in _entries(self.path):
            folder = entry.is_dir(follow_symlinks=False)
            if not entry.name.isdecimal():
                if folder and _finished(entry.name):
                    yield Path(entry.path), None
                continue
            owners = frozenset((int(entry.name), 0, os.geteuid()))
            if not folder or entry.stat(follow_symlinks=False).st_uid not in owners:
                # The rightful user could neither write into it nor remove it.
                self.quarantine(Path(entry.path), f"uid {entry.name} is another user than who made this")
                continue
            self._trim_user(Path(entry.path))
            for inner in _entries(Path(entry.path)):
                if inner.is_dir(follow_symlinks=False) and _finished(inner.name):
                    yield Path(inner.path), owners

    def _trim_user(self, folder: Path) -> None:
        """Remove what is too much of one user; the newest goes, so that what waits longest is taken in."""
        try:
            excess = list(quota.over(folder, self.share, self._clock.now()))
            with self._open((folder.name,)) as fd:
                for name, reason in excess:
                    quota.remove(fd, name)
                    self.dropped += 1
                    log.warning("window %s of the spool is removed: %s", folder / name, reason)
        except OSError as e:
            if folder not in self._stuck:
                self._leave(folder, e)

    def _inside(self, path: Path) -> tuple[tuple[str, ...], str]:
        """The folders between the spool and a window, and the window's name."""
        try:
            *parent, name = path.absolute().relative_to(self.path).parts
        except ValueError:
            raise ValueError(f"{path} is not below the spool {self.path}") from None
        if len(parent) > 1 or (parent and not parent[0].isdecimal()) or ".." in (*parent, name):
            raise ValueError(f"{path} is no window of the spool {self.path}")
        return tuple(parent), name

    @contextlib.contextmanager
    def _open(self, parts: tuple[str, ...]) -> Iterator[int]:
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                inner = os.open(part, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _trim(self, shelf: Path) -> None:
        folders = sorted(
            (e for e in _entries(shelf) if e.is_dir(follow_symlinks=False)),
            key=lambda e: (e.stat(follow_symlinks=False).st_ctime_ns, e.name),
        )
        for entry in folders[: max(0, len(folders) - _QUARANTINE_MAX)]:
            with self._open((QUARANTINE,)) as fd, contextlib.suppress(OSError):
                shutil.rmtree(entry.name, dir_fd=fd)
                os.unlink(f"{entry.name}.reason", dir_fd=fd)

    def _leave(self, path: Path, error: OSError) -> None:
        """Leave a window alone from now on: taking it in again and again would count it each time."""
        self._stuck.add(path)
        log.warning("spool: %s stays where it is and is not read again: %s", path, error.strerror)


def _fair(found: list[tuple[float, Path]]) -> list[tuple[float, Path]]:
    """Each writer's oldest first, then each one's second: who writes most does not keep others waiting."""
    ranks: dict[Path, int] = {}
    ordered = []
    for age, folder in sorted(found):
        ranks[folder.parent] = ranks.get(folder.parent, 0) + 1
        ordered.append((ranks[folder.parent], age, folder))
    return [(age, folder) for _, age, folder in sorted(ordered)]


def _finished(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(".partial")


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda e: e.name)
    except OSError:
        return []


def _walk(folder: Path, owners: frozenset[int] | None) -> _Look:
    """Look through a window without opening a file; stops at the first fault."""
    top = folder.lstat()
    look = _Look(top.st_mtime)
    if owners is not None and top.st_uid not in owners:
        look.fault = f"owned by uid {top.st_uid}, in the folder of uid {folder.parent.name}"
        return look
    todo = [(folder, 1)]
    while todo:
        at, depth = todo.pop()
        with os.scandir(at) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                name = os.path.relpath(entry.path, folder)
                look.entries += 1
                look.newest = max(look.newest, info.st_mtime)
                if stat.S_ISDIR(info.st_mode) and depth < _DEPTH_MAX:
                    todo.append((Path(entry.path), depth + 1))
                elif not stat.S_ISREG(info.st_mode):
                    look.fault = f"{name} is no plain file, or lies too deep"
                else:
                    look.size += info.st_size
                    look.manifest |= name == MANIFEST
                if look.entries > _ENTRIES_MAX or look.size > _BYTES_MAX:
                    look.fault = f"holds more than {_ENTRIES_MAX} entries or {_BYTES_MAX >> 20} MiB"
                if look.fault:
                    return look
    return look


class ReplaySchedule:
    """Hands out a capture's windows as they fall due, round after round; removes nothing.

    Errors: ConfigError where ``capture.json`` cannot be used.
    """

    def __init__(self, capture: Path, clock: Clock) -> None:
        self._clock = clock
        self._start = clock.monotonic()
        self._seen_s = -1.0
        self._pending: list[Path] = []
        self._unfit: set[Path] = set()
        self._due, self._loop_s = _schedule(capture)

    def complete(self) -> list[Path]:
        """Windows that fell due and are not done yet; rounds missed altogether are not made up for."""
        now_s = self._clock.monotonic() - self._start
        since_s = max(self._seen_s, now_s - self._loop_s)
        self._seen_s = now_s
        fell_due = sorted(
            (at_s + turn * self._loop_s, folder)
            for at_s, folder in self._due
            for turn in range(int(max(since_s, 0) // self._loop_s), int(now_s // self._loop_s) + 1)
        )
        for at_s, folder in fell_due:
            if since_s < at_s <= now_s and folder not in self._pending and folder.is_dir():
                self._pending.append(folder)
        return list(self._pending)

    def next_due(self) -> float | None:
        """Seconds until the next window falls due; None where the capture has none."""
        if not self._due:
            return None
        now_s = self._clock.monotonic() - self._start
        return min((at_s - now_s) % self._loop_s or self._loop_s for at_s, _ in self._due)

    def done(self, path: Path) -> None:
        with contextlib.suppress(ValueError):
            self._pending.remove(path)

    def quarantine(self, path: Path, reason: str) -> None:
        """Say once that the window is unfit; the capture stays as it is."""
        if path not in self._unfit:
            self._unfit.add(path)
            log.warning("window %s of the capture cannot be used: %s", path, reason)
        self.done(path)


def _schedule(capture: Path) -> tuple[list[tuple[float, Path]], float]:
    """(seconds after the start of a round, window folder) for each window, and the length of a round."""
    file = capture / "capture.json"
    try:
        described = json.loads(file.read_text(encoding="utf-8"))
        frames = described["frames"]
        loop_s = float(frames["count"]) * float(frames["seconds"])
        due = [(float(w["at"]), capture / w["path"]) for w in described.get("windows", ())]
    except OSError as e:
        raise ConfigError(f"{file}: {e.strerror}; a capture is made by amdgpu-exporter record DIR") from None
    except (ValueError, KeyError, TypeError) as e:
        raise ConfigError(f"{file}: not a capture description: {type(e).__name__}: {e}") from None
    if not loop_s > 0:
        raise ConfigError(f"{file}: frames.count and frames.seconds must be above 0")
    base = capture.absolute()
    for at_s, folder in due:
        if not 0 <= at_s < loop_s:
            raise ConfigError(
                f"{file}: window {folder.name} at {at_s:g} s lies outside the round of {loop_s:g} s"
            )
        if ".." in folder.parts or not folder.absolute().is_relative_to(base):
            raise ConfigError(f"{file}: window {folder} lies outside the capture")
    return due, loop_s
