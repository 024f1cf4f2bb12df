"""Fleet: what is broken, what is idle, what is slow. GPUs are ranked as of now, never drawn over time."""

from __future__ import annotations

from dashboards.boards.common import NO_COUNTERS, NO_ECC, NO_PEAK, NO_TRACES, NOTHING_OR_DEAD, PLACE, WINDOW
from dashboards.panels import BAD, NUMBER, PART, WARN, Bars, Board, Column, Query, Series, Stat, Table
from dashboards.query import (
    DEVICE_NAME,
    GPU_NAME,
    PER_DEVICE,
    PER_GPU,
    PER_NODE,
    anywhere,
    divided,
    throttled,
    total,
)

_DEVICES = anywhere("amdgpu_devices")
_BUSY = anywhere("amdgpu_busy_ratio", engine="gfx")
_EXPECTED = anywhere("amdgpu_expected_devices")
_LOST = f"max by ({PER_NODE}) ({_EXPECTED}) - on ({PER_NODE}) max by ({PER_NODE}) ({_DEVICES})"
_THERMAL = "~socket_thermal|hbm_thermal|vr_thermal|prochot"


def _worse(what: str, expression: str) -> str:
    return f'label_replace({expression}, "what", "{what}", "", "")'


def _narrow(now: str, most: str) -> str:
    return f"({anywhere(now)}) < on ({PER_GPU}) ({anywhere(most)})"


def _throttled(**labels: str) -> str:
    held = anywhere("amdgpu_throttle_residency_total", **labels)
    return throttled(held, anywhere("amdgpu_throttle_samples_total"), over="15m")


def _windows(above: str, below: str) -> str:
    return divided(total(above, PER_DEVICE), total(below, PER_DEVICE))


def _state(*states: str) -> str:
    chosen = total(anywhere("amdgpu_timeline_seconds_total", state="~" + "|".join(states)), PER_DEVICE)
    return divided(chosen, total(anywhere("amdgpu_timeline_seconds_total"), PER_DEVICE))


_BROKEN = " or ".join(
    (
        _worse("GPU gone from the node", f"({_LOST}) > 0"),
        _worse("GPU does not answer", f"{anywhere('amdgpu_up')} == 0"),
        _worse("source fails", f"{anywhere('amdgpu_exporter_source_up')} == 0"),
        _worse(
            "uncorrectable errors in 1 h",
            f"sum by ({PER_GPU}) (increase({anywhere('amdgpu_ecc_uncorrectable_errors_total')}[1h])) > 0",
        ),
        _worse(
            "PCIe lanes lost", _narrow("amdgpu_pcie_link_width_lanes", "amdgpu_pcie_max_link_width_lanes")
        ),
        _worse("xGMI link down", f"{anywhere('amdgpu_xgmi_link_state', state='down')} == 1"),
        _worse("heat holds clocks down", f"sum by ({PER_GPU}) ({_throttled(reason=_THERMAL)}) > 0.05"),
    )
)

BROKEN = (
    Stat(
        "Nodes reporting",
        (Query(f"count({_DEVICES})"),),
        "Nodes whose exporter was read just now.",
        unit=NUMBER,
    ),
    Stat(
        "Nodes gone silent",
        (
            Query(
                f"count(count by ({PER_NODE}) (last_over_time({_DEVICES}[1d])))"
                f" - count(count by ({PER_NODE}) ({_DEVICES}))"
            ),
        ),
        "Nodes that were read in the last day and are not read now. Empty when none is read.",
        unit=NUMBER,
        steps=((1, BAD),),
    ),
    Stat("GPUs seen", (Query(f"sum({_DEVICES})"),), "GPUs that the drivers list now.", unit=NUMBER),
    Stat(
        "GPUs gone",
        (Query(f"sum(clamp_min({_LOST}, 0))"),),
        "GPUs that nodes should have and do not list.",
        unit=NUMBER,
        empty="No node knows how many GPUs it should have: set devices.expected.",
        steps=((1, BAD),),
    ),
    Stat(
        "GPUs not answering",
        (Query(f"sum(1 - {anywhere('amdgpu_up')})"),),
        "GPUs that should be there and could not be read in the last poll.",
        unit=NUMBER,
        steps=((1, BAD),),
    ),
    Stat(
        "Uncorrectable errors, 1 h",
        (Query(f"round(sum(increase({anywhere('amdgpu_ecc_uncorrectable_errors_total')}[1h])))"),),
        "Errors in the last hour whose data was lost.",
        unit=NUMBER,
        empty=NO_ECC,
        steps=((1, BAD),),
    ),
    Table(
        "What is broken",
        (Query(f"sort_desc({_BROKEN})"),),
        "One row for each GPU, link or source with a fault now, with the value that says so.",
        unit=NUMBER,
        empty=NOTHING_OR_DEAD,
        wide=24,
        high=7,
        columns=(
            Column("instance", "Node", wide=200),
            Column("gpu", "GPU", wide=70),
            Column("pci", "PCI", wide=130),
            Column("what", "What"),
            Column("Value", "Value", unit=NUMBER, wide=120),
        ),
    ),
)

IDLE = (
    Series(
        "Busy: how GPUs differ",
        tuple(
            Query(f"quantile({share}, {_BUSY})", words)
            for share, words in ((0.9, "busiest tenth"), (0.5, "middle"), (0.1, "least busy tenth"))
        ),
        "Share of time with any work: a tenth of the GPUs is above the upper line, a tenth below the lower.",
        low=0,
        top=1,
        wide=12,
    ),
    Bars(
        "Idle: 10 least busy GPUs",
        (Query(f"sort(bottomk(10, avg_over_time({_BUSY}[$__range])))", GPU_NAME),),
        "Mean over the time shown.",
        top=1,
        decimals=1,
        wide=6,
    ),
    Bars(
        "Power: 10 highest",
        (Query(f"sort_desc(topk(10, {anywhere('amdgpu_power_watts')}))", GPU_NAME),),
        "A GPU that draws much and computes little is worth a look.",
        wide=6,
    ),
)

SLOW = (
    Bars(
        "What held the GPUs back",
        (
            Query(
                "sort_desc("
                + divided(
                    f"sum by (bottleneck) (rate({anywhere('amdgpu_window_verdicts_total')}[$window]))",
                    f"sum(rate({anywhere('amdgpu_window_verdicts_total')}[$window]))",
                    on="",
                )
                + ")",
                "{{bottleneck}}",
            ),
        ),
        "Share of the traced windows that showed each bottleneck, all nodes together.",
        unit=PART,
        empty=NO_TRACES,
        top=1,
        decimals=1,
        wide=6,
        high=9,
    ),
    Bars(
        "Starved: 10 worst",
        (Query(f"sort_desc(topk(10, {_state('starved')}))", DEVICE_NAME),),
        "Share of window time with nothing to run and nothing submitted: the host is too slow.",
        unit=PART,
        empty=NO_TRACES,
        top=1,
        decimals=1,
        wide=6,
        high=9,
    ),
    Bars(
        "Waiting for launches: 10 worst",
        (Query(f"sort_desc(topk(10, {_state('queued', 'launching')}))", DEVICE_NAME),),
        "Share of window time in which kernels were being launched or queued and none ran.",
        unit=PART,
        empty=NO_TRACES,
        top=1,
        decimals=1,
        wide=6,
        high=9,
    ),
    Bars(
        "Executing: 10 best",
        (Query(f"sort_desc(topk(10, {_state('executing')}))", DEVICE_NAME),),
        "Share of window time in which kernels ran.",
        unit=PART,
        empty=NO_TRACES,
        top=1,
        decimals=1,
        wide=6,
        high=9,
    ),
    Bars(
        "Compute density: 10 lowest",
        (
            Query(
                "sort(bottomk(10, "
                + _windows(
                    anywhere("amdgpu_valu_instructions_total"),
                    anywhere("amdgpu_counters_available_instructions_total", set="compute"),
                )
                + "))",
                DEVICE_NAME,
            ),
        ),
        "Instructions per instruction slot; busy GPUs with a low value wait for memory.",
        unit=PART,
        empty=NO_PEAK,
        top=1,
        decimals=1,
    ),
    Bars(
        "L2 hits: 10 lowest",
        (
            Query(
                "sort(bottomk(10, "
                + _windows(
                    anywhere("amdgpu_cache_hits_total", cache="l2"),
                    anywhere("amdgpu_cache_requests_total", cache="l2"),
                )
                + "))",
                DEVICE_NAME,
            ),
        ),
        "Compare GPUs of one model only.",
        unit=PART,
        empty=NO_COUNTERS,
        top=1,
        decimals=1,
    ),
    Bars(
        "Clocks held down: 10 worst",
        (Query(f"sort_desc(topk(10, {_throttled()} > 0))", f"{GPU_NAME} {{{{reason}}}}"),),
        "Share of the last 15 minutes in which a reason held clocks down.",
        unit=PART,
        empty="No GPU says that its clocks were held down. Not every chip counts it.",
        steps=((0.05, WARN), (0.5, BAD)),
        top=1,
        decimals=1,
    ),
)

BOARD = Board(
    uid="amdgpu-fleet",
    title="AMD GPU fleet",
    about="What is broken, what is idle, what is slow, over all nodes.",
    variables=(*PLACE, WINDOW),
    rows=(("What is broken", BROKEN), ("What is idle", IDLE), ("What is slow", SLOW)),
)
