"""The verb analyze: exit codes, one-line errors, the JSON object, the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_traces import C, K, kernels, load, window

from exporter.checks.analyze import as_dict, run


def made(folder: Path) -> Path:
    rows = [K(100 * i + 20, 100 * i + 60, i + 1, f"k<{i % 3}>(int)") for i in range(30)]
    return window(folder, rows, [C(100 * i, 100 * i + 10, i + 1) for i in range(30)])


def test_the_json_object_has_every_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run([made(tmp_path)], True) == 0
    out = capsys.readouterr()
    answer = json.loads(out.out)
    assert set(answer) == {"version", "sources", "gpus"}
    assert set(answer["sources"][0]) == {"path", "format", "tool", "rows", "skipped", "partial"}
    (gpu,) = answer["gpus"]
    assert set(gpu) == {
        "gpu",
        "kernels",
        "launches",
        "span_seconds",
        "execution_seconds",
        "busy_seconds",
        "queue_seconds",
        "launch_duration_seconds",
        "launch_call_seconds",
        "queue_p50_seconds",
        "queue_p95_seconds",
        "queue_delay_ratio",
        "timeline_ratio",
        "bottleneck",
        "skewed_launches",
        "coverage_ratio",
        "compute_density_ratio",
        "valu_instructions",
        "l2_hit_ratio",
        "counters",
        "top_kernels",
        "advice",
    }
    assert {one for a in gpu["advice"] for one in a} == {"text", "evidence"}
    assert set(gpu["timeline_ratio"]) == {"executing", "queued", "launching", "starved"}
    assert set(gpu["top_kernels"][0]) == {
        "kernel",
        "calls",
        "seconds",
        "mean_seconds",
        "p50_seconds",
        "p95_seconds",
        "share_ratio",
    }
    assert (gpu["kernels"], gpu["launches"], gpu["coverage_ratio"]) == (30, 30, 1)
    assert gpu["queue_seconds"] == pytest.approx(30 * 20e-9)
    assert (gpu["l2_hit_ratio"], gpu["compute_density_ratio"], gpu["counters"]) == (None, None, {})
    assert out.err == ""


def test_the_page_says_what_was_read_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run([made(tmp_path)], False) == 0
    page = capsys.readouterr().out
    assert "7_kernel_trace.csv: rocprofv3-kernel-trace, 30 rows" in page
    assert "GPU Agent 4: " in page
    assert "  next       " in page
    (line,) = [line for line in page.splitlines() if "k<0>(int)" in line]
    assert line.split() == ["33.3%", "400", "ns", "10", "40", "ns", "40", "ns", "40", "ns", "k<0>(int)"]


def test_a_name_cannot_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run([window(tmp_path, [K(0, 10, 1, "evil\x1b[2J[bold]name")])], False)
    page = capsys.readouterr().out
    assert "\x1b[2J" not in page
    assert "[bold]name" in page


def test_a_missing_path_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run([tmp_path / "nowhere"], True) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err == f"amdgpu-exporter: {tmp_path / 'nowhere'}: no such file or folder\n"


def test_nothing_readable_is_exit_1_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "notes.txt").write_text("hello\n")
    assert run([tmp_path], True) == 1
    out = capsys.readouterr()
    assert out.err.count("\n") == 1
    assert "notes.txt" in out.err
    assert "hello" in out.err
    assert json.loads(out.out)["gpus"] == []


def test_an_empty_folder_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run([tmp_path], False) == 1
    assert capsys.readouterr().err == f"amdgpu-exporter: {tmp_path}: holds no files\n"


def test_rows_that_were_all_refused_are_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = window(tmp_path, [K(10, 5)]) / "7_kernel_trace.csv"
    assert run([path], True) == 1
    assert "no row could be used (invalid)" in capsys.readouterr().err


def test_a_good_file_beside_a_bad_one_is_exit_0_and_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = made(tmp_path)
    (folder / "junk.bin").write_bytes(b"\x00\x01\x02")
    assert run([folder], True) == 0
    out = capsys.readouterr()
    assert "junk.bin" in out.err
    assert json.loads(out.out)["gpus"][0]["kernels"] == 30


def test_counts_that_cannot_be_known_are_null_and_not_zero(tmp_path: Path):
    (gpu,) = as_dict(load(window(tmp_path, [K(0, 10)])))["gpus"]
    for key in (
        "queue_seconds",
        "launch_call_seconds",
        "queue_delay_ratio",
        "coverage_ratio",
        "valu_instructions",
    ):
        assert gpu[key] is None, key
    assert gpu["timeline_ratio"] == {"executing": 1, "queued": None, "launching": None, "starved": None}


def test_it_works_as_a_command(tmp_path: Path, repo: Path):
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "analyze", str(made(tmp_path)), "--json"],
        capture_output=True,
        text=True,
        cwd=repo,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["gpus"][0]["kernels"] == 30


def test_a_table_without_rows_was_read_and_says_that_nothing_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "x_kernel_trace.csv"
    path.write_bytes(kernels([]))
    assert run([path], as_json=True) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["gpus"], err) == ([], "")
    assert run([path], as_json=False) == 0
    assert "No kernel ran." in capsys.readouterr().out
