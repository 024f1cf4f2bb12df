"""What rocprofv2 prints: ``Name(value), Name(value)`` on a line for each kernel or API call. Pure."""

from __future__ import annotations

import re

from exporter.formats.counters import Wide
from exporter.formats.rocprofv3 import ApiTrace
from exporter.formats.trace import Decoded, Names

_KERNEL = re.compile(rb'Dispatch_ID\(\d+\), .*?Kernel_Name\("(?P<name>.*)"\), (?P<rest>Begin_Timestamp\(.*)$')
_FIELD = re.compile(rb"([A-Za-z_0-9\[\]]+)\(([^()]*)\)")
_CALL = re.compile(
    rb"Domain\((?P<domain>\w+)\), Function\((?P<function>.*?)\), Start_Timestamp\((?P<start>\d+)\), "
    rb"End_Timestamp\((?P<end>\d+)\), Correlation_ID\((?P<id>\d+)\)"
)
STARTS = (b"Dispatch_ID(", b"Domain(")
_LONGEST = 1 << 20
_CALL_COLUMNS = ("Domain", "Function", "Start_Timestamp", "End_Timestamp", "Correlation_ID")


class Printed:
    """rocprofv2's console output. Lines of other kinds are the application's own and mean nothing here."""

    def __init__(self, names: Names, form: str, tool: str) -> None:
        self._names, self._form, self._tool = names, form, tool
        self.decoded = Decoded(form, tool)
        self._carry = b""
        self._kernels: Wide | None = None
        self._columns: list[str] = []
        self._calls = ApiTrace(_CALL_COLUMNS, names, form, tool)

    def feed(self, data: bytes) -> None:
        lines = (self._carry + data).split(b"\n")
        self._carry = lines.pop()[-_LONGEST:]
        for line in lines:
            self._line(line)

    def finish(self, cut: bool = False) -> None:
        decoded = self.decoded
        if self._carry:
            decoded.partial = True
            self._line(self._carry, last=True)
        self._calls.finish(cut)
        parts = [self._calls.decoded]
        if self._kernels is not None:
            self._kernels.finish(cut)
            parts.append(self._kernels.decoded)
            decoded.kernels, decoded.dispatches = (
                self._kernels.decoded.kernels,
                self._kernels.decoded.dispatches,
            )
            decoded.lanes = self._kernels.decoded.lanes
            decoded.timed_by_counters = self._kernels.decoded.timed_by_counters
        else:
            decoded.calls, decoded.lanes = self._calls.decoded.calls, self._calls.decoded.lanes
            decoded.traces_calls = self._calls.decoded.traces_calls
        for part in parts:
            decoded.rows += part.rows
            for reason, count in part.skipped.items():
                decoded.skip(reason, count)
        decoded.partial = decoded.partial or cut

    def _line(self, line: bytes, last: bool = False) -> None:
        line = line.strip()
        if not line.startswith(STARTS):
            return
        kernel, call = _KERNEL.match(line), _CALL.match(line)
        if kernel is not None and line.endswith(b")"):
            self._kernel(line[: kernel.start("name")], kernel["name"], kernel["rest"])
        elif call is not None:
            row = b",".join(
                (b'"%s"' % call["domain"], b'"%s"' % call["function"], call["start"], call["end"], call["id"])
            )
            self._calls.feed(row + b"\n")
        else:
            self.decoded.skip("truncated" if last else "malformed")

    def _kernel(self, before: bytes, name: bytes, rest: bytes) -> None:
        fields = [*_FIELD.findall(before), (b"Kernel_Name", b'"%s"' % name), *_FIELD.findall(rest)]
        columns = [key.decode() for key, _ in fields]
        if self._kernels is None:
            self._kernels, self._columns = Wide(columns, self._names, self._form, self._tool), columns
        if columns != self._columns:
            self.decoded.skip("malformed")
            return
        self._kernels.feed(b",".join(value for _, value in fields) + b"\n")
