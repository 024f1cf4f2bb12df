"""gpu_metrics tables: layouts against the kernel's, values against stated truth, sentinels by width."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import trees
from hypothesis import given
from hypothesis import strategies as st

from exporter.formats import gpu_metrics
from exporter.formats.gpu_metrics_tables import ATTRIBUTES, LAYOUTS
from exporter.formats.gpu_metrics_units import partition_busy, unify
from exporter.model import FormatError

WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}
U16, U32, U64 = 2, 4, 6
HEADER = {"structure_size", "format_revision", "content_revision"}


def _want(fields: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    return {
        f["name"]: (f["offset"], WIDTHS[f["type"]], f["count"])
        for f in fields
        if f["type"] != "struct" and f["name"] not in HEADER and not f["name"].startswith("padding")
    }


def test_every_layout_is_the_kernels(samples: Path) -> None:
    layouts = json.loads((samples / "hardware/gpu_metrics_layouts.json").read_text())["layouts"]
    assert {tuple(map(int, v.split("."))) for v in layouts} == set(LAYOUTS)
    for version, layout in layouts.items():
        table = gpu_metrics.table(tuple(map(int, version.split("."))))
        assert table.size == layout["size"], version
        assert table.offsets == _want(layout["fields"]), version
        for f in layout["fields"]:
            if f["type"] == "struct":
                assert table.partitions is not None
                nested = gpu_metrics.partition_table(table.partitions[0])
                assert (table.partitions[1], nested.size) == (f["offset"], f["element_size"])
                assert nested.offsets == _want(f["fields"])


def test_synthetic_tables_decode_to_their_stated_values(samples: Path) -> None:
    folder = samples / "hardware/gpu-metrics-synthetic"
    truth = json.loads((folder / "TRUTH.json").read_text())
    assert len(truth) >= 9
    for name, entry in truth.items():
        assert gpu_metrics.decode((folder / name).read_bytes()) == entry["fields"], name


def test_real_tables_decode_to_their_stated_values(samples: Path) -> None:
    checked = 0
    for truth in sorted((samples / "hardware").glob("*/TRUTH.json")):
        for device in json.loads(truth.read_text()).get("devices", ()):
            if "fields" not in device.get("gpu_metrics", {}) or not device["gpu_metrics"]["fields"]:
                continue
            (blob,) = truth.parent.glob("card*/device/gpu_metrics")
            fields = {k: v for k, v in device["gpu_metrics"]["fields"].items() if k not in HEADER}
            decoded = gpu_metrics.decode(blob.read_bytes())
            assert {k: decoded[k] for k in fields if not k.startswith("padding")} == {
                k: v for k, v in fields.items() if not k.startswith("padding")
            }, truth
            checked += 1
    assert checked == 5


def test_a_discrete_card_of_the_wild(samples: Path) -> None:
    blob = (samples / "hardware/gpu-metrics-blobs/rx6700s-or-6800s-class-v1_3.bin").read_bytes()
    decoded = gpu_metrics.decode(blob)
    assert decoded["temperature_edge"] == 36
    assert decoded["temperature_hotspot"] == 49
    assert decoded["average_gfx_activity"] == 64
    assert decoded["average_socket_power"] == 33
    assert decoded["energy_accumulator"] == 3284043806
    assert decoded["pcie_link_width"] == 8
    assert decoded["pcie_link_speed"] == 80


def test_a_header_that_lies_is_an_error(samples: Path) -> None:
    blob = (samples / "hardware/gpu-metrics-blobs/invalid-header.bin").read_bytes()
    with pytest.raises(FormatError, match=r"unknown table 0\.0"):
        gpu_metrics.decode(blob)


def test_sentinel_case_leaves_out_what_is_not_there(samples: Path) -> None:
    folder = samples / "cases/23-gpu_metrics-sentinels"
    blob = (folder / "gpu_metrics.bin").read_bytes()
    out = unify(gpu_metrics.decode(blob), gpu_metrics.version_of(blob))
    assert out["temperature"]["junction"] == 66
    assert out["temperature"]["mem"] == 58
    assert out["temperature"]["edge"] is None
    assert out["busy"] == {"gfx": None, "memory": 35}
    assert out["power"] is None
    # 27000000000 counts of 2^-16 J; the stated 411993 J uses the rounded 15.259 uJ.
    assert out["energy"] / 65536 == pytest.approx(411993, rel=2e-5)
    for broken in ("gpu_metrics_empty.bin", "gpu_metrics_short.bin"):
        with pytest.raises(FormatError):
            gpu_metrics.decode((folder / broken).read_bytes())


@pytest.mark.parametrize("version", sorted(LAYOUTS))
def test_a_table_cut_anywhere_is_an_error_and_nothing_else(version: tuple[int, int]) -> None:
    whole = trees.blob(version, {})
    gpu_metrics.decode(whole)
    for length in {0, 1, 3, 4, 5, len(whole) // 2, len(whole) - 1}:
        with pytest.raises(FormatError):
            gpu_metrics.decode(whole[:length])


def test_a_longer_table_of_a_known_version_is_read_by_its_known_part() -> None:
    blob = trees.blob((1, 3), {"temperature_hotspot": [61]}) + b"\0" * 24
    assert gpu_metrics.decode(blob)["temperature_hotspot"] == 61


def test_a_header_smaller_than_its_layout_is_an_error() -> None:
    blob = bytearray(trees.blob((1, 3), {}))
    struct.pack_into("<H", blob, 0, 96)
    with pytest.raises(FormatError, match="needs 120 bytes"):
        gpu_metrics.decode(bytes(blob))


def test_a_partitions_own_table_is_not_taken_for_the_cards_of_the_same_number() -> None:
    own = trees.attributes([(40, U32, [91, 2**32 - 1]), (33, U16, [2100]), (43, U64, [7] * 9)], revision=1)
    assert len(own) > gpu_metrics.table((1, 1)).size
    with pytest.raises(FormatError, match=r"table 1\.1"):
        gpu_metrics.decode(own)
    assert gpu_metrics.decode_attributes(own) == {
        "gfx_busy_inst": [91, None],
        "current_gfxclk": 2100,
        "gfx_busy_acc": [7] * 9,
    }


@given(st.sampled_from([(v, n) for v in LAYOUTS for n in gpu_metrics.table(v).offsets]), st.data())
def test_only_all_ones_of_its_own_width_is_absent(field: tuple[tuple[int, int], str], data: Any) -> None:
    version, name = field
    _, width, count = gpu_metrics.table(version).offsets[name]
    ones = (1 << 8 * width) - 1
    special = st.sampled_from([0, 255, 65535, 2**31 - 1, 2**32 - 1, 2**63 - 1, ones - 1, ones])
    numbers = st.one_of(special.filter(lambda v: v <= ones), st.integers(0, ones))
    values = data.draw(st.lists(numbers, min_size=count, max_size=count))
    decoded = gpu_metrics.decode(trees.blob(version, {name: values}))[name]
    expected = [None if v == ones else v for v in values]
    assert decoded == (expected[0] if count == 1 else expected)


@given(st.integers(0, 7), st.data())
def test_self_describing_values_obey_type_and_count(kind: int, data: Any) -> None:
    bits = (8, 8, 16, 16, 32, 32, 64, 64)[kind]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind % 2 else (0, (1 << bits) - 1)
    ones = -1 if kind % 2 else high
    numbers = st.one_of(st.sampled_from([0, high, ones, 127]), st.integers(low, high))
    values = data.draw(st.lists(numbers, min_size=1, max_size=12))
    ident = data.draw(st.integers(0, len(ATTRIBUTES) - 1))
    decoded = gpu_metrics.decode(trees.attributes([(ident, kind, values)]))
    expected = [None if v == ones else v for v in values]
    assert decoded == {ATTRIBUTES[ident]: expected[0] if len(values) == 1 else expected}


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_a_format_error(blob: bytes) -> None:
    for attempt in (blob, b"\x10\0\x01\x09" + blob):
        with contextlib.suppress(FormatError):
            assert isinstance(gpu_metrics.decode(attempt), dict)


def test_unknown_attributes_are_stepped_over_by_their_size() -> None:
    blob = trees.attributes([(300, U64, [1, 2, 3]), (0, U16, [61]), (900, U32, [5]), (1, U16, [48])])
    assert gpu_metrics.decode(blob) == {"temperature_hotspot": 61, "temperature_mem": 48}


def test_die_temperatures_follow_the_numbering_of_the_kernel_that_wrote_them() -> None:
    early = gpu_metrics.decode(
        trees.attributes([(48, U16, [45]), (49, U16, [53, 54]), (50, U16, [60, 61, 62, 63])])
    )
    assert early == {
        "temperature_hbm": 45,
        "temperature_aid": [53, 54],
        "temperature_xcd": [60, 61, 62, 63],
    }
    later = gpu_metrics.decode(
        trees.attributes([(49, U16, [51, 52]), (50, U16, [53, 54]), (51, U16, [60, 61, 62, 63])])
    )
    assert later == {
        "temperature_mid": [51, 52],
        "temperature_aid": [53, 54],
        "temperature_xcd": [60, 61, 62, 63],
    }


def test_die_temperatures_that_could_be_either_stay_unnamed() -> None:
    assert gpu_metrics.decode(trees.attributes([(49, U16, [51, 52]), (50, U16, [53, 54])])) == {}
    assert gpu_metrics.decode(trees.attributes([(49, U16, [51, 52])])) == {}


def test_a_type_without_a_width_is_an_error() -> None:
    blob = struct.pack("<HBBiQH", 18, 1, 9, 1, 9 << 20 | 1, 5)
    with pytest.raises(FormatError, match="unknown type 9"):
        gpu_metrics.decode(blob)


def test_units_of_apu_tables_become_those_of_the_others(samples: Path) -> None:
    blob = (samples / "hardware/apu-radeon-780m-phoenix/card1/device/gpu_metrics").read_bytes()
    out = unify(gpu_metrics.decode(blob), gpu_metrics.version_of(blob))
    assert out["temperature"]["gfx"] == 25.0
    assert out["temperature"]["soc"] == 27.37
    assert out["power"] == 3.401
    # 79 in this field is 0.79 % here and 79 % on other firmware: nothing may be said.
    assert out["busy"] == {}


def test_an_energy_counter_that_stands_at_zero_is_none(samples: Path) -> None:
    blob = (samples / "hardware/radeon-rx7800xt/card1/device/gpu_metrics").read_bytes()
    decoded = gpu_metrics.decode(blob)
    assert decoded["energy_accumulator"] == 0
    assert unify(decoded, (1, 3))["energy"] is None


def test_a_slot_of_an_xcc_that_is_not_there_does_not_count_as_busy(samples: Path) -> None:
    folder = samples / "hardware/gpu-metrics-synthetic"
    # One XCC per slot; the last slot holds 16 ones in 32 bits.
    per_slot = gpu_metrics.decode((folder / "v1_8.bin").read_bytes())
    assert [partition_busy(per_slot, p, 1)["gfx"] for p in range(8)] == [91, 92, 93, 94, 95, 96, 97, None]
    flat = gpu_metrics.decode((folder / "v1_9.bin").read_bytes())
    assert partition_busy(flat, 0, 8)["gfx"] == pytest.approx(sum(range(91, 98)) / 7)
    assert partition_busy(flat, 1, 2)["gfx"] == 93.5
    assert partition_busy(flat, 3, 2)["gfx"] == 97
    assert partition_busy(flat, 0, None)["gfx"] is None


def test_one_shape_for_fixed_and_self_describing_tables(samples: Path) -> None:
    folder = samples / "hardware/gpu-metrics-synthetic"
    fixed = unify(gpu_metrics.decode((folder / "v1_8.bin").read_bytes()), (1, 8))
    own = unify(gpu_metrics.decode((folder / "v1_9.bin").read_bytes()), (1, 9))
    for key in ("power", "energy", "temperature", "throttle", "clocks", "xgmi_read", "xgmi_link", "pcie"):
        assert own[key] == fixed[key], key
    assert fixed["clocks"]["sclk"] == {str(i): 2100 + i for i in range(8)}
    assert fixed["xgmi_link"]["6"] == {"up": 0, "down": 1}
    assert "7" not in fixed["xgmi_link"]


def test_a_counter_that_came_as_one_value_is_one_link() -> None:
    blob = trees.attributes([(29, U64, [10_000_000_000]), (37, U16, [1300, 1301])])
    out = unify(gpu_metrics.decode(blob), (1, 9))
    assert out["xgmi_read"] == {"0": 10_000_000_000}
    assert out["clocks"]["mclk"] == {"0": 1300, "1": 1301}
