"""A stand-in for rocprof v1 (the "RPL" script of ROCm up to 6 and 7).

Facts from its public script: the first word that is no option begins the application, `--` is a wrong option;
help is `-h` alone and ends with 1; `-o` must end in .csv; `-t` is where it works; the code at the end is the
application's; a missing rocm_agent_enumerator is only a warning; columns of the result file.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

from tests.fakes.profilers import outputs, stage
from tests.fakes.profilers.stage import Settings

FLAGS = (
    "--stats",
    "--roctx-trace",
    "--hsa-trace",
    "--sys-trace",
    "--hip-trace",
    "--roctx-rename",
    "--parallel-kernels",
    "--verbose",
)
VALUES = (
    "-i",
    "-o",
    "-d",
    "-t",
    "-m",
    "--basenames",
    "--timestamp",
    "--ctx-wait",
    "--ctx-limit",
    "--heartbeat",
    "--obj-tracking",
    "--trace-start",
    "--trace-period",
    "--flush-rate",
    "--cmd-qts",
    "--tool-version",
)
TRACES = {"--hsa-trace", "--sys-trace", "--hip-trace", "--roctx-trace"}
HEADER = (
    "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,sgpr,wave_size,"
    "sig,obj"
)


def usage() -> NoReturn:
    print("ROCm Profiling Library (RPL) run script\n\nUsage:\n  rocprof [options] <app command line>\n")
    print("  -h - this help\n  --version\n  --list-basic\n  --list-derived\n  --merge-traces")
    for flag in (*VALUES, *FLAGS):
        print(f"  {flag}")
    sys.exit(1)


def fatal(text: str) -> NoReturn:
    print(f"rocprof: Error: {text}\n")
    usage()


def parsed(argv: list[str], settings: Settings) -> tuple[dict[str, str], set[str], list[str]]:
    values: dict[str, str] = {}
    flags: set[str] = set()
    at = 0
    while at < len(argv):
        word, following = argv[at], argv[at + 1] if at + 1 < len(argv) else ""
        if word == "-h":
            usage()
        if word == "--version":
            print(f"ROCm version: {settings.rocm}.0-0\nROCProfiler version: 2.0")
            sys.exit(0)
        if word in FLAGS:
            flags.add(word)
            at += 1
        elif word in VALUES:
            if word == "-o" and not following.endswith(".csv"):
                print("error: file name must have .CSV extension")
                sys.exit(1)
            if word == "--trace-period" and not re.fullmatch(
                r"(\d+(m|s|ms|us):){2}\d+(m|s|ms|us)", following
            ):
                fatal(f"Wrong option '{word} {following}'")
            values[word] = following
            at += 2
        elif word.startswith("-"):
            fatal(f"Wrong option '{word}'")
        else:
            break
    if flags & {"--stats", *TRACES} and values.get("--timestamp") == "off":
        fatal("Wrong options, stats enabled with disabled timestamps")
    return values, flags, argv[at:]


def result_text(launches: list[outputs.Launch], names: list[str], timed: bool, gpu: int) -> str:
    """Facts: one line per dispatch, counters as columns, the four times only with `--timestamp on`."""
    times = ",DispatchNs,BeginNs,EndNs,CompleteNs" if timed else ""
    lines = [HEADER + "".join(f",{name}" for name in names) + times]
    for index, one in enumerate(launches):
        # Facts: names carry the suffix of the code object.
        row = f'{index},"{one["kernel"]} [clone .kd]",{gpu},0,{index},{one["pid"]},{one["tid"]}'
        row += f",{one['grid']},{one['workgroup']},0,0,8,0,16,64,0x0,0x7f0000000000"
        row += "".join(f",{value:.10g}" for value in outputs.counters_of(one, names, False).values())
        # DispatchNs stands for the call: the packet is written when the call ends.
        row += f",{one['api_end']},{one['start']},{one['end']},{one['end'] + 2000}" if timed else ""
        lines.append(row)
    return "\n".join(lines) + "\n"


def stats_text(launches: list[outputs.Launch]) -> str:
    lines = ['"Name","Calls","TotalDurationNs","AverageNs","Percentage"']
    total = sum(one["end"] - one["start"] for one in launches) or 1
    for name in sorted({one["kernel"] for one in launches}):
        spans = [one["end"] - one["start"] for one in launches if one["kernel"] == name]
        lines.append(
            f'"{name}",{len(spans)},{sum(spans)},{sum(spans) // len(spans)},{100 * sum(spans) / total}'
        )
    return "\n".join(lines) + "\n"


def counters(path: str) -> list[str]:
    lines = [line for line in Path(path).read_text().splitlines() if re.match(r"\s*pmc\s*:", line)]
    return lines[0].split(":", 1)[1].split() if lines else []


def main(argv: list[str], settings: Settings) -> int:
    stage.note(settings, "rocprof", argv)
    if settings.mode == "hang-help" and ({"-h", "--version"} & set(argv)):
        stage.hang()
    print("RPL: on a stand")
    if not argv:
        usage()
    values, flags, app = parsed(argv, settings)
    if settings.mode == "wrong-flag":
        fatal(f"Wrong option '{argv[0]}'")
    if stage.unable(settings):
        return 1
    print("rocm_agent_enumerator: not found", file=sys.stderr)
    names: list[str] = []
    base = "results"
    if given := values.get("-i"):
        if not given.endswith((".txt", ".xml")):
            fatal(f"Bad input file type '{given}'")
        names, base = counters(given), Path(given).stem
    # Facts: it works below -t, /tmp without, and names its folder after the time and its own number.
    work = Path(values.get("-d") or values.get("-t") or "/tmp") / f"rpl_data_{os.getpid()}"
    work.mkdir(parents=True)
    record = work / "launches.dat"
    record.touch()
    code = stage.run(app, {"FAKE_GPU_RECORD": str(record)}, settings)
    launches = [json.loads(line) for line in record.read_text().splitlines()]
    stage.before_files(settings)
    target = Path(values.get("-o") or f"{base}.csv")
    odd = stage.instead_of_files(settings, target.parent, target, HEADER[:40].encode())
    if launches and not odd:
        timed = values.get("--timestamp") == "on" or bool(flags & {"--stats", *TRACES})
        target.write_text(result_text(launches, names, timed, settings.agents[0][settings.counted]))
        if flags & {"--stats", *TRACES}:
            target.with_suffix(".stats.csv").write_text(stats_text(launches))
    for left in work.iterdir():
        left.unlink()
    work.rmdir()
    stage.after_files(settings)
    return code
