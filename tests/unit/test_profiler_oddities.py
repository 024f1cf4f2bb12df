"""Input that no tool should write but some file holds, and rows whose process is hard to tell."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from made_traces import (
    BASE,
    CALL_COLUMNS,
    COUNTER_COLUMNS,
    KERNEL_COLUMNS,
    load,
    table,
)

from exporter.checks.analyze import as_dict
from exporter.formats import sniff
from exporter.formats.rows import Table
from exporter.formats.trace import Names
from exporter.windows.intake import Analysis

MANY = "9" * 5000  # more digits than Python turns into an integer
AGENTS = b'"Node_Id","Agent_Type","Location_Id","Domain"\n4,"GPU",256,0\n'
STATS = b'"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
V1 = (
    "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,vgpr,sgpr,fbar,sig,obj,"
    'DispatchNs,BeginNs,EndNs,CompleteNs\n{0},"k",0,0,0,1,1,1,1,1,1,1,1,1,0x0,0x1,100,200,300,400\n'
)
V2 = (
    "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID\n"
    '{0},60633,1,77,77,"a (.kd)",{1},{2},{3}\n'
)


def kernel(start: object = BASE, end: object = BASE + 9, correlation: object = 1, **more: object) -> tuple:
    values = {"agent": "Agent 4", "tid": 7, "name": "k(int)"} | more
    head = ("KERNEL_DISPATCH", values["agent"], 1, 1, values["tid"], 1, 10)
    return (*head, values["name"], correlation, start, end, 0, 64)


def call(function: str, correlation: int, start: int, end: int, tid: int = 7) -> tuple:
    return ("HIP_RUNTIME_API_EXT", function, 7, tid, correlation, BASE + start, BASE + end)


def counter(name: str, value: object, dispatch: object = 1) -> tuple:
    return (1, dispatch, "Agent 4", 1, 7, 7, "k(int)", name, value, BASE, BASE + 9)


def kernels(*rows: tuple) -> bytes:
    return table(KERNEL_COLUMNS, rows)


def calls(*rows: tuple) -> bytes:
    return table(CALL_COLUMNS, rows)


def torch(*events: str) -> bytes:
    return b'{"traceEvents": [' + ", ".join(events).encode() + b"]}"


def written(folder: Path, **files: bytes) -> Path:
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)
    return folder


def used(analysis: Analysis) -> tuple[int, dict[str, int]]:
    json.dumps(as_dict(analysis), allow_nan=False)
    skipped: dict[str, int] = {}
    for source in analysis.sources:
        for reason, count in source.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + count
    return sum(source.rows for source in analysis.sources), skipped


@pytest.mark.parametrize(
    ("data", "rows", "skipped"),
    [
        (kernels(kernel(MANY, MANY), kernel()), 1, {"invalid": 1}),
        (kernels(kernel(correlation=MANY), kernel()), 1, {"invalid": 1}),
        (kernels(kernel(tid=MANY), kernel()), 2, {}),
        (kernels(kernel(tid="\u00b2"), kernel()), 2, {}),
        (kernels(kernel(name="a\0b")), 1, {}),
        (table(COUNTER_COLUMNS, [counter("A", 1, MANY), counter("A", 1)]), 1, {"malformed": 1}),
        (table(COUNTER_COLUMNS, [counter("A", "1.7e308", 1), counter("A", "1.7e308", 2)]), 0, {"invalid": 2}),
        (table(COUNTER_COLUMNS, [counter("A", "-5"), counter("B", 5)]), 1, {"invalid": 1}),
        (STATS + b'"a",1,1.7e308,1,1,1,1,1\n', 0, {"invalid": 1}),
        (STATS + b'"b",%s,5,1,1,1,1,1\n' % MANY.encode(), 0, {"malformed": 1}),
        (STATS + b'"a",1,-5,1,1,1,1,1\n"b",1,5,1,1,1,1,1\n', 1, {"invalid": 1}),
        (AGENTS + b"\xc2\xb2,GPU,256,0\n5\xc2\xb2,GPU,256,0\n", 1, {"malformed": 2}),
        (AGENTS + b'5,"' + b"x" * 200_000 + b'",256,0\n6,GPU,256,0\n', 2, {"malformed": 1}),
        (V1.format(MANY).encode(), 0, {"malformed": 1}),
        (torch('{"ph":"X","cat":"kernel","name":"k","ts":"\u00b2","dur":1}'), 0, {"malformed": 1}),
        (torch('{"ph":"X","cat":"kernel","name":"k","dur":1,"ts":' + MANY + "}"), 0, {"malformed": 1}),
        (torch('{"ph":"X","cat":"kernel","name":"k","ts":5,"dur":1e99999999}'), 0, {"malformed": 1}),
        (torch('{"ph":"X","cat":"hip_runtime","name":"hipFree","ts":5,"dur":1,"tid":"\u00b2"}'), 1, {}),
    ],
)  # fmt: skip
def test_a_number_that_is_none_costs_its_row_and_never_raises(
    tmp_path: Path, data: bytes, rows: int, skipped: dict[str, int]
):
    assert used(load(written(tmp_path, x=data))) == (rows, skipped)


@pytest.mark.parametrize("agent", ["Agent " + MANY, "GPU " + MANY, MANY, "\u00b2"])
def test_an_agent_that_cannot_be_is_shown_as_written(tmp_path: Path, agent: str):
    folder = written(tmp_path, a__csv=AGENTS, k__csv=kernels(kernel(agent=agent), kernel()))
    assert [r.gpu for r in load(folder).results] == sorted([agent, "0000:01:00.0"])


@pytest.mark.parametrize("bounds", [[1, int("9" * 50)], [-5, BASE], [1, 1 << 63]])
def test_bounds_that_no_clock_reaches_are_ignored_with_one_line(tmp_path: Path, bounds: list[int]):
    manifest = json.dumps({"version": 1, "bounds_ns": bounds}).encode()
    analysis = load(written(tmp_path, manifest__json=manifest, k__csv=kernels(kernel())))
    assert [r.span_kind for r in analysis.results] == ["kernels"]
    assert len(analysis.notes) == 1
    assert "bounds_ns" in analysis.notes[0]


def test_a_line_without_end_costs_one_row_and_no_memory():
    names = Names()
    decoder = sniff.find(kernels(), names).decoder
    assert decoder is not None
    rows = [kernels(kernel(BASE + i, BASE + i + 5)).split(b"\n", 1)[1] for i in range(2)]
    chunk = b"x" * (1 << 18)
    decoder.feed(rows[0])
    tracemalloc.start()
    for _ in range(256):
        decoder.feed(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    decoder.feed(b"\n" + rows[1])
    decoder.finish()
    assert peak < 8 << 20
    assert (decoder.decoded.rows, decoder.decoded.skipped) == (2, {"malformed": 1})
    assert not decoder.decoded.partial


def test_a_line_without_end_at_the_end_leaves_a_partial_file():
    decoder = sniff.find(kernels(), Names()).decoder
    assert decoder is not None
    decoder.feed(kernels(kernel()).split(b"\n", 1)[1])
    for _ in range(8):
        decoder.feed(b"x" * (1 << 18))
    decoder.finish()
    assert (decoder.decoded.rows, decoder.decoded.skipped) == (1, {"malformed": 1})
    assert decoder.decoded.partial


@pytest.mark.parametrize("line", [b'"\n', b'"a,\n', b'"KERNEL_DISPATCH","Agent 4",1,1,7,1,9,"abc\n'])
def test_lines_that_all_look_unfinished_are_not_joined_over_and_over(
    monkeypatch: pytest.MonkeyPatch, line: bytes
):
    parse, seen = Table._parse, [0]

    def counted(self: Table, text: bytes) -> list[bytes] | None:
        seen[0] += 1
        return parse(self, text)

    monkeypatch.setattr(Table, "_parse", counted)
    decoder = sniff.find(kernels(), Names()).decoder
    assert decoder is not None
    one = kernels(kernel()).split(b"\n", 1)[1]
    decoder.feed(one + line * 10_000 + one)
    decoder.finish()
    assert (decoder.decoded.rows, decoder.decoded.skipped) == (2, {"malformed": 10_000})
    assert seen[0] < 300_000


# --- whose row is it ------------------------------------------------------------------------------------

KERNELS = (kernel(BASE + 10_000, BASE + 20_000, 1), kernel(BASE + 40_000, BASE + 45_000, 2))
CALLS = (call("hipLaunchKernel", 1, 0, 4000), call("hipExtLaunchKernel", 2, 30_000, 32_000))


def assert_both_launches(folder: Path) -> None:
    (result,) = load(folder).results
    assert (result.kernels, result.launches, result.unmatched_kernels) == (2, 2, 0)
    assert (result.queue_ns, result.launch_duration_ns, result.launch_call_ns) == (20_000, 35_000, 6000)
    states = {state: result.timeline_ns[state] for state in ("executing", "queued", "launching", "starved")}
    assert states == {"executing": 15_000, "queued": 8000, "launching": 2000, "starved": 10_000}


@pytest.mark.parametrize(
    ("of_kernels", "of_calls"),
    [
        ("7_kernel_trace.csv", "7_hip_api_trace.csv"),
        ("7_hip_api_trace.csv", "7_kernel_trace.csv"),
        ("report.json", "notes.txt"),
        ("x_kernel_trace.csv", "calls.csv"),
        ("kernels.csv", "7_hip_api_trace.csv"),
    ],
)
def test_calls_and_kernels_meet_whatever_their_files_are_called(
    tmp_path: Path, of_kernels: str, of_calls: str
):
    (tmp_path / of_kernels).write_bytes(kernels(*KERNELS))
    (tmp_path / of_calls).write_bytes(calls(*CALLS))
    assert_both_launches(tmp_path)


@pytest.mark.parametrize("having", ["kernels", "calls", "both"])
def test_a_guid_on_one_side_only_is_the_same_process(tmp_path: Path, having: str):
    guid = ("0000aa11-0000-7000-8000-000000000001",)
    k = ["Guid", *KERNEL_COLUMNS], [guid + row for row in KERNELS]
    c = ["Guid", *CALL_COLUMNS], [guid + row for row in CALLS]
    of_kernels = kernels(*KERNELS) if having == "calls" else table(*k)
    of_calls = calls(*CALLS) if having == "kernels" else table(*c)
    assert_both_launches(written(tmp_path, out_kernel_trace__csv=of_kernels, out_hip_api_trace__csv=of_calls))


@pytest.mark.parametrize("quote", ['"', ""])
def test_calls_of_rocprofv2_name_no_process_and_belong_to_the_one_of_the_kernels(tmp_path: Path, quote: str):
    head, row = V2.split("\n", 1)
    of_kernels = head + "\n" + row.format(1, BASE + 10_000, BASE + 20_000, 1)
    of_kernels += row.format(2, BASE + 40_000, BASE + 45_000, 2)
    of_calls = "Domain,Function,Start_Timestamp,End_Timestamp,Correlation_ID\n" + "".join(
        f"{quote}HIP_API{quote},{quote}{c[1]}{quote},{c[5]},{c[6]},{c[4]}\n" for c in CALLS
    )
    files = {"results_77__csv": of_kernels.encode(), "hip_api_trace_77__csv": of_calls.encode()}
    assert_both_launches(written(tmp_path, **files))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("tids", [(7, 8), (7, 7)])
def test_of_calls_with_one_id_the_threads_own_and_the_latest_counts(
    tmp_path: Path, tids: tuple[int, int], backwards: bool
):
    of_kernels = [
        kernel(BASE + 10_000, BASE + 20_000, 1, tid=tids[0]),
        kernel(BASE + 40_000, BASE + 45_000, 1, tid=tids[1]),
    ]
    of_calls = [
        call("hipLaunchKernel", 1, 0, 4000, tid=tids[0]),
        call("hipExtLaunchKernel", 1, 30_000, 32_000, tid=tids[1]),
    ]
    if backwards:
        of_calls.reverse()
    assert_both_launches(
        written(tmp_path, x_kernel_trace__csv=kernels(*of_kernels), x_hip_api_trace__csv=calls(*of_calls))
    )


def test_of_calls_with_one_id_the_launch_counts(tmp_path: Path):
    both = calls(call("hipGetDevice", 1, -10, -5), *CALLS, call("hipGetDevice", 2, 33_000, 34_000))
    assert_both_launches(written(tmp_path, x_kernel_trace__csv=kernels(*KERNELS), x_hip_api_trace__csv=both))


def test_launches_that_overlap_without_one_holding_the_other_are_both_launches(tmp_path: Path):
    of_calls = calls(call("hipLaunchKernel", 1, 0, 4000), call("hipLaunchKernel", 2, 3000, 7000))
    (result,) = load(
        written(tmp_path, x_kernel_trace__csv=kernels(*KERNELS), x_hip_api_trace__csv=of_calls)
    ).results
    assert (result.launches, result.queue_ns, result.launch_call_ns) == (2, 47_000, 8000)


# --- summaries -------------------------------------------------------------------------------------------


def test_summaries_of_kernels_count_whatever_the_kernels_are_called(tmp_path: Path):
    of_kernels = b'"GEMM",2,300,150,75,100,200,1\n"ncclDevKernel_Generic",1,60,60,15,60,60,0\n'
    of_kernels += b'"k(int, 2)",1,40,40,10,40,40,-nan\n'
    others = {
        "7_hip_api_stats__csv": b'"hipLaunchKernel",4,999,1,100,1,1,1\n',
        "7_domain_stats__csv": b'"KERNEL_DISPATCH",4,400,1,50,1,1,1\n"HIP_API",4,999,1,50,1,1,1\n',
        "7_memory_copy_stats__csv": b'"MEMORY_COPY_HOST_TO_DEVICE",1,77,77,100,77,77,0\n',
    }
    folder = written(
        tmp_path,
        **{"7_kernel_stats__csv": STATS + of_kernels, **{k: STATS + v for k, v in others.items()}},
    )
    (result,) = load(folder).results
    found = [(k.kernel, k.calls, k.total_ns) for k in result.kernel_stats]
    assert found == [("GEMM", 2, 300), ("ncclDevKernel_Generic", 1, 60), ("k(int, 2)", 1, 40)]
    assert (result.kernels, result.execution_ns, result.timeline_reason) == (4, 400, "summary_only")


def test_summaries_of_several_processes_add_up_by_kernel(tmp_path: Path):
    files = {
        "7_kernel_stats__csv": STATS + b'"k.kd",2,300,150,75,100,200,1\n',
        "8_kernel_stats__csv": STATS + b'"k",1,100,100,75,100,100,1\n',
    }
    (result,) = load(written(tmp_path, **files)).results
    assert [(k.kernel, k.calls, k.total_ns) for k in result.kernel_stats] == [("k", 3, 400)]
