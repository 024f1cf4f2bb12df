"""The textfile folder: each file whole or not at all, within its bounds, and what the daemon makes of it."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from exporter.collect import Timing
from exporter.exposition import Foreign
from exporter.model import SourceError
from exporter.textfile.feed import TextFeed
from exporter.textfile.folder import FILES_MAX, Folder


def problems(answer: dict[str, object]) -> dict[str, str | None]:
    return {name: problem for name, _, problem in answer["files"]}  # type: ignore[attr-defined]


def test_a_bad_file_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text("site_a 1\n")
    (tmp_path / "b.prom").write_text("site_b 1\namdgpu_up 1\n")
    (tmp_path / "c.prom").write_text("site_c 1\n")
    (tmp_path / "d.txt").write_text("no metrics")
    (tmp_path / ".e.prom").write_text("being written")
    answer = Folder(tmp_path, 1000).look({})
    assert {n: p is None for n, p in problems(answer).items()} == {
        "a.prom": True,
        "b.prom": False,
        "c.prom": True,
    }
    assert answer["text"] == (
        "# HELP site_a \n# TYPE site_a untyped\nsite_a{} 1\n"
        "# HELP site_c \n# TYPE site_c untyped\nsite_c{} 1\n"
    )
    assert answer["series"] == 2
    assert {n: c for n, c, _ in answer["files"]}["a.prom"] == (tmp_path / "a.prom").stat().st_mtime


def test_a_file_is_read_again_only_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        "exporter.textfile.folder.os.open",
        lambda path, *a, **k: (opened.append(path.name), real(path, *a, **k))[1],
    )
    folder, file = Folder(tmp_path, 1000), tmp_path / "a.prom"
    file.write_text("site_a 1\n")
    for _ in range(3):
        assert "site_a{} 1" in folder.look({})["text"]
    assert opened == ["a.prom"]
    (tmp_path / "new").write_text("site_a 2\n")
    (tmp_path / "new").rename(file)
    assert "site_a{} 2" in folder.look({})["text"]
    file.unlink()
    assert folder.look({}) == {"files": [], "text": "", "openmetrics": "", "series": 0}


def test_sizes_and_numbers_are_bounded_and_a_small_file_after_a_large_one_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text("site_a 1\n")
    (tmp_path / "b.prom").write_text("# " + "x" * 2000 + "\nsite_b 1\n")
    (tmp_path / "c.prom").write_text("site_c 1\n")
    answer = Folder(tmp_path, 1024).look({})
    assert [n for n, p in problems(answer).items() if p] == ["b.prom"]
    assert "max_bytes" in str(problems(answer)["b.prom"])
    for n in range(FILES_MAX + 20):
        (tmp_path / f"z{n:03d}.prom").write_text(f"site_z{n} 1\n")
    answer = Folder(tmp_path, 1 << 20).look({})
    assert len(answer["files"]) == FILES_MAX + 1
    assert "more than" in str(answer["files"][-1][2])


def test_what_is_no_file_neither_blocks_nor_breaks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.prom")
    (tmp_path / "dir.prom").mkdir()
    (tmp_path / "dangling.prom").symlink_to("nowhere")
    (tmp_path / "good.prom").write_text("site_a 1\n")
    (tmp_path / "link.prom").symlink_to("good.prom")
    answer = Folder(tmp_path, 1000).look({})
    bad = {n for n, p in problems(answer).items() if p}
    assert bad == {"fifo.prom", "dir.prom", "dangling.prom", "link.prom"}, (
        "the link repeats series of good.prom"
    )
    with pytest.raises(SourceError, match=r"textfile\.folder"):
        Folder(tmp_path / "none", 1000).look({})


class _Clock:
    at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def test_the_daemon_keeps_a_failed_look_until_it_is_too_old(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text("site_a 1\n")
    (tmp_path / "b.prom").write_text("amdgpu_b 1\n")
    clock = _Clock()
    feed = TextFeed(str(tmp_path), 1000, clock, lambda: Timing(5, 2, 15))  # type: ignore[arg-type]
    assert feed.at(clock.at) == (Foreign(), ())

    async def run() -> None:
        await feed.look()
        await feed.look()
        foreign, files = feed.at(clock.at)
        assert foreign.series == 1
        assert [(name, refused) for name, _, refused in files] == [("a.prom", 0), ("b.prom", 2)]
        shutil.rmtree(tmp_path)
        clock.at += 10
        await feed.look()
        assert feed.at(clock.at)[0].series == 1
        clock.at += 10
        await feed.look()
        assert feed.at(clock.at) == (Foreign(), ())
        await feed.child.stop()

    asyncio.run(run())
