"""Counters per dispatch: rocprofv3's long table, and the wide ones of the older tools. Pure."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence

from exporter.formats.rocprofv3 import Lanes, plain_columns
from exporter.formats.rows import Batch, Table
from exporter.formats.trace import Decoded, Dispatch, Names, whole

CLOCK_LEAST, CLOCK_MOST = 0.05, 5.0
_VALUE_MOST = 1e30  # far above any counter, and so far below the largest float that no sum gets there
_XCDS_MOST = 8  # a raw GRBM count may be summed over the dies of one device

_INSTANCE = re.compile(r"\[[\w:,=]+\]$")
_SUFFIX = re.compile(r"(?: \[clone \.kd\]| \(\.kd\)|\.kd)$")
_NUMBERED = re.compile(r"_\d+$")
_NOT_COUNTERS = frozenset(
    [
        "index",
        "dispatch_id",
        "kernelname",
        "kernel_name",
        "kernel_id",
        "gpu-id",
        "gpu_id",
        "queue-id",
        "queue_id",
        "queue-index",
        "pid",
        "tid",
        "process_id",
        "thread_id",
        "node",
        "agent_id",
        "grd",
        "wgr",
        "lds",
        "scr",
        "vgpr",
        "arch_vgpr",
        "accum_vgpr",
        "accumulative_vgpr",
        "sgpr",
        "fbar",
        "wave_size",
        "sig",
        "obj",
        "grid_size",
        "workgroup_size",
        "lds_per_workgroup",
        "scratch_per_workitem",
        "lds",
        "scratch_size",
        "dispatchns",
        "beginns",
        "endns",
        "completens",
        "durationns",
        "start_timestamp",
        "end_timestamp",
        "begin_timestamp",
        "correlation_id",
        "xcc_index",
        "stream_id",
        "guid",
        "lds_block_size",
        "vgpr_count",
        "accum_vgpr_count",
        "sgpr_count",
        "record_id",
    ]
)
_AS = {
    "index": "dispatch_id",
    "kernelname": "kernel_name",
    "gpu-id": "gpu_id",
    "queue-id": "queue_id",
    "process_id": "pid",
    "thread_id": "tid",
    "begin_timestamp": "start_timestamp",
    "beginns": "start_timestamp",
    "endns": "end_timestamp",
}


def _plain(name: str) -> str:
    lower = name.lower()
    return _AS.get(lower, lower if lower in _NOT_COUNTERS else name)


def clean(name: str) -> str:
    """A kernel's name without the suffix that the older tools add to the symbol."""
    return _SUFFIX.sub("", name)


def plausible(duration_ns: int, counters: Mapping[str, float]) -> bool:
    """Whether the clock that the cycle count implies for this time could be a GPU's."""
    cycles = counters.get("GRBM_COUNT")
    if not cycles:
        return True
    return duration_ns > 0 and CLOCK_LEAST <= cycles / duration_ns <= CLOCK_MOST * _XCDS_MOST


class _Dispatches:
    """Collects dispatches, and from each whose times hold the one kernel row it stands for."""

    def __init__(self, form: str, tool: str, names: Names, lanes: Lanes) -> None:
        self.decoded = Decoded(form, tool)
        self.names = names
        self.lanes = lanes

    def add(
        self,
        number: int,
        name: bytes,
        lane: int,
        times: tuple[bytes, bytes] | None,
        counters: dict[str, float],
        correlation: int = 0,
        run: int = 0,
        last: bool = True,
    ) -> int | None:
        """Record a dispatch; gives its place among the kernels if its times were believed.

        Of a dispatch that several passes repeat only the ``last`` counts as a kernel.
        """
        text = clean(name.decode("utf-8", "replace"))
        span = self._span(times, counters)
        duration = None if span is None else span[1] - span[0]
        self.decoded.dispatches.append(Dispatch(number, text, lane, duration, counters, run))
        if span is None or not last:
            return None
        kernels = self.decoded.kernels
        kernels.start.append(span[0])
        kernels.end.append(span[1])
        kernels.correlation.append(correlation)
        kernels.name.append(self.names.add(text))
        kernels.lane.append(lane)
        return len(kernels) - 1

    def _span(
        self, times: tuple[bytes, bytes] | None, counters: Mapping[str, float]
    ) -> tuple[int, int] | None:
        if times is None:
            return None
        start, end = (_whole(value) for value in times)
        if start is None or end is None:
            # A spreadsheet's 8.1097E+14 has lost the digits that mattered.
            self.decoded.skip("implausible" if any(_is_float(value) for value in times) else "malformed")
            return None
        if start == 0 or end < start:
            self.decoded.skip("invalid")
            return None
        if not plausible(end - start, counters):
            self.decoded.skip("implausible")
            return None
        return start, end


class LongCounters:
    """One row per dispatch and counter.

    A dispatch's times repeat on each of its rows and count once. Other times on the same dispatch are another
    pass over the same program: its counters belong together, and kernel time comes from the last one.
    """

    def __init__(self, columns: Sequence[str], names: Names, form: str, tool: str) -> None:
        columns = plain_columns(columns)
        self.lanes = Lanes(columns)
        self._out = _Dispatches(form, tool, names, self.lanes)
        self.decoded = self._out.decoded
        self._seen: dict[tuple[int, int, bytes], dict[tuple[bytes, bytes] | None, dict[bytes, float]]] = {}
        wanted = (
            "counter_value",
            "counter_name",
            "dispatch_id",
            "kernel_name",
            "start_timestamp",
            "end_timestamp",
        )
        self.table = Table(columns, (*wanted, *self.lanes.columns), "kernel_name", ("dispatch_id",))

    def feed(self, data: bytes) -> None:
        for batch in self.table.feed(data):
            self._take(batch)

    def finish(self, cut: bool = False) -> None:
        for batch in self.table.finish():
            self._take(batch)
        decoded = self.decoded
        for (lane, number, name), runs in self._seen.items():
            for run, (times, raw) in enumerate(runs.items()):
                self._out.add(number, name, lane, times, _folded(raw), run=run, last=run == len(runs) - 1)
        self._seen.clear()
        for reason, count in self.table.skipped.items():
            decoded.skip(reason, count)
        decoded.partial = cut or self.table.partial
        decoded.timed_by_counters = True
        decoded.lanes = self.lanes.list()

    def _take(self, batch: Batch) -> None:
        rows = len(batch["counter_value"])
        lanes = self.lanes.numbers(batch, rows)
        timed = "start_timestamp" in batch and "end_timestamp" in batch
        for i in range(rows):
            number, value = whole(batch["dispatch_id"][i]), _value(batch["counter_value"][i])
            if number is None:
                self.decoded.skip("malformed")
                continue
            if value is None:
                self.decoded.skip("invalid")
                continue
            key = lanes[i], number, batch["kernel_name"][i]
            span = (batch["start_timestamp"][i].strip(), batch["end_timestamp"][i].strip()) if timed else None
            held = self._seen.setdefault(key, {}).setdefault(span, {})
            counter = batch["counter_name"][i]
            if counter in held:
                self.decoded.skip("duplicate")
                continue
            held[counter] = value
            self.decoded.rows += 1


def _folded(raw: Mapping[bytes, float]) -> dict[str, float]:
    """Counters by name, the instances of one (``TCC_HIT[12]``) added up."""
    counters: dict[str, float] = {}
    for counter, value in raw.items():
        key = _INSTANCE.sub("", counter.decode("utf-8", "replace").strip())
        counters[key] = counters.get(key, 0.0) + value
    return counters


class Wide:
    """One row per dispatch, a column per counter; rocprof's DispatchNs stands for the launch's start."""

    def __init__(self, columns: Sequence[str], names: Names, form: str, tool: str) -> None:
        plain = [_plain(name) for name in columns]
        plain = [name if plain.count(name) == 1 else columns[i] for i, name in enumerate(plain)]
        self.lanes = Lanes(plain)
        self._out = _Dispatches(form, tool, names, self.lanes)
        self.decoded = self._out.decoded
        self._counters = [
            name for name in plain if not {name.lower(), _NUMBERED.sub("", name.lower())} & _NOT_COUNTERS
        ]
        self._dispatched = array("q")
        self._seen: set[tuple[int, int | None, bytes, bytes | None]] = set()
        self.table = Table(plain, plain, "kernel_name", ())

    def feed(self, data: bytes) -> None:
        for batch in self.table.feed(data):
            self._take(batch)

    def finish(self, cut: bool = False) -> None:
        for batch in self.table.finish():
            self._take(batch)
        decoded = self.decoded
        for reason, count in self.table.skipped.items():
            decoded.skip(reason, count)
        decoded.partial = cut or self.table.partial
        decoded.timed_by_counters = bool(self._counters)
        decoded.lanes = self.lanes.list()
        if any(at >= 0 for at in self._dispatched):
            decoded.kernels.dispatched = self._dispatched

    def _take(self, batch: Batch) -> None:
        rows = len(batch["kernel_name"])
        lanes = self.lanes.numbers(batch, rows)
        for i in range(rows):
            row = {name: column[i].strip() for name, column in batch.items()}
            number = whole(row.get("dispatch_id", b"0"))
            key = lanes[i], number, row["kernel_name"], row.get("start_timestamp")
            if number is None:
                self.decoded.skip("malformed")
            elif key in self._seen:
                self.decoded.skip("duplicate")
            else:
                self._seen.add(key)
                self._row(number, row, lanes[i])

    def _row(self, number: int, row: Mapping[str, bytes], lane: int) -> None:
        counters: dict[str, float] = {}
        for name in self._counters:
            value = _value(row[name])
            if value is not None:
                key = _INSTANCE.sub("", name)
                counters[key] = counters.get(key, 0.0) + value
        timed = "start_timestamp" in row and "end_timestamp" in row
        times = (row["start_timestamp"], row["end_timestamp"]) if timed else None
        correlation = _whole(row.get("correlation_id", b"")) or 0
        at = self._out.add(number, row["kernel_name"], lane, times, counters, correlation)
        if at is not None:
            self._dispatched.append(self._launched(row, self.decoded.kernels.end[at]))
            self.decoded.rows += 1
        elif counters:
            self.decoded.rows += 1

    def _launched(self, row: Mapping[str, bytes], end: int) -> int:
        """DispatchNs, or -1 where it is missing or of another run than the kernel's times."""
        dispatched, complete = _whole(row.get("dispatchns", b"")), _whole(row.get("completens", b""))
        if not dispatched or (complete is not None and complete < end):
            return -1
        return dispatched


def _whole(raw: bytes) -> int | None:
    value = whole(raw.strip().removesuffix(b".0"))
    return value if value is not None and value < 1 << 63 else None


def _is_float(raw: bytes) -> bool:
    return _value(raw) is not None


def _value(raw: bytes) -> float | None:
    """A count; None for what is no number, and for one that no counter can reach."""
    try:
        value = float(raw)
    except ValueError:
        return None
    return value if 0 <= value <= _VALUE_MOST else None
