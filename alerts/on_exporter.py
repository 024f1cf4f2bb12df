"""Alerts on what watches: exporters that are down, blind, late, limited, or that restart."""

from __future__ import annotations

from alerts.alert import DURATION, PLAIN, WHOLE, Alert
from alerts.recording import NODE, SAME_NODE
from alerts.settings import Settings

_STATUS = "systemctl status amdgpu-exporter; journalctl -u amdgpu-exporter -n 50"
_METRICS = "curl -s localhost:9408/metrics"
# What every healthy exporter serves, and which alerts go blind without it. amdgpu_expected_devices is not
# among them: where nobody has said how many GPUs there should be it is rightly absent.
NODE_SIGNALS = (
    "amdgpu_devices",  # AmdGpuMissing
    "amdgpu_exporter_source_up",  # AmdGpuSourceDown, AmdGpuMissing
    "amdgpu_exporter_source_last_success_timestamp_seconds",  # AmdGpuDataStale
    "amdgpu_exporter_source_duration_seconds",  # AmdGpuCollectionSlow
    "amdgpu_sampling_state",  # AmdGpuSamplerTripped, AmdGpuSamplerBlocked
    "amdgpu_exporter_series_dropped_total",  # AmdGpuSeriesLimit
    "amdgpu_exporter_config_last_reload_successful",  # AmdGpuConfigReloadFailed
    "amdgpu_exporter_child_starts_total",  # AmdGpuReaderRestarts
)
_ALIVE = "amdgpu_exporter_build_info"


def alerts(s: Settings) -> list[Alert]:
    return [*_blind(s), *_source(s), *_sampler(s), *_self(s)]


def _blind(s: Settings) -> list[Alert]:
    steady = s.common.span("steady")
    hour, day = (s.common.span("window_period", n) for n in (6, 144))
    ours = f'up{{job=~"{s.common["exporter_job"]}"}}'
    # By the job's name; and, for jobs of any other name, by having been ours an hour or a day ago.
    down = (
        f"max_over_time({ours}[{steady}]) == 0\n"
        f"or (\n  max_over_time(up[{steady}]) == 0\n"
        f"  and {SAME_NODE} ({_ALIVE} offset {hour} or {_ALIVE} offset {day})\n)"
    )
    signals = "\nor ".join(
        f'label_replace(count by ({NODE}) ({_ALIVE}) unless {SAME_NODE} {name}, "signal", "{name}", "", "")'
        for name in NODE_SIGNALS
    )
    return [
        Alert(
            "AmdGpuExporterDown",
            "node",
            down,
            "An exporter does not answer.",
            "Prometheus cannot scrape it; nothing is known of the node's GPUs.",
            _STATUS,
            WHOLE,
            "exporter",
            silent=True,
        ),
        Alert(
            "AmdGpuExporterAbsent",
            "fleet",
            f"absent({_ALIVE})",
            "No exporter is seen at all: every alert on GPUs is blind.",
            "Prometheus holds no series of any amdgpu-exporter.",
            "promtool query instant http://PROMETHEUS:9090 'count by (job) (up)'  # from anywhere",
            WHOLE,
            "exporter",
        ),
        # The twin of AmdGpuExporterDown: where the target itself is gone, up is absent, not 0.
        Alert(
            "AmdGpuTargetGone",
            "node",
            f"count by ({NODE}) ({_ALIVE} offset {hour})\nunless {SAME_NODE} up",
            "An exporter that was scraped is no longer among Prometheus' targets.",
            "it was scraped an hour ago and service discovery does not name it any more.",
            "promtool query instant http://PROMETHEUS:9090 'up{instance=\"{{ $labels.instance }}\"}'",
            WHOLE,
            "exporter",
            silent=True,
        ),
        # The twin of every alert on the exporter's own signals: it is scraped, the signal is not there.
        Alert(
            "AmdGpuSignalMissing",
            "node",
            signals,
            "An exporter is scraped but lacks a signal that alerts need.",
            "{{ $labels.signal }} is absent; the alerts that read it are blind on this node.",
            f"{_METRICS} | grep -c '^{{{{ $labels.signal }}}}'",
            WHOLE,
            "exporter",
        ),
    ]


def _source(s: Settings) -> list[Alert]:
    steady = s.common.span("steady")
    stale, slow = s["AmdGpuDataStale"], s["AmdGpuCollectionSlow"]
    last = "amdgpu_exporter_source_last_success_timestamp_seconds"
    return [
        Alert(
            "AmdGpuSourceDown",
            "node",
            f"max_over_time(amdgpu_exporter_source_up[{steady}]) == 0",
            "An exporter cannot read its GPUs.",
            "source {{ $labels.source }} has failed at every poll.",
            "curl -s localhost:9408/metrics | grep source_failures_total; amdgpu-exporter devices",
            WHOLE,
            "exporter",
        ),
        Alert(
            "AmdGpuDataStale",
            "node",
            # Also that it stands still: the clock of a node may be off, and then it looks old and is not.
            f"time() - {last} > {stale.seconds('age')}\n"
            f"and changes({last}[{steady}]) == 0 and count_over_time({last}[{steady}]) > 2",
            "An exporter's last good poll is old.",
            "source {{ $labels.source }} last succeeded {value} ago.",
            "journalctl -u amdgpu-exporter --since -15m; ps -eo pid,stat,wchan:30,args | grep reader",
            DURATION,
            "exporter",
        ),
        Alert(
            "AmdGpuCollectionSlow",
            "node",
            f"min_over_time(amdgpu_exporter_source_duration_seconds[{steady}]) > {slow.seconds('duration')}",
            "Polls of the GPUs take nearly as long as they may.",
            "a poll of source {{ $labels.source }} takes {value}.",
            "amdgpu-exporter devices; uptime",
            DURATION,
            "exporter",
        ),
    ]


def _sampler(s: Settings) -> list[Alert]:
    steady = s.common.span("steady")

    def state(name: str) -> str:
        return f'min_over_time(amdgpu_sampling_state{{state="{name}"}}[{steady}]) == 1'

    return [
        Alert(
            "AmdGpuSamplerTripped",
            "node",
            state("tripped"),
            "Profiling windows were switched off after failures.",
            "the breaker is open; no window is started until it closes.",
            "journalctl -u amdgpu-exporter --since -1h | grep -i window",
            WHOLE,
            "exporter",
        ),
        Alert(
            "AmdGpuSamplerBlocked",
            "node",
            state("blocked"),
            "Profiling windows wait because someone else profiles.",
            "another tool holds the counters, or a window may not start.",
            "pgrep -a -f 'rocprof|rocpctl|omnistat'",
            WHOLE,
            "exporter",
        ),
    ]


def _self(s: Settings) -> list[Alert]:
    steady, quarter, hour = (s.common.span(k) for k in ("steady", "counter_range", "error_range"))
    restarts = s["AmdGpuReaderRestarts"].number("restarts")
    return [
        Alert(
            "AmdGpuSeriesLimit",
            "node",
            f"increase(amdgpu_exporter_series_dropped_total[{quarter}]) > 0",
            "An exporter leaves series out because of its limit.",
            "{value} series were left out, kernels and histograms first.",
            f"{_METRICS} | grep -E 'amdgpu_exporter_series'",
            PLAIN,
            "exporter",
        ),
        Alert(
            "AmdGpuConfigReloadFailed",
            "node",
            f"max_over_time(amdgpu_exporter_config_last_reload_successful[{steady}]) == 0",
            "An exporter could not load its changed configuration.",
            "the last good configuration is still in force.",
            "amdgpu-exporter serve --config /etc/amdgpu-exporter/config.yaml --print-config",
            WHOLE,
            "exporter",
        ),
        # The reducer is started for a window and ended when idle; only the readers are meant to stay.
        Alert(
            "AmdGpuReaderRestarts",
            "node",
            f'increase(amdgpu_exporter_child_starts_total{{child!="reducer"}}[{hour}]) > {restarts}',
            "The process that reads the GPUs keeps being replaced.",
            "child {{ $labels.child }} was started {value} times.",
            "journalctl -u amdgpu-exporter --since -1h | grep -E 'child|reader'",
            PLAIN,
            "exporter",
        ),
    ]
