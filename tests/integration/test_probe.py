"""The verb ``probe`` with tools that behave and misbehave, and the daemon that shows what it measured."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from exporter import cli
from tests.integration.daemon import COMMAND, ROOT, environment, serving, until
from tests.unit import probemade, trees

FAKE = ROOT / "tests/fakes/probe_tool"
FIRST, SECOND = probemade.PCI


class Node:
    """Two GPUs, the tools that are asked for, and a state folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin, self.state = root, root / "bin", root / "state"
        self.bin.mkdir()
        self.state.mkdir()
        (self.bin / "repo").write_text(str(ROOT))
        self.mode("ok")
        trees.mi300x(root / "sys", sockets=2)
        trees.host(root / "proc")
        for device in (root / "sys/devices/pci0000:00").iterdir():
            (device / "gpu_busy_percent").write_text("0\n")
        self.env = environment(
            PATH=f"{self.bin}:/usr/bin:/bin",
            AMDGPU_EXPORTER_STATE_DIR=str(self.state),
            AMDGPU_EXPORTER_PATH__SYSFS=str(root / "sys"),
            AMDGPU_EXPORTER_PATH__PROCFS=str(root / "proc"),
            HIP_VISIBLE_DEVICES="1",
        )

    def mode(self, name: str) -> None:
        (self.bin / "mode").write_text(name)

    def has(self, *names: str) -> None:
        for name in names:
            shutil.copy(FAKE, self.bin / name)

    def probe(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run the verb in this process, which saves the start of another one."""
        out, err, code = io.StringIO(), io.StringIO(), 0
        with (
            mock.patch.dict(os.environ, self.env, clear=True),
            mock.patch.object(sys, "argv", ["x", "probe", *args]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                cli.main()
            except SystemExit as e:
                code = int(e.code or 0)
            finally:
                logging.disable(logging.NOTSET)
        return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.bin / "calls").read_text().splitlines()]

    def kept(self) -> list[str]:
        return sorted(p.name for p in self.state.glob("probes/*"))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def values(done: subprocess.CompletedProcess[str]) -> dict[tuple[str, ...], float]:
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    names = {"bandwidth": ("peer", "direction"), "gemm": ("precision",), "launch": ("pattern",)}
    keys = names[found["probe"]]
    return {(v["pci"], *(v[k] for k in keys)): v["value"] for v in found["values"]}


COPIES = {
    (FIRST, "self", "transmitted"): 2132.28e9,
    (FIRST, SECOND, "transmitted"): 57.39e9,
    (SECOND, FIRST, "transmitted"): 48.41e9,
    (SECOND, "self", "transmitted"): 2152.51e9,
    (FIRST, "cpu0", "transmitted"): 55.47e9,
    (FIRST, "cpu1", "transmitted"): 55.54e9,
    (SECOND, "cpu0", "transmitted"): 55.59e9,
    (SECOND, "cpu1", "transmitted"): 55.66e9,
    (FIRST, "cpu0", "received"): 45.11e9,
    (FIRST, "cpu1", "received"): 44.74e9,
    (SECOND, "cpu0", "received"): 45.16e9,
    (SECOND, "cpu1", "received"): 44.76e9,
}


@pytest.mark.parametrize(
    ("program", "plugin", "call"),
    [
        ("TransferBench", False, ["p2p", "268435456"]),
        ("rocm-bandwidth-test", False, ["-a"]),
        ("rocm_bandwidth_test", True, ["plugin", "--run", "tb", "p2p"]),
    ],
)
def test_copies_are_measured_with_the_old_and_the_new_spelling_of_each_tool(
    node: Node, program: str, plugin: bool, call: list[str]
) -> None:
    node.has(program)
    if plugin:
        (node.bin / "plugin").touch()
    # Before the plugins a copy within one GPU was counted as it is read and as it is written.
    within = 1.0 if plugin or program == "TransferBench" else 0.5
    expected = {key: rate * (within if key[1] == "self" else 1.0) for key, rate in COPIES.items()}
    assert values(node.probe("bandwidth", "--json")) == pytest.approx(expected)
    assert [program, *call] in node.calls()
    [kept] = node.kept()
    environment = json.loads((node.state / "probes" / kept).read_text())["environment"]
    assert [gpu["pci"] for gpu in environment["gpus"]] == [FIRST, SECOND]


def test_transferbench_is_taken_before_the_tool_that_ends_and_any_can_be_named(node: Node) -> None:
    node.has("TransferBench", "rocm-bandwidth-test")
    assert json.loads(node.probe("bandwidth", "--json").stdout)["tool"] == "TransferBench"
    named = node.probe("bandwidth", "--json", "--tool", "rocm-bandwidth-test")
    assert json.loads(named.stdout)["tool"] == "rocm-bandwidth-test"
    wrong = node.probe("bandwidth", "--tool", "rocblas-bench")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)


def test_matrix_products_are_measured_on_each_gpu_in_each_precision(node: Node) -> None:
    node.has("rocblas-bench")
    rates = {"f64": 60_000, "f32": 120_000, "f16": 650_000, "bf16": 610_000}
    expected = {
        (pci, kind): (rate + 100 * n) * 1e9
        for n, pci in enumerate((FIRST, SECOND))
        for kind, rate in rates.items()
    }
    assert values(node.probe("gemm", "--json")) == pytest.approx(expected, rel=1e-5)
    assert [c[-1] for c in node.calls()] == ["0"] * 4 + ["1"] * 4


def test_a_second_probe_is_told_against_the_first(node: Node) -> None:
    node.has("rocblas-bench")
    assert "against" not in node.probe("launch").stdout
    again = node.probe("launch").stdout
    assert "+0.0% in the middle" in again
    assert len(node.kept()) == 2


def test_launches_are_measured_by_tiny_vector_operations_or_by_pytorch(node: Node) -> None:
    node.has("rocblas-bench")
    assert values(node.probe("launch", "--json")) == pytest.approx(
        {(FIRST, "back_to_back"): 3.5e-6, (SECOND, "back_to_back"): 4.5e-6}
    )
    shutil.copy(FAKE, node.bin / "mypython")
    found = node.probe("launch", "--json", "--python", "mypython")
    assert values(found) == pytest.approx(
        {
            (FIRST, "back_to_back"): 4.25e-6,
            (FIRST, "round_trip"): 1.375e-5,
            (SECOND, "back_to_back"): 5.25e-6,
            (SECOND, "round_trip"): 1.375e-5,
        }
    )
    assert json.loads(found.stdout)["tool_version"] == "2.8.0+rocm7.0"
    for wrong in (("gemm",), ("launch", "--tool", "rocblas-bench")):
        assert node.probe(*wrong, "--python", "mypython").returncode == 2
    missing = node.probe("launch", "--python", "no-such-python")
    assert (missing.returncode, len(missing.stderr.splitlines())) == (1, 1)


def test_launches_of_nothing_are_measured_by_a_transferbench_that_can(node: Node) -> None:
    node.has("rocblas-bench", "TransferBench")
    assert json.loads(node.probe("launch", "--json").stdout)["tool"] == "rocblas-bench"
    (node.bin / "empty").touch()
    found = node.probe("launch", "--json")
    assert json.loads(found.stdout)["tool"] == "TransferBench"
    assert values(found) == pytest.approx(
        {
            (FIRST, "back_to_back"): 2.125e-6,
            (SECOND, "back_to_back"): 3.25e-6,
            (FIRST, "round_trip"): 9.5e-6,
            (SECOND, "round_trip"): 11.75e-6,
        }
    )


@pytest.mark.parametrize(
    ("probe", "package"),
    [("bandwidth", "rocm-validation-suite"), ("gemm", "rocblas-clients"), ("launch", "rocblas-clients")],
)
def test_a_missing_tool_is_one_line_that_names_the_package(node: Node, probe: str, package: str) -> None:
    done = node.probe(probe)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert package in done.stderr
    assert node.kept() == []


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("crash", "SIGSEGV"),
        ("garbage", "not a table at all"),
        ("busy", "busy"),
        ("permission", "groups render and video"),
        ("said", "invalid resource handle"),
    ],
)
def test_a_tool_that_gives_nothing_is_one_line_with_the_reason_and_nothing_is_kept(
    node: Node, mode: str, words: str
) -> None:
    node.has("TransferBench")
    node.mode(mode)
    done = node.probe("bandwidth")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1), done.stderr
    assert words in done.stderr
    assert node.kept() == []


def test_trouble_of_one_gpu_costs_only_that_gpu(node: Node) -> None:
    node.has("rocblas-bench")
    node.mode("half")
    done = node.probe("gemm", "--json")
    assert {pci for pci, _ in values(done)} == {FIRST}
    found = json.loads(done.stdout)
    assert found["missing"] == {"not_understood": 4}
    assert any("GPU 1" in note for note in found["notes"])


def test_a_gpu_in_use_is_left_alone_unless_forced(node: Node) -> None:
    node.has("TransferBench")
    trees.using(node.root / "sys", 4711, {10002: 1 << 30}, ((10002, 0),))
    trees.alive(node.root / "proc", 4711)
    (node.root / "proc/4711/comm").write_text("train\n")
    done = node.probe("bandwidth")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "GPU 1: train (4711)" in done.stderr
    assert "--force" in done.stderr
    assert not (node.bin / "calls").exists()
    assert node.probe("bandwidth", "--force").returncode == 0


def test_a_gpu_that_is_busy_with_something_else_is_left_alone(node: Node) -> None:
    node.has("TransferBench")
    device = next((node.root / "sys/devices/pci0000:00").glob("*:25:00.0"))
    (device / "gpu_busy_percent").write_text("37\n")
    done = node.probe("bandwidth")
    assert done.returncode == 1
    assert "GPU 1: 37 % busy" in done.stderr


def gone(node: Node) -> bool:
    pid = int((node.bin / "pid").read_text())
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("mode", ["hang", "escape"])
def test_a_tool_that_hangs_is_ended_at_its_deadline_with_all_that_it_started(node: Node, mode: str) -> None:
    node.has("rocm-bandwidth-test")
    node.mode(mode)
    began = time.monotonic()
    done = node.probe("bandwidth", "--deadline", "1s")
    assert time.monotonic() - began < 20
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "not over after 1 s" in done.stderr
    assert gone(node)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_the_verb_is_ended_nothing_of_the_tool_outlives_it(node: Node, sign: signal.Signals) -> None:
    node.has("rocm-bandwidth-test")
    node.mode("escape")
    command = [*COMMAND, "probe", "bandwidth"]
    process = subprocess.Popen(command, env=node.env, stderr=subprocess.PIPE, text=True)
    until((node.bin / "pid").exists, 20)
    process.send_signal(sign)
    _, said = process.communicate(timeout=20)
    assert process.returncode == (130 if sign is signal.SIGINT else -sign)
    assert "Traceback" not in said
    until(lambda: gone(node), 10)


def test_a_window_of_the_daemon_is_waited_for(node: Node) -> None:
    node.has("rocm-bandwidth-test")
    holder = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX)"
    lock = str(node.state / "window.lock")
    held = [sys.executable, "-c", f"{holder}; print(1, flush=True); time.sleep(1.5)", lock]
    with subprocess.Popen(held, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        assert node.probe("bandwidth").returncode == 0
        assert process.poll() == 0, "it was measured while the window ran"


def test_progress_is_shown_on_a_terminal_and_nowhere_else(node: Node) -> None:
    node.has("rocblas-bench")
    assert node.probe("launch").stderr == ""
    parent, child = pty.openpty()
    command = [*COMMAND, "probe", "launch"]
    with subprocess.Popen(command, env=node.env, stderr=child, stdout=subprocess.DEVNULL) as process:
        os.close(child)
        seen = b""
        while True:
            try:
                chunk = os.read(parent, 4096)
            except OSError:
                break
            seen += chunk
    os.close(parent)
    assert process.returncode == 0
    assert b"probe launch: GPU 1, launch, 2 of 2" in seen


def test_a_state_folder_that_cannot_be_written_costs_the_export_and_not_the_measurement(node: Node) -> None:
    node.has("TransferBench")
    (node.state / "probes").write_text("not a folder")
    done = node.probe("bandwidth")
    assert done.returncode == 0
    assert "GB/s" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "not kept" in done.stderr


def test_the_daemon_shows_the_last_probe_with_its_time(node: Node) -> None:
    node.has("TransferBench")
    before = time.time()
    assert node.probe("bandwidth").returncode == 0
    with serving(node.root, **node.env) as daemon:
        until(lambda: "amdgpu_probe_bandwidth" in daemon.get("/metrics")[1], 20)
        page = daemon.get("/metrics")[1]
        line = (
            f'amdgpu_probe_bandwidth_bytes_per_second{{gpu="1",pci="{SECOND}",peer="{FIRST}",'
            'direction="transmitted"} '
        )
        assert float(page.partition(line)[2].split()[0]) == pytest.approx(48.41e9)
        assert 'amdgpu_probe_info{probe="bandwidth",tool="TransferBench",version="1.62.00"} 1' in page
        at = float(page.partition('amdgpu_probe_last_timestamp_seconds{probe="bandwidth"} ')[2].split()[0])
        assert before <= at <= time.time()
