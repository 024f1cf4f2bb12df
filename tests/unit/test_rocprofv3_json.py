"""rocprofv3's JSON, roctracer's text and the folders of rocprof-compute: values, damage, memory."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.formats.rocprofv3_json import SdkJson
from exporter.formats.trace import Decoded, Names
from exporter.model import DeviceId, WindowResult
from exporter.windows import intake
from tests.unit.made_traces import K, kernels

NAMES = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API_EXT", "operations": ["hipMalloc", "hipLaunchKernel"]},
    {"kind": "HSA_CORE_API", "operations": ["hsa_signal_store"]},
    {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST"]},
]
GPU = {
    "id": {"handle": 500},
    "type": 2,
    "node_id": 4,
    "name": "gfx950",
    "location_id": 29952,
    "domain": 0,
    "gpu_id": 12605,
    "cu_count": 256,
    "num_xcc": 8,
}
CPU = {"id": {"handle": 499}, "type": 1, "node_id": 0, "name": "cpu"}


def record(start: Any, end: Any, call: int = 0, tid: int = 7, **more: Any) -> dict[str, Any]:
    ids = {"internal": call, "external": 0, **more.pop("ids", {})}
    return {
        "size": 184,
        "thread_id": tid,
        "correlation_id": ids,
        "start_timestamp": start,
        "end_timestamp": end,
        **more,
    }


def info(kernel: int = 8, dispatch: int = 1) -> dict[str, Any]:
    return {
        "size": 72,
        "agent_id": {"handle": 500},
        "queue_id": {"handle": 16},
        "kernel_id": kernel,
        "dispatch_id": dispatch,
    }


def run(start: Any, end: Any, call: int = 1, kernel: int = 8, **more: Any) -> dict[str, Any]:
    return record(start, end, call, kind=11, dispatch_info=info(kernel), stream_id={"handle": 0}, **more)


def hip(start: int, end: int, call: int, operation: int = 1) -> dict[str, Any]:
    return record(start, end, call, kind=1, operation=operation)


def counted(start: int, end: int, number: int, *values: tuple[int, Any]) -> dict[str, Any]:
    data = {**record(start, end, number), "dispatch_info": info(dispatch=number)}
    records = [{"counter_id": {"handle": handle}, "value": value} for handle, value in values]
    return {"thread_id": 7, "dispatch_data": data, "records": records, "stream_id": {"handle": 0}}


def process(pid: int = 7, counts: Any = (), **records: Any) -> dict[str, Any]:
    return {
        "metadata": {"node": {"id": 0}, "pid": pid, "command": ["app"], "config": {"a": [[1], {"b": 2}]}},
        "agents": [CPU, GPU],
        "counters": [{"id": {"handle": 90}, "name": "TCC_HIT"}, {"id": {"handle": 91}, "name": "TCC_MISS"}],
        "strings": {"callback_records": [], "buffer_records": NAMES, "marker_api": []},
        "code_objects": [],
        "kernel_symbols": [{"size": 88, "kernel_id": 8, "formatted_kernel_name": "k", "kernel_name": "k.kd"}],
        "host_functions": [],
        "summary": [],
        "callback_records": {"counter_collection": list(counts)},
        "buffer_records": records,
    }


def written(path: Path, *processes: dict[str, Any], indent: int | None = None) -> Path:
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}, indent=indent))
    return path


def only(*paths: Path) -> WindowResult:
    (result,) = intake.load(paths).results
    return result


def decoded_of(data: bytes, step: int = 1 << 19) -> tuple[Decoded, Names]:
    names = Names()
    decoder = SdkJson(names)
    for i in range(0, len(data), step):
        decoder.feed(data[i : i + step])
    decoder.finish()
    return decoder.decoded, names


def document(*processes: dict[str, Any]) -> bytes:
    return json.dumps({"rocprofiler-sdk-tool": list(processes)}, separators=(",", ":")).encode()


# --- a real file -------------------------------------------------------------------------------------


def test_the_real_file_reaches_its_values(samples: Path):
    path = samples / "profiler/rocprofv3-json-gfx950/908_results.head3000.json.gz"
    analysis = intake.load([path])
    (source,), (result,) = analysis.sources, analysis.results
    assert (source.format, source.rows, dict(source.skipped), source.partial) == (
        "rocprofv3-json",
        3000,
        {},
        False,
    )
    assert (result.kernels, result.execution_ns, result.span_ns) == (3000, 900_869_261, 8_426_593_924)
    assert result.device == DeviceId("0000:75:00.0")
    (nccl,) = [k for k in result.kernel_stats if k.kernel.startswith("ncclDevKernel")]
    assert (nccl.calls, nccl.total_ns, nccl.p95_ns, nccl.kind) == (17, 889_361_832, 733_003_332, "collective")
    names = Names()
    decoded = intake.read_file(path, names, [])
    raw = json.loads(gzip.decompress(path.read_bytes()))["rocprofiler-sdk-tool"][0]
    symbols = {s["kernel_id"]: s["formatted_kernel_name"] for s in raw["kernel_symbols"]}
    used = [r["dispatch_info"]["kernel_id"] for r in raw["buffer_records"]["kernel_dispatch"]]
    assert len(set(used)) == 24
    assert [names.texts()[i] for i in decoded.kernels.name] == [symbols[number] for number in used]
    (gpu,) = [a for a in decoded.agents if a.gpu_id == 12605]
    assert (gpu.pci, gpu.gfx) == ("0000:75:00.0", "gfx950")


def test_the_real_file_reads_the_same_whatever_the_blocks(samples: Path):
    path = samples / "profiler/rocprofv3-json-gfx950/908_results.head3000.json.gz"
    data = gzip.decompress(path.read_bytes())[:400_000]
    whole, _ = decoded_of(data)
    assert (len(whole.kernels) > 500, whole.partial) == (True, True)
    for step in (997, 65_536):
        part, _ = decoded_of(data, step)
        assert (part.kernels.start, part.kernels.name, part.skipped) == (
            whole.kernels.start,
            whole.kernels.name,
            whole.skipped,
        )


# --- what the records mean ---------------------------------------------------------------------------


def test_calls_join_kernels_by_the_internal_id(tmp_path: Path):
    calls = [hip(900, 950, 1), hip(800, 810, 2, operation=0), hip(1900, 1950, 3)]
    runs = [run(1000, 1500, 1), run(2000, 2600, 3)]
    for indent in (None, 2):
        path = written(tmp_path / "a.json", process(hip_api=calls, kernel_dispatch=runs), indent=indent)
        result = only(path)
        assert (result.gpu, result.paired, result.queue_ns, result.execution_ns) == (
            "0000:75:00.0",
            2,
            200,
            1100,
        )


def test_the_json_and_the_tables_of_a_run_name_the_same_gpu_and_count_once(tmp_path: Path):
    written(tmp_path / "9_results.json", process(kernel_dispatch=[run(1000, 1500)]))
    (tmp_path / "9_kernel_trace.csv").write_bytes(kernels([K(1000, 1500, 1)]))
    analysis = intake.load([tmp_path])
    assert [r.execution_ns for r in analysis.results] == [500]
    assert [s.rows for s in analysis.sources] == [0, 1]
    assert len(analysis.notes) == 1


def test_processes_in_one_file_do_not_share_ids(tmp_path: Path):
    first = process(pid=7, hip_api=[hip(900, 950, 1)], kernel_dispatch=[run(1000, 1500, 1)])
    second = process(pid=8, hip_api=[hip(4000, 4100, 1)], kernel_dispatch=[run(5000, 5500, 1)])
    second["kernel_symbols"][0]["formatted_kernel_name"] = "other"
    result = only(written(tmp_path / "a.json", first, second))
    assert (result.paired, result.queue_ns) == (2, 100 + 1000)
    assert {k.kernel for k in result.kernel_stats} == {"k", "other"}


def test_a_kernel_under_an_hsa_call_belongs_to_the_hip_call_around_it(tmp_path: Path):
    hsa = record(900, 940, 12, kind=2, operation=0, ids={"ancestor": 11})
    parts = process(hip_api=[hip(800, 950, 11)], hsa_api=[hsa], kernel_dispatch=[run(1000, 1500, 12)])
    assert only(written(tmp_path / "a.json", parts)).queue_ns == 200


def test_copies_carry_their_way_and_bytes():
    ends = {"src_agent_id": {"handle": 499}, "dst_agent_id": {"handle": 500}}
    copies = [
        record(10, 20, kind=3, operation=0, bytes=4096, **ends),
        record(30, 40, kind=3, operation=1, bytes="x", **ends),
    ]
    decoded, names = decoded_of(document(process(memory_copy=copies)))
    assert [names.texts()[i] for i in decoded.copies.direction] == ["host_to_device", "device_to_host"]
    assert list(decoded.copies.size) == [4096, -1]
    assert [decoded.lanes[i].agent for i in decoded.copies.target] == ["Agent 4", "Agent 4"]


def test_counters_are_added_over_their_instances_and_time_comes_with_them(tmp_path: Path):
    counts = [counted(1000, 1500, 1, (90, 3.0), (90, 4.0), (91, 1)), counted(2000, 2100, 2, (91, 5))]
    analysis = intake.load([written(tmp_path / "a.json", process(counts=counts, kernel_dispatch=[]))])
    (result,) = analysis.results
    assert dict(result.counters) == {"TCC_HIT": 7.0, "TCC_MISS": 6.0}
    assert (result.kernels, result.execution_ns) == (2, 600)
    assert analysis.window.mode == "counters"


def test_numbers_that_name_nothing_are_counted_and_not_guessed(tmp_path: Path):
    parts = process(
        counts=[counted(1000, 1500, 1, (77, 3.0), (90, "many"))],
        hip_api=[hip(900, 950, 1, operation=99)],
        kernel_dispatch=[run(1000, 1500, kernel=99)],
    )
    decoded, names = decoded_of(document(parts))
    assert [names.texts()[i] for i in decoded.kernels.name] == ["unknown_kernel"]
    assert decoded.skipped == {"dangling": 3, "invalid": 1}
    assert decoded.dispatches[0].counters == {}


# --- damage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (run("soon", 5), "malformed"),
        (run(1.5, 5), "malformed"),
        (run(None, 5), "malformed"),
        (run(True, 5), "malformed"),
        (run(0, 5), "invalid"),
        (run(-4, 5), "invalid"),
        (run(9, 5), "invalid"),
        (run(5, 1 << 70), "invalid"),
        ({"size": 1}, "malformed"),
        ([1, 2], "malformed"),
        ("text", "malformed"),
        (None, "malformed"),
    ],
)
def test_a_wrong_record_costs_itself_alone(bad: Any, reason: str):
    decoded, _ = decoded_of(document(process(kernel_dispatch=[run(10, 20), bad, run(30, 40)])))
    assert (list(decoded.kernels.start), decoded.skipped, decoded.partial) == ([10, 30], {reason: 1}, False)


@pytest.mark.parametrize(
    "garbage", [b'{"size":184,"oops":}', b'{"size":184,' + b"[" * 5000, b'{"size":184 \xff\xfe']
)
def test_after_a_record_that_is_no_json_the_next_is_found(garbage: bytes):
    rows = [run(1000 * i, 1000 * i + 10) for i in range(1, 4000)]
    good = document(process(kernel_dispatch=rows))
    cut = good.index(b'{"size":184', good.index(b'"start_timestamp":100000,') + 1)
    decoded, _ = decoded_of(good[:cut] + garbage + b"}," + good[cut:])
    assert list(decoded.kernels.start) == [1000 * i for i in range(1, 4000)]
    assert decoded.skipped == {"malformed": 1}


def test_a_cut_file_keeps_what_came_before(tmp_path: Path):
    whole = document(process(kernel_dispatch=[run(10 * i, 10 * i + 5) for i in range(1, 200)]))
    for share in (0.02, 0.2, 0.5, 0.9, 0.999):
        decoded, _ = decoded_of(whole[: int(len(whole) * share)])
        assert decoded.partial, share
        assert list(decoded.kernels.start) == [10 * i for i in range(1, len(decoded.kernels) + 1)]
        assert decoded.skipped == {"truncated": 1}
    packed = gzip.compress(whole)
    path = tmp_path / "a_results.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    analysis = intake.load([path])
    assert (analysis.sources[0].partial, len(analysis.notes)) == (True, 1)


@pytest.mark.parametrize(
    "data",
    [
        b'{"rocprofiler-sdk-tool": []}',
        b'{"rocprofiler-sdk-tool": null}',
        b'{"rocprofiler-sdk-tool": [[[[[]]]]]}',
        b'{"rocprofiler-sdk-tool": [3, "x", {"agents": 5, "buffer_records": {"kernel_dispatch": {"a": 1}}}]}',
        b'{"rocprofiler-sdk-tool": ' + b"[" * 100_000,
        b'{"rocprofiler-sdk-tool": ' + b'{"a":' * 100_000,
        b'{"rocprofiler-sdk-tool": [{"metadata": ' + b"9" * 100_000,
        b'{"rocprofiler-sdk-tool": [{"metadata": "' + b"x" * 3_000_000,
    ],
)
def test_a_document_of_another_shape_gives_nothing_and_does_not_raise(data: bytes):
    decoded, _ = decoded_of(data)
    assert (decoded.rows, len(decoded.kernels), decoded.agents) == (0, 0, [])


def test_random_damage_never_raises_and_never_makes_a_time():
    rng = random.Random(11)
    rows = [run(1000 * i, 1000 * i + 10, i) for i in range(1, 100)]
    calls = [hip(1000 * i - 50, 1000 * i - 20, i) for i in range(1, 100)]
    whole = document(process(kernel_dispatch=rows, hip_api=calls, counts=[counted(5, 9, 1, (90, 1.0))]))
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 5, 200])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        decoded, _ = decoded_of(bytes(data), rng.choice([100, 5000, 1 << 19]))
        for part in (decoded.kernels, decoded.calls):
            assert all(0 < s <= e for s, e in zip(part.start, part.end, strict=True))
            assert len({len(getattr(part, name)) for name in ("start", "end", "lane", "correlation")}) == 1


def test_a_large_file_is_read_in_bounded_memory(tmp_path: Path):
    before, _, after = document(process(kernel_dispatch=["ROWS"])).partition(b'"ROWS"')
    path = tmp_path / "large_results.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(before)
        for i in range(200):
            row = json.dumps(run(0, 1, 0)).replace('"start_timestamp": 0', '"start_timestamp": %d')
            row = row.replace('"end_timestamp": 1,', '"end_timestamp": %d,')
            rows = (row % (1000 * n, 1000 * n + 500) for n in range(1 + 1000 * i, 1001 + 1000 * i))
            f.write((("," if i else "") + ",".join(rows)).encode())
        f.write(after)
    script = (
        "import re, sys; from pathlib import Path; from exporter.windows import intake\n"
        "(r,) = intake.load([Path(sys.argv[1])]).results\n"
        # Not ru_maxrss: that carries over the peak of the process that started this one.
        "peak = int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) // 1024\n"
        "print(r.kernels, r.execution_ns, peak)"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    count, total, mib = map(int, out.stdout.split())
    assert (count, total) == (200_000, 500 * 200_000)
    assert mib < 200


# --- roctracer ---------------------------------------------------------------------------------------


def test_the_printed_trace_of_roctracer_is_read(samples: Path):
    path = samples / "profiler/roctracer/MatrixTranspose_hip_period_trace.txt"
    names, notes = Names(), []
    decoded = intake.read_file(path, names, notes)
    functions = [names.texts()[i] for i in decoded.calls.function]
    first = functions.index("hipLaunchKernel")
    assert (decoded.calls.start[first], decoded.calls.end[first]) == (3802700934158787, 3802700934164967)
    lines = path.read_text().splitlines()
    stamped = [line for line in lines if line[:16].isdigit() and line[16:17] == ":"]
    copies = [line for line in stamped if " 0:0 Copy" in line]
    assert (len(copies) > 10, len(decoded.copies), len(decoded.calls)) == (
        True,
        len(copies),
        len(stamped) - len(copies),
    )
    assert list(decoded.copies.start) == [int(line[:16]) for line in copies]
    assert {names.texts()[i] for i in decoded.copies.direction} == {"host_to_device", "device_to_host"}
    assert (decoded.lanes[decoded.calls.lane[0]].pid, notes, decoded.skipped) == (1983, [], {})


def test_launches_that_carry_no_id_give_no_queue_time(tmp_path: Path):
    text = (
        "100:150 7:9 hipLaunchKernel(function_address=0x1) kernel=k(int)\nhello\n"
        "200:300 0:2 void k<int, 3>(a::b*):5:7\n300:200 0:2 k:6:7\n400:450 0:2 k\n"
        "500:600 0:2 CopyDeviceToHost:8:7\n"
        "700:710 0:2 Marker:9:7\n800:810 0:2 k:10"
    )
    path = tmp_path / "a.txt"
    path.write_text(text)
    analysis = intake.load([path])
    (source,), (result,) = analysis.sources, analysis.results
    assert (dict(source.skipped), source.partial) == ({"invalid": 1, "malformed": 1, "truncated": 1}, True)
    assert [(k.kernel, k.total_ns) for k in result.kernel_stats] == [("void k<int, 3>(a::b*)", 100)]
    assert (result.queue_ns, result.timeline_reason) == (None, "no_launch_calls")


# --- folders of rocprof-compute ----------------------------------------------------------------------

HEAD = (
    "Dispatch_ID,Kernel_Name,GPU_ID,Grid_Size,GRBM_COUNT,GRBM_GUI_ACTIVE,SQ_INSTS_VALU,"
    "Start_Timestamp,End_Timestamp"
)
SYSTEMS = {
    "omniperf 1": ("gpu_soc,numCU,name", "gfx90a,104,MI200"),
    "omniperf 2": ("gpu_model,gpu_arch,cu_per_gpu,num_xcd", "MI200,gfx90a,104,1"),
    "rocprof-compute 3": (
        "gpu_series,gpu_model,gpu_arch,gpu_chip_id,cu_per_gpu,num_xcd",
        "MI200,MI210,gfx90a,29704,104,1",
    ),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_machine_beside_a_workload_gives_the_shape_of_the_chip(tmp_path: Path, system: str):
    (tmp_path / "pmc_perf.csv").write_text(f'{HEAD}\n0,"k",2,64,1500,1500,7800,1000,2000\n')
    assert only(tmp_path).compute_density_ratio is None
    (tmp_path / "sysinfo.csv").write_text("\n".join(SYSTEMS[system]) + "\n")
    assert only(tmp_path).compute_density_ratio == pytest.approx(7800 / (1500 * 104))


def test_the_machine_of_one_workload_is_not_that_of_its_neighbour(tmp_path: Path):
    for name, units in (("MI200", 104), ("MI100", 120)):
        folder = tmp_path / "vcopy" / name
        folder.mkdir(parents=True)
        (folder / "pmc_perf.csv").write_text(f'{HEAD}\n0,"k",2,64,1500,1500,7800,1000,2000\n')
        (folder / "sysinfo.csv").write_text(f"gpu_arch,cu_per_gpu,num_xcd\ngfx90a,{units},1\n")
    found = sorted(r.compute_density_ratio or 0 for r in intake.load([tmp_path]).results)
    assert found == pytest.approx([7800 / (1500 * 120), 7800 / (1500 * 104)])


def test_a_whole_workload_folder_gives_no_complaint(samples: Path):
    for name in ("MI100", "MI200", "MI300X_A1_rocpd"):
        analysis = intake.load([samples / "profiler/rocprof-compute-vcopy" / name])
        assert analysis.notes == ()
        assert {s.tool for s in analysis.sources} <= {"rocprof-compute", "rocprof"}
        assert {r.kernels for r in analysis.results} == {3}


def test_a_workload_whose_times_went_through_a_spreadsheet_keeps_its_counters_alone(samples: Path):
    folder = samples / "profiler/rocprof-compute-vcopy/MI300X_A1"
    analysis = intake.load([folder])
    (result,) = analysis.results
    assert (result.execution_ns, result.busy_ns, result.span_ns) == (None, None, None)
    assert (result.l2_hits, result.valu_instructions) == (197_232, 294_912)
    refused = {Path(s.path).name: dict(s.skipped) for s in analysis.sources if s.skipped}
    assert refused["pmc_perf.csv"] == refused["timestamps.csv"] == {"implausible": 3}
