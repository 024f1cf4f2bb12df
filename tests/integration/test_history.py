"""What outlives the daemon, through real ones that are ended and killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from exporter.backends.replay import demo_path
from exporter.catalogue.schema import Kind
from exporter.catalogue.window import METRICS
from exporter.compare.past import Past
from exporter.history.store import FILE
from tests.integration.daemon import ROOT, Daemon, environment, serving, until, verb

WINDOW = "*launch_bound"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The demo's node as a live one, and its state folder."""
    shutil.copytree(demo_path() / "sys", tmp_path / "sys", symlinks=True)
    return tmp_path


def started(node: Path, *more: str) -> AbstractContextManager[Daemon]:
    # The demo's windows say of which node they are, and another's are set aside.
    return serving(
        node, "--path.sysfs", str(node / "sys"), "--interval", "200ms", *more, NODE_NAME="demo-node"
    )


def deliver(node: Path, name: str) -> Path:
    spool = node / "state/spool/0"
    spool.mkdir(parents=True, exist_ok=True)
    source = next((demo_path() / "windows").glob(WINDOW))
    shutil.copytree(source, spool / f"{name}.partial")
    os.utime(spool / f"{name}.partial")  # a copy has the time of its source
    return (spool / f"{name}.partial").rename(spool / name)


def counters(daemon: Daemon) -> dict[str, float]:
    """Everything that windows add up."""
    names = {m.name for m in METRICS if m.kind in (Kind.COUNTER, Kind.HISTOGRAM)}
    return {
        k: v for k, v in daemon.series().items() if re.sub(r"(_bucket|_sum|_count)?(\{.*)?$", "", k) in names
    }


def windows(daemon: Daemon) -> float:
    return sum(v for k, v in daemon.series().items() if k.startswith("amdgpu_windows_total"))


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_counters_go_on_after_a_restart(node: Path, sign: signal.Signals) -> None:
    with started(node) as daemon:
        for n in range(2):
            folder = deliver(node, f"w{n}")
            until(lambda: not folder.exists(), 20, "the window's intake")  # noqa: B023 - asked at once
        until(lambda: windows(daemon) == 2)
        before = counters(daemon)
        daemon.process.send_signal(sign)
        daemon.process.wait(5)
    assert len([v for v in before.values() if v > 0]) > 10
    with started(node) as daemon:
        until(lambda: counters(daemon) == before, what="the counters")
        assert daemon.value("^amdgpu_exporter_history_windows$") == 2
        third = deliver(node, "w0")
        until(lambda: not third.exists(), 20, "a window of a name that was there before")
        until(lambda: windows(daemon) == 3)
        after = counters(daemon)
    assert all(after[name] >= value for name, value in before.items())


def test_a_window_that_was_kept_and_not_cleared_away_is_not_counted_twice(node: Path) -> None:
    with started(node) as daemon:
        folder = deliver(node, "w")
        stamp = folder.stat()
        until(lambda: not folder.exists(), 20, "the intake")
        until(lambda: windows(daemon) == 1)
    again = deliver(node, "w")
    os.utime(again, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with started(node) as daemon:
        until(lambda: not again.exists(), 20, "its clearing away")
        assert windows(daemon) == 1


def test_what_is_known_of_the_gpu_is_kept_with_its_window(node: Path) -> None:
    for file in (node / "sys/devices").rglob("gpu_busy_percent"):
        text = " 0 BOOTUP_DEFAULT :\n 5 COMPUTE *:\n"
        file.with_name("pp_power_profile_mode").write_text(text)
    with started(node) as daemon:
        folder = deliver(node, "w")
        until(lambda: not folder.exists(), 20, "the intake")
        until(lambda: windows(daemon) == 1)
    past = Past(node / "state")
    [about] = {id(row.context): row.context for row in past.rows("0..9000000000", [])}.values()
    past.close()
    assert about["power_profile"] == "COMPUTE"
    assert about["node"] == "demo-node"
    assert (about["gfx"], about["compute_partition"]) == ("gfx942", "SPX")
    assert sum(about["grid_mix"].values()) == pytest.approx(1)
    assert "rocm" not in about  # this machine's would not be that of the tree


def test_a_daemon_without_a_disk_goes_on_and_says_so(node: Path) -> None:
    (node / "state").mkdir()
    (node / "state" / FILE).mkdir()
    with started(node) as daemon:
        folder = deliver(node, "w")
        until(lambda: not folder.exists(), 20, "the intake")
        until(lambda: windows(daemon) == 1)
        assert daemon.value("^amdgpu_exporter_history_up$") == 0
        assert daemon.value("^amdgpu_exporter_history_windows_lost_total$") == 1
        assert daemon.log.read_text().count("the history cannot be used") == 1


def test_phases_are_named_by_the_verb_and_by_post_and_outlive_a_restart(node: Path) -> None:
    with started(node) as daemon:
        assert not [k for k in daemon.series() if k.startswith("amdgpu_phase_info")]
        done = verb("mark", "baseline", "--url", daemon.url)
        assert (done.returncode, done.stdout.startswith("phase baseline since ")) == (0, True)
        until(lambda: daemon.value('^amdgpu_phase_info{phase="baseline"}$'), what="the phase")
        for bad in ("a b", "x" * 65):
            done = verb("mark", "--url", daemon.url, "--", bad)
            assert done.returncode == 2
            assert "expected up to 64" in done.stderr
        assert verb("mark", "x", "--url", "http://127.0.0.1:1").returncode == 2
    with started(node) as daemon:
        until(lambda: daemon.value('^amdgpu_phase_info{phase="baseline"}$'), what="the phase")
        [first] = json.loads(daemon.get("/api/v1/marks")[1])
        assert first["phase"] == "baseline"
        assert abs(first["at"] - time.time()) < 60


def test_a_replay_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path, "--backend", "replay", TMPDIR=str(tmp_path)) as daemon:
        until(lambda: daemon.value("^amdgpu_exporter_history_up$") == 1)
        assert list(tmp_path.glob(f"amdgpu-exporter-*/{FILE}"))
    assert not list(tmp_path.glob("amdgpu-exporter-*"))
    assert not (tmp_path / "state").exists()


WRITER = """
import sys
sys.path.insert(0, "tests/unit")
from windowmade import traced, window
from exporter.history.store import Store
store = Store(sys.argv[1], 1 << 30, 1e9)
for note in store.notes:
    print("NOTE", note, flush=True)
n = store.counts()["windows"]
while True:
    store.append(window(), [traced()], "ok", float(n), f"w{n}", state={"totals": n})
    n += 1
    print(n, flush=True)
"""


def test_being_killed_loses_no_window_that_was_kept_and_breaks_nothing(tmp_path: Path) -> None:
    kept = 0
    for round_ in range(12):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment(),
            text=True,
        )
        assert writer.stdout is not None
        until_line = kept + 1 + 17 * round_ % 40  # at another place each time
        for line in writer.stdout:
            assert not line.startswith("NOTE"), line
            kept = int(line)
            if kept >= until_line:
                break
        writer.kill()
        rest = [int(line) for line in writer.stdout.read().splitlines()]
        writer.wait()
        writer.stdout.close()
        kept = max([kept, *rest])
        db = sqlite3.connect(tmp_path / FILE)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = db.execute("SELECT count(*) FROM window").fetchone()[0]
        # One more may be kept than was said: killed between the two.
        assert kept <= found <= kept + 1
        assert db.execute("SELECT count(*) FROM result").fetchone()[0] == found
        assert db.execute("SELECT value FROM state WHERE key = 'totals'").fetchone() == (str(found - 1),)
        kept = found
        db.close()
    assert kept > 50
