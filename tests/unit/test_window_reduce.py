"""The reduction on made traces: joins, carried-in kernels, several processes, each bottleneck, counters."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from made_traces import BASE, C, K, calls, counters, kernels, load, window

from exporter.formats.trace import Dispatch
from exporter.model import Bottleneck, DeviceId, WindowResult
from exporter.windows.bottleneck import Thresholds
from exporter.windows.density import Key, Shape, totals
from exporter.windows.executions import buckets, kernel_class, quantile
from exporter.windows.intake import load as load_with
from exporter.windows.join import GRAPH, KERNEL, MEMORY, OTHER, call_kind, unknown_launch


def only(*paths: Path) -> WindowResult:
    (result,) = load(*paths).results
    return result


# --- launches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("hipLaunchKernel", KERNEL),
        ("hipLaunchCooperativeKernel", KERNEL),
        ("hipExtLaunchKernel", KERNEL),
        ("hipModuleLaunchKernel", KERNEL),
        ("hipExtModuleLaunchKernel", KERNEL),
        ("hipHccModuleLaunchKernel", KERNEL),
        ("hipDrvLaunchKernelEx", KERNEL),
        ("cudaLaunchKernelExC_v11060", KERNEL),
        ("cuLaunchKernelEx", KERNEL),
        ("hipGraphLaunch", GRAPH),
        ("hipGraphLaunch_spt", GRAPH),
        ("cudaGraphLaunch", GRAPH),
        ("hipMemcpyAsync", MEMORY),
        ("hipMemsetD32Async", MEMORY),
        ("cudaMemsetAsync", MEMORY),
        ("hipLaunchHostFunc", OTHER),
        ("hipGetLastError", OTHER),
        ("rcclLaunch", OTHER),
        ("__hipPushCallConfiguration", OTHER),
    ],
)
def test_a_call_is_known_by_its_name(function: str, kind: int):
    assert call_kind(function) == kind


def test_a_launch_that_is_not_known_is_counted_and_not_used(tmp_path: Path):
    assert unknown_launch("hipFooLaunchBar")
    assert not unknown_launch("hipLaunchHostFunc")
    folder = window(tmp_path, [K(20, 30, 5)], [C(0, 10, 5, "hipFooLaunchBar")])
    analysis = load(folder)
    assert {k: v for s in analysis.sources for k, v in s.skipped.items()} == {"unknown_launch": 1}
    assert (analysis.results[0].launches, analysis.results[0].unmatched_kernels) == (0, 1)


def test_correlation_0_is_unknown_and_never_joins(tmp_path: Path):
    result = only(window(tmp_path, [K(20, 30, 0)], [C(0, 10, 0)]))
    assert (result.launches, result.unmatched_kernels, result.unmatched_calls) == (0, 1, 1)


def test_of_nested_launches_the_outermost_counts(tmp_path: Path):
    rows = [C(0, 50, 1), C(10, 40, 2, "hipModuleLaunchKernel"), C(60, 70, 3), C(5, 45, 9, tid=8)]
    result = only(window(tmp_path, [K(100, 110, 2), K(120, 130, 3)], rows))
    assert (result.launches, result.unmatched_calls) == (2, 1)  # the other thread's call is nested in nothing
    assert result.queue_ns == 100 + 60
    assert result.launch_call_ns == 50 + 10


def test_a_kernel_with_the_id_of_a_call_inside_a_launch_belongs_to_the_launch(tmp_path: Path):
    rows = [
        C(0, 50, 1),
        C(10, 20, 2, "hsa_signal_store_screlease"),
        C(30, 34, 3, "hsa_signal_store_screlease", tid=9),
    ]
    result = only(window(tmp_path, [K(100, 110, 2), K(200, 210, 3)], rows))
    assert (result.launches, result.queue_ns, result.unmatched_kernels) == (1, 100, 1)


def test_a_call_of_another_thread_than_the_kernels_is_no_partner(tmp_path: Path):
    rows = [C(0, 10, 1, tid=7), C(5, 10, 2, tid=99)]
    result = only(window(tmp_path, [K(20, 30, 1), K(40, 50, 2)], rows))
    assert (result.launches, result.queue_ns) == (1, 20)


def test_blit_kernels_execute_and_belong_to_their_memory_call(tmp_path: Path):
    rows = [K(20, 30, 1), K(40, 60, 2, "__amd_rocclr_copyBuffer")]
    result = only(window(tmp_path, rows, [C(0, 10, 1), C(30, 35, 2, "hipMemcpyAsync")]))
    assert (result.launches, result.unmatched_kernels, result.execution_ns) == (1, 0, 30)
    assert dict(result.execution_class_ns) == {"compute": 10, "collective": 0, "copy": 20}


def test_a_graph_launch_gives_one_delay_and_submits_all_its_kernels(tmp_path: Path):
    rows = [K(20, 30, 1), K(40, 50, 1), K(90, 100, 1)]
    result = only(window(tmp_path, rows, [C(0, 10, 1, "hipGraphLaunch")]))
    assert (result.launches, result.queue_ns, result.kernels) == (1, 20, 3)
    assert result.timeline_ns == {"executing": 30, "queued": 50, "launching": 0, "starved": 0}


def test_captured_calls_are_launching_time_and_no_launch(tmp_path: Path):
    rows = [K(0, 10, 1), K(100, 110, 2)]
    result = only(window(tmp_path, rows, [C(-5, -1, 1), C(20, 40, 7), C(90, 95, 2)]))
    assert (result.launches, result.unmatched_calls) == (2, 1)
    assert result.timeline_ns == {"executing": 20, "queued": 5, "launching": 25, "starved": 60}


def test_up_to_5_percent_skewed_pairs_leave_the_sums_and_more_take_them_away(tmp_path: Path):
    def made(n: int, folder: str) -> WindowResult:
        rows = [K(100 * i + 20, 100 * i + 50, i) for i in range(1, n + 1)]
        made_calls = [C(100 * i, 100 * i + 10, i) for i in range(1, n + 1)]
        made_calls[3] = C(100 * 4 + 21, 100 * 4 + 25, 4)
        return only(window(tmp_path / folder, rows, made_calls))

    few = made(20, "few")
    assert (few.skewed, few.paired, few.launches, few.queue_ns) == (1, 19, 20, 19 * 20)
    assert (few.launch_duration_ns, few.execution_ns) == (19 * 50, 20 * 30)
    many = made(19, "many")
    assert (many.skewed, many.queue_ns, many.queue_p50_ns, many.exposed_delay_ns) == (1, None, None, None)
    assert many.timeline_reason == "clock_skew"
    assert many.timeline_ns["executing"] == 19 * 30


def test_a_trace_without_calls_knows_only_what_executed(tmp_path: Path):
    result = only(window(tmp_path, [K(0, 10), K(20, 30)]))
    assert result.timeline_ns == {"executing": 20, "queued": None, "launching": None, "starved": None}
    assert (result.bottleneck, result.timeline_reason) == (Bottleneck.UNKNOWN, "no_launch_calls")
    assert (result.queue_ns, result.launch_call_ns, result.copy_exposed_ns) == (None, None, None)


def test_sparse_correlation_ids_join_as_well(tmp_path: Path):
    ids = [1, 2, 10**15, 5 * 10**17]
    rows = [K(100 * i + 30, 100 * i + 40, c) for i, c in enumerate(ids)]
    result = only(window(tmp_path, rows, [C(100 * i, 100 * i + 10, c) for i, c in enumerate(ids)]))
    assert (result.launches, result.queue_ns) == (4, 120)


# --- windows and processes ---------------------------------------------------------------------------


def test_kernels_are_clipped_at_the_bounds_and_delays_are_not(tmp_path: Path):
    rows = [K(0, 60, 1), K(70, 80, 2), K(90, 150, 3), K(160, 170, 4)]
    made = [C(-20, -10, 1), C(10, 15, 2), C(75, 78, 3), C(95, 99, 4)]
    result = only(window(tmp_path, rows, made, bounds=(50, 100)))
    assert (result.kernels, result.execution_ns, result.span_ns) == (3, 10 + 10 + 10, 50)
    assert (result.launches, result.queue_ns, result.launch_duration_ns) == (2, 60 + 15, 70 + 75)
    assert result.span_kind == "planned"
    assert result.timeline_ns == {"executing": 30, "queued": 10 + 10, "launching": 0, "starved": 0}
    # Waiting inside the window: [50,70) of the second, [75,90) of the third, [95,100) of the fourth.
    assert result.queue_depth_ns == 20 + 15 + 5


def test_a_carried_in_kernel_executes_and_counts_as_unmatched(tmp_path: Path):
    result = only(window(tmp_path, [K(0, 50, 77), K(60, 70, 1)], [C(40, 45, 1)], bounds=(10, 80)))
    assert (result.kernels, result.launches, result.unmatched_kernels) == (2, 1, 1)
    assert result.execution_ns == 40 + 10


def test_quarters_of_a_saturated_trace_stay_gpu_bound(tmp_path: Path):
    # The host runs far ahead: all launches are made in the first quarter.
    rows = [K(1000 * i, 1000 * i + 980, i) for i in range(1, 201)]
    made = [C(20 * i, 20 * i + 10, i) for i in range(1, 201)]
    waiting = C(20 * 201, 1000 * 202, 900, "hipDeviceSynchronize")
    for quarter in range(4):
        low, high = 1000 + 50_000 * quarter, 1000 + 50_000 * (quarter + 1)
        seen = [k for k in rows if k.start < high and k.end > low]
        heard = [c for c in [*made, waiting] if c.start < high and c.end > low]
        result = only(window(tmp_path / str(quarter), seen, heard, bounds=(low, high)))
        assert result.bottleneck is Bottleneck.GPU_BOUND, quarter
        assert result.timeline_ns["executing"] == 50 * 980
        assert result.kernels == 50


def test_a_call_trace_without_rows_says_that_nothing_was_launched(tmp_path: Path):
    result = only(window(tmp_path, [K(0, 40, 5)], [], bounds=(0, 100)))
    assert result.timeline_ns == {"executing": 40, "queued": 0, "launching": 0, "starved": 60}


def test_processes_on_one_gpu_are_merged_where_both_were_seen(tmp_path: Path):
    for pid, shift in ((11, 0), (12, 100)):
        rows = [K(shift + 50 * i, shift + 50 * i + 20, i) for i in range(1, 7)]
        made = [C(shift + 50 * i - 30, shift + 50 * i - 25, i) for i in range(1, 7)]
        (tmp_path / f"{pid}_kernel_trace.csv").write_bytes(kernels(rows))
        (tmp_path / f"{pid}_hip_api_trace.csv").write_bytes(calls(made, pid))
    result = only(tmp_path)
    # Seen both: from 150 (second's first start) to 320 (first's last end).
    assert result.span_ns == 320 - 150
    assert result.kernels == 4 + 4
    assert sum(result.timeline_ns.values()) == result.span_ns
    assert result.timeline_ns["executing"] == 4 * 20  # they run at the same times
    assert result.execution_ns == 8 * 20


def test_processes_that_never_overlap_give_no_timeline(tmp_path: Path):
    for pid, shift in ((11, 0), (12, 1000)):
        (tmp_path / f"{pid}_kernel_trace.csv").write_bytes(kernels([K(shift, shift + 20, 1)]))
        (tmp_path / f"{pid}_hip_api_trace.csv").write_bytes(calls([C(shift - 10, shift - 5, 1)], pid))
    result = only(tmp_path)
    assert (result.timeline_reason, result.execution_ns, result.kernels) == ("disjoint_processes", 40, 2)
    assert result.timeline_ns["queued"] is None
    assert result.queue_ns == 20


def test_one_process_on_two_gpus_keeps_their_calls_apart(tmp_path: Path):
    rows = [K(20, 30, 1), K(40, 50, 2, agent="Agent 5"), K(100, 110, 3), K(120, 130, 4, agent="Agent 5")]
    made = [C(0, 10, 1), C(12, 35, 2), C(60, 70, 3), C(72, 80, 4)]
    four, five = load(window(tmp_path, rows, made)).results
    assert (four.gpu, four.queue_ns, four.launches) == ("Agent 4", 20 + 40, 2)
    assert (five.gpu, five.queue_ns, five.launches) == ("Agent 5", 28 + 48, 2)
    # Only its own call of [60, 70) is launching for the first GPU.
    assert four.timeline_ns == {"executing": 20, "queued": 30, "launching": 10, "starved": 30}


def test_the_manifest_names_devices_bounds_and_tool(tmp_path: Path):
    folder = window(
        tmp_path,
        [K(10, 20)],
        bounds=(0, 100),
        agents={"Agent 4": "0000:C1:00.0"},
        id="w1",
        tool="mine",
        mode="trace",
    )
    analysis = load(folder)
    assert analysis.results[0].gpu == "0000:c1:00.0"
    assert analysis.results[0].device == DeviceId("0000:c1:00.0")
    assert (analysis.window.id, analysis.window.tool, analysis.window.bounds) == (
        "w1",
        "mine",
        (BASE, BASE + 100),
    )
    assert [Path(s.path).name for s in analysis.sources] == ["7_kernel_trace.csv"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"),
        ('{"version": 1, "bounds_ns": [5, 1]}', "bounds_ns"),
        ('{"version": 1, "agents": {"Agent 4": "card0"}}', "card0"),
        ('{"version": 1, "id": 3}', "id is no text"),
    ],
)
def test_a_broken_manifest_costs_itself_and_says_so(tmp_path: Path, text: str, says: str):
    folder = window(tmp_path, [K(10, 20)])
    (folder / "manifest.json").write_text(text)
    analysis = load(folder)
    assert analysis.results[0].kernels == 1
    assert any("manifest.json" in note and says in note for note in analysis.notes)


def test_folders_of_different_nodes_are_never_merged(tmp_path: Path):
    for node in ("a", "b"):
        window(tmp_path / node, [K(0, 10, 1)], [C(-5, -2, 1)])
    assert [(r.kernels, r.queue_ns) for r in load(tmp_path).results] == [(1, 5), (1, 5)]


def test_compressed_files_are_read_the_same(tmp_path: Path):
    plain = window(tmp_path / "plain", [K(20, 30, 1)], [C(0, 10, 1)])
    (tmp_path / "packed").mkdir()
    for path in plain.iterdir():
        (tmp_path / "packed" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert only(plain) == only(tmp_path / "packed")


# --- bottlenecks -------------------------------------------------------------------------------------


def repeated(n: int, every: int, kernel: tuple[int, int], call: tuple[int, int], name: str = "k(int)"):
    rows = [K(every * i + kernel[0], every * i + kernel[1], i + 1, name) for i in range(n)]
    made = [C(every * i + call[0], every * i + call[1], i + 1) for i in range(n)]
    return rows, made


def test_communication_is_exposed_collectives(tmp_path: Path):
    rows, made = repeated(30, 100, (20, 60), (0, 10), "ncclDevKernel_AllReduce_Sum_f32(args)")
    result = only(window(tmp_path, rows, made))
    assert result.bottleneck is Bottleneck.COMMUNICATION
    assert result.collective_exposed_ns == 30 * 40


def test_collectives_behind_other_kernels_are_not_exposed(tmp_path: Path):
    rows, made = repeated(30, 100, (10, 100), (0, 5))
    hidden = [K(100 * i + 20, 100 * i + 60, 0, "ncclDevKernel_AllReduce(args)", stream=2) for i in range(30)]
    result = only(window(tmp_path, rows + hidden, made))
    assert (result.collective_exposed_ns, result.bottleneck) == (0, Bottleneck.GPU_BOUND)


def test_gpu_bound_is_execution(tmp_path: Path):
    rows, made = repeated(30, 100, (10, 98), (0, 5))
    assert only(window(tmp_path, rows, made)).bottleneck is Bottleneck.GPU_BOUND


def test_contended_is_several_processes_waiting(tmp_path: Path):
    for pid, shift in ((11, 0), (12, 50)):
        rows = [K(100 * i + 80 + shift, 100 * i + 90 + shift, i + 1) for i in range(30)]
        made = [C(100 * i + shift, 100 * i + 5 + shift, i + 1) for i in range(30)]
        (tmp_path / f"{pid}_kernel_trace.csv").write_bytes(kernels(rows))
        (tmp_path / f"{pid}_hip_api_trace.csv").write_bytes(calls(made, pid))
    assert only(tmp_path).bottleneck is Bottleneck.CONTENDED


def test_copy_bound_is_idling_while_copies_run(tmp_path: Path):
    rows, made = repeated(30, 100, (80, 100), (70, 75))
    copies = [(100 * i, 100 * i + 60, "HOST_TO_DEVICE") for i in range(1, 30)]
    result = only(window(tmp_path, rows, made, copies))
    assert result.bottleneck is Bottleneck.COPY_BOUND
    assert dict(result.copy_exposed_ns) == {"host_to_device": 29 * 60}
    without = only(window(tmp_path / "without", rows, made))
    assert (without.copy_exposed_ns, without.bottleneck) == (None, Bottleneck.HOST_STALLED)


def test_dependency_bound_is_a_graph_that_waits_inside_itself(tmp_path: Path):
    rows = [K(100 * i, 100 * i + 40, 1) for i in range(30)]
    result = only(window(tmp_path, rows, [C(-30, -20, 1, "hipGraphLaunch")]))
    assert result.bottleneck is Bottleneck.DEPENDENCY_BOUND


def test_dependency_bound_is_also_long_kernels_that_wait_without_much_launching(tmp_path: Path):
    rows, made = repeated(30, 100, (50, 99), (0, 3))
    assert only(window(tmp_path, rows, made)).bottleneck is Bottleneck.DEPENDENCY_BOUND


def test_launch_bound_needs_twenty_pairs(tmp_path: Path):
    rows, made = repeated(30, 100, (90, 95), (5, 85))
    assert only(window(tmp_path / "many", rows, made)).bottleneck is Bottleneck.LAUNCH_BOUND
    few = only(window(tmp_path / "few", rows[:19], made[:19]))
    assert few.bottleneck is Bottleneck.BALANCED


def test_host_stalled_is_a_gpu_without_anything_to_do(tmp_path: Path):
    rows, made = repeated(30, 1000, (20, 60), (0, 10))
    assert only(window(tmp_path, rows, made)).bottleneck is Bottleneck.HOST_STALLED


def test_balanced_is_the_rest(tmp_path: Path):
    rows, made = repeated(30, 100, (40, 90), (20, 30))
    result = only(window(tmp_path, rows, made))
    assert result.bottleneck is Bottleneck.BALANCED


def test_thresholds_are_the_callers(tmp_path: Path):
    rows, made = repeated(30, 100, (40, 90), (15, 30))
    folder = window(tmp_path, rows, made)
    (result,) = load_with([folder], Thresholds(gpu_bound=0.4)).results
    assert result.bottleneck is Bottleneck.GPU_BOUND


# --- counters ----------------------------------------------------------------------------------------


def _pass(*rows: tuple[int, dict[str, float], int | None]) -> dict[Key, Dispatch]:
    return {Key(0, n, "k"): Dispatch(n, "k", 0, ns, values) for n, values, ns in rows}


def test_density_takes_instructions_and_cycles_of_one_pass():
    one = _pass((1, {"SQ_INSTS_VALU": 100.0, "GRBM_COUNT": 1000.0, "GRBM_GUI_ACTIVE": 500.0}, 1000))
    two = _pass((1, {"GRBM_COUNT": 9999.0, "TCC_HIT_sum": 1.0}, 1000))
    found = totals([one, two], Shape(2, 1, 1.0))
    assert (found.valu, found.slots, found.slots_active, found.observed_ns) == (100, 2000, 1000, 1000)
    assert found.sums["GRBM_COUNT"] == 1000
    assert totals([one], Shape(2, 1, None)).slots is None  # a chip whose peak is not known
    assert totals([one], Shape(2, None, 1.0)).slots is None  # or whose number of dies


@pytest.mark.parametrize(
    ("cycles", "slots"),
    [
        (2_000.0, 2_000 * 304),  # 2 GHz: one die's count
        (16_000.0, 16_000 / 8 * 304),  # 16 GHz cannot be, 2 GHz on each of eight can
        (100_000.0, None),  # neither can be
    ],
)
def test_how_grbm_was_summed_is_decided_by_the_clock(cycles: float, slots: float | None):
    one = _pass((1, {"SQ_INSTS_VALU": 10.0, "GRBM_COUNT": cycles}, 1000))
    assert totals([one], Shape(304, 8, 1.0)).slots == slots


def test_more_instructions_than_slots_are_discarded_and_not_clamped():
    one = _pass((1, {"SQ_INSTS_VALU": 2050.0, "GRBM_COUNT": 1000.0, "GRBM_GUI_ACTIVE": 1010.0}, 1000))
    found = totals([one], Shape(2, 1, 1.0))
    assert (found.valu, found.slots, found.slots_active) == (2050, None, 2020)


def test_zero_sq_counters_on_an_active_gpu_are_not_a_measurement():
    dark = _pass((1, {"SQ_INSTS_VALU": 0.0, "SQ_WAVES": 0.0, "GRBM_GUI_ACTIVE": 5.0, "TCC_HIT_sum": 3.0}, 10))
    found = totals([dark], Shape(2, 1, 1.0))
    assert (found.valu, dict(found.sums)) == (None, {"GRBM_GUI_ACTIVE": 5, "TCC_HIT_sum": 3})
    idle = _pass((1, {"SQ_INSTS_VALU": 0.0, "GRBM_GUI_ACTIVE": 0.0}, 10))
    assert totals([idle], Shape(2, 1, 1.0)).valu == 0
    busy = _pass((1, {"SQ_INSTS_VALU": 7.0, "SQ_INSTS_MFMA": 0.0, "GRBM_GUI_ACTIVE": 5.0}, 10))
    assert totals([busy], Shape()).sums["SQ_INSTS_MFMA"] == 0


def test_hit_ratio_is_undefined_without_traffic_and_known_by_several_names(tmp_path: Path):
    for hit, miss in (("TCC_HIT_sum", "TCC_MISS_sum"), ("GL2C_HIT", "GL2C_MISS"), ("TCC_HIT", "TCC_MISS")):
        found = totals([_pass((1, {hit: 3.0, miss: 1.0}, 10), (2, {hit: 0.0, miss: 0.0}, 10))], Shape())
        assert (found.l2_hits, found.l2_requests) == (3, 4)
    silent = totals([_pass((1, {"TCC_HIT_sum": 0.0, "TCC_MISS_sum": 0.0}, 10))], Shape())
    assert (silent.l2_hits, silent.l2_requests) == (0, 0)
    path = tmp_path / "7_counter_collection.csv"
    path.write_bytes(
        counters(
            [
                (1, "k", "TCC_HIT[0]", 1, 10, 20),
                (1, "k", "TCC_HIT[1]", 2, 10, 20),
                (1, "k", "TCC_MISS[0]", 1, 10, 20),
                (1, "k", "TCC_MISS[1]", 0, 10, 20),
            ]
        )
    )
    result = only(path)
    assert (result.l2_hits, result.l2_requests, dict(result.counters)) == (
        3,
        4,
        {"TCC_HIT": 3, "TCC_MISS": 1},
    )


def test_counter_times_never_mix_with_trace_times(tmp_path: Path):
    folder = window(tmp_path, [K(0, 10, 1)], [C(-5, -2, 1)])
    (folder / "7_counter_collection.csv").write_bytes(counters([(1, "k(int)", "SQ_WAVES", 4, 500, 900)]))
    result = only(folder)
    assert (result.kernels, result.execution_ns, result.counters["SQ_WAVES"]) == (1, 10, 4)


# --- small parts -------------------------------------------------------------------------------------


def test_quantiles_are_values_that_occurred():
    assert quantile([], 0.5) is None
    assert quantile([1, 2, 3, 4], 0.5) == 3
    assert quantile([1], 0.95) == 1


def test_buckets_count_up_to_and_including_their_bound():
    assert buckets([2_000, 2_001, 10**10])[:2] == (1, 2)
    assert buckets([2_000, 2_001, 10**10]) == buckets([2_000, 2_001, 10**10], ordered=True)
    assert buckets([])[-1] == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("rcclGenericKernel<1, false>", "collective"),
        ("mscclKernel_Sum_float", "collective"),
        ("__amd_rocclr_copyBuffer", "copy"),
        ("__amd_rocclr_fillBufferAligned", "copy"),
        ("void gemm<float>(float*)", "compute"),
        ("copy_kernel(float*)", "compute"),
        ("reduce_kernel<512>", "compute"),
    ],
)
def test_kernels_have_a_class_by_name(name: str, kind: str):
    assert kernel_class(name) == kind


def test_results_survive_json(tmp_path: Path):
    from exporter.checks.analyze import as_dict

    folder = window(tmp_path, [K(20, 30, 1)], [C(0, 10, 1)])
    answer = json.loads(json.dumps(as_dict(load(folder)), allow_nan=False))
    assert answer["gpus"][0]["top_kernels"][0]["share_ratio"] == 1
    assert answer["version"] == 1
