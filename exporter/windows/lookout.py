"""Who computes on the GPUs of this node right now, as a window has to know it. Reads procfs and sysfs.

Runs in the runner child: a look walks the memory maps of every compute process.
"""

from __future__ import annotations

import os

from exporter.formats import proc_text, sysfs_text
from exporter.host import Root
from exporter.model import FormatError
from exporter.windows.seen import Seen

# Libraries that only a profiler at work brings into a process; those that frameworks link are not among them.
_PROFILERS = (b"librocprofiler-sdk-tool", b"librocprofiler_tool", b"librocprofiler64", b"librocprofv3")
_COLLECTIVES = (b"librccl",)
_ATTACH_THREAD = b"rocp-bg-attach"
_UNTRACED = b"TracerPid:\t0\n"
_MAPS_MOST = 16 << 20
_ENVIRON_MOST = 1 << 20
_SMALL = 4096
_PROCESSES_MOST = 4_096


def look(sysfs: Root, procfs: Root) -> list[Seen]:
    """Every living process that the compute driver lists; none where procfs is not the host's own."""
    if procfs.text("2/comm") != "kthreadd":
        return []  # the driver's numbers would be those of other processes here
    base = f"{sysfs.resolve('class/kfd/kfd')}/proc"
    up_s = _uptime(procfs)
    names = [name for name in sysfs.listdir(base) if name.isdecimal()][:_PROCESSES_MOST]
    return [seen for name in names if (seen := _process(sysfs, procfs, base, name, up_s))]


def holders(sysfs: Root) -> dict[int, int]:
    """How many processes have queues on a GPU, by its KFD id; they are counted in every namespace."""
    base = f"{sysfs.resolve('class/kfd/kfd')}/proc"
    counts: dict[int, int] = {}
    for name in sysfs.listdir(base)[:_PROCESSES_MOST]:
        folder = f"{base}/{name}/queues"
        ids = {_number(sysfs, f"{folder}/{queue}/gpuid") for queue in sysfs.listdir(folder)}
        for gpu in ids - {None}:
            counts[gpu or 0] = counts.get(gpu or 0, 0) + 1
    return counts


def _process(sysfs: Root, procfs: Root, base: str, name: str, up_s: float | None) -> Seen | None:
    try:
        life = proc_text.life(procfs.read(f"{name}/stat", _SMALL))
        user = int(proc_text.user(procfs.read(f"{name}/status", _SMALL)))
    except (OSError, FormatError):
        return None  # ended, or of another PID namespace
    if not life.alive:
        return None
    maps, prepared = _maps(procfs, name), _prepared(procfs, name)
    age_s = None if up_s is None else max(0.0, up_s - life.start / os.sysconf("SC_CLK_TCK"))
    return Seen(
        pid=int(name),
        start=life.start,
        age_s=age_s,
        name=procfs.text(f"{name}/comm") or "",
        user=user,
        gpus=_gpus(sysfs, f"{base}/{name}"),
        profiler=None if maps is None else _profiled(procfs, name, maps, prepared),
        collectives=None if maps is None else any(lib in maps for lib in _COLLECTIVES),
        prepared=prepared,
        same_mounts=_same(procfs, name),
    )


def _profiled(procfs: Root, name: str, maps: bytes, prepared: bool) -> bool:
    """Whether a profiler is at work in it.

    One that attached leaves its libraries behind when it lets go. Then nobody traces the process, and what
    it was started with names no profiler: that of a job started under one does.
    """
    if not any(lib in maps for lib in _PROFILERS):
        return False
    return not prepared or _traced(procfs, name) or _started_so(procfs, name)


def _traced(procfs: Root, name: str) -> bool:
    try:
        tasks = procfs.listdir(f"{name}/task")
        states = [procfs.read(f"{name}/task/{task}/status", _SMALL) for task in tasks]
    except OSError:
        return True
    return not all(_UNTRACED in state for state in states)


def _started_so(procfs: Root, name: str) -> bool:
    try:
        started = procfs.read(f"{name}/environ", _ENVIRON_MOST)
    except OSError:
        return True
    return any(mark in started for mark in (b"ROCP_TOOL_LIBRARIES=", b"HSA_TOOLS_LIB=", *_PROFILERS))


def _gpus(sysfs: Root, folder: str) -> tuple[int, ...]:
    ids = set()
    for queue in sysfs.listdir(f"{folder}/queues"):
        ids.add(_number(sysfs, f"{folder}/queues/{queue}/gpuid"))
    for file in sysfs.listdir(folder):
        if file.startswith("vram_") and file[5:].isdecimal() and _number(sysfs, f"{folder}/{file}"):
            ids.add(int(file[5:]))
    return tuple(sorted(i for i in ids if i is not None))


def _number(root: Root, rel: str) -> int | None:
    try:
        value = sysfs_text.integer(root.read(rel, 64))
    except OSError:
        return None
    return value if isinstance(value, int) else None


def _maps(procfs: Root, name: str) -> bytes | None:
    """The memory map, in blocks as the kernel hands it out; None where it may not be read."""
    parts: list[bytes] = []
    try:
        with open(f"{procfs.path}/{name}/maps", "rb") as file:
            while sum(map(len, parts)) < _MAPS_MOST and (part := file.read(1 << 16)):
                parts.append(part)
    except OSError:
        return None
    return b"".join(parts)


def _prepared(procfs: Root, name: str) -> bool:
    for task in procfs.listdir(f"{name}/task"):
        try:
            # A thread's name is cut at 15 characters.
            if procfs.read(f"{name}/task/{task}/comm", 64).strip() == _ATTACH_THREAD[:15]:
                return True
        except OSError:
            continue
    return False


def _same(procfs: Root, name: str) -> bool | None:
    try:
        return procfs.target(f"{name}/ns/mnt") == procfs.target("self/ns/mnt")
    except OSError:
        return None


def _uptime(procfs: Root) -> float | None:
    try:
        return float(procfs.read("uptime", 64).split()[0])
    except (OSError, ValueError, IndexError):
        return None
