"""Decoders of amd-smi and rocm-smi JSON: the sample library's stated values, shapes, and mutations."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.formats import amd_smi, rocm_smi, smi_json
from exporter.formats.smi_json import Entry, number
from exporter.model import Device, DeviceId, FormatError, Gap, Reason, Series, Value

Decode = Callable[[bytes], list[Entry]]
Readings = dict[tuple[str, int, tuple[str, ...]], Value]


def amd(data: bytes) -> list[Entry]:
    return amd_smi.decode(amd_smi.records(data))


def rocm(data: bytes) -> list[Entry]:
    return rocm_smi.decode(rocm_smi.records(data))


def readings(entries: list[Entry]) -> Readings:
    """Through the catalogue: (metric, index of the tool, labels) -> value; no series may come twice."""
    extractor = Extractor(CATALOGUE, "smi_cli")
    found: Readings = {}
    total = 0
    for entry in entries:
        series: list[Series] = []
        values: list[Value] = []
        gaps: list[Gap] = []
        device = Device(DeviceId(entry.pci or f"0000:{entry.index:02x}:00.0", entry.partition), 0)
        extractor.extract(device, entry.groups, series, values, gaps)
        total += len(series)
        pairs = zip(series, values, strict=True)
        found.update({(s.metric.removeprefix("amdgpu_"), entry.index, s.labels): v for s, v in pairs})
    assert len(found) == total
    return found


def of_metric(found: Readings, metric: str, *labels: str) -> dict[int, Value]:
    return {index: v for (name, index, own), v in found.items() if name == metric and own == labels}


# --- the sample library's stated values ----------------------------------------------------------------


def test_case_16_secondary_dies_have_no_power_and_accumulators_are_no_percent(samples: Path) -> None:
    entries = rocm((samples / "cases/16-rocmsmi-mi250x/stdout.txt").read_bytes())
    assert [e.pci for e in entries] == ["0000:29:00.0", "0000:2c:00.0", "0000:2f:00.0", "0000:32:00.0"]
    found = readings(entries)
    assert of_metric(found, "busy_ratio", "gfx") == {0: 0.97, 1: 0.96, 2: 0, 3: 0}
    power = of_metric(found, "power_watts")
    assert power == {0: 311, 2: 92}
    assert sum(v for v in power.values() if isinstance(v, float)) == 403
    assert {labels for name, _, labels in found if name == "busy_ratio"} == {("gfx",), ("memory",)}
    assert all(value <= 1 for key, value in found.items() if key[0] == "busy_ratio")  # type: ignore[operator]


def test_case_17_empty_output_is_no_data(samples: Path) -> None:
    case = samples / "cases/17-rocmsmi-no-json"
    out, err = (case / "stdout.txt").read_bytes(), (case / "stderr.txt").read_bytes()
    with pytest.raises(FormatError, match="no output"):
        rocm(out)
    assert smi_json.why_nothing(out, err) is Reason.NO_DATA


def test_case_18_a_bare_list_of_objects_with_units(samples: Path) -> None:
    found = readings(amd((samples / "cases/18-amdsmi-bare-list/metric.json").read_bytes()))
    assert of_metric(found, "busy_ratio", "gfx") == {0: 0.88, 1: 0}
    assert found["power_watts", 0, ()] == 702
    assert found["temperature_celsius", 0, ("junction",)] == 71
    assert found["energy_joules_total", 0, ()] == 9123456.789
    assert found["memory_used_bytes", 0, ("vram",)] == 158334976000
    assert of_metric(found, "temperature_celsius", "edge") == {}


def test_case_19_partitions_have_their_own_activity_and_the_socket_its_power_once(samples: Path) -> None:
    entries = amd((samples / "cases/19-amdsmi-gpu_data-dpx/metric.json").read_bytes())
    assert [(e.index, e.partition) for e in entries] == [(0, 0), (1, 1)]
    found = readings(entries)
    assert of_metric(found, "busy_ratio", "gfx") == {0: 0.965, 1: 0.30}
    assert of_metric(found, "power_watts") == {0: 455}
    assert of_metric(found, "energy_joules_total") == {0: 5000000.5}


def test_case_20_a_number_as_text_and_a_function_without_sensors(samples: Path) -> None:
    found = readings(amd((samples / "cases/20-amdsmi-vf-na/stdout.txt").read_bytes()))
    assert found["busy_ratio", 0, ("gfx",)] == 0.55
    assert found["memory_used_bytes", 0, ("vram",)] == 70000 * 1048576
    missing = ("power_watts", "temperature_celsius", "energy_joules_total", "ecc_")
    assert not [key for key in found if key[0].startswith(missing)]


# What the files themselves say, by hand: (bus, busy, watts, limit, junction, VRAM used, sclk in MHz).
ROCM_FILES = {
    "mi100_rocm571.json": ("1e", 0, 39, 290, 34, 6782976, 300),
    "mi210_rocm5x_wandb.json": ("63", 0, 41, 300, 35, None, 800),
    "rx6700xt_rocm430.json": ("07", 0, 6, 211, 47, 1622728704, 500),
    "rx6700xt_rocm602.json": ("07", 0, None, 211, 47, 1572757504, 500),
    "rx6700xt_rocm612.json": ("07", 0, 6, 211, 47, 1572745216, 0),
    "vega-10-XT.json": ("04", 0, 15, 170, 40, 17776640, 1269),
}


@pytest.mark.parametrize("name", sorted(ROCM_FILES))
def test_real_rocm_smi_files_of_every_release(samples: Path, name: str) -> None:
    entries = rocm((samples / "hardware/cli-rocm-smi-json" / name).read_bytes())
    bus, busy, watts, limit, junction, used, sclk = ROCM_FILES[name]
    assert entries[0].pci == f"0000:{bus}:00.0"
    assert len(entries) == (6 if name.startswith("mi100") else 1)
    found = readings(entries)
    assert found["busy_ratio", 0, ("gfx",)] == busy
    assert found.get(("power_watts", 0, ())) == watts
    assert found["power_limit_watts", 0, ()] == limit
    assert found["temperature_celsius", 0, ("junction",)] == junction
    assert found.get(("memory_used_bytes", 0, ("vram",))) == used
    assert found["clock_hertz", 0, ("sclk", "")] == sclk * 1e6
    assert {labels for key, _, labels in found if key == "busy_ratio"} <= {("gfx",), ("memory",)}


def test_energy_is_the_counter_not_the_rounded_product(samples: Path) -> None:
    data = (samples / "hardware/cli-rocm-smi-json/mi210_rocm5x_wandb.json").read_bytes()
    joules = readings(rocm(data))["energy_joules_total", 0, ()]
    assert joules == 6122129286992 / 65536
    card = json.loads(data)
    del card["card0"]["Energy counter"]
    from_product = readings(rocm(json.dumps(card).encode()))["energy_joules_total", 0, ()]
    assert isinstance(from_product, float)
    assert from_product == pytest.approx(joules, rel=1e-6)  # the product itself is 0.27 % above


def test_real_static_output_gives_limits_and_names(samples: Path) -> None:
    [entry] = amd((samples / "hardware/cli-amd-smi/mi210-static-rocm70.json").read_bytes())
    found = readings([entry])
    assert found["power_limit_watts", 0, ()] == 300
    assert found["temperature_limit_celsius", 0, ("junction", "emergency")] == 105
    assert found["temperature_limit_celsius", 0, ("mem", "critical")] == 94
    assert found["pcie_max_link_transfers_per_second", 0, ()] == 16e9
    assert found["compute_units", 0, ()] == 104
    assert not [key for key in found if key[0] in ("power_watts", "clock_hertz", "memory_size_bytes")]
    assert entry.identity == {
        "model": "AMD Instinct MI210",
        "gfx": "gfx90a",
        "driver": "6.14.0-24-generic",
    }


@pytest.mark.parametrize("folder", ["cli-amd-smi", "cli-rocm-smi-text"])
def test_text_output_is_refused_not_misread(samples: Path, folder: str) -> None:
    for path in sorted((samples / "hardware" / folder).glob("*.txt")):
        for decode in (amd, rocm):
            with pytest.raises(FormatError, match="no JSON"):
                decode(path.read_bytes())


# --- shapes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "unit", "value"),
    [
        (5, "W", 5),
        (0, "W", 0),
        ("0", "%", 0),
        ("41.0", "W", 41.0),
        ("55 %", "%", 55),
        ("(1402Mhz)", "MHz", 1402000000),
        ({"value": "780", "unit": "mV"}, "mV", 0.78),
        ({"value": 1, "unit": "GB"}, "MB", 1 << 30),
        ({"value": 2.5, "unit": "GT/s"}, "GT/s", 2.5e9),
        ({"value": 7}, "W", 7),
        ({"value": "N/A", "unit": "W"}, "W", None),
        ({"value": 7, "unit": "N/A"}, "W", 7),
        ("N/A", "W", None),
        ("N/A (Secondary die)", "W", None),
        (None, "W", None),
        ("", "W", None),
        ("unknown", "W", None),
        ("Not supported on the given system", "", Reason.UNSUPPORTED),
        ("AMDSMI_STATUS_NO_PERM - Permission Denied", "", Reason.DENIED),
        ("AMDSMI_STATUS_BUSY", "", Reason.BUSY),
        ({"value": 7, "unit": "bananas"}, "W", Reason.MALFORMED),
        ({"value": 7, "unit": "C"}, "W", Reason.MALFORMED),
        (True, "W", Reason.MALFORMED),
        ([7], "W", Reason.MALFORMED),
        ({"watts": 7}, "W", Reason.MALFORMED),
        ("7; 8", "W", Reason.MALFORMED),
        ("nan", "W", Reason.MALFORMED),
        ("inf", "W", Reason.MALFORMED),
        (float("inf"), "W", Reason.MALFORMED),
        (float("nan"), "W", Reason.MALFORMED),
        (10**400, "MHz", Reason.MALFORMED),
        (2**64 - 1, "", None),
        (2**32 - 1, "", 2**32 - 1),
        (65535, "", 65535),
    ],
)
def test_a_leaf(leaf: Any, unit: str, value: Any) -> None:
    got = number(leaf, unit)
    assert got == value
    assert isinstance(got, Reason) == isinstance(value, Reason)


ONE = {"gpu": 0, "bdf": "0000:05:00.0", "usage": {"gfx_activity": {"value": 7, "unit": "%"}}}
OTHER = {"gpu": 0, "power": {"socket_power": {"value": 9, "unit": "W"}}}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([ONE | OTHER]),
        json.dumps({"gpu_data": [ONE | OTHER]}, indent=4),
        f"{json.dumps([ONE], indent=4)}\n{json.dumps([OTHER], indent=4)}\n\nLegend:\n  * = Current mode\n",
        f"WARNING: [drm] {{x}}\n[WARN] again\n{json.dumps([ONE | OTHER], indent=4)}\nGPU[0]: done\n",
        "\ufeff"
        + json.dumps([ONE | OTHER]).replace("gfx_activity", "GFX_Activity").replace("socket", "SOCKET"),
        f"no line end {json.dumps({'gpu_data': [ONE | OTHER]})}",
        json.dumps([ONE | OTHER]).replace("\n", "\r\n"),
    ],
)
def test_every_wrapping_of_the_same_data_gives_the_same(text: str) -> None:
    [entry] = amd(text.encode())
    assert (entry.pci, entry.partition) == ("0000:05:00.0", None)
    assert entry.groups["busy"] == {"gfx": 7}
    assert entry.groups["power"]["socket"] == 9


def test_a_key_that_stands_twice_with_two_values_counts_for_nothing() -> None:
    [entry] = rocm(b'{"card0": {"PCI Bus": "0000:05:00.0", "GPU use (%)": "1", "GPU use (%)": "2"}}')
    assert entry.groups["busy"] == {"gfx": Reason.MALFORMED}


def test_two_devices_of_one_address_lose_it_and_cost_nobody_else() -> None:
    cards = {
        f"card{i}": {"PCI Bus": f"0000:0{bus}:00.0", "GPU use (%)": "5"} for i, bus in enumerate((5, 5, 6))
    }
    entries = rocm(json.dumps(cards).encode())
    assert [(e.index, e.pci) for e in entries] == [(2, "0000:06:00.0"), (0, None), (1, None)]


def test_partitions_that_are_all_numbered_0_are_told_apart_by_function() -> None:
    listed = [{"gpu": i, "bdf": f"0000:05:00.{i}", "partition_id": 0} for i in range(4)]
    entries = amd(json.dumps(listed).encode())
    assert [(e.pci, e.partition) for e in entries] == [("0000:05:00.0", i) for i in range(4)]
    assert all(e.groups["busy"] == {"gfx": Reason.UNSUPPORTED} for e in entries)


def test_a_partition_does_not_borrow_activity_from_another_socket() -> None:
    busy = {"gfx_busy_inst": {f"xcp_{p}": [{"value": 10 + p, "unit": "%"}] for p in range(4)}}
    listed = [
        {"gpu": 0, "bdf": "0000:05:00.0", "partition_id": 0, "usage": busy},
        {"gpu": 1, "bdf": "0000:05:00.1", "partition_id": 1, "usage": "N/A"},
        {"gpu": 2, "bdf": "0000:15:00.3", "partition_id": 3, "usage": "N/A"},
    ]
    entries = amd(json.dumps(listed).encode())
    assert [e.groups["busy"]["gfx"] for e in entries] == [10, 11, Reason.UNSUPPORTED]


def test_a_total_of_errors_stands_in_only_where_no_blocks_are_shown() -> None:
    ecc = {"total_correctable_count": 7}
    blocks = {"UMC": {"correctable_count": 7}, 'we"ird\n': {"correctable_count": 1}}
    [entry] = amd(json.dumps([{"gpu": 0, "ecc": ecc}]).encode())
    assert entry.groups["errors"]["correctable"] == {"total": 7}
    [entry] = amd(json.dumps([{"gpu": 0, "ecc": ecc, "ecc_blocks": blocks}]).encode())
    assert entry.groups["errors"]["correctable"] == {"umc": 7}


@pytest.mark.parametrize("depth", [100, 5_000, 200_000])
def test_deep_nesting_is_refused_or_read_never_fatal(depth: int) -> None:
    for text in ("[" * depth, "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        with pytest.raises(FormatError):
            amd(text.encode())
    twice = '{"gpu":0,"a":' + "[" * depth + "]" * depth + "}"
    try:
        amd(f"[{twice},{twice}]".encode())
    except FormatError:
        assert depth > 100


def test_many_lines_that_look_like_json_take_no_long_time() -> None:
    with pytest.raises(FormatError):
        amd(b'{"x\n' * 200_000)


@pytest.mark.parametrize(
    ("out", "err", "reason"),
    [
        (b"", b"", Reason.NO_DATA),
        (b"WARNING: nothing here\n", b"", Reason.NO_DATA),
        (b"Permission needed to access required GPU device node(s):", b"", Reason.DENIED),
        (b"", b"RuntimeError: User is missing the following required groups: render", Reason.DENIED),
        (b'{"gpu_data": [{"gpu": 0,', b"", Reason.MALFORMED),
    ],
)
def test_why_there_is_nothing(out: bytes, err: bytes, reason: Reason) -> None:
    assert smi_json.why_nothing(out, err) is reason


# --- mutations -----------------------------------------------------------------------------------------


def whole_amd() -> Any:
    """A made-up node with every group filled, no value 0."""

    def of(value: float, unit: str) -> dict[str, Any]:
        return {"value": value, "unit": unit}

    return {
        "gpu_data": [
            {
                "gpu": i,
                "bdf": f"0000:0{5 + i}:00.0",
                "usage": {
                    "gfx_activity": of(88, "%"),
                    "umc_activity": of(41, "%"),
                    "vcn_activity": [of(3, "%")],
                },
                "power": {"socket_power": of(702, "W"), "gfx_voltage": of(780, "mV")},
                "limit": {"socket_power": of(750, "W"), "slowdown_edge_temperature": of(99, "C")},
                "clock": {"gfx_0": {"clk": of(1700, "MHz")}, "mem_0": {"clk": of(900, "MHz")}},
                "temperature": {"hotspot": of(71, "C"), "mem": of(64, "C")},
                "pcie": {"width": 16, "speed": of(32, "GT/s"), "replay_count": 5},
                "ecc_blocks": {"UMC": {"correctable_count": 3}},
                "fan": {"rpm": 2570},
                "energy": {"total_energy_consumption": of(9123456.789, "J")},
                "mem_usage": {"total_vram": of(196592, "MB"), "used_vram": of(151000, "MB")},
                "throttle": {"accumulation_counter": 1000, "ppt_accumulated": 12},
                "asic": {"num_compute_units": 304, "market_name": "AMD Instinct MI300X"},
            }
            for i in range(2)
        ]
    }


def whole_rocm() -> Any:
    return {
        f"card{i}": {
            "PCI Bus": f"0000:0{5 + i}:00.0",
            "GPU use (%)": "97",
            "GPU memory use (%)": "12",
            "Average Graphics Package Power (W)": "311.0",
            "Max Graphics Package Power (W)": "560.0",
            "Energy counter": "6122129286992",
            "Temperature (Sensor junction) (C)": "52.0",
            "VRAM Total Memory (B)": "68702699520",
            "VRAM Total Used Memory (B)": "28205416448",
            "sclk clock speed:": "(1700Mhz)",
            "pcie clock level": "1 (16.0GT/s x16)",
            "Voltage (mV)": "793",
            "PCIe Replay Count": "4",
        }
        for i in range(2)
    } | {"system": {"Driver version": "6.8.5"}}


WHOLE: list[tuple[Decode, Any]] = [(amd, whole_amd()), (rocm, whole_rocm())]
WRONG: list[Any] = [
    "N/A",
    None,
    True,
    False,
    [],
    {},
    [1],
    {"value": {}},
    {"value": None, "unit": []},
    "",
    "0x0",
]
WRONG += [
    float("nan"),
    float("inf"),
    -1,
    10**30,
    10**400,
    "9" * 5000,
    {"value": 5, "unit": 5},
    "\ud800",
    "1e999",
]


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every node below the root."""
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield (*path, key)
        yield from leaves(child, (*path, key))


def replaced(root: Any, path: tuple[Any, ...], value: Any) -> Any:
    root = copy.deepcopy(root)
    node = root
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return root


def check(decode: Decode, data: bytes) -> Readings:
    """Only FormatError may leave a decoder, and only finite values its readings."""
    try:
        entries = decode(data)
    except FormatError:
        return {}
    found = readings(entries)
    assert all(isinstance(v, int | float) and math.isfinite(v) for v in found.values())
    return found


@pytest.mark.parametrize(("decode", "whole"), WHOLE)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: str(w)[:12])
def test_a_wrong_thing_at_any_node_costs_its_own_readings_and_invents_no_zero(
    decode: Decode, whole: Any, wrong: Any
) -> None:
    good = check(decode, json.dumps(whole).encode())
    assert good
    assert 0 not in good.values()
    for path in leaves(whole):
        found = check(decode, json.dumps(replaced(whole, path, wrong)).encode("utf-8", "surrogatepass"))
        assert 0 not in found.values(), path
        if len(path) > 3:  # below one device's own group
            lost = {key for key in good if key not in found}
            assert len({index for _, index, _ in lost}) <= 1, path
            assert len(found) >= len(good) - 6, path


@pytest.mark.parametrize(("decode", "whole"), WHOLE)
def test_a_cut_output_is_refused_whole(decode: Decode, whole: Any) -> None:
    for indent in (None, 4):
        data = json.dumps(whole, indent=indent).encode()
        for end in range(0, len(data) - 1, 37):
            assert check(decode, data[:end]) == {}


@pytest.mark.parametrize(("decode", "whole"), WHOLE)
def test_flipped_swapped_and_doubled_bytes_do_no_harm(decode: Decode, whole: Any) -> None:
    data = json.dumps(whole, indent=1).encode()
    for seed in range(400):
        dice = random.Random(seed)
        spoilt = bytearray(data)
        for _ in range(dice.randint(1, 4)):
            at, length = dice.randrange(len(spoilt)), dice.randint(1, 40)
            kind = dice.randrange(4)
            if kind == 0:
                spoilt[at] ^= 1 << dice.randrange(8)
            elif kind == 1:
                del spoilt[at : at + length]
            elif kind == 2:
                spoilt[at:at] = spoilt[at : at + length]
            else:
                spoilt[at : at + 1] = dice.choice(
                    [b"{", b"]", b'"', b"NaN", b"\n", b"-", b"\xff", b"[", b"N/A"]
                )
        check(decode, bytes(spoilt))


@pytest.mark.parametrize(("decode", "whole"), WHOLE)
def test_a_key_doubled_with_another_value_makes_its_reading_unknown(decode: Decode, whole: Any) -> None:
    text = json.dumps(whole)
    good = check(decode, text.encode())
    for key in ('"power": {', '"GPU use (%)": "97"', '"rpm": 2570', '"width": 16'):
        if key in text:
            name = key.split(":")[0]
            found = check(decode, text.replace(key, f'{name}: "1", {key}', 1).encode())
            assert set(found) < set(good)
