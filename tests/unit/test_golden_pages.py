"""The page of every captured machine, line by line, as it was reviewed against its truth."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path

import made_nodes
import pytest
import trees
from prometheus_client.parser import text_string_to_metric_families

from exporter.catalogue import CATALOGUE
from exporter.exposition import Renderer
from exporter.vitals import Facts, SlotBuilder, fill

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CASES = ("21-sysfs-mixed-vendors", "22-kfd-order-reversed")


def page(root: Path, proc: Path | None = None, errors: Mapping[str, int] | None = None) -> str:
    """What ``/metrics`` says of the devices under ``root``, without what it says of the exporter."""
    machine = trees.Machine(root, proc)
    machine.root.errors = dict(errors or {})
    machine.poll()
    devices = {d.id: d for d in machine.devices}
    own = SlotBuilder()
    facts = Facts(
        at=0,
        devices=devices,
        present=frozenset(devices),
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
    fill(own, CATALOGUE, facts)
    rows = list(zip(own._series, own._values, strict=True))
    rows = [(s, v) for s, v in rows if not s.metric.startswith("amdgpu_exporter_")] + machine.pairs()
    layout = Renderer(CATALOGUE).layout(devices, [tuple(s for s, _ in rows)], 100_000)
    return layout.render([tuple(v for _, v in rows)]).text.decode()


def _sound(text: str) -> None:
    """No name, value or label set that Prometheus would refuse, and none twice."""
    seen = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen, key
            seen.add(key)
            assert abs(sample.value) < float("inf"), key


def test_every_captured_machine_has_its_reviewed_page(
    samples: Path, golden: Callable[[Path, str], None]
) -> None:
    for name in trees.sample_names(samples):
        text = page(trees.laid_out(samples, name))
        _sound(text)
        golden(GOLDEN / f"{name}.prom", text)


@pytest.mark.parametrize("case", CASES)
def test_the_hostile_trees_have_their_reviewed_pages(
    samples: Path, golden: Callable[[Path, str], None], case: str
) -> None:
    text = page(samples / "cases" / case / "sys")
    _sound(text)
    golden(GOLDEN / f"case-{case}.prom", text)


@pytest.mark.parametrize("partitions", [1, 4, 8])
def test_the_made_node_has_its_reviewed_page(
    tmp_path: Path, golden: Callable[[Path, str], None], partitions: int
) -> None:
    root, proc = tmp_path / "sys", trees.host(tmp_path / "proc")
    trees.mi300x(root, sockets=2, partitions=partitions)
    ids = [10001 + n for n in range(2 * partitions)]
    trees.using(root, 11, dict.fromkeys(ids, 0) | {ids[0]: 5 << 30}, ((ids[0], 0), (ids[0], 1)), occupied=38)
    trees.using(root, 12, dict.fromkeys(ids, 0) | {ids[0]: 1 << 30, ids[-1]: 7 << 30}, ((ids[-1], 0),))
    trees.using(root, 13, dict.fromkeys(ids, 1 << 40))
    trees.alive(proc, 11, user=1000)
    trees.alive(proc, 12, user=1001)
    text = page(root, proc)
    _sound(text)
    golden(GOLDEN / f"made-mi300x-2x-{partitions}.prom", text)


MADE = {
    "made-mi250x": made_nodes.mi250x,
    "made-guest": made_nodes.guest,
    "made-mixed-vendors": made_nodes.mixed,
}


@pytest.mark.parametrize("name", MADE)
def test_nodes_that_no_capture_has_have_their_reviewed_pages(
    tmp_path: Path, golden: Callable[[Path, str], None], name: str
) -> None:
    MADE[name](tmp_path)
    errors = dict.fromkeys(made_nodes.GUEST_ERRORS, errno.EPERM) if name == "made-guest" else {}
    text = page(tmp_path, errors=errors)
    _sound(text)
    golden(GOLDEN / f"{name}.prom", text)


def test_no_page_is_left_of_a_machine_that_is_gone(samples: Path) -> None:
    made = MADE.keys() | {f"made-mi300x-2x-{n}" for n in (1, 4, 8)} | {f"case-{c}" for c in CASES}
    assert {f.stem for f in GOLDEN.glob("*.prom")} == made | set(trees.sample_names(samples))
