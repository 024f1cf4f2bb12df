"""A job with windows built in from its start: rocprofv3 around the command, collecting now and then. Pure.

rocprofv3 replaces itself by the application, so that the application's exit code and signals are its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.model import WindowOutcome
from exporter.profilers.plan import Refusal, Tool

_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_PERIOD = "--collection-period"
# What a job that is profiled already carries: one profiler more would abort it.
_CARRIED = ("ROCP_TOOL_LIBRARIES", "ROCPROFILER_LIBRARY_CTOR", "ROCPROF_OUTPUT_PATH", "HSA_TOOLS_LIB")


@dataclass(frozen=True, slots=True)
class Periods:
    """``count`` windows of ``length_s`` seconds, each after a pause of ``pause_s``."""

    pause_s: float
    length_s: float
    count: int


def options(help_text: str) -> frozenset[str]:
    """The options that a tool's help lists."""
    return frozenset(_OPTION.findall(help_text))


def carried(environ: Sequence[str]) -> str | None:
    """The variable that says a profiler is at work in this job already."""
    return next((name for name in _CARRIED if name in environ), None)


def wrap(tool: Tool, periods: Periods, output: str) -> tuple[str, ...] | Refusal:
    """The command line up to the application, which follows.

    The long name of the period is the same in every release; the short one changed its meaning.
    """
    if _PERIOD not in tool.options:
        detail = f"{tool.path} has no {_PERIOD}; rocprofv3 of ROCm 6.4 or later has"
        return Refusal(WindowOutcome.BLOCKED, "too_old", detail)
    pause, length = (max(1, round(s * 1000)) for s in (periods.pause_s, periods.length_s))
    argv = [tool.path, "--kernel-trace", "--hip-runtime-trace", "--memory-copy-trace"]
    if "--disable-signal-handlers" in tool.options:
        argv.append("--disable-signal-handlers")
    argv += [_PERIOD, f"{pause}:{length}:{periods.count}", "--collection-period-unit", "msec"]
    # From 7.0 on, which brought --version, the database is what all releases write best.
    argv += ["--output-format", "rocpd" if "--version" in tool.options else "csv", "-d", output, "--"]
    return tuple(argv)
