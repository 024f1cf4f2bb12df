"""The default daemon starts no profiler and no tool, ever; and what it starts when it is told to, it says."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.daemon import Daemon, serving, until
from tests.unit import trees

STATES = ("off", "ready", "sampling", "blocked", "tripped")
# Every command that profilers and tools of ROCm bring, also those that only some releases have.
TOOLS = (
    "rocprof",
    "rocprofv2",
    "rocprofv3",
    "rocprofv3-attach",
    "rocprof-attach",
    "rocprofv3-avail",
    "rocprofv3-doctor",
    "rocprof-compute",
    "rocprof-sys-run",
    "rocprof-sys-sample",
    "rocprof-sys-instrument",
    "omniperf",
    "omnitrace",
    "rocpd",
    "rocpctl",
    "rocm-bandwidth-test",
    "TransferBench",
    "rocblas-bench",
    "rvs",
    "rdcd",
    "rocminfo",
    "rocm_agent_enumerator",
    "hipconfig",
    "hipcc",
    "gdb",
    "rocgdb",
    "perf",
    "amd-smi",
    "rocm-smi",
    "amdgpu-exporter-counting",
    "amdgpu-device-counting",
    "device_counting",
)


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A folder with every tool; each one that is started leaves a note beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path}/started\nexit 0\n')
        (folder / name).chmod(0o755)
    return folder


def node(tmp_path: Path) -> tuple[str, ...]:
    """A made node with two sockets, and a procfs of its own."""
    trees.mi300x(tmp_path / "sys", sockets=2)
    trees.host(tmp_path / "proc")
    return (
        "--path.sysfs",
        str(tmp_path / "sys"),
        "--path.procfs",
        str(tmp_path / "proc"),
        "--interval",
        "50ms",
    )


def started(tmp_path: Path) -> list[str]:
    note = tmp_path / "started"
    return note.read_text().splitlines() if note.exists() else []


def polls(daemon: Daemon) -> float:
    return daemon.value("^amdgpu_exporter_generation_total") or 0


@pytest.mark.parametrize("preset", [None, "off"])
def test_the_default_daemon_executes_none_of_them(tmp_path: Path, traps: Path, preset: str | None) -> None:
    env = {"PATH": f"{traps}:{os.environ['PATH']}"}
    if preset:
        env["AMDGPU_EXPORTER_WINDOWS__PRESET"] = preset
    (tmp_path / "node.yaml").write_text("log: {level: debug}\n")
    with serving(tmp_path, "--config", str(tmp_path / "node.yaml"), *node(tmp_path), **env) as daemon:
        until(lambda: polls(daemon) > 10, what="ten generations")
        for path in ("/", "/metrics", "/api/v1/status", "/api/v1/windows", "/api/v1/devices", "/docs"):
            assert daemon.get(path)[0] == 200
        assert daemon.post("/-/reload")[0] == 200
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.post("/api/v1/windows")[0] == 409
        before = polls(daemon)
        until(lambda: polls(daemon) > before + 10, what="ten more")
        state = {k: v for k, v in daemon.series().items() if k.startswith("amdgpu_sampling_state")}
        assert state == {f'amdgpu_sampling_state{{state="{s}"}}': int(s == "off") for s in STATES}
        assert 'amdgpu_exporter_child_starts_total{child="runner"}' not in daemon.series()
    assert started(tmp_path) == []


def test_the_traps_do_note_a_tool_that_is_asked_for(tmp_path: Path, traps: Path) -> None:
    env = {"PATH": f"{traps}:{os.environ['PATH']}"}
    with serving(tmp_path, *node(tmp_path), "--backend", "smi_cli", **env):
        until(lambda: started(tmp_path), what="a start")
    assert {line.split()[0] for line in started(tmp_path)} <= {
        str(traps / n) for n in ("amd-smi", "rocm-smi")
    }


def test_a_window_by_hand_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with serving(tmp_path, *node(tmp_path)) as daemon:
        code, body = daemon.post("/api/v1/windows")
        assert code == 409
        answer = json.loads(body)
        assert answer["reason"] == "off"
        assert "windows.preset" in answer["detail"]


def test_counters_without_the_explicit_word_are_blocked_everywhere(tmp_path: Path, traps: Path) -> None:
    env = {"PATH": f"{traps}:{os.environ['PATH']}", "AMDGPU_EXPORTER_WINDOWS__PRESET": "counters"}
    with serving(tmp_path, *node(tmp_path), **env) as daemon:
        until(lambda: daemon.value('^amdgpu_sampling_state{state="blocked"}') == 1, what="blocked")
        status = json.loads(daemon.get("/api/v1/status")[1])["sampling"]
        assert (status["state"], status["reason"]) == ("blocked", "not_enabled")
        assert "windows.device_counting: true" in status["detail"]
        assert "never ran on hardware" in daemon.get("/api/v1/windows")[1]
        assert "Sampling is blocked: device counting never ran on hardware" in daemon.get("/")[1]
        assert json.loads(daemon.post("/api/v1/windows")[1])["reason"] == "not_enabled"
        until(lambda: daemon.value('amdgpu_windows_skipped_total{reason="not_enabled"}') == 1)
        # Once per change, not once per poll.
        time.sleep(0.3)
        assert daemon.log.read_text().count("device counting never ran on hardware") == 1
    assert started(tmp_path) == []


def test_pause_and_resume_need_a_local_peer_and_say_the_state(tmp_path: Path) -> None:
    with serving(tmp_path, *node(tmp_path)) as daemon:
        code, body = daemon.post("/api/v1/sampling/pause")
        assert (code, json.loads(body)["paused"]) == (200, True)
        code, body = daemon.post("/api/v1/sampling/resume")
        assert (code, json.loads(body)["paused"]) == (200, False)
        assert daemon.get("/api/v1/sampling/pause")[0] == 405
