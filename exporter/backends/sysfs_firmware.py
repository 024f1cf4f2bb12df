"""Firmware versions of a GPU: what the driver loaded, kept in memory by it and read once.

The files of ``fw_version`` cost nothing and wake nobody. Where a kernel has none, debugfs lists the same to
root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from exporter.backends.sysfs_topology import Socket
from exporter.formats import sysfs_text
from exporter.host import Root, reason_of
from exporter.model import Raw, Reason

_FILE = re.compile(r"([a-z0-9_]{1,32})_fw_version\Z")
_SMALL, _LISTING = 64, 16384


class Firmware:
    """Versions by socket; read anew only when the list of sockets or the topology changes."""

    def __init__(self, root: Root, debugfs: Root | None) -> None:
        self._root, self._debugfs = root, debugfs
        self._key: object = None
        self._groups: dict[str, Raw] = {}

    def read(self, generation: object, sockets: Iterable[Socket]) -> Mapping[str, Raw]:
        """A group for each PCI address: version {block: {version: 1}}, or why there is none."""
        sockets = tuple(sockets)
        key = generation, [(s.pci, s.path, s.identified) for s in sockets]
        if key != self._key:
            self._groups = {s.pci: self._of(s) for s in sockets if s.path is not None}
            self._key = key
        return self._groups

    def _of(self, socket: Socket) -> Raw:
        if not socket.identified:
            return Reason.SUSPENDED
        folder = f"{socket.path}/fw_version"
        found: dict[str, str | Reason] = {}
        for name in self._root.listdir(folder):
            if match := _FILE.match(name):
                try:
                    version = sysfs_text.firmware_version(self._root.read(f"{folder}/{name}", _SMALL))
                except OSError as e:
                    version = reason_of(e)
                if version is not None:
                    found[match[1]] = version
        found = found or self._listed(socket)
        if not found:
            return Reason.UNSUPPORTED
        # A version that cannot be told is missing of its block.
        return {"version": {b: {"": v} if isinstance(v, Reason) else {v: 1} for b, v in found.items()}}

    def _listed(self, socket: Socket) -> dict[str, str | Reason]:
        """The same from debugfs, whose folders bear the card's number or its address."""
        card = socket.parts[0].device.indices.get("drm")
        for name in (socket.pci, str(card)) if self._debugfs is not None else ():
            try:
                data = self._debugfs.read(f"dri/{name}/amdgpu_firmware_info", _LISTING)  # type: ignore[union-attr]
            except OSError:
                continue
            return dict(sysfs_text.firmware_listing(data))
        return {}
