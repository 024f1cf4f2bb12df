"""What is compared of a GPU as a whole, from the sums of one window. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def metrics(amounts: Mapping[str, float | None], *, planned: bool) -> dict[str, float]:
    """What is compared of a GPU as a whole, in base units; ratios as sums over sums."""
    found = {
        "queue_delay_ratio": _part(amounts, "queue_ns", "launch_duration_ns"),
        "executing_ratio": _part(amounts, "executing", "span_ns"),
        "compute_density_ratio": _part(amounts, "valu_instructions", "slots_available"),
        "l2_hit_ratio": _part(amounts, "l2_hits", "l2_requests"),
        "launch_duration_seconds": _mean(amounts, "launch_duration_ns", "paired"),
        "launch_queue_seconds": _mean(amounts, "queue_ns", "paired"),
        "exposed_delay_ratio": _part(amounts, "exposed_delay_ns", "span_ns"),
    }
    if planned:  # without planned bounds the starved time is a lower bound only
        found |= {f"{s}_ratio": _part(amounts, s, "span_ns") for s in ("queued", "launching", "starved")}
    return {name: value for name, value in found.items() if value is not None}


def _part(amounts: Mapping[str, float | None], part: str, whole: str) -> float | None:
    a, b = amounts.get(part), amounts.get(whole)
    return a / b if a is not None and b else None


def _mean(amounts: Mapping[str, float | None], total: str, count: str) -> float | None:
    mean = _part(amounts, total, count)
    return None if mean is None else mean / 1e9
