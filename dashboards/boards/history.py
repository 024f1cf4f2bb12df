"""History: the three ratios over weeks, with what changed meanwhile."""

from __future__ import annotations

from dataclasses import replace

from dashboards.boards.common import DEVICE, NO_COUNTERS, NO_PEAK, NO_TRACES, STATES
from dashboards.panels import NUMBER, PART, Board, Mark, Query, Series
from dashboards.query import NODE_NAME, PER_NODE, density, l2_hit, of, queue_delay, share

_INFO = of("amdgpu_info")


def _appeared(label: str) -> str:
    """1 where a node runs with a value of ``label`` that it did not run with an hour before."""
    now = f"count by ({PER_NODE}, {label}) ({_INFO})"
    then = f"count by ({PER_NODE}, {label}) ({_INFO} offset 1h)"
    known = f"count by ({PER_NODE}) ({_INFO} offset 1h)"
    return f"(({now}) unless on ({PER_NODE}, {label}) ({then})) and on ({PER_NODE}) ({known})"


MARKS = (
    Mark("Driver changed", _appeared("driver"), "Driver {{driver}}", "{{instance}}"),
    Mark("Firmware changed", _appeared("vbios"), "VBIOS {{vbios}}", "{{instance}}"),
)

RATIOS = (
    Series(
        "L2 hits",
        (Query(l2_hit(PER_NODE), NODE_NAME),),
        "Hits per request, over the chosen GPUs of a node. Compare a node with itself: models differ.",
        unit=PART,
        empty=NO_COUNTERS,
        low=0,
        top=1,
        wide=24,
    ),
    Series(
        "Compute density",
        (Query(density(PER_NODE), NODE_NAME),),
        "Instructions per instruction slot, over the chosen GPUs of a node.",
        unit=PART,
        empty=NO_PEAK,
        low=0,
        wide=24,
    ),
    Series(
        "Queue-delay ratio",
        (Query(queue_delay(PER_NODE), NODE_NAME),),
        "Share of the launch duration that is waiting; read it with the launch timeline below.",
        unit=PART,
        empty=NO_TRACES,
        low=0,
        top=1,
        wide=24,
    ),
    Series(
        "Launch timeline",
        (Query(share(of("amdgpu_timeline_seconds_total"), "", "state"), "{{state}}"),),
        "Where window time went, over the chosen nodes and GPUs.",
        unit=PART,
        empty=NO_TRACES,
        low=0,
        top=1,
        stacked=True,
        colours=STATES,
        wide=24,
    ),
)

MEANWHILE = (
    Series(
        "Software of the GPUs",
        (
            Query(f"count by ({PER_NODE}, driver) ({_INFO})", f"{NODE_NAME} driver {{{{driver}}}}"),
            Query(f"count by ({PER_NODE}, vbios) ({_INFO})", f"{NODE_NAME} VBIOS {{{{vbios}}}}", dashed=True),
        ),
        "GPUs by driver and VBIOS: a step is a change. Marks tagged deploy, and changes found here, are also "
        "drawn as lines in every graph of this page.",
        unit=NUMBER,
        low=0,
        steps_line=True,
        wide=12,
    ),
    Series(
        "Windows behind the ratios",
        (
            Query(
                f"sum by ({PER_NODE}, mode) (increase({of('amdgpu_windows_total', result='ok')}[$window]))",
                f"{NODE_NAME} {{{{mode}}}}",
            ),
        ),
        "Good windows added up in each point. Few windows make a noisy ratio.",
        unit=NUMBER,
        low=0,
        wide=12,
    ),
)

BOARD = Board(
    uid="amdgpu-history",
    title="AMD GPU history",
    about="L2 hits, compute density and queue-delay ratio over weeks, with what changed meanwhile.",
    variables=tuple(replace(v, current=("6h", "6h")) if v.name == "window" else v for v in DEVICE),
    rows=(("Ratios", RATIOS), ("Meanwhile", MEANWHILE)),
    since="now-14d",
    refresh="5m",
    marks=MARKS,
)
