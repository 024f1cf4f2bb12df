"""Prometheus text that somebody else wrote -> whole families, checked, in both formats. Pure.

A file is taken whole or not at all: half of it would look like all of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as _read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as _read_text
from prometheus_client.samples import Sample

from exporter.catalogue.schema import PREFIX
from exporter.model import FormatError

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?:[ \t]*\{[ \t]*(?:[a-zA-Z_]\w*[ \t]*=[ \t]*"(?:[^"\\]|\\[\\n"])*"[ \t]*(?:,[ \t]*|(?=\})))*\}[ \t]*'
    r"|[ \t]+)"
    r'[^\s{}"]+(?:[ \t]+-?\d+)?\Z',
    re.ASCII,
)
_BOUNDS = {"histogram": "le", "summary": "quantile"}
_SUFFIXES = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "summary": ("_sum", "_count", "_created", ""),
}


@dataclass(frozen=True, slots=True)
class Family:
    """One family: its lines in each format without HELP and TYPE, and the keys of its samples."""

    name: str  # as OpenMetrics names it
    kind: str
    help: str
    text: str
    openmetrics: str
    keys: frozenset[str]

    @property
    def claims(self) -> frozenset[str]:
        """Every name that no other family may have."""
        return frozenset({self.name, *(self.name + s for s in _SUFFIXES.get(self.kind, ("",)))})


def read(blob: bytes) -> list[Family]:
    """Return the families of one file.

    Errors: FormatError, one line, for anything that Prometheus might refuse or that is not the file's to say.
    """
    try:
        text = blob.decode("utf-8")
        names = _names(text)
        found = list(_read_text(text if text.endswith("\n") else text + "\n"))
    except (ValueError, KeyError, IndexError, TypeError) as e:
        raise FormatError(f"not Prometheus text: {_words(e)}") from None
    families = [_family(metric, names) for metric in found]
    taken: set[str] = set()
    for family in families:
        if clash := taken & family.claims:
            raise FormatError(f"{min(clash)} is declared twice")
        taken |= family.claims
    try:
        # What a strict reader refuses would cost the whole page.
        list(_read_openmetrics(page(families, openmetrics=True) + "# EOF\n"))  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, IndexError, TypeError) as e:
        raise FormatError(f"not valid as OpenMetrics: {_words(e)}") from None
    return families


def _names(text: str) -> frozenset[str]:
    """The names of all samples. The parser passes over what it does not understand; this does not."""
    names = set()
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(" \t")
        if line and not line.startswith("#"):
            if not (found := _SAMPLE.match(line)):
                raise ValueError(f"line {number}: {line[:40]!r} is no sample")
            names.add(found[1])
    return frozenset(names)


def page(families: Iterable[Family], *, openmetrics: bool) -> str:
    """The families as they stand in a page, without an end mark."""
    return "".join(_lines(f, openmetrics) for f in families)


class Merged:
    """Families of several files; a file that contradicts an earlier one is refused whole."""

    def __init__(self) -> None:
        self._families: dict[str, list[Family]] = {}
        self._claims: dict[str, str] = {}

    def add(self, families: list[Family]) -> None:
        """Errors: FormatError for a series or a family that is another file's already."""
        for family in families:
            mine = self._families.get(family.name, [])
            if any(other.kind != family.kind for other in mine):
                raise FormatError(f"{family.name} is a {mine[0].kind} in another file, a {family.kind} here")
            if any(other.keys & family.keys for other in mine):
                raise FormatError(f"a series of {family.name} is in another file already")
            if any(self._claims.get(name, family.name) != family.name for name in family.claims):
                raise FormatError(f"{family.name} clashes with a family of another file")
        for family in families:
            self._families.setdefault(family.name, []).append(family)
            self._claims |= dict.fromkeys(family.claims, family.name)

    @property
    def series(self) -> int:
        return sum(len(f.keys) for parts in self._families.values() for f in parts)

    def page(self, *, openmetrics: bool) -> str:
        return page((_joined(parts) for _, parts in sorted(self._families.items())), openmetrics=openmetrics)


def _joined(parts: list[Family]) -> Family:
    one = parts[0]
    if len(parts) == 1:
        return one
    return Family(
        one.name,
        one.kind,
        one.help,
        "".join(p.text for p in parts),
        "".join(p.openmetrics for p in parts),
        frozenset().union(*(p.keys for p in parts)),
    )


def _lines(family: Family, openmetrics: bool) -> str:
    kind, name = family.kind, family.name
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        text = text.replace('"', r"\"")
        return f"# TYPE {name} {kind}\n# HELP {name} {text}\n{family.openmetrics}"
    name += "_total" * (kind == "counter")
    kind = "untyped" if kind == "unknown" else kind
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{family.text}"


def _family(metric: Metric, names: frozenset[str]) -> Family:
    kind = {"untyped": "unknown"}.get(metric.type, metric.type)
    name = metric.name
    if not metric.samples:
        raise FormatError(f"{name}: declared and has no sample")
    if name.startswith(f"{PREFIX}_") or name == PREFIX:
        raise FormatError(f"{name}: names that begin with {PREFIX}_ are the exporter's own")
    if kind == "counter" and (name in names or f"{name}_total" not in names):
        # Its name would differ between the two formats, and from the file: the parser adds the ending.
        raise FormatError(f"{name}: a counter's name must end in _total")
    if kind not in ("unknown", "gauge", *_SUFFIXES):
        raise FormatError(f"{name}: type {kind} is not known in the text format")
    samples = list(_ordered(name, kind, metric.samples))
    keys = [f"{s.name}{{{_labels(s, None)}}}" for s in samples]
    bound = _BOUNDS.get(kind)
    if len(set(keys)) != len(keys):
        raise FormatError(f"{name}: the same series stands twice")
    return Family(
        name,
        kind,
        metric.documentation,
        "".join(f"{key} {_number(s.value)}\n" for key, s in zip(keys, samples, strict=True)),
        "".join(f"{s.name}{{{_labels(s, bound)}}} {_number(s.value)}\n" for s in samples),
        frozenset(keys),
    )


def _ordered(name: str, kind: str, samples: list[Sample]) -> Iterator[Sample]:
    """The samples with those of one group beside each other, and buckets rising; FormatError on a bad one."""
    groups: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for s in samples:
        if s.timestamp is not None:
            raise FormatError(f"{name}: a sample has a timestamp; leave it out")
        if not math.isfinite(s.value):
            raise FormatError(f"{name}: {s.value} is no measurement; leave the sample out")
        if kind == "counter" and s.value < 0:
            raise FormatError(f"{name}: a counter is negative")
        inner = _BOUNDS.get(kind)
        if inner in s.labels and not _is_bound(s.labels[inner]):
            raise FormatError(f"{name}: {inner}={s.labels[inner]!r} is no number")
        key = tuple(sorted((k, v) for k, v in s.labels.items() if k != inner))
        groups.setdefault(key, []).append(s)
    for _, group in sorted(groups.items()):
        if kind == "histogram":
            buckets = [s for s in group if s.name.endswith("_bucket")]
            buckets.sort(key=lambda s: float(s.labels.get("le", "nan")))
            rest = [s for s in group if not s.name.endswith("_bucket")]
            _check_histogram(name, buckets, rest)
            group = buckets + rest
        yield from group


def _check_histogram(name: str, buckets: list[Sample], rest: list[Sample]) -> None:
    counts = [s.value for s in buckets]
    whole = next((s.value for s in rest if s.name.endswith("_count")), None)
    if (
        not buckets
        or buckets[-1].labels.get("le") != "+Inf"
        or counts != sorted(counts)
        or whole != counts[-1]
    ):
        raise FormatError(f"{name}: buckets must rise up to +Inf, which is the count")


def _is_bound(text: str) -> bool:
    try:
        return text == "+Inf" or math.isfinite(float(text))
    except ValueError:
        return False


def _labels(sample: Sample, bound: str | None) -> str:
    """The labels as text; those named ``bound`` as OpenMetrics writes numbers."""
    pairs = []
    for key, value in sorted(sample.labels.items()):
        if key == bound and value != "+Inf":
            value = repr(float(value))  # canonical: 1.0, not 1
        pairs.append(f'{key}="{value.translate(_ESCAPES)}"')
    return ",".join(pairs)


def _number(value: float) -> str:
    return repr(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
