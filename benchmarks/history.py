"""What a year of windows takes on disk, and how long a comparison over 30 days takes.

python benchmarks/history.py [DEVICES]

One window every 10 minutes of each of 64 devices, with 10 kernels, and with as many as are kept. 30 days are
written whole and compared, half with half; a year is as many times that, since every window takes the same.
"""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from exporter.compare.judge import compare
from exporter.compare.past import Past
from exporter.config.settings import HistorySection
from exporter.history import schema
from exporter.history.store import FILE, Store

DAYS = 30
EVERY_S = 600


def body(draw: random.Random, names: list[int]) -> bytes:
    """One packed result, as the store writes it."""
    amounts = [1e9, 5e8, 5e8, 1e7, 6e8, 1e6, 1e4, 1e6, 0.0, 1e6, 2e6, 1e9, 2e9, 1e9, 5e8, 1e8, 1e8, 3e8]
    head = schema._HEAD.pack(*amounts, 1000, 1000, 990, 10, True, len(names))  # noqa: SLF001 - in bulk
    pack = schema._KERNEL.pack  # noqa: SLF001
    rows = (pack(n, 100, 5e7 * draw.gauss(1, 0.02), 5e5) for n in names)
    return head + b"".join(rows)


def fill(folder: Path, devices: int, kernels: int) -> int:
    """Write the windows in bulk; returns how many results."""
    Store(folder, 1 << 40, 1e12).close()
    db = sqlite3.connect(folder / FILE, isolation_level=None)
    db.execute("BEGIN")
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        if text not in texts:
            texts[text] = db.execute("INSERT INTO text (value) VALUES (?)", (text,)).lastrowid or 0
        return texts[text]

    draw = random.Random(1)
    names = [number(f"kernel_{n}") for n in range(kernels)]
    context, tool, mode, ok = (
        number('{"driver": "6.8.5"}'),
        number("rocprofv3"),
        number("trace"),
        number("ok"),
    )
    gpus = [number(f"0000:{n // 8 + 1:02x}:00.0/{n % 8}") for n in range(devices)]
    bodies = [body(draw, names) for _ in range(500)]
    windows = DAYS * 86_400 // EVERY_S
    for w in range(windows):
        run = number(f"run{w // 144}")  # a process a day
        row = (w + 1, w * EVERY_S, f"spool/{w}", number(f"w{w}"), tool, mode, run, w % 144 == 0, ok)
        db.execute("INSERT INTO window VALUES (?,?,?,?,?,?,?,?,?)", row)
        results = [(w + 1, gpu, context, bodies[draw.randrange(500)]) for gpu in gpus]
        db.executemany("INSERT INTO result VALUES (?,?,?,?)", results)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    return windows * devices


def measure(devices: int, kernels: int) -> None:
    """Print size and time for so many kernels a window."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = fill(folder, devices, kernels)
        size = os.stat(folder / FILE).st_size
        cap = HistorySection().max_bytes
        print(f"{results} results of {devices} devices in {DAYS} days, {kernels} kernels each:")
        print(f"  {size / 2**20:.0f} MiB; a year {size * 365 / DAYS / 2**30:.2f} GiB; the cap of", end=" ")
        print(f"{cap / 2**30:.0f} GiB holds {cap / size * DAYS:.0f} days")
        start = time.perf_counter()
        past, notes = Past(folder), list[str]()
        half = DAYS * 86_400 // 2
        found = compare(past.rows(f"0..{half}", notes), past.rows(f"{half}..{2 * half}", notes))
        took = time.perf_counter() - start
        past.close()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"  compare of 15 with 15 days: {took:.1f} s, {len(found.findings)} values, {peak:.0f} MiB")
        for note in notes:
            print(f"  {note}")


def main() -> None:
    devices = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    for kernels in (10, schema.KERNELS):
        measure(devices, kernels)


if __name__ == "__main__":
    main()
