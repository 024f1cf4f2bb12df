"""A stand-in for rocprofv3 of ROCm 6.2 to 10.1: the options of the release it is set to, and no other.

Facts, unless said otherwise: what `rocprofv3 --help` of each release lists, its change log, and its launcher,
which is a public Python program. Texts are our own; names of options, codes and the order of checks are its.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tests.fakes.profilers import outputs, stage
from tests.fakes.profilers.outputs import release
from tests.fakes.profilers.stage import Settings

RELEASES = ("6.2", "6.3", "6.4", "7.0", "7.1", "7.2", "7.13", "7.14", "10.0", "10.1")
SDK = {"6.2": "0.4.0", "6.3": "0.5.0", "6.4": "0.6.0", "7.0": "1.0.0", "7.1": "1.1.0", "7.2": "1.1.0"}
SDK |= {"7.13": "1.3.0", "7.14": "1.3.2", "10.0": "1.3.5", "10.1": "1.4.0"}
UNITS = {"hour": 3600e9, "min": 60e9, "sec": 1e9, "msec": 1e6, "usec": 1e3, "nsec": 1.0}
# Facts: counters per pass and block on CDNA2/3.
LIMITS = {"SQ": 8, "TCC": 4, "TCP": 4, "TA": 2, "TD": 2, "SPI": 6, "CPC": 2, "CPF": 2, "GRBM": 2, "GDS": 4}


class Option(NamedTuple):
    flags: str
    since: str = "6.2"
    until: str = "99"
    kind: str = "bool"
    choices: tuple[str, ...] | None = None


OPTIONS = (
    *map(
        Option,
        (
            "--hip-trace",
            "--hip-runtime-trace",
            "--hip-compiler-trace",
            "--marker-trace",
            "--kernel-trace",
            "--memory-copy-trace",
            "--scratch-memory-trace",
            "--hsa-trace",
            "--hsa-core-trace",
            "--hsa-amd-trace",
            "--hsa-image-trace",
            "--hsa-finalizer-trace",
            "-s --sys-trace",
            "--stats",
            "-M --mangled-kernels",
            "-T --truncate-kernels",
        ),
    ),
    Option("-i --input", kind="text"),
    Option("-o --output-file", kind="text"),
    Option("-d --output-directory", kind="text"),
    Option("--output-format", "6.2", "6.3", "list", ("csv", "json", "pftrace")),
    Option("--output-format", "6.3", "7.0", "list", ("csv", "json", "pftrace", "otf2")),
    Option("-f --output-format", "7.0", kind="list", choices=("csv", "json", "pftrace", "otf2", "rocpd")),
    Option(
        "--log-level", kind="text", choices=("fatal", "error", "warning", "info", "trace", "env", "config")
    ),
    Option("--kernel-names", "6.2", "6.3", kind="list"),
    Option("--preload", kind="any"),
    Option("-L --list-metrics", "6.2", "6.4"),
    Option("-L --list-avail", "6.4"),
    Option("--pmc", "6.3", "7.13", "any"),
    Option("--pmc", "7.13", kind="append"),
    Option("-r --runtime-trace", "6.3"),
    Option("--rccl-trace", "6.3"),
    Option("--kokkos-trace", "6.3"),
    Option("-S --summary", "6.3"),
    Option("-D --summary-per-domain", "6.3"),
    Option("--summary-groups", "6.3", kind="list"),
    Option("--summary-output-file", "6.3", kind="text"),
    Option("-u --summary-units", "6.3", kind="text", choices=("sec", "msec", "usec", "nsec")),
    Option("--kernel-rename", "6.3"),
    Option("--kernel-include-regex", "6.3", kind="text"),
    Option("--kernel-exclude-regex", "6.3", kind="text"),
    Option("--kernel-iteration-range", "6.3", kind="list"),
    Option("--perfetto-backend", "6.3", kind="text", choices=("inprocess", "system")),
    Option("--perfetto-buffer-size", "6.3", kind="int"),
    Option("-E --extra-counters", "6.4", kind="text"),
    Option("--memory-allocation-trace", "6.4"),
    Option("--rocdecode-trace", "6.4"),
    Option("--rocjpeg-trace", "6.4"),
    Option("--pc-sampling-beta-enabled", "6.4"),
    Option("--pc-sampling-unit", "6.4", kind="text", choices=("instructions", "cycles", "time")),
    Option("--pc-sampling-method", "6.4", kind="text", choices=("stochastic", "host_trap")),
    Option("--pc-sampling-interval", "6.4", kind="int"),
    Option("-p --collection-period", "6.4", "7.0", "list"),
    Option("-P --collection-period", "7.0", kind="list"),
    Option("--collection-period-unit", "6.4", kind="text", choices=tuple(UNITS)),
    Option("--group-by-queue", "6.4"),
    Option("--rocm-root", "6.4", kind="text"),
    Option("-A --agent-index", "6.4", kind="text", choices=("absolute", "relative", "type-relative")),
    Option("--echo", "6.4"),
    Option("-v --version", "7.0", kind="flag"),
    Option("--output-config", "7.0"),
    Option("--selected-regions", "7.0"),
    Option("--sdk-version", "7.0", kind="text"),
    Option("--sdk-soversion", "7.0", kind="int"),
    Option("--disable-signal-handlers", "7.0"),
    Option("--minimum-output-data", "7.0", kind="int"),
    Option("--att --advanced-thread-trace", "7.0"),
    Option("-p --pid", "7.0", "7.1", "int"),
    Option("-p --pid --attach", "7.1", kind="int"),
    Option("--attach-duration-msec", "7.1", kind="int"),
    Option("--profile-mpi-ranks", "7.2", kind="text"),
    Option("--kfd-trace", "7.13"),
    Option("--hip-graph-trace", "7.13"),
    Option("--rocshmem-trace", "7.13"),
    Option("--spm", "7.14", kind="any"),
    Option("--spm-beta-enabled", "7.14"),
    Option("--spm-sample-interval", "7.14", kind="int"),
    Option("--ompt-trace", "10.0", kind="any"),
    Option("--hipfile-trace", "10.0"),
    Option("--hip-event-trace", "10.1"),
    Option("--replay-mode", "10.1", kind="text", choices=("kernel", "application")),
    Option("--kernel-replay-beta-enabled", "10.1"),
    Option("--process-sync", "10.1"),
    Option("--selected-regions-ref-count", "10.1"),
    Option("--attach-children", "10.1"),
    Option("--attach-sync-output", "10.1"),
    Option("--mpi-world-rank-variable", "10.1", kind="text"),
    Option("--mpi-world-size-variable", "10.1", kind="text"),
)


def options(rocm: str) -> list[Option]:
    """The options of a release."""
    return [o for o in OPTIONS if release(o.since) <= release(rocm) < release(o.until)]


def truth(val: Any) -> bool:
    if isinstance(val, bool):
        return val
    if str(val).lower() in ("y", "yes", "t", "true", "on", "1"):
        return True
    if str(val).lower() in ("n", "no", "f", "false", "off", "0"):
        return False
    # Facts: not an error of argparse but a traceback, rc 1: so `--kernel-trace ./app` without `--` ends.
    raise ValueError(f"invalid truth value {val}")


class Truth(argparse.Action):
    def __call__(self, _p: Any, args: Any, value: Any, _o: Any = None) -> None:
        setattr(args, self.dest, truth(value))


def parser(rocm: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="rocprofv3",
        usage="%(prog)s [options] -- <application> [application options]",
        allow_abbrev=False,
    )
    for option in options(rocm):
        how: dict[str, Any] = {"default": None}
        match option.kind:
            case "bool" if release(rocm) < (6, 3):
                how = {"action": "store_true", "default": None}
            case "bool":
                how |= {"action": Truth, "nargs": "?", "const": True, "metavar": "BOOL"}
            case "flag":
                how = {"action": "store_true"}
            case "int":
                how |= {"type": int}
            case "text":
                how |= {"type": str, "choices": option.choices}
            case "list":
                how |= {"type": str, "nargs": "+", "choices": option.choices}
            case "any":
                how |= {"type": str, "nargs": "*"}
            case "append":
                how |= {"type": str, "nargs": "*", "action": "append"}
        made.add_argument(*option.flags.split(), **how)
    return made


def fatal(text: str, code: int = 1) -> NoReturn:
    sys.stderr.write(f"[rocprofv3] Fatal error: {text}\n")
    sys.exit(code)


def warn(text: str) -> None:
    sys.stderr.write(f"[rocprofv3] Warning: {text}\n")


def version(rocm: str) -> None:
    for key, value in (("version", SDK[rocm]), ("git_revision", "0" * 40), ("rocm_version", f"{rocm}.0")):
        print(f"    {key:>16}: {value}")


def passes(args: argparse.Namespace, rocm: str) -> list[tuple[str, list[str]]]:
    """Folder and counters of each pass. Facts: lines of text are pmc_N, jobs and repeated --pmc pass_N."""
    found: list[tuple[str, list[str]]] = []
    if args.input:
        path = Path(args.input)
        if path.suffix in (".txt", ".text"):
            lines = [line.split("#")[0] for line in path.read_text().splitlines()]
            names = [line.replace("pmc:", "").split() for line in lines if "pmc:" in line]
            found += [(f"pmc_{n}", one) for n, one in enumerate(names, 1)]
        elif path.suffix == ".json":
            jobs = json.loads(path.read_text())["jobs"]
            found += [(f"pass_{n}", job.get("pmc", [])) for n, job in enumerate(jobs, 1)]
        elif path.suffix in (".yml", ".yaml"):
            # One job with a list of counters is what this reads; PyYAML need not be here.
            names = re.findall(r"^\s*-\s+([A-Z][A-Za-z0-9_]+)\s*$", path.read_text(), re.MULTILINE)
            found.append(("pass_1", names))
        else:
            fatal(f"input file '{args.input}' has no extension that is known")
    given = getattr(args, "pmc", None) or []
    if given and release(rocm) >= (7, 13):
        groups = [[name for word in group for name in word.replace(",", " ").split()] for group in given]
        if len(groups) > 1 and not all(groups):
            fatal("empty counter group")
        found += [(f"pass_{n}" if len(groups) > 1 else "", group) for n, group in enumerate(groups, 1)]
    elif given:
        found.append(("", [name for word in given for name in word.replace(",", " ").split()]))
    return found


def check_counters(names: list[str], agent: dict[str, Any]) -> list[str]:
    """Facts: unknown counters only warn; a set that is too large aborts the target at its first dispatch."""
    plain = [name.split(":")[0] for name in names]
    known = outputs.counters_of({"grid": 64, "start": 0, "end": 1}, plain, False)
    if missing := [name for name in plain if name not in known]:
        warn(f"not all counters were found for agent {agent['node']}. Found: {[*known]} Missing: {missing}")
    blocks: dict[str, int] = {}
    for name in known:
        # FETCH_SIZE and WRITE_SIZE need up to four counters of TCC each.
        block = "TCC" if name in ("FETCH_SIZE", "WRITE_SIZE") else name.split("_")[0]
        blocks[block] = blocks.get(block, 0) + (4 if name in ("FETCH_SIZE", "WRITE_SIZE") else 1)
    if any(count > LIMITS.get(block, 4) for block, count in blocks.items()):
        sys.stderr.write(
            "F20260101 tool.cpp] counter collection: request exceeds the capabilities of the hardware\n"
        )
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.abort()
    return [name for name in plain if name in known]


def windows(args: argparse.Namespace, begin: int) -> list[tuple[int, int]] | None:
    """When a period collects; None is always. Facts: `-P 5:1` is a TypeError, rc 1; repeat 0 is endless."""
    given = getattr(args, "collection_period", None)
    if not given:
        return None
    factor = UNITS[args.collection_period_unit or "sec"]

    def triplet(delay: str, duration: str, repeat: str) -> tuple[int, int, int]:
        return int(float(delay) * factor), int(float(duration) * factor), int(repeat)

    spans, at = [], begin
    for delay, duration, repeat in [triplet(*text.split(":")) for text in given]:
        for _ in range(repeat or 10000):
            spans.append((at + delay, at + delay + duration))
            at += delay + duration
    return spans


def job_of(args: argparse.Namespace, settings: Settings, pid: int, command: list[str]) -> dict[str, Any]:
    everything = bool(args.sys_trace or getattr(args, "runtime_trace", None))
    return {
        "directory": args.output_directory,
        "name": args.output_file,
        "cwd": os.getcwd(),
        "formats": args.output_format or (["rocpd"] if release(settings.rocm) >= (7, 0) else ["csv"]),
        "rocm": settings.rocm,
        "kernel": bool(args.kernel_trace or everything),
        "hip": bool(args.hip_trace or args.hip_runtime_trace or everything),
        "counters": [],
        "zeros": False,
        "agents": settings.agents,
        "pid": pid,
        "command": " ".join(command),
        "write_s": settings.write_s,
    }


def launch(
    args: argparse.Namespace, app: list[str], settings: Settings, folder: str, names: list[str]
) -> int:
    """One run of the application under the tool."""
    # Facts: needs a writable working directory for its scratch files.
    scratch = Path(".rocprofv3")
    scratch.mkdir(exist_ok=True)
    record = scratch / f"{os.getpid()}-launches.dat"
    record.touch()
    begin = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    spans = windows(args, begin)
    job = job_of(args, settings, os.getpid(), app)
    if names:
        job["counters"] = check_counters(names, settings.agents[0])
        if settings.mode == "busy":
            # Facts: the lock of another profiler is only a warning; values then may be 0.
            warn(
                "device could not be locked for profiling: profiler attached. PMC counters may be inaccurate"
            )
            job["zeros"] = True
    env = {
        "FAKE_GPU_RECORD": str(record.resolve()),
        "ROCPROFILER_LIBRARY_CTOR": "1",
        "ROCP_TOOL_LIBRARIES": "/opt/rocm/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so",
    }
    code = stage.run(app, env, settings)
    end = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    seen = [json.loads(line) for line in record.read_text().splitlines()]
    if spans is not None:
        seen = [one for one in seen if any(a <= one["start"] and one["end"] <= b for a, b in spans)]
    if seen:
        # Facts: the launcher becomes the application, whose number the files carry.
        job["pid"] = seen[0]["pid"]
    if folder:
        job["directory"] = str(Path(args.output_directory or os.getcwd()) / folder)
    stage.before_files(settings)
    if not odd(job, settings) and (job["kernel"] or job["hip"] or job["counters"]):
        outputs.write(job, seen, begin, end)
    record.unlink()
    if not any(scratch.iterdir()):
        scratch.rmdir()
    stage.after_files(settings)
    return code


def remember(args: argparse.Namespace, settings: Settings) -> None:
    """Facts: the first attach fixes what is traced, per process; another set is a traceback, rc 1."""
    now = {
        k: v for k, v in vars(args).items() if k.endswith("_trace") or k == "pmc" or k.startswith("kernel_")
    }
    path = f"{settings.attach_dir}/rocprofv3_attach_{args.pid}.pkl"
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as f:
            if os.fstat(fd).st_uid != os.getuid():
                fatal(f"{path} is not owned by the current user")
            before = pickle.load(f)
        for key in now.keys() | before.keys():
            if now.get(key) != before.get(key):
                raise RuntimeError(
                    f"option '{key}' differs: {now.get(key)} and before {before.get(key)}"
                ) from None
        return
    with os.fdopen(fd, "wb") as f:
        pickle.dump(now, f)


def threads(pid: int) -> set[str]:
    names = set()
    for task in Path(f"/proc/{pid}/task").glob("*/comm"):
        try:
            names.add(task.read_text().strip())
        except OSError:
            continue
    return names


def unattachable(pid: int, settings: Settings) -> int | None:
    """The code with which an attach ends before it begins, or None."""
    rocm = release(settings.rocm)
    if settings.mode in ("permission", "busy") or not Path(f"/proc/{pid}").exists():
        # A process that is traced already answers EPERM too: one word for both.
        why = "Operation not permitted" if Path(f"/proc/{pid}").exists() else "No such process"
        sys.stderr.write(f"E20260101 ptrace_session.cpp] ptrace attach to pid {pid} failed: {why}\n")
        return 1
    if settings.mode == "crash":
        stage.crash()
    if "rocp-bg-attach" in threads(pid):
        return None
    if rocm >= (7, 13):
        sys.stderr.write(f"E20260101 rocattach.cpp] pid {pid} has no attach thread; refusing to attach\n")
        return 2
    if rocm >= (7, 2):
        # Facts: 7.2 says success, ends with 0, and there are no files.
        print(f"Attachment success to pid {pid}")
        return 0
    # Facts: older ones bring the target down.
    os.kill(pid, signal.SIGSEGV)
    return 1


def wait_attached(msec: int | None) -> None:
    """Facts: until the time is over, Enter without one; SIGINT detaches too."""
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _f: asked.append(number))
    if msec is None:
        sys.stdin.readline()
        return
    until = time.monotonic() + msec / 1000
    while not asked and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.01))


def attach(args: argparse.Namespace, settings: Settings) -> int:
    """Facts: the tool is loaded into the target, and the target writes the files."""
    rocm = release(settings.rocm)
    if getattr(args, "collection_period", None):
        fatal("--collection-period is not compatible with attach mode")
    if rocm >= (7, 2):
        remember(args, settings)
    if (code := unattachable(args.pid, settings)) is not None:
        return code
    if settings.mode == "hang":
        stage.hang()
    job = job_of(args, settings, args.pid, ["attached"])
    job["directory"] = os.path.abspath(args.output_directory or os.getcwd())
    job["counters"] = [n for group in passes(args, settings.rocm) for n in group[1]]
    if settings.mode in ("empty", "flood", "flood-text", "half-written"):
        job |= {"kernel": False, "hip": False, "formats": []}
    # Facts: 10.0 waits for the flush; before, files may come after the tool has gone.
    sync = rocm >= (10, 0) or bool(getattr(args, "attach_sync_output", None))
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.connect(f"\0fake-rocattach-{args.pid}")
    line = door.makefile("rw")
    asked = {"job": job, "sync": sync, "detach_s": settings.detach_s, "async_s": settings.async_s}
    for text in (json.dumps(asked), "detach"):
        line.write(text + "\n")
        line.flush()
        line.readline()
        if text == "detach":
            break
        print(f"Attachment success to pid {args.pid}", flush=True)
        if settings.mode == "survivor":
            stage.survivor(settings)
        wait_attached(args.attach_duration_msec)
    odd(job, settings)
    stage.after_files(settings)
    return 0


def odd(job: dict[str, Any], settings: Settings) -> bool:
    """Whether something else is written than the files of the job; then it has been."""
    prefix = Path(outputs.place(job))
    half = prefix.with_name(prefix.name + "_results.db")
    return stage.instead_of_files(settings, prefix.parent, half, b"SQLite format 3\0" + b"\0" * 500)


def refused(args: argparse.Namespace, app: list[str], settings: Settings) -> int | None:
    """What ends the start before anything runs: the code, or None to go on."""
    rocm = release(settings.rocm)
    if getattr(args, "version", False):
        version(settings.rocm)
        return 0
    if rocm < (7, 1) and getattr(args, "pid", None) is not None:
        # Facts: 7.0 knows -p and --pid, and only says that they are reserved.
        fatal("-p is reserved for attaching to a process, use -P for --collection-period")
    if getattr(args, "selected_regions", None) and getattr(args, "collection_period", None):
        fatal("--selected-regions and --collection-period are mutually exclusive")
    if getattr(args, "pid", None) is None and not app and not getattr(args, "echo", None):
        fatal("No application provided")
    return None


def main(argv: list[str], settings: Settings) -> int:
    stage.note(settings, "rocprofv3", argv)
    if settings.mode == "hang-help" and ({"--help", "-h", "--version"} & set(argv)):
        stage.hang()
    cut = argv.index("--") if "--" in argv else len(argv)
    made = parser(settings.rocm)
    if not argv and release(settings.rocm) >= (10, 0):
        made.print_help()
        return 0
    args = made.parse_args(argv[:cut])
    app = argv[cut + 1 :]
    if settings.mode == "wrong-flag" and "--version" not in argv:
        # A build whose options are not those of its help.
        made.error(f"unrecognized arguments: {argv[0]}")
    if (code := refused(args, app, settings)) is not None:
        return code
    sets = passes(args, settings.rocm)
    multiple = len([one for one in sets if one[1]]) > 1
    attached = getattr(args, "pid", None) is not None
    if multiple and attached:
        fatal("multi-pass counter collection is not compatible with attach mode (--pid)")
    if multiple and getattr(args, "collection_period", None):
        fatal("multi-pass counter collection is not compatible with --collection-period")
    traced = (
        any(v for k, v in vars(args).items() if k.endswith("_trace")) or sets or getattr(args, "att", None)
    )
    if not traced and app:
        warn("No tracing options were enabled.")
        if args.stats or getattr(args, "summary", None):
            fatal("No tracing options were enabled for --stats option.")
    if attached:
        return attach(args, settings)
    if getattr(args, "echo", None):
        print(f"command: {app}")
        return 0
    if settings.mode == "permission" and stage.unable(settings):
        return 1
    if settings.mode == "busy" and not sets:
        # A trace needs no lock of the counters: it goes on.
        warn("device could not be locked for profiling: profiler attached")
    code = 0
    for folder, names in sets or [("", [])]:
        code = launch(args, app, settings, folder, names) or code
    return code
