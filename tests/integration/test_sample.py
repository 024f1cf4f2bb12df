"""The verb ``sample``: one window now, or the reason why not; the same reasons that the daemon has."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from made_traces import C, K, calls, kernels

from exporter.history.store import Store
from tests.integration.daemon import COMMAND, environment
from tests.unit import trees

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "job_rocprofv3"


class Node:
    """Two sockets and a rocprofv3 on PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        trees.mi300x(root / "sys", sockets=2)
        trees.host(root / "proc")
        (root / "proc" / "uptime").write_text("100000.0 1.0\n")
        (root / "bin").mkdir()
        (root / "bin" / "rocprofv3").symlink_to(FAKE)
        rows = kernels([K(100, 200, 1, agent="Agent 1")]).decode()
        (root / "rows").write_text(
            f"=== kernel_trace\n{rows}=== hip_api_trace\n{calls([C(50, 70, 1)]).decode()}"
        )
        self.env = environment(
            PATH=f"{root / 'bin'}:{os.environ['PATH']}",
            FAKE_ROWS=str(root / "rows"),
            STATE_DIRECTORY=str(root / "state"),
            AMDGPU_EXPORTER_BACKEND="sysfs",
        )

    def sample(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        paths = ("--path.sysfs", str(self.root / "sys"), "--path.procfs", str(self.root / "proc"))
        argv = [*COMMAND, "sample", *paths, *args]
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=60, cwd=self.root, env={**self.env, **env}
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_command_is_traced_where_it_was_typed_and_the_answer_is_that_of_analyze(node: Node) -> None:
    done = node.sample("--json", "--", "sh", "-c", "pwd > where; echo $MINE >> where", MINE="kept")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["version"] == 1
    [gpu] = answer["gpus"]
    assert (gpu["gpu"], gpu["launches"], gpu["queue_seconds"]) == ("0000:05:00.0", 1, 50e-9)
    assert (node.root / "where").read_text() == f"{node.root}\nkept\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "not_enabled: device counting never ran on hardware"),
        (("--mode", "trace"), "a trace is of a process (--pid) or of a command"),
        (("--pid", "4711"), "not_opted_in: process 4711 is not seen to use a GPU here"),
    ],
)
def test_a_refusal_is_one_line_with_its_reason(node: Node, args: tuple[str, ...], words: str) -> None:
    done = node.sample(*args)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("amdgpu-exporter: no window: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unprepared_process_is_named_with_the_way_out(node: Node) -> None:
    trees.alive(node.root / "proc", 700)
    trees.using(node.root / "sys", 700, {}, ((10001, 0),))
    done = node.sample("--pid", "700")
    assert done.returncode == 1
    assert "process 700" in done.stderr
    assert "ROCP_TOOL_ATTACH=1" in done.stderr


def test_the_deny_list_and_full_memory_hold_for_a_person_too(node: Node) -> None:
    done = node.sample("--", "true", AMDGPU_EXPORTER_WINDOWS__DENY="gfx942:*:trace")
    assert "deny_list" in done.stderr
    done = node.sample("--", "true", AMDGPU_EXPORTER_WINDOWS__MEMORY_MOST="0.1")
    assert "memory_full" in done.stderr


def test_the_daemons_pause_and_breaker_hold_where_they_can_be_read(node: Node) -> None:
    (node.root / "state").mkdir()
    store = Store(node.root / "state", 1 << 30, 86_400.0)
    breaker = {"state": "open", "reason": "it crashed", "trips": 1, "soft": 0, "in_a_row": 1, "until": 4e9}
    store.set_state({"sampling": {"policy": {"paused": False, "breaker": breaker}}})
    done = node.sample("--", "true")
    store.close()
    assert "tripped: it crashed" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--mode", "deep"), "expected counters or trace"),
        (("--duration", "1"), "--duration 1"),
        (("--pid", "0"), "pid"),
    ],
)
def test_bad_usage_is_exit_2(node: Node, args: tuple[str, ...], words: str) -> None:
    done = node.sample(*args)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_profiler_that_fails_says_how(node: Node) -> None:
    done = node.sample("--", "true", FAKE_ROCPROFV3="crash")
    assert done.returncode == 1
    assert "crash: died of SIGSEGV" in done.stderr
