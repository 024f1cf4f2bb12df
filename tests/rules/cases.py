"""For each alert: series on which it must fire, and series on which it must be quiet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.rules.made import (
    BALANCED,
    COMMUNICATION,
    COPY_BOUND,
    GPU_BOUND,
    HOST_STALLED,
    INSTANCE,
    LAUNCH_BOUND,
    Series,
    Values,
    alternating,
    counted,
    every,
    flat,
    gap,
    gpu,
    once,
    ramp,
    reset,
    series,
    traced,
)

NODE = {"instance": INSTANCE}
HOUR = 60


@dataclass(frozen=True)
class Case:
    """``at`` maps minutes to the label sets that must be firing then; severity and about are added."""

    alert: str
    name: str
    given: Sequence[Series]
    at: Mapping[int, Sequence[Mapping[str, str]]]
    step: str = "1m"  # of the samples
    samples: Sequence[tuple[str, int, float]] = ()  # (expression, minute, value) that must also hold
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # to the thresholds


def fires(
    alert: str, name: str, given: Sequence[Series], who: Mapping[str, str], *minutes: int, **more: Any
) -> Case:
    return Case(alert, f"fires: {name}", given, {m: [who] for m in minutes or (90,)}, **more)


def quiet(alert: str, name: str, given: Sequence[Series], *minutes: int, **more: Any) -> Case:
    return Case(alert, f"quiet: {name}", given, {m: [] for m in minutes or (30, 60, 90)}, **more)


def _g(name: str, values: Values, n: int = 0, **labels: str) -> Series:
    return series(name, values, **gpu(n), **labels)


def _n(name: str, values: Values, **labels: str) -> Series:
    return series(name, values, **NODE, **labels)


BUILD = _n("amdgpu_exporter_build_info", flat(1, 200), version="1", python="3.11")
SOURCE = _n("amdgpu_exporter_source_up", flat(1, 200), source="gpu")


def _devices() -> list[Case]:
    up, ups = "amdgpu_up", [SOURCE]
    eight = _n("amdgpu_expected_devices", flat(8, 200))
    hot, limit = "amdgpu_temperature_celsius", "amdgpu_temperature_limit_celsius"
    limits = [_g(limit, flat(105, 200), sensor="junction", limit="critical")]
    limits += [_g(limit, flat(110, 200), sensor="junction", limit="emergency")]
    throttle, samples = (
        "amdgpu_throttle_residency_total",
        _g("amdgpu_throttle_samples_total", ramp(6000, 200)),
    )
    ce, ue = "amdgpu_ecc_correctable_errors_total", "amdgpu_ecc_uncorrectable_errors_total"
    width, max_width = "amdgpu_pcie_link_width_lanes", _g("amdgpu_pcie_max_link_width_lanes", flat(16, 200))
    speed, max_speed = (
        "amdgpu_pcie_link_transfers_per_second",
        _g("amdgpu_pcie_max_link_transfers_per_second", flat(32e9, 200)),
    )
    busy = _g("amdgpu_busy_ratio", flat(0.8, 200), engine="gfx")
    idle = _g("amdgpu_busy_ratio", flat(0.01, 200), engine="gfx")
    return [
        fires("AmdGpuMissing", "a GPU stops to answer", [*ups, _g(up, [1] * 20 + [0] * 80)], gpu(), 40),
        fires(
            "AmdGpuMissing",
            "one of eight is gone without a name",
            [*ups, eight, _n("amdgpu_devices", [8] * 20 + [7] * 80)],
            NODE,
            40,
        ),
        fires(
            "AmdGpuMissing",
            "a lost GPU is told once, by its name",
            [*ups, eight, _n("amdgpu_devices", [8] * 20 + [7] * 80), _g(up, [1] * 20 + [0] * 80)],
            gpu(),
            40,
        ),
        quiet(
            "AmdGpuMissing",
            "all are there, one only flickers",
            [*ups, eight, _n("amdgpu_devices", alternating(8, 7, 200)), _g(up, alternating(1, 0, 200))],
            40,
            80,
        ),
        quiet(
            "AmdGpuMissing",
            "a source that is down says nothing of GPUs",
            [_n("amdgpu_exporter_source_up", flat(0, 100), source="gpu"), _g(up, flat(0, 100)), eight],
            40,
        ),
        fires(
            "AmdGpuEccUncorrectable", "one error", [_g(ue, [0] * 20 + [1] * 60, block="umc")], gpu(), 25, 70
        ),
        quiet("AmdGpuEccUncorrectable", "errors from before", [_g(ue, flat(7, 100), block="umc")], 5, 40, 90),
        quiet(
            "AmdGpuEccUncorrectable",
            "the driver was loaded anew and counts from 0",
            [_g(ue, [7] * 30 + [0] * 60, block="umc")],
            35,
            60,
        ),
        fires(
            "AmdGpuEccCorrectable",
            "a burst without history",
            [_g(ce, [0] * 30 + ramp(10, 90), block="umc")],
            gpu(),
            100,
        ),
        fires(
            "AmdGpuEccCorrectable",
            "far above its own normal",
            [_g(ce, ramp(0.1, 300) + ramp(10, 120, 30), block="umc")],
            gpu(),
            400,
            changes={"AmdGpuEccCorrectable": {"normal_range": "3h"}},
        ),
        quiet(
            "AmdGpuEccCorrectable",
            "a card that always has many, and now a few more",
            [_g(ce, ramp(10, 300) + ramp(15, 120, 3000), block="umc")],
            400,
            changes={"AmdGpuEccCorrectable": {"normal_range": "3h"}},
        ),
        quiet("AmdGpuEccCorrectable", "a few", [_g(ce, ramp(0.5, 120), block="umc")], 60, 110),
        fires(
            "AmdGpuRetiredPages",
            "pages pending",
            [_g("amdgpu_retired_pages", flat(2, 60), state="pending")],
            gpu(),
            30,
        ),
        quiet(
            "AmdGpuRetiredPages",
            "pages done",
            [_g("amdgpu_retired_pages", flat(9, 60), state="reserved")],
            30,
            50,
        ),
        fires(
            "AmdGpuThrottled",
            "hot for a tenth of the time",
            [
                samples,
                _g(throttle, ramp(600, 200), reason="socket_thermal"),
                _g(throttle, ramp(0, 200), reason="power"),
            ],
            gpu(),
            40,
        ),
        quiet(
            "AmdGpuThrottled",
            "only the power cap, and a restart of both counters",
            [
                ("amdgpu_throttle_samples_total" + samples[0][29:], reset(list(samples[1]), 60)),
                _g(throttle, reset(ramp(5900, 200), 60), reason="power"),
                _g(throttle, reset(ramp(60, 200), 60), reason="hbm_thermal"),
            ],
            40,
            62,
            70,
            100,
        ),
        fires(
            "AmdGpuPowerCapped",
            "at its cap",
            [samples, _g(throttle, ramp(5900, 200), reason="power")],
            gpu(),
            60,
        ),
        quiet(
            "AmdGpuPowerCapped",
            "half at its cap",
            [samples, _g(throttle, ramp(3000, 200), reason="power")],
            60,
        ),
        fires(
            "AmdGpuOverTemperature",
            "above its limit",
            [*limits, _g(hot, flat(107, 60), sensor="junction")],
            gpu(),
            30,
        ),
        quiet("AmdGpuOverTemperature", "warm", [*limits, _g(hot, flat(99, 60), sensor="junction")], 30, 50),
        quiet(
            "AmdGpuOverTemperature",
            "above and below from sample to sample",
            [*limits, _g(hot, alternating(90, 112, 200), sensor="junction")],
            30,
            60,
            90,
            step="30s",
        ),
        quiet(
            "AmdGpuOverTemperature",
            "a single spike",
            [*limits, _g(hot, [90] * 30 + [125] + [90] * 60, sensor="junction")],
            31,
            40,
            60,
        ),
        fires(
            "AmdGpuPcieDegraded",
            "half the lanes while busy",
            [busy, max_width, max_speed, _g(width, flat(8, 200)), _g(speed, flat(32e9, 200))],
            gpu(),
            40,
        ),
        fires(
            "AmdGpuPcieDegraded",
            "too slow while busy",
            [busy, max_width, max_speed, _g(width, flat(16, 200)), _g(speed, flat(16e9, 200))],
            gpu(),
            40,
        ),
        quiet(
            "AmdGpuPcieDegraded", "slow while idle", [idle, max_speed, _g(speed, flat(2.5e9, 200))], 40, 90
        ),
        quiet(
            "AmdGpuPcieDegraded",
            "busy in bursts, slow in between",
            [
                busy,
                max_speed,
                max_width,
                _g(speed, alternating(2.5e9, 32e9, 200)),
                _g(width, alternating(1, 16, 200)),
            ],
            40,
            90,
        ),
        fires(
            "AmdGpuPcieReplays", "a steady rise", [_g("amdgpu_pcie_replays_total", ramp(2, 120))], gpu(), 90
        ),
        quiet("AmdGpuPcieReplays", "a few", [_g("amdgpu_pcie_replays_total", ramp(0.1, 120))], 60, 90),
        fires(
            "AmdGpuImbalance",
            "one works hard, one hardly",
            [_g("amdgpu_busy_ratio", flat(b, 120), n, engine="gfx") for n, b in enumerate((0.95, 0.9, 0.2))],
            NODE,
            60,
        ),
        quiet(
            "AmdGpuImbalance",
            "four work, four idle",
            [
                _g("amdgpu_busy_ratio", flat(b, 120), n, engine="gfx")
                for n, b in enumerate((0.9, 0.8, 0, 0.01))
            ],
            60,
            110,
        ),
        quiet(
            "AmdGpuImbalance",
            "each in turn",
            [
                _g("amdgpu_busy_ratio", alternating(0.95, 0.1, 200), 0, engine="gfx"),
                _g("amdgpu_busy_ratio", alternating(0.1, 0.95, 200), 1, engine="gfx"),
            ],
            60,
            90,
            step="30s",
        ),
        fires(
            "AmdGpuReadingsVanished",
            "throttle counters were there an hour ago",
            [_g(up, flat(1, 120)), _g("amdgpu_throttle_samples_total", ramp(1, 20)), busy],
            {**gpu(), "signal": "throttle"},
            75,
        ),
        quiet("AmdGpuReadingsVanished", "a chip that never had them", [_g(up, flat(1, 120)), busy], 30, 75),
    ]


def _windows() -> list[Case]:
    delay, bound, starved = "AmdGpuQueueDelayHigh", "AmdGpuLaunchBound", "AmdGpuHostStarved"
    launch_bound, saturated, stalled = ([w] for w in (LAUNCH_BOUND, GPU_BOUND, HOST_STALLED))
    three = 3 * HOUR
    one_firing = (f'changes(ALERTS_FOR_STATE{{alertname="{delay}"}}[2h])', 170, 0.0)
    still = replace(GPU_BOUND, verdict="balanced")
    skewed = replace(BALANCED, skewed=60)
    busy = _g("amdgpu_busy_ratio", flat(0.7, 300), engine="gfx")
    crowded = replace(LAUNCH_BOUND, timeline=(0.0176, 0.0008, 0.0008, 0.0008))
    long = replace(LAUNCH_BOUND, queue=0.004)
    return [
        fires(delay, "launch bound", traced(launch_bound, 120), gpu(), 60, 90, 110),
        fires(
            delay,
            "a partition of its own",
            traced(launch_bound, 120, {**gpu(), "partition": "3"}),
            {**gpu(), "partition": "3"},
            90,
        ),
        quiet(delay, "saturated: ratio 0.99, executing 0.98", traced(saturated, 120)),
        quiet(delay, "starved: ratio 0.11, executing 0.08", traced(stalled, 120)),
        quiet(delay, "verdicts alternate", traced([LAUNCH_BOUND, BALANCED], three), 60, 90, 120, 150, 170),
        quiet(
            delay,
            "ratio alternates about its threshold",
            traced([LAUNCH_BOUND, HOST_STALLED], three),
            60,
            120,
            170,
        ),
        quiet(
            delay,
            "one odd window among healthy ones",
            traced(once(LAUNCH_BOUND, still, 6, 18), three),
            66,
            80,
            100,
        ),
        quiet(
            delay, "one window, scraped forty times", traced(once(LAUNCH_BOUND, still, 0, 99), 60), 20, 40, 55
        ),
        quiet(delay, "the verdict of launches, but hardly any idle time", traced([crowded], 120)),
        quiet(delay, "the verdict of launches, but kernels outweigh the wait", traced([long], 120)),
        quiet(
            delay,
            "two windows decide nothing",
            [(n, v[:16] + [v[16]] * 104) for n, v in traced(launch_bound, 120)],
            35,
            45,
            60,
        ),
        quiet(
            delay,
            "a burst of windows an hour ago",
            [(n, [v[min(10 * m, 70)] for m in range(120)]) for n, v in traced(launch_bound, 120)],
            65,
        ),
        quiet(delay, "too few launches", traced([replace(LAUNCH_BOUND, launches=20)], 120), 90),
        fires(
            delay,
            "a gap of 25 minutes neither resolves it nor sends it again",
            every(gap, traced(launch_bound, three), 80, 105),
            gpu(),
            *range(60, 171, 5),
            samples=[one_firing],
        ),
        fires(
            delay,
            "the exporter restarts and counts from 0",
            every(reset, traced(launch_bound, three), 92),
            gpu(),
            *range(60, 171, 10),
            samples=[one_firing],
        ),
        quiet(delay, "a restart while healthy", every(reset, traced(saturated, three), 92), 95, 110, 150),
        quiet(
            delay,
            "windows stopped an hour ago",
            [(n, v[:60] + [v[60]] * 120) for n, v in traced(launch_bound, three)],
            140,
            170,
        ),
        fires(bound, "launch bound", traced(launch_bound, 120), gpu()),
        quiet(bound, "saturated", traced(saturated, 120)),
        quiet(bound, "starved", traced(stalled, 120)),
        fires(starved, "starved", traced(stalled, 120), gpu(), 60, 90),
        quiet(starved, "launch bound: launches take the time", traced(launch_bound, 120)),
        quiet(starved, "saturated", traced(saturated, 120)),
        quiet(starved, "every other window", traced([HOST_STALLED, GPU_BOUND], three), 60, 90, 120, 170),
        fires("AmdGpuCommunicationBound", "collectives alone", traced([COMMUNICATION], 120), gpu()),
        quiet("AmdGpuCommunicationBound", "saturated", traced(saturated, 120)),
        fires("AmdGpuCopyBound", "copies alone", traced([COPY_BOUND], 120), gpu()),
        quiet("AmdGpuCopyBound", "saturated", traced(saturated, 120)),
        fires("AmdGpuClockSkew", "a sixth of the launches", traced([skewed], 120), gpu()),
        quiet("AmdGpuClockSkew", "none", traced([BALANCED], 120)),
        fires(
            "AmdGpuWindowsStopped",
            "traces came and stopped on a busy GPU",
            [busy, *((n, v[:60] + [v[60]] * 120) for n, v in traced([BALANCED], three))],
            {**gpu(), "mode": "trace"},
            135,
        ),
        quiet(
            "AmdGpuWindowsStopped",
            "they stopped with the job",
            [
                _g("amdgpu_busy_ratio", [0.7] * 60 + [0] * 200, engine="gfx"),
                *((n, v[:60] + [v[60]] * 120) for n, v in traced([BALANCED], three)),
            ],
            135,
        ),
        quiet("AmdGpuWindowsStopped", "they still come", [busy, *traced([BALANCED], three)], 100, 170),
        *_stragglers(),
        *_cache(),
    ]


def _stragglers() -> list[Case]:
    def work(factor: float) -> list[Any]:
        return [replace(BALANCED, kernels={"gemm": (0.008 * factor, 80), "add": (0.002 * factor, 200)})]

    def node(*factors: float) -> list[Series]:
        return [s for n, f in enumerate(factors) for s in traced(work(f), 120, gpu(n))]

    name = "AmdGpuStraggler"
    return [
        fires(name, "one GPU of four is 1.4 times slower", node(1, 1.02, 1.4, 0.98), gpu(2)),
        quiet(name, "all alike", node(1, 1.02, 1.05, 0.98)),
        quiet(name, "two GPUs: no one knows which is the slow one", node(1, 1.4)),
    ]


def _cache() -> list[Case]:
    name = "AmdGpuL2HitDrop"
    short = {name: {"baseline_range": "4h", "mix_range": "3h"}}
    minutes = 8 * HOUR
    same = traced([replace(BALANCED, kernels={"gemm": (0.008, 80), "add": (0.002, 200)})], minutes)
    other = traced(
        [replace(BALANCED, kernels={"gemm": (0.008, 80)})] * 30
        + [replace(BALANCED, kernels={"spmv": (0.008, 80)})] * 18,
        minutes,
    )
    dropped = counted([0.82] * 30 + [0.55] * 18, minutes)
    at = 6 * HOUR + 30
    return [
        fires(name, "the same kernels hit 27 points less", [*same, *dropped], gpu(), at, changes=short),
        quiet(name, "steady", [*same, *counted([0.82], minutes)], at, changes=short),
        quiet(name, "another job with another mix", [*other, *dropped], at, changes=short),
        quiet(
            name,
            "every other window is low",
            [*same, *counted([0.82, 0.6], minutes)],
            at,
            at + 30,
            changes=short,
        ),
        quiet(
            name,
            "hardly any traffic",
            [*same, *counted([0.82] * 30 + [0.55] * 18, minutes, 1e4)],
            at,
            changes=short,
        ),
    ]


def _exporter() -> list[Case]:
    state = "amdgpu_sampling_state"
    up = "up"
    source = "amdgpu_exporter_source_up"
    last, took = (
        "amdgpu_exporter_source_last_success_timestamp_seconds",
        "amdgpu_exporter_source_duration_seconds",
    )
    now = [m * 60.0 for m in range(120)]
    signals = [
        _n("amdgpu_devices", flat(8, 120)),
        _n(source, flat(1, 120), source="gpu"),
        _n(last, now, source="gpu"),
        _n(took, flat(0.1, 120), source="gpu"),
        _n(state, flat(1, 120), state="off"),
        _n("amdgpu_exporter_series_dropped_total", flat(0, 120)),
        _n("amdgpu_exporter_config_last_reload_successful", flat(1, 120)),
        _n("amdgpu_exporter_child_starts_total", flat(1, 120), child="reader"),
    ]
    ok = "amdgpu_exporter_config_last_reload_successful"
    starts, reader = "amdgpu_exporter_child_starts_total", {"child": "reader"}
    gone = _n("amdgpu_exporter_build_info", flat(1, 30), version="1", python="3.11")
    return [
        fires(
            "AmdGpuExporterDown",
            "by the name of its job",
            [_n(up, [1] * 20 + [0] * 80, job="amdgpu-exporter")],
            {**NODE, "job": "amdgpu-exporter"},
            40,
        ),
        fires(
            "AmdGpuExporterDown",
            "a job of another name that was an exporter an hour ago",
            [_n(up, [1] * 20 + [0] * 80, job="gpus"), gone],
            {**NODE, "job": "gpus"},
            70,
        ),
        quiet("AmdGpuExporterDown", "somebody else's target", [_n(up, flat(0, 100), job="web"), BUILD], 40),
        quiet(
            "AmdGpuExporterDown", "every other scrape", [_n(up, alternating(1, 0, 200), job="amdgpu")], 40, 90
        ),
        fires("AmdGpuExporterAbsent", "none at all", [_n(up, flat(1, 60), job="web")], {}, 30),
        quiet("AmdGpuExporterAbsent", "one is there", [BUILD], 30, 60),
        fires(
            "AmdGpuTargetGone", "no longer discovered", [gone, _n(up, flat(1, 30), job="amdgpu")], NODE, 80
        ),
        quiet(
            "AmdGpuTargetGone",
            "down, but still a target",
            [gone, _n(up, [1] * 30 + [0] * 90, job="amdgpu")],
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
            [_n(source, [1] * 20 + [0] * 40, source="gpu")],
            {**NODE, "source": "gpu"},
            35,
        ),
        quiet(
            "AmdGpuSourceDown",
            "every other poll fails",
            [_n(source, alternating(1, 0, 200), source="gpu")],
            35,
            60,
        ),
        fires(
            "AmdGpuDataStale",
            "the last success is old",
            [_n(last, now[:20] + [now[20]] * 40, source="gpu")],
            {**NODE, "source": "gpu"},
            30,
        ),
        quiet("AmdGpuDataStale", "fresh", [_n(last, now, source="gpu")], 30, 60),
        fires(
            "AmdGpuCollectionSlow",
            "near its deadline",
            [_n(took, flat(1.9, 60), source="gpu")],
            {**NODE, "source": "gpu"},
            40,
        ),
        quiet(
            "AmdGpuCollectionSlow",
            "every other poll is slow",
            [_n(took, alternating(1.9, 0.1, 120), source="gpu")],
            40,
            55,
        ),
        fires(
            "AmdGpuSamplerTripped",
            "the breaker is open",
            [_n(state, flat(1, 60), state="tripped")],
            {**NODE, "state": "tripped"},
            30,
        ),
        quiet(
            "AmdGpuSamplerTripped",
            "off by choice",
            [_n(state, flat(1, 60), state="off"), _n(state, flat(0, 60), state="tripped")],
            30,
        ),
        fires(
            "AmdGpuSamplerBlocked",
            "someone profiles",
            [_n(state, flat(1, 60), state="blocked")],
            {**NODE, "state": "blocked"},
            50,
        ),
        quiet(
            "AmdGpuSamplerBlocked", "now and then", [_n(state, alternating(1, 0, 120), state="blocked")], 50
        ),
        fires(
            "AmdGpuSeriesLimit",
            "series are left out",
            [_n("amdgpu_exporter_series_dropped_total", ramp(12, 60))],
            NODE,
            40,
        ),
        quiet(
            "AmdGpuSeriesLimit",
            "they were, before",
            [_n("amdgpu_exporter_series_dropped_total", [0] + [40] * 90)],
            40,
            60,
        ),
        quiet(
            "AmdGpuSeriesLimit",
            "a restart",
            [_n("amdgpu_exporter_series_dropped_total", [40] * 30 + [0] * 60)],
            35,
            45,
        ),
        fires("AmdGpuConfigReloadFailed", "a broken file", [_n(ok, [1] * 10 + [0] * 50)], NODE, 30),
        quiet("AmdGpuConfigReloadFailed", "good", [_n(ok, flat(1, 60))], 30),
        fires(
            "AmdGpuReaderRestarts",
            "one every ten minutes",
            [_n(starts, ramp(0.1, 120, 1), **reader)],
            {**NODE, **reader},
            100,
        ),
        quiet("AmdGpuReaderRestarts", "one in an hour", [_n(starts, [1] * 50 + [2] * 70, **reader)], 60, 100),
        quiet(
            "AmdGpuReaderRestarts",
            "the reducer starts for each window",
            [_n(starts, ramp(1, 120), child="reducer")],
            100,
        ),
        quiet(
            "AmdGpuReaderRestarts",
            "the exporter restarts and counts from 1",
            [_n(starts, [2] * 50 + [1] * 70, **reader)],
            60,
        ),
    ]


CASES: tuple[Case, ...] = (*_devices(), *_windows(), *_exporter())
