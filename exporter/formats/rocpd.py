"""Rows of a rocpd database (schema 3) to columns; what to ask for, and what the answers mean. Pure.

The file's own views are never used: they belong to whoever wrote the file, and their inner joins lose rows
without a word. ``stack_id`` is the id that joins calls and kernels; ``correlation_id`` is the application's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from exporter.formats import sdk
from exporter.formats.counters import clean, plausible
from exporter.formats.rocprofv3 import direction
from exporter.formats.trace import Decoded, Dispatch, Ids, Lane, Names
from exporter.model import FormatError

MAJOR = "3"
_TABLE = re.compile(r"rocpd_([a-z_]+?)((?:_[0-9A-Fa-f]{8}(?:_[0-9A-Fa-f]{4}){3}_[0-9A-Fa-f]{12})?)")
_EVENT = ("stack_id", "parent_stack_id", "category_id")
# In the order they are read: dictionaries, calls, counters, then what points to all of them.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "metadata": ("tag", "value"),
    "string": ("guid", "id", "string"),
    "info_node": ("guid", "id", "machine_id", "hostname"),
    "info_process": ("guid", "id", "pid"),
    "info_thread": ("guid", "id", "tid"),
    "info_agent": ("guid", "id", "nid", "type", "absolute_index", "name", "extdata"),
    "info_queue": ("guid", "id", "pid"),
    "info_kernel_symbol": ("guid", "id", "display_name", "kernel_name"),
    "info_pmc": ("guid", "id", "name"),
    "region": ("guid", "pid", "tid", "start", "end", "name_id", *_EVENT),
    "pmc_event": ("guid", "event_id", "pmc_id", "value"),
    "kernel_dispatch": (
        *("guid", "pid", "tid", "agent_id", "queue_id", "stream_id", "kernel_id", "dispatch_id"),
        *("region_name_id", "event_id", "start", "end", "stack_id"),
    ),
    "memory_copy": ("guid", "pid", "start", "end", "name_id", "src_agent_id", "dst_agent_id", "size"),
}
_NEEDED = {
    "region": {"start", "end", "name_id"},
    "pmc_event": {"event_id", "pmc_id", "value"},
    "kernel_dispatch": {"start", "end", "agent_id", "kernel_id"},
    "memory_copy": {"start", "end", "name_id"},
}
_HIP = re.compile(r"(?:hip|cuda|cu)[A-Z]")

Row = Sequence[Any]
Key = tuple[Any, Any]


class Query(NamedTuple):
    kind: str
    sql: str


def plan(tables: Mapping[str, Sequence[str]]) -> list[Query]:
    """What to ask of a database with these tables and columns. Errors: FormatError when it is no rocpd."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name in tables:
        match = _TABLE.fullmatch(name)
        if match:
            found.setdefault(match[1], []).append((name, match[2]))
    if "kernel_dispatch" not in found and "region" not in found:
        raise FormatError("is an SQLite database, but none of rocpd: it has no rocpd_kernel_dispatch table")
    queries = []
    for kind in _COLUMNS:
        for name, suffix in found.get(kind, ()):
            lacking = _NEEDED.get(kind, set()) - set(tables[name])
            if lacking:
                raise FormatError(f"is a rocpd database of an unknown schema: {name} has no {min(lacking)}")
            event = f"rocpd_event{suffix}"
            queries.append(Query(kind, _select(kind, name, suffix, tables[name], event, tables.get(event))))
    return queries


def _select(
    kind: str, name: str, suffix: str, have: Sequence[str], event: str, event_has: Sequence[str] | None
) -> str:
    joined = event_has is not None and {"id", "stack_id"} <= set(event_has) and "event_id" in have
    parts = []
    for column in _COLUMNS[kind]:
        if column in _EVENT:
            parts.append(f'E."{column}"' if joined and column in (event_has or ()) else "NULL")
        elif column in have:
            parts.append(f'T."{column}"')
        else:
            parts.append(f"'{suffix}'" if column == "guid" else "NULL")
    sql = f'SELECT {", ".join(parts)} FROM "{name}" T'  # noqa: S608  names are those that _TABLE matched
    if joined and set(_COLUMNS[kind]) & set(_EVENT):
        sql += f' LEFT JOIN "{event}" E ON E."id" = T."event_id"'
        if "guid" in have and "guid" in (event_has or ()):
            sql += ' AND E."guid" IS T."guid"'
    return sql


class Rocpd:
    """Fed the answers of ``plan`` in its order. Every id counts only together with its guid.

    ``hidden`` counts dispatches that the file's own view of kernels does not show, as something they refer
    to is missing. They are used, unless it is the agent that is missing.
    """

    def __init__(self, names: Names) -> None:
        self.decoded = Decoded("rocprofv3-rocpd", "rocprofv3")
        self.version: str | None = None
        self.hidden = 0
        self._names = names
        self._lanes = Ids()
        self._strings: dict[Key, str] = {}
        self._nodes: dict[Key, str] = {}
        self._machines: set[Any] = set()
        self._processes: dict[Key, int | None] = {}
        self._of_guid: dict[Any, int] = {}
        self._threads: dict[Key, int | None] = {}
        self._agents: dict[Key, str] = {}
        self._queues: dict[Key, Any] = {}
        self._symbols: dict[Key, str] = {}
        self._numbers: dict[str, int] = {}
        self._pmc: dict[Key, str] = {}
        self._counts: dict[Key, dict[str, float]] = {}
        self._seen: dict[tuple[Any, ...], tuple[int, bool]] = {}
        self._climb = sdk.Climb()
        self._takers: dict[str, Callable[[Row], None]] = {
            "metadata": self._metadata,
            "string": lambda r: self._named(self._strings, r),
            "info_node": self._node,
            "info_process": self._process,
            "info_thread": lambda r: self._threads.update({(r[0], r[1]): sdk.natural(r[2])}),
            "info_agent": self._agent,
            "info_queue": lambda r: self._queues.update({(r[0], r[1]): r[2]}),
            "info_kernel_symbol": self._symbol,
            "info_pmc": lambda r: self._named(self._pmc, r),
            "region": self._region,
            "pmc_event": self._count,
            "kernel_dispatch": self._kernel,
            "memory_copy": self._copy,
        }

    def take(self, kind: str, rows: Iterable[Row]) -> None:
        taker = self._takers[kind]
        for row in rows:
            taker(row)

    def finish(self, cut: bool = False) -> None:
        decoded = self.decoded
        decoded.lanes = list(self._lanes)  # type: ignore[arg-type]
        decoded.partial = cut
        decoded.timed_by_counters = bool(decoded.dispatches)
        decoded.traces_copies = len(decoded.copies) > 0
        decoded.skip("no_dispatch", len(self._counts))
        decoded.skip("dangling", self.hidden)
        if len(self._machines) > 1:  # several nodes in one file, which no list of agents can tell apart
            decoded.agents = []

    # --- dictionaries --------------------------------------------------------------------------------

    @staticmethod
    def _named(into: dict[Key, str], row: Row) -> None:
        if isinstance(row[2], str):
            into[row[0], row[1]] = row[2]

    def _metadata(self, row: Row) -> None:
        if row[0] == "schema_version":
            self.version = str(row[1])

    def _node(self, row: Row) -> None:
        guid, number, machine, host = row
        self._machines.add(machine)
        self._nodes[guid, number] = str(host or machine)

    def _process(self, row: Row) -> None:
        self._processes[row[0], row[1]] = sdk.natural(row[2])
        self._of_guid[row[0]] = self._of_guid.get(row[0], 0) + 1

    def _agent(self, row: Row) -> None:
        guid, number, node, kind, index, name, more = row
        fields = {**_object(more), "node_id": index, "type": kind, "name": name}
        agent = sdk.agent(fields)
        if agent is None:
            self.decoded.skip("malformed")
            return
        if agent not in self.decoded.agents:
            self.decoded.agents.append(agent)
        label = sdk.agent_label(agent.node)
        if len(self._machines) > 1:
            label = f"{self._nodes.get((guid, node), node)}/{label}"
        self._agents[guid, number] = label

    def _symbol(self, row: Row) -> None:
        guid, number, shown, raw = row
        name = shown or raw
        if isinstance(name, str):
            self._symbols[guid, number] = clean(name)

    # --- data ----------------------------------------------------------------------------------------

    def _owner(self, guid: Any, pid: Any) -> tuple[int | None, str | None]:
        """The process's pid, and what tells it from all others; a pid alone may be on every node."""
        number = self._processes.get((guid, pid))
        if not isinstance(guid, str) or not guid:
            return number, None
        return number, guid if self._of_guid.get(guid, 0) <= 1 else f"{guid} {pid}"

    def _region(self, row: Row) -> None:
        guid, pid, tid, start, end, name_id, stack, parent, category = row
        name, kind = self._strings.get((guid, name_id)), self._strings.get((guid, category), "")
        if kind.startswith("MARKER"):  # the text of a marker is the application's, and no function
            return
        times = sdk.span(self.decoded, start, end)
        if times is None:
            return
        if name is None:
            self.decoded.skip("dangling")
            return
        call = sdk.natural(stack) or 0
        number, owner = self._owner(guid, pid)
        if kind.startswith("HIP") or _HIP.match(name):
            self.decoded.traces_calls = True
        else:
            self._climb.below((guid, pid), call, sdk.natural(parent) or 0)
        calls = self.decoded.calls
        calls.start.append(times[0])
        calls.end.append(times[1])
        calls.correlation.append(call)
        calls.function.append(self._number(name))
        lane = Lane(tid=self._threads.get((guid, tid)), pid=number, guid=owner)
        calls.lane.append(self._lanes[lane])
        self.decoded.rows += 1

    def _count(self, row: Row) -> None:
        guid, event, pmc, value = row
        name = self._pmc.get((guid, pmc))
        if name is None:
            self.decoded.skip("dangling")
        elif type(value) not in (int, float) or not math.isfinite(value):
            self.decoded.skip("invalid")
        else:
            held = self._counts.setdefault((guid, event), {})
            key = name.partition("[")[0]
            held[key] = held.get(key, 0.0) + float(value)

    def _kernel(self, row: Row) -> None:
        guid, pid, tid, agent, queue, stream, kernel, dispatch, region, event, start, end, stack = row
        decoded = self.decoded
        counters = self._counts.pop((guid, event), None) if self._counts else None
        key = guid, pid, tid, agent, queue, stream, kernel, region
        place = self._seen.get(key)
        if place is None:
            place = self._seen[key] = self._place(guid, pid, tid, agent, queue, stream, kernel, region)
        lane, whole = place
        self.hidden += not whole or stack is None
        if lane < 0:
            decoded.skip("no_agent")
            return
        times = sdk.span(decoded, start, end)
        name = self._symbols.get((guid, kernel), sdk.UNNAMED)
        if times is not None and counters and not plausible(times[1] - times[0], counters):
            decoded.skip("implausible")
            times = None
        if counters:
            length = None if times is None else times[1] - times[0]
            number = sdk.natural(dispatch) or 0
            decoded.dispatches.append(Dispatch(number, name, lane, length, counters))
        if times is None:
            return
        kernels = decoded.kernels
        kernels.start.append(times[0])
        kernels.end.append(times[1])
        kernels.correlation.append(self._climb.top((guid, pid), sdk.natural(stack) or 0))
        kernels.name.append(self._number(name))
        kernels.lane.append(lane)
        decoded.rows += 1

    def _place(
        self, guid: Any, pid: Any, tid: Any, agent: Any, queue: Any, stream: Any, kernel: Any, region: Any
    ) -> tuple[int, bool]:
        """The lane of a dispatch (-1 without an agent), and whether all that it refers to is there."""
        label = self._agents.get((guid, agent))
        whole = (
            label is not None
            and (guid, tid) in self._threads
            and (guid, self._queues.get((guid, queue))) in self._processes
            and (guid, kernel) in self._symbols
            and (guid, region) in self._strings
        )
        if label is None:
            return -1, whole
        number, owner = self._owner(guid, pid)
        lane = Lane(label, str(queue), str(stream), self._threads.get((guid, tid)), number, owner)
        return self._lanes[lane], whole

    def _copy(self, row: Row) -> None:
        guid, pid, start, end, name_id, source, target, size = row
        times = sdk.span(self.decoded, start, end)
        name = self._strings.get((guid, name_id))
        if times is None:
            return
        if name is None:
            self.decoded.skip("dangling")
            return
        copies = self.decoded.copies
        copies.start.append(times[0])
        copies.end.append(times[1])
        copies.direction.append(self._names.add(direction(name.encode("utf-8", "replace"))))
        copies.lane.append(self._side(guid, pid, source))
        copies.target.append(self._side(guid, pid, target))
        length = sdk.natural(size)
        copies.size.append(-1 if length is None else length)
        self.decoded.rows += 1

    def _side(self, guid: Any, pid: Any, agent: Any) -> int:
        label = self._agents.get((guid, agent))
        if label is None:
            return -1
        number, owner = self._owner(guid, pid)
        return self._lanes[Lane(label, pid=number, guid=owner)]

    def _number(self, name: str) -> int:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = self._names.add(name)
        return found


def _object(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
