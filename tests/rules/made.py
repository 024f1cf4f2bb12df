"""Series for promtool: one value per minute or sample, windows every ten minutes, faults on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

INSTANCE = "gpu-node-1:9408"
PERIOD = 10  # minutes between two windows
FIRST = 5  # minute of the first one
Values = list[float | None]
Series = tuple[str, Values]


def gpu(n: int = 0) -> dict[str, str]:
    """The labels of the n-th GPU."""
    return {"instance": INSTANCE, "gpu": str(n), "pci": f"0000:{5 + 32 * n:02x}:00.0"}


def series(name: str, values: Iterable[float | None], **labels: str) -> Series:
    text = ",".join(f'{k}="{v}"' for k, v in labels.items() if v != "")
    return f"{name}{{{text}}}", list(values)


def flat(value: float, minutes: int) -> Values:
    return [value] * minutes


def ramp(per_minute: float, minutes: int, start: float = 0) -> Values:
    return [start + per_minute * m for m in range(minutes)]


def alternating(a: float, b: float, samples: int) -> Values:
    return [(a, b)[i % 2] for i in range(samples)]


def gap(values: Values, first: int, last: int) -> Values:
    """The same series, not scraped from ``first`` to ``last``."""
    return [None if first <= i <= last else v for i, v in enumerate(values)]


def reset(values: Values, at: int) -> Values:
    """The same counter, begun anew at ``at`` as after a restart."""
    base = values[at - 1] or 0
    return [v if i < at or v is None else v - base for i, v in enumerate(values)]


def write(values: Values) -> str:
    return " ".join("_" if v is None else f"{v:.12g}" for v in values)


@dataclass(frozen=True)
class Window:
    """What one traced window adds to the counters. Seconds; 20 ms windows unless said."""

    verdict: str
    timeline: tuple[float, float, float, float]  # executing, queued, launching, starved
    queue: float = 0
    duration: float = 0
    launches: int = 0
    collective: float = 0
    copy: float = 0
    skewed: int = 0
    kernels: Mapping[str, tuple[float, int]] = field(default_factory=dict)  # name -> seconds, dispatches

    @property
    def span(self) -> float:
        return sum(self.timeline)


LAUNCH_BOUND = Window("launch_bound", (0.00137, 0.00352, 0.00749, 0.00696), 0.01105, 0.01242, 1500)
GPU_BOUND = Window("gpu_bound", (0.03926, 0.00085, 0.00001, 0.00001), 3.274, 3.3133, 200)
HOST_STALLED = Window("host_stalled", (0.00704, 0.00001, 0.00082, 0.08563), 0.00086, 0.0079, 40)
BALANCED = Window("balanced", (0.012, 0.003, 0.001, 0.004), 0.004, 0.03, 300)
COMMUNICATION = Window("communication", (0.019, 0.0005, 0.0003, 0.0002), 0.05, 0.07, 300, collective=0.009)
COPY_BOUND = Window("copy_bound", (0.006, 0.001, 0.001, 0.012), 0.001, 0.007, 60, copy=0.01)
_STATES = ("executing", "queued", "launching", "starved")
_VERDICTS = (
    "launch_bound",
    "gpu_bound",
    "host_stalled",
    "balanced",
    "communication",
    "copy_bound",
    "contended",
)


def _steps(adds: Sequence[float], minutes: int) -> Values:
    """A counter that grows by one of ``adds`` (cycled) at each window."""
    total, n, out = 0.0, 0, []
    for minute in range(minutes):
        if minute >= FIRST and (minute - FIRST) % PERIOD == 0:
            total += adds[n % len(adds)]
            n += 1
        out.append(total)
    return out


def once(window: Window, others: Window, nth: int, of: int) -> list[Window]:
    """A sequence in which one window is odd."""
    return [window if i == nth else others for i in range(of)]


def traced(windows: Sequence[Window], minutes: int, labels: Mapping[str, str] | None = None) -> list[Series]:
    """All series of a GPU whose windows take turns."""
    who = dict(labels or gpu())

    def grown(name: str, adds: Iterable[float], **more: str) -> Series:
        return series(name, _steps(list(adds), minutes), **who, **more)

    kernels = sorted({k for w in windows for k in w.kernels})
    return [
        *(
            grown("amdgpu_timeline_seconds_total", (w.timeline[i] for w in windows), state=state)
            for i, state in enumerate(_STATES)
        ),
        grown("amdgpu_windows_total", (1 for _ in windows), mode="trace", result="ok"),
        grown("amdgpu_window_observed_seconds_total", (w.span for w in windows), mode="trace"),
        grown("amdgpu_launch_queue_seconds_count", (w.launches for w in windows), launch="kernel"),
        grown("amdgpu_launch_queue_seconds_sum", (w.queue for w in windows), launch="kernel"),
        grown("amdgpu_launch_duration_seconds_sum", (w.duration for w in windows), launch="kernel"),
        grown("amdgpu_collective_exposed_seconds_total", (w.collective for w in windows)),
        grown("amdgpu_copy_exposed_seconds_total", (w.copy for w in windows), direction="host_to_device"),
        grown("amdgpu_launches_skewed_total", (w.skewed for w in windows)),
        *(
            grown("amdgpu_window_verdicts_total", (w.verdict == v for w in windows), bottleneck=v)
            for v in _VERDICTS
        ),
        *(
            grown(f"amdgpu_kernel_{what}_total", (w.kernels.get(k, (0, 0))[i] for w in windows), kernel=k)
            for k in kernels
            for i, what in enumerate(("seconds", "dispatches"))
        ),
    ]


def counted(hit_ratios: Sequence[float], minutes: int, requests: float = 1e6) -> list[Series]:
    """L2 counters of a GPU: one hit ratio per counter window, cycled."""
    who = gpu()
    hits = _steps([r * requests for r in hit_ratios], minutes)
    return [
        series("amdgpu_cache_hits_total", hits, **who, cache="l2"),
        series("amdgpu_cache_requests_total", _steps([requests], minutes), **who, cache="l2"),
        series("amdgpu_windows_total", _steps([1], minutes), **who, mode="counters", result="ok"),
    ]


def every(change: Any, made: Iterable[Series], *args: int) -> list[Series]:
    """Apply a fault (``gap``, ``reset``) to all series alike."""
    return [(name, change(values, *args)) for name, values in made]
