"""The profilers that the daemon may start itself: rocprofv3 for traces. Pure.

Device counting is planned nowhere yet: it never ran on hardware.
"""

from __future__ import annotations

from collections.abc import Sequence

from exporter.model import WindowOutcome
from exporter.profilers import rocprofv3_window
from exporter.profilers.plan import Plan, Refusal, Request, Tool


class Toolbox:
    """How the profilers of this machine would take a window."""

    def plan(self, request: Request, tools: Sequence[Tool], scratch: str, /) -> Plan | Refusal:
        """The command line, or why there is none."""
        if request.mode == "counters":
            detail = "this release has no helper for device counting"
            return Refusal(WindowOutcome.BLOCKED, "no_profiler", detail)
        for tool in tools:
            if tool.name == "rocprofv3":
                return rocprofv3_window.plan(request, tool, scratch)
        detail = "there is no rocprofv3 on PATH or in /opt/rocm/bin"
        return Refusal(WindowOutcome.BLOCKED, "no_profiler", detail)

    def sets(self, _gfx: str, _deep: bool, /) -> Sequence[tuple[str, ...]]:
        """The counter sets of a chip."""
        return ()
