"""Advice by verdict: the numbers that it stands on, and what else explains a good part of the window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.compare.advice import Advice, Facts, advice, evidence, facts_of, of_window
from exporter.compare.judge import Finding, Group, Verdict
from exporter.compare.stats import Estimate
from exporter.model import Bottleneck
from exporter.windows import intake
from exporter.windows.bottleneck import ADVICE

B = Bottleneck


def shares(executing: float, queued: float, launching: float, starved: float) -> dict[str, float | None]:
    assert executing + queued + launching + starved == pytest.approx(1)
    return {"executing": executing, "queued": queued, "launching": launching, "starved": starved}


# One hand-made case for each verdict: its facts, its evidence, and what else is said, in order.
CASES: dict[Bottleneck, tuple[Facts, str, list[str]]] = {
    B.COMMUNICATION: (
        Facts(B.COMMUNICATION, shares(0.8, 0.05, 0.05, 0.1), collectives=0.34),
        "collectives ran alone for 34% of the window",
        [],
    ),
    B.GPU_BOUND: (
        Facts(
            B.GPU_BOUND,
            shares(0.93, 0.03, 0.02, 0.02),
            top=("gemm_f16", 0.62),
            l2_hit_ratio=0.31,
            compute_density_ratio=0.04,
        ),
        "kernels ran for 93% of the window; gemm_f16 takes 62% of the kernels' time",
        ["L2 hit ratio 0.31", "vector instructions in 4% of the slots"],
    ),
    B.CONTENDED: (
        Facts(B.CONTENDED, shares(0.5, 0.3, 0.1, 0.1)),
        "work waited while no kernel ran for 30% of the window",
        [],
    ),
    B.COPY_BOUND: (
        Facts(B.COPY_BOUND, shares(0.3, 0.1, 0.1, 0.5), copies=0.45),
        "copies ran and no kernel did for 45% of the window",
        ["nothing ran, waited or was being launched for 50% of the window"],
    ),
    B.DEPENDENCY_BOUND: (
        Facts(
            B.DEPENDENCY_BOUND,
            shares(0.4, 0.5, 0.02, 0.08),
            kernel_seconds=20e-6,
            call_seconds=5e-6,
            launches=900,
        ),
        (
            "submitted kernels waited while none ran for 50% of the window; a kernel takes 20 us, "
            "its launch call 5 us, 900 launches"
        ),
        [],
    ),
    B.LAUNCH_BOUND: (
        Facts(
            B.LAUNCH_BOUND,
            shares(0.25, 0.1, 0.4, 0.25),
            kernel_seconds=3e-6,
            call_seconds=6e-6,
            launches=5000,
            top=("add", 0.9),
        ),
        (
            "launches were made or waited while no kernel ran for 50% of the window; a kernel takes 3 us, "
            "its launch call 6 us, 5000 launches"
        ),
        [
            "nothing ran, waited or was being launched for 25% of the window",
            "add takes 90% of the kernels' time",
        ],
    ),
    B.HOST_STALLED: (
        Facts(B.HOST_STALLED, shares(0.1, 0.02, 0.03, 0.85)),
        "nothing ran, waited or was being launched for 85% of the window",
        [],
    ),
    B.BALANCED: (
        Facts(
            B.BALANCED, shares(0.5, 0.05, 0.15, 0.3), kernel_seconds=4e-6, call_seconds=2e-6, launches=2000
        ),
        (
            "nothing ran, waited or was being launched for 30% of the window; submitted kernels waited while "
            "none ran for 5% of the window; the host was launching while no kernel ran for 15% of the window"
        ),
        [
            "a kernel takes 4 us, its launch call 2 us, 2000 launches",
            "nothing ran, waited or was being launched for 30% of the window",
        ],
    ),
    B.UNKNOWN: (Facts(B.UNKNOWN, {}, reason="untraced_process"), "untraced process", []),
}


def test_there_is_a_case_for_every_verdict() -> None:
    assert set(CASES) == set(Bottleneck)


@pytest.mark.parametrize("verdict", Bottleneck)
def test_each_verdict_is_told_with_its_numbers_and_ranked_by_what_it_explains(verdict: Bottleneck) -> None:
    facts, shown, beside = CASES[verdict]
    first, *more = of_window(facts)
    assert first == Advice(ADVICE[verdict].attempt, shown)
    assert evidence(facts) == shown
    assert [one.evidence for one in more] == beside
    assert all(one.text.endswith(".") for one in more)


@pytest.mark.parametrize("verdict", Bottleneck)
def test_without_numbers_there_is_the_verdict_alone_and_no_number_is_made_up(verdict: Bottleneck) -> None:
    bare = Facts(verdict)
    assert of_window(bare) == [Advice(ADVICE[verdict].attempt, ADVICE[verdict].meaning)]
    assert evidence(bare) == ""


def test_a_healthy_gpu_gets_no_advice_about_idle_time_or_short_kernels() -> None:
    facts = Facts(
        B.GPU_BOUND, shares(0.97, 0.01, 0.01, 0.01), kernel_seconds=3e-6, launches=9000, l2_hit_ratio=0.9
    )
    assert len(of_window(facts)) == 1


def test_a_long_name_is_cut_and_the_heaviest_kernel_is_named() -> None:
    facts = replace(CASES[B.GPU_BOUND][0], top=("k" * 200, 0.5))
    assert len(evidence(facts)) < 140


@pytest.mark.parametrize("name", ["gpu_bound", "launch_bound"])
def test_the_facts_of_a_window_are_those_of_its_result(samples: Path, name: str) -> None:
    [result] = intake.load([samples / "launch-traces" / f"{name}.json.gz"]).results
    facts = facts_of(result)
    assert facts.bottleneck is result.bottleneck
    assert result.span_ns
    assert facts.timeline == pytest.approx(
        {state: (ns or 0) / result.span_ns for state, ns in result.timeline_ns.items()}
    )
    heaviest = max(result.kernel_stats, key=lambda k: k.total_ns)
    assert facts.top is not None
    assert facts.top[0] == heaviest.kernel
    assert f"{facts.timeline['executing']:.0%}" in evidence(facts) or name != "gpu_bound"


# --- of a comparison ------------------------------------------------------------------------------------


def finding(gpu: str, change: float, verdict: Verdict = Verdict.WORSE) -> Finding:
    estimate = Estimate(change, change - 0.01, change + 0.01, 0.001, 20.0, False)
    return Finding(gpu, None, "gemm", "kernel_seconds", verdict, estimate=estimate)


def group(gpu: str, **after: float) -> Group:
    return Group(gpu, None, (), {}, (), after=after)


def test_what_got_worse_is_told_with_what_the_gpu_does_now_while_it_does_not_compute() -> None:
    found = advice(
        [finding("0", 0.2)], [group("0", executing_ratio=0.5, starved_ratio=0.4, queued_ratio=0.1)]
    )
    assert [one.evidence for one in found] == [
        "GPU 0: gemm, kernel_seconds +20.0%, between +19.0% and +21.0%",
        "GPU 0, after: nothing ran, waited or was being launched for 40% of the window",
    ]
    assert found[1].text == ADVICE[B.HOST_STALLED].attempt


@pytest.mark.parametrize(
    ("gpu", "after"),
    [
        ("1", {"executing_ratio": 0.5, "starved_ratio": 0.5}),  # another GPU
        ("0", {"executing_ratio": 0.9, "starved_ratio": 0.1}),  # it computes nearly all the time
        ("0", {"executing_ratio": 0.7, "starved_ratio": 0.1, "queued_ratio": 0.1}),  # nothing stands out
        ("0", {"executing_ratio": 0.2}),  # idle, and nobody knows why
    ],
)
def test_nothing_is_said_of_idle_time_that_is_not_of_this_gpu_small_or_unexplained(
    gpu: str, after: dict[str, float]
) -> None:
    assert len(advice([finding("0", 0.2)], [group(gpu, **after)])) == 1


def test_where_nothing_is_worse_there_is_no_advice() -> None:
    better = finding("0", -0.2, Verdict.BETTER)
    assert advice([better], [group("0", executing_ratio=0.1, starved_ratio=0.9)]) == []
