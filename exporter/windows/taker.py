"""Makes one window: the request as one profiler would take it, its run in the runner child, its delivery."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from exporter.child import Child
from exporter.host import Clock
from exporter.model import Device, SourceError, Window, WindowOutcome
from exporter.profilers.plan import Plan, Refusal, Request, Tool
from exporter.windows import delivery, seen
from exporter.windows.agents import label
from exporter.windows.order import Order, Place
from exporter.windows.policy import COUNTERS, DEEP, LIGHT, Skip, SkipReason, Start
from exporter.windows.seen import Seen

_LOOK_S, _PROBE_S = 30.0, 60.0
_LADDER_S = 30.0  # what ending a profiler may take beyond its deadline, before its runner is given up
_STOP_S, _DETACH_S = 6.0, 20.0
_TOOLS_KEPT_S = 3_600.0


class Toolbox(Protocol):
    """How the profilers of this machine would take a window."""

    def plan(self, request: Request, tools: Sequence[Tool], scratch: str, /) -> Plan | Refusal: ...

    def sets(self, gfx: str, deep: bool, /) -> Sequence[tuple[str, ...]]:
        """The single-pass counter sets of a chip, to be taken in turn."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """One window on its way. ``first`` is the first of a process that has more, which is its warm-up."""

    id: str
    start: Start
    plan: Plan
    devices: tuple[Device, ...]
    target: Seen | None = None
    first: bool = False

    @property
    def window(self) -> Window:
        """The window as it is counted where it gave nothing."""
        agents = {label(d.id): d.id for d in self.devices}
        return Window(self.id, self.plan.tool, self.start.mode, None, agents)


@dataclass(frozen=True, slots=True)
class Taken:
    """How a window went as far as its runner can tell; ``changed`` are limiters that it left otherwise."""

    outcome: WindowOutcome
    detail: str
    seconds: float = 0.0
    changed: tuple[str, ...] = ()


class Taker:
    """Owns the runner child and what is known of the profilers here."""

    def __init__(self, order: Order, place: Place, clock: Clock, runner: Child, toolbox: Toolbox) -> None:
        self.order, self.place = order, place
        self.rocm: str | None = None
        self.runner = runner
        self._clock, self._toolbox = clock, toolbox
        self._tools: tuple[Tool, ...] | None = None
        self._tools_until = 0.0
        self._turns = {LIGHT: 0, DEEP: 0}  # each takes its sets in turn, however the other comes between

    async def look(self) -> list[Seen]:
        """The processes on the GPUs, and now and then the profilers. Errors: SourceError."""
        answer = await self.runner.request({"op": "look"}, _LOOK_S)
        self.rocm = answer.get("rocm")
        if self._tools is None or self._clock.monotonic() >= self._tools_until:
            probed = await self.runner.request({"op": "probe", "mode": self.order.rules.mode}, _PROBE_S)
            self._tools = tuple(map(delivery.tool_of, probed["tools"]))
            self._tools_until = self._clock.monotonic() + _TOOLS_KEPT_S
        return seen.from_json(answer["seen"])

    def prepare(self, start: Start, devices: Sequence[Device], target: Seen | None) -> Job | Skip:
        """The window as one profiler would take it, or why none would."""
        counters: tuple[str, ...] = ()
        every_gpu = False
        if start.mode == COUNTERS:
            # One set is of one kind of chip: on a mixed node each has its turn.
            kinds = sorted({device.gfx or "" for device in devices})
            turn = self._turns[start.set]
            self._turns[start.set] += 1
            gfx = kinds[turn % len(kinds)]
            sets = self._toolbox.sets(gfx, start.set == DEEP)
            if not sets:
                return Skip(SkipReason.NO_PROFILER, f"no counter set for {gfx or 'a chip without a name'}")
            every_gpu = len(kinds) == 1 and start.set == LIGHT and not start.left_out
            devices = [device for device in devices if (device.gfx or "") == gfx]
            counters = tuple(sets[turn // len(kinds) % len(sets)])
        request = Request(
            start.mode,
            self.order.rules.window_s if self.order.window_s is None else self.order.window_s,
            tuple(devices),
            counters,
            self.order.command if self.order.rules.preset == "canary" else (),
            target.pid if target else None,
            every_gpu,
        )
        window = delivery.name(start.set if start.mode == COUNTERS else start.mode, self._clock.now())
        scratch = delivery.scratch(Path(self.place.spool), window)
        plan = self._toolbox.plan(request, self._tools or (), str(scratch))
        if isinstance(plan, Refusal):
            if plan.outcome is WindowOutcome.NOT_ATTACHABLE:
                return Skip(SkipReason.NOT_ATTACHABLE, plan.detail)
            self._tools = None  # one that is installed meanwhile is found at the next slot
            return Skip(SkipReason.NO_PROFILER, plan.detail)
        start = start._replace(devices=tuple(device.id for device in devices))
        return Job(window, start, plan, tuple(devices), target)

    async def take(self, job: Job) -> Taken:
        """Run it to its end, whatever that is; a window that gave files lies in the spool afterwards."""
        plan, counters = job.plan, job.start.mode == COUNTERS
        grace_s = self.order.grace_s
        deadline_s = plan.seconds + (plan.grace_s if grace_s is None else grace_s)
        request = {
            "op": "run",
            "plan": plan.as_json(),
            "scratch": str(delivery.scratch(Path(self.place.spool), job.id)),
            "bytes": self.order.max_bytes,
            "deadline_s": deadline_s,
            "lock": self.place.lock,
            "target": job.target.pid if job.target else None,
            "owner": job.target.user if job.target else None,
            "watch": delivery.limiters(self.place.sysfs, job.devices) if counters else [],
        }
        taken = Taken(WindowOutcome.BLOCKED, "")
        # An attached process may have written after its window was given up and cleared away.
        await self.sweep()
        try:
            answer = await self.runner.request(request, deadline_s + _LADDER_S)
            taken = Taken(
                WindowOutcome(answer["outcome"]),
                answer["detail"],
                answer["seconds"],
                tuple(answer["changed"]),
            )
            if taken.outcome is WindowOutcome.OK:
                manifest = self._manifest(job, answer["bounds_ns"])
                await asyncio.to_thread(delivery.deliver, Path(self.place.spool), job.id, manifest)
        except SourceError as e:
            return Taken(delivery.outcome_of(e.reason), str(e))
        except OSError as e:
            return replace(taken, outcome=WindowOutcome.DENIED, detail=f"{e.filename}: {e.strerror}")
        return taken

    async def sweep(self) -> None:
        """Remove what a daemon or a window before us left half made."""
        await asyncio.to_thread(delivery.sweep, Path(self.place.spool))

    async def interrupt(self, window: asyncio.Task[None], *, attached: bool) -> None:
        """End the window that runs, in time for it to let go of what it profiles."""
        if self.runner.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.runner.pid, signal.SIGTERM)
            await asyncio.wait({window}, timeout=_DETACH_S if attached else _STOP_S)

    def _manifest(self, job: Job, bounds_ns: list[int]) -> dict[str, Any]:
        made = delivery.manifest(job.id, job.plan.tool, job.start.mode, self.place.node, job.devices)
        made |= {"boot_id": self.place.boot_id, "preset": self.order.rules.preset, "set": job.start.set}
        made |= {"runner_bounds_ns": bounds_ns, "run": self._run(job), "first": job.first}
        if job.target:
            made["processes"] = [{"host_pid": job.target.pid, "start": job.target.start}]
        return made

    def _run(self, job: Job) -> str:
        """What a window has in common with others: its process, or what cannot be told apart.

        Counters see whatever runs. Windows of a job that goes on for days are not so many runs of it, so that
        all of one boot count as one.
        """
        if job.target:
            return f"{job.target.pid}:{job.target.start}@{self.place.boot_id}"
        return f"@{self.place.boot_id}" if job.start.mode == COUNTERS else job.id
