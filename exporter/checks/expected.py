"""How many GPUs this node should have: the most ever seen, kept on disk, lowered only by a command."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

from exporter.model import ConfigError

_NAME = "expected-devices.json"
_MOST = 4096
_ROOTS_MAX = 16  # beyond that, copies of trees that were looked at once and are gone are dropped


class Expected:
    """The number for one sysfs root: another root, such as a captured tree, is another machine.

    Errors: none while reading or saving; what cannot be read or written is remembered in memory alone.
    """

    def __init__(self, state: Path, sysfs: str) -> None:
        self.file = state / _NAME
        self._root = os.path.abspath(sysfs)
        self.most: int | None = None
        self.dirty = False
        self.refresh()

    def saw(self, count: int) -> int | None:
        """Take how many there are now; returns how many there should be, None before there was any."""
        if count > (self.most or 0):
            self.most, self.dirty = count, True
        return self.most

    def refresh(self) -> None:
        """Take what the file says now: a command may have lowered it. A file that is gone lowers nothing."""
        stored = _load(self.file).get(self._root)
        if stored is not None and not self.dirty:
            self.most = stored or None

    def save(self) -> None:
        """Write the number where it has risen."""
        if not self.dirty:
            return
        self.dirty = False
        with contextlib.suppress(OSError):
            _store(self.file, {**_load(self.file), self._root: self.most or 0})

    def forget(self) -> None:
        """Start anew from what is seen next. Errors: ConfigError where the file cannot be written."""
        try:
            _store(self.file, {**_load(self.file), self._root: 0})
        except OSError as e:
            raise ConfigError(f"{self.file}: {e.strerror}; run it as the user of the daemon") from e
        self.most = None


def _load(file: Path) -> dict[str, int]:
    try:
        with file.open("rb") as f:
            roots = json.loads(f.read(65536))["roots"]
        return {k: v for k, v in roots.items() if type(v) is int and 0 <= v <= _MOST}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _store(file: Path, roots: dict[str, int]) -> None:
    """Replace the file whole, so that a crash leaves the old one or the new one."""
    if len(roots) > _ROOTS_MAX:
        roots = {root: most for root, most in roots.items() if os.path.isdir(root)}
    file.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=file.parent, prefix=f".{_NAME}.")
    try:
        with os.fdopen(fd, "w") as f:
            json.dump({"version": 1, "roots": roots}, f)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(name, 0o644)
        os.replace(name, file)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
