"""Job or pod: the GPUs one owner has, what they were used for, and what they cost."""

from __future__ import annotations

from dashboards.boards.common import CLUSTER, GPU, NO_TRACES, STATES, WINDOW, owners
from dashboards.panels import NUMBER, PART, UNITS, Board, Column, Query, Series, Stat, Table, Text
from dashboards.query import (
    DEVICE_NAME,
    GPU_NAME,
    NODE_NAME,
    PER_DEVICE,
    PER_GPU,
    PER_NODE,
    divided,
    of,
    owned,
    total,
)
from exporter.catalogue.schema import Unit

_JOULES = UNITS[Unit.JOULES]


def _by_device(series: str, **labels: str) -> str:
    """What windows added per GPU, of the chosen owner."""
    return owned(total(of(series, **labels), PER_DEVICE))


def _part(series: str) -> str:
    """Window time of the owner's GPUs that a total has, per node."""
    observed = f"sum by ({PER_NODE}) ({_by_device('amdgpu_window_observed_seconds_total', mode='trace')})"
    return divided(f"sum by ({PER_NODE}) ({_by_device(series)})", observed)


_BUSY = owned(of("amdgpu_busy_ratio", engine="gfx"))
_POWER = owned(of("amdgpu_power_watts"))
_VRAM = owned(of("amdgpu_memory_used_bytes", pool="vram"))
_SIZE = of("amdgpu_memory_size_bytes", pool="vram")
_ENERGY = owned(f"increase({of('amdgpu_energy_joules_total')}[$__range])")
_STATE = owned(total(of("amdgpu_timeline_seconds_total"), f"{PER_DEVICE}, state"))
_KERNELS = owned(total(of("amdgpu_kernel_seconds_total"), f"{PER_DEVICE}, kernel"))

SUMMARY = (
    Text(
        "Whose GPUs",
        (),
        "What the choices mean.",
        wide=6,
        high=4,
        content="GPUs of the chosen pods, or jobs, on the nodes they are on.",
    ),
    Stat(
        "GPUs in view",
        (Query(f"count({owned(of('amdgpu_up'))})"),),
        "GPUs in this view.",
        unit=NUMBER,
        wide=3,
    ),
    Stat(
        "Busy, mean",
        (Query(f"avg(avg_over_time(({_BUSY})[$__range:1m]))"),),
        "Mean over GPUs and over the time shown.",
        wide=3,
        decimals=0,
    ),
    Stat(
        "GPUs idle",
        (Query(f"sum(({_BUSY}) < bool 0.05)"),),
        "GPUs that are busy less than 5 % of the time now.",
        unit=NUMBER,
        wide=3,
    ),
    Stat("Power now", (Query(f"sum({_POWER})"),), "All of them now.", wide=3),
    Stat("Energy", (Query(f"sum({_ENERGY})"),), "All of them, over the time shown.", wide=3, unit=_JOULES),
    Stat("VRAM used now", (Query(f"sum({_VRAM})"),), "All of them now.", wide=3),
)

GPUS = (
    Table(
        "GPUs",
        (
            Query(f"max by ({PER_GPU}) ({_BUSY})"),
            Query(f"max by ({PER_GPU}) ({_POWER})"),
            Query(f"max by ({PER_GPU}) ({_ENERGY})"),
            Query(divided(f"max by ({PER_GPU}) ({_VRAM})", f"max by ({PER_GPU}) ({_SIZE})")),
            Query(f"max by ({PER_GPU}) ({owned(of('amdgpu_temperature_celsius', sensor='junction'))})"),
        ),
        "Now; energy over the time shown.",
        unit=NUMBER,
        wide=24,
        high=9,
        columns=(
            Column("instance", "Node"),
            Column("gpu", "GPU", wide=80),
            Column("pci", "PCI", wide=160),
            Column("Value #A", "Busy", unit=PART, bar=True),
            Column("Value #D", "VRAM", unit=PART, bar=True),
            Column("Value #B", "Power", unit="watt", wide=110),
            Column("Value #C", "Energy", unit=_JOULES, wide=110),
            Column("Value #E", "Junction", unit="celsius", wide=110),
        ),
    ),
    Series(
        "Busy",
        (Query(_BUSY, DEVICE_NAME),),
        "Any work at all. GPUs of one job that differ wait for each other.",
        high=11,
        low=0,
        top=1,
    ),
    Series("Power", (Query(_POWER, GPU_NAME),), "Idle GPUs that are held still draw.", low=0, high=11),
    Series("VRAM used", (Query(_VRAM, GPU_NAME),), "Of the whole card.", low=0, high=11),
)

WORK = (
    Series(
        "Launch timeline",
        (
            Query(
                divided(f"sum by (state) ({_STATE})", f"sum({_STATE})", on=""),
                "{{state}}",
            ),
        ),
        "Where window time went, over these GPUs.",
        unit=PART,
        empty=NO_TRACES,
        low=0,
        top=1,
        stacked=True,
        colours=STATES,
        high=9,
    ),
    Series(
        "Waiting for others",
        (
            Query(_part("amdgpu_collective_exposed_seconds_total"), f"{NODE_NAME} collectives"),
            Query(_part("amdgpu_copy_exposed_seconds_total"), f"{NODE_NAME} copies", dashed=True),
        ),
        "Share of window time in which only collectives ran, or only copies and no kernel. Copies are "
        "unknown, not 0, in windows without a copy trace.",
        unit=PART,
        empty=NO_TRACES,
        low=0,
        high=9,
    ),
    Series(
        "Top kernels",
        (
            Query(
                "topk(5, "
                + divided(
                    f"sum by ({PER_NODE}, kernel) ({_KERNELS})",
                    f"sum by ({PER_NODE}) ({_by_device('amdgpu_kernel_seconds_total')})",
                    on=PER_NODE,
                )
                + ")",
                f"{NODE_NAME} {{{{kernel}}}}",
            ),
        ),
        "Share of execution time of the five largest at each moment.",
        unit=PART,
        empty=NO_TRACES,
        low=0,
        top=1,
        high=9,
    ),
)

BOARD = Board(
    uid="amdgpu-job",
    title="AMD GPU job",
    about="The GPUs of one job or pod: what they were used for, what they cost, what they wait for.",
    variables=(CLUSTER, *owners(), GPU, WINDOW),
    rows=(("Summary", SUMMARY), ("GPUs", GPUS), ("Work", WORK)),
)
