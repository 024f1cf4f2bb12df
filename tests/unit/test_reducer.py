"""The reducer child: one window in, one answer out, inside hard limits."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.backends.replay import demo_path
from exporter.child import Child
from exporter.model import Device, DeviceId, Reason, Series, SourceError, WindowOutcome
from exporter.windows import wire
from exporter.windows.ledger import Ledger

REPO = Path(__file__).resolve().parents[2]
WINDOWS = demo_path() / "windows"
TRUTH = REPO / "tests" / "demo_truth"
NAMES = sorted(p.name for p in WINDOWS.iterdir())
TRACED = [n for n in NAMES if "counters" not in n and "empty" not in n]


def ask(*paths: Path, **settings: int) -> list[dict[str, Any] | SourceError]:
    """Send the windows to one child, one after the other."""

    async def talk() -> list[dict[str, Any] | SourceError]:
        child = Child("reducer", "exporter.windows.reducer", settings)
        answers: list[dict[str, Any] | SourceError] = []
        try:
            for path in paths:
                try:
                    answers.append(await child.request({"op": "reduce", "path": str(path)}, 30.0))
                except SourceError as e:
                    answers.append(e)
            answers.append({"starts": child.starts})
        finally:
            await child.stop()
        return answers

    return asyncio.run(talk())


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    got = ask(*(WINDOWS / name for name in NAMES))
    return dict(zip([*NAMES, "last"], got, strict=True))


def truth(name: str) -> dict[str, Any]:
    return json.loads((TRUTH / f"{name}.json").read_text())


def test_one_child_reduces_all_windows(answers: dict[str, Any]) -> None:
    assert answers["last"] == {"starts": 1}
    outcomes = {name: answers[name]["outcome"] for name in NAMES}
    assert outcomes == {name: "empty" if "empty" in name else "ok" for name in NAMES}


@pytest.mark.parametrize("name", TRACED)
def test_a_demo_window_reaches_its_truth(answers: dict[str, Any], name: str) -> None:
    window, sources, [result] = wire.decode(answers[name])
    known = truth(name)
    assert window.mode == "trace"
    assert window.id == f"demo-{name}"
    assert not any(s.skipped or s.partial for s in sources)
    assert result.device == DeviceId(known["gpu"])
    assert result.span_kind == "planned"
    assert dict(result.timeline_ns) == known["timeline_ns"]
    plain = (
        "span_ns kernels launches queue_ns launch_duration_ns launch_call_ns execution_ns busy_ns "
        "unmatched_kernels unmatched_calls skewed collective_exposed_ns"
    )
    assert {key: getattr(result, key) for key in plain.split()} == {key: known[key] for key in plain.split()}
    assert result.bottleneck == known["bottleneck"]
    if known["copy_exposed_ns"] is None:
        assert result.copy_exposed_ns is None, "without a copy trace it is unknown"
    else:
        exposed = result.copy_exposed_ns or {}
        assert {way: ns for way, ns in exposed.items() if ns} == known["copy_exposed_ns"]


@pytest.mark.parametrize("name", [n for n in NAMES if "counters" in n])
def test_a_demo_counter_window_reaches_its_truth(answers: dict[str, Any], name: str) -> None:
    window, _, [result] = wire.decode(answers[name])
    known = truth(name)
    assert window.mode == "counters"
    assert result.device == DeviceId(known["gpu"])
    assert (result.l2_hits, result.l2_requests) == (known["l2_hits"], known["l2_requests"])
    assert result.valu_instructions == known["valu_instructions"]
    assert result.l2_hit_ratio == pytest.approx(known["l2_hit_ratio"])
    assert result.compute_density_ratio == pytest.approx(known["compute_density_ratio"], rel=1e-6)
    assert result.compute_density_active_ratio == pytest.approx(
        known["compute_density_active_ratio"], rel=1e-6
    )


def test_the_demo_windows_add_up_in_the_ledger(answers: dict[str, Any]) -> None:
    ledger = Ledger()
    gpus = sorted({truth(name)["gpu"] for name in NAMES})
    ledger.know([Device(DeviceId(pci), i, gfx="gfx942") for i, pci in enumerate(gpus)])
    for at, name in enumerate(NAMES):
        ledger.add(*wire.decode(answers[name]), WindowOutcome(answers[name]["outcome"]), 100.0 + at)
    slot = ledger.slot(200.0)
    values = dict(zip(slot.series, slot.values, strict=True))
    assert slot.gaps == ()
    for name in TRACED:
        known = truth(name)
        gpu = DeviceId(known["gpu"])
        same = [t for t in map(truth, TRACED) if t["gpu"] == known["gpu"]]
        for state in known["timeline_ns"]:
            got = values[Series("amdgpu_timeline_seconds_total", gpu, (state,))]
            assert got == pytest.approx(sum(t["timeline_ns"][state] for t in same) / 1e9, abs=1e-9)
        executed = sum(
            v
            for s, v in values.items()
            if s.metric == "amdgpu_kernel_seconds_total" and s.device == gpu and isinstance(v, float)
        )
        assert executed == pytest.approx(sum(t["execution_ns"] for t in same) / 1e9, rel=1e-9)
        assert values[Series("amdgpu_window_verdicts_total", gpu, (known["bottleneck"],))] == 1
        if known != same[-1]:
            continue  # gauges are the last window's
        assert values[Series("amdgpu_bottleneck_state", gpu, (known["bottleneck"],))] == 1
        assert values[Series("amdgpu_queue_delay_ratio", gpu)] == pytest.approx(
            known["queue_ns"] / known["launch_duration_ns"]
        )
    empty = DeviceId(truth("0008-empty")["gpu"])
    assert values[Series("amdgpu_windows_total", empty, ("trace", "empty"))] == 1
    unmapped = [v for s, v in values.items() if s.metric == "amdgpu_windows_unmapped_total"]
    assert sum(unmapped) == 0


def test_a_window_that_is_not_there_is_said_and_the_child_lives_on(tmp_path: Path) -> None:
    gone, good, count = ask(tmp_path / "nowhere", WINDOWS / "0003-host_stalled")
    assert isinstance(gone, SourceError)
    assert "nowhere" in str(gone)
    assert "\n" not in str(gone)
    assert isinstance(good, dict)
    assert good["outcome"] == "ok"
    assert count == {"starts": 1}


def test_a_bomb_ends_at_the_memory_limit_and_costs_only_itself(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.mkdir()
    good = next((WINDOWS / "0003-host_stalled").glob("*_kernel_trace.csv")).read_text().splitlines()
    head, _, rest = good[1].partition('"Cijk')
    end = rest.partition('"')[2]
    assert rest
    with gzip.open(bomb / "1_kernel_trace.csv.gz", "wt", compresslevel=1) as f:
        f.write(good[0] + "\n")
        for i in range(100_000):
            f.write(f'{head}"{i}{"k" * 2000}"{end}\n')
    first, second, count = ask(bomb, WINDOWS / "0003-host_stalled", memory_bytes=220 << 20)
    assert isinstance(first, SourceError)
    assert first.reason is Reason.CRASHED
    assert "needs more than 220 MiB" in str(first)
    assert isinstance(second, dict)
    assert second["outcome"] == "ok"
    assert count == {"starts": 1}


def test_a_window_of_nothing_known_is_malformed_and_says_what_it_saw(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "1_kernel_trace.csv").write_text("this is a letter\n")
    (tmp_path / "empty").mkdir()
    odd, empty, _ = ask(tmp_path / "w", tmp_path / "empty")
    assert isinstance(odd, SourceError)
    assert odd.reason is Reason.MALFORMED
    assert "1_kernel_trace.csv" in str(odd)
    assert isinstance(empty, dict)
    assert empty["outcome"] == "empty"


def test_the_child_confines_itself() -> None:
    script = (
        "import json, os, resource\n"
        "from exporter.windows.reducer import confine\n"
        "before = os.nice(0)\n"
        "confine(700 << 20)\n"
        "print(json.dumps([resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CORE),"
        " os.nice(0) - before]))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPO)
    memory, core, nicer = json.loads(run.stdout)
    assert memory == [700 << 20, 700 << 20]
    assert core == [0, 0]
    assert nicer > 0
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 700 << 20


def test_the_child_loads_nothing_of_the_web_or_the_configuration() -> None:
    script = "import sys, exporter.windows.reducer; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPO)
    loaded = set(run.stdout.split())
    assert not loaded & {"fastapi", "uvicorn", "pydantic", "yaml", "typer", "rich", "prometheus_client"}
    assert not [m for m in loaded if m.startswith("exporter.config")]
