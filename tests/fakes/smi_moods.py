"""What the two fake SMI tools have in common: how they misbehave, told by FAKE_SMI_MODE."""

from __future__ import annotations

import os
import signal
import sys
import time

MODE = os.environ.get("FAKE_SMI_MODE", "ok")
GPUS = int(os.environ.get("FAKE_SMI_GPUS", "2"))
# A command's first argument, to which the mode is limited; the others then behave.
ONLY = os.environ.get("FAKE_SMI_ONLY", "")


def misbehave(verb: str) -> None:
    """Do what the mode says before any output; return where the tool is to go on."""
    if ONLY and verb != ONLY:
        return
    if MODE == "hang":
        # ROCm/ROCm issue 5745: stuck after a GPU crash; SIGTERM has no effect on such a process.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(1)
    if MODE == "crash":
        # rocm-smi 5.2.3 aborts like this on a RX 7800 XT or 9070; amd-smi after an ABI mismatch.
        print("Assertion `false' failed.", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    if MODE == "flood":
        line = "WARNING: the same again\n" * 1000
        while True:
            sys.stdout.write(line)
    if MODE == "empty":
        # Real: no JSON, a sentence on stderr, exit code 0.
        print("WARNING: No JSON data to report", file=sys.stderr)
        sys.exit(0)
    if MODE == "denied":
        # ROCm/amdsmi issue 184: amd-smi 7.0 refuses to run without the groups.
        sys.exit("RuntimeError: User is missing the following required groups: render, video.")
    if MODE in ("permission", "text_before_json"):
        # ROCm/amdsmi issue 184: from 7.1 the block stands on stdout before JSON that is whole.
        print("Permission needed to access required GPU device node(s):")
        print("  - card1: Permission denied; owner=root(0):video(44);\n", flush=True)
    if MODE == "double_fork" and os.fork() == 0:
        # A grandchild that left the process group and keeps the output open.
        os.setsid()
        if os.fork() == 0:
            time.sleep(5)
        os._exit(0)


def finish() -> None:
    """The end of a run: what it exits with."""
    # rocm-smi exits with 2, 8, 9 or 255 although its JSON is whole.
    sys.exit({"exit_code": 2, "cut": 0}.get(MODE, 0))


def say(text: str) -> None:
    print(text[: len(text) // 2] if MODE == "cut" and not ONLY else text, flush=True)
