"""The pieces that queries are made of. Pure.

Three rules live here, so that no panel can forget them: every selector filters by cluster, node and, where
the metric has it, GPU; totals of windows are only ever divided by each other, over at least four window
periods; and both sides of a division are in parentheses.
"""

from __future__ import annotations

import itertools

from exporter.catalogue import CATALOGUE
from exporter.catalogue.schema import Scope

# What Prometheus calls each target; docs/DASHBOARDS.md says how to make it the host's name.
NODE = "instance"
PER_NODE = f"cluster, {NODE}"
PER_GPU = f"{PER_NODE}, gpu, pci"
PER_DEVICE = f"{PER_GPU}, partition"
PER_KERNEL = f"{PER_NODE}, kernel"
WINDOW = "$window"

GPU_NAME = f"{{{{{NODE}}}}} GPU {{{{gpu}}}}"
DEVICE_NAME = f"{GPU_NAME} {{{{partition}}}}"
NODE_NAME = f"{{{{{NODE}}}}}"

OWNERS = "amdgpu_workload_info"
_HISTOGRAM_ENDS = ("_bucket", "_sum", "_count")


def metric_name(series: str) -> str:
    """The catalogue's name for a series: that of its histogram where it is a part of one."""
    for end in _HISTOGRAM_ENDS:
        if series.endswith(end) and series.removesuffix(end) in CATALOGUE:
            return series.removesuffix(end)
    return series


def of(series: str, *, but: str = "", **labels: str) -> str:
    """A selector of ``series`` for what the variables choose, plus labels; a value may start with ~ (like).

    ``but``: a further matcher, as PromQL has it.
    """
    gpu = {"gpu": "~$gpu"} if CATALOGUE[metric_name(series)].scope is not Scope.NODE else {}
    return anywhere(series, but=but, **gpu, **labels)


def anywhere(series: str, *, but: str = "", **labels: str) -> str:
    """The same for all GPUs of the chosen nodes: for boards without a choice of GPU."""
    wanted = {"cluster": "~$cluster", NODE: "~$node", **labels}
    matchers = [
        *itertools.starmap(_matcher, wanted.items()),
        *filter(None, [but]),
    ]
    return f"{series}{{{', '.join(matchers)}}}"


def _matcher(label: str, value: str) -> str:
    return f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"'


def rate(selector: str, over: str = "$__rate_interval") -> str:
    return f"rate({selector}[{over}])"


def total(selector: str, by: str, over: str = WINDOW, offset: str = "") -> str:
    """What windows added to a total, per second, summed: one side of a division, never a value to show."""
    back = f" offset {offset}" if offset else ""
    return f"sum by ({by}) (rate({selector}[{over}]{back}))"


def divided(above: str, below: str, on: str | None = None) -> str:
    """``above`` / ``below``; nothing, rather than NaN, where nothing was seen.

    ``on``: the labels of below, if above has more.
    """
    join = "" if on is None else f"on ({on}) group_left () "
    return f"({above}) / {join}(({below}) > 0)"


def ratio(above: str, below: str, by: str, over: str = WINDOW, offset: str = "") -> str:
    """Sum over sum of two totals of windows; never a mean of ratios."""
    return divided(total(above, by, over, offset), total(below, by, over, offset))


def share(selector: str, by: str, label: str, over: str = WINDOW) -> str:
    """What part of a total of windows each value of ``label`` has; ``by`` may be empty: all together."""
    parts = total(selector, f"{by}, {label}" if by else label, over)
    return divided(parts, total(selector, by, over), on=by)


def queue_delay(by: str, offset: str = "") -> str:
    """Queue time over launch duration, from the sums of the two histograms."""
    above, below = (of(f"amdgpu_launch_{part}_seconds_sum") for part in ("queue", "duration"))
    return ratio(above, below, by, offset=offset)


def density(by: str, offset: str = "") -> str:
    """Instructions over instruction slots, of the same counter windows."""
    slots = of("amdgpu_counters_available_instructions_total", set="compute")
    return ratio(of("amdgpu_valu_instructions_total"), slots, by, offset=offset)


def l2_hit(by: str, offset: str = "") -> str:
    hits, requests = (of(f"amdgpu_cache_{part}_total", cache="l2") for part in ("hits", "requests"))
    return ratio(hits, requests, by, offset=offset)


def throttled(held: str, taken: str, over: str = "$__rate_interval") -> str:
    """Share of firmware samples in which a reason held clocks down, by reason, from the two selectors."""
    above = f"sum by ({PER_GPU}, reason) ({rate(held, over)})"
    return divided(above, f"sum by ({PER_GPU}) ({rate(taken, over)})", on=PER_GPU)


def owned(expression: str) -> str:
    """Keep the GPUs of the chosen namespace, pod and job. A GPU that nobody holds is in none."""
    chosen = (
        'cluster=~"$cluster", instance=~"$node", gpu=~"$gpu", '
        'namespace=~"$namespace", pod=~"$workload", job_id=~"$job_id"'
    )
    return f"({expression}) and on ({PER_GPU}) {OWNERS}{{{chosen}}}"
