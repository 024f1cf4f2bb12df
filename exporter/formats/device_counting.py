"""Counters of whole GPUs: the one JSON object of our own helper, and that of AMD's rocpctl. Pure.

Our protocol is described in deploy/device-counting/README.md. A device is one row; what it says is believed
only as far as the hardware could have said it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from exporter.formats.trace import DEVICE_WIDE, Agent, Decoded, Dispatch, Lane, Names, whole

CLOCK_LEAST, CLOCK_MOST = 0.05, 5.0  # cycles per nanosecond of one die
FORM, VENDOR_FORM = "device-counting", "rocpctl"
TOOL = "device_counting"
_LARGEST = 4 << 20
_VALUE_MOST = 1e30
_SECONDS_MOST = 3_600.0
_IMPRECISE = 0.2  # of the window's length, that the moment of reading may be off
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_REFUSALS = frozenset({"denied", "busy", "too_many_counters", "unsupported", "failed"})
_CYCLES, _ACTIVE, _SHADER = "GRBM_COUNT", "GRBM_GUI_ACTIVE", "SQ_"
_OWN, _VENDOR = re.compile(r'"devices"\s*:\s*\['), re.compile(r'"GpuMetrics"\s*:\s*\[')


class _Twice:
    """Stands for a value whose key stood twice in its object: neither can be preferred."""


def looks_like(text: bytes) -> str | None:
    """Which of the two forms begins so, if any."""
    head = text[:4096]
    if b'"amdgpu-exporter-counting"' in head and b'"protocol"' in head:
        return FORM
    return VENDOR_FORM if b'"GpuMetrics"' in head and text[:1] == b"{" else None


class _Document:
    """Reads a small document at once; of one that was cut, the devices that are whole."""

    form, tool = FORM, TOOL
    array = _OWN

    def __init__(self, _names: Names) -> None:
        self.decoded = Decoded(self.form, self.tool)
        self.decoded.timed_by_counters = True
        self._data = bytearray()
        self._seen: set[int] = set()

    def feed(self, data: bytes) -> None:
        if len(self._data) <= _LARGEST:
            self._data += data

    def finish(self, cut: bool = False) -> None:
        text = bytes(self._data[:_LARGEST]).decode("utf-8", "replace")
        decoded, json_ = self.decoded, _decoder()
        decoded.partial = cut or len(self._data) > _LARGEST
        try:
            top = json_.decode(text)
            found = self.devices(top)
        except (ValueError, RecursionError):
            decoded.partial = True
            decoded.skip("damaged")
            self.told("ends early or is no JSON; what is whole in it is used")
            found = [*_whole_objects(json_, text, self.array)]
        for device in found:
            if not isinstance(device, dict) or any(isinstance(v, _Twice) for v in device.values()):
                decoded.skip("malformed")
            else:
                self.take(device)

    def devices(self, top: Any) -> list[Any]:
        raise NotImplementedError

    def take(self, device: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def add(
        self, number: int, lane: Lane, counters: dict[str, float], ns: int | None, dies: int | None
    ) -> None:
        """Record what a device counted, if it can be believed."""
        if number in self._seen:
            self.decoded.skip("duplicate")
            return
        self._seen.add(number)
        if not counters:
            self.decoded.skip("empty")
        elif not any(counters.values()) or counters.get(_CYCLES) == 0:
            # A powered GPU has a clock: whoever counts no cycle counts nothing.
            self.decoded.skip("all_zero")
        else:
            at = len(self.decoded.lanes)
            self.decoded.lanes.append(lane)
            self.decoded.dispatches.append(Dispatch(0, DEVICE_WIDE, at, ns, counters, dies=dies))
            self.decoded.rows += 1

    def shaders(self, counters: dict[str, float], lock: str | None) -> dict[str, float]:
        """Without those of the shaders where they are 0 on a GPU that worked, or not of every process."""
        own = [name for name in counters if name.startswith(_SHADER)]
        dark = own and not any(counters[name] for name in own) and counters.get(_ACTIVE, 0.0) > 0
        if dark or (own and lock is not None):
            self.decoded.skip("shaders_hidden")
            return {name: value for name, value in counters.items() if name not in own}
        return counters

    def told(self, line: str) -> None:
        """Keep the first thing that somebody has to know."""
        self.decoded.note = self.decoded.note or line[:300]


class Counting(_Document):
    """The object of amdgpu-exporter-counting, protocol 1."""

    def devices(self, top: Any) -> list[Any]:
        if not isinstance(top, dict) or not isinstance(top.get("devices"), list):
            self.decoded.skip("malformed")
            return []
        errors = top.get("errors")
        for line in errors if isinstance(errors, list) else ():
            self.decoded.skip("failed")
            self.told(str(line))
        if top.get("protocol") != 1:
            self.decoded.skip("unknown_protocol")
            self.told(f"protocol {str(top.get('protocol'))[:20]} is not known here; 1 is")
            return []
        return list(top["devices"])

    def take(self, device: Mapping[str, Any]) -> None:
        node, pci, status = device.get("node"), device.get("pci"), device.get("status")
        if type(node) is not int or not 0 <= node < 1 << 20 or not _is_pci(pci):
            self.decoded.skip("malformed")
            return
        unknown = device.get("unknown")
        if isinstance(unknown, list) and unknown:
            self.decoded.skip("unknown_counter", len(unknown))
            self.told(f"{pci}: has no counter {', '.join(map(str, unknown[:5]))}")
        if status != "ok":
            self.decoded.skip(status if status in _REFUSALS else "malformed")
            self.told(f"{pci}: {status}: {device.get('error')}")
            return
        raw, lock = device.get("counters"), device.get("lock")
        counters = self.shaders(self._numbers(raw), None if lock is None else str(lock))
        agent = _agent(device, node, str(pci))
        dies = _dies(device.get("instances"), agent.xccs)
        self.decoded.agents.append(agent)
        self.add(node, Lane(f"Agent {node}"), counters, self._length(device, counters, dies), dies)

    def _numbers(self, raw: Any) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, value in raw.items() if isinstance(raw, dict) else ():
            if isinstance(value, _Twice):
                self.decoded.skip("duplicate")
            elif (
                isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _VALUE_MOST
            ):
                self.decoded.skip("invalid")
            else:
                found[str(name)] = float(value)
        return found

    def _length(
        self, device: Mapping[str, Any], counters: Mapping[str, float], dies: int | None
    ) -> int | None:
        """How long was counted, to the middle of the reading; None where that is not sure enough."""
        seconds, read_s = device.get("seconds"), device.get("read_seconds")
        if (
            not _is_time(seconds)
            or not _is_time(read_s)
            or not 0 < seconds <= _SECONDS_MOST
            or read_s > seconds
        ):
            self.decoded.skip("invalid_time")
            return None
        middle = seconds - read_s / 2
        if read_s / 2 > _IMPRECISE * middle:
            self.decoded.skip("imprecise_time")
            return None
        cycles = counters.get(_CYCLES)
        if cycles and dies and not CLOCK_LEAST <= cycles / dies / (middle * 1e9) <= CLOCK_MOST:
            self.decoded.skip("implausible")
            return None
        return round(middle * 1e9)


class Rocpctl(_Document):
    """The object that rocpctl of AMD's device-metrics-exporter prints: all values are texts, without a time.

    ``GpuId`` is the compute driver's id of the GPU.
    """

    form, array = VENDOR_FORM, _VENDOR

    def devices(self, top: Any) -> list[Any]:
        found = top.get("GpuMetrics") if isinstance(top, dict) else None
        if not isinstance(found, list):
            self.decoded.skip("malformed")
            return []
        return found

    def take(self, device: Mapping[str, Any]) -> None:
        number, metrics = whole(str(device.get("GpuId"))), device.get("Metrics")
        if number is None or not isinstance(metrics, list):
            self.decoded.skip("malformed")
            return
        counters: dict[str, float] = {}
        twice: set[str] = set()
        for metric in metrics:
            name = metric.get("Field") if isinstance(metric, dict) else None
            value = _number(metric.get("Value")) if isinstance(metric, dict) else None
            if not isinstance(name, str) or value is None:
                self.decoded.skip("invalid")
            elif name in counters:
                self.decoded.skip("duplicate")
                twice.add(name)
            else:
                counters[name] = value
        counters = {name: value for name, value in counters.items() if name not in twice}
        self.add(number, Lane(f"gpu_id {number}"), self.shaders(counters, None), None, None)


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_number, parse_int=_integer)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                made[key] = _Twice()
            seen.add(key)
    return made


def _no_number(_text: str) -> None:
    return None  # as the helper writes it, and as wrong as that where a number is wanted


def _integer(text: str) -> int | float:
    return int(text) if len(text) < 19 else float(text)


def _whole_objects(json_: json.JSONDecoder, text: str, array: re.Pattern[str]) -> Iterator[Any]:
    """The objects at the beginning of an array that is damaged later on."""
    found = array.search(text)
    at = found.end() if found else len(text)
    while (at := _skipped(text, at)) < len(text) and text[at] == "{":
        try:
            value, at = json_.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield value


def _skipped(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _agent(device: Mapping[str, Any], node: int, pci: str) -> Agent:
    gfx = device.get("gfx")
    return Agent(
        node,
        True,
        pci,
        _or_unknown(device.get("gpu_id")),
        _or_unknown(device.get("render_minor")),
        _or_unknown(device.get("device_id")),
        gfx if isinstance(gfx, str) and gfx.startswith("gfx") else None,
        _at_least(device.get("compute_units"), 1),
        _at_least(device.get("xccs"), 1),
    )


def _or_unknown(value: Any) -> int:
    known = _at_least(value, 0)
    return -1 if known is None else known


def _dies(instances: Any, xccs: int | None) -> int | None:
    """Over how many dies the cycles were added up."""
    count = _at_least(instances.get(_CYCLES), 1) if isinstance(instances, dict) else None
    return count if count in (1, xccs) else None


def _at_least(value: Any, least: int) -> int | None:
    return value if type(value) is int and least <= value < 1 << 40 else None


def _is_pci(value: Any) -> bool:
    return isinstance(value, str) and _PCI.fullmatch(value) is not None


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _VALUE_MOST


def _number(value: Any) -> float | None:
    try:
        number = float(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and 0 <= number <= _VALUE_MOST else None


MAKERS: dict[str, Callable[[Names], _Document]] = {FORM: Counting, VENDOR_FORM: Rocpctl}
