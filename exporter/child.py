"""The one way to start a process: a child that answers JSON requests, one per line, within a deadline.

``run_once`` is for the rest: a command that is run to its end, or killed.

``Child`` is the parent's side: it starts the process when first needed, ends it when it is late, and
starts another the next time. ``serve`` is the child's side. The child's answers travel on a descriptor of
their own, so that whatever a driver library prints cannot be taken for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from exporter.model import Reason, SourceError

log = logging.getLogger(__name__)

ANSWER_LIMIT = 64 * 1024 * 1024
_ABANDONED_MAX = 3
_BACKOFF_S = (0.0, 0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
_START_S = 30.0
_PR_SET_PDEATHSIG = 1
_AFRESH = "AMDGPU_EXPORTER_CHILD_AFRESH"
_LINGER_S = 0.2  # what a finished command's descendants get to let go of its output

Message = dict[str, Any]


class Child:
    """A restartable child process running ``python -m MODULE SPEC``.

    Errors: ``request`` raises SourceError with timeout, crashed, or the reason the child itself gave.
    """

    def __init__(self, name: str, module: str, spec: Mapping[str, Any]) -> None:
        self.name = name
        self.starts = 0
        self.on_death: Callable[[str], None] | None = None
        self._argv = [sys.executable, "-P", "-m", module, json.dumps(spec)]
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._tail: deque[str] = deque(maxlen=5)
        self._said: set[str] = set()
        self._abandoned: list[asyncio.subprocess.Process] = []
        self._failures = 0
        self._not_before = 0.0
        self._lock = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.returncode is None else None

    async def request(self, message: Message, deadline_s: float) -> Message:
        """Send one request and wait for its answer; a late child is killed with its whole group."""
        async with self._lock:
            try:
                process = await self._running()
                answer = await asyncio.wait_for(self._exchange(process, message), deadline_s)
            except TimeoutError:
                await self._kill()
                self._failed()
                raise SourceError(Reason.TIMEOUT, f"no answer within {deadline_s:g} s; killed") from None
            except (ConnectionError, EOFError, ValueError) as e:
                # ValueError: an answer beyond the limit, or one that is no JSON.
                detail = await self._obituary(e)
                await self._kill()
                self._failed()
                raise SourceError(Reason.CRASHED, detail) from None
        self._failures = 0
        if not answer.get("ok"):
            reason = answer.get("reason")
            known = Reason(reason) if reason in list(Reason) else Reason.CRASHED
            raise SourceError(known, str(answer.get("detail", "")))
        return answer

    async def stop(self) -> None:
        """End the child: close its input, then terminate, then kill."""
        process = self._process
        self.on_death = None
        if process is None or process.returncode is not None:
            return
        if process.stdin:
            process.stdin.close()
        for sign, patience_s in ((signal.SIGTERM, 0.3), (signal.SIGKILL, 0.3)):
            self._signal(process, sign)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), patience_s)
                break
        for task in self._tasks:
            task.cancel()

    async def _exchange(self, process: asyncio.subprocess.Process, message: Message | None) -> Message:
        """Send a request, if any, and read one answer."""
        requests, answers = process.stdin, process.stdout
        if requests is None or answers is None:
            raise EOFError
        if message is not None:
            requests.write(json.dumps(message).encode() + b"\n")
            await requests.drain()
        line = await answers.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError("the answer is not an object")
        return answer

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process and self._process.returncode is None:
            return self._process
        self._abandoned = [p for p in self._abandoned if p.returncode is None]
        if len(self._abandoned) >= _ABANDONED_MAX:
            raise SourceError(
                Reason.CRASHED, f"{_ABANDONED_MAX} earlier ones are stuck in the kernel; not starting more"
            )
        if (wait_s := self._not_before - asyncio.get_running_loop().time()) > 0:
            raise SourceError(
                Reason.CRASHED, f"failed {self._failures} times in a row; next start in {wait_s:.0f} s"
            )
        for task in self._tasks:
            task.cancel()
        self._tail.clear()
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=ANSWER_LIMIT,
        )
        self.starts += 1
        self._tasks = [
            asyncio.create_task(self._listen(self._process)),
            asyncio.create_task(self._watch(self._process)),
        ]
        # A loaded machine may take longer to start a process than a poll may take: that is not the
        # reader's fault, and to kill it for that would keep it from ever starting.
        try:
            await asyncio.wait_for(self._exchange(self._process, None), _START_S)
        except TimeoutError:
            raise EOFError(f"did not start within {_START_S:g} s") from None
        return self._process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Pass on what the child says on stderr, each line once: driver libraries repeat themselves."""
        while process.stderr and (chunk := await process.stderr.read(4096)):
            for line in chunk.decode("utf-8", "replace").splitlines():
                if line := line.strip():
                    self._tail.append(line[:300])
                    if line not in self._said and len(self._said) < 200:
                        self._said.add(line)
                        log.warning("%s: %s", self.name, line[:300])

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if self.on_death and process is self._process:
            self.on_death(_exit_text(code))

    async def _obituary(self, error: Exception) -> str:
        if str(error) and not isinstance(error, ConnectionError):
            return str(error)
        code = None
        if self._process:
            with contextlib.suppress(TimeoutError):
                code = await asyncio.wait_for(self._process.wait(), 0.5)
        last = f"; last said: {self._tail[-1]}" if self._tail else ""
        return f"{_exit_text(code)}{last}"

    async def _kill(self) -> None:
        process = self._process
        self._process = None
        if process is None:
            return
        self._signal(process, signal.SIGKILL)
        try:
            await asyncio.wait_for(process.wait(), 0.5)
        except TimeoutError:
            # In uninterruptible sleep inside the driver. It ends when the driver lets go of it.
            self._abandoned.append(process)
            log.error("%s: process %d cannot be killed (stuck in the kernel)", self.name, process.pid)

    def _failed(self) -> None:
        self._failures += 1
        pause = _BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)]
        self._not_before = asyncio.get_running_loop().time() + pause

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, sign: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)


def _exit_text(code: int | None) -> str:
    if code is None:
        return "closed its answers"
    if code < 0:
        try:
            return f"died of {signal.Signals(-code).name}"
        except ValueError:
            return f"died of signal {-code}"
    return f"exited with code {code}"


Handler = Callable[[Message], Message]


def serve(handlers: Mapping[str, Handler], worn_out: Callable[[], str | None] = lambda: None) -> None:
    """The child's loop: answer requests from stdin until it closes.

    A handler's SourceError becomes its answer. Any other exception does too, so that one bad request does
    not end the child; the parent counts it as a crash. After each answer ``worn_out`` may give a reason to
    start this process afresh.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    if os.environ.pop(_AFRESH, None) is None:
        answers.write(b'{"ok": true}\n')  # started
        answers.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            answer = {"ok": True, **handlers[request["op"]](request)}
        except SourceError as e:
            answer = {"ok": False, "reason": e.reason, "detail": str(e)}
        except Exception as e:  # noqa: BLE001 - the one place where a child's errors become answers
            answer = {"ok": False, "reason": Reason.CRASHED, "detail": f"{type(e).__name__}: {e}"}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
        if reason := worn_out():
            _start_afresh(answers.fileno(), reason)


def _start_afresh(answers: int, reason: str) -> None:
    """Become a new process image between two requests: same pid and pipes, so the parent misses nothing.

    It gives back what a library leaked: memory, threads, and descriptors it opened to be inherited.
    """
    os.write(2, f"starts afresh: {reason}\n".encode())
    os.dup2(answers, 1)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2:
            with contextlib.suppress(OSError):
                os.close(fd)
    os.environ[_AFRESH] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command again


def spec() -> Message:
    """The child's settings, as its parent passed them."""
    settings: Message = json.loads(sys.argv[1])
    return settings


# --- commands ------------------------------------------------------------------------------------------


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


def run_once(argv: Sequence[str], deadline_s: float, limit_bytes: int, env: Mapping[str, str]) -> Finished:
    """Run a command without a shell and wait for it; kills its process group at the deadline or the limit.

    A descendant that keeps the output open does not hold us up once the command itself has ended. Not for
    processes with threads: the child changes itself between fork and exec.
    """
    began = time.monotonic()
    _stuck[:] = [p for p in _stuck if p.poll() is None]
    try:
        if len(_stuck) >= _ABANDONED_MAX:
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
