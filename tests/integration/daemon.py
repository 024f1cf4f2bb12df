"""A real daemon in a real process, for integration tests."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = [sys.executable, "-P", "-m", "exporter"]


def environment(**more: str) -> dict[str, str]:
    """The environment of a child: this checkout, and nothing configured from outside."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AMDGPU_EXPORTER_")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def verb(*args: str, timeout_s: float = 30, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end."""
    return subprocess.run(
        [*COMMAND, *args], capture_output=True, text=True, timeout=timeout_s, env=environment(**env)
    )


class Daemon:
    """A started ``serve``; ``log`` is the file its stderr goes to."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.log = log

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        return self._ask(urllib.request.Request(self.url + path, headers=headers))

    def post(self, path: str) -> tuple[int, str]:
        return self._ask(urllib.request.Request(self.url + path, method="POST", data=b""))

    def _ask(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def series(self) -> dict[str, float]:
        """Every sample of the page by its name and labels, as written."""
        lines = self.get("/metrics")[1].splitlines()
        found = [line.rsplit(" ", 1) for line in lines if line and not line.startswith("#")]
        table = {name: float(value) for name, value in found}
        assert len(table) == len(found), "a series stands twice"
        return table

    def value(self, pattern: str) -> float | None:
        """The one sample whose name and labels match, or None."""
        found = [v for name, v in self.series().items() if re.search(pattern, name)]
        assert len(found) <= 1, f"{pattern} matches {len(found)} series"
        return found[0] if found else None

    def reader(self) -> psutil.Process | None:
        """The reader child."""
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if "exporter.reader" in child.cmdline():
                    return child
        return None

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(5)


def until(true: Callable[[], object], timeout_s: float = 10, what: str = "it") -> None:
    """Wait for a condition; fail when it does not come."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.02)


@contextlib.contextmanager
def serving(tmp_path: Path, *args: str, **env: str) -> Iterator[Daemon]:
    """``serve`` on a free port with its state below ``tmp_path``, ready."""
    port = free_port()
    log = tmp_path / f"daemon-{port}.log"
    env = {"STATE_DIRECTORY": str(tmp_path / "state"), **env}
    with log.open("wb") as err:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--listen", f"127.0.0.1:{port}", *args],
            stdout=subprocess.DEVNULL,
            stderr=err,
            env=environment(**env),
        )
    daemon = Daemon(process, port, log)
    try:
        end = time.monotonic() + 15
        while True:
            with contextlib.suppress(OSError):
                if daemon.get("/-/ready")[0] == 200:
                    break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, f"not ready: {log.read_text()}"
            time.sleep(0.02)
        yield daemon
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
