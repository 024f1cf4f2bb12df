"""Makes rocpd databases: the tables of schema 3 that matter, one set per process, filled from plain rows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

GUIDS = [f"0000000{i}-0000-7000-8000-00000000000{i}" for i in range(1, 10)]
_ID = '"id" INTEGER PRIMARY KEY, "guid" TEXT'
TABLES = {
    "metadata": '"id" INTEGER PRIMARY KEY, "tag" TEXT, "value" TEXT',
    "string": f'{_ID}, "string" TEXT',
    "info_node": f'{_ID}, "hash" BIGINT, "machine_id" TEXT, "hostname" TEXT',
    "info_process": f'{_ID}, "nid" INTEGER, "pid" INTEGER, "command" TEXT',
    "info_thread": f'{_ID}, "nid" INTEGER, "pid" INTEGER, "tid" INTEGER',
    "info_agent": f'{_ID}, "nid" INTEGER, "pid" INTEGER, "type" TEXT, "absolute_index" INTEGER, '
    '"name" TEXT, "extdata" JSONB',
    "info_queue": f'{_ID}, "nid" INTEGER, "pid" INTEGER, "name" TEXT',
    "info_kernel_symbol": f'{_ID}, "nid" INTEGER, "pid" INTEGER, "kernel_name" TEXT, "display_name" TEXT',
    "info_pmc": f'{_ID}, "nid" INTEGER, "pid" INTEGER, "name" TEXT, "symbol" TEXT',
    "event": f'{_ID}, "category_id" INTEGER, "stack_id" INTEGER, "parent_stack_id" INTEGER, '
    '"correlation_id" INTEGER',
    "region": f'{_ID}, "nid" INTEGER, "pid" INTEGER, "tid" INTEGER, "start" BIGINT, "end" BIGINT, '
    '"name_id" INTEGER, "event_id" INTEGER',
    "pmc_event": f'{_ID}, "event_id" INTEGER, "pmc_id" INTEGER, "value" REAL',
    "kernel_dispatch": f'{_ID}, "nid" INTEGER, "pid" INTEGER, "tid" INTEGER, "agent_id" INTEGER, '
    '"kernel_id" INTEGER, "dispatch_id" INTEGER, "queue_id" INTEGER, "stream_id" INTEGER, "start" BIGINT, '
    '"end" BIGINT, "region_name_id" INTEGER, "event_id" INTEGER',
    "memory_copy": f'{_ID}, "nid" INTEGER, "pid" INTEGER, "tid" INTEGER, "start" BIGINT, "end" BIGINT, '
    '"name_id" INTEGER, "dst_agent_id" INTEGER, "src_agent_id" INTEGER, "size" INTEGER, "event_id" INTEGER',
}
EXTRA = {"location_id": 29952, "domain": 0, "gpu_id": 12605, "cu_count": 256, "num_xcc": 8}


class Kernel(NamedTuple):
    start: int
    end: int
    stack: int
    name: str = "k"
    tid: int = 7
    counters: Sequence[tuple[str, float]] = ()
    changes: dict[str, Any] = {}  # noqa: RUF012  columns written as given, to make them wrong


class Region(NamedTuple):
    start: int
    end: int
    stack: int
    name: str = "hipLaunchKernel"
    parent: int = 0
    tid: int = 7
    category: str = "HIP_RUNTIME_API_EXT"


class Copy(NamedTuple):
    start: int
    end: int
    way: str
    size: Any


class Maker:
    """One process's tables in a database, created where they are not there."""

    def __init__(
        self, path: Path, process: int = 0, pid: int = 7, machine: str = "m1", lay: bool = True
    ) -> None:
        self.db = sqlite3.connect(path)
        self.guid, self.pid = GUIDS[process], pid
        self.suffix = "_" + self.guid.replace("-", "_")
        self._strings: dict[str, int] = {}
        if lay:
            for kind, columns in TABLES.items():
                self.db.execute(f'CREATE TABLE "rocpd_{kind}{self.suffix}" ({columns})')
        self.put("metadata", tag="schema_version", value="3")
        self.put("info_node", id=1, hash=1, machine_id=machine, hostname=f"host-{machine}")
        self.put("info_process", id=pid, nid=1, pid=pid, command="app")
        self.put("info_queue", id=1, nid=1, pid=pid, name="Queue 0")
        self.put("info_agent", id=0, nid=1, pid=pid, type="CPU", absolute_index=0, name="cpu", extdata="{}")
        extra = json.dumps(EXTRA)
        self.put(
            "info_agent", id=4, nid=1, pid=pid, type="GPU", absolute_index=4, name="gfx950", extdata=extra
        )
        self._made: set[tuple[str, Any]] = set()
        self._event = 0

    def put(self, kind: str, **values: Any) -> None:
        if kind != "metadata":
            values = {"guid": self.guid, **values}
        columns = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        sql = f'INSERT INTO "rocpd_{kind}{self.suffix}" ({columns}) VALUES ({marks})'
        self.db.execute(sql, list(values.values()))

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.put("string", id=self._strings[text], string=text)
        return self._strings[text]

    def thread(self, tid: int) -> int:
        if ("thread", tid) not in self._made:
            self._made.add(("thread", tid))
            self.put("info_thread", id=tid, nid=1, pid=self.pid, tid=tid)
        return tid

    def event(self, category: str, stack: int, parent: int) -> int:
        self._event += 1
        kind = self.string(category)
        # correlation_id is the application's own and is 0 in nearly every file
        self.put(
            "event",
            id=self._event,
            category_id=kind,
            stack_id=stack,
            parent_stack_id=parent,
            correlation_id=0,
        )
        return self._event

    def fill(
        self, kernels: Iterable[Kernel] = (), regions: Iterable[Region] = (), copies: Iterable[Copy] = ()
    ) -> Maker:
        for r in regions:
            event = self.event(r.category, r.stack, r.parent)
            where = {"nid": 1, "pid": self.pid, "tid": self.thread(r.tid)}
            self.put("region", start=r.start, end=r.end, name_id=self.string(r.name), event_id=event, **where)
        for number, k in enumerate(kernels, 1):
            event = self.event("KERNEL_DISPATCH", k.stack, k.stack)
            self.put("kernel_dispatch", **{**self._dispatch(number, k), "event_id": event, **k.changes})
            for name, value in k.counters:
                self.put("pmc_event", event_id=event, pmc_id=self._counter(name), value=value)
        for c in copies:
            agents = {"dst_agent_id": 4, "src_agent_id": 0}
            where = {
                "nid": 1,
                "pid": self.pid,
                "tid": self.thread(7),
                "event_id": self.event("MEMORY_COPY", 0, 0),
            }
            self.put(
                "memory_copy",
                start=c.start,
                end=c.end,
                name_id=self.string(c.way),
                size=c.size,
                **agents,
                **where,
            )
        self.db.commit()
        return self

    def _dispatch(self, number: int, k: Kernel) -> dict[str, Any]:
        symbol = self.string(k.name)
        if ("symbol", symbol) not in self._made:
            self._made.add(("symbol", symbol))
            self.put("info_kernel_symbol", id=symbol, kernel_name=f"{k.name}.kd", display_name=k.name)
        return {
            "nid": 1,
            "pid": self.pid,
            "tid": self.thread(k.tid),
            "agent_id": 4,
            "kernel_id": symbol,
            "dispatch_id": number,
            "queue_id": 1,
            "stream_id": 0,
            "start": k.start,
            "end": k.end,
            "region_name_id": self.string(""),
        }

    def _counter(self, name: str) -> int:
        number = self.string(name)
        if ("pmc", number) not in self._made:
            self._made.add(("pmc", number))
            self.put("info_pmc", id=number, name=name, symbol=name)
        return number

    def run(self, *statements: str) -> Maker:
        """Statements with ``{}`` for the suffix of the tables."""
        for statement in statements:
            self.db.execute(statement.replace("{}", self.suffix))
        self.db.commit()
        return self

    def close(self) -> None:
        self.db.close()
