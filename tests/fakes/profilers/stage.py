"""What all the stand-ins share: their settings, a note of each start, and the ways in which they misbehave.

The daemon gives a profiler a small environment of its own, so settings do not travel in variables: they stand
in the launcher that ``install`` writes. Where a variable does arrive, it overrules them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent.parent.parent
# A node with one GPU, as KFD numbers it: the CPU is node 0. "Agent N" counts CPUs too.
AGENTS = [
    {"node": 1, "pci": "0000:0c:00.0", "gfx": "gfx942", "render": 128, "gpu_id": 41921, "xcc": 8, "cu": 304}
]
MODES = (
    "ok",
    "hang",
    "crash",
    "slow-exit",
    "flood",
    "flood-text",
    "empty",
    "wrong-flag",
    "permission",
    "busy",
    "survivor",
    "half-written",
    "hang-help",
)


@dataclass
class Settings:
    """How one installed stand-in behaves."""

    mode: str = "ok"
    rocm: str = "7.1"
    log: str = ""
    # Seen in the environment of whatever it leaves behind.
    marker: str = ""
    agents: list[dict[str, Any]] = field(default_factory=lambda: list(AGENTS))
    # What rocprofv2 and rocprof call a GPU: "gpu_id" or "node"; both are seen in files of theirs.
    counted: str = "gpu_id"
    slow_s: float = 60.0
    flood_bytes: int = 2 << 30
    # Facts: detach is announced as up to 1 to 2 minutes; files come after it, unless output is synchronous.
    detach_s: float = 0.05
    async_s: float = 0.3
    write_s: float = 0.05
    # The real one keeps the options of the first attach here, in a file named after the process.
    attach_dir: str = "/tmp"

    def __post_init__(self) -> None:
        self.mode = os.environ.get("FAKE_PROFILER_MODE", self.mode)
        self.rocm = os.environ.get("FAKE_PROFILER_ROCM", self.rocm)
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode}: {', '.join(MODES)}")


def install(folder: Path, tool: str, module: str = "", **settings: Any) -> Path:
    """Put a stand-in called ``tool`` into a folder that is to be on PATH."""
    unknown = settings.keys() - {f.name for f in fields(Settings)}
    if unknown:
        raise TypeError(f"unknown settings: {unknown}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / tool
    path.write_text(
        f"#!{sys.executable} -IS\n"
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"from tests.fakes.profilers.{module or tool.replace('-', '_')} import main\n"
        f"from tests.fakes.profilers.stage import Settings\n"
        f"sys.exit(main(sys.argv[1:], Settings(**{settings!r})))\n"
    )
    path.chmod(0o755)
    return path


def note(settings: Settings, tool: str, argv: list[str]) -> None:
    """Leave a line that this stand-in was started."""
    if settings.log:
        line = json.dumps({"tool": tool, "argv": argv, "pid": os.getpid(), "cwd": os.getcwd()}) + "\n"
        fd = os.open(settings.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(fd, line.encode())
        os.close(fd)


def starts(log: Path) -> list[dict[str, Any]]:
    """The notes of a log."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def deaf() -> None:
    """Be asked to end, and do not."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def hang() -> NoReturn:
    deaf()
    while True:
        time.sleep(3600)


def crash() -> NoReturn:
    """Die of the signal itself: an exit code would be something else."""
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError("alive after SIGSEGV")


def survivor(settings: Settings) -> None:
    """Leave a process behind that forked twice, called setsid, is deaf and holds our standard output."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            deaf()
            env = {"PATH": os.environ.get("PATH", ""), "FAKE_PROFILER_MARKER": settings.marker}
            os.execve(sys.executable, [sys.executable, "-ISc", "import time; time.sleep(600)"], env)
        os._exit(0)
    os.wait()


def flood(settings: Settings, folder: Path) -> None:
    """Write files until there are ``flood_bytes`` of them; a limit on one file only begins the next."""
    row = b"KERNEL_DISPATCH,Agent 1,1,1,1,1,1,flood,1,1,2,0,0,8,0,16,64,1,1,64,1,1\n"
    block = row * ((1 << 20) // len(row))
    left, number = settings.flood_bytes, 0
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    while left > 0:
        number += 1
        with (folder / f"{os.getpid()}_{number}_kernel_trace.csv").open("wb", buffering=0) as f:
            try:
                while left > 0:
                    left -= f.write(block)
            except OSError:
                pass


def flood_text(settings: Settings) -> None:
    block = b"W20260101 00:00:00.000000 tool.cpp:1] nothing new\n" * 20000
    left = settings.flood_bytes
    while left > 0:
        left -= os.write(1 if left % 2 else 2, block)


def before_files(settings: Settings) -> None:
    """What goes wrong when the application has ended and nothing is written yet."""
    if settings.mode == "hang":
        hang()
    if settings.mode == "survivor":
        survivor(settings)


def instead_of_files(settings: Settings, folder: Path, half: Path, begun: bytes) -> bool:
    """What is written in place of the files; False where they are to be written."""
    if settings.mode == "flood":
        flood(settings, folder)
    elif settings.mode == "flood-text":
        flood_text(settings)
    elif settings.mode == "half-written":
        half.write_bytes(begun)
    return settings.mode in ("flood", "flood-text", "half-written", "empty")


def after_files(settings: Settings) -> None:
    if settings.mode == "slow-exit":
        deaf()
        time.sleep(settings.slow_s)


def unable(settings: Settings) -> bool:
    """Say why the start fails, if it does."""
    if settings.mode == "permission":
        # Facts: who may not open /dev/kfd gets no GPU from the runtime.
        sys.stderr.write("Unable to open /dev/kfd read-write: Permission denied\n")
    elif settings.mode == "busy":
        sys.stderr.write("error: profiling is in use by another process (Device or resource busy)\n")
    return settings.mode in ("permission", "busy")


def run(app: list[str], env: dict[str, str], settings: Settings) -> int:
    """Run the application to its end; what we are sent it gets too. Exit code as a shell would say it."""
    child = subprocess.Popen(app, env={**os.environ, **env})

    def pass_on(number: int, _frame: object) -> None:
        child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    if settings.mode == "crash":
        # The launcher has become the application by now: both die.
        time.sleep(0.05)
        child.kill()
        child.wait()
        crash()
    code = child.wait()
    return code if code >= 0 else 128 - code
