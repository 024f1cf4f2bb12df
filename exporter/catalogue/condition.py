"""Entries: what the readings of a GPU add up to, and the phase that people say it is in."""

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
    Metric(
        "phase",
        Kind.INFO,
        Unit.NONE,
        "The phase that was named last with `amdgpu-exporter mark`, such as baseline. Absent until one is.",
        Scope.NODE,
        (0, 1),
        labels=("phase",),
        check="curl -s localhost:9408/api/v1/marks",
    ),
)
