"""A stand-in for rocprof-compute 2.0 (as omniperf) to 3.9: `profile` in its forms.

Facts: `-n NAME` and `-p/--path` (to 3.6), `--output-directory` from 3.7; `--set` and `--list-sets` (single
pass) from 3.3; the command after `--`; without --set it replays the application, about 12 to 19 runs; a
workload is PATH/pmc_perf.csv and sysinfo.csv, wide before rocpd became the backend's format and long after; a
used folder needs --overwrite from 3.8. Names of the sets are from its public configuration.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from pathlib import Path

from tests.fakes.profilers import outputs, rocprofv3_avail, stage
from tests.fakes.profilers.outputs import Launch, release
from tests.fakes.profilers.stage import Settings

# ROCm release and the version of this tool that came with it.
VERSIONS = {"6.2": "2.0.1", "6.3": "3.0.0", "6.4": "3.1.0", "7.0": "3.2.0", "7.1": "3.3.0", "7.2": "3.4.0"}
VERSIONS |= {"7.13": "3.5.0", "7.14": "3.7.0", "10.0": "3.8.0", "10.1": "3.9.0"}
SETS = ("compute_thruput_util", "compute_thruput_flops", "mem_thruput", "launch_stats")
WIDE = (
    "Dispatch_ID,Kernel_Name,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,"
    "Accum_VGPR,SGPR,wave_size,Start_Timestamp,End_Timestamp"
)
LONG = (
    "GPU_ID,Dispatch_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,"
    "Kernel_Name,Start_Timestamp,End_Timestamp,Kernel_ID,Counter_Name,Counter_Value"
)


def arguments(version: tuple[int, ...]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rocprof-compute", allow_abbrev=False)
    text = ".".join(map(str, version))
    parser.add_argument("-v", "--version", action="version", version=f"rocprofiler-compute version: {text}")
    parser.add_argument("-s", "--specs", action="store_true")
    modes = parser.add_subparsers(dest="mode")
    profile = modes.add_parser("profile", allow_abbrev=False)
    profile.add_argument("-n", "--name")
    profile.add_argument("-p", "--path", default=str(Path.cwd() / "workloads"))
    profile.add_argument("-k", "--kernel", nargs="+")
    profile.add_argument("-d", "--dispatch", nargs="+")
    profile.add_argument("-b", "--block", nargs="+")
    profile.add_argument("--no-roof", action="store_true")
    profile.add_argument("--roof-only", action="store_true")
    if version >= (3, 3):
        profile.add_argument("--set", choices=SETS)
        profile.add_argument("--list-sets", action="store_true")
        profile.add_argument("--attach-pid")
        profile.add_argument("--attach-duration-msec")
    if (3, 2) <= version < (3, 9):
        profile.add_argument("--format-rocprof-output", choices=("csv", "rocpd"))
    if version >= (3, 7):
        profile.add_argument("--output-directory")
    if version >= (3, 8):
        profile.add_argument("--overwrite", action="store_true")
    profile.add_argument("remaining", nargs=argparse.REMAINDER)
    modes.add_parser("analyze").add_argument("-p", "--path", nargs="+", action="append")
    return parser


def written(folder: Path, launches: list[Launch], long: bool, settings: Settings, command: str) -> None:
    agent = settings.agents[0]
    names = list(rocprofv3_avail.known())
    with (folder / "pmc_perf.csv").open("w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(LONG.split(",") if long else [*WIDE.split(","), *names])
        for number, one in enumerate(launches):
            values = outputs.counters_of(one, names, False)
            head = [one["grid"], one["workgroup"], 0, 0, 8, 0, 16]
            if long:
                left = [agent["node"], number + 1, *head, one["kernel"], one["start"], one["end"], 10]
                out.writerows([*left, name, value] for name, value in values.items())
            else:
                left = [number, one["kernel"], agent["node"], *head, 64, one["start"], one["end"]]
                out.writerow([*left, *values.values()])
    info = {
        "workload_name": "stand",
        "command": command,
        "rocm_version": f"{settings.rocm}.0",
        "gpu_model": "MI300X_A1",
        "gpu_arch": agent["gfx"],
        "cu_per_gpu": agent["cu"],
        "simd_per_cu": 4,
        "se_per_gpu": 32,
        "wave_size": 64,
        "max_sclk": 2100,
        "max_mclk": "",
        "total_l2_chan": 128,
        "num_xcd": agent["xcc"],
        "version": 3,
    }
    with (folder / "sysinfo.csv").open("w", newline="") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerows([list(info), list(info.values())])


def refusal(args: argparse.Namespace, app: list[str]) -> str | None:
    if getattr(args, "set", None) and (args.block or args.roof_only):
        return "--set cannot be used with --block or --roof-only"
    if not app:
        return "Profiling command required. Pass the application after -- at the end of options."
    if not args.name and not getattr(args, "output_directory", None):
        return "--name is required"
    return None


def workload(args: argparse.Namespace, version: tuple[int, ...]) -> Path:
    """Facts: a path that is given is taken as it is; else NAME and the chip's name below it."""
    if getattr(args, "output_directory", None):
        return Path(args.output_directory)
    if version < (3, 7) and args.path != str(Path.cwd() / "workloads"):
        return Path(args.path)
    return Path(args.path) / args.name / "MI300X_A1"


def main(argv: list[str], settings: Settings) -> int:
    stage.note(settings, "rocprof-compute", argv)
    version = release(VERSIONS[settings.rocm])
    if settings.mode == "hang-help" and ({"--help", "-h", "--version", "-v"} & set(argv)):
        stage.hang()
    parser = arguments(version)
    args = parser.parse_args(argv)
    if args.mode != "profile":
        parser.print_help()
        return 0
    if settings.mode == "wrong-flag":
        parser.error(f"unrecognized arguments: {argv[1]}")
    if getattr(args, "list_sets", False):
        print("\n".join(SETS))
        return 0
    app = args.remaining[1:] if args.remaining[:1] == ["--"] else []
    if (text := refusal(args, app)) is not None:
        print(f"ERROR {text}", file=sys.stderr)
        return 1
    if stage.unable(settings):
        return 1
    folder = workload(args, version)
    if version >= (3, 8) and folder.exists() and any(folder.iterdir()) and not args.overwrite:
        print(f"ERROR {folder} is not empty, use --overwrite", file=sys.stderr)
        return 1
    return profile(args, app, settings, folder, version)


def profile(
    args: argparse.Namespace, app: list[str], settings: Settings, folder: Path, version: tuple[int, ...]
) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "launches.dat"
    launches: list[Launch] = []
    # Facts: the application is run again for each pass; a set takes one.
    for number in range(1 if getattr(args, "set", None) else 12):
        print(f"[Run {number + 1}]")
        record.write_text("")
        if code := stage.run(app, {"FAKE_GPU_RECORD": str(record.resolve())}, settings):
            print(f"ERROR application ended with {code}", file=sys.stderr)
            return 1
        launches = [json.loads(line) for line in record.read_text().splitlines()]
    record.unlink()
    stage.before_files(settings)
    if not stage.instead_of_files(settings, folder, folder / "pmc_perf.csv", WIDE[:40].encode()):
        long = version >= (3, 2) and getattr(args, "format_rocprof_output", None) != "csv"
        written(folder, launches, long, settings, " ".join(app))
        (folder / "log.txt").write_text(f"{os.getpid()}\n")
    stage.after_files(settings)
    return 0
