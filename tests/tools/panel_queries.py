"""What Grafana would ask for a panel: its queries with the variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "dashboards"
# What Grafana fills in by itself for an hour shown in about 240 points, scraped each 15 s.
BUILT_IN = {"__rate_interval": "1m", "__interval": "15s", "__range": "1h"}


@dataclass(frozen=True)
class Asked:
    """One query of one panel."""

    board: str
    panel: str
    kind: str
    expr: str
    legend: str
    instant: bool
    description: str
    empty: str

    @property
    def name(self) -> str:
        return f"{self.board}: {self.panel}"


def boards() -> dict[str, dict[str, Any]]:
    """Every committed dashboard by its uid."""
    loaded = (json.loads(p.read_text(encoding="utf-8")) for p in sorted(FOLDER.glob("*.json")))
    return {b["uid"]: b for b in loaded}


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel, also those inside rows; not the rows."""
    for panel in board["panels"]:
        yield from panel.get("panels", ())
        if panel["type"] != "row":
            yield panel


def chosen(board: Mapping[str, Any]) -> dict[str, str]:
    """The value each variable has when the dashboard is opened, as it goes into a query.

    Where Grafana takes the first node there is, this takes every one.
    """
    values = {}
    for v in board["templating"]["list"]:
        value = v.get("current", {}).get("value", "")
        value = (value or [""])[0] if isinstance(value, list) else value
        values[v["name"]] = v.get("allValue", ".*") if value == "$__all" else value or ".*"
    return values


def filled(text: str, values: Mapping[str, str]) -> str:
    """``text`` with every variable replaced; KeyError for one that does not exist."""
    table = {**BUILT_IN, **values}
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: table[m[1] or m[2]], _keep_groups(text)).replace(
        "\0", "$"
    )


def _keep_groups(text: str) -> str:
    """Groups of label_replace are not variables, for Grafana neither."""
    return re.sub(r"\$(?=\d)", "\0", text)


def queries(board: Mapping[str, Any], **values: str) -> Iterator[Asked]:
    """Every query of every panel, with the variables as opened or as given."""
    table = {**chosen(board), **values}
    for panel in panels(board):
        for target in panel.get("targets", ()):
            yield Asked(
                board["uid"],
                panel["title"],
                panel["type"],
                filled(target["expr"], table),
                target["legendFormat"],
                target["instant"],
                panel["description"],
                panel["fieldConfig"]["defaults"].get("noValue", ""),
            )
