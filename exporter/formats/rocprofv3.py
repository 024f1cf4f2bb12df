"""rocprofv3's tables, any release: kernels, API calls, copies. Columns go by name, never by place. Pure."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from operator import gt

from exporter.formats.rows import Batch, Table
from exporter.formats.trace import Decoded, Ids, Lane, Names, lane_numbers, whole

_START, _END, _CORRELATION = "start_timestamp", "end_timestamp", "correlation_id"
_ALIASES = {"start": _START, "end": _END, "begin_timestamp": _START, "beginns": _START, "endns": _END}
_LANE = ("guid", "agent_id", "gpu_id", "queue_id", "stream_id", "process_id", "pid", "thread_id", "tid")
_HIP = re.compile(r"(?:hip|cuda|cu)[A-Z]")
_DIRECTION = re.compile(r"(host|device|peer)_to_(host|device|peer)", re.IGNORECASE)


def plain_columns(columns: Sequence[str]) -> list[str]:
    """Columns under the lower-case names used here, whatever the release calls them."""
    columns = [name.lower() for name in columns]
    return [name if _ALIASES.get(name, name) in columns else _ALIASES.get(name, name) for name in columns]


def sound(batch: Batch, decoded: Decoded) -> dict[str, Sequence[bytes]]:
    """Only the rows whose times can be: both integers that fit, in order, not 0; the others are counted."""
    keep: list[int] = []
    for i, (start, end) in enumerate(zip(batch[_START], batch[_END], strict=True)):
        reason = _fault(start.strip(), end.strip(), batch[_CORRELATION][i] if _CORRELATION in batch else b"0")
        if reason is None:
            keep.append(i)
        else:
            decoded.skip(reason)
    return {name: [column[i] for i in keep] for name, column in batch.items()}


def _fault(start: bytes, end: bytes, correlation: bytes) -> str | None:
    if not (start.isdigit() and end.isdigit() and correlation.strip().isdigit()):
        return "malformed"
    numbers = [number for text in (start, end, correlation) if (number := whole(text)) is not None]
    if len(numbers) < 3 or max(numbers) >= 1 << 63 or not 0 < numbers[0] <= numbers[1]:
        return "invalid"
    return None


def times(batch: Batch) -> tuple[array[int], array[int], array[int]] | None:
    """Start, end and correlation id of all rows; None if any row is not sound."""
    try:
        starts, ends = [*map(int, batch[_START])], [*map(int, batch[_END])]
        start, end = array("q", starts), array("q", ends)
        if _CORRELATION in batch:
            correlation = array("q", [*map(int, batch[_CORRELATION])])
        else:
            correlation = array("q", bytes(8 * len(start)))
    except (ValueError, OverflowError):
        return None
    if not start:
        return start, end, correlation
    if any(map(gt, starts, ends)) or min(starts) <= 0 or min(correlation) < 0:
        return None
    return start, end, correlation


class Lanes:
    """Numbers the lanes of one file."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = [name for name in _LANE if name in columns]
        self.ids = Ids()

    def numbers(self, batch: Batch, rows: int) -> array[int]:
        return lane_numbers(self.ids, [batch[name] for name in self.columns], rows)

    def list(self, *more: str) -> list[Lane]:
        """Lanes by number; ``more`` are columns that were added to every key."""
        columns = (*self.columns, *more)
        return [self._lane(dict(zip(columns, key, strict=True))) for key in self.ids]  # type: ignore[call-overload]

    def _lane(self, raw: Mapping[str, bytes]) -> Lane:
        def text(*names: str) -> str | None:
            for name in names:
                if name in raw:
                    return raw[name].strip().decode("utf-8", "replace") or None
            return None

        def number(*names: str) -> int | None:
            return whole(text(*names) or "")

        return Lane(
            text("agent_id", "gpu_id"),
            text("queue_id"),
            text("stream_id"),
            number("thread_id", "tid"),
            number("process_id", "pid"),
            text("guid"),
        )


class _Timed:
    """What the decoders of tables with a start and an end per row share."""

    free = ""
    more: tuple[str, ...] = ()
    lane_more: tuple[str, ...] = ()

    def __init__(self, columns: Sequence[str], names: Names, form: str, tool: str) -> None:
        self.decoded = Decoded(form, tool)
        self.names = names
        columns = plain_columns(columns)
        self.lanes = Lanes(columns)
        wanted = (_START, _END, _CORRELATION, self.free, *self.lanes.columns, *self.more)
        self.table = Table(columns, wanted, self.free, ())

    def feed(self, data: bytes) -> None:
        for batch in self.table.feed(data):
            self._take(batch)

    def finish(self, cut: bool = False) -> None:
        for batch in self.table.finish():
            self._take(batch)
        decoded = self.decoded
        for reason, count in self.table.skipped.items():
            decoded.skip(reason, count)
        decoded.partial = decoded.partial or cut or self.table.partial
        decoded.lanes = self.lanes.list(*self.lane_more)
        self.done()

    def _take(self, batch: Batch) -> None:
        found = times(batch)
        if found is None:
            batch = sound(batch, self.decoded)
            found = times(batch)
            if found is None:
                return
        if found[0]:
            self.decoded.rows += len(found[0])
            self.add(batch, *found)

    def add(self, batch: Batch, start: array[int], end: array[int], correlation: array[int]) -> None:
        raise NotImplementedError

    def done(self) -> None:
        """A last look when all rows are in."""


class KernelTrace(_Timed):
    free = "kernel_name"

    def add(self, batch: Batch, start: array[int], end: array[int], correlation: array[int]) -> None:
        kernels = self.decoded.kernels
        kernels.start.extend(start)
        kernels.end.extend(end)
        kernels.correlation.extend(correlation)
        kernels.name.extend(self.names.column(batch["kernel_name"]))
        kernels.lane.extend(self.lanes.numbers(batch, len(start)))


class ApiTrace(_Timed):
    free = "function"

    def add(self, batch: Batch, start: array[int], end: array[int], correlation: array[int]) -> None:
        calls = self.decoded.calls
        calls.start.extend(start)
        calls.end.extend(end)
        calls.correlation.extend(correlation)
        calls.function.extend(self.names.column(batch["function"]))
        calls.lane.extend(self.lanes.numbers(batch, len(start)))

    def done(self) -> None:
        """Only a trace of the HIP runtime shows launches; one of HSA, RCCL or markers alone does not.

        One without any row says that nothing was called.
        """
        texts = self.names.texts()
        functions = set(self.decoded.calls.function)
        self.decoded.traces_calls = not functions or any(_HIP.match(texts[i]) for i in functions)


class CopyTrace(_Timed):
    free = "direction"
    more = ("source_agent_id", "destination_agent_id")
    lane_more = ("agent_id",)

    def add(self, batch: Batch, start: array[int], end: array[int], correlation: array[int]) -> None:
        copies, rows = self.decoded.copies, len(correlation)
        copies.start.extend(start)
        copies.end.extend(end)
        copies.direction.extend(array("i", [self.names.add(direction(text)) for text in batch["direction"]]))
        copies.lane.extend(self._agents(batch, "source_agent_id", rows))
        copies.target.extend(self._agents(batch, "destination_agent_id", rows))

    def _agents(self, batch: Batch, column: str, rows: int) -> array[int]:
        if column not in batch:
            return array("i", [-1]) * rows
        rest = [batch[name] for name in self.lanes.columns]
        keys = zip(*rest, batch[column], strict=True)
        return array("i", [*map(self.lanes.ids.__getitem__, keys)])

    def done(self) -> None:
        self.decoded.traces_copies = True


def direction(raw: bytes) -> str:
    """``host_to_device`` and its like from what the tool writes; else its own words, lower-cased."""
    text = raw.decode("utf-8", "replace")
    found = _DIRECTION.search(text)
    if found is None:
        return text.strip().lower() or "unknown"
    return f"{found[1]}_to_{found[2]}".lower().replace("peer", "device")
