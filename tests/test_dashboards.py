"""The dashboards as they are committed: fresh, well formed, and asking only for what exists."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards import build, grafana, panels, query
from exporter.catalogue import CATALOGUE, window
from exporter.catalogue.docs import labels as labels_of
from exporter.catalogue.schema import Kind, Metric, Scope, Unit
from exporter.config.settings import Config
from exporter.model import Owner
from tests import promql
from tests.tools import panel_queries

REPO = Path(__file__).resolve().parent.parent
BOARDS = panel_queries.boards()
QUERIES = [q for board in BOARDS.values() for q in panel_queries.queries(board)]
PANELS = [(uid, p) for uid, board in BOARDS.items() for p in panel_queries.panels(board)]
TYPES = {"timeseries", "stat", "bargauge", "gauge", "table", "text"}
TARGET_LABELS = {"cluster", "instance", "job"}  # given by Prometheus
WANTED = ("fleet", "node", "kernels", "history", "comparison", "job", "exporter-health")
VARIABLES = {
    "datasource",
    "cluster",
    "node",
    "gpu",
    "namespace",
    "workload",
    "job_id",
    "kernel",
    "phase",
    "window",
    "offset",
}
# Unit of a metric -> how Grafana calls it; written down here once more, so that a slip in one is seen.
UNIT_IDS = {
    "": "short",
    "bytes": "bytes",
    "celsius": "celsius",
    "hertz": "hertz",
    "joules": "joule",
    "lanes": "short",
    "per_second": "cps",
    "ratio": "percentunit",
    "seconds": "s",
    "transfers_per_second": "si: T/s",
    "volts": "volt",
    "watts": "watt",
}

# What is of one window, or adds windows up.
WINDOW_METRICS = {m.name for m in window.METRICS if m.name != "amdgpu_sampling_state"}


def ids(item: Any) -> str:
    return item.name if isinstance(item, panel_queries.Asked) else f"{item[0]}: {item[1]['title']}"


def each_panel(*kinds: str) -> Any:
    chosen = [p for p in PANELS if not kinds or p[1]["type"] in kinds]
    return pytest.mark.parametrize(("uid", "panel"), chosen, ids=[ids(p) for p in chosen])


each_query = pytest.mark.parametrize("asked", QUERIES, ids=ids)


@cache
def recorded() -> set[str]:
    """Series that our recording rules make."""
    files = sorted((REPO / "alerts" / "rules").glob("*.yml"))
    groups = [g for f in files for g in yaml.safe_load(f.read_text(encoding="utf-8"))["groups"]]
    return {rule["record"] for g in groups for rule in g["rules"] if "record" in rule}


# --- the files ------------------------------------------------------------------------------------------


def test_the_files_are_what_is_built_now() -> None:
    files = {p.relative_to(REPO) for p in (REPO / "dashboards").glob("*.json")}
    assert files == set(build.built())
    assert {
        p: (REPO / p).read_text(encoding="utf-8") == text for p, text in build.built().items()
    } == dict.fromkeys(files, True)


def test_every_dashboard_that_users_are_promised_is_there() -> None:
    assert set(BOARDS) == {f"amdgpu-{name}" for name in WANTED}
    assert len({b["title"] for b in BOARDS.values()}) == len(WANTED)


@pytest.mark.parametrize("uid", BOARDS)
def test_ids_are_unique_and_panels_do_not_overlap(uid: str) -> None:
    everything = BOARDS[uid]["panels"]
    numbers = [p["id"] for p in everything]
    assert len(set(numbers)) == len(numbers)
    titles = [p["title"] for p in everything if p["type"] != "row"]
    assert sorted(titles) == sorted(set(titles))
    taken: dict[tuple[int, int], str] = {}
    for panel in everything:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24, panel["title"]
        for cell in (
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ):
            assert cell not in taken, f"{panel['title']} lies on {taken[cell]}"
            taken[cell] = panel["title"]


@pytest.mark.parametrize("uid", BOARDS)
def test_every_variable_that_is_used_exists_and_none_is_idle(uid: str) -> None:
    board = BOARDS[uid]
    names = [v["name"] for v in board["templating"]["list"]]
    assert len(set(names)) == len(names)
    assert {"datasource", "cluster", "node"} <= set(names) <= VARIABLES
    used = set(
        re.findall(
            r"\$\{?([a-z]\w*)", json.dumps([board["panels"], board["templating"], board["annotations"]])
        )
    )
    assert used == set(names)


@pytest.mark.parametrize("uid", BOARDS)
def test_every_choice_starts_at_all_or_at_a_value_it_offers(uid: str) -> None:
    for v in BOARDS[uid]["templating"]["list"][1:]:
        if v.get("includeAll"):
            listed = uid == "amdgpu-job" and v["name"] == "node"  # All: those of the job, one by one
            assert (v.get("allValue"), v["current"]["value"]) == (None if listed else ".*", ["$__all"])
        elif v["current"]["value"] == []:
            assert (v["type"], v["multi"]) == ("query", True), "Grafana takes the first one it finds"
        else:
            assert v["current"]["value"] in [o["value"] for o in v["options"]], v["name"]


def test_only_boards_that_rank_or_add_up_open_with_every_node() -> None:
    """A graph with a line for each GPU of a thousand nodes can be neither read nor paid for."""
    by_all = {
        uid
        for uid, board in BOARDS.items()
        for v in board["templating"]["list"]
        if v["name"] == "node" and v["includeAll"]
    }
    assert by_all - {"amdgpu-job"} == {"amdgpu-fleet"}  # the board of a job is held down by its workload
    for panel in panel_queries.panels(BOARDS["amdgpu-fleet"]):
        for target in panel.get("targets", ()):
            assert re.match(r"(sort|sort_desc|round|sum|count|quantile)\(", target["expr"]), panel["title"]


def test_ranges_over_windows_hold_at_least_four_of_the_default_period() -> None:
    for uid, board in BOARDS.items():
        for v in board["templating"]["list"]:
            if v["name"] == "window":
                shortest = min(_seconds(o["value"]) for o in v["options"])
                assert shortest >= 4 * Config().windows.interval, uid


# --- panels ---------------------------------------------------------------------------------------------


@each_panel()
def test_a_panel_is_of_a_type_that_can_be_shown_everywhere_and_says_what_it_is(
    uid: str, panel: dict[str, Any]
) -> None:
    assert panel["type"] in TYPES
    about, _, helps = panel["description"].partition("\n\n")
    assert about.endswith("."), about
    metrics = {
        query.metric_name(r.name) for q in panel.get("targets", ()) for r in promql.reads(_tree(uid, q))
    }
    for name in metrics & set(CATALOGUE.metrics):
        assert f"`{name}`: {CATALOGUE[name].help}" in helps


@each_panel("timeseries", "stat", "bargauge", "gauge", "table")
def test_a_panel_asks_the_data_source_that_is_chosen(uid: str, panel: dict[str, Any]) -> None:
    wanted = {"type": "prometheus", "uid": "${datasource}"}
    assert [panel["datasource"], *(t["datasource"] for t in panel["targets"])] == [wanted] * (
        1 + len(panel["targets"])
    )
    assert len({t["refId"] for t in panel["targets"]}) == len(panel["targets"])
    assert all(t["instant"] == (panel["type"] != "timeseries") for t in panel["targets"])


@each_panel("timeseries", "stat", "bargauge", "gauge")
def test_a_value_that_is_shown_as_it_is_has_the_unit_of_its_metric(uid: str, panel: dict[str, Any]) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    assert unit in {*UNIT_IDS.values(), "Bps"}
    for target in panel["targets"]:
        metric = _shown_as_it_is(_tree(uid, target))
        if metric and metric.kind is Kind.GAUGE and metric.unit is not Unit.TIMESTAMP:
            assert unit == UNIT_IDS[metric.unit.value], target["expr"]


@each_panel("timeseries", "stat", "bargauge", "gauge", "table")
def test_a_ratio_is_shown_in_per_cent_never_as_0_to_1(uid: str, panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        metric = _shown_as_it_is(_tree(uid, target))
        if metric and metric.unit is Unit.RATIO and panel["type"] != "table":
            assert panel["fieldConfig"]["defaults"]["unit"] == "percentunit"


@each_panel("table")
def test_a_table_names_the_node_first_and_every_column_it_renames(uid: str, panel: dict[str, Any]) -> None:
    [organize] = [t["options"] for t in panel["transformations"] if t["id"] == "organize"]
    order = sorted(organize["indexByName"], key=organize["indexByName"].get)
    assert order[0] in ("instance", "who\\state"), order
    assert set(organize["renameByName"]) == set(order)
    shown = set(organize["renameByName"].values())
    assert {o["matcher"]["options"] for o in panel["fieldConfig"]["overrides"]} == shown


def test_only_a_panel_that_may_be_empty_in_good_health_has_words_for_it() -> None:
    """Words on a panel that is empty only when collection is dead turn an outage into a friendly sentence."""
    always = {
        m.name
        for m in CATALOGUE
        if m.name in ("amdgpu_up", "amdgpu_devices", "amdgpu_busy_ratio", "amdgpu_power_watts")
    }
    for asked in QUERIES:
        names = {r.name for r in promql.reads(promql.parse(asked.expr))}
        if names and names <= always:
            assert not asked.empty, asked.name
        if any(n.startswith("amdgpu_cache_") or n == "amdgpu_timeline_seconds_total" for n in names):
            assert asked.empty, f"{asked.name}: empty without windows, and does not say so"


# --- queries --------------------------------------------------------------------------------------------


@each_query
def test_a_query_asks_only_for_series_and_labels_that_exist(asked: panel_queries.Asked) -> None:
    tree = promql.parse(asked.expr)
    found = list(promql.reads(tree))
    assert found
    known: set[str] = set(TARGET_LABELS)
    for read in found:
        if read.name in recorded():
            known |= {"gpu", "pci", "partition", *read.labels}
            continue
        metric = CATALOGUE[query.metric_name(read.name)]
        mine = {*labels_of(metric), *TARGET_LABELS, *({"le"} if read.name.endswith("_bucket") else ())}
        assert (read.name == metric.name) == (metric.kind is not Kind.HISTOGRAM), read.name
        # The holder's labels, which a GPU's series has where they are wanted inline, else none, for All.
        inline = set() if metric.scope is Scope.NODE else set(Owner._fields)
        assert set(read.labels) <= mine | inline, f"{read.name} has no {set(read.labels) - mine}"
        known |= mine
    made = set(re.findall(r'label_(?:replace|join)\(.*?"(\w+)", "', asked.expr))
    assert set(promql.grouping(tree)) <= known | made
    assert set(re.findall(r"{{(\w+)}}", asked.legend)) <= known | made


@each_query
def test_a_legend_starts_with_the_node_wherever_the_result_knows_it(asked: panel_queries.Asked) -> None:
    if asked.kind == "table":
        return
    if promql.keeps(promql.parse(asked.expr), "instance"):
        assert asked.legend.startswith("{{instance}}"), asked.expr
    else:
        assert "{{instance}}" not in asked.legend


@each_query
def test_a_query_keeps_to_the_chosen_cluster_node_and_gpu(asked: panel_queries.Asked) -> None:
    board = BOARDS[asked.board]
    choosable = {v["name"] for v in board["templating"]["list"]}
    for read in promql.reads(promql.parse(asked.expr)):
        assert {"cluster", "instance"} <= set(read.labels), read.name
        if "gpu" in choosable and CATALOGUE[query.metric_name(read.name)].scope is not Scope.NODE:
            assert "gpu" in read.labels, read.name


@each_query
def test_totals_of_windows_are_added_up_over_four_periods_and_gauges_of_one_window_are_not(
    asked: panel_queries.Asked,
) -> None:
    for read in promql.reads(promql.parse(asked.expr)):
        metric = CATALOGUE[query.metric_name(read.name)]
        windowed = metric.name in WINDOW_METRICS
        if windowed and metric.kind in (Kind.COUNTER, Kind.HISTOGRAM):
            assert read.seconds is not None
            assert read.seconds >= 4 * Config().windows.interval, read.name
        if windowed and metric.kind in (Kind.GAUGE, Kind.STATE):
            assert read.seconds is None, f"{read.name} is of one window"


def test_no_ranking_over_time_is_drawn_from_gauges_of_one_window() -> None:
    for asked in QUERIES:
        if re.search(r"\b(avg|max|min)_over_time\(", asked.expr):
            names = {r.name for r in promql.reads(promql.parse(asked.expr))}
            assert not names & WINDOW_METRICS, asked.name


@pytest.mark.parametrize("uid", BOARDS)
def test_choices_and_marks_ask_only_for_what_exists(uid: str) -> None:
    board = BOARDS[uid]
    values = {**panel_queries.chosen(board), "datasource": "x"}
    for v in board["templating"]["list"]:
        if v["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", v["query"]["query"])
            assert found, v["query"]
            [read] = promql.reads(promql.parse(panel_queries.filled(found[1], values)))
            assert {found[2], *read.labels} <= {*labels_of(CATALOGUE[read.name]), *TARGET_LABELS}
    for mark in board["annotations"]["list"][1:]:
        reads = list(promql.reads(promql.parse(panel_queries.filled(mark["expr"], values))))
        assert {r.name for r in reads} <= set(CATALOGUE.metrics)


# --- owners --------------------------------------------------------------------------------------------


def test_a_choice_of_owner_keeps_the_gpus_that_the_chosen_holds() -> None:
    filtered = query.owned(query.of("amdgpu_power_watts"))
    values = {
        "cluster": ".*",
        "node": ".*",
        "gpu": ".*",
        "namespace": "ml",
        "workload": "train-0",
        "job_id": ".*",
    }
    reads = {r.name: r.labels for r in promql.reads(promql.parse(panel_queries.filled(filtered, values)))}
    assert reads.keys() == {"amdgpu_power_watts", "amdgpu_workload_info"}
    assert {"namespace", "pod", "job_id"} <= set(reads["amdgpu_workload_info"])


# --- the checks themselves can fail ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("a", True),
        ("sum(a)", False),
        ("sum by (instance) (a)", True),
        ("sum without (instance) (a)", False),
        ("topk(3, a)", True),
        ("topk(3, sum by (gpu) (a))", False),
        ("a / on (gpu) b", False),
        ("a / on (gpu) group_left () b", True),
        ("a and on (gpu) b", True),
        ("sum(a) or b", True),
        ("time() - a", True),
        ("time() - max(a)", False),
        ('label_replace(sum(a), "what", "x", "", "")', False),
    ],
)
def test_the_labels_of_a_result_are_told_from_its_query(expression: str, kept: bool) -> None:
    assert promql.keeps(promql.parse(expression), "instance") is kept


def test_a_broken_query_is_seen() -> None:
    with pytest.raises(ValueError, match=r"."):
        promql.parse("sum by (instance (a)")


def test_a_panel_of_an_unknown_sort_is_refused() -> None:
    odd = panels.Panel("Odd", (panels.Query(query.of("amdgpu_up")),), "No sort of panel.")
    with pytest.raises(TypeError, match="Odd"):
        grafana.board(panels.Board("x", "X", "X.", (), (("Row", (odd,)),)), ())


def _tree(uid: str, target: dict[str, Any]) -> Any:
    return promql.parse(panel_queries.filled(target["expr"], panel_queries.chosen(BOARDS[uid])))


def _shown_as_it_is(tree: Any) -> Metric | None:
    """The metric whose very value a query shows, picked or averaged at most."""
    import promql_parser

    while True:
        match tree:
            case promql_parser.ParenExpr():
                tree = tree.expr
            case promql_parser.AggregateExpr() if str(tree.op) in (
                "sum",
                "avg",
                "max",
                "min",
                "topk",
                "bottomk",
            ):
                tree = tree.expr
            case promql_parser.Call() if tree.func.name in ("sort", "sort_desc", "avg_over_time"):
                [tree] = tree.args
            case promql_parser.MatrixSelector():
                tree = tree.vector_selector
            case promql_parser.VectorSelector():
                return CATALOGUE.metrics.get(query.metric_name(tree.name))
            case _:
                return None


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * {"m": 60, "h": 3600, "d": 86400}[duration[-1]]


def test_the_page_about_dashboards_names_and_shows_each() -> None:
    page = (REPO / "docs" / "DASHBOARDS.md").read_text(encoding="utf-8")
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", page) if "://" not in t]
    assert [t for t in targets if not (REPO / "docs" / t).exists()] == []
    for uid in BOARDS:
        assert f"`{uid}.json`" in page
        picture = REPO / "docs" / "img" / f"{uid}.png"
        assert f"img/{picture.name}" in page
        assert picture.stat().st_size < 300_000


def test_the_lock_of_the_renderer_names_no_registry() -> None:
    lock = json.loads((REPO / "dashboards" / "render" / "package-lock.json").read_text(encoding="utf-8"))
    assert len(lock["packages"]) > 400
    assert {name for name, package in lock["packages"].items() if "resolved" in package} == set()
