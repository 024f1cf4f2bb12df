"""Planted truths, a part of the whole: ``make proof-compare`` prints every row over 1,000 seeds.

Bounds take into account how few seeds are drawn here: a rate is too high where so many hits would come less
than once in a thousand times, were the bound true.
"""

from __future__ import annotations

import pytest

from tests.tools import compare_truths as truths

SEEDS = 60
COVERED = 150
MANY = "200 kernels of which 3 changed, 10 runs a side, effect 20%"
_SEEDS_OF = {"1 run of 150": 12, "1 run of 60": 25}


@pytest.mark.parametrize("name", truths.PLANTED)
def test_nothing_that_did_not_change_is_called_better_or_worse(name: str) -> None:
    truth = truths.PLANTED[name]
    seeds = next((n for start, n in _SEEDS_OF.items() if name.startswith(start)), SEEDS)
    false, power, silent = truths.judged(truth, seeds)
    print(f"{name}: false {false.share:.3f}, power {power.share:.3f}, silent {silent} of {seeds}")
    assert not false.more_than(truths.LEVEL)
    if truth.effect == 0.20:
        assert power.hits >= 0.5 * power.said, "a fifth slower is seen more often than not"


def test_among_200_kernels_the_three_that_changed_are_found_and_no_other() -> None:
    false, power, _ = truths.judged(truths.MANY[MANY], 6)
    print(f"{MANY}: false {false.share:.3f}, power {power.share:.3f}")
    assert not false.more_than(truths.LEVEL)
    assert power.share > 0.5


@pytest.mark.parametrize("name", truths.CONFOUNDED)
def test_a_planted_confounder_is_not_comparable(name: str) -> None:
    rate = truths.confounded(*truths.CONFOUNDED[name], 100)
    print(f"{name}: not comparable {rate.share:.3f} of {rate.said}")
    assert rate.share >= 0.99


@pytest.mark.parametrize(
    ("rho", "n", "least"), [(0.0, 32, 0.935), (0.5, 90, 0.935), (0.3, 20, 0.93), (0.5, 50, 0.93)]
)
def test_the_interval_over_windows_holds_the_truth_as_often_as_it_says(
    rho: float, n: int, least: float
) -> None:
    rate = truths.coverage(rho, n, COVERED)
    print(f"{n} windows a side, rho {rho}: {rate.share:.3f} of {rate.said}")
    assert rate.said > COVERED / 5
    assert not truths.Rate(rate.said - rate.hits, rate.said).more_than(1 - least)
    assert least < 0.935 or not rate.more_than(0.965)


@pytest.mark.parametrize("runs", [5, 8, 32])
def test_the_interval_over_runs_holds_the_truth_as_often_as_it_says(runs: int) -> None:
    rate = truths.coverage_of_runs(runs, 300)
    print(f"{runs} runs a side: {rate.share:.3f}")
    least = 0.935 if runs >= 30 else 0.93
    assert not truths.Rate(rate.said - rate.hits, rate.said).more_than(1 - least)
    assert runs < 30 or not rate.more_than(0.965)
