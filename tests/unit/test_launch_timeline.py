"""The launch timeline against a slow second opinion that looks at every instant."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import BASE, C, K, load, window

from exporter.model import TimelineState
from exporter.windows import timeline
from exporter.windows.join import merged
from exporter.windows.timeline import NEVER

SPAN = 60
launch = st.tuples(
    st.integers(0, SPAN),  # call start
    st.integers(0, 12),  # call length
    st.integers(0, 30),  # delay from the call's start to the kernel's
    st.integers(0, 15),  # kernel length
    st.sampled_from(["joined", "carried", "captured"]),
)


def _by_instant(kernels, calls, low, high):
    """kernels: (start, end, submitted); calls: (start, end). Counts instants by the handbook's words."""
    counts = dict.fromkeys(map(str, TimelineState), 0)
    for t in range(low, high):
        if any(s <= t < e for s, e, _ in kernels):
            state = "executing"
        elif any(sub <= t < s for s, _, sub in kernels):
            state = "queued"
        elif any(s <= t < e for s, e in calls):
            state = "launching"
        else:
            state = "starved"
        counts[state] += 1
    return counts


def _rows(launches):
    kernels, calls = [], []
    for number, (start, length, delay, run, kind) in enumerate(launches, 1):
        call = (start, start + length)
        begin = start + delay
        if kind != "carried":
            calls.append((*call, number))
        if kind != "captured":
            submitted = min(call[1], begin) if kind == "joined" else begin
            kernels.append((begin, begin + run, submitted, number if kind == "joined" else 0))
    return kernels, calls


@settings(max_examples=300, deadline=None)
@given(st.lists(launch, max_size=9), st.integers(0, 30), st.integers(1, 60))
def test_the_four_states_sum_to_the_span_and_agree_with_a_count_of_every_instant(launches, low, length):
    rows, calls = _rows(launches)
    rows.sort()
    high = low + length
    start, end, sub = (array("q", (row[i] for row in rows)) for i in range(3))
    idle = timeline.gaps(start, end, low, high)
    calls.sort()
    union = merged([(array("q", (c[0] for c in calls)), array("q", (c[1] for c in calls)))])
    queued, launching = timeline.split(idle, timeline.earliest_waiting(sub, high), union)
    executing = high - low - idle.total()
    wanted = _by_instant([row[:3] for row in rows], [c[:2] for c in calls], low, high)
    found = {
        "executing": executing,
        "queued": queued,
        "launching": launching,
        "starved": high - low - executing - queued - launching,
    }
    assert found == wanted


@settings(max_examples=60, deadline=None)
@given(launches=st.lists(launch, min_size=1, max_size=8), low=st.integers(0, 30), length=st.integers(1, 60))
def test_files_with_planned_bounds_reach_the_same_count(tmp_path_factory, launches, low, length):
    rows, calls = _rows(launches)
    # Calls of one thread cannot overlap without being nested, so each has a thread of its own.
    made = [C(s, e, n, tid=n) for s, e, n in calls]
    kernels = [K(s, e, n, stream=i) for i, (s, e, _, n) in enumerate(rows)]
    folder = window(tmp_path_factory.mktemp("w"), [], made, bounds=(low, low + length))
    from made_traces import KERNEL_COLUMNS, table

    (folder / "7_kernel_trace.csv").write_bytes(
        table(
            KERNEL_COLUMNS,
            (
                (
                    "KERNEL_DISPATCH",
                    "Agent 4",
                    1,
                    k.stream,
                    k.correlation or 1,
                    i,
                    1,
                    "k",
                    k.correlation,
                    BASE + k.start,
                    BASE + k.end,
                    0,
                    1,
                )
                for i, k in enumerate(kernels)
            ),
        )
    )
    if not kernels:
        return
    if not made:  # a trace without any call cannot tell queued from starved
        return
    (result,) = load(folder).results
    wanted = _by_instant([row[:3] for row in rows], [c[:2] for c in calls], low, low + length)
    threads_known = {k.correlation or 1 for k in kernels} & {c.tid for c in made}
    if threads_known:
        assert dict(result.timeline_ns) == wanted
        assert sum(v for v in result.timeline_ns.values()) == result.span_ns == length
    else:
        assert result.timeline_ns["executing"] == wanted["executing"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 12)), max_size=6),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 12), st.sampled_from(["a", "b"])), max_size=6),
)
def test_exposed_copies_are_the_idle_instants_in_which_one_runs(kernels, copies):
    kernels = sorted((s, s + n) for s, n in kernels)
    rows = [(s, s + n, way) for s, n, way in copies]
    start, end = (array("q", (k[i] for k in kernels)) for i in range(2))
    found, union = timeline.exposed_copies(timeline.gaps(start, end, 0, 60), rows, 0, 60)
    idle = [t for t in range(60) if not any(s <= t < e for s, e in kernels)]
    for way in {row[2] for row in rows}:
        assert found[way] == sum(any(s <= t < e for s, e, w in rows if w == way) for t in idle)
    assert union == sum(any(s <= t < e for s, e, _ in rows) for t in idle)


def test_exposed_delay_is_the_wait_that_no_kernel_of_the_stream_explains():
    # Called at 0, the stream was busy until 10, started at 15: five were nobody's work.
    start, end = array("q", [2, 15, 40]), array("q", [10, 20, 41])
    assert timeline.exposed_delay(start, end, None, array("q", [1, 0, 38])) == 1 + 5 + 2
    # On two streams nothing explains the second kernel's wait.
    assert timeline.exposed_delay(start, end, array("i", [0, 1, 0]), array("q", [1, 0, 38])) == 1 + 15 + 2
    assert timeline.exposed_delay(start, end, None, array("q", [timeline.NEVER, 0, timeline.NEVER])) == 5


def test_times_at_the_end_of_what_can_be_written_end_the_walk(tmp_path):
    last = (1 << 63) - 1 - BASE
    rows = [K(10, 20, 1), K(last - 5, last - 2, 2), K(last - 1, last, 3)]
    folder = window(tmp_path, rows, [C(0, 5, 1), C(6, 8, 2), C(9, 9, 3)])
    (result,) = load(folder).results
    assert sum(result.timeline_ns.values()) == result.span_ns
    start, end = array("q", [1, NEVER - 2]), array("q", [2, NEVER])
    assert timeline.covered([(0, NEVER)], timeline.gaps(start, end, 0, NEVER)) == NEVER - 1 - 2
