"""``rocm-smi --show... --json`` of ROCm 4.3 to 6.x -> entries. Pure.

Shape: one object per ``cardN``, all values text, key names by release; ``system`` is no device. Keys that are
bare numbers are clock levels of unnamed tables and left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from exporter.formats.smi_json import (
    DEVICES_MAX,
    Entry,
    Record,
    Socket,
    bdf,
    documents,
    first_function,
    identifier,
    merge,
    number,
    ordinal,
    place,
    present,
    word,
)
from exporter.model import FormatError, Raw, Reason

SYSTEM = -1
"""The key of the record that is about the machine."""

_CARD = re.compile(r"card(\d{1,4})\Z")
# The tool multiplies the firmware's 2^-16 J by this rounded number of microjoules.
_MICROJOULES_PER_COUNT = 15.3
_COUNTS_PER_JOULE = 65536


def records(data: bytes) -> dict[int, Record]:
    """The output's cards by the tool's own number. Errors: FormatError without any card."""
    out: dict[int, dict[str, Any]] = {}
    for document in documents(data):
        if not isinstance(document, Mapping):
            continue
        for name, card in document.items():
            match = _CARD.match(name)
            if isinstance(card, Mapping) and (match or name == "system"):
                index = int(match[1]) if match else SYSTEM
                if index in out or len(out) < DEVICES_MAX:
                    merge(out.setdefault(index, {}), card)
    if not out.keys() - {SYSTEM}:
        raise FormatError("JSON without any card in it")
    return dict(out)


def decode(found: Mapping[int, Record], socket: Socket = first_function) -> list[Entry]:
    """Entries of merged records, one per card."""
    system = found.get(SYSTEM, {})
    entries = [_entry(index, found[index], system) for index in sorted(found) if index != SYSTEM]
    placed = place(entries, socket)
    for entry in placed:
        if entry.partition is not None:
            # What the tool shows is the whole card's.
            entry.groups["busy"] = {"gfx": Reason.UNSUPPORTED}
    return placed


def _entry(index: int, card: Record, system: Record) -> Entry:
    return Entry(index, bdf(card.get("pci bus")), None, groups(card), _identity(card, system))


def groups(card: Record) -> dict[str, dict[str, Raw]]:
    """All readings of one card; keys as ``amd_smi.groups``."""
    width, speed = _link(card)
    return {
        # "GFX Activity" and "Memory Activity" look like percent and are sums over firmware samples.
        "busy": present(
            gfx=number(card.get("gpu use (%)"), "%"),
            memory=_first(card, "%", "gpu memory read/write activity (%)", "gpu memory use (%)"),
        ),
        "power": {
            "socket": _first(
                card,
                "W",
                "current socket graphics package power (w)",
                "average graphics package power (w)",
                "average socket graphics package power (w)",
                "current graphics package power (w)",
            ),
            "limit": number(card.get("max graphics package power (w)"), "W"),
        },
        "energy": {"joules": _energy(card)},
        "temperature": _temperatures(card),
        "memory": _memory(card),
        "clock": _clocks(card),
        "voltage": present(vddgfx=number(card.get("voltage (mv)"), "mV")),
        "fan": {"rpm": number(card.get("fan rpm"), "rpm")},
        "link": {"width": width, "speed": speed, "replays": number(card.get("pcie replay count"))},
    }


def _first(card: Record, unit: str, *keys: str) -> Raw:
    """The first of several names of one reading that has a value, else the first reason."""
    reason = None
    for key in keys:
        value = number(card.get(key), unit)
        if value is not None and not isinstance(value, Reason):
            return value
        reason = reason or value
    return reason


def _energy(card: Record) -> Raw:
    counts = number(card.get("energy counter"))
    if counts is None:
        microjoules = number(card.get("accumulated energy (uj)"))
        counts = microjoules
        if microjoules is not None and not isinstance(microjoules, Reason):
            counts = microjoules / _MICROJOULES_PER_COUNT
    if counts is None or isinstance(counts, Reason):
        return counts
    # Exactly 0 is a counter that never moves: every GPU that answers has drawn some.
    return counts / _COUNTS_PER_JOULE or None


_SENSOR = re.compile(r"temperature \(sensor ([a-z]+)(?: (\d))?\) \(c\)\Z")
_SENSORS = {"edge": "edge", "junction": "junction", "memory": "mem", "mem": "mem", "hbm": "hbm"}


def _temperatures(card: Record) -> dict[str, Raw]:
    out: dict[str, Raw] = {}
    for key, leaf in card.items():
        match = _SENSOR.match(key)
        if match and match[1] in _SENSORS and (value := number(leaf, "C")) is not None:
            out[_SENSORS[match[1]] + (match[2] or "")] = value
    return out


_POOLS = {"vram": "vram", "vis_vram": "visible_vram", "gtt": "gtt"}


def _memory(card: Record) -> dict[str, Raw]:
    return {
        ours: present(
            **{pool: number(card.get(f"{name} total {kind} (b)"), "B") for name, pool in _POOLS.items()}
        )
        for ours, kind in (("size", "memory"), ("used", "used memory"))
    }


_CLOCK = re.compile(r"([a-z]{1,8}clk) clock speed:?\Z")
_LEVEL = re.compile(r"\s*[sS\d]+:?\s*(\(\s*[\d.]+\s*[a-zA-Z]+\s*\))\s*\Z")


def _clocks(card: Record) -> dict[str, Raw]:
    """Clock by domain; ``sclk clock level`` is what ``--showgpuclocks`` calls it, as ``0 (300Mhz)``."""
    out: dict[str, Raw] = {}
    for key, leaf in card.items():
        match = _CLOCK.match(key)
        if match and (value := number(leaf, "MHz")) is not None:
            out[match[1]] = value
    level = card.get("sclk clock level")
    if "sclk" not in out and isinstance(level, str) and (match := _LEVEL.match(level)):
        out.update(present(sclk=number(match[1], "MHz")))
    return out


_PCIE = re.compile(r"\s*[sS\d]+:?\s*\(\s*([\d.]{1,8})\s*GT/s,?\s*x(\d{1,3})\b[^)]*\)\s*\Z")


def _link(card: Record) -> tuple[Raw, Raw]:
    """Lanes and transfers per second of the active level, ``1 (16.0GT/s x16 619Mhz)`` on newer cards."""
    leaf = card.get("pcie clock level")
    if not isinstance(leaf, str) or isinstance(leaf, Reason):
        return leaf if leaf is None or isinstance(leaf, Reason) else Reason.MALFORMED, None
    match = _PCIE.match(leaf)
    if match is None:
        reason = number(leaf)  # in words: "N/A" or an excuse
        return (reason, reason) if reason is None or isinstance(reason, Reason) else (Reason.MALFORMED,) * 2
    return number(match[2]), number(match[1], "GT/s")


def _identity(card: Record, system: Record) -> dict[str, str | int]:
    uuid = identifier(card.get("unique id"))
    texts = {
        "uuid": uuid.lower().removeprefix("0x") if uuid else None,
        "serial": identifier(card.get("serial number")),
        "model": _model(card),
        "gfx": word(card.get("gfx version")),
        "vbios": word(card.get("vbios version")),
        "driver": word(system.get("driver version")),
    }
    numbers = {"kfd_gpu_id": ordinal(card.get("guid")), "kfd": ordinal(card.get("node id"))}
    return {key: value for key, value in {**texts, **numbers}.items() if value is not None}


def _model(card: Record) -> str | None:
    """Old releases put a PCI id or a placeholder where the name should be."""
    for key in ("card series", "device name", "card model"):
        name = word(card.get(key))
        if name and not name.lower().startswith("0x") and "generic" not in name.lower():
            return name
    return None
