"""What of the catalogue is left when metrics or raw groups are switched off, and what is then read. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from exporter.catalogue.schema import PREFIX, Catalogue, Field, Metric


def without(catalogue: Catalogue, patterns: Iterable[str]) -> Catalogue:
    """The catalogue less what ``patterns`` name.

    A pattern is the name of a raw group (``ras``) or of a part of one (``gpu_metrics.clocks``), which is then
    not read for any metric, or the name of a metric with or without the prefix, where ``*`` and ``?`` stand
    for any text and any character. Metrics that no backend measures (identity, windows, the exporter's own)
    stay.
    """
    wanted = tuple(patterns)
    if not wanted:
        return catalogue
    kept = []
    for metric in catalogue:
        fields = tuple(f for f in metric.fields if not any(_covers(p, f) for p in wanted))
        if not metric.fields:
            kept.append(metric)
        elif fields and not any(_names(p, metric) for p in wanted):
            kept.append(metric if len(fields) == len(metric.fields) else replace(metric, fields=fields))
    return Catalogue(kept)


def pointless(catalogue: Catalogue, patterns: Iterable[str]) -> list[str]:
    """The patterns that name nothing which could be switched off."""
    measured = [m for m in catalogue if m.fields]
    fields = [f for m in measured for f in m.fields]
    return [
        p
        for p in patterns
        if not any(_covers(p, f) for f in fields) and not any(_names(p, m) for m in measured)
    ]


def _covers(pattern: str, field: Field) -> bool:
    return f"{field.group}.{field.path}.".startswith(f"{pattern}.")


def _names(pattern: str, metric: Metric) -> bool:
    return fnmatchcase(metric.name, pattern) or fnmatchcase(metric.name.removeprefix(f"{PREFIX}_"), pattern)


class Wanted:
    """Which raw readings of one backend the metrics of a catalogue ask for."""

    def __init__(self, catalogue: Catalogue, backend: str) -> None:
        self._paths: dict[str, set[tuple[str, ...]]] = {}
        for field in (f for m in catalogue for f in m.fields if f.backend == backend):
            self._paths.setdefault(field.group, set()).add(_path(field))

    def __call__(self, group: str, *path: str) -> bool:
        """Whether a metric wants the leaf at ``path``, or one below it."""
        return any(
            all(a in ("*", b) for a, b in zip(want, path, strict=False))
            for want in self._paths.get(group, ())
        )


def _path(field: Field) -> tuple[str, ...]:
    return tuple(field.path.split("."))
