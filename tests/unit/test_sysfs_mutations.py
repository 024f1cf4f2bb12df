"""Input that is cut, flipped, doubled, widened or says N/A is an error or an absence, never a new zero."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trees

from exporter.formats import cgroup, gpu_metrics, gpu_metrics_units, proc_text, sysfs_text
from exporter.model import FormatError, Reason

SEED, ROUNDS = 20261201, 250


def table(blob: bytes) -> list[Any]:
    decoded = gpu_metrics.decode(blob)
    units = gpu_metrics_units
    return [
        units.unify(decoded, gpu_metrics.version_of(blob)),
        *(units.partition_busy(decoded, p, n) for p in (0, 3, 7) for n in (None, 1, 2)),
        *(units.activity(decoded, p, 2) for p in (None, 0, 3, 7)),
        units.die_busy(decoded),
        units.samples(decoded),
    ]


def own_table(blob: bytes) -> list[Any]:
    return [gpu_metrics_units.own_busy(gpu_metrics.decode_partition(blob))]


def own_blob() -> bytes:
    layout = gpu_metrics.own_table()
    out = bytearray(b"\xff" * layout.size)
    out[:4] = layout.size.to_bytes(2, "little") + b"\x01\x00"
    trees._fill(out, layout, 0, {"gfx_busy_inst": [41, 43], "vcn_busy": [7], "gfx_busy_acc": [900, 901]})
    return bytes(out)


def _fitting(version: tuple[int, int]) -> dict[str, list[int]]:
    """The made values as far as a table's fields are wide enough for them."""
    offsets = gpu_metrics.table(version).offsets
    return {k: v for k, v in trees.METRICS.items() if k in offsets and max(v) < 1 << 8 * offsets[k][1]}


PROPERTIES = (
    b"cpu_cores_count 7\nsimd_count 1216\nsimd_per_cu 4\nvendor_id 4098\nlocation_id 1280\n"
    b"unique_id 11936219600920629951\nnum_xcc 8\n"
)
FDINFO = (
    b"pos:\t3\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t30\ndrm-pdev:\t0000:04:00.0\n"
    b"pasid:\t32785\ndrm-resident-vram:\t544428 KiB\ndrm-resident-gtt:\t22 MiB\n"
    b"drm-memory-vram:\t544428 KiB\n"
    b"drm-engine-gfx:\t39456116802 ns\ndrm-engine-capacity-gfx:\t2\n"
)
STAT = b"41 (a) b) R 1) S 1 41 41 1 1 4194560 11 12 13 14 15 16 17 18 20 1 64 1 90041 1 1\n"
STATUS = b"Name:\ta\nUid:\t1000\t1001\t1002\t1003\nGid:\t7\t7\t7\t7\n"
MQDS = (
    b"Process 41 PASID 32769:\n  Compute queue on device 2711\n    00000010: c0310800\n"
    b"  SDMA queue on device 2711\n"
)

GROUP = (
    b"0::/system.slice/slurmstepd.scope/job_100312/step_4/user/task_7\n"
    b"1:devices:/kubepods/burstable/pod0a1b2c3d-1111-2222-3333-444455556666/" + b"ab" * 32 + b"\n"
)
LISTING = (
    b"VCE feature version: 0, firmware version: 0x352d0400\nSMC feature version: 0, firmware version: "
    b"0x001c2800\nMC feature version: 0, firmware version: 0x00000000\n"
)

TEXTS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "integer": (sysfs_text.integer, b"206141652992\n"),
    "hexadecimal": (sysfs_text.hexadecimal, b"1112\n"),
    "level": (sysfs_text.active_megahertz, b"S: 19Mhz\n1: 132Mhz\n2: 2111Mhz *\n"),
    "speed": (sysfs_text.transfers_per_second, b"32.5 GT/s PCIe\n"),
    "lanes": (sysfs_text.lanes, b"16\n"),
    "errors": (sysfs_text.ras_counts, b"ue: 3\nce: 21\nde: 1\n"),
    "pages": (sysfs_text.retired_pages, b"0x00000001 : 0x00001000 : R\n0x2 : 0x1 : P\n0x3 : 0x1 : F\n"),
    "properties": (sysfs_text.properties, PROPERTIES),
    "firmware": (sysfs_text.firmware_version, b"0x00561a00\n"),
    "firmware listing": (
        sysfs_text.firmware_listing,
        LISTING,
    ),
    "uevent": (sysfs_text.uevent, b"DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:05:00.0\n"),
    "fdinfo": (lambda data: _client(proc_text.drm_client(data)), FDINFO),
    "stat": (lambda data: proc_text.life(data).start, STAT),
    "status": (proc_text.user, STATUS),
    "control group": (lambda data: [part for part in cgroup.place(data) if part], GROUP),
    "queues": (lambda data: [q.gpu_id for q in proc_text.debug_queues(data)], MQDS),
}
BLOBS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    **{
        f"table {v[0]}.{v[1]}": (table, trees.blob(v, _fitting(v), (trees.SLOT, trees.SLOT)))
        for v in gpu_metrics.LAYOUTS
    },
    "table 1.9": (
        table,
        trees.attributes(
            [
                *((0, 2, [61]), (3, 2, [411]), (7, 6, [9]), (9, 4, [5]), (20, 4, [77]), (29, 6, [1, 2, 3])),
                *((31, 2, [1, 1, 0]), (40, 4, [91, 92, 65535]), (43, 6, [5, 6, 7]), (48, 2, [45, 46])),
            ]
        ),
    ),
    "partition 1.0": (own_table, own_blob()),
    "partition 1.1": (own_table, trees.attributes([(40, 4, [91, 92]), (42, 2, [3])], revision=1)),
}


def _client(found: proc_text.DrmClient | None) -> Any:
    return None if found is None else [found.pci, found.client, dict(found.memory), dict(found.engines)]


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(node, Mapping):
        for key, child in node.items():
            yield from leaves(child, (*path, key))
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from leaves(child, (*path, index))
    else:
        yield path, node


def zeros(node: Any) -> set[tuple[Any, ...]]:
    return {path for path, leaf in leaves(node) if not isinstance(leaf, str) and leaf == 0}


def cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data))]


def flip(data: bytes, dice: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(dice.randint(1, 6)):
        out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


def double(data: bytes, dice: random.Random) -> bytes:
    a, b = sorted((dice.randrange(len(data)), dice.randrange(len(data))))
    return data[:b] + data[a:b] + data[b:]


def column(data: bytes, dice: random.Random) -> bytes:
    lines = data.split(b"\n")
    n = dice.randrange(len(lines))
    words = lines[n].split(b" ")
    words.insert(dice.randint(0, len(words)), dice.choice((b"N/A", b"9", b"x", b"")))
    lines[n] = b" ".join(words)
    return b"\n".join(lines)


def not_available(data: bytes, dice: random.Random) -> bytes:
    a = dice.randrange(len(data))
    b = min(len(data), a + dice.randint(1, 8))
    return data[:a] + b"N/A" + data[b:]


MUTATIONS = (cut, flip, double, column, not_available)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", [*TEXTS, *BLOBS])
def test_only_a_format_error_leaves_a_decoder_and_every_number_is_one(
    name: str, mutate: Callable[[bytes, random.Random], bytes]
) -> None:
    decode, data = (TEXTS | BLOBS)[name]
    dice = random.Random(f"{SEED} {name} {mutate.__name__}")
    whole = zeros(decode(data))
    for _ in range(ROUNDS if name in TEXTS else 60):
        bad = mutate(data, dice)
        try:
            out = decode(bad)
        except FormatError:
            continue
        for path, leaf in leaves(out):
            assert leaf is None or isinstance(leaf, str | Reason | int | float), (bad, path)
            assert not isinstance(leaf, float) or math.isfinite(leaf), (bad, path)
        # A flipped digit may be a 0 that somebody wrote, and a shorter list has fewer pages; else no zero.
        if name in TEXTS and mutate is not flip and name != "pages":
            assert zeros(out) <= whole, bad


def test_seeds_are_understood_whole() -> None:
    for name, (decode, data) in (TEXTS | BLOBS).items():
        found = [leaf for _, leaf in leaves(decode(data))]
        assert found, name
        if name in TEXTS:
            assert not [leaf for leaf in found if leaf is None or isinstance(leaf, Reason)], name


# --- a whole tree, one bad file at a time --------------------------------------------------------------


def _tree(folder: Path) -> tuple[Path, Path]:
    root, proc = folder / "sys", trees.host(folder / "proc")
    trees.mi300x(root, sockets=2)
    trees.using(root, 11, {10001: 1 << 30, 10002: 5}, ((10001, 0), (10002, 1)), occupied=3)
    trees.alive(proc, 11)
    for a, b in ((1, 0), (1, 2)):
        trees.put(
            root / f"class/kfd/kfd/topology/nodes/{a}/io_links/{b}/properties",
            f"type {11 if b else 2}\nnode_from {a}\nnode_to {b}\nweight 15",
        )
    return root, proc


BAD = {"N/A": b"N/A\n", "nothing": b"", "nuls": b"\0" * 16, "noise": bytes(range(128, 256)), "nan": b"nan\n"}


@pytest.mark.parametrize("how", BAD)
def test_one_bad_file_in_a_tree_makes_no_number_and_no_zero(tmp_path: Path, how: str) -> None:
    root, proc = _tree(tmp_path)
    whole = trees.Machine(root, proc).poll()
    files = sorted(p for base in (root, proc) for p in base.rglob("*") if p.is_file() and not p.is_symlink())
    assert len(files) > 150
    for file in files:
        if file.name == "gpu_vram_bad_pages" and how in ("nothing", "nuls"):
            continue  # an empty list of pages is no pages
        good = file.read_bytes()
        file.write_bytes(BAD[how])
        machine = trees.Machine(root, proc)
        rows = machine.poll()  # a series that stands twice fails in there
        file.write_bytes(good)
        for key, value in rows.items():
            assert isinstance(value, int | float), (file, key)
            assert math.isfinite(value), (file, key)
            assert value != 0 or whole.get(key) == 0, f"{file.relative_to(tmp_path)}: {key} became 0"


def test_a_tree_that_loses_folders_at_random_keeps_answering(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    for turn in range(12):
        root, proc = _tree(tmp_path / str(turn))
        machine = trees.Machine(root, proc)
        machine.poll()
        folders = sorted(p for p in root.rglob("*") if p.is_dir() and not p.is_symlink())
        for folder in dice.sample(folders, 4):
            shutil.rmtree(folder, ignore_errors=True)
        for _ in range(2):
            assert all(math.isfinite(v) for v in machine.poll().values())  # type: ignore[arg-type]
