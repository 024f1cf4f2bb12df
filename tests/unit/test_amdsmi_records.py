"""Error records of the driver through the library: counted once, dated, named, at no crash's price."""

from __future__ import annotations

import calendar
import sys
from pathlib import Path
from typing import Any

import pytest
from amdsmi_made import Driver, forget, value

from exporter.backends.amdsmi_records import Records, seconds, sound
from exporter.backends.amdsmi_socket import Cadence
from exporter.model import Raw, Reason

_forget = pytest.fixture(autouse=True)(forget)
EVERY = Cadence(records_s=5)
NEWEST = {"corrected": (10, 24), "uncorrected": (11, 0), "fatal": (12, 0)}


def driver(monkeypatch: pytest.MonkeyPatch, tmp: Path, **options: Any) -> Driver:
    return Driver(monkeypatch, tmp, **{"release": "10.0", "node": "mi300x:1", "cadence": EVERY, **options})


def test_records_are_counted_by_severity_with_the_newest_of_each_and_their_ids(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    it = driver(monkeypatch, tmp_path)
    it.poll()
    r = it.poll()
    counts = {s: value(r, "error_records_total", s) for s in NEWEST}
    assert counts == {"corrected": 25, "uncorrected": 1, "fatal": 1}
    for severity, (hour, minute) in NEWEST.items():
        at = calendar.timegm((2026, 11, 30, hour, minute, 0))
        assert value(r, "error_record_last_timestamp_seconds", severity) == at
    ids = {i: value(r, "error_causes_total", i) for i in ("17", "25", "29", "30")}
    assert ids == {"17": 25, "25": 1, "29": 1, "30": 1}


def test_a_record_counts_once_however_often_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    it = driver(monkeypatch, tmp_path)
    first = [it.poll() for _ in range(4)][-1]
    assert value(first, "error_records_total", "corrected") == 25
    records = sys.modules["amdsmi"]._machine[0]["cper"]
    records.append({"severity": "fatal", "at": "2026/12/01 01:00:00", "afids": [30]})
    for _ in range(3):
        r = it.poll()
    assert value(r, "error_records_total", "fatal") == 2
    assert value(r, "error_causes_total", "30") == 2
    assert value(r, "error_record_last_timestamp_seconds", "fatal") == calendar.timegm((2026, 12, 1, 1, 0, 0))


def test_a_gpu_without_any_record_says_zero_and_has_no_newest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    it = driver(monkeypatch, tmp_path, node="mi210:1")
    it.poll()
    r = it.poll()
    assert [value(r, "error_records_total", s) for s in NEWEST] == [0, 0, 0]
    assert [value(r, "error_record_last_timestamp_seconds", s) for s in NEWEST] == [None] * 3


def test_a_driver_that_keeps_none_is_a_reason_and_no_zero(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    it = driver(monkeypatch, tmp_path, node="rx7800xt:1")
    it.poll()
    r = it.poll()
    assert not [s for s in r if "error_record" in s.metric]
    assert it.reasons("amdgpu_error_records_total") == {Reason.UNSUPPORTED}


def test_records_are_never_looked_for_unasked_nor_in_the_first_moments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    it = driver(monkeypatch, tmp_path, cadence=Cadence())
    for _ in range(3):
        it.poll()
    assert "get_gpu_cper_entries" not in it.control.calls
    assert not it.reasons("amdgpu_error_records_total"), "what is not asked for is not missing"
    it = driver(monkeypatch, tmp_path, cadence=Cadence(records_s=60))
    for _ in range(12):
        it.poll()
    assert "get_gpu_cper_entries" not in it.control.calls
    for _ in range(12):
        it.poll()
    # 27 records are two calls of twenty, and one more that finds nothing new.
    assert it.control.calls["get_gpu_cper_entries"] == 3


@pytest.mark.parametrize("release", ["6.4", "7.0", "7.2"])
def test_a_library_that_crashes_on_records_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str
) -> None:
    it = driver(monkeypatch, tmp_path, release=release)
    for _ in range(3):
        r = it.poll()
    assert "get_gpu_cper_entries" not in it.control.calls
    assert it.reasons("amdgpu_error_records_total") == {Reason.UNSUPPORTED}
    assert value(r, "power_watts") == 512


@pytest.mark.parametrize(
    ("version", "ok"),
    [
        ("26.5.0", True),
        ("27.0.0+4f1c", True),
        ("26.4.9", False),
        ("25.9.9", False),
        ("7.14.0", True),
        ("10.0.0", True),
        ("7.13.9", False),
        ("7.2.0", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_which_libraries_are_sound(version: str, ok: bool) -> None:
    assert sound(version) is ok


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970/01/01 00:00:01", 1),
        ("2026/11/30 12:00:00", 1_796_040_000),
        ("2026/13/30 12:00:00", None),
        ("2026/11/00 12:00:00", None),
        ("2026/11/30 24:00:00", None),
        ("2026-11-30 12:00:00", None),
        ("0000/00/00 00:00:00", None),
        ("N/A", None),
        (None, None),
        (17, None),
        ("2026/11/30 12:00:00Z", None),
    ],
)
def test_a_time_is_exact_or_none(text: object, at: int | None) -> None:
    assert seconds(text) == at


class Shelf:
    """A library that answers one thing for ever."""

    version = "27.0.0"

    def __init__(self, answer: Raw, afids: Raw = ([30], 1)) -> None:
        self.answer, self.afids, self.asked = answer, afids, 0

    def call(self, name: str, *_: Any) -> Raw:
        self.asked += name == "get_gpu_cper_entries"
        assert self.asked < 50
        return self.answer if name == "get_gpu_cper_entries" else self.afids


def entry(**change: Any) -> dict[str, Any]:
    return {"error_severity": "fatal", "timestamp": "2026/11/30 12:00:00", **change}


@pytest.mark.parametrize(
    "answer",
    ["N/A", None, [], {}, (), ({}, 0, []), ({}, "0", [], 0), ([], 0, [], 0), ({}, 0, {}, 0), ({}, -1, [], 0)],
    ids=str,
)
def test_an_answer_of_another_shape_is_malformed_and_counts_nothing(answer: Raw) -> None:
    records = Records()
    assert records.read(Shelf(answer), 1) is Reason.MALFORMED
    assert records._counts == {"fatal": 0, "uncorrected": 0, "corrected": 0}


@pytest.mark.parametrize(
    "wrong", [None, 1, "N/A", [], {"error_severity": []}, {"error_severity": "num"}], ids=str
)
def test_an_entry_that_says_nothing_known_counts_for_nothing(wrong: Any) -> None:
    found = Records().read(Shelf(({0: wrong, 1: entry()}, 2, [], 0)), 1)
    assert isinstance(found, dict)
    assert found["count"] == {"fatal": 1, "uncorrected": 0, "corrected": 0}
    assert found["afid"] == {}


@pytest.mark.parametrize(
    "afids", [Reason.MALFORMED, None, (), ("x",), ([None, -1, 2.5, "30", 1 << 40],), [30]], ids=str
)
def test_ids_that_cannot_be_told_leave_the_record_counted(afids: Raw) -> None:
    raw = [{"bytes": [67, -1, 255], "size": 3}]
    found = Records().read(Shelf(({0: entry(timestamp="N/A")}, 1, raw, 0), afids), 1)
    assert isinstance(found, dict)
    assert found == {"count": {"fatal": 1, "uncorrected": 0, "corrected": 0}, "newest": {}, "afid": {}}


def test_ids_are_bounded_and_the_rest_are_other() -> None:
    raw = [{"bytes": [67], "size": 1}]
    found = Records().read(Shelf(({0: entry()}, 1, raw, 0), (list(range(40)), 40)), 1)
    assert isinstance(found, dict)
    assert len(found["afid"]) == 33
    assert found["afid"]["other"] == 8


def test_an_endless_ring_takes_a_bounded_number_of_calls() -> None:
    class Endless(Shelf):
        def call(self, name: str, *args: Any) -> Raw:
            super().call(name)
            return ({0: entry()}, args[3] + 1, [], 39) if name == "get_gpu_cper_entries" else self.afids

    shelf = Endless(None)
    found = Records().read(shelf, 1)
    assert isinstance(found, dict)
    assert found["count"]["fatal"] == shelf.asked == 8
