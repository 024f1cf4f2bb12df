"""What one user may leave in the spool: windows beyond their share go, and what dead jobs left half written.

Whoever writes is not trusted, and is not harmed either: what a living job still writes to is left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PARTIAL = ".partial"
_STALE_S = 600.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Share:
    """What one user may have waiting in the spool."""

    size: int = 1 << 30
    windows: int = 200


def over(folder: Path, share: Share, now: float) -> Iterator[tuple[str, str]]:
    """Names in one user's folder that have to go, each with the reason. Errors: OSError."""
    total = count = 0
    with os.scandir(folder) as entries:
        found = sorted((e.stat(follow_symlinks=False).st_mtime, e.name) for e in entries)
    for changed, name in found:
        if name.endswith(PARTIAL):
            if changed + _STALE_S < now and _abandoned(folder, name):
                yield name, "left half written by a job that has ended"
            continue
        total += weight(folder / name)
        count += 1
        if count > share.windows:
            yield name, f"more than {share.windows} windows of one user wait"
        elif total > share.size:
            yield name, f"more than {share.size >> 20} MiB of one user wait"


def weight(path: Path) -> int:
    """Bytes below a path, links not followed."""
    total = 0
    todo = [str(path)]
    while todo:
        at = todo.pop()
        with contextlib.suppress(OSError):
            info = os.lstat(at)
            if stat.S_ISDIR(info.st_mode):
                with os.scandir(at) as entries:
                    todo += [entry.path for entry in entries]
            else:
                total += max(info.st_size, info.st_blocks * 512)
    return total


def hold(folder: Path) -> int:
    """Say that this folder is written to, for as long as the descriptor is open anywhere."""
    fd = os.open(folder, _FOLDER & ~os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def _abandoned(folder: Path, name: str) -> bool:
    """Whether nobody holds it any more; a job in another namespace is seen as well."""
    try:
        fd = os.open(folder / name, _FOLDER)
    except NotADirectoryError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def remove(fd: int, name: str) -> None:
    """Remove an entry of an open folder, whatever it is. Errors: OSError."""
    info = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if stat.S_ISDIR(info.st_mode):
        shutil.rmtree(name, dir_fd=fd)
    else:
        os.unlink(name, dir_fd=fd)
