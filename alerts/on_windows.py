"""Alerts on why a GPU is slow, from profiling windows.

None reads a gauge of the last window: one window would stand for many scrapes. All want several windows of
the range to agree, some of them recent, so that a verdict that alternates or a single odd window is nothing.
"""

from __future__ import annotations

from alerts.alert import PERCENT, PLAIN, Alert
from alerts.recording import GPU, SAME_GPU, SAME_SOCKET, SOCKET
from alerts.settings import Section, Settings

_GPU = "gpu:amdgpu_"
_ANALYZE = "amdgpu-exporter analyze WINDOW --json  # a window folder of this GPU's job"


def alerts(s: Settings) -> list[Alert]:
    return [
        _queue_delay_high(s),
        _launch_bound(s),
        _host_starved(s),
        _communication_bound(s),
        _copy_bound(s),
        _l2_hit_drop(s),
        _straggler(s),
        _clock_skew(s),
        _windows_stopped(s),
    ]


def _also(*conditions: str) -> str:
    return "".join(f"\nand {SAME_GPU} {condition}" for condition in conditions)


def _enough(own: Section, mode: str = "trace") -> tuple[str, str]:
    """Enough windows in the range, and one within the last two periods."""
    # Half a window less: extrapolation of increase makes 3 windows 2.9.
    least = f"{_GPU}{mode}_windows:increase40m > {own['windows']} - 0.5"
    recent = f"{_GPU}{mode}_windows:increase20m > 0"
    return least, recent


_MODE = {"trace": "trace", "counter": "counters"}


def _agreed(own: Section, *verdicts: str) -> str:
    names = "|".join(verdicts)
    return (
        f'sum by ({GPU}) ({_GPU}window_verdicts:ratio40m{{bottleneck=~"{names}"}}) > {own.number("verdicts")}'
    )


def _queue_delay_high(s: Settings) -> Alert:
    own = s["AmdGpuQueueDelayHigh"]
    return Alert(
        "AmdGpuQueueDelayHigh",
        "gpu",
        f"{_GPU}queue_delay:ratio40m > {own.number('ratio')}"
        + _also(
            f'{_GPU}timeline:ratio40m{{state="executing"}} < 1 - {own.number("idle")}',
            f"{_GPU}launches:increase40m >= {own.number('launches')}",
            *_enough(own),
            _agreed(own, "launch_bound", "contended"),
        ),
        "Kernels wait for most of their launch duration while the GPU has idle time.",
        "{value} of the launch duration is queue time, and the GPU is idle in between.",
        _ANALYZE,
        PERCENT,
        bottlenecks=("launch_bound", "contended"),
    )


def _launch_bound(s: Settings) -> Alert:
    own = s["AmdGpuLaunchBound"]
    waiting = f'sum by ({GPU}) ({_GPU}timeline:ratio40m{{state=~"queued|launching"}})'
    idle = f'1 - sum by ({GPU}) ({_GPU}timeline:ratio40m{{state="executing"}})'
    return Alert(
        "AmdGpuLaunchBound",
        "gpu",
        f"{waiting}\n  / ({idle} > {own.number('idle')}) > {own.number('of_idle')}"
        + _also(
            f"{_GPU}launches:increase40m >= {own.number('launches')}",
            *_enough(own),
            _agreed(own, "launch_bound"),
        ),
        "The GPU idles while the host is busy launching small kernels.",
        "{value} of its idle time goes by while kernels are being launched or wait to start.",
        _ANALYZE,
        PERCENT,
        "kernels",
        ("launch_bound",),
    )


def _host_starved(s: Settings) -> Alert:
    own = s["AmdGpuHostStarved"]
    return Alert(
        "AmdGpuHostStarved",
        "gpu",
        f'sum by ({GPU}) ({_GPU}timeline:ratio40m{{state="starved"}}) > {own.number("starved")}'
        + _also(*_enough(own), _agreed(own, "host_stalled", "launch_bound")),
        "The GPU has nothing to do: its host gives it no work.",
        "for {value} of the observed time nothing ran, waited or was being launched.",
        "top -H -p PID  # the job's process: is one thread at 100 %, or all waiting for input?",
        PERCENT,
        bottlenecks=("host_stalled",),
    )


def _communication_bound(s: Settings) -> Alert:
    own = s["AmdGpuCommunicationBound"]
    return Alert(
        "AmdGpuCommunicationBound",
        "gpu",
        f"{_GPU}collective_exposed:ratio40m > {own.number('exposed')}"
        + _also(*_enough(own), _agreed(own, "communication")),
        "The GPU waits in collectives that nothing overlaps.",
        "collectives run alone for {value} of the observed time.",
        "curl -s localhost:9408/metrics | grep amdgpu_xgmi_link_state",
        PERCENT,
        "kernels",
        ("communication",),
    )


def _copy_bound(s: Settings) -> Alert:
    own = s["AmdGpuCopyBound"]
    return Alert(
        "AmdGpuCopyBound",
        "gpu",
        f"{_GPU}copy_exposed:ratio40m > {own.number('exposed')}"
        + _also(*_enough(own), _agreed(own, "copy_bound")),
        "The GPU waits for copies that nothing overlaps.",
        "copies run while no kernel does for {value} of the observed time.",
        "curl -s localhost:9408/metrics | grep amdgpu_pcie_.*link",
        PERCENT,
        bottlenecks=("copy_bound",),
    )


def _l2_hit_drop(s: Settings) -> Alert:
    own = s["AmdGpuL2HitDrop"]
    offset = own.span("offset")
    share = f'{_GPU}kernel_share:ratio40m{{kernel!="other"}}'
    mix, days = (f"{own.span(k)}:{s.common.span('baseline_step')}" for k in ("mix_range", "baseline_range"))
    usual = f"avg_over_time({share}[{mix}] offset {offset})"
    usually = f"quantile_over_time(0.5, {_GPU}l2_hit:ratio40m[{days}] offset {offset})"
    # The smaller of the two shares of each kernel, added up: 1 where the mix is the usual one.
    overlap = f"sum by ({GPU}) (\n  ({share} < {usual})\n  or ({usual} <= {share})\n)"
    return Alert(
        "AmdGpuL2HitDrop",
        "gpu",
        f"({usually} - {_GPU}l2_hit:ratio40m) > {own.number('drop')}"
        + _also(
            f"{_GPU}l2_requests:increase40m > {own.number('requests')}",
            *_enough(own, "counter"),
            f"{overlap} > {own.number('same_kernels')}",
        ),
        "The same kernels hit the L2 cache less than they used to.",
        "the hit ratio lies {value} below this GPU's own median.",
        "amdgpu-exporter analyze BEFORE AFTER --json  # counter windows around the last change",
        PERCENT,
        "history",
        ("cache",),
    )


def _straggler(s: Settings) -> Alert:
    own = s["AmdGpuStraggler"]
    return Alert(
        "AmdGpuStraggler",
        "gpu",
        f"{_GPU}kernel_slowdown:ratio40m > {own.number('slowdown')}"
        + _also(
            f"{_GPU}kernel_compared:ratio40m > {own.number('share')}",
            *_enough(own),
        ),
        "One GPU runs the same kernels slower than the others of its node.",
        "the same kernels take {value} times as long as the node's median.",
        "amd-smi metric --clock --power --temperature --violation",
        PLAIN,
        "kernels",
    )


def _clock_skew(s: Settings) -> Alert:
    own = s["AmdGpuClockSkew"]
    return Alert(
        "AmdGpuClockSkew",
        "gpu",
        f"{_GPU}launches_skewed:ratio40m > {own.number('skewed')}" + _also(*_enough(own)),
        "Kernels seem to start before their launch: the clocks of host and GPU disagree.",
        "{value} of the launches are skewed and left out; queue times of such windows are withheld.",
        "cat /sys/devices/system/clocksource/clocksource0/current_clocksource",
        PERCENT,
        "exporter",
    )


def _windows_stopped(s: Settings) -> Alert:
    """The absent twin of everything above: without windows none of it can fire."""
    own = s["AmdGpuWindowsStopped"]
    parts = []
    for mode in ("trace", "counter"):
        series = f"{_GPU}{mode}_windows:increase40m"
        # Points of the past instead of a long range: this is asked of every GPU every minute.
        came = " or ".join(
            f"{series} offset {s.common.span('window_period', n)} > {own['windows']} - 0.5"
            for n in (6, 36, 144)
        )
        # Of GPUs that there still are: after a change of partition mode the old ones deliver none by right.
        gone = f"({came})\n  unless {SAME_GPU} ({series} > 0)\n  and {SAME_GPU} amdgpu_info"
        parts.append(f'label_replace(\n  {gone},\n  "mode", "{_MODE[mode]}", "", ""\n)')
    busy = f"max by ({SOCKET}) ({_GPU}busy:avg15m) > {own.number('busy')}"
    return Alert(
        "AmdGpuWindowsStopped",
        "gpu",
        f"(\n{parts[0]}\nor\n{parts[1]}\n)\nand {SAME_SOCKET} {busy}",
        "A busy GPU that was profiled now delivers no windows, so nothing can say why it is slow.",
        "windows of mode {{ $labels.mode }} came ({value} in the range) and stopped.",
        "journalctl -u amdgpu-exporter --since -2h | grep -i -E 'window|quarantine'",
        PLAIN,
        "exporter",
    )
