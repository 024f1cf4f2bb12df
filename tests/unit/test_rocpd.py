"""rocpd databases: what their tables say, the ids that may be mixed up, and files that nobody vouches for."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from exporter.formats.trace import Decoded, Names
from exporter.model import DeviceId, WindowResult
from exporter.windows import intake, rocpd
from tests.unit.made_traces import K, kernels
from tests.unit.rocpdmade import GUIDS, Copy, Kernel, Maker, Region


def made(
    path: Path, rows: Sequence[Kernel], calls: Sequence[Region] = (), copies: Sequence[Copy] = ()
) -> Path:
    Maker(path).fill(rows, calls, copies).close()
    return path


def only(*paths: Path) -> WindowResult:
    (result,) = intake.load(paths).results
    return result


def read(path: Path) -> tuple[Decoded, list[str]]:
    notes: list[str] = []
    return intake.read_file(path, Names(), notes), notes


# --- real rows ---------------------------------------------------------------------------------------


def test_the_rebuilt_trace_reaches_its_values(samples: Path):
    path = samples / "profiler/rocpd-rebuilt/decode_trace_results.db"
    decoded, notes = read(path)
    assert (len(decoded.kernels), len(decoded.calls), notes, decoded.skipped) == (144, 920, [], {})
    assert sum(e - s for s, e in zip(decoded.kernels.start, decoded.kernels.end, strict=True)) == 1_857_381
    result = only(path)
    assert (result.kernels, result.execution_ns, result.span_ns) == (144, 1_857_381, 180_266_420)
    by_launch = {s.launch: (s.count, s.queue_ns) for s in result.launch_stats}
    assert by_launch == {"kernel": (2, 3_071_995 + 107_271), "graph": (1, 13_258)}
    assert result.unmatched_kernels == 117


def test_the_database_and_the_tables_of_one_run_give_the_same(samples: Path):
    folder = samples / "profiler"
    tables = [folder / f"rocprofv3-gfx1151/decode_{kind}_trace.csv" for kind in ("kernel", "hip_api")]
    assert only(folder / "rocpd-rebuilt/decode_trace_results.db") == only(*tables)
    counted = only(folder / "rocprofv3-gfx1151/decode_stall_counter_collection.csv")
    assert only(folder / "rocpd-rebuilt/decode_stall_results.db") == counted


def test_the_rebuilt_counters_reach_their_sums(samples: Path):
    truth = json.loads((samples / "profiler/expected.json").read_text())
    stated = truth["rocprofv3-gfx1151/decode_stall_counter_collection.csv"]
    result = only(samples / "profiler/rocpd-rebuilt/decode_stall_results.db")
    assert dict(result.counters) == pytest.approx(stated["sum"])
    assert (result.kernels, result.execution_ns) == (stated["dispatches"], stated["durations"]["total_ns"])


# --- what the tables mean ----------------------------------------------------------------------------


def test_a_gpu_is_named_by_what_its_agent_row_carries(tmp_path: Path):
    result = only(made(tmp_path / "a_results.db", [Kernel(1000, 1500, 1)]))
    assert (result.gpu, result.device) == ("0000:75:00.0", DeviceId("0000:75:00.0"))


def test_stack_ids_of_two_processes_never_meet(tmp_path: Path):
    path = tmp_path / "merged.db"
    Maker(path, 0, pid=7).fill([Kernel(1000, 1500, 1)], [Region(900, 950, 1)]).close()
    Maker(path, 1, pid=7).fill([Kernel(5000, 5500, 1)], [Region(4000, 4100, 1)]).close()
    result = only(path)
    assert (result.paired, result.queue_ns) == (2, 100 + 1000)


def test_stack_ids_of_two_threads_never_meet(tmp_path: Path):
    result = only(
        made(tmp_path / "a.db", [Kernel(1000, 1500, 1, tid=8)], [Region(900, 950, 1), Region(1, 2, 5, tid=8)])
    )
    assert (result.paired, result.unmatched_kernels) == (0, 1)


def test_agents_of_two_nodes_in_one_file_stay_apart(tmp_path: Path):
    path = tmp_path / "merged.db"
    Maker(path, 0, machine="m1").fill([Kernel(1000, 1500, 1)]).close()
    Maker(path, 1, machine="m2").fill([Kernel(1000, 1600, 1)]).close()
    results = {r.gpu: (r.execution_ns, r.device) for r in intake.load([path]).results}
    assert results == {"host-m1/Agent 4": (500, None), "host-m2/Agent 4": (600, None)}


def test_a_kernel_under_an_hsa_call_belongs_to_the_hip_call_around_it(tmp_path: Path):
    calls = [
        Region(800, 950, 11),
        Region(900, 940, 12, "hsa_signal_store", 11, category="HSA_CORE_API"),
        Region(910, 920, 13, "hsa_queue_add", 12, category="HSA_CORE_API"),
    ]
    result = only(made(tmp_path / "a.db", [Kernel(1000, 1500, 13)], calls))
    assert (result.paired, result.queue_ns) == (1, 200)


def test_calls_that_enclose_each_other_in_a_ring_end(tmp_path: Path):
    ring = [
        Region(800 + i, 950, 1 + i, f"hsa_{i}", 1 + (i + 1) % 3, category="HSA_CORE_API") for i in range(3)
    ]
    assert only(made(tmp_path / "a.db", [Kernel(1000, 1500, 2)], ring)).kernels == 1


def test_the_text_of_a_marker_is_no_call(tmp_path: Path):
    marker = Region(100, 5000, 9, "cudaLaunchEverything", category="MARKER_CORE_RANGE_API")
    result = only(made(tmp_path / "a.db", [Kernel(1000, 1500, 1)], [Region(900, 950, 1), marker]))
    assert (result.paired, result.launch_call_count) == (1, 1)


def test_counters_are_added_over_their_instances(tmp_path: Path):
    counted = [
        ("TCC_HIT", 3.0),
        ("TCC_HIT", 4.0),
        ("TCC_MISS[0]", 1.0),
        ("TCC_MISS[1]", 2.0),
        ("SQ_WAVES", 8.0),
    ]
    result = only(made(tmp_path / "a.db", [Kernel(1000, 1500, 1, counters=counted), Kernel(2000, 2100, 2)]))
    assert dict(result.counters) == {"TCC_HIT": 7.0, "TCC_MISS": 3.0, "SQ_WAVES": 8.0}
    assert (result.l2_hits, result.l2_requests) == (7.0, 10.0)


def test_times_that_imply_an_impossible_clock_are_refused(tmp_path: Path):
    path = made(tmp_path / "a.db", [Kernel(1000, 4_400_001_000, 1, counters=[("GRBM_COUNT", 40_539.0)])])
    decoded, _ = read(path)
    assert (decoded.skipped, len(decoded.kernels)) == ({"implausible": 1}, 0)
    assert [(d.duration_ns, d.counters) for d in decoded.dispatches] == [(None, {"GRBM_COUNT": 40_539.0})]


def test_copies_carry_their_bytes(tmp_path: Path):
    copies = [
        Copy(10, 20, "MEMORY_COPY_HOST_TO_DEVICE", 4096),
        Copy(30, 40, "MEMORY_COPY_DEVICE_TO_HOST", "big"),
    ]
    path = made(tmp_path / "a.db", [Kernel(1000, 1500, 1)], copies=copies)
    names = Names()
    decoded = intake.read_file(path, names, [])
    assert list(decoded.copies.size) == [4096, -1]
    assert [names.texts()[i] for i in decoded.copies.direction] == ["host_to_device", "device_to_host"]
    assert [decoded.lanes[i].agent for i in decoded.copies.target] == ["Agent 4", "Agent 4"]


def test_rows_that_the_view_of_kernels_hides_are_counted_and_used(tmp_path: Path):
    rows = [
        Kernel(1000, 1500, 1),
        Kernel(2000, 2500, 2, changes={"region_name_id": 999}),
        Kernel(3000, 3500, 3, changes={"kernel_id": 999}),
        Kernel(4000, 4500, 4, changes={"queue_id": 999}),
        Kernel(5000, 5500, 5, changes={"tid": 999}),
        Kernel(6000, 6500, 6, changes={"event_id": 999}),
        Kernel(7000, 7500, 7, changes={"agent_id": 999}),
    ]
    path = made(tmp_path / "a.db", rows)
    analysis = intake.load([path])
    (source,), (result,) = analysis.sources, analysis.results
    assert (result.kernels, result.execution_ns) == (6, 3000)
    assert (source.rows, dict(source.skipped)) == (6, {"no_agent": 1, "dangling": 6})
    assert len(analysis.notes) == 1
    assert "6 dispatches" in analysis.notes[0]
    assert {k.kernel for k in result.kernel_stats} == {"k", "unknown_kernel"}


def test_a_run_in_three_formats_counts_once(tmp_path: Path):
    made(tmp_path / "9_results.db", [Kernel(1000, 1500, 1)])
    (tmp_path / "9_kernel_trace.csv").write_bytes(kernels([K(1000, 1500, 1)]))
    (tmp_path / "8_kernel_trace.csv").write_bytes(kernels([K(2000, 2100, 1)]))
    analysis = intake.load([tmp_path])
    assert sorted(r.execution_ns for r in analysis.results if r.execution_ns) in ([100, 500], [600])
    assert {Path(s.path).name: s.rows for s in analysis.sources} == {
        "8_kernel_trace.csv": 1,
        "9_kernel_trace.csv": 0,
        "9_results.db": 1,
    }
    assert [note.split(": ")[0] for note in analysis.notes] == [str(tmp_path / "9_kernel_trace.csv")]


def test_tables_without_a_suffix_are_read_too(tmp_path: Path):
    path = made(tmp_path / "a.db", [Kernel(1000, 1500, 1)], [Region(900, 950, 1)])
    suffix = "_" + GUIDS[0].replace("-", "_")
    with sqlite3.connect(path) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            db.execute(f'ALTER TABLE "{name}" RENAME TO "{name.removesuffix(suffix)}"')
    db.close()
    assert only(path).queue_ns == 100


def test_a_newer_schema_is_named_and_read_as_far_as_it_fits(tmp_path: Path):
    path = tmp_path / "a.db"
    maker = Maker(path).fill([Kernel(1000, 1500, 1)])
    maker.run("UPDATE \"rocpd_metadata{}\" SET value = '4.1'", 'DROP TABLE "rocpd_info_pmc{}"').close()
    decoded, notes = read(path)
    assert len(decoded.kernels) == 1
    assert len(notes) == 1
    assert "4.1" in notes[0]


# --- files that nobody vouches for -------------------------------------------------------------------

ODD = {
    "no rocpd table": (
        ['DROP TABLE "rocpd_kernel_dispatch{}"', 'DROP TABLE "rocpd_region{}"'],
        "none of rocpd",
    ),
    "no end column": (['ALTER TABLE "rocpd_kernel_dispatch{}" DROP COLUMN "end"'], "has no end"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_database_that_cannot_be_used_gives_one_line(tmp_path: Path, case: str):
    statements, says = ODD[case]
    path = tmp_path / "a.db"
    Maker(path).fill([Kernel(1000, 1500, 1)]).run(*statements).close()
    analysis = intake.load([path])
    assert (analysis.results, len(analysis.notes)) == ((), 1)
    assert says in analysis.notes[0]
    assert str(path) in analysis.notes[0]
    assert analysis.sources[0].format is None


@pytest.mark.parametrize(
    "kind", ["string", "info_agent", "info_thread", "info_kernel_symbol", "event", "info_queue"]
)
def test_a_missing_dictionary_makes_no_number_up(tmp_path: Path, kind: str):
    path = tmp_path / "a.db"
    maker = Maker(path).fill([Kernel(1000, 1500, 1)], [Region(900, 950, 1)])
    maker.run(f'DROP TABLE "rocpd_{kind}{{}}"').close()
    analysis = intake.load([path])
    assert sum(r.kernels for r in analysis.results) == (0 if kind == "info_agent" else 1)
    assert all(r.execution_ns in (500, None) for r in analysis.results)
    assert analysis.sources[0].skipped


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("start", "soon", "malformed"),
        ("start", 1000.5, "malformed"),
        ("start", None, "malformed"),
        ("end", b"\xff\xfe", "malformed"),
        ("start", 0, "invalid"),
        ("start", -5, "invalid"),
        ("end", 999, "invalid"),
    ],
)
def test_values_of_a_wrong_kind_cost_their_row_alone(tmp_path: Path, column: str, value: object, reason: str):
    rows = [Kernel(1000, 1500, 1, changes={column: value}), Kernel(2000, 2500, 2)]
    decoded, _ = read(made(tmp_path / "a.db", rows))
    assert (list(decoded.kernels.start), decoded.skipped) == ([2000], {reason: 1})


def test_names_that_are_no_text_are_missing_names(tmp_path: Path):
    path = tmp_path / "a.db"
    maker = Maker(path).fill([Kernel(1000, 1500, 1)])
    maker.run("UPDATE \"rocpd_info_kernel_symbol{}\" SET display_name = x'00ff', kernel_name = 5").close()
    (kernel,) = only(path).kernel_stats
    assert kernel.kernel == "unknown_kernel"


def test_views_in_the_file_are_never_asked(tmp_path: Path):
    path = tmp_path / "a.db"
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    maker = Maker(path).fill([Kernel(1000, 1500, 1)])
    maker.run(
        f"CREATE VIEW kernels AS {endless} SELECT i FROM n",
        f'CREATE VIEW rocpd_kernel_dispatch AS {endless} SELECT i AS start, i AS "end" FROM n',
    ).close()
    assert only(path).execution_ns == 500


def test_columns_that_compute_are_no_data(tmp_path: Path):
    path = tmp_path / "a.db"
    maker = Maker(path).fill([Kernel(1000, 1500, 1)])
    maker.run(
        'ALTER TABLE "rocpd_kernel_dispatch{}" DROP COLUMN "stream_id"',
        'ALTER TABLE "rocpd_kernel_dispatch{}" ADD COLUMN "stream_id" AS (hex(zeroblob(100000000)))',
    ).close()
    assert only(path).execution_ns == 500


def test_work_beyond_what_the_size_explains_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rocpd, "_STEPS_LEAST", 0)
    monkeypatch.setattr(rocpd, "_STEPS_PER_BYTE", 0)
    monkeypatch.setattr(rocpd, "_STEPS", 100)
    decoded, notes = read(made(tmp_path / "a.db", [Kernel(1000 + i, 1500 + i, i) for i in range(1, 500)]))
    assert decoded.note is not None or decoded.partial
    assert len(notes) == 1
    assert "more work" in notes[0]


@pytest.mark.parametrize("beside", ["-wal", "-journal"])
def test_a_database_still_being_written_is_left_alone(tmp_path: Path, beside: str):
    path = made(tmp_path / "a.db", [Kernel(1000, 1500, 1)])
    Path(f"{path}{beside}").write_bytes(b"pages")
    decoded, notes = read(path)
    assert (decoded.rows, len(notes)) == (0, 1)
    assert f"a.db{beside}" in notes[0]


def test_reading_leaves_no_file_and_no_change(tmp_path: Path):
    path = made(tmp_path / "a.db", [Kernel(1000, 1500, 1)])
    before = path.read_bytes()
    path.chmod(0o444)
    only(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.db"]


def test_a_name_with_url_characters_is_one_file(tmp_path: Path):
    path = made(tmp_path / "a?mode=rw&x#é%20.db", [Kernel(1000, 1500, 1)])
    assert only(path).execution_ns == 500


def test_a_compressed_database_says_to_unpack_it(tmp_path: Path):
    path = tmp_path / "a.db.gz"
    path.write_bytes(gzip.compress(made(tmp_path / "a.db", [Kernel(1000, 1500, 1)]).read_bytes()))
    _, notes = read(path)
    assert len(notes) == 1
    assert "gunzip" in notes[0]


def test_cut_files_give_one_line_or_what_is_whole(tmp_path: Path):
    whole = made(
        tmp_path / "a.db", [Kernel(1000 + i, 1500 + i, i, f"k{i % 50}") for i in range(1, 2000)]
    ).read_bytes()
    path = tmp_path / "cut.db"
    for share in (0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        decoded, notes = read(path)
        assert len(notes) == 1, share
        assert decoded.partial or decoded.note, share
        spans = zip(decoded.kernels.start, decoded.kernels.end, strict=True)
        assert all(end - start == 500 and 1000 < start < 3000 for start, end in spans)


def test_random_damage_never_raises_and_never_makes_a_time(tmp_path: Path):
    rng = random.Random(5)
    rows = [Kernel(1000 * i, 1000 * i + 500, i, f"k{i % 7}") for i in range(1, 300)]
    whole = made(
        tmp_path / "a.db", rows, [Region(1000 * i - 50, 1000 * i - 20, i) for i in range(1, 300)]
    ).read_bytes()
    path = tmp_path / "bad.db"
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 10, 300])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        decoded, notes = read(path)
        assert all(len(note.splitlines()) == 1 for note in notes)
        assert all(0 < s <= e for s, e in zip(decoded.kernels.start, decoded.kernels.end, strict=True))


def test_a_large_database_is_read_in_bounded_memory(tmp_path: Path):
    path = tmp_path / "large_results.db"
    maker = Maker(path).fill([Kernel(1000, 1500, 1)], [Region(900, 950, 1)])
    maker.run(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) "
        f"INSERT INTO \"rocpd_event{{}}\" SELECT i + 10, '{GUIDS[0]}', 2, i, 0, 0 FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) "
        f"INSERT INTO \"rocpd_region{{}}\" SELECT i, '{GUIDS[0]}', 1, 7, 7, i * 1000, i * 1000 + 50, 2, "
        "i + 10 FROM n",
        'INSERT INTO "rocpd_kernel_dispatch{}" SELECT R.id, R.guid, 1, 7, 7, 4, K.kernel_id, R.id, 1, 0, '
        "R.start + 100, R.start + 600, K.region_name_id, R.event_id "
        'FROM "rocpd_region{}" R, "rocpd_kernel_dispatch{}" K WHERE R.id > 1 AND K.id = 1',
    ).close()
    script = (
        "import re, sys; from pathlib import Path; from exporter.windows import intake\n"
        "(r,) = intake.load([Path(sys.argv[1])]).results\n"
        # Not ru_maxrss: that carries over the peak of the process that started this one.
        "peak = int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) // 1024\n"
        "print(r.kernels, r.paired, r.queue_ns, peak)"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    kernels_read, paired, queue, mib = map(int, out.stdout.split())
    assert (kernels_read, paired, queue) == (200_000, 200_000, 100 * 200_000)
    assert mib < 200
