"""``run --report``: cold and warm runs of a job whose terminal, signals and exit code stay its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from made_traces import C, K, calls, kernels

from tests.integration.daemon import COMMAND, ROOT, environment, until
from tests.unit import trees

FIRST, SECOND = "0000:05:00.0", "0000:25:00.0"
JOULES = 300
# Each run writes the next table of its GPU, in which the counter stands 300 J higher, and takes memory.
WORK = """
n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n
echo run $n
dd if=table$n of=gpu_metrics conv=notrunc 2>/dev/null
echo 107374182400 > mem_info_vram_used
sleep 1.2
echo 1073741824 > mem_info_vram_used
"""


class Bench:
    """A node of two GPUs, or of none, and a folder for reports."""

    def __init__(self, root: Path, gpus: bool = True) -> None:
        self.root = root
        (root / "bin").mkdir()
        (root / "sys/class/drm").mkdir(parents=True)
        self.gpu = root
        if gpus:
            shutil.rmtree(root / "sys")
            self.gpu = trees.mi300x(root / "sys", sockets=2)[0]
            table = {**trees.METRICS}
            start = table["energy_accumulator"][0]
            for n in range(8):
                table["energy_accumulator"] = [start + (n + 1) * JOULES * 65536]
                (self.gpu / f"table{n}").write_bytes(trees.blob((1, 8), table, (trees.SLOT,)))
        self.env = environment(
            PATH=f"{root / 'bin'}:/usr/bin:/bin",
            AMDGPU_EXPORTER_PATH__SYSFS=str(root / "sys"),
            AMDGPU_EXPORTER_STATE_DIR=str(root / "state"),
        )

    def argv(self, *command: str, options: tuple[str, ...] = ("--repeat", "2")) -> list[str]:
        return [*COMMAND, "run", "--report", str(self.root / "card.md"), *options, "--", *command]

    def run(self, *command: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*command, **more),
            capture_output=True,
            text=True,
            timeout=60,
            env=self.env,
            cwd=self.gpu,
        )

    def card(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "card.json").read_text())
        return found


def test_a_job_is_run_cold_and_warm_and_what_it_took_is_reported(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    done = bench.run("sh", "-c", WORK, options=("--repeat", "1", "--items", "60"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "run 0\nrun 1\n", "")
    found = bench.card()
    assert [(r["kind"], r["code"]) for r in found["runs"]] == [("cold", 0), ("warm", 0)]
    for run in found["runs"]:
        assert 1.2 <= run["seconds"] < 6
        used, alone = run["gpus"][FIRST], run["gpus"][SECOND]
        # The readings lie a little outside the run, and their rise is taken for its time alone.
        assert used["energy_joules"] == pytest.approx(JOULES, rel=0.25)
        assert used["energy_from"] == "counter"
        assert used["memory_peak_bytes"] == 107374182400
        assert alone["energy_from"] != "counter"  # its counter stands still
    assert found["times"]["warm_runs"] == 1
    assert found["throughput"]["items_per_second"] == pytest.approx(
        60 / found["times"]["warm_median_seconds"]
    )
    assert [gpu["model"] for gpu in found["environment"]["gpus"]] == ["Instinct MI300X"] * 2
    assert max(v for _, v in found["memory_curve"][FIRST]) == 107374182400
    text = (tmp_path / "card.md").read_text()
    assert "Instinct MI300X (gfx942)" in text
    assert "there is no rocprofv3" in text


def test_where_there_is_no_gpu_the_times_stand_and_the_rest_says_why(tmp_path: Path) -> None:
    bench = Bench(tmp_path, gpus=False)
    done = bench.run("sh", "-c", "cat; exit 0")
    assert (done.returncode, done.stderr) == (0, "")
    found = bench.card()
    assert found["times"]["warm_runs"] == 2
    assert (found["gpus"], found["memory_curve"], found["windows"]) == ({}, {}, None)
    assert "no AMD GPU" in found["missing"]["gpus"]
    assert "no AMD GPU" in (tmp_path / "card.md").read_text()


def test_a_profiler_brings_a_table_of_kernels_and_advice_by_a_run_that_counts_nowhere_else(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    shutil.copy(ROOT / "tests/fakes/job_rocprofv3", tmp_path / "bin/rocprofv3")
    ran = kernels([K(100, 200, 1, agent="Agent 1"), K(20_000, 20_100, 2, agent="Agent 1")]).decode()
    called = calls([C(50, 70, 1), C(19_950, 19_970, 2)]).decode()
    rows = f"=== kernel_trace\n{ran}=== hip_api_trace\n{called}"
    (tmp_path / "rows").write_text(rows)
    bench.env["FAKE_ROWS"] = str(tmp_path / "rows")
    done = bench.run("sh", "-c", "echo ran >> ran")
    assert (done.returncode, done.stderr) == (0, "")
    assert (bench.gpu / "ran").read_text() == "ran\n" * 4
    found = bench.card()
    assert [r["kind"] for r in found["runs"]] == ["cold", "warm", "warm"]
    kernels_seen = [k["calls"] for gpu in found["windows"] for k in gpu["top_kernels"]]
    assert kernels_seen
    assert found["advice"]
    assert f"### Kernels on {FIRST}" in (tmp_path / "card.md").read_text()


@pytest.mark.parametrize("kind", ["fatal", "empty", "crash"])
def test_a_profiler_that_fails_costs_the_table_of_kernels_and_nothing_else(tmp_path: Path, kind: str) -> None:
    bench = Bench(tmp_path)
    shutil.copy(ROOT / "tests/fakes/job_rocprofv3", tmp_path / "bin/rocprofv3")
    bench.env["FAKE_ROCPROFV3"] = kind
    done = bench.run("true", options=("--repeat", "1"))
    assert done.returncode == 0
    found = bench.card()
    assert found["windows"] is None
    assert found["missing"]["kernels"]
    assert found["times"]["warm_runs"] == 1


def test_the_exit_code_is_that_of_the_run_that_failed_and_nothing_is_run_after_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    done = bench.run("sh", "-c", 'echo x >> ran; test "$(wc -l < ran)" -lt 2 || exit 7')
    assert (done.returncode, (bench.gpu / "ran").read_text()) == (7, "x\nx\n")
    found = bench.card()
    assert [r["code"] for r in found["runs"]] == [0, 7]
    assert "ended with code 7" in (tmp_path / "card.md").read_text()


def test_a_job_that_dies_of_a_signal_ends_us_by_the_same(tmp_path: Path) -> None:
    done = Bench(tmp_path).run("sh", "-c", "kill -USR1 $$")
    assert done.returncode == -signal.SIGUSR1


def test_a_command_that_is_not_there_ends_as_in_a_shell(tmp_path: Path) -> None:
    done = Bench(tmp_path).run("not-there-at-all")
    assert done.returncode == 127
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("card.*"))


@pytest.mark.parametrize("options", [("--length", "soon"), ("--config", "not-there.yaml")])
def test_wrong_options_of_ours_cost_the_report_and_the_job_runs_once(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = Bench(tmp_path).run("sh", "-c", "echo once; exit 4", options=options)
    assert (done.returncode, done.stdout) == (4, "once\n")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["card.v1", "card.json", "card.md", "card"])
def test_both_files_are_named_after_the_one_that_is_given(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, gpus=False)
    assert bench.run("true", options=("--report", str(tmp_path / name), "--repeat", "1")).returncode == 0
    stem = "card.v1" if name == "card.v1" else "card"
    assert sorted(p.name for p in tmp_path.glob("card*")) == [f"{stem}.json", f"{stem}.md"]


def test_a_report_that_cannot_be_written_costs_the_report_and_the_job_runs_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "card.json").mkdir()
    done = bench.run("sh", "-c", "echo once; exit 5")
    assert (done.returncode, done.stdout) == (5, "once\n")
    assert len(done.stderr.splitlines()) == 1
    assert "no report" in done.stderr


def test_a_driver_that_never_answers_holds_no_run_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (bench.gpu / "gpu_metrics").unlink()
    (bench.gpu / "gpu_busy_percent").unlink(missing_ok=True)
    os.mkfifo(bench.gpu / "gpu_metrics")
    os.mkfifo(bench.gpu / "gpu_busy_percent")
    began = time.monotonic()
    done = bench.run("true", options=("--repeat", "1"))
    assert done.returncode == 0
    assert time.monotonic() - began < 20
    assert bench.card()["times"]["warm_median_seconds"] < 1


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_job_ends_the_runs_and_leaves_a_report_and_no_process(
    tmp_path: Path, sign: signal.Signals
) -> None:
    bench = Bench(tmp_path)
    command = bench.argv(
        "sh", "-c", "trap 'echo told; kill $!; exit 9' TERM INT; sleep 30 & echo $$ > pid; wait"
    )
    process = subprocess.Popen(command, env=bench.env, cwd=bench.gpu, stdout=subprocess.PIPE, text=True)
    until(lambda: (bench.gpu / "pid").exists() and (bench.gpu / "pid").read_text(), 20)
    process.send_signal(sign)
    out, _ = process.communicate(timeout=40)
    assert (process.returncode, out) == (9, "told\n")
    assert [r["code"] for r in bench.card()["runs"]] == [9]
    running = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert [c for c in running if "exporter.cards.meter" in c and str(tmp_path) in " ".join(c)] == []
