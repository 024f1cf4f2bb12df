"""How fast and in how much memory a window is reduced, from files of each kind that a profiler writes.

python benchmarks/windows.py [KERNELS [FORMAT...]]     1,000,000 kernels; csv json rocpd torch

The files are generated and removed again. Beside us, on the same files in the same run: pandas only reading
the CSV, and HolisticTraceAnalysis (Meta's tool for PyTorch traces) making of the torch trace what it can of
what we make: time by kind, launch statistics, time by kernel. Each in a process of its own. CPU seconds are
what to compare by: wall seconds are those of a machine that others use, too. A quarter of the kernels is
measured as well, which shows what memory grows by.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parent.parent
_KERNEL_COLUMNS = (
    "Kind Agent_Id Queue_Id Stream_Id Thread_Id Dispatch_Id Kernel_Id Kernel_Name Correlation_Id "
    "Start_Timestamp End_Timestamp LDS_Block_Size Scratch_Size VGPR_Count Accum_VGPR_Count SGPR_Count "
    "Workgroup_Size_X "
    "Workgroup_Size_Y Workgroup_Size_Z Grid_Size_X Grid_Size_Y Grid_Size_Z"
)
_CALL_COLUMNS = "Domain Function Process_Id Thread_Id Correlation_Id Start_Timestamp End_Timestamp"
_NAMES = [
    *(
        f"void gemm_tile<float, {m}, {n}, (Layout)1, true>(float const*, float*, int)"
        for m in (32, 64)
        for n in (16, 32)
    ),
    *(
        f"void elementwise<{i}, functor<float>, std::array<char*, 2ul> >(int, functor<float>)"
        for i in range(40)
    ),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "__amd_rocclr_fillBufferAligned",
]
_PID, _GUID = 40321, "00000001-0000-7000-8000-000000000001"

# What each measured process prints last: seconds on the wall, CPU seconds, peak KiB, and what it made.
_CLOSE = """
use = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - start, use.ru_utime + use.ru_stime - before, use.ru_maxrss, made]))
"""
_OPEN = """
import sys, time, resource, json
def begin():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), use.ru_utime + use.ru_stime
"""
_OURS = f"""{_OPEN}
from exporter.windows import reducer
reducer.confine(reducer.MEMORY_BYTES)
start, before = begin()
answer = reducer.reduce({{"path": sys.argv[1]}})
result = answer["results"][0]
made = [sum(s["rows"] for s in answer["sources"]), result["kernels"], result["paired"]]
{_CLOSE}"""
_PANDAS = f"""{_OPEN}
import pathlib
import pandas
start, before = begin()
made = [sum(len(pandas.read_csv(path)) for path in pathlib.Path(sys.argv[1]).glob("*.csv"))]
{_CLOSE}"""
_HTA = f"""{_OPEN}
import contextlib, logging, os
os.environ["LOG_LEVEL"] = "ERROR"
with contextlib.redirect_stdout(sys.stderr):
    from hta.trace_analysis import TraceAnalysis
    logging.disable(logging.WARNING)
    start, before = begin()
    analysis = TraceAnalysis(trace_dir=sys.argv[1])
    read = time.perf_counter() - start
    times = analysis.get_temporal_breakdown(visualize=False)
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)
    kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    made = [len(launches[0]), read]
{_CLOSE}"""


class Launch(NamedTuple):
    """One launch call and its kernel: nanoseconds."""

    number: int
    called: int
    returned: int
    start: int
    end: int
    name: int
    stream: int


class Measured(NamedTuple):
    seconds: float
    cpu_s: float
    mib: float
    made: list[float]


def launches(kernels: int, seed: int = 1) -> Iterator[Launch]:
    """A launch-heavy process on one GPU: several streams, one kernel after the other, idle gaps."""
    pick = random.Random(seed)
    clock = free = 1_550_151_850_000_000
    for i in range(kernels):
        clock += pick.randrange(500, 12_000)
        length = pick.randrange(1_500, 6_000)
        start = max(free, clock + pick.randrange(4_000, 9_000))
        free = start + pick.randrange(800, 9_000)
        yield Launch(i + 1, clock, clock + length, start, free, pick.randrange(len(_NAMES)), 1 + i % 4)
        clock += length


def csv(folder: Path, kernels: int) -> None:
    """rocprofv3's tables; one row in a thousand out of order."""
    api, process = '"HIP_RUNTIME_API_EXT","', f'",{_PID},{_PID},'
    with (
        open(folder / f"{_PID}_kernel_trace.csv", "w", encoding="utf-8") as trace,
        open(folder / f"{_PID}_hip_api_trace.csv", "w", encoding="utf-8") as calls,
    ):
        trace.write(",".join(f'"{name}"' for name in _KERNEL_COLUMNS.split()) + "\n")
        calls.write(",".join(f'"{name}"' for name in _CALL_COLUMNS.split()) + "\n")
        held: list[str] = []
        for one in launches(kernels):
            calls.write(f"{api}hipLaunchKernel{process}{one.number},{one.called},{one.returned}\n")
            if one.number % 10 == 0:
                number = kernels + one.number
                calls.write(f"{api}hipGetLastError{process}{number},{one.called + 20},{one.called + 60}\n")
            held.append(
                f'"KERNEL_DISPATCH","Agent 4",1,{one.stream},{_PID},{one.number},{one.name},'
                f'"{_NAMES[one.name]}",{one.number},{one.start},{one.end},'
                "0,0,32,0,128,256,1,1,262144,1,1\n"
            )
            if len(held) == 1000:
                held[500], held[501] = held[501], held[500]
                trace.writelines(held)
                held.clear()
        trace.writelines(held)


def sdk_json(folder: Path, kernels: int) -> None:
    """rocprofv3's JSON: records name kernels and functions by number."""
    symbols = [{"kernel_id": i, "formatted_kernel_name": name} for i, name in enumerate(_NAMES)]
    agent = {"size": 1, "id": {"handle": 9}, "type": 2, "node_id": 4, "logical_node_id": 4, "name": "gfx942"}
    agent |= {"cu_count": 304, "num_xcc": 8, "location_id": 1280, "domain": 0, "gpu_id": 12605}
    head = {
        "metadata": {"pid": _PID},
        "agents": [agent],
        "strings": {"buffer_records": [{"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel"]}]},
        "kernel_symbols": symbols,
    }
    with open(folder / f"{_PID}_results.json", "w", encoding="utf-8") as out:
        out.write('{"rocprofiler-sdk-tool": [' + json.dumps(head)[:-1] + ', "buffer_records": {"hip_api": [')
        for one in launches(kernels):
            out.write(
                ("," if one.number > 1 else "")
                + f'{{"size": 48, "kind": 0, "operation": 0, "correlation_id": {{"internal": {one.number}, '
                f'"external": 0}}, "start_timestamp": {one.called}, "end_timestamp": {one.returned}, '
                f'"thread_id": {_PID}}}'
            )
        out.write('], "kernel_dispatch": [')
        for one in launches(kernels):
            out.write(
                ("," if one.number > 1 else "")
                + f'{{"size": 184, "kind": 11, "operation": 3, "thread_id": {_PID}, "correlation_id": '
                f'{{"internal": {one.number}, "external": 0}}, "start_timestamp": {one.start}, '
                f'"end_timestamp": {one.end}, "dispatch_info": {{"size": 120, "agent_id": {{"handle": 9}}, '
                f'"queue_id": {{"handle": 1}}, "kernel_id": {one.name}, "dispatch_id": {one.number}, '
                '"private_segment_size": 0, "group_segment_size": 0, "workgroup_size": {"x": 256, "y": 1, '
                '"z": 1}, "grid_size": {"x": 262144, "y": 1, "z": 1}}, "stream_id": {"handle": '
                f"{one.stream}}}}}"
            )
        out.write("]}}]}")


def rocpd(folder: Path, kernels: int) -> None:
    """A rocpd database in schema 3: an event beside each row."""
    sys.path.insert(0, str(REPO / "tests" / "unit"))
    from rocpdmade import Maker  # the tables, as the tests lay them

    made = Maker(folder / "results.db", pid=_PID)
    end = made.suffix
    db = made.db
    kinds = [made.string("HIP_RUNTIME_API_EXT"), made.string("KERNEL_DISPATCH")]
    launch = made.string("hipLaunchKernel")
    texts = [made.string(name) for name in _NAMES]
    made.thread(7)
    for i, name in enumerate(_NAMES):
        made.put("info_kernel_symbol", id=i, nid=1, pid=_PID, kernel_name=name, display_name=name)
    guid, pid = made.guid, _PID

    def fill(table: str, columns: int, rows: Iterator[tuple[object, ...]]) -> None:
        db.executemany(f'INSERT INTO "rocpd_{table}{end}" VALUES ({", ".join("?" * columns)})', rows)

    fill("event", 6, ((k, guid, kinds[k % 2 == 0], (k + 1) // 2, 0, 0) for k in range(1, 2 * kernels + 1)))
    fill(
        "region",
        9,
        (
            (o.number, guid, 1, pid, 7, o.called, o.returned, launch, 2 * o.number - 1)
            for o in launches(kernels)
        ),
    )
    fill(
        "kernel_dispatch",
        14,
        (
            (
                *(o.number, guid, 1, pid, 7, 4, o.name, o.number, 1, o.stream),
                *(o.start, o.end, texts[o.name], 2 * o.number),
            )
            for o in launches(kernels)
        ),
    )
    db.commit()
    db.close()


def torch(folder: Path, kernels: int) -> None:
    """PyTorch's profiler trace, with the arguments that its events carry."""
    with open(folder / "rank-0.json", "w", encoding="utf-8") as out:
        out.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [\n')
        out.writelines(_events(o, "," if o.number < kernels else "") for o in launches(kernels))
        out.write("]}\n")


def _events(o: Launch, comma: str) -> str:
    return (
        f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {_PID}, '
        f'"tid": {_PID}, "ts": {o.called / 1e3:.3f}, "dur": {(o.returned - o.called) / 1e3:.3f}, '
        f'"args": {{"External id": {o.number}, "cbid": 211, "correlation": {o.number}}}}},\n'
        f'{{"ph": "X", "cat": "kernel", "name": "{_NAMES[o.name]}", "pid": 0, "tid": {o.stream}, '
        f'"ts": {o.start / 1e3:.3f}, "dur": {(o.end - o.start) / 1e3:.3f}, "args": {{"External id": '
        f'{o.number}, "queued": 0, "device": 0, "context": 1, "stream": {o.stream}, "correlation": '
        f'{o.number}, "registers per thread": 32, "shared memory": 0, "grid": [1024, 1, 1], '
        f'"block": [256, 1, 1]}}}}{comma}\n'
    )


FORMATS: dict[str, Callable[[Path, int], None]] = {
    "csv": csv,
    "json": sdk_json,
    "rocpd": rocpd,
    "torch": torch,
}
OTHERS = {"csv": ("pandas only reading", _PANDAS), "torch": ("HolisticTraceAnalysis", _HTA)}


def measure(code: str, folder: Path) -> Measured | str:
    """Run some code on a folder in a fresh process; what it said last where it failed."""
    environment = dict(os.environ, PYTHONPATH=str(REPO))
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode != 0:
        return done.stderr.strip().rpartition("\n")[2]
    seconds, cpu_s, kib, made = json.loads(done.stdout.splitlines()[-1])
    return Measured(seconds, cpu_s, kib / 1024, made)


def one(form: str, kernels: int, scratch: Path) -> None:
    """Generate a format in two sizes, reduce both, and let the other tool have the larger one."""
    found: list[Measured] = []
    size = 0.0
    for count in (kernels // 4, kernels):
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            folder = Path(name)
            began = time.perf_counter()
            FORMATS[form](folder, count)
            made_s = time.perf_counter() - began
            size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
            ours = measure(_OURS, folder)
            assert isinstance(ours, Measured), ours
            assert ours.made[1:] == [count, count], ours
            found.append(ours)
            other = measure(OTHERS[form][1], folder) if form in OTHERS and count == kernels else ""
    small, whole = found
    rows = whole.made[0]
    print(f"{form}: {kernels} kernels, {size:.0f} MB, made in {made_s:.1f} s")
    print(
        f"{form}: {rows:.0f} rows in {whole.seconds:.2f} s ({whole.cpu_s:.2f} s CPU) = "
        f"{rows / whole.cpu_s:,.0f} rows per CPU second, peak {whole.mib:.0f} MiB; "
        f"a quarter of it: {small.mib:.0f} MiB, so "
        f"{(whole.mib - small.mib) * 2**20 / (rows - small.made[0]):.0f} bytes a row"
    )
    if form not in OTHERS:
        return
    who = OTHERS[form][0]
    if not isinstance(other, Measured):
        print(f"{form}: {who} is not compared: {other}")
        return
    print(
        f"{form}: {who} takes {other.seconds:.2f} s ({other.cpu_s:.2f} s CPU), peak {other.mib:.0f} MiB: "
        f"{other.cpu_s / whole.cpu_s:.2f} times our CPU, {other.seconds / whole.seconds:.2f} times our time, "
        f"{other.mib / whole.mib:.1f} times our memory"
    )


def main() -> None:
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as scratch:
        for form in sys.argv[2:] or FORMATS:
            one(form, kernels, Path(scratch))


if __name__ == "__main__":
    main()
