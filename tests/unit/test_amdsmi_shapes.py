"""Every release's answers, on every kind of card, come out as the same readings; sysfs says the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from amdsmi_made import NODES, RELEASES, Driver, forget, sysfs_of, value
from trees import Machine, put

from exporter.catalogue import CATALOGUE
from exporter.model import Device, DeviceId, Reason, Series, Value

_forget = pytest.fixture(autouse=True)(forget)
SOCKET = "0000:05:00.0"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_one_socket_reads_the_same_in_every_release(
    release: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, release=release, node="mi300x:1")
    r = driver.poll()
    assert value(r, "power_watts") == 512
    assert value(r, "power_limit_watts") == 750
    # 65536 counts are one joule; the rounded 15.3 uJ would give 1,002,703.
    assert value(r, "energy_joules_total") == 1_000_000.5
    assert value(r, "busy_ratio", "gfx") == 0.6
    assert value(r, "busy_ratio", "memory") == 0.23
    assert value(r, "busy_ratio", "vcn") == 0.01
    assert value(r, "temperature_celsius", "junction") == 61
    assert value(r, "temperature_celsius", "edge") is None
    assert value(r, "temperature_limit_celsius", "mem", "emergency") == 110
    assert value(r, "memory_used_bytes", "vram") == 150_000_000_000
    assert value(r, "memory_size_bytes", "gtt") == 540_000_000_000
    assert value(r, "clock_hertz", "sclk", "7") == 2_096_000_000
    assert value(r, "clock_hertz", "fclk", "") == 1_800_000_000
    assert value(r, "pcie_link_transfers_per_second") == 32e9
    assert value(r, "pcie_max_link_width_lanes") == 16
    assert value(r, "pcie_nacks_received_total") == 4
    assert value(r, "xgmi_received_bytes_total", "3") == 1_000_020 * 1024
    assert value(r, "ecc_correctable_errors_total", "umc") == 5
    assert value(r, "ecc_uncorrectable_errors_total", "sdma") == 0
    assert value(r, "retired_pages", "reserved") == 2


def test_what_a_release_cannot_say_is_absent_with_a_reason(
    release: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, release=release, node="mi300x:1")
    r = driver.poll()
    has_residency, has_links = release not in ("6.1", "6.2"), release not in ("6.1", "6.2", "6.3")
    assert value(r, "throttle_residency_total", "power") == (45_000 if has_residency else None)
    assert value(r, "throttle_samples_total") == (900_000 if has_residency else None)
    assert value(r, "compute_units") == (304 if has_residency else None)
    assert value(r, "xgmi_link_state", "6", "down") == (1 if has_links else None)
    assert value(r, "xgmi_link_state", "0", "down") is None
    assert driver.reasons("amdgpu_throttle_samples_total") == (
        set() if has_residency else {Reason.UNSUPPORTED}
    )
    assert driver.reasons("amdgpu_fan_speed_rpm") == {Reason.UNSUPPORTED}


def test_a_count_of_deferred_errors_the_driver_may_not_keep_is_no_zero(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    r = Driver(monkeypatch, tmp_path, node="mi300x:1").poll()
    assert value(r, "ecc_deferred_errors_total", "umc") == 2
    assert value(r, "ecc_deferred_errors_total", "gfx") is None


def test_partitions_have_their_own_share_and_the_socket_speaks_once(
    release: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, release=release, node="mi300x-cpx:2")
    r = driver.poll()
    assert [d.id for d in driver.devices[:8]] == [DeviceId(SOCKET, p) for p in range(8)]
    assert len(driver.devices) == 16
    assert {d.gpu for d in driver.devices} == {0, 1}
    power = [s for s in r if s.metric == "amdgpu_power_watts"]
    assert [s.device for s in power] == [DeviceId(SOCKET), DeviceId("0000:26:00.0")]
    busy = {s.device: v for s, v in r.items() if s.metric == "amdgpu_busy_ratio" and s.labels == ("gfx",)}
    if release in ("6.1", "6.2"):
        assert busy == {}  # the whole card's figure is no partition's
    else:
        ours = [busy[DeviceId(SOCKET, p)] for p in range(8)]
        assert ours == [0.62, 0.60, 0.58, 0.64, 0.61, 0.59, 0.63, 0.57]


def test_the_render_node_that_every_partition_is_given_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, release="6.4", node="mi300x-cpx:1")
    driver.poll()
    assert [d.indices.get("render") for d in driver.devices] == [128] + [None] * 7
    driver = Driver(monkeypatch, tmp_path, release="7.0", node="mi300x-cpx:1")
    driver.poll()
    assert [d.indices.get("render") for d in driver.devices] == [128 + p for p in range(8)]


def test_the_second_die_of_a_package_claims_no_power(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = Driver(monkeypatch, tmp_path, node="mi250x:1")
    r = driver.poll()
    assert [d.id.pci for d in driver.devices] == ["0000:31:00.0", "0000:32:00.0"]
    assert value(r, "power_watts", pci="0000:31:00.0") == 43
    assert value(r, "power_watts", pci="0000:32:00.0") is None
    assert value(r, "energy_joules_total", pci="0000:32:00.0") is None
    assert value(r, "temperature_celsius", "hbm1", pci="0000:32:00.0") == 41


def test_a_counter_that_never_moves_is_none_and_a_fan_that_stands_is_zero(
    release: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    r = Driver(monkeypatch, tmp_path, release=release, node="rx7800xt:1").poll()
    assert value(r, "energy_joules_total") is None
    assert value(r, "fan_speed_rpm") == 0
    assert value(r, "power_watts") == 36
    assert value(r, "voltage_volts", "vddgfx") == 0.65
    assert not [s for s in r if s.metric.startswith("amdgpu_ecc")]


def test_without_a_table_the_other_calls_serve(
    release: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, release=release, node="rx7800xt:1")
    driver.poll()
    # What a card without the table answers, and one whose table the release does not know.
    driver.control.raises = {"get_gpu_metrics_info": "UNEXPECTED_DATA"}
    r = driver.poll()
    assert value(r, "power_watts") == 36
    assert value(r, "temperature_celsius", "edge") == 41
    assert value(r, "clock_hertz", "mclk", "") == 772_000_000
    assert value(r, "voltage_volts", "vddgfx") == 0.65
    assert value(r, "busy_ratio", "gfx") is None
    assert driver.reasons("amdgpu_busy_ratio") == {Reason.MALFORMED}
    # The library makes zeros of a table it does not know; that call is never made.
    assert "get_gpu_activity" not in driver.control.calls


def test_calls_that_block_are_not_made_and_violations_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from exporter.backends.amdsmi_socket import Cadence

    driver = Driver(monkeypatch, tmp_path)
    driver.poll()
    assert not {"get_gpu_pci_throughput", "get_violation_status"} & driver.control.calls.keys()
    driver = Driver(monkeypatch, tmp_path, node="mi300x:1", cadence=Cadence(violations_s=30))
    driver.poll()
    driver.control.raises = {"get_gpu_metrics_info": "NO_DATA"}
    for _ in range(7):
        r = driver.poll()
    assert value(r, "throttle_residency_total", "power") == 45_000
    assert driver.control.calls["get_violation_status"] == 2


def test_a_group_that_is_switched_off_is_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from exporter.backends.amdsmi_socket import Cadence

    driver = Driver(monkeypatch, tmp_path, cadence=Cadence(skip=frozenset({"ras", "pages", "link"})))
    r = driver.poll()
    assert not {"get_gpu_ecc_count", "get_gpu_bad_page_info", "get_pcie_info"} & driver.control.calls.keys()
    assert not [s for s in r if s.metric.startswith(("amdgpu_ecc", "amdgpu_retired"))]
    assert value(r, "power_watts", pci=SOCKET) == 512


def test_a_sleeping_gpu_is_left_asleep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = Driver(monkeypatch, tmp_path, node="rx7800xt:1")
    assert driver.poll()
    put(tmp_path / "bus/pci/devices/0000:09:00.0/power/runtime_status", "suspended")
    before = dict(driver.control.calls)
    assert driver.poll() == {}
    assert driver.control.calls == before
    assert {g.reason for g in driver.gaps} == {Reason.SUSPENDED}


def test_a_sleeping_gpu_is_not_woken_by_starting_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def state(pci: str, status: str) -> None:
        put(tmp_path / f"bus/pci/devices/{pci}/power/runtime_status", status)

    for pci in ("0000:09:00.0", "0000:0a:00.0"):
        put(tmp_path / f"bus/pci/drivers/amdgpu/{pci}", "")
        state(pci, "suspended")
    driver = Driver(monkeypatch, tmp_path, node="rx7800xt:2")
    error = driver.fails()
    assert error.reason is Reason.SUSPENDED
    assert "0000:09:00.0 sleeps" in str(error)
    assert "init" not in driver.control.calls
    state("0000:09:00.0", "active")
    assert driver.fails().reason is Reason.SUSPENDED
    state("0000:0a:00.0", "active")
    assert driver.poll()
    # A library that cannot stay initialised: once all sleep they are left alone, and listed.
    driver.backend._close(driver.backend._library)
    state("0000:09:00.0", "suspended")
    state("0000:0a:00.0", "suspended")
    before = dict(driver.control.calls)
    assert driver.poll() == {}
    assert driver.control.calls == before
    assert [d.id.pci for d in driver.devices] == ["0000:09:00.0", "0000:0a:00.0"]
    assert {g.reason for g in driver.gaps} == {Reason.SUSPENDED}


def test_a_library_that_is_started_at_every_poll_is_not_asked_who_the_gpus_are_at_every_poll(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path / "dev/kfd", "")
    driver = Driver(monkeypatch, tmp_path, node="mi300x-cpx:2", dev=str(tmp_path / "dev"))
    driver.backend._loaded()
    driver.control.hold = str(tmp_path / "dev/kfd")
    good = driver.poll()
    for _ in range(10):
        assert driver.poll() == good
    assert driver.control.calls["init"] == 11
    assert driver.control.calls["get_gpu_asic_info"] == 16
    driver.clock.at += 60
    driver.poll()
    assert driver.control.calls["get_gpu_asic_info"] == 32


def test_an_address_that_no_pci_device_has_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "bus/pci/devices/0000:05:00.0/vendor", "0x1002")
    driver = Driver(monkeypatch, tmp_path, node="mi300x:2")
    driver.poll()
    assert [d.id.pci for d in driver.devices] == [SOCKET]
    assert "no PCI device 0000:26:00.0" in caplog.text


def test_every_amdsmi_field_of_the_catalogue_speaks_on_some_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from exporter.backends.amdsmi_socket import Cadence

    seen: set[str] = set()
    for node in NODES:
        driver = Driver(monkeypatch, tmp_path, node=node, release="10.0", cadence=Cadence(records_s=5))
        seen |= {s.metric for _ in range(2) for s in driver.poll()}
    promised = {m.name for m in CATALOGUE if any(f.backend == "amdsmi" for f in m.fields)}
    assert promised <= seen
    assert all(
        m.fields[0].backend == "amdsmi" for m in CATALOGUE if any(f.backend == "amdsmi" for f in m.fields)
    )


def _both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, node: str, version: tuple[int, int]
) -> tuple[dict[Series, Value], dict[Series, Value], list[Device], list[Device]]:
    driver = Driver(monkeypatch, tmp_path / "none", node=node, release="7.0")
    library = driver.poll()
    sysfs_of(tmp_path / "sys", sys.modules["amdsmi"]._machine, version)
    machine = Machine(tmp_path / "sys")
    machine.poll()
    return library, dict(machine.pairs()), driver.devices, machine.devices


def _of_xccs(series: Series) -> bool:
    """What only the files say: the mean over XCCs of what holds each below the host's limit."""
    return "host_limit" in "".join(series.labels)


@pytest.mark.parametrize(
    ("node", "version"),
    [("mi300x:2", (1, 7)), ("mi210:2", (1, 3)), ("mi250x:1", (1, 3)), ("rx7800xt:1", (1, 3))],
)
def test_library_and_kernel_files_agree_in_every_label_and_value(
    node: str, version: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library, files, devices, file_devices = _both(monkeypatch, tmp_path, node, version)
    # Only KFD tells compute units in the files, and this tree has none.
    only_library = {s for s in library.keys() - files.keys() if s.metric != "amdgpu_compute_units"}
    assert only_library == set()
    both = {m.name for m in CATALOGUE if {"amdsmi", "sysfs"} <= {f.backend for f in m.fields}}
    assert {s for s in files.keys() - library.keys() if s.metric in both and not _of_xccs(s)} == set()
    assert {s: (v, files[s]) for s, v in library.items() if s in files and files[s] != v} == {}
    for ours, theirs in zip(devices, file_devices, strict=True):
        for name in ("id", "gpu", "uuid", "vbios", "model", "gfx", "compute_partition", "memory_partition"):
            assert getattr(ours, name) == getattr(theirs, name), name
