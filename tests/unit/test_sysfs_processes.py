"""Processes by GPU: who counts, whose memory, what cannot be known, and totals that outlive their process."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
import trees
from hypothesis import given
from hypothesis import strategies as st

from exporter.backends.sysfs_clients import DrmClients
from exporter.backends.sysfs_owners import by_owner
from exporter.backends.sysfs_processes import KfdProcesses
from exporter.backends.sysfs_running import BusyTime, Totals
from exporter.host import Root
from exporter.model import Owner, Reason

GPU, ID = "0000:05:00.0", 10001
GIB = 1 << 30


@pytest.fixture
def node(tmp_path: Path) -> tuple[Path, Path]:
    trees.mi300x(tmp_path / "sys", sockets=2)
    return tmp_path / "sys", trees.host(tmp_path / "proc")


def of_users(amounts: dict[str, int]) -> object:
    """Memory of plain processes by user id."""
    return by_owner({Owner("process", user=user): amount for user, amount in amounts.items()})


def of(rows: dict[tuple[str, str, str], object], device: str = GPU) -> dict[str, object]:
    """What rows say of processes on one device, by metric and labels."""
    names = ("processes", "process_memory_bytes", "compute_queues", "occupied_compute_units")
    names += ("evictions_seconds_total", "copy_engine_seconds_total", "page_faults_total")
    return {
        f"{m.removeprefix('amdgpu_')} {labels}".strip(): v
        for (m, d, labels), v in rows.items()
        if d == device and m.removeprefix("amdgpu_") in names
    }


def test_a_gpu_without_processes_says_zero(node: tuple[Path, Path]) -> None:
    assert of(trees.Machine(*node).poll()) == {
        "processes": 0,
        "compute_queues compute": 0,
        "compute_queues sdma": 0,
        "occupied_compute_units": 0,
        "evictions_seconds_total": 0,
        "copy_engine_seconds_total": 0,
        "page_faults_total": 0,
    }


def test_memory_is_summed_by_user_and_processes_count_where_they_hold_something(
    node: tuple[Path, Path],
) -> None:
    root, proc = node
    # The driver gives each process every GPU of the node, used or not.
    trees.using(root, 11, {10001: 3 * GIB, 10002: 0}, ((10001, 0), (10001, 0), (10001, 1)), occupied=38)
    trees.using(root, 12, {10001: GIB, 10002: GIB})
    trees.using(root, 13, {10001: 5, 10002: 0}, ((10001, 4), (10001, 9)), occupied=4)
    for pid, user in ((11, 1000), (12, 1000), (13, 0)):
        trees.alive(proc, pid, user=user)
    rows = trees.Machine(root, proc).poll()
    first = of(rows)
    assert first.pop("processes") == 3
    assert first.pop("process_memory_bytes process,,,,,1000") == 4 * GIB
    assert first.pop("process_memory_bytes process,,,,,0") == 5
    assert {k: v for k, v in first.items() if k.startswith("compute_queues")} == {
        "compute_queues compute": 2,
        "compute_queues sdma": 1,
        "compute_queues sdma_xgmi": 1,
        "compute_queues other": 1,
    }
    # Asked once for each process with a queue there.
    assert first["occupied_compute_units"] == 42
    second = of(rows, "0000:25:00.0")
    assert (second["processes"], second["process_memory_bytes process,,,,,1000"]) == (1, GIB)
    assert second["compute_queues compute"] == 0


def test_a_process_that_ended_and_is_still_listed_does_not_count(node: tuple[Path, Path]) -> None:
    root, proc = node
    for pid in (11, 12, 13, 14):
        trees.using(root, pid, {ID: GIB})
    trees.alive(proc, 11)
    trees.alive(proc, 12, state="Z", threads=1)
    trees.alive(proc, 13, state="Z", threads=3, user=7)  # the first thread has ended, the others run
    rows = of(trees.Machine(root, proc).poll())
    assert rows["processes"] == 2
    assert rows["process_memory_bytes process,,,,,1000"] == GIB
    assert rows["process_memory_bytes process,,,,,7"] == GIB


@pytest.mark.parametrize("how", ["no procfs", "a container's own", "hidden"])
def test_without_the_hosts_processes_nothing_is_said_of_them(node: tuple[Path, Path], how: str) -> None:
    root, proc = node
    trees.using(root, 11, {ID: GIB}, ((ID, 0),))
    machine = trees.Machine(root, proc)
    if how == "no procfs":
        shutil.rmtree(proc)
    elif how == "a container's own":
        trees.put(proc / "2/comm", "sh")
        trees.alive(proc, 11)
    else:
        machine.procfs.errors = {"2/comm": errno.EPERM}
    assert of(machine.poll()) == {}
    said = {m for m, d, r in machine.missing() if r == "denied" and d == GPU}
    assert said >= {"amdgpu_processes", "amdgpu_process_memory_bytes", "amdgpu_evictions_seconds_total"}


def test_what_may_not_be_read_of_one_process_is_missed_and_never_a_part_of_the_sum(
    node: tuple[Path, Path],
) -> None:
    root, proc = node
    for pid in (11, 12):
        trees.using(root, pid, {ID: GIB}, ((ID, 0),))
        trees.alive(proc, pid)
    machine = trees.Machine(root, proc)
    machine.root.errors = {f"12/vram_{ID}": errno.EACCES, "12/queues": errno.EACCES}
    rows = of(machine.poll())
    assert not {k for k in rows if k.startswith(("processes", "process_memory", "compute_queues"))}
    denied = {m.removeprefix("amdgpu_") for m, d, r in machine.missing() if (d, r) == (GPU, "denied")}
    assert denied == {"processes", "process_memory_bytes", "compute_queues", "occupied_compute_units"}


def test_queues_come_from_debugfs_where_the_folders_may_not_be_read(
    node: tuple[Path, Path], tmp_path: Path
) -> None:
    root, proc = node
    trees.using(root, 11, {ID: GIB})
    trees.alive(proc, 11)
    trees.put(
        tmp_path / "debug/kfd/mqds",
        f"Process 11 PASID 32768:\n  Compute queue on device {ID:x}\n    00000000: c0310800 00000000\n"
        f"  SDMA queue on device {ID:x}\n  Compute queue on device {10002:x}\n"
        f"  Compute queue on device {ID:x}\n",
    )
    machine = trees.Machine(root, proc, debugfs=Root(str(tmp_path / "debug")))
    machine.root.errors = {"11/queues": errno.EACCES}
    rows = machine.poll()
    assert of(rows)["compute_queues compute"] == 2
    assert of(rows)["compute_queues sdma"] == 1
    assert of(rows, "0000:25:00.0")["compute_queues compute"] == 1


def test_a_partition_has_its_own_processes(tmp_path: Path) -> None:
    trees.mi300x(tmp_path / "sys", partitions=4)
    proc = trees.host(tmp_path / "proc")
    trees.using(tmp_path / "sys", 11, {10001: 0, 10002: 0, 10003: GIB, 10004: 0}, ((10003, 0),))
    trees.alive(proc, 11)
    rows = trees.Machine(tmp_path / "sys", proc).poll()
    assert {p: of(rows, f"{GPU}/{p}")["processes"] for p in range(4)} == {0: 0, 1: 0, 2: 1, 3: 0}
    assert of(rows, f"{GPU}/2")["process_memory_bytes process,,,,,1000"] == GIB


def test_a_second_context_of_a_process_counts_with_it(node: tuple[Path, Path]) -> None:
    root, proc = node
    trees.using(root, 11, {ID: GIB}, ((ID, 0),))
    trees.using(root, "11/context_1", {ID: GIB}, ((ID, 0),), evicted_ms=9)
    trees.alive(proc, 11)
    rows = of(trees.Machine(root, proc).poll())
    assert rows["processes"] == 1
    assert rows["process_memory_bytes process,,,,,1000"] == 2 * GIB
    assert rows["compute_queues compute"] == 2


class Minutes:
    """A machine whose processes are looked at once a minute."""

    def __init__(self, root: Path, proc: Path) -> None:
        self.root, self.proc = root, proc
        self.machine = trees.Machine(root, proc)

    def evicted(self) -> object:
        self.machine.clock.at += 60
        return of(self.machine.poll()).get("evictions_seconds_total")

    def runs(self, pid: int, evicted_ms: int, **life: int) -> None:
        trees.using(self.root, pid, {ID: GIB}, ((ID, 0),), evicted_ms=evicted_ms)
        trees.alive(self.proc, pid, **life)  # type: ignore[arg-type]

    def ends(self, pid: int) -> None:
        shutil.rmtree(self.root / f"class/kfd/kfd/proc/{pid}")
        shutil.rmtree(self.proc / str(pid))


def test_evictions_never_fall_when_processes_come_and_go(node: tuple[Path, Path]) -> None:
    m = Minutes(*node)
    m.runs(11, 5_000)
    assert m.evicted() == 0  # from before we looked: a restart must not count it again
    m.runs(11, 7_000)
    m.runs(12, 1_500)  # began while we watched: all of it counts
    assert m.evicted() == 3.5
    m.ends(12)
    assert m.evicted() == 3.5
    m.runs(12, 400, start=9000)  # the number again, another process
    assert m.evicted() == 3.9
    m.runs(11, 7_250)
    m.ends(12)
    assert m.evicted() == pytest.approx(4.15)
    m.ends(11)
    assert m.evicted() == pytest.approx(4.15)


def test_a_total_that_one_process_hides_is_missed_and_comes_back_whole(node: tuple[Path, Path]) -> None:
    m = Minutes(*node)
    assert m.evicted() == 0
    m.runs(11, 2_000)
    m.runs(12, 1_000)
    m.machine.root.errors = {f"12/stats_{ID}/evicted_ms": errno.EACCES}
    assert m.evicted() is None
    m.machine.root.errors = {}
    assert m.evicted() == 3


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), max_size=5), max_size=30))
def test_a_running_total_never_falls_and_never_exceeds_what_was_counted(
    rounds: list[list[tuple[int, int]]],
) -> None:
    totals = Totals()
    before, most = 0.0, 0.0
    for things in rounds:
        for thing, value in dict(things).items():
            totals.add("gpu", thing, "", value, whole=True)
            most += value
        totals.keep({thing for thing, _ in things})
        assert before <= totals.get("gpu") <= most
        before = totals.get("gpu")


def test_counters_of_processes_are_read_on_the_slow_cadence_only(node: tuple[Path, Path]) -> None:
    root, proc = node
    trees.using(root, 11, {ID: GIB}, ((ID, 0),))
    trees.alive(proc, 11)
    machine = trees.Machine(root, proc)
    machine.poll()
    machine.root.reads = []
    for _ in range(11):  # 55 seconds
        machine.poll()
    rare = ("sdma_", "evicted_ms", "faults", "page_in")
    assert not [r for r in machine.root.reads if any(word in r for word in rare)]
    assert 3 <= len([r for r in machine.root.reads if r.endswith(f"vram_{ID}")]) <= 4
    machine.poll()
    assert [r for r in machine.root.reads if "sdma_" in r]


def test_many_processes_on_many_gpus_are_read_where_they_are_active(tmp_path: Path) -> None:
    ids = list(range(100, 120))
    proc = trees.host(tmp_path / "proc")
    for pid in range(11, 71):
        base = tmp_path / f"class/kfd/kfd/proc/{pid}"
        own = 100 + pid % 10
        for gpu in ids:
            trees.put(base / f"vram_{gpu}", str(GIB if gpu == own else 0))
        trees.alive(proc, pid)
    root = trees.WatchedRoot(tmp_path)
    reader = KfdProcesses(root, trees.WatchedRoot(proc))
    whole = reader.read(0, "class/kfd/kfd", frozenset(ids))
    assert whole is not None
    assert [whole[gpu]["count"] for gpu in (100, 109, 110)] == [6, 6, 0]
    root.reads = []
    assert reader.read(20, "class/kfd/kfd", frozenset(ids)) == whole
    assert len([r for r in root.reads if "vram_" in r]) == 60
    trees.put(tmp_path / "class/kfd/kfd/proc/11/vram_119", "5")
    again = reader.read(61, "class/kfd/kfd", frozenset(ids))  # every minute all of them
    assert again is not None
    assert again[119]["count"] == 1


def test_a_process_of_which_nobody_can_tell_whether_it_lives_is_no_zero(node: tuple[Path, Path]) -> None:
    root, proc = node
    trees.using(root, 11, {ID: GIB})
    trees.alive(proc, 11)
    trees.put(proc / "11/stat", "nonsense")
    machine = trees.Machine(root, proc)
    assert "processes" not in of(machine.poll())
    assert ("amdgpu_processes", GPU, "malformed") in machine.missing()


# --- without the compute driver ------------------------------------------------------------------------


def client(pdev: str, number: int, vram: str, **more: str) -> str:
    lines = {"drm-driver": "amdgpu", "drm-pdev": pdev, "drm-client-id": str(number), "drm-memory-vram": vram}
    return "\n".join(f"{key}:\t{value}" for key, value in (lines | more).items())


class Desk:
    """A procfs with processes that have a GPU open, and no compute driver."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.root = trees.WatchedRoot(proc)
        self.clients = DrmClients(self.root, every_s=60)
        self.nodes = {"/dev/dri/renderD128": GPU, "/dev/dri/card0": GPU}
        self.now = 0.0

    def has(self, pid: int, descriptors: dict[int, tuple[str, str]], user: int = 1000) -> None:
        trees.alive(self.proc, pid, user=user)
        (self.proc / f"{pid}/fd").mkdir(exist_ok=True)
        for number, (target, text) in descriptors.items():
            (self.proc / f"{pid}/fd/{number}").symlink_to(target)
            trees.put(self.proc / f"{pid}/fdinfo/{number}", text)

    def look(self) -> object:
        self.now += 60
        return self.clients.read(self.now, self.nodes)[GPU]


def test_descriptors_of_one_client_count_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    render = "/dev/dri/renderD128"
    desk.has(11, {3: (render, client(GPU, 5, "2048 KiB")), 4: (render, client(GPU, 5, "2048 KiB"))})
    desk.has(12, {7: (render, client(GPU, 6, "3 MiB")), 8: (render, client(GPU, 5, "2048 KiB"))}, user=0)
    desk.has(13, {0: ("/dev/null", "pos:\t0")})
    assert desk.look() == {"count": 2, "memory": of_users({"1000": 2 << 20, "0": 3 << 20})}


def test_real_fdinfo_of_three_kernels_through_the_fallback(samples: Path, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.nodes = {"/dev/dri/renderD128": "0000:04:00.0", "/dev/dri/renderD129": "0000:08:00.0"}
    folder = samples / "hardware/fdinfo"
    for pid, (name, node) in enumerate(
        (
            ("kernel-6.1-style-pasid-first.txt", "renderD129"),
            ("kernel-6.12-style-mixed-units.txt", "renderD128"),
            ("kernel-6.13-style-compute-client.txt", "renderD128"),
        ),
        start=11,
    ):
        desk.has(pid, {5: (f"/dev/dri/{node}", (folder / name).read_text())})
    groups = desk.clients.read(0, desk.nodes)
    assert groups["0000:04:00.0"] == {"count": 2, "memory": of_users({"1000": 557494272 + 45633536})}
    assert groups["0000:08:00.0"] == {"count": 1, "memory": of_users({"1000": 2117632})}


def test_a_process_that_may_not_be_looked_into_leaves_the_count_unknown(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.has(11, {3: ("/dev/dri/renderD128", client(GPU, 5, "2048 KiB"))})
    desk.has(12, {})
    desk.root.errors = {"12/fd": errno.EACCES}
    assert desk.look() is Reason.DENIED
    desk.root.errors = {}
    assert desk.look() == {"count": 1, "memory": of_users({"1000": 2 << 20})}


@pytest.mark.parametrize("text", ["", "pos:\t0", client(GPU, 5, "2048 furlongs"), client("nowhere", 5, "1")])
def test_a_descriptor_that_does_not_say_what_it_holds_is_no_zero(tmp_path: Path, text: str) -> None:
    desk = Desk(tmp_path)
    desk.has(11, {3: ("/dev/dri/renderD128", text)})
    assert desk.look() in (Reason.UNSUPPORTED, Reason.MALFORMED)


def test_the_look_is_bounded_and_says_when_it_is_not_complete(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.clients = DrmClients(desk.root, every_s=60, descriptors=30)
    for pid in range(11, 21):
        desk.has(pid, dict.fromkeys(range(5), ("/dev/null", "pos:\t0")))
    desk.has(99, {3: ("/dev/dri/renderD128", client(GPU, 5, "1 MiB"))})
    assert desk.look() is Reason.TIMEOUT
    seen = [desk.look() for _ in range(6)]
    assert seen[-1] == {"count": 1, "memory": of_users({"1000": 1 << 20})}
    looked = set()
    desk.root.names = lambda rel: looked.add(rel) or Root.names(desk.root, rel)  # type: ignore[method-assign,func-returns-value]
    desk.look()
    assert len(looked) < 6, "processes without a descriptor are looked at again each time"


def test_the_backend_falls_back_to_descriptors_without_the_compute_driver(node: tuple[Path, Path]) -> None:
    root, proc = node
    (root / "class/kfd/kfd/proc").rmdir()
    Desk(proc).has(11, {3: ("/dev/dri/renderD128", client(GPU, 5, "2048 KiB"))})
    rows = trees.Machine(root, proc).poll()
    assert of(rows) == {"processes": 1, "process_memory_bytes process,,,,,1000": 2 << 20}
    assert of(rows, "0000:25:00.0") == {"processes": 0}


def test_without_the_compute_driver_the_descriptors_speak_at_every_poll(node: tuple[Path, Path]) -> None:
    root, proc = node
    (root / "class/kfd/kfd/proc").rmdir()
    Desk(proc).has(11, {3: ("/dev/dri/renderD128", client(GPU, 5, "2048 KiB"))})
    machine = trees.Machine(root, proc)
    for _ in range(5):
        assert of(machine.poll()) == {"processes": 1, "process_memory_bytes process,,,,,1000": 2 << 20}


# --- busy time -----------------------------------------------------------------------------------------


def test_busy_time_is_the_share_of_each_interval_times_its_length() -> None:
    time = BusyTime()
    time.update(100.0, 5_000, {"gfx": 77_000.0})
    assert time.seconds == {"gfx": 0}
    time.update(110.0, 15_000, {"gfx": 77_000.0 + 10_000 * 25})
    assert time.seconds["gfx"] == pytest.approx(2.5)
    time.update(115.0, 40_000, {"gfx": 77_000.0 + 10_000 * 25 + 25_000 * 100})
    assert time.seconds["gfx"] == pytest.approx(7.5)


def test_busy_time_survives_a_32_bit_accumulator_that_goes_round() -> None:
    time = BusyTime()
    time.update(0.0, 1_000, {"gfx": 2.0**32 - 50_000})
    time.update(10.0, 2_000, {"gfx": 0.0})
    assert time.seconds["gfx"] == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("now", "samples", "percent"),
    [
        (10.0, 900, 500_000.0),  # the driver came anew: samples start over
        (10.0, 1_000, 500_000.0),  # no sample since
        (4000.0, 900_000, 1e6),  # too long ago
        (10.0, 2_000, 1e6),  # busier than can be
        (0.0, 2_000, 1000.0),
    ],
)
def test_busy_time_leaves_out_an_interval_it_cannot_trust(now: float, samples: int, percent: float) -> None:
    time = BusyTime()
    time.update(0.0, 1_000, {"gfx": 1_000.0})
    time.update(now, samples, {"gfx": percent})
    assert time.seconds["gfx"] == 0
    time.update(now + 10, samples + 1000, {"gfx": percent + 100_000})
    assert time.seconds["gfx"] == pytest.approx(10.0)


def test_busy_time_of_a_partition_is_that_of_its_own_xccs(tmp_path: Path) -> None:
    (device,) = trees.mi300x(tmp_path, partitions=4)
    machine = trees.Machine(tmp_path)
    shares = (10, 20, 30, 40)

    def slots(samples: int) -> bytes:
        values = {**trees.METRICS, "accumulation_counter": [samples]}
        return trees.blob((1, 8), values, tuple({"gfx_busy_acc": [s * samples] * 2} for s in shares))

    trees.put(device / "gpu_metrics", slots(1000))
    machine.poll()
    trees.put(device / "gpu_metrics", slots(2000))
    rows = machine.poll()  # five seconds later
    for p, share in enumerate(shares):
        got = rows["amdgpu_busy_seconds_total", f"{GPU}/{p}", "gfx"]
        assert got == pytest.approx(5 * share / 100)


def test_time_asleep_is_not_busy_time(tmp_path: Path) -> None:
    (device,) = trees.mi300x(tmp_path)
    machine = trees.Machine(tmp_path)
    machine.poll()
    trees.put(device / "power/runtime_status", "suspended")
    machine.poll()
    trees.put(device / "power/runtime_status", "active")
    values = {
        **trees.METRICS,
        "accumulation_counter": [8213780 + 100],
        "gfx_activity_acc": [308_016_750 + 10_000],
    }
    trees.put(device / "gpu_metrics", trees.blob((1, 8), values))
    assert machine.poll()["amdgpu_busy_seconds_total", GPU, "gfx"] == 0
