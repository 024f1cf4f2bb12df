"""``amd-smi list|static|metric --json`` of ROCm 6.0 to 7.x -> entries. Pure.

Shape: up to 6.x a bare list of objects, from 7.0 the same list under ``gpu_data``; leaves are an object of
value and unit, a bare number, a number as text, or "N/A", and "N/A" may stand in place of any object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from exporter.formats.smi_json import (
    DEVICES_MAX,
    Entry,
    Record,
    Socket,
    bdf,
    branch,
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


def records(data: bytes) -> dict[int, Record]:
    """The output's objects by the tool's own GPU number. Errors: FormatError without any."""
    out: dict[int, dict[str, Any]] = {}
    for document in documents(data):
        for item in _items(document):
            index = ordinal(item.get("gpu"))
            if index is not None and (index in out or len(out) < DEVICES_MAX):
                merge(out.setdefault(index, {}), item)
    if not out:
        raise FormatError("JSON without any GPU in it")
    return dict(out)


def _items(document: Any) -> Iterator[Record]:
    if isinstance(document, Mapping):
        inner = document.get("gpu_data")
        document = inner if isinstance(inner, list) else [inner if isinstance(inner, Mapping) else document]
    for item in document:
        if isinstance(item, Mapping):
            yield item


def decode(found: Mapping[int, Record], socket: Socket = first_function) -> list[Entry]:
    """Entries of merged records: what ``list``, ``static`` and ``metric`` say of one GPU in one object.

    Without addresses (``metric`` alone) the partitions are inferred: those that follow a GPU which shows the
    activity of as many, and have none of their own.
    """
    entries = [_entry(index, found[index]) for index in sorted(found)]
    placed = place(entries, socket)
    if all(e.pci is None for e in placed):
        _infer(placed, found)
    _share_activity(placed, found)
    return placed


def _entry(index: int, record: Record) -> Entry:
    address = record.get("bdf") or branch(record, "bus").get("bdf")
    partition = record.get("partition_id", branch(record, "partition").get("partition_id"))
    return Entry(index, bdf(address), ordinal(partition), groups(record), _identity(record))


def groups(record: Record) -> dict[str, dict[str, Raw]]:
    """All readings of one record that need no other record."""
    clock, clocks = _clocks(branch(record, "clock"))
    return {
        "busy": _busy(branch(record, "usage")),
        "power": {"socket": _power(branch(record, "power")), "limit": _power_limit(branch(record, "limit"))},
        "energy": {"joules": _energy(record)},
        "temperature": _temperatures(branch(record, "temperature")),
        "temperature_limit": _temperature_limits(branch(record, "limit")),
        "memory": _memory(branch(record, "mem_usage")),
        "clock": clock,
        "clocks": clocks,
        "voltage": present(
            vddgfx=number(branch(record, "power").get("gfx_voltage"), "mV"),
            vddboard=number(branch(record, "voltage").get("vddboard"), "mV"),
        ),
        "fan": {"rpm": number(branch(record, "fan").get("rpm"), "rpm")},
        "link": _link(branch(record, "pcie"), branch(record, "bus")),
        "errors": _errors(record),
        "throttle": _throttle(branch(record, "throttle")),
        "asic": {"compute_units": number(branch(record, "asic").get("num_compute_units"))},
    }


def _busy(usage: Record) -> dict[str, Raw]:
    return present(
        gfx=number(usage.get("gfx_activity"), "%"),
        memory=number(usage.get("umc_activity"), "%"),
        vcn=_mean(usage.get("vcn_activity")),
        jpeg=_mean(usage.get("jpeg_activity")),
    )


def _mean(leaves: Any) -> float | None:
    """The mean over the instances in use; None without any. One that is out of range spoils the mean."""
    if not isinstance(leaves, list):
        return None
    values = [v for leaf in leaves[:128] if isinstance(v := number(leaf, "%"), int | float)]
    return sum(values) / len(values) if values else None


def _power(power: Record) -> Raw:
    for key in ("socket_power", "current_socket_power", "average_socket_power"):
        if (watts := number(power.get(key), "W")) is not None:
            return watts
    return None


def _power_limit(limit: Record) -> Raw:
    """The cap in force: a plain key up to 7.1, an object per limiter from 7.2 (ppt0 is the sustained one)."""
    nested = number(branch(limit, "ppt0").get("socket_power_limit"), "W")
    return nested if nested is not None else number(limit.get("socket_power"), "W")


def _energy(record: Record) -> Raw:
    joules = number(branch(record, "energy").get("total_energy_consumption"), "J")
    # Exactly 0 is a counter that never moves: every GPU that answers has drawn some.
    return joules or None


_SENSORS = {"edge": "edge", "hotspot": "junction", "mem": "mem"}


def _temperatures(temperature: Record) -> dict[str, Raw]:
    return present(**{ours: number(temperature.get(key), "C") for key, ours in _SENSORS.items()})


def _temperature_limits(limit: Record) -> dict[str, Raw]:
    names = {"edge": "edge", "hotspot": "junction", "vram": "mem"}
    return {
        level: present(**{o: number(limit.get(f"{action}_{k}_temperature"), "C") for k, o in names.items()})
        for level, action in (("critical", "slowdown"), ("emergency", "shutdown"))
    }


_POOLS = ("vram", "visible_vram", "gtt")


def _memory(usage: Record) -> dict[str, Raw]:
    return {
        ours: present(**{pool: number(usage.get(f"{theirs}_{pool}"), "MB") for pool in _POOLS})
        for ours, theirs in (("size", "total"), ("used", "used"))
    }


_DOMAINS = {"gfx": "sclk", "mem": "mclk", "fclk": "fclk", "socclk": "socclk", "vclk": "vclk", "dclk": "dclk"}
_NUMBERED = re.compile(r"([a-z]+)_(\d{1,3})\Z")


def _clocks(clock: Record) -> tuple[dict[str, Raw], dict[str, Raw]]:
    """Clocks of domains with one instance, and by index of those with several in use."""
    found: dict[str, dict[str, Raw]] = {}
    for key, leaf in clock.items():
        match = _NUMBERED.match(key)
        if match is None or match[1] not in _DOMAINS:
            continue
        hertz = number(branch(leaf).get("clk"), "MHz")
        if hertz is not None:
            found.setdefault(_DOMAINS[match[1]], {})[str(int(match[2]))] = hertz
    single = {domain: next(iter(by.values())) for domain, by in found.items() if len(by) == 1}
    return single, {domain: by for domain, by in found.items() if len(by) > 1}


def _link(pcie: Record, bus: Record) -> dict[str, Raw]:
    return {
        "width": number(pcie.get("width")),
        "speed": number(pcie.get("speed"), "GT/s"),
        "max_width": number(bus.get("max_pcie_width")),
        "max_speed": number(bus.get("max_pcie_speed"), "GT/s"),
        "replays": number(pcie.get("replay_count")),
        "replay_rollovers": number(pcie.get("replay_roll_over_count")),
        "recoveries": number(pcie.get("l0_to_recovery_count")),
        "naks_sent": number(pcie.get("nak_sent_count")),
        "naks_received": number(pcie.get("nak_received_count")),
    }


_SEVERITIES = ("correctable", "uncorrectable", "deferred")
_BLOCK = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")


def _errors(record: Record) -> dict[str, Raw]:
    """Counts by severity and block; the tool's sum as block "total" only where it shows no blocks."""
    blocks, totals = branch(record, "ecc_blocks"), branch(record, "ecc")
    names = [name for name in blocks if _BLOCK.match(name)][:64]
    out: dict[str, Raw] = {}
    for severity in _SEVERITIES:
        by_block = {
            name: count
            for name in names
            if (count := number(branch(blocks, name).get(f"{severity}_count"))) is not None
        }
        out[severity] = by_block or present(total=number(totals.get(f"total_{severity}_count")))
    return out


_LIMITERS = {
    "prochot": "prochot",
    "ppt": "power",
    "socket_thermal": "socket_thermal",
    "vr_thermal": "vr_thermal",
    "hbm_thermal": "hbm_thermal",
}


def _throttle(throttle: Record) -> dict[str, Raw]:
    reasons = {ours: number(throttle.get(f"{key}_accumulated")) for key, ours in _LIMITERS.items()}
    return {"samples": number(throttle.get("accumulation_counter")), "residency": present(**reasons)}


def _identity(record: Record) -> dict[str, str | int]:
    asic, vbios = branch(record, "asic"), branch(record, "vbios") or branch(record, "ifwi")
    partition = branch(record, "partition")
    texts = {
        "uuid": identifier(record.get("uuid")),
        "serial": identifier(asic.get("asic_serial")),
        "model": word(asic.get("market_name")),
        "gfx": word(asic.get("target_graphics_version")),
        "vbios": word(vbios.get("part_number")) or word(vbios.get("version")),
        "driver": word(branch(record, "driver").get("version")),
        "compute_partition": word(
            partition.get("accelerator_partition", partition.get("compute_partition")),
        ),
        "memory_partition": word(partition.get("memory_partition")),
    }
    numbers = {"kfd_gpu_id": ordinal(record.get("kfd_id")), "kfd": ordinal(record.get("node_id"))}
    return {key: value for key, value in {**texts, **numbers}.items() if value is not None}


# --- activity of partitions ----------------------------------------------------------------------------


def _shares(record: Record) -> dict[int, float]:
    """Percent of graphics activity by partition, as the whole GPU's record shows it."""
    by_name = branch(record, "usage", "gfx_busy_inst")
    shares = {n: _mean(leaves) for n, leaves in ((_xcp(k), v) for k, v in by_name.items()) if n is not None}
    return {n: mean for n, mean in shares.items() if mean is not None}


def _xcp(key: str) -> int | None:
    return ordinal(key.removeprefix("xcp_")) if key.startswith("xcp_") else None


def _infer(entries: list[Entry], found: Mapping[int, Record]) -> None:
    at = 0
    while at < len(entries):
        count = len(_shares(found[entries[at].index]))
        group = entries[at : at + count]
        quiet = all(not branch(found[e.index], "usage") for e in group[1:])
        if count > 1 and len(group) == count and quiet:
            for partition, entry in enumerate(group):
                entry.partition = partition
            at += count
        else:
            at += 1


def _share_activity(entries: list[Entry], found: Mapping[int, Record]) -> None:
    """On a partitioned GPU replace the whole card's activity by each partition's own."""
    shares: dict[int, float] = {}
    socket: str | None = None
    for entry in entries:
        if entry.partition is None:
            continue
        own = _shares(found[entry.index])
        if entry.partition == 0 or entry.pci != socket:
            shares = {}
        socket, shares = entry.pci, own if len(own) > 1 else shares
        mine = shares.get(entry.partition)
        if mine is None and len(own) == 1:
            mine = next(iter(own.values()))
        # The other engines are the whole card's: a partition has no number of its own for them.
        entry.groups["busy"] = {"gfx": Reason.UNSUPPORTED if mine is None else mine}
