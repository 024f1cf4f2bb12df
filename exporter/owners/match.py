"""From the names that others give GPUs to ours, and from all that was heard to one list of holders. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from exporter.model import Device, DeviceId, Owner

HOLDERS_MAX = 32  # of one GPU; more are a fault of whoever lists them

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z")
_XCP = re.compile(r"amdgpu_xcp[_.](\d{1,6})\Z")
_DRA = re.compile(r"gpu-(\d{1,6})-(\d{1,6})\Z")  # card and render minor, as the claim driver names devices
_PLACE = re.compile(r"(\d{1,4})(?:\.(\d{1,4}))?\Z")  # GPU, or GPU.partition, as job files are called


class Names:
    """Finds a GPU by a name of any of the known forms, in any case."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._pci: dict[str, DeviceId] = {}
        self._xcp: dict[int, DeviceId] = {}
        self._render: dict[int, DeviceId] = {}
        self._uuid: dict[str, DeviceId] = {}
        self._place: dict[tuple[int, int], DeviceId] = {}
        self._sockets: dict[int, list[DeviceId]] = {}
        for device in devices:
            key, index = device.id, device.indices
            if not key.partition:
                # A socket's own address stands for its first partition: the others have names of their own.
                self._pci[key.pci] = key
                if device.uuid:
                    self._uuid[device.uuid] = key
            if (number := index.get("xcp")) is not None:
                self._xcp[number] = key
            if (minor := index.get("render")) is not None:
                self._render[minor] = key
            self._place[device.gpu, key.partition or 0] = key
            self._sockets.setdefault(device.gpu, []).append(key)

    def device(self, name: str) -> DeviceId | None:
        """By PCI address, ``amdgpu_xcp_N``, ``gpu-CARD-RENDER`` or unique id; None for what is not ours."""
        text = name.strip().lower()
        if found := _PCI.match(text):
            return self._pci.get(f"{(found[1] or '0000')[-4:]}:{found[2]}")
        if found := _XCP.match(text):
            return self._xcp.get(int(found[1]))
        if found := _DRA.match(text):
            return self._render.get(int(found[2]))
        return self._uuid.get(text.removeprefix("0x"))

    def place(self, name: str) -> tuple[DeviceId, ...]:
        """By the name of a job file: ``3`` is all of GPU 3, ``3.1`` its partition 1; else as ``device``."""
        if found := _PLACE.match(name):
            if found[2] is None:
                return tuple(self._sockets.get(int(found[1]), ()))
            one = self._place.get((int(found[1]), int(found[2])))
            return (one,) if one else ()
        one = self.device(name)
        return (one,) if one else ()


def holders(
    listed: Iterable[tuple[DeviceId, Owner]], running: Iterable[tuple[DeviceId, Owner]]
) -> Mapping[DeviceId, tuple[Owner, ...]]:
    """Every holder of each GPU, once.

    ``listed`` is what schedulers say, ``running`` whose processes were seen. Seen is no other holder than
    listed where both are the same workload: a pod whose process cannot be told by name, a job of one number.
    """
    found: dict[DeviceId, dict[Owner, None]] = {}
    for device, owner in listed:
        found.setdefault(device, {})[owner] = None
    for device, owner in running:
        mine = found.setdefault(device, {})
        if owner.kind == "pod" and not owner.pod and any(o.kind == "pod" for o in mine):
            continue
        if owner.job_id:
            # The control group knows the user too.
            for same in [o for o in mine if o.kind == "job" and o.job_id == owner.job_id]:
                del mine[same]
        mine[owner] = None
    return {device: tuple(sorted(owners))[:HOLDERS_MAX] for device, owners in found.items() if owners}
