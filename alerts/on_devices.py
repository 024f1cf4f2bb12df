"""Alerts on the GPUs themselves: gone, failing, hot, held back, badly connected.

Gauges are looked at over a few scrapes (least or most of a while), never at one sample: a value that
alternates from sample to sample must not fire, whatever instants the rule happens to be evaluated at.
"""

from __future__ import annotations

from alerts.alert import PERCENT, PLAIN, WHOLE, Alert
from alerts.recording import NODE, SAME_NODE, SAME_SOCKET, SOCKET
from alerts.settings import Settings

_GPU, _NODE = "gpu:amdgpu_", "node:amdgpu_"
_RAS = "grep . /sys/class/drm/card*/device/ras/*_err_count"
# Each group of series a device alert reads, under the name its absence is reported as.
DEVICE_SIGNALS = {
    "busy": 'amdgpu_busy_ratio{engine="gfx"}',
    "ecc": "amdgpu_ecc_uncorrectable_errors_total",
    "pcie_link": "amdgpu_pcie_link_width_lanes",
    "retired_pages": "amdgpu_retired_pages",
    "temperature": "amdgpu_temperature_celsius",
    "temperature_limit": "amdgpu_temperature_limit_celsius",
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
        _imbalance(s),
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
    normal = f"quantile_over_time(0.95, {series}[{own.span('normal_range')}] offset {before})"
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


def _imbalance(s: Settings) -> Alert:
    return Alert(
        "AmdGpuImbalance",
        "node",
        f"{_NODE}busy:spread15m > {s['AmdGpuImbalance'].number('spread')}",
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
