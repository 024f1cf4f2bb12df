"""Which GPUs the library lists and how others name them: handles -> sockets with their partitions.

Measures nothing. A handle without a PCI address cannot be told apart from others and is left out.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from exporter.backends.amdsmi_groups import U32, U64, member
from exporter.backends.amdsmi_module import Library
from exporter.catalogue.chips import Chip, by_device_id
from exporter.formats import sysfs_text
from exporter.host import Root
from exporter.model import Device, DeviceId, Raw, Reason

log = logging.getLogger(__name__)

_PARTITIONED_MODES = frozenset({"DPX", "TPX", "QPX", "CPX"})
_PASSING = frozenset({Reason.BUSY, Reason.TIMEOUT, Reason.GONE})
_GFX = re.compile(r"gfx[0-9a-f]{3,5}\Z")
_TEXT_MAX = 128


@dataclass(frozen=True, slots=True)
class Gpu:
    """One socket.

    ``handle`` is that of its first partition; ``addresses`` are what the library calls its partitions;
    ``whole`` False asks to look again.
    """

    pci: str
    handle: Any
    devices: tuple[Device, ...]
    addresses: tuple[str, ...]
    whole: bool


@dataclass(slots=True)
class _Named:
    """One handle and what was asked about it."""

    index: int
    handle: Any
    said: str
    pci: str
    partition: int | None
    answers: dict[str, Raw]

    @property
    def slot(self) -> str:
        return self.pci.rpartition(".")[0]

    def text(self, function: str, key: str) -> str | None:
        return text(field(self.answers[function], key))

    def number(self, function: str, key: str) -> int | None:
        value = member(self.answers[function], key, U32, U64)
        return value if type(value) is int and value >= 0 else None


_ASKED = (
    "get_gpu_asic_info",
    "get_gpu_kfd_info",
    "get_gpu_enumeration_info",
    "get_gpu_board_info",
    "get_gpu_vbios_info",
    "get_gpu_driver_info",
    "get_gpu_compute_partition",
    "get_gpu_memory_partition",
    "get_gpu_xcd_counter",
)


def enumerate_gpus(library: Library, sysfs: Root, *, show_integrated: bool, serials: bool) -> list[Gpu]:
    """Every AMD GPU by ascending PCI address; GPUs inside a CPU only where there is no other, or as told.

    Errors: SourceError where the library lists no handles at all.
    """
    handles = library.demand("get_processor_handles")
    handles = handles if isinstance(handles, list | tuple) else []
    there = {name.rpartition(".")[0].lower() for name in sysfs.listdir("bus/pci/devices")}
    slots: dict[str, list[_Named]] = {}
    lost = False
    for index, handle in enumerate(handles):
        named = _name(library, index, handle, there)
        if named is None:
            lost = True
        else:
            slots.setdefault(named.slot, []).append(named)
    # One release gives every partition the same render node: a number for all of them is none's.
    renders = Counter(n.number("get_gpu_enumeration_info", "drm_render") for m in slots.values() for n in m)
    groups = [_order(members) for members in slots.values()]
    groups.sort(key=lambda members: sysfs_text.pci_order(members[0].pci))
    if not show_integrated:
        groups = [g for g in groups if not _integrated(g)] or groups
    return [
        Gpu(
            members[0].pci,
            members[0].handle,
            tuple(_device(gpu, members, n, renders, serials) for n in members),
            tuple(n.said for n in members),
            not lost
            and not any(isinstance(a, Reason) and a in _PASSING for n in members for a in n.answers.values()),
        )
        for gpu, members in enumerate(groups)
    ]


def with_new_handles(library: Library, gpus: list[Gpu]) -> list[Gpu] | None:
    """The same GPUs with the handles of a new initialisation; None where the library lists others now."""
    handles = library.call("get_processor_handles")
    count = len(handles) if isinstance(handles, list | tuple) else 0
    if not gpus or count != sum(len(gpu.devices) for gpu in gpus) or not all(gpu.whole for gpu in gpus):
        return None
    out = []
    for gpu in gpus:
        at = [d.indices["amdsmi"] for d in gpu.devices]
        if max(at) >= count:
            return None
        addresses = tuple(library.call("get_gpu_device_bdf", handles[i]) for i in at)
        if addresses != gpu.addresses:
            return None
        out.append(replace(gpu, handle=handles[at[0]]))
    return out


def _name(library: Library, index: int, handle: Any, there: set[str]) -> _Named | None:
    answer = library.call("get_gpu_device_bdf", handle)
    pci = sysfs_text.pci_address(answer) if isinstance(answer, str) else None
    if pci is None:
        log.warning("gpu=%d event=unidentified detail=the library gives no PCI address (%s)", index, answer)
        return None
    # Without an openable render node some releases give whatever was in memory.
    if there and pci.rpartition(".")[0] not in there:
        log.warning("gpu=%d event=unidentified detail=no PCI device %s here", index, pci)
        return None
    return _Named(
        index, handle, str(answer), pci, None, {name: library.call(name, handle) for name in _ASKED}
    )


def _order(members: list[_Named]) -> list[_Named]:
    """Give members of one slot their partitions; the first one's PCI address is the socket's."""
    if len(members) == 1:
        mode = text(members[0].answers["get_gpu_compute_partition"])
        # Only the first partition is visible here (a container); it still is a partition.
        members[0].partition = 0 if mode in _PARTITIONED_MODES else None
        return members
    stated = [n.number("get_gpu_kfd_info", "current_partition_id") for n in members]
    # A partition beyond the first is shown with a function number that no PCI device has.
    functions: list[int | None] = [int(n.pci.rpartition(".")[2]) for n in members]
    for ids in (stated, functions, list(range(len(members)))):
        if None not in ids and len(set(ids)) == len(ids):
            break
    socket = min(n.pci for n in members)
    for named, partition in zip(members, ids, strict=True):
        named.partition, named.pci = partition, socket
    return sorted(members, key=lambda n: n.partition or 0)


def _device(
    gpu: int, members: list[_Named], n: _Named, renders: Mapping[int | None, int], serials: bool
) -> Device:
    first = members[0]
    chip = _chip(first)
    gfx = n.text("get_gpu_asic_info", "target_graphics_version")
    serial = first.text("get_gpu_asic_info", "asic_serial")
    unique = sysfs_text.hexadecimal(serial.encode()) if serial else None
    render = n.number("get_gpu_enumeration_info", "drm_render")
    alone = n.partition is None
    indices = {
        "amdsmi": n.index,
        "hip": n.number("get_gpu_enumeration_info", "hip_id"),
        "drm": n.number("get_gpu_enumeration_info", "drm_card"),
        "render": render if renders[render] == 1 or not n.partition else None,
        "kfd": n.number("get_gpu_kfd_info", "node_id"),
    }
    return Device(
        id=DeviceId(n.pci, n.partition),
        gpu=gpu,
        model=first.text("get_gpu_board_info", "product_name")
        or first.text("get_gpu_asic_info", "market_name")
        or (chip.model if chip else None),
        gfx=gfx if gfx and _GFX.match(gfx) else chip.gfx if chip else None,
        # The number the driver calls unique_id: one per card, the same for every source and release.
        uuid=f"{unique:016x}" if unique else None,
        serial=first.text("get_gpu_board_info", "product_serial") if serials else None,
        vbios=first.text("get_gpu_vbios_info", "part_number"),
        driver=first.text("get_gpu_driver_info", "driver_version"),
        compute_partition=text(first.answers["get_gpu_compute_partition"]),
        memory_partition=text(first.answers["get_gpu_memory_partition"]),
        # For partitions the library counts differently from release to release; KFD knows.
        compute_units=(n.number("get_gpu_asic_info", "num_compute_units") or None) if alone else None,
        xccs=_xccs(first.answers["get_gpu_xcd_counter"]) if alone else None,
        kfd_gpu_id=n.number("get_gpu_kfd_info", "kfd_id") or None,
        indices={name: value for name, value in indices.items() if value is not None},
    )


def _chip(n: _Named) -> Chip | None:
    ident = n.text("get_gpu_asic_info", "device_id")
    number = sysfs_text.hexadecimal(ident.encode()) if ident else None
    revision = n.text("get_gpu_asic_info", "rev_id")
    return (
        by_device_id(number, sysfs_text.hexadecimal(revision.encode()) if revision else None)
        if number
        else None
    )


def _integrated(members: list[_Named]) -> bool:
    chip = _chip(members[0])
    return chip is not None and chip.integrated


def _xccs(count: Raw) -> int | None:
    return count if type(count) is int and 0 < count <= 64 else None


def field(answer: Raw, key: str) -> Raw:
    return answer.get(key) if isinstance(answer, Mapping) else None


def text(value: Raw) -> str | None:
    """A text that says something: not empty, not "N/A", no Reason, of bounded length."""
    if not isinstance(value, str) or isinstance(value, Reason):
        return None
    cleaned = " ".join(value.split())[:_TEXT_MAX]
    return None if cleaned.upper() in ("", "N/A") or not cleaned.isprintable() else cleaned
