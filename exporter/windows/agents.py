"""Which device a profiler means by "Agent 4", "GPU 2", a bare 4, or a KFD gpu_id. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from exporter.catalogue.chips import by_device_id, by_gfx
from exporter.formats.trace import Agent, whole
from exporter.model import DeviceId
from exporter.windows.density import Shape

_ABSOLUTE = re.compile(r"(?:Agent )?(\d+)")
_RELATIVE = re.compile(r"GPU (\d+)")
_PCI = re.compile(r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?:/(\d+))?", re.IGNORECASE)
# Chips that come as one die per device; the others may have up to eight, which only the tool can say.
_ONE_DIE = frozenset({"gfx906", "gfx908", "gfx90a"})


def device_of(text: str) -> DeviceId | None:
    """A device from ``0000:c1:00.0``, with ``/3`` for its third partition."""
    found = _PCI.fullmatch(text.strip())
    if found is None:
        return None
    return DeviceId(found[1].lower(), None if found[2] is None else int(found[2]))


def label(device: DeviceId) -> str:
    return device.pci if device.partition is None else f"{device.pci}/{device.partition}"


class Agents:
    """The agents of one process or folder; ``named`` (from a manifest) goes first."""

    def __init__(self, agents: Iterable[Agent], named: Mapping[str, DeviceId] | None = None) -> None:
        rows = list(dict.fromkeys(agents))
        self._named = dict(named or {})
        self._gpus = sorted((a for a in rows if a.is_gpu and a.node >= 0), key=lambda a: a.node)
        self._alone = [a for a in rows if a.node < 0]

    def find(self, text: str, tool: str) -> Agent | None:
        """The agent a file names. rocprofv2 writes KFD gpu_ids, never indexes."""
        if tool in ("rocprofv3", "device_counting"):
            absolute, relative = _ABSOLUTE.fullmatch(text), _RELATIVE.fullmatch(text)
            if absolute:
                return _only(a for a in self._gpus if a.node == whole(absolute[1]))
            if relative:
                at = whole(relative[1])
                return self._gpus[at] if at is not None and at < len(self._gpus) else None
        if tool == "rocprofv2" and (gpu_id := whole(text)) is not None:
            return _only(a for a in self._gpus if a.gpu_id == gpu_id)
        if tool == "rocprof-compute" or (self._alone and not self._gpus):
            return _only(self._alone)
        return None

    def device(self, text: str, tool: str) -> DeviceId | None:
        if text in self._named:
            return self._named[text]
        agent = self.find(text, tool)
        if agent is None or agent.pci is None:
            return None
        same = [a for a in self._gpus if a.pci == agent.pci]
        return DeviceId(agent.pci, same.index(agent) if len(same) > 1 else None)

    def shape(self, text: str, tool: str) -> Shape:
        """What counters are divided by; the tool's own figures before the chip table's."""
        agent = self.find(text, tool)
        if agent is None:
            return Shape()
        chip = by_device_id(agent.device_id) if agent.device_id > 0 else None
        gfx = agent.gfx or (chip.gfx if chip else None)
        family = by_gfx(gfx) if gfx else None
        units = agent.compute_units or (chip.compute_units if chip else None)
        xccs = agent.xccs or (1 if gfx in _ONE_DIE else None)
        return Shape(units, xccs, family.issue_peak if family else None)


def _only(found: Iterable[Agent]) -> Agent | None:
    rows: Sequence[Agent] = list(found)
    return rows[0] if len(rows) == 1 else None
