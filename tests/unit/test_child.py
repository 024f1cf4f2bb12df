"""The child process and its deadline, against a real process that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from exporter.child import Child
from exporter.model import Reason, SourceError

FAKES = Path(__file__).resolve().parent.parent / "fakes"
ROOT = FAKES.parent.parent


@pytest.fixture(autouse=True)
def fakes_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{FAKES}")


def run(work: Callable[[Child], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        child = Child("moody", "moody_child", {"colour": "blue"})
        try:
            await work(child)
        finally:
            await child.stop()

    asyncio.run(main())


async def ask(child: Child, mood: str = "fine", deadline_s: float = 10.0) -> dict[str, Any]:
    return await child.request({"op": "act", "mood": mood}, deadline_s)


async def fails(child: Child, mood: str, deadline_s: float = 10.0) -> SourceError:
    with pytest.raises(SourceError) as caught:
        await ask(child, mood, deadline_s)
    return caught.value


def test_one_process_answers_many_requests_and_knows_its_settings() -> None:
    async def work(child: Child) -> None:
        first, second = await ask(child), await ask(child)
        assert first["pid"] == second["pid"] == child.pid
        assert first["settings"] == {"colour": "blue"}
        assert child.starts == 1

    run(work)


def test_a_hung_child_is_killed_at_the_deadline_and_replaced() -> None:
    async def work(child: Child) -> None:
        old = (await ask(child))["pid"]
        start = time.monotonic()
        error = await fails(child, "hang", 0.3)
        assert error.reason is Reason.TIMEOUT
        assert time.monotonic() - start < 2
        with pytest.raises(ProcessLookupError):
            os.kill(old, 0)
        assert (await ask(child))["pid"] != old
        assert child.starts == 2

    run(work)


def test_a_stopped_child_is_killed_too() -> None:
    async def work(child: Child) -> None:
        old = (await ask(child))["pid"]
        os.kill(old, signal.SIGSTOP)
        assert (await fails(child, "fine", 0.3)).reason is Reason.TIMEOUT
        assert (await ask(child))["pid"] != old

    run(work)


@pytest.mark.parametrize(
    ("mood", "words"),
    [("segfault", "died of SIGSEGV"), ("exit", "exited with code 7; last said: cannot go on")],
)
def test_a_dead_child_is_told_apart_and_replaced(mood: str, words: str) -> None:
    async def work(child: Child) -> None:
        error = await fails(child, mood)
        assert error.reason is Reason.CRASHED
        assert words in str(error)
        assert (await ask(child))["pid"] == child.pid

    run(work)


def test_a_death_between_requests_is_noticed_at_once() -> None:
    async def work(child: Child) -> None:
        told = asyncio.get_running_loop().create_future()
        child.on_death = told.set_result
        os.kill((await ask(child))["pid"], signal.SIGKILL)
        assert await asyncio.wait_for(told, 2) == "died of SIGKILL"
        assert (await ask(child))["pid"] == child.pid

    run(work)


def test_an_exception_in_a_handler_is_an_answer_and_costs_no_process() -> None:
    async def work(child: Child) -> None:
        before = (await ask(child))["pid"]
        error = await fails(child, "raise")
        assert error.reason is Reason.CRASHED
        assert "KeyError" in str(error)
        assert (await ask(child))["pid"] == before

    run(work)


def test_what_a_library_prints_to_stdout_is_never_taken_for_an_answer() -> None:
    async def work(child: Child) -> None:
        assert (await ask(child, "print"))["pid"] == child.pid
        assert (await ask(child))["pid"] == child.pid

    run(work)


def test_a_flood_on_stderr_neither_blocks_nor_repeats(caplog: pytest.LogCaptureFixture) -> None:
    async def work(child: Child) -> None:
        assert (await ask(child, "flood"))["pid"] == child.pid
        await asyncio.sleep(0)
        with contextlib.suppress(SourceError):
            await ask(child)

    run(work)
    assert sum("the same line" in r.getMessage() for r in caplog.records) <= 1


def test_a_child_that_always_dies_is_started_ever_more_seldom() -> None:
    async def work(child: Child) -> None:
        for _ in range(4):
            await fails(child, "exit")
        assert "next start in" in str(await fails(child, "exit"))
        assert child.starts < 5

    run(work)
