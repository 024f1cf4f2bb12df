"""Cases of alerts on memory and on who holds a GPU."""

from __future__ import annotations

from tests.rules.cases.case import NODE, Case, fires, of_gpu, quiet
from tests.rules.made import Series, Values, alternating, flat, gap, gpu, ramp, series

BUSY, OWNER, USED = "amdgpu_busy_ratio", "amdgpu_workload_info", "amdgpu_memory_used_bytes"
SIZE = 100.0
JOB = {"kind": "slurm", "job_id": "4711", "user": "ada"}
POD = {"kind": "pod", "namespace": "ml", "pod": "train-0"}


def cases() -> list[Case]:
    return [*_memory(), *_idle(), *_spread()]


def _busy(values: Values, n: int = 0, engine: str = "gfx") -> Series:
    return of_gpu(BUSY, values, n, engine=engine)


def _held(minutes: int, n: int = 0, **owner: str) -> Series:
    return of_gpu(OWNER, flat(1, minutes), n, **owner)


def _memory() -> list[Case]:
    name, size = "AmdGpuVramNearFull", of_gpu("amdgpu_memory_size_bytes", flat(SIZE, 200), pool="vram")

    def used(values: Values) -> list[Series]:
        return [size, of_gpu(USED, [v and v * SIZE for v in values], pool="vram")]

    leak = ramp(0.0005, 150, 0.93)
    return [
        fires(name, "a leak, above 98 % since minute 100", used(leak), gpu(), 130, 145),
        fires(name, "a leak with a gap in the data", used(gap(leak, 110, 112)), gpu(), 145),
        quiet(name, "a leak that is not there yet", used(leak), 60, 90),
        quiet(
            name,
            "a model server takes all of it and keeps it",
            used(flat(0.2, 30) + flat(0.995, 120)),
            *range(30, 150, 5),
        ),
        quiet(name, "nearly full for ever", used(flat(0.99, 150)), 40, 100),
        quiet(name, "up and down below one peak", used(alternating(0.97, 0.995, 150)), 60, 100, 140),
        quiet(name, "a single spike", used([*flat(0.9, 60), 1.0, *flat(0.9, 80)]), 61, 70, 90),
        quiet(
            name,
            "a job ends, the next one fills up",
            used(ramp(0.0005, 120, 0.93) + flat(0.01, 10) + flat(0.985, 60)),
            160,
            185,
        ),
    ]


def _idle() -> list[Case]:
    name, idle = "AmdGpuIdleAllocated", flat(0.01, 260)
    other = {**JOB, "job_id": "4712"}
    turns = [
        of_gpu(OWNER, [1.0 if m // 50 % 2 == t else None for m in range(260)], **who)
        for t, who in enumerate((JOB, other))
    ]
    return [
        fires(name, "a job holds it and idles", [_busy(idle), _held(260, **JOB)], {**gpu(), **JOB}, 100, 200),
        fires(name, "a pod too", [_busy(idle), _held(260, **POD)], {**gpu(), **POD}, 100),
        fires(
            name,
            "one pod in two containers is one holder",
            [_busy(idle), *(_held(260, **POD, container=c) for c in ("main", "side"))],
            {**gpu(), **POD},
            100,
        ),
        quiet(name, "idle for less than an hour", [_busy(idle), _held(260, **JOB)], 30, 55),
        quiet(name, "nobody holds it", [_busy(idle)], 100, 200),
        quiet(
            name, "a user's own process holds it", [_busy(idle), _held(260, kind="process", user="ada")], 100
        ),
        quiet(name, "it works", [_busy(flat(0.5, 260)), _held(260, **JOB)], 100),
        quiet(
            name,
            "it decodes video",
            [_busy(idle), _busy(flat(0.4, 260), engine="vcn"), _held(260, **JOB)],
            100,
        ),
        quiet(
            name,
            "it works for two minutes in every quarter of an hour",
            [_busy([0.9 if m % 14 < 2 else 0.0 for m in range(260)]), _held(260, **JOB)],
            *range(60, 260, 20),
        ),
        quiet(
            name,
            "jobs of fifty minutes take turns and do nothing",
            [_busy(idle), *turns],
            *range(60, 260, 20),
        ),
        quiet(
            name, "two share it: who idles?", [_busy(idle), _held(260, **JOB), _held(260, **other)], 100, 200
        ),
        quiet(name, "its readings are gone", [_held(260, **JOB)], 100),
    ]


def _spread() -> list[Case]:
    name, node = "AmdGpuJobImbalance", "AmdGpuImbalance"

    def job(*shares: float, who: dict[str, str] = JOB) -> list[Series]:
        return [s for n, b in enumerate(shares) for s in (_busy(flat(b, 120), n), _held(120, n, **who))]

    elsewhere = {**gpu(5), "instance": "gpu-node-2:9408"}
    far = [
        series(BUSY, flat(0.1, 120), **elsewhere, engine="gfx"),
        series(OWNER, flat(1, 120), **elsewhere, **JOB),
    ]
    two = [*job(0.95, 0.9), *(s for n in (2, 3) for s in (_busy(flat(0.1, 120), n), _held(120, n, **POD)))]
    return [
        fires(name, "one of four idles", job(0.95, 0.9, 0.92, 0.0), JOB, 60, 110),
        fires(name, "the lazy one is on another node", [*job(0.95, 0.9), *far], JOB, 60),
        fires(name, "GPUs of a pod", job(0.95, 0.1, who=POD), POD, 60),
        quiet(name, "all alike", job(0.95, 0.9, 0.85), 60, 110),
        quiet(name, "a whole job idles: that is another alert", job(0.04, 0.0, 0.01), 60),
        quiet(name, "a job of one GPU", job(0.95), 60),
        quiet(name, "two jobs, each busy in its own way", two, 60, 110),
        quiet(
            name,
            "each in turn",
            [
                *(_held(200, n, **JOB) for n in (0, 1)),
                _busy(alternating(0.95, 0.1, 200), 0),
                _busy(alternating(0.1, 0.95, 200), 1),
            ],
            60,
            90,
            step="30s",
        ),
        quiet(node, "two workloads share the node", two, 60, 110),
        fires(node, "one job on the node", job(0.95, 0.9, 0.2), NODE, 60),
    ]
