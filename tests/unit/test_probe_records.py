"""Whose number is whose, what is kept of a probe, and what the daemon shows of it."""

from __future__ import annotations

import asyncio
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import probemade as made
import pytest

from exporter import fingerprint
from exporter.catalogue import CATALOGUE
from exporter.fingerprint import Host
from exporter.formats.copies import Gpu
from exporter.host import Clock
from exporter.model import Device, DeviceId, FormatError
from exporter.probes import plans, record, show
from exporter.probes.feed import ProbeFeed
from exporter.probes.plans import ROCBLAS, TORCH, TRANSFERBENCH, Step, Tool
from exporter.probes.record import Record, Value
from exporter.probes.reduce import Printed, places, reduce
from exporter.probes.shelf import KEPT, Shelf
from exporter.probes.since import since

FIRST, SECOND = (DeviceId(pci) for pci in made.PCI)


def device(pci: str, hip: int | None, partition: int | None = None, gpu: int = 0) -> Device:
    indices = {} if hip is None else {"hip": hip}
    return Device(DeviceId(pci, partition), gpu, gfx="gfx942", compute_units=304, indices=indices)


TWO = [device(made.PCI[0], 0), device(made.PCI[1], 1, gpu=1)]
# The runtime counts by the driver's nodes, which need not be in the order of addresses.
TURNED = [device(made.PCI[0], 1), device(made.PCI[1], 0, gpu=1)]
TB = Tool(TRANSFERBENCH, "/opt/rocm/bin/TransferBench")
TABLE = Step("table", ("x",), 1)


def copies_of(devices: list[Device], *printed: Printed) -> dict[tuple[DeviceId, str, str], float]:
    found = reduce(TB, printed, devices)
    return {(v.device, v.labels[0], v.labels[1]): v.value for v in found.values}


def test_a_tool_that_names_addresses_is_believed_in_whatever_order_it_counts() -> None:
    gpus = (Gpu(0, made.PCI[1]), Gpu(1, made.PCI[0]))
    assert places(gpus, TWO) == {0: SECOND, 1: FIRST}
    assert places((Gpu(0, "25:00.0"), Gpu(1, "05:00.0")), TWO) == {0: SECOND, 1: FIRST}


def test_a_tool_that_names_none_is_taken_to_count_as_the_runtime_does_while_it_sees_as_many() -> None:
    numbers = (Gpu(0, None), Gpu(1, None))
    assert places(numbers, TURNED) == {0: SECOND, 1: FIRST}
    assert places(numbers[:1], TURNED) == {}
    assert places(numbers, [device(made.PCI[0], None), device(made.PCI[1], None)]) == {}


def test_partitions_of_one_address_are_in_the_order_of_the_runtime() -> None:
    parts = [device(made.PCI[0], 3 - p, p) for p in range(4)]
    told = [Gpu(n, made.PCI[0].replace(".0", f".{n}")) for n in range(4)]
    assert places(told, parts) == {n: DeviceId(made.PCI[0], 3 - n) for n in range(4)}
    assert places(told[:3], parts) == {}, "three of four cannot be told apart"


def test_an_address_without_its_domain_that_stands_in_two_domains_means_neither() -> None:
    twins = [device("0000:05:00.0", 0), device("0001:05:00.0", 1)]
    assert places((Gpu(0, "05:00.0"), Gpu(1, "05:00.0")), twins) == {}
    assert places((Gpu(1, "0001:05:00.0"),), twins) == {1: DeviceId("0001:05:00.0")}


def test_the_topology_decides_whose_row_is_whose() -> None:
    seen = Printed(Step("topology", ("x",), 1, optional=True), made.tb_topology(tuple(reversed(made.PCI))))
    table = Printed(TABLE, made.transferbench(bi=None))
    found = copies_of(TWO, seen, table)
    assert found[SECOND, made.PCI[0], "transmitted"] == pytest.approx(57.39e9)
    # Without it the runtime's numbers do.
    failed = Printed(seen.step, None, "timeout: not over after 1 s")
    assert copies_of(TURNED, failed, table)[SECOND, made.PCI[0], "transmitted"] == pytest.approx(57.39e9)


def test_a_table_of_fewer_gpus_than_are_here_is_refused_because_nobody_knows_which() -> None:
    matrix = [row[:3] for row in made.UNI[:3]]
    with pytest.raises(FormatError, match="run it where all of them are visible"):
        copies_of(TWO, Printed(TABLE, made.transferbench(matrix, None)))


def gemm_step(kind: str = "f16", gpu: Device = TWO[0]) -> Step:
    return Step(kind, ("x",), 1, gpu)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (made.gemm(6_000_000), "f16", "more than the chip can do"),  # 6 PFLOP/s of 304 units
        (made.gemm(650_000).replace("there are 2", "there are 1"), "f16", "sees 1 of 2 GPUs"),
        (
            made.gemm(650_000).replace("gfx942", "gfx90a"),
            "f16",
            "is a gfx942, and the tool measured a gfx90a",
        ),
        (made.axpy(3.5), "f16", "none operations"),
    ],
)
def test_a_rate_that_cannot_be_of_this_gpu_is_no_rate(text: str, kind: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        reduce(Tool(ROCBLAS, "x"), [Printed(gemm_step(kind), text)], TWO)


def test_the_rate_of_a_chip_that_never_ran_the_kernel_is_seen_as_such() -> None:
    """An RX 6800 XT, for which a release of the tool printed 1.5 PFLOP/s of half precision."""
    card = Device(DeviceId("0000:03:00.0"), 0, gfx="gfx1030", compute_units=72, indices={"hip": 0})
    header = made.GEMM
    row = "T,N,4096,512,4096,-0.000152707,4096,-0.000154853,4096,4096,4096,1, 2, 10, 1.50701e+06, 11.4"
    text = made.rocblas(header, row, devices=1, gfx="gfx1030")
    with pytest.raises(FormatError, match="did not run"):
        reduce(Tool(ROCBLAS, "x"), [Printed(gemm_step(gpu=card), text)], [card])


def test_what_some_calls_did_not_give_is_counted_and_said() -> None:
    steps = [gemm_step("f32"), gemm_step("f16"), gemm_step("bf16")]
    printed = [
        Printed(steps[0], made.gemm(120_000)),
        Printed(steps[1], None, "timeout: not over after 1 s; ended"),
        Printed(steps[2], made.rocblas("", ""), "ended with code 1"),
    ]
    found = reduce(Tool(ROCBLAS, "x"), printed, TWO)
    assert [v.labels for v in found.values] == [("f32",)]
    assert found.missing == {"not_measured": 1, "not_understood": 1}
    assert len(found.notes) == 3


def test_a_gpu_inside_the_cpu_is_counted_by_the_runtime_and_not_reported() -> None:
    inside = Device(DeviceId("0000:00:02.0"), 2, gfx="gfx1036", indices={"hip": 2})
    text = made.gemm(650_000).replace("there are 2", "there are 3")
    found = reduce(Tool(ROCBLAS, "x"), [Printed(gemm_step(), text)], [*TWO, inside], {FIRST, SECOND})
    assert len(found.values) == 1
    three = [[*row, 1.25] for row in made.UNI] + [[2.5] * 5]
    table = Printed(TABLE, made.transferbench(three, None))
    shown = reduce(TB, [table], [*TWO, inside], {FIRST, SECOND})
    assert {v.device for v in shown.values} == {FIRST, SECOND}
    assert {v.labels[0] for v in shown.values} == {"self", "cpu0", "cpu1", *made.PCI}


def test_where_the_runtime_is_told_another_chip_its_word_for_the_chip_is_not_held_against_it() -> None:
    [step, *_] = plans.steps("gemm", Tool(ROCBLAS, "b"), TWO, {plans.OVERRIDE: "9.0.10", "OTHER": "1"})
    assert step.env == {plans.OVERRIDE: "9.0.10"}
    text = made.gemm(60_000).replace("gfx942", "gfx90a")
    assert reduce(Tool(ROCBLAS, "x"), [Printed(step, text)], TWO).values


# --- command lines --------------------------------------------------------------------------------------


def test_halves_are_multiplied_with_sums_in_single_precision() -> None:
    call = plans.gemm("bf16")
    assert call[call.index("--compute_type") + 1] == "f32_r"
    assert [call[call.index(f"--{m}_type") + 1] for m in "abcd"] == ["bf16_r"] * 4
    assert plans.gemm("f64")[:4] == ("-f", "gemm", "-r", "f64_r")


def test_each_gpu_is_named_by_the_runtimes_number_and_variables_that_hide_gpus_do_not_reach_the_tool() -> (
    None
):
    steps = plans.steps("gemm", Tool(ROCBLAS, "b"), TURNED, {})
    assert [s.argv[-2:] for s in steps[::4]] == [("--device", "1"), ("--device", "0")]
    loop = plans.steps("launch", Tool(TORCH, "py"), TURNED, {"HIP_VISIBLE_DEVICES": "1", "HOME": "/h"})
    assert [s.env for s in loop] == [{"HOME": "/h"}] * 2
    assert [s.argv[-1] for s in loop] == ["1", "0"]


# --- kept and shown -------------------------------------------------------------------------------------

KEPT_ONE = Record(
    "bandwidth",
    1_780_000_000.25,
    TRANSFERBENCH,
    "1.62.00",
    (
        Value(FIRST, (made.PCI[1], "transmitted"), 57.39e9),
        Value(FIRST, ("self", "transmitted"), 2132.28e9),
        Value(FIRST, ("cpu0", "received"), 45.11e9),
        Value(DeviceId(made.PCI[1], 3), ("self", "transmitted"), 2152.51e9),
    ),
    {"not_measured": 2},
    ("a note",),
    {"rocm": "7.0.0"},
)


def test_a_record_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    path = shelf.put(KEPT_ONE)
    assert path.stat().st_mode & 0o777 == 0o644
    assert shelf.latest() == ([KEPT_ONE], [])
    assert list(tmp_path.glob("probes/.*")) == []


def test_the_newest_of_each_probe_stands_and_older_ones_are_kept_up_to_a_number(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    for n in range(KEPT + 5):
        shelf.put(
            Record("launch", 1_780_000_000.0 + n, ROCBLAS, "4", (Value(FIRST, ("back_to_back",), 1e-6),))
        )
    shelf.put(KEPT_ONE)
    records, _ = shelf.latest()
    assert {r.probe: r.at for r in records} == {"bandwidth": KEPT_ONE.at, "launch": 1_780_000_024.0}
    assert len(list(tmp_path.glob("probes/launch-*"))) == KEPT


def test_the_daemon_takes_a_record_that_comes_while_it_runs_and_gives_the_same_series_while_none_does(
    tmp_path: Path,
) -> None:
    here = {FIRST}
    feed = ProbeFeed(tmp_path, Clock(), lambda: here)
    assert not asyncio.run(feed.look())
    assert feed.slot(1.0) is None
    Shelf(tmp_path).put(KEPT_ONE)
    assert asyncio.run(feed.look())
    first = feed.slot(2.0)
    assert not asyncio.run(feed.look())
    second = feed.slot(3.0)
    assert first is not None
    assert second is not None
    assert first.series is second.series
    Shelf(tmp_path).put(replace(KEPT_ONE, at=KEPT_ONE.at + 60))
    assert asyncio.run(feed.look())
    third = feed.slot(4.0)
    assert third is not None
    assert KEPT_ONE.at + 60 in third.values


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace("57390000000.0", "NaN"),
        lambda text: text.replace("57390000000.0", "0"),
        lambda text: text.replace("57390000000.0", '"57"'),
        lambda text: text.replace("57390000000.0", "1e40"),
        lambda text: text.replace('"not_measured": 2', '"not_measured": -2'),
        lambda text: text.replace('"version": 1', '"version": 9'),
        lambda text: text.replace('"bandwidth"', '"width"'),
        lambda text: "[" * 100_000,
        lambda text: "[]",
    ],
)
def test_a_damaged_record_is_no_number_and_one_line(tmp_path: Path, damage: object) -> None:
    shelf = Shelf(tmp_path)
    path = shelf.put(KEPT_ONE)
    assert callable(damage)
    path.write_text(damage(path.read_text()))
    records, problems = shelf.latest()
    assert records == []
    assert [str(path) in p and len(p.splitlines()) == 1 for p in problems] == [True]


def test_a_pipe_or_a_folder_in_the_place_of_a_record_holds_nobody_up(tmp_path: Path) -> None:
    folder = tmp_path / "probes"
    folder.mkdir()
    os.mkfifo(folder / "gemm-1780000000000.json")
    (folder / "launch-1780000000000.json").mkdir()
    records, problems = Shelf(tmp_path).latest()
    assert (records, len(problems)) == ([], 2)


def test_every_reading_is_of_the_catalogue_and_of_a_gpu_that_is_here() -> None:
    found = record.readings([KEPT_ONE], {FIRST})
    assert [s.device for s, _ in found if s.metric == record.BANDWIDTH] == [FIRST] * 3
    for series, value in found:
        metric = CATALOGUE[series.metric]
        assert len(series.labels) == len(metric.labels)
        assert metric.range[0] <= value <= metric.range[1]
    named = {s.metric.removeprefix("amdgpu_probe_"): v for s, v in found if s.device is None}
    assert named == {"last_timestamp_seconds": KEPT_ONE.at, "info": 1, "values_missing": 2}


def test_a_node_of_many_gpus_shows_no_matrix_of_them() -> None:
    many = [DeviceId("0000:05:00.0", p) for p in range(record.MATRIX_MOST + 1)]
    values = tuple(Value(a, (f"0000:05:00.0/{b.partition}", "transmitted"), 1e9) for a in many for b in many)
    own = tuple(Value(a, ("self", "transmitted"), 1e12) for a in many)
    found = record.readings([Record("bandwidth", 1.0, "t", "", (*values, *own))], set(many))
    assert len([s for s, _ in found if s.metric == record.BANDWIDTH]) == len(many)


def test_the_table_for_people_has_every_value_once() -> None:
    found = reduce(TB, [Printed(TABLE, made.transferbench(bi=None))], TWO)
    text = show.text(Record("bandwidth", 1.0, "TransferBench", "1", found.values, found.missing), TWO)
    rows = [line.split()[-4:] for line in text.splitlines()[3:5]]
    assert rows == [["2132.3", "57.4", "55.5", "55.5"], ["48.4", "2152.5", "55.6", "55.7"]]
    assert text.splitlines()[5].split() == ["cpu0", "45.1", "45.2"]
    assert all(math.isfinite(v.value) for v in found.values)


def test_a_record_is_json_that_anyone_can_read() -> None:
    found = json.loads(json.dumps(KEPT_ONE.as_json(), allow_nan=False))
    assert found["values"][0] == {
        "pci": made.PCI[0],
        "partition": None,
        "peer": made.PCI[1],
        "direction": "transmitted",
        "value": 57.39e9,
    }


# --- against the last one -------------------------------------------------------------------------------


def gemms(at: float, *rates: float, **more: object) -> Record:
    values = tuple(
        Value(FIRST, (kind,), rate) for kind, rate in zip(("f64", "f32", "f16"), rates, strict=True)
    )
    given: dict[str, object] = {"version": "4.5.0", **more}
    return Record("gemm", at, ROCBLAS, str(given.pop("version")), values, **given)  # type: ignore[arg-type]


def test_what_moved_is_told_by_place_and_the_middle_of_all() -> None:
    lines = since(gemms(2e9, 60e12, 120e12, 500e12), gemms(1.78e9, 60e12, 119e12, 650e12), {FIRST: "0"})
    assert lines == [
        "against 2026-05-28 20:26 UTC: +0.0% in the middle",
        "  GPU 0, f16: -23.1%",
    ]


def test_what_else_is_another_is_told_beside() -> None:
    def machine(driver: str) -> dict[str, object]:
        return fingerprint.of([Device(FIRST, 0, driver=driver)], {}, Host())

    lines = since(
        gemms(2e9, 1e12, 1e12, 1e12, version="5.0", environment=machine("6.12")),
        gemms(1.78e9, 1e12, 1e12, 1e12, environment=machine("6.10")),
        {},
    )
    assert lines[1:] == ["  Tool is another: 4.5.0, now 5.0", "  Driver is another: 6.10, now 6.12"]


def test_another_tool_or_other_gpus_are_not_compared() -> None:
    one = gemms(2e9, 1e12, 1e12, 1e12)
    assert since(one, None, {}) == []
    [line] = since(one, replace(one, tool="another"), {})
    assert "do not compare" in line
    moved = replace(one, values=tuple(v._replace(device=SECOND) for v in one.values))
    [line] = since(one, moved, {})
    assert "no value of these GPUs" in line
    assert len(since(one, replace(one, environment={"gpus": 3}), {})) == 1
