"""An hour of pages of a replaying daemon in a second or two: the daemon's own parts, on a clock that is told.

Reader, collector, ledger, schedule and reducer are the product's; only time, and the pipes between its
processes, are replaced. So every value in a page is one that a daemon would have served at that moment.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from exporter.backends.replay import describe, open_capture
from exporter.backends.sysfs import SysfsBackend
from exporter.catalogue import CATALOGUE
from exporter.child import Child
from exporter.collect import Collector, PolledSource, Timing
from exporter.host import Clock
from exporter.model import Device, DeviceId, Outcome, Owner, Series, Slot
from exporter.reader import Reader
from exporter.windows import reducer
from exporter.windows.bottleneck import Thresholds
from exporter.windows.feed import Feed
from exporter.windows.ledger import Ledger
from exporter.windows.spool import ReplaySchedule

SCRAPE_S = 15
HOLDER = Owner("pod", "team-a", "train-0", "trainer")  # of every GPU


def held(
    now: float, devices: Mapping[DeviceId, Device], _slots: Iterable[Slot]
) -> tuple[Slot, Mapping[DeviceId, tuple[Owner, ...]], tuple[()]]:
    """Every GPU is that of one pod."""
    series = tuple(Series("amdgpu_workload_info", device, tuple(HOLDER)) for device in devices)
    slot = Slot(Outcome("owners", True, None, "", 0.0, now, now), series, (1,) * len(series), ())
    return slot, dict.fromkeys(devices, (HOLDER,)), ()


class ToldClock(Clock):
    """Wall time is what it was last set to; monotonic time goes on by a millisecond with each look.

    So durations are steady and above 0, as on a machine, and every run gives the same pages.
    """

    def __init__(self, at: float) -> None:
        self.at = at
        self._looks = 0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        self._looks += 1
        return self.at + self._looks / 1000

    def go_to(self, at: float) -> None:
        assert at >= self.monotonic(), "more looks than time has passed"
        self.at, self._looks = at, 0


class Inline:
    """A child that answers in this process; answers still go through JSON, as through the pipe."""

    def __init__(self, name: str, serve: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.name = name
        self.starts = 1
        self.pid = None
        self.on_death: object = None
        self._serve = serve

    async def request(self, message: dict[str, Any], _deadline_s: float) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(json.dumps(self._serve(message))))


@dataclass
class Node:
    """A node, and what happens to it. Times are seconds after the start.

    ``down``: the daemon is stopped at the first and started anew at the second of each pair.
    ``gone``: these parts of the capture, then a copy, are not there between the two times.
    """

    name: str
    capture: Path
    skew_s: float = 0.0  # how far into the capture the first page is
    down: Sequence[tuple[float, float]] = ()
    gone: tuple[tuple[str, ...], float, float] | None = None
    expected: int | None = None
    held: bool = True  # by one pod, every GPU of it
    _reduced: dict[str, dict[str, Any]] = field(default_factory=dict)

    def pages(self, start: float, seconds: float) -> Iterator[tuple[float, str]]:
        """(time, OpenMetrics page) at every scrape that finds the daemon up."""
        at, run = 0.0, 0
        for stop, again in (*self.down, (seconds, seconds)):
            yield from asyncio.run(self._live(start, at, stop, run))
            at, run = again, run + 1

    async def _live(self, start: float, since: float, until: float, run: int) -> list[tuple[float, str]]:
        """One life of the daemon: its pages from one moment to another."""
        # A replay starts with its daemon: begin before the first page, so that the skew has passed by then.
        clock = ToldClock(start + since - (self.skew_s if run == 0 else 0.0) - 1)
        sysfs, procfs = open_capture(self.capture, clock)
        reader = Reader(SysfsBackend(sysfs, procfs, clock=clock), CATALOGUE)
        about = describe(self.capture)
        source = PolledSource("sysfs", "replay", "capture", cast("Child", Inline("reader", reader.poll)))
        collector = Collector(
            CATALOGUE,
            clock,
            Timing(5.0, 4.0, 15.0),
            [source],
            series_max=12_000,
            expected=self.expected,
            replay=(about.name, about.synthetic),
        )
        ledger = Ledger()
        reduce = Inline("reducer", self._reduce)
        collector.children.append(cast("Child", reduce))

        def windows(now: float) -> Any:
            ledger.know(collector.present())
            return ledger.slot(now)

        collector.windows = windows
        if self.held:
            collector.owners = held
        schedule = ReplaySchedule(self.capture, clock)
        feed = Feed(ledger, schedule, cast("Child", reduce), clock, lambda: None, Thresholds)
        pages = []
        clock.go_to(start + since)
        while clock.at < start + until:
            self._place_card(clock.at - start)
            # Costs are measured by the shell of the daemon: here they are a steady one per cent of a core.
            collector.processes = {"daemon": ((clock.at - start - since) * 0.01, 48 << 20)}
            await source.poll(4.0, clock)
            assert source.outcome is not None
            assert source.outcome.ok, source.outcome
            collector.publish()
            for path in schedule.complete():
                await feed.take(path)
            collector.publish()
            assert collector.current is not None
            pages.append((clock.at, collector.current.page.openmetrics.decode()))
            clock.go_to(clock.at + SCRAPE_S)
        return pages

    def _reduce(self, message: dict[str, Any]) -> dict[str, Any]:
        path = message["path"]
        if path not in self._reduced:  # the same files each round
            self._reduced[path] = reducer.reduce(message)
        return self._reduced[path]

    def _place_card(self, at: float) -> None:
        """Take the card's folders out of the tree, or put them back."""
        if self.gone is None:
            return
        parts, since, until = self.gone
        for folder in parts:
            here = self.capture / folder
            away = self.capture / "away" / folder
            source, target = (here, away) if since <= at < until else (away, here)
            if source.exists() or source.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(source, target)


def sample_lines(page: str, at: float, **labels: str) -> Iterator[str]:
    """The samples of a page as a scraper stores them: labels of the target added, and the time."""
    extra = ",".join(f'{k}="{v}"' for k, v in labels.items())
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        series, value = line.rsplit(" ", 1)
        name, brace, rest = series.partition("{")
        yield f"{name}{{{extra}{',' if brace else ''}{rest if brace else '}'} {value} {at:.3f}"
