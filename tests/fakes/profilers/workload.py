"""An application that launches kernels on a GPU which is not there, with times that are known beforehand.

Launch number k is called at ``base + k * period``; the call takes ``api_us``, the kernel starts ``queue_us``
after the call's start and runs ``kernel_us``. So queue time, launch duration and their ratio are known by
hand, whatever part of it a window sees.

A tool library in the process would see the launches: here, they are appended to the file that the variable
FAKE_GPU_RECORD names. With ROCP_TOOL_ATTACH=1 the process can be attached to: it has the thread and the
mappings of the real thing, and writes what was seen while it was attached to.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent.parent.parent)
sys.path.insert(0, ROOT)

KEPT: list[mmap.mmap] = []


def now_ns() -> int:
    # Facts: timestamps are nanoseconds of the clock that counts suspend, CLOCK_BOOTTIME.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Gpu:
    """Launches so far; each as one record."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.base = now_ns()
        self.done = 0
        self.record = os.environ.get("FAKE_GPU_RECORD")
        self.lock = threading.Lock()

    def launch(self, k: int) -> dict[str, Any]:
        a = self.args
        call = self.base + int(k * a.period_ms * 1e6)
        start = call + int(a.queue_us * 1e3)
        return {
            "correlation": k + 1,
            "dispatch": k + 1,
            "pid": os.getpid(),
            "tid": os.getpid(),
            "agent": a.agent,
            "kernel": a.kernel,
            "function": "hipLaunchKernel",
            "api_start": call,
            "api_end": call + int(a.api_us * 1e3),
            "start": start,
            "end": start + int(a.kernel_us * 1e3),
            "grid": 65536,
            "workgroup": 64,
        }

    def until(self, at_ns: int) -> None:
        """Launch what is due, and wait until it has run."""
        due = []
        with self.lock:
            while (one := self.launch(self.done))["end"] <= at_ns:
                due.append(one)
                self.done += 1
        if due and self.record:
            with open(self.record, "a") as f:
                f.writelines(json.dumps(one) + "\n" for one in due)

    def between(self, begin: int, end: int) -> list[dict[str, Any]]:
        """What a tool sees that was there from ``begin`` to ``end``: calls that began while it was there."""
        seen = (self.launch(k) for k in range(self.done))
        return [one for one in seen if begin <= one["api_start"] and one["end"] <= end]


def load(name: str, folder: str) -> None:
    """Map a file of this name, as the loader would."""
    path = Path(folder) / name
    path.write_bytes(b"\x7fELF" + b"rocp-bg-attach".ljust(4092, b"\0"))
    with path.open("rb") as f:
        KEPT.append(mmap.mmap(f.fileno(), 4096, prot=mmap.PROT_READ))


def serve_attach(gpu: Gpu, folder: str, ready: threading.Event) -> None:
    """The thread that an attached tool lives in. Facts: its name is the proof that an attach can work."""
    ctypes.CDLL(None, use_errno=True).prctl(15, b"rocp-bg-attach", 0, 0, 0)
    from tests.fakes.profilers import outputs

    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(f"\0fake-rocattach-{os.getpid()}")
    door.listen(4)
    ready.set()
    loaded = False
    while True:
        peer, _ = door.accept()
        with peer, peer.makefile("rw") as line:
            asked = json.loads(line.readline())
            if not loaded:
                # Facts: the attacher looks for these names in the target's maps when it comes a second time.
                load("librocprofiler-sdk.so.1", folder)
                load("librocprofiler-sdk-tool.so.1", folder)
                loaded = True
            begin = now_ns()
            line.write("attached\n")
            line.flush()
            line.readline()
            end = now_ns()
            gpu.until(end)
            time.sleep(asked["detach_s"])

            def deliver(asked: dict[str, Any] = asked, begin: int = begin, end: int = end) -> None:
                outputs.write(asked["job"], gpu.between(begin, end), begin, end)

            if asked["sync"]:
                deliver()
            else:
                threading.Timer(asked["async_s"], deliver).start()
            line.write("detached\n")
            line.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--period-ms", type=float, default=1.0)
    parser.add_argument("--api-us", type=float, default=5.0)
    parser.add_argument("--queue-us", type=float, default=20.0)
    parser.add_argument("--kernel-us", type=float, default=100.0)
    parser.add_argument("--kernel", default="saxpy")
    parser.add_argument("--agent", type=int, default=1)
    parser.add_argument("--exit-code", type=int, default=0)
    args = parser.parse_args()
    gpu = Gpu(args)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with tempfile.TemporaryDirectory() as folder:
        if os.environ.get("ROCP_TOOL_ATTACH") == "1" and not gpu.record:
            load("librocprofiler-register.so.0", folder)
            load("librocprofiler-sdk-attach.so.1", folder)
            ready = threading.Event()
            threading.Thread(target=serve_attach, args=(gpu, folder, ready), daemon=True).start()
            ready.wait()
        print("ready", flush=True)
        end = time.monotonic() + args.seconds
        while time.monotonic() < end and not stop.wait(min(0.02, max(0.0, end - time.monotonic()))):
            gpu.until(now_ns())
        gpu.until(now_ns())
    return int(args.exit_code)


if __name__ == "__main__":
    sys.exit(main())
