"""The child's side of ``child``: the loop that answers requests. Loads nothing it does not need."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from exporter.model import Reason, SourceError

_PR_SET_PDEATHSIG = 1
_AFRESH = "AMDGPU_EXPORTER_CHILD_AFRESH"

Message = dict[str, Any]
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
