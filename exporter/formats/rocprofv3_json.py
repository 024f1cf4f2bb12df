"""rocprofv3's JSON (``*_results.json``), read as a stream that holds one record at a time. Pure.

Records name kernels, functions, agents and counters by numbers whose meaning stands elsewhere in the file, so
names are looked up when all has been read.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from exporter.formats import sdk
from exporter.formats.counters import clean, plausible
from exporter.formats.json_stream import JsonStream, at, items
from exporter.formats.rocprofv3 import direction
from exporter.formats.sdk import natural
from exporter.formats.trace import Decoded, Dispatch, Ids, Kernels, Lane, Names

ROOT = "rocprofiler-sdk-tool"
_CALLS = ("hip_api", "hsa_api", "rccl_api")
_NEXT_RECORD = re.compile(r'\}\s*,\s*(?=\{\s*"(?:size|thread_id|dispatch_data)"\s*:)')


class _Counted(NamedTuple):
    """A dispatch under counters whose kernel has no name yet."""

    number: int
    kernel: int
    lane: int
    duration_ns: int | None
    counters: dict[str, float]


class SdkJson:
    """Shape: one object per process in a list, or one object alone.

    Units: nanoseconds, as written. Kernels come from the dispatch records, or where there are none from those
    under counters.
    """

    def __init__(self, names: Names, form: str = "rocprofv3-json", tool: str = "rocprofv3") -> None:
        self.decoded = Decoded(form, tool)
        self._names = names
        self._process = -1
        self._pids: dict[int, int] = {}
        self._agents: dict[tuple[int, int], int] = {}
        self._symbols: dict[tuple[int, int], str] = {}
        self._strings: dict[int, list[tuple[str, list[Any]]]] = {}
        self._counter_names: dict[int | None, str] = {}
        self._kernels = Ids()  # (process, kernel_id) -> the number that stands in the columns until the end
        self._functions = Ids()
        self._ways = Ids()
        self._lanes = Ids()
        self._under = Kernels()
        self._counted: list[_Counted] = []
        self._climb = sdk.Climb()
        takers: dict[str, Callable[[Any], None]] = {
            "metadata.pid": self._pid,
            "agents.*": self._agent,
            "counters.*": self._counter,
            "strings.buffer_records.*": self._kind,
            "kernel_symbols.*": self._symbol,
            "callback_records.counter_collection.*": self._collected,
            "buffer_records.kernel_dispatch.*": lambda r: self._kernel(r, self.decoded.kernels),
            "buffer_records.memory_copy.*": self._copy,
        }
        for kind in _CALLS:
            takers[f"buffer_records.{kind}.*"] = partial(self._call, hip=kind == "hip_api")
        roots = ((ROOT, "*"), (ROOT,))
        self._stream = JsonStream(
            {(*root, *path.split(".")): taker for root in roots for path, taker in takers.items()},
            dict.fromkeys(roots, self._start),
            _NEXT_RECORD,
            self.decoded.skip,
        )

    def feed(self, data: bytes) -> None:
        self._stream.feed(data)

    def finish(self, cut: bool = False) -> None:
        self._stream.finish()
        decoded = self.decoded
        decoded.partial = cut or not self._stream.whole
        decoded.lanes = [self._lane(key) for key in self._lanes]
        decoded.timed_by_counters = bool(self._counted)
        decoded.traces_copies = len(decoded.copies) > 0
        self._name_all()
        decoded.rows = len(decoded.kernels) + len(decoded.calls) + len(decoded.copies)
        decoded.rows = decoded.rows or len(decoded.dispatches)

    # --- dictionaries --------------------------------------------------------------------------------

    def _start(self) -> None:
        self._process += 1

    def _pid(self, value: Any) -> None:
        pid = natural(value)
        if pid is not None:
            self._pids[self._process] = pid

    def _agent(self, value: Any) -> None:
        handle = natural(at(value, "id", "handle"))
        agent = sdk.agent(value) if isinstance(value, dict) else None
        if handle is None or agent is None:
            self.decoded.skip("malformed")
            return
        self._agents[self._process, handle] = agent.node
        if agent not in self.decoded.agents:
            self.decoded.agents.append(agent)

    def _counter(self, value: Any) -> None:
        handle, name = natural(at(value, "id", "handle")), at(value, "name")
        if handle is not None and isinstance(name, str):
            self._counter_names[handle] = name.partition("[")[0]

    def _kind(self, value: Any) -> None:
        kinds = self._strings.setdefault(self._process, [])
        kinds.append((str(at(value, "kind")), list(items(at(value, "operations")))))

    def _symbol(self, value: Any) -> None:
        number = natural(at(value, "kernel_id"))
        name = at(value, "formatted_kernel_name") or at(value, "kernel_name")
        if number is not None and isinstance(name, str):
            self._symbols[self._process, number] = clean(name)

    # --- records -------------------------------------------------------------------------------------

    def _kernel(self, value: Any, into: Kernels) -> None:
        info = at(value, "dispatch_info")
        kernel, agent = natural(at(info, "kernel_id")), natural(at(info, "agent_id", "handle"))
        if kernel is None or agent is None:
            self.decoded.skip("malformed")
            return
        times = sdk.span(self.decoded, at(value, "start_timestamp"), at(value, "end_timestamp"))
        if times is not None:
            into.start.append(times[0])
            into.end.append(times[1])
            correlation = natural(at(value, "correlation_id", "internal")) or 0
            into.correlation.append(correlation)
            into.name.append(self._kernels[self._process, kernel])
            into.lane.append(self._dispatch_lane(value))

    def _dispatch_lane(self, record: Any) -> int:
        info = at(record, "dispatch_info")
        queue, stream = at(info, "queue_id", "handle"), at(record, "stream_id", "handle")
        agent, tid = natural(at(info, "agent_id", "handle")), natural(at(record, "thread_id"))
        return self._lanes[self._process, agent, str(queue), str(stream), tid]

    def _collected(self, value: Any) -> None:
        data = at(value, "dispatch_data")
        info = at(data, "dispatch_info")
        kernel, number = natural(at(info, "kernel_id")), natural(at(info, "dispatch_id"))
        if kernel is None or number is None or natural(at(info, "agent_id", "handle")) is None or not data:
            self.decoded.skip("malformed")
            return
        counters = self._counters(items(at(value, "records")))
        record = {**value, **data, "stream_id": at(value, "stream_id")}
        times = sdk.span(self.decoded, data.get("start_timestamp"), data.get("end_timestamp"))
        if times is not None and not plausible(times[1] - times[0], counters):
            self.decoded.skip("implausible")
            times = None
        if times is not None:
            self._kernel(record, self._under)
        length = None if times is None else times[1] - times[0]
        lane = self._dispatch_lane(record)
        self._counted.append(_Counted(number, self._kernels[self._process, kernel], lane, length, counters))

    def _counters(self, records: Sequence[Any]) -> dict[str, float]:
        """By name, the instances of one added up."""
        found: dict[str, float] = {}
        for record in records:
            name = self._counter_names.get(natural(at(record, "counter_id", "handle")))
            amount = at(record, "value")
            if name is None:
                self.decoded.skip("dangling")
            elif type(amount) not in (int, float) or not math.isfinite(amount):
                self.decoded.skip("invalid")
            else:
                found[name] = found.get(name, 0.0) + float(amount)
        return found

    def _call(self, value: Any, hip: bool) -> None:
        if at(value, "dispatch_info") is not None or natural(at(value, "operation")) is None:
            self.decoded.skip("malformed")
            return
        times = sdk.span(self.decoded, at(value, "start_timestamp"), at(value, "end_timestamp"))
        if times is None:
            return
        calls, ids = self.decoded.calls, at(value, "correlation_id")
        call = natural(at(ids, "internal")) or 0
        if not hip:
            self._climb.below(self._process, call, natural(at(ids, "ancestor")) or 0)
        calls.start.append(times[0])
        calls.end.append(times[1])
        calls.correlation.append(call)
        calls.function.append(self._functions[self._process, at(value, "kind"), at(value, "operation")])
        calls.lane.append(self._lanes[self._process, None, None, None, natural(at(value, "thread_id"))])
        self.decoded.traces_calls = self.decoded.traces_calls or hip

    def _copy(self, value: Any) -> None:
        operation = natural(at(value, "operation"))
        if operation is None or at(value, "src_agent_id") is None:
            self.decoded.skip("malformed")
            return
        times = sdk.span(self.decoded, at(value, "start_timestamp"), at(value, "end_timestamp"))
        if times is None:
            return
        copies = self.decoded.copies
        copies.start.append(times[0])
        copies.end.append(times[1])
        copies.direction.append(self._ways[self._process, at(value, "kind"), operation])
        copies.lane.append(self._side(at(value, "src_agent_id", "handle")))
        copies.target.append(self._side(at(value, "dst_agent_id", "handle")))
        size = natural(at(value, "bytes"))
        copies.size.append(-1 if size is None else size)

    def _side(self, handle: Any) -> int:
        known = (self._process, handle) in self._agents
        return self._lanes[self._process, handle, None, None, None] if known else -1

    # --- names, when all is known --------------------------------------------------------------------

    def _lane(self, key: Any) -> Lane:
        process, agent, queue, stream, tid = key
        node = self._agents.get((process, agent))
        label = None if agent is None else f"agent handle {agent}" if node is None else sdk.agent_label(node)
        return Lane(label, queue, stream, tid, self._pids.get(process))

    def _operation(self, key: Any) -> str | None:
        process, kind, operation = key
        kinds = self._strings.get(process, [])
        if type(kind) is not int or not 0 <= kind < len(kinds) or not 0 <= operation < len(kinds[kind][1]):
            return None
        name = kinds[kind][1][operation]
        return name if isinstance(name, str) else None

    def _name_all(self) -> None:
        decoded = self.decoded
        if not len(decoded.kernels):
            decoded.kernels = self._under
        if self._climb:
            processes = [key[0] for key in self._lanes]  # type: ignore[index]
            rows = zip(decoded.kernels.lane, decoded.kernels.correlation, strict=True)
            decoded.kernels.correlation = array("q", (self._climb.top(processes[i], c) for i, c in rows))
        texts = [self._symbols.get(key, sdk.UNNAMED) for key in self._kernels]  # type: ignore[call-overload]
        missing = {i for i, key in enumerate(self._kernels) if key not in self._symbols}
        decoded.skip("dangling", sum(map(missing.__contains__, decoded.kernels.name)) if missing else 0)
        decoded.kernels.name = self._named(decoded.kernels.name, texts)
        functions = [self._operation(key) for key in self._functions]
        unnamed = {i for i, name in enumerate(functions) if name is None}
        decoded.skip("dangling", sum(map(unnamed.__contains__, decoded.calls.function)) if unnamed else 0)
        decoded.calls.function = self._named(decoded.calls.function, [n or "unknown" for n in functions])
        copied = [self._operation(key) or "unknown" for key in self._ways]
        ways = [direction(text.encode("utf-8", "replace")) for text in copied]
        decoded.copies.direction = self._named(decoded.copies.direction, ways)
        for one in self._counted:
            decoded.dispatches.append(
                Dispatch(one.number, texts[one.kernel], one.lane, one.duration_ns, one.counters)
            )
        self._counted.clear()

    def _named(self, column: array[int], texts: Sequence[str]) -> array[int]:
        numbers = [self._names.add(text) for text in texts]
        return array("i", map(numbers.__getitem__, column))
