"""The runner: whatever a profiler does, the window ends in time, in bounds, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from exporter.child import Child, Message
from exporter.model import Reason, SourceError

MIB = 1 << 20
MARK = "AMDGPU_EXPORTER_WINDOW"


def plan(script: str, **more: Any) -> dict[str, Any]:
    argv = [sys.executable, "-c", script] if more.pop("python", False) else ["/bin/sh", "-c", script]
    return {
        "argv": argv,
        "env": {},
        "seconds": 1.0,
        "ends_itself": True,
        "output": "out",
        "files": {},
        **more,
    }


def window(scratch: Path, made: dict[str, Any], **more: Any) -> Message:
    """Run one window in a runner child of its own, as the daemon does."""
    request = {
        "op": "run",
        "plan": made,
        "scratch": str(scratch),
        "bytes": 8 * MIB,
        "deadline_s": 5.0,
        **more,
    }

    async def ask() -> Message:
        child = Child("runner", "exporter.windows.runner", {})
        try:
            return await child.request(request, 30.0)
        finally:
            await child.stop()

    return asyncio.run(ask())


def until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return held


async def when(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to that")


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def marked(scratch: Path) -> list[int]:
    """Processes of a window, by the mark of the runner and its scratch folder."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
            if (
                MARK in environ
                and environ.get("TMPDIR") == str(scratch)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / ".window"


def test_a_window_that_gives_a_file_is_kept_with_its_bounds(scratch: Path) -> None:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    done = window(scratch, plan("printf 'Kind\\n' > out/1_kernel_trace.csv; sleep 0.2"))
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert (done["outcome"], done["code"], done["survivors"]) == ("ok", 0, 0)
    assert (scratch / "out" / "1_kernel_trace.csv").read_text() == "Kind\n"
    low, high = done["bounds_ns"]
    assert before <= low < high <= after
    assert high - low >= 200_000_000
    assert 0.2 <= done["seconds"] < 5
    assert scratch.stat().st_mode & 0o777 == 0o700


def test_files_without_rows_to_speak_of_do_not_depend_on_the_exit_code(scratch: Path) -> None:
    done = window(scratch, plan("echo rows > out/x.csv; exit 3"))
    assert (done["outcome"], done["code"]) == ("ok", 3)


@pytest.mark.parametrize(
    ("script", "outcome", "words"),
    [
        ("exit 0", "empty", "wrote nothing"),
        (": > out/x.csv", "empty", "wrote nothing"),
        ("ln -s /etc/passwd out/x.csv", "empty", "wrote nothing"),
        ("kill -SEGV $$", "crash", "SIGSEGV"),
        ("echo rows > out/x.csv; kill -ABRT $$", "crash", "SIGABRT"),
        ("echo terminate called >&2; exit 134", "crash", "SIGABRT; last said: terminate called"),
        ("echo 'counters are busy: EBUSY' >&2; exit 1", "blocked", "EBUSY"),
        ("echo 'Operation not permitted' >&2; exit 1", "denied", "not permitted"),
        ("echo 'error: unrecognized arguments: -P' >&2; exit 2", "malformed", "unrecognized arguments"),
    ],
)
def test_what_a_profiler_did_is_told_apart(scratch: Path, script: str, outcome: str, words: str) -> None:
    done = window(scratch, plan(script))
    assert done["outcome"] == outcome
    assert words in done["detail"]
    assert not scratch.exists()


def test_an_attach_that_ends_well_without_a_file_did_not_attach(scratch: Path) -> None:
    assert window(scratch, plan("exit 0"), target=os.getpid())["outcome"] == "not_attachable"


def test_a_tool_that_is_not_there_or_may_not_be_run_is_an_outcome(scratch: Path, tmp_path: Path) -> None:
    missing = window(scratch, {**plan(""), "argv": ["/no/such/rocprofv3"]})
    assert (missing["outcome"], missing["code"]) == ("blocked", None)
    assert "/no/such/rocprofv3" in missing["detail"]
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    assert window(scratch, {**plan(""), "argv": [str(tmp_path / "tool")]})["outcome"] == "denied"
    assert not scratch.exists()


def test_a_tool_that_has_to_be_told_ends_at_the_planned_time(scratch: Path) -> None:
    script = "trap 'echo rows > out/x.csv; exit 0' INT; while :; do sleep 0.05; done"
    done = window(scratch, plan(script, seconds=0.3, ends_itself=False))
    assert (done["outcome"], done["code"]) == ("ok", 0)
    assert 0.3 <= done["seconds"] < 3


def test_a_hang_is_asked_then_told_then_killed(scratch: Path, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    script = (
        "import signal, time\n"
        f"def note(n, _): open({str(heard)!r}, 'a').write(signal.Signals(n).name + ' ')\n"
        "signal.signal(signal.SIGINT, note); signal.signal(signal.SIGTERM, note)\n"
        "end = time.monotonic() + 60\n"
        "while time.monotonic() < end: time.sleep(1)\n"
    )
    done = window(scratch, plan(script, python=True), deadline_s=0.5)
    assert (done["outcome"], done["code"], done["survivors"]) == ("timeout", -signal.SIGKILL, 0)
    assert heard.read_text().split() == ["SIGINT", "SIGTERM"]
    assert done["seconds"] < 8
    assert not scratch.exists()


def test_a_slow_exit_after_being_asked_is_waited_for(scratch: Path, tmp_path: Path) -> None:
    done_file = tmp_path / "flushed"
    script = f"trap 'sleep 0.5; echo > {done_file}; exit 0' INT; while :; do sleep 0.05; done"
    done = window(scratch, plan(script), deadline_s=0.3)
    assert (done["outcome"], done["code"]) == ("timeout", 0)
    assert done_file.exists()


def test_an_attached_profiler_is_given_time_to_let_go(scratch: Path, tmp_path: Path) -> None:
    done_file = tmp_path / "detached"
    script = f"trap 'sleep 3; echo > {done_file}; exit 0' INT; while :; do sleep 0.05; done"
    done = window(scratch, plan(script), deadline_s=0.2, target=os.getpid())
    assert (done["outcome"], done["code"]) == ("timeout", 0)
    assert done_file.exists(), "killed after 3 s, it would have left its target stopped"


ESCAPE = (
    "import os, sys, time, signal\n"
    "for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.close(0); os.close(1); os.close(2)\n"
    "        open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    "        time.sleep(60)\n"
    "    os._exit(0)\n"
    "os.wait()\n"
    "while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read(): time.sleep(0.01)\n"
)


@pytest.mark.parametrize("then", ["open('out/x.csv', 'w').write('rows')", "time.sleep(60)"])
def test_a_grandchild_that_forked_twice_and_called_setsid_does_not_outlive_the_window(
    scratch: Path, tmp_path: Path, then: str
) -> None:
    note = tmp_path / "pid"
    made = plan(ESCAPE + then, python=True)
    made["argv"].append(str(note))
    done = window(scratch, made, deadline_s=1.0)
    assert done["outcome"] == ("ok" if "out" in then else "timeout")
    assert done["survivors"] == 0
    assert not alive(int(note.read_text()))
    assert marked(scratch) == []


def test_a_flood_of_files_ends_at_the_cap(scratch: Path) -> None:
    script = (
        "block = b'x' * (1 << 20)\n"
        "with open('out/big.csv', 'wb', 0) as f:\n"
        "    for _ in range(2048): f.write(block)\n"
    )
    done = window(scratch, plan(script, python=True), bytes=64 * MIB, deadline_s=60.0)
    assert done["outcome"] == "malformed"
    assert "64 MiB of files" in done["detail"]
    assert done["bytes"] <= 64 * MIB + 65536
    assert not scratch.exists()


def test_a_flood_of_many_files_ends_too(scratch: Path) -> None:
    script = "n = 0\nwhile True:\n    n += 1\n    open(f'out/{n}', 'w').write('x')\n"
    done = window(scratch, plan(script, python=True), deadline_s=60.0)
    assert done["outcome"] == "malformed"
    assert "2000 files" in done["detail"]
    assert not scratch.exists()


def test_two_gigabytes_of_text_stay_within_the_cap_and_within_memory(scratch: Path) -> None:
    script = "import os\nb = b'x' * 65536\nfor _ in range(32768): os.write(1, b); os.write(2, b)\n"
    peaks: list[int] = []

    async def ask() -> Message:
        child = Child("runner", "exporter.windows.runner", {})
        request = {"op": "run", "plan": plan(script, python=True), "scratch": str(scratch), "bytes": MIB}
        asked = asyncio.create_task(
            child.request({**request, "deadline_s": 60.0, "output_bytes": 512 * MIB}, 90.0)
        )
        while not asked.done():
            if child.pid:
                peaks.append(psutil.Process(child.pid).memory_info().rss)
            await asyncio.sleep(0.05)
        await child.stop()
        return await asked

    done = asyncio.run(ask())
    assert done["outcome"] == "malformed"
    assert "512 MiB of text" in done["detail"]
    assert peaks
    assert max(peaks) < 256 * MIB
    assert not scratch.exists()


def test_standard_output_can_be_the_windows_file_and_is_capped_as_one(scratch: Path) -> None:
    done = window(scratch, plan("printf '{\"a\": 1}'", stdout="counters.json"))
    assert done["outcome"] == "ok"
    assert json.loads((scratch / "out" / "counters.json").read_text()) == {"a": 1}


def test_the_tool_runs_in_the_scratch_folder_with_a_small_environment(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    script = (
        "import json, os, resource, signal, sys\n"
        "json.dump({'env': dict(os.environ), 'cwd': os.getcwd(), 'sid': os.getsid(0) == os.getpid(),\n"
        "  'core': resource.getrlimit(resource.RLIMIT_CORE), 'in': sys.stdin.read(),\n"
        "  'int': signal.getsignal(signal.SIGINT) is signal.default_int_handler,\n"
        "  'input': open('input.yaml').read()}, open('out/x.json', 'w'))\n"
    )
    made = plan(script, python=True, env={"ROCP_TOOL_ATTACH": "1"}, files={"input.yaml": "jobs: []\n"})
    assert window(scratch, made)["outcome"] == "ok"
    seen = json.loads((scratch / "out" / "x.json").read_text())
    assert "SECRET_TOKEN" not in seen["env"]
    assert seen["env"]["ROCP_TOOL_ATTACH"] == "1"
    assert seen["cwd"] == seen["env"]["TMPDIR"] == seen["env"]["HOME"] == str(scratch)
    assert (seen["core"], seen["in"], seen["sid"], seen["int"]) == ([0, 0], "", True, True)
    assert seen["input"] == "jobs: []\n"


def test_a_crash_leaves_no_core_file(scratch: Path, tmp_path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    assert window(scratch, plan("ulimit -c > limit; cp limit ../limit; kill -ABRT $$"))["outcome"] == "crash"
    assert (tmp_path / "limit").read_text().strip() == "0"
    assert not list(tmp_path.rglob("core*"))


def test_only_one_window_holds_the_nodes_lock(scratch: Path, tmp_path: Path) -> None:
    lock = str(tmp_path / "window.lock")

    async def both() -> Any:
        one, two = (Child("runner", "exporter.windows.runner", {}) for _ in range(2))
        request = {"op": "run", "bytes": MIB, "deadline_s": 5.0, "lock": lock}
        slow = asyncio.create_task(
            one.request({**request, "plan": plan("sleep 0.5"), "scratch": str(scratch)}, 20)
        )
        await when(scratch.exists)
        try:
            with pytest.raises(SourceError) as refused:
                await two.request({**request, "plan": plan("exit 0"), "scratch": f"{scratch}2"}, 20)
            return refused.value, await slow
        finally:
            await one.stop()
            await two.stop()

    refused, first = asyncio.run(both())
    assert refused.reason is Reason.BUSY
    assert first["outcome"] == "empty"


def test_watched_files_that_changed_are_named(scratch: Path, tmp_path: Path) -> None:
    same, limiter = tmp_path / "same", tmp_path / "ptl_enable"
    same.write_text("1")
    limiter.write_text("1")
    made = plan(f"echo rows > out/x; echo 0 > {limiter}")
    done = window(scratch, made, watch=[str(same), str(limiter), str(tmp_path / "absent")])
    assert done["changed"] == [str(limiter)]


def test_a_target_left_stopped_is_told_to_go_on_and_never_ended(scratch: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as target:
        script = f"kill -STOP {target.pid}; exit 0"
        done = window(scratch, plan(script), target=target.pid)
        assert done["outcome"] == "not_attachable"
        assert until(lambda: psutil.Process(target.pid).status() == psutil.STATUS_SLEEPING)
        assert target.poll() is None
        target.kill()


def test_a_target_that_somebody_had_stopped_before_stays_so(scratch: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as target:
        target.send_signal(signal.SIGSTOP)
        assert until(lambda: psutil.Process(target.pid).status() == psutil.STATUS_STOPPED)
        window(scratch, plan("echo rows > out/x"), target=target.pid)
        assert psutil.Process(target.pid).status() == psutil.STATUS_STOPPED
        target.kill()


STUBBORN = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)\n"


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_runner_that_is_ended_takes_the_profiler_with_it(scratch: Path, sign: signal.Signals) -> None:
    async def ask() -> None:
        child = Child("runner", "exporter.windows.runner", {})
        request = {"op": "run", "bytes": MIB, "deadline_s": 50.0, "scratch": str(scratch)}
        asked = asyncio.create_task(child.request({**request, "plan": plan(STUBBORN, python=True)}, 60))
        await when(lambda: bool(marked(scratch)))
        assert child.pid
        os.kill(child.pid, sign)
        with pytest.raises(SourceError):
            await asked
        await child.stop()

    asyncio.run(ask())
    assert until(lambda: marked(scratch) == [])
    assert sign is signal.SIGKILL or not scratch.exists()


def test_what_a_killed_runner_left_is_ended_when_the_next_one_starts(scratch: Path, tmp_path: Path) -> None:
    note = tmp_path / "pid"

    async def ask() -> None:
        child = Child("runner", "exporter.windows.runner", {})
        made = plan(ESCAPE + "time.sleep(60)", python=True)
        made["argv"].append(str(note))
        request = {"op": "run", "bytes": MIB, "deadline_s": 50.0, "scratch": str(scratch), "plan": made}
        asked = asyncio.create_task(child.request(request, 60))
        await when(lambda: note.exists() and bool(note.read_text()))
        assert child.pid
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(SourceError):
            await asked
        await child.stop()

    asyncio.run(ask())
    assert alive(int(note.read_text()))
    assert window(tmp_path / ".second", plan("exit 0"))["outcome"] == "empty"
    assert not alive(int(note.read_text()))
