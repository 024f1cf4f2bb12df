"""One bad file costs exactly its own readings; nothing is latched; no value is special."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import trees
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import Reason

GPU = "0000:05:00.0"
HWMON = "hwmon/hwmon2/"
BLOB_ONLY = {
    "busy_seconds_total",
    "die_busy_ratio",
    "energy_joules_total",
    "throttle_samples_total",
    "throttle_residency_total",
    "pcie_replay_rollovers_total",
    "pcie_recoveries_total",
    "pcie_nacks_sent_total",
    "pcie_nacks_received_total",
    "xgmi_received_bytes_total",
    "xgmi_transmitted_bytes_total",
    "xgmi_link_state",
}
# Readings that live in this file alone. ``old -> new`` values come from the next source for the same reading.
OWN: dict[str, set[tuple[str, str]]] = {
    "mem_info_vram_used": {("memory_used_bytes", "vram")},
    "mem_info_vis_vram_used": {("memory_used_bytes", "visible_vram")},
    "mem_info_gtt_used": {("memory_used_bytes", "gtt")},
    "mem_info_vis_vram_total": {("memory_size_bytes", "visible_vram")},
    "mem_info_gtt_total": {("memory_size_bytes", "gtt")},
    "pp_dpm_fclk": {("clock_hertz", "fclk,")},
    "pp_dpm_socclk": {("clock_hertz", "socclk,")},
    "pp_dpm_vclk": {("clock_hertz", "vclk,")},
    "pp_dpm_dclk": {("clock_hertz", "dclk,")},
    "max_link_speed": {("pcie_max_link_transfers_per_second", "")},
    "max_link_width": {("pcie_max_link_width_lanes", "")},
    "ras/umc_err_count": {
        ("ecc_correctable_errors_total", "umc"),
        ("ecc_uncorrectable_errors_total", "umc"),
        ("ecc_deferred_errors_total", "umc"),
    },
    "ras/gfx_err_count": {
        ("ecc_correctable_errors_total", "gfx"),
        ("ecc_uncorrectable_errors_total", "gfx"),
    },
    "ras/gpu_vram_bad_pages": {
        ("retired_pages", "reserved"),
        ("retired_pages", "pending"),
        ("retired_pages", "unreservable"),
    },
    HWMON + "power1_cap": {("power_limit_watts", "")},
    HWMON + "in0_input": {("voltage_volts", "vddgfx")},
    HWMON + "temp2_crit": {("temperature_limit_celsius", "junction,critical")},
    HWMON + "temp2_emergency": {("temperature_limit_celsius", "junction,emergency")},
}
# The blob or pp_dpm says the same thing: the reading stays, with that source's value.
FALLBACK: dict[str, dict[tuple[str, str], float]] = {
    "gpu_busy_percent": {("busy_ratio", "gfx"): 0.38},
    "mem_busy_percent": {("busy_ratio", "memory"): 0.13},
    "vcn_busy_percent": {("busy_ratio", "vcn"): 0.02},
    "mem_info_vram_total": {},  # KFD's banks have the same size
    "pp_dpm_sclk": {},  # hwmon has it
    "pp_dpm_mclk": {},
    "current_link_speed": {},
    "current_link_width": {},
    "pcie_replay_count": {("pcie_replays_total", ""): 4.0},
    HWMON + "temp2_input": {("temperature_celsius", "junction"): 67.0},
    HWMON + "temp3_input": {("temperature_celsius", "mem"): 49.0},
    HWMON + "power1_input": {("power_watts", ""): 411.0},
    HWMON + "freq1_input": {},
    HWMON + "freq2_input": {},
}


def readings(machine: trees.Machine) -> dict[tuple[str, str], float]:
    return {(m.removeprefix("amdgpu_"), labels): v for (m, _, labels), v in machine.poll().items()}  # type: ignore[misc]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (device,) = trees.mi300x(tmp_path)
    return device


def _harm(file: Path, how: str) -> None:
    if how == "deleted":
        file.unlink()
    elif how == "a folder":
        file.unlink()
        file.mkdir()
    else:
        trees.put(file, {"empty": b"", "nonsense": b"\xff\xfe\x00nonsense\n", "huge": b"9" * 400}[how])


def test_the_made_node_serves_what_was_put_there(tmp_path: Path, node: Path) -> None:
    rows = readings(trees.Machine(tmp_path))
    assert rows["power_watts", ""] == 410
    assert rows["busy_ratio", "gfx"] == 0.37
    assert rows["busy_ratio", "jpeg"] == 0
    assert rows["clock_hertz", "sclk,"] == 2.1e9
    assert rows["clock_hertz", "sclk,7"] == 2.107e9
    assert rows["energy_joules_total", ""] == pytest.approx(6122129286992 / 65536)
    assert rows["xgmi_received_bytes_total", "3"] == 1003 * 1024
    assert rows["ecc_correctable_errors_total", "umc"] == 2
    assert rows["retired_pages", "pending"] == 1
    assert rows["throttle_residency_total", "power"] == 4711
    assert rows["pcie_link_transfers_per_second", ""] == 32e9
    assert len(rows) > 95
    assert node.is_dir()


HARMS = [
    (name, how)
    for name in sorted({*OWN, *FALLBACK})
    for how in ("deleted", "empty", "nonsense", "huge", "a folder")
    if (name, how) != ("ras/gpu_vram_bad_pages", "empty")  # an empty list of pages is zero pages
]


@pytest.mark.parametrize(("name", "how"), HARMS)
def test_one_bad_file_costs_exactly_its_own_readings(tmp_path: Path, node: Path, name: str, how: str) -> None:
    before = trees.Machine(tmp_path)
    whole = readings(before)
    _harm(node / name, how)
    after = trees.Machine(tmp_path)
    rows = readings(after)
    lost = OWN.get(name, set())
    if how == "deleted" and name.endswith("err_count"):
        assert len(after.gaps) == len(before.gaps)  # which blocks a chip has, only the files tell
    elif lost:
        assert len(after.gaps) > len(before.gaps), "the loss is not counted"
    assert whole.keys() - rows.keys() == lost
    assert rows == {k: v for k, v in whole.items() if k not in lost} | FALLBACK.get(name, {})


@pytest.mark.parametrize("how", ["deleted", "empty", "nonsense", "a folder", "cut"])
def test_without_the_blob_the_files_still_serve(tmp_path: Path, node: Path, how: str) -> None:
    before = trees.Machine(tmp_path)
    whole = readings(before)
    blob = node / "gpu_metrics"
    if how == "cut":
        trees.put(blob, blob.read_bytes()[:1000])
    else:
        _harm(blob, how)
    after = trees.Machine(tmp_path)
    rows = readings(after)
    lost = whole.keys() - rows.keys()
    assert {metric for metric, _ in lost} == BLOB_ONLY | {"busy_ratio", "clock_hertz", "temperature_celsius"}
    assert {labels for metric, labels in lost if metric == "busy_ratio"} == {"jpeg"}
    assert {labels for metric, labels in lost if metric == "temperature_celsius"} == {"vr_soc"}
    assert all(labels[-1].isdigit() for metric, labels in lost if metric == "clock_hertz")
    assert rows == {k: v for k, v in whole.items() if k not in lost}
    counted = {m.removeprefix("amdgpu_") for m, _, reason in after.missing() if reason != "suspended"}
    assert counted >= BLOB_ONLY


def test_an_unknown_table_is_said_once_and_costs_the_table_only(
    tmp_path: Path, node: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trees.put(node / "gpu_metrics", b"\x20\x00\x07\x01" + b"\0" * 28)
    machine = trees.Machine(tmp_path)
    assert readings(machine)["power_watts", ""] == 410
    readings(machine)
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 1
    assert "gpu_metrics: unknown table 7.1" in said[0]
    assert "05:00.0/gpu_metrics" in said[0]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "denied"),
        (errno.EPERM, "denied"),
        (errno.EBUSY, "busy"),
        (errno.EIO, "busy"),
        (errno.EINVAL, "unsupported"),
        (524, "unsupported"),
        (errno.ETIME, "timeout"),
    ],
)
def test_a_failed_read_is_a_gap_with_its_reason_and_the_next_poll_has_it(
    tmp_path: Path, node: Path, number: int, reason: str
) -> None:
    machine = trees.Machine(tmp_path)
    whole = readings(machine)
    for name in ("mem_info_gtt_used", "power1_cap", "max_link_speed"):
        machine = trees.Machine(tmp_path)
        machine.root.errors = {name: number}
        rows = readings(machine)
        ((metric, _),) = whole.keys() - rows.keys()
        assert (f"amdgpu_{metric}", GPU, reason) in machine.missing()
        machine.root.errors = {}
        assert readings(machine) == whole
    assert node.is_dir()


def test_counts_are_absent_during_a_reset_and_back_at_the_next_poll(tmp_path: Path, node: Path) -> None:
    file = node / "ras/umc_err_count"
    text = file.read_text()
    file.write_text("Query currently inaccessible\n")
    machine = trees.Machine(tmp_path)
    assert ("ecc_correctable_errors_total", "umc") not in readings(machine)
    assert ("amdgpu_ecc_correctable_errors_total", GPU, "busy") in machine.missing()
    file.write_text(text)
    assert readings(machine)["ecc_correctable_errors_total", "umc"] == 2


def test_a_first_reading_of_zero_is_a_value_and_moves_on(tmp_path: Path, node: Path) -> None:
    trees.put(node / "gpu_busy_percent", "0")
    trees.put(node / HWMON / "temp2_input", "0")
    trees.put(node / "mem_info_vram_used", "0")
    machine = trees.Machine(tmp_path)
    rows = readings(machine)
    assert rows["busy_ratio", "gfx"] == 0
    assert rows["temperature_celsius", "junction"] == 0
    assert rows["memory_used_bytes", "vram"] == 0
    trees.put(node / "gpu_busy_percent", "91")
    trees.put(node / HWMON / "temp2_input", "71000")
    assert readings(machine)["busy_ratio", "gfx"] == 0.91
    assert readings(machine)["temperature_celsius", "junction"] == 71


@pytest.mark.parametrize(
    "name",
    [
        "pp_dpm_fclk",
        "mem_info_vram_used",
        "mem_info_gtt_total",
        "max_link_width",
        "ras/umc_err_count",
        HWMON + "power1_cap",
        HWMON + "temp2_crit",
        HWMON + "in0_input",
        "gpu_metrics",
        "hwmon",
        "ras",
    ],
)
def test_a_file_that_appears_later_is_read_at_the_next_poll(tmp_path: Path, node: Path, name: str) -> None:
    whole = readings(trees.Machine(tmp_path))
    away = tmp_path / "away"
    (node / name).rename(away)
    machine = trees.Machine(tmp_path)
    assert readings(machine) != whole
    away.rename(node / name)
    assert readings(machine) == whole


def test_a_file_that_goes_later_takes_its_reading_along(tmp_path: Path, node: Path) -> None:
    machine = trees.Machine(tmp_path)
    readings(machine)
    (node / HWMON / "power1_cap").unlink()
    (node / "mem_info_gtt_total").unlink()
    (node / HWMON / "temp3_input").unlink()
    rows = readings(machine)
    assert ("power_limit_watts", "") not in rows
    assert ("memory_size_bytes", "gtt") not in rows
    assert rows["temperature_celsius", "mem"] == 49  # from the blob


def test_an_empty_list_of_pages_is_zero_pages(tmp_path: Path, node: Path) -> None:
    trees.put(node / "ras/gpu_vram_bad_pages", b"")
    rows = readings(trees.Machine(tmp_path))
    assert {labels: v for (m, labels), v in rows.items() if m == "retired_pages"} == {
        "reserved": 0,
        "pending": 0,
        "unreservable": 0,
    }


def test_a_block_whose_counts_go_is_missed(tmp_path: Path, node: Path) -> None:
    machine = trees.Machine(tmp_path)
    readings(machine)
    (node / "ras/umc_err_count").unlink()
    rows = readings(machine)
    assert ("ecc_correctable_errors_total", "umc") not in rows
    assert rows["ecc_correctable_errors_total", "gfx"] == 0
    assert ("amdgpu_ecc_correctable_errors_total", GPU, "unsupported") in machine.missing()


def test_a_sensor_without_a_label_is_named_after_its_file(tmp_path: Path, node: Path) -> None:
    (node / HWMON / "temp2_label").unlink()
    rows = readings(trees.Machine(tmp_path))
    assert rows["temperature_celsius", "temp2"] == 66
    assert rows["temperature_celsius", "junction"] == 67  # the blob's own


def test_a_limit_that_changes_is_seen_within_the_slow_period(tmp_path: Path, node: Path) -> None:
    machine = trees.Machine(tmp_path, slow_s=60)
    assert readings(machine)["power_limit_watts", ""] == 750
    trees.put(node / HWMON / "power1_cap", "500000000")
    machine.clock.at += 60
    assert readings(machine)["power_limit_watts", ""] == 500


def test_zero_watts_is_no_measurement_of_a_gpu_that_is_on(tmp_path: Path, node: Path) -> None:
    trees.put(node / HWMON / "power1_input", "0")
    trees.put(node / "gpu_metrics", b"")
    machine = trees.Machine(tmp_path)
    assert ("power_watts", "") not in readings(machine)
    assert ("amdgpu_power_watts", GPU, str(Reason.IMPLAUSIBLE)) in machine.missing()


SPECIAL = [0, 1, 127, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node whose files a property test writes over."""
    root = tmp_path_factory.mktemp("kept")
    trees.mi300x(root)
    return root


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.sampled_from(SPECIAL), st.integers(0, 10**15)))
def test_no_number_in_a_file_is_special(kept: Path, number: int) -> None:
    root, device = kept, kept / f"devices/pci0000:00/{GPU}"
    trees.put(device / "mem_info_vram_used", str(number))
    trees.put(device / "pcie_replay_count", str(number))
    trees.put(device / "ras/umc_err_count", f"ue: {number}\nce: {number}\nde: {number}")
    rows = readings(trees.Machine(root))
    assert rows["memory_used_bytes", "vram"] == number
    assert rows["pcie_replays_total", ""] == number
    assert rows["ecc_uncorrectable_errors_total", "umc"] == number


WORTH = {  # field -> (reading, scale, width): every value that is not all ones of the width, within the range
    "accumulation_counter": (("throttle_samples_total", ""), 1, 4),
    "ppt_residency_acc": (("throttle_residency_total", "power"), 1, 4),
    "pcie_nak_sent_count_acc": (("pcie_nacks_sent_total", ""), 1, 4),
    "pcie_l0_to_recov_count_acc": (("pcie_recoveries_total", ""), 1, 8),
    "xgmi_read_data_acc": (("xgmi_received_bytes_total", "0"), 1024, 8),
}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(WORTH)), st.one_of(st.sampled_from(SPECIAL), st.integers(0, 2**64 - 1)))
def test_a_number_of_the_table_vanishes_only_as_all_ones_of_its_width(
    kept: Path, field: str, number: int
) -> None:
    reading, scale, width = WORTH[field]
    ones = (1 << 8 * width) - 1
    number &= ones
    root, device = kept, kept / f"devices/pci0000:00/{GPU}"
    trees.put(device / "gpu_metrics", trees.blob((1, 8), {**trees.METRICS, field: [number]}, (trees.SLOT,)))
    rows = readings(trees.Machine(root))
    if number == ones:
        assert reading not in rows
    else:
        assert rows[reading] == float(number * scale)
