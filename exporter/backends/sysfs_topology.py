"""Which AMD GPUs a tree shows: DRM cards and KFD nodes joined by PCI address, partitions named.

Reads identity only, and nothing that wakes a sleeping GPU. Measures nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exporter.backends.sysfs_cards import DRM, Card, Node, Secondary, asleep, cards, nodes
from exporter.catalogue.chips import Chip, by_device_id
from exporter.formats import sysfs_text
from exporter.host import Root
from exporter.model import Device, DeviceId, Raw

log = logging.getLogger(__name__)

_VGA, _ACCELERATOR, _DISPLAY = 0x0300, 0x1200, 0x0380
_PARTITIONED_MODES = frozenset({"DPX", "TPX", "QPX", "CPX"})
_LONGEST = 128
_PARTITIONABLE = frozenset({"gfx942", "gfx950"})


@dataclass(frozen=True, slots=True)
class Part:
    """One logical device of a socket, what KFD says of it, and the folder of its own DRM card."""

    device: Device
    node: Node | None
    path: str | None = None
    kfd: Mapping[str, Raw] = field(default_factory=dict)  # the raw group: stays the same object


@dataclass(frozen=True, slots=True)
class Socket:
    """One PCI function; ``path`` is None where only KFD shows it."""

    pci: str
    path: str | None
    parts: tuple[Part, ...]
    identified: bool  # False while asleep: identity that needs the GPU was not read

    @property
    def partitioned(self) -> bool:
        return self.parts[0].device.id.partition is not None


@dataclass(slots=True)
class _Draft:
    """A socket under construction."""

    pci: str
    card: Card | None = None
    nodes: dict[int | None, Node] = field(default_factory=dict)

    @property
    def chip(self) -> Chip | None:
        ident = self.card.device_id if self.card else None
        if ident is None and self.nodes:
            ident = next(iter(self.nodes.values())).get("device_id")
        return by_device_id(ident, self.card.revision if self.card else None) if ident else None

    @property
    def family(self) -> int | None:
        """Upper two bytes of the PCI class."""
        code = self.card.pci_class if self.card else None
        return None if code is None else code >> 8


def discover(
    root: Root,
    *,
    show_integrated: bool = False,
    serials: bool = False,
    known: Mapping[str, Socket] | None = None,
) -> list[Socket]:
    """Every AMD GPU to be listed, by ascending PCI address.

    ``known`` keeps what was read of a GPU that sleeps now. A GPU inside a CPU is left out while the node has
    another, unless ``show_integrated``. So is one that only KFD still shows where cards are shown too: the
    driver takes the card away first and forgets the node when the last process lets go of it.
    """
    found, secondary = cards(root)
    all_nodes = nodes(root)
    drafts = {card.pci: _Draft(card.pci, card) for card in found}
    kept = _join(all_nodes, drafts)
    hip = {node.number: n for n, node in enumerate(kept)}
    if root.exists(DRM):
        for draft in [draft for draft in drafts.values() if draft.card is None]:
            log.warning(
                "pci=%s event=gone detail=the driver has let go of this GPU and KFD still lists it, as a "
                "process holds it; see fuser -v /dev/kfd",
                draft.pci,
            )
            del drafts[draft.pci]
    order = sorted(drafts.values(), key=lambda d: sysfs_text.pci_order(d.pci))
    smi: dict[DeviceId, int] = {}
    for draft in order:
        for partition in sorted(draft.nodes, key=lambda p: -1 if p is None else p) or [None]:
            smi[DeviceId(draft.pci, partition)] = len(smi)
    listed = order if show_integrated else _without_integrated(order)
    driver = root.text("module/amdgpu/version")
    return [
        _Assembly(root, gpu, draft, driver, hip, smi, secondary, serials).socket((known or {}).get(draft.pci))
        for gpu, draft in enumerate(listed)
    ]


def _join(all_nodes: Iterable[Node], drafts: dict[str, _Draft]) -> list[Node]:
    """Give each node its socket and partition; returns the nodes that were taken."""
    slots: dict[tuple[int, int, int], list[Node]] = {}
    for node in all_nodes:
        slots.setdefault(node.slot, []).append(node)
    real = set(drafts)
    taken: list[Node] = []
    for members in slots.values():
        for node in members:
            pci, partition = _place(node, members, real)
            draft = drafts.setdefault(pci, _Draft(pci))
            other = draft.nodes.get(partition) or draft.nodes.get(None)
            if other is None and partition is None and draft.nodes:
                other = next(iter(draft.nodes.values()))
            if other is not None:
                log.warning(
                    "pci=%s event=conflict detail=KFD nodes %d and %d claim one address; node %d is left out",
                    pci,
                    other.number,
                    node.number,
                    node.number,
                )
                continue
            draft.nodes[partition] = node
            taken.append(node)
    return sorted(taken, key=lambda n: n.number)


def _place(node: Node, members: list[Node], real: set[str]) -> tuple[str, int | None]:
    """PCI address and partition: the partition stands in bits 31-28, on other drivers in the function's."""
    if any(m.high for m in members):
        return node.pci(node.function), node.high
    same = [m for m in members if m.unique_id == node.unique_id]
    split = len({m.function for m in same}) > 1
    of_one_card = node.unique_id != 0 or node.gfx in _PARTITIONABLE
    existing = any(m.function and m.pci(m.function) in real for m in same)
    if of_one_card and not existing and (split or (node.function and node.gfx in _PARTITIONABLE)):
        return node.pci(0), node.function
    return node.pci(node.function), None


def _without_integrated(order: list[_Draft]) -> list[_Draft]:
    accelerator = any(d.family in (_ACCELERATOR, _DISPLAY) for d in order)

    def integrated(draft: _Draft) -> bool:
        chip = draft.chip
        return chip.integrated if chip else accelerator and draft.family == _VGA

    real = [draft for draft in order if not integrated(draft)]
    return real or order


@dataclass(frozen=True, slots=True)
class _Assembly:
    """Turns one draft into a Socket with its Devices."""

    root: Root
    gpu: int
    draft: _Draft
    driver: str | None
    hip: Mapping[int, int]
    smi: Mapping[DeviceId, int]
    secondary: Mapping[int, Secondary]
    serials: bool

    def socket(self, known: Socket | None) -> Socket:
        card = self.draft.card
        sleeps = card is not None and asleep(self.root, card.path)
        nodes = dict(self.draft.nodes)
        read = _remembered(known).get if sleeps or card is None else self._text
        mode = read("current_compute_partition")
        if list(nodes) in ([None], []) and mode in _PARTITIONED_MODES:
            # Only the first partition is visible here (a container); it still is a partition.
            nodes = {0: nodes[None]} if nodes else {}
        texts = {name: read(name) for name in ("vbios_version", "product_name", "current_memory_partition")}
        uuid = _uuid(read("unique_id"), nodes.values())
        serial = read("serial_number") if self.serials else None
        parts, vram = [], self._vram(nodes)
        for partition in sorted(nodes, key=lambda p: -1 if p is None else p) or [
            0 if mode in _PARTITIONED_MODES else None
        ]:
            node = nodes.get(partition)
            device = Device(
                id=DeviceId(self.draft.pci, partition),
                gpu=self.gpu,
                model=texts["product_name"] or (self.draft.chip.model if self.draft.chip else None),
                gfx=(node.gfx if node else None) or (self.draft.chip.gfx if self.draft.chip else None),
                uuid=uuid,
                serial=serial,
                vbios=texts["vbios_version"],
                driver=self.driver,
                compute_partition=mode,
                memory_partition=texts["current_memory_partition"],
                compute_units=self._compute_units(node, partition),
                xccs=node.get("num_xcc") if node else None,
                kfd_gpu_id=node.gpu_id if node else None,
                indices=self._indices(partition, node),
            )
            kfd: dict[str, Raw] = {"compute_units": device.compute_units}
            if vram is not None:
                kfd["vram_bytes"] = vram  # of the socket: the sum over its partitions
            parts.append(Part(device, node, self._path(partition, device), kfd))
        return Socket(self.draft.pci, card.path if card else None, tuple(parts), not sleeps)

    def _compute_units(self, node: Node | None, partition: int | None) -> int | None:
        if node is not None:
            return node.compute_units
        return self.draft.chip.compute_units if partition is None and self.draft.chip else None

    def _vram(self, nodes: Mapping[int | None, Node]) -> int | None:
        # Inside a CPU the bank is system memory, which is no video memory.
        banks = [n.vram_bytes for n in nodes.values()]
        if (self.draft.chip and self.draft.chip.integrated) or not banks:
            return None
        sizes = [b for b in banks if b is not None]
        return sum(sizes) if len(sizes) == len(banks) else None

    def _indices(self, partition: int | None, node: Node | None) -> dict[str, int]:
        card = self.draft.card
        render = node.get("drm_render_minor") if node else None
        if not partition and card is not None and card.render is not None:
            render = card.render
        other = self.secondary.get(render or -1)
        drm = card.index if card is not None and not partition else other.index if other else None
        smi = self.smi.get(DeviceId(self.draft.pci, partition), self.smi.get(DeviceId(self.draft.pci)))
        values = {
            "drm": drm,
            "render": render or None,
            "kfd": node.number if node else None,
            "hip": self.hip.get(node.number) if node else None,
            "amdsmi": smi,
            "xcp": other.number if other and partition else None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def _path(self, partition: int | None, device: Device) -> str | None:
        if not partition:
            return self.draft.card.path if self.draft.card else None
        other = self.secondary.get(device.indices.get("render", -1))
        return other.path if other else None

    def _text(self, name: str) -> str | None:
        text = self.root.text(f"{self.draft.card.path}/{name}") if self.draft.card else None
        # These become label values, which a nonsense file may not blow up.
        good = text is not None and len(text) <= _LONGEST and text.isprintable() and "\ufffd" not in text
        return text if good else None


def _remembered(known: Socket | None) -> dict[str, str | None]:
    """The files' texts of a GPU that sleeps now, from when it was awake."""
    if known is None:
        return {}
    device = known.parts[0].device
    return {
        "unique_id": device.uuid,
        "product_name": device.model,
        "serial_number": device.serial,
        "vbios_version": device.vbios,
        "current_compute_partition": device.compute_partition,
        "current_memory_partition": device.memory_partition,
    }


def _uuid(unique_id: str | None, nodes: Iterable[Node]) -> str | None:
    """16 hex digits, as the driver writes ``unique_id``; KFD has the same number in decimal."""
    number = sysfs_text.hexadecimal(unique_id.encode()) if unique_id else None
    if not number:
        number = next((n.unique_id for n in nodes if n.unique_id), None)
    return f"{number:016x}" if number else None
