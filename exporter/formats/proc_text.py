"""What the kernel says of one process, and of one DRM client of it, as text -> values. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats import sysfs_text
from exporter.model import FormatError

_MOST = 2**64 - 1


class Life(NamedTuple):
    """Whether a process lives, and when it began, which tells it from another of the same number."""

    alive: bool
    start: int  # clock ticks since boot


def life(data: bytes) -> Life:
    """``<pid>/stat``; FormatError where it is none.

    A leader that has ended while other threads run on is listed as a zombie; the process lives.
    """
    # The name stands in brackets and may hold anything, brackets and spaces too.
    fields = data.rpartition(b")")[2].split()
    if len(fields) < 20:
        raise FormatError(f"stat: {len(fields)} fields after the name are too few")
    state, threads, start = fields[0], sysfs_text.integer(fields[17]), sysfs_text.integer(fields[19])
    if not isinstance(threads, int) or not isinstance(start, int) or start < 0:
        raise FormatError("stat: threads or start time is no number")
    return Life(state not in (b"Z", b"X", b"x") or threads > 1, start)


_UID = re.compile(rb"^Uid:[ \t]+(\d{1,10})\b", re.MULTILINE)


def user(data: bytes) -> str:
    """The real user id in ``<pid>/status``, as text; FormatError without one."""
    found = _UID.search(data)
    if found is None:
        raise FormatError("status: no Uid line")
    return found[1].decode()


@dataclass(frozen=True, slots=True)
class DrmClient:
    """One client of the driver: memory in bytes by pool, engine time in nanoseconds; only what is stated.

    ``faults`` counts lines of a known key that could not be read.
    """

    pci: str
    client: int
    memory: Mapping[str, int]
    engines: Mapping[str, int]
    faults: int = 0


_UNITS = {b"": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30}
_POOL = re.compile(rb"drm-(resident|memory)-(vram|gtt|cpu)\Z")
_ENGINE = re.compile(rb"drm-engine-(?!capacity)([a-z][a-z0-9_]{0,15})\Z")


def drm_client(data: bytes) -> DrmClient | None:
    """One ``<pid>/fdinfo/<fd>``; None where it is no descriptor of amdgpu.

    ``drm-resident-*`` is the newer name of what older kernels call ``drm-memory-*``; where both stand they
    say the same, the older rounded to KiB.
    Errors: FormatError for a client of amdgpu without address or number.
    """
    fields: dict[bytes, bytes] = {}
    twice: set[bytes] = set()
    for line in data.split(b"\n"):
        key, colon, value = line.partition(b":")
        key, value = key.strip(), value.strip()
        if colon and fields.setdefault(key, value) != value:
            twice.add(key)
    if fields.get(b"drm-driver") != b"amdgpu":
        return None
    if twice & {b"drm-driver", b"drm-pdev", b"drm-client-id"}:
        raise FormatError("fdinfo: two addresses or numbers for one client")
    pci = sysfs_text.pci_address(fields.get(b"drm-pdev", b"").decode("ascii", "replace"))
    client = sysfs_text.integer(fields.get(b"drm-client-id", b""))
    if pci is None or not isinstance(client, int) or client < 0:
        raise FormatError("fdinfo: an amdgpu client without drm-pdev or drm-client-id")
    memory: dict[str, dict[str, int]] = {"resident": {}, "memory": {}}
    engines: dict[str, int] = {}
    faults = 0
    for key, value in fields.items():
        pool, engine = _POOL.match(key), _ENGINE.match(key)
        if not pool and not engine:
            continue
        number = None if key in twice else _quantity(value, time=bool(engine))
        if number is None:
            faults += 1
        elif pool:
            memory[pool[1].decode()][pool[2].decode()] = number
        elif engine:
            engines[engine[1].decode()] = number
    return DrmClient(pci, client, {**memory["memory"], **memory["resident"]}, engines, faults)


def _quantity(text: bytes, *, time: bool) -> int | None:
    number, _, unit = text.partition(b" ")
    unit = unit.strip()
    if not number.isdigit() or len(number) > 20:
        return None
    scale = ({b"ns": 1} if time else _UNITS).get(unit)
    value = None if scale is None else int(number) * scale
    return value if value is not None and value <= _MOST else None


class DebugQueue(NamedTuple):
    """One queue as debugfs lists it."""

    gpu_id: int
    type: str


_QUEUE = re.compile(rb"^  (Compute|SDMA) queue on device ([0-9a-f]{1,8})$", re.MULTILINE)


def debug_queues(data: bytes) -> list[DebugQueue]:
    """Headlines of ``kfd/mqds`` in debugfs; the register images between them are stepped over."""
    return [DebugQueue(int(gpu, 16), kind.decode().lower()) for kind, gpu in _QUEUE.findall(data)]
