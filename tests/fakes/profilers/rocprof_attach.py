"""A stand-in for rocprof-attach (ROCm 10.1 and later).

Facts: `rocprof-attach -p PID -t LIBRARY -d MSEC`; refuses a target without the attach thread; loads a tool
library that gets its options from the environment, so without rocprofv3 in front of it nothing is traced.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.fakes.profilers import rocprofv3, stage
from tests.fakes.profilers.stage import Settings


def main(argv: list[str], settings: Settings) -> int:
    stage.note(settings, "rocprof-attach", argv)
    parser = argparse.ArgumentParser(prog="rocprof-attach")
    parser.add_argument("-p", "--pid", type=int, required=True)
    parser.add_argument("-t", "--attach-tool-library")
    parser.add_argument("-d", "--attach-duration-msec", type=int)
    args = parser.parse_args(argv)
    if not Path(f"/proc/{args.pid}").exists() or "rocp-bg-attach" not in rocprofv3.threads(args.pid):
        sys.stderr.write(f"rocprof-attach: PID {args.pid} has no 'rocp-bg-attach' thread\n")
        return 2
    time.sleep((args.attach_duration_msec or 0) / 1000)
    return 0
