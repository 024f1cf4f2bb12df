"""The door to the operating system: file roots, clocks. Child processes are in ``child``.

Every file of /sys, /proc and debugfs is read through a ``Root``, so that a captured tree elsewhere, or a
replayed one, is read by the same code as the live one.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import posixpath
import resource
import time

from exporter.model import Reason

READ_LIMIT = 64 * 1024
_open, _take, _take_at, _close = os.open, os.read, os.pread, os.close  # a poll calls these a thousand times
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC

_REASONS = {
    errno.ENOENT: Reason.UNSUPPORTED,
    errno.ENOTDIR: Reason.UNSUPPORTED,
    errno.EINVAL: Reason.UNSUPPORTED,
    errno.EOPNOTSUPP: Reason.UNSUPPORTED,
    524: Reason.UNSUPPORTED,  # ENOTSUPP, the kernel's own, which leaks out of some drivers
    errno.EACCES: Reason.DENIED,
    errno.EPERM: Reason.DENIED,
    errno.EBUSY: Reason.BUSY,
    errno.EAGAIN: Reason.BUSY,
    errno.EIO: Reason.BUSY,
    errno.ETIME: Reason.TIMEOUT,
    errno.ETIMEDOUT: Reason.TIMEOUT,
    errno.ENODEV: Reason.GONE,
    errno.EISDIR: Reason.MALFORMED,
    errno.ELOOP: Reason.MALFORMED,
}


def reason_of(error: OSError) -> Reason:
    """What a failed read means for the reading that wanted it."""
    return _REASONS.get(error.errno or 0, Reason.MALFORMED)


class Root:
    """One mounted tree (``/sys``, ``/proc``), or a captured copy of it anywhere.

    Paths are relative to the tree. Links are resolved textually inside the tree, so that an absolute link
    in a capture cannot lead out of it; a small regular file holding a relative path counts as a link, as
    archives without links write them.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)

    def read(self, rel: str, limit: int = READ_LIMIT) -> bytes:
        """The whole file in one read from offset 0; raises OSError."""
        fd = _open(f"{self.path}/{rel}", _READ)
        try:
            return _take(fd, limit)
        finally:
            _close(fd)

    def text(self, rel: str) -> str | None:
        """The file's text, stripped; None where it cannot be read or is empty."""
        try:
            return self.read(rel).strip(b"\0 \t\r\n").decode("utf-8", "replace") or None
        except OSError:
            return None

    def listdir(self, rel: str) -> list[str]:
        """Names in a folder, sorted; empty where it cannot be listed."""
        try:
            return sorted(os.listdir(self._at(rel)))
        except OSError:
            return []

    def names(self, rel: str) -> list[str]:
        """Names in a folder, sorted; raises OSError, for where "empty" and "not allowed" differ."""
        return sorted(os.listdir(self._at(rel)))

    def target(self, rel: str) -> str:
        """Where one link points, as it is written; raises OSError."""
        return os.readlink(self._at(rel))

    def stamp(self, rel: str) -> int | None:
        """When entries of a folder last came or went, in wall-clock nanoseconds; None where it is not there.

        Kernel file systems may not keep it: an unchanged stamp proves nothing there.
        """
        try:
            return os.stat(self._at(rel)).st_mtime_ns
        except OSError:
            return None

    def link_targets(self, rel: str) -> list[str]:
        """Where each link in a folder points; one that goes while we look is left out."""
        targets = []
        for name in self.listdir(rel):
            with contextlib.suppress(OSError):
                targets.append(os.readlink(self._at(f"{rel}/{name}")))
        return targets

    def exists(self, rel: str) -> bool:
        return os.path.exists(self._at(rel))

    def resolve(self, rel: str) -> str:
        """``rel`` with every link on the way followed, still relative to the tree."""
        parts = rel.strip("/").split("/")
        done: list[str] = []
        hops = 0
        while parts:
            part = parts.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                if done:
                    done.pop()
                continue
            target = self._link("/".join((*done, part)))
            if target is None:
                done.append(part)
                continue
            hops += 1
            if hops > 40:
                return rel  # a circle: reading the path as it stands says so, with its reason
            if target.startswith("/"):
                done = []
                if target.startswith(self.path + "/"):
                    target = posixpath.relpath(target, self.path)
            parts = target.split("/") + parts
        return "/".join(done)

    def _link(self, rel: str) -> str | None:
        full = os.path.join(self.path, rel)
        try:
            return os.readlink(full)
        except OSError:
            pass
        if rel.startswith("class/drm/") or rel.endswith(("/device", "/driver")):
            try:
                if os.path.isfile(full) and os.path.getsize(full) < 512:
                    with open(full, encoding="utf-8") as f:
                        text = f.read().strip()
                    return text if text.startswith("../") and "\n" not in text else None
            except (OSError, UnicodeDecodeError):
                pass
        return None

    def _at(self, rel: str) -> str:
        return f"{self.path}/{rel}"


class Held:
    """Small files of one folder that are read again and again, held open between the reads.

    sysfs makes the text anew for each read from offset 0, and a descriptor whose file has gone fails there:
    it is then read by its path, which says what is the matter. Elsewhere only the folder tells that a file
    came or went, so whoever holds files drops them when it does. At most ``most`` descriptors are held.
    """

    _used = 0  # by all of this process

    def __init__(self, root: Root, most: int | None = None) -> None:
        self._root = root
        self._files: dict[str, int] = {}
        # A root that reads in its own way is asked every time.
        self._most = 0 if type(root).read is not Root.read else _spare() if most is None else most

    def read(self, rel: str, limit: int = READ_LIMIT) -> bytes:
        """As ``Root.read``."""
        fd = self._files.get(rel)
        if fd is not None:
            try:
                return _take_at(fd, limit, 0)
            except OSError:
                self._close(rel)
        if Held._used >= self._most:
            return self._root.read(rel, limit)
        fd = _open(f"{self._root.path}/{rel}", _READ)
        try:
            data = _take_at(fd, limit, 0)
        except OSError as e:
            _close(fd)
            if e.errno != errno.ESPIPE:
                raise
            return self._root.read(rel, limit)
        self._files[rel] = fd
        Held._used += 1
        return data

    def drop(self) -> None:
        """Let go of every file."""
        for rel in list(self._files):
            self._close(rel)

    def _close(self, rel: str) -> None:
        Held._used -= 1
        _close(self._files.pop(rel))

    def __del__(self) -> None:
        self.drop()


@functools.cache
def _spare() -> int:
    """How many descriptors may be held: half of what the process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return 2048 if soft == resource.RLIM_INFINITY else soft // 2


def resident_bytes(procfs: Root, process: str = "self") -> int | None:
    """Memory of a process that is in RAM; None where it cannot be told."""
    try:
        return int((procfs.text(f"{process}/statm") or "").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, IndexError):
        return None


def belonging(sysfs: str, other: str) -> str:
    """Where to read a file system beside ``sysfs``: ``other``, or nowhere if it is of another machine.

    A sysfs that is mounted is a machine's own. A plain folder is a copy, and what is mounted here says
    nothing of the machine that it was copied from.
    """
    if os.path.ismount(sysfs) or not os.path.ismount(other):
        return other
    return f"{sysfs}/no-{os.path.basename(other)}"


class Clock:
    """Wall and monotonic time in seconds; one instance is handed to whoever needs time."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
