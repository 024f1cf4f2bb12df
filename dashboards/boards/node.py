"""Node live view: what each GPU of a node does now, and why it does not do more."""

from __future__ import annotations

from dashboards.boards.common import DEVICE, NO_COUNTERS, NO_ECC, NO_PEAK, NO_TRACES, STATES
from dashboards.panels import EACH_SECOND, NUMBER, PART, Board, Column, Query, Series, Stat, Table
from dashboards.query import (
    DEVICE_NAME,
    GPU_NAME,
    NODE_NAME,
    PER_DEVICE,
    PER_GPU,
    PER_NODE,
    density,
    divided,
    l2_hit,
    of,
    queue_delay,
    rate,
    share,
    throttled,
)

_STILL = "Of the last window of each GPU, gone when that is old: for looking, not for averages or alerts."
_VRAM = divided(of("amdgpu_memory_used_bytes", pool="vram"), of("amdgpu_memory_size_bytes", pool="vram"))
_XGMI = [
    f"sum by ({PER_GPU}) ({rate(of(f'amdgpu_xgmi_{way}_bytes_total'))})"
    for way in ("received", "transmitted")
]
_HELD = throttled(of("amdgpu_throttle_residency_total"), of("amdgpu_throttle_samples_total"))
_THROTTLES_AT = of("amdgpu_temperature_limit_celsius", sensor="junction", limit="critical")
_TIMELINE = of("amdgpu_timeline_seconds_total")


def _who(expression: str) -> str:
    """One label for node and GPU, to make rows of."""
    return f'label_join({expression}, "who", " GPU ", "instance", "gpu")'


NOW = (
    Stat(
        "GPUs answering",
        (Query(f"sum({of('amdgpu_up')})"),),
        "GPUs read in the last poll.",
        unit=NUMBER,
        wide=3,
    ),
    Stat(
        "Busy now",
        (Query(f"avg({of('amdgpu_busy_ratio', engine='gfx')})"),),
        "Mean over the GPUs.",
        wide=3,
        decimals=0,
    ),
    Stat("Power now", (Query(f"sum({of('amdgpu_power_watts')})"),), "All GPUs together.", wide=3),
    Stat(
        "Hottest spot",
        (Query(f"max({of('amdgpu_temperature_celsius', sensor='junction')})"),),
        "The hottest junction; see Temperature for what each GPU allows.",
        wide=3,
    ),
    Stat(
        "Fullest VRAM",
        (Query(f"max({_VRAM})"),),
        "The GPU whose memory is fullest.",
        unit=PART,
        wide=3,
        decimals=0,
    ),
    Stat(
        "Windows seen",
        (Query(f"round(sum(increase({of('amdgpu_windows_total')}[$window])))"),),
        "Windows that the panels below rest on; 0 means that they have nothing to show.",
        unit=NUMBER,
        wide=3,
    ),
    Stat(
        "Sampling",
        (Query(f"{of('amdgpu_sampling_state')} == 1", f"{NODE_NAME} {{{{state}}}}"),),
        "Whether the exporter starts windows itself. Off also while jobs deliver their own.",
        unit=NUMBER,
        wide=6,
        text="name",
    ),
)

WHY = (
    Series(
        "Launch timeline",
        (Query(share(_TIMELINE, "", "state"), "{{state}}"),),
        "Where window time went, over the chosen GPUs: kernels ran; were submitted and waited; were being "
        "launched; or nothing was there to run (starved: the host is too slow).",
        unit=PART,
        empty=NO_TRACES,
        wide=11,
        high=9,
        low=0,
        top=1,
        stacked=True,
        colours=STATES,
    ),
    Table(
        "Launch timeline by GPU",
        (Query(_who(share(_TIMELINE, f"{PER_NODE}, gpu", "state"))),),
        "The same for each GPU, in the windows up to now.",
        unit=PART,
        empty=NO_TRACES,
        wide=8,
        high=9,
        matrix=("who", "state"),
        columns=(
            Column("who\\state", "GPU"),
            *(Column(s, s.capitalize(), unit=PART, wide=80) for s in STATES),
        ),
    ),
    Table(
        "Bottleneck",
        (Query(f"{of('amdgpu_bottleneck_state')} == 1"),),
        f"What held each GPU back. {_STILL}",
        unit=NUMBER,
        empty=NO_TRACES,
        wide=5,
        high=9,
        columns=(
            Column("instance", "Node", wide=90),
            Column("gpu", "GPU", wide=50),
            Column("bottleneck", "Bottleneck"),
        ),
    ),
    Series(
        "Queue-delay ratio",
        (Query(queue_delay(PER_DEVICE), DEVICE_NAME),),
        "Share of the launch duration that is waiting. Near 1 on a saturated GPU, which is healthy.",
        unit=PART,
        empty=NO_TRACES,
        low=0,
        top=1,
    ),
    Series(
        "Queue depth",
        (Query(of("amdgpu_launch_queue_depth"), DEVICE_NAME),),
        f"Launches that wait, on average. {_STILL}",
        empty=NO_TRACES,
        low=0,
    ),
    Series(
        "Compute density",
        (Query(density(PER_DEVICE), DEVICE_NAME),),
        "Instructions per instruction slot.",
        unit=PART,
        empty=NO_PEAK,
        low=0,
    ),
)

USE = (
    Series(
        "Busy",
        (Query(of("amdgpu_busy_ratio", engine="gfx"), DEVICE_NAME),),
        "Any work at all.",
        low=0,
        top=1,
    ),
    Series(
        "Memory busy",
        (Query(of("amdgpu_busy_ratio", engine="memory"), DEVICE_NAME),),
        "Time with memory traffic.",
        low=0,
        top=1,
    ),
    Series(
        "VRAM used",
        (Query(_VRAM, GPU_NAME),),
        "Inference servers often reserve all of it.",
        unit=PART,
        low=0,
        top=1,
    ),
    Series(
        "L2 hits",
        (Query(l2_hit(PER_DEVICE), DEVICE_NAME),),
        "Hits per request.",
        unit=PART,
        empty=NO_COUNTERS,
        low=0,
        top=1,
    ),
    Series(
        "Clock",
        (Query(of("amdgpu_clock_hertz", domain="sclk", index=""), GPU_NAME),),
        "Compute clock of the whole GPU.",
        low=0,
    ),
    Series(
        "xGMI traffic",
        (Query(f"({_XGMI[0]}) + ({_XGMI[1]})", GPU_NAME),),
        "Received and transmitted, over all links to other GPUs.",
        unit="Bps",
        empty="No xGMI counters: these GPUs have no such links, or the driver does not count them.",
        low=0,
    ),
)

HEAT = (
    Series(
        "Power",
        (
            Query(of("amdgpu_power_watts"), GPU_NAME),
            Query(
                f"max by ({PER_NODE}) ({of('amdgpu_power_limit_watts')})",
                f"{NODE_NAME} highest limit",
                dashed=True,
            ),
        ),
        "Against the highest cap in force on the node.",
        low=0,
    ),
    Series(
        "Temperature",
        (
            Query(of("amdgpu_temperature_celsius", sensor="junction"), GPU_NAME),
            Query(
                f"min by ({PER_NODE}) ({_THROTTLES_AT})",
                f"{NODE_NAME} lowest limit",
                dashed=True,
            ),
        ),
        "The hottest spot, against the lowest temperature at which a GPU of the node throttles.",
    ),
    Series(
        "Clocks held down",
        (
            Query(
                f"({_HELD}) > 0",
                f"{GPU_NAME} {{{{reason}}}}",
            ),
        ),
        "Share of time in which a reason held clocks down; power is the everyday one.",
        unit=PART,
        empty="No reason held clocks down. Not every chip counts it.",
        low=0,
        top=1,
    ),
    Series(
        "Corrected memory errors",
        (Query(f"sum by ({PER_GPU}) ({rate(of('amdgpu_ecc_correctable_errors_total'))})", GPU_NAME),),
        "Harmless one by one; a burst announces worse.",
        unit=EACH_SECOND,
        empty=NO_ECC,
        low=0,
    ),
    Series(
        "PCIe packets sent again",
        (Query(rate(of("amdgpu_pcie_replays_total")), GPU_NAME),),
        "A steady rate is a bad slot or riser.",
        unit=EACH_SECOND,
        low=0,
    ),
    Table(
        "Links and limits",
        (
            Query(f"max by ({PER_GPU}) ({of('amdgpu_pcie_link_width_lanes')})"),
            Query(f"max by ({PER_GPU}) ({of('amdgpu_pcie_max_link_width_lanes')})"),
            Query(f"max by ({PER_GPU}) ({of('amdgpu_pcie_link_transfers_per_second')})"),
            Query(f"max by ({PER_GPU}) ({of('amdgpu_power_limit_watts')})"),
        ),
        "What each GPU is connected and capped with now.",
        unit=NUMBER,
        wide=24,
        columns=(
            Column("instance", "Node"),
            Column("gpu", "GPU", wide=80),
            Column("pci", "PCI", wide=160),
            Column("Value #A", "Lanes", unit=NUMBER),
            Column("Value #B", "Lanes possible", unit=NUMBER),
            Column("Value #C", "Speed per lane", unit="si: T/s"),
            Column("Value #D", "Power cap", unit="watt"),
        ),
    ),
)

BOARD = Board(
    uid="amdgpu-node",
    title="AMD GPU node",
    about="One node now: use, launch timeline, bottleneck, power, heat and links of each GPU.",
    variables=DEVICE,
    rows=(("Now", NOW), ("Why it is not faster", WHY), ("Use", USE), ("Power, heat, links", HEAT)),
    refresh="10s",
)
