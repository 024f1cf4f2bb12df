"""The verb ``compare`` over folders and the history, and what a judge says of what is not the same."""

from __future__ import annotations

import csv
import json
import os
import random
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from windowmade import kernel, traced, window

from exporter.compare import report, verb
from exporter.compare.judge import Options, Verdict, compare
from exporter.compare.past import Past
from exporter.history.store import Store
from exporter.model import ConfigError
from tests.tools import compare_truths as truths

VCOPY = "profiler/rocprof-compute-vcopy"
HEAD = (
    "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,"
    "Start_Timestamp,End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,SGPR_Count,"
    "Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
)


def made(
    folder: Path, factor: float, seed: int, runs: int = 6, grid: int = 4096, kernel: str = "gemm"
) -> Path:
    """Runs of one process each, in which the kernels take 100 us and ``gemm`` so many times that."""
    draw = random.Random(seed)
    for run in range(runs):
        place = folder / f"run{run}"
        place.mkdir(parents=True)
        with open(place / f"{100 + run}_kernel_trace.csv", "w", newline="", encoding="utf-8") as stream:
            out = csv.writer(stream)
            out.writerow(HEAD.split(","))
            at = 1_000_000
            for i in range(40):
                name = kernel if i % 2 else "copy"
                took = int(100_000 * draw.gauss(1, 0.01) * (factor if i % 2 else 1))
                row = ["KERNEL_DISPATCH", "Agent 4", 1, 0, 7, i + 1, 1, name, i + 1, at, at + took]
                out.writerow([*row, 0, 0, 32, 0, 32, 256, 1, 1, grid, 1, 1])
                at += took + 10_000
    return folder


def code(a: Path | str, b: Path | str, state: Path | str = "/nowhere", **more: object) -> int:
    return verb.run(verb.Wish(str(a), str(b), **more), lambda: Past(state))


@pytest.mark.parametrize(
    ("a", "b", "gfx"),
    [
        ("MI100", "MI200", "gfx: gfx908 before, gfx90a after"),
        ("MI200", "MI300X_A1", "gfx: gfx90a before, gfx942 after"),
        ("MI100", "MI300X_A1_rocpd", "gfx: gfx908 before, gfx942 after"),
    ],
)
def test_the_same_program_on_another_chip_is_not_comparable(
    samples: Path, a: str, b: str, gfx: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(samples / VCOPY / a, samples / VCOPY / b) == 4
    assert f"not comparable: {gfx}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["MI100", "MI200", "MI300X_A1", "MI300X_A1_rocpd"])
def test_a_folder_against_itself_shows_no_clear_change(
    samples: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(samples / VCOPY / name, samples / VCOPY / name) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(": no clear change")


def test_a_kernel_that_takes_a_fifth_longer_is_worse_and_the_other_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = made(tmp_path / "a", 1.0, 1), made(tmp_path / "b", 1.2, 2)
    assert code(a, b, form="json") == 3
    found = json.loads(capsys.readouterr().out)
    by_kernel = {f["kernel"]: f for f in found["findings"] if f["metric"] == "kernel_seconds"}
    assert by_kernel["gemm"]["verdict"] == "worse"
    assert by_kernel["gemm"]["low_ratio"] < 0.2 < by_kernel["gemm"]["high_ratio"]
    assert by_kernel["gemm"]["runs"] == {"a": 6, "b": 6}
    assert by_kernel["copy"]["verdict"] == "no clear change"
    assert any("gemm" in one["evidence"] for one in found["advice"])
    assert code(a, b, fail_on="never") == 0
    assert code(b, a) == 0
    assert "better" in capsys.readouterr().out


def test_another_grid_is_not_comparable_unless_it_was_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = made(tmp_path / "a", 1.0, 1), made(tmp_path / "b", 1.2, 2, grid=8192)
    assert code(a, b) == 4
    assert "grid-size mix: 100% of the launches differ" in capsys.readouterr().out
    assert code(a, b, changed=("grid_mix",)) == 3
    assert "changed as declared: grid-size mix" in capsys.readouterr().out


def test_other_kernels_are_not_comparable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = made(tmp_path / "a", 1.0, 1), made(tmp_path / "b", 1.0, 2, kernel="gemm_v2")
    assert code(a, b) == 4
    assert "of the time is in kernels of both sides" in capsys.readouterr().out


def test_one_run_a_side_is_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = made(tmp_path / "a", 1.0, 1, runs=1), made(tmp_path / "b", 1.5, 2, runs=1)
    assert code(a, b) == 4
    assert "too few: 1 and 1 windows of 1 and 1 runs" in capsys.readouterr().out


def test_times_of_a_trace_are_never_held_against_counter_passes() -> None:
    a, b = truths.history(truths.Truth(0.2), 1)
    found = compare(a, [replace(r, mode="counters") for r in b], Options(frozenset({"mode"})))
    assert found.verdict is Verdict.NOT_COMPARABLE


def test_one_side_after_the_other_is_said_to_be_confounded() -> None:
    a, b = truths.history(truths.Truth(interleaved=False), 1)
    assert any("interleave" in note for note in compare(a, b).notes)
    a, b = truths.history(truths.Truth(interleaved=True), 1)
    assert not any("interleave" in note for note in compare(a, b).notes)


def test_a_few_windows_of_one_run_speak_of_that_run_alone() -> None:
    found = compare(*truths.history(truths.Truth(0.2, 1, 60, run_effect=0.0), 3))
    (finding,) = found.findings
    assert finding.verdict is Verdict.WORSE
    assert finding.reasons[0].startswith("within this run")


def test_so_few_runs_that_nothing_could_show_are_said_so() -> None:
    found = compare(*truths.history(truths.Truth(0.2, 5, 2, kernels=40, changed=3), 3))
    assert any("take more runs" in note for note in found.notes)


def test_a_driver_that_changed_is_a_reason_and_may_be_declared() -> None:
    a, b = truths.history(truths.Truth(0.2), 1, {"driver": "6.10.5"})
    found = compare(a, b)
    assert found.groups[0].reasons == ("driver: 6.8.5 before, 6.10.5 after",)
    assert compare(a, b, Options(frozenset({"driver"}))).verdict is Verdict.WORSE


def test_names_of_kernels_cannot_break_a_report() -> None:
    a, b = truths.history(truths.Truth(0.2), 1)
    bad = '<script>alert(1)</script>|`x`&"'
    found = compare([replace(r, kernel=bad) for r in a], [replace(r, kernel=bad) for r in b])
    page = report.html(found, ("a<b>", "b"))
    assert "<script>" not in page
    assert "http" not in page.replace("http-equiv", "")
    drawing = page[page.index("<svg") : page.index("</svg>") + 6]
    assert len(ET.fromstring(drawing).findall(".//circle")) == 1
    rows = [line for line in report.markdown(found, ("a", "b")).splitlines() if "script" in line]
    assert all(line.count("|") - line.count("\\|") == 6 for line in rows if line.startswith("|"))


def test_colour_is_for_terminals_only() -> None:
    found = compare(*truths.history(truths.Truth(0.2), 1))
    assert "\x1b[31m" in report.text(found, ("a", "b"), colour=True)
    assert "\x1b" not in report.text(found, ("a", "b"))


@pytest.mark.parametrize(
    ("a", "more", "words"),
    [
        ("nothing/here", {}, "no such folder"),
        ("baseline", {}, "no history there"),
        ("baseline", {"form": "pdf"}, "--format pdf: expected text"),
        ("baseline", {"changed": ("weather",)}, "--changed weather: expected one of"),
        ("baseline", {"fail_on": "rain"}, "--fail-on rain"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, a: str, more: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        code(a, "b", tmp_path, **more)


def test_a_phase_that_was_never_marked_names_those_that_were(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 30, 1e9)
    store.mark("baseline", 100.0)
    store.close()
    with pytest.raises(ConfigError, match="marked phases: baseline"):
        code("after", "baseline", tmp_path)


def kept(folder: Path, start: float = 0.0) -> Path:
    """A history in which the phases take turns; gemm takes 300 ns of old and 360 of new."""
    store = Store(folder, 1 << 30, 1e9)
    draw = random.Random(7)
    for turn in range(12):
        at = start + 1000.0 * turn
        store.mark("new" if turn % 2 else "old", at)
        for i in range(4):
            total = int(100_000 * (1.2 if turn % 2 else 1.0) * draw.gauss(1, 0.01))
            stats = (replace(kernel("gemm", total, calls=2)), kernel("relu", 100_000, calls=2))
            name = window(id=f"w{turn}-{i}", run=f"run{turn}", first=i == 0)
            result = replace(traced(), kernel_stats=stats)
            store.append(name, [result], "ok", at + 10 * (i + 1), contexts={result.gpu: {"driver": "6.8.5"}})
    store.close()
    return folder


def test_phases_of_the_history_are_compared_run_by_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = kept(tmp_path)
    assert code("old", "new", state, form="json") == 3
    found = json.loads(capsys.readouterr().out)
    verdicts = {f["kernel"]: f["verdict"] for f in found["findings"] if f["kernel"]}
    assert verdicts == {"gemm": "worse", "relu": "no clear change"}
    assert {(f["runs"]["a"], f["windows"]["a"]) for f in found["findings"]} == {(6, 18)}
    assert found["environment"]["a"] == {"driver": "6.8.5"}
    assert not any("interleave" in note for note in found["notes"])


def test_another_batch_size_in_the_history_is_not_comparable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path, 1 << 30, 1e9)
    for turn in range(12):
        store.mark("new" if turn % 2 else "old", 1000.0 * turn)
        for i in range(3):
            sizes = {"256x1x1": 0.7, "1024x1x1": 0.3} if turn % 2 else {"256x1x1": 1.0}
            name = f"w{turn}-{i}"
            one = window(id=name, run=f"run{turn}", first=i == 0, grid_mix=sizes, pytorch="2.9.0")
            store.append(one, [traced()], "ok", 1000.0 * turn + 10 * (i + 1))
    store.close()
    assert code("old", "new", tmp_path, form="markdown") == 4
    said = capsys.readouterr().out
    assert "grid-size mix: 30% of the launches differ" in said
    assert "2.9.0" in said


def test_a_time_range_is_a_side_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = kept(tmp_path)
    assert code("0..1000", "1970-01-01T00:16:40..2000", state) == 4
    assert "too few: 3 and 3 windows of 1 and 1 runs" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"expected SINCE\.\.UNTIL"):
        code("2000..1000", "old", state)


def test_a_history_is_read_without_a_change_to_it(tmp_path: Path) -> None:
    state = kept(tmp_path)
    (state / "history.db").chmod(0o444)
    before = (state / "history.db").read_bytes()
    code("old", "new", state)
    assert (state / "history.db").read_bytes() == before


def test_what_is_no_history_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match=r"history\.db: cannot be read as a history"):
        code("old", "new", tmp_path)


def test_an_empty_folder_is_one_line(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "a")
    with pytest.raises(ConfigError, match="no profiler output"):
        code(tmp_path / "a", tmp_path / "a")
