"""A command that is run once: its output, its deadline, and what is left of it afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from exporter.command import Ending, Finished, run_once

ENV = {"PATH": os.environ["PATH"], "LC_ALL": "C"}


def shell(script: str, deadline_s: float = 5.0, limit_bytes: int = 1 << 20) -> Finished:
    return run_once(["/bin/sh", "-c", script], deadline_s, limit_bytes, ENV)


def until(condition: Callable[[], bool], seconds: float = 3.0) -> bool:
    end = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return held


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_both_outputs_and_the_exit_code_come_back() -> None:
    done = shell("printf out; printf err >&2; exit 7")
    assert (done.code, done.stdout, done.stderr, done.outcome) == (7, b"out", b"err", Ending.EXITED)


def test_a_signal_is_a_negative_code() -> None:
    assert shell("kill -ABRT $$").code == -6


def test_the_environment_is_the_one_given_and_standard_input_is_empty() -> None:
    done = run_once(["/usr/bin/env"], 5, 1 << 20, {"ONLY": "this"})
    assert done.stdout == b"ONLY=this\n"
    assert shell("cat").stdout == b""


def test_a_command_that_does_not_exist_is_an_outcome_not_an_error() -> None:
    done = run_once(["/no/such/tool"], 5, 1 << 20, ENV)
    assert (done.code, done.outcome) == (None, Ending.NOT_STARTED)
    assert b"No such file" in done.stderr


def test_the_deadline_ends_a_command_that_ignores_sigterm_and_its_children() -> None:
    began = time.monotonic()
    done = shell("trap '' TERM; sleep 60 & echo $! $$; while :; do sleep 1; done", deadline_s=0.4)
    assert done.outcome is Ending.TIMEOUT
    assert done.code == -9
    assert time.monotonic() - began < 2
    assert all(until(lambda pid=pid: gone(int(pid))) for pid in done.stdout.split())


def test_a_command_that_heeds_sigterm_may_say_goodbye_by_exiting() -> None:
    assert shell("trap 'exit 3' TERM; while :; do sleep 0.02; done", deadline_s=0.2).code == 3


def test_a_closed_output_does_not_hide_a_command_that_goes_on() -> None:
    done = shell("exec >&- 2>&-; sleep 60", deadline_s=0.3)
    assert done.outcome is Ending.TIMEOUT


def test_a_flood_is_cut_and_memory_stays_bounded() -> None:
    limit = 1 << 20
    before = psutil.Process().memory_info().rss
    done = run_once(["/usr/bin/yes", "x" * 1000], 5, limit, ENV)
    assert done.outcome is Ending.FLOOD
    assert limit < len(done.stdout) <= limit + 2 * 65536
    assert psutil.Process().memory_info().rss - before < 16 * limit


def test_a_descendant_that_keeps_the_output_open_does_not_hold_us_up() -> None:
    began = time.monotonic()
    done = shell("echo answer; sleep 60 & echo $!; exit 0", deadline_s=10)
    assert (done.outcome, done.code) == (Ending.EXITED, 0)
    assert done.stdout.startswith(b"answer\n")
    assert time.monotonic() - began < 2
    assert until(lambda: gone(int(done.stdout.split()[1])))


def test_a_descendant_in_a_session_of_its_own_does_not_hold_us_up_either() -> None:
    done = shell("setsid sleep 5 & echo answer", deadline_s=10)
    assert (done.outcome, done.stdout) == (Ending.EXITED, b"answer\n")
    assert done.seconds < 2


def test_no_core_file_is_written() -> None:
    assert shell("ulimit -c").stdout == b"0\n"


def test_the_command_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = (
        "from exporter.command import run_once\n"
        f"run_once(['/bin/sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 60'], 60, 1000, {ENV!r})\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).resolve().parents[2])
    try:
        note = tmp_path / "pid"
        assert until(lambda: note.exists() and bool(note.read_text().strip()))
        parent.kill()
        parent.wait()
        assert until(lambda: gone(int(note.read_text())))
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.parametrize("size", [0, 65536, 300_000])
def test_output_of_any_size_is_whole(size: int) -> None:
    done = shell(f"head -c {size} /dev/zero; head -c {size} /dev/zero >&2")
    assert (len(done.stdout), len(done.stderr)) == (size, size)
