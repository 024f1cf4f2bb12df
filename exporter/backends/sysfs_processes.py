"""Which processes use which GPU, from the compute driver's own list (KFD).

Entries outlive a process now and then, so procfs says who is alive; and only a procfs that shows the whole
host can say it. Process numbers stay in here: what leaves is counted by owner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from exporter.backends.sysfs_owners import Owners, by_owner
from exporter.backends.sysfs_running import Totals
from exporter.formats import proc_text, sysfs_text
from exporter.host import Root, reason_of
from exporter.model import FormatError, Owner, Raw, Reason

log = logging.getLogger(__name__)

Wanted = Callable[[str], bool]

# Some of these make the kernel ask the hardware, so none is read more often than ``slow_s``.
COUNTERS = {
    "evicted_ms": "stats_{}/evicted_ms",
    "sdma_us": "sdma_{}",
    "faults": "counters_{}/faults",
    "pages_in": "counters_{}/page_in",
    "pages_out": "counters_{}/page_out",
}
_TYPES = {0: "compute", 1: "sdma", 4: "sdma_xgmi", 5: "sdma"}
_FILES = 1024  # memory files that are read at every turn; beyond, only those of GPUs in use
_MQDS = 4 << 20
_SMALL = 64


@dataclass(slots=True)
class Process:
    """One living process and what was last seen of it."""

    key: tuple[str, int]  # number and start time
    owner: Owner | Reason
    whole: bool  # began while we watched
    active: set[int] = field(default_factory=set)  # GPU ids where it was seen to hold memory


@dataclass(slots=True)
class Use:
    """What all processes together do on one GPU."""

    holders: set[tuple[str, int]] = field(default_factory=set)
    memory: dict[Owner, int] = field(default_factory=dict)
    queues: dict[str, int] = field(default_factory=dict)
    occupied: int = 0
    faults: dict[str, Reason] = field(default_factory=dict)  # what could not be read, by leaf

    def group(self) -> dict[str, Raw]:
        def leaf(name: str, value: Raw) -> Raw:
            return self.faults.get(name, value)

        return {
            "count": leaf("count", len(self.holders)),
            "memory": leaf("memory", by_owner(self.memory)),
            "queues": leaf("queues", {"compute": 0, "sdma": 0, **self.queues}),
            "occupied": leaf("occupied", self.occupied),
        }


class KfdProcesses:
    """The compute driver's process list, looked at every ``every_s`` seconds, its counters every ``slow_s``.

    ``base`` is the folder ``class/kfd/kfd`` with links resolved. ``debugfs`` serves queues where the
    driver's process folders do not show them.
    """

    def __init__(
        self,
        root: Root,
        procfs: Root,
        debugfs: Root | None = None,
        *,
        every_s: float = 15.0,
        slow_s: float = 60.0,
        wanted: Wanted = lambda _leaf: True,
        logs: Root | None = None,
    ) -> None:
        self._root, self._procfs, self._debugfs = root, procfs, debugfs
        self._owners = Owners(procfs, logs)
        self._every_s, self._slow_s = every_s, slow_s
        self._wanted = wanted
        self._due = self._slow_due = float("-inf")
        self._ids: frozenset[int] = frozenset()
        self._groups: dict[int, Raw] | None = {}
        self._known: dict[tuple[str, int], Process] = {}
        self._watching = False
        self._totals = Totals()
        self._counted: dict[tuple[int, str], Raw] = {}

    def read(self, now: float, base: str, ids: frozenset[int]) -> Mapping[int, Raw] | None:
        """A group for each GPU id: count, memory by owner, queues {type}, occupied, and the counters.

        Absent: a leaf or a whole group is a Reason; None where the driver has no process list.
        """
        if now < self._due and ids == self._ids:
            return self._groups
        self._due, self._ids = now + self._every_s, ids
        slow = now >= self._slow_due
        if slow:
            self._slow_due = now + self._slow_s
        folder = f"{base}/proc"
        try:
            numbers = [n for n in self._root.names(folder) if n.isdecimal()]
        except FileNotFoundError:
            self._groups = None
            return None
        except OSError as e:
            self._groups = dict.fromkeys(ids, reason_of(e))
            return self._groups
        if numbers and (reason := self._blind()):
            self._groups = dict.fromkeys(ids, reason)
            return self._groups
        self._groups = self._look(folder, numbers, ids, slow)
        return self._groups

    def _blind(self) -> Reason | None:
        """Why procfs cannot say who is alive: kernel threads are there on the host's own procfs only."""
        try:
            return None if self._procfs.read("2/comm", _SMALL).strip() == b"kthreadd" else Reason.DENIED
        except OSError:
            return Reason.DENIED

    def _look(self, folder: str, numbers: list[str], ids: frozenset[int], slow: bool) -> dict[int, Raw]:
        self._owners.begin()
        listed = [self._alive(n, slow) for n in numbers]
        alive = [p for p in listed if isinstance(p, Process)]
        everything = slow or len(alive) * len(ids) <= _FILES
        uses = {gpu: Use() for gpu in ids}
        for unknown in (r for r in listed if isinstance(r, Reason)):
            for use in uses.values():
                use.faults |= dict.fromkeys(("count", "memory", "queues", "occupied"), unknown)
        counted: dict[tuple[int, str], Raw] = {}
        for process in alive:
            path = f"{folder}/{process.key[0]}"
            for place in (path, *self._contexts(path)):
                self._use(place, process, uses, everything)
                if slow:
                    self._count(place, process, uses, counted)
        self._known = {p.key: p for p in alive}
        self._watching = True
        if slow:
            self._totals.keep({p.key for p in alive})
            self._counted = counted
        self._from_debugfs(uses, bool(alive))
        return {gpu: {**use.group(), **self._sums(gpu)} for gpu, use in uses.items()}

    def _contexts(self, path: str) -> list[str]:
        """A process may open the driver several times; newer kernels list the others inside the first."""
        return [f"{path}/{n}" for n in self._root.listdir(path) if n.startswith("context_")]

    def _alive(self, number: str, slow: bool) -> Process | Reason | None:
        """The process, None where it has ended, a Reason where nobody can tell."""
        try:
            life = proc_text.life(self._procfs.read(f"{number}/stat", 4096))
        except (FileNotFoundError, ProcessLookupError):
            return None  # the whole host is seen, so what is not there has ended
        except OSError as e:
            return reason_of(e)
        except FormatError:
            return Reason.MALFORMED
        if not life.alive:
            return None
        key = (number, life.start)
        old = self._known.get(key)
        if old and not slow:
            return old
        # A scheduler may put a process into its job's group only after it began.
        try:
            owner = self._owners.of(number)
        except FileNotFoundError:
            return None
        if old:
            old.owner = owner
            return old
        return Process(key, owner, self._watching)

    def _use(self, path: str, process: Process, uses: dict[int, Use], everything: bool) -> None:
        queues = self._queues(path) if self._wanted("queues") or self._wanted("count") else {}
        if isinstance(queues, Reason):
            for use in uses.values():
                # Which GPUs to ask for waves, the queues would have told.
                use.faults |= dict.fromkeys(("queues", "count", "occupied"), queues)
            queues = {}
        for gpu in queues.keys() & uses.keys():
            use = uses[gpu]
            use.holders.add(process.key)
            for kind in queues[gpu]:
                use.queues[kind] = use.queues.get(kind, 0) + 1
            self._occupied(path, gpu, use)
        if not (self._wanted("memory") or self._wanted("count")):
            return
        for gpu, use in uses.items():
            if everything or gpu in queues or gpu in process.active:
                self._memory(path, gpu, process, use)

    def _memory(self, path: str, gpu: int, process: Process, use: Use) -> None:
        value = self._number(f"{path}/vram_{gpu}")
        if value is None:
            return  # this process was never given this GPU, or it has just ended
        if value:
            process.active.add(gpu)
        if isinstance(value, Reason):
            use.faults["memory"] = use.faults["count"] = value
        elif value:
            use.holders.add(process.key)
            if isinstance(process.owner, Reason):
                use.faults["memory"] = process.owner
            else:
                use.memory[process.owner] = use.memory.get(process.owner, 0) + value

    def _occupied(self, path: str, gpu: int, use: Use) -> None:
        if not self._wanted("occupied"):
            return
        value = self._number(f"{path}/stats_{gpu}/cu_occupancy")
        if isinstance(value, int):
            use.occupied += value
        else:
            use.faults["occupied"] = Reason.UNSUPPORTED if value is None else value

    def _queues(self, path: str) -> dict[int, list[str]] | Reason:
        try:
            numbers = self._root.names(f"{path}/queues")
        except FileNotFoundError:
            return {}
        except OSError as e:
            return reason_of(e)
        found: dict[int, list[str]] = {}
        for number in numbers:
            gpu = self._number(f"{path}/queues/{number}/gpuid")
            kind = self._number(f"{path}/queues/{number}/type")
            if gpu is None or kind is None:
                continue  # gone while we looked
            if isinstance(gpu, Reason):
                return gpu
            if isinstance(kind, Reason):
                return kind
            found.setdefault(gpu, []).append(_TYPES.get(kind, "other"))
        return found

    def _count(
        self, path: str, process: Process, uses: Mapping[int, Use], counted: dict[tuple[int, str], Raw]
    ) -> None:
        for gpu, use in uses.items():
            if process.key not in use.holders:
                continue
            for kind, file in COUNTERS.items():
                if not self._wanted(kind):
                    continue
                value = self._number(f"{path}/{file.format(gpu)}")
                if isinstance(value, int):
                    self._totals.add((gpu, kind), process.key, path, value, whole=process.whole)
                else:
                    counted[gpu, kind] = Reason.UNSUPPORTED if value is None else value

    def _sums(self, gpu: int) -> dict[str, Raw]:
        """The running totals, 0 before the first process; a Reason while one process's part is not there."""
        return {kind: self._counted.get((gpu, kind)) or self._totals.get((gpu, kind)) for kind in COUNTERS}

    def _from_debugfs(self, uses: dict[int, Use], any_process: bool) -> None:
        """Queues as debugfs lists them, where the process folders cannot be read."""
        blind = [use for use in uses.values() if "queues" in use.faults]
        if not blind or not any_process or self._debugfs is None:
            return
        try:
            data = self._debugfs.read("kfd/mqds", _MQDS)
        except OSError:
            return
        if len(data) >= _MQDS:
            return  # cut: the rest is unknown
        for use in blind:
            del use.faults["queues"]
            use.queues = {}
        for queue in proc_text.debug_queues(data):
            if (listed := uses.get(queue.gpu_id)) and listed in blind:
                listed.queues[queue.type] = listed.queues.get(queue.type, 0) + 1

    def _number(self, rel: str) -> int | Reason | None:
        """A whole number not below 0; None where the file is not there (any more)."""
        try:
            value = sysfs_text.integer(self._root.read(rel, _SMALL))
        except OSError as e:
            reason = reason_of(e)
            return None if reason in (Reason.UNSUPPORTED, Reason.GONE) else reason
        return Reason.MALFORMED if value is None or (isinstance(value, int) and value < 0) else value
