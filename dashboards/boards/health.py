"""Exporter health: whether to trust the other boards, and what watching costs."""

from __future__ import annotations

from dashboards.boards.common import CLUSTER, NO_TRACES, SOME_NODES, WINDOW
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
    Stat,
    Table,
)
from dashboards.query import DEVICE_NAME, NODE_NAME, PER_DEVICE, PER_NODE, anywhere, rate
from exporter.catalogue.schema import Unit

_TIME = UNITS[Unit.SECONDS]
_SOURCE = f"{NODE_NAME} {{{{source}}}}"
_LAST = anywhere("amdgpu_exporter_source_last_success_timestamp_seconds")


def _added(series: str, by: str, **labels: str) -> str:
    """How many the windows up to now added to a count."""
    return f"sum by ({by}) (increase({anywhere(series, **labels)}[$window]))"


_UNMAPPED = _added("amdgpu_windows_unmapped_total", f"{PER_NODE}, mode, result")
_SKIPPED = _added("amdgpu_window_rows_skipped_total", f"{PER_NODE}, reason")
_RESULTS = _added("amdgpu_windows_total", "mode, result")
_TAKEN = anywhere("amdgpu_window_last_timestamp_seconds")
_COVERAGE = anywhere("amdgpu_window_coverage_ratio")
_OBSERVED = anywhere("amdgpu_window_observed_seconds_total")
_UNKNOWN = _added("amdgpu_window_verdicts_total", PER_DEVICE, bottleneck="unknown")
_LEFT_OUT = (
    f'label_join({_UNMAPPED} > 0, "what", " ", "mode", "result")'
    f' or label_replace({_SKIPPED} > 0, "what", "row: $1", "reason", "(.*)")'
)

TRUST = (
    Stat(
        "Sources up",
        (Query(f"sum({anywhere('amdgpu_exporter_source_up')})"),),
        "Sources whose latest poll succeeded.",
        unit=NUMBER,
    ),
    Stat(
        "Sources down",
        (Query(f"sum(1 - {anywhere('amdgpu_exporter_source_up')})"),),
        "Sources whose latest poll failed, hung or lost its reader.",
        unit=NUMBER,
        steps=((1, BAD),),
    ),
    Stat(
        "Oldest data",
        (Query(f"max(time() - {_LAST})"),),
        "Age of the latest success of the source furthest behind; a few polling intervals are normal.",
        unit=_TIME,
        steps=((60, WARN), (300, BAD)),
    ),
    Stat(
        "Configurations refused",
        (Query(f"sum(1 - {anywhere('amdgpu_exporter_config_last_reload_successful')})"),),
        "Nodes that run on their last good configuration because the newest is broken.",
        unit=NUMBER,
        steps=((1, WARN),),
    ),
    Stat(
        "Series left out",
        (Query(f"round(sum(increase({anywhere('amdgpu_exporter_series_dropped_total')}[$__range])))"),),
        "Because a page reached series.max, added up over pages in the time shown.",
        unit=NUMBER,
        steps=((1, WARN),),
    ),
    Stat(
        "Replays",
        (Query(f"count({anywhere('amdgpu_exporter_replay_info')})"),),
        "Nodes that replay a capture: nothing they serve describes their machine.",
        unit=NUMBER,
        empty="none",
        steps=((1, WARN),),
    ),
)

SOURCES = (
    Series(
        "Up",
        (Query(anywhere("amdgpu_exporter_source_up"), _SOURCE),),
        "0 while a source fails.",
        unit=NUMBER,
        low=0,
        top=1,
        steps_line=True,
    ),
    Series(
        "Time of a poll",
        (Query(anywhere("amdgpu_exporter_source_duration_seconds"), _SOURCE),),
        "Near the deadline means that polls are about to fail.",
        low=0,
    ),
    Series(
        "Age of the latest success",
        (Query(f"time() - {_LAST}", _SOURCE),),
        "Rises by itself while a source fails.",
        unit=_TIME,
        low=0,
    ),
    Series(
        "Failed polls",
        (
            Query(
                f"{rate(anywhere('amdgpu_exporter_source_failures_total'))} > 0", f"{_SOURCE} {{{{reason}}}}"
            ),
        ),
        "By reason; nothing is drawn while none fails.",
        unit=EACH_SECOND,
        empty="No failed poll, or no data at all: Up tells which.",
        low=0,
    ),
    Series(
        "Readings missing",
        (Query(f"{anywhere('amdgpu_exporter_readings_missing')} > 0", f"{_SOURCE} {{{{reason}}}}"),),
        "Readings that a source should give and does not. Unsupported is the chip or driver.",
        empty="Nothing missing, or no data at all: Up tells which.",
        low=0,
    ),
    Series(
        "Starts of helper processes",
        (
            Query(
                f"increase({anywhere('amdgpu_exporter_child_starts_total')}[$__rate_interval])",
                f"{NODE_NAME} {{{{child}}}}",
            ),
        ),
        "A reader that starts again and again dies or is ended for being stuck.",
        unit=NUMBER,
        low=0,
    ),
)

WINDOWS = (
    Stat(
        "Sampling",
        (Query(f"count by (state) ({anywhere('amdgpu_sampling_state')} == 1)", "{{state}}"),),
        "Nodes by whether the exporter starts windows itself: off until a preset that does is chosen.",
        unit=NUMBER,
        wide=6,
        high=8,
        text="value_and_name",
    ),
    Bars(
        "Windows by result",
        (
            Query(
                f"sort_desc(round({_RESULTS}) > 0)",
                "{{mode}} {{result}}",
            ),
        ),
        "What became of the windows, per GPU they speak of.",
        unit=NUMBER,
        empty=NO_TRACES,
        wide=6,
    ),
    Series(
        "Age of the last window",
        (Query(f"max by ({PER_NODE}, mode) (time() - {_TAKEN})", f"{NODE_NAME} {{{{mode}}}}"),),
        "Of the GPU furthest behind. Gauges of the last window vanish with age, after 15 minutes or more.",
        unit=_TIME,
        empty=NO_TRACES,
        low=0,
        wide=12,
    ),
    Series(
        "Time observed",
        (
            Query(
                f"avg by ({PER_NODE}, mode) (rate({_OBSERVED}[$window]))",
                f"{NODE_NAME} {{{{mode}}}}",
            ),
        ),
        "Share of all time that windows cover, mean over the GPUs.",
        unit=PART,
        low=0,
        decimals=2,
    ),
    Series(
        "Launches seen of kernels",
        (Query(f"min by ({PER_NODE}, mode) ({_COVERAGE})", f"{NODE_NAME} {{{{mode}}}}"),),
        "Of the GPU with the least. Below 1, queue times speak of a part of the work.",
        empty=NO_TRACES,
        low=0,
        top=1,
    ),
    Series(
        "Launches that cannot be used",
        (
            Query(
                f"sum by ({PER_NODE}, side) (rate({anywhere('amdgpu_launches_unmatched_total')}[$window]))",
                f"{NODE_NAME} unmatched {{{{side}}}}",
            ),
            Query(
                f"sum by ({PER_NODE}) (rate({anywhere('amdgpu_launches_skewed_total')}[$window]))",
                f"{NODE_NAME} skewed",
            ),
        ),
        "Left out of queue times. Skewed ones mean clocks that do not agree.",
        unit=EACH_SECOND,
        low=0,
    ),
    Table(
        "Windows without a GPU, rows left out",
        (Query(_LEFT_OUT),),
        "Windows that belong to no known GPU, and rows of profiler output that were no use, by reason.",
        unit=NUMBER,
        empty="No rows: everything that came in was used, or nothing came in: Windows by result tells which.",
        columns=(
            Column("instance", "Node", wide=140),
            Column("what", "What"),
            Column("Value", "Count", unit=NUMBER, wide=90),
        ),
    ),
    Bars(
        "Verdicts that cannot be given",
        (
            Query(
                f"sort_desc(topk(10, {_UNKNOWN} > 0))",
                DEVICE_NAME,
            ),
        ),
        "Windows whose timeline is not known: another process was not traced, or launches are missing.",
        unit=NUMBER,
        empty="No window without a verdict, or no window at all: Windows by result tells which.",
    ),
)

COST = (
    Series(
        "Processor",
        (Query(rate(anywhere("amdgpu_exporter_cpu_seconds_total")), f"{NODE_NAME} {{{{process}}}}"),),
        "Cores used by the exporter's processes.",
        unit=PART,
        low=0,
    ),
    Series(
        "Memory",
        (Query(anywhere("amdgpu_exporter_resident_memory_bytes"), f"{NODE_NAME} {{{{process}}}}"),),
        "Of the exporter's processes.",
        low=0,
    ),
    Series(
        "Series served",
        (Query(anywhere("amdgpu_exporter_series"), NODE_NAME),),
        "In one page of one node.",
        low=0,
    ),
    Series(
        "Rendering a page",
        (Query(anywhere("amdgpu_exporter_render_duration_seconds"), NODE_NAME),),
        "Once per change, not per scrape.",
        low=0,
    ),
    Series(
        "Pages rendered",
        (Query(rate(anywhere("amdgpu_exporter_generation_total")), NODE_NAME),),
        "One per poll, window and expiry.",
        unit=EACH_SECOND,
        low=0,
    ),
    Table(
        "Versions",
        (Query(f"count by ({PER_NODE}, version, python) ({anywhere('amdgpu_exporter_build_info')})"),),
        "What runs where.",
        unit=NUMBER,
        columns=(Column("instance", "Node"), Column("version", "Version"), Column("python", "Python")),
    ),
)

BOARD = Board(
    uid="amdgpu-exporter-health",
    title="AMD GPU exporter health",
    about="Whether to trust the other dashboards: sources, windows, and what watching costs.",
    variables=(CLUSTER, SOME_NODES, WINDOW),
    rows=(("Can it be trusted?", TRUST), ("Sources", SOURCES), ("Windows", WINDOWS), ("Cost", COST)),
)
