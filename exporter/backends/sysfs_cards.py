"""The two lists a tree has of its GPUs: DRM cards and nodes of the KFD topology, each as it stands.

Reads only what the kernel keeps in memory, so that a sleeping GPU sleeps on.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from exporter.catalogue.chips import gfx_name
from exporter.formats import sysfs_text
from exporter.host import Root

AMD = 0x1002
DRM = "class/drm"
KFD = "class/kfd/kfd/topology"

_CARD = re.compile(r"card(\d+)\Z")
_RENDER = re.compile(r"renderD(\d+)\Z")
_ASLEEP = frozenset({"suspended", "suspending"})


@dataclass(frozen=True, slots=True)
class Card:
    """One DRM card on a PCI function."""

    index: int
    path: str  # of the PCI device, links resolved
    pci: str
    device_id: int | None
    revision: int | None
    pci_class: int | None
    render: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """One GPU node of the KFD topology."""

    number: int
    properties: Mapping[str, int]
    gpu_id: int | None
    vram_bytes: int | None

    def get(self, name: str) -> int | None:
        return self.properties.get(name)

    @property
    def slot(self) -> tuple[int, int, int]:
        """Domain, bus, device; the function's bits may hold a partition instead."""
        location = self.properties.get("location_id", 0)
        return self.properties.get("domain", 0), location >> 8 & 0xFF, location >> 3 & 0x1F

    @property
    def function(self) -> int:
        return self.properties.get("location_id", 0) & 7

    @property
    def high(self) -> int:
        return self.properties.get("location_id", 0) >> 28 & 0xF

    def pci(self, function: int) -> str:
        domain, bus, device = self.slot
        return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"

    @property
    def unique_id(self) -> int:
        return self.properties.get("unique_id", 0)

    @property
    def gfx(self) -> str | None:
        return gfx_name(self.properties.get("gfx_target_version", 0))

    @property
    def compute_units(self) -> int | None:
        simds, per_unit = self.properties.get("simd_count"), self.properties.get("simd_per_cu")
        return simds // per_unit if simds and per_unit else None


def asleep(root: Root, path: str) -> bool:
    """Whether the kernel has suspended the GPU; asking does not wake it."""
    return root.text(f"{path}/power/runtime_status") in _ASLEEP


@dataclass(frozen=True, slots=True)
class Secondary:
    """The DRM card of a partition beyond the first: its number, and its device's folder and number."""

    index: int
    path: str
    number: int | None


def cards(root: Root) -> tuple[list[Card], dict[int, Secondary]]:
    """AMD cards by number, and those of partitions beyond the first by render minor."""
    found: list[Card] = []
    secondary: dict[int, Secondary] = {}
    for name in root.listdir(DRM):
        match = _CARD.match(name)
        if not match:
            continue
        try:
            path = root.resolve(f"{DRM}/{name}/device")
        except OSError:
            continue
        index, render = int(match[1]), _render(root, path)
        base = posixpath.basename(path)
        if base.startswith("amdgpu_xcp"):
            if render is not None:
                number = base[len("amdgpu_xcp") + 1 :]
                secondary[render] = Secondary(index, path, int(number) if number.isdecimal() else None)
        elif card := _card(root, path, index, render):
            found.append(card)
    return sorted(found, key=lambda c: c.index), secondary


def _render(root: Root, path: str) -> int | None:
    minors = [int(m[1]) for n in root.listdir(f"{path}/drm") if (m := _RENDER.match(n))]
    return min(minors, default=None)


def _card(root: Root, path: str, index: int, render: int | None) -> Card | None:
    # All of these the kernel keeps in memory: they do not wake a sleeping GPU.
    events = sysfs_text.uevent(_bytes(root, f"{path}/uevent"))
    vendor, _, device = events.get("PCI_ID", "").partition(":")
    vendor_id = _hex(root, f"{path}/vendor")
    if (vendor_id if vendor_id is not None else sysfs_text.hexadecimal(vendor.encode())) != AMD:
        return None
    pci = sysfs_text.pci_address(posixpath.basename(path)) or sysfs_text.pci_address(
        events.get("PCI_SLOT_NAME", "")
    )
    if pci is None:
        return None
    device_id = _hex(root, f"{path}/device")
    return Card(
        index=index,
        path=path,
        pci=pci,
        device_id=device_id if device_id is not None else sysfs_text.hexadecimal(device.encode()),
        revision=_hex(root, f"{path}/revision"),
        pci_class=_hex(root, f"{path}/class"),
        render=render,
    )


def nodes(root: Root) -> list[Node]:
    """GPU nodes of AMD by number; a node this container may not see is left out."""
    base = root.resolve(f"{KFD}/nodes")
    out = []
    for name in sorted((n for n in root.listdir(base) if n.isdecimal()), key=int):
        properties = sysfs_text.properties(_bytes(root, f"{base}/{name}/properties"))
        # Trees of old kernels and cut-down ones lack some of these; a CPU node has no location.
        gpu = properties.get("simd_count", properties.get("location_id", 0))
        if gpu > 0 and properties.get("vendor_id", AMD) == AMD:
            gpu_id = sysfs_text.integer(_bytes(root, f"{base}/{name}/gpu_id"))
            out.append(
                Node(
                    int(name),
                    properties,
                    gpu_id if isinstance(gpu_id, int) and gpu_id else None,
                    _vram(root, f"{base}/{name}", properties),
                )
            )
    return out


def _vram(root: Root, node: str, properties: Mapping[str, int]) -> int | None:
    total = properties.get("local_mem_size", 0)
    banks = 0
    for bank in root.listdir(f"{node}/mem_banks"):
        p = sysfs_text.properties(_bytes(root, f"{node}/mem_banks/{bank}/properties"))
        if p.get("heap_type") in (1, 2):
            banks += p.get("size_in_bytes", 0)
    return banks or total or None


def _bytes(root: Root, rel: str) -> bytes:
    try:
        return root.read(rel)
    except OSError:
        return b""


def _hex(root: Root, rel: str) -> int | None:
    return sysfs_text.hexadecimal(_bytes(root, rel))
