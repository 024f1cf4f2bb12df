"""A poll that holds files open and remembers shapes says what a first look would say, whatever happens."""

from __future__ import annotations

import gc
import os
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trees
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.backends.sysfs import SysfsBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.host import Held, Root
from exporter.model import Device, DeviceId, Raw, Reason

HWMON = "hwmon/hwmon2"
FAST = (
    "gpu_busy_percent",
    "mem_busy_percent",
    "vcn_busy_percent",
    "mem_info_vram_used",
    "mem_info_gtt_used",
    "pp_dpm_fclk",
    "pp_dpm_vclk",
    "current_link_speed",
    "current_link_width",
    "pcie_replay_count",
    "gpu_metrics",
    f"{HWMON}/temp2_input",
    f"{HWMON}/power1_input",
    f"{HWMON}/freq1_input",
    f"{HWMON}/in0_input",
)
STATEFUL = {"amdgpu_busy_seconds_total"}
Rows = tuple[dict[tuple[str, str, str], float], list[tuple[str, str, str]]]


class Plain(trees.Machine):
    """The machine with a root as the daemon has it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.backend = SysfsBackend(Root(str(root)), self.procfs, clock=self.clock)


def look(machine: trees.Machine) -> Rows:
    rows = machine.poll()
    return {k: v for k, v in rows.items() if k[0] not in STATEFUL}, [
        gap for gap in machine.missing() if gap[0] not in STATEFUL
    ]


def settle(root: Path, second: int) -> None:
    """Make every folder look as if nothing had come or gone for long."""
    for folder, _, _ in os.walk(root):
        os.utime(folder, (1_000_000 + second, 1_000_000 + second))


def open_files(root: Path) -> list[str]:
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return sorted(name for name in names if name.startswith(str(root)))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    [device] = trees.mi300x(tmp_path)
    return device


def _rewrite(file: Path, rng: random.Random) -> None:
    trees.put(file, str(rng.randrange(90)))


def _replace(file: Path, rng: random.Random) -> None:
    other = file.with_name("other")
    trees.put(other, str(rng.randrange(90)))
    other.rename(file)


def _delete(file: Path, _rng: random.Random) -> None:
    file.unlink()


def _spoil(file: Path, rng: random.Random) -> None:
    trees.put(file, rng.choice((b"", b"nonsense", b"\xff\xfe", b"-1", b"9" * 30, b"1_0", b"0")))


def _folder(file: Path, _rng: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _pipe(file: Path, _rng: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


OPERATIONS: tuple[Callable[[Path, random.Random], None], ...] = (
    _rewrite,
    _rewrite,
    _replace,
    _delete,
    _spoil,
    _folder,
    _pipe,
)


@pytest.mark.parametrize("seed", range(12))
def test_after_any_change_a_running_poll_says_what_a_first_look_says(
    tmp_path: Path, node: Path, seed: int
) -> None:
    rng = random.Random(seed)
    content = {name: (node / name).read_bytes() for name in FAST}
    machine = Plain(tmp_path)
    for turn in range(12):
        settle(tmp_path, turn)
        look(machine)
        look(machine)
        for name in rng.sample(FAST, rng.choice((1, 1, 2, 4))):
            file = node / name
            if file.is_file() and rng.random() < 0.8:
                rng.choice(OPERATIONS)(file, rng)
            else:
                if file.is_dir():
                    file.rmdir()
                file.unlink(missing_ok=True)
                trees.put(file, content[name])
        assert look(machine) == look(trees.Machine(tmp_path))
        assert look(machine) == look(trees.Machine(tmp_path))


def test_sensors_that_get_another_number_are_found_again(tmp_path: Path, node: Path) -> None:
    machine = Plain(tmp_path)
    settle(tmp_path, 0)
    look(machine)
    look(machine)
    (node / HWMON).rename(node / "hwmon/hwmon7")
    trees.put(node / "hwmon/hwmon7/temp2_input", "71000")
    rows, gaps = look(machine)
    assert rows["amdgpu_temperature_celsius", node.name, "junction"] == 71
    assert (rows, gaps) == look(trees.Machine(tmp_path))


def test_a_card_that_is_taken_out_leaves_no_file_open_and_is_new_when_it_is_back(
    tmp_path: Path, node: Path
) -> None:
    machine = Plain(tmp_path)
    settle(tmp_path, 0)
    look(machine)
    look(machine)
    assert len(open_files(tmp_path)) > 10
    away = tmp_path.parent / f"{tmp_path.name}-away"
    node.rename(away)
    (tmp_path / "class/drm/card0").unlink()
    rows, _ = look(machine)
    assert not any(metric == "amdgpu_busy_ratio" for metric, _, _ in rows)
    look(machine)
    gc.collect()
    assert open_files(tmp_path) + open_files(away) == []
    away.rename(node)
    trees.put(node / "gpu_busy_percent", "64")
    (tmp_path / "class/drm/card0").symlink_to(f"../../{(node / 'drm/card0').relative_to(tmp_path)}")
    rows, _ = look(machine)
    assert rows["amdgpu_busy_ratio", node.name, "gfx"] == 0.64


def test_only_plain_files_below_the_root_are_held_and_a_dead_one_is_read_by_its_path(
    tmp_path: Path, node: Path
) -> None:
    held = Held(Root(str(tmp_path)), most=100)
    name = str((node / "gpu_busy_percent").relative_to(tmp_path))
    assert held.read(name).strip() == held.read(name).strip() == b"37"
    [fd] = [int(n) for n in os.listdir("/proc/self/fd") if _is(n, node / "gpu_busy_percent")]
    # What sysfs does with the descriptor of a file that has gone: every read of it fails.
    folder = os.open(node, os.O_RDONLY)
    os.dup2(folder, fd)
    os.close(folder)
    trees.put(node / "gpu_busy_percent", "38")
    assert held.read(name).strip() == b"38"
    (node / "gpu_busy_percent").unlink()
    held.drop()
    with pytest.raises(FileNotFoundError):
        held.read(name)
    assert open_files(tmp_path) == []


def _is(number: str, file: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}") == str(file)
    except OSError:
        return False


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_no_more_files_are_held_than_allowed_and_the_rest_is_read_all_the_same(
    tmp_path: Path, node: Path, few_descriptors: None
) -> None:
    held = Held(Root(str(tmp_path)), most=Held._used + 3)
    names = [str((node / name).relative_to(tmp_path)) for name in FAST]
    for _ in range(2):
        assert [held.read(name, 16384) for name in names] == [(node / name).read_bytes() for name in FAST]
    assert len(open_files(tmp_path)) == 3
    # At the limit of the process every file is still read by its path, one at a time.
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    assert [held.read(name, 16384) for name in names] == [(node / name).read_bytes() for name in FAST]


def test_a_file_that_sysfs_does_not_announce_is_found_within_the_slow_period(
    tmp_path: Path, node: Path
) -> None:
    (node / "vcn_busy_percent").rename(node / "hwmon/away")
    machine = Plain(tmp_path)
    settle(tmp_path, 0)
    look(machine)
    (node / "hwmon/away").rename(node / "vcn_busy_percent")
    settle(tmp_path, 0)
    key = ("amdgpu_busy_ratio", node.name, "vcn")
    assert look(machine)[0][key] != 0.05  # the table still speaks for it
    machine.clock.at += 60
    assert look(machine)[0][key] == 0.05


LEAF = st.one_of(
    st.integers(-5, 120),
    st.floats(),
    st.sampled_from([None, True, "N/A", 10**400, *Reason]),
)
KEYS = st.sampled_from(["gfx", "memory", "vcn", "junction", "mem", "sclk", "fclk", "power_input", "0", "1"])


def nested(depth: int) -> st.SearchStrategy[Raw]:
    if not depth:
        return LEAF
    return st.one_of(LEAF, st.dictionaries(KEYS, nested(depth - 1), max_size=4))


GROUP = st.fixed_dictionaries(
    {},
    optional={
        "busy": nested(1),
        "hwmon": st.one_of(
            LEAF,
            st.fixed_dictionaries(
                {},
                optional={
                    "temperature": nested(1),
                    "clock": nested(1),
                    "power_input": LEAF,
                    "power_average": LEAF,
                },
            ),
        ),
        "dpm": nested(1),
        "gpu_metrics": st.one_of(
            LEAF,
            st.fixed_dictionaries(
                {},
                optional={
                    "busy": nested(1),
                    "clock": nested(1),
                    "clocks": nested(2),
                    "power": LEAF,
                    "energy": LEAF,
                    "temperature": nested(1),
                    "xgmi_link": nested(2),
                },
            ),
        ),
        "ras": nested(2),
    },
)
PLAN = Extractor(CATALOGUE, "sysfs")
GPU = Device(DeviceId("0000:05:00.0", None), 0)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(GROUP, st.integers(0, 3)), min_size=1, max_size=6))
def test_what_was_seen_before_never_changes_what_is_made_of_the_groups_now(polls: list) -> None:
    for groups, times in polls:
        for _ in range(times + 1):
            assert _made(PLAN, groups) == _made(Extractor(CATALOGUE, "sysfs"), groups)


def _made(extractor: Extractor, groups: dict) -> tuple:
    series, values, gaps = [], [], []
    extractor.extract(GPU, {name: _copy(group) for name, group in groups.items()}, series, values, gaps)
    return series, values, gaps


def _copy(group: Raw) -> Raw:
    return {key: _copy(value) for key, value in group.items()} if isinstance(group, dict) else group
