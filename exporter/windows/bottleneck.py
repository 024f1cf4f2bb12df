"""What holds a GPU back, as far as one window can say: the first rule that fits. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.model import Bottleneck


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Shares of the window or of its idle time; the configuration may change them."""

    communication: float = 0.30
    gpu_bound: float = 0.85
    idle_share: float = 0.50
    graph_share: float = 0.50
    launching_little: float = 0.10
    launches_least: int = 20
    starved: float = 0.50
    skewed_most: float = 0.05


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules look at; nanoseconds unless said. ``copies`` is None without a copy trace."""

    span: int
    executing: int
    queued: int
    launching: int
    starved: int
    collectives_exposed: int
    copies: int | None
    processes: int
    paired: int
    execution: int
    graph_execution: int
    kernel_mean: float
    call_mean: float | None


def verdict(facts: Facts, limits: Thresholds) -> Bottleneck:
    """The first that fits, in the order of the handbook."""
    idle = facts.span - facts.executing
    if facts.span <= 0:
        return Bottleneck.UNKNOWN

    def most_of_idle(part: int) -> bool:
        return idle > 0 and part >= limits.idle_share * idle

    if facts.collectives_exposed >= limits.communication * facts.span:
        return Bottleneck.COMMUNICATION
    if facts.executing >= limits.gpu_bound * facts.span:
        return Bottleneck.GPU_BOUND
    if facts.processes > 1 and most_of_idle(facts.queued):
        return Bottleneck.CONTENDED
    if facts.copies is not None and most_of_idle(facts.copies):
        return Bottleneck.COPY_BOUND
    if most_of_idle(facts.queued) and _waits_for_work(facts, limits, idle):
        return Bottleneck.DEPENDENCY_BOUND
    if facts.paired >= limits.launches_least and most_of_idle(facts.queued + facts.launching):
        return Bottleneck.LAUNCH_BOUND
    if facts.starved >= limits.starved * facts.span:
        return Bottleneck.HOST_STALLED
    return Bottleneck.BALANCED


def _waits_for_work(facts: Facts, limits: Thresholds, idle: int) -> bool:
    if facts.graph_execution >= limits.graph_share * facts.execution:
        return True
    longer = facts.call_mean is not None and facts.kernel_mean > facts.call_mean
    return longer and facts.launching <= limits.launching_little * idle


class Advice(NamedTuple):
    """What a verdict means and what to try first, in one line each; the runbook of its name says more."""

    meaning: str
    attempt: str


ADVICE: Mapping[Bottleneck, Advice] = {
    Bottleneck.COMMUNICATION: Advice(
        "Collectives run alone for a large part of the window.",
        "Look for a slow GPU first; then overlap collectives with compute, and make them fewer and larger.",
    ),
    Bottleneck.GPU_BOUND: Advice(
        "Kernels run nearly all the time, as they should.",
        "Work on the top kernel itself: a tuned library, lower precision, a better layout.",
    ),
    Bottleneck.CONTENDED: Advice(
        "Several processes share the GPU, and work waits while it idles.",
        "Give the GPU one owner, partition it, or batch through one server process.",
    ),
    Bottleneck.COPY_BOUND: Advice(
        "The GPU mostly idles while copies are under way.",
        "Pin host memory, copy ahead on a stream of its own, and copy less.",
    ),
    Bottleneck.DEPENDENCY_BOUND: Advice(
        "Submitted kernels wait for one another.",
        "Fuse neighbours of the chain, widen the graph, use larger kernels.",
    ),
    Bottleneck.LAUNCH_BOUND: Advice(
        "The GPU idles while the host launches kernels or launched ones wait to start.",
        "Capture the step as a graph, fuse small kernels, do more work per launch.",
    ),
    Bottleneck.HOST_STALLED: Advice(
        "For most of the window nothing ran, waited or was being launched.",
        "Speed up the data loader and storage, and take logging and synchronising out of the loop.",
    ),
    Bottleneck.BALANCED: Advice(
        "No single cause stands out.",
        "Start with the largest idle part of the timeline, and look at several windows.",
    ),
    Bottleneck.UNKNOWN: Advice(
        "The window does not show enough of the GPU's time to tell.",
        "Trace every process that uses the GPU, with its launch calls.",
    ),
}
