"""Run a command to its end, or kill it and everything it started: deadline, output limit, no shell."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import IO

_PR_SET_PDEATHSIG = 1
_LINGER_S = 0.2  # what a finished command's descendants get to let go of its output
_STUCK_MAX = 3


class Ending(StrEnum):
    EXITED = "exited"
    TIMEOUT = "timeout"
    FLOOD = "flood"
    NOT_STARTED = "not_started"


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended or was ended; ``code`` is negative for a signal, None where it never started."""

    code: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    outcome: Ending


Process = subprocess.Popen
StillRunning = subprocess.TimeoutExpired


def start(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, file_bytes: int, stdout: IO[bytes] | None = None
) -> Process[bytes]:
    """Start a command in a session of its own, its outputs piped; it dies with us and leaves no core file.

    No file it writes grows beyond ``file_bytes``. Whoever calls must end it. Not for processes with threads.
    Errors: OSError or ValueError where it cannot be started.
    """

    def confine() -> None:
        _die_with_parent()
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write that fails, not a death
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # our children ignore it, and hand that down
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=confine,  # noqa: PLW1509 - no threads here, see above
        )
    except subprocess.SubprocessError as e:
        raise ValueError(str(e)) from None


def beside(argv: Sequence[str], env: Mapping[str, str], keep: Sequence[int]) -> Process[bytes]:
    """Start a command in our place: our terminal, our process group, our limits; it outlives us.

    ``keep`` are descriptors that it holds too. Signals that are blocked here are not blocked there.
    Errors: OSError where it cannot be started.
    """

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    try:
        return subprocess.Popen(argv, env=dict(env), pass_fds=keep, preexec_fn=unblock)  # noqa: PLW1509
    except subprocess.SubprocessError as e:
        raise OSError(0, str(e)) from None


def become(argv: Sequence[str]) -> int:
    """Turn into a command, with all that we are. Gives the exit code of a shell where that cannot be."""
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606
    except FileNotFoundError:
        return 127
    except OSError:
        return 126


def run_once(argv: Sequence[str], deadline_s: float, limit_bytes: int, env: Mapping[str, str]) -> Finished:
    """Run a command without a shell and wait for it; kills its process group at the deadline or the limit.

    A descendant that keeps the output open does not hold us up once the command itself has ended. Not for
    processes with threads: the child changes itself between fork and exec.
    """
    began = time.monotonic()
    _stuck[:] = [p for p in _stuck if p.poll() is None]
    try:
        if len(_stuck) >= _STUCK_MAX:
            raise OSError(f"{len(_stuck)} earlier ones are stuck in the kernel; not starting more")
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - no threads here, see above
        )
    except (OSError, ValueError, subprocess.SubprocessError) as e:
        return Finished(None, b"", str(e).encode(), time.monotonic() - began, Ending.NOT_STARTED)
    output = {"stdout": bytearray(), "stderr": bytearray()}
    try:
        outcome = _collect(process, output, began + deadline_s, limit_bytes)
    finally:
        code = _end(process)
    seconds = time.monotonic() - began
    return Finished(code, bytes(output["stdout"]), bytes(output["stderr"]), seconds, outcome)


_stuck: list[subprocess.Popen[bytes]] = []
_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a tool that aborts at every poll would fill the disk


def _collect(
    process: subprocess.Popen[bytes], output: dict[str, bytearray], until: float, limit_bytes: int
) -> Ending:
    """Read both outputs until they close, the command has been gone for a moment, or it must be ended."""
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, name)
        gone = False
        while selector.get_map():
            now = time.monotonic()
            if now >= until:
                return Ending.EXITED if gone else Ending.TIMEOUT
            for key, _ in selector.select(min(until - now, 0.05)):
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fileobj)
                output[key.data] += chunk
            if sum(map(len, output.values())) > limit_bytes:
                return Ending.FLOOD
            if not gone and _has_ended(process):
                gone, until = True, min(until, time.monotonic() + _LINGER_S)
    return Ending.EXITED if _ends_by(process, until) else Ending.TIMEOUT


def _end(process: subprocess.Popen[bytes]) -> int | None:
    """Leave nothing of the command's group behind; None where even SIGKILL has not ended it yet."""
    # The command is reaped last: until then nobody else can get its number, and killpg hits only its group.
    signs = (signal.SIGKILL,) if _has_ended(process) else (signal.SIGTERM, signal.SIGKILL)
    for sign in signs:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        _ends_by(process, time.monotonic() + (0.1 if sign is signal.SIGTERM else 0.5))
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    if process.poll() is None:
        _stuck.append(process)
    return process.returncode


def _ends_by(process: subprocess.Popen[bytes], until: float) -> bool:
    while not (ended := _has_ended(process)) and time.monotonic() < until:
        time.sleep(0.005)
    return ended


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
