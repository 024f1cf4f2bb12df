"""What our loop of small kernels in PyTorch prints: one JSON object on its last line. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from exporter.formats.copies import said
from exporter.model import FormatError

# An element-wise kernel of one value: nothing to compute, so that only the launch is measured.
SCRIPT = """
import json, sys, time
import torch
n = int(sys.argv[1])
if not getattr(torch.version, "hip", None):
    sys.exit("this PyTorch is not built for ROCm")
if n >= torch.cuda.device_count():
    sys.exit(f"PyTorch sees {torch.cuda.device_count()} GPUs, not number {n}")
torch.cuda.set_device(n)
x = torch.zeros(1, device="cuda")
def loop(count, wait):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        x.add_(1.0)
        if wait:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / count
loop(500, False); loop(100, True)
one = sorted(loop(5000, False) for _ in range(5))
both = sorted(loop(1000, True) for _ in range(5))
p = torch.cuda.get_device_properties(n)
print(json.dumps({"torch": torch.__version__, "hip": torch.version.hip, "devices": torch.cuda.device_count(),
 "name": p.name, "gfx": getattr(p, "gcnArchName", None),
 "back_to_back_s": one[2], "round_trip_s": both[2]}))
"""
_LONGEST_S = 1.0


@dataclass(frozen=True, slots=True)
class Launches:
    """Seconds per launch: one after another, and with a wait for each."""

    version: str
    devices: int
    gfx: str | None
    back_to_back: float
    round_trip: float


def read(text: str) -> Launches:
    """The last line of the loop. Errors: FormatError, with what was printed instead."""
    whole = text.splitlines()[: None if text.endswith("\n") else -1]
    try:
        found = json.loads(whole[-1])
        version, devices, gfx = found["torch"], found["devices"], found.get("gfx")
        times = [found["back_to_back_s"], found["round_trip_s"]]
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(
            f"no measurement in it; it says: {said(text)}" if said(text) else "it is empty"
        ) from None
    if not isinstance(version, str) or type(devices) is not int or not 0 < devices <= 1024:
        raise FormatError("no version or number of GPUs in it")
    for one in times:
        if type(one) is not float or not (math.isfinite(one) and 0 < one <= _LONGEST_S):
            raise FormatError(f"a launch of {one!r} s")
    return Launches(version[:60], devices, gfx if isinstance(gfx, str) else None, *times)
