"""Cases of alerts on why a GPU is slow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.rules.cases.case import HOUR, Case, fires, of_gpu, quiet
from tests.rules.made import (
    BALANCED,
    COMMUNICATION,
    COPY_BOUND,
    GPU_BOUND,
    HOST_STALLED,
    LAUNCH_BOUND,
    Series,
    counted,
    every,
    flat,
    gap,
    gpu,
    once,
    reset,
    traced,
)


def cases() -> list[Case]:
    delay, bound, starved = "AmdGpuQueueDelayHigh", "AmdGpuLaunchBound", "AmdGpuHostStarved"
    launch_bound, saturated, stalled = ([w] for w in (LAUNCH_BOUND, GPU_BOUND, HOST_STALLED))
    three = 3 * HOUR
    one_firing = (f'changes(ALERTS_FOR_STATE{{alertname="{delay}"}}[2h])', 170, 0.0)
    still = replace(GPU_BOUND, verdict="balanced")
    skewed = replace(BALANCED, skewed=60)
    busy = of_gpu("amdgpu_busy_ratio", flat(0.7, 300), engine="gfx")
    there = of_gpu("amdgpu_info", flat(1, 300), uuid="1")
    split = [of_gpu("amdgpu_info", [None] * 60 + flat(1, 240), partition=p, uuid="1") for p in ("0", "1")]
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
            [busy, there, *((n, v[:60] + [v[60]] * 120) for n, v in traced([BALANCED], three))],
            {**gpu(), "mode": "trace"},
            135,
        ),
        quiet(
            "AmdGpuWindowsStopped",
            "the partition mode was changed: windows come under other names",
            [
                busy,
                of_gpu("amdgpu_info", flat(1, 60), uuid="1"),
                *split,
                *((n, v[:60]) for n, v in traced([BALANCED], three)),
                *(
                    (n, [None] * 60 + v[60:])
                    for p in ("0", "1")
                    for n, v in traced([BALANCED], three, {**gpu(), "partition": p})
                ),
            ],
            *range(65, 180, 10),
        ),
        quiet(
            "AmdGpuWindowsStopped",
            "they stopped with the job",
            [
                there,
                of_gpu("amdgpu_busy_ratio", [0.7] * 60 + [0] * 200, engine="gfx"),
                *((n, v[:60] + [v[60]] * 120) for n, v in traced([BALANCED], three)),
            ],
            135,
        ),
        quiet("AmdGpuWindowsStopped", "they still come", [busy, there, *traced([BALANCED], three)], 100, 170),
        quiet(bound, "every other window", traced([LAUNCH_BOUND, GPU_BOUND], three), 60, 90, 120, 170),
        quiet(bound, "a restart while healthy", every(reset, traced(saturated, three), 92), 95, 110, 150),
        quiet(
            "AmdGpuCommunicationBound",
            "every other window",
            traced([COMMUNICATION, GPU_BOUND], three),
            90,
            170,
        ),
        quiet("AmdGpuCopyBound", "every other window", traced([COPY_BOUND, GPU_BOUND], three), 90, 170),
        quiet(
            "AmdGpuClockSkew",
            "now and then",
            traced([replace(BALANCED, skewed=25), BALANCED], three),
            90,
            170,
        ),
        quiet("AmdGpuClockSkew", "a restart", every(reset, traced([BALANCED], three), 92), 95, 110, 150),
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
        quiet(
            name,
            "the exporter restarts and counts from 0",
            every(reset, node(1, 1.02, 1.05, 0.98), 62),
            65,
            90,
        ),
        quiet(
            name,
            "a single slow window",
            [*node(1, 1.02, 0.98), *traced(once(work(1.3)[0], work(1)[0], 6, 12), 120, gpu(3))],
            *range(60, 120, 10),
        ),
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
