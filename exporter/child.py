"""A child process that answers JSON requests, one per line, within a deadline: the parent's side.

``Child`` starts the process when first needed, ends it when it is late, and starts another the next time.
The child's side is ``worker``. Answers travel on a descriptor of their own, so that whatever a driver
library prints cannot be taken for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from exporter.logs import event
from exporter.model import Reason, SourceError

log = logging.getLogger(__name__)

ANSWER_LIMIT = 64 * 1024 * 1024
_ABANDONED_MAX = 3
_BACKOFF_S = (0.0, 0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
_START_S = 30.0

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

    async def stop(self, patience_s: float = 0.3) -> None:
        """End the child: close its input, then terminate, then kill; ``patience_s`` is for what it runs."""
        process = self._process
        self.on_death = None
        if process is None or process.returncode is not None:
            return
        if process.stdin:
            process.stdin.close()
        for sign, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 0.3)):
            self._signal(process, sign)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), wait_s)
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
            env=_environment(),
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
                        event(log, logging.WARNING, line[:300], child=self.name)

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
            event(
                log,
                logging.ERROR,
                "a child cannot be killed, it is stuck in the kernel",
                child=self.name,
                pid=process.pid,
            )

    def _failed(self) -> None:
        self._failures += 1
        pause = _BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)]
        self._not_before = asyncio.get_running_loop().time() + pause

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, sign: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)


def _environment() -> dict[str, str]:
    """Ours, with this very package first on the path: the child is of the same code, installed or not."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{home}{os.pathsep}{path}" if path else home}


def _exit_text(code: int | None) -> str:
    if code is None:
        return "closed its answers"
    if code < 0:
        try:
            return f"died of {signal.Signals(-code).name}"
        except ValueError:
            return f"died of signal {-code}"
    return f"exited with code {code}"
