"""The sections about profiling windows: what is started, what it may cost, and what a healthy GPU shows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from exporter.config.durations import Duration
from exporter.config.section import PathText, Ratio, Section, Texts
from exporter.config.section import declare as _key
from exporter.windows.policy import Deny


def _denied(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        Deny.parse(entry)
    return entries


Denied = Annotated[Texts, AfterValidator(_denied)]


class WindowsSection(Section):
    """Profiling windows: what the daemon may start, what it reads, and what it may cost."""

    preset: Literal["off", "spool", "counters", "canary", "attach"] = _key(
        "spool",
        "Where windows come from: nowhere (off); jobs that leave theirs in the spool folder (spool); and "
        "beside these, taken by the daemon: hardware counters of every GPU (counters), a profiled command "
        "(canary), or processes that were prepared and listed (attach).",
    )
    spool_dir: PathText | None = _key(None, "Spool folder; none: `spool` inside the state folder.")
    interval: Duration = _key(300.0, "Time between two windows of one GPU that is aimed at.", ge=1)
    duration: Duration = _key(
        lambda data: {"counters": 0.01, "attach": 0.5}.get(data.get("preset", ""), 1.0),
        "Length of one window.",
        derived="10ms for counters, 500ms for attach, else 1s",
        ge=0.001,
        le=60,
    )
    duty_cycle: float = _key(
        0.004,
        "Most of the time that windows may take, their start and end included (ratio).",
        ge=0.00001,
        le=0.1,
    )
    device_counting: bool = _key(
        False,
        "Let preset counters take windows. It never ran on hardware: try it on a node that may fail.",
    )
    command: Texts = _key(
        (),
        "The command that preset canary profiles, word by word, such as a small benchmark.",
        expected="a list of words; as text with commas between them",
    )
    allow: Texts = _key(
        (),
        "Names of processes (as `ps -o comm` shows them, `*` for any text) that preset attach may attach to; "
        "each must have been started with ROCP_TOOL_ATTACH=1.",
        expected="a list of names; as text with commas between them",
    )
    deny: Denied = _key(
        (),
        "Combinations in which no window is started, as CHIP:ROCM:MODE with `*` for any text; MODE is "
        "counters, trace or a preset (`gfx942:7.2*:attach`).",
        expected="a list of CHIP:ROCM:MODE, such as gfx942:7.2*:attach; as text with commas between them",
    )
    deep_per_day: int = _key(
        4, "Windows of the deep counter sets of one GPU within 24 h (count).", ge=0, le=1000
    )
    memory_most: Ratio = _key(0.97, "Used memory of a GPU above which it gets no window (ratio).")
    process_age: Duration = _key(120.0, "A GPU with a process younger than this gets no window.", ge=0)
    quiet: Duration = _key(600.0, "No window this long after a reset or a change of partitions.", ge=0)
    collective_gpus: int = _key(
        4, "GPUs with collectives at most, for a trace to be started: on more it may hang them (count).", ge=0
    )
    breaker_errors: int = _key(
        3,
        "Failed windows in a row after which none is started for a while (count); one crash is enough.",
        ge=1,
    )
    breaker_backoff: Duration = _key(
        900.0, "How long none is started then; twice as long after each failed trial, up to a day.", ge=1
    )
    max_bytes: int = _key(
        256 * 1024 * 1024,
        "Files of one window at most (bytes); a profiler that writes more is ended.",
        ge=1024 * 1024,
        le=16 * 1024 * 1024 * 1024,
    )
    grace: Duration | None = _key(
        None,
        "Time that a profiler may take beyond the window, to start and to let go; then it is ended. None: "
        "30s, and 2m where a process was attached to, whose detach may take as long.",
        ge=1,
        le=3600,
    )
    spool_user_bytes: int = _key(
        1024 * 1024 * 1024, "Files of one user in the spool folder at most (bytes).", ge=1024 * 1024
    )
    spool_user_windows: int = _key(
        200, "Windows of one user that wait in the spool folder at most (count).", ge=1, le=100_000
    )
    gauge_max_age: Duration = _key(
        lambda data: max(3 * data["interval"], 900.0),
        "Age at which the gauges of the last window are withdrawn.",
        derived="3 × windows.interval, at least 15m",
        ge=1,
    )


class AdviceSection(Section):
    """What a healthy GPU shows; beyond it, the deep counter sets are taken. Advice: chips differ widely."""

    compute_density_least: Ratio = _key(
        0.80, "VALU instructions per slot while active; only where the matrix pipes are idle too (ratio)."
    )
    matrix_busy_least: Ratio = _key(0.30, "Busy matrix pipes that excuse a low VALU share (ratio).")
    l2_hit_least: Ratio = _key(0.85, "L2 hits of all requests (ratio).")
    valu_utilization_least: Ratio = _key(0.70, "Active lanes of a VALU instruction (ratio).")
    memory_busy_most: Ratio = _key(0.90, "Busy memory controller (ratio).")
    atomic_most: Ratio = _key(0.05, "Atomic operations of all L2 requests (ratio).")
    launch_queue_most: Duration = _key(0.00005, "Mean queue time of a launch.", ge=0)
    bandwidth_least: Ratio = _key(0.60, "Memory bandwidth of the peak, where memory is what limits (ratio).")
