"""Resets are counted by the core dumps that appear, each once and for its own GPU, and never read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trees

FIRST, SECOND = "0000:05:00.0", "0000:25:00.0"


def resets(machine: trees.Machine) -> dict[str, object]:
    return {pci: v for (metric, pci, _), v in machine.poll().items() if metric == "amdgpu_resets_total"}


def test_a_dump_that_appears_counts_once_for_its_gpu(tmp_path: Path) -> None:
    devices = trees.mi300x(tmp_path, sockets=2)
    trees.dumped(tmp_path, "devcd1", devices[0])  # of before
    machine = trees.Machine(tmp_path)
    assert resets(machine) == {FIRST: 0, SECOND: 0}
    old = trees.dumped(tmp_path, "devcd2", devices[1])
    assert resets(machine) == {FIRST: 0, SECOND: 1}
    assert resets(machine) == {FIRST: 0, SECOND: 1}
    shutil.rmtree(old)  # the kernel removes it after some minutes
    assert resets(machine) == {FIRST: 0, SECOND: 1}
    trees.dumped(tmp_path, "devcd3", devices[0])
    trees.dumped(tmp_path, "devcd4", devices[1])
    assert resets(machine) == {FIRST: 1, SECOND: 2}
    assert not [r for r in machine.root.reads if r.endswith("/data")]


def test_dumps_of_other_devices_and_entries_that_vanish_count_for_nobody(tmp_path: Path) -> None:
    trees.mi300x(tmp_path)
    machine = trees.Machine(tmp_path)
    resets(machine)
    trees.put(tmp_path / "devices/pci0000:00/0000:99:00.0/vendor", "0x8086")
    trees.dumped(tmp_path, "devcd5", tmp_path / "devices/pci0000:00/0000:99:00.0")
    (tmp_path / "class/devcoredump/devcd6").mkdir()
    (tmp_path / "class/devcoredump/devcd7").symlink_to("nowhere")
    assert resets(machine) == {FIRST: 0}


@pytest.mark.parametrize("how", ["missing", "disabled", "nonsense"])
def test_a_kernel_that_makes_no_dumps_is_a_reason_and_no_zero(tmp_path: Path, how: str) -> None:
    trees.mi300x(tmp_path)
    switch = tmp_path / "class/devcoredump/disabled"
    switch.unlink()
    if how != "missing":
        trees.put(switch, "1" if how == "disabled" else "N/A")
    machine = trees.Machine(tmp_path)
    assert resets(machine) == {}
    assert ("amdgpu_resets_total", FIRST, "unsupported") in machine.missing()


def test_a_partitioned_gpu_is_reset_as_a_whole(tmp_path: Path) -> None:
    (device,) = trees.mi300x(tmp_path, partitions=4)
    machine = trees.Machine(tmp_path)
    resets(machine)
    trees.dumped(tmp_path, "devcd1", device)
    assert resets(machine) == {FIRST: 1}
