"""Real and hostile profiler output from the shared library, against the values stated beside it."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from exporter.checks.analyze import as_dict
from exporter.formats.trace import Names
from exporter.model import Window, WindowResult
from exporter.windows import intake
from exporter.windows.assemble import Assembly
from exporter.windows.density import l2_by_dispatch
from exporter.windows.intake import Analysis
from exporter.windows.join import GRAPH, KERNEL, MEMORY, Pair, pairs


def load(*paths: Path) -> Analysis:
    return intake.load(list(paths))


def only(analysis: Analysis) -> WindowResult:
    assert len(analysis.results) == 1, [r.gpu for r in analysis.results]
    return analysis.results[0]


def assembled(*paths: Path) -> Assembly:
    names, files = Names(), []
    for path in paths:
        decoded = intake.read_file(path, names, [])
        files.append(intake._placed(path, path.parent, decoded, False))
    return Assembly(files, names)


def pairs_of(*paths: Path) -> list[Pair]:
    assembly = assembled(*paths)
    found: list[Pair] = []
    for (process, gpu), joined in assembly.joined.items():
        found += pairs(assembly.work[process].kernels[gpu], joined, assembly._texts)
    return found


def durations(path: Path) -> list[int]:
    decoded = intake.read_file(path, Names(), [])
    return [e - s for s, e in zip(decoded.kernels.start, decoded.kernels.end, strict=True)]


def names_of(path: Path) -> list[str]:
    names = Names()
    decoded = intake.read_file(path, names, [])
    return [names.texts()[i] for i in decoded.kernels.name]


# --- launch traces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["launch_bound", "gpu_bound", "host_starved", "small_mlp_graph"])
def test_launch_traces_reach_every_stated_value(samples: Path, name: str):
    folder = samples / "launch-traces"
    truth = json.loads((folder / "expected.json").read_text())[name]
    answer = as_dict(load(folder / f"{name}.json.gz"))
    (gpu,) = answer["gpus"]
    assert (gpu["kernels"], gpu["launches"]) == (truth["kernels"], truth["launches"])
    for key, stated in (
        ("span_seconds", "span_us"),
        ("queue_seconds", "queue_sum_us"),
        ("launch_duration_seconds", "launch_duration_sum_us"),
        ("launch_call_seconds", "launch_call_sum_us"),
        ("execution_seconds", "execution_sum_us"),
        ("queue_p50_seconds", "queue_p50_us"),
    ):
        assert gpu[key] * 1e6 == pytest.approx(truth[stated], abs=1.0), key
    assert gpu["queue_delay_ratio"] == pytest.approx(truth["queue_delay_ratio"], abs=1e-3)
    assert gpu["timeline_ratio"] == pytest.approx(truth["timeline_ratio"], abs=1e-3)
    assert sum(gpu["timeline_ratio"].values()) == pytest.approx(1, abs=1e-12)
    assert gpu["skewed_launches"] == truth["negative_from_api_start"]
    assert gpu["bottleneck"] == truth["bottleneck"]
    (source,) = answer["sources"]
    assert (source["format"], source["partial"], source["skipped"]) == ("pytorch-trace", False, {})


# --- real files --------------------------------------------------------------------------------------

TRACES = [
    "rocprofv3-docs-7.0/kernel_trace.csv",
    "rocprofv3-docs-6.3/kernel_trace.csv",
    "rocprofv3-gfx1151/decode_kernel_trace.csv",
    "hpctraining-readme/openmp_rocm62_kernel_trace.csv",
    "hpctraining-readme/jacobi_rocm63_kernel_trace.csv",
]


@pytest.mark.parametrize("name", TRACES)
def test_kernel_traces_reach_their_totals(samples: Path, name: str):
    path = samples / "profiler" / name
    truth = json.loads((samples / "profiler" / "expected.json").read_text())[name]
    result = only(load(path))
    assert result.kernels == truth["dispatches"]
    assert result.execution_ns == truth["total_ns"]
    assert result.execution_ns / result.kernels == pytest.approx(truth["mean_ns"])
    assert result.span_ns == truth["wall_ns"]
    assert len(result.kernel_stats) == truth["distinct_kernels"]
    found = {(k.kernel[:80], k.calls, k.total_ns) for k in result.kernel_stats}
    assert {(k["kernel"], k["count"], k["total_ns"]) for k in truth["top3"]} <= found
    assert [result.gpu] == truth["agents"]
    assert result.busy_ns <= result.span_ns
    assert (min(durations(path)), max(durations(path))) == (truth["min_ns"], truth["max_ns"])


def test_the_63_trace_overlaps_so_busy_is_the_union_and_not_the_sum(samples: Path):
    result = only(load(samples / "profiler/rocprofv3-docs-6.3/kernel_trace.csv"))
    assert (result.execution_ns, result.span_ns) == (795_453, 301_795)
    assert result.busy_ns < result.span_ns < result.execution_ns


@pytest.mark.parametrize(
    "name",
    [
        "rocprofv3-docs-7.0/counter_collection.csv",
        "rocprofv3-docs-6.3/counter_collection.csv",
        "rocprofv3-gfx1151/decode_stall_counter_collection.csv",
        "rocprofv3-gfx1151/decode_fetch_counter_collection.csv",
        "hpctraining-readme/shallow_valubusy_counter_collection.csv",
    ],
)
def test_counter_files_reach_their_sums(samples: Path, name: str):
    truth = json.loads((samples / "profiler" / "expected.json").read_text())[name]
    analysis = load(samples / "profiler" / name)
    result = only(analysis)
    assert dict(result.counters) == pytest.approx(truth["sum"])
    assert result.kernels == truth["dispatches"]
    assert {k: v / result.kernels for k, v in result.counters.items()} == pytest.approx(truth["mean"])
    assert analysis.sources[0].rows == truth["rows"]
    if "durations" in truth:
        assert result.execution_ns == truth["durations"]["total_ns"]
        assert result.span_ns == truth["durations"]["wall_ns"]
    else:
        assert (result.execution_ns, result.span_ns) == (None, None)


def test_the_fetch_size_gives_the_stated_bandwidth(samples: Path):
    result = only(load(samples / "profiler/rocprofv3-gfx1151/decode_fetch_counter_collection.csv"))
    assert result.counters["FETCH_SIZE"] * 1024 / result.execution_ns == pytest.approx(92.7, abs=0.05)


def test_the_gfx1151_join_finds_each_kind_of_call(samples: Path):
    folder = samples / "profiler/rocprofv3-gfx1151"
    files = folder / "decode_kernel_trace.csv", folder / "decode_hip_api_trace.csv"
    found = pairs_of(*files)
    by_kind = {kind: [p for p in found if p.kind == kind] for kind in (KERNEL, GRAPH, MEMORY)}
    assert [p.queue_ns for p in by_kind[KERNEL]] == [3_071_995, 107_271]
    assert [p.end_delay_ns for p in by_kind[KERNEL]] == [25_389, 104_266]
    assert [(p.function, p.queue_ns) for p in by_kind[MEMORY]] == [("hipMemcpyAsync", 24_375)]
    assert [(p.queue_ns, p.end_delay_ns) for p in by_kind[GRAPH]] == [(13_258, -414_086)]
    result = only(load(*files))
    assert (result.unmatched_kernels, result.kernels, result.launches) == (117, 144, 3)
    assert {s.launch: s.count for s in result.launch_stats} == {"kernel": 2, "graph": 1}


def test_copies_read_with_their_directions(samples: Path):
    for name, agent in (("7.0", "Agent 4"), ("6.3", "1")):
        path = samples / f"profiler/rocprofv3-docs-{name}/memory_copy_trace.csv"
        truth = json.loads((samples / "profiler/expected.json").read_text())[
            f"rocprofv3-docs-{name}/memory_copy_trace.csv"
        ]
        names = Names()
        copies = intake.read_file(path, names, []).copies
        assert len(copies) == truth["dispatches"]
        assert sum(copies.end) - sum(copies.start) == truth["total_ns"]
        ways = {names.texts()[i] for i in copies.direction}
        assert ways == {"host_to_device", "device_to_host"}
        assert [r.gpu for r in load(path).results] == [agent]


# --- rocprof-compute, v1, v2 -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hits", "requests", "mean", "density"),
    [
        ("MI200", 212_616, 212_616 + 393_246, 17_440.0, 491_520 / (112_684 * 104)),
        ("MI100", 282, 787_542, 62_560 / 3, 491_520 / (135_987 * 120)),
        ("MI300X_A1", 197_232, 197_232 + 393_959, None, None),
    ],
)
def test_wide_workloads_reach_their_values(samples: Path, name, hits, requests, mean, density):
    folder = samples / "profiler/rocprof-compute-vcopy" / name
    truth = json.loads((samples / "profiler/expected.json").read_text())[
        f"rocprof-compute-vcopy/{name}/pmc_perf.csv"
    ]
    result = only(load(folder))
    assert (result.l2_hits, result.l2_requests) == (hits, requests)
    assert result.l2_hit_ratio == pytest.approx(truth["derived"]["l2_hit_ratio"])
    assert result.valu_instructions == truth["derived"]["SQ_INSTS_VALU_total"]
    for counter in ("SQ_WAVES", "SQ_ACTIVE_INST_VALU", "SQ_THREAD_CYCLES_VALU"):
        assert result.counters[counter] == truth["derived"][f"{counter}_total"]
    assert result.kernels == 3
    if mean is None:
        assert result.execution_ns is None
    else:
        assert result.execution_ns / 3 == pytest.approx(mean)
    alone = only(load(folder / "pmc_perf.csv"))
    for counter in ("GRBM_GUI_ACTIVE", "GRBM_COUNT"):
        assert alone.counters[counter] == truth["derived"][f"{counter}_total"]
    if density is None:
        assert result.compute_density_ratio is None  # without times nobody knows how GRBM was summed
    else:
        with_machine = only(load(folder / "pmc_perf.csv", folder / "sysinfo.csv"))
        assert with_machine.compute_density_ratio == pytest.approx(density)


@pytest.mark.parametrize(("name", "units", "stated"), [("MI200", 104, 4.194), ("MI100", 120, 3.313)])
def test_valu_busy_follows_from_the_sums(samples: Path, name: str, units: int, stated: float):
    counters = only(load(samples / f"profiler/rocprof-compute-vcopy/{name}/pmc_perf.csv")).counters
    busy = 100 * counters["SQ_ACTIVE_INST_VALU"] / (counters["GRBM_GUI_ACTIVE"] * units)
    assert busy == pytest.approx(stated, abs=5e-4)
    assert counters["SQ_THREAD_CYCLES_VALU"] / counters["SQ_ACTIVE_INST_VALU"] == 64


@pytest.mark.parametrize(
    ("name", "queue"), [("MI200", [25_237, 82_220, 9_923]), ("MI100", [25_883, 87_064, 7_941])]
)
def test_dispatch_times_stand_for_launches(samples: Path, name: str, queue: list[int]):
    path = samples / f"profiler/rocprof-compute-vcopy/{name}/timestamps.csv"
    assert [p.queue_ns for p in pairs_of(path)] == queue
    result = only(load(path))
    assert (result.queue_ns, result.launches) == (sum(queue), 3)
    assert result.queue_delay_ratio == pytest.approx(sum(queue) / (sum(queue) + sum(durations(path))))
    assert (result.launch_call_ns, result.timeline_reason) == (None, "no_launch_calls")
    assert result.timeline_ns["executing"] is not None
    assert result.timeline_ns["starved"] is None
    if name == "MI200":
        assert durations(path) == [20_480, 16_320, 15_520]
        assert (result.queue_ns, result.launch_duration_ns) == (117_380, 169_700)


def test_dispatch_times_of_another_run_are_not_queue_times(samples: Path):
    # rocprof-compute overwrites Begin and End with those of another run; DispatchNs is then minutes off.
    result = only(load(samples / "profiler/rocprof-compute-vcopy/MI200/SQ_IFETCH_LEVEL.csv"))
    assert (result.queue_ns, result.launches) == (None, 0)


def test_damaged_timestamps_are_refused_and_counted(samples: Path):
    folder = samples / "profiler/rocprof-compute-vcopy/MI300X_A1"
    analysis = load(folder / "timestamps.csv")
    assert dict(analysis.sources[0].skipped) == {"implausible": 3}
    assert [r.execution_ns for r in analysis.results] == [None]
    analysis = load(folder / "pmc_perf.csv")
    assert dict(analysis.sources[0].skipped) == {"implausible": 3}
    assert only(analysis).kernel_stats == ()


def test_the_long_workload_counts_each_dispatch_once(samples: Path):
    folder = samples / "profiler/rocprof-compute-vcopy/MI300X_A1_rocpd"
    analysis = load(folder / "pmc_perf.csv")
    result = only(analysis)
    assert (analysis.sources[0].rows, result.kernels) == (6027, 3)
    assert (result.l2_hits, result.l2_requests) == (205_488, 599_008)
    assert result.valu_instructions == 294_912
    # The stated 7143.33 was computed with floats, which hold these times only to 2 ns.
    assert result.execution_ns / 3 == pytest.approx(7_143.33, abs=1)
    assert result.counters["GRBM_COUNT"] == 749_478
    # 35 cycles per nanosecond can only be eight dies added up.
    density = 294_912 / (749_478 / 8 * 304)
    assert only(load(folder)).compute_density_ratio == pytest.approx(density, rel=0.02)


@pytest.mark.parametrize(("name", "cycles"), [("helloworld", 14_222), ("vectoradd", 40_539)])
def test_v2_times_that_imply_an_impossible_clock_are_refused(samples: Path, name: str, cycles: int):
    analysis = load(samples / f"profiler/rocprofv2-cli/profiler_hip_{name}.txt")
    result = only(analysis)
    assert dict(analysis.sources[0].skipped) == {"implausible": 1}
    assert (result.execution_ns, dict(result.counters)) == (None, {"GRBM_COUNT": cycles})


def test_v2_printed_calls_are_read(samples: Path):
    names = Names()
    decoded = intake.read_file(samples / "profiler/rocprofv2-cli/tracer_hip_helloworld.txt", names, [])
    assert len(decoded.calls) == 10
    at = [names.texts()[i] for i in decoded.calls.function].index("hipLaunchKernel")
    assert (decoded.calls.start[at], decoded.calls.end[at]) == (611_510_784_351_053, 611_510_784_872_311)


def test_the_mi300a_agents_differ_by_domain_only(samples: Path):
    decoded = intake.read_file(
        samples / "profiler/hpctraining-readme/openmp_rocm62_agent_info.csv", Names(), []
    )
    gpus = [agent for agent in decoded.agents if agent.is_gpu]
    assert [agent.node for agent in gpus] == [4, 5, 6, 7]
    assert [agent.pci for agent in gpus] == [f"{domain:04x}:01:00.0" for domain in range(4)]
    five = gpus[1]
    assert (five.device_id, five.render_minor, five.gpu_id) == (0x74A0, 136, 17_599)
    assert (five.gfx, five.compute_units, five.xccs) == ("gfx942", 228, 6)


def test_every_csv_of_the_library_is_known_and_says_only_finite_things(samples: Path):
    for path in sorted((samples / "profiler").rglob("*.csv")):
        analysis = load(path)
        assert analysis.sources[0].format is not None, path
        text = json.dumps(as_dict(analysis), allow_nan=False)
        assert "NaN" not in text
        assert not any(math.isinf(v) for r in analysis.results for v in r.counters.values())
        with open(path, newline="", encoding="utf-8", errors="replace") as f:
            lines = sum(1 for row in csv.reader(f) if row) - 1
        assert analysis.sources[0].rows + sum(analysis.sources[0].skipped.values()) >= lines, path


# --- hostile cases -----------------------------------------------------------------------------------


def case(samples: Path, number: str) -> Path:
    (path,) = (samples / "cases").glob(f"{number}-*")
    return path


def test_case_01_names_with_commas_are_kept(samples: Path):
    path = case(samples, "01") / "40321_kernel_trace.csv"
    assert names_of(path)[3] == (
        "void red::(anonymous namespace)::row_sum<Half, std::tuple<int, float>, 4>"
        "(int, float, std::array<char*, 3ul>)"
    )
    assert (sum(durations(path)), len(durations(path))) == (36_100, 4)


def test_case_02_inner_quotes_never_shift_a_timestamp(samples: Path):
    path = case(samples, "02") / "40321_kernel_trace.csv"
    assert durations(path) == [1000, 2000, 3000, 4000]
    assert names_of(path) == ["plain_copy(float*, float*)", 'phase "warm, up" #1', 'split","name', '"quoted"']


def test_case_03_newlines_and_bad_bytes_stay_in_their_names(samples: Path):
    path = case(samples, "03") / "40321_kernel_trace.csv"
    assert durations(path) == [1000, 2000, 3000, 4000]
    assert names_of(path) == ["stage A\nstage B", "行列積<半精度>_🚀", "io\\C:\\tmp\\k\tend", "cut_\ufffd"]


def test_case_04_every_header_generation_is_read_by_name(samples: Path):
    for path in sorted(case(samples, "04").iterdir()):
        assert durations(path) == [12_800, 11_240, 11_160], path


def test_case_05_three_notations_name_one_device(samples: Path):
    result = only(load(case(samples, "05")))
    assert (result.gpu, result.device.pci, result.kernels) == ("0000:c1:00.0", "0000:c1:00.0", 3)
    agents = intake.read_file(case(samples, "05") / "40321_agent_info.csv", Names(), []).agents
    (found,) = [agent for agent in agents if agent.pci == result.gpu]
    assert (found.node, found.render_minor, found.gpu_id) == (4, 130, 30_004)


def test_case_06_pairs_show_both_delays_and_one_skew(samples: Path):
    folder = case(samples, "06")
    found = pairs_of(*sorted(folder.iterdir()))
    assert [p.queue_ns for p in found] == [10_000, 106_000, 15_000, -600]
    assert [p.end_delay_ns for p in found] == [6_000, 103_000, -5_000, -4_600]
    assert [p.call_ns for p in found] == [4_000, 3_000, 20_000, 4_000]
    assert [p.skewed for p in found] == [False, False, False, True]
    good = [p for p in found if not p.skewed]
    waited = sum(p.queue_ns for p in good)
    assert waited / (waited + sum(p.execution_ns for p in good)) == pytest.approx(131_000 / 332_000)
    result = only(load(folder))
    assert (result.launches, result.skewed, result.unmatched_kernels) == (4, 1, 1)
    assert (result.queue_ns, result.queue_delay_ratio, result.queue_p50_ns) == (None, None, None)
    assert (result.kernels, result.launch_call_ns) == (5, 31_000)


def test_case_07_a_graph_launch_has_one_delay(samples: Path):
    result = only(load(case(samples, "07")))
    assert (result.launches, result.kernels, result.launch_call_ns) == (1, 5, 8_000)
    assert (result.queue_ns, result.paired) == (19_000, 1)
    assert [s.launch for s in result.launch_stats] == ["graph"]
    assert result.span_ns - result.busy_ns == 4 * 1_000


def test_case_08_counters_of_different_passes_meet_at_the_dispatch(samples: Path):
    result = only(load(case(samples, "08")))
    assert (result.l2_hits, result.l2_requests) == (950, 1200)
    assert result.l2_hit_ratio == pytest.approx(0.791667, abs=1e-6)
    assert (result.execution_ns, result.kernels) == (6_500, 3)
    files, names = [], Names()
    folder = case(samples, "08")
    for path in sorted(folder.rglob("*.csv")):
        decoded = intake.read_file(path, names, [])
        files.append(intake._placed(path, folder, decoded, False))
    (passes,) = Assembly(files, names).passes().values()
    by_number = {key.number: value for key, value in l2_by_dispatch(passes).items()}
    assert by_number[2] is None
    assert [by_number[n][0] / by_number[n][1] for n in (1, 3)] == [0.9, 0.25]


def test_case_09_an_empty_window_is_no_failure(samples: Path):
    analysis = load(case(samples, "09"))
    assert (analysis.results, analysis.notes) == ((), ())
    assert isinstance(analysis.window, Window)
    assert [s.rows for s in analysis.sources] == [2]


def test_case_10_a_cut_last_row_costs_that_row(samples: Path):
    analysis = load(case(samples, "10"))
    (source,) = analysis.sources
    assert (source.rows, dict(source.skipped), source.partial) == (4, {"truncated": 1}, True)
    assert only(analysis).kernels == 4


def test_case_11_ids_never_join_across_processes(samples: Path):
    analysis = load(case(samples, "11"))
    assert [r.kernels for r in analysis.results] == [2, 2]
    assert [(r.queue_ns, r.queue_p50_ns, r.queue_p95_ns) for r in analysis.results] == [
        (10_000, 5_000, 5_000)
    ] * 2


def test_case_12_order_overlap_and_duplicates(samples: Path):
    analysis = load(case(samples, "12"))
    result = only(analysis)
    assert dict(analysis.sources[0].skipped) == {"duplicate": 1, "invalid": 1}
    assert (result.kernels, result.execution_ns, result.busy_ns) == (4, 30_000, 25_000)
    assert "zero(int)" in {k.kernel for k in result.kernel_stats}


def test_case_13_cells_that_are_no_numbers_are_absent(samples: Path):
    decoded = intake.read_file(case(samples, "13") / "40321_kernel_stats.csv", Names(), [])
    first, never, odd = decoded.stats
    assert (first.calls, first.total_ns, first.mean_ns, first.deviation_ns) == (
        4,
        400_000,
        100_000,
        816.496581,
    )
    assert (never.share, never.deviation_ns, never.mean_ns) == (None, None, 0)
    assert (odd.mean_ns, odd.share, odd.total_ns) == (None, None, 7)
    json.dumps(as_dict(load(case(samples, "13"))), allow_nan=False)


def test_case_14_v1_rows_carry_their_own_dispatch_time(samples: Path):
    path = case(samples, "14") / "results.csv"
    assert [p.queue_ns for p in pairs_of(path)] == [26_070, 7_906, -500]
    assert durations(path) == [20_640, 15_516, 1_500]
    assert names_of(path) == ["vecScale(float*, float, int)"] * 2 + ["void tiny<int, 2>(int*)"]
    result = only(load(path))
    assert (result.skewed, result.l2_hits, result.l2_requests) == (1, 620, 800)
    assert result.l2_hit_ratio == pytest.approx(0.775)


def test_case_15_v2_rows_have_no_dispatch_time_and_a_kfd_id(samples: Path):
    path = case(samples, "15") / "results_77001.csv"
    result = only(load(path))
    assert names_of(path) == ["vecScale(float*, float, int)"] * 2
    assert (result.queue_ns, result.launches, result.gpu) == (None, 0, "60633")
    assert result.l2_hit_ratio == pytest.approx(0.8)
