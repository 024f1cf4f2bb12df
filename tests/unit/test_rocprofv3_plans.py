"""Command lines of rocprofv3, by what each release lists in its help.

6.2 has no collection period; 6.4 has one (short -p); 7.0 renamed the short form to -P, added --version and
made the rocpd database the default; 7.1 attaches; later releases attach to children unless told not to, and
can wait for the output.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from exporter.model import WindowOutcome
from exporter.profilers import job, rocprofv3_window
from exporter.profilers.job import Periods
from exporter.profilers.plan import Plan, Refusal, Request, Tool
from exporter.profilers.toolbox import Toolbox

V62 = {"--kernel-trace", "--hip-runtime-trace", "--memory-copy-trace", "--output-format", "-d", "-i", "-o"}
V64 = V62 | {"--pmc", "-p", "--collection-period", "--collection-period-unit", "--rocm-root"}
V70 = (V64 - {"-p"}) | {"-P", "-f", "-v", "--version", "--disable-signal-handlers", "--selected-regions"}
V71 = V70 | {"-p", "--pid", "--attach", "--attach-duration-msec"}
V101 = V71 | {"--attach-children", "--attach-sync-output"}
OUT = "/spool/.window-1/out"


def tool(options: set[str], version: tuple[int, ...] | None = None) -> Tool:
    return Tool("rocprofv3", "/opt/rocm/bin/rocprofv3", version, frozenset(options))


def planned(request: Request, options: set[str]) -> Plan | Refusal:
    return Toolbox().plan(request, (tool(options),), "/spool/.window-1")


@pytest.mark.parametrize(("options", "form"), [(V62, "csv"), (V64, "csv"), (V70, "rocpd"), (V101, "rocpd")])
def test_a_command_is_traced_with_what_every_release_has(options: set[str], form: str) -> None:
    plan = planned(Request("trace", 1.0, command=("/opt/canary", "--small")), options)
    assert isinstance(plan, Plan)
    traces = ("--kernel-trace", "--hip-runtime-trace", "--memory-copy-trace")
    files = ("--output-format", form, "-d", OUT)
    assert plan.argv == ("/opt/rocm/bin/rocprofv3", *traces, *files, "--", "/opt/canary", "--small")
    assert plan.ends_itself
    assert {word for word in plan.argv[1:8] if word.startswith("-")} <= options | {"-d"}


@pytest.mark.parametrize("options", [V62, V64, V70])
def test_releases_before_7_1_cannot_attach(options: set[str]) -> None:
    refusal = planned(Request("trace", 0.5, pid=4711), options)
    assert isinstance(refusal, Refusal)
    assert (refusal.outcome, refusal.reason) == (WindowOutcome.BLOCKED, "too_old")
    assert "7.1" in refusal.detail


@pytest.mark.parametrize(
    ("options", "more"), [(V71, ()), (V101, ("--attach-children=false", "--attach-sync-output"))]
)
def test_an_attach_is_short_of_one_process_and_never_with_counters(
    options: set[str], more: tuple[str, ...]
) -> None:
    plan = planned(Request("trace", 0.5, pid=4711), options)
    assert isinstance(plan, Plan)
    length = ("--attach", "4711", "--attach-duration-msec", "500")
    files = ("--output-format", "rocpd", "-d", OUT)
    assert plan.argv[1:] == ("--kernel-trace", "--hip-runtime-trace", *more, *length, *files)
    assert plan.grace_s >= 120, "a detach may take two minutes by the tool's own words"
    assert "--pmc" not in plan.argv


@pytest.mark.parametrize(
    ("request_", "tools", "words"),
    [
        (Request("trace", 1.0, command=("x",)), (), "no rocprofv3"),
        (Request("trace", 1.0), (tool(V70),), "windows.command"),
        (Request("counters", 0.01, counters=("SQ_WAVES",)), (tool(V70),), "device-counting"),
    ],
)
def test_what_cannot_be_planned_says_why(request_: Request, tools: tuple[Tool, ...], words: str) -> None:
    refusal = Toolbox().plan(request_, tools, "/s")
    assert isinstance(refusal, Refusal)
    assert words in refusal.detail


def test_rocprofv3_is_never_asked_for_counters() -> None:
    refusal = rocprofv3_window.plan(Request("counters", 1.0, counters=("SQ_WAVES",)), tool(V101), "/s")
    assert isinstance(refusal, Refusal)


# --- a job's own windows --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [V64, V70, V101])
def test_a_jobs_period_is_given_by_its_long_name_which_never_changed(options: set[str]) -> None:
    argv = job.wrap(tool(options), Periods(300.0, 1.5, 12), "/spool/0/w.partial/out")
    assert isinstance(argv, tuple)
    at = argv.index("--collection-period")
    assert argv[at : at + 4] == ("--collection-period", "300000:1500:12", "--collection-period-unit", "msec")
    assert ("--disable-signal-handlers" in argv) == ("--disable-signal-handlers" in options)
    assert argv[-1] == "--"
    assert {w for w in argv[1:] if w.startswith("--") and len(w) > 2} <= options
    # A flag right before a word that is no option would swallow it as its value.
    for flag, word in pairwise(argv):
        if flag.endswith(("-trace", "-handlers")):
            assert word.startswith("-")


def test_a_job_on_an_older_release_is_refused_with_the_way_out() -> None:
    refusal = job.wrap(tool(V62), Periods(1.0, 1.0, 1), "/x")
    assert isinstance(refusal, Refusal)
    assert "6.4" in refusal.detail


def test_a_period_below_a_millisecond_is_one_and_never_none() -> None:
    argv = job.wrap(tool(V70), Periods(0.0001, 0.0001, 1), "/x")
    assert "1:1:1" in argv  # type: ignore[operator]


def test_options_are_read_out_of_a_help_text() -> None:
    text = (
        "usage: rocprofv3 [-h] [-v]\n  -P PERIOD, --collection-period START:COLLECT:REPEAT\n  --pmc [PMC ...]"
    )
    assert job.options(text) == {"-h", "-v", "-P", "--collection-period", "--pmc"}


@pytest.mark.parametrize("name", ["ROCP_TOOL_LIBRARIES", "ROCPROFILER_LIBRARY_CTOR", "HSA_TOOLS_LIB"])
def test_a_job_that_carries_a_profiler_already_is_known(name: str) -> None:
    assert job.carried(["PATH", name]) == name
    assert job.carried(["PATH", "ROCP_TOOL_ATTACH"]) is None
