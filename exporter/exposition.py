"""Readings -> bytes of the Prometheus text format 0.0.4 and of OpenMetrics 1.0. Pure.

What stays the same between generations (names, labels, HELP, order) is laid out once per set of series;
a new generation only fills in the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import NamedTuple

from exporter.catalogue.schema import PREFIX, Catalogue, Kind, Metric, Scope
from exporter.model import Device, DeviceId, Histogram, Owner, Series, Value

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_OM_TYPE = {Kind.STATE: "gauge"}
_TEXT_TYPE = {Kind.STATE: "gauge", Kind.INFO: "gauge"}


class Foreign(NamedTuple):
    """Whole families that others made, as they stand in each format, and how many samples they hold."""

    text: str = ""
    openmetrics: str = ""
    series: int = 0


class Page:
    """One generation in both formats; a format is put together when it is first asked for."""

    def __init__(self, families: list[tuple[_Family, str]], foreign: Foreign) -> None:
        self._families = families
        self._foreign = foreign
        self._made: dict[bool, bytes] = {}

    @property
    def text(self) -> bytes:
        return self.encode(openmetrics=False)

    @property
    def openmetrics(self) -> bytes:
        return self.encode(openmetrics=True)

    def encode(self, *, openmetrics: bool) -> bytes:
        """The whole page; a lone surrogate in a label becomes ``?``."""
        if openmetrics not in self._made:
            if openmetrics:
                parts = [f.openmetrics_head + body for f, body in self._families]
                parts += (self._foreign.openmetrics, "# EOF\n")
            else:
                parts = [f.text_head + body for f, body in self._families]
                parts.append(self._foreign.text)
            self._made[openmetrics] = "".join(parts).encode("utf-8", "replace")
        return self._made[openmetrics]


class Layout:
    """Everything of a page but the values, for one exact list of series tuples."""

    def __init__(
        self,
        catalogue: Catalogue,
        devices: Mapping[DeviceId, Device],
        blocks: Sequence[tuple[Series, ...]],
        limit: int,
        workloads: Mapping[DeviceId, str] | None = None,
    ) -> None:
        ordinals = {d.id.pci: d.gpu for d in devices.values()}
        rows: dict[str, list[_Row]] = {}
        seen: set[Series] = set()
        for block, series_of_block in enumerate(blocks):
            for index, series in enumerate(series_of_block):
                # The first source in order of trust speaks for a series.
                if series in seen:
                    continue
                seen.add(series)
                metric = catalogue[series.metric]
                labels = _labels(metric, series, ordinals)
                if (
                    workloads
                    and series.device
                    and series.device in workloads
                    and not _OWN_OWNER & set(metric.labels)
                ):
                    labels = f"{labels},{workloads[series.device]}"
                row = _Row(labels, block, index)
                rows.setdefault(series.metric, []).append(row)
        self.dropped = _shed(catalogue, rows, limit)
        self.exposed = sum(_lines(catalogue[name]) * len(r) for name, r in rows.items())
        self._families = [_Family(catalogue[name], sorted(rows[name])) for name in sorted(rows)]

    def render(self, blocks: Sequence[Sequence[Value]], foreign: Foreign | None = None) -> Page:
        """Fill in the values; ``blocks`` run parallel to the series the layout was made for."""
        return Page([(family, family.body(blocks)) for family in self._families], foreign or Foreign())


class Renderer:
    """Keeps the latest layout for as long as the same series tuples come."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._key: tuple[object, ...] = ()
        self._layout: Layout | None = None

    def layout(
        self,
        devices: Mapping[DeviceId, Device],
        blocks: Sequence[tuple[Series, ...]],
        limit: int,
        workloads: Mapping[DeviceId, str] | None = None,
    ) -> Layout:
        # Identity is enough: sources hand out the same tuple while nothing changed. The key keeps the
        # objects alive, so an id can never come back as another object.
        key = (devices, workloads, *blocks, limit)
        same = len(key) == len(self._key) and all(
            a is b for a, b in zip(key[:-1], self._key[:-1], strict=True)
        )
        if self._layout is None or not same or key[-1] != self._key[-1]:
            self._layout = Layout(self._catalogue, devices, blocks, limit, workloads)
            self._key = key
        return self._layout


_OWN_OWNER = frozenset(Owner._fields)


def workload_labels(holders: Mapping[DeviceId, tuple[Owner, ...]]) -> dict[DeviceId, str]:
    """Labels that name each GPU's holder, ``kind="shared"`` for two or more; a socket's are its parts'."""
    every: dict[DeviceId, set[Owner]] = {}
    for device, owners in holders.items():
        every.setdefault(device, set()).update(owners)
        every.setdefault(device.socket, set()).update(owners)
    found = {}
    for device, mine in every.items():
        one = next(iter(mine)) if len(mine) == 1 else Owner("shared")
        pairs = zip(Owner._fields, one, strict=True)
        found[device] = ",".join(f'{k}="{v.translate(_ESCAPES)}"' for k, v in pairs if v)
    return found


class _Row(NamedTuple):
    """One series: its labels as written, and where its value lies."""

    labels: str
    block: int
    place: int


class _Family:
    """HELP, TYPE and the prepared start of each line of one metric; keeps the latest body."""

    __slots__ = ("_blocks", "_body", "_bounds", "_of", "_starts", "openmetrics_head", "text_head")

    def __init__(self, metric: Metric, rows: list[_Row]) -> None:
        name = metric.name
        text_help = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        kind = metric.kind.value
        self.text_head = f"# HELP {name} {text_help}\n# TYPE {name} {_TEXT_TYPE.get(metric.kind, kind)}\n"
        # OpenMetrics names the family without the suffix that the sample carries.
        family = name.removesuffix("_total") if metric.kind is Kind.COUNTER else name
        family = family.removesuffix("_info") if metric.kind is Kind.INFO else family
        unit = metric.unit.value
        unit_line = f"# UNIT {family} {unit}\n" if unit and family.endswith(f"_{unit}") else ""
        om_help = text_help.replace('"', r"\"")
        self.openmetrics_head = (
            f"# TYPE {family} {_OM_TYPE.get(metric.kind, kind)}\n{unit_line}# HELP {family} {om_help}\n"
        )
        self._bounds = [repr(b) for b in metric.buckets] if metric.kind is Kind.HISTOGRAM else None
        if self._bounds is None:
            self._starts = [
                (f"{name}{{{r.labels}}} " if r.labels else f"{name} ", r.block, r.place) for r in rows
            ]
        else:
            self._starts = [(f"{name}\n{r.labels}", r.block, r.place) for r in rows]
        self._blocks = tuple(sorted({r.block for r in rows}))
        self._of: tuple[Sequence[Value], ...] = ()
        self._body = ""

    def body(self, blocks: Sequence[Sequence[Value]]) -> str:
        """The sample lines. A maker that hands out the same tuple of values again has changed nothing."""
        mine = tuple(blocks[n] for n in self._blocks)
        if len(mine) != len(self._of) or not all(map(is_, mine, self._of)):
            if self._bounds is None:
                self._body = "".join([f"{start}{blocks[b][i]!r}\n" for start, b, i in self._starts])
            else:
                self._body = "".join(_histogram(s, self._bounds, blocks[b][i]) for s, b, i in self._starts)
            self._of = mine
        return self._body


def _histogram(start: str, bounds: list[str], value: Value) -> str:
    if not isinstance(value, Histogram):
        raise TypeError(f"{start.partition(chr(10))[0]}: a histogram's value must be one")
    name, _, labels = start.partition("\n")
    lead = labels + "," if labels else ""
    lines = [
        f'{name}_bucket{{{lead}le="{bound}"}} {n}\n' for bound, n in zip(bounds, value.buckets, strict=True)
    ]
    braces = f"{{{labels}}}" if labels else ""
    lines.append(f'{name}_bucket{{{lead}le="+Inf"}} {value.count}\n')
    lines.append(f"{name}_sum{braces} {value.sum!r}\n{name}_count{braces} {value.count}\n")
    return "".join(lines)


def _labels(metric: Metric, series: Series, ordinals: Mapping[str, int]) -> str:
    """The label part of a line; labels without a value are left out, which means the same to Prometheus."""
    pairs: list[tuple[str, str]] = []
    device = series.device
    if device is not None and metric.scope is not Scope.NODE:
        if device.pci in ordinals:
            pairs.append(("gpu", str(ordinals[device.pci])))
        pairs.append(("pci", device.pci))
        if device.partition is not None and metric.scope is Scope.PARTITION:
            pairs.append(("partition", str(device.partition)))
    pairs += zip(metric.labels, series.labels, strict=True)
    return ",".join(f'{k}="{v.translate(_ESCAPES)}"' for k, v in pairs if v)


def _lines(metric: Metric) -> int:
    return len(metric.buckets) + 3 if metric.kind is Kind.HISTOGRAM else 1


def _shed(catalogue: Catalogue, rows: dict[str, list[_Row]], limit: int) -> int:
    """Leave out whole families, the dearest kind first, until the page fits; returns the series left out."""
    total = sum(_lines(catalogue[name]) * len(r) for name, r in rows.items())
    dropped = 0
    for name in sorted(rows, key=lambda n: (_worth(catalogue[n]), -len(rows[n]), n)):
        if total - dropped <= limit or _worth(catalogue[name]) is _NEVER:
            break
        dropped += _lines(catalogue[name]) * len(rows.pop(name))
    return dropped


_NEVER = 9


def _worth(metric: Metric) -> int:
    """What goes first when there are too many series: kernels, histograms, per-unit series, the rest."""
    if "kernel" in metric.labels:
        return 0
    if metric.kind is Kind.HISTOGRAM:
        return 1
    if {"index", "link", "peer"} & set(metric.labels):
        return 2
    own = metric.name.startswith(f"{PREFIX}_exporter_")
    identity = metric.kind is Kind.INFO or metric.name in (f"{PREFIX}_up", f"{PREFIX}_devices")
    health = "errors" in metric.key or "retired" in metric.key
    return _NEVER if own or identity or health else 3
