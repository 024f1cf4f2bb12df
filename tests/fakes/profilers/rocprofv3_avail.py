"""A stand-in for rocprofv3-avail (ROCm 7.0 and later): lists, and whether counters fit one pass.

Facts: `list [--pmc|--agent|--pc-sampling|--spm]`, `info --pmc [NAMES]`, `pmc-check A B [-d N]`, which tests
whether a set fits one pass. Its codes (0 and 1) are not among the facts.
"""

from __future__ import annotations

import argparse
import sys

from tests.fakes.profilers import outputs, rocprofv3, stage
from tests.fakes.profilers.stage import Settings


def known() -> dict[str, float]:
    names = "SQ_WAVES SQ_INSTS_VALU SQ_ACTIVE_INST_VALU SQ_THREAD_CYCLES_VALU SQ_VALU_MFMA_BUSY_CYCLES "
    names += "SQ_BUSY_CU_CYCLES SQ_WAVE_CYCLES TCC_HIT_sum TCC_MISS_sum FETCH_SIZE WRITE_SIZE GRBM_COUNT "
    names += "GRBM_GUI_ACTIVE"
    return outputs.counters_of({"grid": 64, "start": 0, "end": 1}, names.split(), False)


def main(argv: list[str], settings: Settings) -> int:
    stage.note(settings, "rocprofv3-avail", argv)
    if settings.mode in ("hang", "hang-help"):
        stage.hang()
    parser = argparse.ArgumentParser(prog="rocprofv3-avail")
    verbs = parser.add_subparsers(dest="verb")
    lists = verbs.add_parser("list")
    for flag in ("--pmc", "--agent", "--pc-sampling", "--spm"):
        lists.add_argument(flag, action="store_true")
    lists.add_argument("-d", "--device", type=int)
    info = verbs.add_parser("info")
    info.add_argument("--pmc", nargs="*")
    info.add_argument("-d", "--device", type=int)
    check = verbs.add_parser("pmc-check")
    check.add_argument("pmc", nargs="+")
    check.add_argument("-d", "--device", type=int)
    args = parser.parse_args(argv)
    if settings.mode == "crash":
        stage.crash()
    if args.verb in ("list", "info"):
        for agent in settings.agents:
            print(f"GPU:{agent['node']}\n{agent['gfx']}")
            for name in known():
                print(f"  {name}")
        return 0
    if args.verb != "pmc-check":
        parser.print_help()
        return 0
    missing = [name for name in args.pmc if name not in known()]
    if missing:
        sys.stderr.write(f"Invalid counter: {' '.join(missing)}\n")
        return 1
    blocks: dict[str, int] = {}
    for name in args.pmc:
        whole = name in ("FETCH_SIZE", "WRITE_SIZE")
        block = "TCC" if whole else name.split("_")[0]
        blocks[block] = blocks.get(block, 0) + (4 if whole else 1)
    if any(count > rocprofv3.LIMITS.get(block, 4) for block, count in blocks.items()):
        print("Counters cannot be collected together")
        return 1
    print("Counters can be collected together")
    return 0
