"""The page of every captured machine, line by line, as it was reviewed against its truth."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import made_nodes
import pagemade
import pytest
import trees

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CASES = ("21-sysfs-mixed-vendors", "22-kfd-order-reversed")


def test_every_captured_machine_has_its_reviewed_page(
    samples: Path, golden: Callable[[Path, str], None]
) -> None:
    for name in trees.sample_names(samples):
        text = pagemade.of_tree(trees.laid_out(samples, name))
        pagemade.sound(text)
        golden(GOLDEN / f"{name}.prom", text)


@pytest.mark.parametrize("case", CASES)
def test_the_hostile_trees_have_their_reviewed_pages(
    samples: Path, golden: Callable[[Path, str], None], case: str
) -> None:
    text = pagemade.of_tree(samples / "cases" / case / "sys")
    pagemade.sound(text)
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
    text = pagemade.of_tree(root, proc)
    pagemade.sound(text)
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
    text = pagemade.of_tree(tmp_path, errors=errors)
    pagemade.sound(text)
    golden(GOLDEN / f"{name}.prom", text)


def test_no_page_is_left_of_a_machine_that_is_gone(samples: Path) -> None:
    made = MADE.keys() | {f"made-mi300x-2x-{n}" for n in (1, 4, 8)} | {f"case-{c}" for c in CASES}
    assert {f.stem for f in GOLDEN.glob("*.prom")} == made | set(trees.sample_names(samples))
