"""What the history keeps: exactly what it was given, within its bounds, whatever lies in its folder."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windowmade import DEVICES, GPU0, GPU1, counted, kernel, traced, window

from exporter.history import schema
from exporter.history.context import Throttle, contexts
from exporter.history.store import FILE, Store
from exporter.model import Device, DeviceId, Outcome, Series, Slot, SourceError, WindowOutcome
from exporter.windows.ledger import Ledger

OK = WindowOutcome.OK
DAY = 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, 1 << 30, 366 * DAY)


def test_a_result_comes_back_as_it_was_packed() -> None:
    result = traced()
    body = schema.unpack(schema.pack(result, {"gemm": 5, "relu": 7}))
    assert body.planned
    assert body.amounts["span_ns"] == 1_000_000
    assert body.amounts["starved"] == 500_000
    assert body.amounts["l2_hits"] is None
    assert body.amounts["unmatched_kernels"] == 1
    assert body.kernels == (schema.Kernel(5, 2, 200_000.0, 700.0), schema.Kernel(7, 2, 100_000.0, 300.0))


def test_the_heaviest_kernels_keep_their_names_and_the_rest_is_one() -> None:
    stats = tuple(kernel(f"k{n}", n + 1, calls=2) for n in range(40))
    kept, rest = schema.heaviest(stats)
    assert [k.kernel for k in kept] == [f"k{n}" for n in range(39, 23, -1)]
    assert rest is not None
    assert (rest.calls, rest.total_ns) == (48, sum(range(1, 25)))
    body = schema.unpack(schema.pack(replace(traced(), kernel_stats=stats), {k.kernel: 1 for k in kept}))
    assert body.kernels[-1] == schema.Kernel(0, 48, 300.0, None)


@given(st.binary(max_size=400))
def test_bytes_that_are_no_result_are_refused(data: bytes) -> None:
    try:
        body = schema.unpack(data)
    except struct.error:
        return
    assert len(data) == len(schema.pack(replace(traced(), kernel_stats=()), {})) + 24 * len(body.kernels)


def test_rows_say_what_the_windows_said(store: Store) -> None:
    about = {GPU0.pci: {"driver": "6.14", "workload": "slurm/77"}}
    run = replace(window(), run="host:7:100", first=True)
    store.append(run, [traced()], "ok", 1000.0, "a", about)
    store.append(window("counters"), [counted()], "ok", 2000.0, "b", about)
    whole, gemm, relu, counters = store.rows(0, 3000)
    assert (whole.at, whole.run, whole.gpu, whole.kernel) == (1000.0, "host:7:100", GPU0, None)
    assert (whole.mode, whole.first, whole.seconds, whole.coverage) == ("trace", True, 0.001, 0.75)
    assert whole.workload == "slurm/77"
    assert whole.context["driver"] == "6.14"
    assert whole.metrics == pytest.approx(
        {
            "queue_delay_ratio": 60 / 260,
            "executing_ratio": 0.3,
            "queued_ratio": 0.05,
            "launching_ratio": 0.15,
            "starved_ratio": 0.5,
            "launch_duration_seconds": 260e-6 / 3,
            "launch_queue_seconds": 20e-6,
            "exposed_delay_ratio": 0.04,
        }
    )
    assert (gemm.kernel, gemm.metrics) == (
        "gemm",
        pytest.approx({"kernel_seconds": 1e-4, "kernel_median_seconds": 7e-7, "kernel_share_ratio": 0.2}),
    )
    assert relu.kernel == "relu"
    assert counters.mode == "counters", "kernels of a counter pass have no times to compare"
    assert counters.kernel is None
    assert [r.at for r in store.rows(1500, 3000)] == [2000.0]


def test_a_window_is_known_by_where_it_came_from(store: Store) -> None:
    store.append(window(), [traced()], "ok", 1.0, "0/w1 5")
    assert store.has("0/w1 5")
    assert not store.has("0/w1 6")
    with pytest.raises(SourceError):
        store.append(window(), [traced()], "ok", 2.0, "0/w1 5", state={"x": 1})
    assert store.state() == {}, "neither the window nor what it changed"
    assert store.counts()["windows"] == 1


def test_windows_make_way_by_age_and_by_size(tmp_path: Path) -> None:
    store = Store(tmp_path, 400_000, 10 * DAY)
    for day in range(20):
        store.append(window(), [traced()], "ok", day * DAY, f"w{day}")
    assert store.trim(20 * DAY) == 10
    assert [r.at / DAY for r in store.rows(0, 99 * DAY) if r.kernel is None] == list(range(10, 20))
    many = tuple(kernel(f"k{n}", n + 1) for n in range(16))
    for n in range(2000):
        store.append(window(), [replace(traced(), kernel_stats=many)], "ok", 20 * DAY + n, f"x{n}")
    before = store.counts()
    gone = store.trim(20 * DAY)
    after = store.counts()
    assert gone > 0
    assert after["bytes"] < before["bytes"]
    assert after["windows"] == before["windows"] - gone


@pytest.mark.parametrize("damage", ["foreign", "cut", "other version", "empty"])
def test_a_file_that_cannot_be_used_is_set_aside_and_a_new_one_begun(tmp_path: Path, damage: str) -> None:
    path = tmp_path / FILE
    if damage == "foreign":
        path.write_bytes(b"not a database at all" * 1000)
    else:
        store = Store(tmp_path, 1 << 30, DAY)
        for n in range(200):
            store.append(window(), [traced()], "ok", float(n), f"w{n}")
        store.trim(0)
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if damage == "other version":
            store._db.execute("PRAGMA user_version = 99")
        store.close()
        if damage == "cut":
            os.truncate(path, path.stat().st_size // 2)
        if damage == "empty":
            os.truncate(path, 0)
    store = Store(tmp_path, 1 << 30, DAY)
    store.append(window(), [traced()], "ok", 5.0, "after")
    assert store.counts()["windows"] == 1
    aside = list(tmp_path.glob("*.set-aside-*"))
    if damage == "empty":
        assert not store.notes, "an empty file is a database without anything in it"
    else:
        assert len(aside) == 1
        assert aside[0].name in store.notes[0]


def test_a_second_writer_is_told_whose_fault_it_is(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 30, DAY)
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store._db.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(SourceError, match="another daemon writes into it"):
        store.set_state({"a": 1})
    other.execute("ROLLBACK")
    store.set_state({"a": 1})
    assert store.state() == {"a": 1}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(SourceError, match=r"history\.db: cannot be written; set state_dir"):
        Store(tmp_path, 1 << 30, DAY)


def test_phases_are_kept_in_order(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 30, DAY)
    store.mark("baseline", 10.0)
    store.mark("new-driver", 20.0)
    store.close()
    assert Store(tmp_path, 1 << 30, DAY).phases() == [(10.0, "baseline"), (20.0, "new-driver")]


# --- totals --------------------------------------------------------------------------------------------


def totals(ledger: Ledger, now: float = 10_000.0) -> dict[Series, object]:
    slot = ledger.slot(now)
    return {s: v for s, v in zip(slot.series, slot.values, strict=True) if not s.metric.endswith("_state")}


def filled() -> Ledger:
    ledger = Ledger()
    ledger.know(DEVICES)
    for n in range(3):
        ledger.add(window(), (), [traced(), replace(counted(), device=GPU1, gpu=GPU1.pci)], OK, 100.0 + n)
    ledger.add(window(), (), [], WindowOutcome.CRASH, 200.0)
    return ledger


def test_totals_go_on_where_they_stopped() -> None:
    before = filled()
    kept = json.loads(json.dumps(before.dump()))
    after = Ledger()
    assert after.restore(kept) == []
    after.know(DEVICES)
    assert totals(after) == totals(before)
    before.add(window(), (), [traced()], OK, 300.0)
    after.add(window(), (), [traced()], OK, 300.0)
    assert totals(after) == totals(before)


def test_another_gpu_at_the_same_address_begins_at_zero() -> None:
    ledger = Ledger()
    ledger.know([replace(DEVICES[0], uuid="aaaa")])
    ledger.add(window(), (), [traced()], OK, 100.0)
    other = Ledger()
    other.restore(ledger.dump())
    other.know([replace(DEVICES[0], uuid="bbbb")])
    fresh = Ledger()
    fresh.know([replace(DEVICES[0], uuid="bbbb")])
    assert totals(other) == totals(fresh)


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 99},
        {"totals": [["amdgpu_valu_instructions_total", [], -5]]},
        {"totals": [["amdgpu_valu_instructions_total", [], "many"]]},
        {"totals": "nonsense"},
        {"tallies": [["amdgpu_launch_call_seconds", [], [1], 1]]},
        {"kernels": {}},
        {"last": None},
    ],
)
def test_a_broken_dump_costs_its_own_gpu_alone(damage: dict[str, object]) -> None:
    before = filled()
    kept = json.loads(json.dumps(before.dump()))
    kept[f"totals {GPU0.pci}"] |= damage
    after = Ledger()
    after.restore(kept)
    after.know(DEVICES)
    fresh = Ledger()
    fresh.know(DEVICES)
    for gpu, same in ((GPU0, fresh), (GPU1, before)):
        mine, expected = totals(after), totals(same)
        assert {s: v for s, v in mine.items() if s.device == gpu} == {
            s: v for s, v in expected.items() if s.device == gpu
        }


def test_names_that_the_catalogue_no_longer_has_are_left_out() -> None:
    kept = filled().dump()
    kept[f"totals {GPU0.pci}"]["totals"].append(["amdgpu_long_gone_total", [], 7])
    kept[f"totals {GPU0.pci}"]["totals"].append(["amdgpu_valu_instructions_total", ["extra"], 7])
    after = Ledger()
    after.restore(kept)
    after.know(DEVICES)
    assert totals(after) == totals(filled())


# --- context -------------------------------------------------------------------------------------------


def test_a_context_holds_what_is_known_of_the_gpu_and_its_holders() -> None:
    device = Device(GPU0, 0, model="MI300X", gfx="gfx942", driver="6.14", compute_partition="SPX")
    part = DeviceId(GPU0.pci, 1)
    series = (
        Series("amdgpu_power_limit_watts", GPU0, ()),
        Series("amdgpu_clock_hertz", GPU0, ("sclk", "")),
        Series("amdgpu_temperature_celsius", GPU0, ("junction",)),
        Series("amdgpu_workload_info", GPU0, ("pod", "ml", "train", "c", "", "")),
        Series("amdgpu_workload_info", GPU0, ("slurm", "", "", "", "9", "1000")),
        Series("amdgpu_workload_info", GPU1, ("pod", "ml", "train", "c", "", "")),
        Series("amdgpu_firmware_info", GPU0, ("smc", "85.1")),
        Series("amdgpu_firmware_info", GPU0, ("mec", "11")),
        Series("amdgpu_link_info", GPU0, (GPU1.pci, "xgmi", "1", "15")),
        Series("amdgpu_link_info", GPU0, ("cpu0", "pcie", "1", "20")),
    )
    slot = Slot(Outcome("x", True, None, "", 0, 0, 0), series, (750.2, 2.09e9, 66.6, *[1] * 7))
    known = {GPU0: device, part: replace(device, id=part)}
    expected = {
        "model": "MI300X",
        "gfx": "gfx942",
        "driver": "6.14",
        "compute_partition": "SPX",
        "rocm": "7.0",
        "node": "n1",
        "firmware": "mec 11, smc 85.1",
        "links": "1 xgmi of 1 hops",
        "ranks": 2,
        "power_limit_watts": 750.0,
        "clock_hertz": 2.1e9,
        "temperature_celsius": 66.0,
        "co_tenants": 1,
        "workload": "pod/ml/train/c",
    }
    about = {"rocm": "7.0", "node": "n1", "kernel": None}
    assert contexts([traced()], known, [slot], about, Throttle()) == {GPU0.pci: expected}
    of_part = replace(traced(), device=part, gpu="p1")
    assert contexts([of_part], known, [slot], about, Throttle()) == {"p1": expected}
    assert contexts([replace(traced(), device=None)], known, [slot], about, Throttle()) == {}


def test_what_held_clocks_down_is_a_share_of_the_samples_since_the_last_window() -> None:
    def at(samples: int, thermal: int, power: int) -> dict[Series, float]:
        held = "amdgpu_throttle_residency_total"
        return {
            Series("amdgpu_throttle_samples_total", GPU0): samples,
            Series(held, GPU0, ("thermal",)): thermal,
            Series(held, GPU0, ("power",)): power,
        }

    throttle = Throttle()
    assert throttle.shares(at(1000, 0, 0)) == {}  # nothing before it
    assert throttle.shares(at(2000, 100, 480)) == {GPU0: 0.5}
    assert throttle.shares(at(3000, 100, 480)) == {GPU0: 0.0}
    assert throttle.shares(at(10, 0, 0)) == {}  # the driver was loaded anew
    assert throttle.shares({}) == {}
