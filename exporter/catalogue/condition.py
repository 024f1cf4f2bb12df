"""Entries: what the readings of a GPU add up to."""

from __future__ import annotations

from exporter.catalogue.schema import Kind, Metric, Scope, Unit

METRICS: tuple[Metric, ...] = (
    Metric(
        "health",
        Kind.STATE,
        Unit.NONE,
        "What the readings of this GPU add up to, 1 for the state that holds; unknown is a state of its own. "
        "The reasons are in /api/v1/health.",
        Scope.SOCKET,
        (0, 1),
        labels=("state",),
        states=("healthy", "degraded", "unhealthy", "unknown"),
        check="amdgpu-exporter health --json",
    ),
)
