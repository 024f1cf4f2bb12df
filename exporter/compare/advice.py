"""What to look at next, by what was found; the evidence beside, what explains most first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.compare.judge import Finding, Group, Verdict
from exporter.model import Bottleneck, TimelineState, WindowResult
from exporter.windows.bottleneck import ADVICE

_BY_METRIC = {
    "kernel_seconds": "look at what changed in this kernel: its source, its compiler options, its sizes",
    "queue_delay_ratio": "launches wait longer against what they run; fuse small kernels, or capture a graph",
    "exposed_delay_ratio": "the GPU idles before launches; look at synchronisation and at the host",
    "l2_hit_ratio": "fewer requests find their data in L2; look at access order, tile sizes and layout",
    "compute_density_ratio": "fewer slots do vector work; look at occupancy, stalls and waits for memory",
}
_MOST = 5
_BUSY = 0.85  # of the window executing: what idles does not matter
_IDLE = 0.2  # of the window in one idle state: worth a word beside the verdict
_ONE_KERNEL = 0.4
_SHORT_S = 10e-6
_LAUNCHES = 20
_L2_LOW, _DENSITY_LOW = 0.5, 0.1
_NAME_MOST = 60

# What an idle share of the timeline points at.
_IDLE_ADVICE = {
    "starved": Bottleneck.HOST_STALLED,
    "queued": Bottleneck.DEPENDENCY_BOUND,
    "launching": Bottleneck.LAUNCH_BOUND,
}
_IDLE_WORDS = {
    "starved": "nothing ran, waited or was being launched",
    "queued": "submitted kernels waited while none ran",
    "launching": "the host was launching while no kernel ran",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, and why."""

    text: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one GPU around its verdict. Shares are of the window, 0 to 1; None is unknown."""

    bottleneck: Bottleneck
    timeline: Mapping[str, float | None] = field(default_factory=dict)
    reason: str | None = None
    launches: int | None = None
    kernel_seconds: float | None = None  # mean of one kernel
    call_seconds: float | None = None  # mean of one launch call
    collectives: float | None = None  # nothing but collectives ran
    copies: float | None = None  # copies ran and no kernel did
    queue_delay_ratio: float | None = None
    l2_hit_ratio: float | None = None
    compute_density_ratio: float | None = None
    top: tuple[str, float] | None = None  # the heaviest kernel and its share of their time


def facts_of(r: WindowResult) -> Facts:
    """The facts of one result of a window."""
    heaviest = max(r.kernel_stats, key=lambda k: k.total_ns, default=None)
    total = sum(k.total_ns for k in r.kernel_stats)
    copies = None if r.copy_exposed_ns is None else sum(r.copy_exposed_ns.values())
    return Facts(
        r.bottleneck,
        {str(s): _part(r.timeline_ns.get(s), r.span_ns) for s in TimelineState},
        r.timeline_reason,
        r.launches,
        _part(r.execution_ns, r.kernels * 1e9),
        _part(r.launch_call_ns, (r.launch_call_count or 0) * 1e9),
        _part(r.collective_exposed_ns, r.span_ns),
        _part(copies, r.span_ns),
        r.queue_delay_ratio,
        r.l2_hit_ratio,
        r.compute_density_ratio,
        (heaviest.kernel, heaviest.total_ns / total) if heaviest and total else None,
    )


def of_window(facts: Facts) -> list[Advice]:
    """What the verdict asks for, then what else explains a good part of the window, the largest first."""
    meaning, attempt = ADVICE[facts.bottleneck]
    first = Advice(attempt, evidence(facts) or meaning)
    beside = sorted(_beside(facts), key=lambda one: -one[0])
    return [first, *(one for _, one in beside)][:_MOST]


def evidence(facts: Facts) -> str:
    """The numbers that the verdict stands on, in one line; empty where none is known."""
    t = facts.timeline
    waits = _plus(t.get("queued"), t.get("launching"))
    parts: dict[Bottleneck, tuple[str | None, ...]] = {
        Bottleneck.COMMUNICATION: (_share("collectives ran alone", facts.collectives),),
        Bottleneck.GPU_BOUND: (_share("kernels ran", t.get("executing")), _top(facts)),
        Bottleneck.CONTENDED: (_share("work waited while no kernel ran", t.get("queued")),),
        Bottleneck.COPY_BOUND: (_share("copies ran and no kernel did", facts.copies),),
        Bottleneck.DEPENDENCY_BOUND: (_share(_IDLE_WORDS["queued"], t.get("queued")), _lengths(facts)),
        Bottleneck.LAUNCH_BOUND: (
            _share("launches were made or waited while no kernel ran", waits),
            _lengths(facts),
        ),
        Bottleneck.HOST_STALLED: (_share(_IDLE_WORDS["starved"], t.get("starved")),),
        Bottleneck.BALANCED: tuple(_share(_IDLE_WORDS[s], t.get(s)) for s in _IDLE_WORDS if t.get(s)),
        Bottleneck.UNKNOWN: (facts.reason.replace("_", " ") if facts.reason else None,),
    }
    return "; ".join(filter(None, parts[facts.bottleneck]))


def _beside(facts: Facts) -> Iterator[tuple[float, Advice]]:
    """What else there is to do, with the share of the window that it is about."""
    executing = facts.timeline.get("executing")
    if facts.bottleneck is not Bottleneck.UNKNOWN:
        for state, points_at in _IDLE_ADVICE.items():
            share = facts.timeline.get(state)
            said = points_at is facts.bottleneck or (state != "starved" and facts.bottleneck in _WAITING)
            if share is not None and share >= _IDLE and not said:
                yield share, Advice(ADVICE[points_at].attempt, _share(_IDLE_WORDS[state], share) or "")
    if executing is None or executing < _IDLE:
        return
    if facts.top and facts.top[1] >= _ONE_KERNEL and facts.bottleneck is not Bottleneck.GPU_BOUND:
        yield executing * facts.top[1], Advice("Work on the top kernel, too.", _top(facts) or "")
    if executing < _BUSY:
        if _short(facts) and facts.bottleneck not in (Bottleneck.LAUNCH_BOUND, Bottleneck.DEPENDENCY_BOUND):
            yield 1 - executing, Advice("Fuse small kernels, or capture a graph.", _lengths(facts) or "")
        return
    if facts.l2_hit_ratio is not None and facts.l2_hit_ratio < _L2_LOW:
        words = "Look at access order, tile sizes and layout, so that more is found in L2."
        yield executing * (1 - facts.l2_hit_ratio), Advice(words, f"L2 hit ratio {facts.l2_hit_ratio:.2f}")
    if facts.compute_density_ratio is not None and facts.compute_density_ratio < _DENSITY_LOW:
        words = "Look at occupancy, stalls and waits for memory, unless matrix instructions do the work."
        shown = f"vector instructions in {facts.compute_density_ratio:.0%} of the slots"
        yield executing * 0.5, Advice(words, shown)


_WAITING = frozenset({Bottleneck.LAUNCH_BOUND, Bottleneck.DEPENDENCY_BOUND, Bottleneck.CONTENDED})


def _short(facts: Facts) -> bool:
    return (
        facts.kernel_seconds is not None
        and facts.kernel_seconds < _SHORT_S
        and (facts.launches or 0) >= _LAUNCHES
    )


def _lengths(facts: Facts) -> str | None:
    """How long kernels and launch calls are, and how many there were."""
    parts = []
    if facts.kernel_seconds is not None:
        parts.append(f"a kernel takes {facts.kernel_seconds * 1e6:.3g} us")
    if facts.call_seconds is not None:
        parts.append(f"its launch call {facts.call_seconds * 1e6:.3g} us")
    if parts and facts.launches:
        parts.append(f"{facts.launches} launches")
    return ", ".join(parts) or None


def _top(facts: Facts) -> str | None:
    if facts.top is None:
        return None
    name = facts.top[0]
    short = name if len(name) <= _NAME_MOST else f"{name[: _NAME_MOST - 1]}…"
    return f"{short} takes {facts.top[1]:.0%} of the kernels' time"


def _share(words: str, share: float | None) -> str | None:
    return None if share is None else f"{words} for {share:.0%} of the window"


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _part(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


# --- of a comparison ------------------------------------------------------------------------------------


def advice(findings: Sequence[Finding], groups: Sequence[Group] = ()) -> list[Advice]:
    """For what became worse, the largest first; nothing where nothing is sure."""
    worse = [f for f in findings if f.verdict is Verdict.WORSE and f.estimate is not None]
    worse.sort(key=lambda f: -abs(f.estimate.change) if f.estimate else 0.0)
    found = []
    for f in worse[:_MOST]:
        e = f.estimate
        if e is not None and f.metric in _BY_METRIC:
            name = f"{f.kernel}, {f.metric}" if f.kernel else f.metric
            shown = f"GPU {f.gpu}: {name} {e.change:+.1%}, between {e.low:+.1%} and {e.high:+.1%}"
            found.append(Advice(_BY_METRIC[f.metric], shown))
    places = dict.fromkeys((f.gpu, f.workload) for f in worse)
    found += [one for g in groups if (g.gpu, g.workload) in places and (one := _after(g))]
    return found[: _MOST + 1]


def _after(group: Group) -> Advice | None:
    """What the GPU does now for most of the time that it does not compute; None where that is little."""
    if group.after.get("executing_ratio", 0.0) >= _BUSY:
        return None
    shares = {s: v for s in _IDLE_ADVICE if (v := group.after.get(f"{s}_ratio")) is not None}
    state = max(shares, key=lambda s: shares[s], default=None)
    if state is None or shares[state] < _IDLE:
        return None
    shown = f"GPU {group.gpu}, after: {_share(_IDLE_WORDS[state], shares[state])}"
    return Advice(ADVICE[_IDLE_ADVICE[state]].attempt, shown)
