"""Better, worse, no clear change, or not comparable and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import log, sqrt
from statistics import fmean, median

from exporter.compare import context, stats
from exporter.compare.rows import Row
from exporter.compare.stats import Estimate

# +1: more is better; -1: less is. What may be good or bad, such as a full queue, has no place here.
DIRECTIONS: Mapping[str, int] = {
    "kernel_seconds": -1,
    "queue_delay_ratio": -1,
    "exposed_delay_ratio": -1,
    "l2_hit_ratio": 1,
    "compute_density_ratio": 1,
}
_CONFOUNDED = (
    "one side was measured after the other: whatever else changed with time is in the difference; "
    "interleave runs (A B A B) to be sure"
)
_DRIFTING = "a steady drift through both sides may be all of it; interleave the runs"
_SHARES = frozenset({"executing_ratio", "queued_ratio", "launching_ratio", "starved_ratio"})
_OUTLYING = 3.5  # times the usual distance from the median


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    NO_CHANGE = "no clear change"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Options:
    """``changed``: what was meant to differ, by the names of context.CHANGEABLE."""

    changed: frozenset[str] = frozenset()
    least_effect: float = 0.02
    level: float = stats.LEVEL


@dataclass(frozen=True, slots=True)
class Finding:
    """One metric of one kernel, or of the GPU as a whole. ``p`` is adjusted for all that were looked at."""

    gpu: str
    workload: str | None
    kernel: str | None
    metric: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    estimate: Estimate | None = None
    p: float | None = None
    before: float | None = None
    after: float | None = None
    runs: tuple[int, int] = (0, 0)
    windows: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Group:
    """One GPU and workload: what stands in the way, what was measured beside, how it is used ``after``."""

    gpu: str
    workload: str | None
    reasons: tuple[str, ...]
    covariates: Mapping[str, tuple[float | None, float | None]]
    unknown: tuple[str, ...]
    one_sided: bool = False
    after: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything a report says."""

    findings: tuple[Finding, ...]
    groups: tuple[Group, ...]
    notes: tuple[str, ...]
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def verdict(self) -> Verdict:
        """The word for the whole: worse where anything is, else only what can be said of every GPU."""
        found = {f.verdict for f in self.findings}
        if Verdict.WORSE in found:
            return Verdict.WORSE
        if any(g.reasons and not g.one_sided for g in self.groups):
            return Verdict.NOT_COMPARABLE
        # The same value twice says little where others differ and cannot be told apart.
        told = {f.verdict for f in self.findings if f.estimate is not None}
        told = told or (found - {Verdict.NO_CHANGE}) or found
        return next((v for v in (Verdict.BETTER, Verdict.NO_CHANGE) if v in told), Verdict.NOT_COMPARABLE)


def compare(a: Iterable[Row], b: Iterable[Row], options: Options | None = None) -> Comparison:
    """Judge every metric that has a direction, of every kernel and GPU that is on both sides."""
    options = options or Options()
    left, right = [r for r in a if not r.first], [r for r in b if not r.first]
    notes = _time_notes(left, right)
    whole: list[str] = []
    if not left or not right:
        side = "before" if not left else "after"
        whole.append(f"{side}: no windows other than warm-up")
    names = [{r.gpu_name for r in side} for side in (left, right)]
    pooled = False
    if left and right and names[0] != names[1]:
        text = f"GPUs: {', '.join(sorted(names[0]))} before, {', '.join(sorted(names[1]))} after"
        if "gpus" in options.changed:
            notes.append(f"changed as declared: {text}")
            pooled = True
        else:
            whole.append(text)
    groups: list[Group] = []
    findings: list[Finding] = []
    for (gpu, workload), (x, y) in _grouped(left, right, pooled or bool(whole)).items():
        group, told = _group(gpu, workload, x, y, whole, options)
        notes += [f"changed as declared: {t}" for t in told if f"changed as declared: {t}" not in notes]
        groups.append(group)
        findings += _findings(group, x, y, options)
    if not groups:
        groups.append(Group("all", None, tuple(whole), {}, ()))
    judged = _adjusted(findings, options)
    notes += _power_notes(judged, options)
    return Comparison(
        tuple(judged), tuple(groups), tuple(notes), context.fingerprint(left), context.fingerprint(right)
    )


def _grouped(
    a: Sequence[Row], b: Sequence[Row], pooled: bool
) -> dict[tuple[str, str | None], tuple[list[Row], list[Row]]]:
    """Rows by GPU and workload. A job has another name after each restart: where each side has one workload
    on a GPU, they are taken for the same, and the kernels they share decide whether that is so."""
    found: dict[str, tuple[list[Row], list[Row]]] = {}
    for index, side in enumerate((a, b)):
        for row in side:
            found.setdefault("all" if pooled else row.gpu_name, ([], []))[index].append(row)
    groups: dict[tuple[str, str | None], tuple[list[Row], list[Row]]] = {}
    for gpu, (x, y) in sorted(found.items()):
        loads = [{r.workload for r in side} for side in (x, y)]
        if len(loads[0]) <= 1 and len(loads[1]) <= 1:
            groups[gpu, next(iter(loads[1] or loads[0]))] = (x, y)
            continue
        for load in sorted(loads[0] | loads[1], key=str):
            groups[gpu, load] = (
                [r for r in x if r.workload == load],
                [r for r in y if r.workload == load],
            )
    return groups


def _group(
    gpu: str, workload: str | None, x: list[Row], y: list[Row], whole: Sequence[str], options: Options
) -> tuple[Group, list[str]]:
    reasons, told = list(whole), []
    if not x or not y:
        reasons.append(f"nothing of it {'before' if not x else 'after'}")
    else:
        found = context.differences(x, y)
        shared = context.overlap(x, y)
        if shared is not None and shared < context.OVERLAP_LEAST:
            text = f"kernels: only {shared:.0%} of the time is in kernels of both sides"
            found.append(context.Difference("kernels", text))
        for difference in found:
            # Times of a trace and of counter passes are never one: a pass runs kernels one by one.
            if difference.what in options.changed and difference.what != "mode":
                told.append(difference.text)
            else:
                reasons.append(difference.text)
    group = Group(
        gpu,
        workload,
        tuple(dict.fromkeys(reasons)),
        context.covariates(x, y),
        tuple(context.unknown(x, y)),
        one_sided=not whole and not (x and y),
        after=_usage(y),
    )
    return group, told


def _usage(rows: Sequence[Row]) -> dict[str, float]:
    """The middle of each share of the GPU's time over one side's windows."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.kernel is None:
            for name in _SHARES & row.metrics.keys():
                found.setdefault(name, []).append(row.metrics[name])
    return {name: median(values) for name, values in sorted(found.items())}


def _findings(group: Group, x: list[Row], y: list[Row], options: Options) -> list[Finding]:
    sides = [_series(x), _series(y)]
    found = []
    for key in sorted(sides[0].keys() & sides[1].keys(), key=lambda k: (k[0] or "", k[1])):
        a, b = sides[0][key], sides[1][key]
        finding = Finding(
            group.gpu,
            group.workload,
            *key,
            Verdict.NOT_COMPARABLE,
            group.reasons,
            runs=(len({r for _, r, _ in a}), len({r for _, r, _ in b})),
            windows=(len(a), len(b)),
            before=_middle_run(a),
            after=_middle_run(b),
        )
        found.append(finding if group.reasons else _estimated(finding, a, b, options))
    if not found:
        reasons = group.reasons or ("no metric with a direction is on both sides",)
        found.append(Finding(group.gpu, group.workload, None, "", Verdict.NOT_COMPARABLE, reasons))
    return found


_Point = tuple[float, str, float]  # when, run, value


def _series(rows: Iterable[Row]) -> dict[tuple[str | None, str], list[_Point]]:
    found: dict[tuple[str | None, str], list[_Point]] = {}
    for row in rows:
        for metric, value in row.metrics.items():
            if metric in DIRECTIONS:
                found.setdefault((row.kernel, metric), []).append((row.at, row.run, value))
    for points in found.values():
        points.sort(key=lambda p: (p[0], p[1]))
    return found


def _by_run(points: Sequence[_Point]) -> list[float]:
    runs: dict[str, list[float]] = {}
    for _, run, value in points:
        runs.setdefault(run, []).append(value)
    return [median(values) for values in runs.values()]


def _middle_run(points: Sequence[_Point]) -> float:
    return median(_by_run(points))


def _estimated(finding: Finding, a: list[_Point], b: list[_Point], options: Options) -> Finding:
    x, y = [v for _, _, v in a], [v for _, _, v in b]
    if x == y:
        return replace(finding, verdict=Verdict.NO_CHANGE, reasons=("the same values on both sides",), p=1.0)
    if min(*x, *y) <= 0:
        return replace(finding, reasons=("holds values of 0, whose change is no factor",))
    if min(finding.runs) >= stats.RUNS_LEAST:
        estimate: Estimate | None = stats.of_runs(_by_run(a), _by_run(b), options.level)
    else:
        estimate = stats.of_windows(x, y, options.level)
    if estimate is None:
        text = (
            f"too few: {finding.windows[0]} and {finding.windows[1]} windows of {finding.runs[0]} and "
            f"{finding.runs[1]} runs; needed are {stats.RUNS_LEAST} runs, or {stats.EFFECTIVE_LEAST:g} "
            "independent windows, a side"
        )
        return replace(finding, reasons=(text,))
    drift = (_DRIFTING,) if _drift(a, b, options.level) else ()
    return replace(finding, verdict=Verdict.NO_CHANGE, reasons=drift, estimate=estimate, p=estimate.p)


def _drift(a: list[_Point], b: list[_Point], level: float) -> bool:
    """Whether sides measured one after the other may differ by a steady drift through both alone.

    The difference is taken again with a common slope taken out; it has to be there still.
    """
    if not (a[-1][0] <= b[0][0] or b[-1][0] <= a[0][0]):
        return False
    sides = [_settled(_run_points(side)) for side in (a, b)]
    if min(map(len, sides)) < 4:
        return False
    centres = [(fmean(t for t, _ in s), fmean(v for _, v in s)) for s in sides]
    around = [[(t - t0, v - v0) for t, v in s] for s, (t0, v0) in zip(sides, centres, strict=True)]
    xx = sum(t * t for s in around for t, _ in s)
    if xx == 0:
        return False
    slope = sum(t * v for s in around for t, v in s) / xx
    left = [[v - slope * t for t, v in s] for s in around]
    squares = sum(v * v for s in left for v in s)
    effective = [len(s) * (1 - rho) / (1 + rho) for s in left if (rho := stats.correlation(s)) < 1]
    freedom = max(1.0, sum(effective) - 3)
    count = sum(map(len, left))
    spread = squares / count * sum(effective) / freedom
    apart = centres[1][0] - centres[0][0]
    between = centres[1][1] - centres[0][1]
    rest = between - slope * apart
    error = sqrt(spread * (sum(1 / e for e in effective) + apart**2 / xx * count / sum(effective)))
    return rest * between <= 0 or abs(rest) < stats.t_quantile((1 + level) / 2, freedom) * error


def _run_points(points: Sequence[_Point]) -> list[tuple[float, float]]:
    """When and by how much: runs where there are enough of them, else windows."""
    runs: dict[str, list[tuple[float, float]]] = {}
    for at, run, value in points:
        runs.setdefault(run, []).append((at, log(value)))
    if len(runs) < stats.RUNS_LEAST:
        return [p for run in runs.values() for p in run]
    return [(fmean(t for t, _ in run), median(v for _, v in run)) for run in runs.values()]


def _settled(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points without those far from all others."""
    middle = median(v for _, v in points)
    bound = _OUTLYING * 1.4826 * median(abs(v - middle) for _, v in points)
    return [(t, v) for t, v in points if abs(v - middle) <= bound]


def _adjusted(findings: Sequence[Finding], options: Options) -> list[Finding]:
    """Better and worse, where both the interval and the adjusted probability say so."""
    tested = [i for i, f in enumerate(findings) if f.estimate is not None]
    adjusted = stats.holm([findings[i].estimate.p for i in tested])  # type: ignore[union-attr]
    found = list(findings)
    for i, p in zip(tested, adjusted, strict=True):
        finding = found[i]
        e = finding.estimate
        if e is None:
            continue
        verdict = Verdict.NO_CHANGE
        reasons: tuple[str, ...] = ()
        beyond = e.low > options.least_effect or e.high < -options.least_effect
        if beyond and p <= 1 - options.level and finding.reasons:
            reasons = finding.reasons
        elif beyond and p <= 1 - options.level:
            good = (e.change > 0) == (DIRECTIONS[finding.metric] > 0)
            verdict = Verdict.BETTER if good else Verdict.WORSE
            if e.within_run:
                reasons = ("within this run: how runs differ among themselves is not known",)
        found[i] = replace(finding, verdict=verdict, reasons=reasons, p=p)
    return found


def _time_notes(a: Sequence[Row], b: Sequence[Row]) -> list[str]:
    if not a or not b:
        return []
    x, y = [r.at for r in a], [r.at for r in b]
    if max(x) < min(y) or max(y) < min(x):
        return [_CONFOUNDED]
    return []


def _power_notes(findings: Sequence[Finding], options: Options) -> list[str]:
    """Say so where so few runs could not have shown anything among so many kernels."""
    tested = [f for f in findings if f.estimate is not None and not f.estimate.within_run]
    if not tested:
        return []
    n, m = max(f.runs for f in tested)
    if max(n, m) <= 40 and stats.least_p(n, m) * len(tested) > 1 - options.level:
        return [
            f"{n} and {m} runs cannot tell {len(tested)} values apart, however far: take more runs a side"
        ]
    return []
