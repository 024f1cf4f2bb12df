"""The files that rocprofv3 writes, by release: CSV, rocpd (SQLite) and JSON.

Facts: columns differ in nearly each release, names of files do not; rocpd is the default from ROCm 7.0 on;
timestamps are nanoseconds of CLOCK_BOOTTIME.
"""

from __future__ import annotations

import csv
import json
import socket
import sqlite3
import time
import uuid
from pathlib import Path
from typing import Any

Launch = dict[str, Any]
WG = ("Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z")
API = ("Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp")
AGENT = (
    "Node_Id Logical_Node_Id Agent_Type Simd_Count Wave_Front_Size Num_Xcc Cu_Count Gfx_Target_Version "
    "Vendor_Id Device_Id Location_Id Domain Drm_Render_Minor Max_Engine_Clk_Fcompute Gpu_Id Name Vendor_Name "
    "Product_Name Model_Name"
)
AGENT_COLUMNS = tuple(AGENT.split())


def release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def agent_rows(agents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Facts: the CPUs come first and are numbered too; the BDF is in Location_Id, the domain apart."""
    rows: list[dict[str, Any]] = []
    for node in range(min(a["node"] for a in agents)):
        rows.append(
            dict.fromkeys(AGENT_COLUMNS, 0) | {"Node_Id": node, "Logical_Node_Id": node, "Agent_Type": "CPU"}
        )
        rows[-1] |= {
            "Name": "CPU of the stand",
            "Vendor_Name": "CPU",
            "Product_Name": "CPU",
            "Model_Name": "",
        }
    for a in agents:
        domain, bus, rest = a["pci"].split(":")
        device, function = rest.split(".")
        rows.append(
            dict.fromkeys(AGENT_COLUMNS, 0)
            | {
                "Node_Id": a["node"],
                "Logical_Node_Id": a["node"],
                "Agent_Type": "GPU",
                "Simd_Count": a["cu"] * 4,
                "Wave_Front_Size": 64,
                "Num_Xcc": a["xcc"],
                "Cu_Count": a["cu"],
                "Gfx_Target_Version": 90402,
                "Vendor_Id": 4098,
                "Location_Id": int(bus, 16) << 8 | int(device, 16) << 3 | int(function),
                "Domain": int(domain, 16),
                "Drm_Render_Minor": a["render"],
                "Max_Engine_Clk_Fcompute": 2100,
                "Gpu_Id": a["gpu_id"],
                "Name": a["gfx"],
                "Vendor_Name": "AMD",
                "Product_Name": "AMD Instinct stand",
                "Model_Name": "ip discovery",
            }
        )
    return rows


def table(path: Path, header: list[str] | tuple[str, ...], rows: list[list[Any]]) -> None:
    with path.open("w", newline="") as f:
        writer = csv.writer(f, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def named(rocm: tuple[int, ...], node: int) -> Any:
    """Facts: from 7.0 on Agent_Id is the text "Agent N", before it is a number."""
    return f"Agent {node}" if rocm >= (7, 0) else node


def kernel_csv(path: Path, rocm: tuple[int, ...], launches: list[Launch]) -> None:
    if rocm >= (7, 0):
        sizes = ["LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count"]
        size_values: list[Any] = [0, 0, 8, 0, 16]
    else:
        sizes, size_values = ["Private_Segment_Size", "Group_Segment_Size"], [0, 0]
    header = ["Kind", "Agent_Id", "Queue_Id"]
    header += ["Stream_Id"] if rocm >= (6, 4) else []
    header += ["Thread_Id", "Dispatch_Id"] if rocm >= (6, 3) else []
    header += ["Kernel_Id", "Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp", *sizes, *WG]
    rows = []
    for one in launches:
        row: list[Any] = ["KERNEL_DISPATCH", named(rocm, one["agent"]), 1]
        row += [1] if rocm >= (6, 4) else []
        row += [one["tid"], one["dispatch"]] if rocm >= (6, 3) else []
        row += [10, one["kernel"], one["correlation"], one["start"], one["end"], *size_values]
        row += [one["workgroup"], 1, 1, one["grid"], 1, 1]
        rows.append(row)
    # Facts: rows are not in the order of time.
    table(path, header, rows[1::2] + rows[0::2])


def api_csv(path: Path, rocm: tuple[int, ...], launches: list[Launch]) -> None:
    domain = "HIP_RUNTIME_API_EXT" if rocm >= (7, 0) else "HIP_RUNTIME_API"
    rows = [
        [domain, o["function"], o["pid"], o["tid"], o["correlation"], o["api_start"], o["api_end"]]
        for o in launches
    ]
    table(path, API, rows)


def counters_of(launch: Launch, names: list[str], zeros: bool) -> dict[str, float]:
    """Counters of one launch: wavefronts from the grid, the rest in fixed proportions to them."""
    waves = launch["grid"] / 64
    span = launch["end"] - launch["start"]
    known = {
        "SQ_WAVES": waves,
        "SQ_INSTS_VALU": waves * 20,
        "SQ_ACTIVE_INST_VALU": waves * 20,
        "SQ_THREAD_CYCLES_VALU": waves * 20 * 64,
        "SQ_VALU_MFMA_BUSY_CYCLES": 0.0,
        "SQ_BUSY_CU_CYCLES": waves * 40,
        "SQ_WAVE_CYCLES": waves * 400,
        "TCC_HIT_sum": waves * 6,
        "TCC_MISS_sum": waves * 2,
        "FETCH_SIZE": waves * 0.25,
        "WRITE_SIZE": waves * 0.125,
        # 8 XCCs at 2.1 GHz, summed.
        "GRBM_COUNT": span * 2.1 * 8,
        "GRBM_GUI_ACTIVE": span * 2.1 * 8,
    }
    return {name: 0.0 if zeros else known[name] for name in names if name in known}


def counter_csv(
    path: Path, rocm: tuple[int, ...], launches: list[Launch], names: list[str], zeros: bool
) -> None:
    header = ["Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Grid_Size"]
    header += ["Kernel_Id"] if rocm >= (6, 3) else []
    header += ["Kernel_Name", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", "VGPR_Count"]
    header += ["Accum_VGPR_Count"] if rocm >= (6, 4) else []
    header += ["SGPR_Count", "Counter_Name", "Counter_Value"]
    header += ["Start_Timestamp", "End_Timestamp"] if rocm >= (6, 4) else []
    rows = []
    for one in launches:
        for name, value in counters_of(one, names, zeros).items():
            row: list[Any] = [one["correlation"], one["dispatch"], named(rocm, one["agent"]), 1, one["pid"]]
            row += [
                one["tid"],
                one["grid"],
                *([10] if rocm >= (6, 3) else []),
                one["kernel"],
                one["workgroup"],
            ]
            row += [0, 0, 8, *([0] if rocm >= (6, 4) else []), 16, name, float(value)]
            row += [one["start"], one["end"]] if rocm >= (6, 4) else []
            rows.append(row)
    table(path, header, rows)


SCHEMA = Path(__file__).with_name("rocpd.sql").read_text()


def schema_version(rocm: tuple[int, ...]) -> str:
    """Facts: "3" in 7.0; 3.0.2 brings graph ids, 3.0.3 SPM, 3.0.4 HIP events."""
    for since, text in (((10, 1), "3.0.4"), ((7, 14), "3.0.3"), ((7, 13), "3.0.2")):
        if rocm >= since:
            return text
    return "3"


class Database:
    """One rocpd file, of one process."""

    def __init__(self, path: Path, rocm: tuple[int, ...]) -> None:
        self.guid = str(uuid.uuid4())
        self.suffix = "_" + self.guid.replace("-", "_")
        self.strings: dict[str, int] = {}
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA.replace("@", self.suffix))
        for tag, value in (
            ("schema_version", schema_version(rocm)),
            ("uuid", self.suffix),
            ("guid", self.guid),
        ):
            self.db.execute(
                f'INSERT INTO "rocpd_metadata{self.suffix}" (tag, value) VALUES (?, ?)', (tag, value)
            )

    def add(self, into: str, /, **row: Any) -> int:
        row["guid"] = self.guid
        columns = ", ".join(f'"{c}"' for c in row)
        sql = f'INSERT INTO "rocpd_{into}{self.suffix}" ({columns}) VALUES ({", ".join("?" * len(row))})'
        return int(self.db.execute(sql, tuple(row.values())).lastrowid or 0)

    def text(self, string: str) -> int:
        if string not in self.strings:
            self.strings[string] = self.add("string", string=string)
        return self.strings[string]

    def event(self, category: str, stack: int) -> int:
        # Facts: stack_id is what CSV calls Correlation_Id; correlation_id is the external one, normally 0.
        row = {"stack_id": stack, "parent_stack_id": 0, "correlation_id": 0}
        return self.add("event", category_id=self.text(category), **row)


def rocpd(path: Path, job: dict[str, Any], launches: list[Launch], begin: int, end: int) -> None:
    out = Database(path, release(job["rocm"]))
    node = out.add(
        "info_node", hash=1, machine_id="stand", system_name="Linux", hostname=socket.gethostname()
    )
    pid = out.add(
        "info_process", nid=node, pid=job["pid"], init=begin, fini=end, command=job["command"], extdata="{}"
    )
    agents, threads, kernels, counters = {}, {}, {}, {}
    for position, row in enumerate(agent_rows(job["agents"])):
        extra = {k.lower(): v for k, v in row.items()}
        agents[row["Node_Id"]] = out.add(
            "info_agent",
            nid=node,
            pid=pid,
            type=row["Agent_Type"],
            absolute_index=row["Node_Id"],
            logical_index=row["Logical_Node_Id"],
            type_index=position,
            name=row["Name"],
            product_name=row["Product_Name"],
            extdata=json.dumps(extra),
        )
    queue = out.add("info_queue", nid=node, pid=pid, name="Queue 1", extdata="{}")
    stream = out.add("info_stream", nid=node, pid=pid, name="Stream 1", extdata="{}")
    code = out.add("info_code_object", nid=node, pid=pid, uri="memory://", extdata="{}")
    for one in launches:
        if (tid := threads.get(one["tid"])) is None:
            tid = threads[one["tid"]] = out.add(
                "info_thread", nid=node, pid=pid, tid=one["tid"], extdata="{}"
            )
        if (kernel := kernels.get(one["kernel"])) is None:
            names = {"kernel_name": one["kernel"] + ".kd", "display_name": one["kernel"]}
            kernel = kernels[one["kernel"]] = out.add(
                "info_kernel_symbol", nid=node, pid=pid, code_object_id=code, extdata="{}", **names
            )
        common = {"nid": node, "pid": pid, "tid": tid, "extdata": "{}"}
        if job["hip"]:
            event = out.event("HIP_RUNTIME_API_EXT", one["correlation"])
            times = {"start": one["api_start"], "end": one["api_end"]}
            out.add("region", name_id=out.text(one["function"]), event_id=event, **times, **common)
        if not job["kernel"] and not job["counters"]:
            continue
        event = out.event("KERNEL_DISPATCH", one["correlation"])
        out.add(
            "kernel_dispatch",
            agent_id=agents[one["agent"]],
            kernel_id=kernel,
            dispatch_id=one["dispatch"],
            queue_id=queue,
            stream_id=stream,
            start=one["start"],
            end=one["end"],
            private_segment_size=0,
            group_segment_size=0,
            workgroup_size_x=one["workgroup"],
            workgroup_size_y=1,
            workgroup_size_z=1,
            grid_size_x=one["grid"],
            grid_size_y=1,
            grid_size_z=1,
            region_name_id=out.text(""),
            event_id=event,
            **common,
        )
        for name, value in counters_of(one, job["counters"], job["zeros"]).items():
            if (pmc := counters.get(name)) is None:
                row = {
                    "name": name,
                    "symbol": name,
                    "target_arch": "GPU",
                    "value_type": "ABS",
                    "extdata": "{}",
                }
                pmc = counters[name] = out.add(
                    "info_pmc", nid=node, pid=pid, agent_id=agents[one["agent"]], **row
                )
            out.add("pmc_event", event_id=event, pmc_id=pmc, value=value, extdata="{}")
    # Facts: the file is opened under its final name, and finalisation takes a second and more.
    time.sleep(job["write_s"])
    out.db.commit()
    out.db.close()


def json_text(job: dict[str, Any], launches: list[Launch], begin: int, end: int) -> str:
    """Facts: one list below rocprofiler-sdk-tool, with records that carry handles, not names."""
    kernels = {name: number for number, name in enumerate(sorted({o["kernel"] for o in launches}), 1)}
    dispatches, calls = [], []
    for one in launches:
        both = {"thread_id": one["tid"], "correlation_id": {"internal": one["correlation"], "external": 0}}
        info = {
            "agent_id": {"handle": one["agent"] + 1},
            "queue_id": {"handle": 1},
            "kernel_id": kernels[one["kernel"]],
            "dispatch_id": one["dispatch"],
        }
        times = {"start_timestamp": one["start"], "end_timestamp": one["end"]}
        dispatches.append({**both, **times, "dispatch_info": info, "stream_id": {"handle": 1}})
        calls.append(
            {**both, "start_timestamp": one["api_start"], "end_timestamp": one["api_end"], "operation": 1}
        )
    agents = [
        {k.lower(): v for k, v in row.items()}
        | {"id": {"handle": row["Node_Id"] + 1}, "type": 2 - (not row["Gpu_Id"])}
        for row in agent_rows(job["agents"])
    ]
    tool = {
        "metadata": {
            "node": {},
            "pid": job["pid"],
            "init_time": begin,
            "fini_time": end,
            "command": [job["command"]],
        },
        "agents": agents,
        "counters": [],
        "strings": {"buffer_records": [{"kind": "HIP_RUNTIME_API", "operations": ["", "hipLaunchKernel"]}]},
        "kernel_symbols": [{"kernel_id": n, "formatted_kernel_name": name} for name, n in kernels.items()],
        "callback_records": {"counter_collection": []},
        "buffer_records": {
            "kernel_dispatch": dispatches if job["kernel"] else [],
            "hip_api": calls if job["hip"] else [],
            "memory_copy": [],
        },
    }
    return json.dumps({"rocprofiler-sdk-tool": [tool]})


def place(job: dict[str, Any]) -> str:
    """Facts: `-d D` is D/HOST/PID_*, `-d D -o N` is D/N_*; nothing given is CWD/HOST/PID_*."""
    folder = Path(job["directory"] or job["cwd"])
    if job["name"]:
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder / job["name"])
    folder = folder / socket.gethostname()
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder / str(job["pid"]))


def write(job: dict[str, Any], launches: list[Launch], begin: int, end: int) -> None:
    """Write all the files of one process."""
    if not job["formats"]:
        return
    rocm = release(job["rocm"])
    prefix = place(job)
    if "csv" in job["formats"]:
        rows = agent_rows(job["agents"])
        table(
            Path(prefix + "_agent_info.csv"), AGENT_COLUMNS, [[row[c] for c in AGENT_COLUMNS] for row in rows]
        )
        # Facts: --hip-trace alone has no kernel rows; a file without rows is not written.
        if job["kernel"] and launches:
            kernel_csv(Path(prefix + "_kernel_trace.csv"), rocm, launches)
        if job["hip"] and launches:
            api_csv(Path(prefix + "_hip_api_trace.csv"), rocm, launches)
        if job["counters"] and launches:
            path = Path(prefix + "_counter_collection.csv")
            counter_csv(path, rocm, launches, job["counters"], job["zeros"])
    if "rocpd" in job["formats"]:
        rocpd(Path(prefix + "_results.db"), job, launches, begin, end)
    if "json" in job["formats"]:
        Path(prefix + "_results.json").write_text(json_text(job, launches, begin, end))
