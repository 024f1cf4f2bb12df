"""What the daemon may start itself: a tracer for traces, a helper for device counters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.model import WindowOutcome
from exporter.profilers import device_counting, legacy_window, rocprofv3_window
from exporter.profilers.plan import Plan, Refusal, Request, Tool


class Toolbox:
    """How the profilers of this machine would take a window."""

    def plan(self, request: Request, tools: Sequence[Tool], scratch: str, /) -> Plan | Refusal:
        """The command line, or why there is none."""
        if request.mode == "counters":
            return device_counting.plan(request, tools, scratch)
        for tool in tools:
            if tool.name == "rocprofv3":
                return rocprofv3_window.plan(request, tool, scratch)
            if tool.name in legacy_window.LEGACY:
                return legacy_window.plan(request, tool, scratch)
        detail = "there is no rocprofv3, rocprofv2 or rocprof on PATH or in /opt/rocm/bin"
        return Refusal(WindowOutcome.BLOCKED, "no_profiler", detail)

    def sets(self, gfx: str, deep: bool, /) -> Sequence[tuple[str, ...]]:
        """The counter sets of a chip."""
        return device_counting.sets(gfx, deep)
