#!/usr/bin/env python3
"""Write the demo capture and the truths of its windows; the same bytes on every machine.

usage: make_demo.py            write exporter/demo/mi300x-8x and tests/demo_truth
       make_demo.py --check    exit 1 if what is committed differs, naming the first files
       make_demo.py --sys DIR  lay out the first frame's /sys with real links, for tools that need them

Links of the tree are kept as small files that hold their target. Wheels are zip archives: setuptools follows
a link when it collects package data, and since sysfs links form loops (card -> device -> card) it would
collect the same files some forty levels deep. The reader takes such a file for the link it stands for, so one
form works from a clone, from an installed wheel, and on file systems without links.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import demo_node
import demo_processes
import demo_windows

REPO = Path(__file__).resolve().parents[2]
CAPTURE = REPO / "exporter" / "demo" / "mi300x-8x"
TRUTH = REPO / "tests" / "demo_truth"

DESCRIPTION = (
    "Synthetic: eight MI300X of one node, each with another kind of load (saturated, idle, launch-bound, "
    "stalled by its host, waiting in collectives, copying, graphs of dependent kernels, missing the L2). "
    "Formats are those of the driver and of rocprofv3 7.0; every value is invented."
)


def capture() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """(files of the capture, truths by window)."""
    tree, frames, links = demo_node.files()
    users, proc = demo_processes.files({pci: load.vram_gib << 30 for pci, load in demo_node.LOADS.items()})
    windows, truths = demo_windows.files()
    described = {
        "version": 1,
        "name": "mi300x-8x",
        "description": DESCRIPTION,
        "synthetic": True,
        "frames": {"count": demo_node.COUNT, "seconds": demo_node.SECONDS},
        "windows": [{"path": f"windows/{name}", "at": at} for name, _, at, _ in demo_windows.WINDOWS],
    }
    out = {"capture.json": (json.dumps(described, indent=2) + "\n").encode()}
    out |= {f"sys/{path}": body for path, body in (tree | users).items()}
    out |= {f"proc/{path}": body for path, body in proc.items()}
    out |= {f"sys/{path}": target + b"\n" for path, target in links.items()}
    out |= {f"frames/{path}": b"".join(records) for path, records in frames.items()}
    out |= {f"windows/{path}": body for path, body in windows.items()}
    return out, {f"{name}.json": body for name, body in truths.items()}


def write(root: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(root, ignore_errors=True)
    for name, body in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


def differences(root: Path, files: dict[str, bytes]) -> list[str]:
    """Paths below ``root`` that are missing, left over, or different."""
    there = {str(p.relative_to(root)): p for p in root.rglob("*") if p.is_symlink() or p.is_file()}
    wrong = [name for name, body in files.items() if name not in there or there[name].read_bytes() != body]
    return sorted({*wrong, *(there.keys() - files.keys())})


def lay_out(root: Path) -> None:
    """The first frame as a live system shows it."""
    tree, _, links = demo_node.files()
    write(root, tree)
    for path, target in links.items():
        link = root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target.decode(), link)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--sys"] and len(argv) == 2:
        lay_out(Path(argv[1]))
        return 0
    if argv not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    files, truths = capture()
    if not argv:
        write(CAPTURE, files)
        write(TRUTH, truths)
        return 0
    wrong = [
        f"{root.relative_to(REPO)}/{p}"
        for root, f in ((CAPTURE, files), (TRUTH, truths))
        for p in differences(root, f)
    ]
    for path in wrong[:10]:
        print(f"differs from its generator: {path}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
