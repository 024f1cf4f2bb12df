"""roctracer's text: ``start:end pid:tid api(args)`` and ``start:end device:queue activity:id:pid``. Pure."""

from __future__ import annotations

import re

from exporter.formats import sdk
from exporter.formats.counters import clean
from exporter.formats.rocprofv3 import direction
from exporter.formats.trace import Decoded, Ids, Lane, Names

_LINE = re.compile(
    rb"(?P<start>\d{1,19}):(?P<end>\d{1,19}) (?P<left>\d{1,19}):(?P<right>\d{1,19}) "
    rb"(?:(?P<call>_*[A-Za-z]\w*)\(.*|(?P<activity>.+):(?P<id>\d{1,19}):(?P<pid>\d{1,19}))\s*$"
)
_BEGINS = re.compile(rb"^\d{1,19}:\d{1,19} \d{1,19}:\d{1,19} ", re.MULTILINE)
_COPY = re.compile(rb"Copy(Host|Device)To(Host|Device)")
_NO_KERNEL = re.compile(rb"(?:Copy|Fill|Marker|Barrier|Task)\w*$")
_LONGEST = 1 << 20


def looks_like(head: bytes) -> bool:
    return _BEGINS.search(head) is not None


class Roctracer:
    """Absent: which call launched a kernel, as the lines of calls carry no id. So there is no queue time."""

    def __init__(self, names: Names, form: str = "roctracer-text", tool: str = "roctracer") -> None:
        self.decoded = Decoded(form, tool)
        self._names = names
        self._lanes = Ids()
        self._carry = b""

    def feed(self, data: bytes) -> None:
        lines = (self._carry + data).split(b"\n")
        self._carry = lines.pop()[-_LONGEST:]
        for line in lines:
            self._line(line)

    def finish(self, cut: bool = False) -> None:
        decoded = self.decoded
        if self._carry:
            decoded.partial = True
            if _BEGINS.match(self._carry):
                decoded.skip("truncated")
        decoded.partial = decoded.partial or cut
        decoded.lanes = list(self._lanes)  # type: ignore[arg-type]
        decoded.traces_copies = len(decoded.copies) > 0

    def _line(self, line: bytes) -> None:
        found = _LINE.match(line)
        if found is None:  # the application prints between the lines, which means nothing here
            if _BEGINS.match(line):
                self.decoded.skip("malformed")
            return
        times = sdk.span(self.decoded, int(found["start"]), int(found["end"]))
        if times is None:
            return
        left, right = int(found["left"]), int(found["right"])
        if found["call"] is not None:
            calls = self.decoded.calls
            calls.start.append(times[0])
            calls.end.append(times[1])
            calls.correlation.append(0)
            calls.function.append(self._names.add(found["call"].decode()))
            calls.lane.append(self._lanes[Lane(tid=right, pid=left)])
        else:
            self._activity(found["activity"], times, Lane(f"{left}", f"{right}", pid=int(found["pid"])))
        self.decoded.rows += 1

    def _activity(self, name: bytes, times: tuple[int, int], lane: Lane) -> None:
        copy = _COPY.search(name)
        if copy is not None or name.startswith(b"Copy"):
            copies, at = self.decoded.copies, self._lanes[lane]
            way = b"%s_to_%s" % copy.groups() if copy else name
            copies.start.append(times[0])
            copies.end.append(times[1])
            copies.direction.append(self._names.add(direction(way)))
            copies.lane.append(at)
            copies.target.append(at)
        elif not _NO_KERNEL.match(name):
            kernels = self.decoded.kernels
            kernels.start.append(times[0])
            kernels.end.append(times[1])
            kernels.correlation.append(0)
            kernels.name.append(self._names.add(clean(name.decode("utf-8", "replace"))))
            kernels.lane.append(self._lanes[lane])
