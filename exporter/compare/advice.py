"""What to look at next, by what was found; the evidence beside. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.compare.judge import Finding, Verdict

_BY_METRIC = {
    "kernel_seconds": "look at what changed in this kernel: its source, its compiler options, its sizes",
    "queue_delay_ratio": "launches wait longer against what they run; fuse small kernels, or capture a graph",
    "exposed_delay_ratio": "the GPU idles before launches; look at synchronisation and at the host",
    "l2_hit_ratio": "fewer requests find their data in L2; look at access order, tile sizes and layout",
    "compute_density_ratio": "fewer slots do vector work; look at occupancy, stalls and waits for memory",
}
_MOST = 5


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, and why."""

    text: str
    evidence: str


def advice(findings: Sequence[Finding]) -> list[Advice]:
    """For what became worse, the largest first; nothing where nothing is sure."""
    worse = [f for f in findings if f.verdict is Verdict.WORSE and f.estimate is not None]
    worse.sort(key=lambda f: -abs(f.estimate.change) if f.estimate else 0.0)
    found = []
    for f in worse[:_MOST]:
        e = f.estimate
        if e is not None and f.metric in _BY_METRIC:
            name = f"{f.kernel}, {f.metric}" if f.kernel else f.metric
            evidence = f"GPU {f.gpu}: {name} {e.change:+.1%}, between {e.low:+.1%} and {e.high:+.1%}"
            found.append(Advice(_BY_METRIC[f.metric], evidence))
    return found
