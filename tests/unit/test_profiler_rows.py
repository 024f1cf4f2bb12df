"""Decoders against everything a writer, a full disk or a text editor can do to a table."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_traces import (
    BASE,
    CALL_COLUMNS,
    COPY_COLUMNS,
    COUNTER_COLUMNS,
    KERNEL_COLUMNS,
    TEXT,
    C,
    K,
    calls,
    copies,
    counters,
    kernels,
    load,
    table,
)

from exporter.formats import rows, sniff
from exporter.formats.rows import Table
from exporter.formats.trace import Decoded, Names

SMALL = kernels(
    [K(0, 10, 1, "a(int)"), K(20, 35, 2, 'b "c", d'), K(40, 41, 3, "e\nf"), K(50, 60, 4, "g<1, 2>")]
)


def decode(data: bytes, step: int = 1 << 20) -> tuple[Decoded, list[tuple[int, int, str]]]:
    """The decoder's view of some bytes, fed ``step`` at a time."""
    names = Names()
    found = sniff.find(data[: sniff.HEAD], names)
    assert found.decoder is not None, found.note
    rest = data[found.offset :]
    for at in range(0, len(rest), step):
        found.decoder.feed(rest[at : at + step])
    found.decoder.finish()
    decoded = found.decoder.decoded
    columns = (decoded.kernels.start, decoded.kernels.end, decoded.kernels.name)
    return decoded, [(s, e, names.texts()[n]) for s, e, n in zip(*columns, strict=True)]


def spans(decoded: Decoded) -> list[tuple[int, int]]:
    return [(s - BASE, e - BASE) for s, e in zip(decoded.kernels.start, decoded.kernels.end, strict=True)]


def row(start: object = BASE, end: object = BASE + 9, correlation: object = 1, name: str = "k") -> bytes:
    values = ("KERNEL_DISPATCH", "Agent 4", 1, 1, 7, 1, 10, name, correlation, start, end, 0, 64)
    return table(KERNEL_COLUMNS, [values]).split(b"\n", 1)[1]


HEAD = table(KERNEL_COLUMNS, [])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(end=BASE - 1), "invalid"),
        (row(start=0), "invalid"),
        (row(start=0, end=0), "invalid"),
        (row(end=1 << 63), "invalid"),
        (row(start="8.1097E+14"), "malformed"),
        (row(start="-5"), "malformed"),
        (row(end=""), "malformed"),
        (row(correlation="x"), "malformed"),
        (b"garbage\n", "malformed"),
        (b'"KERNEL_DISPATCH","Agent 4",1,1\n', "malformed"),
        (row()[:-4] + b",1,2,3,4\n", "malformed"),
        (b'"KERNEL_DISPATCH","Agent 4",1,1,7,1,10,"cut na' + row(name="z"), "malformed"),
    ],
)
def test_a_bad_row_costs_itself_and_is_counted_under_its_reason(bad: bytes, reason: str):
    good = row(name="first"), row(BASE + 20, BASE + 30, 2, "last")
    for data in (HEAD + good[0] + bad + good[1], HEAD + bad + b"".join(good), HEAD + b"".join(good) + bad):
        decoded, found = decode(data)
        assert [name for _, _, name in found] == ["first", "last"], data
        assert decoded.skipped == {reason: 1}
        assert (decoded.rows, decoded.partial) == (2, False)


def test_duplicates_are_counted_and_used_once(tmp_path: Path):
    data = kernels([K(0, 10, 1), K(20, 30, 2)])
    path = tmp_path / "7_kernel_trace.csv"
    path.write_bytes(data + data.split(b"\n", 1)[1])
    analysis = load(path)
    assert dict(analysis.sources[0].skipped) == {"duplicate": 2}
    assert (analysis.results[0].kernels, analysis.sources[0].rows) == (2, 2)


def test_a_cut_at_every_byte_never_raises_and_never_invents():
    whole, truth = decode(SMALL)
    assert len(truth) == 4
    assert not whole.partial
    ends = {i + 1 for i, byte in enumerate(SMALL) if byte == 10}
    used = 0
    for cut in range(len(HEAD) + 1, len(SMALL)):
        decoded, found = decode(SMALL[:cut])
        assert found == truth[: len(found)], cut
        assert len(found) >= used, cut  # more bytes never give fewer rows
        used = len(found)
        if cut not in ends:
            assert decoded.partial, cut
        assert decoded.rows == len(found)


@pytest.mark.parametrize(
    "data",
    [
        calls([C(0, 10, 1), C(20, 130, 2, "hipGetLastError")]),
        copies([(0, 10, "HOST_TO_DEVICE"), (20, 130, "DEVICE_TO_HOST")]),
        counters([(1, "k", "SQ_WAVES", 12345, 0, 10), (2, "k", "SQ_WAVES", 67890, 20, 130)]),
    ],
    ids=["calls", "copies", "counters"],
)
def test_a_cut_number_at_the_end_of_a_file_is_never_believed(data: bytes):
    names = Names()
    start = data.index(b"\n") + 1
    for cut in range(start + 1, len(data)):
        decoder = sniff.find(data, names).decoder
        assert decoder is not None
        decoder.feed(data[start:cut])
        decoder.finish()
        d = decoder.decoded
        for columns in (d.calls, d.copies):
            assert all(e - BASE in (10, 130) for e in columns.end), cut
        assert all(v in (12345, 67890) for one in d.dispatches for v in one.counters.values())
        assert d.partial or data[cut - 1] == 10


def test_rows_come_the_same_however_the_bytes_are_dealt():
    _, truth = decode(SMALL)
    for step in (1, 2, 3, 7, 64, 1000):
        assert decode(SMALL, step)[1] == truth


def _reordered(data_columns, values, seed, quote=TEXT):
    order = list(range(len(data_columns)))
    random.Random(seed).shuffle(order)
    return table([data_columns[i] for i in order], [[value[i] for i in order] for value in values], quote)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "quote", [TEXT, set(KERNEL_COLUMNS) | set(CALL_COLUMNS)], ids=["some quoted", "all quoted"]
)
def test_columns_are_found_by_name_in_any_order_with_others_between(seed: int, quote: set[str]):
    columns = [*KERNEL_COLUMNS, "Duration", "New_Column"]
    values = [
        (
            "KERNEL_DISPATCH",
            "Agent 4",
            1,
            1,
            7,
            i,
            10,
            f"k<{i}, 2>(int)",
            i,
            BASE + 100 * i,
            BASE + 100 * i + i,
            0,
            64,
            i,
            "x",
        )
        for i in range(1, 40)
    ]
    decoded, found = decode(_reordered(columns, values, seed, quote))
    assert found == [(v[9], v[10], v[7]) for v in values]
    assert list(decoded.kernels.correlation) == [v[8] for v in values]
    assert {(lane.agent, lane.queue, lane.stream, lane.tid) for lane in decoded.lanes} == {
        ("Agent 4", "1", "1", 7)
    }


@pytest.mark.parametrize("seed", range(8))
def test_calls_copies_and_counters_are_found_by_name_too(seed: int):
    values = [("HIP_RUNTIME_API", "hipLaunchKernel", 5, 6, i, BASE + i, BASE + 2 * i) for i in range(1, 30)]
    decoded, _ = decode(_reordered(CALL_COLUMNS, values, seed))
    assert list(zip(decoded.calls.start, decoded.calls.end, strict=True)) == [(v[5], v[6]) for v in values]
    assert {(lane.pid, lane.tid) for lane in decoded.lanes} == {(5, 6)}
    values = [
        ("MEMORY_COPY", "MEMORY_COPY_HOST_TO_DEVICE", 0, "Agent 0", "Agent 4", 0, BASE + i, BASE + 2 * i)
        for i in range(1, 30)
    ]
    decoded, _ = decode(_reordered(COPY_COLUMNS, values, seed))
    assert list(zip(decoded.copies.start, decoded.copies.end, strict=True)) == [(v[6], v[7]) for v in values]
    assert [decoded.lanes[i].agent for i in (decoded.copies.lane[0], decoded.copies.target[0])] == [
        "Agent 0",
        "Agent 4",
    ]
    values = [
        (i, i, "Agent 4", 1, 7, 7, "k(int)", "SQ_WAVES", f"{i}.5e+01", BASE + i, BASE + 2 * i)
        for i in range(1, 30)
    ]
    decoded, found = decode(_reordered(COUNTER_COLUMNS, values, seed))
    assert [d.counters["SQ_WAVES"] for d in decoded.dispatches] == [i * 10 + 5 for i in range(1, 30)]
    assert [(s, e) for s, e, _ in found] == [(v[9], v[10]) for v in values]


def test_a_changed_header_case_line_ends_and_byte_order_mark_do_not_matter():
    truth = decode(SMALL)[1]
    head, body = SMALL.split(b"\n", 1)
    assert decode(head.lower() + b"\n" + body)[1] == truth
    assert decode(b"\xef\xbb\xbf" + SMALL)[1] == truth
    plain = kernels([K(0, 10, 1, "a"), K(20, 30, 2, "b")])
    assert decode(plain.replace(b"\n", b"\r\n"))[1] == decode(plain)[1]


def test_values_of_zero_length_and_largest_size_are_kept():
    decoded, _ = decode(HEAD + row(start=BASE, end=BASE) + row(end=(1 << 63) - 1))
    assert list(decoded.kernels.end) == [BASE, (1 << 63) - 1]


NAME = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\x00", exclude_categories=("Cs",))
    | st.sampled_from('",\n\\ <>'),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(NAME, min_size=1, max_size=12), st.integers(1, 400))
def test_any_name_is_kept_or_its_row_refused_and_times_are_always_right(names, step):
    data = kernels([K(100 * i, 100 * i + i + 1, i + 1, name) for i, name in enumerate(names)])
    decoded, found = decode(data, step)
    truth = {(BASE + 100 * i, BASE + 100 * i + i + 1): name for i, name in enumerate(names)}
    for start, end, name in found:
        assert truth[start, end] == name
    assert len(found) + sum(decoded.skipped.values()) >= len(names)
    plain = [name for name in names if not set('",\n') & set(name)]
    assert {name for _, _, name in found} >= set(plain)


@settings(max_examples=100, deadline=None)
@example([("", ""), ("00", ""), ("", ""), ("", ""), ("", ",1")], False)  # lands inside a quoted kind
@given(
    st.lists(st.tuples(NAME, st.sampled_from(["", "x", "\n", '"', ",1"])), min_size=1, max_size=30),
    st.booleans(),
)
def test_the_quick_path_gives_what_the_exact_one_gives(rows_in, quote_all):
    quote = set(KERNEL_COLUMNS) if quote_all else TEXT
    values = [
        ("KERNEL_DISPATCH", "Agent 4", 1, 1, 7, i, 10, name, i, BASE + i, BASE + 2 * i, 0, 64)
        for i, (name, _) in enumerate(rows_in, 1)
    ]
    lines = table(KERNEL_COLUMNS, values, quote).split(b"\n", 1)
    columns = rows.header(lines[0])
    broken = bytearray(lines[1])
    for i, (_, noise) in enumerate(rows_in):
        if noise and len(broken):
            at = (i * 37) % len(broken)
            broken[at:at] = noise.encode()
    wanted = ("Start_Timestamp", "End_Timestamp", "Kernel_Name")

    class Slow(Table):
        def _quick(self, block):
            return None

    def run(kind):
        reader = kind(columns, wanted, "Kernel_Name")
        out = [
            list(zip(*(batch[name] for name in wanted), strict=True))
            for batch in (*reader.feed(bytes(broken)), *reader.finish())
        ]
        return [tuple(map(bytes.strip, r)) for part in out for r in part]

    quick, slow = run(Table), run(Slow)
    # The exact path checks more, so what the quick one gives beyond it can only be a row with a bad number.
    assert [r for r in quick if r[0].isdigit() and r[1].isdigit()] == [
        r for r in slow if r[0].isdigit() and r[1].isdigit()
    ]


def test_large_blocks_with_a_few_odd_rows_lose_nothing():
    names = [f"k{i}" if i % 997 else f'odd "{i}", x\ny' for i in range(12_000)]
    data = kernels([K(10 * i, 10 * i + 5, i + 1, name) for i, name in enumerate(names)])
    assert len(data) > 3 * rows.BLOCK
    for step in (1 << 20, 100_001):
        decoded, found = decode(data, step)
        assert [name for _, _, name in found] == names
        assert decoded.skipped == {}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"SQLite format 3\x00abc", "rocpd"),
        (b'{"a": 1}', "traceEvents"),
        (b"\x7fELF\x00\x01", "binary"),
        (b"some,other,table\n1,2,3\n", "some,other,table"),
    ],
)
def test_what_is_not_known_is_named_in_one_line(tmp_path: Path, data: bytes, says: str):
    path = tmp_path / "x_kernel_trace.csv"
    path.write_bytes(data)
    analysis = load(path)
    assert [(s.format, s.rows) for s in analysis.sources] == [(None, 0)]
    assert len(analysis.notes) == 1
    assert str(path) in analysis.notes[0]
    assert says in analysis.notes[0]
    assert "\n" not in analysis.notes[0]


def test_formats_are_found_by_content_and_not_by_name(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(kernels([K(20, 30, 1)]))
    (tmp_path / "b.json").write_bytes(gzip.compress(calls([C(0, 10, 1)])))
    analysis = load(tmp_path)
    assert [s.format for s in analysis.sources] == ["rocprofv3-kernel-trace", "rocprofv3-api-trace"]
    assert [(r.launches, r.queue_ns) for r in analysis.results] == [(1, 20)]


def test_a_cut_or_damaged_archive_is_partial_and_keeps_what_came_before(tmp_path: Path):
    rng = random.Random(3)
    data = kernels([K(10 * i, 10 * i + rng.randrange(9), i + 1, f"k{rng.random()}") for i in range(3000)])
    packed = gzip.compress(data)
    path = tmp_path / "7_kernel_trace.csv.gz"
    path.write_bytes(packed[: len(packed) // 2])
    analysis = load(path)
    (source,) = analysis.sources
    assert source.partial
    assert 0 < analysis.results[0].kernels < 3000
    assert len(analysis.notes) == 1
    path.write_bytes(packed[:5])
    assert load(path).sources[0].format is None


def test_an_unreadable_file_costs_itself(tmp_path: Path):
    (tmp_path / "7_kernel_trace.csv").write_bytes(SMALL)
    (tmp_path / "8_kernel_trace.csv").symlink_to(tmp_path / "nowhere")
    analysis = load(tmp_path)
    assert [s.rows for s in analysis.sources] == [4, 0]
    assert "8_kernel_trace.csv: cannot be read" in analysis.notes[0]


def test_a_v1_table_without_counters_is_a_trace_and_with_them_a_pass(tmp_path: Path):
    head = (
        b'"Index","KernelName","gpu-id","queue-id","pid","tid","DispatchNs","BeginNs","EndNs","CompleteNs"\n'
    )
    path = tmp_path / "results.csv"
    path.write_bytes(head + b'0,"a [clone .kd]",2,0,5,5,100,150,200,210\n1,"b.kd",2,0,5,5,160,220,230,215\n')
    (result,) = load(path).results
    # The second row's CompleteNs lies before its EndNs: its DispatchNs is of another clock or run.
    assert (result.launches, result.queue_ns, result.kernels) == (1, 50, 2)
    assert {k.kernel for k in result.kernel_stats} == {"a", "b"}


def test_a_v2_gpu_id_is_looked_up_and_never_an_index(tmp_path: Path):
    columns = "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID\n"
    (tmp_path / "results.csv").write_text(
        columns + '1,30004,1,9,9,"k (.kd)",100,200,0\n2,4,1,9,9,"k (.kd)",300,400,0\n'
    )
    agents = "Node_Id,Agent_Type,Location_Id,Domain,Gpu_Id,Name\n4,GPU,49408,0,30004,gfx942\n"
    (tmp_path / "agent_info.csv").write_text(agents)
    assert [r.gpu for r in load(tmp_path).results] == ["0000:c1:00.0", "4"]


@pytest.mark.parametrize(("cycles", "kept"), [(100, True), (5_000, True), (4, False), (500_000, False)])
def test_an_impossible_clock_refuses_the_times_and_keeps_the_counters(
    tmp_path: Path, cycles: int, kept: bool
):
    columns = "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID"
    path = tmp_path / "results.csv"
    path.write_text(f'{columns},GRBM_COUNT\n1,3,1,9,9,"k",1000,2000,0,{cycles}\n')
    analysis = load(path)
    (result,) = analysis.results
    assert result.counters["GRBM_COUNT"] == cycles
    assert (result.execution_ns == 1000) == kept
    assert dict(analysis.sources[0].skipped) == ({} if kept else {"implausible": 1})


def _damaged(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(len(out) + 1)
        way = rng.randrange(4)
        if way == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif way == 1:
            del out[at : at + rng.randrange(1, 120)]
        elif way == 2:
            out[at:at] = rng.choice([b'"', b",", b"\n", b"\0", b"9" * 20, b"-1", b"nan", b'"""'])
        else:
            del out[at:]
    return bytes(out)


@pytest.mark.parametrize("seed", range(6))
def test_no_damage_raises_hangs_or_breaks_the_sum_of_the_states(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    wide = b"Dispatch_ID,GPU_ID,PID,TID,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,GRBM_COUNT\n"
    whole = {
        "7_kernel_trace.csv": kernels([K(50 * i + 20, 50 * i + 40, i) for i in range(1, 9)]),
        "7_hip_api_trace.csv": calls([C(50 * i, 50 * i + 10, i) for i in range(1, 9)]),
        "7_memory_copy_trace.csv": copies([(0, 10, "HOST_TO_DEVICE"), (20, 130, "DEVICE_TO_HOST")]),
        "8_counter_collection.csv": counters(
            [(i, "k", "SQ_WAVES", i, 10 * i, 10 * i + 9) for i in range(1, 9)]
        ),
        "results.csv": wide + b'1,3,9,"k",1000,2000,0,500\n2,3,9,"k",3000,4000,0,500\n',
        "9_kernel_stats.csv": b'"Name","Calls","TotalDurationNs","MinNs"\n"k",1,5,5\n"j",2,nan,5\n',
        "7_agent_info.csv": b"Node_Id,Agent_Type,Location_Id,Domain,Gpu_Id\n4,GPU,49408,0,30004\n",
    }
    for _ in range(40):
        for name, data in whole.items():
            (tmp_path / name).write_bytes(_damaged(rng, data) if rng.randrange(2) else data)
        for result in load(tmp_path).results:
            states = list(result.timeline_ns.values())
            if None not in states:
                assert sum(states) == result.span_ns
                assert min(states) >= 0
