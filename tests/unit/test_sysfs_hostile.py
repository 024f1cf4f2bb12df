"""Trees as nobody wants them: pipes, circles, twins, floods. Each costs what it breaks and no more."""

from __future__ import annotations

import errno
import os
import random
import shutil
import time
from pathlib import Path

import pytest
import trees

from exporter.backends.sysfs import SysfsBackend
from exporter.host import Root

FIRST, SECOND = "0000:05:00.0", "0000:25:00.0"


class Plain(trees.Machine):
    """The machine with roots as the daemon has them."""

    def __init__(self, root: Path, proc: Path | None = None) -> None:
        super().__init__(root, proc)
        procfs = Root(str(proc or root / "no-proc"))
        self.backend = SysfsBackend(Root(str(root)), procfs, clock=self.clock)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    trees.mi300x(tmp_path / "sys", sockets=2)
    return tmp_path / "sys"


def of(rows: dict[tuple[str, str, str], float], device: str) -> dict[tuple[str, str], float]:
    return {
        (metric, labels): v
        for (metric, pci, labels), v in rows.items()
        if pci == device and "busy_seconds" not in metric
    }


def device(root: Path, pci: str) -> Path:
    return root / "devices/pci0000:00" / pci


def test_a_pipe_in_the_place_of_any_file_blocks_nobody(node: Path) -> None:
    whole = of(Plain(node).poll(), FIRST)
    files = sorted(f for f in device(node, SECOND).rglob("*") if f.is_file())
    files += sorted(f for f in (node / "class/kfd/kfd/topology/nodes/2").rglob("*") if f.is_file())
    for start in range(4):
        for file in files[start::4]:
            file.unlink()
            os.mkfifo(file)
        machine = Plain(node)
        began = time.monotonic()
        for _ in range(2):
            assert of(machine.poll(), FIRST) == whole
        assert time.monotonic() - began < 5
    assert not [row for row in of(machine.poll(), SECOND) if row[0] != "amdgpu_compute_units"]


def test_a_pipe_that_somebody_holds_open_is_busy_and_not_waited_for(node: Path) -> None:
    file = device(node, SECOND) / "gpu_busy_percent"
    file.unlink()
    os.mkfifo(file)
    writer = os.open(file, os.O_RDWR)
    try:
        machine = Plain(node)
        machine.poll()
        assert ("amdgpu_busy_ratio", SECOND, "busy") in machine.missing() or (
            of(machine.poll(), SECOND)["amdgpu_busy_ratio", "gfx"] == 0.38  # the table speaks instead
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "number", [errno.EBUSY, errno.EIO, errno.EPERM, errno.EACCES, errno.ENODEV, errno.EINTR]
)
def test_a_reset_in_the_middle_of_a_poll_costs_what_it_hits_and_is_over_at_the_next(
    node: Path, number: int
) -> None:
    machine = trees.Machine(node)
    whole = machine.poll()
    names = sorted({r.rsplit("/", 1)[1] for r in machine.root.reads if SECOND in r})
    for seed in range(6):
        hit = random.Random(seed).sample(names, len(names) // 2)
        machine.root.errors = {f"{SECOND}/{name}": number for name in hit}
        rows = machine.poll()
        assert of(rows, FIRST) == of(whole, FIRST)
        assert of(rows, SECOND).keys() <= of(whole, SECOND).keys()
        assert 0 not in [v for k, v in of(rows, SECOND).items() if of(whole, SECOND).get(k)]
        machine.root.errors = {}
        machine.poll()
        assert of(machine.poll(), SECOND) == of(whole, SECOND)


@pytest.mark.parametrize(
    "text",
    [
        b"x" * 32,
        b"\xff\xfe\xfd",
        b"0x0",
        b"ffffffffffffffffffffffffffffffff",
        b"-1",
        b"a b\nc",
        b'"}\n# evil 1',
    ],
)
def test_identity_that_is_garbage_is_no_identity(node: Path, text: bytes) -> None:
    for name in ("unique_id", "product_name", "vbios_version", "current_memory_partition"):
        (device(node, SECOND) / name).write_bytes(text + b"\n")
    properties = node / "class/kfd/kfd/topology/nodes/2/properties"
    properties.write_text(properties.read_text().replace("unique_id", "not_unique_id"))
    machine = Plain(node)
    rows = machine.poll()
    assert [d.id.pci for d in machine.devices] == [FIRST, SECOND]
    assert machine.devices[1].uuid is None
    for said in (machine.devices[1].model, machine.devices[1].vbios):
        assert said is None or said.isprintable()
    assert of(rows, SECOND)["amdgpu_busy_ratio", "gfx"] == 0.37


def test_two_gpus_with_one_unique_id_stay_two(node: Path) -> None:
    (device(node, SECOND) / "unique_id").write_text((device(node, FIRST) / "unique_id").read_text())
    for n in (1, 2):
        file = node / f"class/kfd/kfd/topology/nodes/{n}/properties"
        lines = [x for x in file.read_text().splitlines() if not x.startswith("unique_id")]
        trees.put(file, "\n".join([*lines, "unique_id 7"]))
    machine = Plain(node)
    rows = machine.poll()
    assert [(d.id.pci, d.id.partition) for d in machine.devices] == [(FIRST, None), (SECOND, None)]
    assert len(of(rows, FIRST)) == len(of(rows, SECOND)) > 90


def test_cards_that_change_numbers_keep_their_readings(node: Path) -> None:
    trees.put(device(node, FIRST) / "gpu_busy_percent", "11")
    trees.put(device(node, SECOND) / "gpu_busy_percent", "22")
    machine = Plain(node)
    machine.poll()
    drm = node / "class/drm"
    targets = [(drm / f"card{n}").readlink() for n in (0, 1)]
    for n in (0, 1):
        (drm / f"card{n}").unlink()
    (drm / "card5").symlink_to(targets[1])
    (drm / "card9").symlink_to(targets[0])
    rows = machine.poll()
    assert of(rows, FIRST)["amdgpu_busy_ratio", "gfx"] == 0.11
    assert of(rows, SECOND)["amdgpu_busy_ratio", "gfx"] == 0.22
    assert [d.indices["drm"] for d in machine.devices] == [9, 5]


def test_a_table_that_grows_shrinks_and_changes_its_version_is_read_as_it_stands(node: Path) -> None:
    file = device(node, SECOND) / "gpu_metrics"
    good = file.read_bytes()
    machine = Plain(node)
    whole = of(machine.poll(), SECOND)
    older = trees.blob((1, 3), {"average_gfx_activity": [50], "energy_accumulator": [65536 * 7]})
    for content, energy in (
        (good + b"\0" * 5000, 6122129286992 / 65536),
        (good[:-1], None),
        (older, 7),
        (older + good, 7),
        (good * 40, 6122129286992 / 65536),
        (b"", None),
        (b"\xff" * 4096, None),
    ):
        file.write_bytes(content)
        assert of(machine.poll(), SECOND).get(("amdgpu_energy_joules_total", "")) == energy
    file.write_bytes(good)
    assert of(machine.poll(), SECOND) == whole


def test_folders_in_a_circle_and_links_to_nowhere_leave_the_other_gpu_alone(node: Path) -> None:
    whole = of(Plain(node).poll(), FIRST)
    machine = Plain(node)
    machine.poll()
    drm = node / "class/drm"
    for n, target in (
        (7, "card8"),
        (8, "card7"),
        (10, "."),
        (11, "../../.."),
        (12, "/"),
        (13, "/etc/passwd"),
    ):
        (drm / f"card{n}").symlink_to(target)
    for folder in ("hwmon", "ras", "power"):
        shutil.rmtree(device(node, SECOND) / folder)
        (device(node, SECOND) / folder).symlink_to(folder)
    nodes = node / "class/kfd/kfd/topology/nodes"
    for name in ("7", "99999999999999999999", "-1", "\u0663", "x"):
        (nodes / name).symlink_to(name)
    for _ in range(2):
        rows = machine.poll()
        assert of(rows, FIRST) == whole
        assert of(rows, SECOND)["amdgpu_busy_ratio", "gfx"] == 0.37
        assert [d.id.pci for d in machine.devices] == [FIRST, SECOND]


def test_hundreds_of_queues_and_descriptors_take_a_moment_and_are_counted(tmp_path: Path, node: Path) -> None:
    proc = trees.host(tmp_path / "proc")
    trees.alive(proc, 11)
    trees.using(node, 11, {10001: 5 << 20}, tuple((10001, 0) for _ in range(400)))
    machine = Plain(node, proc)
    began = time.monotonic()
    rows = machine.poll()
    assert rows["amdgpu_compute_queues", FIRST, "compute"] == 400
    assert time.monotonic() - began < 3
    (node / "class/kfd").rename(tmp_path / "kfd")
    (proc / "11/fd").mkdir()
    for n in range(1000):
        (proc / f"11/fd/{n}").symlink_to("socket:[5]")
    began = time.monotonic()
    Plain(node, proc).poll()
    assert time.monotonic() - began < 3


def test_a_process_number_given_to_another_user_is_another_process(tmp_path: Path, node: Path) -> None:
    proc = trees.host(tmp_path / "proc")
    trees.alive(proc, 11, user=1000, start=5000)
    trees.using(node, 11, {10001: 5 << 20}, evicted_ms=900)
    machine = Plain(node, proc)
    evictions = ("amdgpu_evictions_seconds_total", FIRST, "")
    machine.clock.at += 60
    first = machine.poll()
    assert first[evictions] == 0  # what was before we looked is nobody's
    trees.alive(proc, 11, user=2000, start=9000)
    trees.using(node, 11, {10001: 7 << 20}, evicted_ms=40)
    machine.clock.at += 60
    rows = machine.poll()
    assert {k[2]: v for k, v in rows.items() if k[0] == "amdgpu_process_memory_bytes"} == {
        "process,,,,,2000": 7 << 20
    }
    assert rows[evictions] == pytest.approx(0.04)


def test_a_whole_tree_that_goes_and_comes_back_is_followed(node: Path) -> None:
    machine = Plain(node)
    whole = machine.poll()
    node.rename(node.with_name("away"))
    for _ in range(2):
        assert machine.poll() == {}
    node.with_name("away").rename(node)
    rows = machine.poll()
    assert of(rows, FIRST) == of(whole, FIRST)
    assert of(rows, SECOND) == of(whole, SECOND)
