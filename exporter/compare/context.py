"""What has to be the same on both sides of a comparison, and what may explain a difference. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from exporter.compare.rows import Row

# What must be one and the same value. The order is that of reports.
SAME = (
    "model",
    "gfx",
    "node",
    "compute_partition",
    "memory_partition",
    "driver",
    "firmware",
    "vbios",
    "power_limit_watts",
    "rocm",
    "ranks",
    "co_tenants",
    "grid_mix",
)
COVARIATES = ("clock_hertz", "temperature_celsius", "throttle_ratio", "hour")
CHANGEABLE = (*SAME, "gpus", "clock", "kernels", "tool", "mode", "length", "coverage")
OVERLAP_LEAST = 0.7
_CLOCK_MOST = 0.02
_LENGTH_MOST = 0.25
_COVERAGE_MOST = 0.1
_MIX_MOST = 0.1


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same; ``what`` is what ``--changed`` calls it."""

    what: str
    text: str


def differences(a: Sequence[Row], b: Sequence[Row]) -> list[Difference]:
    """Why two sides cannot be compared, as far as is known."""
    found = [d for key in SAME if (d := _of_key(key, a, b))]
    for what, x, y in (
        ("mode", {r.mode for r in a}, {r.mode for r in b}),
        ("tool", {r.tool for r in a}, {r.tool for r in b}),
    ):
        if x != y:
            found.append(Difference(what, f"{what}: {_list(x)} before, {_list(y)} after"))
    lengths = [_middle(r.seconds for r in side) for side in (a, b)]
    # Without planned bounds the length is that of the work itself, which is what is being compared.
    if all("planned" in r.context and r.context["planned"] for r in (*a, *b)) and _apart(
        lengths, _LENGTH_MOST
    ):
        found.append(
            Difference("length", f"window length: {lengths[0]:.3g} s before, {lengths[1]:.3g} s after")
        )
    coverages = [_middle(r.coverage for r in side) for side in (a, b)]
    if None not in coverages and abs(coverages[0] - coverages[1]) > _COVERAGE_MOST:  # type: ignore[operator]
        found.append(
            Difference(
                "coverage",
                f"coverage: {coverages[0]:.0%} of the kernels had their launch seen before, "
                f"{coverages[1]:.0%} after",
            )
        )
    clocks = [_middle(_numbers("clock_hertz", side)) for side in (a, b)]
    if _apart(clocks, _CLOCK_MOST):
        text = f"clock: {clocks[0] / 1e6:.0f} MHz before, {clocks[1] / 1e6:.0f} MHz after"  # type: ignore[operator]
        found.append(Difference("clock", text))
    return found


def overlap(a: Iterable[Row], b: Iterable[Row]) -> float | None:
    """Share of the kernels' time that is in kernels of both sides, on the side where it is less.

    Counted in kernels where their time is not known. Absent: a side names no kernel.
    """
    sides = [_weights(a), _weights(b)]
    if not sides[0] or not sides[1]:
        return None
    both = sides[0].keys() & sides[1].keys()
    return min(sum(side[k] for k in both) / sum(side.values()) for side in sides)


def covariates(a: Sequence[Row], b: Sequence[Row]) -> dict[str, tuple[float | None, float | None]]:
    """What was measured beside, by name: middle before, middle after; what neither side knows is left out."""
    found = {key: (_middle(_numbers(key, a)), _middle(_numbers(key, b))) for key in COVARIATES}
    found["hour"] = _middle(_hours(a)), _middle(_hours(b))
    return {key: pair for key, pair in found.items() if pair != (None, None)}


def unknown(a: Sequence[Row], b: Sequence[Row]) -> list[str]:
    """What had to be the same and is not known on one side at least."""
    return [key for key in SAME if not _values(key, a) or not _values(key, b)]


def fingerprint(rows: Iterable[Row]) -> dict[str, str]:
    """Everything known of one side's surroundings that is not a measurement, as text."""
    found: dict[str, set[str]] = {}
    for context in {id(row.context): row.context for row in rows}.values():
        for key, value in context.items():
            if value is not None and key not in COVARIATES and key != "grid_mix":
                found.setdefault(key, set()).add(_text(value))
    return {key: _list(values) for key, values in sorted(found.items())}


def _of_key(key: str, a: Sequence[Row], b: Sequence[Row]) -> Difference | None:
    x, y = _values(key, a), _values(key, b)
    if not x or not y:
        return None  # told as unknown
    if key == "grid_mix":
        far = _mixes_apart(x, y)
        return (
            Difference(key, f"grid-size mix: {far:.0%} of the launches differ") if far > _MIX_MOST else None
        )
    left, right = {_text(v) for v in x}, {_text(v) for v in y}
    if left != right:
        return Difference(key, f"{_word(key)}: {_list(left)} before, {_list(right)} after")
    if len(left) > 1:
        return Difference(key, f"{_word(key)}: changes within each side ({_list(left)})")
    return None


def _mixes_apart(x: list[Any], y: list[Any]) -> float:
    """How far two mixes of sizes are apart, 0 to 1; of anything else, whether they differ."""
    sides = []
    for mixes in (x, y):
        total: dict[str, float] = {}
        for mix in mixes:
            shares = mix if isinstance(mix, Mapping) else {_text(mix): 1.0}
            whole = sum(shares.values()) or 1.0
            for name, share in shares.items():
                total[name] = total.get(name, 0.0) + share / whole / len(mixes)
        sides.append(total)
    return sum(abs(sides[0].get(k, 0.0) - sides[1].get(k, 0.0)) for k in {*sides[0], *sides[1]}) / 2


def _weights(rows: Iterable[Row]) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    timed = True
    for row in rows:
        if row.kernel is not None:
            share = row.metrics.get("kernel_share_ratio")
            timed = timed and share is not None
            shares.setdefault(row.kernel, []).append(share or 0.0)
    found = {kernel: sum(values) for kernel, values in shares.items()}
    return found if timed and sum(found.values()) > 0 else dict.fromkeys(found, 1.0)


def _values(key: str, rows: Iterable[Row]) -> list[Any]:
    # Many rows share one context: each is looked at once.
    contexts = {id(row.context): row.context for row in rows}
    return [v for context in contexts.values() if (v := context.get(key)) is not None]


def _numbers(key: str, rows: Iterable[Row]) -> list[float]:
    return [float(v) for row in rows if isinstance(v := row.context.get(key), int | float)]


def _hours(rows: Iterable[Row]) -> list[float]:
    """Hour of the day in UTC."""
    return [row.at % 86400 / 3600 for row in rows if row.at > 0]


def _middle(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None


def _apart(pair: Sequence[float | None], most: float) -> bool:
    x, y = pair
    return x is not None and y is not None and abs(x - y) > most * max(abs(x), abs(y))


def _word(key: str) -> str:
    return {"power_limit_watts": "power cap", "rocm": "ROCm", "vbios": "VBIOS"}.get(
        key, key.replace("_", " ")
    )


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_text(v)}" for k, v in sorted(value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(sorted(map(_text, value)))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _list(values: Iterable[str]) -> str:
    ordered = sorted(values)
    return ", ".join(ordered[:4]) + (f" and {len(ordered) - 4} more" if len(ordered) > 4 else "")
