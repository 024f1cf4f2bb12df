"""Readings of every captured card against two independent opinions: TRUTH.json and the real rocm-smi."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trees

Rows = dict[tuple[str, str], float]


def cards(samples: Path) -> list[str]:
    return [n for n in trees.sample_names(samples) if list((samples / "hardware" / n).glob("card*/device"))]


def readings(samples: Path, name: str) -> Rows:
    rows = trees.Machine(trees.laid_out(samples, name)).poll()
    return {(metric.removeprefix("amdgpu_"), labels): value for (metric, _, labels), value in rows.items()}  # type: ignore[misc]


def _number(text: Any) -> float | None:
    return float(text) if text not in (None, "") else None


def _speed(text: Any) -> float | None:
    return float(text.split(" ")[0]) * 1e9 if text else None


def stated(device: dict[str, Any]) -> Iterator[tuple[str, str, float | None]]:
    """(metric, labels, value) of all that a TRUTH device states; None: must be absent."""
    get = device.get
    yield "busy_ratio", "gfx", None if get("gpu_busy_percent") is None else get("gpu_busy_percent") / 100
    for pool, key in (("vram", "vram"), ("visible_vram", "vis_vram"), ("gtt", "gtt")):
        yield "memory_used_bytes", pool, get(f"{key}_used_bytes")
        yield "memory_size_bytes", pool, get(f"{key}_total_bytes")
    yield "pcie_link_transfers_per_second", "", _speed(get("current_link_speed"))
    yield "pcie_link_width_lanes", "", _number(get("current_link_width"))
    yield "pcie_max_link_transfers_per_second", "", _speed(get("max_link_speed"))
    yield "pcie_max_link_width_lanes", "", _number(get("max_link_width"))
    yield "pcie_replays_total", "", get("pcie_replay_count")
    hwmon = get("hwmon") or {}
    for sensor, value in hwmon.get("temperature_celsius", {}).items():
        yield "temperature_celsius", sensor, value
    for kind, limit in (("crit", "critical"), ("emergency", "emergency")):
        for sensor, value in hwmon.get(f"temperature_{kind}_celsius", {}).items():
            yield "temperature_limit_celsius", f"{sensor},{limit}", value
    clocks = hwmon.get("clock_hertz", {})
    for domain, value in clocks.items():
        yield "clock_hertz", f"{domain},", value
    for domain in ("sclk", "mclk", "fclk", "socclk", "vclk", "dclk"):
        mhz = get(f"{domain}_current_mhz")
        if domain not in clocks and mhz is not None:
            yield "clock_hertz", f"{domain},", mhz * 1e6
    for rail, value in hwmon.get("voltage_volts", {}).items():
        yield "voltage_volts", rail, value
    watts = hwmon.get("power1_average_watts", hwmon.get("power1_input_watts"))
    if watts is not None:
        yield "power_watts", "", watts
    yield "power_limit_watts", "", hwmon.get("power1_cap_watts")
    yield "fan_speed_rpm", "", hwmon.get("fan1_input")


def test_every_stated_value_is_ours_and_what_is_not_there_is_absent(samples: Path) -> None:
    compared = 0
    for name in cards(samples):
        rows = readings(samples, name)
        (device,) = json.loads((samples / "hardware" / name / "TRUTH.json").read_text())["devices"]
        for metric, labels, value in stated(device):
            if value is None:
                assert (metric, labels) not in rows, f"{name}: {metric} {labels} came from nowhere"
            else:
                assert rows[metric, labels] == pytest.approx(value, rel=1e-9), f"{name}: {metric} {labels}"
                compared += 1
    assert compared > 220


SMI = (
    ("temp", r"Temperature \(Sensor (edge|junction|memory)\) \(C\)", "temperature_celsius", 1.0),
    ("power", r"Average Graphics Package Power \(W\)()", "power_watts", 1.0),
    ("maxpower", r"Max Graphics Package Power \(W\)()", "power_limit_watts", 1.0),
    ("use", r"GPU use \(%\)()", "busy_ratio", 0.01),
    ("memuse", r"GPU memory use \(%\)()", "busy_ratio", 0.01),
    ("meminfo", r"(VRAM|VIS_VRAM|GTT) Total Memory \(B\)", "memory_size_bytes", 1.0),
    ("meminfo", r"(VRAM|VIS_VRAM|GTT) Total Used Memory \(B\)", "memory_used_bytes", 1.0),
    ("clocks", r"(fclk|socclk) clock speed:", "clock_hertz", 1e6),
    ("voltage", r"Voltage \(mV\)()", "voltage_volts", 1e-3),
    ("replay", r"PCIe Replay Count()", "pcie_replays_total", 1.0),
    ("energy", r"Energy counter()", "energy_joules_total", 2.0**-16),
)
LABELS = {
    "memory": "mem",
    "VRAM": "vram",
    "VIS_VRAM": "visible_vram",
    "GTT": "gtt",
    "fclk": "fclk,",
    "socclk": "socclk,",
}


def said(oracle: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """(metric, labels, value in our unit) of what rocm-smi printed as a number."""
    for group, pattern, metric, scale in SMI:
        answer = (oracle.get(group) or {}).get("json") or {}
        for key, text in (answer.get("card0") or {}).items():
            match = re.fullmatch(pattern, key)
            number = re.search(r"[\d.]+", str(text))
            if match and number and str(text) not in ("N/A", "None"):
                label = LABELS.get(match[1], match[1])
                if metric == "busy_ratio":
                    label = "gfx" if group == "use" else "memory"
                if metric == "voltage_volts":
                    label = "vddgfx"
                yield metric, label, float(number[0]) * scale


def test_the_real_rocm_smi_says_the_same(samples: Path) -> None:
    compared = 0
    for name in cards(samples):
        file = samples / "hardware" / name / "ORACLE-rocm-smi-5.2.3.json"
        if not file.exists():
            continue
        rows = readings(samples, name)
        for metric, label, value in said(json.loads(file.read_text())):
            if (metric, label) not in rows and value == 0:
                continue  # it prints 0 for what it cannot read
            # rocm-smi rounds watts to a whole or a tenth.
            near = 0.06 if metric == "power_watts" else 1e-9
            assert rows[metric, label] == pytest.approx(value, rel=1e-9, abs=near), (
                f"{name}: {metric} {label}"
            )
            compared += 1
    assert compared > 70


def test_a_live_energy_counter_is_joules(samples: Path) -> None:
    rows = readings(samples, "radeon-rx6900xt")
    # 17691682 counts of 2^-16 J; rocm-smi multiplies by 15.3 uJ and says 270.68.
    assert rows["energy_joules_total", ""] == pytest.approx(269.95, abs=0.01)


@pytest.mark.parametrize("name", ["radeon-rx7800xt", "radeon-rx9070"])
def test_an_energy_counter_that_never_moves_is_absent(samples: Path, name: str) -> None:
    machine = trees.Machine(trees.laid_out(samples, name))
    assert not [k for k in machine.poll() if k[0] == "amdgpu_energy_joules_total"]
    assert "amdgpu_energy_joules_total" in {metric for metric, _, _ in machine.missing()}
