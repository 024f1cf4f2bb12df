"""PyTorch's profiler trace (Chrome JSON), read as a stream that holds one event at a time. Pure."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from exporter.formats.rocprofv3 import direction
from exporter.formats.trace import Decoded, Ids, Lane, Names, whole

_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_NEXT = re.compile(r"[\s,]*")
_BOUNDARY = re.compile(r"\}\s*,\s*(?=\{)")
_EVENT_MOST = 1 << 18
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime", "driver"})
_TO = {
    "htod": b"host_to_device",
    "dtoh": b"device_to_host",
    "dtod": b"device_to_device",
    "ptop": b"device_to_device",
}
_MEMCPY = re.compile(r"\b(htod|dtoh|dtod|ptop)\b", re.IGNORECASE)


class TorchTrace:
    """Units: the file's float microseconds become exact nanoseconds, by their decimal text.

    Absent: a kernel row says nothing of the thread that launched it.
    """

    def __init__(self, names: Names, form: str, tool: str) -> None:
        self.decoded = Decoded(form, tool)
        self._names = names
        self._lanes = Ids()
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._json = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
        self._buffer = ""
        self._state = "start"

    def feed(self, data: bytes) -> None:
        self._buffer += self._text.decode(data)
        self._advance(last=False)

    def finish(self, cut: bool = False) -> None:
        self._buffer += self._text.decode(b"", True)
        self._advance(last=True)
        decoded = self.decoded
        decoded.partial = cut or self._state != "after"
        decoded.lanes = list(self._lanes)  # type: ignore[arg-type]
        decoded.traces_calls = len(decoded.calls) > 0
        decoded.traces_copies = True
        self._buffer = ""

    def _advance(self, last: bool) -> None:
        if self._state in ("start", "before"):
            self._find_events()
        if self._state != "events":
            self._buffer = self._buffer[-64:] if self._state == "before" else ""
            return
        text, at = self._buffer, 0
        while True:
            found = _NEXT.match(text, at)
            at = found.end() if found else at
            if at >= len(text):
                break
            if text[at] == "]":
                self._state = "after"
                break
            try:
                event, at = self._json.raw_decode(text, at)
            except (json.JSONDecodeError, RecursionError):
                if not last and len(text) - at < _EVENT_MOST:
                    break
                boundary = _BOUNDARY.search(text, at)
                if boundary is None:
                    self.decoded.skip("truncated" if last else "malformed")
                    at = len(text)
                    break
                self.decoded.skip("malformed")
                at = boundary.end()
                continue
            self._event(event)
        self._buffer = text[at:] if self._state == "events" else ""

    def _find_events(self) -> None:
        if self._state == "start":
            self._buffer = self._buffer.lstrip("\ufeff \t\r\n")
            if not self._buffer:
                return
            self._state = "before"
            if self._buffer[0] == "[":
                self._buffer, self._state = self._buffer[1:], "events"
                return
        found = _EVENTS.search(self._buffer)
        if found is not None:
            self._buffer, self._state = self._buffer[found.end() :], "events"

    def _event(self, event: Any) -> None:
        if not isinstance(event, dict):
            self.decoded.skip("malformed")
            return
        kind = str(event.get("cat", "")).lower()
        if event.get("ph") != "X" or not (kind in _CALLS or kind in ("kernel", "gpu_memcpy")):
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        start, length = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur"))
        if start is None or length is None:
            self.decoded.skip("malformed")
            return
        if start <= 0 or length < 0 or start + length >= 1 << 63:
            self.decoded.skip("invalid")
            return
        correlation = _integer(args.get("correlation"))
        self._add(kind, event, args, start, start + length, correlation)

    def _add(
        self,
        kind: str,
        event: Mapping[str, Any],
        args: Mapping[str, Any],
        start: int,
        end: int,
        correlation: int,
    ) -> None:
        name = str(event.get("name", ""))
        decoded = self.decoded
        if kind in _CALLS:
            calls = decoded.calls
            lane = Lane(tid=_integer(event.get("tid")), pid=_integer(event.get("pid")) or None)
            calls.start.append(start)
            calls.end.append(end)
            calls.correlation.append(correlation)
            calls.function.append(self._names.add(name))
            calls.lane.append(self._lanes[lane])
        else:
            device = str(args.get("device", event.get("pid", "unknown")))
            lane = Lane(agent=device, stream=str(args.get("stream", event.get("tid", ""))))
            if kind == "kernel":
                kernels = decoded.kernels
                kernels.start.append(start)
                kernels.end.append(end)
                kernels.correlation.append(correlation)
                kernels.name.append(self._names.add(name))
                kernels.lane.append(self._lanes[lane])
            else:
                self._copy(name, start, end, self._lanes[lane])
        decoded.rows += 1

    def _copy(self, name: str, start: int, end: int, lane: int) -> None:
        copies = self.decoded.copies
        found = _MEMCPY.search(name)
        way = _TO[found[1].lower()] if found else name.encode("utf-8", "replace")
        copies.start.append(start)
        copies.end.append(end)
        copies.direction.append(self._names.add(direction(way)))
        copies.lane.append(lane)
        copies.target.append(lane)


def _nanoseconds(text: Any) -> int | None:
    """Exact for three decimals and fewer, which is what the profiler writes; more are rounded."""
    if not isinstance(text, str):
        return None
    digits = text[:-4] + text[-3:]
    if text[-4:-3] == "." and digits.isascii() and digits.isdigit() and len(digits) < 20:
        return int(digits)  # as nearly every event writes it
    before, dot, part = text.partition(".")
    high, low = whole(before.removeprefix("-")), whole((part + "000")[:3])
    if high is not None and low is not None and len(part) <= 3 and (part or not dot):
        value = high * 1000 + low
        return -value if before[:1] == "-" else value
    try:
        exact = Decimal(text)
        return int((exact * 1000).to_integral_value()) if exact.is_finite() and abs(exact) < 10**19 else None
    except ArithmeticError:
        return None


def _integer(text: Any) -> int:
    if not isinstance(text, str):
        return 0
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else whole(text)
    return value if value is not None and value < 1 << 63 else 0
