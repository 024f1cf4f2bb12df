"""The verb ``sample``: one window now, for a person who asks, under the rules that the daemon keeps to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exporter.checks import analyze, poll
from exporter.child import Child
from exporter.collect import PolledSource
from exporter.config import Config, state_directory
from exporter.history import peek
from exporter.host import Clock
from exporter.model import Device, SourceError, WindowOutcome
from exporter.profilers.toolbox import Toolbox
from exporter.windows.order import Order, Place
from exporter.windows.place import boot_id, node_name, order_of
from exporter.windows.policy import Facts, GpuFacts, Policy, Rules, Skip, SkipReason
from exporter.windows.sampler import STATE_KEY
from exporter.windows.seen import Seen
from exporter.windows.standing import Standing
from exporter.windows.taker import Job, Taker
from exporter.windows.targets import Targets

_GOOD = frozenset({WindowOutcome.OK, WindowOutcome.PARTIAL})


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for: a process, a command, or neither, which is the counters of every GPU."""

    mode: str
    seconds: float
    pid: int | None = None
    command: tuple[str, ...] = ()

    @property
    def preset(self) -> str:
        """The preset whose rules hold for such a window."""
        if self.mode == "counters":
            return "counters"
        return "attach" if self.pid is not None else "canary"


def run(wish: Wish, config: Config, asked: Sequence[PolledSource], as_json: bool) -> int:
    """Take one window and print what it says. 1 where none is taken, or it says nothing."""
    with tempfile.TemporaryDirectory(prefix="amdgpu-exporter-") as folder:
        taken = asyncio.run(_take(wish, config, asked, folder))
        if isinstance(taken, str):
            sys.stderr.write(f"amdgpu-exporter: no window: {taken}\n")
            return 1
        return analyze.run([taken], as_json)


async def _take(wish: Wish, config: Config, asked: Sequence[PolledSource], folder: str) -> Path | str:
    """The folder of the window, or why there is none."""
    clock, order = Clock(), _order(wish, config)
    if wish.mode == "trace" and wish.pid is None and not wish.command:
        return "a trace is of a process (--pid) or of a command (after --)"
    if config.backend == "replay":
        return "a capture is replayed here; there is nothing to sample"
    paths = {"sysfs": config.path.sysfs, "procfs": config.path.procfs}
    runner = Child("runner", "exporter.windows.runner", paths)
    taker = Taker(order, _place(config, folder), clock, runner, Toolbox())
    policy = Policy(order.rules, clock.monotonic())
    _recall(policy, config, clock)
    await poll.ask(asked)
    devices = list(poll.devices(asked).values())
    gpus = Standing().look(devices, poll.fresh(asked), clock.monotonic())
    try:
        found = await _decide(wish, policy, taker, gpus, devices, clock)
        if isinstance(found, Skip):
            return f"{found.reason}: {found.detail}"
        if wish.command:
            # It runs where and as it was typed.
            found = replace(found, plan=replace(found.plan, env=dict(os.environ), cwd=os.getcwd()))
        taken = await taker.take(found)
    except SourceError as e:
        return str(e)
    finally:
        await runner.stop()
    if taken.changed:
        sys.stderr.write(f"amdgpu-exporter: the window changed {', '.join(taken.changed)}; set it back\n")
    if taken.outcome not in _GOOD:
        return f"{taken.outcome}: {taken.detail}"
    return Path(folder) / str(os.geteuid()) / found.id


async def _decide(
    wish: Wish,
    policy: Policy,
    taker: Taker,
    gpus: tuple[GpuFacts, ...],
    devices: Sequence[Device],
    clock: Clock,
) -> Job | Skip:
    node = Facts(gpus)
    if wish.mode == "counters" and not taker.order.device_counting:
        way = "to try it, set windows.device_counting: true on a node that may fail"
        return Skip(SkipReason.NOT_ENABLED, f"device counting never ran on hardware; {way}")
    first = policy.decide(node, clock.monotonic())
    if isinstance(first, Skip):
        return first
    seen = await taker.look()
    targets = Targets()
    # The process that is meant is named by its number, so that its name is allowed.
    meant = [one for one in seen if one.pid == wish.pid]
    if wish.pid is not None and not meant:
        return Skip(SkipReason.NOT_OPTED_IN, f"process {wish.pid} is not seen to use a GPU here")
    facts, target = targets.facts(
        replace(node, rocm=taker.rocm), _without(seen, wish.pid), wish.preset, _names(meant), devices
    )
    start = policy.decide(facts, clock.monotonic())
    if isinstance(start, Skip):
        return start
    return taker.prepare(start, [d for d in devices if d.id in start.devices], target)


def _without(seen: Sequence[Seen], pid: int | None) -> list[Seen]:
    """All processes, but of those that could be meant the one that is."""
    names = {one.name for one in seen if one.pid == pid}
    return [one if one.pid == pid or one.name not in names else replace(one, prepared=False) for one in seen]


def _names(meant: Sequence[Seen]) -> tuple[str, ...]:
    return tuple(one.name.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]") for one in meant)


def _order(wish: Wish, config: Config) -> Order:
    """The daemon's rules, but for the budget: a person asks for one window, not for a share of time."""
    made = order_of(config)
    rules: Rules = replace(made.rules, preset=wish.preset, window_s=0.0)
    return replace(made, rules=rules, command=wish.command, window_s=wish.seconds)


def _place(config: Config, folder: str) -> Place:
    lock = state_directory(config, os.environ) / "window.lock"
    with contextlib.suppress(OSError):
        lock.parent.mkdir(parents=True, exist_ok=True)
    return Place(node_name(os.environ), boot_id(config.path.procfs), folder, str(lock), config.path.sysfs)


def _recall(policy: Policy, config: Config, clock: Clock) -> None:
    """Hold to the daemon's breaker and pause, where its state can be read."""
    kept = peek.state(state_directory(config, os.environ), STATE_KEY)
    if not isinstance(kept, Mapping):
        return
    with contextlib.suppress(KeyError, ValueError, TypeError):
        held: Mapping[str, Any] = kept["policy"]
        policy.breaker.restore(held["breaker"], clock.monotonic(), clock.now())
        policy.paused = held["paused"] is True
