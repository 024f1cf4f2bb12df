"""A real daemon: health of GPUs, texts of others in its page, GPUs remembered; and the verbs beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trees
from daemon import serving, until, verb
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_format

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    trees.mi300x(tmp_path / "sys", sockets=2)
    for device in (tmp_path / "sys/devices/pci0000:00").iterdir():
        trees.put(device / "ras/gfx_err_count", "ue: 0\nce: 0")
        trees.put(device / "ras/umc_err_count", "ue: 0\nce: 0\nde: 0")
        trees.put(device / "ras/gpu_vram_bad_pages", "0x1 : 0x1000 : R")
    return tmp_path / "sys"


def _args(node: Path) -> tuple[str, ...]:
    return ("--path.sysfs", str(node), "--path.procfs", str(node / "none"))


def _hot(node: Path) -> None:
    trees.put(node / "devices/pci0000:00/0000:25:00.0/hwmon/hwmon3/temp2_input", "101000")


def test_health_is_served_as_metric_and_with_reasons(node: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "--interval", "200ms", *_args(node)) as daemon:
        for gpu in "01":
            states = {
                n: v for n, v in daemon.series().items() if n.startswith(f'amdgpu_health_state{{gpu="{gpu}"')
            }
            assert len(states) == 4
            assert [n for n, v in states.items() if v == 1] == [n for n in states if 'state="healthy"' in n]
        _hot(node)
        until(lambda: daemon.value(r'amdgpu_health_state\{gpu="1".*"degraded"') == 1, what="the heat")
        told = json.loads(daemon.get("/api/v1/health")[1])
        assert told["status"] == "degraded"
        assert [g["status"] for g in told["gpus"]] == ["healthy", "degraded"]
        assert told["gpus"][1]["reasons"][0]["id"] == "over_temperature"
        shutil.move(node / "class/drm/card1", tmp_path / "card1")
        shutil.rmtree(node / "class/kfd/kfd/topology/nodes/2")
        until(lambda: daemon.value(r'amdgpu_health_state\{gpu="1".*"unhealthy"') == 1, what="the loss")
        told = json.loads(daemon.get("/api/v1/health")[1])
        assert (told["status"], told["expected"]) == ("unhealthy", 2)
        assert told["gpus"][1]["reasons"][0]["id"] == "gone"


def test_the_verb_health_fits_a_problem_daemon(node: Path, tmp_path: Path) -> None:
    state = {"STATE_DIRECTORY": str(tmp_path / "state")}
    done = verb("health", *_args(node), **state)
    assert (done.returncode, done.stdout, done.stderr) == (0, "healthy: 2 GPUs\n", "")
    _hot(node)
    done = verb("health", *_args(node), **state)
    assert done.returncode == 1
    assert done.stdout.startswith("degraded: 0000:25:00.0: junction at 101")
    assert len(done.stdout.encode()) <= 81
    told = json.loads(verb("health", "--json", *_args(node), **state).stdout)
    assert (told["status"], told["sources"]) == ("degraded", {"sysfs": "up"})
    (tmp_path / "none").mkdir()
    done = verb("health", "--path.sysfs", str(tmp_path / "none"), **state)
    assert (done.returncode, done.stdout) == (2, "unknown: no AMD GPU is visible\n")


def test_a_tool_that_hangs_makes_health_unknown_in_time(node: Path, tmp_path: Path) -> None:
    tool = tmp_path / "amd-smi"
    tool.write_text("#!/bin/sh\ntrap '' TERM\nexec sleep 60\n")
    tool.chmod(0o755)
    began = time.monotonic()
    done = verb(
        "health",
        *_args(node),
        STATE_DIRECTORY=str(tmp_path / "state"),
        AMDGPU_EXPORTER_BACKEND="smi_cli",
        AMDGPU_EXPORTER_SMI_CLI__TOOL=str(tool),
        AMDGPU_EXPORTER_SMI_CLI__DEADLINE="2s",
        AMDGPU_EXPORTER_DEVICES__EXPECTED="2",
    )
    assert (done.returncode, done.stdout.split(": ")[:2]) == (2, ["unknown", "smi_cli"]), done
    assert time.monotonic() - began < 20


def test_lost_gpus_are_remembered_until_they_are_forgotten(node: Path, tmp_path: Path) -> None:
    state = {"STATE_DIRECTORY": str(tmp_path / "state")}
    with serving(tmp_path, *_args(node)) as daemon:
        assert daemon.value("amdgpu_expected_devices") == 2
        until((tmp_path / "state/expected-devices.json").exists, what="the file")
    shutil.move(node / "class/drm/card1", tmp_path / "card1")
    shutil.rmtree(node / "class/kfd/kfd/topology/nodes/2")
    with serving(tmp_path, *_args(node)) as daemon:
        assert (daemon.value("amdgpu_devices"), daemon.value("amdgpu_expected_devices")) == (1, 2)
    done = verb("health", *_args(node), **state)
    assert (done.returncode, done.stdout) == (1, "unhealthy: 1 of 2 GPUs are missing\n")
    with serving(tmp_path, *_args(node), AMDGPU_EXPORTER_DEVICES__EXPECTED="1") as daemon:
        assert daemon.value("amdgpu_expected_devices") == 1, "the configuration wins"
    done = verb("devices", "--forget", "--path.sysfs", str(node), **state)
    assert done.returncode == 0
    with serving(tmp_path, *_args(node)) as daemon:
        assert daemon.value("amdgpu_expected_devices") == 1


def test_texts_of_others_are_in_the_page_in_both_formats(node: Path, tmp_path: Path, promtool: str) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "rack.prom").write_text(
        "# HELP site_rack_watts Power of the rack.\n# TYPE site_rack_watts gauge\nsite_rack_watts 4100\n"
        "# HELP site_jobs_total Jobs.\n# TYPE site_jobs_total counter\nsite_jobs_total 3\n"
    )
    (folder / "bad.prom").write_text('amdgpu_power_watts{gpu="0"} 1\n')
    texts = {"AMDGPU_EXPORTER_TEXTFILE__FOLDER": str(folder)}
    with serving(tmp_path, "--interval", "200ms", *_args(node), **texts) as daemon:
        until(lambda: daemon.value("^site_rack_watts") == 4100, what="the text")
        series = daemon.series()
        assert series['amdgpu_exporter_textfile_errors_total{file="rack.prom"}'] == 0
        assert series['amdgpu_exporter_textfile_errors_total{file="bad.prom"}'] > 0
        mtime = series['amdgpu_exporter_textfile_modified_timestamp_seconds{file="rack.prom"}']
        assert mtime == pytest.approx((folder / "rack.prom").stat().st_mtime)
        plain, strict = daemon.get("/metrics")[1], daemon.get("/metrics", Accept=OPENMETRICS)[1]
        for families in (list(text_format(plain)), list(openmetrics(strict))):
            samples = [(s.name, tuple(sorted(s.labels.items()))) for f in families for s in f.samples]
            assert len(samples) == len(set(samples))
            assert ("site_jobs_total", ()) in samples
            names = [f.name for f in families]
            assert len(names) == len(set(names)), "a family stands twice"
        assert daemon.value("^amdgpu_exporter_series$") == len(daemon.series())
        checked = subprocess.run([promtool, "check", "metrics"], input=plain, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")
        (folder / "next").write_text("site_rack_watts 4200\n")
        (folder / "next").rename(folder / "rack.prom")
        until(lambda: daemon.value("^site_rack_watts") == 4200, what="the change")
        (folder / "rack.prom").unlink()
        until(lambda: daemon.value("^site_rack_watts") is None, what="the end")
        assert "textfile is not taken" in daemon.log.read_text()


def test_check_runs_without_gpus_rights_or_a_daemon(tmp_path: Path) -> None:
    done = verb("check", "--json", STATE_DIRECTORY=str(tmp_path), PATH="/usr/bin:/bin")
    told = json.loads(done.stdout)
    graver = {f["id"] for f in told["findings"] if f["severity"] == "broken"}
    if not os.path.exists("/dev/kfd"):
        assert (done.returncode, told["verdict"]) == (2, "broken")
        assert "gpu.found" in graver
    assert done.stderr == ""
    assert all(f["mend"] for f in told["findings"] if f["severity"] in ("warning", "broken"))


def test_check_says_fine_or_degraded_of_a_tree_and_packs_it(node: Path, tmp_path: Path) -> None:
    state = {"STATE_DIRECTORY": str(tmp_path / "state")}
    done = verb("check", *_args(node), **state)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "verdict: ok"), done.stdout
    trees.put(node / "devices/pci0000:00/0000:05:00.0/ras/umc_err_count", "ue: 3\nce: 0")
    dest = tmp_path / "b.tar.gz"
    done = verb("check", "--bundle", str(dest), *_args(node), **state)
    assert done.returncode == 1
    assert "gpu.errors: since the driver started: 0000:05:00.0 3 uncorrectable" in done.stdout
    assert dest.stat().st_size > 1000
    done = verb("check", "--bundle", str(dest), *_args(node), **state)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "already" in done.stderr


def test_check_names_a_configuration_no_daemon_would_start_with(node: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("poll:\n  interval: soon\n")
    done = verb("check", "--config", str(config), *_args(node), STATE_DIRECTORY=str(tmp_path / "state"))
    assert done.returncode == 2
    assert f"config.understood: {config}:2: poll.interval" in done.stdout


def test_the_checks_load_nothing_of_the_web() -> None:
    code = (
        "import sys, exporter.checks.check, exporter.checks.gather\n"
        "print([m for m in ('fastapi', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
