"""How fast and in how much memory `analyze` reads a generated trace; pandas only reads it, for scale.

python benchmarks/analyze.py [KERNELS]
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
_READ_ALONE = """
import sys, time, resource
try:
    import pandas
except ImportError:
    print("null"); sys.exit()
start = time.perf_counter()
rows = sum(len(pandas.read_csv(path)) for path in sys.argv[1:])
print([rows, time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss])
"""
_ANALYZE = """
import sys, time, resource, pathlib, json, io, contextlib
start = time.perf_counter()
from exporter.checks.analyze import run
with contextlib.redirect_stdout(io.StringIO()) as out:
    code = run([pathlib.Path(sys.argv[1])], True)
seconds = time.perf_counter() - start
assert code == 0
answer = json.loads(out.getvalue())
rows = sum(source["rows"] for source in answer["sources"])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([rows, seconds, peak, answer["gpus"][0]["kernels"]]))
"""


def generate(folder: Path, kernels: int, seed: int = 1) -> None:
    """A launch-heavy process on one GPU: several streams, one kernel in fifty out of order, idle gaps."""
    pick = random.Random(seed)
    clock = 1_550_151_850_000_000
    free = clock
    held: list[str] = []
    api, process = '"HIP_RUNTIME_API_EXT","', '",40321,40321,'
    with (
        open(folder / "40321_kernel_trace.csv", "w", encoding="utf-8") as trace,
        open(folder / "40321_hip_api_trace.csv", "w", encoding="utf-8") as calls,
    ):
        trace.write(",".join(f'"{name}"' for name in _KERNEL_COLUMNS.split()) + "\n")
        calls.write(",".join(f'"{name}"' for name in _CALL_COLUMNS.split()) + "\n")
        correlation = 0
        for i in range(kernels):
            clock += pick.randrange(500, 12_000)
            correlation += 1
            length = pick.randrange(1_500, 6_000)
            calls.write(f"{api}hipLaunchKernel{process}{correlation},{clock},{clock + length}\n")
            start = max(free, clock + pick.randrange(4_000, 9_000))
            free = end = start + pick.randrange(800, 9_000)
            clock += length
            number = pick.randrange(len(_NAMES))
            held.append(
                f'"KERNEL_DISPATCH","Agent 4",1,{1 + i % 4},40321,{i + 1},{number},"{_NAMES[number]}",'
                f"{correlation},{start},{end},0,0,32,0,128,256,1,1,262144,1,1\n"
            )
            if i % 10 == 0:
                correlation += 1
                calls.write(f"{api}hipGetLastError{process}{correlation},{clock + 20},{clock + 60}\n")
            if len(held) == 1000:
                at = pick.randrange(999)
                held[at], held[at + 1] = held[at + 1], held[at]
                trace.writelines(held)
                held.clear()
        trace.writelines(held)


def measure(folder: Path) -> dict[str, float]:
    """Rows per second and peak memory of `analyze` in a fresh process; pandas' own where it is there."""
    environment = dict(os.environ, PYTHONPATH=str(REPO))
    done = subprocess.run(
        [sys.executable, "-c", _ANALYZE, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    rows, seconds, kib, kernels = json.loads(done.stdout)
    found = {
        "rows": rows,
        "kernels": kernels,
        "seconds": seconds,
        "rows_per_second": rows / seconds,
        "peak_mib": kib / 1024,
    }
    files = sorted(str(path) for path in folder.glob("*.csv"))
    other = subprocess.run(
        [sys.executable, "-c", _READ_ALONE, *files], capture_output=True, text=True, check=True
    )
    alone = json.loads(other.stdout)
    if alone is not None:
        found |= {
            "pandas_seconds": alone[1],
            "pandas_peak_mib": alone[2] / 1024,
            "times_pandas": seconds / alone[1],
        }
    return found


def main() -> None:
    kernels = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        start = time.perf_counter()
        generate(folder, kernels)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        print(f"analyze: generated {kernels} kernels, {size:.0f} MB in {time.perf_counter() - start:.1f} s")
        found = measure(folder)
    print(
        f"analyze: {found['rows']:.0f} rows in {found['seconds']:.2f} s "
        f"= {found['rows_per_second']:,.0f} rows/s, peak {found['peak_mib']:.0f} MiB"
    )
    if "times_pandas" in found:
        print(
            f"analyze: takes {found['times_pandas']:.2f} times as long as pandas only reading the same files "
            f"({found['pandas_seconds']:.2f} s, peak {found['pandas_peak_mib']:.0f} MiB)"
        )
    else:
        print("analyze: pandas is not installed here, so it is not compared")


if __name__ == "__main__":
    main()
