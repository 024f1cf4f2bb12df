"""What a misbehaving library costs: the reading it spoils, and nothing else."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from amdsmi_made import NODES, RELEASES, Driver, forget, value
from trees import put

from exporter.backends.amdsmi_groups import U16, U32, U64, number
from exporter.host import Root, resident_bytes
from exporter.model import Reason, Series, SourceError, Value

_forget = pytest.fixture(autouse=True)(forget)
FIRST, SECOND = "0000:05:00.0", "0000:26:00.0"


def of(readings: dict[Series, Value], pci: str) -> dict[Series, Value]:
    return {s: v for s, v in readings.items() if s.device is not None and s.device.pci == pci}


# --- exceptions ----------------------------------------------------------------------------------------

STATUSES = {
    "INVAL": Reason.UNSUPPORTED,
    "NOT_SUPPORTED": Reason.UNSUPPORTED,
    "DRM_ERROR": Reason.NO_DATA,
    "API_FAILED": Reason.NO_DATA,
    "TIMEOUT": Reason.TIMEOUT,
    "RETRY": Reason.BUSY,
    "NO_PERM": Reason.DENIED,
    "IO": Reason.BUSY,
    "FILE_ERROR": Reason.NO_DATA,
    "OUT_OF_RESOURCES": Reason.BUSY,
    "BUSY": Reason.BUSY,
    "NOT_FOUND": Reason.GONE,
    "NOT_INIT": Reason.GONE,
    "DRIVER_NOT_LOADED": Reason.GONE,
    "NO_DATA": Reason.NO_DATA,
    "UNEXPECTED_SIZE": Reason.MALFORMED,
    "UNEXPECTED_DATA": Reason.MALFORMED,
    "FILE_NOT_FOUND": Reason.UNSUPPORTED,
    "CORRUPTED_EEPROM": Reason.MALFORMED,
    "UNKNOWN_ERROR": Reason.MALFORMED,
    "AmdSmiException": Reason.MALFORMED,
    "AmdSmiLibraryException": Reason.MALFORMED,
    "AmdSmiRetryException": Reason.BUSY,
    "AmdSmiTimeoutException": Reason.TIMEOUT,
    "AmdSmiParameterException": Reason.MALFORMED,
    "AmdSmiKeyException": Reason.MALFORMED,
    "AmdSmiBdfFormatException": Reason.MALFORMED,
    "OSError": Reason.BUSY,
    "KeyError": Reason.MALFORMED,
    "TypeError": Reason.MALFORMED,
}


@pytest.mark.parametrize("release", ["6.1", "7.2"])
@pytest.mark.parametrize("what", STATUSES)
def test_every_exception_of_a_call_is_a_reason_for_its_own_readings(
    what: str, release: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, release=release)
    good = driver.poll()
    driver.control.raises = {f"get_power_cap_info:{FIRST}": what}
    r = driver.poll()
    lost = good.keys() - r.keys()
    assert {(s.metric, s.device.pci) for s in lost if s.device} == {("amdgpu_power_limit_watts", FIRST)}
    assert driver.reasons("amdgpu_power_limit_watts") == {STATUSES[what]}
    driver.control.raises = {}
    assert driver.poll() == good


@pytest.mark.parametrize("what", ["AmdSmiException", "NO_DATA", "OSError", "TypeError", "BUSY"])
def test_a_gpu_whose_every_call_raises_costs_its_own_readings_only(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path)
    good = driver.poll()
    driver.control.raises = {f"*:{FIRST}": what}
    for _ in range(3):
        assert of(driver.poll(), SECOND) == of(good, SECOND)
    driver.control.raises = {}
    # What was said of it is found again without anyone's help.
    driver.poll()
    assert driver.poll() == good


# --- values --------------------------------------------------------------------------------------------


def leaves(answer: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = (
        answer.items() if isinstance(answer, dict) else enumerate(answer) if isinstance(answer, list) else ()
    )
    found = False
    for key, child in inner:
        found = True
        # One slot of a long row stands for the others.
        if not isinstance(answer, list) or key in (1, len(answer) - 1):
            yield from leaves(child, (*path, key))
    if not found:
        yield path


# The library gives one reading for each of these, with no fields of its own.
CALLS = {
    "get_gpu_metrics_info": (),
    "get_power_info": (),
    "get_power_cap_info": (),
    "get_energy_count": (),
    "get_pcie_info": (),
    "get_gpu_asic_info": (),
    "get_gpu_board_info": (),
    "get_gpu_vbios_info": (),
    "get_gpu_driver_info": (),
    "get_gpu_kfd_info": (),
    "get_gpu_enumeration_info": (),
    "get_gpu_bad_page_info": (),
    "get_gpu_compute_partition": (),
    "get_gpu_memory_partition": (),
    "get_gpu_xcd_counter": (),
    "get_gpu_fan_rpms": (0,),
    "get_gpu_ecc_count": (("AmdSmiGpuBlock", "UMC"),),
    "get_gpu_memory_total": (("AmdSmiMemoryType", "VRAM"),),
    "get_gpu_memory_usage": (("AmdSmiMemoryType", "VRAM"),),
    "get_clock_info": (("AmdSmiClkType", "DF"),),
    "get_temp_metric": (("AmdSmiTemperatureType", "VRAM"), ("AmdSmiTemperatureMetric", "CRITICAL")),
    "get_gpu_volt_metric": (("AmdSmiVoltageType", "VDDGFX"), ("AmdSmiVoltageMetric", "CURRENT")),
}
JUNK: tuple[Any, ...] = (
    "N/A",
    "",
    "12 W",
    None,
    True,
    math.nan,
    math.inf,
    -math.inf,
    -1,
    1e300,
    10**400,
    b"\xff",
    object(),
    [],
    [None],
    {},
    {"value": 1},
    (1, 2),
)
# Numbers that are legal in many fields: they may be believed, or refused, but nothing else may change.
NUMBERS: tuple[Any, ...] = (0, 255, U16, U32, U64, 2**31 - 1)


def _answers(driver: Driver) -> dict[str, Any]:
    """What each call answers for the first GPU, on a library of our own that is not the backend's."""
    module = sys.modules["amdsmi"]
    module.amdsmi_init()
    handle = module.amdsmi_get_processor_handles()[0]
    found = {}
    for name, arguments in CALLS.items():
        function = getattr(module, f"amdsmi_{name}", None)
        values = [getattr(getattr(module, a[0]), a[1]) if isinstance(a, tuple) else a for a in arguments]
        try:
            if function is not None:
                found[name] = function(handle, *values)
        except module.AmdSmiException:
            continue
    module.amdsmi_shut_down()
    driver.backend._gpus, driver.backend._identify_at = None, 0.0  # its handles died with that shut-down
    return found


def _sound(driver: Driver, zeros: set[Series] | None) -> dict[Series, Value]:
    """Poll anew; every value is finite, and no 0 stands where none was measured (None: 0 was given)."""
    driver.backend._readers.clear()
    driver.backend._gpus, driver.backend._identify_at = None, 0.0
    r = driver.poll()
    for s, v in r.items():
        assert isinstance(v, float | int)
        assert math.isfinite(v)
        assert v != 0 or zeros is None or s in zeros, f"an invented 0: {s}"
    return r


@pytest.mark.parametrize(
    ("release", "node"),
    [("6.1", "mi300x:1"), ("6.4", "mi210:1"), ("7.0", "mi300x-cpx:1"), ("7.2", "rx7800xt:1")],
)
def test_a_wrong_type_at_any_leaf_costs_that_reading_only(
    release: str, node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, release=release, node=node)
    good = driver.poll()
    zeros = {s for s, v in good.items() if v == 0}
    cases = turn = 0
    for name, answer in _answers(driver).items():
        for path in leaves(answer):
            turn += 1
            for junk in (JUNK[(turn + k) % len(JUNK)] for k in range(0, len(JUNK), 5)):
                driver.control.mutate = (name, path, junk)
                r = _sound(driver, zeros)
                cases += 1
                changed = {s for s in good if r.get(s) != good[s]}
                # A leaf speaks for one label set, or for the mean, the pages or the averages it is part of.
                assert len({s.metric for s in changed}) <= 1 or not path or _identity(name), (
                    name,
                    path,
                    junk,
                )
                if path and name == "get_gpu_metrics_info" and node != "mi300x-cpx:1":
                    assert len(changed) <= 2, (name, path, junk, changed)
    driver.control.mutate = None
    driver.backend._readers.clear()
    driver.backend._gpus, driver.backend._identify_at = None, 0.0
    assert driver.poll() == good
    assert cases > 300


def _identity(name: str) -> bool:
    return name in ("get_gpu_kfd_info", "get_gpu_asic_info")


@pytest.mark.parametrize(
    ("release", "node"), [("6.2", "mi300x:1"), ("7.0", "mi210:1"), ("7.2", "rx7800xt:1")]
)
def test_any_number_at_any_leaf_stays_in_its_own_series(
    release: str, node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, release=release, node=node)
    good = driver.poll()
    zeros = {s for s, v in good.items() if v == 0}
    for name, answer in _answers(driver).items():
        if name in ("get_gpu_bad_page_info", "get_gpu_kfd_info"):
            continue
        for path in leaves(answer):
            for junk in NUMBERS:
                driver.control.mutate = (name, path, junk)
                r = _sound(driver, None if junk == 0 else zeros)
                assert len({s.metric for s in good if r.get(s) != good[s]}) <= 1, (name, path, junk)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("node", NODES)
def test_not_available_at_every_leaf_is_no_reading_and_no_exception(
    release: str, node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, release=release, node=node)
    good = driver.poll()
    driver.control.na = True
    driver.backend._readers.clear()
    r = driver.poll()
    # Identity was read before; and an empty list of pages has no leaf that could be "N/A".
    assert {s.metric for s in r} <= {"amdgpu_compute_units", "amdgpu_retired_pages"}
    assert {v for s, v in r.items() if s.metric == "amdgpu_retired_pages"} <= {0}
    assert {g.reason for g in driver.gaps} <= {Reason.UNSUPPORTED, Reason.MALFORMED, Reason.NO_DATA}
    driver.control.na = False
    assert driver.poll() == good


@pytest.mark.parametrize(
    ("path", "ones", "metric", "labels"),
    [
        (("energy_accumulator",), U64, "energy_joules_total", ()),
        (("accumulation_counter",), U64, "throttle_samples_total", ()),
        (("pcie_nak_sent_count_acc",), U32, "pcie_nacks_sent_total", ()),
        (("xgmi_read_data_acc", 3), U64, "xgmi_received_bytes_total", ("3",)),
        (("temperature_mem",), U16, "temperature_celsius", ("mem",)),
    ],
)
def test_all_ones_disappear_only_at_the_width_of_their_own_field(
    path: tuple[Any, ...], ones: int, metric: str, labels: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    driver = Driver(monkeypatch, tmp_path, node="mi300x:1")
    driver.poll()
    # Elsewhere the same count comes from another call, which is not the matter here.
    driver.control.raises = {"get_pcie_info": "NOT_SUPPORTED", "get_energy_count": "NOT_SUPPORTED"}
    driver.control.raises["get_temp_metric"] = "NOT_SUPPORTED"
    driver.control.mutate = ("get_gpu_metrics_info", path, ones)
    assert value(driver.poll(), metric, *labels) is None
    for special in (255, U16, 2**31 - 1):
        if special < ones and metric != "temperature_celsius":
            driver.control.mutate = ("get_gpu_metrics_info", path, special)
            assert value(driver.poll(), metric, *labels) is not None, special
    assert number(U32, U64) == U32
    assert number(U16, U32) == U16


def test_a_first_zero_and_a_late_answer_are_followed_at_the_next_poll(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, node="rx7800xt:1")
    driver.backend._loaded()
    driver.control.mutate = ("get_gpu_metrics_info", ("average_gfx_activity",), 0)
    driver.control.raises = {"get_power_cap_info": "NOT_SUPPORTED", "get_gpu_fan_rpms": "BUSY"}
    r = driver.poll()
    assert value(r, "busy_ratio", "gfx") == 0
    assert value(r, "power_limit_watts") is None
    driver.control.mutate, driver.control.raises = None, {}
    r = driver.poll()
    assert value(r, "busy_ratio", "gfx") == 0.03
    assert value(r, "power_limit_watts") == 236
    assert value(r, "fan_speed_rpm") == 0


# --- devices and driver --------------------------------------------------------------------------------


def test_a_gpu_that_vanishes_between_calls_leaves_the_others_and_comes_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path / "class/kfd/kfd/topology/generation_id", "1")
    driver = Driver(monkeypatch, tmp_path, node="mi300x:3")
    good = driver.poll()
    driver.control.gone = [SECOND]
    r = driver.poll()
    assert [d.id.pci for d in driver.devices] == [FIRST, "0000:46:00.0"]
    assert of(r, FIRST) == of(good, FIRST)
    driver.control.gone = []
    put(tmp_path / "class/kfd/kfd/topology/generation_id", "2")
    assert driver.poll() == good


@pytest.mark.parametrize("what", ["gone", "unloaded"])
def test_a_gpu_that_vanishes_between_any_two_calls_of_a_poll_costs_no_other_gpu(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path)
    good = driver.poll()
    library = driver.backend._library
    assert library is not None
    original, left = library.call, 0

    def call(name: str, *args: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            setattr(driver.control, what, [FIRST] if what == "gone" else True)
        return original(name, *args)

    monkeypatch.setattr(library, "call", call)
    for after in range(1, 45):
        driver.backend._readers.clear()
        left = after
        r: dict[Series, Value] = {}
        # Without a driver there is no other GPU either, and the poll may say so.
        with contextlib.suppress(*(() if what == "gone" else (SourceError,))):
            r = driver.poll()
        assert all(good[s] == v for s, v in r.items())
        if what == "gone":
            assert of(r, SECOND) == of(good, SECOND)
        left = 0
        driver.control.gone, driver.control.unloaded = [], False
        driver.backend._gpus, driver.backend._identify_at = None, 0.0
        assert driver.poll() == good


def test_an_error_count_that_stops_is_missed_and_one_that_never_was_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, node="mi300x:1")
    driver.poll()
    assert driver.reasons("amdgpu_ecc_correctable_errors_total") == set()
    counts = sys.modules["amdsmi"]._machine[0]["ecc"]
    sdma = counts.pop("SDMA")
    driver.clock.at += 60
    assert value(driver.poll(), "ecc_correctable_errors_total", "sdma") is None
    assert driver.reasons("amdgpu_ecc_correctable_errors_total") == {Reason.UNSUPPORTED}
    counts["SDMA"] = sdma
    assert value(driver.poll(), "ecc_correctable_errors_total", "sdma") == 0


def test_a_driver_that_is_unloaded_is_one_reason_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path)
    good = driver.poll()
    driver.control.unloaded = True
    for _ in range(3):
        error = driver.fails()
        assert error.reason is Reason.GONE
        assert "DRIVER_NOT_LOADED" in str(error)
        assert "lsmod" in str(error)
    driver.control.unloaded = False
    assert driver.poll() == good


def test_a_library_that_cannot_list_its_gpus_is_shut_down_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path)
    driver.backend._loaded()
    driver.control.raises = {"get_processor_handles": "BUSY"}
    for n in range(1, 4):
        error = driver.fails()
        assert error.reason is Reason.BUSY
        assert "amdsmi_get_processor_handles failed with BUSY" in str(error)
        assert (driver.control.calls["init"], driver.control.calls["shut_down"]) == (n, n)
    driver.control.raises = {}
    assert value(driver.poll(), "power_watts", pci=FIRST) == 512


def test_a_change_of_partition_mode_makes_new_handles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path / "class/kfd/kfd/topology/generation_id", "1")
    driver = Driver(monkeypatch, tmp_path, node="mi300x:1")
    driver.poll()
    assert driver.control.calls["init"] == 1
    driver.poll()
    assert driver.control.calls["init"] == 1
    driver.control.partitions = "CPX"
    put(tmp_path / "class/kfd/kfd/topology/generation_id", "2")
    driver.poll()
    assert len(driver.devices) == 8
    assert driver.control.calls["init"] == 2


def test_a_node_without_gpus_is_an_empty_list_and_looked_at_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, node="rx7800xt:1")
    driver.poll()
    driver.control.gone = ["0000:09:00.0"]
    assert driver.poll() == {}
    assert driver.devices == []
    driver.control.gone = []
    assert value(driver.poll(), "power_watts") == 36


def test_when_time_runs_out_the_rest_is_timeout_and_every_gpu_has_its_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(monkeypatch, tmp_path, node="mi300x:3", budget_s=1.0)
    driver.poll()
    slow = driver.backend._library
    assert slow is not None
    original = slow.call

    def call(name: str, *args: Any) -> Any:
        driver.clock.at += 0.5 if name == "get_gpu_metrics_info" else 0.0
        return original(name, *args)

    monkeypatch.setattr(slow, "call", call)
    served = set()
    for _ in range(6):
        r = driver.poll()
        assert {d.id.pci for d in driver.devices} == {FIRST, SECOND, "0000:46:00.0"}
        assert Reason.TIMEOUT in driver.reasons("amdgpu_power_limit_watts")
        served |= {s.device.pci for s in r if s.device and s.metric == "amdgpu_power_limit_watts"}
    assert served == {FIRST, SECOND, "0000:46:00.0"}


# --- what stays behind ---------------------------------------------------------------------------------


def _open_below(folder: Path) -> list[str]:
    return [t for t in Root("/proc/self").link_targets("fd") if t.startswith(str(folder))]


@pytest.mark.parametrize("device", ["kfd", "dri/renderD128"])
def test_no_device_stays_open_between_polls(
    device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dev = tmp_path / "dev"
    put(dev / device, "")
    driver = Driver(monkeypatch, tmp_path, dev=str(dev))
    good = driver.poll()
    assert driver.control.calls["init"] == 1
    driver.control.hold = str(dev / device)
    driver.backend._gpus, driver.backend._identify_at = None, 0.0
    for n in range(3):
        assert driver.poll() == good
        assert _open_below(dev) == []
        assert driver.control.calls["init"] == 2 + n
    assert driver.backend.spent is None
    # Nothing else that is open is any of its business.
    driver.control.hold = str(tmp_path / "other")
    put(tmp_path / "other", "")
    before = driver.control.calls["init"]
    driver.poll()
    driver.poll()
    assert driver.control.calls["init"] == before + 1


def test_a_device_that_shutting_down_does_not_close_asks_for_a_new_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dev = tmp_path / "dev"
    put(dev / "kfd", "")
    driver = Driver(monkeypatch, tmp_path, dev=str(dev))
    good = driver.poll()
    driver.control.hold_for_ever = str(dev / "kfd")
    driver.backend._gpus, driver.backend._identify_at = None, 0.0
    assert driver.poll() == good
    assert driver.backend.spent is not None
    assert f"{dev}/kfd" in driver.backend.spent
    for fd in os.listdir("/proc/self/fd"):
        if os.path.exists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}") == f"{dev}/kfd":
            os.close(int(fd))


def test_ten_thousand_polls_stay_in_bounded_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = Driver(monkeypatch, tmp_path, node="mi300x:1")
    control = None
    for n in range(10_000):
        driver.clock.at += 5
        driver.backend.poll()
        if n == 500:
            control = driver.control
            gc.collect()
            before = resident_bytes(Root("/proc"))
            # A faulty spell in the middle must leave nothing behind either.
        if control is not None and n % 100 == 0:
            control.raises = {f"*:{FIRST}": "NO_DATA"} if n % 200 else {}
    gc.collect()
    after = resident_bytes(Root("/proc"))
    assert before is not None
    assert after is not None
    assert after - before < 8 * 1024 * 1024
