"""The same windows in a real Prometheus and in the history give one and the same comparison."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from windowmade import GPU0, GPU1, kernel, launches, traced

from exporter.catalogue import CATALOGUE
from exporter.cli import app
from exporter.history.store import Store
from exporter.model import Device, DeviceId, Histogram, Window, WindowOutcome
from exporter.windows.ledger import Ledger
from tests.tools import metrics_store

DEVICES = tuple(
    Device(gpu, n, model="MI300X", gfx="gfx942", driver="6.10.5", vbios="113-X")
    for n, gpu in enumerate((GPU0, GPU1))
)
ABOUT = {"model": "MI300X", "gfx": "gfx942", "driver": "6.10.5", "vbios": "113-X"}
EVERY_S = 600
SCRAPE_S = 60
RUNS = 6  # a side
WINDOWS = 3  # a run, the first of which is its warm-up
PHASES = ("old", "new", "old", "new")
SLOWER = 1.25


class Kept:
    """One daemon's life: what its history and its scraped pages hold."""

    def __init__(self, folder: Path, start: float) -> None:
        self.state, self.start = folder / "state", start
        self.lines: list[str] = []
        self._store = Store(self.state, 1 << 30, 1e12)
        self._ledger = Ledger()
        self._ledger.know(DEVICES)
        self._phase = ""
        self._draw = random.Random(7)

    def live(self) -> float:
        """Every phase in turn, half its runs each time; returns when it ended."""
        now = self.start
        self.scrape(now)
        number = 0
        for phase in PHASES:
            self._store.mark(phase, now + 200)
            self._until(now, now + 200)
            self._phase = phase
            now += 200
            for _ in range(RUNS // 2):
                number += 1
                for nth in range(WINDOWS):
                    self._until(now, now + EVERY_S)
                    now += EVERY_S
                    self.window(f"{number}:77@boot", nth == 0, now)
            self._until(now, now + 300)
            now += 300
        self._store.close()
        return now

    def _until(self, begin: float, end: float) -> None:
        first = int((begin - self.start) // SCRAPE_S) + 1
        for n in range(first, int((end - self.start) // SCRAPE_S) + 1):
            if begin < self.start + n * SCRAPE_S <= end:
                self.scrape(self.start + n * SCRAPE_S)

    def window(self, run: str, first: bool, at: float) -> None:
        """A window of both GPUs; on the first one the new phase is slower and finds less in its cache."""
        results = []
        for device in DEVICES:
            worse = SLOWER if self._phase == "new" and device.id == GPU0 else 1.0
            cold = 3.0 if first else 1.0
            gemm = int(200_000 * worse * cold * self._draw.gauss(1, 0.01))
            relu = int(100_000 * cold * self._draw.gauss(1, 0.01))
            wait = int(20_000 * self._draw.gauss(1, 0.01))
            results.append(
                traced(
                    gpu=device.id.pci,
                    device=device.id,
                    kernels=300,
                    launches=300,
                    unmatched_kernels=3,
                    queue_ns=3 * wait,
                    launch_duration_ns=3 * wait + gemm,
                    launch_stats=(launches([wait] * 3, [wait, wait, wait + gemm]),),
                    exposed_delay_ns=wait,
                    l2_hits=900.0 / worse + self._draw.randrange(9),
                    l2_requests=1000.0,
                    kernel_stats=(kernel("gemm", gemm, 2), kernel("relu", relu, 2)),
                )
            )
        made = Window(f"w-{at}", "rocprofv3 7.0.0", "trace", run=run, first=first)
        self._ledger.add(made, (), results, WindowOutcome.OK, at)
        self._store.append(made, results, "ok", at, contexts={d.id.pci: ABOUT for d in DEVICES})

    def scrape(self, at: float) -> None:
        """One page, as Prometheus keeps it."""
        if self._phase:
            self._line("amdgpu_phase_info", None, {"phase": self._phase}, 1, at)
        for device in DEVICES:
            self._line("amdgpu_info", device.id, dict(ABOUT), 1, at)
        slot = self._ledger.slot(at)
        for series, value in zip(slot.series, slot.values, strict=True):
            labels = dict(zip(CATALOGUE[series.metric].labels, series.labels, strict=True))
            if isinstance(value, Histogram):
                self._line(f"{series.metric}_sum", series.device, labels, value.sum, at)
                self._line(f"{series.metric}_count", series.device, labels, value.count, at)
            else:
                self._line(series.metric, series.device, labels, value, at)

    def _line(self, name: str, gpu: DeviceId | None, labels: dict[str, str], value: float, at: float) -> None:
        own = {"gpu": str([d.id for d in DEVICES].index(gpu)), "pci": gpu.pci} if gpu else {}
        every = {"instance": "node-a:9408", **own, **labels}
        text = ",".join(f"{k}={json.dumps(v)}" for k, v in every.items())
        self.lines.append(f"{name}{{{text}}} {float(value)!r} {at}")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, tuple[float, float]]]:
    tools = [shutil.which(name) for name in ("prometheus", "promtool")]
    if not all(tools):
        pytest.skip("prometheus and promtool are not installed; tests/install-parts installs them")
    prometheus, promtool = map(str, tools)
    folder = tmp_path_factory.mktemp("both")
    kept = Kept(folder, float(int(time.time()) // 60 * 60 - 12 * 3600))
    end = kept.live()
    assert end < time.time()
    config = folder / "exporter.yml"
    config.write_text(f"state_dir: {kept.state}\n")
    metrics_store.make_blocks(folder, kept.lines, promtool)
    with metrics_store.serving(folder, prometheus, lookback="90s") as store:
        yield config, store.url, (kept.start, end)


def said(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["compare", *options, "--format", "json", "--fail-on", "never"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def told(report: dict[str, Any]) -> dict[tuple[str, ...], tuple[Any, ...]]:
    return {
        (f["gpu"], f["kernel"] or "", f["metric"]): (
            f["verdict"],
            *f["runs"].values(),
            *f["windows"].values(),
        )
        for f in report["findings"]
    }


def test_phases_have_the_verdict_that_the_history_gives(both: tuple[Path, str, tuple[float, float]]) -> None:
    config, url, _ = both
    kept = said("old", "new", "--config", str(config))
    scraped = said("old", "new", "--prometheus", url, "--match", 'instance="node-a:9408"')
    assert kept["verdict"] == scraped["verdict"] == "worse"
    assert told(kept) == told(scraped)
    worse = {key for key, found in told(kept).items() if found[0] == "worse"}
    assert worse == {(GPU0.pci, "gemm", "kernel_seconds"), (GPU0.pci, "", "l2_hit_ratio")}
    counted = (RUNS, RUNS, RUNS * (WINDOWS - 1), RUNS * (WINDOWS - 1))
    assert {found[1:] for found in told(kept).values()} == {counted}
    values = {(f["gpu"], f["kernel"], f["metric"]): (f["a"], f["b"]) for f in kept["findings"]}
    for f in scraped["findings"]:
        assert (f["a"], f["b"]) == pytest.approx(values[f["gpu"], f["kernel"], f["metric"]], rel=1e-6)


def test_time_ranges_have_it_too_and_a_side_against_itself_shows_no_change(
    both: tuple[Path, str, tuple[float, float]],
) -> None:
    config, url, (start, end) = both
    middle = (start + end) / 2
    sides = f"{start}..{middle}", f"{middle}..{end}"
    kept, scraped = said(*sides, "--config", str(config)), said(*sides, "--prometheus", url)
    assert kept["verdict"] == scraped["verdict"]
    assert told(kept) == told(scraped)
    assert said(sides[0], sides[0], "--prometheus", url)["verdict"] == "no clear change"


def test_what_is_not_there_is_said_in_one_line(both: tuple[Path, str, tuple[float, float]]) -> None:
    _, url, (start, _) = both
    for options, words in (
        (["old", "newer"], "phases: old, new"),
        (["old", f"{start - 7200}..{start - 3600}"], "has no windows of that time"),
        (["old", "new", "--match", 'instance="other"'], "phases: none"),
        (["old", "new", "--match", 'instance="a"} or {x="1"'], "expected label matchers"),
    ):
        done = CliRunner().invoke(app, ["compare", *options, "--prometheus", url])
        assert done.exit_code != 0
        assert words in str(done.exception or done.output)
