"""Entries from profiling windows: queue and launch, kernels, counters, and how far to trust them."""

from __future__ import annotations

from typing import Any

from exporter.catalogue.schema import Kind, Metric, Scope, Unit
from exporter.model import LAUNCH_BUCKETS_NS, Bottleneck

SAMPLING_STATES = ("off", "ready", "sampling", "blocked", "tripped")

_COUNT = (0, 2**63)
_SECONDS = (0, 2**35)
_RATIO = (0, 1)
_BUCKETS = tuple(ns / 1e9 for ns in LAUNCH_BUCKETS_NS)
_ANALYZE = "amdgpu-exporter analyze WINDOW --json"


def _gauge(key: str, unit: Unit, text: str, rule: str, span: tuple[float, float], **more: Any) -> Metric:
    """A gauge of the last window; ``rule`` is the recording rule that may be averaged and alerted on."""
    caution = f"Of the last window alone, so do not average, rate or alert on it: use {rule}."
    return _entry(key, Kind.GAUGE, unit, f"{text} {caution}", span, **more)


def _total(key: str, unit: Unit, text: str, **more: Any) -> Metric:
    return _entry(key, Kind.COUNTER, unit, text, _SECONDS if unit is Unit.SECONDS else _COUNT, **more)


def _histogram(key: str, text: str, *labels: str) -> Metric:
    return _entry(key, Kind.HISTOGRAM, Unit.SECONDS, text, _SECONDS, labels=labels, buckets=_BUCKETS)


def _entry(key: str, kind: Kind, unit: Unit, text: str, span: tuple[float, float], **more: Any) -> Metric:
    return Metric(key, kind, unit, text, range=span, **{"scope": Scope.PARTITION, "check": _ANALYZE, **more})


_QUEUE_AND_LAUNCH = (
    _histogram(
        "launch_queue",
        "Time from the start of a launch call to the start of its first kernel, in traced windows.",
        "launch",
    ),
    _histogram(
        "launch_duration",
        "Queue time plus the execution time of the launch's first kernel, in traced windows.",
        "launch",
    ),
    _histogram("launch_call", "Time a launch call itself took on the host, in traced windows."),
    _gauge(
        "launch_queue_mean",
        Unit.SECONDS,
        "Mean queue time of the paired launches.",
        "gpu:amdgpu_launch_queue:mean40m",
        _SECONDS,
    ),
    _gauge(
        "launch_duration_mean",
        Unit.SECONDS,
        "Mean launch duration (queue time plus execution) of the paired launches.",
        "gpu:amdgpu_launch_duration:mean40m",
        _SECONDS,
    ),
    _gauge(
        "queue_delay",
        Unit.RATIO,
        "Queue time divided by launch duration, sum over sum; near 1 on a saturated GPU, which is healthy.",
        "gpu:amdgpu_queue_delay:ratio40m together with the timeline",
        _RATIO,
    ),
    _gauge(
        "launch_queue_depth",
        Unit.NONE,
        "Launches waiting on average: waiting time inside the window divided by the window.",
        "gpu:amdgpu_timeline:ratio40m",
        (0, 1e7),
    ),
    _gauge(
        "timeline",
        Unit.RATIO,
        "Share of the window in which kernels executed, were queued, were being launched, or none (starved).",
        "gpu:amdgpu_timeline:ratio40m",
        _RATIO,
        labels=("state",),
    ),
    _entry(
        "bottleneck",
        Kind.STATE,
        Unit.NONE,
        "What held the GPU back. Of the last window alone, so do not average, rate or alert on it: "
        "use gpu:amdgpu_window_verdicts:ratio40m.",
        _RATIO,
        labels=("bottleneck",),
        states=tuple(Bottleneck),
    ),
    _total(
        "timeline",
        Unit.SECONDS,
        "Window time by state (executing, queued, launching, starved), from windows with planned bounds.",
        labels=("state",),
    ),
    _total(
        "launch_exposed_delay",
        Unit.SECONDS,
        "Queue time during which the stream had no earlier kernel to run, in traced windows.",
    ),
    _total(
        "copy_exposed",
        Unit.SECONDS,
        "Time in traced windows in which copy engines worked and no kernel ran, by direction.",
        labels=("direction",),
    ),
    _total(
        "collective_exposed",
        Unit.SECONDS,
        "Time in traced windows in which collective kernels ran and no other kernel did.",
    ),
    _total(
        "execution",
        Unit.SECONDS,
        "Kernel execution time in traced windows by class; overlapping kernels both count.",
        labels=("class",),
    ),
    _total(
        "window_verdicts",
        Unit.NONE,
        "Traced windows by the bottleneck they showed.",
        labels=("bottleneck",),
    ),
)

_KERNELS = (
    _total(
        "kernel",
        Unit.SECONDS,
        "Execution time in traced windows of the top kernels; all the rest is in kernel other.",
        labels=("kernel",),
    ),
    _total(
        "kernel_dispatches",
        Unit.NONE,
        "Dispatches in traced windows of the top kernels; all the rest is in kernel other.",
        labels=("kernel",),
    ),
    _gauge(
        "kernel_median",
        Unit.SECONDS,
        "Median execution time of a kernel.",
        "gpu:amdgpu_kernel_share:ratio40m",
        _SECONDS,
        labels=("kernel",),
    ),
)

_DENSITY_RULE = "gpu:amdgpu_compute_density:ratio40m"

_COUNTERS = (
    _gauge(
        "compute_density",
        Unit.RATIO,
        "VALU wave instructions per instruction slot; 1 is one per compute unit and cycle (no FLOP rate).",
        _DENSITY_RULE,
        (0, 1.02),
        set="compute",
    ),
    _gauge(
        "compute_density_active",
        Unit.RATIO,
        "VALU wave instructions per instruction slot while the GPU was active.",
        _DENSITY_RULE,
        (0, 1.02),
        set="compute",
    ),
    _gauge(
        "valu_instructions",
        Unit.PER_SECOND,
        "VALU wave instructions per observed second.",
        "gpu:amdgpu_valu_instructions:rate40m",
        _COUNT,
        set="compute",
    ),
    _total(
        "valu_instructions",
        Unit.NONE,
        "VALU wave instructions seen in counter windows (matrix ones included); divide by the set's seconds.",
        set="compute",
    ),
    _total(
        "counters_available_instructions",
        Unit.NONE,
        "Instruction slots in the same counter windows; absent where the chip's issue peak is unknown.",
        labels=("set",),
        set="compute",
    ),
    _total(
        "counters_observed",
        Unit.SECONDS,
        "Time that counter windows observed, by counter set; the denominator for rates of that set.",
        labels=("set",),
    ),
    _gauge(
        "valu_utilization",
        Unit.RATIO,
        "Lanes active in a VALU instruction, of the wave's 64.",
        _DENSITY_RULE,
        _RATIO,
        set="compute",
    ),
    _gauge(
        "matrix_busy",
        Unit.RATIO,
        "Share of active cycles in which the matrix pipes were busy.",
        _DENSITY_RULE,
        _RATIO,
        set="compute",
    ),
    _gauge(
        "occupancy",
        Unit.RATIO,
        "Wave slots in use while the GPU was active, of those the compute units have.",
        _DENSITY_RULE,
        _RATIO,
        set="compute",
    ),
    _total(
        "cache_hits",
        Unit.NONE,
        "Cache hits seen in counter windows; line sizes differ, so never compare across architectures.",
        labels=("cache",),
        set="l2",
    ),
    _total(
        "cache_requests",
        Unit.NONE,
        "Cache hits plus misses seen in the same counter windows.",
        labels=("cache",),
        set="l2",
    ),
    _gauge(
        "l2_hit",
        Unit.RATIO,
        "L2 hits divided by hits plus misses, over all XCDs; the Infinity Cache is not included.",
        "gpu:amdgpu_l2_hit:ratio40m",
        _RATIO,
        set="l2",
    ),
    _entry(
        "memory_bandwidth",
        Kind.GAUGE,
        Unit.BYTES_PER_SECOND,
        "Traffic between L2 and memory, all extra fetches included. Of the last deep window, which only "
        "GPUs that stand out get, so do not average or alert on it.",
        (0, 1e14),
        labels=("direction",),
        set="deep",
        seen_on="GPUs that left their usual values, with preset counters",
    ),
    _entry(
        "atomic",
        Kind.GAUGE,
        Unit.RATIO,
        "Atomic operations of all requests to L2. Of the last deep window, which only GPUs that stand out "
        "get, so do not average or alert on it.",
        _RATIO,
        set="deep",
        seen_on="GPUs that left their usual values, with preset counters",
    ),
)

_HONESTY = (
    _total(
        "windows",
        Unit.NONE,
        "Profiling windows by mode and result, per GPU they speak of.",
        labels=("mode", "result"),
    ),
    _total(
        "windows_unmapped",
        Unit.NONE,
        "Windows that belong, wholly or in part, to no known GPU of this node; that part is nowhere else.",
        labels=("mode", "result"),
        scope=Scope.NODE,
    ),
    _total(
        "window_rows_skipped",
        Unit.NONE,
        "Rows of profiler output left out of the windows, by reason.",
        labels=("reason",),
        scope=Scope.NODE,
    ),
    _total(
        "window_observed",
        Unit.SECONDS,
        "Time covered by windows, by mode; the denominator for rates of what was seen in them.",
        labels=("mode",),
    ),
    _entry(
        "window_last",
        Kind.GAUGE,
        Unit.TIMESTAMP,
        "When the last window of the mode that gave a result was taken in.",
        _SECONDS,
        labels=("mode",),
    ),
    _entry(
        "window_run",
        Kind.INFO,
        Unit.NONE,
        "What the last window of the mode was taken of: run is the process instance, or the boot where "
        "windows see whatever runs; first is 1 for the first window of a process, its warm-up. Constant 1; "
        "absent where the window does not say. Used by amdgpu-exporter compare --prometheus.",
        (0, 1),
        labels=("mode", "tool", "run", "first"),
    ),
    _entry(
        "sampling",
        Kind.STATE,
        Unit.NONE,
        "Windows that the exporter starts itself; off whenever no mode that starts a profiler is enabled.",
        _RATIO,
        scope=Scope.NODE,
        labels=("state",),
        states=SAMPLING_STATES,
        check="amdgpu-exporter serve --print-config",
    ),
    _total(
        "windows_skipped",
        Unit.NONE,
        "Windows that the exporter did not start at their slot, by what stood in the way.",
        labels=("reason",),
        scope=Scope.NODE,
        check="curl -s localhost:9408/api/v1/status",
        seen_on="any node whose preset takes windows",
    ),
    _entry(
        "window_overhead",
        Kind.GAUGE,
        Unit.RATIO,
        "Work that windows cost, as a share of the time since the start: their length times what such a "
        "window is known to cost (5 % with device counting, 11 % with a trace).",
        _RATIO,
        scope=Scope.NODE,
        labels=("mode",),
        seen_on="any node whose preset takes windows",
    ),
    _gauge(
        "window_coverage",
        Unit.RATIO,
        "Share of the executed kernels whose launch call was seen.",
        "gpu:amdgpu_launches_unmatched:ratio40m",
        _RATIO,
        labels=("mode",),
    ),
    _total(
        "launches_unmatched",
        Unit.NONE,
        "Kernels without a seen launch call (side kernel), calls without a kernel (side call).",
        labels=("side",),
    ),
    _total(
        "launches_skewed",
        Unit.NONE,
        "Launches whose kernel seems to start before its call: clock skew, left out of queue times.",
    ),
)

METRICS: tuple[Metric, ...] = (*_QUEUE_AND_LAUNCH, *_KERNELS, *_COUNTERS, *_HONESTY)
