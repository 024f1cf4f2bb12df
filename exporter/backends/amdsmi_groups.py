"""What ``amdsmi`` functions return -> raw groups, in amdsmi's own units, one shape for every release.

"N/A", and all ones where the width of the raw field is known, become None here and nowhere else. What has
another type than it should is MALFORMED, and costs that leaf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from exporter.model import Raw, Reason

U16, U32, U64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF

_SENSORS = {
    "temperature_edge": "edge",
    "temperature_hotspot": "junction",
    "temperature_mem": "mem",
    "temperature_vrgfx": "vr_gfx",
    "temperature_vrsoc": "vr_soc",
    "temperature_vrmem": "vr_mem",
}
# Domain -> the scalar and the array of the table, and the name of the clock type for the call.
_CLOCKS = {
    "sclk": ("current_gfxclk", "current_gfxclks", "GFX"),
    "mclk": ("current_uclk", "current_uclks", "MEM"),
    "fclk": ("current_fclk", "current_fclks", "DF"),
    "socclk": ("current_socclk", "current_socclks", "SOC"),
    "vclk": ("current_vclk0", "current_vclk0s", "VCLK0"),
    "dclk": ("current_dclk0", "current_dclk0s", "DCLK0"),
}
# The library widens these to 64 bits; the table of the driver has 32, and its own all ones comes through.
_THROTTLE = {
    "prochot": "prochot_residency_acc",
    "power": "ppt_residency_acc",
    "socket_thermal": "socket_thm_residency_acc",
    "vr_thermal": "vr_thm_residency_acc",
    "hbm_thermal": "hbm_thm_residency_acc",
}
_VIOLATIONS = {
    "prochot": "acc_prochot_thrm",
    "power": "acc_ppt_pwr",
    "socket_thermal": "acc_socket_thrm",
    "vr_thermal": "acc_vr_thrm",
    "hbm_thermal": "acc_hbm_thrm",
}
_TABLE_COUNTERS = {
    "pcie_replays": ("pcie_replay_count_acc", U64),
    "pcie_replay_rollovers": ("pcie_replay_rover_count_acc", U64),
    "pcie_recoveries": ("pcie_l0_to_recov_count_acc", U64),
    "pcie_naks_sent": ("pcie_nak_sent_count_acc", U32),
    "pcie_naks_received": ("pcie_nak_rcvd_count_acc", U32),
}
_LINK = {
    "width": ("pcie_metric", "pcie_width", U16),
    "speed": ("pcie_metric", "pcie_speed", U32),
    "max_width": ("pcie_static", "max_pcie_width", U16),
    "max_speed": ("pcie_static", "max_pcie_speed", U32),
    "replays": ("pcie_metric", "pcie_replay_count", U64),
    "replay_rollovers": ("pcie_metric", "pcie_replay_roll_over_count", U64),
    "recoveries": ("pcie_metric", "pcie_l0_to_recovery_count", U64),
    "naks_sent": ("pcie_metric", "pcie_nak_sent_count", U64),
    "naks_received": ("pcie_metric", "pcie_nak_received_count", U64),
}
_POOLS = {"vram": "VRAM", "visible_vram": "VIS_VRAM", "gtt": "GTT"}
_HWMON_SENSORS = {"edge": "EDGE", "junction": "HOTSPOT", "mem": "VRAM"}
_RAILS = {"vddgfx": "VDDGFX", "vddboard": "VDDBOARD"}
# fmt: off
BLOCKS = (
    "umc", "sdma", "gfx", "mmhub", "athub", "pcie_bif", "hdp", "xgmi_wafl", "df", "smn", "sem", "mp0", "mp1",
    "fuse", "mca", "vcn", "jpeg", "ih", "mpio",
)
# fmt: on
_PAGES = ("reserved", "pending", "unreservable")
_ECC = {"ce": "correctable_count", "ue": "uncorrectable_count", "de": "deferred_count"}


class Calls(Protocol):
    """The library as the groups see it."""

    def call(self, name: str, *args: Any) -> Raw: ...

    def constant(self, enum: str, name: str) -> Any: ...


def number(value: Raw, *missing: int) -> Raw:
    """One leaf: a plain number, None for "not available", or a Reason."""
    if isinstance(value, Reason) or value is None:
        return value
    if isinstance(value, bool):
        return Reason.MALFORMED
    if isinstance(value, int):
        # Larger than any field of the library: no number of it, and no float either.
        if abs(value) > U64:
            return Reason.MALFORMED
        return None if value in missing else int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str) and value.strip().upper() in ("N/A", ""):
        return None
    return Reason.MALFORMED


def member(mapping: Raw, key: str, *missing: int) -> Raw:
    """One leaf of a returned mapping; the mapping's own Reason where the call failed."""
    if isinstance(mapping, Mapping):
        return number(mapping.get(key), *missing)
    return absent(mapping)


def absent(answer: Raw) -> Raw:
    """Why an answer has not the shape it should: its own Reason, None for "N/A", else MALFORMED."""
    if isinstance(answer, Reason) or number(answer) is None:
        return answer if isinstance(answer, Reason) else None
    return Reason.MALFORMED


def filled(values: Raw, *missing: int) -> Raw:
    """The slots of an array that are in use, by index; a Reason for what is no array."""
    if isinstance(values, Reason):
        return values
    if isinstance(values, list | tuple):
        slots = {str(i): number(v, *missing) for i, v in enumerate(values)}
        return {i: v for i, v in slots.items() if v is not None}
    return {} if absent(values) is None else Reason.MALFORMED


def table(t: Raw) -> Raw:
    """``get_gpu_metrics_info`` in the shape the kernel's own table has elsewhere.

    Units: W, 2^-16 J, degrees Celsius, mV, MHz, 0.1 GT/s, KiB, firmware samples.
    """
    if not isinstance(t, Mapping):
        return absent(t)
    current = member(t, "current_socket_power", U16)
    clock: dict[str, Raw] = {}
    clocks: dict[str, Raw] = {}
    for domain, (scalar, array, _) in _CLOCKS.items():
        if (value := member(t, scalar, U16)) is not None:
            clock[domain] = value
        if slots := filled(t.get(array), U16):
            clocks[domain] = slots
    temperature = {s: v for key, s in _SENSORS.items() if (v := member(t, key, U16)) is not None}
    hbm = filled(t.get("temperature_hbm"), U16)
    if isinstance(hbm, dict):
        temperature |= {f"hbm{i}": v for i, v in hbm.items()}
    return {
        # MI200 fills only the average, MI300 only the current one.
        "power": current if current is not None else member(t, "average_socket_power", U16),
        # Several chips carry the field and never count; one that stands at 0 is no counter.
        "energy": member(t, "energy_accumulator", U64) or None,
        "temperature": temperature,
        "voltage": member(t, "voltage_gfx", U16),
        "clock": clock,
        "clocks": clocks,
        "pcie": {
            "width": member(t, "pcie_link_width", U16) or None,
            "speed": member(t, "pcie_link_speed", U16) or None,
        },
        **{name: member(t, key, ones) for name, (key, ones) in _TABLE_COUNTERS.items()},
        "xgmi_read": filled(t.get("xgmi_read_data_acc"), U64),
        "xgmi_write": filled(t.get("xgmi_write_data_acc"), U64),
        "xgmi_link": _links(filled(t.get("xgmi_link_status"), U16)),
        "throttle": {r: v for r, key in _THROTTLE.items() if (v := member(t, key, U32, U64)) is not None},
        "throttle_samples": member(t, "accumulation_counter", U32, U64),
    }


def _links(states: Raw) -> Raw:
    if not isinstance(states, dict):
        return states
    return {
        link: {"up": int(up == 1), "down": int(up == 0)} if not isinstance(up, Reason) else up
        for link, up in states.items()
        if isinstance(up, Reason) or up in (0, 1)
    }


def busy(t: Raw) -> dict[str, Raw]:
    """Percent by engine of a whole socket. ``get_gpu_activity`` reads the same table, so it adds nothing."""
    if not isinstance(t, Mapping):
        return {"gfx": absent(t)}
    out = {
        "gfx": member(t, "average_gfx_activity", U16),
        "memory": member(t, "average_umc_activity", U16),
    }
    for engine, keys in (
        ("vcn", ("vcn_activity", "xcp_stats.vcn_busy")),
        ("jpeg", ("jpeg_activity", "xcp_stats.jpeg_busy")),
    ):
        means = [_mean(_slot(t.get(key), 0)) for key in keys]
        if (mean := next((m for m in means if m is not None), None)) is not None:
            out[engine] = mean
    return {k: v for k, v in out.items() if v is not None or k == "gfx"}


def partition_busy(t: Raw, partition: int) -> dict[str, Raw]:
    """Percent by engine of one partition: the mean over its own slot of the socket's table."""
    if not isinstance(t, Mapping):
        return {"gfx": absent(t)}
    out = {"gfx": _mean(_slot(t.get("xcp_stats.gfx_busy_inst"), partition))}
    for engine, key in (("vcn", "xcp_stats.vcn_busy"), ("jpeg", "xcp_stats.jpeg_busy")):
        if (mean := _mean(_slot(t.get(key), partition))) is not None:
            out[engine] = mean
    return out


def _slot(values: Raw, index: int) -> Raw:
    """One partition's list of a list of lists; a flat list is the only partition's own."""
    if isinstance(values, list) and any(isinstance(v, list) for v in values):
        return values[index] if index < len(values) else None
    return values


def _mean(values: Raw) -> Raw:
    # The firmware writes 16 ones into the 32-bit slot of an XCC that does not exist.
    slots = filled(values, U16, U32)
    if not isinstance(slots, dict) or not slots:
        return None if isinstance(slots, dict) else slots
    if bad := [v for v in slots.values() if isinstance(v, Reason)]:
        return bad[0]
    # Before the mean: two wrong values can make a plausible one.
    if not all(0 <= v <= 100 for v in slots.values()):
        return Reason.IMPLAUSIBLE
    return sum(slots.values()) / len(slots)


def power(lib: Calls, handle: Any) -> Raw:
    """Watts, for chips whose table says nothing of power."""
    info = lib.call("get_power_info", handle)
    keys = ("current_socket_power", "socket_power", "average_socket_power")
    return (
        {key: member(info, key, U16, U32, U64) for key in keys} if isinstance(info, Mapping) else absent(info)
    )


def power_cap(lib: Calls, handle: Any) -> Raw:
    """Microwatts."""
    return {"limit": member(lib.call("get_power_cap_info", handle), "power_cap", U64)}


def energy(lib: Calls, handle: Any) -> Raw:
    """The accumulator alone: its resolution is rounded. Its key was ``power`` up to 6.3."""
    info = lib.call("get_energy_count", handle)
    key = "energy_accumulator" if isinstance(info, Mapping) and "energy_accumulator" in info else "power"
    return {"accumulator": member(info, key, U64) or None}


def sensors(lib: Calls, handle: Any, have: Raw) -> Raw:
    """What the table ``have`` lacks, asked for one by one: degrees Celsius, mV, MHz, rpm."""
    known = have if isinstance(have, dict) else {}
    current = lib.constant("AmdSmiTemperatureMetric", "CURRENT")
    volts = lib.constant("AmdSmiVoltageMetric", "CURRENT")
    known_clocks = {**known.get("clocks", {}), **known.get("clock", {})}
    return {
        "temperature": {
            sensor: value
            for sensor, name in _HWMON_SENSORS.items()
            if sensor not in known.get("temperature", {})
            and (value := _sensor(lib, handle, name, current)) is not Reason.UNSUPPORTED
        },
        "voltage": {
            rail: value
            for rail, name in _RAILS.items()
            if not (rail == "vddgfx" and _is_number(known.get("voltage")))
            and (value := _typed(lib, "get_gpu_volt_metric", handle, "AmdSmiVoltageType", name, volts))
            is not Reason.UNSUPPORTED
        },
        "clock": {
            domain: value
            for domain, (_, _, name) in _CLOCKS.items()
            if domain not in known_clocks and (value := _clock(lib, handle, name)) is not Reason.UNSUPPORTED
        },
        "fan": number(lib.call("get_gpu_fan_rpms", handle, 0)),
    }


def limits(lib: Calls, handle: Any) -> dict[str, Raw]:
    """Temperatures at which the firmware acts, sizes of memory: what seldom changes."""
    out: dict[str, Raw] = {
        "size": {pool: _memory(lib, "get_gpu_memory_total", handle, kind) for pool, kind in _POOLS.items()}
    }
    for kind, name in (("critical", "CRITICAL"), ("emergency", "EMERGENCY")):
        metric = lib.constant("AmdSmiTemperatureMetric", name)
        out[kind] = {
            sensor: value
            for sensor, sensor_name in _HWMON_SENSORS.items()
            if (value := _sensor(lib, handle, sensor_name, metric)) is not Reason.UNSUPPORTED
        }
    return out


def memory_used(lib: Calls, handle: Any) -> dict[str, Raw]:
    """Bytes of the whole card, by pool."""
    return {pool: _memory(lib, "get_gpu_memory_usage", handle, kind) for pool, kind in _POOLS.items()}


def link(lib: Calls, handle: Any) -> Raw:
    """Lanes, MT/s and counts. 0 and 255 lanes are a link the kernel cannot see."""
    info = lib.call("get_pcie_info", handle)
    if not isinstance(info, Mapping):
        return absent(info)
    out = {name: member(info.get(part), key, ones) for name, (part, key, ones) in _LINK.items()}
    for key, unseen in (("width", (0, 255)), ("max_width", (0, 255)), ("speed", (0,)), ("max_speed", (0,))):
        if out[key] in unseen:
            out[key] = None
    return out


def errors(lib: Calls, handle: Any, seen: set[str]) -> Raw:
    """ECC counts by severity and block; blocks the card never counted (``seen``, kept here) are left out."""
    out: dict[str, dict[str, Raw]] = {severity: {} for severity in _ECC}
    for block in BLOCKS:
        kind = lib.constant("AmdSmiGpuBlock", block.upper())
        counts = Reason.UNSUPPORTED if kind is None else lib.call("get_gpu_ecc_count", handle, kind)
        if counts is Reason.UNSUPPORTED and block not in seen:
            continue
        seen.add(block)
        for severity, key in _ECC.items():
            out[severity][block] = member(counts, key, U64)
        # The library says 0 where the driver does not count deferred errors at all.
        if not out["de"][block] or counts is Reason.UNSUPPORTED:
            del out["de"][block]
    return out if out["ue"] else Reason.UNSUPPORTED


def retired_pages(lib: Calls, handle: Any) -> Raw:
    """Pages by state; an empty list is zero pages, not an absent value."""
    pages = lib.call("get_gpu_bad_page_info", handle)
    if not isinstance(pages, list):
        return absent(pages)
    states = {
        int(kind): name
        for name in _PAGES
        if isinstance(kind := lib.constant("AmdSmiMemoryPageStatus", name.upper()), int)
    }
    counts = dict.fromkeys(_PAGES, 0)
    for page in pages:
        status = member(page, "status")
        if not isinstance(status, int) or status not in states:
            return Reason.MALFORMED
        counts[states[status]] += 1
    return counts


def violations(lib: Calls, handle: Any) -> Raw:
    """Accumulators of throttling. The call sleeps 100 ms for rates that nobody here wants."""
    info = lib.call("get_violation_status", handle)
    if not isinstance(info, Mapping):
        return absent(info)
    return {
        "throttle": {r: v for r, key in _VIOLATIONS.items() if (v := member(info, key, U64)) is not None},
        "samples": member(info, "acc_counter", U64),
    }


def _memory(lib: Calls, function: str, handle: Any, kind: str) -> Raw:
    value = lib.constant("AmdSmiMemoryType", kind)
    return Reason.UNSUPPORTED if value is None else number(lib.call(function, handle, value), U64)


def _sensor(lib: Calls, handle: Any, name: str, metric: Any) -> Raw:
    return _typed(lib, "get_temp_metric", handle, "AmdSmiTemperatureType", name, metric)


def _typed(lib: Calls, function: str, handle: Any, enum: str, name: str, metric: Any) -> Raw:
    kind = lib.constant(enum, name)
    if kind is None or metric is None:
        return Reason.UNSUPPORTED
    return number(lib.call(function, handle, kind, metric))


def _clock(lib: Calls, handle: Any, name: str) -> Raw:
    kind = lib.constant("AmdSmiClkType", name)
    info = Reason.UNSUPPORTED if kind is None else lib.call("get_clock_info", handle, kind)
    # ``cur_clk`` up to 6.1.
    key = "clk" if isinstance(info, Mapping) and "clk" in info else "cur_clk"
    return member(info, key, U32)


def _is_number(value: Raw) -> bool:
    return type(value) in (int, float)
