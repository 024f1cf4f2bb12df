"""Differences and their certainty: exact values where theory has them, laws where it has not."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.compare import stats


@pytest.mark.parametrize(
    ("p", "freedom", "quantile"),
    # Printed in every table of Student's distribution.
    [(0.975, 1, 12.706), (0.975, 4, 2.776), (0.975, 10, 2.228), (0.975, 30, 2.042), (0.995, 8, 3.355)],
)
def test_quantiles_of_student_are_those_of_the_tables(p: float, freedom: float, quantile: float) -> None:
    assert stats.t_quantile(p, freedom) == pytest.approx(quantile, abs=5e-4)
    assert stats.t_probability(quantile, freedom) == pytest.approx(p, abs=1e-4)
    assert stats.t_probability(-quantile, freedom) == pytest.approx(1 - p, abs=1e-4)


def test_ranks_of_separated_runs_have_their_exact_probability() -> None:
    a, b = [1.0, 1.01, 1.02, 1.03, 1.04], [2.0, 2.01, 2.02, 2.03, 2.04]
    found = stats.of_runs(a, b)
    # 2 of the 252 ways in which ten runs can be ranked are this clear.
    assert found.p == pytest.approx(2 / 252)
    assert found.low < found.change < found.high
    assert found.change == pytest.approx(2.02 / 1.02 - 1, rel=0.02)
    assert not found.within_run


def test_the_interval_of_runs_leaves_out_as_much_as_the_tables_say() -> None:
    # U <= 2 has 4 of 252 ways, U <= 3 has 7: the third smallest shift is the last that may bound 95 %.
    a, b = [10.0, 20.0, 40.0, 80.0, 160.0], [11.0, 23.0, 47.0, 97.0, 211.0]
    shifts = sorted(y / x for x in a for y in b)
    found = stats.of_runs(a, b)
    assert found.low == pytest.approx(shifts[2] - 1)
    assert found.high == pytest.approx(shifts[-3] - 1)


def test_too_few_runs_and_values_without_a_factor_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5"):
        stats.of_runs([1.0] * 4, [1.0] * 9)
    with pytest.raises(ValueError, match="positive"):
        stats.of_runs([1.0] * 5, [0.0] * 5)
    with pytest.raises(ValueError, match="positive"):
        stats.of_windows([], [1.0])


def test_equal_sides_do_not_differ() -> None:
    same = [1.0] * 20
    for found in (stats.of_runs(same, same), stats.of_windows(same, same)):
        assert found is not None
        assert (found.change, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_few_independent_windows_give_no_answer() -> None:
    assert stats.of_windows([1.0, 1.1, 1.2], [1.0, 1.1, 1.2]) is None
    rising = [1.0 + n / 100 for n in range(60)]
    assert stats.of_windows(rising, rising) is None, "each follows the one before"


def test_the_same_windows_give_the_same_answer() -> None:
    draw = random.Random(1)
    a, b = ([math.exp(draw.gauss(0, 0.1)) for _ in range(40)] for _ in range(2))
    assert stats.of_windows(a, b) == stats.of_windows(a, b)


def test_holm_is_as_published() -> None:
    # The smallest times four, the next times three and not below it, and so on.
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.8]) == [1.0, 1.0]
    assert stats.holm([]) == []


def test_correlation_is_found_through_outliers() -> None:
    draw = random.Random(2)
    found = []
    for _ in range(40):
        value, series = 0.0, []
        for n in range(200):
            value = 0.5 * value + math.sqrt(0.75) * draw.gauss(0, 1)
            series.append(value + (20 if n % 12 == 5 else 0))
        found.append(stats.correlation(series))
    assert sum(found) / len(found) == pytest.approx(0.5, abs=0.06)


AMOUNTS = st.lists(st.floats(1e-3, 1e3), min_size=5, max_size=60)


@given(AMOUNTS, AMOUNTS)
def test_every_answer_is_ordered_and_turning_the_sides_turns_it(a: list[float], b: list[float]) -> None:
    for way in (stats.of_runs, stats.of_windows):
        there, back = way(a, b), way(b, a)
        assert (there is None) == (back is None)
        if there is None or back is None:
            continue
        assert there.low <= there.change <= there.high
        assert 0 <= there.p <= 1
        assert back.p == pytest.approx(there.p)
        assert 1 + back.change == pytest.approx(1 / (1 + there.change), rel=1e-6)
