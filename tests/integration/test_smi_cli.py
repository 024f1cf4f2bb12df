"""The command line backend against executables that behave, and misbehave, as the vendor's tools do."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from exporter.backends import smi_cli_tools
from exporter.backends.smi_cli import SmiCliBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.host import Clock, Root
from exporter.model import Device, DeviceId, Gap, RawGroups, Reason, Series, SourceError, Value

FAKES = Path(__file__).resolve().parent.parent / "fakes" / "bin"
Tools = Callable[..., SmiCliBackend]


class Hand(Clock):
    """A clock that also goes forward when told to."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Ticking(Clock):
    """A clock that goes forward by being looked at, so that a poll's time does not depend on the machine."""

    def __init__(self, step: float) -> None:
        self.now_s, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now_s += self.step
        return self.now_s


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Install fakes on a PATH of their own, each with its settings, and open the backend on it."""

    def install(
        *names: str,
        deadline_s: float = 10.0,
        clock: Clock | None = None,
        sysfs: Root | None = None,
        **fakes: str,
    ) -> SmiCliBackend:
        for name in names:
            settings = " ".join(f"FAKE_SMI_{key}={shlex.quote(value)}" for key, value in fakes.items())
            script = tmp_path / name
            # The log comes first: it shows that a command was started even where it then dies.
            log = f'echo "{name} $*" >> {tmp_path}/asked'
            script.write_text(f'#!/bin/sh\n{log}\n{settings} exec {sys.executable} {FAKES / name} "$@"\n')
            script.chmod(0o755)
        return SmiCliBackend(deadline_s=deadline_s, clock=clock, sysfs=sysfs, env={"PATH": str(tmp_path)})

    return install


@pytest.fixture(autouse=True)
def no_real_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ROCm the machine has stays out."""
    monkeypatch.setattr("exporter.backends.smi_cli._FOLDERS", ("/nonexistent",))


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().splitlines()


def readings(polled: list[tuple[Device, RawGroups]]) -> dict[tuple[str, str, tuple[str, ...]], Value]:
    """Values by metric (without prefix), PCI bus and partition, labels; through the catalogue."""
    extractor = Extractor(CATALOGUE, "smi_cli")
    series: list[Series] = []
    values: list[Value] = []
    gaps: list[Gap] = []
    for device, groups in polled:
        extractor.extract(device, groups, series, values, gaps)
    assert len(set(series)) == len(series)
    found = {}
    for one, value in zip(series, values, strict=True):
        assert one.device is not None
        part = "" if one.device.partition is None else f"/{one.device.partition}"
        found[one.metric.removeprefix("amdgpu_"), one.device.pci[5:7] + part, one.labels] = value
    return found


def failure(backend: SmiCliBackend) -> SourceError:
    with pytest.raises(SourceError) as caught:
        backend.poll()
    return caught.value


# --- amd-smi -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["6.2", "7.0", "7.2", "7.14"])
def test_every_release_of_amd_smi_gives_the_same_readings(tools: Tools, release: str) -> None:
    polled = tools("amd-smi", RELEASE=release).poll()
    got = readings(polled)
    assert got["busy_ratio", "05", ("gfx",)] == 0.10
    assert got["busy_ratio", "15", ("gfx",)] == 0.20
    assert got["busy_ratio", "05", ("memory",)] == 0  # a real zero
    assert got["power_watts", "15", ()] == 301
    assert got["power_limit_watts", "05", ()] == 750
    assert got["energy_joules_total", "05", ()] == 1000.5
    assert got["temperature_celsius", "15", ("junction",)] == 51
    assert ("temperature_celsius", "15", ("edge",)) not in got
    assert got["temperature_limit_celsius", "05", ("junction", "critical")] == 100
    assert got["memory_used_bytes", "05", ("vram",)] == 1000 * 1024 * 1024
    assert got["memory_size_bytes", "05", ("vram",)] == 196592 * 1024 * 1024
    assert got["clock_hertz", "05", ("sclk", "7")] == 1007e6
    assert got["clock_hertz", "05", ("mclk", "")] == 900e6
    assert got["pcie_link_width_lanes", "05", ()] == 16
    assert got["pcie_link_transfers_per_second", "05", ()] == 32e9
    assert got["pcie_replays_total", "15", ()] == 1
    assert got["throttle_residency_total", "05", ("power",)] == 12
    assert got["throttle_samples_total", "05", ()] == 1000
    assert got["ecc_correctable_errors_total", "05", ("umc",)] == 5
    assert got["compute_units", "05", ()] == 304
    device = polled[0][0]
    assert (device.id, device.gpu) == (DeviceId("0000:05:00.0"), 0)
    assert (device.model, device.gfx, device.driver) == ("AMD Instinct MI300X", "gfx942", "6.12.12")
    assert (device.vbios, device.kfd_gpu_id) == ("113-M3000100-102", 1000)
    assert device.uuid is not None
    assert device.serial is None  # identifies a board: only on request
    assert device.indices == {"amdsmi": 0, "kfd": 2}


def test_partitions_share_the_socket_and_have_their_own_activity(tools: Tools) -> None:
    polled = tools("amd-smi", PARTITION="DPX").poll()
    assert [d.id for d, _ in polled] == [
        DeviceId(f"0000:{bus}:00.0", part) for bus in ("05", "15") for part in (0, 1)
    ]
    assert [d.gpu for d, _ in polled] == [0, 0, 1, 1]
    assert {d.compute_partition for d, _ in polled} == {"DPX"}
    got = readings(polled)
    assert [got["busy_ratio", f"15/{part}", ("gfx",)] for part in (0, 1)] == [0.20, 0.21]
    assert {key for key in got if key[0] == "power_watts"} == {
        ("power_watts", "05", ()),
        ("power_watts", "15", ()),
    }


def test_made_up_function_digits_are_mapped_by_slot_and_real_ones_kept(tools: Tools, tmp_path: Path) -> None:
    sys_root = tmp_path / "sys"
    for address, kind in (
        ("0000:05:00.3", "0x120000"),
        ("0000:05:00.0", "0x040300"),
        ("0000:15:00.0", "0x038000"),
    ):
        folder = sys_root / "bus/pci/devices" / address
        (folder / "drm/card7").mkdir(parents=True)
        (folder / "drm/renderD135").mkdir()
        (folder / "class").write_text(f"{kind}\n")
    polled = tools("amd-smi", sysfs=Root(str(sys_root))).poll()
    assert [d.id.pci for d, _ in polled] == ["0000:05:00.3", "0000:15:00.0"]
    assert polled[1][0].indices == {"amdsmi": 1, "kfd": 3, "drm": 7, "render": 135}


def test_names_and_limits_are_asked_for_rarely_and_readings_every_time(tools: Tools, tmp_path: Path) -> None:
    clock = Hand()
    backend = tools("amd-smi", clock=clock)
    for _ in range(3):
        backend.poll()
    assert [line.split()[1] for line in asked(tmp_path)] == ["list", "metric", "static", "metric", "metric"]
    clock.ahead += 61
    assert len(backend.poll()) == 2
    assert [line.split()[1] for line in asked(tmp_path)][5:] == ["list", "metric", "static"]


def test_a_gpu_that_appears_is_asked_for_its_name_at_once(tools: Tools) -> None:
    backend = tools("amd-smi", GPUS="1")
    assert len(backend.poll()) == 1
    tools("amd-smi", GPUS="3", PARTITION="DPX")
    polled = backend.poll()
    assert len(polled) == 6
    assert all(d.model == "AMD Instinct MI300X" and d.compute_units == 152 for d, _ in polled)


def test_without_list_the_addresses_come_from_static(tools: Tools) -> None:
    assert [d.id.pci for d, _ in tools("amd-smi", MODE="no_list").poll()] == ["0000:05:00.0", "0000:15:00.0"]


def test_static_that_fails_costs_names_and_limits_only(tools: Tools) -> None:
    polled = tools("amd-smi", MODE="crash", ONLY="static").poll()
    got = readings(polled)
    assert [d.model for d, _ in polled] == [None, None]
    assert got["power_watts", "05", ()] == 300
    assert ("power_limit_watts", "05", ()) not in got


def test_text_before_the_json_does_not_matter(tools: Tools) -> None:
    assert len(tools("amd-smi", MODE="text_before_json", RELEASE="7.1").poll()) == 2


def test_a_virtual_function_without_power_has_none(tools: Tools) -> None:
    got = readings(tools("amd-smi", VF="1").poll())
    assert not [key for key in got if key[0] == "power_watts"]
    assert got["busy_ratio", "05", ("gfx",)] == 0.10


# --- rocm-smi ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["4.3", "5.7", "6.0", "6.1"])
def test_every_release_of_rocm_smi_gives_the_same_readings(tools: Tools, release: str) -> None:
    polled = tools("rocm-smi", RELEASE=release, MODE="exit_code").poll()
    got = readings(polled)
    assert got["busy_ratio", "1c", ("gfx",)] == 0.20
    assert got["busy_ratio", "1c", ("memory",)] == 0.01
    assert got["power_watts", "0c", ()] == 300
    assert ("power_watts", "1c", ()) not in got
    assert got["power_limit_watts", "1c", ()] == 560
    assert got["energy_joules_total", "1c", ()] == 1001
    assert got["temperature_celsius", "1c", ("mem",)] == 41
    assert got["memory_used_bytes", "1c", ("vram",)] == 11128833
    assert got["clock_hertz", "0c", ("sclk", "")] == 1000e6
    assert got["voltage_volts", "0c", ("vddgfx",)] == 0.793
    assert got["pcie_link_transfers_per_second", "0c", ()] == 16e9
    assert [key for key in got if key[1:] == ("0c", ("gfx",))] == [("busy_ratio", "0c", ("gfx",))]
    device = polled[1][0]
    assert (device.id, device.gpu, device.uuid) == (DeviceId("0000:1c:00.0"), 1, "1111aaaa2222bb01")
    assert (device.model, device.driver) == ("AMD INSTINCT MI250X", "6.8.5")


def test_a_group_of_readings_the_tool_dies_of_is_left_out_and_tried_again_later(
    tools: Tools, tmp_path: Path
) -> None:
    clock = Hand()
    backend = tools("rocm-smi", BAD="--showclocks,--showenergycounter", clock=clock)
    got = readings(backend.poll())
    assert got["power_watts", "0c", ()] == 300
    assert not [key for key in got if key[0] in ("clock_hertz", "energy_joules_total")]
    before = len(asked(tmp_path))
    assert readings(backend.poll()) == got
    assert len(asked(tmp_path)) == before + 1  # one command again, without the bad groups
    tools("rocm-smi")  # the tool is mended
    clock.ahead += 61
    assert readings(backend.poll())["clock_hertz", "0c", ("sclk", "")] == 1000e6


def test_an_old_release_that_does_not_know_an_option_still_gives_the_rest(tools: Tools) -> None:
    got = readings(tools("rocm-smi", MODE="old", RELEASE="4.3").poll())
    assert got["temperature_celsius", "0c", ("edge",)] == 30
    assert not [key for key in got if key[0] == "energy_joules_total"]


def test_looking_for_bad_groups_goes_on_at_the_next_poll(tools: Tools) -> None:
    backend = tools("rocm-smi", BAD="--showtemp", deadline_s=6, clock=Ticking(0.4))
    polls = [readings(backend.poll()) for _ in range(4)]
    found = [("pcie_replays_total", "1c", ()) in got for got in polls]
    assert found == [False, *found[1:-1], True]
    assert all(got["power_watts", "0c", ()] == 300 for got in polls)
    assert not [key for key in polls[-1] if key[0] == "temperature_celsius"]


def test_no_time_to_look_for_bad_groups_is_a_failure_not_an_empty_node(tools: Tools) -> None:
    error = failure(tools("rocm-smi", BAD="--showtemp", deadline_s=12.4, clock=Ticking(4)))
    assert error.reason is Reason.CRASHED


# --- failure -------------------------------------------------------------------------------------------


def test_without_any_tool_the_way_out_is_named(tools: Tools) -> None:
    error = failure(tools())
    assert error.reason is Reason.UNSUPPORTED
    assert "neither amd-smi nor rocm-smi" in str(error)
    error = failure(SmiCliBackend("/no/such/amd-smi"))
    assert "/no/such/amd-smi is not there" in str(error)


def test_a_tool_installed_later_is_found(tools: Tools) -> None:
    backend = tools()
    failure(backend)
    tools("amd-smi")
    assert len(backend.poll()) == 2


@pytest.mark.parametrize("name", ["amd-smi", "rocm-smi"])
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("empty", Reason.NO_DATA),
        ("denied", Reason.DENIED),
        ("crash", Reason.CRASHED),
        ("cut", Reason.MALFORMED),
    ],
)
def test_output_without_a_gpu_is_a_failure_with_its_reason(
    tools: Tools, name: str, mode: str, reason: Reason
) -> None:
    backend = tools(name, MODE=mode)
    error = failure(backend)
    assert error.reason is reason
    assert str(error).startswith(name)
    assert "\n" not in str(error)
    tools(name)
    assert len(backend.poll()) == 2


def test_a_tool_that_hangs_is_killed_before_the_deadline_with_its_group(tools: Tools, tmp_path: Path) -> None:
    backend = tools("amd-smi", MODE="hang", deadline_s=1.5)
    began = time.monotonic()
    error = failure(backend)
    assert error.reason is Reason.TIMEOUT
    assert time.monotonic() - began < 3
    assert not [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]
    tools("amd-smi")
    assert len(backend.poll()) == 2


def test_metric_that_hangs_does_not_pass_old_values_off_as_new(tools: Tools) -> None:
    backend = tools("amd-smi", deadline_s=2.5)
    assert len(backend.poll()) == 2
    tools("amd-smi", MODE="hang", ONLY="metric")
    assert failure(backend).reason is Reason.TIMEOUT


def test_a_flood_is_cut_off_and_memory_stays_bounded(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_cli_tools, "OUTPUT_LIMIT", 1 << 20)
    backend = tools("amd-smi", MODE="flood")
    failure(backend)
    before = psutil.Process().memory_info().rss
    for _ in range(5):
        error = failure(backend)
        assert error.reason is Reason.MALFORMED
        assert "more than 1048576 bytes" in str(error)
    assert psutil.Process().memory_info().rss - before < 8 << 20


def test_a_grandchild_that_keeps_the_output_open_does_not_hold_the_poll_up(tools: Tools) -> None:
    began = time.monotonic()
    assert len(tools("rocm-smi", MODE="double_fork", deadline_s=8).poll()) == 2
    assert time.monotonic() - began < 4


def test_where_amd_smi_is_denied_rocm_smi_answers_until_it_is_not(tools: Tools, tmp_path: Path) -> None:
    tools("rocm-smi")
    clock = Hand()
    backend = tools("amd-smi", MODE="denied", clock=clock)
    assert backend.poll()[0][0].id.pci == "0000:0c:00.0"
    backend.poll()
    assert [line.split()[0] for line in asked(tmp_path)] == ["amd-smi", "rocm-smi", "rocm-smi", "rocm-smi"]
    tools("amd-smi")
    clock.ahead += 61
    assert backend.poll()[0][0].id.pci == "0000:05:00.0"


def test_the_environment_of_a_tool_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HIP_VISIBLE_DEVICES", "LC_ALL", "PYTHONPATH", "LD_PRELOAD", "SECRET_TOKEN"):
        monkeypatch.setenv(name, "dirty")
    monkeypatch.setenv("ROCM_PATH", "/opt/rocm-9")
    clean = smi_cli_tools.clean_environment(os.environ)
    assert clean["ROCM_PATH"] == "/opt/rocm-9"
    assert clean["LC_ALL"] == "C"
    assert set(clean) - {"HOME", "PATH", "LD_LIBRARY_PATH"} == {
        "ROCM_PATH",
        "LC_ALL",
        "PYTHONIOENCODING",
        "PYTHONNOUSERSITE",
    }
