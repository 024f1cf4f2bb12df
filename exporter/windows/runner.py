"""The runner child: runs one profiler in a private folder, under caps, and leaves nothing of it behind.

``python -m exporter.windows.runner '{}'``. It is the reaper of everything it starts, also of what forked
twice and called setsid. It never signals a process that it did not start, save one: a target that a
profiler left stopped is told to go on.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import selectors
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from exporter import command, worker
from exporter.host import Root
from exporter.model import Reason, SourceError, WindowOutcome
from exporter.profilers import find
from exporter.windows import arrival, bulk, kin, lookout, seen

MARK = "AMDGPU_EXPORTER_WINDOW"
OUTPUT_BYTES = 16 << 20
_LOOK_EVERY_S, _LOOK_CLOSELY_S = 0.05, 0.005
_INT_S, _TERM_S, _KILL_S = 2.0, 1.0, 2.0
_DETACH_S = 15.0  # in place of _INT_S: an attached profiler that is killed may leave its target stopped
_TAIL = 8192
_CRASHES = frozenset(
    128 + s for s in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
)
_BUSY = ("busy", "ebusy", "already attached", "already in use", "profiler attached", "in use by another")
_DENIED = ("permission", "denied", "not permitted", "eperm", "eacces", "capability", "cap_perfmon")


def main() -> None:
    signal.signal(signal.SIGTERM, _leave)
    kin.adopt_orphans()
    kin.end_leftovers(MARK)
    settings = worker.spec()
    sysfs, procfs = Root(settings.get("sysfs", "/sys")), Root(settings.get("procfs", "/proc"))

    def look(_request: Mapping[str, Any]) -> worker.Message:
        rocm = Root("/").text("opt/rocm/.info/version")
        return {"seen": seen.as_json(lookout.look(sysfs, procfs)), "rocm": rocm}

    worker.serve({"run": run, "look": look, "probe": probe})


def probe(request: Mapping[str, Any]) -> worker.Message:
    """The profilers of this machine for a kind of window. Errors: SourceError where one does not work."""
    return {"tools": [tool.as_json() for tool in find.tools(request.get("mode"), os.environ)]}


def _leave(_sign: int, _frame: FrameType | None) -> NoReturn:
    # Ends the handler of a request by its ``finally``, so that nothing outlives us.
    raise SystemExit(0)


@dataclass
class Limits:
    """What a window may use. ``seconds`` is when it is told to end, ``deadline_s`` when it is made to.

    ``asked_s`` is how long it is waited for after being asked.
    """

    seconds: float
    deadline_s: float
    file_bytes: int
    output_bytes: int = OUTPUT_BYTES
    asked_s: float = _INT_S


@dataclass
class Ended:
    """How the command ended. ``why`` is None where it did by itself, or as it was asked to."""

    code: int | None
    why: str | None
    said: str


def run(request: Mapping[str, Any]) -> worker.Message:
    """Run a plan. The folder is there afterwards only if the window gave files.

    Shape: outcome, code, seconds, bytes, detail, survivors, bounds_ns (boot-time clock), changed (watched
    files that say something else than before).
    """
    plan, scratch = request["plan"], Path(request["scratch"])
    with _only_one(request.get("lock")):
        scratch.mkdir(mode=0o700)
        kept, target = False, int(request.get("target") or 0)
        rested = target > 0 and kin.stopped(target)
        try:
            answer = _run(plan, scratch, request)
            kept = answer["outcome"] == WindowOutcome.OK
            return answer
        finally:
            survivors = kin.end_all(_KILL_S)
            if target and not rested:
                kin.wake(target)
            if not kept:
                shutil.rmtree(scratch, ignore_errors=True)
            if survivors:
                os.write(2, f"{survivors} processes of a window cannot be killed\n".encode())


def _run(plan: Mapping[str, Any], scratch: Path, request: Mapping[str, Any]) -> worker.Message:
    output = scratch / (plan.get("output") or ".")
    _prepare(plan, scratch, output, request.get("owner"))
    cap, deadline_s = int(request["bytes"]), float(request["deadline_s"])
    seconds = float(plan["seconds"]) if not plan.get("ends_itself", True) else deadline_s
    text, asked_s = (
        int(request.get("output_bytes", OUTPUT_BYTES)),
        _DETACH_S if request.get("target") else _INT_S,
    )
    limits = Limits(min(seconds, deadline_s), deadline_s, cap, text, asked_s)
    watched = request.get("watch", ())
    before = _read_all(watched)
    began, began_ns = time.monotonic(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    try:
        with _stdout(plan, output) as stdout:
            cwd = plan.get("cwd") or str(scratch)
            process = command.start(plan["argv"], _environment(plan, scratch), cwd, cap, stdout)
    except (OSError, ValueError) as e:
        denied = isinstance(e, PermissionError)
        outcome = WindowOutcome.DENIED if denied else WindowOutcome.BLOCKED
        ended, size = Ended(None, None, f"{plan['argv'][0]} cannot be started: {e}"), 0
    else:
        ended = _attend(process, scratch, limits)
        if request.get("target") and ended.why is None and ended.code == 0:
            arrival.wait(output, deadline_s - (time.monotonic() - began))
            ended.why = _too_much(scratch, limits)[0]
        survivors = kin.end_all(_KILL_S)
        size = bulk.usage(scratch)[0]
        outcome, ended.said = _judge(ended, output, attached=bool(request.get("target")))
        if survivors:
            outcome, ended.said = WindowOutcome.TIMEOUT, f"{survivors} processes are stuck in the kernel"
    seconds, ended_ns = time.monotonic() - began, time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return {
        "outcome": outcome,
        "code": ended.code,
        "seconds": seconds,
        "bytes": size,
        "detail": ended.said,
        "survivors": kin.count(),
        "bounds_ns": [began_ns, ended_ns],
        "changed": sorted(name for name, value in _read_all(watched).items() if value != before.get(name)),
    }


# --- before --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _only_one(path: str | None) -> Iterator[None]:
    """Hold the node's lock for windows. Errors: SourceError with busy while another window runs."""
    if path is None:
        yield
        return
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as e:
        raise SourceError(Reason.DENIED, f"{path}: {e.strerror}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SourceError(Reason.BUSY, "another window runs on this node") from None
        yield
    finally:
        os.close(fd)


def _prepare(plan: Mapping[str, Any], scratch: Path, output: Path, owner: int | None) -> None:
    output.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in plan.get("files", {}).items():
        path = scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if owner is not None and os.geteuid() == 0:
        # An attached process writes its results itself, as who it is.
        scratch.chmod(0o711)
        os.chown(output, owner, -1)


def _environment(plan: Mapping[str, Any], scratch: Path) -> dict[str, str]:
    """Little of ours: a profiler is steered by variables, and by those of its plan alone."""
    kept = {n: os.environ[n] for n in ("PATH", "LD_LIBRARY_PATH", "ROCM_PATH") if n in os.environ}
    own = {"LC_ALL": "C", "HOME": str(scratch), "TMPDIR": str(scratch), MARK: kin.mark()}
    return {**kept, **own, **plan.get("env", {})}


@contextlib.contextmanager
def _stdout(plan: Mapping[str, Any], output: Path) -> Iterator[Any]:
    if not plan.get("stdout"):
        yield None
        return
    with open(output / plan["stdout"], "xb") as file:
        yield file


def _read_all(paths: Any) -> dict[str, bytes]:
    """What small files say, given by patterns; one that cannot be read is left out."""
    found = {}
    for path in (path for pattern in paths for path in sorted(glob.glob(str(pattern)))):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                found[str(path)] = os.read(fd, 4096)
            finally:
                os.close(fd)
    return found


# --- while it runs -------------------------------------------------------------------------------------


def _attend(process: command.Process[bytes], scratch: Path, limits: Limits) -> Ended:
    """Watch the command until it ends or breaks a limit; then see it off: INT, TERM, KILL."""
    tails = {"stdout": bytearray(), "stderr": bytearray()}
    why: str | None = None
    began = time.monotonic()
    written = 0
    asked = False
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_READ, name)
        look_at = 0.0
        try:
            while why is None:
                wait_s = max(0.0, min(_LOOK_EVERY_S, look_at - time.monotonic()))
                written += _drain(selector, tails, wait_s)
                if process.poll() is not None:
                    break
                now = time.monotonic()
                if now - began >= limits.deadline_s:
                    why = f"not over after {limits.deadline_s:g} s"
                elif written > limits.output_bytes:
                    why = f"wrote more than {limits.output_bytes >> 20} MiB of text"
                elif now >= look_at:
                    why, again_s = _too_much(scratch, limits)
                    look_at = time.monotonic() + again_s
                if why is None and not asked and now - began >= limits.seconds:
                    asked = True
                    _group(process, signal.SIGINT)
        finally:
            # Also where we are told to end: an attached profiler has to let go of its target first.
            code = process.returncode
            if code is None:
                # Whoever was asked already has had the time; a second time may break off what it does.
                # Whoever fills the disk has none; one with a target to let go of has, for as much again.
                attached = limits.asked_s != _INT_S
                full = limits.file_bytes * (2 if attached else 1)
                asked_s = None if asked else limits.asked_s
                code = _see_off(process, selector, tails, asked_s, lambda: bulk.usage(scratch)[0] >= full)
        _drain(selector, tails, wait_s=0.0)
        why = why or _too_much(scratch, limits)[0]
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    said = _last_line(tails["stderr"]) or _last_line(tails["stdout"])
    if asked and code is not None and -code in (signal.SIGINT, signal.SIGTERM):
        code = 0  # as it was asked to
    return Ended(code, why, said)


def _drain(selector: selectors.BaseSelector, tails: Mapping[str, bytearray], wait_s: float = 0.05) -> int:
    """Read what there is, keep the end of it; gives how much it was."""
    count = 0
    if not selector.get_map():
        time.sleep(min(wait_s, 0.02))
    for key, _ in selector.select(wait_s) if selector.get_map() else ():
        try:
            chunk = os.read(key.fd, 1 << 16)
        except BlockingIOError:
            continue
        if not chunk:
            selector.unregister(key.fileobj)
        tail = tails[key.data]
        tail += chunk
        del tail[:-_TAIL]
        count += len(chunk)
    return count


def _see_off(
    process: command.Process[bytes],
    selector: selectors.BaseSelector,
    tails: Mapping[str, bytearray],
    asked_s: float | None,
    full: Callable[[], bool],
) -> int | None:
    """End the command as gently as it lets us: a profiler that is asked detaches, a killed one cannot."""
    for sign, patience_s in ((signal.SIGINT, asked_s), (signal.SIGTERM, _TERM_S)):
        if patience_s is None or full():
            continue
        _group(process, sign)
        until = time.monotonic() + patience_s
        while process.poll() is None and time.monotonic() < until and not full():
            _drain(selector, tails, wait_s=0.02)
        if process.returncode is not None:
            return process.returncode
    _group(process, signal.SIGKILL)
    with contextlib.suppress(command.StillRunning):
        process.wait(_KILL_S)
    return process.returncode


def _group(process: command.Process[bytes], sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sign)


def _too_much(scratch: Path, limits: Limits) -> tuple[str | None, float]:
    """What is wrong with the files, and how long until they are looked at again: soon, where it may be."""
    size, entries = bulk.usage(scratch)
    if size >= limits.file_bytes:
        return f"wrote more than {limits.file_bytes >> 20} MiB of files", 0.0
    why = f"made more than {bulk.ENTRIES_MAX} files" if entries > bulk.ENTRIES_MAX else None
    return why, _LOOK_EVERY_S if size < limits.file_bytes / 8 else _LOOK_CLOSELY_S


# --- after ---------------------------------------------------------------------------------------------


def _judge(ended: Ended, output: Path, *, attached: bool) -> tuple[WindowOutcome, str]:
    """How it went, as far as can be told without reading the files. Never by the exit code alone."""
    code, said = ended.code, ended.said
    if ended.why is not None:
        late = ended.why.startswith("not over")
        return (WindowOutcome.TIMEOUT if late else WindowOutcome.MALFORMED), f"{ended.why}; ended"
    if code is None or code < 0 or code in _CRASHES:
        number = -(code or 0) if code is None or code < 0 else code - 128
        return WindowOutcome.CRASH, f"died of {_name(number)}{_quoted(said)}"
    if bulk.holds_data(output):
        return WindowOutcome.OK, ""
    if code == 0:
        outcome = WindowOutcome.NOT_ATTACHABLE if attached else WindowOutcome.EMPTY
        return outcome, f"ended well and wrote nothing{_quoted(said)}"
    words = said.lower()
    if any(word in words for word in _BUSY):
        return WindowOutcome.BLOCKED, said
    if any(word in words for word in _DENIED):
        return WindowOutcome.DENIED, said
    return WindowOutcome.MALFORMED, f"exit code {code} and no files{_quoted(said)}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(tail: bytearray) -> str:
    lines = [line.strip() for line in tail.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _quoted(said: str) -> str:
    return f"; last said: {said}" if said else ""


if __name__ == "__main__":
    main()
