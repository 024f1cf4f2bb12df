"""Which rocprofv3 is on this machine, and what it can do: its own help says it. Starts it, so in a child."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping

from exporter.command import Ending, Finished, run_once
from exporter.model import Reason, SourceError
from exporter.profilers.job import options
from exporter.profilers.plan import Tool

NAME = "rocprofv3"
_HELP_S = 30.0
_MOST = 1 << 20
_NUMBER = re.compile(r"version:?\s*(\d+(?:\.\d+)+)", re.IGNORECASE)


def path(environ: Mapping[str, str]) -> str | None:
    """Where it is: on PATH, or where ROCm puts it."""
    return shutil.which(NAME, path=environ.get("PATH")) or shutil.which(f"/opt/rocm/bin/{NAME}")


def rocprofv3(environ: Mapping[str, str]) -> Tool | None:
    """The tool, None where there is none. Errors: SourceError where it does not work."""
    found = path(environ)
    if found is None:
        return None
    done = run_once([found, "--help"], _HELP_S, _MOST, environ)
    if done.code != 0:
        raise SourceError(Reason.CRASHED, f"{found} --help {ended(done)}")
    known = options(done.stdout.decode("utf-8", "replace"))
    version = None
    if "--version" in known:
        told = run_once([found, "--version"], _HELP_S, _MOST, environ)
        text = (told.stdout + told.stderr).decode("utf-8", "replace")
        if number := _NUMBER.search(text):
            version = tuple(map(int, number[1].split(".")))
    return Tool(NAME, found, version, known)


def ended(done: Finished) -> str:
    """How a command ended, and what it said last."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    said = f": {lines[-1][:200]}" if lines else ""
    how = f"with code {done.code}" if done.outcome is Ending.EXITED else f"by {done.outcome}"
    return f"ended {how}{said}"
