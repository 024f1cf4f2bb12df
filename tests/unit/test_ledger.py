"""What is kept of windows: totals that never fall, gauges that vanish, series that stay the same object."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from windowmade import DEVICES, GPU0, GPU1, counted, kernel, launches, traced, window

from exporter.catalogue import CATALOGUE
from exporter.catalogue import window as entries
from exporter.catalogue.schema import Kind
from exporter.model import (
    LAUNCH_BUCKETS_NS,
    Bottleneck,
    Device,
    DeviceId,
    Histogram,
    Reason,
    Series,
    Slot,
    Source,
    WindowOutcome,
)
from exporter.windows.kernels import NAME_LIMIT, UNSEEN_S
from exporter.windows.ledger import Keep, Ledger

OK = WindowOutcome.OK
HOUR = 3600.0


def read(slot: Slot) -> dict[Series, object]:
    return dict(zip(slot.series, slot.values, strict=True))


def value(slot: Slot, metric: str, *labels: str, device: DeviceId | None = GPU0) -> object:
    return read(slot).get(Series(metric, device, labels))


@pytest.fixture
def ledger() -> Ledger:
    it = Ledger()
    it.know(DEVICES)
    return it


def test_counters_stand_at_zero_as_soon_as_a_gpu_is_known(ledger: Ledger) -> None:
    slot = ledger.slot(0.0)
    for gpu in (GPU0, GPU1):
        for state in ("executing", "queued", "launching", "starved"):
            assert value(slot, "amdgpu_timeline_seconds_total", state, device=gpu) == 0
        empty = Histogram((0,) * len(LAUNCH_BUCKETS_NS), 0, 0.0)
        for launch in ("kernel", "graph"):
            assert value(slot, "amdgpu_launch_queue_seconds", launch, device=gpu) == empty
            assert value(slot, "amdgpu_launch_duration_seconds", launch, device=gpu) == empty
        assert value(slot, "amdgpu_kernel_seconds_total", "other", device=gpu) == 0
        assert value(slot, "amdgpu_windows_total", "trace", "ok", device=gpu) == 0
        assert value(slot, "amdgpu_windows_total", "counters", "empty", device=gpu) == 0
        assert value(slot, "amdgpu_cache_requests_total", "l2", device=gpu) == 0
    assert Ledger().slot(0.0).series, "the node has series even without any GPU"


def test_before_any_window_there_is_no_gauge_of_a_last_window(ledger: Ledger) -> None:
    kinds = {CATALOGUE[s.metric].kind for s in ledger.slot(0.0).series if s.device}
    assert kinds == {Kind.COUNTER, Kind.HISTOGRAM}


def test_every_series_obeys_its_catalogue_entry(ledger: Ledger) -> None:
    ledger.add(window(run="7:1@boot"), [], [traced()], OK, 10.0)
    ledger.add(window("counters"), [], [counted()], OK, 11.0)
    slot = ledger.slot(12.0)
    assert len(set(slot.series)) == len(slot.series)
    for series, got in zip(slot.series, slot.values, strict=True):
        metric = CATALOGUE[series.metric]
        assert len(series.labels) == len(metric.labels), series
        assert (series.device is None) == (metric.scope == "node"), series
        assert isinstance(got, Histogram) == (metric.kind is Kind.HISTOGRAM), series
    served = {s.metric for s in slot.series}
    of_sampling = {"amdgpu_windows_skipped_total", "amdgpu_window_overhead_ratio"}
    may_miss = of_sampling | {
        "amdgpu_window_rows_skipped_total",
        "amdgpu_matrix_busy_ratio",
        "amdgpu_occupancy_ratio",
        "amdgpu_memory_bandwidth_bytes_per_second",
        "amdgpu_atomic_ratio",
    }
    assert {m.name for m in entries.METRICS} - served == may_miss


def test_a_traced_window_adds_up_in_seconds(ledger: Ledger) -> None:
    ledger.add(window(), [], [traced()], OK, 10.0)
    ledger.add(window(), [], [traced()], OK, 20.0)
    slot = ledger.slot(21.0)
    assert value(slot, "amdgpu_timeline_seconds_total", "starved") == pytest.approx(1e-3)
    assert value(slot, "amdgpu_timeline_seconds_total", "executing") == pytest.approx(0.6e-3)
    assert value(slot, "amdgpu_window_observed_seconds_total", "trace") == pytest.approx(2e-3)
    assert value(slot, "amdgpu_launch_exposed_delay_seconds_total") == pytest.approx(80e-6)
    assert value(slot, "amdgpu_copy_exposed_seconds_total", "host_to_device") == pytest.approx(14e-6)
    assert value(slot, "amdgpu_collective_exposed_seconds_total") == pytest.approx(18e-6)
    assert value(slot, "amdgpu_execution_seconds_total", "compute") == pytest.approx(560e-6)
    assert value(slot, "amdgpu_launches_unmatched_total", "kernel") == 2
    assert value(slot, "amdgpu_launches_unmatched_total", "call") == 4
    assert value(slot, "amdgpu_window_verdicts_total", "host_stalled") == 2
    assert value(slot, "amdgpu_windows_total", "trace", "ok") == 2
    assert value(slot, "amdgpu_kernel_seconds_total", "gemm") == pytest.approx(400e-6)
    assert value(slot, "amdgpu_kernel_dispatches_total", "gemm") == 4
    queue = value(slot, "amdgpu_launch_queue_seconds", "kernel")
    # 10, 20 and 30 us, twice; bounds 2, 5, 10, 20, 50 us and above.
    assert queue == Histogram((0, 0, 2, 4, 6, 6, 6, 6, 6, 6, 6), 6, pytest.approx(120e-6))
    call = value(slot, "amdgpu_launch_call_seconds")
    assert call == Histogram((0, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6), 6, pytest.approx(24e-6))
    assert value(slot, "amdgpu_timeline_seconds_total", "starved", device=GPU1) == 0


def test_the_last_windows_gauges_are_its_own_ratios(ledger: Ledger) -> None:
    ledger.add(window(), [], [traced()], OK, 10.0)
    slot = ledger.slot(11.0)
    assert value(slot, "amdgpu_queue_delay_ratio") == pytest.approx(60 / 260)
    assert value(slot, "amdgpu_launch_queue_mean_seconds") == pytest.approx(20e-6)
    assert value(slot, "amdgpu_launch_duration_mean_seconds") == pytest.approx(260e-6 / 3)
    assert value(slot, "amdgpu_launch_queue_depth") == pytest.approx(0.05)
    assert value(slot, "amdgpu_timeline_ratio", "launching") == pytest.approx(0.15)
    assert value(slot, "amdgpu_window_coverage_ratio", "trace") == pytest.approx(0.75)
    assert value(slot, "amdgpu_kernel_median_seconds", "relu") == pytest.approx(300e-9)
    assert value(slot, "amdgpu_kernel_median_seconds", "other") is None
    assert value(slot, "amdgpu_window_last_timestamp_seconds", "trace") == 10.0
    states = {b: value(slot, "amdgpu_bottleneck_state", b.value) for b in Bottleneck}
    assert states == {b: int(b is Bottleneck.HOST_STALLED) for b in Bottleneck}


def test_counter_windows_feed_counters_and_never_times(ledger: Ledger) -> None:
    ledger.add(window("counters"), [], [counted()], OK, 10.0)
    slot = ledger.slot(11.0)
    assert value(slot, "amdgpu_valu_instructions_total") == 5e8
    assert value(slot, "amdgpu_counters_available_instructions_total", "compute") == 2e9
    assert value(slot, "amdgpu_counters_observed_seconds_total", "compute") == pytest.approx(2e-3)
    assert value(slot, "amdgpu_cache_hits_total", "l2") == 750
    assert value(slot, "amdgpu_cache_requests_total", "l2") == 1000
    assert value(slot, "amdgpu_l2_hit_ratio") == 0.75
    assert value(slot, "amdgpu_compute_density_ratio") == 0.25
    assert value(slot, "amdgpu_compute_density_active_ratio") == 0.5
    assert value(slot, "amdgpu_valu_instructions_per_second") == pytest.approx(2.5e11)
    assert value(slot, "amdgpu_valu_utilization_ratio") == 0.5
    assert value(slot, "amdgpu_execution_seconds_total", "compute") == 0
    assert value(slot, "amdgpu_kernel_seconds_total", "gemm") is None
    assert value(slot, "amdgpu_bottleneck_state", "unknown") is None
    assert value(slot, "amdgpu_window_verdicts_total", "unknown") == 0


def test_matrix_and_occupancy_are_shares_of_the_active_cycles(ledger: Ledger) -> None:
    more = {"SQ_VALU_MFMA_BUSY_CYCLES": 1e9, "SQ_WAVE_CYCLES": 2e9}
    ledger.add(window("counters"), [], [counted(counters=more)], OK, 10.0)
    slot = ledger.slot(11.0)
    assert value(slot, "amdgpu_matrix_busy_ratio") == pytest.approx(1e9 / (1e9 * 4))
    assert value(slot, "amdgpu_occupancy_ratio") == pytest.approx(4 * 2e9 / (1e9 * 32))


def test_a_counter_set_without_its_denominator_feeds_no_ratio() -> None:
    known, unknown = Ledger(), Ledger()
    known.know([Device(GPU0, 0, gfx="gfx942")])
    unknown.know([Device(GPU0, 0, gfx="gfx1100")])
    for it in (known, unknown):
        it.add(window("counters"), [], [counted(slots_available=None, slots_active=None)], OK, 1.0)
    available = ("amdgpu_counters_available_instructions_total", "compute")
    assert value(known.slot(2.0), "amdgpu_valu_instructions_total") == 0
    assert value(known.slot(2.0), *available) == 0
    assert value(unknown.slot(2.0), "amdgpu_valu_instructions_total") == 5e8
    assert value(unknown.slot(2.0), *available) is None, "0 slots would be an infinite density"


def test_an_impossible_density_is_discarded_and_said_never_clamped(ledger: Ledger) -> None:
    ledger.add(window("counters"), [], [counted(slots_available=4e8)], OK, 10.0)
    slot = ledger.slot(11.0)
    assert value(slot, "amdgpu_compute_density_ratio") is None
    assert value(slot, "amdgpu_valu_instructions_total") == 0
    assert [(g.metric, g.reason) for g in slot.gaps] == [("amdgpu_compute_density_ratio", Reason.IMPLAUSIBLE)]


def test_what_a_window_cannot_know_is_absent(ledger: Ledger) -> None:
    unknown = traced(
        queue_ns=None,
        launch_stats=(),
        queue_depth_ns=None,
        timeline_ns={"executing": 300_000, "queued": None, "launching": None, "starved": None},
        bottleneck=Bottleneck.UNKNOWN,
        copy_exposed_ns=None,
    )
    ledger.add(window(), [], [unknown], OK, 10.0)
    slot = ledger.slot(11.0)
    for name in ("amdgpu_queue_delay_ratio", "amdgpu_launch_queue_mean_seconds", "amdgpu_launch_queue_depth"):
        assert value(slot, name) is None
    assert value(slot, "amdgpu_timeline_ratio", "executing") == pytest.approx(0.3)
    assert value(slot, "amdgpu_timeline_ratio", "starved") is None
    assert value(slot, "amdgpu_timeline_seconds_total", "executing") == 0, "shares of unknown parts would lie"
    assert value(slot, "amdgpu_bottleneck_state", "unknown") == 1


def test_timeline_seconds_come_from_planned_windows_alone(ledger: Ledger) -> None:
    ledger.add(window(), [], [traced(span_kind="kernels")], OK, 10.0)
    slot = ledger.slot(11.0)
    assert value(slot, "amdgpu_timeline_seconds_total", "executing") == 0
    assert value(slot, "amdgpu_timeline_ratio", "executing") == pytest.approx(0.3)
    assert value(slot, "amdgpu_execution_seconds_total", "compute") == pytest.approx(280e-6)


def test_work_of_an_unknown_gpu_is_counted_and_has_no_series(ledger: Ledger) -> None:
    before = set(ledger.slot(0.0).series)
    stranger = DeviceId("0000:ff:00.0")
    ledger.add(window(), [], [traced(device=None, gpu="Agent 9")], OK, 1.0)
    ledger.add(window(), [], [traced(device=stranger)], OK, 2.0)
    slot = ledger.slot(3.0)
    assert set(slot.series) == before
    assert value(slot, "amdgpu_windows_unmapped_total", "trace", "ok", device=None) == 2
    assert value(slot, "amdgpu_windows_total", "trace", "ok") == 0


def test_a_window_without_results_counts_for_the_gpus_it_was_taken_on(ledger: Ledger) -> None:
    ledger.add(window(agents={"Agent 4": GPU1}), [], [], WindowOutcome.EMPTY, 1.0)
    ledger.add(window("weird"), [], [], WindowOutcome.CRASH, 1.0)
    slot = ledger.slot(2.0)
    assert value(slot, "amdgpu_windows_total", "trace", "empty", device=GPU1) == 1
    assert value(slot, "amdgpu_windows_total", "trace", "empty", device=GPU0) == 0
    assert value(slot, "amdgpu_windows_unmapped_total", "other", "crash", device=None) == 1


def test_skipped_rows_are_counted_under_their_reason(ledger: Ledger) -> None:
    source = Source("a.csv", "rocprof_csv", "rocprofv3", 5, {"malformed": 2, "truncated": 1})
    ledger.add(window(), [source, source], [traced()], OK, 1.0)
    slot = ledger.slot(2.0)
    assert value(slot, "amdgpu_window_rows_skipped_total", "malformed", device=None) == 4
    assert value(slot, "amdgpu_window_rows_skipped_total", "truncated", device=None) == 2


@pytest.mark.parametrize("hold_s", [900.0, 1800.0])
def test_gauges_of_the_last_window_vanish_after_their_time(hold_s: float) -> None:
    ledger = Ledger(Keep(hold_s=hold_s))
    ledger.know(DEVICES)
    ledger.add(window(), [], [traced()], OK, 100.0)
    assert ledger.next_expiry(100.0) == 100.0 + hold_s
    assert value(ledger.slot(100.0 + hold_s - 0.1), "amdgpu_queue_delay_ratio") is not None
    late = ledger.slot(100.0 + hold_s)
    for name in ("amdgpu_queue_delay_ratio", "amdgpu_bottleneck_state", "amdgpu_timeline_ratio"):
        assert name not in {s.metric for s in late.series}
    assert value(late, "amdgpu_kernel_median_seconds", "gemm") is None
    assert value(late, "amdgpu_kernel_seconds_total", "gemm") == pytest.approx(200e-6)
    assert value(late, "amdgpu_window_last_timestamp_seconds", "trace") == 100.0
    assert ledger.next_expiry(100.0 + hold_s) == 100.0 + UNSEEN_S, "then the kernels' series"
    assert ledger.next_expiry(100.0 + UNSEEN_S) is None


def test_a_window_that_comes_late_does_not_hide_a_newer_one(ledger: Ledger) -> None:
    ledger.add(window(), [], [traced()], OK, 100.0)
    ledger.add(window(), [], [traced(queue_ns=0)], OK, 50.0)
    slot = ledger.slot(101.0)
    assert value(slot, "amdgpu_queue_delay_ratio") == pytest.approx(60 / 260)
    assert value(slot, "amdgpu_window_last_timestamp_seconds", "trace") == 100.0
    assert value(slot, "amdgpu_windows_total", "trace", "ok") == 2


def test_the_series_tuple_stays_the_same_object_while_the_set_stays(ledger: Ledger) -> None:
    ledger.add(window(), [], [traced()], OK, 10.0)
    first = ledger.slot(11.0)
    second = ledger.slot(12.0)
    assert second.series is first.series
    assert second.values is first.values
    ledger.add(window(), [], [traced()], OK, 13.0)
    third = ledger.slot(14.0)
    assert third.series is first.series
    assert third.values != first.values
    assert ledger.slot(14.0, "ready").series is first.series
    ledger.add(window(), [], [traced(kernel_stats=(kernel("new", 5),))], OK, 15.0)
    assert ledger.slot(16.0).series is not first.series


def test_a_slot_follows_the_sampling_state(ledger: Ledger) -> None:
    for state in entries.SAMPLING_STATES:
        slot = ledger.slot(5.0, state)
        on = {s.labels[0]: v for s, v in read(slot).items() if s.metric == "amdgpu_sampling_state"}
        assert on == {s: int(s == state) for s in entries.SAMPLING_STATES}
    assert value(ledger.slot(6.0), "amdgpu_sampling_state", "off", device=None) == 1
    with pytest.raises(ValueError, match="happy"):
        ledger.slot(5.0, "happy")


def test_a_gpu_that_leaves_has_no_series_and_goes_on_where_it_was(ledger: Ledger) -> None:
    ledger.add(window(), [], [traced()], OK, 10.0)
    ledger.know(DEVICES[1:])
    assert GPU0 not in {s.device for s in ledger.slot(11.0).series}
    ledger.know(DEVICES)
    assert value(ledger.slot(12.0), "amdgpu_windows_total", "trace", "ok") == 1


def test_a_window_of_a_gpu_that_does_not_answer_is_kept_for_it(ledger: Ledger) -> None:
    ledger.know([])
    ledger.add(window(), [], [traced()], OK, 10.0)
    assert value(ledger.slot(11.0), "amdgpu_windows_unmapped_total", "trace", "ok", device=None) == 0
    ledger.know(DEVICES)
    assert value(ledger.slot(12.0), "amdgpu_windows_total", "trace", "ok") == 1
    assert value(ledger.slot(12.0), "amdgpu_queue_delay_ratio") == pytest.approx(60 / 260)


def test_a_ledger_is_ready_once_it_has_known_a_gpu() -> None:
    ledger = Ledger()
    assert not ledger.ready
    ledger.know(DEVICES)
    ledger.know([])
    assert ledger.ready


def test_ten_kernels_have_a_series_and_the_rest_is_other(ledger: Ledger) -> None:
    stats = tuple(kernel(f"k{chr(97 + i)}", 100 + i) for i in range(13))
    ledger.add(window(), [], [traced(kernel_stats=stats)], OK, 10.0)
    named = {
        s.labels[0]: v
        for s, v in read(ledger.slot(11.0)).items()
        if s.metric == "amdgpu_kernel_dispatches_total" and s.device == GPU0
    }
    assert named == {"other": 3, **{f"k{chr(97 + i)}": 1 for i in range(3, 13)}}
    assert value(ledger.slot(11.0), "amdgpu_kernel_seconds_total", "other") == pytest.approx(303e-9)


def test_above_sixteen_gpus_five_kernels_have_a_series() -> None:
    devices = [Device(DeviceId("0000:05:00.0", p), 0) for p in range(17)]
    ledger = Ledger()
    ledger.know(devices)
    stats = tuple(kernel(f"k{i}", 100 + i) for i in range(9))
    ledger.add(window(), [], [traced(device=devices[3].id, kernel_stats=stats)], OK, 10.0)
    named = {
        s.labels[0]
        for s in ledger.slot(11.0).series
        if s.metric == "amdgpu_kernel_seconds_total" and s.device == devices[3].id
    }
    assert named == {"other", "k8", "k7", "k6", "k5", "k4"}


def test_a_named_kernel_keeps_its_series_for_a_day_and_returns_no_lower(ledger: Ledger) -> None:
    ledger.add(window(), [], [traced(kernel_stats=(kernel("old", 5000),))], OK, 0.0)
    crowd = tuple(kernel(f"c{i}", 10_000) for i in range(12))
    ledger.add(window(), [], [traced(kernel_stats=crowd)], OK, 10.0)
    assert value(ledger.slot(UNSEEN_S - 1), "amdgpu_kernel_seconds_total", "old") == pytest.approx(5e-6)
    other = value(ledger.slot(UNSEEN_S - 1), "amdgpu_kernel_seconds_total", "other")
    gone = ledger.slot(UNSEEN_S)
    assert value(gone, "amdgpu_kernel_seconds_total", "old") is None
    assert value(gone, "amdgpu_kernel_seconds_total", "other") == other, "forgetting adds nothing to the rest"
    ledger.add(window(), [], [traced(kernel_stats=(kernel("old", 7000),))], OK, UNSEEN_S + HOUR)
    back = ledger.slot(UNSEEN_S + HOUR)
    assert value(back, "amdgpu_kernel_seconds_total", "old") == pytest.approx(12e-6)


def test_kernels_that_share_a_label_are_added_and_have_no_median(ledger: Ledger) -> None:
    stats = (kernel("triton_poi_fused_add_1", 100), kernel("triton_poi_fused_add_22", 50))
    ledger.add(window(), [], [traced(kernel_stats=stats)], OK, 1.0)
    slot = ledger.slot(2.0)
    assert value(slot, "amdgpu_kernel_seconds_total", "triton_poi_fused_add_N") == pytest.approx(150e-9)
    assert value(slot, "amdgpu_kernel_median_seconds", "triton_poi_fused_add_N") is None


def test_a_label_can_be_looked_up_to_its_full_name(ledger: Ledger) -> None:
    full = "void gemm<" + "float, " * 60 + "4>(float*)"
    ledger.add(window(), [], [traced(kernel_stats=(kernel(full, 100),))], OK, 1.0)
    [(label, name)] = ledger.kernel_names().items()
    assert name == full
    assert len(label) == NAME_LIMIT


@pytest.mark.parametrize(
    "broken",
    [
        {"exposed_delay_ns": -1},
        {"execution_class_ns": {"compute": -5}},
        {"kernel_stats": (kernel("k", -3),)},
        {"launch_stats": (launches([1], [2]).__class__("kernel", 1, 1, 2, (1, 0) + (1,) * 9, (1,) * 11),)},
        {"launch_call_buckets": (1, 2)},
        {"l2_hits": float("nan"), "l2_requests": 5.0},
        {"valu_instructions": float("inf")},
    ],
)
def test_a_result_that_would_make_a_counter_fall_is_refused_whole(ledger: Ledger, broken: dict) -> None:
    before = ledger.slot(1.0)
    with pytest.raises(ValueError, match=r"window w, GPU 0000:05:00\.0"):
        ledger.add(window(), [], [traced(device=GPU1), traced(**broken)], OK, 1.0)
    assert ledger.slot(1.0).values == before.values


_NAMES = st.sampled_from(
    [f"kernel {c}" for c in "abcdefghijklmnopq"] + ["other", "", "triton_x_1", "triton_x_2"]
)
_STATS = st.lists(
    st.builds(kernel, _NAMES, st.integers(0, 10**7), st.integers(1, 50)),
    max_size=16,
    unique_by=lambda k: k.kernel,
)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from([GPU0, GPU1]),
        st.sampled_from(["trace", "counters"]),
        st.floats(0, 30 * HOUR),
        _STATS,
        st.lists(st.integers(0, 10**9), max_size=5),
        st.sampled_from([None, 0.0, 10.0, 1e9]),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(_STEPS)
def test_no_counter_ever_falls_whatever_windows_come(steps: list) -> None:
    ledger = Ledger()
    ledger.know(DEVICES)
    now = 0.0
    highest: dict[Series, float] = {}
    expected_ns = {GPU0: 0, GPU1: 0}
    named_ns: dict[tuple[DeviceId, str], float] = {}
    for device, mode, wait_s, stats, queues, valu in steps:
        now += wait_s
        changes = {"device": device, "kernel_stats": tuple(stats)}
        if mode == "trace":
            expected_ns[device] += sum(k.total_ns for k in stats)
            stat = launches(queues, [q + 5 for q in queues])
            result = traced(**changes, launch_stats=(stat,), queue_ns=stat.queue_ns)
        else:
            result = counted(**changes, valu_instructions=valu, l2_hits=valu, l2_requests=valu)
        ledger.add(window(mode), [], [result], OK, now)
        slot = ledger.slot(now)
        assert len(set(slot.series)) == len(slot.series)
        for series, got in zip(slot.series, slot.values, strict=True):
            kind = CATALOGUE[series.metric].kind
            if kind is Kind.HISTOGRAM:
                assert isinstance(got, Histogram)
                got = got.count
            elif kind is not Kind.COUNTER:
                continue
            # ``highest`` outlives the series: a label set that comes back must not come back lower.
            assert got >= highest.get(series, 0), series
            highest[series] = got
            if series.metric == "amdgpu_kernel_seconds_total" and series.device:
                named_ns[series.device, series.labels[0]] = got
        kernels = [s for s in slot.series if s.metric == "amdgpu_kernel_seconds_total" and s.device == device]
        assert len(kernels) <= 11
    for gpu, total in expected_ns.items():
        seen = sum(v for (d, _), v in named_ns.items() if d == gpu)
        assert seen == pytest.approx(total / 1e9), "every nanosecond is in exactly one series"


def test_the_limits_can_change_while_it_runs_and_totals_stay() -> None:
    ledger = Ledger(Keep(kernels=1))
    ledger.know(DEVICES)
    ledger.add(window(), [], [traced(kernel_stats=(kernel("a", 9000), kernel("b", 5000)))], OK, 100.0)
    assert value(ledger.slot(101.0), "amdgpu_kernel_seconds_total", "b") is None
    ledger.configure(Keep(kernels=2, hold_s=50.0, unseen_s=500.0))
    ledger.add(window(), [], [traced(kernel_stats=(kernel("b", 5000),))], OK, 110.0)
    slot = ledger.slot(111.0)
    assert value(slot, "amdgpu_kernel_seconds_total", "a") == pytest.approx(9e-6)
    assert value(slot, "amdgpu_kernel_seconds_total", "b") == pytest.approx(5e-6)
    assert value(ledger.slot(160.0), "amdgpu_queue_delay_ratio") is None, "older than the new hold time"
    assert value(ledger.slot(600.0), "amdgpu_kernel_seconds_total", "a") is None, "unseen long enough"


def test_windows_that_are_started_here_are_counted_from_zero_however_they_end(ledger: Ledger) -> None:
    count = "amdgpu_windows_total"
    assert value(ledger.slot(0.0), count, "trace", "crash") is None
    ledger.expect("trace")
    assert {value(ledger.slot(0.0), count, "trace", outcome) for outcome in WindowOutcome} == {0}
    assert value(ledger.slot(0.0), count, "counters", "crash") is None
    ledger.add(window(agents={"a": GPU0}), (), (), WindowOutcome.CRASH, 1.0)
    ledger.expect("trace")
    assert value(ledger.slot(2.0), count, "trace", "crash") == 1


def test_deep_counters_never_enter_what_light_ones_say(ledger: Ledger) -> None:
    ledger.add(window("counters", counter_set="light"), [], [counted()], OK, 10.0)
    before = {s: v for s, v in read(ledger.slot(11.0)).items() if "window" not in s.metric}
    deep = counted(l2_hits=1.0, l2_requests=1000.0, valu_instructions=1.0, slots_available=1e12)
    ledger.add(window("counters", counter_set="deep"), [], [deep], OK, 12.0)
    after = read(ledger.slot(13.0))
    assert {s: after[s] for s in before} == before
    assert value(ledger.slot(13.0), "amdgpu_windows_total", "counters", "ok") == 2
    assert value(ledger.slot(13.0), "amdgpu_l2_hit_ratio") == 0.75


def test_each_deep_set_keeps_its_own_gauge(ledger: Ledger) -> None:
    def deep(at: float, observed_ns: int | None = 10_000_000, **counters: float) -> None:
        result = counted(counters=counters, counter_observed_ns=observed_ns)
        ledger.add(window("counters", counter_set="deep"), [], [result], OK, at)

    deep(10.0, FETCH_SIZE=20_000_000.0)  # 20.48 GB in 10 ms
    deep(11.0, WRITE_SIZE=5_000_000.0)
    deep(12.0, TCC_REQ_sum=1000.0, TCC_ATOMIC_sum=40.0)
    deep(13.0, TCC_REQ_sum=0.0, TCC_ATOMIC_sum=0.0)  # no traffic says nothing
    deep(14.0, None, FETCH_SIZE=7.0)
    slot = ledger.slot(15.0)
    assert value(slot, "amdgpu_memory_bandwidth_bytes_per_second", "read") == pytest.approx(2.048e12)
    assert value(slot, "amdgpu_memory_bandwidth_bytes_per_second", "written") == pytest.approx(512e9)
    assert value(slot, "amdgpu_atomic_ratio") == 0.04
    assert value(slot, "amdgpu_atomic_ratio", device=GPU1) is None
