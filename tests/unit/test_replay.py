"""Captures: the same backend on another root and clock; one file less is its readings less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trees

from exporter.backends import replay
from exporter.backends.sysfs import SysfsBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.checks.record import record
from exporter.host import Root
from exporter.model import ConfigError, Gap, Series, Value

GPU = "0000:05:00.0"
DEVICE = f"devices/pci0000:00/{GPU}"


class Player:
    """A capture played by the sysfs backend on a clock that moves when told."""

    def __init__(self, capture: Path) -> None:
        self.clock = trees.TestClock()
        sysfs, procfs = replay.open_capture(capture, self.clock)
        self.backend = SysfsBackend(sysfs, procfs, clock=self.clock, slow_s=0, ras_s=0)
        self._extractor = Extractor(CATALOGUE, "sysfs")

    def at(self, seconds: float) -> dict[tuple[str, ...], Value]:
        self.clock.at = 1000.0 + seconds
        series: list[Series] = []
        values: list[Value] = []
        gaps: list[Gap] = []
        for device, groups in self.backend.poll():
            self._extractor.extract(device, groups, series, values, gaps)
        return {(s.metric, *s.labels): v for s, v in zip(series, values, strict=True)}


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Three records of ten seconds: busy as text, the blob as bytes."""
    folder = tmp_path / "capture"
    (device,) = trees.mi300x(folder / "sys", forbidden=False)
    trees.put(folder / "capture.json", json.dumps(_described()))
    trees.put(folder / "frames" / DEVICE / "gpu_busy_percent", b"5\n\n\n57\n\n100\n")
    blobs = [
        trees.blob((1, 8), {**trees.METRICS, "accumulation_counter": [n]}, (trees.SLOT,))
        for n in (100, 200, 300)
    ]
    trees.put(folder / "frames" / DEVICE / "gpu_metrics", b"".join(blobs))
    assert device.is_dir()
    return folder


def _described(**more: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "made",
        "description": "three records",
        "synthetic": True,
        "frames": {"count": 3, "seconds": 10},
        "windows": [],
        **more,
    }


def test_records_take_turns_by_the_clock_and_begin_again(capture: Path) -> None:
    player = Player(capture)
    seen = [
        (rows["amdgpu_busy_ratio", "gfx"], rows[("amdgpu_throttle_samples_total",)])
        for rows in map(player.at, (0, 9.9, 10, 25, 29.9, 30, 62))
    ]
    first, second, third = (0.05, 100), (0.57, 200), (1.0, 300)
    assert seen == [first, first, second, third, third, first, first]


def test_files_without_records_stand_still(capture: Path) -> None:
    player = Player(capture)
    assert {player.at(t)[("amdgpu_power_watts",)] for t in (0, 10, 20)} == {410}


def test_the_tree_alone_works_with_the_sysfs_backend(capture: Path) -> None:
    rows = trees.Machine(capture / "sys").poll()
    assert rows["amdgpu_busy_ratio", GPU, "gfx"] == 0.37


def test_deleting_one_file_of_the_capture_removes_exactly_its_series(capture: Path) -> None:
    whole = Player(capture).at(10)
    (capture / "sys" / DEVICE / "mem_info_gtt_used").unlink()
    assert whole.keys() - Player(capture).at(10).keys() == {("amdgpu_memory_used_bytes", "gtt")}


def test_records_without_their_file_do_not_count(capture: Path) -> None:
    (capture / "sys" / DEVICE / "gpu_busy_percent").unlink()
    assert Player(capture).at(10)["amdgpu_busy_ratio", "gfx"] == 0.38  # what the still table says
    (capture / "sys" / DEVICE / "gpu_metrics").unlink()
    rows = Player(capture).at(10)
    assert ("amdgpu_busy_ratio", "gfx") not in rows
    assert ("amdgpu_throttle_samples_total",) not in rows


def test_a_file_deleted_while_it_plays_is_gone_at_the_next_poll(capture: Path) -> None:
    player = Player(capture)
    assert ("amdgpu_throttle_samples_total",) in player.at(0)
    (capture / "sys" / DEVICE / "gpu_metrics").unlink()
    assert ("amdgpu_throttle_samples_total",) not in player.at(5)


def test_a_capture_says_what_it_is(capture: Path) -> None:
    about = replay.describe(capture)
    assert (about.name, about.synthetic, about.count, about.seconds) == ("made", True, 3, 10)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[]", "must hold one object"),
        (json.dumps(_described(version=2)), "version is 2"),
        (json.dumps(_described(frames={"count": 0, "seconds": 1})), "count must be 1 or more"),
        (json.dumps(_described(frames={"count": 2, "seconds": 0})), "seconds above 0"),
        (json.dumps(_described(frames=[])), "frames must be"),
    ],
)
def test_a_broken_description_is_one_line_that_names_the_file(
    capture: Path, content: str | None, says: str
) -> None:
    file = capture / "capture.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError) as e:
        replay.open_capture(capture, trees.TestClock())
    assert str(file) in str(e.value)
    assert says in str(e.value)
    assert "\n" not in str(e.value)


def test_records_of_unequal_length_are_refused_by_name(capture: Path) -> None:
    file = capture / "frames" / DEVICE / "gpu_busy_percent"
    file.write_bytes(b"5\n57\n100\n\n")
    with pytest.raises(ConfigError, match="gpu_busy_percent: 10 bytes are not 3 records of one length"):
        replay.open_capture(capture, trees.TestClock())


def test_a_folder_without_a_tree_is_refused(tmp_path: Path) -> None:
    trees.put(tmp_path / "capture.json", json.dumps(_described()))
    with pytest.raises(ConfigError, match="no such folder"):
        replay.open_capture(tmp_path, trees.TestClock())


# --- recording ---------------------------------------------------------------------------------------


def _record(source: Path, dest: Path, steps: list[dict[str, str]] | None = None) -> None:
    """Record ``source``; between two frames the files named in ``steps`` change."""
    todo = list(steps or ())

    def change(_seconds: float) -> None:
        for name, text in todo.pop(0).items():
            trees.put(source / name, text)

    record(Root(str(source)), Root(str(source / "none")), dest, len(todo) + 1, 5.0, sleep=change)


def test_a_capture_shows_the_readings_of_the_machine(tmp_path: Path) -> None:
    source, dest = tmp_path / "sys", tmp_path / "capture"
    trees.mi300x(source, sockets=2, partitions=2)
    _record(source, dest)
    live, copy = trees.Machine(source), trees.Machine(dest / "sys")
    assert copy.poll() == live.poll()
    assert copy.missing() == live.missing()
    strip = [{**vars_of(d), "uuid": None} for d in live.devices]
    assert [{**vars_of(d), "uuid": None} for d in copy.devices] == strip


def vars_of(device: Any) -> dict[str, Any]:
    return {name: getattr(device, name) for name in device.__slots__}


def test_a_recorded_sample_shows_the_readings_of_the_sample(samples: Path, tmp_path: Path) -> None:
    for name in trees.sample_names(samples):
        source = trees.laid_out(samples, name)
        _record(source, tmp_path / name)
        assert trees.Machine(tmp_path / name / "sys").poll() == trees.Machine(source).poll(), name


def test_a_capture_shows_the_processes_of_the_machine_and_not_their_names(tmp_path: Path) -> None:
    source, proc, dest = tmp_path / "sys", trees.host(tmp_path / "proc"), tmp_path / "capture"
    trees.mi300x(source)
    trees.using(source, 4711, {10001: 1 << 30}, ((10001, 0),), evicted_ms=5, occupied=2)
    trees.alive(proc, 4711, user=1234)
    record(Root(str(source)), Root(str(proc)), dest)
    live, copy = trees.Machine(source, proc), trees.Machine(dest / "sys", dest / "proc")
    rows = copy.poll()
    assert rows == live.poll()
    assert rows["amdgpu_process_memory_bytes", GPU, "process,,,,,1234"] == 1 << 30
    assert (dest / "proc/4711/stat").read_text().startswith("4711 (masked) S ")
    assert (dest / "proc/4711/status").read_text() == "Uid:\t1234\t0\t0\t0\n"


def test_links_stay_links_and_lead_nowhere_outside(tmp_path: Path) -> None:
    source, dest = tmp_path / "sys", tmp_path / "capture"
    trees.mi300x(source)
    card = source / "class/drm/card0"
    card.unlink()
    card.symlink_to(source / DEVICE / "drm/card0")
    _record(source, dest)
    link = dest / "sys/class/drm/card0"
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == (dest / "sys" / DEVICE / "drm/card0").resolve()


def test_identifiers_are_masked_alike_everywhere(tmp_path: Path) -> None:
    source, dest = tmp_path / "sys", tmp_path / "capture"
    trees.mi300x(source, sockets=2)
    _record(source, dest)
    real = [f"{0x1D5F1D3BF5B1E400 + s:016x}" for s in range(2)]
    everything = b"".join(f.read_bytes() for f in dest.rglob("*") if f.is_file() and not f.is_symlink())
    for secret in (*real, *(str(int(r, 16)) for r in real), "69210300", "123456789\n"):
        assert secret.encode() not in everything
    machine = trees.Machine(dest / "sys", serials=True)
    machine.poll()
    uuids = [d.uuid for d in machine.devices]
    assert len(set(uuids)) == 2
    assert {d.serial for d in machine.devices} == {"MASKED"}
    nodes = dest / "sys/class/kfd/kfd/topology/nodes"
    for n, uuid in enumerate(uuids, 1):
        assert f"unique_id {int(str(uuid), 16)}\n" in (nodes / f"{n}/properties").read_text() + "\n"


def test_files_that_are_never_read_are_not_captured(tmp_path: Path) -> None:
    source, dest = tmp_path / "sys", tmp_path / "capture"
    trees.mi300x(source)
    _record(source, dest)
    names = {f.name for f in dest.rglob("*")}
    assert not names & {Path(f).name for f in trees.FORBIDDEN_FILES}


def test_frames_hold_what_changed_and_play_back(tmp_path: Path) -> None:
    source, dest = tmp_path / "sys", tmp_path / "capture"
    trees.mi300x(source)
    cap = f"{DEVICE}/hwmon/hwmon2/power1_cap"
    _record(
        source,
        dest,
        [{f"{DEVICE}/gpu_busy_percent": "100"}, {f"{DEVICE}/gpu_busy_percent": "7", cap: "600000000"}],
    )
    framed = {str(f.relative_to(dest / "frames")) for f in (dest / "frames").rglob("*") if f.is_file()}
    assert framed == {f"{DEVICE}/gpu_busy_percent", cap}
    player = Player(dest)
    shown = [player.at(t) for t in (0, 5, 10, 15)]
    assert [rows["amdgpu_busy_ratio", "gfx"] for rows in shown] == [0.37, 1.0, 0.07, 0.37]
    assert [rows[("amdgpu_power_limit_watts",)] for rows in shown] == [750, 750, 600, 750]


def test_an_unreadable_file_is_named_in_the_description(tmp_path: Path) -> None:
    source, dest = tmp_path / "sys", tmp_path / "capture"
    (device,) = trees.mi300x(source)
    (device / "pp_dpm_fclk").unlink()
    (device / "pp_dpm_fclk").mkdir()
    _record(source, dest)
    said = json.loads((dest / "capture.json").read_text())
    assert said["unreadable"] == {f"{DEVICE}/pp_dpm_fclk": "malformed"}
    assert replay.describe(dest).count == 1


def test_a_folder_that_holds_anything_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    source, dest = tmp_path / "sys", tmp_path / "capture"
    trees.mi300x(source)
    trees.put(dest / "precious", "mine")
    with pytest.raises(ConfigError, match="not an empty folder"):
        _record(source, dest)
    assert [f.name for f in dest.iterdir()] == ["precious"]


def test_a_machine_without_gpus_gives_no_capture(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    with pytest.raises(ConfigError, match="no AMD GPU here"):
        _record(tmp_path / "sys", tmp_path / "capture")
    assert not (tmp_path / "capture").exists()
