"""One window by rocprofv2 or rocprof, around a command, where a node is too old for rocprofv3. Pure.

Facts: both take the first word that is no option for the command, and refuse ``--``; rocprofv2 drops its
files unless the folder is there; rocprof wants a file that ends in .csv, and gives each kernel's dispatch
time, which stands for the launch. Neither attaches, and neither is part of ROCm 10.
"""

from __future__ import annotations

from exporter.model import WindowOutcome
from exporter.profilers.plan import Plan, Refusal, Request, Tool

V2, V1 = "rocprofv2", "rocprof"
LEGACY = frozenset({V1, V2})
_GRACE_S = 30.0
_NEEDED = {V2: ("--hip-api", "--kernel-trace", "--plugin", "-d"), V1: ("--timestamp", "-o", "-t")}


def plan(request: Request, tool: Tool, scratch: str) -> Plan | Refusal:
    """The command line for a trace of a command."""
    if request.pid is not None:
        return _blocked("too_old", f"{tool.path} cannot attach; rocprofv3 of ROCm 7.1 or later can")
    if not request.command or request.command[0].startswith("-"):
        return _blocked("no_command", "a trace is of a command; set windows.command")
    if missing := [option for option in _NEEDED[tool.name] if option not in tool.options]:
        return _blocked("too_old", f"{tool.path} has no {missing[0]}")
    output = f"{scratch}/out"
    if tool.name == V2:
        how = ("--hip-api", "--kernel-trace", "--plugin", "file", "-d", output)
    else:
        how = ("--timestamp", "on", "-o", f"{output}/results.csv", "-t", scratch)
    version = ".".join(map(str, tool.version)) if tool.version else "unknown"
    return Plan(tool.name, version, (tool.path, *how, *request.command), request.seconds, _GRACE_S)


def _blocked(reason: str, detail: str) -> Refusal:
    return Refusal(WindowOutcome.BLOCKED, reason, detail)
