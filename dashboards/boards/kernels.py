"""Kernels: which ones take the time, and whether one GPU runs them slower than the others."""

from __future__ import annotations

from dashboards.boards.common import DEVICE, KERNEL, NO_TRACES
from dashboards.panels import (
    BAD,
    EACH_SECOND,
    NUMBER,
    PART,
    UNITS,
    WARN,
    Bars,
    Board,
    Column,
    Query,
    Series,
    Table,
)
from dashboards.query import GPU_NAME, NODE_NAME, PER_KERNEL, PER_NODE, divided, of, ratio, total
from exporter.catalogue.schema import Unit

_CHOSEN = "~$kernel"
_SECONDS, _CALLS = (
    of("amdgpu_kernel_seconds_total", kernel=_CHOSEN),
    of("amdgpu_kernel_dispatches_total", kernel=_CHOSEN),
)
_PER_GPU_KERNEL = f"{PER_NODE}, gpu, pci, partition, kernel"
_NAME = f"{NODE_NAME} {{{{kernel}}}}"
# Of all kernels, also those not chosen.
_SHARE = divided(total(_SECONDS, PER_KERNEL), total(of("amdgpu_kernel_seconds_total"), PER_NODE), on=PER_NODE)
# Kernels that share the name other have nothing else in common.
_MEAN = ratio(
    of("amdgpu_kernel_seconds_total", kernel=_CHOSEN, but='kernel!="other"'),
    of("amdgpu_kernel_dispatches_total", kernel=_CHOSEN, but='kernel!="other"'),
    _PER_GPU_KERNEL,
)
_OTHERS = f"quantile by ({PER_KERNEL}) (0.5, {_MEAN})"
# With two GPUs, the slower one would always be far from the middle.
_MEDIAN = of("amdgpu_kernel_median_seconds", kernel=_CHOSEN)
_SHARED = f"count by ({PER_KERNEL}) ({_MEAN}) > 2"
_SLOWER = f"(({_MEAN}) / on ({PER_KERNEL}) group_left () ({_OTHERS})) and on ({PER_KERNEL}) ({_SHARED})"
_TIME = UNITS[Unit.SECONDS]

TOP = (
    Bars(
        "Top 10 by time",
        (Query(f"sort_desc(topk(10, {_SHARE}))", _NAME),),
        "Share of the execution time in traced windows; other is all that has no series of its own.",
        unit=PART,
        empty=NO_TRACES,
        top=1,
        wide=24,
        high=10,
    ),
    Table(
        "Kernels",
        (
            Query(_SHARE),
            Query(total(_SECONDS, PER_KERNEL).replace("rate(", "increase(")),
            Query(f"round({total(_CALLS, PER_KERNEL).replace('rate(', 'increase(')})"),
            Query(ratio(_SECONDS, _CALLS, PER_KERNEL)),
            Query(f"quantile by ({PER_KERNEL}) (0.5, {of('amdgpu_kernel_median_seconds', kernel=_CHOSEN)})"),
        ),
        "Time, calls and mean are of the traced windows up to now. The median is that of the last window, "
        "of the GPU in the middle; other has none.",
        unit=_TIME,
        empty=NO_TRACES,
        wide=24,
        high=10,
        sort="Share",
        columns=(
            Column("instance", "Node", wide=160),
            Column("kernel", "Kernel"),
            Column("Value #A", "Share", unit=PART, wide=100),
            Column("Value #B", "Time", unit=_TIME, wide=100),
            Column("Value #C", "Calls", unit=NUMBER, wide=100),
            Column("Value #D", "Mean", unit=_TIME, wide=100),
            Column("Value #E", "Median", unit=_TIME, wide=100),
        ),
    ),
)

TREND = (
    Series(
        "Share of time",
        (Query(_SHARE, _NAME),),
        "Over time, per node.",
        unit=PART,
        empty=NO_TRACES,
        low=0,
        top=1,
        wide=24,
        high=9,
        right=True,
    ),
    Series(
        "Mean time of a dispatch",
        (Query(ratio(_SECONDS, _CALLS, PER_KERNEL), _NAME),),
        "Execution time divided by dispatches, sum over sum.",
        unit=_TIME,
        empty=NO_TRACES,
        low=0,
        wide=24,
        high=9,
        right=True,
    ),
    Series(
        "Dispatches while watched",
        (
            Query(
                divided(
                    total(_CALLS, PER_KERNEL),
                    total(of("amdgpu_window_observed_seconds_total", mode="trace"), PER_NODE),
                    on=PER_NODE,
                ),
                _NAME,
            ),
        ),
        "Per second of observed time, so it does not depend on how often windows are taken.",
        unit=EACH_SECOND,
        empty=NO_TRACES,
        low=0,
        wide=24,
        high=9,
        right=True,
    ),
    Series(
        "Median of the last window",
        (Query(f"max by ({PER_KERNEL}) ({_MEDIAN})", _NAME),),
        "Of the GPU where it is slowest; for looking, not for averages or alerts.",
        empty=NO_TRACES,
        low=0,
        wide=24,
        high=9,
        right=True,
    ),
)

STRAGGLERS = (
    Bars(
        "Slowest against the node's median GPU",
        (Query(f"sort_desc(topk(10, {_SLOWER}))", f"{GPU_NAME} {{{{partition}}}} {{{{kernel}}}}"),),
        "Mean time of the kernel on this GPU, divided by that on the GPU in the middle, of kernels that "
        "three or more GPUs of the node ran. GPUs that do different work differ too. "
        "1.15 and more is a straggler: look at its clocks, heat and links.",
        unit=NUMBER,
        empty="No kernel with a series of its own was seen on three GPUs of a node.",
        decimals=2,
        steps=((1.15, WARN), (1.5, BAD)),
        wide=24,
        high=9,
    ),
)

BOARD = Board(
    uid="amdgpu-kernels",
    title="AMD GPU kernels",
    about="Which kernels take the time, how long they run, and which GPU runs them slower than the others.",
    variables=(*DEVICE, KERNEL),
    rows=(("Top", TOP), ("Over time", TREND), ("Stragglers", STRAGGLERS)),
)
