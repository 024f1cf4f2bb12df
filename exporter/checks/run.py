"""The verb ``run``: a job with profiling windows built in, which go to the daemon's spool.

The job comes first: it has our terminal, its signals and its exit code pass through, and whatever fails of
ours costs one line and the windows, never the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter import command
from exporter.backends.sysfs import SysfsBackend
from exporter.checks.surroundings import pytorch
from exporter.config import Config, load, parse_duration, state_directory
from exporter.host import Clock, Root
from exporter.model import ConfigError, Device, SourceError
from exporter.profilers import find
from exporter.profilers import job as jobs
from exporter.profilers.job import Periods
from exporter.profilers.plan import Refusal, Tool
from exporter.windows import delivery, kin, lookout, quota
from exporter.windows.agents import label
from exporter.windows.place import boot_id, node_name
from exporter.windows.quota import PARTIAL, Share

_TRY_S, _END_S = 60.0, 2.0
_TEXT_MOST = 1 << 20
_LOOK_EVERY_S = 10.0
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
_SYSTEM = Path("/var/lib/amdgpu-exporter/spool")
_PASSED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_WAITED = {*_PASSED, signal.SIGCHLD}
_ENDING = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
_ID_MAP = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s*")


class UnprofiledError(Exception):
    """Why the job runs without windows; one line."""


@dataclass
class Profiled:
    """A job about to start: its command line, where its windows are made, and what is known of them."""

    argv: tuple[str, ...]
    partial: Path
    held: int
    manifest: dict[str, Any]
    devices: Sequence[Device] = ()
    seen: dict[str, int] = field(default_factory=dict)


def main(argv: Sequence[str], when: tuple[str, str, int], file: Path | None, spool: Path | None) -> int:
    """The verb, for which nothing of ours is a reason not to run the job."""
    try:
        periods = Periods(parse_duration(when[0]), parse_duration(when[1]), when[2])
        config = load(file, os.environ).config
    except (ConfigError, ValueError) as e:
        return without(argv, str(e))
    return run(argv, periods, config, spool)


def run(argv: Sequence[str], periods: Periods, config: Config, spool: Path | None) -> int:
    """Run the job; gives its exit code, or ends as it ended."""
    try:
        made = prepare(argv, periods, config, spool)
        process = start(made.argv, (made.held,))
    except UnprofiledError as e:
        return without(argv, str(e))
    except Exception as e:  # noqa: BLE001 - the job has to run whatever we did wrong
        return without(argv, f"{type(e).__name__}: {e}")
    code = attend(process, made, Root(config.path.sysfs))
    try:
        deliver(made)
    except OSError as e:
        say(f"the job's windows are lost: {e}")
    finally:
        with contextlib.suppress(OSError):
            os.close(made.held)
    return end_as(code)


def without(argv: Sequence[str], reason: str) -> int:
    """Run the job as if we were not there."""
    say(f"the job runs without profiling: {reason}")
    sys.stderr.flush()
    code = command.become(argv)
    say(f"{argv[0]}: {'no such command' if code == 127 else 'cannot be run'}")
    return code


# --- before ---------------------------------------------------------------------------------------------


def prepare(argv: Sequence[str], periods: Periods, config: Config, spool: Path | None) -> Profiled:
    """All that has to be right for a job to be profiled. Errors: UnprofiledError with the reason."""
    if name := jobs.carried(list(os.environ)):
        raise UnprofiledError(f"another profiler is at work in it ({name} is set)")
    if not os.access(".", os.W_OK):
        raise UnprofiledError(
            f"rocprofv3 keeps files in the working folder, and {os.getcwd()} cannot be written"
        )
    tool = _tool()
    windows = config.windows
    own = _own_folder(_spool(config, spool), Share(windows.spool_user_bytes, windows.spool_user_windows))
    name = delivery.name("job", Clock().now())
    partial = own / f"{name}{PARTIAL}"
    with contextlib.ExitStack() as undo:
        partial.mkdir(mode=0o700)
        undo.callback(shutil.rmtree, partial, ignore_errors=True)
        held = quota.hold(partial)
        wrapped = jobs.wrap(tool, periods, str(partial / "out"))
        if isinstance(wrapped, Refusal):
            raise UnprofiledError(wrapped.detail)
        _try_out(wrapped, partial)
        devices = _devices(config)
        manifest = describe(name, periods, devices, config)
        with contextlib.suppress(OSError, SourceError):
            if torch := pytorch(argv, os.environ)[0]:
                manifest["pytorch"] = torch["version"]
        undo.pop_all()
    return Profiled((*wrapped, *argv), partial, held, manifest, devices)


def describe(name: str, periods: Periods, devices: Sequence[Device], config: Config) -> dict[str, Any]:
    """The manifest, as far as it is known before the job starts."""
    proc = Root(config.path.procfs)
    namespace = os.stat("/proc/self/ns/pid").st_ino
    made = delivery.manifest(name, "rocprofv3", "trace", node_name(os.environ), devices)
    return made | {
        "boot_id": boot_id(config.path.procfs),
        "uid": outer_uid(proc),
        "pid": os.getpid(),
        "pid_namespace": namespace,
        "host_pid": os.getpid() if namespace == _INITIAL_PID_NAMESPACE else None,
        "cgroup": proc.text("self/cgroup"),
        "pause_ns": int(periods.pause_s * 1e9),
        "planned": {"length_ns": int(periods.length_s * 1e9), "windows": periods.count},
        "run": name,
    }


def outer_uid(proc: Root) -> int:
    """Our uid as the daemon sees it: a container may call us root."""
    uid = os.geteuid()
    for line in (proc.text("self/uid_map") or "").splitlines():
        if found := _ID_MAP.fullmatch(line):
            inside, outside, count = map(int, found.groups())
            if inside <= uid < inside + count:
                return outside + uid - inside
    return uid


def _tool() -> Tool:
    try:
        tool = find.rocprofv3(os.environ)
    except SourceError as e:
        raise UnprofiledError(str(e)) from None
    if tool is None:
        raise UnprofiledError("there is no rocprofv3 on PATH or in /opt/rocm/bin")
    return tool


def _try_out(wrapped: Sequence[str], partial: Path) -> None:
    """Run a command that does nothing in the same way: what would stop the job stops this one."""
    # Whatever it leaves running is ended, so that it does not run beside the job.
    kin.adopt_orphans()
    try:
        done = command.run_once([*wrapped, "/bin/true"], _TRY_S, _TEXT_MOST, os.environ)
        kin.end_all(_END_S)
    finally:
        kin.adopt_orphans(False)
    if done.code != 0:
        raise UnprofiledError(f"rocprofv3 around /bin/true {find.ended(done)}")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(partial / "out")


def _spool(config: Config, given: Path | None) -> Path:
    named = config.windows.spool_dir
    own = state_directory(config, os.environ) / "spool"
    asked = given or (Path(named) if named else None)
    for path in (asked,) if asked else (_SYSTEM, own):
        if path.is_dir():
            return path
    raise UnprofiledError(f"there is no spool folder {asked or _SYSTEM}; name the daemon's with --spool")


def _own_folder(spool: Path, share: Share) -> Path:
    own = spool / str(outer_uid(Root("/proc")))
    try:
        own.mkdir(mode=0o700, exist_ok=True)
    except PermissionError:
        raise UnprofiledError(
            f"{spool} does not let this user make a folder; its mode should be 1733"
        ) from None
    info = own.lstat()
    if info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise UnprofiledError(f"{own} is not this user's alone")
    waiting = [entry for entry in own.iterdir() if not entry.name.endswith(PARTIAL)]
    if len(waiting) >= share.windows or quota.weight(own) >= share.size:
        raise UnprofiledError(f"{own} is full; does the daemon take windows in?")
    return own


def _devices(config: Config) -> list[Device]:
    try:
        backend = SysfsBackend(Root(config.path.sysfs), Root(config.path.procfs))
        return [device for device, _ in backend.poll()]
    except SourceError:
        return []  # the profiler's own table of agents may still name them


# --- while it runs --------------------------------------------------------------------------------------


def start(argv: Sequence[str], keep: Sequence[int] = ()) -> command.Process[bytes]:
    """Start the job. From now on signals are heard by ``wait`` alone. Errors: OSError."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    try:
        return command.beside(argv, os.environ, keep)
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise


def attend(process: command.Process[bytes], made: Profiled, sysfs: Root) -> int:
    """Be with a profiled job to its end."""
    return wait(process, lambda: _look(made, sysfs))[0]


def wait(process: command.Process[bytes], look: Callable[[], None] = lambda: None) -> tuple[int, bool]:
    """Be with the job to its end, passing on what it is told.

    Gives its code, and whether it was told to end.
    """
    told_to_end = False
    while True:
        look()
        told = signal.sigtimedwait(_WAITED, _LOOK_EVERY_S)
        told_to_end = told_to_end or bool(told and told.si_signo in _ENDING)
        if (code := process.poll()) is not None:
            return code, told_to_end or bool(signal.sigpending() & _ENDING)
        # The terminal tells the whole group, so that the job has heard it already; only a kill is for us.
        if told and told.si_signo in _PASSED and told.si_code <= 0:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(told.si_signo)


def _look(made: Profiled, sysfs: Root) -> None:
    """Keep the most processes that were seen on each GPU at once."""
    counts = lookout.holders(sysfs)
    for device in made.devices:
        if device.kfd_gpu_id in counts:
            key = label(device.id)
            made.seen[key] = max(made.seen.get(key, 0), counts[device.kfd_gpu_id])


# --- after ----------------------------------------------------------------------------------------------


def deliver(made: Profiled) -> None:
    """Hand the windows to the daemon by one rename. Errors: OSError."""
    out = made.partial / "out"
    if not any(path.is_file() and path.stat().st_size for path in out.rglob("*")):
        shutil.rmtree(made.partial, ignore_errors=True)
        say("rocprofv3 left no files: the job ended before its first window, or used no GPU")
        return
    manifest = {**made.manifest, "processes_seen": made.seen}
    (made.partial / delivery.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    os.rename(made.partial, made.partial.with_name(made.partial.name.removesuffix(PARTIAL)))


def end_as(code: int) -> int:
    """End as the job ended, by its signal too."""
    if code >= 0:
        return code
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the job's own core is the one that matters
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    return 128 - code


def say(line: str) -> None:
    sys.stderr.write(f"amdgpu-exporter: {line}\n")
