"""From decoded files to one trace per GPU: which rows are of which process, device and counter pass. Pure."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count
from operator import gt
from typing import NamedTuple

from exporter.formats.counters import clean
from exporter.formats.trace import Agent, Calls, Decoded, Dispatch, Kernels, Lane, Names
from exporter.model import DeviceId, KernelStat, WindowResult
from exporter.windows.agents import Agents, label
from exporter.windows.bottleneck import Thresholds
from exporter.windows.columns import extend, selected
from exporter.windows.density import Key, Shape, Totals, totals
from exporter.windows.executions import kernel_class
from exporter.windows.join import CallIndex, Executions, Joined, from_dispatched, taken, unknown_launch
from exporter.windows.reduce import GpuTrace, Part, reduce
from exporter.windows.spans import Bounds, Terms, split

# What summaries of other things than kernels hold: functions, domains, directions of copies.
_NO_KERNEL = re.compile(
    r"_*(?:hip|hsa|cuda|cu|roctx|rccl|nccl|ompt)[A-Z_]\w*|[A-Z]+(?:_[A-Z]+)+|Copy\w+To\w+"
)


@dataclass
class File:
    """One decoded file. ``folder`` and ``prefix`` say what run wrote it, ``run`` which counter pass it is."""

    decoded: Decoded
    folder: str = ""
    prefix: str = ""
    run: str = ""


class Process(NamedTuple):
    folder: str
    key: str


class Gpu(NamedTuple):
    """A GPU as one node names it."""

    folder: str
    name: str


@dataclass
class _Work:
    """One process: its calls, and its kernels on each GPU."""

    calls: Calls = field(default_factory=Calls)
    call_lanes: list[Lane] = field(default_factory=list)
    has_calls: bool = False
    kernels: dict[Gpu, Executions] = field(default_factory=dict)
    origin: dict[Gpu, list[Decoded]] = field(default_factory=dict)


class Assembly:
    """One window's files, put together."""

    def __init__(
        self,
        files: Sequence[File],
        names: Names,
        terms: Terms | None = None,
        named: Mapping[str, DeviceId] | None = None,
    ) -> None:
        self._files, self._texts, self._terms = files, names.texts(), terms or Terms()
        self._named = named or {}
        self._agents: dict[tuple[str, str], Agents] = {}
        self._devices: dict[Gpu, DeviceId | None] = {}
        self._shapes: dict[Gpu, Shape] = {}
        self.work: dict[Process, _Work] = {}
        self.joined: dict[tuple[Process, Gpu], Joined] = {}
        self._indexes: dict[Process, CallIndex] = {}
        self._callers = _processes(f for f in files if len(f.decoded.calls))
        self._workers = _processes(f for f in files if len(f.decoded.kernels))
        for file in files:
            self._add_calls(file)
        self._add_kernels()
        for file in files:  # the rows are ours now; a second reference would keep what is dropped below
            file.decoded.kernels, file.decoded.calls = Kernels(), Calls()
        self._join()

    # --- who and where -------------------------------------------------------------------------------

    def _agents_for(self, file: File) -> Agents:
        at = file.folder, file.prefix
        if at not in self._agents:
            same = [f for f in self._files if f.decoded.agents and f.folder == file.folder]
            own = [f for f in same if f.prefix == file.prefix]
            every = [f for f in self._files if f.decoded.agents]
            rows: list[Agent] = [agent for f in own or same or every for agent in f.decoded.agents]
            self._agents[at] = Agents(rows, self._named)
        return self._agents[at]

    def _gpu(self, file: File, lane: Lane) -> Gpu:
        text = lane.agent or "unknown"
        agents, tool = self._agents_for(file), file.decoded.tool or ""
        device = agents.device(text, tool)
        gpu = Gpu(file.folder, label(device) if device else text)
        self._devices[gpu] = device
        if gpu not in self._shapes or self._shapes[gpu] == Shape():
            self._shapes[gpu] = agents.shape(text, tool)
        return gpu

    def _caller(self, file: File, lane: Lane) -> Process:
        """The process a call's row names, else the one that the kernels beside it name, else the run."""
        own = _name(lane)
        if own is None:
            beside = self._workers.get((file.folder, file.prefix), {})
            own = next(iter(beside)) if len(beside) == 1 else f"run {file.prefix}"
        return Process(file.folder, own)

    def _process(self, file: File, lane: Lane) -> Process:
        """The process a kernel's row names, in the words of the run's API trace where that has others.

        Without a name it is the one that the API trace tells, by the thread if there are several; without
        such a trace of the run the one in the folder that has the thread.
        """
        own = _name(lane)
        callers = self._callers.get((file.folder, file.prefix), {})
        kinds = {caller.split()[0] for caller in callers}
        if own is not None and (not callers or own.split()[0] in kinds):
            return Process(file.folder, own)
        if len(callers) == 1:
            return Process(file.folder, next(iter(callers)))
        if not callers:
            found = [found for at, found in self._callers.items() if at[0] == file.folder]
            callers = {caller: threads for one in found for caller, threads in one.items()}
        mine = [caller for caller, threads in callers.items() if lane.tid in threads and lane.tid is not None]
        return Process(file.folder, mine[0] if len(mine) == 1 else own or f"run {file.prefix}")

    # --- rows ----------------------------------------------------------------------------------------

    def _add_calls(self, file: File) -> None:
        calls = file.decoded.calls
        if not len(calls):
            if file.decoded.traces_calls:  # a trace in which nothing was called
                self.work.setdefault(self._caller(file, Lane()), _Work()).has_calls = True
            return
        lanes = file.decoded.lanes
        used = sorted(set(calls.lane))
        owners = {number: self._caller(file, lanes[number]) for number in used}
        for process in dict.fromkeys(owners.values()):
            work = self.work.setdefault(process, _Work())
            work.has_calls = work.has_calls or file.decoded.traces_calls
            mine = {number for number in used if owners[number] == process}
            part = calls if len(mine) == len(used) else selected(calls, mine, Calls())
            extend(work.calls, work.call_lanes, part, lanes)
        file.decoded.skip("unknown_launch", self._unknown(calls))

    def _unknown(self, calls: Calls) -> int:
        strange = {i for i in set(calls.function) if unknown_launch(self._texts[i])}
        return sum(map(strange.__contains__, calls.function)) if strange else 0

    def _add_kernels(self) -> None:
        """Kernels of traces; where a GPU has none, those of the first counter pass that has any."""
        for file in self._files:
            if not file.decoded.timed_by_counters:
                self._take(file, None)
        traced = {gpu for work in self.work.values() for gpu in work.kernels}
        first: dict[Gpu, str] = {}
        for file in self._files:
            if file.decoded.timed_by_counters and len(file.decoded.kernels):
                lanes = set(file.decoded.kernels.lane)
                gpus = {self._gpu(file, file.decoded.lanes[number]) for number in lanes}
                wanted = {g for g in gpus if g not in traced and first.setdefault(g, file.run) == file.run}
                self._take(file, wanted)

    def _take(self, file: File, wanted: set[Gpu] | None) -> None:
        kernels, lanes = file.decoded.kernels, file.decoded.lanes
        if not len(kernels):
            return
        used = sorted(set(kernels.lane))
        owners = {
            number: (self._process(file, lanes[number]), self._gpu(file, lanes[number])) for number in used
        }
        for process, gpu in dict.fromkeys(owners.values()):
            if wanted is not None and gpu not in wanted:
                continue
            mine = {number for number in used if owners[number] == (process, gpu)}
            part = kernels if len(mine) == len(used) else selected(kernels, mine, Kernels())
            work = self.work.setdefault(process, _Work())
            held = work.kernels.setdefault(gpu, Executions(Kernels(), []))
            before = len(held.lanes)
            extend(held.rows, held.lanes, part, lanes)
            work.origin.setdefault(gpu, []).extend([file.decoded] * (len(held.lanes) - before))

    def _join(self) -> None:
        for process, work in self.work.items():
            if work.has_calls:
                self._indexes[process] = CallIndex(work.calls, work.call_lanes, self._texts)
            for gpu, kernels in work.kernels.items():
                kernels.sort()
                for lane in kernels.drop_duplicates():
                    origin = work.origin[gpu][lane]
                    origin.skip("duplicate")
                    origin.rows -= 1
                if process in self._indexes and _same_threads(kernels.lanes, work.call_lanes):
                    self.joined[process, gpu] = self._indexes[process].join(kernels, gpu.name)
                elif len(kernels.rows.dispatched) == len(kernels):
                    self.joined[process, gpu] = from_dispatched(kernels)
        for work in self.work.values():
            work.calls.correlation = array("q")
            for kernels in work.kernels.values():
                kernels.rows.correlation = array("q")

    # --- results -------------------------------------------------------------------------------------

    def results(self, limits: Thresholds | None = None) -> list[WindowResult]:
        """One result per GPU and window, in order of their names and times."""
        passes = self._passes()
        copies = self._copies()
        gpus = {gpu for work in self.work.values() for gpu in work.kernels} | passes.keys() | copies.keys()
        traces_copies = {file.folder for file in self._files if file.decoded.traces_copies}
        found = []
        for gpu in sorted(gpus):
            counted = totals(list(passes.get(gpu, {}).values()), self._shapes.get(gpu, Shape()))
            for bounds in self._windows(gpu):
                own = ((process, work) for process, work in self.work.items() if gpu in work.kernels)
                trace = GpuTrace(
                    gpu.name,
                    self._devices.get(gpu),
                    self._texts,
                    [self._part(process, work, gpu, bounds) for process, work in own],
                    bounds,
                    copies.get(gpu, []) if gpu.folder in traces_copies else None,
                    counted,
                    planned=self._terms.bounds is not None,
                    holders=self._terms.holders.get(gpu.name),
                    busy=self._terms.busy.get(gpu.name),
                )
                found.append(reduce(trace, limits))
                counted = Totals()  # of the whole file, so that they belong to one window
        return found or self._from_stats(limits)

    def _windows(self, gpu: Gpu) -> list[Bounds | None]:
        """The bounds of each window that the rows of a GPU are of; None where they have to be found."""
        terms = self._terms
        if terms.bounds or terms.pause_ns is None:
            return [terms.bounds]
        rows = [work.kernels[gpu].rows for work in self.work.values() if gpu in work.kernels]
        return [*split(((r.start, r.end) for r in rows), terms.pause_ns)] or [None]

    def _part(self, process: Process, work: _Work, gpu: Gpu, bounds: Bounds | None) -> Part:
        joined = self.joined.get((process, gpu))
        part = Part(work.kernels[gpu], joined)
        index = self._indexes.get(process)
        if index is None:
            return part
        start, end, matched = index.calls.start, index.calls.end, index.matched
        if len(work.kernels) == 1 and index.apart is not None:
            part.calls, part.apart = index.apart, True
            if matched.count(1) < index.is_launch.count(1):
                lonely = compress(count(), map(gt, index.is_launch, matched))
                part.unmatched_calls = _inside(start, lonely, bounds)
            return part
        launches = index.launches()
        if len(work.kernels) > 1:
            launches = self._of_gpu(index, launches, joined, gpu, {g.name for g in work.kernels})
        part.calls = taken(start, launches), taken(end, launches)
        part.unmatched_calls = _inside(start, (i for i in launches if not matched[i]), bounds)
        return part

    @staticmethod
    def _of_gpu(
        index: CallIndex, launches: Iterable[int], joined: Joined | None, gpu: Gpu, everywhere: set[str]
    ) -> array[int]:
        """The calls that launched on this GPU; those without a kernel go where their thread launches."""
        own = set(joined.paired) if joined else set()
        ours = {tid for tid in set(index.tids) if gpu.name in index.gpus_of_thread.get(tid, everywhere)}
        mine = (i for i in launches if i in own or (not index.matched[i] and index.tid_of(i) in ours))
        return array("i", mine)

    def _copies(self) -> dict[Gpu, list[tuple[int, int, str]]]:
        found: dict[Gpu, list[tuple[int, int, str]]] = {}
        for file in self._files:
            copies, lanes = file.decoded.copies, file.decoded.lanes
            rows = zip(copies.start, copies.end, copies.direction, copies.lane, copies.target, strict=True)
            for start, end, number, source, target in rows:
                way = self._texts[number]
                sides = {"host_to_device": (target,), "device_to_host": (source,)}.get(way, (source, target))
                for gpu in {self._gpu(file, lanes[side]) for side in sides if side >= 0}:
                    found.setdefault(gpu, []).append((start, end, way))
        return found

    def _passes(self) -> dict[Gpu, dict[str, dict[Key, Dispatch]]]:
        """Dispatches under counters by GPU and pass; processes of different passes meet by their rank."""
        ranks: dict[str, dict[int | None, int]] = {}
        for file in self._files:
            if file.decoded.dispatches:
                pids = ranks.setdefault(file.run, {})
                pids.update(dict.fromkeys((lane.pid for lane in file.decoded.lanes), 0))
        for pids in ranks.values():
            for rank, pid in enumerate(sorted(pids, key=lambda pid: pid or 0)):
                pids[pid] = rank
        found: dict[Gpu, dict[str, dict[Key, Dispatch]]] = {}
        for file in self._files:
            places = [self._gpu(file, lane) for lane in file.decoded.lanes] if file.decoded.dispatches else []
            for dispatch in file.decoded.dispatches:
                lane = file.decoded.lanes[dispatch.lane]
                key = Key(ranks[file.run][lane.pid], dispatch.number, dispatch.kernel)
                run = f"{file.run}#{dispatch.run}"
                found.setdefault(places[dispatch.lane], {}).setdefault(run, {}).setdefault(key, dispatch)
        return found

    def passes(self) -> dict[Gpu, list[dict[Key, Dispatch]]]:
        """Dispatches under counters by GPU, one mapping per pass."""
        return {gpu: list(runs.values()) for gpu, runs in self._passes().items()}

    def _from_stats(self, limits: Thresholds | None) -> list[WindowResult]:
        """Only summaries: totals per kernel, of GPUs that the files do not name."""
        calls: dict[str, int] = {}
        times: dict[str, int] = {}
        for file in self._files:
            rows = file.decoded.stats
            if all(_NO_KERNEL.fullmatch(row.name) for row in rows):
                continue
            for row in rows:
                if row.total_ns is not None:
                    name = clean(row.name)
                    calls[name] = calls.get(name, 0) + row.calls
                    times[name] = times.get(name, 0) + row.total_ns
        if not times:
            return []
        stats = tuple(
            KernelStat(name, calls[name], total, 0, 0, kernel_class(name))
            for name, total in sorted(times.items(), key=lambda item: -item[1])
        )
        result = reduce(GpuTrace("unknown", None, self._texts, [], None, None, stats=stats), limits)
        return [replace(result, timeline_reason="summary_only")]


def _name(lane: Lane) -> str | None:
    """What a row calls its process: the instance's guid before the pid, which another may have had."""
    if lane.guid is not None:
        return f"guid {lane.guid}"
    return None if lane.pid is None else f"pid {lane.pid}"


def _processes(files: Iterable[File]) -> dict[tuple[str, str], dict[str, set[int | None]]]:
    """For each run the processes that its rows name, with their threads."""
    found: dict[tuple[str, str], dict[str, set[int | None]]] = {}
    for file in files:
        for lane in file.decoded.lanes:
            name = _name(lane)
            if name is not None:
                found.setdefault((file.folder, file.prefix), {}).setdefault(name, set()).add(lane.tid)
    return found


def _same_threads(kernels: Iterable[Lane], calls: Iterable[Lane]) -> bool:
    """False where no thread that launched kernels is in the API trace: it is of something else."""
    launching, calling = {lane.tid for lane in kernels}, {lane.tid for lane in calls}
    return not calling or None in launching or None in calling or bool(launching & calling)


def _inside(start: Sequence[int], places: Iterable[int], bounds: Bounds | None) -> int:
    low, high = bounds or (0, 1 << 63)
    return sum(1 for i in places if low <= start[i] < high)
