"""How much two sides differ, and how sure that is. Pure.

Values are positive (times, ratios) and compared by their logarithms, so that an effect is a factor. The unit
is the run: with enough runs on both sides their medians are ranked, which assumes nothing of their
distribution. With fewer, windows within the runs there are have to do: those follow one another, so blocks of
them are drawn anew, and the spread is corrected for what blocks of that length cannot see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, exp, lgamma, log, sqrt
from statistics import NormalDist, fmean, median

LEVEL = 0.95
RUNS_LEAST = 5
EFFECTIVE_LEAST = 8.0
_DRAWS = 400
_EXACT_MOST = 40  # runs a side up to which ranks are counted exactly
_RHO_MOST = 0.97
_OUTLYING = 3.5  # times the usual distance from the median
_BLOCKS_LEAST = 4
_BLOCK = 2.0  # times the correlation time
_CAUTION = 15.0  # standard errors at one independent value
_CAUTION_FEW = 450.0  # the same, where few: it counts below 30 of them
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Relative change from the first side to the second, with its interval at LEVEL.

    ``p`` is the probability of a difference at least as large if there were none. ``effective`` is the number
    of independent values of the smaller side. ``within_run``: how runs differ among themselves is not known.
    """

    change: float
    low: float
    high: float
    p: float
    effective: float
    within_run: bool


def of_runs(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> Estimate:
    """Compare one value per run: the median of all pairwise factors, its interval by exact ranks.

    Errors: ValueError for fewer than RUNS_LEAST runs on a side, or values that are not positive.
    """
    if min(len(a), len(b)) < RUNS_LEAST:
        raise ValueError(f"{len(a)} and {len(b)} runs: at least {RUNS_LEAST} a side are needed")
    x, y = _logs(a), _logs(b)
    shifts = sorted(v - u for u in x for v in y)
    n, m = len(x), len(y)
    # U, the number of pairs in which the second is larger; a tie is half a pair.
    u = sum(1.0 if s > 0 else 0.5 if s == 0 else 0.0 for s in shifts)
    cut = _cut(n, m, 1 - level)
    return Estimate(
        _factor(median(shifts)),
        _factor(shifts[cut]),
        _factor(shifts[-1 - cut]),
        _p_of_ranks(u, n, m),
        float(min(n, m)),
        within_run=False,
    )


def of_windows(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> Estimate | None:
    """Compare windows within few runs, in the order in which they were taken.

    Absent: fewer than EFFECTIVE_LEAST of a side are independent.
    Errors: ValueError for values that are not positive.
    """
    sides = (_Side(_logs(a)), _Side(_logs(b)))
    effective = min(side.effective for side in sides)
    if effective < EFFECTIVE_LEAST:
        return None
    d = sides[1].middle - sides[0].middle
    variances = [side.variance() for side in sides]
    spread = sqrt(sum(variances))
    if spread == 0:
        return Estimate(
            _factor(d), _factor(d), _factor(d), 1.0 if d == 0 else 0.0, effective, within_run=True
        )
    # Degrees of freedom as Welch takes them; a variance out of blocks is known as well as there are blocks.
    freedom = sum(variances) ** 2 / sum(v**2 / s.freedom for v, s in zip(variances, sides, strict=True))
    reach = t_quantile((1 + level) / 2, freedom) * spread
    p = 2 * (1 - t_probability(abs(d) / spread, freedom))
    return Estimate(_factor(d), _factor(d - reach), _factor(d + reach), p, effective, within_run=True)


def least_p(n: int, m: int) -> float:
    """The smallest probability that so many runs can give."""
    return 2 / comb(n + m, n)


def holm(values: Sequence[float]) -> list[float]:
    """p-values adjusted so that the chance of even one false finding among all stays below the level."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        found[index] = highest
    return found


def correlation(values: Sequence[float]) -> float:
    """Lag-1 correlation, corrected for what a short series hides, between 0 and just below 1.

    Outlying values take no part: a single one makes neighbours look unrelated.
    """
    n = len(values)
    if n < 4:
        return 0.0
    middle = median(values)
    bound = _OUTLYING * 1.4826 * median([abs(v - middle) for v in values])
    kept = [abs(v - middle) <= bound for v in values]
    mean = fmean(v for v, ok in zip(values, kept, strict=True) if ok)
    spread = fmean((v - mean) ** 2 for v, ok in zip(values, kept, strict=True) if ok)
    both = [
        (u - mean) * (v - mean)
        for u, v, ok, too in zip(values, values[1:], kept, kept[1:], strict=False)
        if ok and too
    ]
    if spread == 0 or not both:
        return 0.0
    rho = fmean(both) / spread
    rho += (1 + 4 * rho) / n  # a mean taken from the same values bends it down
    return min(max(rho, 0.0), _RHO_MOST)


class _Side:
    """One side's windows: their median, how many count as independent, how far the median may be off."""

    def __init__(self, values: list[float]) -> None:
        self._values = values
        n = len(values)
        rho = correlation(values)
        self.middle = median(values)
        self.effective = n * (1 - rho) / (1 + rho)
        # Seen higher than estimated, the more so the less is known: too low makes sure of what is not, too
        # high only hesitates; and of short series those pass the minimum whose correlation came out too low.
        caution = max(_CAUTION / self.effective, _CAUTION_FEW / self.effective**2)
        self._rho = min(_RHO_MOST, rho + caution * sqrt((1 - rho * rho) / n))
        time = (1 + self._rho) / (1 - self._rho)
        self._block = min(max(1, round(_BLOCK * time)), max(1, n // _BLOCKS_LEAST))
        # Overlapping blocks tell half as much again as blocks side by side.
        self.freedom = max(1.0, min(n - 1, 1.5 * n / self._block - 1))

    def variance(self) -> float:
        """Variance of the median, from medians of blocks drawn anew."""
        values, n, rho, block = self._values, len(self._values), self._rho, self._block
        # The series closed to a ring, so that each value is drawn equally often.
        ring = values + values[: block - 1]
        count = -(-n // block)
        random = _Random(values)
        middles = []
        for _ in range(_DRAWS):
            drawn: list[float] = []
            for start in random.numbers(count, n):
                drawn += ring[start : start + block]
            del drawn[n:]
            drawn.sort()
            half = n // 2
            middles.append(drawn[half] if n % 2 else (drawn[half - 1] + drawn[half]) / 2)
        mean = fmean(middles)
        spread = sum((v - mean) ** 2 for v in middles) / (_DRAWS - 1)
        # What lies beyond a block's length is missing from it, by as much as the correlation says.
        missed = 2 * rho / ((1 - rho * rho) * block)
        return spread / max(0.25, 1 - missed) * n / (n - 1)


class _Random:
    """Numbers that depend on the values alone: the same input gives the same answer everywhere."""

    def __init__(self, values: Sequence[float]) -> None:
        state = 0x9E3779B97F4A7C15
        for value in values:
            state = (state ^ hash(value)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        self._state = state | 1

    def numbers(self, count: int, below: int) -> list[int]:
        state, found = self._state, []
        for _ in range(count):
            state ^= state << 13 & 0xFFFFFFFFFFFFFFFF
            state ^= state >> 7
            state ^= state << 17 & 0xFFFFFFFFFFFFFFFF
            found.append((state >> 11) % below)
        self._state = state
        return found


def _logs(values: Sequence[float]) -> list[float]:
    if not values or min(values) <= 0:
        raise ValueError("only positive values can be compared by their factor")
    return [log(v) for v in values]


def _factor(shift: float) -> float:
    return exp(shift) - 1


@lru_cache(maxsize=4096)
def _ways(n: int, m: int) -> tuple[float, ...]:
    """Probability of each value of U where both sides are of one distribution."""
    # Adding one value at a time to the second side, U grows by how many of the first lie below it.
    counts = [1] + [0] * (n * m)
    for j in range(1, m + 1):
        # Multiply by (1 - q^(n+j)) and divide by (1 - q^j), as the Gaussian binomial is built up.
        for k in range(n * m, n + j - 1, -1):
            counts[k] -= counts[k - n - j]
        for k in range(j, n * m + 1):
            counts[k] += counts[k - j]
    total = sum(counts)
    return tuple(c / total for c in counts)


@lru_cache(maxsize=4096)
def _cut(n: int, m: int, alpha: float) -> int:
    """How many of the sorted pairwise shifts lie outside the interval on each side."""
    if max(n, m) > _EXACT_MOST:
        z = _NORMAL.inv_cdf(1 - alpha / 2)
        return max(0, int(n * m / 2 - z * sqrt(n * m * (n + m + 1) / 12)) - 1)
    below = 0.0
    for u, share in enumerate(_ways(n, m)):
        below += share
        if below > alpha / 2:
            return u - 1
    return 0


def _p_of_ranks(u: float, n: int, m: int) -> float:
    low = min(u, n * m - u)
    if max(n, m) > _EXACT_MOST:
        z = (low + 0.5 - n * m / 2) / sqrt(n * m * (n + m + 1) / 12)
        return min(1.0, 2 * _NORMAL.cdf(z))
    return min(1.0, 2 * sum(_ways(n, m)[: int(low) + 1]))


def t_probability(t: float, freedom: float) -> float:
    """Student's distribution function, by the incomplete beta function's continued fraction."""
    x = freedom / (freedom + t * t)
    tail = _beta(x, freedom / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def t_quantile(p: float, freedom: float) -> float:
    """The value below which Student's distribution has the share ``p`` (above one half)."""
    low, high = 0.0, 1000.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x > (a + 1) / (a + b + 2):
        return 1 - front * _fraction(1 - x, b, a) / b
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d or 1e-300)
    h = d
    for m in range(1, 300):
        for top in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + top * d) or 1e-300)
            c = (1 + top / c) or 1e-300
            h *= d * c
        if abs(d * c - 1) < 1e-13:
            break
    return h
