"""Counters of one GPU in one window: sums over dispatches, L2 hits, instruction slots there were. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.formats.counters import CLOCK_LEAST, CLOCK_MOST
from exporter.formats.trace import DEVICE_WIDE, Dispatch

DENSITY_MOST = 1.02
_VALU = "SQ_INSTS_VALU"
_CYCLES, _ACTIVE = "GRBM_COUNT", "GRBM_GUI_ACTIVE"
# The tool's own sum first, then instances added up, then the other family's name for the same cache.
_L2 = (
    ("TCC_HIT_sum", "TCC_MISS_sum"),
    ("TCC_HIT", "TCC_MISS"),
    ("GL2C_HIT_sum", "GL2C_MISS_sum"),
    ("GL2C_HIT", "GL2C_MISS"),
)


class Key(NamedTuple):
    """A dispatch as every pass of the same program names it; ``process`` is its rank within the pass."""

    process: int
    number: int
    kernel: str


Pass = Mapping[Key, Dispatch]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the counters have to be divided by; None where unknown."""

    compute_units: int | None = None
    xccs: int | None = None
    issue_peak: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over dispatches. Each dispatch gives each counter once, from the first pass that has it."""

    sums: Mapping[str, float] = field(default_factory=dict)
    l2_hits: float | None = None
    l2_requests: float | None = None
    valu: float | None = None
    slots: float | None = None
    slots_active: float | None = None
    observed_ns: int | None = None
    dispatches: int = 0


def totals(passes: Sequence[Pass], shape: Shape) -> Totals:
    """Add the passes of one window up."""
    if not passes:
        return Totals()
    blind = _blind(passes)
    sums: dict[str, float] = {}
    seen: set[tuple[Key, str]] = set()
    for one in passes:
        for key, dispatch in one.items():
            for name, value in dispatch.counters.items():
                if (key, name) not in seen and not (blind and name.startswith("SQ_")):
                    seen.add((key, name))
                    sums[name] = sums.get(name, 0.0) + value
    hits, requests = _window_l2(passes)
    valu, slots, active, observed = (None, None, None, None) if blind else _slots(passes, shape)
    # Tools number the dispatches of different passes differently, so the most in one pass is what there were.
    most = max(sum(key.kernel != DEVICE_WIDE for key in one) for one in passes)
    if observed is None:
        observed = _watched(passes)
    return Totals(sums, hits, requests, valu, slots, active, observed, most)


def _watched(passes: Sequence[Pass]) -> int | None:
    """How long a device was counted as a whole; None where any part of it cannot be timed."""
    parts = [dispatch for one in passes for dispatch in one.values()]
    if not all(d.kernel == DEVICE_WIDE and d.duration_ns is not None for d in parts):
        return None
    return sum(d.duration_ns or 0 for d in parts)


def l2_by_dispatch(passes: Sequence[Pass]) -> dict[Key, tuple[float, float] | None]:
    """Hits and requests of every dispatch that has both, from whichever passes; None at zero traffic."""
    pair = _l2_names(passes)
    found: dict[Key, tuple[float, float] | None] = {}
    if pair is None:
        return found
    for key in dict.fromkeys(key for one in passes for key in one):
        hit, miss = (_first(passes, key, name) for name in pair)
        if hit is not None and miss is not None:
            found[key] = (hit, hit + miss) if hit + miss > 0 else None
    return found


def _window_l2(passes: Sequence[Pass]) -> tuple[float | None, float | None]:
    known = l2_by_dispatch(passes)
    if not known:
        return None, None
    both = [value for value in known.values() if value is not None]
    return sum(hit for hit, _ in both), sum(requests for _, requests in both)


def _l2_names(passes: Sequence[Pass]) -> tuple[str, str] | None:
    have = {name for one in passes for dispatch in one.values() for name in dispatch.counters}
    return next((pair for pair in _L2 if set(pair) <= have), None)


def _first(passes: Iterable[Pass], key: Key, name: str) -> float | None:
    for one in passes:
        dispatch = one.get(key)
        if dispatch is not None and name in dispatch.counters:
            return dispatch.counters[name]
    return None


def _blind(passes: Sequence[Pass]) -> bool:
    """SQ counters all 0 on a GPU that was active: not permitted or not supported, so not a zero."""
    active, counted, total = False, False, 0.0
    for one in passes:
        for dispatch in one.values():
            active = active or dispatch.counters.get(_ACTIVE, 0.0) > 0
            for name, value in dispatch.counters.items():
                if name.startswith("SQ_"):
                    counted, total = True, total + abs(value)
    return active and counted and total == 0


def _slots(
    passes: Sequence[Pass], shape: Shape
) -> tuple[float | None, float | None, float | None, int | None]:
    """Vector instructions, slots, slots while active, time observed; for each dispatch all of one pass."""
    chosen: dict[Key, Dispatch] = {}
    for one in passes:
        for key, dispatch in one.items():
            if _VALU not in dispatch.counters:
                continue
            held = chosen.get(key)
            if held is None or (_CYCLES not in held.counters and _CYCLES in dispatch.counters):
                chosen[key] = dispatch
    having = list(chosen.values())
    if not having:
        return None, None, None, None
    timed = all(d.duration_ns is not None for d in having)
    observed = sum(d.duration_ns or 0 for d in having) if timed else None
    valu = sum(d.counters[_VALU] for d in having)
    slots, active = (_available(having, name, shape) for name in (_CYCLES, _ACTIVE))
    return valu, _believed(valu, slots), _believed(valu, active), observed


def _believed(valu: float, slots: float | None) -> float | None:
    """More instructions than slots means that one of them is wrong; then the slots are unknown."""
    return None if slots is None or valu > DENSITY_MOST * slots else slots


def _available(having: Sequence[Dispatch], name: str, shape: Shape) -> float | None:
    if shape.compute_units is None or shape.issue_peak is None or any(name not in d.counters for d in having):
        return None
    cycles = sum(d.counters[name] for d in having)
    dies = _dies_in(having, shape)
    return None if dies is None or not cycles else cycles / dies * shape.compute_units * shape.issue_peak


def _dies_in(having: Sequence[Dispatch], shape: Shape) -> int | None:
    """Over how many dies the tool has summed GRBM: 1 or all, by which clock could be; None if neither."""
    xccs = shape.xccs
    if xccs is None:
        return None
    if xccs == 1:
        return 1
    told = {d.dies for d in having}
    if told in ({1}, {xccs}):
        return told.pop()
    name = _CYCLES if all(_CYCLES in d.counters for d in having) else _ACTIVE
    if any(name not in d.counters or not d.duration_ns for d in having):
        return None
    clock = sum(d.counters[name] for d in having) / sum(d.duration_ns or 0 for d in having)
    for dies in (1, xccs):
        if CLOCK_LEAST <= clock / dies <= CLOCK_MOST:
            return dies
    return None
