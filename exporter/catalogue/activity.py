"""Entries: use of a GPU over time, and die by die."""

from __future__ import annotations

from exporter.catalogue.schema import Field, Kind, Metric, Scope, Unit

METRICS: tuple[Metric, ...] = (
    Metric(
        "busy",
        Kind.COUNTER,
        Unit.SECONDS,
        "Time an engine (gfx, memory) had work since the exporter started: the firmware's busy share between "
        "two readings times the time between them. Its rate is the busy share over any range, which "
        "amdgpu_busy_ratio is only for a moment. A partition counts its own XCCs. Absent on chips whose "
        "firmware does not count its samples.",
        Scope.PARTITION,
        (0, 1e12),
        labels=("engine",),
        fields=(Field("sysfs", "busy_seconds", "*", each=("engine",)),),
        check="amd-smi metric --usage",
        seen_on="Instinct MI300 and later, with table gpu_metrics 1.6 or later",
    ),
    Metric(
        "die_busy",
        Kind.GAUGE,
        Unit.RATIO,
        "Share of time one XCC of the socket had work; only where metrics.dies is set. XCCs of partition 0 "
        "come first.",
        Scope.SOCKET,
        (0, 1),
        labels=("index",),
        fields=(Field("sysfs", "dies", "busy.*", 0.01, ("index",)),),
        peers=("dme:gpu_gfx_busy_instantaneous",),
        check="amd-smi metric --usage",
        seen_on="Instinct MI300 and later, with table gpu_metrics 1.6 or later",
    ),
)
