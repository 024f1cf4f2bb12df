"""One window of device counters: by our helper, or by rocpctl of AMD's device-metrics-exporter. Pure.

Neither touches an application. AMD's counts every GPU of the node, and says neither for how long nor over how
many dies: rates and densities are absent from its windows.
"""

from __future__ import annotations

from collections.abc import Sequence

from exporter.model import Device, WindowOutcome
from exporter.profilers.plan import Plan, Refusal, Request, Tool

OWN, VENDOR = "amdgpu-exporter-counting", "rocpctl"
TOOL = "device_counting"
FILE = "counters.json"
_GRACE_S = 10.0  # loading the runtime takes seconds on a node with many GPUs
_LONGEST_S = 10.0

_GRBM = ("GRBM_COUNT", "GRBM_GUI_ACTIVE")
_L2 = ("TCC_HIT_sum", "TCC_MISS_sum")
_SHADERS = ("SQ_WAVES", "SQ_INSTS_VALU", "SQ_ACTIVE_INST_VALU", "SQ_THREAD_CYCLES_VALU", "SQ_BUSY_CU_CYCLES")
_CDNA = (*_SHADERS, "SQ_WAVE_CYCLES", "SQ_VALU_MFMA_BUSY_CYCLES", *_L2, *_GRBM)
# What fits one pass of each chip, by the number of counters that its blocks have.
_LIGHT = {
    "gfx908": (*_SHADERS, *_L2, *_GRBM),
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), _CDNA),
    **dict.fromkeys(
        ("gfx1100", "gfx1101", "gfx1102"),
        ("SQ_WAVES", "SQ_INSTS_VALU", "SQ_WAVE_CYCLES", "GL2C_HIT", "GL2C_MISS", *_GRBM),
    ),
}
_DEEP = (("FETCH_SIZE", *_GRBM), ("WRITE_SIZE", *_GRBM))
_DEEP_CDNA = (*_DEEP, ("TCC_REQ_sum", "TCC_ATOMIC_sum", *_GRBM))


def sets(gfx: str, deep: bool) -> Sequence[tuple[str, ...]]:
    """The single-pass sets of a chip, to be taken in turn; none where none is known to fit."""
    if gfx not in _LIGHT:
        return ()
    if not deep:
        return (_LIGHT[gfx],)
    return _DEEP_CDNA if gfx.startswith("gfx9") else _DEEP


def plan(request: Request, tools: Sequence[Tool], _scratch: str) -> Plan | Refusal:
    """The command line of the first helper that can take the window."""
    if not request.counters:
        return _blocked("no_counters", "a window of counters wants a counter set")
    refusal = _blocked("no_profiler", f"there is no {OWN} on PATH; deploy/device-counting builds it")
    for name, make in ((OWN, _own), (VENDOR, _vendor)):
        for tool in (tool for tool in tools if tool.name == name):
            made = make(request, tool)
            if isinstance(made, Plan):
                return made
            refusal = made
    return refusal


def _own(request: Request, tool: Tool) -> Plan | Refusal:
    gpus = [gpu for device in request.devices if (gpu := _named(device)) is not None]
    if len(gpus) < len(request.devices) or not gpus:
        detail = "the driver's node numbers of some GPUs are not known, which tell partitions apart"
        return _blocked("no_gpu", detail)
    seconds = min(request.seconds, _LONGEST_S)
    argv = [tool.path, *(word for gpu in gpus for word in ("--gpu", gpu))]
    argv += ["--milliseconds", f"{seconds * 1000:g}", *request.counters]
    return _planned(tool, argv, seconds)


def _vendor(request: Request, tool: Tool) -> Plan | Refusal:
    if "-d" not in tool.options:
        return _blocked("too_old", f"{tool.path} has no option -d: it counts each counter in its own time")
    if not request.every_gpu:
        return _blocked("not_every_gpu", f"{tool.path} counts every GPU, and not every one is to be counted")
    seconds = min(request.seconds, _LONGEST_S)
    return _planned(tool, [tool.path, "-d", str(max(1, round(seconds * 1e6))), *request.counters], seconds)


def _planned(tool: Tool, argv: Sequence[str], seconds: float) -> Plan:
    version = ".".join(map(str, tool.version)) if tool.version else "unknown"
    return Plan(TOOL, version, tuple(argv), seconds, _GRACE_S, stdout=FILE)


def _named(device: Device) -> str | None:
    node = device.indices.get("kfd")
    if node is not None:
        return str(node)
    return device.id.pci if device.id.partition is None else None


def _blocked(reason: str, detail: str) -> Refusal:
    return Refusal(WindowOutcome.BLOCKED, reason, detail)
