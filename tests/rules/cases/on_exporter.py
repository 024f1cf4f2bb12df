"""Cases of alerts on what watches."""

from __future__ import annotations

from tests.rules.cases.case import BUILD, NODE, Case, fires, of_node, quiet
from tests.rules.made import Series, alternating, flat, gap, ramp


def _every_other(given: list[Series]) -> list[Series]:
    return [(name, [v if m % 2 else None for m, v in enumerate(values)]) for name, values in given]


def cases() -> list[Case]:
    state = "amdgpu_sampling_state"
    up = "up"
    source = "amdgpu_exporter_source_up"
    last, took = (
        "amdgpu_exporter_source_last_success_timestamp_seconds",
        "amdgpu_exporter_source_duration_seconds",
    )
    now = [m * 60.0 for m in range(120)]
    signals = [
        of_node("amdgpu_devices", flat(8, 120)),
        of_node(source, flat(1, 120), source="gpu"),
        of_node(last, now, source="gpu"),
        of_node(took, flat(0.1, 120), source="gpu"),
        of_node(state, flat(1, 120), state="off"),
        of_node("amdgpu_exporter_series_dropped_total", flat(0, 120)),
        of_node("amdgpu_exporter_config_last_reload_successful", flat(1, 120)),
        of_node("amdgpu_exporter_child_starts_total", flat(1, 120), child="reader"),
    ]
    ok = "amdgpu_exporter_config_last_reload_successful"
    starts, reader = "amdgpu_exporter_child_starts_total", {"child": "reader"}
    gone = of_node("amdgpu_exporter_build_info", flat(1, 30), version="1", python="3.11")
    return [
        fires(
            "AmdGpuExporterDown",
            "by the name of its job",
            [of_node(up, [1] * 20 + [0] * 80, job="amdgpu-exporter")],
            {**NODE, "job": "amdgpu-exporter"},
            40,
        ),
        fires(
            "AmdGpuExporterDown",
            "a job of another name that was an exporter an hour ago",
            [of_node(up, [1] * 20 + [0] * 80, job="gpus"), gone],
            {**NODE, "job": "gpus"},
            70,
        ),
        quiet(
            "AmdGpuExporterDown", "somebody else's target", [of_node(up, flat(0, 100), job="web"), BUILD], 40
        ),
        quiet(
            "AmdGpuExporterDown",
            "every other scrape",
            [of_node(up, alternating(1, 0, 200), job="amdgpu")],
            40,
            90,
        ),
        fires("AmdGpuExporterAbsent", "none at all", [of_node(up, flat(1, 60), job="web")], {}, 30),
        quiet("AmdGpuExporterAbsent", "one is there", [BUILD], 30, 60),
        fires(
            "AmdGpuTargetGone",
            "no longer discovered",
            [gone, of_node(up, flat(1, 30), job="amdgpu")],
            NODE,
            80,
        ),
        quiet(
            "AmdGpuTargetGone",
            "down, but still a target",
            [gone, of_node(up, [1] * 30 + [0] * 90, job="amdgpu")],
            80,
        ),
        fires(
            "AmdGpuSignalMissing",
            "a relabelling rule dropped the count of GPUs",
            [BUILD, *signals[1:]],
            {**NODE, "signal": "amdgpu_devices"},
            30,
        ),
        quiet("AmdGpuSignalMissing", "all there", [BUILD, *signals], 30, 60, 90),
        fires(
            "AmdGpuSourceDown",
            "fails for ten minutes",
            [of_node(source, [1] * 20 + [0] * 40, source="gpu")],
            {**NODE, "source": "gpu"},
            35,
        ),
        quiet(
            "AmdGpuSourceDown",
            "every other poll fails",
            [of_node(source, alternating(1, 0, 200), source="gpu")],
            35,
            60,
        ),
        fires(
            "AmdGpuDataStale",
            "the last success is old",
            [of_node(last, now[:20] + [now[20]] * 40, source="gpu")],
            {**NODE, "source": "gpu"},
            30,
        ),
        quiet("AmdGpuDataStale", "fresh", [of_node(last, now, source="gpu")], 30, 60),
        quiet(
            "AmdGpuDataStale",
            "fresh, on a node whose clock is ten minutes slow",
            [of_node(last, [at - 600 for at in now], source="gpu")],
            30,
            60,
        ),
        fires(
            "AmdGpuDataStale",
            "old, on a node whose clock is ten minutes fast",
            [of_node(last, [at + 600 for at in [*now[:20], *[now[20]] * 60]], source="gpu")],
            {**NODE, "source": "gpu"},
            45,
        ),
        quiet(
            "AmdGpuDataStale",
            "not scraped for a while",
            [of_node(last, gap(list(now), 30, 40), source="gpu")],
            *range(30, 60, 2),
        ),
        fires(
            "AmdGpuCollectionSlow",
            "near its deadline",
            [of_node(took, flat(1.9, 60), source="gpu")],
            {**NODE, "source": "gpu"},
            40,
        ),
        quiet(
            "AmdGpuCollectionSlow",
            "every other poll is slow",
            [of_node(took, alternating(1.9, 0.1, 120), source="gpu")],
            40,
            55,
        ),
        fires(
            "AmdGpuSamplerTripped",
            "the breaker is open",
            [of_node(state, flat(1, 60), state="tripped")],
            {**NODE, "state": "tripped"},
            30,
        ),
        quiet(
            "AmdGpuSamplerTripped",
            "off by choice",
            [of_node(state, flat(1, 60), state="off"), of_node(state, flat(0, 60), state="tripped")],
            30,
        ),
        fires(
            "AmdGpuSamplerBlocked",
            "someone profiles",
            [of_node(state, flat(1, 60), state="blocked")],
            {**NODE, "state": "blocked"},
            50,
        ),
        quiet(
            "AmdGpuSamplerBlocked",
            "now and then",
            [of_node(state, alternating(1, 0, 120), state="blocked")],
            50,
        ),
        fires(
            "AmdGpuSeriesLimit",
            "series are left out",
            [of_node("amdgpu_exporter_series_dropped_total", ramp(12, 60))],
            NODE,
            40,
        ),
        quiet(
            "AmdGpuSeriesLimit",
            "they were, before",
            [of_node("amdgpu_exporter_series_dropped_total", [0] + [40] * 90)],
            40,
            60,
        ),
        quiet(
            "AmdGpuSeriesLimit",
            "a restart",
            [of_node("amdgpu_exporter_series_dropped_total", [40] * 30 + [0] * 60)],
            35,
            45,
        ),
        fires("AmdGpuConfigReloadFailed", "a broken file", [of_node(ok, [1] * 10 + [0] * 50)], NODE, 30),
        quiet("AmdGpuConfigReloadFailed", "mended at once", [of_node(ok, alternating(1, 0, 90))], 30, 60),
        quiet(
            "AmdGpuSignalMissing", "scraped at every other turn", _every_other([BUILD, *signals]), 30, 60, 90
        ),
        quiet("AmdGpuExporterAbsent", "scraped at every other turn", _every_other([BUILD]), 30, 60),
        quiet("AmdGpuConfigReloadFailed", "good", [of_node(ok, flat(1, 60))], 30),
        fires(
            "AmdGpuReaderRestarts",
            "one every ten minutes",
            [of_node(starts, ramp(0.1, 120, 1), **reader)],
            {**NODE, **reader},
            100,
        ),
        quiet(
            "AmdGpuReaderRestarts",
            "one in an hour",
            [of_node(starts, [1] * 50 + [2] * 70, **reader)],
            60,
            100,
        ),
        quiet(
            "AmdGpuReaderRestarts",
            "the reducer starts for each window",
            [of_node(starts, ramp(1, 120), child="reducer")],
            100,
        ),
        quiet(
            "AmdGpuReaderRestarts",
            "the exporter restarts and counts from 1",
            [of_node(starts, [2] * 50 + [1] * 70, **reader)],
            60,
        ),
    ]
