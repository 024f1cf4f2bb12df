"""Histories whose truth is planted, and what the comparison says of them.

``python -m tests.tools.compare_truths [SEEDS]`` prints the whole table; exit 1 where a bound is broken.
Everything judged here goes through exporter.compare.judge and exporter.compare.stats as they are; numpy only
draws the numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from exporter.compare import stats
from exporter.compare.judge import Comparison, Options, Verdict, compare
from exporter.compare.rows import Row
from exporter.model import DeviceId

LEVEL = 0.05
CONTEXT = {"model": "MI300X", "gfx": "gfx942", "driver": "6.8.5", "clock_hertz": 2.1e9, "node": "n1"}
PCI = "0000:05:00.0"


@dataclass(frozen=True)
class Truth:
    """What is planted. Spreads are of logarithms; ``drift`` is the change over the whole time."""

    effect: float = 0.0
    runs: int = 10
    windows: int = 6
    kernels: int = 1
    changed: int = 1
    rho: float = 0.0
    noise: float = 0.03
    run_effect: float = 0.01
    outliers: bool = True
    drift: float = 0.0
    interleaved: bool = True


def correlated(random: np.random.Generator, shape: tuple[int, ...], rho: float) -> Any:
    """Normal numbers of spread 1, each related to the one before along the last axis."""
    found = random.normal(size=shape)
    for i in range(1, shape[-1]):
        found[..., i] = rho * found[..., i - 1] + np.sqrt(1 - rho * rho) * found[..., i]
    return found


def history(
    truth: Truth, seed: int, after: Mapping[str, Any] | None = None, pci_after: str = PCI
) -> tuple[list[Row], list[Row]]:
    """Rows of both sides; the last ``changed`` kernels of the second take ``effect`` longer."""
    random = np.random.default_rng([seed, 20, truth.runs, truth.windows, truth.kernels])
    t = truth
    shape = (2, t.kernels, t.runs, t.windows + 1)
    logs = t.noise * correlated(random, shape, t.rho)
    logs += t.run_effect * random.normal(size=(2, 1, t.runs, 1))
    if t.outliers:
        logs[random.random(shape) < 1 / 12] += np.log(2)
    logs[1, t.kernels - t.changed :] += np.log1p(t.effect)
    logs[..., 0] += 0.3  # the first window of a run is cold
    order = np.arange(2 * t.runs)
    place = order.reshape(t.runs, 2).T if t.interleaved else order.reshape(2, t.runs)
    at = place[..., None] * 1000.0 + np.arange(t.windows + 1) * 10.0
    logs += (t.drift * at / (2000.0 * t.runs))[:, None]
    values = 1e-4 * np.exp(logs)
    sides = []
    for s in (0, 1):
        context = {**CONTEXT, **((after or {}) if s else {})}
        pci = pci_after if s else PCI
        device = DeviceId(pci, None)
        sides.append(
            [
                Row(
                    float(at[s, r, w]), f"{s}/{r}", device, pci, f"k{k}", "trace", "rocprofv3", 1.0,
                    {"kernel_seconds": float(values[s, k, r, w]), "kernel_share_ratio": 1 / t.kernels},
                    first=w == 0, context=context,
                )
                for r in range(t.runs) for w in range(t.windows + 1) for k in range(t.kernels)
            ]
        )  # fmt: skip
    return sides[0], sides[1]


@dataclass
class Rate:
    """How often something was so. ``said`` is how often anything could be said."""

    hits: int = 0
    said: int = 0

    def count(self, hit: bool) -> None:
        self.hits += hit
        self.said += 1

    @property
    def share(self) -> float:
        return self.hits / self.said if self.said else float("nan")

    def more_than(self, share: float, doubt: float = 1e-3) -> bool:
        """Whether so many hits are less likely than ``doubt``, were ``share`` true."""
        n = self.said
        return (
            sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(self.hits, n + 1)) < doubt
            if n
            else False
        )


def wrong(found: Comparison, truth: Truth) -> bool:
    """Whether any kernel that did not change is called better or worse, or one that did the wrong way."""
    moved = {f"k{k}" for k in range(truth.kernels - truth.changed, truth.kernels)} if truth.effect else set()
    for f in found.findings:
        if f.verdict is Verdict.BETTER or (f.verdict is Verdict.WORSE and f.kernel not in moved):
            return True
    return False


def found_all(found: Comparison, truth: Truth) -> float:
    """Share of the changed kernels that are called worse."""
    return sum(f.verdict is Verdict.WORSE for f in found.findings) / truth.changed


PLANTED: dict[str, Truth] = {
    **{
        f"10 runs a side, rho {rho}, effect {effect:.0%}": Truth(effect, rho=rho)
        for rho in (0.0, 0.4, 0.8)
        for effect in (0.0, 0.02, 0.05, 0.20)
    },
    **{
        f"5 runs a side, effect {effect:.0%}": Truth(effect, runs=5, rho=0.4)
        for effect in (0.0, 0.02, 0.05, 0.20)
    },
    "10 runs a side, drift 10 %, interleaved, effect 0%": Truth(drift=0.1),
    "10 runs a side, drift 10 %, one after the other, effect 0%": Truth(drift=0.1, interleaved=False),
    "10 runs a side, drift 10 %, one after the other, effect 20%": Truth(0.2, drift=0.1, interleaved=False),
    "10 runs a side, drift 10 %, interleaved, effect 20%": Truth(0.2, drift=0.1),
    **{
        f"1 run of {n} windows a side, rho {rho}, effect {effect:.0%}": Truth(
            effect, 1, n, rho=rho, run_effect=0.0
        )
        for n, rho in ((30, 0.0), (60, 0.4), (150, 0.8))
        for effect in (0.0, 0.02, 0.05, 0.20)
    },
}
MANY: dict[str, Truth] = {
    f"200 kernels of which 3 changed, 10 runs a side, effect {effect:.0%}": Truth(
        effect, windows=3, kernels=200, changed=3, rho=0.4
    )
    for effect in (0.0, 0.05, 0.20)
}
CONFOUNDED: dict[str, tuple[dict[str, Any], str]] = {
    "clock 5 % lower after": ({"clock_hertz": 2.1e9 * 0.95}, PCI),
    "batch mix": ({"grid_mix": {"1024": 0.5, "4096": 0.5}}, PCI),
    "node set": ({"node": "n2"}, PCI),
    "another GPU": ({}, "0000:85:00.0"),
}
# Lag-1 correlation and windows a side.
COVERAGE_LARGE = ((0.0, 32), (0.0, 60), (0.3, 60), (0.5, 90), (0.5, 150))
COVERAGE_SMALL = ((0.0, 10), (0.0, 16), (0.3, 20), (0.5, 30), (0.5, 50), (0.8, 80), (0.8, 150))


def judged(truth: Truth, seeds: int) -> tuple[Rate, Rate, int]:
    """False findings per seed, changed kernels found, seeds in which nothing could be said."""
    false, power, silent = Rate(), Rate(), 0
    for seed in range(seeds):
        found = compare(*history(truth, seed))
        false.count(wrong(found, truth))
        silent += all(f.verdict is Verdict.NOT_COMPARABLE for f in found.findings)
        if truth.effect:
            share = round(found_all(found, truth) * truth.changed)
            power.hits += share
            power.said += truth.changed
    return false, power, silent


def confounded(after: Mapping[str, Any], pci: str, seeds: int) -> Rate:
    """How often a planted confounder gives "not comparable"."""
    rate = Rate()
    for seed in range(seeds):
        a, b = history(Truth(0.05, runs=6, windows=2), seed, after, pci)
        if "grid_mix" in after:
            a = [_with(row, grid_mix={"1024": 0.9, "4096": 0.1}) for row in a]
        found = compare(a, b, Options())
        rate.count(found.verdict is Verdict.NOT_COMPARABLE and any(g.reasons for g in found.groups))
    return rate


def _with(row: Row, **context: Any) -> Row:
    return Row(
        row.at, row.run, row.gpu, row.gpu_name, row.kernel, row.mode, row.tool, row.seconds, row.metrics,
        first=row.first, context={**row.context, **context},
    )  # fmt: skip


def coverage(rho: float, n: int, seeds: int, outliers: bool = False, effect: float = 0.05) -> Rate:
    """How often the interval over windows of one run a side holds the truth, where one is given."""
    rate = Rate()
    for seed in range(seeds):
        random = np.random.default_rng([seed, 21, n, int(rho * 10)])
        logs = 0.05 * correlated(random, (2, n), rho)
        if outliers:
            logs[random.random(logs.shape) < 1 / 12] += np.log(2)
        logs[1] += np.log1p(effect)
        found = stats.of_windows(list(np.exp(logs[0])), list(np.exp(logs[1])))
        if found is not None:
            rate.count(found.low <= effect <= found.high)
    return rate


def coverage_of_runs(runs: int, seeds: int, effect: float = 0.05) -> Rate:
    """The same for the interval over runs."""
    rate = Rate()
    for seed in range(seeds):
        random = np.random.default_rng([seed, 22, runs])
        x, y = np.exp(0.03 * random.normal(size=(2, runs)))
        found = stats.of_runs(list(x), list(y * (1 + effect)))
        rate.count(found.low <= effect <= found.high)
    return rate


def table(seeds: int, say: Callable[[str], None], many: int | None = None) -> Iterator[str]:
    """Print every figure; yields a line for each bound that is broken."""
    say(f"{'planted':<66}{'seeds':>6}{'false':>8}{'power':>8}{'silent':>8}")
    for name, truth in {**PLANTED, **MANY}.items():
        count = seeds if truth.kernels == 1 else many or seeds
        false, power, silent = judged(truth, count)
        shown = f"{power.share:.3f}" if power.said else "-"
        say(f"{name:<66}{count:>6}{false.share:>8.3f}{shown:>8}{silent / count:>8.3f}")
        if false.share > LEVEL if count >= 1000 else false.more_than(LEVEL):
            yield f"{name}: {false.share:.3f} false findings, at most {LEVEL} allowed"
    say(f"\n{'confounder':<66}{'seeds':>6}{'not comparable':>16}")
    for name, (after, pci) in CONFOUNDED.items():
        rate = confounded(after, pci, seeds)
        say(f"{name:<66}{rate.said:>6}{rate.share:>16.3f}")
        if rate.share < 0.99:
            yield f"{name}: only {rate.share:.3f} not comparable"
    yield from _coverages(seeds, say)


def _coverages(seeds: int, say: Callable[[str], None]) -> Iterator[str]:
    say(f"\n{'coverage of the 95 % interval':<66}{'given':>6}{'held':>8}{'of':>7}")
    for pairs, large in ((COVERAGE_LARGE, True), (COVERAGE_SMALL, False)):
        for rho, n in pairs:
            for outliers in (False, True):
                rate = coverage(rho, n, seeds, outliers)
                name = (
                    f"{n} windows a side, rho {rho}, {n * (1 - rho) / (1 + rho):.0f} independent"
                    f"{', outliers' if outliers else ''}"
                )
                say(f"{name:<66}{rate.said:>6}{rate.share:>8.3f}{seeds:>7}")
                least = 0.935 if large else 0.93
                # With outliers an interval may be wider than it has to be; never narrower.
                most = 0.965 if large and not outliers else 1.0
                yield from _within(name, rate, least, most)
    for runs in (5, 6, 8, 10, 20, 32, 40):
        rate = coverage_of_runs(runs, seeds)
        name = f"{runs} runs a side"
        say(f"{name:<66}{rate.said:>6}{rate.share:>8.3f}{seeds:>7}")
        yield from _within(name, rate, 0.935 if runs >= 30 else 0.93, 0.965 if runs >= 30 else 1.0)


def _within(name: str, rate: Rate, least: float, most: float) -> Iterator[str]:
    """Bounds as stated, with the doubt that so few draws leave (one in a thousand)."""
    missed = Rate(rate.said - rate.hits, rate.said)
    if missed.more_than(1 - least) or rate.more_than(most):
        yield f"{name}: {rate.share:.3f} held, allowed {least} to {most}"


def main() -> int:
    """Print the whole table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    broken = list(table(seeds, lambda line: print(line, flush=True)))
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
