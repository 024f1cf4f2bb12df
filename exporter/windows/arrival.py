"""Waits for files that an attached process writes itself, when its profiler has gone already.

Facts: before ROCm 10.0 a profiler may return while the process still writes, and a database grows under its
final name, with its journal beside it, for a second and more.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_FIRST_S = 30.0  # how long the first file is waited for
_QUIET_S = 1.5  # how long nothing may change, to be called done
_LOOK_S = 0.05


def wait(output: Path, within_s: float) -> None:
    """Return when what is in the folder is whole, as far as can be seen, or the time is over."""
    began = quiet_since = time.monotonic()
    before: dict[str, int] = {}
    while True:
        found = _sizes(output)
        now = time.monotonic()
        if found != before:
            before, quiet_since = found, now
        written = any(size for name, size in found.items() if not _journal(name))
        whole = written and not any(size for name, size in found.items() if _journal(name))
        if whole and now - quiet_since >= _QUIET_S:
            return
        if now - began >= min(within_s, _FIRST_S if not written else within_s):
            return
        time.sleep(_LOOK_S)


def _journal(name: str) -> bool:
    return name.endswith(("-journal", "-wal"))


def _sizes(output: Path) -> dict[str, int]:
    sizes = {}
    for folder, _, files in os.walk(output):
        for name in files:
            path = os.path.join(folder, name)
            try:
                sizes[path] = os.lstat(path).st_size
            except OSError:
                continue
    return sizes
