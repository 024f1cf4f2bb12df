"""A GPU that leaves: the daemon keeps its place, says that it is gone, and takes it back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.unit import trees

from .daemon import serving, until

GONE = r'^amdgpu_up\{gpu="1",pci="0000:25:00\.0"\}'


def test_a_gpu_that_was_seen_and_is_gone_stays_at_0_until_it_is_back(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    devices = trees.mi300x(root, sockets=3, forbidden=False)
    card, node = root / "class/drm/card1", root / "class/kfd/kfd/topology/nodes/2"
    target = card.readlink()
    args = (
        "--backend",
        "sysfs",
        "--path.sysfs",
        str(root),
        "--path.procfs",
        str(tmp_path),
        "--interval",
        "100ms",
    )
    with serving(tmp_path, *args) as daemon:
        until(lambda: daemon.value(GONE) == 1, what="three GPUs being up")
        card.unlink()
        shutil.move(devices[1], tmp_path / "device")
        shutil.move(node, tmp_path / "node")
        until(lambda: daemon.value(GONE) == 0, what="the GPU being down")
        series = daemon.series()
        assert series["amdgpu_devices"] == 2
        ups = {k.split('pci="')[1][:12]: v for k, v in series.items() if k.startswith("amdgpu_up{")}
        assert ups == {"0000:05:00.0": 1, "0000:25:00.0": 0, "0000:45:00.0": 1}
        said = {k.split("{")[0] for k in series if "0000:25:00.0" in k}
        assert said <= {"amdgpu_up", "amdgpu_health_state"}
        # The others keep their numbers while one is away.
        assert 'amdgpu_power_watts{gpu="2",pci="0000:45:00.0"}' in series
        assert daemon.value(r"^amdgpu_exporter_source_up\{") == 1
        shutil.move(tmp_path / "device", devices[1])
        shutil.move(tmp_path / "node", node)
        card.symlink_to(target)
        until(lambda: daemon.value(GONE) == 1, what="the GPU being back")
        assert daemon.series()["amdgpu_devices"] == 3


def test_a_gpu_whose_card_is_gone_is_down_though_kfd_still_lists_it(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    devices = trees.mi300x(root, sockets=3, forbidden=False)
    args = ("--backend", "sysfs", "--path.sysfs", str(root), "--interval", "100ms")
    with serving(tmp_path, *args) as daemon:
        until(lambda: daemon.value(GONE) == 1, what="three GPUs being up")
        (root / "class/drm/card1").unlink()
        shutil.move(devices[1], tmp_path / "device")
        until(lambda: daemon.value(GONE) == 0, what="the GPU being down")
        series = daemon.series()
        assert (series["amdgpu_devices"], series["amdgpu_expected_devices"]) == (2, 3)
        said = {k.split("{")[0] for k in series if "0000:25:00.0" in k}
        assert said <= {"amdgpu_up", "amdgpu_health_state"}
        assert 'amdgpu_power_watts{gpu="2",pci="0000:45:00.0"}' in series


def test_a_copied_tree_is_never_served_with_the_processes_of_this_machine(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    trees.mi300x(root, forbidden=False)
    me = trees.using(root, os.getpid(), {10001: 1 << 30})
    assert me.is_dir()
    with serving(tmp_path, "--backend", "sysfs", "--path.sysfs", str(root), "--interval", "100ms") as daemon:
        series = daemon.series()
        assert not [name for name in series if name.startswith("amdgpu_process")]
        assert daemon.value(r'amdgpu_exporter_readings_missing\{source="sysfs",reason="denied"') > 0
    # A copy that comes with a procfs of its own is believed.
    proc = trees.host(tmp_path / "proc")
    trees.alive(proc, os.getpid())
    args = ("--path.sysfs", str(root), "--path.procfs", str(proc), "--interval", "100ms")
    with serving(tmp_path, "--backend", "sysfs", *args) as daemon:
        assert daemon.value(r"^amdgpu_processes\{") == 1
