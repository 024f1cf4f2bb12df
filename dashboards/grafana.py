"""What Grafana wants to read: a board as its JSON. Pure.

A board is rows of panels; places, ids and references follow from the order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dashboards.panels import (
    GOOD,
    PLAIN,
    Bars,
    Board,
    Column,
    Mark,
    Panel,
    Query,
    Series,
    Stat,
    Table,
    Text,
    Variable,
    metrics_in,
    unit_of,
)
from exporter.catalogue import CATALOGUE

Json = dict[str, Any]

SCHEMA_VERSION = 42
WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def board(what: Board, links: Sequence[Board]) -> Json:
    """A dashboard as Grafana imports it."""
    return {
        "annotations": {"list": [_own_marks(), *map(_mark, what.marks)]},
        "description": what.about,
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "links": [_link(b) for b in links if b.uid != what.uid],
        "panels": list(_panels(what.rows)),
        "refresh": what.refresh,
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["amdgpu", "generated"],
        "templating": {"list": [_datasource(), *map(_variable, what.variables)]},
        "time": {"from": what.since, "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": what.title,
        "uid": what.uid,
        "version": 1,
        "weekStart": "",
    }


def _panels(rows: Iterable[tuple[str, Sequence[Panel]]]) -> Iterator[Json]:
    number, y = 0, 0
    for title, panels in rows:
        number += 1
        place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        yield {
            "collapsed": False,
            "gridPos": place,
            "id": number,
            "panels": [],
            "title": title,
            "type": "row",
        }
        y += 1
        x = tallest = 0
        for panel in panels:
            if x + panel.wide > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            place = {"h": panel.high, "w": panel.wide, "x": x, "y": y}
            yield {"gridPos": place, "id": number, **_panel(panel)}
            x, tallest = x + panel.wide, max(tallest, panel.high)
        y += tallest


def _panel(panel: Panel) -> Json:
    kind, options, defaults, more = _kinds(panel)
    base: Json = {"description": description(panel), "options": options, "title": panel.title, "type": kind}
    if isinstance(panel, Text):
        return base
    unit: Json = {"unit": unit_of(panel)}
    for key, value in (
        ("noValue", panel.empty or None),
        ("min", panel.low),
        ("max", panel.top),
        ("decimals", panel.decimals),
    ):
        if value is not None:
            unit[key] = value
    steps: list[Json] = [{"color": GOOD if panel.steps else PLAIN, "value": None}]
    steps += [{"color": colour, "value": at} for at, colour in panel.steps]
    thresholds = {"mode": "absolute", "steps": steps}
    return {
        **base,
        "datasource": _DATASOURCE,
        "fieldConfig": {
            "defaults": {**unit, "thresholds": thresholds, "mappings": [], **defaults},
            "overrides": list(_overrides(panel)),
        },
        "targets": [_target(panel, n, q) for n, q in enumerate(panel.queries)],
        **more,
    }


def description(panel: Panel) -> str:
    """What a panel answers, then what each of its metrics is, in the catalogue's words."""
    helps = [f"- `{n}`: {CATALOGUE[n].help}" for n in metrics_in(panel)]
    return "\n".join((panel.about, "", *helps)) if helps else panel.about


def _kinds(panel: Panel) -> tuple[str, Json, Json, Json]:
    """Type, options, field defaults and further keys of a panel."""
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if isinstance(panel, Series):
        return "timeseries", _series_options(panel), _series_defaults(panel), {}
    if isinstance(panel, Stat):
        options = {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": reduce,
            "textMode": panel.text,
            "wideLayout": True,
        }
        return "stat", options, {"color": {"mode": "thresholds"}}, {}
    if isinstance(panel, Bars):
        options = {
            "displayMode": "basic",
            "minVizHeight": 16,
            "minVizWidth": 8,
            "namePlacement": "auto",
            "orientation": "horizontal",
            "reduceOptions": reduce,
            "showUnfilled": True,
            "sizing": "auto",
            "valueMode": "color",
        }
        colour = {"mode": "thresholds"} if panel.steps else {"mode": "fixed", "fixedColor": "blue"}
        return "bargauge", options, {"color": colour, "min": 0 if panel.low is None else panel.low}, {}
    if isinstance(panel, Table):
        options = {"cellHeight": "sm", "showHeader": True, "sortBy": []}
        if panel.sort:
            options["sortBy"] = [{"desc": True, "displayName": panel.sort}]
        custom = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
        return "table", options, {"custom": custom}, {"transformations": list(_transformations(panel))}
    if not isinstance(panel, Text):
        raise TypeError(f"{panel.title}: no way to show a {type(panel).__name__}")
    return "text", {"content": panel.content, "mode": "markdown"}, {}, {}


def _series_options(panel: Series) -> Json:
    place = (
        {"displayMode": "table", "placement": "right"}
        if panel.right
        else {"displayMode": "list", "placement": "bottom"}
    )
    return {
        "legend": {"calcs": [], "showLegend": True, **place},
        "tooltip": {"hideZeros": False, "mode": "multi", "sort": "desc"},
    }


def _series_defaults(panel: Series) -> Json:
    custom: Json = {
        "drawStyle": "line",
        "fillOpacity": 70 if panel.stacked else 0,
        "lineInterpolation": "stepAfter" if panel.steps_line else "linear",
        "lineWidth": 0 if panel.stacked else 1,
        "showPoints": "never",
        "spanNulls": False,  # a gap in the data stays a gap
        "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
        "thresholdsStyle": {"mode": "line" if panel.steps else "off"},
    }
    return {"custom": custom, "color": {"mode": "palette-classic"}}


def _overrides(panel: Panel) -> Iterator[Json]:
    if isinstance(panel, Series):
        for end, colour in panel.colours.items():
            fixed = {"id": "color", "value": {"fixedColor": colour, "mode": "fixed"}}
            yield {"matcher": {"id": "byRegexp", "options": f"/{re.escape(end)}$/"}, "properties": [fixed]}
        for n, query in enumerate(panel.queries):
            if query.dashed:
                style = {"id": "custom.lineStyle", "value": {"dash": [8, 6], "fill": "dash"}}
                yield {"matcher": {"id": "byFrameRefID", "options": _ref(n)}, "properties": [style]}
    if isinstance(panel, Table):
        for column in panel.columns:
            properties = list(_column(column))
            if properties:
                yield {"matcher": {"id": "byName", "options": column.title}, "properties": properties}


def _column(column: Column) -> Iterator[Json]:
    yield {"id": "unit", "value": column.unit or "string"}
    yield {"id": "noValue", "value": "–"}  # the panel's words are for a whole table without rows
    if column.wide:
        yield {"id": "custom.width", "value": column.wide}
    if column.bar:
        yield {
            "id": "custom.cellOptions",
            "value": {"mode": "basic", "type": "gauge", "valueDisplayMode": "text"},
        }
        yield {"id": "min", "value": 0}
        yield {"id": "max", "value": 1}
        yield {"id": "color", "value": {"fixedColor": "blue", "mode": "fixed"}}
    if column.decimals is not None:
        yield {"id": "decimals", "value": column.decimals}


def _transformations(panel: Table) -> Iterator[Json]:
    if panel.matrix:
        row, column = panel.matrix
        options = {"columnField": column, "emptyValue": "null", "rowField": row, "valueField": "Value"}
        yield {"id": "groupingToMatrix", "options": options}
    elif len(panel.queries) > 1:
        yield {"id": "merge", "options": {}}
    sources = [c.source for c in panel.columns]
    yield {"id": "filterFieldsByName", "options": {"include": {"names": sources}}}
    yield {
        "id": "organize",
        "options": {
            "excludeByName": {},
            "indexByName": {name: n for n, name in enumerate(sources)},
            "renameByName": {c.source: c.title for c in panel.columns},
        },
    }


def _ref(number: int) -> str:
    return chr(ord("A") + number)


def _target(panel: Panel, number: int, query: Query) -> Json:
    instant = not isinstance(panel, Series)
    return {
        "datasource": _DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "format": "table" if isinstance(panel, Table) else "time_series",
        "instant": instant,
        "legendFormat": query.legend,
        "range": not instant,
        "refId": _ref(number),
    }


def _datasource() -> Json:
    return {
        "current": {"text": "default", "value": "default"},
        "hide": 0,
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "type": "datasource",
    }


def _variable(v: Variable) -> Json:
    text, value = v.current
    everything = value == "$__all"
    current = (
        {"selected": True, "text": [text], "value": [value]} if v.several else {"text": text, "value": value}
    )
    if not value:
        current = {"selected": False, "text": [], "value": []}  # Grafana takes the first one
    base: Json = {"current": current, "description": v.about, "hide": 0, "label": v.label, "name": v.name}
    if v.interval:
        return {
            **base,
            "options": _options(v),
            "query": v.values,
            "refresh": 2,
            "type": "interval",
        }
    base |= {"includeAll": everything, "multi": v.several, "options": []}
    if everything and not v.listed:
        base["allValue"] = ".*"  # also matches what does not have the label
    if not v.query:
        return {**base, "options": _options(v), "query": v.values, "type": "custom"}
    query = {"qryType": 1, "query": v.query, "refId": "PrometheusVariableQueryEditor-VariableQuery"}
    return {
        **base,
        "datasource": _DATASOURCE,
        "query": query,
        "refresh": 2,
        "regex": "",
        "sort": 3 if v.name == "gpu" else 1,
        "type": "query",
    }


def _options(v: Variable) -> list[Json]:
    found = []
    for choice in filter(None, (part.strip() for part in v.values.split(","))):
        text, _, value = choice.partition(" : ")
        found.append({"selected": (value or text) == v.current[1], "text": text, "value": value or text})
    return found


def _own_marks() -> Json:
    return {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": False,
        "iconColor": "rgba(0, 211, 255, 1)",
        "name": "Marks tagged deploy",
        "target": {"limit": 100, "matchAny": True, "tags": ["deploy"], "type": "tags"},
        "type": "dashboard",
    }


def _mark(mark: Mark) -> Json:
    return {
        "datasource": _DATASOURCE,
        "enable": True,
        "expr": mark.expr,
        "iconColor": "purple",
        "name": mark.name,
        "step": "60s",
        "textFormat": mark.text,
        "titleFormat": mark.title,
    }


def _link(other: Board) -> Json:
    return {
        "asDropdown": False,
        "icon": "dashboard",
        "includeVars": True,
        "keepTime": True,
        "tags": [],
        "targetBlank": False,
        "title": other.title.removeprefix("AMD GPU "),
        "tooltip": other.about,
        "type": "link",
        "url": f"/d/{other.uid}",
    }
