"""Comparison: before beside after. Says what changed, and whether the two sides can be compared at all."""

from __future__ import annotations

from dashboards.boards.common import DEVICE, KERNEL, NO_COUNTERS, NO_PEAK, NO_TRACES
from dashboards.panels import (
    NUMBER,
    PART,
    UNITS,
    Board,
    Column,
    Panel,
    Query,
    Series,
    Stat,
    Table,
    Text,
    Variable,
)
from dashboards.query import (
    NODE_NAME,
    PER_GPU,
    PER_KERNEL,
    PER_NODE,
    density,
    l2_hit,
    of,
    queue_delay,
    ratio,
)
from exporter.catalogue.schema import Unit

OFFSET = Variable(
    "offset",
    "Before is",
    values="30m,1h,6h,12h,1d,2d,7d,14d,28d",
    current=("1d", "1d"),
    several=False,
    about="How far before the time shown the side before lies.",
)
PHASE = Variable(
    "phase",
    "Phase",
    values="Before and after : 0,Before : 1,After : 2",
    current=("Before and after", "0"),
    several=False,
    about="Which side is drawn.",
)
_TIME = UNITS[Unit.SECONDS]


def _before(expression: str) -> str:
    return f"({expression}) unless on () (vector($phase) == 2)"


def _after(expression: str) -> str:
    return f"({expression}) unless on () (vector($phase) == 1)"


def _sides(title: str, after: str, before: str, about: str, **more: object) -> tuple[Panel, Panel]:
    """The two sides over time, before dashed, and beside them the two values now."""
    both = (
        Query(_before(before), f"{NODE_NAME} before", dashed=True),
        Query(_after(after), f"{NODE_NAME} after"),
    )
    settings = {"unit": PART, **more}
    graph = Series(title, both, about, low=0, wide=12, high=7, **settings)  # type: ignore[arg-type]
    values = Stat(f"{title}: now", both, f"{about} The last value of each side.", wide=6, high=7, **settings)  # type: ignore[arg-type]
    return graph, values


def _change(title: str, after: str, before: str, about: str, empty: str) -> Panel:
    change = f"({after}) - on ({PER_NODE}) ({before})"
    return Stat(title, (Query(change, NODE_NAME),), about, unit=PART, empty=empty, wide=6, high=7, decimals=1)


def _row(title: str, after: str, before: str, about: str, empty: str) -> tuple[Panel, ...]:
    return (
        *_sides(title, after, before, about, empty=empty),
        _change(
            f"{title}: change",
            after,
            before,
            "After minus before, in points. It says nothing of chance: see the windows of each side.",
            empty,
        ),
    )


def _executing(offset: str) -> str:
    series = "amdgpu_timeline_seconds_total"
    return ratio(of(series, state="executing"), of(series), PER_NODE, offset=offset)


def _mean(offset: str) -> str:
    seconds, calls = (
        of(f"amdgpu_kernel_{part}_total", kernel="~$kernel") for part in ("seconds", "dispatches")
    )
    return ratio(seconds, calls, PER_KERNEL, offset=offset)


def _good(offset: str, mode: str) -> str:
    seen = of("amdgpu_windows_total", mode=mode, result="ok")
    return f"round(sum by ({PER_NODE}) (increase({seen}[$window]{offset})))"


def _differs(label: str, what: str) -> str:
    info = of("amdgpu_info")
    then = f"count by ({PER_GPU}, {label}) ({info} offset $offset)"
    gone = f"(count by ({PER_GPU}, {label}) ({info})) unless on ({PER_GPU}, {label}) ({then})"
    known = f"({gone}) and on ({PER_GPU}) ({info} offset $offset)"
    return f'label_replace(label_replace({known}, "now", "$1", "{label}", "(.*)"), "what", "{what}", "", "")'


COMPARABLE = (
    Text(
        "How to read this page",
        (),
        "How the two sides are chosen, and what this page does not say.",
        wide=8,
        high=8,
        content=(
            "**After** is the time shown; **before** is the same length of time, earlier by the choice "
            "*Before is*. Each point adds up the windows of *Windows of*.\n\n"
            "Fewer than 8 good windows on a side, or a row under *What else changed*: "
            "**not comparable**. "
            "A difference here is no proof: no confidence is computed on this page."
        ),
    ),
    Stat(
        "Traced windows",
        (
            Query(_before(_good(" offset $offset", "trace")), f"{NODE_NAME} before"),
            Query(_after(_good("", "trace")), f"{NODE_NAME} after"),
        ),
        "Good windows behind each side's timeline, queue delay and kernels. Below 8: not comparable.",
        unit=NUMBER,
        wide=4,
        high=8,
    ),
    Stat(
        "Counter windows",
        (
            Query(_before(_good(" offset $offset", "counters")), f"{NODE_NAME} before"),
            Query(_after(_good("", "counters")), f"{NODE_NAME} after"),
        ),
        "Good windows behind each side's compute density and L2 hits. Below 8: not comparable.",
        unit=NUMBER,
        wide=4,
        high=8,
    ),
    Table(
        "What else changed",
        (
            Query(
                " or ".join(
                    (_differs("driver", "driver"), _differs("vbios", "VBIOS"), _differs("model", "model"))
                )
            ),
        ),
        "GPUs that had another driver, VBIOS or model before.",
        unit=NUMBER,
        empty="No rows: the same driver, VBIOS and model, or a side without data: its windows tell which.",
        wide=8,
        high=8,
        columns=(
            Column("instance", "Node"),
            Column("gpu", "GPU", wide=60),
            Column("what", "What", wide=80),
            Column("now", "Now"),
        ),
    ),
)

RATIOS = (
    *_row(
        "Executing",
        _executing(""),
        _executing("$offset"),
        "Share of window time in which kernels ran.",
        NO_TRACES,
    ),
    *_row(
        "Queue-delay ratio",
        queue_delay(PER_NODE),
        queue_delay(PER_NODE, offset="$offset"),
        "Share of the launch duration that is waiting; read it with Executing.",
        NO_TRACES,
    ),
    *_row(
        "Compute density",
        density(PER_NODE),
        density(PER_NODE, offset="$offset"),
        "Instructions per instruction slot.",
        NO_PEAK,
    ),
    *_row("L2 hits", l2_hit(PER_NODE), l2_hit(PER_NODE, offset="$offset"), "Hits per request.", NO_COUNTERS),
)

KERNELS = (
    Table(
        "Kernels",
        (
            Query(_mean("$offset")),
            Query(_mean("")),
            Query(f"({_mean('')}) / on ({PER_KERNEL}) ({_mean('$offset')}) - 1"),
        ),
        "Mean time of a dispatch on each side; below zero is faster. No change where a side is missing.",
        unit=_TIME,
        empty=NO_TRACES,
        wide=24,
        high=10,
        sort="Change",
        columns=(
            Column("instance", "Node", wide=160),
            Column("kernel", "Kernel"),
            Column("Value #A", "Before", unit=_TIME, wide=120),
            Column("Value #B", "After", unit=_TIME, wide=120),
            Column("Value #C", "Change", unit=PART, wide=120, decimals=1),
        ),
    ),
)

BOARD = Board(
    uid="amdgpu-comparison",
    title="AMD GPU comparison",
    about="Before beside after: what changed, and whether the two sides can be compared.",
    variables=(*DEVICE, KERNEL, OFFSET, PHASE),
    rows=(("Can they be compared?", COMPARABLE), ("Ratios", RATIOS), ("Kernels", KERNELS)),
    refresh="5m",
)
