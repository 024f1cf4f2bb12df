"""One window by rocprofv3: around a command, or of a process that was prepared for it. Pure.

Facts: the kinds of traces and the output folder are the same in every release since 6.2; attaching came with
7.1, and what it needs of its target is looked at before. It never goes together with counters.
"""

from __future__ import annotations

from exporter.model import WindowOutcome
from exporter.profilers.plan import Plan, Refusal, Request, Tool

_GRACE_S = 30.0
_ATTACH_GRACE_S = 120.0  # a detach may take up to two minutes, by the tool's own words
_ATTACH, _LENGTH = "--attach", "--attach-duration-msec"


def plan(request: Request, tool: Tool, scratch: str) -> Plan | Refusal:
    """The command line for a trace."""
    if request.mode != "trace":
        return _blocked("not_a_trace", "rocprofv3 is started for traces only: its counters stop kernels")
    version = ".".join(map(str, tool.version)) if tool.version else "unknown"
    output = f"{scratch}/out"
    argv = [tool.path, "--kernel-trace", "--hip-runtime-trace"]
    # From 7.0 on, which brought --version, the database is what all releases write best.
    files = ["--output-format", "rocpd" if "--version" in tool.options else "csv", "-d", output]
    if request.pid is not None:
        if _ATTACH not in tool.options or _LENGTH not in tool.options:
            detail = f"{tool.path} cannot attach; rocprofv3 of ROCm 7.1 or later can"
            return Refusal(WindowOutcome.BLOCKED, "too_old", detail)
        if "--attach-children" in tool.options:
            argv.append("--attach-children=false")
        if "--attach-sync-output" in tool.options:
            argv.append("--attach-sync-output")
        argv += [_ATTACH, str(request.pid), _LENGTH, str(max(1, round(request.seconds * 1000))), *files]
        return Plan("rocprofv3", version, tuple(argv), request.seconds, _ATTACH_GRACE_S)
    if not request.command:
        return _blocked("no_command", "a trace is of a command or of a process; set windows.command")
    argv += ["--memory-copy-trace", *files, "--", *request.command]
    return Plan("rocprofv3", version, tuple(argv), request.seconds, _GRACE_S)


def _blocked(reason: str, detail: str) -> Refusal:
    return Refusal(WindowOutcome.BLOCKED, reason, detail)
