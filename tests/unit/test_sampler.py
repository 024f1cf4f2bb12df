"""The sampler with a real runner child, a clock of its own, and a toolbox that plans small scripts."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from exporter.child import Child
from exporter.host import Clock
from exporter.model import Device, DeviceId, Outcome, Series, Slot, Window, WindowOutcome
from exporter.profilers.plan import Plan, Refusal, Request, Tool
from exporter.windows.order import Memory, Order, Place
from exporter.windows.policy import Rules, Skip, SkipReason, Start
from exporter.windows.sampler import Sampler
from exporter.windows.taker import Taker

A, B = DeviceId("0000:03:00.0"), DeviceId("0000:26:00.0")
DEVICES = (
    Device(A, 0, gfx="gfx942", kfd_gpu_id=11, indices={"kfd": 4, "drm": 1}),
    Device(B, 1, gfx="gfx942", kfd_gpu_id=22, indices={"kfd": 5, "drm": 2}),
)
GOOD = "echo Kind > out/1_kernel_trace.csv"


class Hand(Clock):
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.mono, self.wall = 100_000.0, 1_760_000_000.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def pass_(self, seconds: float, step: float = 0.0) -> None:
        self.mono += seconds
        self.wall += seconds + step


@dataclass
class Tools:
    """Plans a shell script for whatever is asked."""

    script: str = GOOD
    refusal: Refusal | None = None
    asked: list[Request] = field(default_factory=list)
    seconds: float = 0.2

    def plan(self, request: Request, _tools: Sequence[Tool], _scratch: str, /) -> Plan | Refusal:
        self.asked.append(request)
        if self.refusal:
            return self.refusal
        return Plan("rocprofv3", "7.2", ("/bin/sh", "-c", self.script), self.seconds, 0.5)

    def sets(self, gfx: str, deep: bool, /) -> Sequence[tuple[str, ...]]:
        assert gfx == "gfx942"
        return (("FETCH_SIZE",), ("WRITE_SIZE",)) if deep else (("SQ_WAVES", "TCC_HIT_sum"),)


@dataclass
class Node:
    """What the sampler sees of the collector, and what it told it."""

    devices: tuple[Device, ...] = DEVICES
    values: dict[Series, float] = field(default_factory=dict)
    lost: list[tuple[Window, WindowOutcome, str]] = field(default_factory=list)
    published: int = 0

    def present(self) -> list[Device]:
        return list(self.devices)

    def slots(self) -> Sequence[Slot]:
        outcome = Outcome("sysfs", True, None, "", 0, 0, 0)
        return (Slot(outcome, tuple(self.values), tuple(self.values.values())),)

    def publish(self) -> None:
        self.published += 1

    def failed(self, window: Window, outcome: WindowOutcome, detail: str) -> None:
        self.lost.append((window, outcome, detail))


class Bench:
    """A sampler and everything around it."""

    def __init__(self, root: Path, preset: str = "counters", **more: Any) -> None:
        self.spool = root / "spool"
        self.spool.mkdir(exist_ok=True)
        self.clock, self.tools, self.node = Hand(), Tools(), Node()
        self.keeper = more.pop("keeper", None) or Memory()
        self.procfs, self.sysfs = root / "proc", root / "sys"
        paths = {"procfs": str(self.procfs), "sysfs": str(self.sysfs)}
        self.runner = Child("runner", "exporter.windows.runner", paths)
        rules = Rules(preset=preset, window_s=0.2, duty_ratio=0.01, **more.pop("rules", {}))
        self.order = Order(rules, device_counting=True, **more)
        self.place = Place("node-1", "boot-1", str(self.spool), str(root / "window.lock"), str(self.sysfs))
        taker = Taker(self.order, self.place, self.clock, self.runner, self.tools)
        self.sampler = Sampler(taker, self.clock, self.keeper, self.node)
        self.clock.pass_(1_000)  # the budget's first window is saved up
        self.sampler._schedule.passed(self.clock.mono, self.clock.wall)

    async def window(self, **how: bool) -> Start | Skip:
        """Try to take one and wait for its end."""
        found = await self.sampler.attempt(**how)
        if self.sampler._window:
            await self.sampler._window
        return found

    async def good_window(self) -> str:
        """Take one that its reducer finds good; gives its name."""
        found = await self.window()
        assert isinstance(found, Start), found
        [folder] = self.delivered()
        self.sampler.took(folder.name, WindowOutcome.OK, "", ())
        for file in sorted(folder.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        folder.rmdir()
        return folder.name

    def delivered(self) -> list[Path]:
        return sorted((self.spool / str(os.geteuid())).glob("*"))

    def skipped(self) -> dict[str, int]:
        status: dict[str, int] = self.sampler.status()["skipped"]
        return status


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def make(*args: Any, **more: Any) -> Bench:
        return Bench(tmp_path, *args, **more)

    return make


def run(work: Coroutine[Any, Any, None], *benches: Bench) -> None:
    async def whole() -> None:
        try:
            await work
        finally:
            for one in benches:
                await one.sampler.stop()

    asyncio.run(whole())


def process(
    one: Bench, pid: int, *, name: str, start: int = 500, gpus: tuple[int, ...] = (11,), **more: Any
) -> None:
    """A process as procfs and the compute driver show it."""
    (one.procfs / "2").mkdir(parents=True, exist_ok=True)
    (one.procfs / "2" / "comm").write_text("kthreadd\n")
    (one.procfs / "uptime").write_text("10000.00 1.0\n")
    (one.procfs / "self" / "ns").mkdir(parents=True, exist_ok=True)
    if not (one.procfs / "self" / "ns" / "mnt").is_symlink():
        (one.procfs / "self" / "ns" / "mnt").symlink_to("mnt:[1]")
    own = one.procfs / str(pid)
    (own / "ns").mkdir(parents=True)
    (own / "stat").write_text(f"{pid} ({name}) S 1 " + "0 " * 15 + f"1 0 {start} 0 0\n")
    (own / "status").write_text("Uid:\t1000\t1000\t1000\t1000\n")
    (own / "comm").write_text(f"{name}\n")
    (own / "maps").write_text(
        "".join(f"7f00-7f01 r-xp 0 0:0 1 /opt/rocm/lib/{lib}\n" for lib in more.get("maps", ()))
    )
    (own / "ns" / "mnt").symlink_to(more.get("mnt", "mnt:[1]"))
    for n, thread in enumerate((name, *more.get("threads", ()))):
        (own / "task" / str(pid + n)).mkdir(parents=True)
        (own / "task" / str(pid + n) / "comm").write_text(f"{thread[:15]}\n")
    for gpu in gpus:
        queue = one.sysfs / "class/kfd/kfd/proc" / str(pid) / "queues" / str(gpu)
        queue.mkdir(parents=True)
        (queue / "gpuid").write_text(f"{gpu}\n")


# --- a window on its way --------------------------------------------------------------------------------


def test_a_window_is_taken_and_lies_in_the_spool_with_its_manifest(bench: Callable[..., Bench]) -> None:
    one = bench()

    async def work() -> None:
        assert one.sampler.state == "ready"
        started = await one.sampler.attempt()
        assert isinstance(started, Start)
        assert (started.mode, started.set, started.devices) == ("counters", "light", (A, B))
        assert one.sampler.state == "sampling"
        assert (await one.sampler.attempt()) == Skip(SkipReason.RUNNING, "another window runs on this node")
        await one.sampler._window  # type: ignore[misc]
        assert one.sampler.state == "ready"

    run(work(), one)
    [folder] = one.delivered()
    assert (folder / "out" / "1_kernel_trace.csv").read_text() == "Kind\n"
    manifest = json.loads((folder / "manifest.json").read_text())
    low, high = manifest.pop("runner_bounds_ns")
    assert 0 < low < high
    assert manifest == {
        "version": 1,
        "id": folder.name,
        "tool": "rocprofv3",
        "mode": "counters",
        "node": "node-1",
        "agents": {"Agent 4": A.pci, "Agent 5": B.pci, "gpu_id 11": A.pci, "gpu_id 22": B.pci},
        "boot_id": "boot-1",
        "preset": "counters",
        "set": "light",
        "run": "@boot-1",
        "first": False,
    }
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert one.tools.asked == [Request("counters", 0.2, DEVICES, ("SQ_WAVES", "TCC_HIT_sum"), every_gpu=True)]
    assert not list(one.spool.glob(".window-*"))


@pytest.mark.parametrize("preset", ["off", "spool"])
def test_a_preset_that_starts_nothing_starts_no_child_either(
    bench: Callable[..., Bench], preset: str
) -> None:
    one = bench(preset)

    async def work() -> None:
        found = await one.window()
        assert isinstance(found, Skip)
        assert found.reason is SkipReason.OFF

    run(work(), one)
    assert (one.sampler.state, one.runner.starts, one.tools.asked) == ("off", 0, [])
    assert one.sampler.readings() == ()


def test_counters_are_refused_until_they_are_enabled_by_name(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.sampler.configure(replace(one.order, device_counting=False), one.place)

    async def work() -> None:
        found = await one.window()
        assert isinstance(found, Skip)
        assert found.reason is SkipReason.NOT_ENABLED
        assert "never ran on hardware" in found.detail
        assert "windows.device_counting: true" in found.detail

    run(work(), one)
    assert (one.sampler.state, one.runner.starts) == ("blocked", 0)


def test_a_crash_trips_the_breaker_and_a_restart_does_not_forget(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.tools.script = "kill -SEGV $$"

    async def work() -> None:
        assert isinstance(await one.window(), Start)

    run(work(), one)
    assert one.sampler.state == "tripped"
    [(window, outcome, detail)] = one.node.lost
    assert (outcome, window.mode, set(window.agents.values())) == (WindowOutcome.CRASH, "counters", {A, B})
    assert "SIGSEGV" in detail
    again = bench(keeper=one.keeper)

    async def after() -> None:
        await again.sampler._restore()
        found = await again.window()
        assert isinstance(found, Skip)
        assert found.reason is SkipReason.TRIPPED
        again.clock.pass_(901)
        assert isinstance(await again.window(), Start)
        assert again.sampler.state == "ready"  # on trial: the next one decides

    run(after(), again)
    assert again.skipped() == {"tripped": 1}


def test_three_windows_that_cannot_be_read_trip_the_breaker_too(bench: Callable[..., Bench]) -> None:
    one = bench()

    async def work() -> None:
        for n in range(3):
            assert one.sampler.state == "ready", n
            assert isinstance(await one.window(), Start)
            folder = one.delivered()[-1]
            one.sampler.took(folder.name, WindowOutcome.MALFORMED, "no rows", ())
            one.clock.pass_(1_000)

    run(work(), one)
    assert one.sampler.state == "tripped"
    assert "no rows" in one.sampler.status()["breaker"]["reason"]


def test_a_window_of_somebody_else_in_the_spool_is_none_of_its_business(bench: Callable[..., Bench]) -> None:
    one = bench()
    for _ in range(5):
        one.sampler.took("a-job", WindowOutcome.CRASH, "", ())
    assert one.sampler.state == "ready"


def test_a_profiler_that_is_not_there_blocks_and_says_so_once(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    one = bench()
    one.tools.refusal = Refusal(WindowOutcome.BLOCKED, "no_profiler", "install rocprofv3")

    async def work() -> None:
        with caplog.at_level(logging.INFO, "exporter"):
            for _ in range(3):
                await one.window()
            one.tools.refusal = None
            one.clock.pass_(1_000)
            assert isinstance(await one.window(), Start)
            one.tools.refusal = Refusal(WindowOutcome.BLOCKED, "no_profiler", "install rocprofv3")
            one.clock.pass_(1_000)
            await one.window()

    run(work(), one)
    assert one.sampler.state == "blocked"
    assert one.skipped() == {"no_profiler": 4}
    said = [r for r in caplog.records if r.getMessage() == "no window is started"]
    assert len(said) == 2
    assert one.sampler.status()["detail"] == "install rocprofv3"


def test_a_pause_holds_over_a_restart_and_a_resume_ends_it(bench: Callable[..., Bench]) -> None:
    one = bench()

    async def work() -> None:
        await one.sampler.pause(True)
        assert one.sampler.state == "blocked"
        again = bench(keeper=one.keeper)
        await again.sampler._restore()
        found = await again.window()
        assert isinstance(found, Skip)
        assert found.reason is SkipReason.PAUSED
        await again.sampler.pause(False)
        again.clock.pass_(1_000)
        assert isinstance(await again.window(), Start)
        await again.sampler.stop()

    run(work(), one)


def test_a_changed_limiter_trips_the_breaker(bench: Callable[..., Bench]) -> None:
    one = bench()
    card = one.sysfs / "class/drm/card2/device/ptl"
    card.mkdir(parents=True)
    (card / "ptl_enable").write_text("1")
    one.tools.script = f"{GOOD}; echo 0 > {card}/ptl_enable"

    async def work() -> None:
        await one.window()

    run(work(), one)
    assert one.sampler.state == "tripped"
    assert "ptl_enable" in one.sampler.status()["breaker"]["reason"]
    assert len(one.delivered()) == 1  # the window itself is good


def test_state_that_cannot_be_read_is_said_and_forgotten(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    one = bench()

    async def work() -> None:
        await one.keeper.set_state("sampling", {"policy": 3, "targets": {}, "baselines": []})
        await one.sampler._restore()
        assert isinstance(await one.window(), Start)

    with caplog.at_level(logging.WARNING, "exporter"):
        run(work(), one)
    assert "it starts anew" in caplog.text


def test_stopping_ends_a_window_that_runs_and_nothing_outlives_it(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    one = bench()
    note = tmp_path / "pid"
    one.tools.script = (
        f"trap '' TERM; echo $$ > {note}; trap 'echo asked > {note}.asked; exit 0' INT; sleep 60 & wait"
    )
    one.tools.seconds = 60.0

    async def work() -> None:
        await one.sampler.attempt()
        for _ in range(500):
            if note.exists() and note.read_text().strip():
                break
            await asyncio.sleep(0.02)
        began = time.monotonic()
        await one.sampler.stop()
        assert time.monotonic() - began < 6
        await one.sampler._window  # type: ignore[misc]

    run(work(), one)
    assert (tmp_path / "pid.asked").exists(), "a profiler is asked to let go first"
    assert not psutil.pid_exists(int(note.read_text()))
    assert not list(one.spool.glob(".window-*"))


# --- the loop -------------------------------------------------------------------------------------------


def test_the_loop_takes_a_window_at_each_slot_and_none_between(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench(interval_s=300.0)
    monkeypatch.setattr("exporter.windows.sampler._LOOK_EVERY_S", 0.01)

    async def until(true: Callable[[], bool]) -> None:
        for _ in range(1_000):
            if true():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it did not come to that")

    async def work() -> None:
        loop = asyncio.create_task(one.sampler.run())
        await until(lambda: one.node.published > 0)
        for n in range(1, 4):
            one.clock.pass_(one.sampler._schedule.due - one.clock.mono - 0.5)
            await asyncio.sleep(0.1)
            assert len(one.delivered()) == n - 1
            one.clock.pass_(0.6)
            await until(lambda n=n: len(one.delivered()) == n)  # type: ignore[misc]
        # Two hours ahead at once: that slot is given up, the next is taken.
        one.clock.pass_(one.sampler._schedule.due - one.clock.mono + 0.1, step=7_200)
        await until(lambda: one.skipped().get("clock_stepped") == 1)
        one.clock.pass_(one.sampler._schedule.due - one.clock.mono + 0.1)
        await until(lambda: len(one.delivered()) == 4)
        loop.cancel()

    run(work(), one)
    assert one.skipped() == {"clock_stepped": 1}


def test_who_asks_for_a_window_does_not_lose_its_child_to_the_end_of_a_slot(
    bench: Callable[..., Bench],
) -> None:
    one = bench(interval_s=86_400.0)

    async def work() -> None:
        await one.good_window()
        one.clock.pass_(1_000)
        asked = asyncio.get_running_loop().create_task(one.sampler.attempt())
        await asyncio.sleep(0)
        assert one.sampler._deciding.locked()
        # The loop looks round and finds nothing to do; the child is idle, but for what was asked.
        await one.sampler._slot(one.sampler._gpus())
        assert isinstance(await asked, Start)

    run(work(), one)


def test_what_stands_in_the_way_is_known_before_the_first_slot(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.tools.refusal = Refusal(WindowOutcome.BLOCKED, "no_profiler", "install rocprofv3")

    async def work() -> None:
        loop = asyncio.create_task(one.sampler.run())
        for _ in range(500):
            if one.sampler.state == "blocked":
                break
            await asyncio.sleep(0.02)
        loop.cancel()

    run(work(), one)
    assert one.sampler.state == "blocked"
    assert one.skipped() == {}


# --- processes ------------------------------------------------------------------------------------------


def test_a_profiler_of_somebody_else_is_seen_in_the_maps(bench: Callable[..., Bench]) -> None:
    one = bench()
    process(one, 700, name="python3", maps=("librocprofiler-sdk-tool.so.1.0",))

    async def work() -> None:
        found = await one.window()
        assert isinstance(found, Skip)
        assert found.reason is SkipReason.OTHER_PROFILER
        assert "process 700 (python3)" in found.detail

    run(work(), one)
    assert one.sampler.state == "blocked"


def test_a_gpu_with_a_young_process_is_left_out(bench: Callable[..., Bench]) -> None:
    one = bench()
    ticks = os.sysconf("SC_CLK_TCK")
    process(one, 700, name="new", start=int((10_000 - 60) * ticks), gpus=(22,))

    async def work() -> None:
        found = await one.window()
        assert isinstance(found, Start)
        assert (found.devices, found.left_out) == ((A,), {B: SkipReason.YOUNG_PROCESS})

    run(work(), one)


def test_attach_aims_at_prepared_listed_processes_in_turn(bench: Callable[..., Bench]) -> None:
    one = bench("attach", allow=("vllm*",))
    ready = {"name": "vllm-worker", "threads": ("rocp-bg-attach",)}
    process(one, 700, gpus=(11,), **ready)
    process(one, 701, gpus=(22,), **ready)
    process(one, 702, name="trainer", threads=("rocp-bg-attach",))
    process(one, 703, name="vllm-api")

    async def work() -> None:
        for _ in range(3):
            await one.good_window()
            one.clock.pass_(1_000)

    run(work(), one)
    assert [(r.mode, r.pid, [d.id for d in r.devices]) for r in one.tools.asked] == [
        ("trace", 700, [A]),
        ("trace", 701, [B]),
        ("trace", 700, [A]),
    ]


@pytest.mark.parametrize(
    ("made", "reason", "words"),
    [
        ({"name": "trainer", "threads": ("rocp-bg-attach",)}, SkipReason.NOT_OPTED_IN, "windows.allow"),
        ({"name": "vllm"}, SkipReason.NOT_ATTACHABLE, "ROCP_TOOL_ATTACH=1"),
        (
            {"name": "vllm", "threads": ("rocp-bg-attach",), "mnt": "mnt:[2]"},
            SkipReason.NOT_ATTACHABLE,
            "other files",
        ),
    ],
)
def test_a_process_that_cannot_be_attached_to_is_left_alone_with_the_reason(
    bench: Callable[..., Bench], made: dict[str, Any], reason: SkipReason, words: str
) -> None:
    one = bench("attach", allow=("vllm",))
    process(one, 700, **made)

    async def work() -> None:
        found = await one.window()
        assert isinstance(found, Skip)
        assert found.reason is reason
        assert words in found.detail

    run(work(), one)


def test_a_target_that_could_not_be_attached_to_is_not_tried_again_even_after_a_restart(
    bench: Callable[..., Bench],
) -> None:
    one = bench("attach", allow=("vllm",))
    process(one, 700, name="vllm", threads=("rocp-bg-attach",))
    one.tools.script = "exit 0"  # success, and no file

    async def first() -> None:
        assert isinstance(await one.window(), Start)

    run(first(), one)
    assert [outcome for _, outcome, _ in one.node.lost] == [WindowOutcome.NOT_ATTACHABLE]
    again = Bench(one.spool.parent, "attach", keeper=one.keeper, allow=("vllm",))

    async def second() -> None:
        await again.sampler._restore()
        again.clock.pass_(1_000)
        found = await again.window()
        assert isinstance(found, Skip)
        assert found.reason is SkipReason.NOT_ATTACHABLE
        assert "left alone" in found.detail

    run(second(), again)


def test_collectives_on_five_gpus_are_not_traced(bench: Callable[..., Bench]) -> None:
    one = bench("attach", allow=("train",))
    ids = range(11, 16)
    one.node.devices = tuple(
        Device(DeviceId(f"0000:{n:02x}:00.0"), n, gfx="gfx942", kfd_gpu_id=i) for n, i in enumerate(ids)
    )
    for n, i in enumerate(ids):
        process(one, 700 + n, name="train", gpus=(i,), maps=("librccl.so.1",), threads=("rocp-bg-attach",))

    async def work() -> None:
        found = await one.window()
        assert isinstance(found, Skip)
        assert found.reason is SkipReason.COLLECTIVES

    run(work(), one)


def test_a_procfs_of_another_namespace_names_nobody(bench: Callable[..., Bench]) -> None:
    one = bench()
    process(one, 700, name="python3", maps=("librocprofiler-sdk-tool.so",))
    (one.procfs / "2" / "comm").write_text("bash\n")

    async def work() -> None:
        assert isinstance(await one.window(), Start)

    run(work(), one)


def test_deep_sets_come_in_turn_however_many_light_ones_come_between(bench: Callable[..., Bench]) -> None:
    one = bench()
    for kind in ("deep", "light", "deep", "light", "light", "deep"):
        one.sampler._taker.prepare(Start("counters", kind, (A, B), {}), DEVICES, None)
    asked = [request.counters for request in one.tools.asked]
    assert [asked[0], asked[2], asked[5]] == [("FETCH_SIZE",), ("WRITE_SIZE",), ("FETCH_SIZE",)]
