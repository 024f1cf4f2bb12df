"""What the daemon costs: processor time by device and series, serving, memory, start; node_exporter beside.

Both exporters read the same tree of GPUs in the same run; the figures to quote are the ratios.
Run with ``make bench``; needs wrk and prometheus-node-exporter for the whole. Names of trees (8, 64, cpx) as
arguments measure those alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
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
from exporter.backends.sysfs import SysfsBackend
from exporter.formats import gpu_metrics
from exporter.host import Root

PACE_S = 5.0  # between polls, as by default
INTERVAL_S = 0.25
SECONDS = 12
POLLS = 6
LONG_S = 62.0  # every cadence of the reader has had its turn
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


def partitioned(tree: Path) -> Path:
    """The tree with each of its GPUs in eight partitions, as KFD and the driver's extra cards show them.

    Sockets keep numbers below ten, which are all that node_exporter looks at, and partitions stay above: one
    card without the files it expects costs it the rest.
    """
    drm, nodes = tree / "class/drm", tree / "class/kfd/kfd/topology/nodes"
    sockets = sorted(drm.iterdir(), key=lambda p: int(p.name.removeprefix("card")))
    (tree / "class/kfd/kfd/proc").mkdir(parents=True)
    put(nodes.parent / "generation_id", "1")
    put(nodes / "0/properties", "cpu_cores_count 96\nsimd_count 0")
    for nth, part in itertools.product(range(len(sockets)), range(8)):
        device = (sockets[nth] / "device").resolve()
        domain, bus, _ = device.name.split(":")
        render = 128 + (nth if not part else 10 + nth * 7 + part - 1)
        if part:
            device = tree / f"devices/platform/amdgpu_xcp.{nth * 7 + part - 1}"
            link = drm / f"card{render - 128}"
            folder = device / "drm" / link.name
            folder.mkdir(parents=True)
            (folder / "device").symlink_to("../..")
            link.symlink_to(f"../../{folder.relative_to(tree)}")
        else:
            put(device / "current_compute_partition", "CPX")
            put(device / "gpu_metrics", full(device / "gpu_metrics"))
        (device / f"drm/renderD{render}").mkdir(parents=True)
        node = nodes / str(1 + nth * 8 + part)
        put(node / "gpu_id", str(1000 + nth * 8 + part))
        put(
            node / "properties",
            f"simd_count 152\nsimd_per_cu 4\nvendor_id 4098\ndevice_id 29857\ngfx_target_version 90402\n"
            f"domain {int(domain, 16)}\nlocation_id {int(bus, 16) << 8 | part}\nnum_xcc 1\n"
            f"drm_render_minor {render}\nunique_id {7000 + nth}",
        )
        put(node / "mem_banks/0/properties", "heap_type 1\nsize_in_bytes 25769803776")
    return tree


def full(table: Path) -> bytes:
    """The table with the numbers of its first partition in all eight."""
    data = bytearray(table.read_bytes())
    layout = gpu_metrics.table(gpu_metrics.version_of(bytes(data)))
    if layout.partitions is None:
        raise SystemExit(f"{table}: a table without partitions")
    name, start = layout.partitions
    size = gpu_metrics.partition_table(name).size
    data[start : start + 8 * size] = bytes(data[start : start + size]) * 8
    return bytes(data)


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())


def ours(tree: Path, port: int, interval_s: float = 5) -> list[str]:
    argv = [sys.executable, "-m", "exporter", "serve", "--backend", "sysfs", "--path.sysfs", str(tree)]
    return [*argv, "--listen", f"127.0.0.1:{port}", "--interval", f"{interval_s}s"]


def per_device(tree: Path, pace_s: float, devices: int) -> None:
    """Processor time of one poll beside one scrape of node_exporter, both running, turn by turn."""
    peer = shutil.which("prometheus-node-exporter")
    if peer is None:
        print("  node_exporter is not installed: no ratio per device")
        return
    mine, other = free_port(), free_port()
    url, theirs = f"http://127.0.0.1:{mine}/metrics", f"http://127.0.0.1:{other}/metrics"
    with (
        running(ours(tree, mine, pace_s), url) as (us, _),
        running(peers(peer, tree, other), theirs) as (it, _),
    ):
        time.sleep(4)
        reader = next(p for p in us.children(recursive=True) if "exporter.reader" in p.cmdline())
        polls, spent, whole = -generation(url), -cpu(reader), -cpu(us)
        # Scraped at the same pace: what is asked for often is warm, and costs less.
        queries = ("", "?collect[]=hwmon")
        every, sensors = (scrape_cost(it, theirs + query, pace_s) for query in queries)
        polls, spent, whole = polls + generation(url), spent + cpu(reader), whole + cpu(us)
        page = fetch(theirs)
    chips = len(set(re.findall(rb'node_hwmon_temp_celsius{chip="([^"]+)"', page)))
    cards = page.count(b"\nnode_drm_gpu_busy_percent{")
    poll, plain = spent / polls / devices * 1e6, every / chips * 1e6
    print(f"  a poll: {poll:.0f} us a device ({devices} devices, {polls} polls {pace_s:g} s apart)")
    reading = backend_alone(tree, pace_s) / devices * 1e6
    print(
        f"  the backend alone: {reading:.0f} us a device, {reading / plain:.2f} of a scrape of node_exporter"
    )
    print(f"  with rendering, once a poll: {whole / polls / devices * 1e6:.0f} us a device")
    print(f"  a scrape of node_exporter: {plain:.0f} us a GPU (sensors of {chips}, drm files of {cards})")
    print(f"  ratio of a poll to its scrape, per device: {poll / plain:.2f}")
    if 0 < cards < chips:
        # It looks at card0 to card9 only: what a GPU costs of which it shows both.
        both = (sensors / chips + max(0.0, every - sensors) / cards) * 1e6
        print(f"  the same with drm files of every GPU: {both:.0f} us, ratio {poll / both:.2f}")


def backend_alone(tree: Path, pace_s: float) -> float:
    """Processor seconds of one poll of the backend sysfs: files in, decoded groups out; at a pace."""
    backend = SysfsBackend(Root(str(tree)), Root("/proc"))
    backend.poll()
    costs = []
    for _ in range(POLLS):
        time.sleep(pace_s)
        before = time.process_time()
        backend.poll()
        costs.append(time.process_time() - before)
    return statistics.fmean(costs)


def scrape_cost(process: psutil.Process, url: str, pace_s: float) -> float:
    """Processor seconds of one scrape, at a pace."""
    spent, scrapes, end = -cpu(process), 0, time.monotonic() + LONG_S / 2
    while time.monotonic() < end:
        fetch(url, OPENMETRICS)
        scrapes += 1
        time.sleep(pace_s)
    return (spent + cpu(process)) / scrapes


def generation(url: str) -> int:
    found = re.search(rb"^amdgpu_exporter_generation_total (\d+)", fetch(url), re.MULTILINE)
    return int(found[1]) if found else 0


def peers(peer: str, tree: Path, port: int) -> list[str]:
    argv = [peer, f"--path.sysfs={tree}", "--collector.disable-defaults", "--collector.drm"]
    return [*argv, "--collector.hwmon", f"--web.listen-address=127.0.0.1:{port}"]


def measure(tree: Path, label: str, devices: int) -> None:
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
    per_device(tree, PACE_S, devices)
    peer = shutil.which("prometheus-node-exporter")
    if peer is None:
        print("  node_exporter is not installed: no ratio")
        return
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    with running(peers(peer, tree, port), url) as (process, _):
        peer_micro, peer_milli = all_in(process, url)
        theirs = series(url)
        one = serving(process, url, 1) if shutil.which("wrk") else None
        print(f"  node_exporter, same tree: {theirs} series, {peer_micro:.1f} us each ({peer_milli:.1f} ms)")
        print(f"  ratio ours / node_exporter: {micro / peer_micro:.2f} per series")
        if one:
            print(f"  its serving, 1 scraper: p50 {one['p50']:.2f} ms, {one['cpu']:.2f} ms a scrape")


def main() -> None:
    wanted = sys.argv[1:] or ["start", "8", "64", "cpx"]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        os.environ["STATE_DIRECTORY"] = str(base / "state")
        (base / "state").mkdir()
        if "start" in wanted:
            starts = []
            for _ in range(3):
                port = free_port()
                url = f"http://127.0.0.1:{port}/metrics"
                with running(ours(demo_path() / "sys", port), url) as (_, seconds):
                    starts.append(seconds)
            print(f"start to first good scrape: median of 3 {statistics.median(starts):.2f} s")
        for name, label, copies, devices in (
            ("8", "8 GPUs", 1, 8),
            ("64", "64 GPUs", 8, 64),
            ("cpx", "8 GPUs in 64 partitions", 1, 64),
        ):
            if name in wanted:
                tree = grow(demo_path(), base / name, copies)
                measure(partitioned(tree) if name == "cpx" else tree, label, devices)


if __name__ == "__main__":
    main()
