"""An extractor that remembers the last poll gives what one without a memory gives, whatever changes."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from exporter.backends.replay import demo_path
from exporter.backends.sysfs import SysfsBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.host import Root
from exporter.model import Device, Reason

ODD: tuple[Any, ...] = (
    None, *Reason, "N/A", b"", True, 0, -1, 7, 0.5, 1e300, 10**400, float("nan"), float("inf"),
    [], [1, 2], {}, {"0": 1}, {"0": {"1": 2}},
)  # fmt: skip


def groups_of_a_gpu() -> tuple[Device, dict[str, Any]]:
    root = demo_path()
    device, groups = SysfsBackend(Root(f"{root}/sys"), Root(f"{root}/proc")).poll()[0]
    return device, copy.deepcopy(dict(groups))


def taken(extractor: Extractor, device: Device, groups: dict[str, Any]) -> tuple[Any, ...]:
    series, values, gaps = [], [], []
    extractor.extract(device, groups, series, values, gaps)
    return series, values, gaps


def spoil(node: dict[str, Any], dice: random.Random) -> None:
    """Change one thing somewhere below."""
    while node:
        key = dice.choice(list(node))
        below = node[key]
        if isinstance(below, dict) and below and dice.random() < 0.8:
            node = below
            continue
        match dice.randrange(5):
            case 0:
                del node[key]
            case 1:
                node[f"{key}9"] = dice.choice(ODD)
            case 2 if isinstance(below, int | float):
                node[key] = below + dice.randrange(1, 5)
            case _:
                node[key] = copy.deepcopy(dice.choice(ODD))
        return


@pytest.mark.parametrize("seed", range(40))
def test_what_is_remembered_changes_no_reading(seed: int) -> None:
    dice = random.Random(seed)
    device, first = groups_of_a_gpu()
    kept = Extractor(CATALOGUE, "sysfs")
    groups, now = first, copy.deepcopy(first)
    seen = set()
    for _ in range(30):
        # Back to what is usual now and then, so that the memory is used and not only filled.
        groups = {k: copy.deepcopy(v) for k, v in (first if dice.random() < 0.3 else now).items()}
        if dice.random() < 0.7:
            spoil(groups, dice)
        now = groups
        expected = taken(Extractor(CATALOGUE, "sysfs"), device, copy.deepcopy(groups))
        got = taken(kept, device, groups)
        assert got == expected
        seen.add(len(got[0]))
    assert len(seen) > 1  # what was spoilt showed


def test_numbers_that_move_are_followed() -> None:
    device, groups = groups_of_a_gpu()
    kept = Extractor(CATALOGUE, "sysfs")
    for used in (1 << 30, 2 << 30, 3 << 30):
        groups["memory"] = {**groups["memory"], "used": {**groups["memory"]["used"], "vram": used}}
        series, values, _ = taken(kept, device, groups)
        shown = {(s.metric, *s.labels): v for s, v in zip(series, values, strict=True)}
        assert shown["amdgpu_memory_used_bytes", "vram"] == used
