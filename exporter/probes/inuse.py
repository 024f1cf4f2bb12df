"""Whether the GPUs are free for a measurement: processes with queues or memory there, and the busy share."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.host import Root
from exporter.model import Device
from exporter.windows import lookout
from exporter.windows.seen import Seen

_BUSY_MOST = 10  # percent: a display or a look at the GPU makes a few


def users(sysfs: Root, devices: Sequence[Device], seen: Sequence[Seen]) -> list[str]:
    """Each GPU that is in use, in words; empty where all are free."""
    holders = lookout.holders(sysfs)
    found = []
    for device in devices:
        names = sorted(f"{one.name} ({one.pid})" for one in seen if device.kfd_gpu_id in one.gpus)
        count = holders.get(device.kfd_gpu_id or -1, 0)
        busy = _busy(sysfs, device)
        if names:
            found.append(f"GPU {device.gpu}: {', '.join(names[:3])}")
        elif count:
            found.append(f"GPU {device.gpu}: {count} processes have queues on it")
        elif busy is not None and busy >= _BUSY_MOST:
            found.append(f"GPU {device.gpu}: {busy} % busy")
    return found


def _busy(sysfs: Root, device: Device) -> int | None:
    card = device.indices.get("drm")
    text = sysfs.text(f"class/drm/card{card}/device/gpu_busy_percent") if card is not None else None
    return int(text) if text and text.isdecimal() else None
