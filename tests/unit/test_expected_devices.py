"""How many GPUs there should be: remembered on disk, raised by what is seen, lowered only by a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.checks.expected import Expected
from exporter.model import ConfigError


def test_the_most_ever_seen_outlives_a_restart(tmp_path: Path) -> None:
    first = Expected(tmp_path / "state", "/sys")
    assert first.saw(0) is None
    assert first.saw(8) == 8
    first.save()
    again = Expected(tmp_path / "state", "/sys")
    assert again.saw(7) == 8
    assert Expected(tmp_path / "state", "/captured").saw(1) == 1, "another tree is another machine"


def test_only_the_command_lowers_it_and_a_running_daemon_notices(tmp_path: Path) -> None:
    daemon = Expected(tmp_path, "/sys")
    daemon.saw(8)
    daemon.save()
    daemon.file.unlink()
    daemon.refresh()
    assert daemon.saw(6) == 8, "a file that is gone lowers nothing"
    daemon.dirty = True
    daemon.save()
    Expected(tmp_path, "/sys").forget()
    daemon.refresh()
    assert daemon.saw(6) == 6
    daemon.save()
    assert Expected(tmp_path, "/sys").most == 6


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"roots": 3}', b'{"roots": {"/sys": "8"}}', b'{"roots": {"/sys": -1}}', b"\xff"],
)
def test_a_broken_file_is_no_number(tmp_path: Path, content: bytes) -> None:
    one = Expected(tmp_path, "/sys")
    one.file.write_bytes(content)
    assert Expected(tmp_path, "/sys").saw(2) == 2


def test_a_folder_that_cannot_be_written_costs_only_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = Expected(tmp_path / "file", "/sys")
    assert one.saw(8) == 8
    one.save()
    one.refresh()
    assert one.saw(7) == 8
    with pytest.raises(ConfigError, match=r"expected-devices\.json"):
        one.forget()


def test_the_file_is_replaced_whole_and_other_roots_stay(tmp_path: Path) -> None:
    for root, count in (("/sys", 8), ("/other", 2)):
        one = Expected(tmp_path, root)
        one.saw(count)
        one.save()
    assert json.loads((tmp_path / "expected-devices.json").read_text()) == {
        "version": 1,
        "roots": {"/sys": 8, "/other": 2},
    }
    assert [f.name for f in tmp_path.iterdir()] == ["expected-devices.json"]


def test_trees_that_are_gone_do_not_pile_up(tmp_path: Path) -> None:
    for root in ("/", *(f"/gone/{n}" for n in range(40))):
        one = Expected(tmp_path, root)
        one.saw(8)
        one.save()
    roots = json.loads((tmp_path / "expected-devices.json").read_text())["roots"]
    assert roots["/"] == 8
    assert len(roots) <= 16
