"""A decoded ``gpu_metrics`` table -> one shape and one set of units for all versions. Pure.

What differs between versions (centi-degrees, milliwatts, scalars that became arrays, sentinels narrower than
their field) ends here, so that the catalogue can name fields as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from exporter.formats.gpu_metrics import Decoded

_SENSORS = {
    "temperature_edge": "edge",
    "temperature_hotspot": "junction",
    "temperature_mem": "mem",
    "temperature_vrgfx": "vr_gfx",
    "temperature_vrsoc": "vr_soc",
    "temperature_vrmem": "vr_mem",
    "temperature_gfx": "gfx",
    "temperature_soc": "soc",
    "temperature_skin": "skin",
}
_SENSOR_ARRAYS = {
    "temperature_hbm": "hbm",
    "temperature_mid": "mid",
    "temperature_aid": "aid",
    "temperature_xcd": "xcd",
}
_CLOCKS = {
    "sclk": ("current_gfxclk",),
    "mclk": ("current_uclk",),
    "fclk": ("current_fclk",),
    "socclk": ("current_socclk",),
    "vclk": ("current_vclk0", "current_vclk"),
    "dclk": ("current_dclk0", "current_dclk"),
}
_THROTTLE = {
    "prochot": "prochot_residency_acc",
    "power": "ppt_residency_acc",
    "socket_thermal": "socket_thm_residency_acc",
    "vr_thermal": "vr_thm_residency_acc",
    "hbm_thermal": "hbm_thm_residency_acc",
}
# Each XCC counts for itself; the mean over them has the same denominator as the reasons above.
_HOST_LIMITS = {
    "host_limit_power": ("gfx_below_host_limit_ppt_acc",),
    "host_limit_thermal": ("gfx_below_host_limit_thm_acc",),
    "host_limit": ("gfx_below_host_limit_total_acc", "gfx_below_host_limit_acc"),
    "low_utilization": ("gfx_low_utilization_acc",),
}
_COUNTERS = {
    "pcie_replays": "pcie_replay_count_acc",
    "pcie_replay_rollovers": "pcie_replay_rover_count_acc",
    "pcie_recoveries": "pcie_l0_to_recov_count_acc",
    "pcie_naks_sent": "pcie_nak_sent_count_acc",
    "pcie_naks_received": "pcie_nak_rcvd_count_acc",
}
_INDEX = tuple(str(i) for i in range(1024))  # as many instances as a table can have
# The firmware writes 16 ones into the 32-bit slot of an XCC that does not exist.
_NARROW_SENTINEL = 0xFFFF


def unify(decoded: Decoded, version: tuple[int, int]) -> dict[str, Any]:
    """One shape for every table.

    Shape:  power (W), energy (accumulator), temperature {sensor}, temperatures {die}, busy {engine}
            (percent), clock {domain} and clocks {domain: {index}} (MHz), pcie {width, speed (0.1 GT/s)},
            xgmi_read/xgmi_write {link} (KB), xgmi_link {link: {up, down}}, throttle {reason},
            throttle_samples, pcie counters by name, voltage (mV).
    Absent: a scalar the table has and does not fill is None; slots of arrays that are not filled, and what
            the version does not know at all, are left out.
    """
    d: Mapping[str, Any] = decoded
    apu = version[0] in (2, 3)
    out: dict[str, Any] = {
        "power": _power(d, apu),
        # Several chips carry the field and never count; one that stands at 0 is no counter.
        "energy": d.get("energy_accumulator") or None,
        "temperature": _temperatures(d, apu),
        "temperatures": _die_temperatures(d),
        # Tables 2.x and 3.0 hold percent on some firmware and hundredths on other, and do not say which.
        "busy": {} if apu else _busy(d),
        "voltage": d.get("voltage_gfx"),
        "pcie": {"width": d.get("pcie_link_width") or None, "speed": d.get("pcie_link_speed") or None},
        "throttle": {reason: d[name] for reason, name in _THROTTLE.items() if name in d} | _host_limits(d),
        "throttle_samples": d.get("accumulation_counter"),
    }
    for name, field in _COUNTERS.items():
        out[name] = d.get(field)
    out["clock"], out["clocks"] = _clocks(d)
    out["xgmi_read"] = _filled(d.get("xgmi_read_data_acc"))
    out["xgmi_write"] = _filled(d.get("xgmi_write_data_acc"))
    out["xgmi_link"] = {
        link: {"up": int(up == 1), "down": int(up == 0)}
        for link, up in _filled(d.get("xgmi_link_status")).items()
        if up in (0, 1)
    }
    return out


def _power(d: Mapping[str, Any], apu: bool) -> float | None:
    watts = d.get("curr_socket_power", d.get("average_socket_power"))
    if watts is None:
        return None
    return float(watts) / 1000 if apu else float(watts)


def _temperatures(d: Mapping[str, Any], apu: bool) -> dict[str, float | None]:
    out: dict[str, float | None] = {}
    for field, sensor in _SENSORS.items():
        if field in d:
            value = d[field]
            out[sensor] = value / 100 if apu and value is not None else value
    return out


def _die_temperatures(d: Mapping[str, Any]) -> dict[str, int]:
    """By the name of the sensor: the array's and the place in it, such as hbm3."""
    return {
        f"{sensor}{index}": value
        for field, sensor in _SENSOR_ARRAYS.items()
        for index, value in _filled(d.get(field)).items()
    }


def _busy(d: Mapping[str, Any]) -> dict[str, float | None]:
    out: dict[str, float | None] = {}
    for field, engine in (("average_gfx_activity", "gfx"), ("average_umc_activity", "memory")):
        if field in d:
            out[engine] = d[field]
    first: Mapping[str, Any] = d
    if slots := d.get("xcp_stats"):
        first = slots[0]
    for engine, fields in (("vcn", ("vcn_activity", "vcn_busy")), ("jpeg", ("jpeg_activity", "jpeg_busy"))):
        for name in fields:
            if name in first and (mean := mean_of(first[name])) is not None:
                out[engine] = mean
    return out


def _clocks(d: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    scalar: dict[str, int] = {}
    arrays: dict[str, dict[str, int]] = {}
    for domain, fields in _CLOCKS.items():
        for field in fields:
            value = d.get(field)
            if isinstance(value, list):
                if filled := _filled(value):
                    arrays[domain] = filled
            elif value is not None:
                scalar[domain] = value
    return scalar, arrays


def _filled(values: Any) -> dict[str, int]:
    """The slots in use by index; a scalar is an array of one."""
    if values is None:
        return {}
    if isinstance(values, int):
        return {"0": values}
    if None not in values:
        return dict(zip(_INDEX, values, strict=False))
    return {i: v for i, v in zip(_INDEX, values, strict=False) if v is not None}


def mean_of(values: Iterable[int | None] | int | None) -> float | None:
    """The mean of the slots in use; None without any."""
    if values is None or isinstance(values, int):
        return values
    used = [v for v in values if v is not None and v != _NARROW_SENTINEL]
    return sum(used) / len(used) if used else None


def _host_limits(d: Mapping[str, Any]) -> dict[str, float]:
    out: dict[str, float] = {}
    slots: Sequence[Mapping[str, Any]] = [slot for slot in d.get("xcp_stats") or (d,) if slot]
    for reason, names in _HOST_LIMITS.items():
        if not any(name in slot for name in names for slot in slots):
            continue
        if used := [v for name in names for v in _of_xccs(d, name) if v is not None]:
            out[reason] = sum(used) / len(used)
    return out


def _of_xccs(d: Mapping[str, Any], name: str) -> list[int | None]:
    """One value for each XCC of the socket, those of partition 0 first."""
    if slots := d.get("xcp_stats"):
        used = [values for slot in slots if slot and (values := slot.get(name))]
        return used[0] if len(used) == 1 else [v for values in used for v in values]
    values = d.get(name)
    return values if isinstance(values, list) else [] if values is None else [values]


def die_busy(decoded: Decoded) -> dict[str, int]:
    """Percent by XCC of the socket; slots of XCCs that are not there are left out."""
    values = [v for v in _of_xccs(decoded, "gfx_busy_inst") if v is not None and v != _NARROW_SENTINEL]
    return dict(zip(_INDEX, values, strict=False))


def _mine(d: Mapping[str, Any], name: str, partition: int, xccs: int | None) -> list[int | None] | None:
    """The values of one partition's XCCs; None where they cannot be told from the others'.

    Up to 1.8 a slot of xcp_stats is a partition. In 1.9 partition p owns the XCCs p*n to p*n+n-1, where n
    is what KFD says the partition has; without it nothing can be said.
    """
    if slots := d.get("xcp_stats"):
        return slots[partition].get(name) if partition < len(slots) else None
    values = d.get(name)
    if not xccs or not isinstance(values, list):
        return None
    return values[partition * xccs : (partition + 1) * xccs]


def partition_busy(decoded: Decoded, partition: int, xccs: int | None) -> dict[str, float | None]:
    """Percent by engine of one partition: the mean over its own XCCs."""
    d: Mapping[str, Any] = decoded
    out = {"gfx": mean_of(_mine(d, "gfx_busy_inst", partition, xccs))}
    if slots := d.get("xcp_stats"):
        mine = slots[partition] if partition < len(slots) else {}
        for engine, name in (("vcn", "vcn_busy"), ("jpeg", "jpeg_busy")):
            if (mean := mean_of(mine.get(name))) is not None:
                out[engine] = mean
    return out


def own_busy(decoded: Decoded) -> dict[str, float | None]:
    """Percent by engine in a partition's own table."""
    d: Mapping[str, Any] = decoded
    out = {"gfx": mean_of(d.get("gfx_busy_inst"))}
    for engine, name in (("vcn", "vcn_busy"), ("jpeg", "jpeg_busy")):
        if (mean := mean_of(d.get(name))) is not None:
            out[engine] = mean
    return out


def activity(decoded: Decoded, partition: int | None, xccs: int | None) -> dict[str, float]:
    """Percent summed over firmware samples, by engine; for a partition the mean over its own XCCs."""
    d: Mapping[str, Any] = decoded
    if partition is None:
        both = {"gfx": d.get("gfx_activity_acc"), "memory": d.get("mem_activity_acc")}
        return {engine: float(v) for engine, v in both.items() if isinstance(v, int)}
    used = [v for v in _mine(d, "gfx_busy_acc", partition, xccs) or () if v is not None]
    return {"gfx": sum(used) / len(used)} if used else {}


def samples(decoded: Decoded) -> int | None:
    """How many firmware samples the accumulators have taken; None in tables that do not count them."""
    value = decoded.get("accumulation_counter")
    return value if isinstance(value, int) else None
