"""Small tables of the ROCm profilers: agents, machine, statistics; and those without kernels. Pure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence

from exporter.catalogue.chips import gfx_name
from exporter.formats.rows import Table
from exporter.formats.trace import Agent, Decoded, Names, Stat, whole

_LARGEST = 1 << 22
_NANOSECONDS_MOST = 1 << 63


class _Whole:
    """Reads a small table at once, as the csv module does: these files quote as everybody expects."""

    def __init__(self, columns: Sequence[str], _names: Names, form: str, tool: str) -> None:
        self.decoded = Decoded(form, tool)
        self.columns = [name.lower() for name in columns]
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        if len(self._data) < _LARGEST:
            self._data += data

    def finish(self, cut: bool = False) -> None:
        data = bytes(self._data[:_LARGEST])
        complete = not cut and len(self._data) <= _LARGEST
        self.decoded.partial = not complete
        if data and not data.endswith(b"\n"):
            self.decoded.partial = True
        text = data.decode("utf-8", "replace").replace("\0", "\ufffd")
        for row in _rows(text):
            if not row:
                continue
            if len(row) != len(self.columns):
                self.decoded.skip("malformed" if complete else "truncated")
            elif self.take(dict(zip(self.columns, row, strict=True))):
                self.decoded.rows += 1
            else:
                self.decoded.skip("malformed")

    def take(self, row: Mapping[str, str]) -> bool:
        raise NotImplementedError


class AgentInfo(_Whole):
    """Shape: one Agent per row. Only Domain and Location_Id together name a PCI function."""

    def take(self, row: Mapping[str, str]) -> bool:
        node = _int(row.get("node_id"))
        if node is None:
            return False
        is_gpu = row.get("agent_type", "").strip().upper() == "GPU"
        location, domain = _int(row.get("location_id")), _int(row.get("domain"))
        name = row.get("name", "")
        target = gfx_name(_int(row.get("gfx_target_version")) or 0)
        self.decoded.agents.append(
            Agent(
                node,
                is_gpu,
                pci_address(domain, location)
                if is_gpu and location is not None and domain is not None
                else None,
                _int(row.get("gpu_id")) or -1,
                _or(_int(row.get("drm_render_minor")), -1),
                _int(row.get("device_id")) or -1,
                target or (name if name.startswith("gfx") else None),
                _int(row.get("cu_count")) or None,
                _int(row.get("num_xcc")) or None,
            )
        )
        return True


class SystemInfo(_Whole):
    """rocprof-compute's description of the one GPU it ran on."""

    def take(self, row: Mapping[str, str]) -> bool:
        gfx = row.get("gpu_arch") or row.get("gpu_soc")
        if not gfx:
            return False
        units = _int(row.get("cu_per_gpu") or row.get("numcu"))
        chip = _int(row.get("gpu_chip_id")) or -1
        self.decoded.agents.append(Agent(-1, True, None, -1, -1, chip, gfx, units, _int(row.get("num_xcd"))))
        return True


class Known:
    """A file of a profiler's output that says nothing about kernels in time: its lines are counted."""

    def __init__(self, _columns: Sequence[str], _names: Names, form: str, tool: str) -> None:
        self.decoded = Decoded(form, tool)
        self._end = b"\n"

    def feed(self, data: bytes) -> None:
        self.decoded.rows += data.count(b"\n")
        self._end = data[-1:] or self._end

    def finish(self, cut: bool = False) -> None:
        self.decoded.rows += self._end != b"\n"
        self.decoded.partial = cut or self._end != b"\n"


class Stats:
    """A summary per kernel or function. A cell that is no finite number is absent, its row stays."""

    _CELLS = ("totaldurationns", "averagens", "percentage", "minns", "maxns", "stddev")

    def __init__(self, columns: Sequence[str], _names: Names, form: str, tool: str) -> None:
        self.decoded = Decoded(form, tool)
        self.table = Table(
            [name.lower() for name in columns], ("name", "calls", *self._CELLS), "name", spare="stddev"
        )

    def feed(self, data: bytes) -> None:
        for batch in self.table.feed(data):
            self._take(batch)

    def finish(self, cut: bool = False) -> None:
        for batch in self.table.finish():
            self._take(batch)
        for reason, count in self.table.skipped.items():
            self.decoded.skip(reason, count)
        self.decoded.partial = cut or self.table.partial

    def _take(self, batch: Mapping[str, Sequence[bytes]]) -> None:
        for i, raw in enumerate(batch["name"]):
            calls = whole(batch["calls"][i])
            if calls is None:
                self.decoded.skip("malformed")
                continue
            total, *rest = (_finite(batch[name][i]) if name in batch else None for name in self._CELLS)
            if total is not None and not 0 <= total < _NANOSECONDS_MOST:
                self.decoded.skip("invalid")
                continue
            name = raw.decode("utf-8", "replace")
            self.decoded.stats.append(Stat(name, calls, None if total is None else int(total), *rest))
            self.decoded.rows += 1


def _rows(text: str) -> Iterator[list[str]]:
    """Rows of the csv module; one that it refuses has no columns that count."""
    reader = csv.reader(io.StringIO(text))
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield [""]


def pci_address(domain: int, location: int) -> str:
    """``dddd:bb:dd.f`` from the PCI domain and KFD's location id."""
    return f"{domain:04x}:{location >> 8 & 255:02x}:{location >> 3 & 31:02x}.{location & 7}"


def _finite(raw: bytes) -> float | None:
    try:
        value = float(raw)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _int(text: str | None) -> int | None:
    return whole((text or "").strip().removesuffix(".0"))


def _or(value: int | None, other: int) -> int:
    return other if value is None else value
