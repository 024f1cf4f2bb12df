"""What the processes on the GPUs mean for a window, and which of them may be attached to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from exporter.model import Device
from exporter.windows.policy import Facts, SkipReason
from exporter.windows.seen import Seen

_KEPT = 500

Key = tuple[int, int]  # number and start time: one process, not its successor


class Targets:
    """Remembers which processes were profiled by us, and which cannot be."""

    def __init__(self) -> None:
        self._turn = 0
        self._used: dict[Key, int] = {}
        self._aside: dict[Key, None] = {}

    def facts(
        self,
        node: Facts,
        seen: Sequence[Seen],
        preset: str,
        allow: Sequence[str],
        devices: Sequence[Device],
    ) -> tuple[Facts, Seen | None]:
        """The node's facts with its processes, and the process to attach to where that is the preset."""
        ids = {d.kfd_gpu_id: d.id for d in devices if d.kfd_gpu_id is not None}
        youngest: dict[object, float] = {}
        collective: set[object] = set()
        for one in seen:
            on = [ids[gpu] for gpu in one.gpus if gpu in ids]
            collective.update(on if one.collectives else ())
            if one.age_s is not None:
                youngest |= {gpu: min(one.age_s, youngest.get(gpu, one.age_s)) for gpu in on}
        gpus = tuple(replace(g, youngest_process_s=youngest.get(g.device)) for g in node.gpus)
        others = [one for one in seen if one.profiler and _key(one) not in self._used]
        facts = replace(
            node,
            gpus=gpus,
            collective_gpus=len(collective),
            other_profiler=f"a profiler in process {others[0].pid} ({others[0].name})" if others else None,
        )
        if preset != "attach":
            return facts, None
        target, obstacle = self._choose(seen, allow)
        if target is None:
            return replace(facts, opted_in=obstacle is not None, obstacle=obstacle), None
        mine = {ids[gpu] for gpu in target.gpus if gpu in ids}
        return replace(facts, gpus=tuple(g for g in gpus if g.device in mine)), target

    def _choose(
        self, seen: Sequence[Seen], allow: Sequence[str]
    ) -> tuple[Seen | None, tuple[SkipReason, str] | None]:
        listed = [one for one in seen if one.gpus and any(fnmatchcase(one.name, name) for name in allow)]
        fit = [one for one in listed if not _fault(one) and _key(one) not in self._aside]
        if fit:
            return min(fit, key=lambda one: (self._used.get(_key(one), 0), one.pid)), None
        if not listed:
            return None, None
        first = listed[0]
        why = _fault(first) or "a window of it failed, and it is left alone from now on"
        return None, (SkipReason.NOT_ATTACHABLE, f"process {first.pid} ({first.name}): {why}")

    def is_new(self, target: Seen) -> bool:
        """Whether it was never profiled by us: its next window is the one of its warm-up."""
        return _key(target) not in self._used

    def used(self, target: Seen) -> None:
        """A window of it begins; the others come first now."""
        self._turn += 1
        self._used[_key(target)] = self._turn
        while len(self._used) > _KEPT:
            del self._used[min(self._used, key=self._used.__getitem__)]

    def set_aside(self, target: Seen) -> None:
        """It cannot be attached to; it is left alone for as long as it lives."""
        self._aside[_key(target)] = None
        while len(self._aside) > _KEPT:
            del self._aside[next(iter(self._aside))]

    def dump(self) -> dict[str, Any]:
        """What outlives a restart, as JSON values."""
        return {
            "used": [[*key, turn] for key, turn in self._used.items()],
            "aside": [*map(list, self._aside)],
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on where ``dump`` left off. Raises KeyError, ValueError or TypeError for anything else."""
        used = {(int(pid), int(start)): int(turn) for pid, start, turn in kept["used"][-_KEPT:]}
        aside = {(int(pid), int(start)): None for pid, start in kept["aside"][-_KEPT:]}
        self._used, self._aside = used, aside
        self._turn = max(used.values(), default=0)


def _key(one: Seen) -> Key:
    return one.pid, one.start


def _fault(one: Seen) -> str | None:
    if not one.prepared:
        return "was not started with ROCP_TOOL_ATTACH=1 (it has no thread rocp-bg-attach)"
    if one.same_mounts is False:
        return "sees other files than the exporter, so that its results cannot be read"
    return None
