"""The dashboards' queries in a real Prometheus, over an hour that two replaying nodes served.

Both nodes replay the demo capture, whose truth is known. Node-a is down from minute 30 to 32, counts from 0
when it is back, and misses GPU 2 from minute 45 to 50; node-b has an uneventful hour.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from exporter.backends.replay import demo_path
from tests.tools import metrics_store, panel_queries
from tests.tools.replay_history import SCRAPE_S, Node, sample_lines

REPO = Path(__file__).resolve().parents[2]
RENDER = REPO / "dashboards" / "render"
PICTURES = REPO / "docs" / "img"
START, HOUR = 1_767_225_600, 3600  # 2026-01-01 00:00 UTC
END = START + HOUR - SCRAPE_S
WITHOUT_GPU = START + 2850
DOWN = (1800, 1920)
GONE = (
    "sys/class/drm/card3",
    "sys/class/drm/renderD144",
    "sys/class/kfd/kfd/topology/nodes/2",
    "sys/devices/pci0000:40",
)
TRUTH = REPO / "tests" / "demo_truth"
# The demo's windows of each GPU; the one of GPU 1 is empty.
TRACED = {0: "0001-gpu_bound", 2: "0002-launch_bound", 3: "0003-host_stalled", 4: "0004-communication"}
TRACED |= {5: "0005-copy_bound", 7: "0007-balanced"}
COUNTED = {0: "0009-counters", 7: "0010-counters", 2: "0011-counters"}
# A fault that a node has, or a window that went wrong, has no place in a replay without them.
EMPTY_HERE = {
    "amdgpu-fleet: What is broken",
    "amdgpu-comparison: What else changed",
    "amdgpu-exporter-health: Failed polls",
    "amdgpu-exporter-health: Windows without a GPU, rows left out",
    "amdgpu-exporter-health: Verdicts that cannot be given",
}
QUERIES = [
    q
    for uid, board in panel_queries.boards().items()
    for q in panel_queries.queries(board, **({"offset": "15m"} if uid == "amdgpu-comparison" else {}))
]


@dataclass(frozen=True)
class Hour:
    """The store, and the way to ask it for a panel."""

    store: metrics_store.Prometheus

    def panel(
        self, name: str, at: float = END, number: int = 0, **choices: str
    ) -> list[tuple[dict[str, str], float]]:
        """(labels, value) of one query of a panel, as it stood at a moment."""
        uid, _, title = name.partition(": ")
        board = panel_queries.boards()[uid]
        asked = [q for q in panel_queries.queries(board, **choices) if q.panel == title][number]
        return [(s["metric"], float(s["value"][1])) for s in self.store.now(asked.expr, at)]

    def one(self, name: str, at: float = END, **choices: str) -> float:
        [(_, value)] = self.panel(name, at, **choices)
        return value

    def by_gpu(self, name: str, at: float = END, **choices: str) -> dict[int, float]:
        """Values of node-a's GPUs."""
        found = self.panel(name, at, node="node-a", **choices)
        assert {labels["instance"] for labels, _ in found} <= {"node-a"}
        table = {int(labels["gpu"]): value for labels, value in found}
        assert len(table) == len(found), "two series of one GPU"
        return table


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hour]:
    tools = [shutil.which(name) for name in ("prometheus", "promtool")]
    if not all(tools):
        pytest.skip("prometheus and promtool are not installed; tests/install-parts installs them")
    prometheus, promtool = map(str, tools)
    folder = tmp_path_factory.mktemp("hour")
    a, b = (Path(shutil.copytree(demo_path(), folder / name)) for name in ("node-a", "node-b"))
    nodes = (
        Node("node-a", a, down=(DOWN,), gone=(GONE, 2700, 3000), expected=8),
        Node("node-b", b, skew_s=60, expected=8),
    )
    lines = (
        line
        for node in nodes
        for at, page in node.pages(START, HOUR)
        for line in sample_lines(page, at, cluster="demo", instance=node.name, job="amdgpu-exporter")
    )
    metrics_store.make_blocks(folder, lines, promtool)
    with metrics_store.serving(folder, prometheus) as store:
        yield Hour(store)


def truth(window: str) -> dict[str, Any]:
    return dict(json.loads((TRUTH / f"{window}.json").read_text(encoding="utf-8")))


# --- every query ----------------------------------------------------------------------------------------


def test_every_query_of_every_panel_has_data(hour: Hour) -> None:
    empty = set()
    for asked in QUERIES:
        found = (
            hour.store.now(asked.expr, END)
            if asked.instant
            else hour.store.over(asked.expr, START, END, SCRAPE_S)
        )
        if not found:
            empty.add(asked.name)
            assert asked.empty, f"{asked.name} is empty and does not say why"
    assert empty == EMPTY_HERE


def test_queries_of_one_table_have_rows_that_can_be_put_side_by_side(hour: Hour) -> None:
    labels: dict[str, set[frozenset[str]]] = {}
    for asked in QUERIES:
        if asked.kind == "table":
            for series in hour.store.now(asked.expr, END):
                labels.setdefault(asked.name, set()).add(frozenset(series["metric"]))
    several = {name for name in labels if [q.name for q in QUERIES].count(name) > 1}
    assert several
    assert {name for name in several if len(labels[name]) > 1 or "__name__" in min(labels[name])} == set()


def test_every_choice_offers_what_is_there(hour: Hour) -> None:
    wanted = {"cluster": ["demo"], "node": ["node-a", "node-b"], "gpu": [str(n) for n in range(8)]}
    for board in panel_queries.boards().values():
        for v in board["templating"]["list"]:
            if v["name"] in wanted:
                match, label = (
                    v["query"]["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
                )
                match = panel_queries.filled(match, panel_queries.chosen(board))
                assert sorted(hour.store.series_values(match, label)) == wanted[v["name"]]


def test_no_mark_is_drawn_where_nothing_changed(hour: Hour) -> None:
    for mark in panel_queries.boards()["amdgpu-history"]["annotations"]["list"][1:]:
        expr = panel_queries.filled(mark["expr"], {"cluster": ".*", "node": ".*", "gpu": ".*"})
        assert hour.store.now(expr, END) == []


# --- values of known truth ------------------------------------------------------------------------------


def test_the_launch_timeline_is_that_of_the_windows(hour: Hour) -> None:
    found = hour.panel("amdgpu-node: Launch timeline by GPU", node="node-a")
    shares = {(labels["gpu"], labels["state"]): value for labels, value in found}
    assert {labels["who"] for labels, _ in found} == {f"node-a GPU {n}" for n in (0, 2, 3, 4, 5, 6, 7)}
    for gpu, window in TRACED.items():
        said = truth(window)
        for state, ns in said["timeline_ns"].items():
            assert shares[str(gpu), state] == pytest.approx(ns / said["span_ns"], abs=1e-6), (gpu, state)


def test_the_queue_delay_ratio_is_sum_over_sum_of_the_windows(hour: Hour) -> None:
    found = hour.by_gpu("amdgpu-node: Queue-delay ratio")
    assert sorted(found) == [0, 2, 3, 4, 5, 6, 7]
    for gpu, window in TRACED.items():
        said = truth(window)
        assert found[gpu] == pytest.approx(said["queue_ns"] / said["launch_duration_ns"], abs=1e-6)


@pytest.mark.parametrize(
    ("panel", "key"),
    [("Compute density", "compute_density_ratio"), ("L2 hits", "l2_hit_ratio")],
)
def test_ratios_of_counters_are_those_of_the_windows(hour: Hour, panel: str, key: str) -> None:
    found = hour.by_gpu(f"amdgpu-node: {panel}")
    assert found == pytest.approx({gpu: truth(window)[key] for gpu, window in COUNTED.items()}, abs=1e-9)


def test_the_bottleneck_of_each_gpu_is_named_once(hour: Hour) -> None:
    found = hour.panel("amdgpu-node: Bottleneck", node="node-a")
    named = {int(labels["gpu"]): labels["bottleneck"] for labels, _ in found}
    assert len(found) == len(named) == 7
    assert {gpu: named[gpu] for gpu in TRACED} == {gpu: truth(w)["bottleneck"] for gpu, w in TRACED.items()}
    assert named[6] in ("dependency_bound", "contended")  # its two windows take turns


def test_shares_of_kernels_make_a_whole(hour: Hour) -> None:
    found = hour.panel("amdgpu-kernels: Kernels", node="node-b")
    assert {labels["instance"] for labels, _ in found} == {"node-b"}
    assert sum(value for _, value in found) == pytest.approx(1)


def test_the_busiest_are_at_the_top_and_the_idle_at_the_bottom(hour: Hour) -> None:
    starved = hour.panel("amdgpu-fleet: Starved: 10 worst")
    assert [value for _, value in starved] == sorted((v for _, v in starved), reverse=True)
    assert {labels["gpu"] for labels, _ in starved[:2]} == {"3"}  # host-stalled, on both nodes
    idle = hour.panel("amdgpu-fleet: Idle: 10 least busy GPUs")
    assert [(labels["gpu"], value) for labels, value in idle[:2]] == [("1", 0), ("1", 0)]


def test_how_gpus_differ_is_told_of_all_of_them(hour: Hour) -> None:
    busy = sorted(value for _, value in hour.panel("amdgpu-node: Busy"))
    assert len(busy) == 16
    for number, share in enumerate((0.9, 0.5, 0.1)):
        place = share * (len(busy) - 1)
        low, part = int(place), place % 1
        between = busy[low] + part * (busy[min(low + 1, 15)] - busy[low])
        [(labels, value)] = hour.panel("amdgpu-fleet: Busy: how GPUs differ", number=number)
        assert (labels, value) == ({}, pytest.approx(between))


def test_a_missing_gpu_is_not_counted_among_those_that_differ(hour: Hour) -> None:
    there = [value for _, value in hour.panel("amdgpu-node: Busy", WITHOUT_GPU)]
    assert len(there) == 15
    [(_, middle)] = hour.panel("amdgpu-fleet: Busy: how GPUs differ", WITHOUT_GPU, number=1)
    assert middle == pytest.approx(sorted(there)[7])


def test_the_mean_time_of_a_dispatch_is_the_same_on_both_nodes_by_kernel(hour: Hour) -> None:
    """Both replay the same windows; one restarts and loses a GPU, and no mean of 40 minutes differs."""
    found = hour.panel("amdgpu-kernels: Mean time of a dispatch")
    assert {frozenset(labels) for labels, _ in found} == {frozenset(("cluster", "instance", "kernel"))}
    here, there = (
        {labels["kernel"]: value for labels, value in found if labels["instance"] == node}
        for node in ("node-a", "node-b")
    )
    assert len(here) > 5
    assert here == pytest.approx(there, rel=0.1)


# --- across a restart and a missing GPU -----------------------------------------------------------------


def test_a_restart_changes_no_ratio_and_adds_nothing(hour: Hour) -> None:
    """Node-a counts from 0 after minute 32; a node that does not restart shows what ratios must be."""
    for name in ("Compute density", "L2 hits"):
        here, there = (
            {labels["gpu"]: v for labels, v in hour.panel(f"amdgpu-node: {name}", node=node)}
            for node in ("node-a", "node-b")
        )
        assert here == pytest.approx(there, abs=1e-9)
    seen = {labels["instance"]: v for labels, v in hour.panel("amdgpu-comparison: Traced windows", number=1)}
    # 40 minutes of one round each 2 minutes, 8 of its windows with a result; node-a missed a round.
    assert seen["node-b"] == pytest.approx(160, abs=3)
    assert seen["node-b"] - 17 <= seen["node-a"] < seen["node-b"]


def test_power_has_a_gap_where_the_exporter_was_down(hour: Hour) -> None:
    [asked] = [q for q in QUERIES if q.name == "amdgpu-node: Power" and "limit" not in q.expr]
    for series in hour.store.over(asked.expr, START, END, SCRAPE_S):
        times = {at - START for at, _ in series["values"]}
        missing = set(range(0, HOUR, SCRAPE_S)) - times
        if series["metric"]["instance"] == "node-b":
            assert missing == set()
        else:
            gone = set(range(2700, 3000, SCRAPE_S)) if series["metric"]["gpu"] == "2" else set()
            assert missing == set(range(*DOWN, SCRAPE_S)) | gone


def test_a_silent_node_is_counted(hour: Hour) -> None:
    during = START + 1850
    assert hour.one("amdgpu-fleet: Nodes reporting", during) == 1
    assert hour.one("amdgpu-fleet: Nodes gone silent", during) == 1
    assert hour.one("amdgpu-fleet: Nodes gone silent") == 0


def test_a_missing_gpu_is_counted_and_named_and_the_others_keep_their_numbers(hour: Hour) -> None:
    assert hour.one("amdgpu-fleet: GPUs seen", WITHOUT_GPU) == 15
    assert hour.one("amdgpu-fleet: GPUs gone", WITHOUT_GPU) == 1
    assert hour.one("amdgpu-fleet: GPUs not answering", WITHOUT_GPU) == 1
    rows = hour.panel("amdgpu-fleet: What is broken", WITHOUT_GPU)
    told = {(labels["what"], labels["instance"], labels.get("gpu")) for labels, _ in rows}
    assert told == {("GPU gone from the node", "node-a", None), ("GPU does not answer", "node-a", "2")}
    assert sorted(hour.by_gpu("amdgpu-node: Power", WITHOUT_GPU)) == [0, 1, 3, 4, 5, 6, 7]
    for name in ("GPUs gone", "GPUs not answering"):
        assert hour.one(f"amdgpu-fleet: {name}") == 0


def test_nothing_but_an_outage_empties_a_panel_without_words(hour: Hour) -> None:
    """Before the first scrape all is dead: a sentence that says that all is well would be a lie then."""
    before = START - 7200
    assert hour.panel("amdgpu-fleet: Nodes gone silent", before) == []
    assert hour.panel("amdgpu-fleet: GPUs not answering", before) == []


def test_each_side_of_a_comparison_can_be_shown_alone(hour: Hour) -> None:
    for phase, sides in {"0": (2, 2), "1": (2, 0), "2": (0, 2)}.items():
        found = [
            len(hour.panel("amdgpu-comparison: L2 hits: now", number=n, phase=phase, offset="15m"))
            for n in (0, 1)
        ]
        assert tuple(found) == sides, phase


# --- the picture ----------------------------------------------------------------------------------------


def _node_parts() -> str:
    """The browser; skips where it, or Grafana's libraries, are not there."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not (RENDER / "node_modules").exists() or not shutil.which("node"):
        pytest.skip("Grafana's libraries are not installed; make dashboards-proof installs them")
    if chromium is None:
        pytest.skip("chromium is not installed")
    return chromium


def _run(*argv: str) -> Any:
    done = subprocess.run(argv, cwd=RENDER, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout or "null")


@pytest.mark.slow
def test_every_dashboard_fits_the_schema_of_grafanas_published_types() -> None:
    _node_parts()
    told = _run("node", "schema.mjs", *map(str, sorted((REPO / "dashboards").glob("*.json"))))
    assert told["bytes"] > 20_000  # types that are not found give a schema that takes everything
    assert told["refuses"] == told["broken"]
    # The types describe marks of Grafana's own; those of a data source carry its keys too.
    own = re.compile(r"/annotations/list/\d+ must NOT .*\"(expr|step|textFormat|titleFormat)\"")
    assert [f for faults in told["faults"].values() for f in faults if not own.match(f)] == []
    assert len(told["faults"]) == 7


@pytest.mark.slow
def test_every_panel_is_rendered_with_grafanas_libraries(hour: Hour, tmp_path: Path) -> None:
    chromium = _node_parts()
    subprocess.run(["node", "build.mjs"], cwd=RENDER, check=True, timeout=120)
    keep = os.environ.get("AMDGPU_EXPORTER_KEEP_PICTURES") == "1"
    pictures = PICTURES if keep else tmp_path
    pictures.mkdir(exist_ok=True)
    boards: dict[str, dict[str, str]] = {uid: {} for uid in panel_queries.boards()}
    boards["amdgpu-node"] = boards["amdgpu-kernels"] = {"node": "node-a"}
    boards["amdgpu-fleet"] = {"to": "2026-01-01T00:47:30Z"}  # while a GPU is missing
    boards["amdgpu-comparison"] = {"offset": "30m"}
    wanted = {
        "prometheus": hour.store.url,
        "dashboards": str(REPO / "dashboards"),
        "pictures": str(pictures),
        "chromium": chromium,
        "from": "2026-01-01T00:00:00Z",
        "to": "2026-01-01T00:59:45Z",
        "boards": boards,
    }
    reports = _run("node", "shoot.mjs", json.dumps(wanted))
    assert set(reports) == set(boards)
    for uid, report in reports.items():
        assert (report["finished"], report["errors"], report["log"]) == (True, [], []), uid
        shown = {f"{uid}: {p['title']}": p for p in report["panels"]}
        assert set(shown) == {
            f"{uid}: {p['title']}" for p in panel_queries.panels(panel_queries.boards()[uid])
        }
        assert report["drawn"] == len(shown), uid
        assert {name for name, p in shown.items() if p["state"] != "Done" or p["error"]} == set()
        without = {name for name, p in shown.items() if not p["points"] and p["type"] != "text"}
        faulty = {"amdgpu-fleet: What is broken"}  # shown while a GPU is missing
        assert without == {n for n in EMPTY_HERE if n.startswith(f"{uid}:")} - faulty
        size = (pictures / f"{uid}.png").stat().st_size
        assert 12_000 < size < 300_000, uid
