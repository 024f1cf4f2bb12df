"""Window results made by hand, for tests of what is kept of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from exporter.model import (
    LAUNCH_BUCKETS_NS,
    Bottleneck,
    Device,
    DeviceId,
    KernelStat,
    LaunchStats,
    Window,
    WindowResult,
)

GPU0 = DeviceId("0000:05:00.0")
GPU1 = DeviceId("0000:26:00.0")
DEVICES = (Device(GPU0, 0, gfx="gfx942"), Device(GPU1, 1, gfx="gfx942"))


def buckets(*values_ns: int) -> tuple[int, ...]:
    return tuple(sum(v <= bound for v in values_ns) for bound in LAUNCH_BUCKETS_NS)


def launches(queue_ns: list[int], duration_ns: list[int], launch: str = "kernel") -> LaunchStats:
    return LaunchStats(
        launch, len(queue_ns), sum(queue_ns), sum(duration_ns), buckets(*queue_ns), buckets(*duration_ns)
    )


def kernel(name: str, total_ns: int, calls: int = 1, p50_ns: int = 700) -> KernelStat:
    return KernelStat(name, calls, total_ns, p50_ns, p50_ns * 2)


_TRACED = WindowResult(
    gpu=GPU0.pci,
    device=GPU0,
    kernels=4,
    launches=3,
    span_ns=1_000_000,
    span_kind="planned",
    execution_ns=300_000,
    busy_ns=300_000,
    queue_ns=60_000,
    launch_duration_ns=260_000,
    launch_call_ns=12_000,
    launch_call_count=3,
    launch_call_buckets=buckets(3_000, 4_000, 5_000),
    launch_stats=(launches([10_000, 20_000, 30_000], [60_000, 90_000, 110_000]),),
    queue_p50_ns=20_000,
    queue_p95_ns=30_000,
    queue_depth_ns=50_000,
    paired=3,
    skewed=0,
    unmatched_kernels=1,
    unmatched_calls=2,
    timeline_ns={"executing": 300_000, "queued": 50_000, "launching": 150_000, "starved": 500_000},
    timeline_reason=None,
    bottleneck=Bottleneck.HOST_STALLED,
    exposed_delay_ns=40_000,
    copy_exposed_ns={"host_to_device": 7_000},
    collective_exposed_ns=9_000,
    execution_class_ns={"compute": 280_000, "collective": 15_000, "copy": 5_000},
    counters={},
    l2_hits=None,
    l2_requests=None,
    valu_instructions=None,
    slots_available=None,
    slots_active=None,
    counter_observed_ns=None,
    kernel_stats=(kernel("gemm", 200_000, 2), kernel("relu", 100_000, 2, 300)),
)

_COUNTED = replace(
    _TRACED,
    launches=0,
    queue_ns=None,
    launch_duration_ns=None,
    launch_call_ns=None,
    launch_call_count=None,
    launch_call_buckets=None,
    launch_stats=(),
    queue_depth_ns=None,
    timeline_ns=dict.fromkeys(("executing", "queued", "launching", "starved")),
    timeline_reason="no_calls",
    bottleneck=Bottleneck.UNKNOWN,
    exposed_delay_ns=None,
    copy_exposed_ns=None,
    collective_exposed_ns=None,
    counters={"SQ_INSTS_VALU": 5e8, "SQ_ACTIVE_INST_VALU": 4e8, "SQ_THREAD_CYCLES_VALU": 128e8},
    l2_hits=750.0,
    l2_requests=1000.0,
    valu_instructions=5e8,
    slots_available=2e9,
    slots_active=1e9,
    counter_observed_ns=2_000_000,
)


def traced(**changes: Any) -> WindowResult:
    return replace(_TRACED, **changes)


def counted(**changes: Any) -> WindowResult:
    return replace(_COUNTED, **changes)


def window(mode: str = "trace", **changes: Any) -> Window:
    return replace(Window("w", "rocprofv3 7.0.0", mode), **changes)
