"""Takes windows by itself where the configuration asks for it: facts, policy, plan, runner, spool.

One task in the daemon's event loop; all that reads or starts anything is the runner child's. What it took
goes through the spool like every other window; its reducer says how it went, and the breaker hears it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from exporter.host import Clock
from exporter.logs import event
from exporter.model import DeviceId, Series, SourceError, Value, WindowOutcome, WindowResult
from exporter.windows.baseline import Baselines, beyond, named
from exporter.windows.book import counter_gauges
from exporter.windows.breaker import GOOD, BreakerState
from exporter.windows.order import Keeper, Order, Place, Polled
from exporter.windows.policy import COUNTERS, LIGHT, PASSING, Facts, GpuFacts, Policy, Skip, SkipReason, Start
from exporter.windows.schedule import Schedule
from exporter.windows.standing import Standing
from exporter.windows.taker import Job, Taken, Taker
from exporter.windows.targets import Targets

log = logging.getLogger(__name__)

STATE_KEY = "sampling"
# What a window costs the work that runs beside it, as a share of its length: measurements of others.
KNOWN_COST = {"counters": 0.05, "trace": 0.11}
_LOOK_EVERY_S = 5.0
_FIRST_LOOK_S = 0.25  # until the first poll has found GPUs
_IDLE_S = 30.0


class Sampler:
    """The windows that this daemon takes."""

    def __init__(self, taker: Taker, clock: Clock, keeper: Keeper, polled: Polled) -> None:
        self._taker, self._clock, self._keeper, self._polled = taker, clock, keeper, polled
        self._order = taker.order
        mono, wall = clock.monotonic(), clock.now()
        self.policy = Policy(self._order.rules, mono)
        self._schedule = Schedule(taker.place.node, self._order.interval_s, mono, wall)
        self._standing, self._baselines, self._targets = Standing(), Baselines(), Targets()
        self._left: dict[DeviceId, tuple[str, ...]] = {}
        self._awaited: dict[str, Job] = {}
        self._skipped = dict.fromkeys(SkipReason, 0)
        self._last: Skip | None = None
        self._said: SkipReason | None = None
        self._spent = dict.fromkeys(KNOWN_COST, 0.0)
        self._since = mono
        self._wake = asyncio.Event()
        self._deciding = asyncio.Lock()
        self._window: asyncio.Task[None] | None = None
        self._saving: set[asyncio.Task[None]] = set()

    # --- what others see ------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether windows are to be started at all."""
        return self.mode is not None

    @property
    def mode(self) -> str | None:
        """What kind of window is to be started, if any."""
        return self._order.rules.mode

    @property
    def state(self) -> str:
        """One of SAMPLING_STATES."""
        if not self.active:
            return "off"
        if self.policy.running:
            return "sampling"
        if self.policy.breaker.state is BreakerState.OPEN:
            return "tripped"
        if self.policy.paused or (self._last is not None and self._last.reason not in PASSING):
            return "blocked"
        return "ready"

    def readings(self) -> tuple[tuple[Series, Value], ...]:
        """Windows not started by reason, and what windows cost; nothing where none are to be started."""
        if not self.active:
            return ()
        found: list[tuple[Series, Value]] = [
            (Series("amdgpu_windows_skipped_total", None, (reason.value,)), n)
            for reason, n in self._skipped.items()
        ]
        passed = self._clock.monotonic() - self._since
        if passed > 0:
            for mode, seconds in self._spent.items():
                series = Series("amdgpu_window_overhead_ratio", None, (mode,))
                found.append((series, seconds * KNOWN_COST[mode] / passed))
        return tuple(found)

    def status(self) -> dict[str, Any]:
        """For people and the API: the state, why, and when the next window may come."""
        mono = self._clock.monotonic()
        breaker, last = self.policy.breaker, self._last if self.active else None
        return {
            "preset": self._order.rules.preset,
            "state": self.state,
            "reason": last.reason.value if last else None,
            "detail": last.detail if last else None,
            "paused": self.policy.paused,
            "next_slot_seconds": max(0.0, self._schedule.due - mono) if self.active else None,
            "breaker": {
                "state": breaker.state.value,
                "trips": breaker.trips,
                "reason": breaker.reason,
                "next_trial_seconds": breaker.opens_in(mono),
            },
            "skipped": {reason.value: n for reason, n in self._skipped.items() if n},
            "deep_wanted": {d.pci: list(names) for d, names in self._left.items() if names},
        }

    # --- what others ask ------------------------------------------------------------------------------

    def configure(self, order: Order, place: Place) -> None:
        """Take another configuration; breaker, budget and counts stay."""
        self._order = self._taker.order = order
        self._taker.place = place
        self.policy.configure(order.rules)
        self._schedule.configure(order.interval_s, self._clock.monotonic(), self._clock.now())
        self._last = self._said = None
        self._wake.set()

    async def pause(self, paused: bool) -> None:
        """Start no window any more, or again; survives a restart."""
        self.policy.paused = paused
        event(log, logging.INFO, "sampling paused" if paused else "sampling resumed")
        self._last = self._said = None
        await self._save()
        self._wake.set()
        self._polled.publish()

    async def attempt(self, *, deep: bool = False, stepped: bool = False) -> Start | Skip:
        """Start one window now if the policy allows; it goes on by itself."""
        if self._deciding.locked():
            return Skip(SkipReason.RUNNING, "another window is being prepared")
        async with self._deciding:
            found = await self._decide(deep=deep, stepped=stepped)
            if isinstance(found, Skip):
                self._skip(found)
            else:
                self._last = self._said = None
                self.policy.began(found.start, self._clock.monotonic())
                self._window = asyncio.get_running_loop().create_task(self._take(found))
        self._polled.publish()
        return found if isinstance(found, Skip) else found.start

    def took(self, name: str, outcome: WindowOutcome, detail: str, results: Sequence[WindowResult]) -> None:
        """Hear how a window out of the spool went, if it is one of ours."""
        job = self._awaited.pop(name, None)
        if job is None:
            return
        self._judge(job, outcome, detail)
        if job.start.mode == COUNTERS and job.start.set == LIGHT:
            gfx = {device.id: device.gfx for device in job.devices}
            for result in results:
                if (device := result.device) is not None:
                    values = named(counter_gauges(result, gfx.get(device)))
                    left = (*self._baselines.take(device, values), *beyond(values, self._order.healthy))
                    self._left[device] = tuple(dict.fromkeys(left))
        task = asyncio.get_running_loop().create_task(self._save())
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)

    async def run(self) -> None:
        """Take windows at their slots for ever."""
        await self._restore()
        assessed = False
        while True:
            self._wake.clear()
            if self._window and self._window.done() and not self._window.cancelled():
                self._window.result()  # a fault of ours is not to be lost with its task
            if not self.active:
                await self._wake.wait()
                continue
            gpus = self._gpus()
            if gpus and not assessed:
                assessed = True
                await self._assess()
            await self._slot(gpus)
            left = min(self._schedule.due, self._schedule.deep_due) - self._clock.monotonic()
            look_s = _LOOK_EVERY_S if assessed else _FIRST_LOOK_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), min(max(left, 0.01), look_s))

    async def stop(self) -> None:
        """End what runs."""
        if self._window and not self._window.done():
            await self._taker.interrupt(self._window, attached=self._order.rules.preset == "attach")
        await self._taker.runner.stop()

    # --- deciding -------------------------------------------------------------------------------------

    async def _slot(self, gpus: tuple[GpuFacts, ...]) -> None:
        """Use the slot that is due, if any."""
        schedule, mono, wall = self._schedule, self._clock.monotonic(), self._clock.now()
        was_due = schedule.due <= mono
        stepped = schedule.stepped(mono, wall)
        if was_due:
            if not stepped:
                schedule.passed(mono, wall)
            await self.attempt(stepped=stepped)
        elif schedule.deep_due <= mono:
            schedule.deep_passed()
            if self.policy.wants_deep(Facts(gpus)):
                await self.attempt(deep=True)
        if self._window and not self._window.done():
            await asyncio.wait({self._window})
        due = min(schedule.due, schedule.deep_due)
        idle = not self.policy.running and due - self._clock.monotonic() > _IDLE_S
        if self._taker.runner.pid and idle and not self._deciding.locked():
            # An idle child would only hold memory; one that answers whoever asks for a window is not idle.
            async with self._deciding:
                await self._taker.runner.stop()

    async def _decide(self, *, deep: bool, stepped: bool = False, unpaid: bool = False) -> Job | Skip:
        """Ask the cheap questions first: nothing is started to learn that nothing may be started.

        ``unpaid`` leaves the budget out: what is left is whether there could be a window at all.
        """
        mono, devices = self._clock.monotonic, self._polled.present()
        node = Facts(self._gpus(), self._taker.rocm, obstacle=self._obstacle())
        first = self.policy.decide(node, mono(), deep=deep, stepped=stepped, unpaid=unpaid)
        if isinstance(first, Skip):
            return first
        try:
            seen = await self._taker.look()
        except (SourceError, OSError) as e:  # OSError: no process can be started here just now
            return Skip(SkipReason.NO_PROFILER, str(e))
        node = replace(node, rocm=self._taker.rocm)
        preset, allow = self._order.rules.preset, self._order.allow
        facts, target = self._targets.facts(node, seen, preset, allow, devices)
        start = self.policy.decide(facts, mono(), deep=deep, unpaid=unpaid)
        if isinstance(start, Skip):
            return start
        job = self._taker.prepare(start, [d for d in devices if d.id in start.devices], target)
        if isinstance(job, Job):
            return replace(job, first=target is not None and self._targets.is_new(target))
        if target is not None and job.reason is SkipReason.NOT_ATTACHABLE:
            self._targets.set_aside(target)
        return job

    def _gpus(self) -> tuple[GpuFacts, ...]:
        polled = self._polled
        found = self._standing.look(polled.present(), polled.slots(), self._clock.monotonic())
        return tuple(replace(gpu, left=self._left.get(gpu.device, ())) for gpu in found)

    def _obstacle(self) -> tuple[SkipReason, str] | None:
        if self._order.rules.preset == "counters" and not self._order.device_counting:
            way = "to try it, set windows.device_counting: true on a node that may fail"
            return SkipReason.NOT_ENABLED, f"device counting never ran on hardware; {way}"
        return None

    async def _assess(self) -> None:
        """Say what stands in the way before the first slot finds out; there is no budget yet."""
        async with self._deciding:
            found = await self._decide(deep=False, unpaid=True)
        if isinstance(found, Skip):
            self._say(found)
        self._polled.publish()

    def _skip(self, skip: Skip) -> None:
        self._skipped[skip.reason] += 1
        self._say(skip)

    def _say(self, skip: Skip) -> None:
        self._last = skip
        if skip.reason is not self._said and skip.reason not in PASSING:
            event(log, logging.WARNING, "no window is started", reason=skip.reason, detail=skip.detail)
        self._said = skip.reason

    # --- taking ---------------------------------------------------------------------------------------

    async def _take(self, job: Job) -> None:
        """Run one window to its end, and hear what its runner says."""
        if job.target:
            self._targets.used(job.target)
        self._awaited[job.id] = job  # the feed may be quicker than we are
        taken = Taken(WindowOutcome.CRASH, "interrupted")
        try:
            taken = await self._taker.take(job)
        finally:
            self.policy.ended(self._clock.monotonic())
        self._spent[job.start.mode] += taken.seconds
        if taken.changed:
            reason = f"a window changed {', '.join(taken.changed)}"
            self.policy.breaker.trip(reason, self._clock.monotonic())
            event(log, logging.ERROR, "a limiter is not as it was before a window", detail=reason)
        if taken.outcome is not WindowOutcome.OK:
            self._awaited.pop(job.id, None)
            self._judge(job, taken.outcome, taken.detail)
            self._polled.failed(job.window, taken.outcome, taken.detail)
        await self._save()
        self._polled.publish()

    def _judge(self, job: Job, outcome: WindowOutcome, detail: str) -> None:
        breaker = self.policy.breaker
        before = breaker.state
        breaker.took(outcome, detail, self._clock.monotonic())
        if job.target and outcome is WindowOutcome.NOT_ATTACHABLE:
            self._targets.set_aside(job.target)
        if outcome not in GOOD:
            event(log, logging.WARNING, "window failed", window=job.id, outcome=outcome, detail=detail)
        if breaker.state is not before:
            level = logging.ERROR if breaker.state is BreakerState.OPEN else logging.INFO
            event(log, level, f"the breaker for windows is {breaker.state}", reason=breaker.reason)

    # --- restarts -------------------------------------------------------------------------------------

    async def _restore(self) -> None:
        kept = await self._keeper.state(STATE_KEY)
        if self.active:
            await self._taker.sweep()
        if kept is None:
            return
        try:
            self._baselines.restore(kept["baselines"])
            self._targets.restore(kept["targets"])
            self.policy.restore(kept["policy"], self._clock.monotonic(), self._clock.now())
        except (KeyError, ValueError, TypeError) as e:
            event(log, logging.WARNING, "what was kept of sampling cannot be read; it starts anew", detail=e)

    async def _save(self) -> None:
        kept = {
            "policy": self.policy.dump(self._clock.monotonic(), self._clock.now()),
            "targets": self._targets.dump(),
            "baselines": self._baselines.dump(),
        }
        await self._keeper.set_state(STATE_KEY, kept)
