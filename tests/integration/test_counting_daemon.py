"""The daemon counts device events with a helper on PATH: from the slot to the page, and each way to fail."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon import Daemon, serving, until
from tests.unit import trees

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "counting_helper"
STATE = '^amdgpu_sampling_state{state="%s"}'


class Node:
    """Two sockets, a helper that behaves as it is told, and a configuration that samples often."""

    def __init__(self, root: Path, kind: str = "ok", more: str = "") -> None:
        self.root = root
        trees.mi300x(root / "sys", sockets=2)
        trees.host(root / "proc")
        (root / "bin").mkdir()
        self.behave(kind)
        (root / "node.yaml").write_text(
            "windows: {preset: counters, device_counting: true, interval: 1s, duration: 10ms, "
            f"duty_cycle: 0.1, gauge_max_age: 1h{more}}}\npoll: {{interval: 200ms}}\n"
        )

    def behave(self, kind: str, **env: str) -> None:
        tool = self.root / "bin" / "amdgpu-exporter-counting"
        told = " ".join(f"{name}={value}" for name, value in env.items())
        tool.write_text(
            f'#!/bin/sh\nFAKE_COUNTING={kind} FAKE_NOTE={self.root}/asked {told} exec {FAKE} "$@"\n'
        )
        tool.chmod(0o755)

    def asked(self) -> list[dict[str, Any]]:
        note = self.root / "asked"
        return [json.loads(line) for line in note.read_text().splitlines()] if note.exists() else []

    def args(self) -> tuple[str, ...]:
        sysfs, procfs = str(self.root / "sys"), str(self.root / "proc")
        return "--config", str(self.root / "node.yaml"), "--path.sysfs", sysfs, "--path.procfs", procfs

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}


def status(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(daemon.get("/api/v1/status")[1])["sampling"]
    return found


def counted(daemon: Daemon, gpu: int, result: str) -> float:
    pattern = rf'^amdgpu_windows_total\{{gpu="{gpu}".*mode="counters",result="{result}"'
    return daemon.value(pattern) or 0


def gauge(daemon: Daemon, name: str, gpu: int) -> float | None:
    return daemon.value(rf'^amdgpu_{name}\{{gpu="{gpu}"')


def test_light_counters_of_every_gpu_and_deep_ones_of_the_one_that_stands_out(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: counted(daemon, 0, "ok") >= 2, 40, "two windows")
        # 160 million cycles of eight dies are 20 million; times 304 compute units 6.08 billion slots.
        assert gauge(daemon, "compute_density_ratio", 0) == pytest.approx(0.25)
        assert gauge(daemon, "compute_density_active_ratio", 0) == pytest.approx(0.5)
        assert gauge(daemon, "valu_utilization_ratio", 0) == pytest.approx(0.9)
        # 4.864 billion busy cycles of four pipes each in 10 million cycles of 304 units
        assert gauge(daemon, "matrix_busy_ratio", 0) == pytest.approx(0.4)
        assert gauge(daemon, "occupancy_ratio", 0) == pytest.approx(0.05)
        assert gauge(daemon, "valu_instructions_per_second", 0) == pytest.approx(152e9)
        assert gauge(daemon, "l2_hit_ratio", 0) == pytest.approx(0.85)
        assert gauge(daemon, "l2_hit_ratio", 1) == pytest.approx(0.25)
        light = [one for one in node.asked() if "TCC_HIT_sum" in one["counters"]]
        assert len(light[0]["gpus"]) == 2
        assert light[0]["seconds"] == pytest.approx(0.01)

        def deep() -> list[dict[str, Any]]:
            return [one for one in node.asked() if "TCC_HIT_sum" not in one["counters"]]

        # 25 % L2 hits are below advice.l2_hit_least, 85 % are not; busy matrix pipes excuse few instructions.
        until(deep, 40, "a deep window")
        assert list(status(daemon)["deep_wanted"].values()) == [["l2_hit"]]
        assert {len(one["gpus"]) for one in deep()} == {1}
        assert deep()[0]["gpus"] == [max(light[0]["gpus"], key=int)]
        read = r'^amdgpu_memory_bandwidth_bytes_per_second\{gpu="1".*direction="read"'
        until(lambda: daemon.value(read), 20, "the window's way to the page")
        assert daemon.value(read) == pytest.approx(20e6 * 1024 / 0.01)
        assert daemon.value(read.replace('gpu="1"', 'gpu="0"')) is None
        # Deep windows add nothing to what light ones say.
        page = daemon.series()
        hits = {
            key.split('gpu="')[1][0]: v
            for key, v in page.items()
            if key.startswith("amdgpu_cache_hits_total")
        }
        requests = {
            key.split('gpu="')[1][0]: v
            for key, v in page.items()
            if key.startswith("amdgpu_cache_requests_total")
        }
        assert hits["0"] / requests["0"] == pytest.approx(0.85)
        assert hits["1"] / requests["1"] == pytest.approx(0.25)
        assert gauge(daemon, "l2_hit_ratio", 1) == pytest.approx(0.25)
        assert (daemon.value(r'^amdgpu_window_overhead_ratio\{mode="counters"') or 0) > 0
    assert not list((tmp_path / "state" / "spool").glob(".window-*"))


@pytest.mark.parametrize(
    ("kind", "result", "words"),
    [
        ("denied", "denied", "CAP_PERFMON is not set"),
        ("partial", "malformed", "ends early or is no JSON"),
    ],
)
def test_a_window_that_gave_nothing_is_counted_with_its_reason(
    tmp_path: Path, kind: str, result: str, words: str
) -> None:
    node = Node(tmp_path, kind)
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: counted(daemon, 0, result) >= 1, 40, result)
        assert words in daemon.get("/api/v1/windows")[1]
        assert gauge(daemon, "l2_hit_ratio", 0) is None
        assert gauge(daemon, "compute_density_ratio", 0) is None
        if kind == "denied":
            until(lambda: daemon.value(STATE % "tripped") == 1, 40, "the breaker, at the third in a row")
            assert counted(daemon, 0, result) == 3


def test_zeros_on_a_busy_gpu_are_absent_and_the_rest_is_there(tmp_path: Path) -> None:
    node = Node(tmp_path, "zeros")
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: counted(daemon, 0, "ok") >= 1, 40, "a window")
        assert gauge(daemon, "l2_hit_ratio", 0) == pytest.approx(0.85)
        for name in (
            "compute_density_ratio",
            "valu_utilization_ratio",
            "matrix_busy_ratio",
            "occupancy_ratio",
        ):
            assert gauge(daemon, name, 0) is None
        assert gauge(daemon, "valu_instructions_total", 0) == 0  # nothing was added
        assert (daemon.value('amdgpu_window_rows_skipped_total{reason="shaders_hidden"}') or 0) >= 2
        assert "shaders_hidden" in daemon.get("/api/v1/windows")[1]


def test_a_helper_that_crashes_opens_the_breaker_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path, "crash")
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: daemon.value(STATE % "tripped") == 1, 40, "the breaker")
        assert counted(daemon, 0, "crash") == 1
        assert "SIGSEGV" in json.dumps(status(daemon))


def test_a_helper_that_hangs_is_ended_with_its_deadline(tmp_path: Path) -> None:
    node = Node(tmp_path, "hang")
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: counted(daemon, 0, "timeout") >= 1, 60, "the deadline")
        assert "not over after 10" in daemon.get("/api/v1/windows")[1]
        assert gauge(daemon, "l2_hit_ratio", 0) is None


def test_a_limiter_that_is_not_as_before_opens_the_breaker(tmp_path: Path) -> None:
    node = Node(tmp_path)
    [card, *_] = sorted((tmp_path / "sys").glob("class/drm/card*/device"))
    (card / "ptl").mkdir()
    limiter = (card / "ptl" / "ptl_enable").resolve()
    limiter.write_text("enabled\n")
    node.behave("limiter", FAKE_LIMITER=str(limiter))
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: daemon.value(STATE % "tripped") == 1, 40, "the breaker")
        time.sleep(2)  # what the window counted is taken in meanwhile, and closes nothing
        assert daemon.value(STATE % "tripped") == 1
        assert "ptl_enable" in json.dumps(status(daemon))
    assert limiter.read_text() == "disabled\n"  # we change nothing, not even back


def test_without_a_helper_the_preset_is_blocked_and_says_what_is_missing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "bin" / "amdgpu-exporter-counting").unlink()
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: daemon.value(STATE % "blocked") == 1, 20, "blocked")
        assert status(daemon)["reason"] == "no_profiler"
        assert "there is no amdgpu-exporter-counting on PATH" in status(daemon)["detail"]


def test_amds_own_helper_is_asked_where_ours_is_not(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "bin" / "amdgpu-exporter-counting").unlink()
    ids = sorted(
        number
        for file in (tmp_path / "sys").glob("class/kfd/kfd/topology/nodes/*/gpu_id")
        if (number := file.read_text().strip()) != "0"
    )

    def gpu(number: str, hits: int, misses: int) -> dict[str, Any]:
        counted = {"GRBM_COUNT": "1.6e+08", "TCC_HIT_sum": f"{hits}", "TCC_MISS_sum": f"{misses}"}
        metrics = [{"Field": name, "Value": value} for name, value in counted.items()]
        return {"GpuId": number, "DrmRenderId": "128", "LogicalNodeId": "1", "Metrics": metrics}

    (tmp_path / "answer").write_text(json.dumps({"GpuMetrics": [gpu(ids[0], 9, 1), gpu(ids[1], 2, 6)]}))
    vendor = tmp_path / "bin" / "rocpctl"
    vendor.write_text(
        '#!/bin/sh\n[ "$1" = --help ] && { echo "  -d <duration>   Sampling duration"; exit 0; }\n'
        f'echo "$@" >>{tmp_path}/asked\ncat {tmp_path}/answer\n'
    )
    vendor.chmod(0o755)
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: counted(daemon, 0, "ok") >= 1, 40, "a window")
        assert gauge(daemon, "l2_hit_ratio", 0) == pytest.approx(0.9)
        assert gauge(daemon, "l2_hit_ratio", 1) == pytest.approx(0.25)
        assert gauge(daemon, "compute_density_ratio", 0) is None
    assert (tmp_path / "asked").read_text().startswith("-d 10000 ")


@pytest.mark.parametrize("preset", ["spool", "counters"])
def test_without_the_explicit_word_the_helper_is_never_started(tmp_path: Path, preset: str) -> None:
    node = Node(tmp_path)
    text = (tmp_path / "node.yaml").read_text().replace("device_counting: true, ", "")
    (tmp_path / "node.yaml").write_text(text.replace("preset: counters", f"preset: {preset}"))
    (tmp_path / "bin" / "amdgpu-exporter-counting").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    state = "off" if preset == "spool" else "blocked"
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: daemon.value(STATE % state) == 1, 20, state)
        if preset == "counters":
            skipped = 'amdgpu_windows_skipped_total{reason="not_enabled"}'
            until(lambda: (daemon.value(skipped) or 0) >= 2, 20, "two slots")
    assert not (tmp_path / "started").exists()
