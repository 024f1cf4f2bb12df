"""The daemon takes windows itself with a rocprofv3 on PATH: from the slot to the page, over a restart too."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from made_traces import C, K, calls, kernels

from tests.integration.daemon import Daemon, serving, until
from tests.unit import trees

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "job_rocprofv3"
OK = r'^amdgpu_windows_total\{gpu="0".*mode="trace",result="ok"'
STATE = '^amdgpu_sampling_state{state="%s"}'


class Node:
    """Two sockets, a rocprofv3 that behaves as it is told, and a configuration that samples often."""

    def __init__(self, root: Path, kind: str = "ok") -> None:
        self.root = root
        trees.mi300x(root / "sys", sockets=2)
        trees.host(root / "proc")
        (root / "bin").mkdir()
        rows = [K(100, 200, 1, agent="Agent 1"), K(300, 400, 2, agent="Agent 2")]
        text = f"=== kernel_trace\n{kernels(rows).decode()}=== hip_api_trace\n"
        (root / "rows").write_text(text + calls([C(50, 70, 1), C(250, 270, 2)]).decode())
        self.behave(kind)
        (root / "node.yaml").write_text(
            "windows: {preset: canary, command: [/bin/sh, -c, sleep 0.05], interval: 1s, duration: 50ms, "
            "duty_cycle: 0.1, gauge_max_age: 1h}\npoll: {interval: 200ms}\n"
        )

    def behave(self, kind: str) -> None:
        tool = self.root / "bin" / "rocprofv3"
        tool.write_text(f'#!/bin/sh\nFAKE_ROCPROFV3={kind} FAKE_ROWS={self.root}/rows exec {FAKE} "$@"\n')
        tool.chmod(0o755)

    def args(self) -> tuple[str, ...]:
        sysfs, procfs = str(self.root / "sys"), str(self.root / "proc")
        return "--config", str(self.root / "node.yaml"), "--path.sysfs", sysfs, "--path.procfs", procfs

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}


def status(daemon: Daemon) -> dict[str, object]:
    found: dict[str, object] = json.loads(daemon.get("/api/v1/status")[1])["sampling"]
    return found


def test_windows_of_a_canary_reach_the_page(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: (daemon.value(OK) or 0) >= 2, 40, "two windows")
        page = daemon.series()
        assert page[next(k for k in page if k.startswith('amdgpu_bottleneck_state{gpu="1"'))] in (0, 1)
        assert (daemon.value(r'^amdgpu_window_overhead_ratio\{mode="trace"') or 0) > 0
        assert sum(v for k, v in page.items() if k.startswith("amdgpu_sampling_state{")) == 1
        assert (status(daemon)["preset"], status(daemon)["reason"]) in (
            ("canary", None),
            ("canary", "budget"),
        )
        code, body = daemon.post("/api/v1/windows")
        answer = json.loads(body)
        assert (code, answer.get("reason")) in ((202, None), (409, "budget"), (409, "running"))
        daemon.post("/api/v1/sampling/pause")
        until(lambda: daemon.value(STATE % "blocked") == 1, what="the pause")
        taken = daemon.value(OK)
        assert json.loads(daemon.post("/api/v1/windows")[1])["reason"] == "paused"
        until(lambda: (daemon.value('amdgpu_windows_skipped_total{reason="paused"}') or 0) >= 2, 20)
        assert (daemon.value(OK) or 0) - (taken or 0) <= 1  # one may have been on its way
        text = (tmp_path / "node.yaml").read_text()
        (tmp_path / "node.yaml").write_text(text.replace("preset: canary", "preset: spool"))
        assert daemon.post("/-/reload")[0] == 200
        until(lambda: daemon.value(STATE % "off") == 1, what="off")
        assert not [k for k in daemon.series() if k.startswith("amdgpu_windows_skipped_total")]
        assert json.loads(daemon.post("/api/v1/windows")[1])["reason"] == "off"
        (tmp_path / "node.yaml").write_text(text)
        assert daemon.post("/-/reload")[0] == 200
        until(
            lambda: daemon.value(STATE % "blocked") == 1, what="the pause, which outlives a change of preset"
        )
        daemon.post("/api/v1/sampling/resume")
        taken = daemon.value(OK) or 0
        until(lambda: (daemon.value(OK) or 0) > taken, 30, "a window after the resume")
    assert not list((tmp_path / "state" / "spool").glob(".window-*"))


def test_a_crash_trips_the_breaker_which_a_restart_does_not_forget(tmp_path: Path) -> None:
    node = Node(tmp_path, "crash")
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: daemon.value(STATE % "tripped") == 1, 40, "the breaker")
        assert daemon.value(r'^amdgpu_windows_total\{gpu="0".*mode="trace",result="crash"') == 1
        assert "SIGSEGV" in json.dumps(status(daemon))
        text = daemon.log.read_text()
        assert text.count("the breaker for windows is open") == 1
    node.behave("ok")
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: daemon.value(STATE % "tripped") == 1, 20, "the breaker, again")
        assert "SIGSEGV" in json.dumps(status(daemon))
        assert json.loads(daemon.post("/api/v1/windows")[1])["reason"] == "tripped"
        assert not daemon.value(OK)


@pytest.mark.parametrize(
    ("kind", "reason", "words"),
    [("fatal", "malformed", "Failed to resolve path"), ("empty", "empty", "wrote nothing")],
)
def test_windows_without_files_are_counted_with_their_reason(
    tmp_path: Path, kind: str, reason: str, words: str
) -> None:
    node = Node(tmp_path, kind)
    with serving(tmp_path, *node.args(), **node.env) as daemon:
        until(lambda: daemon.value(rf'^amdgpu_windows_total\{{gpu="0".*mode="trace",result="{reason}"'), 40)
        assert words in daemon.get("/api/v1/windows")[1]
