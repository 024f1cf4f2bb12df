"""Panels as data: what a board is, before anything of Grafana's JSON. Pure; knows nothing of GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dashboards.query import metric_name
from exporter.catalogue import CATALOGUE
from exporter.catalogue.schema import Unit

_NAME = re.compile(r"\bamdgpu_[a-z0-9_]+")

UNITS = {
    Unit.NONE: "short",
    Unit.BYTES: "bytes",
    Unit.BYTES_PER_SECOND: "Bps",
    Unit.CELSIUS: "celsius",
    Unit.HERTZ: "hertz",
    Unit.JOULES: "joule",
    Unit.LANES: "short",
    Unit.PER_SECOND: "cps",
    Unit.RATIO: "percentunit",
    Unit.RPM: "rotrpm",
    Unit.SECONDS: "s",
    Unit.TIMESTAMP: "dateTimeAsIso",
    Unit.TRANSFERS_PER_SECOND: "si: T/s",  # without the blank, T is taken for tera
    Unit.VOLTS: "volt",
    Unit.WATTS: "watt",
}
PART = UNITS[Unit.RATIO]  # one quantity divided by another of the same unit
NUMBER = UNITS[Unit.NONE]
EACH_SECOND = UNITS[Unit.PER_SECOND]

GOOD, WARN, BAD, PLAIN = "green", "orange", "red", "text"


@dataclass(frozen=True, slots=True)
class Query:
    """One query. ``legend`` starts with the node wherever the result still knows it."""

    expr: str
    legend: str = ""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """What all panels have. ``about`` says what it answers; HELP of every metric in it is added.

    ``unit`` is only given where the query makes another quantity than its metric; ``empty`` only where the
    panel may be empty although all is well, and says why.
    """

    title: str
    queries: tuple[Query, ...]
    about: str
    unit: str | None = None
    empty: str = ""
    wide: int = 8
    high: int = 8
    steps: tuple[tuple[float, str], ...] = ()  # (from, colour)
    low: float | None = None
    top: float | None = None
    decimals: int | None = None


@dataclass(frozen=True, slots=True)
class Series(Panel):
    """Values over time. ``stacked``: parts of a whole."""

    stacked: bool = False  # the values must add up to one whole, or the sum is drawn beyond it
    right: bool = False  # legend beside the graph, for long names
    colours: Mapping[str, str] = field(default_factory=dict)  # end of a legend -> colour
    steps_line: bool = False


@dataclass(frozen=True, slots=True)
class Stat(Panel):
    """The value now, large. ``text``: auto, name (the legend alone), value_and_name."""

    text: str = "auto"
    wide: int = 4
    high: int = 4


@dataclass(frozen=True, slots=True)
class Bars(Panel):
    """Values now, as bars, the order is that of the query."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the field it shows, its heading, and how."""

    source: str
    title: str
    unit: str | None = None
    bar: bool = False
    wide: int | None = None
    decimals: int | None = None


@dataclass(frozen=True, slots=True)
class Table(Panel):
    """Rows now. ``columns`` are all that is shown, in this order; ``matrix`` is (row, column) labels."""

    columns: tuple[Column, ...] = ()
    matrix: tuple[str, str] | None = None
    sort: str = ""


@dataclass(frozen=True, slots=True)
class Text(Panel):
    """Words, in Markdown."""

    content: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice. Without ``query``, ``values`` are all there are."""

    name: str
    label: str
    query: str = ""
    values: str = ""
    current: tuple[str, str] = ("All", "$__all")
    listed: bool = False  # All stands for the choices, one by one, not for whatever there is
    several: bool = True
    interval: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line in the graphs wherever the query has a value."""

    name: str
    expr: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Board:
    uid: str
    title: str
    about: str
    variables: tuple[Variable, ...]
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    since: str = "now-1h"
    refresh: str = "30s"
    marks: tuple[Mark, ...] = ()


def metrics_in(panel: Panel) -> list[str]:
    """Catalogue metrics that a panel's queries read, in order."""
    names = (metric_name(n) for q in panel.queries for n in _NAME.findall(q.expr))
    return [n for n in dict.fromkeys(names) if n in CATALOGUE]


def unit_of(panel: Panel) -> str:
    """Grafana's unit id for a panel."""
    return panel.unit or UNITS[CATALOGUE[metrics_in(panel)[0]].unit]
