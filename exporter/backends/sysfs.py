"""Backend ``sysfs``: AMD GPUs from the kernel's own files, on a live system or any tree of the same shape.

Needs no library and no rights beyond those of the files; starts no process; writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from exporter.backends.sysfs_cards import DRM, KFD
from exporter.backends.sysfs_gpu import GROUPS, GpuReader
from exporter.backends.sysfs_topology import Part, Socket, discover
from exporter.formats.gpu_metrics import Decoded
from exporter.formats.gpu_metrics_units import partition_busy
from exporter.host import Clock, Root, reason_of
from exporter.model import Device, Raw, RawGroups, Reason

log = logging.getLogger(__name__)


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
        show_integrated: bool = False,
        serials: bool = False,
        clock: Clock | None = None,
        slow_s: float = 60.0,
        ras_s: float = 15.0,
    ) -> None:
        self._root, self._procfs = sysfs, procfs
        self._show_integrated, self._serials = show_integrated, serials
        self._clock = clock or Clock()
        self._slow_s, self._ras_s = slow_s, ras_s
        self._sockets: dict[str, Socket] = {}
        self._readers: dict[str, GpuReader] = {}
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
        out: list[tuple[Device, RawGroups]] = []
        for socket in self._sockets.values():
            groups, decoded = self._read(socket, now)
            out.extend((p.device, _of_part(socket, p, groups, decoded)) for p in socket.parts)
        return out

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
                    else GpuReader(root, socket.path, self._slow_s, self._ras_s)
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
        if groups["busy"]["gfx"] is Reason.GONE:
            self._stale = True
        return groups, decoded


def _of_part(
    socket: Socket, part: Part, groups: Mapping[str, Raw], decoded: Decoded | None
) -> dict[str, Raw]:
    """The groups of one logical device: a partition has its own KFD figures and its own share of busy."""
    out = dict(groups)
    kfd: dict[str, Raw] = {"compute_units": part.device.compute_units}
    if socket.vram_bytes is not None:
        kfd["vram_bytes"] = socket.vram_bytes  # of the socket: the sum over its partitions
    if part.node is not None:
        kfd["partition_vram_bytes"] = part.node.vram_bytes
    out["kfd"] = kfd
    partition = part.device.id.partition
    if partition is None or out.get("busy") is Reason.SUSPENDED or "busy" not in out:
        return out
    # The files and the table's averages speak of the whole card.
    if decoded is None:
        table = out["gpu_metrics"]
        out["busy"] = {"gfx": table if isinstance(table, Reason) else None}
    else:
        out["busy"] = partition_busy(decoded, partition, part.device.xccs)
        out["gpu_metrics"] = {**out["gpu_metrics"], "busy": {}}
    return out
