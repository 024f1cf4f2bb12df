"""The driver goes and comes back, the exporter is replaced: nothing stands in the way of either."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

from tests.integration.daemon import Daemon, serving, until
from tests.unit import trees

ARGS = ("--backend", "sysfs", "--interval", "100ms")
UP = r'^amdgpu_up\{gpu="0"'


def open_files(daemon: Daemon) -> set[str]:
    """What the daemon and all its children hold open, sockets and pipes aside."""
    found = set()
    family = psutil.Process(daemon.process.pid)
    for process in (family, *family.children(recursive=True)):
        folder = f"/proc/{process.pid}/fd"
        for fd in os.listdir(folder):
            try:
                found.add(os.readlink(f"{folder}/{fd}"))
            except FileNotFoundError:
                continue
    return {path for path in found if path.startswith("/")}


def test_a_driver_is_unloaded_and_loaded_again_under_the_daemon(tmp_path: Path) -> None:
    root, away = tmp_path / "sys", tmp_path / "away"
    trees.mi300x(root, sockets=2, forbidden=False)
    away.mkdir()
    with serving(tmp_path, *ARGS, "--path.sysfs", str(root)) as daemon:
        for _ in range(2):
            until(lambda: daemon.value(UP) == 1, what="the GPU being up")
            held = open_files(daemon)
            assert not [p for p in held if p.startswith(("/dev/kfd", "/dev/dri"))]
            # Attributes of sysfs may be held: the kernel takes them away under whoever has them open.
            devices = [p for p in held if p.startswith("/dev/")]
            assert set(devices) <= {"/dev/null", "/dev/urandom"}
            for name in ("class", "devices"):
                shutil.move(root / name, away / name)
            until(lambda: daemon.value(UP) == 0, what="the GPU being down")
            assert daemon.value("^amdgpu_devices$") == 0
            assert not [p for p in open_files(daemon) if p.startswith(str(away))], "nothing of the old driver"
            for name in ("class", "devices"):
                shutil.move(away / name, root / name)
        until(lambda: daemon.value(UP) == 1, what="the GPU being up again")
        reader = daemon.reader()
        assert reader is not None
        assert daemon.value(r'^amdgpu_exporter_child_starts_total\{child="reader"') == 1


def test_an_upgrade_goes_on_where_the_old_daemon_stopped(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    trees.mi300x(root, sockets=2, forbidden=False)
    with serving(tmp_path, *ARGS, "--path.sysfs", str(root)) as old:
        until(lambda: old.value(UP) == 1)
        identity = {k for k in old.series() if k.startswith(("amdgpu_info", "amdgpu_up"))}
        # The new pod may come before the old one has gone; they share the state folder for a moment.
        with serving(tmp_path, *ARGS, "--path.sysfs", str(root)) as new:
            until(lambda: new.value(UP) == 1)
            assert old.stop() == 0
            assert {k for k in new.series() if k.startswith(("amdgpu_info", "amdgpu_up"))} == identity
            assert new.value("^amdgpu_expected_devices$") == 2
            assert new.value("^amdgpu_exporter_history_up$") == 1
            assert " level=error " not in new.log.read_text()
