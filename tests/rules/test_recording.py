"""Recording rules give the values of series whose truth is known, whatever is sampled, reset or absent."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from alerts import recording
from alerts.settings import read
from tests.rules.made import (
    BALANCED,
    GPU_BOUND,
    HOST_STALLED,
    LAUNCH_BOUND,
    Series,
    counted,
    every,
    flat,
    gpu,
    ramp,
    reset,
    series,
    traced,
    write,
)
from tests.rules.test_rules_fire import PROMTOOLS, needed

MINUTES = 120
G = gpu()


@dataclass(frozen=True)
class Truth:
    """What an expression must give, within ``tolerance`` of the value; None is absent."""

    name: str
    given: Sequence[Series]
    expr: str
    value: float | None
    tolerance: float = 0.001
    minute: int = 100


def _g(name: str, per_minute: float, n: int = 0, **labels: str) -> Series:
    return series(name, ramp(per_minute, MINUTES), **gpu(n), **labels)


def _busy(*shares: float) -> list[Series]:
    return [
        series("amdgpu_busy_ratio", flat(b, MINUTES), **gpu(n), engine="gfx") for n, b in enumerate(shares)
    ]


LAUNCHES = traced([LAUNCH_BOUND], MINUTES)
BOTH = [*LAUNCHES, *traced([GPU_BOUND], MINUTES, gpu(1))]
# One pass of counters: a tenth of a second in which 41 of 100 slots were used.
DENSITY = [
    _g("amdgpu_valu_instructions_total", 41e6),
    _g("amdgpu_counters_available_instructions_total", 100e6, set="compute"),
    _g("amdgpu_counters_observed_seconds_total", 0.1, set="compute"),
]
KERNELS = traced([replace(BALANCED, kernels={"gemm": (0.009, 60), "other": (0.003, 40)})], MINUTES)
TEMPERATURE = [
    series("amdgpu_temperature_celsius", flat(97, MINUTES), **G, sensor="junction"),
    series("amdgpu_temperature_celsius", flat(91, MINUTES), **G, sensor="mem"),
    series("amdgpu_temperature_limit_celsius", flat(100, MINUTES), **G, sensor="junction", limit="critical"),
    series("amdgpu_temperature_limit_celsius", flat(95, MINUTES), **G, sensor="mem", limit="critical"),
    series("amdgpu_temperature_limit_celsius", flat(105, MINUTES), **G, sensor="mem", limit="emergency"),
]
PROBED = [
    *(
        series(
            "amdgpu_probe_bandwidth_bytes_per_second",
            flat(rate, MINUTES),
            **gpu(n),
            peer=peer,
            direction=direction,
        )
        for n, peer, direction, rate in (
            (0, "0000:25:00.0", "transmitted", 48e9),
            (1, "0000:05:00.0", "transmitted", 36e9),
            (1, "self", "transmitted", 2e12),
            (1, "cpu0", "received", 1e9),
        )
    ),
    *(
        series("amdgpu_probe_operations_per_second", flat(rate, MINUTES), **gpu(n), precision=kind)
        for n, kind, rate in ((0, "f16", 6e14), (1, "f16", 3e14), (0, "f32", 1e14), (1, "f32", 1e14))
    ),
]
NODES = [
    s
    for i, (seen, due) in enumerate(((8, 8), (7, 8)))
    for s in (
        series("amdgpu_devices", flat(seen, MINUTES), instance=f"n{i}"),
        series("amdgpu_expected_devices", flat(due, MINUTES), instance=f"n{i}"),
    )
]

TRUTHS = (
    Truth("queue delay of launches", LAUNCHES, "gpu:amdgpu_queue_delay:ratio40m", 0.01105 / 0.01242),
    Truth(
        "queue delay across a restart",
        every(reset, LAUNCHES, 88),
        "gpu:amdgpu_queue_delay:ratio40m",
        0.01105 / 0.01242,
    ),
    Truth("queue delay is absent without launches", _busy(0.5), "gpu:amdgpu_queue_delay:ratio40m", None),
    Truth(
        "of windows that differ: sums over sums, no mean of ratios",
        traced([LAUNCH_BOUND, HOST_STALLED], MINUTES),
        "gpu:amdgpu_queue_delay:ratio40m",
        (0.01105 + 0.00086) / (0.01242 + 0.0079),
        0.03,
    ),
    Truth("mean queue time", LAUNCHES, "gpu:amdgpu_launch_queue:mean40m", 0.01105 / 1500, 1e-8),
    Truth("mean launch duration", LAUNCHES, "gpu:amdgpu_launch_duration:mean40m", 0.01242 / 1500, 1e-8),
    Truth(
        "executing share",
        LAUNCHES,
        'gpu:amdgpu_timeline:ratio40m{state="executing"}',
        LAUNCH_BOUND.timeline[0] / LAUNCH_BOUND.span,
    ),
    Truth("the timeline adds up to 1", LAUNCHES, "sum(gpu:amdgpu_timeline:ratio40m)", 1),
    Truth("windows in the range", LAUNCHES, "gpu:amdgpu_trace_windows:increase40m", 4, 0.2),
    Truth("verdicts", LAUNCHES, 'gpu:amdgpu_window_verdicts:ratio40m{bottleneck="launch_bound"}', 1),
    Truth("kernel share", KERNELS, 'gpu:amdgpu_kernel_share:ratio40m{kernel="gemm"}', 0.75),
    Truth("kernel mean", KERNELS, 'gpu:amdgpu_kernel:mean40m{kernel="gemm"}', 0.009 / 60, 1e-7),
    Truth("the rest has no mean", KERNELS, 'gpu:amdgpu_kernel:mean40m{kernel="other"}', None),
    Truth("density", DENSITY, "gpu:amdgpu_compute_density:ratio40m", 0.41),
    Truth("instructions per observed second", DENSITY, "gpu:amdgpu_valu_instructions:rate40m", 4.1e8, 1e3),
    Truth("density is absent without slots", DENSITY[:1], "gpu:amdgpu_compute_density:ratio40m", None),
    Truth("L2", counted([0.8], MINUTES), "gpu:amdgpu_l2_hit:ratio40m", 0.8),
    Truth("L2 of unequal windows", counted([0.9, 0.5], MINUTES), "gpu:amdgpu_l2_hit:ratio40m", 0.7, 0.02),
    Truth(
        "skewed launches",
        traced([replace(BALANCED, skewed=100)], MINUTES),
        "gpu:amdgpu_launches_skewed:ratio40m",
        100 / 400,
    ),
    Truth("busy", _busy(0.9, 0.1), 'gpu:amdgpu_busy:avg15m{gpu="1"}', 0.1),
    Truth("busy of a node", _busy(0.9, 0.1), "node:amdgpu_busy:avg15m", 0.5),
    Truth("spread counts working GPUs", _busy(0.9, 0.4, 0.01), "node:amdgpu_busy:spread15m", 0.5),
    Truth("one working GPU has no spread", _busy(0.9, 0.01), "node:amdgpu_busy:spread15m", None),
    Truth(
        "queue delay of a node",
        BOTH,
        "node:amdgpu_queue_delay:ratio40m",
        (0.01105 + 3.274) / (0.01242 + 3.3133),
    ),
    Truth(
        "queue delay of the cluster",
        BOTH,
        "cluster:amdgpu_queue_delay:ratio40m",
        (0.01105 + 3.274) / (0.01242 + 3.3133),
    ),
    Truth(
        "executing spread of a node",
        BOTH,
        "node:amdgpu_executing:spread40m",
        GPU_BOUND.timeline[0] / GPU_BOUND.span - LAUNCH_BOUND.timeline[0] / LAUNCH_BOUND.span,
    ),
    Truth("slowest copy between GPUs over the fastest", PROBED, "node:amdgpu_probe_bandwidth:least", 0.75),
    Truth(
        "slowest GPU over the fastest",
        PROBED,
        'node:amdgpu_probe_operations:least{precision="f16"}',
        0.5,
    ),
    Truth("no probe, no ratio", _busy(0.5), "node:amdgpu_probe_bandwidth:least", None),
    Truth("the sensor nearest to its limit", TEMPERATURE, "gpu:amdgpu_temperature_over_limit:celsius", -3),
    Truth("GPUs of the cluster", NODES, "cluster:amdgpu_devices:sum", 15),
    Truth("GPUs missing in the cluster", NODES, "cluster:amdgpu_devices_missing:sum", 1),
    Truth("nodes of the cluster", NODES, "cluster:amdgpu_nodes:count", 2),
)


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda t: t.name)
def test_a_rule_gives_the_known_value(truth: Truth, tmp_path: Path) -> None:
    promtool = PROMTOOLS["installed"]
    if promtool is None:
        pytest.skip("promtool is not installed; tests/install-parts fetches it")
    known = {r.name: r.expr for group in recording.groups(read()).values() for r in group}
    wanted = needed(truth.expr, known)
    rules = [{"record": n, "expr": e} for n, e in known.items() if n in wanted]
    (tmp_path / "r.yml").write_text(json.dumps({"groups": [{"name": "g", "interval": "1m", "rules": rules}]}))
    # A comparison with both bounds, because promtool itself knows no tolerance.
    near = f"abs(max({truth.expr}) - {truth.value or 0:.15g}) <= bool {truth.tolerance:.15g}"
    found = [] if truth.value is None else [{"labels": "{}", "value": 1}]
    test = {
        "interval": "1m",
        "input_series": [{"series": n, "values": write(v)} for n, v in truth.given],
        "promql_expr_test": [{"expr": near, "eval_time": f"{truth.minute}m", "exp_samples": found}],
    }
    (tmp_path / "t.yml").write_text(json.dumps({"rule_files": ["r.yml"], "tests": [test]}))
    done = subprocess.run([promtool, "test", "rules", "t.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
