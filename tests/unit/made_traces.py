"""Small rocprofv3 files for tests, written the way the tool writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from exporter.formats.trace import Decoded, Names
from exporter.windows import intake
from exporter.windows.intake import Analysis

KERNEL_COLUMNS = [
    "Kind",
    "Agent_Id",
    "Queue_Id",
    "Stream_Id",
    "Thread_Id",
    "Dispatch_Id",
    "Kernel_Id",
    "Kernel_Name",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "LDS_Block_Size",
    "Grid_Size_X",
]
CALL_COLUMNS = [
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
]
COPY_COLUMNS = [
    "Kind",
    "Direction",
    "Stream_Id",
    "Source_Agent_Id",
    "Destination_Agent_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
]
COUNTER_COLUMNS = [
    "Correlation_Id",
    "Dispatch_Id",
    "Agent_Id",
    "Queue_Id",
    "Process_Id",
    "Thread_Id",
    "Kernel_Name",
    "Counter_Name",
    "Counter_Value",
    "Start_Timestamp",
    "End_Timestamp",
]
TEXT = {"Kind", "Agent_Id", "Kernel_Name", "Domain", "Function", "Direction", "Counter_Name", "Guid"} | {
    "Source_Agent_Id",
    "Destination_Agent_Id",
}
BASE = 1_000_000


class K(NamedTuple):
    """A kernel; times are nanoseconds after BASE."""

    start: int
    end: int
    correlation: int = 0
    name: str = "k(int)"
    stream: int = 1
    agent: str = "Agent 4"


class C(NamedTuple):
    """An API call; times are nanoseconds after BASE."""

    start: int
    end: int
    correlation: int
    function: str = "hipLaunchKernel"
    tid: int = 7


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], quote: set[str] | None = None) -> bytes:
    quote = TEXT if quote is None else quote
    lines = [",".join(f'"{name}"' for name in columns)]
    for row in rows:
        pairs = zip(columns, row, strict=True)
        lines.append(",".join(f'"{value}"' if name in quote else str(value) for name, value in pairs))
    return "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape")


def kernels(rows: Iterable[K], tid: int = 7) -> bytes:
    return table(
        KERNEL_COLUMNS,
        (
            (
                "KERNEL_DISPATCH",
                k.agent,
                1,
                k.stream,
                tid,
                i,
                10,
                k.name,
                k.correlation,
                BASE + k.start,
                BASE + k.end,
                0,
                64,
            )
            for i, k in enumerate(rows, 1)
        ),
    )


def calls(rows: Iterable[C], pid: int = 7) -> bytes:
    return table(
        CALL_COLUMNS,
        (
            ("HIP_RUNTIME_API_EXT", c.function, pid, c.tid, c.correlation, BASE + c.start, BASE + c.end)
            for c in rows
        ),
    )


def copies(rows: Iterable[tuple[int, int, str]]) -> bytes:
    ends = {"HOST_TO_DEVICE": ("Agent 0", "Agent 4"), "DEVICE_TO_HOST": ("Agent 4", "Agent 0")}
    return table(
        COPY_COLUMNS,
        (
            ("MEMORY_COPY", f"MEMORY_COPY_{way}", 0, *ends[way], 0, BASE + start, BASE + end)
            for start, end, way in rows
        ),
    )


def counters(rows: Iterable[tuple[int, str, str, float, int, int]]) -> bytes:
    """Rows are dispatch, kernel, counter, value, start, end."""
    return table(
        COUNTER_COLUMNS,
        (
            (d, d, "Agent 4", 1, 7, 7, kernel, name, value, BASE + s, BASE + e)
            for d, kernel, name, value, s, e in rows
        ),
    )


def window(
    folder: Path,
    kernel_rows: Iterable[K] = (),
    call_rows: Iterable[C] | None = None,
    copy_rows: Iterable[tuple[int, int, str]] | None = None,
    bounds: tuple[int, int] | None = None,
    pid: int = 7,
    **manifest: Any,
) -> Path:
    """A window's folder, with a manifest when there is something to say in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{pid}_kernel_trace.csv").write_bytes(kernels(kernel_rows))
    if call_rows is not None:
        (folder / f"{pid}_hip_api_trace.csv").write_bytes(calls(call_rows, pid))
    if copy_rows is not None:
        (folder / f"{pid}_memory_copy_trace.csv").write_bytes(copies(copy_rows))
    if bounds is not None:
        manifest["bounds_ns"] = [BASE + bounds[0], BASE + bounds[1]]
    if manifest:
        (folder / "manifest.json").write_text(json.dumps({"version": 1, **manifest}), encoding="utf-8")
    return folder


def load(*paths: Path) -> Analysis:
    return intake.load(list(paths))


def read(path: Path) -> tuple[Decoded, Names]:
    names = Names()
    return intake.read_file(path, names, []), names
