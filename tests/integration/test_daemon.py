"""The daemon as its users meet it: a real process, real HTTP, faults made for real."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporter.backends.replay import demo_path
from tests.integration.daemon import Daemon, serving, until, verb

FAST = ("--interval", "200ms")
FAST_ENV = {"AMDGPU_EXPORTER_POLL__DEADLINE": "300ms", "AMDGPU_EXPORTER_POLL__MAX_AGE": "1s"}
UP = r"^amdgpu_exporter_source_up\{"
POWER = r'^amdgpu_power_watts\{gpu="0"'


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The demo node, replayed; for tests that only look."""
    with serving(tmp_path_factory.mktemp("replay"), "--backend", "replay", *FAST) as daemon:
        yield daemon


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A copy of the demo capture that a test may damage."""
    return Path(shutil.copytree(demo_path(), tmp_path / "capture", symlinks=True))


def windows(daemon: Daemon) -> list[float]:
    """How many windows each GPU has had with rows in them."""
    return [v for k, v in daemon.series().items() if k.startswith("amdgpu_windows_total") and '"ok"' in k]


def test_the_page_passes_the_linter_of_prometheus(replayed: Daemon, promtool: Path) -> None:
    until(lambda: sum(windows(replayed)), 30, "a window")
    page = replayed.get("/metrics")[1]
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_openmetrics_page_parses_and_says_the_same(replayed: Daemon) -> None:
    _, page = replayed.get("/metrics", Accept="application/openmetrics-text;version=1.0.0")
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
    assert len(samples) > 500
    assert all(math.isfinite(s.value) for s in samples)
    assert len({(s.name, tuple(sorted(s.labels.items()))) for s in samples}) == len(samples)
    names = {s.name for s in samples}
    assert names == {series.split("{")[0] for series in replayed.series()}


def test_a_replay_says_so_everywhere(replayed: Daemon) -> None:
    assert replayed.value(r"^amdgpu_exporter_replay_info\{") == 1
    assert "replay" in replayed.get("/")[1]
    assert "replay" in replayed.log.read_text()


def test_eight_gpus_of_the_demo_node_are_alive(replayed: Daemon) -> None:
    series = replayed.series()
    assert series["amdgpu_devices"] == 8
    assert sum(v for k, v in series.items() if k.startswith("amdgpu_up{")) == 8
    first = {k: v for k, v in series.items() if k.startswith(("amdgpu_power_watts", "amdgpu_energy"))}
    assert len(first) >= 16


def test_unknown_paths_and_methods_are_plain_http_errors(replayed: Daemon) -> None:
    assert replayed.get("/nothing-here")[0] == 404
    assert replayed.post("/metrics")[0] == 405
    assert replayed.get("/-/reload")[0] == 405


def test_the_api_lists_devices_and_sources(replayed: Daemon) -> None:
    import json

    devices = json.loads(replayed.get("/api/v1/devices")[1])
    assert [d["gpu"] for d in devices] == list(range(8))
    status = json.loads(replayed.get("/api/v1/status")[1])
    assert status["sources"][0]["up"] is True


def test_deleting_one_file_of_the_capture_removes_exactly_its_series(capture: Path, tmp_path: Path) -> None:
    card = next((capture / "sys/class/drm").glob("card*")) / "device"
    device = (
        card.resolve() if card.is_dir() else next((capture / "sys/devices").rglob("gpu_busy_percent")).parent
    )
    pci = device.name
    with serving(tmp_path, "--backend", "replay", "--capture", str(capture), *FAST) as daemon:
        mine = {k for k in daemon.series() if not k.startswith("amdgpu_exporter_")}
        before = daemon.value(r'^amdgpu_exporter_readings_missing\{.*"unsupported"')
        assert before is not None
        (device / "mem_info_vram_used").unlink()
        gone = {f'amdgpu_memory_used_bytes{{gpu="{g}",pci="{pci}",pool="vram"}}' for g in range(8)} & mine
        assert len(gone) == 1
        until(lambda: not gone & set(daemon.series()), what="the reading going away")
        after = {k for k in daemon.series() if not k.startswith("amdgpu_exporter_")}
        # Windows may have arrived meanwhile; nothing else may be lost.
        assert mine - after == gone
        assert daemon.value(r'^amdgpu_exporter_readings_missing\{.*"unsupported"') == before + 1


def scrape_times(daemon: Daemon, n: int) -> list[float]:
    times = []
    for _ in range(n):
        start = time.monotonic()
        assert daemon.get("/metrics")[0] == 200
        times.append(time.monotonic() - start)
    return times


def test_a_stopped_reader_costs_data_but_never_a_scrape(tmp_path: Path) -> None:
    with serving(tmp_path, "--backend", "replay", *FAST, **FAST_ENV) as daemon:
        reader = daemon.reader()
        assert reader is not None
        assert daemon.value(POWER) is not None
        reader.send_signal(signal.SIGSTOP)
        until(lambda: daemon.value(UP) == 0, 2, "source_up turning 0")
        assert statistics.median(scrape_times(daemon, 20)) < 0.05
        # It is replaced; nobody had to help.
        until(lambda: daemon.value(UP) == 1, 5, "recovery")
        assert daemon.value(POWER) is not None
        assert daemon.value(r'^amdgpu_exporter_child_starts_total\{child="reader"') == 2


def test_a_killed_reader_is_known_at_once_and_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--backend", "replay", "--interval", "1s") as daemon:
        reader = daemon.reader()
        assert reader is not None
        reader.kill()
        until(lambda: daemon.value(UP) == 0, 0.9, "source_up turning 0 before the next poll")
        until(lambda: daemon.value(UP) == 1, 5, "recovery")
        assert daemon.value(r'^amdgpu_exporter_source_failures_total\{.*"crashed"') == 1


def test_data_older_than_its_maximum_age_disappears_and_comes_back(capture: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "--backend", "replay", "--capture", str(capture), *FAST, **FAST_ENV) as daemon:
        hidden = capture.with_name("hidden")
        capture.rename(hidden)
        reader = daemon.reader()
        assert reader is not None
        reader.kill()
        until(lambda: daemon.value(POWER) is None, 5, "old data going away")
        series = daemon.series()
        assert not [k for k in series if k.startswith(("amdgpu_power", "amdgpu_busy", "amdgpu_info"))]
        assert not [k for k in series if k.startswith("amdgpu_exporter_readings_missing")]
        ups = [v for k, v in series.items() if k.startswith("amdgpu_up{")]
        assert ups == [0.0] * 8
        hidden.rename(capture)
        until(lambda: daemon.value(POWER) is not None, 40, "recovery")
        assert daemon.value(UP) == 1


def test_a_broken_file_on_reload_keeps_the_last_good_one(tmp_path: Path) -> None:
    config = tmp_path / "config.yml"
    config.write_text("backend: replay\npoll: {interval: 200ms}\nlog: {level: info}\n")
    ok = "^amdgpu_exporter_config_last_reload_successful"
    with serving(tmp_path, "--config", str(config)) as daemon:
        assert daemon.value(ok) == 1
        refused: list[Exception] = []
        done = threading.Event()

        def hammer() -> None:
            while not done.is_set():
                try:
                    assert daemon.get("/metrics")[0] == 200
                except (OSError, AssertionError) as e:
                    refused.append(e)

        thread = threading.Thread(target=hammer)
        thread.start()
        config.write_text("backend: replay\npoll: {interval: soon}\n")
        status, text = daemon.post("/-/reload")
        assert (status, daemon.value(ok)) == (400, 0)
        assert "poll.interval" in text
        assert str(config) in text
        config.write_text("backend: replay\npoll: {interval: 300ms}\nlisten: 127.0.0.1:1\n")
        status, text = daemon.post("/-/reload")
        assert (status, daemon.value(ok)) == (200, 1)
        config.write_text("backend: [\n")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: daemon.value(ok) == 0, what="the signal's reload")
        config.write_text("backend: replay\n")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: daemon.value(ok) == 1, what="the second signal's reload")
        done.set()
        thread.join()
        assert refused == []


def test_windows_are_taken_from_the_spool_and_can_be_switched_off_and_on(tmp_path: Path) -> None:
    config = tmp_path / "config.yml"
    quick = "poll: {interval: 200ms}\n"
    config.write_text(quick)
    spool = tmp_path / "state/spool"
    tree = tmp_path / "sys"
    shutil.copytree(demo_path() / "sys", tree, symlinks=True)
    with serving(tmp_path, "--config", str(config), "--path.sysfs", str(tree)) as daemon:
        until(spool.is_dir, what="the spool folder")
        folder = next((demo_path() / "windows").glob("*launch_bound"))
        taken = shutil.copytree(folder, spool / "0" / "w1.partial")
        manifest = json.loads((taken / "manifest.json").read_text())
        (taken / "manifest.json").write_text(json.dumps({**manifest, "node": os.uname().nodename}))
        (spool / "0" / "w1.partial").rename(spool / "0" / "w1")
        until(lambda: sum(windows(daemon)) == 1, 20, "the window's arrival")
        until(lambda: not (spool / "0" / "w1").exists(), what="the window's files going away")
        assert daemon.value(r'^amdgpu_bottleneck_state\{.*"launch_bound"') == 1
        config.write_text(quick + "windows: {preset: off}\n")
        assert daemon.post("/-/reload")[0] == 200
        assert not windows(daemon)
        config.write_text(quick)
        assert daemon.post("/-/reload")[0] == 200
        assert sum(windows(daemon)) == 1, "totals stay"
        (spool / "0" / "bad").mkdir()
        (spool / "0" / "bad" / "manifest.json").write_text("{nonsense")
        (spool / "0" / "bad" / "x.csv").write_text("not a table\n")
        until((spool / ".quarantine").is_dir, 20, "the bad window being set aside")
        assert daemon.get("/metrics")[0] == 200


def test_a_window_of_another_node_is_set_aside_and_counted(tmp_path: Path) -> None:
    with serving(tmp_path, *FAST) as daemon:
        spool = tmp_path / "state/spool"
        until(spool.is_dir, what="the spool folder")
        shutil.copytree(next((demo_path() / "windows").glob("*launch_bound")), spool / "0" / ".w1")
        (spool / "0" / ".w1").rename(spool / "0" / "w1")
        until(lambda: list((spool / ".quarantine").glob("*.reason")), 20, "the window being set aside")
        [reason] = (spool / ".quarantine").glob("*.reason")
        assert "says it is of node demo-node, and this is" in reason.read_text()
        assert daemon.value(r'^amdgpu_windows_unmapped_total\{mode="other",result="malformed"') == 1


def test_a_page_is_rendered_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    rendered = "^amdgpu_exporter_generation_total$"
    with serving(tmp_path, "--path.sysfs", f"{demo_path()}/sys", "--interval", "60s") as daemon:
        before = daemon.value(rendered)
        pages = {daemon.get("/metrics")[1] for _ in range(50)}
        assert len(pages) == 1
        assert daemon.value(rendered) == before


def test_an_empty_machine_is_served_and_said_once(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    with serving(tmp_path, "--path.sysfs", str(tmp_path / "sys"), *FAST) as daemon:
        assert daemon.value("^amdgpu_devices$") == 0
        assert "No AMD GPU" in daemon.get("/")[1]
        generation = daemon.value("^amdgpu_exporter_generation_total$") or 0
        until(lambda: (daemon.value("^amdgpu_exporter_generation_total$") or 0) > generation + 3)
        assert daemon.log.read_text().count("No AMD GPU") == 1


def test_sigterm_and_sigint_end_it_quickly_and_cleanly(tmp_path: Path) -> None:
    for sign in (signal.SIGTERM, signal.SIGINT):
        with serving(tmp_path, "--backend", "replay") as daemon:
            reader = daemon.reader()
            start = time.monotonic()
            daemon.process.send_signal(sign)
            assert daemon.process.wait(5) == 0
            assert time.monotonic() - start < 2
            assert reader is not None
            assert not reader.is_running()
            assert "Traceback" not in daemon.log.read_text()


def one_line(text: str) -> str:
    [line] = text.splitlines()
    assert line.startswith("amdgpu-exporter: error: ")
    return line


def test_what_cannot_start_says_why_in_one_line_and_exits_2(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = verb("serve", "--backend", "replay", "--listen", f"127.0.0.1:{port}")
        assert done.returncode == 2
        assert str(port) in one_line(done.stderr)
    bad = tmp_path / "bad.yml"
    bad.write_text("poll: {interval: [\n")
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("poll: {interval: 5 apples}\n")
    for args, word in (
        (("--backend", "telepathy"), "telepathy"),
        (("--config", str(tmp_path / "none.yml")), "none.yml"),
        (("--config", str(bad)), "bad.yml"),
        (("--config", str(wrong)), "poll.interval"),
        (("--backend", "replay", "--capture", str(tmp_path / "nowhere")), "nowhere"),
        (("--colour",), "--colour"),
        (("--interval", "soon"), "interval"),
    ):
        done = verb("serve", *args)
        assert done.returncode == 2, args
        assert word in one_line(done.stderr)
        assert done.stdout == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_configuration_is_one_line(tmp_path: Path) -> None:
    locked = tmp_path / "locked.yml"
    locked.write_text("backend: replay\n")
    locked.chmod(0)
    done = verb("serve", "--config", str(locked))
    assert done.returncode == 2
    assert "locked.yml" in one_line(done.stderr)
