"""The spool: complete windows only, oldest first, and nothing outside it is ever touched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from exporter.host import Clock
from exporter.model import ConfigError
from exporter.windows import spool as module
from exporter.windows.spool import QUARANTINE, ReplaySchedule, Spool

NOW = 1_700_000_000.0


class StillClock(Clock):
    def __init__(self) -> None:
        self.at = NOW
        self.mono = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.mono


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "spool").mkdir()
    return tmp_path / "spool"


@pytest.fixture
def spool(root: Path) -> Spool:
    return Spool(root, StillClock())


def make(root: Path, rel: str, age_s: float = 60.0, manifest: bool = True) -> Path:
    folder = root / rel
    folder.mkdir(parents=True)
    (folder / "1_kernel_trace.csv").write_text("Kind\n")
    if manifest:
        (folder / "manifest.json").write_text("{}")
    for path in (*folder.iterdir(), folder):
        os.utime(path, (NOW - age_s, NOW - age_s))
    return folder


def me() -> str:
    return str(os.geteuid())


def test_complete_windows_come_oldest_first(root: Path, spool: Spool) -> None:
    young = make(root, f"{me()}/a", age_s=1)
    old = make(root, f"{me()}/z", age_s=100)
    middle = make(root, "dropped", age_s=50)
    assert spool.complete() == [old, middle, young]


@pytest.mark.parametrize("name", [".w1", "w1.partial"])
def test_a_window_still_being_written_is_left_alone(root: Path, spool: Spool, name: str) -> None:
    folder = make(root, f"{me()}/{name}")
    make(root, name)
    assert spool.complete() == []
    assert folder.is_dir()


def test_a_folder_without_manifest_counts_once_it_has_settled(root: Path, spool: Spool) -> None:
    fresh = make(root, "fresh", age_s=9, manifest=False)
    settled = make(root, "settled", age_s=11, manifest=False)
    assert spool.complete() == [settled]
    os.utime(fresh / "1_kernel_trace.csv", (NOW - 30, NOW - 30))
    os.utime(fresh, (NOW - 30, NOW - 30))
    assert spool.complete() == [fresh, settled]


def test_the_newest_file_decides_whether_it_has_settled(root: Path, spool: Spool) -> None:
    folder = make(root, "w", age_s=100, manifest=False)
    os.utime(folder / "1_kernel_trace.csv", (NOW - 2, NOW - 2))
    assert spool.complete() == []


def test_one_look_names_a_bounded_number(root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 3)
    made = [make(root, f"w{i}", age_s=100 - i) for i in range(5)]
    assert spool.complete() == made[:3]


def test_who_writes_most_does_not_keep_others_waiting(
    root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH", 3)
    flood = [make(root, f"{me()}/w{i}", age_s=100 - i) for i in range(9)]
    other = make(root, "late", age_s=5)
    assert spool.complete() == [flood[0], flood[1], other]


def test_a_missing_spool_is_an_empty_one(tmp_path: Path) -> None:
    assert Spool(tmp_path / "nowhere").complete() == []


def test_done_removes_the_window_and_nothing_else(root: Path, spool: Spool, tmp_path: Path) -> None:
    folder, other = make(root, f"{me()}/w"), make(root, f"{me()}/x")
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_text("kept")
    (folder / "sub").mkdir()
    (folder / "sub" / "link").symlink_to(treasure)
    spool.done(folder)
    assert not folder.exists()
    assert other.is_dir()
    assert (treasure / "gold").read_text() == "kept"
    spool.done(folder)


def test_done_never_follows_a_link_that_replaced_the_window(root: Path, spool: Spool, tmp_path: Path) -> None:
    treasure = make(tmp_path, "treasure/w")
    folder = root / me() / "w"
    folder.parent.mkdir()
    folder.symlink_to(treasure)
    spool.done(folder)
    assert (treasure / "manifest.json").exists()


def test_done_never_follows_a_link_that_replaced_the_writers_folder(
    root: Path, spool: Spool, tmp_path: Path
) -> None:
    treasure = make(tmp_path, "treasure/w")
    (root / me()).symlink_to(treasure.parent)
    spool.done(root / me() / "w")
    assert (treasure / "manifest.json").exists()
    assert spool.complete() == []


@pytest.mark.parametrize("rel", ["..", "../treasure", "1000/../../treasure", "a/b", "1/2/3", "."])
def test_done_refuses_what_is_no_window_of_the_spool(root: Path, spool: Spool, rel: str) -> None:
    treasure = make(root.parent, "treasure")
    with pytest.raises(ValueError, match="spool"):
        spool.done(root / rel)
    with pytest.raises(ValueError, match="spool"):
        spool.quarantine(root / rel, "no")
    assert treasure.is_dir()
    assert root.is_dir()


def test_a_link_in_a_window_sends_it_to_quarantine_unread(root: Path, spool: Spool, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = make(root, f"{me()}/w")
    (folder / "2_kernel_trace.csv").symlink_to(secret)
    assert spool.complete() == []
    assert not folder.exists()
    reason = (root / QUARANTINE / f"{me()}-w.reason").read_text()
    assert "2_kernel_trace.csv is no plain file" in reason
    assert reason.count("\n") == 1
    assert secret.read_text() == "secret"


def test_a_pipe_in_a_window_sends_it_to_quarantine(root: Path, spool: Spool) -> None:
    folder = make(root, "w")
    os.mkfifo(folder / "3_kernel_trace.csv")
    assert spool.complete() == []
    assert (root / QUARANTINE / "w").is_dir()


def test_foreign_files_beside_windows_are_left_alone(root: Path, spool: Spool) -> None:
    (root / "README").write_text("hello")
    (root / me()).mkdir()
    (root / me() / "stray.csv").write_text("x")
    assert spool.complete() == []
    assert (root / "README").exists()
    assert (root / me() / "stray.csv").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
def test_a_window_in_another_users_folder_is_set_aside(root: Path, spool: Spool) -> None:
    folder = make(root, "4711/w")
    os.chown(folder, 4712, 4712)
    own = make(root, "4711/mine")
    os.chown(own, 4711, 4711)
    assert spool.complete() == [own]
    assert "owned by uid 4712" in (root / QUARANTINE / "4711-w.reason").read_text()


def test_a_window_too_large_is_set_aside(root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENTRIES_MAX", 4)
    folder = make(root, "w")
    for i in range(5):
        (folder / f"{i}.csv").write_text("")
    assert spool.complete() == []
    assert "holds more than 4 entries" in (root / QUARANTINE / "w.reason").read_text()


def test_quarantine_keeps_a_bounded_number_and_never_overwrites(
    root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUARANTINE_MAX", 3)
    for i in range(6):
        folder = make(root, "same")
        (folder / "mark").write_text(str(i))
        spool.quarantine(folder, f"reason {i}\nsecond line")
    shelf = root / QUARANTINE
    kept = sorted(p for p in shelf.iterdir() if p.is_dir())
    assert len(kept) == 3
    assert {(p / "mark").read_text() for p in kept} == {"3", "4", "5"}
    reasons = {(shelf / f"{p.name}.reason").read_text() for p in kept}
    assert reasons == {f"reason {i} second line\n" for i in (3, 4, 5)}
    assert len(list(shelf.iterdir())) == 6
    assert spool.complete() == []


def test_a_window_that_cannot_be_removed_is_not_read_again(
    root: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(root, "w")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.shutil, "rmtree", denied)
    assert spool.complete() == [folder]
    spool.done(folder)
    assert spool.complete() == []


# --- replay ------------------------------------------------------------------------------------------


def capture(tmp_path: Path, windows: object, frames: object = None) -> Path:
    (tmp_path / "windows" / "a").mkdir(parents=True)
    (tmp_path / "windows" / "b").mkdir()
    described = {"version": 1, "frames": frames or {"count": 24, "seconds": 5}, "windows": windows}
    (tmp_path / "capture.json").write_text(json.dumps(described))
    return tmp_path


TWO = [{"path": "windows/a", "at": 3.0}, {"path": "windows/b", "at": 60.0}]


def test_windows_of_a_capture_come_when_due_and_again_each_round(tmp_path: Path) -> None:
    clock = StillClock()
    clock.mono = 1000.0
    schedule = ReplaySchedule(capture(tmp_path, TWO), clock)
    a, b = tmp_path / "windows/a", tmp_path / "windows/b"
    seen: list[tuple[float, str]] = []
    for tick in range(260):
        clock.mono = 1000.0 + tick
        for path in schedule.complete():
            seen.append((tick, path.name))
            schedule.done(path)
    assert seen == [(3, "a"), (60, "b"), (123, "a"), (180, "b"), (243, "a")]
    assert a.is_dir()
    assert b.is_dir()


def test_a_window_not_done_stays_and_comes_once(tmp_path: Path) -> None:
    clock = StillClock()
    schedule = ReplaySchedule(capture(tmp_path, TWO), clock)
    clock.mono = 4.0
    assert schedule.complete() == schedule.complete() == [tmp_path / "windows/a"]
    clock.mono = 130.0
    assert schedule.complete() == [tmp_path / "windows/a", tmp_path / "windows/b"]


def test_rounds_slept_through_are_not_made_up_for(tmp_path: Path) -> None:
    clock = StillClock()
    schedule = ReplaySchedule(capture(tmp_path, TWO), clock)
    clock.mono = 120 * 50 + 10.0
    due = schedule.complete()
    assert sorted(p.name for p in due) == ["a", "b"]


def test_the_next_window_is_known_ahead(tmp_path: Path) -> None:
    clock = StillClock()
    schedule = ReplaySchedule(capture(tmp_path, TWO), clock)
    for now, wait in ((0.0, 3.0), (3.0, 57.0), (61.0, 62.0), (123.0, 57.0)):
        clock.mono = now
        assert schedule.next_due() == pytest.approx(wait)
    assert ReplaySchedule(capture(tmp_path / "none", []), clock).next_due() is None


def test_a_deleted_window_folder_takes_only_itself(tmp_path: Path) -> None:
    clock = StillClock()
    schedule = ReplaySchedule(capture(tmp_path, TWO), clock)
    (tmp_path / "windows/a").rmdir()
    clock.mono = 61.0
    assert schedule.complete() == [tmp_path / "windows/b"]


def test_a_capture_window_that_is_unfit_is_kept(tmp_path: Path) -> None:
    clock = StillClock()
    schedule = ReplaySchedule(capture(tmp_path, TWO), clock)
    clock.mono = 4.0
    [folder] = schedule.complete()
    schedule.quarantine(folder, "bad")
    assert schedule.complete() == []
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("windows", "frames", "says"),
    [
        ([{"path": "windows/a"}], None, "not a capture description"),
        ([{"path": "../../etc", "at": 1}], None, "lies outside the capture"),
        ([{"path": "/etc", "at": 1}], None, "lies outside the capture"),
        ([{"path": "windows/a", "at": 500}], None, "outside the round of 120 s"),
        (TWO, {"count": 0, "seconds": 5}, "must be above 0"),
        (TWO, {"seconds": 5}, "not a capture description"),
    ],
)
def test_a_broken_capture_is_one_clear_line(
    tmp_path: Path, windows: object, frames: object, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as e:
        ReplaySchedule(capture(tmp_path, windows, frames), StillClock())
    assert "capture.json" in str(e.value)
    assert "\n" not in str(e.value)


def test_a_folder_that_is_no_capture_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="amdgpu-exporter record"):
        ReplaySchedule(tmp_path, StillClock())
