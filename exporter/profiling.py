"""The object graph of windows: where they come from, who takes them, and what is served of them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter import config as configuration
from exporter.catalogue.window import SAMPLING_STATES
from exporter.child import Child
from exporter.collect import Collector
from exporter.config import Config
from exporter.history.client import History
from exporter.history.context import Throttle, contexts
from exporter.host import Clock, Root
from exporter.logs import event
from exporter.model import (
    Device,
    Outcome,
    Series,
    Slot,
    Source,
    Value,
    Window,
    WindowOutcome,
    WindowResult,
)
from exporter.profilers.toolbox import Toolbox
from exporter.windows.feed import Feed
from exporter.windows.ledger import SOURCE, Keep, Ledger
from exporter.windows.order import Memory, Order, Place
from exporter.windows.place import boot_id, node_name, order_of, power_profile, rocm
from exporter.windows.policy import Skip, Start
from exporter.windows.quota import Share
from exporter.windows.sampler import Sampler
from exporter.windows.spool import ReplaySchedule, Spool
from exporter.windows.taker import Taker

log = logging.getLogger(__name__)

_NO_WINDOWS = "No windows are taken in"

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Profiling:
    """Owns ledger, feed and sampler. ``replay`` is the root of a capture, which brings its own windows."""

    def __init__(
        self,
        config: Config,
        collector: Collector,
        clock: Clock,
        spawn: Spawn,
        replay: str | None = None,
        history: History | None = None,
    ) -> None:
        self.config = config
        self.ledger = Ledger(_keep(config))
        self.notes: list[str] = []
        self._collector, self._clock, self._spawn, self._replay = collector, clock, spawn, replay
        place = self._place()
        here = {"node": place.node, "boot_id": place.boot_id} if replay is None else {}
        self._reducer = Child("reducer", "exporter.windows.reducer", here)
        paths = {"sysfs": config.path.sysfs, "procfs": config.path.procfs}
        self._runner = Child("runner", "exporter.windows.runner", paths)
        taker = Taker(self._order(), place, clock, self._runner, Toolbox())
        self.history = history
        self._throttle = Throttle()
        # A page without what was counted before would look like a reset.
        collector.begun = history is None
        self.sampler = Sampler(taker, clock, history or Memory(), self)
        self._feeding: asyncio.Task[None] | None = None
        self._fed_from: object = None
        self._served: tuple[tuple[Series, ...], tuple[Series, ...], tuple[Series, ...]] = (), (), ()

    async def start(self) -> None:
        """Begin, as the configuration says, from where an earlier daemon stopped."""
        if self.history:
            await self.history.open()
            for problem in self.ledger.restore(self.history.kept):
                event(log, logging.WARNING, problem)
        self._feed()
        self._collector.begun = True
        if self._collector.current is not None:
            self._collector.publish()
        self._spawn(self.sampler.run())

    def configure(self, config: Config) -> None:
        """Take another configuration; totals, breaker and counts stay."""
        self.config = config
        self.ledger.configure(_keep(config))
        self.sampler.configure(self._order(), self._place())
        self._feed()

    async def stop(self) -> None:
        """End a window that runs, and every child."""
        await asyncio.gather(self.sampler.stop(), self._reducer.stop())
        if self.history:
            await self.history.child.stop()

    def children(self) -> list[Child]:
        """Those that may run by the configuration in force."""
        feeding = [self._reducer] if self._feeding else []
        keeping = [self.history.child] if self.history else []
        return [*feeding, *keeping, *([self._runner] if self.sampler.active else [])]

    def why(self) -> list[str]:
        """A line for people where windows are wanted and none is taken."""
        status = self.sampler.status()
        if status["state"] not in ("blocked", "tripped"):
            return []
        detail = status["detail"] or status["breaker"]["reason"] or "it is paused"
        return [f"Sampling is {status['state']}: {detail}"]

    # --- what is served -------------------------------------------------------------------------------

    def slot(self, now: float) -> Slot:
        """All that stands of windows now; the state of sampling also where none are taken in."""
        state, more = self.sampler.state, self.sampler.readings()
        if self.history:
            more = (*more, *self.history.readings())
        if self._feeding is None:
            states = [(Series("amdgpu_sampling_state", None, (s,)), int(s == state)) for s in SAMPLING_STATES]
            return self._with(Slot(Outcome(SOURCE, True, None, "", 0.0, now, now)), [*states, *more])
        self.ledger.know(self._collector.present())
        if mode := self.sampler.mode:
            self.ledger.expect(mode)
        return self._with(self.ledger.slot(now, state), more)

    def expiry(self, now: float) -> float | None:
        """When the slot changes by itself."""
        return self.ledger.next_expiry(now) if self._feeding else None

    def _with(self, slot: Slot, more: Sequence[tuple[Series, Value]]) -> Slot:
        """The slot with more readings; hands out the same series while they stay."""
        base, own = slot.series, tuple(series for series, _ in more)
        if self._served[0] is not base or self._served[1] != own:
            self._served = base, own, (*base, *own)
        values = (*slot.values, *(value for _, value in more))
        return Slot(slot.outcome, self._served[2], values, slot.gaps)

    # --- what the sampler asks ------------------------------------------------------------------------

    def present(self) -> list[Device]:
        return self._collector.present()

    def slots(self) -> Sequence[Slot]:
        return [source.slot for source in self._collector.sources if source.slot]

    def publish(self) -> None:
        self._collector.publish()

    def failed(self, window: Window, outcome: WindowOutcome, detail: str) -> None:
        """Count a window that gave nothing."""
        self.ledger.add(window, (), (), outcome, self._clock.now(), detail)

    # --- what the feed asks ---------------------------------------------------------------------------

    async def knows(self, path: Path, /) -> bool:
        """Whether an earlier daemon took this window in."""
        origin = self._origin(path)
        return bool(self.history and origin and await self.history.knows(origin))

    async def keep(
        self,
        path: Path,
        window: Window,
        sources: Sequence[Source],
        results: Sequence[WindowResult],
        outcome: WindowOutcome,
        at: float,
        /,
    ) -> None:
        """Keep a window, what was known of its GPUs, and the totals that it changed."""
        if self.history is None:
            return
        collector = self._collector
        current = collector.current
        slots = current.snapshot.slots.values() if current else ()
        about = contexts(results, collector.inventory.devices, slots, self._node(), self._throttle)
        await asyncio.to_thread(self._add_profiles, results, about)
        state = self.ledger.dump({r.device for r in results if r.device})
        await self.history.append(
            window, sources, results, outcome, at, origin=self._origin(path), contexts=about, state=state
        )

    def _add_profiles(self, results: Sequence[WindowResult], about: Mapping[str, dict[str, Any]]) -> None:
        """Add the power profile of each GPU: the driver asks the firmware for it, which may take its time."""
        sysfs = Root(self.config.path.sysfs)
        for result in results:
            device = self._collector.inventory.devices.get(result.device) if result.device else None
            if device and result.gpu in about and (profile := power_profile(sysfs, device)):
                about[result.gpu]["power_profile"] = profile

    def _node(self) -> dict[str, str | None]:
        """What is known of the node besides its GPUs; of the tree of another machine its name alone."""
        about: dict[str, str | None] = {"node": self._place().node}
        if os.path.ismount(self.config.path.sysfs):
            about |= {"rocm": rocm(os.environ), "kernel": os.uname().release}
        return about

    def _origin(self, path: Path) -> str | None:
        """What tells one window from another that had its name; a replay shows the same ones again."""
        if self._replay is not None:
            return None
        try:
            return f"{path.parent.name}/{path.name} {path.stat().st_mtime_ns}"
        except OSError:
            return None

    # --- what others ask ------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        return self.sampler.status()

    async def window(self) -> Start | Skip:
        """Start one window now, if the policy allows."""
        return await self.sampler.attempt()

    async def pause(self, paused: bool, /) -> None:
        """Start no window any more, or again; survives a restart."""
        await self.sampler.pause(paused)

    # --- the parts ------------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Take windows from where the configuration says: a capture, a spool folder, or nowhere."""
        windows = self.config.windows
        if self._fed_from == (wanted := (windows.preset == "off", windows.spool_dir, self._share())):
            return
        self._fed_from = wanted
        if self._feeding:
            self._feeding.cancel()
            self._feeding = None
        self.notes = [note for note in self.notes if not note.startswith(_NO_WINDOWS)]
        try:
            spool = self._spool() if windows.preset != "off" else None
        except OSError as e:
            self.notes.append(
                f"{_NO_WINDOWS}: {e.filename}: {e.strerror}; set state_dir or windows.spool_dir"
            )
            return
        if spool is None:
            return
        feed = Feed(
            self.ledger,
            spool,
            self._reducer,
            self._clock,
            self._collector.publish,
            lambda: self.config.bottleneck.thresholds,
            self.sampler.took,
            self,
        )
        self._feeding = self._spawn(feed.run())

    def _spool(self) -> Spool | ReplaySchedule:
        if self._replay is not None:
            return ReplaySchedule(Path(self._replay), self._clock)
        path = self._spool_path()
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o1733)  # every user makes a folder of their own in it, and sees no other's
        return Spool(path, self._clock, self._share())

    def _share(self) -> Share:
        windows = self.config.windows
        return Share(windows.spool_user_bytes, windows.spool_user_windows)

    def _spool_path(self) -> Path:
        folder = self.config.windows.spool_dir
        return Path(folder) if folder else self._state() / "spool"

    def _state(self) -> Path:
        return configuration.state_directory(self.config, os.environ)

    def _order(self) -> Order:
        return order_of(self.config, replayed=self._replay is not None)

    def _place(self) -> Place:
        path = self.config.path
        return Place(
            node_name(os.environ),
            boot_id(path.procfs),
            str(self._spool_path()),
            str(self._state() / "window.lock"),
            path.sysfs,
        )


def _keep(config: Config) -> Keep:
    kernels = config.kernels
    return Keep(config.windows.gauge_max_age, kernels.top, kernels.top_many_devices, kernels.forget_after)
