"""The child that looks into the textfile folder. Started as ``python -m exporter.textfile.folder SPEC``."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter import worker
from exporter.formats.prometheus_text import Family, Merged, read
from exporter.host import reason_of
from exporter.model import FormatError, SourceError

FILES_MAX = 100


@dataclass(frozen=True, slots=True)
class _Known:
    """One file as it was last read: what it held, or why it was refused."""

    stamp: tuple[int, int, int]
    families: list[Family]
    problem: str | None


class Folder:
    """Files ``*.prom`` of a folder. ``max_bytes`` is for all of them together, in order of names."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._known: dict[str, _Known] = {}

    def look(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Answer with the files and, where anything changed, the page they make."""
        try:
            names = sorted(n for n in os.listdir(self._path) if n.endswith(".prom") and not n.startswith("."))
        except OSError as e:
            raise SourceError(reason_of(e), f"{self._path}: {e.strerror}; set textfile.folder") from e
        left, merged, files = self._max_bytes, Merged(), []
        known, self._known = self._known, {}
        for n, name in enumerate(names[: FILES_MAX + 1]):
            problem, changed = None, None
            try:
                status = os.stat(self._path / name)
                changed = status.st_mtime
                if n == FILES_MAX:
                    raise FormatError(f"more than {FILES_MAX} files; the rest is left out")
                if not stat.S_ISREG(status.st_mode):
                    raise FormatError("not a regular file")
                if status.st_size > left:
                    raise FormatError("textfile.max_bytes is used up")
                left -= status.st_size
                one = self._read(name, (status.st_mtime_ns, status.st_size, status.st_ino), known.get(name))
                if one.problem:
                    raise FormatError(one.problem)
                merged.add(one.families)
            except OSError as e:
                problem = e.strerror or str(e)
            except FormatError as e:
                problem = str(e)
            files.append([name.encode("utf-8", "replace").decode(), changed, problem])
        return {
            "files": files,
            "text": merged.page(openmetrics=False),
            "openmetrics": merged.page(openmetrics=True),
            "series": merged.series,
        }

    def _read(self, name: str, stamp: tuple[int, int, int], known: _Known | None) -> _Known:
        if known is None or known.stamp != stamp:
            fd = os.open(self._path / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as stream:
                blob = stream.read(stamp[1] + 1)
            try:
                if len(blob) > stamp[1]:
                    raise FormatError("it grew while it was read; write it elsewhere and rename it")
                known = _Known(stamp, read(blob), None)
            except FormatError as e:
                known = _Known(stamp, [], str(e))
        self._known[name] = known
        return known


def main() -> None:
    spec = worker.spec()
    worker.serve({"look": Folder(Path(spec["folder"]), spec["max_bytes"]).look})


if __name__ == "__main__":
    main()
