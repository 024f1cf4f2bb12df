"""Pages of devices and their readings, without a daemon: what the golden files hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import trees
from prometheus_client.parser import text_string_to_metric_families

from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.exposition import Renderer
from exporter.model import Device, Gap, RawGroups, Series, Value
from exporter.vitals import Facts, SlotBuilder, fill

NOTHING_KNOWN = Facts(
    at=0,
    devices={},
    present=frozenset(),
    expected=None,
    sources=(),
    children={},
    processes={},
    replay=None,
    reload_ok=True,
    reload_at=0,
    generation=1,
    dropped_total=0,
    render_seconds=None,
    observed=True,
)


def readings(backend: str, pairs: Iterable[tuple[Device, RawGroups]]) -> list[tuple[Series, Value]]:
    """What a backend's raw groups give through the catalogue."""
    extractor = Extractor(CATALOGUE, backend)
    series: list[Series] = []
    values: list[Value] = []
    gaps: list[Gap] = []
    for device, groups in pairs:
        extractor.extract(device, groups, series, values, gaps)
    return list(zip(series, values, strict=True))


def render(
    devices: Sequence[Device],
    rows: Sequence[tuple[Series, Value]],
    facts: Facts = NOTHING_KNOWN,
    *,
    own: bool = False,
) -> str:
    """The page; ``own`` keeps what it says of the exporter."""
    known = {d.id: d for d in devices}
    builder = SlotBuilder()
    fill(builder, CATALOGUE, replace(facts, devices=known, present=frozenset(known)))
    said = list(zip(builder._series, builder._values, strict=True))
    kept = [(s, v) for s, v in said if own or not s.metric.startswith("amdgpu_exporter_")] + list(rows)
    layout = Renderer(CATALOGUE).layout(known, [tuple(s for s, _ in kept)], 100_000)
    return layout.render([tuple(v for _, v in kept)]).text.decode()


def of_backend(backend: str, pairs: Sequence[tuple[Device, RawGroups]]) -> str:
    return render([d for d, _ in pairs], readings(backend, pairs))


def of_tree(
    root: Path, proc: Path | None = None, errors: Mapping[str, int] | None = None, **options: Any
) -> str:
    """What ``/metrics`` says of the devices under ``root``, without what it says of the exporter."""
    machine = trees.Machine(root, proc, **options)
    machine.root.errors = dict(errors or {})
    machine.poll()
    return render(list({d.id: d for d in machine.devices}.values()), machine.pairs())


def sound(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """No name, value or label set that Prometheus would refuse, and none twice; what is there, by series."""
    seen: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen, key
            seen[key] = sample.value
            bucket = sample.name.endswith("_bucket")
            assert bucket or abs(sample.value) < float("inf"), key
    return seen


def by_name(text: str, name: str, **labels: str) -> dict[str, float]:
    """The values of one metric by PCI address (``pci/partition`` where there is one)."""
    found: dict[str, float] = {}
    for (series, pairs), value in sound(text).items():
        own = dict(pairs)
        if series == f"amdgpu_{name}" and labels.items() <= own.items():
            where = "/".join(filter(None, (own.get("pci"), own.get("partition"))))
            assert where not in found, (name, labels, where)
            found[where] = value
    return found
