"""Resets of a GPU, by the core dumps the driver leaves when it resets one or a queue of it.

Only the names of dumps are looked at, never their data: reading that takes long and may remove it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exporter.backends.sysfs_topology import Socket
from exporter.host import Root
from exporter.model import Raw, Reason

_CLASS = "class/devcoredump"


class Resets:
    """Counts dumps as they appear; those that lie there at the first look are of an earlier time."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._seen: frozenset[str] | None = None
        self._counts: dict[str, int] = {}

    def read(self, sockets: Iterable[Socket]) -> Mapping[str, Raw]:
        """A group for each PCI address; a Reason where the kernel makes no dumps or was told not to."""
        sockets = [s for s in sockets if s.path is not None]
        if self._root.text(f"{_CLASS}/disabled") != "0":
            return dict.fromkeys((s.pci for s in sockets), Reason.UNSUPPORTED)
        names = frozenset(n for n in self._root.listdir(_CLASS) if n.startswith("devcd"))
        fresh = names - self._seen if self._seen is not None else ()
        self._seen = names
        owner = {s.path: s.pci for s in sockets}
        for name in fresh:
            try:
                pci = owner.get(self._root.resolve(f"{_CLASS}/{name}/failing_device"))
            except OSError:  # removed meanwhile
                continue
            if pci is not None:
                self._counts[pci] = self._counts.get(pci, 0) + 1
        return {s.pci: {"count": self._counts.get(s.pci, 0)} for s in sockets}
