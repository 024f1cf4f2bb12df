"""Every GPU with all the names it has elsewhere, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exporter.model import Device

_COLUMNS: tuple[tuple[str, str], ...] = (
    ("gpu", "GPU"),
    ("pci", "PCI"),
    ("partition", "PART"),
    ("model", "MODEL"),
    ("gfx", "GFX"),
    ("compute_units", "CUS"),
    ("uuid", "UUID"),
    ("drm_card", "CARD"),
    ("render_minor", "RENDER"),
    ("kfd_node", "KFD"),
    ("kfd_gpu_id", "GPU_ID"),
    ("hip_index", "HIP"),
    ("amdsmi_index", "SMI"),
    ("compute_partition", "MODE"),
    ("memory_partition", "MEMORY"),
    ("vbios", "VBIOS"),
)


def as_json(devices: Sequence[Device]) -> list[dict[str, Any]]:
    """One object per logical device, all keys always there.

    Absent: null. ``serial`` is null unless the backend was told to read serial numbers. ``hip_index`` is the
    order of KFD nodes, which is what HIP uses without HIP_VISIBLE_DEVICES; ``amdsmi_index`` the PCI order.
    """
    return [_row(device) for device in devices]


def _row(device: Device) -> dict[str, Any]:
    index = device.indices
    card, minor = index.get("drm"), index.get("render")
    return {
        "gpu": device.gpu,
        "pci": device.id.pci,
        "partition": device.id.partition,
        "model": device.model,
        "gfx": device.gfx,
        "uuid": device.uuid,
        "serial": device.serial,
        "drm_card": None if card is None else f"card{card}",
        "render_minor": minor,
        "render_node": None if minor is None else f"renderD{minor}",
        "kfd_node": index.get("kfd"),
        "kfd_gpu_id": device.kfd_gpu_id,
        "hip_index": index.get("hip"),
        "amdsmi_index": index.get("amdsmi"),
        "compute_partition": device.compute_partition,
        "memory_partition": device.memory_partition,
        "compute_units": device.compute_units,
        "xccs": device.xccs,
        "vbios": device.vbios,
        "driver": device.driver,
    }


def table(devices: Sequence[Device]) -> str:
    """The same for eyes: a column that is empty for every device is left out, ``-`` is unknown."""
    if not devices:
        return "no AMD GPU"
    rows = as_json(devices)
    shown = [(key, head) for key, head in _COLUMNS if any(row[key] is not None for row in rows)]
    cells = [[head for _, head in shown]]
    cells += [["-" if row[key] is None else str(row[key]) for key, _ in shown] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(shown))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )
