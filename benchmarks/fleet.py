"""What rules and dashboards cost over a simulated fleet, in a real Prometheus and a real VictoriaMetrics.

Only the series that rules and panels read are written, half an hour of them. Their values are those of one
node that replays the demo capture, repeated for every node. One database runs at a time.
Run with ``make bench-fleet``; docs/FLEET.md holds figures and what they mean.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from alerts import build, recording
from alerts.settings import read
from benchmarks._fleet_series import SECONDS, STEP_S, fleet, panels, say, templates, write
from benchmarks._fleet_series import result as series

REPO = Path(__file__).resolve().parents[1]
PARTS = [REPO / ".cache" / "parts" / p / "usr" / "bin" for p in ("newer", "")]
REPEATS = 2
SIZES = (100, 300, 1000)
LARGE = 10_000
MANY = 500  # series in one panel; more cannot be told apart


def tool(name: str, newest: bool = True) -> str:
    folders = os.pathsep.join(map(str, PARTS))
    paths = (folders, os.environ.get("PATH")) if newest else (os.environ.get("PATH"), folders)
    found = next((p for path in paths if (p := shutil.which(name, path=path))), None)
    if found is None:
        raise SystemExit(f"{name} is not there; tests/install-parts fetches it")
    return found


# --- the databases --------------------------------------------------------------------------------------


@dataclass
class Measured:
    """What one database did with one size of fleet. Times in seconds."""

    database: str
    nodes: int
    series: int = 0
    samples: int = 0
    written_s: float = 0.0
    memory: int = 0  # bytes once written
    peak: int = 0
    groups: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)  # seconds of one core, by group
    rules: dict[str, float] = field(default_factory=dict)
    panels: dict[str, tuple[float, int]] = field(default_factory=dict)  # time, series in the answer
    failed: dict[str, str] = field(default_factory=dict)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def running(log: Path, url: str, ready: str, *argv: str) -> Iterator[psutil.Process]:
    with log.open("wb") as out:
        process = psutil.Popen(argv, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + ready, timeout=2).close()
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{argv[0]} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except psutil.TimeoutExpired:
            process.kill()


def ask(url: str, **parameters: Any) -> Any:
    body = urllib.parse.urlencode(parameters).encode() if parameters else None
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=180) as answer:
        return json.load(answer)["data"]


def time_rules(url: str, end: float, result: Measured, process: psutil.Process) -> None:
    """Evaluate every rule once, one after another, each after what it needs, and keep what is recorded.

    By the database's query interface: its evaluator runs the same queries, several groups at once.
    """
    settings = read()
    groups: dict[str, list[tuple[str, str, bool]]] = {
        name: [(r.name, r.expr, True) for r in records]
        for name, records in recording.groups(settings).items()
    }
    for name, alerts in build.alerts(settings).items():
        groups[name] = [(a.name, a.expr, False) for a in alerts]
    for group, rules in groups.items():
        cpu = processor(process)
        for name, expr, recorded in rules:
            since = time.perf_counter()
            try:
                found = ask(f"{url}/api/v1/query", query=expr, time=end, nocache=1)["result"]
            except urllib.error.HTTPError as e:
                result.failed[name] = json.load(e).get("error", str(e))
                continue
            result.rules[name] = time.perf_counter() - since
            result.groups[group] = result.groups.get(group, 0.0) + result.rules[name]
            if recorded and found:
                samples = [series(name, s["metric"], float(s["value"][1]), end) for s in found]
                write(url, (b"".join(samples[n : n + 5000]) for n in range(0, len(samples), 5000)))
                if "Victoria" in result.database:
                    urllib.request.urlopen(f"{url}/internal/force_flush", timeout=60).close()
        result.cpu[group] = processor(process) - cpu


def processor(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def time_panels(url: str, end: float, result: Measured, only: Callable[[str], bool]) -> None:
    for panel in panels():
        if not only(panel.name):
            continue
        took, found = [], 0
        for _ in range(REPEATS):
            since = time.perf_counter()
            try:
                if panel.instant:
                    data = ask(f"{url}/api/v1/query", query=panel.expr, time=end, nocache=1)
                else:
                    span = {"start": end - SECONDS, "end": end, "step": STEP_S}
                    data = ask(f"{url}/api/v1/query_range", query=panel.expr, nocache=1, **span)
            except urllib.error.HTTPError as e:
                result.failed[panel.name] = json.load(e).get("error", str(e))
                break
            took.append(time.perf_counter() - since)
            found = len(data["result"])
        if took:
            result.panels[panel.name] = max(took), found


def peak_of(process: psutil.Process) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def prometheus(folder: Path, nodes: int, only: Callable[[str], bool]) -> Measured:
    url, config = f"http://127.0.0.1:{free_port()}", folder / "prometheus.yml"
    config.write_text("{}")
    argv = [tool("prometheus", newest=False), f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
    argv += [f"--web.listen-address={url[7:]}", "--web.enable-remote-write-receiver", "--log.level=warn"]
    told = subprocess.run([argv[0], "--version"], check=False, capture_output=True, text=True)
    version = re.search(r"version (\S+)", told.stdout + told.stderr)
    result = Measured(f"Prometheus {version[1] if version else ''}", nodes)
    with running(folder / "log", url, "/-/ready", *argv) as process:
        end = _load(url, result, process)
        result.series = int(float(_metric(f"{url}/metrics", "prometheus_tsdb_head_series")))
        _time(url, end, result, process, only)
    return result


def victoria_metrics(folder: Path, nodes: int, only: Callable[[str], bool]) -> Measured:
    url, binary = f"http://127.0.0.1:{free_port()}", tool("victoria-metrics")
    argv = [binary, f"-storageDataPath={folder}/data", f"-httpListenAddr={url[7:]}", "-loggerLevel=WARN"]
    argv += ["-search.latencyOffset=0s", "-search.disableCache", "-search.maxQueryDuration=120s"]
    result = Measured(f"VictoriaMetrics {_packaged(binary)}", nodes)
    with running(folder / "log", url, "/health", *argv) as process:
        end = _load(url, result, process)
        urllib.request.urlopen(f"{url}/internal/force_flush", timeout=60).close()
        result.series = int(ask(f"{url}/api/v1/status/tsdb")["totalSeries"])
        _time(url, end, result, process, only)
    return result


def _time(
    url: str, end: float, result: Measured, process: psutil.Process, only: Callable[[str], bool]
) -> None:
    time_rules(url, end, result, process)
    say("  rules timed")
    time_panels(url, end, result, only)
    result.peak = peak_of(process)


def _packaged(binary: str) -> str:
    """Debian's build does not say its version; the package's own text does."""
    shares = (Path(binary).parents[1] / "share" / "doc" / "victoria-metrics").glob("changelog.Debian.gz")
    for changelog in shares:
        with gzip.open(changelog, "rt") as text:
            found = re.search(r"\(([^+~)]+)", text.readline())
            return found[1] if found else ""
    return ""


def _load(url: str, result: Measured, process: psutil.Process) -> float:
    """Write the fleet; return the time of its last samples."""
    end = time.time() // STEP_S * STEP_S
    made = templates(end)
    since = time.monotonic()
    write(url, fleet(result.nodes, made))
    result.written_s = time.monotonic() - since
    result.samples = len(made) * result.nodes * (SECONDS // STEP_S + 1)
    result.memory = int(process.memory_info().rss)
    say(f"  written in {result.written_s:.0f} s")
    return end


def _metric(url: str, name: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found
    return found[1]


# --- the report -----------------------------------------------------------------------------------------


def extrapolated(small: Measured, large: Measured, of: Callable[[Measured], float]) -> float:
    """A straight line through the two largest sizes, at the large one."""
    slope = (of(large) - of(small)) / (large.nodes - small.nodes)
    return max(of(large) + slope * (LARGE - large.nodes), 0.0)


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.0f} ms"


def report(runs: list[Measured]) -> str:
    databases = dict.fromkeys(m.database for m in runs)
    return "\n".join(line for d in databases for line in _table([m for m in runs if m.database == d])) + "\n"


def _table(mine: list[Measured], shown: int = 10) -> Iterator[str]:
    """One database: a column for each size, and one that is only extrapolated."""
    ends = mine[-2:] if len(mine) > 1 else []
    last = mine[-1]
    heads = [f"{m.nodes:,} nodes" for m in mine] + ([f"{LARGE:,} (extrapolated)"] if ends else [])

    def row(what: str, of: Callable[[Measured], float], text: Callable[[float], str]) -> str:
        cells = [text(of(m)) for m in mine] + ([text(extrapolated(ends[0], ends[1], of))] if ends else [])
        return f"| {what} | {' | '.join(cells)} |"

    def gigabytes(value: float) -> str:
        return f"{value / 2**30:.2f} GiB"

    def group_of(name: str) -> Callable[[Measured], float]:
        return lambda m: m.groups.get(name, 0.0)

    def panel_of(name: str) -> Callable[[Measured], float]:
        return lambda m: m.panels[name][0] if name in m.panels else float("nan")

    yield from ("", f"### {last.database}", "", f"| | {' | '.join(heads)} |")
    yield f"| --- {'| ---: ' * len(heads)}|"
    yield row("series", lambda m: m.series, lambda v: f"{v:,.0f}")
    yield row("samples", lambda m: m.samples, lambda v: f"{v / 1e6:,.1f} M")
    yield row("time to write", lambda m: m.written_s, seconds)
    yield row("memory once written", lambda m: m.memory, gigabytes)
    yield row("most memory, with rules and panels", lambda m: m.peak, gigabytes)
    for group in sorted(last.groups):
        yield row(f"rules `{group}`", group_of(group), seconds)
    yield row("all rules once", lambda m: sum(m.groups.values()), seconds)
    yield row("all rules once, processor", lambda m: sum(m.cpu.values()), seconds)
    for name in sorted(last.panels, key=lambda n: -last.panels[n][0])[:shown]:
        yield row(f"{name} ({last.panels[name][1]:,} series)", panel_of(name), seconds)
    costly = sorted(last.rules.items(), key=lambda r: -r[1])[:5]
    yield from ("", f"Slowest rules at {last.nodes:,} nodes: ")
    yield ", ".join(f"`{name}` {seconds(cost)}" for name, cost in costly) + "."
    wide = [f"{n} ({found:,})" for n, (_, found) in last.panels.items() if found > MANY]
    yield from (
        "",
        f"Panels with more than {MANY} series at {last.nodes:,} nodes: {', '.join(wide) or 'none'}.",
    )
    yield from (f"FAILED at {m.nodes:,}: {n}: {why}" for m in mine for n, why in m.failed.items())


DATABASES = {"prometheus": prometheus, "victoria-metrics": victoria_metrics}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--database", choices=DATABASES, nargs="+", default=list(DATABASES))
    parser.add_argument("--boards", default="", help="only panels whose name holds this")
    args = parser.parse_args()
    os.nice(10)
    runs = []
    for name in args.database:
        for nodes in args.nodes:
            say(f"{name}, {nodes} nodes")
            with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
                runs.append(DATABASES[name](Path(folder), nodes, lambda n: args.boards in n))
    sys.stdout.write(report(runs))


if __name__ == "__main__":
    main()
