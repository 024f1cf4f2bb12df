"""Backend ``sysfs``: AMD GPUs from the kernel's own files, on a live system or any tree of the same shape.

Needs no library and no rights beyond those of the files; starts no process; writes nothing.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping

from exporter.backends.sysfs_cards import DRM, KFD
from exporter.backends.sysfs_clients import DrmClients
from exporter.backends.sysfs_firmware import Firmware
from exporter.backends.sysfs_gpu import GROUPS, GpuReader, Wanted
from exporter.backends.sysfs_links import Links
from exporter.backends.sysfs_parts import part_groups
from exporter.backends.sysfs_processes import KfdProcesses
from exporter.backends.sysfs_resets import Resets
from exporter.backends.sysfs_running import BusyTime
from exporter.backends.sysfs_topology import Socket, discover
from exporter.formats.gpu_metrics import Decoded
from exporter.host import Clock, Root, reason_of
from exporter.model import Device, DeviceId, Raw, RawGroups, Reason

log = logging.getLogger(__name__)


def _all(_group: str, *_path: str) -> bool:
    return True


class SysfsBackend:
    """Polls every AMD GPU under a sysfs root.

    The list of GPUs is made anew when cards, KFD nodes or the topology's generation change, when a device
    went away or woke up, and every ``slow_s`` seconds, because a kernel may change more than it tells.
    """

    name = "sysfs"

    def __init__(
        self,
        sysfs: Root,
        procfs: Root,
        *,
        debugfs: Root | None = None,
        logs: Root | None = None,
        show_integrated: bool = False,
        serials: bool = False,
        clock: Clock | None = None,
        slow_s: float = 60.0,
        ras_s: float = 15.0,
        wanted: Wanted = _all,
    ) -> None:
        self._root, self._procfs = sysfs, procfs
        self._show_integrated, self._serials = show_integrated, serials
        self._clock = clock or Clock()
        self._slow_s, self._ras_s = slow_s, ras_s
        self._wanted = wanted
        self._wants = frozenset(
            filter(
                wanted,
                ("busy", "busy_seconds", "dies", "links", "processes", "gpu_metrics", "firmware", "resets"),
            )
        )
        self._sockets: dict[str, Socket] = {}
        self._readers: dict[str, GpuReader] = {}
        self._busy_times: dict[DeviceId, BusyTime] = {}
        self._links = Links(sysfs)
        self._firmware = Firmware(sysfs, debugfs)
        self._resets = Resets(sysfs)
        self._processes = KfdProcesses(
            sysfs, procfs, debugfs, slow_s=slow_s, wanted=lambda leaf: wanted("processes", leaf), logs=logs
        )
        self._clients = DrmClients(procfs, every_s=slow_s, logs=logs)
        self._kfd = self._resolve_kfd()
        self._seen: object = None
        self._due = float("-inf")
        self._stale = True

    def poll(self) -> list[tuple[Device, RawGroups]]:
        """Read every GPU once.

        Shape:  one pair per logical device by ascending PCI address, then partition.
        Absent: a leaf, or a whole group, is a Reason; the groups of a sleeping GPU are all SUSPENDED.
        Errors: none; a tree without GPUs gives an empty list.
        """
        now = self._clock.monotonic()
        self._update(now)
        sockets = self._sockets.values()
        links = self._links.read(self._seen, sockets) if "links" in self._wants else {}
        firmware = self._firmware.read(self._seen, sockets) if "firmware" in self._wants else {}
        resets = self._resets.read(sockets) if "resets" in self._wants else {}
        processes = self._users(now) if "processes" in self._wants else {}
        out: list[tuple[Device, RawGroups]] = []
        for socket in sockets:
            groups, decoded = self._read(socket, now)
            for part in socket.parts:
                own = part_groups(self._root, part, groups, decoded, self._wants)
                if "busy_seconds" in self._wants:
                    own["busy_seconds"] = self._busy_seconds(now, part.device, own, decoded)
                own["links"] = links.get(socket.pci)
                own["firmware"] = firmware.get(socket.pci)
                asleep = groups.get("busy") is Reason.SUSPENDED
                own["resets"] = Reason.SUSPENDED if asleep else resets.get(socket.pci)
                own["processes"] = processes.get(part.device.id)
                out.append((part.device, own))
        return out

    def _users(self, now: float) -> dict[DeviceId, Raw]:
        """Who uses each GPU, from the compute driver, or without one from the graphics driver."""
        parts = [(p.device.id, p.device.kfd_gpu_id) for s in self._sockets.values() for p in s.parts]
        ids = frozenset(gpu for _, gpu in parts if gpu is not None)
        compute = self._processes.read(now, posixpath.dirname(self._kfd), ids)
        if compute is not None:
            return {device: compute.get(gpu) if gpu is not None else None for device, gpu in parts}
        nodes = {
            f"/dev/dri/{name}{index}": socket.pci
            for socket in self._sockets.values()
            for name, key in (("card", "drm"), ("renderD", "render"))
            if (index := socket.parts[0].device.indices.get(key)) is not None
        }
        graphics = self._clients.read(now, nodes)
        return {device: graphics.get(device.pci) for device, _ in parts if not device.partition}

    def _busy_seconds(
        self, now: float, device: Device, groups: Mapping[str, Raw], decoded: Decoded | None
    ) -> Raw:
        time = self._busy_times.setdefault(device.id, BusyTime())
        if decoded is None:
            table = groups.get("gpu_metrics")
            if table is Reason.SUSPENDED:
                time.pause()
            return table if isinstance(table, Reason) else None
        return time.take(now, decoded, device.id.partition, device.xccs)

    def _update(self, now: float) -> None:
        root = self._root
        seen = self._look()
        if seen == self._seen and now < self._due and not self._stale:
            return
        try:
            self._kfd = root.resolve(KFD)
        except OSError:
            self._kfd = self._resolve_kfd()
        self._seen, self._due, self._stale = self._look(), now + self._slow_s, False
        found = discover(
            root, show_integrated=self._show_integrated, serials=self._serials, known=self._sockets
        )
        self._sockets = {socket.pci: socket for socket in found}
        old, self._readers = self._readers, {}
        for socket in found:
            if socket.path is not None:
                self._readers[socket.pci] = (
                    reader
                    if (reader := old.get(socket.pci)) and reader.path == socket.path
                    else GpuReader(root, socket.path, self._slow_s, self._ras_s, self._wanted)
                )

    def _resolve_kfd(self) -> str:
        try:
            return self._root.resolve(KFD)
        except OSError:
            return KFD

    def _look(self) -> object:
        """What changes when GPUs come, go or are partitioned anew."""
        root = self._root
        return (
            root.listdir(DRM),
            root.listdir(f"{self._kfd}/nodes"),
            root.text(f"{self._kfd}/generation_id"),
        )

    def _read(self, socket: Socket, now: float) -> tuple[Mapping[str, Raw], Decoded | None]:
        reader = self._readers.get(socket.pci)
        if reader is None:
            return {}, None
        try:
            if reader.asleep():
                return dict.fromkeys(GROUPS, Reason.SUSPENDED), None
            if not socket.identified:
                self._stale = True  # it woke up: its identity can be read at the next poll
            groups, decoded = reader.read(now)
        except OSError as e:
            self._stale = True
            reason = reason_of(e)
            # The folder of a device that is there can be read.
            return dict.fromkeys(GROUPS, Reason.GONE if reason is Reason.UNSUPPORTED else reason), None
        if groups["busy"].get("gfx") is Reason.GONE:
            self._stale = True
        return groups, decoded
