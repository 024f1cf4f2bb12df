"""What a window's writer knew beside its rows: several windows in a file, co-tenants, the busy counter."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_traces import BASE, C, K, load, window

from exporter.model import Bottleneck, WindowResult
from exporter.windows.spans import split

PCI = "0000:03:00.0"
AGENTS = {"Agent 4": PCI}
STATES = ("executing", "queued", "launching", "starved")


def timeline(result: WindowResult) -> list[int | None]:
    return [result.timeline_ns[state] for state in STATES]


def launched(start: int, call: int, number: int, run: int = 100) -> tuple[K, C]:
    """A call of 20 ns at ``call``, and its kernel at ``start``."""
    return K(start, start + run, number), C(call, call + 20, number)


def many(*pairs: tuple[K, C]) -> dict[str, list[K] | list[C]]:
    return {"kernel_rows": [k for k, _ in pairs], "call_rows": [c for _, c in pairs]}


# --- several windows in one file ------------------------------------------------------------------------


def test_rows_half_a_pause_apart_are_windows_of_their_own(tmp_path: Path) -> None:
    # Two windows with a pause of 10,000 between them. First: kernels 100..200 and 300..400, calls at 50 and
    # 250: executing 200, launching 250..270 = 20, queued 270..300 = 30, starved 200..250 = 50, span 300.
    # Second: one kernel 10,500..10,600.
    rows = many(launched(100, 50, 1), launched(300, 250, 2), launched(10_500, 10_450, 3))
    folder = window(tmp_path / "w", **rows, pause_ns=10_000, agents=AGENTS)
    first, second = load(folder).results
    assert (first.span_ns, first.span_kind, timeline(first)) == (300, "kernels", [200, 30, 20, 50])
    assert (second.span_ns, timeline(second)) == (100, [100, 0, 0, 0])
    assert [r.kernels for r in (first, second)] == [2, 1]
    assert [r.paired for r in (first, second)] == [2, 1]


def test_without_the_pause_the_same_file_would_starve(tmp_path: Path) -> None:
    rows = many(launched(100, 50, 1), launched(300, 250, 2), launched(10_500, 10_450, 3))
    [whole] = load(window(tmp_path / "w", **rows, agents=AGENTS)).results
    assert whole.timeline_ns["starved"] == 10_100


def test_planned_bounds_go_before_the_pause(tmp_path: Path) -> None:
    rows = many(launched(100, 50, 1), launched(10_500, 10_450, 2))
    folder = window(tmp_path / "w", **rows, bounds=(0, 1_000), pause_ns=10_000, agents=AGENTS)
    [result] = load(folder).results
    assert (result.span_ns, result.span_kind, result.kernels) == (1_000, "planned", 1)


def test_windows_of_several_processes_are_where_all_of_them_were_seen() -> None:
    a = ([100, 300, 20_000], [200, 400, 20_500])
    b = ([150, 20_100], [350, 20_600])
    assert split([a, b], 10_000) == [(150, 350), (20_100, 20_500)]


def test_processes_that_never_meet_share_no_window() -> None:
    assert split([([100], [200]), ([300], [400])], 10_000) == []
    assert split([], 10_000) == []


def test_a_long_kernel_holds_its_window_together() -> None:
    assert split([([0, 9_000], [9_000, 9_500])], 10_000) == [(0, 9_500)]


# --- several processes on one GPU -----------------------------------------------------------------------


def two_processes(folder: Path, **manifest: object) -> Path:
    """Process 7 runs 100..200 and 500..600, process 8 runs 250..350; calls 20 long, 50 before each kernel."""
    one = many(launched(100, 50, 1), launched(500, 450, 2))
    window(folder, **one, pid=7)
    other = many(launched(250, 200, 1))
    return window(folder, **other, pid=8, bounds=(0, 1_000), agents=AGENTS, **manifest)


def test_two_traced_processes_are_merged_before_the_timeline(tmp_path: Path) -> None:
    # Union of kernels: 300. Launching: 50..70, 200..220, 450..470 = 60. Queued: 70..100, 220..250, 470..500.
    [result] = load(two_processes(tmp_path / "w")).results
    assert timeline(result) == [300, 90, 60, 550]
    assert result.paired == 3  # correlation 1 of either process is its own


def test_a_process_that_was_not_traced_leaves_only_executing(tmp_path: Path) -> None:
    [known] = load(two_processes(tmp_path / "a", processes_seen={PCI: 2})).results
    assert (timeline(known), known.timeline_reason) == ([300, 90, 60, 550], None)
    [result] = load(two_processes(tmp_path / "b", processes_seen={PCI: 3})).results
    assert timeline(result) == [300, None, None, None]
    assert (result.timeline_reason, result.bottleneck) == ("untraced_process", Bottleneck.UNKNOWN)
    assert result.queue_ns == 150  # what its own launches waited is known all the same


@pytest.mark.parametrize(
    ("busy", "reason"), [(0.30, None), (0.39, None), (0.21, None), (0.41, "incomplete_trace")]
)
def test_a_trace_that_shows_less_than_the_busy_counter_is_incomplete(
    tmp_path: Path, busy: float, reason: str | None
) -> None:
    [result] = load(two_processes(tmp_path / "w", busy_ratio={PCI: busy})).results
    assert result.timeline_reason == reason
    assert result.timeline_ns["executing"] == 300
    assert (result.timeline_ns["starved"] is None) == (reason is not None)


def test_numbers_of_another_gpu_say_nothing_of_this_one(tmp_path: Path) -> None:
    folder = two_processes(
        tmp_path / "w", processes_seen={"0000:99:00.0": 9}, busy_ratio={"0000:99:00.0": 1.0}
    )
    [result] = load(folder).results
    assert result.timeline_reason is None


@pytest.mark.parametrize(
    "manifest",
    [
        {"pause_ns": -1},
        {"pause_ns": "10s"},
        {"processes_seen": {"GPU": 2}},
        {"processes_seen": {PCI: "two"}},
        {"processes_seen": {PCI: float("nan")}},
        {"processes_seen": {PCI: True}},
        {"busy_ratio": {PCI: -0.5}},
        {"uid": "root"},
    ],
)
def test_a_part_of_a_manifest_that_makes_no_sense_costs_itself(
    tmp_path: Path, manifest: dict[str, object]
) -> None:
    analysis = load(two_processes(tmp_path / "w", **manifest))
    assert timeline(analysis.results[0]) == [300, 90, 60, 550]
    assert any(next(iter(manifest)) in note for note in analysis.notes)


def test_times_are_those_of_the_rows(tmp_path: Path) -> None:
    folder = window(tmp_path / "w", **many(launched(100, 50, 1)), bounds=(0, 1_000), agents=AGENTS)
    assert load(folder).window.bounds == (BASE, BASE + 1_000)
