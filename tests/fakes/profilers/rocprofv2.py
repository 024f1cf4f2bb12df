"""A stand-in for rocprofv2 (ROCm 5 to 7; no longer shipped in 10).

Facts from its public script: options are looked at one by one and the first word that is none begins the
application, so there is no `--` (it is a "wrong option"); help ends with 1; `-d` must be a folder that is
there or files are dropped with a warning; without `-d` and `-o` rows go to standard output. Columns are those
of its file plugin.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NoReturn

from tests.fakes.profilers import outputs, stage
from tests.fakes.profilers.stage import Settings

PLUGINS = ("ctf", "perfetto", "file", "att", "cli", "json")
FLAGS = {
    "--hip-api": "hip",
    "--hip-activity": "hip kernel",
    "--hip-trace": "hip kernel",
    "--hsa-api": "hsa",
    "--hsa-activity": "hsa kernel",
    "--hsa-trace": "hsa kernel",
    "--roctx-trace": "",
    "--kernel-trace": "kernel",
    "--sys-trace": "hip hsa kernel",
    "--basenames": "",
    "--disable-json-data-flows": "",
    "-ns": "",
    "--no-serialization": "",
}
VALUES = {
    "-i": "input",
    "--input": "input",
    "-o": "name",
    "--output-file-name": "name",
    "-d": "folder",
    "--output-directory": "folder",
    "-fi": "flush",
    "--flush-interval": "flush",
    "-tp": "period",
    "--trace-period": "period",
    "-m": "metrics",
    "--plugin": "plugin",
    "--plugin-version": "plugin_version",
    "--tool-version": "tool_version",
    "--roc-sys": "roc_sys",
}
HEADER = (
    "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,"
    "Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID"
)


def usage() -> NoReturn:
    print("ROCProfilerV2 Run Script Usage:")
    for flag in ("-h   | --help", "--list-counters", *FLAGS):
        print(f"{flag}")
    for pair in (
        "-m",
        "--plugin PLUGIN_NAME",
        "--plugin-version <1|2>",
        "-i   | --input",
        "-o   | --output-file-name",
        "-d   | --output-directory",
        "-fi  | --flush-interval",
        "-tp  | --trace-period",
    ):
        print(pair)
    sys.exit(1)


def parsed(argv: list[str], settings: Settings) -> tuple[dict[str, str], set[str], list[str]]:
    values: dict[str, str] = {}
    kinds: set[str] = set()
    at = 0
    while at < len(argv):
        word = argv[at]
        following = argv[at + 1] if at + 1 < len(argv) else ""
        if word in ("-h", "--help"):
            usage()
        if word == "--version":
            print(f"ROCm version: {settings.rocm}.0-0\nROCProfiler version: 2.0")
            sys.exit(0)
        if word in FLAGS:
            kinds |= set(FLAGS[word].split())
            at += 1
        elif word in VALUES:
            wrong = {
                "input": not os.access(following, os.R_OK),
                "flush": not (following.isdigit() and int(following) > 0),
                "period": ":" not in following,
                "plugin": following not in PLUGINS,
            }.get(VALUES[word], not following)
            if wrong:
                print(f'Wrong input "{following}" for {word}!')
                usage()
            values[VALUES[word]] = following
            at += 2
        elif word.startswith("-"):
            print(f'Wrong option "{word}", Please use the following options:\n')
            usage()
        else:
            break
    return values, kinds, argv[at:]


def kernel_text(launches: list[outputs.Launch], names: list[str], pid: int, gpu: int) -> str:
    lines = [HEADER + "".join(f",{name}" for name in names)]
    # Facts: an empty line follows the header.
    lines.append("")
    for one in launches:
        values = outputs.counters_of(one, names, False)
        shape = f"{one['grid']},{one['workgroup']},0,0,8,0,16,64"
        row = f'{one["dispatch"]},{gpu},1,{pid},{one["tid"]},{shape},"{one["kernel"]}"'
        row += f",{one['start']},{one['end']},{one['correlation']}"
        lines.append(row + "".join(f",{value:.6f}" for value in values.values()))
    return "\n".join(lines) + "\n"


def hip_text(launches: list[outputs.Launch]) -> str:
    lines = ["Domain,Function,Start_Timestamp,End_Timestamp,Correlation_ID", ""]
    for one in launches:
        times = f"{one['api_start']},{one['api_end']}"
        lines.append(f'HIP_API_DOMAIN,"{one["function"]}",{times},{one["correlation"]}')
    return "\n".join(lines) + "\n"


def put(folder: str, stem: str, name: str, pid: int, text: str) -> None:
    """Facts: KIND_NAME.csv, or KIND_PID.csv without a name."""
    path = Path(folder) / f"{stem}_{name or pid}.csv"
    if not path.parent.is_dir():
        print(f"warning: Cannot open output directory '{folder}'", file=sys.stderr)
        return
    print(f"Results File: {path}")
    path.write_text(text)


def main(argv: list[str], settings: Settings) -> int:
    stage.note(settings, "rocprofv2", argv)
    if settings.mode == "hang-help" and ({"--help", "-h", "--version"} & set(argv)):
        stage.hang()
    print("WARNING: this tool is being phased out; use rocprofv3")
    if not argv:
        usage()
    values, kinds, app = parsed(argv, settings)
    if settings.mode == "wrong-flag":
        print(f'Wrong option "{argv[0]}", Please use the following options:\n')
        usage()
    if stage.unable(settings):
        return 1
    sets: list[tuple[str, list[str]]] = [("", [])]
    if "input" in values:
        lines = [line for line in Path(values["input"]).read_text().splitlines() if "pmc" in line]
        # Facts: each line of counters is a run of its own, in pmc_N.
        sets = [(f"pmc_{n}", line.split(":", 1)[1].split()) for n, line in enumerate(lines, 1)]
    code = 0
    for sub, names in sets:
        code = once(values, kinds, app, settings, sub, names)
        if code:
            # The script runs with `set -e`.
            return code
    return code


def once(
    values: dict[str, str], kinds: set[str], app: list[str], settings: Settings, sub: str, names: list[str]
) -> int:
    scratch = Path(values.get("folder", ".")) / f"rocprofv2-{os.getpid()}.dat"
    scratch.touch()
    code = stage.run(app, {"FAKE_GPU_RECORD": str(scratch.resolve())}, settings)
    launches = [json.loads(line) for line in scratch.read_text().splitlines()]
    scratch.unlink()
    stage.before_files(settings)
    folder = values.get("folder", ".") + (f"/{sub}" if sub else "")
    if sub and ("folder" in values or "name" in values):
        Path(folder).mkdir(parents=True, exist_ok=True)
    pid = launches[0]["pid"] if launches else os.getpid()
    gpu = settings.agents[0][settings.counted]
    half = Path(folder) / f"results_{values.get('name', pid)}.csv"
    if not stage.instead_of_files(settings, Path(folder), half, HEADER[:40].encode()) and launches:
        for wanted, stem, text in (
            ("kernel" in kinds or names, "results", kernel_text(launches, names, pid, gpu)),
            ("hip" in kinds, "hip_api_trace", hip_text(launches)),
        ):
            if wanted and ("folder" in values or "name" in values):
                put(folder, stem, values.get("name", ""), pid, text)
            elif wanted:
                print(text)
    stage.after_files(settings)
    return code
