"""The catalogue as Markdown and as plain data. Pure; says nothing that an entry does not say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from exporter.catalogue import condition, device, health, links, meta, processes, window
from exporter.catalogue.omitted import OMITTED
from exporter.catalogue.schema import PREFIX, Catalogue, Field, Metric, Scope

_AREAS = (
    ("Devices", device.METRICS),
    ("Links", links.METRICS),  # listed among the devices' own; the later heading holds
    ("Processes", processes.METRICS),
    ("Health", (*health.METRICS, *condition.METRICS)),
    ("Profiling windows", window.METRICS),
    ("The exporter itself", meta.METRICS),
)
_OTHER = "Other"
_AREA_OF = {m.name: title for title, metrics in _AREAS for m in metrics}
_DEVICE_LABELS = {
    Scope.NODE: (),
    Scope.SOCKET: ("gpu", "pci"),
    Scope.PARTITION: ("gpu", "pci", "partition"),
}
_HEAD = f"""# Metrics

Generated from the catalogue by `make generate`; do not edit. `amdgpu-exporter metrics` prints the same.

Every name starts with `{PREFIX}_`. Values are in base units. A value that is not known is absent, never 0;
what is missing is counted in `amdgpu_exporter_readings_missing`. A value outside its range is counted as
implausible, not clamped. `gpu` and `pci` name the GPU; `partition` is there only on a partitioned GPU,
and never on a metric of the whole socket.

**Stability: alpha.** Names may still be added; those listed here change only with a line under "Metrics" in
CHANGELOG.md.
"""
_SUPPORT = """## Support by backend

Which groups of raw readings can give a metric; whether a chip, driver or kernel fills them is another
matter. Backend `replay` reads a capture with the code of the backend that it captured. Metrics of windows, of
identity and of the exporter itself come with every backend.

"""


_OMITTED = """## Left out

What a GPU offers and is not exported, with the reason.

"""


def markdown(catalogue: Catalogue) -> str:
    """Write the reference page: a table for each area, then what each backend supports."""
    parts = [_HEAD]
    for title, metrics in _grouped(catalogue):
        parts.append(f"## {title}\n")
        header = ("Metric", "Kind", "Unit", "Labels", "Meaning", "From", "Elsewhere called", "Check by hand")
        parts.append(table(header, map(_row, metrics)))
    parts.append(_support(catalogue))
    parts.append(_OMITTED + "".join(f"- **{what}**: {why}\n" for what, why in OMITTED))
    return "\n".join(parts)


def as_json(catalogue: Catalogue) -> list[dict[str, Any]]:
    """Return every entry as plain data, in the catalogue's order."""
    return [
        {
            "name": m.name,
            "area": area(m),
            "kind": m.kind.value,
            "unit": m.unit.value,
            "help": m.help,
            "scope": m.scope.value,
            "labels": list(labels(m)),
            "range": list(m.range),
            "states": list(m.states),
            "buckets": list(m.buckets),
            "set": m.set,
            "fields": [
                {
                    "backend": f.backend,
                    "group": f.group,
                    "path": f.path,
                    "scale": f.scale,
                    "each": list(f.each),
                    "fixed": dict(f.fixed),
                }
                for f in m.fields
            ],
            "peers": list(m.peers),
            "check": m.check,
            "seen_on": m.seen_on,
        }
        for m in catalogue
    ]


def labels(metric: Metric) -> tuple[str, ...]:
    """Return all labels a series of ``metric`` may carry, those of the device first."""
    return (*_DEVICE_LABELS[metric.scope], *metric.labels)


def area(metric: Metric) -> str:
    """Return the heading ``metric`` is documented under."""
    return _AREA_OF.get(metric.name, _OTHER)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table; cells become single lines, and a column without any text is left out."""
    body = list(rows)
    kept = [i for i in range(len(header)) if any(row[i] for row in body)]
    lines = [header, ["---"] * len(header), *body]
    return "".join(f"| {' | '.join(_cell(line[i]) for i in kept)} |\n" for line in lines)


def _grouped(catalogue: Catalogue) -> Iterator[tuple[str, list[Metric]]]:
    for title in (*(t for t, _ in _AREAS), _OTHER):
        if metrics := [m for m in catalogue if area(m) == title]:
            yield title, metrics


def _row(metric: Metric) -> tuple[str, ...]:
    meaning = metric.help
    if metric.states:
        meaning += f" States: {', '.join(metric.states)}."
    if metric.buckets:
        meaning += f" Buckets: {', '.join(f'{b:g}' for b in metric.buckets)}."
    if metric.set:
        meaning += f" Counter set: {metric.set}."
    if metric.seen_on:
        meaning += f" Not in any capture yet; to be seen on {metric.seen_on}."
    return (
        f"`{metric.name}`",
        metric.kind.value,
        metric.unit.value.replace("_", " "),
        ", ".join(labels(metric)),
        meaning,
        "<br>".join(dict.fromkeys(map(_origin, metric.fields))),
        "<br>".join(f"`{p}`" for p in metric.peers),
        f"`{metric.check}`" if metric.check else "",
    )


def _origin(field: Field) -> str:
    notes = [f"each {label}" for label in field.each]
    notes += [f'{label}="{value}"' for label, value in field.fixed]
    notes += [f"× {field.scale:g}"] if field.scale != 1 else []
    suffix = f" ({', '.join(notes)})" if notes else ""
    return f"{field.backend}: `{field.group}.{field.path}`{suffix}"


def _support(catalogue: Catalogue) -> str:
    measured = [m for m in catalogue if m.fields]
    backends = sorted({f.backend for m in measured for f in m.fields})
    rows = []
    for m in measured:
        groups = [sorted({f.group for f in m.fields if f.backend == b}) for b in backends]
        rows.append((f"`{m.name}`", *(", ".join(g) or "–" for g in groups)))
    return _SUPPORT + table(("Metric", *backends), rows)


def _cell(text: str) -> str:
    # Kind and label names hold none of these; HELP and commands may.
    return " ".join(text.split()).replace("|", "\\|")
