"""The demo capture: made by its generator, consistent with itself, and true in what its windows claim."""

from __future__ import annotations

import csv
import importlib
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.backends import replay
from exporter.backends.sysfs import SysfsBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.host import Clock
from exporter.model import Device, Gap, Reason, Series, Value

REPO = Path(__file__).resolve().parents[2]
CAPTURE = replay.demo_path()
TRUTH = REPO / "tests" / "demo_truth"
GENERATOR = REPO / "tests" / "tools" / "make_demo.py"
NAMES = sorted(p.stem for p in TRUTH.glob("*.json"))
TRACED = [n for n in NAMES if "counters" not in n and "empty" not in n]
COUNTED = [n for n in NAMES if "counters" in n]
PCI = [f"0000:{bus}:00.0" for bus in ("05", "26", "46", "65", "85", "a6", "c6", "e5")]
FRAMES, SECONDS = 24, 5


def truth(name: str) -> dict[str, Any]:
    return json.loads((TRUTH / f"{name}.json").read_text())


def rows(name: str, table: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for path in sorted((CAPTURE / "windows" / name).glob(f"*_{table}.csv")):
        with open(path, newline="", encoding="utf-8") as f:
            found += csv.DictReader(f)
    return found


# --- the files ---------------------------------------------------------------------------------------


def test_what_is_committed_is_what_the_generator_writes() -> None:
    run = subprocess.run([sys.executable, GENERATOR, "--check"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_the_check_sees_changed_missing_and_left_over_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(GENERATOR.parent))
    make_demo = importlib.import_module("make_demo")
    files = {"a": b"1", "b/c": b"2", "d": b"3"}
    make_demo.write(tmp_path, files)
    assert make_demo.differences(tmp_path, files) == []
    (tmp_path / "a").write_bytes(b"9")
    (tmp_path / "d").unlink()
    (tmp_path / "new").write_bytes(b"")
    assert make_demo.differences(tmp_path, files) == ["a", "d", "new"]


def test_the_capture_says_that_it_is_synthetic_and_stays_small() -> None:
    described = json.loads((CAPTURE / "capture.json").read_text())
    assert described["version"] == 1
    assert described["synthetic"] is True
    assert described["frames"] == {"count": FRAMES, "seconds": SECONDS}
    assert [Path(w["path"]).name for w in described["windows"]] == NAMES
    assert sum(p.stat().st_size for p in CAPTURE.rglob("*") if p.is_file()) < 3_000_000
    assert all(len(rows(name, "kernel_trace")) < 2_000 for name in NAMES)
    assert not [p for p in CAPTURE.rglob("*") if p.is_symlink()], "a wheel cannot carry links"


def test_with_real_links_the_tree_stands_for_other_tools(tmp_path: Path) -> None:
    subprocess.run([sys.executable, GENERATOR, "--sys", tmp_path / "sys"], check=True)
    for i in range(1, 9):
        card = tmp_path / "sys" / "class" / "drm" / f"card{i}"
        assert card.is_symlink()
        assert not os.readlink(card).startswith("/")
        assert (card / "device" / "vendor").read_text() == "0x1002\n"


# --- the node ----------------------------------------------------------------------------------------


class HandClock(Clock):
    def __init__(self) -> None:
        self.mono = 50.0

    def monotonic(self) -> float:
        return self.mono


def poll(capture: Path, at_s: float = 0.0) -> list[tuple[Device, dict[Series, Value], list[Gap]]]:
    clock = HandClock()
    sysfs, procfs = replay.open_capture(capture, clock)
    clock.mono += at_s
    extractor = Extractor(CATALOGUE, "sysfs")
    out = []
    for device, groups in SysfsBackend(sysfs, procfs, clock=clock).poll():
        series: list[Series] = []
        values: list[Value] = []
        gaps: list[Gap] = []
        extractor.extract(device, groups, series, values, gaps)
        out.append((device, dict(zip(series, values, strict=True)), gaps))
    return out


def blobs(pci: str) -> Iterator[bytes]:
    [path] = CAPTURE.glob(f"frames/devices/*/*/{pci}/gpu_metrics")
    body = path.read_bytes()
    assert len(body) == FRAMES * 1664
    return (body[i : i + 1664] for i in range(0, len(body), 1664))


def u(blob: bytes, offset: int, width: int) -> int:
    return struct.unpack_from({2: "<H", 4: "<I", 8: "<Q"}[width], blob, offset)[0]


def records(pci: str, file: str) -> list[str]:
    [path] = CAPTURE.glob(f"frames/devices/*/*/{pci}/{file}")
    body = path.read_bytes()
    length = len(body) // FRAMES
    assert length * FRAMES == len(body)
    return [body[i : i + length].decode() for i in range(0, len(body), length)]


def test_the_tree_shows_eight_gpus_with_all_their_names() -> None:
    devices = [device for device, _, _ in poll(CAPTURE)]
    assert [d.id.pci for d in devices] == PCI
    assert [d.gpu for d in devices] == list(range(8))
    assert {(d.gfx, d.compute_units, d.xccs) for d in devices} == {("gfx942", 304, 8)}
    assert {(d.compute_partition, d.memory_partition) for d in devices} == {("SPX", "NPS1")}
    assert all(d.id.partition is None for d in devices)
    nodes = [d.indices["kfd"] for d in devices]
    assert sorted(nodes) == list(range(2, 10))
    assert nodes != sorted(nodes), "the driver's order differs from the bus, as on real nodes"
    assert len({d.uuid for d in devices}) == 8


def test_nothing_is_missing_but_what_such_a_gpu_does_not_have() -> None:
    missing = {(g.metric, g.reason) for _, _, gaps in poll(CAPTURE) for g in gaps}
    assert missing <= {
        ("amdgpu_fan_speed_rpm", Reason.UNSUPPORTED),
        ("amdgpu_retired_pages", Reason.UNSUPPORTED),
    }


@pytest.mark.parametrize("pci", PCI)
def test_energy_is_power_times_time_and_hwmon_agrees_with_the_table(pci: str) -> None:
    last = None
    watts = [int(r) for r in records(pci, "hwmon/*/power1_input")]
    junction = [int(r) for r in records(pci, "hwmon/*/temp2_input")] if pci != PCI[1] else None
    busy = [int(r) for r in records(pci, "gpu_busy_percent")] if pci != PCI[1] else [0] * FRAMES
    for frame, blob in enumerate(blobs(pci)):
        assert (u(blob, 0, 2), blob[2], blob[3]) == (1664, 1, 6)
        assert u(blob, 10, 2) * 1_000_000 == watts[frame]
        assert u(blob, 12, 2) == busy[frame]
        if junction:
            assert u(blob, 4, 2) * 1000 == junction[frame]
        joules, counter, activity = u(blob, 16, 8) / 65536, u(blob, 32, 4), u(blob, 68, 4)
        seconds = SECONDS if last else 1
        before = last or (0.0, 0, 0)
        assert joules - before[0] == u(blob, 10, 2) * seconds
        assert counter - before[1] == 1000 * seconds
        assert activity - before[2] == u(blob, 12, 2) * 1000 * seconds
        last = (joules, counter, activity)


@pytest.mark.parametrize("pci", PCI)
def test_what_is_counted_starts_near_zero_and_only_rises(pci: str) -> None:
    wide = [(16, 8), (24, 8), (80, 8), (256, 8), *((o, 8) for o in range(128, 184, 8)), (416, 8)]
    fields = [*wide, (32, 4), (40, 4), (68, 4), (72, 4)]
    for offset, width in fields:
        values = [u(blob, offset, width) for blob in blobs(pci)]
        assert values == sorted(values), offset
        # A reset may lose no more than a counter gains in one step.
        assert values[0] <= max(values[1] - values[0], 0) or values[0] == 0, offset


def test_what_one_end_of_a_link_writes_the_other_reads() -> None:
    for frame in zip(*(blobs(pci) for pci in PCI), strict=True):
        for a in range(8):
            for b in range(8):
                if a != b:
                    to_b, to_a = b - (b > a), a - (a > b)
                    assert u(frame[a], 192 + 8 * to_b, 8) == u(frame[b], 128 + 8 * to_a, 8)


def test_busy_gpus_are_hotter_and_draw_more_than_the_idle_one() -> None:
    by_gpu = {d.gpu: readings for d, readings, _ in poll(CAPTURE, 60.0)}

    def of(gpu: int, metric: str, *labels: str) -> float:
        [value] = [v for s, v in by_gpu[gpu].items() if s.metric == metric and s.labels == labels]
        assert isinstance(value, int | float)
        return value

    for gpu in (0, 2, 3, 4, 5, 6, 7):
        assert of(gpu, "amdgpu_power_watts") > of(1, "amdgpu_power_watts") + 50
        assert of(gpu, "amdgpu_temperature_celsius", "junction") > of(
            1, "amdgpu_temperature_celsius", "junction"
        )
    assert of(1, "amdgpu_busy_ratio", "gfx") == 0
    assert of(0, "amdgpu_power_watts") > 700
    assert of(2, "amdgpu_power_watts") < 250, "launch-bound: little runs, little is drawn"


@pytest.mark.parametrize("name", TRACED)
def test_busy_in_the_tree_agrees_with_what_the_windows_show(name: str) -> None:
    known = truth(name)
    executing = known["timeline_ns"]["executing"] / known["span_ns"]
    busy = [int(r) / 100 for r in records(known["gpu"], "gpu_busy_percent")]
    assert sum(busy) / len(busy) == pytest.approx(executing, abs=0.03)


def test_deleting_one_file_of_the_capture_removes_exactly_its_series(tmp_path: Path) -> None:
    shutil.copytree(CAPTURE, tmp_path / "c")
    [victim] = (tmp_path / "c").glob("sys/devices/*/*/0000:65:00.0/mem_info_gtt_used")
    victim.unlink()
    whole = {s for _, readings, _ in poll(CAPTURE) for s in readings}
    less = {s for _, readings, _ in poll(tmp_path / "c") for s in readings}
    assert {(s.metric, s.device.pci if s.device else "", s.labels) for s in whole ^ less} == {
        ("amdgpu_memory_used_bytes", "0000:65:00.0", ("gtt",))
    }


# --- the windows, by the definitions and without any code of the product -----------------------------


def sweep(name: str) -> dict[str, Any]:
    """The window's figures straight from its rows, instant by instant; slow and simple."""
    manifest = json.loads((CAPTURE / "windows" / name / "manifest.json").read_text())
    low, high = manifest["bounds_ns"]
    calls = {
        (row["Process_Id"], row["Correlation_Id"]): (int(row["Start_Timestamp"]), int(row["End_Timestamp"]))
        for row in rows(name, "hip_api_trace")
        if "Launch" in row["Function"]
    }
    kernels = [
        (
            int(r["Start_Timestamp"]),
            int(r["End_Timestamp"]),
            (r["Thread_Id"], r["Correlation_Id"]),
            r["Kernel_Name"],
        )
        for r in rows(name, "kernel_trace")
    ]
    copies = [
        (int(r["Start_Timestamp"]), int(r["End_Timestamp"]), r["Direction"])
        for r in rows(name, "memory_copy_trace")
    ]
    first: dict[tuple[str, str], tuple[int, int]] = {}
    edges: list[tuple[int, str, int]] = []

    def span(kind: str, start: int, end: int) -> None:
        start, end = max(start, low), min(end, high)
        if start < end:
            edges.extend(((start, kind, 1), (end, kind, -1)))

    for start, end, correlation, kernel in kernels:
        span("collective" if kernel.startswith("nccl") else "kernel", start, end)
        if correlation in calls:
            span("waiting", min(calls[correlation][1], start), start)
            first[correlation] = min(first.get(correlation, (start, end)), (start, end))
    for start, end in calls.values():
        span("call", start, end)
    for start, end, way in copies:
        span(way.removeprefix("MEMORY_COPY_").lower(), start, end)
    edges.append((high, "end", 0))
    now: dict[str, int] = dict.fromkeys(("kernel", "collective", "waiting", "call"), 0)
    states = dict.fromkeys(("executing", "queued", "launching", "starved"), 0)
    exposed: dict[str, int] = {}
    collective, at = 0, low
    for moment, kind, step in sorted(edges):
        passed, at = moment - at, moment
        busy = now["kernel"] or now["collective"]
        state = (
            "executing" if busy else "queued" if now["waiting"] else "launching" if now["call"] else "starved"
        )
        states[state] += passed
        collective += passed * (now["collective"] > 0 and not now["kernel"])
        for way in ("host_to_device", "device_to_host"):
            if now.get(way) and not busy:
                exposed[way] = exposed.get(way, 0) + passed
        now[kind] = now.get(kind, 0) + step
    return {
        "span_ns": high - low,
        "timeline_ns": states,
        "busy_ns": states["executing"],
        "kernels": len(kernels),
        "launches": len(calls),
        "queue_ns": sum(s - calls[c][0] for c, (s, _) in first.items()),
        "launch_duration_ns": sum(e - calls[c][0] for c, (_, e) in first.items()),
        "launch_call_ns": sum(end - start for start, end in calls.values()),
        "execution_ns": sum(min(e, high) - max(s, low) for s, e, _, _ in kernels),
        "unmatched_kernels": sum(c not in calls for _, _, c, _ in kernels),
        "unmatched_calls": len(calls) - len(first),
        "collective_exposed_ns": collective,
        "copy_exposed_ns": exposed if copies else None,
    }


@pytest.mark.parametrize("name", TRACED)
def test_the_truth_of_a_traced_window_follows_from_its_rows(name: str) -> None:
    known = truth(name)
    found = sweep(name)
    assert {key: known[key] for key in found} == found
    assert known["bottleneck"] == name.split("-")[1]


@pytest.mark.parametrize("name", COUNTED)
def test_the_truth_of_a_counter_window_follows_from_its_rows(name: str) -> None:
    known = truth(name)
    sums: dict[str, float] = {}
    for row in rows(name, "counter_collection"):
        sums[row["Counter_Name"]] = sums.get(row["Counter_Name"], 0) + float(row["Counter_Value"])
    assert sums["TCC_HIT_sum"] / (sums["TCC_HIT_sum"] + sums["TCC_MISS_sum"]) == pytest.approx(
        known["l2_hit_ratio"]
    )
    # GRBM is summed over 8 XCDs of 38 compute units each.
    assert sums["SQ_INSTS_VALU"] / (sums["GRBM_COUNT"] * 38) == pytest.approx(known["compute_density_ratio"])


def test_the_windows_show_every_bottleneck_they_are_named_after() -> None:
    shown = {truth(name)["bottleneck"] for name in TRACED}
    assert shown >= {
        "gpu_bound",
        "launch_bound",
        "host_stalled",
        "communication",
        "copy_bound",
        "dependency_bound",
        "balanced",
        "contended",
    }
    assert min(truth(n)["l2_hit_ratio"] for n in COUNTED) < 0.25
    assert max(truth(n)["l2_hit_ratio"] for n in COUNTED) > 0.75
