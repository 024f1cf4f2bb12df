"""What a case is: series, and which alerts must be firing at which minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.rules.made import INSTANCE, Series, Values, flat, gpu, series

NODE = {"instance": INSTANCE}
HOUR = 60


@dataclass(frozen=True)
class Case:
    """``at`` maps minutes to the label sets that must be firing then; severity and about are added."""

    alert: str
    name: str
    given: Sequence[Series]
    at: Mapping[int, Sequence[Mapping[str, str]]]
    step: str = "1m"  # of the samples
    samples: Sequence[tuple[str, int, float]] = ()  # (expression, minute, value) that must also hold
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # to the thresholds


def fires(
    alert: str, name: str, given: Sequence[Series], who: Mapping[str, str], *minutes: int, **more: Any
) -> Case:
    return Case(alert, f"fires: {name}", given, {m: [who] for m in minutes or (90,)}, **more)


def quiet(alert: str, name: str, given: Sequence[Series], *minutes: int, **more: Any) -> Case:
    return Case(alert, f"quiet: {name}", given, {m: [] for m in minutes or (30, 60, 90)}, **more)


def of_gpu(name: str, values: Values, n: int = 0, **labels: str) -> Series:
    return series(name, values, **gpu(n), **labels)


def of_node(name: str, values: Values, **labels: str) -> Series:
    return series(name, values, **NODE, **labels)


BUILD = of_node("amdgpu_exporter_build_info", flat(1, 200), version="1", python="3.11")
SOURCE = of_node("amdgpu_exporter_source_up", flat(1, 200), source="gpu")
