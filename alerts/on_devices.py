"""Alerts on the GPUs themselves: gone, failing, hot, held back, badly connected.

Gauges are looked at over a few scrapes (least or most of a while), never at one sample: a value that
alternates from sample to sample must not fire, whatever instants the rule happens to be evaluated at.
"""

from __future__ import annotations

from alerts.alert import PERCENT, PLAIN, WHOLE, Alert
from alerts.recording import GPU, NODE, OWNER, SAME_NODE, SAME_SOCKET, SOCKET
from alerts.settings import Settings

_GPU, _NODE = "gpu:amdgpu_", "node:amdgpu_"
_RAS = "grep . /sys/class/drm/card*/device/ras/*_err_count"
# Each group of series a device alert reads, under the name its absence is reported as.
DEVICE_SIGNALS = {
    "busy": 'amdgpu_busy_ratio{engine="gfx"}',
    # One block, sensor and limit stand for all: they are read together, and there are many.
    "ecc": 'amdgpu_ecc_uncorrectable_errors_total{block="umc"}',
    "memory": 'amdgpu_memory_used_bytes{pool="vram"}',
    "pcie_link": "amdgpu_pcie_link_width_lanes",
    "pcie_replays": "amdgpu_pcie_replays_total",
    "retired_pages": "amdgpu_retired_pages",
    "temperature": 'amdgpu_temperature_celsius{sensor=~"edge|junction"}',
    "temperature_limit": 'amdgpu_temperature_limit_celsius{limit="critical"}',
    "throttle": "amdgpu_throttle_samples_total",
}


def alerts(s: Settings) -> list[Alert]:
    return [
        _missing(s),
        _ecc_uncorrectable(s),
        _ecc_correctable(s),
        _retired_pages(s),
        _throttled(s),
        _power_capped(s),
        _over_temperature(s),
        _pcie_degraded(s),
        _pcie_replays(s),
        _vram_near_full(s),
        _idle_allocated(s),
        _imbalance(s),
        _job_imbalance(s),
        _readings_vanished(s),
    ]


def _missing(s: Settings) -> Alert:
    own, steady = s["AmdGpuMissing"], s.common.span("steady")
    down = f"(1 - max_over_time(amdgpu_up[{steady}])) > 0"
    # The least of a while on both sides: neither a gap nor one bad poll counts.
    fewer = (
        f"(min by ({NODE}) (min_over_time(amdgpu_expected_devices[{steady}]))\n"
        f"   - max by ({NODE}) (max_over_time(amdgpu_devices[{steady}]))) > {own.number('missing')}"
    )
    # A source that is down says nothing of GPUs; that is AmdGpuSourceDown.
    alive = f"max by ({NODE}) (amdgpu_exporter_source_up) == 1"
    # One GPU by name where it is known, else the number that is short.
    return Alert(
        "AmdGpuMissing",
        "node",
        f"(\n  max by ({SOCKET}) ({down})\n  or\n  (({fewer})\n   unless {SAME_NODE} ({down}))\n)\n"
        f"and {SAME_NODE} {alive}",
        "A GPU that should be there is not, or does not answer.",
        "{value} missing{{ with $labels.pci }}: GPU {{ $labels.gpu }} at {{ . }}{{ end }}.",
        "lspci -d 1002: -nn; dmesg -T | grep -i amdgpu | tail -50",
        WHOLE,
    )


def _ecc_uncorrectable(s: Settings) -> Alert:
    return Alert(
        "AmdGpuEccUncorrectable",
        "gpu",
        f"{_GPU}ecc_uncorrectable_errors:increase1h > {s['AmdGpuEccUncorrectable'].number('errors')}",
        "A GPU lost data to an error it could not correct.",
        "{value} uncorrectable errors; results computed on it may be wrong.",
        _RAS,
    )


def _ecc_correctable(s: Settings) -> Alert:
    own = s["AmdGpuEccCorrectable"]
    series = f"{_GPU}ecc_correctable_errors:increase1h"
    before = s.common.span("error_range")
    # A point each half hour: every point of a week, of a thousand nodes, is more than a query may read.
    days = f"{own.span('normal_range')}:{s.common.span('baseline_step')}"
    normal = f"quantile_over_time(0.95, {series}[{days}] offset {before})"
    # Where there is no history yet, the absolute number decides alone.
    return Alert(
        "AmdGpuEccCorrectable",
        "gpu",
        f"{series} > {own.number('errors')}\n"
        f"unless {SAME_SOCKET} {series} <= {own.number('over_normal')} * {normal}",
        "A GPU corrects far more memory errors than it normally does.",
        "{value} corrected errors; the data is good, but a fast rise announces worse.",
        _RAS,
    )


def _retired_pages(s: Settings) -> Alert:
    steady = s.common.span("steady")
    return Alert(
        "AmdGpuRetiredPages",
        "gpu",
        f"sum by ({SOCKET}) (\n"
        f'  min_over_time(amdgpu_retired_pages{{state=~"pending|unreservable"}}[{steady}])\n'
        f") > {s['AmdGpuRetiredPages'].number('pages')}",
        "Bad memory pages of a GPU are still in use.",
        "{value} pages wait for a reset to be taken out of use, or cannot be.",
        "cat /sys/class/drm/card*/device/ras/gpu_vram_bad_pages",
        WHOLE,
    )


def _throttled(s: Settings) -> Alert:
    return Alert(
        "AmdGpuThrottled",
        "gpu",
        f'max by ({SOCKET}) ({_GPU}throttle_residency:ratio15m{{reason!="power"}})'
        f" > {s['AmdGpuThrottled'].number('share')}",
        "Heat, or the board, holds a GPU's clocks down.",
        "its clocks were held down for {value} of the time.",
        "amd-smi metric --violation --temperature",
        PERCENT,
    )


def _power_capped(s: Settings) -> Alert:
    return Alert(
        "AmdGpuPowerCapped",
        "gpu",
        f'max by ({SOCKET}) ({_GPU}throttle_residency:ratio15m{{reason="power"}})'
        f" > {s['AmdGpuPowerCapped'].number('share')}",
        "A GPU runs at its power cap nearly all the time.",
        "its power cap held its clocks down for {value} of the time.",
        "amd-smi metric --power; cat /sys/class/drm/card*/device/hwmon/hwmon*/power1_cap",
        PERCENT,
    )


def _over_temperature(s: Settings) -> Alert:
    return Alert(
        "AmdGpuOverTemperature",
        "gpu",
        f"{_GPU}temperature_over_limit:celsius >= -{s['AmdGpuOverTemperature'].number('margin')}",
        "A GPU is at or above its own critical temperature.",
        "{value} degrees relative to the limit at which its firmware throttles.",
        "amd-smi metric --temperature --fan",
        PLAIN,
    )


def _pcie_degraded(s: Settings) -> Alert:
    own = s["AmdGpuPcieDegraded"]
    least = own.number("link_ratio")
    return Alert(
        "AmdGpuPcieDegraded",
        "gpu",
        f"min by ({SOCKET}) (\n"
        f"  {_GPU}pcie_link_width:ratio < {least}\n  or {_GPU}pcie_link_speed:ratio < {least}\n)\n"
        f"and {SAME_SOCKET} max by ({SOCKET}) ({_GPU}busy:avg15m) > {own.number('busy')}",
        "A busy GPU's PCIe link is narrower or slower than it should be.",
        "the link runs at {value} of its width or speed.",
        "lspci -vv -s {{ $labels.pci }} | grep -E 'LnkCap|LnkSta'",
        PERCENT,
    )


def _pcie_replays(s: Settings) -> Alert:
    return Alert(
        "AmdGpuPcieReplays",
        "gpu",
        f"{_GPU}pcie_replays:increase1h > {s['AmdGpuPcieReplays'].number('replays')}",
        "A GPU's PCIe link repeats packets.",
        "{value} packets had to be sent again: a bad slot, riser or card.",
        "cat /sys/class/drm/card*/device/pcie_replay_count",
    )


def _vram_near_full(s: Settings) -> Alert:
    """Nearly full alone is nothing: whoever serves a model takes all memory at once and keeps it."""
    own, steady = s["AmdGpuVramNearFull"], s.common.span("steady")
    used = f"{_GPU}memory_used:ratio"

    def most(before: str = "") -> str:
        return f"max by ({SOCKET}) (max_over_time({used}[{steady}]{before}))"

    # Peak against earlier peak: what goes up and down below the same peak does not grow.
    earlier = f" offset {s.common.span('steady', 2)}"
    return Alert(
        "AmdGpuVramNearFull",
        "gpu",
        f"max by ({SOCKET}) (min_over_time({used}[{steady}])) > {own.number('share')}\n"
        f"and {SAME_SOCKET} {most()} - {most(earlier)} > {own.number('growth')}",
        "A GPU's memory is nearly full and still grows.",
        "{value} of its memory is used, more each minute: the job is about to run out of it.",
        "amd-smi process; amd-smi metric --mem-usage",
        PERCENT,
    )


def _idle_allocated(s: Settings) -> Alert:
    """Per owner, so that the next one starts anew; of a shared GPU nobody can say who idles."""
    quarter = s.common.span("counter_range")
    # Every engine: who decodes video or copies uses the GPU too.
    busy = f"max by ({GPU}) (avg_over_time(amdgpu_busy_ratio[{quarter}]))"
    named = f'({_GPU}workload:info{{job_id!=""}} or {_GPU}workload:info{{pod!=""}})'
    return Alert(
        "AmdGpuIdleAllocated",
        "gpu",
        f"({busy} < {s['AmdGpuIdleAllocated'].number('busy')})\n* on ({GPU}) group_left ({OWNER})\n  {named}",
        "A job or pod holds a GPU and does not use it.",
        "{{ with $labels.job_id }}job {{ . }}{{ end }}"
        "{{ with $labels.pod }}pod {{ $labels.namespace }}/{{ . }}{{ end }} holds it; it is {value} busy.",
        "amd-smi process; amd-smi monitor -u -p",
        PERCENT,
        "job",
    )


def _job_imbalance(s: Settings) -> Alert:
    return Alert(
        "AmdGpuJobImbalance",
        "job",
        f"job:amdgpu_busy:spread15m > {s['AmdGpuJobImbalance'].number('spread')}\n"
        f"and job:amdgpu_busy:avg15m > {s.common.number('working_busy')}",
        "The GPUs of one job are busy to very different degrees.",
        "its busiest and its least busy GPU lie {value} apart.",
        "promtool query instant http://PROMETHEUS:9090 'gpu:amdgpu_job_busy:avg15m'  # from anywhere",
        PERCENT,
        "job",
    )


def _imbalance(s: Settings) -> Alert:
    workloads = f"count by ({NODE}) (count by ({NODE}, {OWNER}) ({_GPU}workload:info))"
    # Several workloads on a node are busy to different degrees by right; each has AmdGpuJobImbalance.
    return Alert(
        "AmdGpuImbalance",
        "node",
        f"{_NODE}busy:spread15m > {s['AmdGpuImbalance'].number('spread')}\n"
        f"unless {SAME_NODE} {workloads} > 1",
        "Working GPUs of one node are busy to very different degrees.",
        "the busiest and the least busy working GPU lie {value} apart.",
        "amd-smi monitor -u -p; amd-smi process",
        PERCENT,
    )


def _readings_vanished(s: Settings) -> Alert:
    """The absent twin of every alert on a GPU's own readings.

    One serves all: what vanishes is named in ``signal``. It compares with points of the past, because a
    series that this chip never had is no loss, and plain ``absent()`` would not see one GPU among many.
    """
    past = (s.common.span("window_period", 6), s.common.span("window_period", 36))
    parts = []
    for signal, series in DEVICE_SIGNALS.items():
        before = " or ".join(f"{series} offset {p}" for p in past)
        counted = f"count by ({SOCKET}) ({before}) unless {SAME_SOCKET} {series}"
        parts.append(f'label_replace({counted}, "signal", "{signal}", "", "")')
    body = "\nor ".join(parts)
    return Alert(
        "AmdGpuReadingsVanished",
        "gpu",
        f"(\n{body}\n)\nand {SAME_SOCKET} max by ({SOCKET}) (amdgpu_up) == 1",
        "A GPU that answers no longer gives some of its readings, so alerts on them are blind.",
        "{{ $labels.signal }} was read until lately and is not any more.",
        "curl -s localhost:9408/metrics | grep amdgpu_exporter_readings_missing",
        WHOLE,
        "exporter",
    )
