"""Which profilers are here, and what they can do: they say it themselves. Starts them, so in a child."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping

from exporter.command import Ending, Finished, run_once
from exporter.model import Reason, SourceError
from exporter.profilers.device_counting import OWN, VENDOR
from exporter.profilers.job import options
from exporter.profilers.legacy_window import V1, V2
from exporter.profilers.plan import Tool

NAME = "rocprofv3"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_HELP_S = 30.0
_MOST = 1 << 20
_PROTOCOL = re.compile(r"protocol: (\d+)\b")
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


def tools(mode: str | None, environ: Mapping[str, str]) -> tuple[Tool, ...]:
    """Those that take windows of a mode; no other is started. Errors: SourceError where none works."""
    if mode == "counters":
        return counting(environ)
    found = rocprofv3(environ) or legacy(environ)
    return () if found is None else (found,)


def legacy(environ: Mapping[str, str]) -> Tool | None:
    """The newest of the tools before rocprofv3, None where there is none. Errors: SourceError."""
    for name, ask in ((V2, "--help"), (V1, "-h")):
        place = shutil.which(name, path=environ.get("PATH")) or shutil.which(f"/opt/rocm/bin/{name}")
        if place is None:
            continue
        # Facts: both end with 1 after their help.
        done = run_once([place, ask], _HELP_S, _MOST, environ)
        known = options(_COLOUR.sub("", done.stdout.decode("utf-8", "replace")))
        if done.code not in (0, 1) or not known:
            raise SourceError(Reason.CRASHED, f"{place} {ask} {ended(done)}")
        return Tool(name, place, None, known)
    return None


def counting(environ: Mapping[str, str]) -> tuple[Tool, ...]:
    """The helper for device counters, AMD's where ours is not. Errors: SourceError where none works.

    AMD's loads HIP even to print its help, so it is asked only where it is needed.
    """
    trouble: list[str] = []
    for name, ask in ((OWN, "--version"), (VENDOR, "--help")):
        place = shutil.which(name, path=environ.get("PATH"))
        if place is None:
            continue
        done = run_once([place, ask], _HELP_S, _MOST, environ)
        text = done.stdout.decode("utf-8", "replace")
        protocol = _PROTOCOL.search(text)
        if done.code != 0:
            trouble.append(f"{place} {ask} {ended(done)}")
        elif name == OWN and (protocol is None or protocol[1] != "1"):
            trouble.append(f"{place} speaks another protocol than 1; take the one of this release")
        else:
            number = _NUMBER.search(text) if name == OWN else None
            version = tuple(map(int, number[1].split("."))) if number else None
            return (Tool(name, place, version, options(text)),)
    if trouble:
        raise SourceError(Reason.CRASHED, trouble[0])
    return ()


def ended(done: Finished) -> str:
    """How a command ended, and what it said last."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    said = f": {lines[-1][:200]}" if lines else ""
    how = f"with code {done.code}" if done.outcome is Ending.EXITED else f"by {done.outcome}"
    return f"ended {how}{said}"
