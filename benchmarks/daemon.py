"""What the daemon costs: processor time per series, serving time, memory, start. Beside node_exporter.

Both exporters read the same tree of GPUs in the same run; the figures to quote are the ratios.
Run with ``make bench``; needs wrk and prometheus-node-exporter for the whole.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil

from exporter.backends.replay import demo_path

INTERVAL_S = 0.25
SECONDS = 12
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def fetch(url: str, headers: dict[str, str] | None = None) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=5) as r:
        return bytes(r.read())


@contextlib.contextmanager
def running(argv: list[str], url: str) -> Iterator[tuple[psutil.Process, float]]:
    """The started process and the seconds to its first good scrape."""
    start = time.monotonic()
    process = psutil.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(OSError):
                if fetch(url):
                    break
            if process.poll() is not None or time.monotonic() - start > 20:
                raise SystemExit(f"{argv[0]} did not start")
            time.sleep(0.005)
        yield process, time.monotonic() - start
    finally:
        process.terminate()
        process.wait(5)


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def cpu(process: psutil.Process) -> float:
    return sum(t.user + t.system for t in (p.cpu_times() for p in family(process)))


def memory_mib(process: psutil.Process) -> float:
    return sum(p.memory_info().rss for p in family(process)) / 2**20


def series(url: str) -> int:
    return sum(1 for line in fetch(url).splitlines() if line and not line.startswith(b"#"))


def all_in(process: psutil.Process, url: str) -> tuple[float, float]:
    """Processor microseconds per series and scrape, and milliseconds per scrape; one scrape per poll."""
    time.sleep(1)
    n = series(url)
    before, scrapes, end = cpu(process), 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        fetch(url, OPENMETRICS)
        scrapes += 1
        time.sleep(INTERVAL_S)
    spent = cpu(process) - before
    return spent / scrapes / n * 1e6, spent / scrapes * 1e3


def serving(process: psutil.Process, url: str, connections: int) -> dict[str, float]:
    """Latency and processor time per scrape under wrk."""
    before = cpu(process)
    argv = ["wrk", "-t1", f"-c{connections}", "-d4s", "--latency"]
    argv += [part for k, v in OPENMETRICS.items() for part in ("-H", f"{k}: {v}")]
    out = subprocess.run([*argv, url], capture_output=True, text=True, check=True).stdout
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    found = re.findall(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)", out, re.MULTILINE)
    result = {f"p{p}": float(v) * unit[u] for p, v, u in found}
    [requests] = map(int, re.findall(r"(\d+) requests in", out))
    result["cpu"] = (cpu(process) - before) / requests * 1e3
    return result


def grow(source: Path, dest: Path, copies: int) -> Path:
    """A tree with ``copies`` times the demo's GPUs, each copy in a PCI domain, linked as the kernel does."""
    cards = sorted(p.parent for p in (source / "sys/devices").rglob("gpu_busy_percent"))
    for folder in ("class/drm", "class/hwmon"):
        (dest / folder).mkdir(parents=True)
    n = 0
    for copy in range(copies):
        for card in cards:
            bdf = f"{copy:04x}:{card.name.split(':', 1)[1]}"
            device = dest / f"devices/pci{copy:04x}:00" / bdf
            shutil.copytree(card, device, ignore=shutil.ignore_patterns("drm", "subsystem", "driver"))
            (device / f"drm/card{n}").mkdir(parents=True)
            (device / f"drm/card{n}/device").symlink_to(f"../../../{bdf}")
            (dest / f"class/drm/card{n}").symlink_to(f"../../devices/pci{copy:04x}:00/{bdf}/drm/card{n}")
            for hwmon in sorted((device / "hwmon").iterdir()):
                hwmon = hwmon.rename(hwmon.with_name(f"hwmon{n}"))
                (hwmon / "device").unlink(missing_ok=True)
                (hwmon / "device").symlink_to(f"../../../{bdf}")
                target = f"../../devices/pci{copy:04x}:00/{bdf}/hwmon/hwmon{n}"
                (dest / f"class/hwmon/hwmon{n}").symlink_to(target)
            n += 1
    return dest


def ours(tree: Path, port: int, interval_s: float = 5) -> list[str]:
    argv = [sys.executable, "-m", "exporter", "serve", "--backend", "sysfs", "--path.sysfs", str(tree)]
    return [*argv, "--listen", f"127.0.0.1:{port}", "--interval", f"{interval_s}s"]


def measure(tree: Path, label: str) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with running(ours(tree, port), url) as (process, _):
        time.sleep(6)  # past what is laid out or looked up once, with polls as seldom as they are by default
        print(f"{label}: {series(url)} series")
        if shutil.which("wrk"):
            one, eight = serving(process, url, 1), serving(process, url, 8)
            print(f"  serving, 1 scraper:  p50 {one['p50']:.2f} ms, processor {one['cpu']:.2f} ms a scrape")
            print(f"  serving, 8 scrapers: p50 {eight['p50']:.2f} ms, p99 {eight['p99']:.2f} ms")
        print(f"  memory, daemon and reader: {memory_mib(process):.0f} MiB")
    with running(ours(tree, port, INTERVAL_S), url) as (process, _):
        micro, milli = all_in(process, url)
        print(f"  all-in processor time: {micro:.1f} us per series and scrape ({milli:.1f} ms a scrape)")
    peer = shutil.which("prometheus-node-exporter")
    if peer is None:
        print("  node_exporter is not installed: no ratio")
        return
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    argv = [peer, f"--path.sysfs={tree}", "--collector.disable-defaults", "--collector.drm"]
    argv += ["--collector.hwmon", f"--web.listen-address=127.0.0.1:{port}"]
    with running(argv, url) as (process, _):
        peer_micro, peer_milli = all_in(process, url)
        theirs = series(url)
        one = serving(process, url, 1) if shutil.which("wrk") else None
        print(f"  node_exporter, same tree: {theirs} series, {peer_micro:.1f} us each ({peer_milli:.1f} ms)")
        print(f"  ratio ours / node_exporter: {micro / peer_micro:.2f} per series")
        if one:
            print(f"  its serving, 1 scraper: p50 {one['p50']:.2f} ms, {one['cpu']:.2f} ms a scrape")


def main() -> None:
    starts = []
    for _ in range(3):
        port = free_port()
        url = f"http://127.0.0.1:{port}/metrics"
        with running(ours(demo_path() / "sys", port), url) as (_, seconds):
            starts.append(seconds)
    print(f"start to first good scrape: median of 3 {statistics.median(starts):.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        measure(grow(demo_path(), Path(folder) / "8", 1), "8 GPUs")
        measure(grow(demo_path(), Path(folder) / "64", 8), "64 GPUs")


if __name__ == "__main__":
    main()
