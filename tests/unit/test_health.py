"""The rules that call a GPU healthy, degraded, unhealthy or unknown, and what a supervisor sees of them."""

from __future__ import annotations

import inspect
import re

import pytest

from exporter.checks import health
from exporter.checks.health import (
    LINE_LIMIT,
    Limits,
    Status,
    Watch,
    as_json,
    exit_code,
    line,
    overall,
)
from exporter.model import Device, DeviceId, Gap, Outcome, Reason, Series, Slot

PCI = "0000:05:00.0"
GPU = DeviceId(PCI)
Rows = dict[tuple[str, str], float]

CALM: Rows = {
    ("amdgpu_power_watts", ""): 410,
    ("amdgpu_busy_ratio", "gfx"): 0.9,
    ("amdgpu_temperature_celsius", "junction"): 66,
    ("amdgpu_temperature_limit_celsius", "junction,critical"): 100,
    ("amdgpu_temperature_limit_celsius", "junction,emergency"): 105,
    ("amdgpu_ecc_uncorrectable_errors_total", "umc"): 0,
    ("amdgpu_ecc_deferred_errors_total", "umc"): 0,
    ("amdgpu_ecc_correctable_errors_total", "umc"): 9000,
    ("amdgpu_retired_pages", "reserved"): 3,
    ("amdgpu_retired_pages", "pending"): 0,
    ("amdgpu_retired_pages", "unreservable"): 0,
    ("amdgpu_pcie_link_width_lanes", ""): 16,
    ("amdgpu_pcie_max_link_width_lanes", ""): 16,
    ("amdgpu_pcie_link_transfers_per_second", ""): 32e9,
    ("amdgpu_pcie_max_link_transfers_per_second", ""): 32e9,
    ("amdgpu_throttle_residency_total", "power"): 100,
    ("amdgpu_throttle_residency_total", "hbm_thermal"): 100,
    ("amdgpu_throttle_samples_total", ""): 1000,
    ("amdgpu_resets_total", ""): 4,
}


def slot(rows: Rows, device: DeviceId = GPU, gaps: tuple[Gap, ...] = ()) -> Slot:
    series = tuple(Series(m, device, tuple(filter(None, labels.split(",")))) for m, labels in rows)
    return Slot(
        Outcome("sysfs", True, None, "", 0.0, 0.0, 0.0),
        series,
        tuple(rows.values()),
        gaps,
        (Device(device, 0),),
    )


def look(watch: Watch, at: float, rows: Rows | None, gaps: tuple[Gap, ...] = ()) -> tuple[Status, list[str]]:
    """One GPU looked at; None: it is not there any more."""
    slots = [slot(rows, gaps=gaps)] if rows is not None else [slot({}, DeviceId("0000:99:00.0"))]
    states = watch.look(at, {GPU: Device(GPU, 0)}, slots, {GPU} if rows is not None else ())
    [verdict] = watch.verdicts
    assert states == {GPU: verdict.status.value}
    return verdict.status, [c.id for c in verdict.causes]


def test_a_calm_gpu_is_healthy_whatever_it_corrected_or_retired_before() -> None:
    assert look(Watch(), 0, CALM) == (Status.HEALTHY, [])


@pytest.mark.parametrize(
    ("change", "status", "cause"),
    [
        ({("amdgpu_ecc_uncorrectable_errors_total", "umc"): 1}, Status.DEGRADED, "uncorrectable_errors"),
        ({("amdgpu_ecc_deferred_errors_total", "umc"): 1}, Status.DEGRADED, "deferred_errors"),
        ({("amdgpu_retired_pages", "pending"): 1}, Status.DEGRADED, "pages_pending"),
        ({("amdgpu_retired_pages", "unreservable"): 1}, Status.UNHEALTHY, "pages_in_use"),
        ({("amdgpu_temperature_celsius", "junction"): 100}, Status.DEGRADED, "over_temperature"),
        ({("amdgpu_temperature_celsius", "junction"): 105}, Status.UNHEALTHY, "over_temperature"),
        ({("amdgpu_pcie_link_width_lanes", ""): 8}, Status.DEGRADED, "pcie_link"),
        ({("amdgpu_pcie_link_transfers_per_second", ""): 16e9}, Status.DEGRADED, "pcie_link"),
    ],
)
def test_one_reading_is_enough_for_one_verdict(change: Rows, status: Status, cause: str) -> None:
    assert look(Watch(), 0, {**CALM, **change}) == (status, [cause])


def test_an_idle_link_may_be_slow_and_a_temperature_without_a_limit_accuses_nobody() -> None:
    idle = {**CALM, ("amdgpu_busy_ratio", "gfx"): 0.49, ("amdgpu_pcie_link_transfers_per_second", ""): 2.5e9}
    assert look(Watch(), 0, idle) == (Status.HEALTHY, [])
    unknown_load = {k: v for k, v in idle.items() if k[0] != "amdgpu_busy_ratio"}
    assert look(Watch(), 0, unknown_load) == (Status.HEALTHY, [])
    hot = {k: v for k, v in CALM.items() if k[0] != "amdgpu_temperature_limit_celsius"}
    assert look(Watch(), 0, {**hot, ("amdgpu_temperature_celsius", "junction"): 130}) == (Status.HEALTHY, [])


def test_new_uncorrectable_errors_make_it_unhealthy_until_they_are_old() -> None:
    watch, key = Watch(Limits(recent_s=900)), ("amdgpu_ecc_uncorrectable_errors_total", "umc")
    assert look(watch, 0, CALM)[0] is Status.HEALTHY
    assert look(watch, 5, {**CALM, key: 2}) == (Status.UNHEALTHY, ["uncorrectable_errors"])
    assert "2 new uncorrectable errors in umc" in watch.verdicts[0].causes[0].text
    assert look(watch, 900, {**CALM, key: 2})[0] is Status.UNHEALTHY
    assert look(watch, 906, {**CALM, key: 2})[0] is Status.DEGRADED
    assert look(watch, 910, CALM)[0] is Status.HEALTHY, "the driver started anew"


def test_a_reset_counts_for_a_while_and_old_ones_do_not() -> None:
    watch = Watch(Limits(recent_s=60))
    assert look(watch, 0, CALM)[0] is Status.HEALTHY
    assert look(watch, 5, {**CALM, ("amdgpu_resets_total", ""): 5}) == (Status.DEGRADED, ["reset"])
    assert look(watch, 70, {**CALM, ("amdgpu_resets_total", ""): 5}) == (Status.HEALTHY, [])


def test_an_error_record_counts_by_its_age() -> None:
    written = 1_764_504_000.0
    for severity in ("fatal", "uncorrected"):
        rows = {**CALM, ("amdgpu_error_record_last_timestamp_seconds", severity): written}
        assert look(Watch(), written + 899, rows) == (Status.UNHEALTHY, ["error_record"])
        assert look(Watch(), written + 901, rows) == (Status.DEGRADED, ["error_record"])
        assert look(Watch(), written + 86_399, rows)[0] is Status.DEGRADED
        assert look(Watch(), written + 86_401, rows) == (Status.HEALTHY, [])
    corrected = {**CALM, ("amdgpu_error_record_last_timestamp_seconds", "corrected"): written}
    assert look(Watch(), written + 5, corrected) == (Status.HEALTHY, [])
    watch = Watch()
    look(watch, written + 30, {**CALM, ("amdgpu_error_record_last_timestamp_seconds", "fatal"): written})
    assert watch.verdicts[0].causes[0].text == "fatal error record, 30 s ago"


def heated(samples: float, thermal: float, power: float = 100) -> Rows:
    return {
        **CALM,
        ("amdgpu_throttle_samples_total", ""): samples,
        ("amdgpu_throttle_residency_total", "hbm_thermal"): thermal,
        ("amdgpu_throttle_residency_total", "power"): power,
    }


def test_heat_that_holds_clocks_down_is_seen_by_its_share_of_samples() -> None:
    watch = Watch(Limits(recent_s=30, thermal_share=0.05))
    assert look(watch, 0, heated(1000, 100))[0] is Status.HEALTHY
    assert look(watch, 5, heated(2000, 149)) == (Status.HEALTHY, [])
    assert look(watch, 10, heated(3000, 400)) == (Status.DEGRADED, ["thermal_throttling"])
    assert "15%" in watch.verdicts[0].causes[0].text
    for n in range(3, 12):
        status = look(watch, 5.0 * n, heated(1000 * n + 1000, 400))[0]
    assert status is Status.HEALTHY, "it is cool again"


def test_the_power_limit_is_no_fault_and_a_driver_that_starts_anew_no_heat() -> None:
    watch = Watch()
    look(watch, 0, heated(1000, 100))
    assert look(watch, 5, heated(2000, 100, power=1100)) == (Status.HEALTHY, [])
    assert look(watch, 10, heated(50, 0, power=0)) == (Status.HEALTHY, [])


def test_gone_asleep_and_unread_are_different_things() -> None:
    watch = Watch()
    assert look(watch, 0, None) == (Status.UNHEALTHY, ["gone"])
    asleep = (Gap("amdgpu_power_watts", GPU, Reason.SUSPENDED),)
    assert look(watch, 1, {}, asleep) == (Status.UNKNOWN, ["asleep"])
    assert look(watch, 2, {("amdgpu_compute_units", ""): 304}) == (Status.UNKNOWN, ["no_readings"])
    watch.look(3, {GPU: Device(GPU, 0)}, [], ())
    assert [(v.status, v.causes[0].id) for v in watch.verdicts] == [(Status.UNKNOWN, "no_data")]


def test_the_most_trusted_source_speaks_for_a_reading() -> None:
    watch, key = Watch(), ("amdgpu_retired_pages", "pending")
    watch.look(0, {GPU: Device(GPU, 0)}, [slot(CALM), slot({**CALM, key: 5})], {GPU})
    assert watch.verdicts[0].status is Status.HEALTHY
    watch.look(0, {GPU: Device(GPU, 0)}, [slot({**CALM, key: 5}), slot(CALM)], {GPU})
    assert watch.verdicts[0].status is Status.DEGRADED


def test_partitions_share_the_verdict_of_their_socket() -> None:
    parts = {DeviceId(PCI, n): Device(DeviceId(PCI, n), 0) for n in range(8)}
    watch = Watch()
    states = watch.look(0, parts, [slot(CALM)], parts)
    assert states == {GPU: "healthy"}


def test_the_node_is_as_bad_as_its_worst_gpu_and_unknown_is_not_healthy() -> None:
    watch, other = Watch(), DeviceId("0000:26:00.0")
    devices = {GPU: Device(GPU, 0), other: Device(other, 1)}
    watch.look(0, devices, [slot(CALM), slot({}, other)], devices)
    assert overall(watch.verdicts, None) == (Status.UNKNOWN, 0)
    assert overall(watch.verdicts, 2) == (Status.UNKNOWN, 0)
    assert overall(watch.verdicts, 3) == (Status.UNHEALTHY, 1)
    assert overall((), None) == (Status.UNKNOWN, 0)
    hot = {**CALM, ("amdgpu_temperature_celsius", "junction"): 101}
    watch.look(5, devices, [slot(CALM), slot(hot, other)], devices)
    assert overall(watch.verdicts, 2) == (Status.DEGRADED, 0)
    told = as_json(watch.verdicts, 2, {"sysfs": "up"})
    assert [g["status"] for g in told["gpus"]] == ["healthy", "degraded"]
    assert told["gpus"][1]["reasons"] == [
        {"id": "over_temperature", "status": "degraded", "text": "junction at 101 °C, critical limit 100 °C"}
    ]
    assert set(told) == {"version", "status", "expected", "missing", "sources", "gpus"}


def test_the_line_fits_a_supervisor_and_names_the_worst() -> None:
    watch = Watch()
    devices = {DeviceId(f"0000:{n:02x}:00.0"): Device(DeviceId(f"0000:{n:02x}:00.0"), n) for n in range(64)}
    hot = {**CALM, ("amdgpu_temperature_celsius", "junction"): 101}
    watch.look(0, devices, [slot(hot, d) for d in devices], devices)
    text = line(watch.verdicts, None)
    assert text.startswith("degraded: 0000:00:00.0 (+63): junction at 101")
    assert len(text.encode()) <= LINE_LIMIT
    assert "\n" not in text
    assert line((), None) == "unknown: no AMD GPU is visible"
    assert line((), 8) == "unhealthy: 8 of 8 GPUs are missing"


def test_every_reason_is_documented_and_every_documented_one_exists() -> None:
    source = inspect.getsource(health)
    used = set(re.findall(r'Cause\(\s*"([a-z_]+)"', source)) | set(
        re.findall(r'_unknown\(device, "([a-z_]+)"', source)
    )
    assert used == {ident for ident, _, _ in health.REASONS}


def test_without_a_source_nothing_is_missing_and_nothing_is_known() -> None:
    down = {"amdsmi": "no answer within 8 s;\nkilled", "sysfs": "died"}
    assert overall((), 8, down) == (Status.UNKNOWN, 0)
    assert line((), 8, down) == "unknown: amdsmi: no answer within 8 s; killed; sysfs: died"
    assert as_json((), 8, down)["status"] == "unknown"
    assert overall((), 8, {**down, "sysfs": "up"}) == (Status.UNHEALTHY, 8)


def test_exit_codes_are_those_of_a_problem_daemon() -> None:
    assert [exit_code(s) for s in Status] == [0, 1, 1, 2]
