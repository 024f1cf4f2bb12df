"""Every decoder under cut, flipped, doubled and widened input and "N/A" anywhere: an absence, never a number.

The seeds hold no 0 where a reader looks, so a 0 that comes out of spoilt input stands in it or was made up.
The decoders of sysfs, procfs and the driver's tables are in test_sysfs_mutations.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_smi_json import Readings, amd, readings, rocm, whole_amd, whole_rocm
from test_sysfs_mutations import MUTATIONS, SEED

from exporter import formats
from exporter.catalogue import CATALOGUE
from exporter.formats import copies, empty_kernels, launch_loop, prometheus_text, rocblas_bench, sniff
from exporter.formats.trace import Decoded, Names
from exporter.model import Device, DeviceId, FormatError, Histogram, WindowOutcome
from exporter.windows import intake, wire
from exporter.windows.ledger import Ledger
from tests.unit import probemade
from tests.unit.rocpdmade import Copy, Kernel, Maker, Region

Mutation = Callable[[bytes, random.Random], bytes]
ROUNDS = 24
_ZERO = re.compile(rb"(?<![0-9.])0[0.]*(?![0-9])")


def rows(header: str, *lines: str) -> bytes:
    return "".join(f"{line}\n" for line in (header, *lines)).encode()


def _events() -> list[dict[str, Any]]:
    call = {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 71, "tid": 72}
    kernel = {"ph": "X", "cat": "kernel", "name": "k(int)", "pid": 4, "tid": 3}
    return [
        {**call, "ts": 1005.5, "dur": 2.25, "args": {"correlation": 11}},
        {**kernel, "ts": 1010.125, "dur": 3.5, "args": {"correlation": 11, "device": 4, "stream": 3}},
        {**call, "ts": 1020.75, "dur": 1.5, "args": {"correlation": 12}},
        {**kernel, "ts": 1030.5, "dur": 2.5, "args": {"correlation": 12, "device": 4, "stream": 3}},
    ]


def _counting() -> bytes:
    def device(node: int, pci: str) -> dict[str, Any]:
        counters = {"GRBM_COUNT": 160000000, "GRBM_GUI_ACTIVE": 80000000, "SQ_INSTS_VALU": 1520000000}
        counters |= {"TCC_HIT_sum": 850, "TCC_MISS_sum": 150}
        what = {"pci": pci, "node": node, "gfx": "gfx942", "compute_units": 304, "xccs": 8}
        how = {"status": "ok", "lock": None, "seconds": 0.0102, "read_seconds": 0.0004}
        return {**what, **how, "counters": counters, "instances": {"GRBM_COUNT": 8}, "unknown": []}

    devices = [device(4, "0000:05:00.0"), device(5, "0000:26:00.0")]
    head = {"protocol": 1, "tool": "amdgpu-exporter-counting", "version": "1.0"}
    return json.dumps({**head, "devices": devices, "errors": []}).encode()


def _sdk() -> bytes:
    def record(start: int, end: int, call: int, **more: Any) -> dict[str, Any]:
        ids = {"internal": call, "external": 99}
        stamps = {"start_timestamp": start, "end_timestamp": end}
        return {"size": 184, "thread_id": 7, "correlation_id": ids, **stamps, **more}

    def info(number: int) -> dict[str, Any]:
        agent, queue = {"handle": 500}, {"handle": 16}
        return {"agent_id": agent, "queue_id": queue, "kernel_id": 8, "dispatch_id": number}

    run = [
        record(1_001_100, 1_001_500, 1, kind=11, dispatch_info=info(1), stream_id={"handle": 2}),
        record(1_002_100, 1_002_600, 2, kind=11, dispatch_info=info(2), stream_id={"handle": 2}),
    ]
    calls = [
        record(1_001_010, 1_001_020, 1, kind=1, operation=1),
        record(1_002_010, 1_002_030, 2, kind=1, operation=1),
    ]
    count = {
        "thread_id": 7,
        "dispatch_data": {**record(1_003_100, 1_003_700, 3), "dispatch_info": info(3)},
        "records": [{"counter_id": {"handle": 90}, "value": 41.0}],
        "stream_id": {"handle": 2},
    }
    names = [
        {"kind": "NONE", "operations": []},
        {"kind": "HIP_RUNTIME_API_EXT", "operations": ["hipMalloc", "hipLaunchKernel"]},
    ]
    agent = {"id": {"handle": 500}, "type": 2, "node_id": 4, "name": "gfx950", "location_id": 29952}
    process = {
        "metadata": {"node": {"id": 5}, "pid": 7},
        "agents": [{**agent, "domain": 1, "gpu_id": 12605, "cu_count": 256, "num_xcc": 8}],
        "counters": [{"id": {"handle": 90}, "name": "TCC_HIT"}],
        "strings": {"callback_records": [], "buffer_records": names, "marker_api": []},
        "kernel_symbols": [{"kernel_id": 8, "formatted_kernel_name": "k", "kernel_name": "k.kd"}],
        "callback_records": {"counter_collection": [count]},
        "buffer_records": {"kernel_dispatch": run, "hip_api": calls},
    }
    return json.dumps({"rocprofiler-sdk-tool": [process]}).encode()


_API = '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"'
_V2 = (
    "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,TCC_HIT_sum"
)
_LONG = '"Dispatch_Id","Agent_Id","Process_Id","Thread_Id","Kernel_Name","Counter_Name","Counter_Value",'
_LONG += '"Start_Timestamp","End_Timestamp"'
# What a window's file may be, by the format that is found in it.
TEXTS: dict[str, bytes] = {
    "rocprofv3-kernel-trace": rows(
        '"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Name","Correlation_Id",'
        '"Start_Timestamp","End_Timestamp"',
        '"KERNEL_DISPATCH","Agent 4",3,7,1,"k(int, float)",11,1001000,1001400',
        '"KERNEL_DISPATCH","Agent 4",3,7,2,"k(int, float)",12,1002000,1002700',
        '"KERNEL_DISPATCH","Agent 4",3,7,3,"other",13,1003000,1003900',
    ),
    "rocprofv3-api-trace": rows(
        _API,
        '"HIP_RUNTIME_API_EXT","hipLaunchKernel",7,7,11,1000100,1000200',
        '"HIP_RUNTIME_API_EXT","hipLaunchKernel",7,7,12,1001100,1001300',
    ),
    "rocprofv2-api-trace": rows(
        "Domain,Function,Start_Timestamp,End_Timestamp,Correlation_ID",
        "HIP_API_DOMAIN,hipLaunchKernel,1000100,1000200,11",
        "HIP_API_DOMAIN,hipLaunchKernel,1001100,1001300,12",
    ),
    "rocprofv3-copy-trace": rows(
        '"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp",'
        '"End_Timestamp"',
        '"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE","Agent 1","Agent 4",5,1000500,1000900',
        '"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST","Agent 4","Agent 1",6,1001500,1001600',
    ),
    "rocprofv3-counters": rows(
        _LONG,
        '1,"Agent 4",7,7,"k","TCC_HIT_sum",41,1001000,1001500',
        '1,"Agent 4",7,7,"k","TCC_MISS_sum",12,1001000,1001500',
        '2,"Agent 4",7,7,"k","TCC_HIT_sum",43,1002000,1002500',
    ),
    "rocprof-compute-counters": rows(
        _LONG.replace("Agent_Id", "GPU_ID"),
        '1,4,7,7,"k","TCC_HIT_sum",41,1001000,1001500',
        '2,4,7,7,"k","TCC_HIT_sum",43,1002000,1002500',
    ),
    "rocprof-v1": rows(
        '"Index","KernelName","gpu-id","queue-id","pid","tid","TCC_HIT_sum","TCC_MISS_sum","DispatchNs",'
        '"BeginNs","EndNs","CompleteNs","DurationNs"',
        '1,"k(int) [clone .kd]",2,3,61,62,311,112,1000100,1000300,1000900,1000950,600',
        '2,"k(int) [clone .kd]",2,3,61,62,322,113,1001100,1001300,1001800,1001950,500',
    ),
    "rocprofv2": rows(
        _V2,
        '1,60633,3,77,78,"k(int) (.kd)",1000300,1000900,21,411',
        '2,60633,3,77,78,"k(int) (.kd)",1001300,1001800,22,422',
    ),
    "rocprof-compute": rows(
        _V2.replace("PID,", "").replace("Correlation_ID,", ""),
        '1,2,3,78,"k(int)",1000300,1000900,411',
        '2,2,3,78,"k(int)",1001300,1001800,422',
    ),
    "rocprofv3-stats": rows(
        '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"',
        '"k",4,4400,1100.5,71.5,1000,1300,11.5',
        '"other",2,1800,900.5,28.5,850,950,12.5',
    ),
    "rocprof-stats": rows(
        '"Name","Calls","TotalDurationNs","AverageNs","Percentage"',
        '"k",4,4400,1100,71.5',
        '"o",2,1800,900,28.5',
    ),
    "rocprofv3-agents": rows(
        "Node_Id,Agent_Type,Location_Id,Domain,Gpu_Id,Cu_Count,Num_Xcc", "4,GPU,49408,1,30004,304,8"
    ),
    "rocprof-compute-sysinfo": rows("workload_name,gpu_arch,cu_per_gpu,num_xcd", "w,gfx942,304,8"),
    "rocprofv2-text": rows(
        'Dispatch_ID(1), GPU_ID(4), Queue_ID(3), Process_ID(77), Thread_ID(78), Kernel_Name("k"), '
        "Begin_Timestamp(1000300), End_Timestamp(1000900), Correlation_ID(21), GRBM_COUNT(14222.000000)",
        'Dispatch_ID(2), GPU_ID(4), Queue_ID(3), Process_ID(77), Thread_ID(78), Kernel_Name("k"), '
        "Begin_Timestamp(1001300), End_Timestamp(1001900), Correlation_ID(22), GRBM_COUNT(14333.000000)",
    ),
    "roctracer-text": rows(
        "1000100:1000200 71:72 hipLaunchKernel(f=k)",
        "1000300:1000900 1:3 KernelExecution:11:71",
        "1001300:1001900 1:3 CopyHostToDevice:12:71",
    ),
    "pytorch-trace": json.dumps({"schemaVersion": 1, "traceEvents": _events()}).encode(),
    "rocprofv3-json": _sdk(),
    "device-counting": _counting(),
    "rocpctl": json.dumps(
        {
            "GpuMetrics": [
                {"GpuId": "4001", "Metrics": [{"Field": "TCC_HIT_sum", "Value": "1.6e+08"}]},
                {"GpuId": "4002", "Metrics": [{"Field": "TCC_MISS_sum", "Value": "77"}]},
            ]
        }
    ).encode(),
}
# Formats that are known so that they cause no complaint; nothing is read from them.
NOTHING_READ = {"rocprof-compute-dispatches", "rocprof-compute-roofline", "rocprofv3-memory-trace"}
# Where each module of exporter.formats is looked at.
MODULES = {
    "test_sysfs_mutations": {
        "cgroup",
        "gpu_metrics",
        "gpu_metrics_tables",
        "gpu_metrics_units",
        "proc_text",
        "sysfs_text",
    },
    "here": {
        *(
            "counters",
            "device_counting",
            "rocprof_text",
            "rocprofv3",
            "rocprofv3_json",
            "roctracer",
            "rows",
            "sniff",
            "summaries",
        ),
        *("torch_trace", "json_stream", "sdk", "trace", "rocpd", "amd_smi", "rocm_smi", "smi_json"),
        "prometheus_text",
        *("copies", "rocblas_bench", "launch_loop", "empty_kernels"),
    },
}


def test_no_decoder_is_left_out() -> None:
    there = {p.stem for p in Path(formats.__path__[0]).glob("*.py")} - {"__init__"}
    looked_at = set().union(*MODULES.values())
    assert there == looked_at, f"give it a seed here or in test_sysfs_mutations: {there ^ looked_at}"
    tables = {form for _, _, form, _ in sniff._TABLES}
    assert tables <= set(TEXTS) | NOTHING_READ


def decoded(path: Path) -> tuple[Decoded, Names]:
    names, notes = Names(), []  # type: ignore[var-annotated]
    found = intake.read_file(path, names, notes)
    assert all(len(note.splitlines()) == 1 for note in notes)
    return found, names


def times(found: Decoded) -> Iterator[int]:
    for part in (found.kernels, found.calls, found.copies):
        yield from part.start
        yield from part.end


def amounts(found: Decoded) -> Iterator[float]:
    """Every number that becomes somebody's reading."""
    yield from times(found)
    for d in found.dispatches:
        yield from d.counters.values()
        yield from () if d.duration_ns is None else (d.duration_ns,)
    for s in found.stats:
        cells = (s.calls, s.total_ns, s.mean_ns, s.share, s.min_ns, s.max_ns, s.deviation_ns)
        yield from (c for c in cells if c is not None)
    for a in found.agents:
        yield from (n for n in (a.compute_units, a.xccs) if n is not None)


def served(folder: Path) -> None:
    """The whole way from files to series: through the child's answer and the ledger."""
    analysis = intake.load([folder])
    message = json.loads(
        json.dumps(wire.encode(analysis.window, analysis.sources, analysis.results), allow_nan=False)
    )
    ledger = Ledger()
    gpus = {r.device for r in analysis.results if r.device is not None} | {DeviceId("0000:c1:00.0")}
    ledger.know([Device(pci, i, gfx="gfx942") for i, pci in enumerate(sorted(gpus))])
    ledger.add(*wire.decode(message), WindowOutcome.OK, 100.0)
    slot = ledger.slot(101.0)
    assert len(set(slot.series)) == len(slot.series), "a series stands twice"
    for series, value in zip(slot.series, slot.values, strict=True):
        numbers = [value.sum, *value.buckets] if isinstance(value, Histogram) else [value]
        assert all(math.isfinite(n) for n in numbers), series
        low, high = CATALOGUE[series.metric].range
        assert low <= numbers[0] <= high, series


@pytest.mark.parametrize("name", TEXTS)
def test_a_seed_is_understood_whole_and_holds_no_zero(tmp_path: Path, name: str) -> None:
    path = tmp_path / "7_seed"
    path.write_bytes(TEXTS[name])
    found, _ = decoded(path)
    assert (found.format, found.skipped, found.partial, found.note) == (name, {}, False, None)
    got = list(amounts(found))
    assert got
    assert 0 not in got


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", TEXTS)
def test_spoilt_output_of_a_profiler_gives_no_exception_and_no_number_that_is_not_in_it(
    tmp_path: Path, name: str, mutate: Mutation
) -> None:
    dice = random.Random(f"{SEED} {name} {mutate.__name__}")
    path = tmp_path / "7_seed"
    for turn in range(ROUNDS):
        bad = mutate(TEXTS[name], dice)
        path.write_bytes(bad)
        found, _ = decoded(path)
        for number in amounts(found):
            assert math.isfinite(number), bad
            assert number != 0 or _ZERO.search(bad) or _same_twice(found), bad
        if name != "pytorch-trace":  # whose microseconds are another text than our nanoseconds
            assert [t for t in times(found) if str(t).encode() not in bad] == [], bad
        for part in (found.kernels, found.calls, found.copies):
            assert all(s <= e for s, e in zip(part.start, part.end, strict=True)), bad
        if turn % 4 == 0:
            served(tmp_path)


def _same_twice(found: Decoded) -> bool:
    """A flipped digit can make a dispatch end when it starts: it then lasted 0, and said so."""
    return any(d.duration_ns == 0 for d in found.dispatches)


# --- rocpd: the same by cell and by byte ---------------------------------------------------------------


def _database(path: Path) -> Path:
    kernels = [
        Kernel(1000 * i, 1000 * i + 500, i, f"k{i % 3}", counters=(("TCC_HIT", 41.0 + i),))
        for i in range(1, 9)
    ]
    calls = [Region(1000 * i - 50, 1000 * i - 20, i) for i in range(1, 9)]
    Maker(path).fill(kernels, calls, [Copy(500, 700, "MEMORY_COPY_HOST_TO_DEVICE", 4096)]).close()
    return path


def _cells(path: Path) -> list[tuple[str, str]]:
    database = sqlite3.connect(path)
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    cells = [(t, row[1]) for t in tables for row in database.execute(f'PRAGMA table_info("{t}")')]
    database.close()
    return cells


WRONG: tuple[object, ...] = ("N/A", None, b"\xff\xfe", "", 1e308, -7, "9" * 40)


@pytest.mark.parametrize("turn", range(3))
def test_a_wrong_value_in_any_column_of_a_database_makes_no_number(tmp_path: Path, turn: int) -> None:
    whole = _database(tmp_path / "whole.db")
    good = set(times(decoded(whole)[0]))
    assert len(good) > 30
    window = tmp_path / "window"
    window.mkdir()
    for n, (table, column) in enumerate(_cells(whole)):
        value = WRONG[(n + turn * 2) % len(WRONG)]
        path = Path(shutil.copy(whole, window / "7_results.db"))
        database = sqlite3.connect(path)
        try:
            database.execute(f'UPDATE "{table}" SET "{column}" = ?', [value])
        except sqlite3.IntegrityError:  # a key takes no such value
            database.close()
            continue
        database.commit()
        database.close()
        found, _ = decoded(path)
        assert set(times(found)) <= good, (table, column, value)
        assert all(math.isfinite(n) and n != 0 for n in amounts(found)), (table, column, value)
        if n % 8 == 0:
            served(window)


def test_added_columns_and_rows_that_stand_twice_change_no_number(tmp_path: Path) -> None:
    path = _database(tmp_path / "7_results.db")
    good = sorted(times(decoded(path)[0]))
    database = sqlite3.connect(path)
    for table in {table for table, _ in _cells(path)}:
        database.execute(f'ALTER TABLE "{table}" ADD COLUMN "added_later" TEXT DEFAULT \'N/A\'')
        own = [c for t, c in _cells(path) if t == table and c not in ("id", "added_later")]
        if "kernel_dispatch" in table:
            names = ", ".join(f'"{c}"' for c in own)
            database.execute(f'INSERT INTO "{table}" ({names}) SELECT {names} FROM "{table}"')
    database.commit()
    database.close()
    found, _ = decoded(path)
    assert set(times(found)) == set(good)
    served(tmp_path)
    [result] = intake.load([tmp_path]).results
    assert result.busy_ns == 8 * 500, "what stands twice is busy once"


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
def test_spoilt_bytes_of_a_database_give_no_exception_and_no_impossible_time(
    tmp_path: Path, mutate: Mutation
) -> None:
    whole = _database(tmp_path / "whole.db").read_bytes()
    dice = random.Random(f"{SEED} rocpd {mutate.__name__}")
    window = tmp_path / "window"
    window.mkdir()
    for turn in range(20):
        path = window / "7_results.db"
        path.write_bytes(mutate(whole, dice))
        found, _ = decoded(path)
        assert all(0 < s <= e for s, e in zip(found.kernels.start, found.kernels.end, strict=True))
        assert all(math.isfinite(n) for n in amounts(found))
        if turn % 4 == 0:
            served(window)


# --- the command line tools ----------------------------------------------------------------------------

SMI = {"amd-smi": (amd, whole_amd), "rocm-smi": (rocm, whole_rocm)}


def _nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, dict | list):
        yield node
        for child in node.values() if isinstance(node, dict) else node:
            yield from _nodes(child)


def _read(decode: Callable[[bytes], Any], data: bytes) -> Readings:
    try:
        return readings(decode(data))
    except FormatError:
        return {}


@pytest.mark.parametrize("tool", SMI)
@pytest.mark.parametrize("added", ["N/A", 0, {"value": 0, "unit": "W"}, [0], None])
def test_a_key_that_nobody_knows_changes_nothing_wherever_it_stands(tool: str, added: Any) -> None:
    decode, make = SMI[tool]
    good = _read(decode, json.dumps(make()).encode())
    for n, node in enumerate(_nodes(make())):
        if not isinstance(node, dict) or set(node) & {"card0", "gpu_data"}:
            continue
        whole = make()
        spot = list(_nodes(whole))[n]
        spot["added_in_a_later_release"] = added
        found = _read(decode, json.dumps(whole).encode())
        assert found == good, spot


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("tool", SMI)
def test_spoilt_output_of_a_tool_gives_no_exception_and_no_zero_that_is_not_in_it(
    tool: str, mutate: Mutation
) -> None:
    decode, make = SMI[tool]
    data = json.dumps(make(), indent=1).encode()
    dice = random.Random(f"{SEED} {tool} {mutate.__name__}")
    for _ in range(300):
        bad = mutate(data, dice)
        for key, value in _read(decode, bad).items():
            assert isinstance(value, int | float), (key, bad)
            assert math.isfinite(value), (key, bad)
            assert value != 0 or _ZERO.search(bad), (key, bad)


# --- Prometheus text of others -------------------------------------------------------------------------

SITE = b"""# HELP site_step_seconds Time of a training step.
# TYPE site_step_seconds histogram
site_step_seconds_bucket{le="1"} 3
site_step_seconds_bucket{le="2.5"} 5
site_step_seconds_bucket{le="+Inf"} 6
site_step_seconds_sum 8.5
site_step_seconds_count 6
# TYPE site_tokens_total counter
site_tokens_total{node="a \\"b\\" c"} 12345678901
# TYPE site_rack gauge
site_rack{rack="r1"} -1.5
site_rack{rack="r2"} 7
"""


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
def test_spoilt_text_of_others_is_refused_or_is_a_sound_page_that_says_what_the_file_says(
    mutate: Mutation,
) -> None:
    dice = random.Random(f"{SEED} prometheus {mutate.__name__}")
    taken, reasons = 0, set()
    for _ in range(300):
        bad = mutate(SITE, dice)
        try:
            families = prometheus_text.read(bad)
        except FormatError as e:
            reasons.add(len(str(e).splitlines()))
            continue
        taken += 1
        page = prometheus_text.page(families, openmetrics=False)
        seen = set()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in seen, bad
                seen.add(key)
                assert sample.value != 0 or _ZERO.search(bad), bad
    assert reasons <= {1}, "a reason is one line"
    assert taken > 3 or mutate.__name__ != "flip"


# --- what the tools behind probe print ------------------------------------------------------------------


def _rates(found: copies.Copies, within: float = 1.0) -> list[float]:
    return [c.bytes_per_second / 1e9 / (within if c.source == c.target else 1.0) for c in found.cells]


def _bench(text: str) -> list[float]:
    found = rocblas_bench.read(text)
    return [found.seconds * 1e6, *([found.operations / 1e9] if found.operations else [])]


def _loop(text: str) -> list[float]:
    found = launch_loop.read(text)
    return [found.back_to_back, found.round_trip]


def _empty(text: str) -> list[float]:
    found = empty_kernels.read(text, 256)
    return [seconds * 1e6 for seconds in (*found.alone.values(), *found.batch.values())]


PROBED: dict[str, tuple[str, Callable[[str], list[float]]]] = {
    "transferbench": (probemade.transferbench(), lambda t: _rates(copies.transferbench(t))),
    "bandwidth_test": (probemade.bandwidth_test(), lambda t: _rates(copies.bandwidth_test(t), 0.5)),
    "rocblas_bench_gemm": (probemade.gemm(650_000), _bench),
    "rocblas_bench_axpy": (probemade.axpy(3.875), _bench),
    "launch_loop": (probemade.loop(), _loop),
    "empty_kernels": (probemade.empty(), _empty),
}
_PRINTED = re.compile(r"(?<![\w.])[+-]?\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?")


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("tool", PROBED)
def test_spoilt_output_of_a_benchmark_gives_no_number_that_is_not_printed_in_it(
    tool: str, mutate: Mutation
) -> None:
    seed, decode = PROBED[tool]
    assert decode(seed)
    dice = random.Random(f"{SEED} {tool} {mutate.__name__}")
    reasons = set()
    for _ in range(200):
        bad = mutate(seed.encode(), dice).decode("utf-8", "replace")
        try:
            found = decode(bad)
        except FormatError as e:
            reasons.add(len(str(e).splitlines()))
            continue
        printed = [float(n.replace("_", "")) for n in _PRINTED.findall(bad)]
        made_up = [v for v in found if not any(math.isclose(v, n, rel_tol=1e-9) for n in printed)]
        assert made_up == [], bad
        assert all(value > 0 for value in found), bad
    assert reasons <= {1}, "a reason is one line"
