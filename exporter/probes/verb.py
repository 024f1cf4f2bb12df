"""The verb ``probe``: measure the GPUs of this node with one of the vendor's tools, and keep what it says.

The tool runs in the runner child, as profilers do: under a deadline and caps, and nothing of it outlives us.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from exporter.backends.sysfs import SysfsBackend
from exporter.checks import surroundings
from exporter.child import Child
from exporter.config import Config, state_directory
from exporter.host import Clock, Root, belonging
from exporter.model import ConfigError, Device, FormatError, Reason, SourceError, WindowOutcome
from exporter.probes import inuse, plans, show, tools
from exporter.probes.plans import Step, Tool
from exporter.probes.record import Record
from exporter.probes.reduce import Printed, reduce
from exporter.probes.shelf import Shelf
from exporter.windows import seen

_FILES_MOST = 256 << 20
_TEXT_MOST = 16 << 20
_LADDER_S, _END_S, _LOOK_S = 30.0, 8.0, 30.0
_WINDOW_S, _AGAIN_S = 60.0, 0.5
_STDOUT = "stdout.txt"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for; ``seconds`` in place of each call's own deadline."""

    probe: str
    tool: str | None = None
    python: str | None = None
    force: bool = False
    seconds: float | None = None


class NothingError(Exception):
    """Why nothing was measured; one line."""


def run(wish: Wish, config: Config, as_json: bool) -> int:
    """Measure, print, keep. 0 where there are values, 1 where not, with the reason on stderr."""
    if wish.probe not in plans.TOOLS:
        raise ConfigError(f"probe {wish.probe}: expected {', '.join(plans.TOOLS)}")
    try:
        record, devices = _measured(wish, config)
    except NothingError as e:
        _say(f"probe {wish.probe}: {' '.join(str(e).split())}")
        return 1
    before = _before(record, config)
    kept = _keep(record, config)
    if as_json:
        typer.echo(json.dumps({**record.as_json(), "kept": kept}, indent=1, ensure_ascii=False))
    else:
        typer.echo(show.text(record, devices, before), nl=False)
    return 0


def _measured(wish: Wish, config: Config) -> tuple[Record, list[Device]]:
    if config.backend == "replay":
        raise NothingError("a capture is replayed here; there is nothing to measure")
    tool = tools.choose(wish.probe, wish.tool, wish.python, os.environ)
    if tool is None:
        wanted = wish.python or wish.tool or " and no ".join(plans.TOOLS[wish.probe])
        package = plans.PACKAGES[wish.probe]
        raise NothingError(f"there is no {wanted} on PATH or in /opt/rocm/bin; {package}")
    sysfs = Root(config.path.sysfs)
    procfs = belonging(config.path.sysfs, config.path.procfs)
    command = [tool.path] if tool.name == plans.TORCH else []
    devices, environment = surroundings.take(sysfs, Root(procfs), command, os.environ)
    if not devices:
        raise NothingError(f"there is no AMD GPU under {config.path.sysfs}")
    with tempfile.TemporaryDirectory(prefix="amdgpu-exporter-") as folder:
        printed = asyncio.run(_call_all(wish, config, tool, devices, Path(folder)))
    # The runtime counts GPUs inside a CPU too, which a node with others does not list.
    counted = SysfsBackend(sysfs, Root(procfs), show_integrated=True, wanted=lambda *_: False).poll()
    try:
        found = reduce(tool, printed, [device for device, _ in counted], {d.id for d in devices})
    except FormatError as e:
        raise NothingError(f"{tool.path}: {e}{_way_out(str(e))}") from None
    made = (found.version, found.values, found.missing, found.notes, environment)
    return Record(wish.probe, Clock().now(), tool.name, *made), devices


async def _call_all(
    wish: Wish, config: Config, tool: Tool, devices: Sequence[Device], folder: Path
) -> list[Printed]:
    """Every call, one after another. What cannot go on ends it; one GPU's trouble costs only that GPU."""
    steps = plans.steps(wish.probe, tool, devices, os.environ)
    if not steps:
        raise NothingError("the compute driver lists none of the GPUs; is amdgpu loaded with KFD?")
    procfs = belonging(config.path.sysfs, config.path.procfs)
    async with _runner({"sysfs": config.path.sysfs, "procfs": procfs}) as runner:
        if not wish.force:
            answer = await runner.request({"op": "look"}, _LOOK_S)
            sysfs = Root(config.path.sysfs)
            if users := inuse.users(sysfs, devices, seen.from_json(answer["seen"])):
                raise NothingError(
                    f"in use ({'; '.join(users[:4])}); wait, or measure all the same with --force"
                )
        printed: list[Printed] = []
        for number, step in enumerate(steps):
            seconds = wish.seconds or step.seconds
            async with _progress(f"probe {wish.probe}", step, number, len(steps)):
                printed.append(await _call(runner, step, seconds, folder / str(number), _lock(config)))
        return printed


async def _call(runner: Child, step: Step, seconds: float, scratch: Path, lock: str | None) -> Printed:
    plan = {
        "tool": step.argv[0],
        "argv": list(step.argv),
        "env": dict(step.env),
        "seconds": seconds,
        "output": "out",
        "stdout": _STDOUT,
    }
    request = {
        "op": "run",
        "plan": plan,
        "scratch": str(scratch),
        "bytes": _FILES_MOST,
        "output_bytes": _TEXT_MOST,
        "deadline_s": seconds,
        "lock": lock,
    }
    waited = 0.0
    while True:
        try:
            answer = await runner.request(request, seconds + _LADDER_S)
            break
        except SourceError as e:
            # A window of the daemon is over soon.
            if e.reason is not Reason.BUSY or waited >= _WINDOW_S:
                return Printed(step, None, str(e))
            await asyncio.sleep(_AGAIN_S)
            waited += _AGAIN_S
    if answer["outcome"] != WindowOutcome.OK:
        return Printed(step, None, f"{answer['outcome']}: {answer['detail']}{_way_out(answer['detail'])}")
    text = await asyncio.to_thread((scratch / "out" / _STDOUT).read_text, "utf-8", "replace")
    return Printed(step, text, f"ended with code {answer['code']}" if answer["code"] else "")


@contextlib.asynccontextmanager
async def _runner(paths: Mapping[str, Any]) -> AsyncIterator[Child]:
    """The child that runs tools; at the end, also by Ctrl-C, it has the time to end what it started."""
    runner = Child("runner", "exporter.windows.runner", paths)
    try:
        yield runner
    finally:
        await runner.stop(_END_S)


@contextlib.asynccontextmanager
async def _progress(what: str, step: Step, number: int, count: int) -> AsyncIterator[None]:
    """One line on a terminal that is written over; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    gpu = f"GPU {step.device.gpu}, " if step.device else ""

    async def tick() -> None:
        seconds = 0
        while True:
            line = f"{what}: {gpu}{step.key}, {number + 1} of {count}, {seconds} s"
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            await asyncio.sleep(1)
            seconds += 1

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _lock(config: Config) -> str | None:
    """The lock that windows of the daemon hold too, where it can be had: both would measure each other."""
    lock = state_directory(config, os.environ) / "window.lock"
    with contextlib.suppress(OSError):
        lock.parent.mkdir(parents=True, exist_ok=True)
    return str(lock) if os.access(lock if lock.exists() else lock.parent, os.W_OK) else None


def _before(record: Record, config: Config) -> Record | None:
    records, _ = Shelf(state_directory(config, os.environ)).latest()
    return next((one for one in records if one.probe == record.probe), None)


def _keep(record: Record, config: Config) -> str | None:
    state = state_directory(config, os.environ)
    try:
        return str(Shelf(state).put(record))
    except OSError as e:
        _say(
            f"not kept, and so not exported: {e.filename or state}: {e.strerror}; run it as the daemon's user"
        )
        return None


def _way_out(words: str) -> str:
    denied = "permission" in words.lower() or "not permitted" in words.lower()
    return "; run it as root or as a member of the groups render and video" if denied else ""


def _say(line: str) -> None:
    sys.stderr.write(f"amdgpu-exporter: {line}\n")
