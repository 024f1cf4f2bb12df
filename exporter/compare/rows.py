"""What is compared: one row for what one window says of one GPU, or of one kernel on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.model import DeviceId


@dataclass(frozen=True, slots=True)
class Row:
    """One window's word.

    ``run`` is the process instance, or the window where unknown; ``kernel`` is None for the whole GPU.
    Units: ``metrics`` in base units; a metric that is not known is left out. ``context`` holds what has to be
    the same on both sides, and what is reported beside.
    """

    at: float
    run: str
    gpu: DeviceId | None
    gpu_name: str
    kernel: str | None
    mode: str
    tool: str
    seconds: float | None
    metrics: Mapping[str, float]
    workload: str | None = None
    coverage: float | None = None
    first: bool = False
    context: Mapping[str, Any] = field(default_factory=dict)
