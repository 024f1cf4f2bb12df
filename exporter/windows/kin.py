"""The processes that descend from this one, whatever they did to get away: found, counted, ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator

_PR_SET_CHILD_SUBREAPER = 36
_ENVIRON_MOST = 1 << 20


def adopt_orphans(adopt: bool = True) -> None:
    """Become the parent of every descendant whose own parent ends, or be it no longer."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def count() -> int:
    """Descendants that still run."""
    _reap()
    return len(_descendants())


def end_all(patience_s: float) -> int:
    """Kill every descendant, also those that appear meanwhile; gives how many are left at the end."""
    until = time.monotonic() + patience_s
    while True:
        _reap()
        left = _descendants()
        if not left or time.monotonic() >= until:
            return len(left)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def stopped(pid: int) -> bool:
    """Whether a process is stopped, by a signal or by a tracer."""
    life = _life(pid)
    return life is not None and life[0] in "Tt"


def wake(pid: int) -> None:
    """Let a process go on that was left stopped."""
    if stopped(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)


def mark() -> str:
    """This process, as those it starts carry it in their environment."""
    life = _life(os.getpid())
    return f"{os.getpid()}:{life[2] if life else 0}"


def end_leftovers(variable: str) -> None:
    """Kill what a dead process of ours started and could not end any more, being killed itself."""
    key = f"{variable}=".encode()
    for pid in _pids():
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                found = [v for v in file.read(_ENVIRON_MOST).split(b"\0") if v.startswith(key)]
            if not found:
                continue
            owner, _, began = found[0].removeprefix(key).decode().partition(":")
            life = _life(int(owner))
            if life is None or str(life[2]) != began:
                os.kill(pid, signal.SIGKILL)


def _reap() -> None:
    """Take leave of adopted children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in _pids():
        life = _life(pid)
        if life is not None:
            children.setdefault(life[1], []).append(pid)
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        own = children.get(todo.pop(), [])
        found += own
        todo += own
    return found


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _life(pid: int) -> tuple[str, int, int] | None:
    """State letter, parent, start time; None where there is none, or only its exit code is left."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read(4096).rpartition(b")")[2].split()
        if fields[0] == b"Z" and int(fields[17]) < 2:  # not one whose first thread alone has ended
            return None
        return fields[0].decode(), int(fields[1]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
