"""How much a window has written, and whether it is anything at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

ENTRIES_MAX = 2_000


def usage(folder: Path) -> tuple[int, int]:
    """Bytes and entries below a folder; stops counting when there are too many."""
    size = entries = 0
    todo = [str(folder)]
    while todo and entries <= ENTRIES_MAX:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as found:
            for entry in found:
                entries += 1
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        todo.append(entry.path)
                    else:
                        size += max(info.st_size, info.st_blocks * 512)
                if entries > ENTRIES_MAX:
                    break
    return size, entries


def holds_data(output: Path) -> bool:
    """Whether there is any file with something in it; links and devices are none."""
    for folder, _, files in os.walk(output):
        for name in files:
            with contextlib.suppress(OSError):
                info = os.lstat(os.path.join(folder, name))
                if stat.S_ISREG(info.st_mode) and info.st_size:
                    return True
    return False
