"""What the helper for device counters prints, and what is made of it: values computed by hand.

One GPU of the example: eight dies at 2 GHz for 10 ms are 160 million cycles; 304 compute units offered
20 million x 304 = 6.08 billion instruction slots; 1.52 billion instructions are a quarter of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.formats.trace import DEVICE_WIDE, Names
from exporter.model import DeviceId, WindowOutcome, WindowResult
from exporter.windows import intake, reducer, wire
from exporter.windows.book import counter_gauges

A, B = DeviceId("0000:05:00.0"), DeviceId("0000:26:00.0")
COUNTERS: dict[str, Any] = {
    "GRBM_COUNT": 160_000_000,
    "GRBM_GUI_ACTIVE": 80_000_000,
    "SQ_INSTS_VALU": 1_520_000_000,
    "SQ_ACTIVE_INST_VALU": 1_520_000_000,
    "SQ_THREAD_CYCLES_VALU": 48_640_000_000,
    "SQ_WAVES": 8_000,
    "TCC_HIT_sum": 850,
    "TCC_MISS_sum": 150,
}
DIES = {name: 8 for name in COUNTERS if not name.startswith("TCC")} | {"TCC_HIT_sum": 1, "TCC_MISS_sum": 1}


def device(node: int = 4, pci: str = A.pci, **more: Any) -> dict[str, Any]:
    made = {
        "pci": pci,
        "node": node,
        "gpu_id": 40001,
        "render_minor": 128,
        "device_id": 0x74A1,
        "gfx": "gfx942",
        "compute_units": 304,
        "xccs": 8,
        "status": "ok",
        "lock": None,
        "seconds": 0.0102,
        "read_seconds": 0.0004,
        "counters": dict(COUNTERS),
        "instances": dict(DIES),
        "unknown": [],
        "error": None,
    }
    return made | more


def document(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "protocol": 1,
        "tool": "amdgpu-exporter-counting",
        "version": "1.0",
        "sdk": "1.0.0",
        "asked_seconds": 0.01,
        "counters_asked": list(COUNTERS),
        "devices": list(devices),
        "errors": [],
    }
    return made | more


def load(folder: Path, content: Any, manifest: dict[str, Any] | None = None) -> intake.Analysis:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "counters.json").write_text(text)
    if manifest is not None:
        (folder / "manifest.json").write_text(json.dumps({"version": 1, "mode": "counters", **manifest}))
    return intake.load([folder])


def outcome(analysis: intake.Analysis) -> WindowOutcome:
    return wire.outcome_of(analysis.sources, analysis.results)


def only(analysis: intake.Analysis) -> WindowResult:
    [result] = analysis.results
    return result


def shown(result: WindowResult) -> dict[str, float]:
    return {name: value for (name, _), value in counter_gauges(result, "gfx942").items()}


def test_one_gpu_by_hand(tmp_path: Path) -> None:
    analysis = load(tmp_path, document(device()))
    [source] = analysis.sources
    assert (source.format, source.tool, source.rows, source.skipped) == (
        "device-counting",
        "device_counting",
        1,
        {},
    )
    assert (analysis.window.mode, outcome(analysis), analysis.notes) == ("counters", WindowOutcome.OK, ())
    result = only(analysis)
    assert (result.device, result.kernels, result.span_ns) == (A, 0, None)
    assert (result.l2_hits, result.l2_requests, result.valu_instructions) == (850, 1000, 1_520_000_000)
    assert (result.slots_available, result.slots_active) == (6_080_000_000, 3_040_000_000)
    assert result.counter_observed_ns == 10_000_000  # to the middle of a reading of 0.4 ms
    assert shown(result) == {
        "amdgpu_compute_density_ratio": 0.25,
        "amdgpu_compute_density_active_ratio": 0.5,
        "amdgpu_l2_hit_ratio": 0.85,
        "amdgpu_valu_instructions_per_second": 152e9,
        "amdgpu_valu_utilization_ratio": 0.5,  # 32 lanes of 64
    }


def test_each_gpu_is_its_own(tmp_path: Path) -> None:
    other = {**COUNTERS, "SQ_INSTS_VALU": 608_000_000, "TCC_HIT_sum": 100, "TCC_MISS_sum": 300}
    analysis = load(tmp_path, document(device(), device(5, B.pci, counters=other)))
    found = {r.device: (r.compute_density_ratio, r.l2_hit_ratio) for r in analysis.results}
    assert found == {A: (0.25, 0.85), B: (0.1, 0.25)}


def test_partitions_of_one_gpu_are_told_apart_by_the_manifest(tmp_path: Path) -> None:
    agents = {"Agent 4": f"{A.pci}/0", "Agent 5": f"{A.pci}/1"}
    small = {"compute_units": 38, "xccs": 1, "instances": {"GRBM_COUNT": 1}}
    cycles = {"GRBM_COUNT": 20_000_000, "SQ_INSTS_VALU": 76_000_000}
    parts = [device(4, counters=cycles, **small), device(5, counters=cycles, **small)]
    analysis = load(tmp_path, document(*parts), {"agents": agents})
    found = {r.device: r.compute_density_ratio for r in analysis.results}
    # 20 million cycles of 38 compute units are 760 million slots
    assert found == {DeviceId(A.pci, 0): 0.1, DeviceId(A.pci, 1): 0.1}


@pytest.mark.parametrize("slow", [1, 0.05])
def test_cycles_are_divided_by_the_dies_that_were_added_up_whatever_the_clock(
    tmp_path: Path, slow: float
) -> None:
    # At 100 MHz the sum of eight dies could be one die at 800 MHz; the number of instances tells.
    counters = {name: value * slow for name, value in COUNTERS.items()}
    assert (
        shown(only(load(tmp_path, document(device(counters=counters)))))["amdgpu_compute_density_ratio"]
        == 0.25
    )


def test_a_count_over_neither_one_nor_all_dies_has_no_density(tmp_path: Path) -> None:
    odd = device(instances={**DIES, "GRBM_COUNT": 5}, seconds=None)
    result = only(load(tmp_path, document(odd)))
    assert (result.slots_available, result.l2_hit_ratio) == (None, 0.85)


def test_shader_counters_at_zero_on_a_busy_gpu_are_absent(tmp_path: Path) -> None:
    dark = {name: 0 if name.startswith("SQ_") else value for name, value in COUNTERS.items()}
    analysis = load(tmp_path, document(device(counters=dark)))
    assert analysis.sources[0].skipped == {"shaders_hidden": 1}
    result = only(analysis)
    assert (result.valu_instructions, result.slots_available) == (None, None)
    assert set(result.counters) == {"GRBM_COUNT", "GRBM_GUI_ACTIVE", "TCC_HIT_sum", "TCC_MISS_sum"}
    assert shown(result) == {"amdgpu_l2_hit_ratio": 0.85}
    assert result.counter_observed_ns == 10_000_000


def test_shader_counters_at_zero_on_an_idle_gpu_are_a_measurement(tmp_path: Path) -> None:
    idle = dict.fromkeys(COUNTERS, 0) | {"GRBM_COUNT": 160_000_000}
    result = only(load(tmp_path, document(device(counters=idle))))
    assert (result.valu_instructions, result.compute_density_ratio) == (0, 0)
    assert result.l2_hit_ratio is None


@pytest.mark.parametrize("lock", ["denied", "unsupported", "failed"])
def test_shader_counters_without_the_drivers_lock_are_absent(tmp_path: Path, lock: str) -> None:
    analysis = load(tmp_path, document(device(lock=lock)))
    assert analysis.sources[0].skipped == {"shaders_hidden": 1}
    assert only(analysis).valu_instructions is None
    assert only(analysis).l2_hit_ratio == 0.85


@pytest.mark.parametrize(
    "zeros",
    [dict.fromkeys(COUNTERS, 0), {**COUNTERS, "GRBM_COUNT": 0}, {"TCC_HIT_sum": 0, "TCC_MISS_sum": 0}],
)
def test_a_gpu_that_counts_not_even_cycles_counted_nothing(tmp_path: Path, zeros: dict[str, Any]) -> None:
    analysis = load(tmp_path, document(device(counters=zeros)))
    assert analysis.sources[0].skipped == {"all_zero": 1}
    assert (analysis.results, outcome(analysis)) == ((), WindowOutcome.EMPTY)


@pytest.mark.parametrize(
    ("status", "how"),
    [
        ("denied", WindowOutcome.DENIED),
        ("busy", WindowOutcome.BLOCKED),
        ("too_many_counters", WindowOutcome.EMPTY),
        ("unsupported", WindowOutcome.EMPTY),
        ("failed", WindowOutcome.EMPTY),
    ],
)
def test_a_gpu_that_refused_is_counted_with_its_reason(
    tmp_path: Path, status: str, how: WindowOutcome
) -> None:
    bad = device(status=status, counters={}, seconds=None, read_seconds=None, error="for some reason")
    analysis = load(tmp_path, document(bad))
    assert (analysis.sources[0].skipped, outcome(analysis)) == ({status: 1}, how)
    assert analysis.notes == (f"{tmp_path}/counters.json: {A.pci}: {status}: for some reason",)
    # Beside one that counted it costs only itself.
    assert outcome(load(tmp_path, document(bad, device(5, B.pci)))) is WindowOutcome.OK


def test_the_reducer_tells_why_a_window_was_denied(tmp_path: Path) -> None:
    bad = device(status="denied", counters={}, error="CAP_PERFMON is not set")
    (tmp_path / "counters.json").write_text(json.dumps(document(bad)))
    answer = reducer.reduce({"path": str(tmp_path)})
    assert answer["outcome"] == "denied"
    assert answer["detail"].endswith(f"{A.pci}: denied: CAP_PERFMON is not set")


def test_an_unknown_counter_is_named_and_never_zero(tmp_path: Path) -> None:
    counters = {k: v for k, v in COUNTERS.items() if k != "SQ_INSTS_VALU"}
    analysis = load(tmp_path, document(device(counters=counters, unknown=["SQ_INSTS_VALU"])))
    assert analysis.sources[0].skipped == {"unknown_counter": 1}
    assert "has no counter SQ_INSTS_VALU" in analysis.notes[0]
    assert (only(analysis).valu_instructions, "SQ_INSTS_VALU" in only(analysis).counters) == (None, False)


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "null", "-1", "1e31", '"5"', "true", "[]", "9" * 400]
)
def test_a_value_that_no_counter_has_is_absent(tmp_path: Path, value: str) -> None:
    text = json.dumps(document(device())).replace('"SQ_INSTS_VALU": 1520000000', f'"SQ_INSTS_VALU": {value}')
    analysis = load(tmp_path, text)
    assert analysis.sources[0].skipped == {"invalid": 1}
    assert (only(analysis).valu_instructions, only(analysis).l2_hit_ratio) == (None, 0.85)


def test_a_counter_that_stands_twice_is_absent(tmp_path: Path) -> None:
    text = json.dumps(document(device())).replace(
        '"TCC_HIT_sum": 850', '"TCC_HIT_sum": 850, "TCC_HIT_sum": 1'
    )
    analysis = load(tmp_path, text)
    assert analysis.sources[0].skipped == {"duplicate": 1}
    assert (only(analysis).l2_hit_ratio, only(analysis).compute_density_ratio) == (None, 0.25)


def test_a_device_that_says_a_thing_twice_or_stands_twice_counts_once_at_most(tmp_path: Path) -> None:
    text = json.dumps(document(device())).replace('"node": 4', '"node": 4, "node": 5')
    assert load(tmp_path, text).sources[0].skipped == {"malformed": 1}
    analysis = load(tmp_path, document(device(), device()))
    assert (analysis.sources[0].skipped, only(analysis).l2_requests) == ({"duplicate": 1}, 1000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"pci": "c1:00.0"},
        {"pci": None},
        {"node": "4"},
        {"node": True},
        {"node": -1},
        {"status": "fine"},
        {"status": None},
    ],
)
def test_a_device_that_cannot_be_told_costs_itself(tmp_path: Path, wrong: dict[str, Any]) -> None:
    analysis = load(tmp_path, document(device(**wrong), device(5, B.pci)))
    assert analysis.sources[0].skipped == {"malformed": 1}
    assert only(analysis).device == B


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"seconds": None}, "invalid_time"),
        ({"seconds": 0}, "invalid_time"),
        ({"seconds": "0.01"}, "invalid_time"),
        ({"seconds": 4000}, "invalid_time"),
        ({"read_seconds": 0.02}, "invalid_time"),
        ({"seconds": 0.01, "read_seconds": 0.006}, "imprecise_time"),
        ({"seconds": 0.0001, "read_seconds": 0}, "implausible"),  # 200 GHz
        ({"seconds": 5, "read_seconds": 0}, "implausible"),  # 4 MHz
    ],
)
def test_without_a_sure_length_there_are_ratios_and_no_rates(
    tmp_path: Path, times: dict[str, Any], reason: str
) -> None:
    analysis = load(tmp_path, document(device(**times)))
    assert analysis.sources[0].skipped == {reason: 1}
    assert only(analysis).counter_observed_ns is None
    values = shown(only(analysis))
    assert "amdgpu_valu_instructions_per_second" not in values
    assert (values["amdgpu_compute_density_ratio"], values["amdgpu_l2_hit_ratio"]) == (0.25, 0.85)


@pytest.mark.parametrize("cut", ["", ', {"pci": "0000:26:00.0", "node": 5, "counters": {"SQ_WA'])
def test_of_an_object_that_ends_early_the_whole_devices_are_used(tmp_path: Path, cut: str) -> None:
    text = json.dumps(document(device()))
    text = text[: text.index('], "errors"')] + cut
    analysis = load(tmp_path, text)
    assert (analysis.sources[0].skipped, analysis.sources[0].partial) == ({"damaged": 1}, True)
    assert (only(analysis).l2_hit_ratio, outcome(analysis)) == (0.85, WindowOutcome.PARTIAL)


def test_an_object_without_one_whole_device_is_malformed(tmp_path: Path) -> None:
    analysis = load(tmp_path, json.dumps(document(device()))[:400])
    assert (analysis.results, outcome(analysis)) == ((), WindowOutcome.MALFORMED)
    assert "ends early or is no JSON" in analysis.notes[0]


def test_another_protocol_is_not_guessed_at(tmp_path: Path) -> None:
    analysis = load(tmp_path, document(device(), protocol=2))
    assert (analysis.sources[0].skipped, analysis.results) == ({"unknown_protocol": 1}, ())
    assert "protocol 2 is not known here" in analysis.notes[0]


def test_errors_of_the_whole_are_told(tmp_path: Path) -> None:
    analysis = load(tmp_path, document(errors=["no GPU 0000:77:00.0"]))
    assert (analysis.sources[0].skipped, outcome(analysis)) == ({"failed": 1}, WindowOutcome.EMPTY)
    assert analysis.notes[0].endswith("counters.json: no GPU 0000:77:00.0")


@pytest.mark.parametrize("devices", [None, {}, "x", 5])
def test_devices_that_are_no_list_are_malformed(tmp_path: Path, devices: Any) -> None:
    analysis = load(tmp_path, document() | {"devices": devices})
    assert (analysis.sources[0].skipped, analysis.results) == ({"malformed": 1}, ())


def test_a_set_without_instructions_still_says_how_long_was_counted(tmp_path: Path) -> None:
    result = only(load(tmp_path, document(device(counters={"TCC_HIT_sum": 1, "TCC_MISS_sum": 3}))))
    assert (result.counter_observed_ns, result.l2_hit_ratio) == (10_000_000, 0.25)
    assert list(result.counters) == ["TCC_HIT_sum", "TCC_MISS_sum"]


def test_what_is_decoded_is_no_kernel(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(json.dumps(document(device())))
    decoded = intake.read_file(tmp_path / "x", Names(), [])
    assert [(d.kernel, d.dies) for d in decoded.dispatches] == [(DEVICE_WIDE, 8)]
    assert (len(decoded.kernels), decoded.rows) == (0, 1)


# --- AMD's own helper -----------------------------------------------------------------------------------


def vendor(*gpus: tuple[str, dict[str, str]]) -> dict[str, Any]:
    """As rocpctl prints it: everything is text, numbers with six digits."""
    return {
        "GpuMetrics": [
            {
                "GpuId": number,
                "DrmRenderId": "128",
                "LogicalNodeId": "4",
                "Metrics": [{"Field": field, "Value": value} for field, value in values.items()],
            }
            for number, values in gpus
        ]
    }


NAMED = {"agents": {"gpu_id 40001": A.pci, "gpu_id 40002": B.pci}}


def test_the_vendors_helper_by_hand(tmp_path: Path) -> None:
    values = {
        "GRBM_COUNT": "1.6e+08",
        "TCC_HIT_sum": "850",
        "TCC_MISS_sum": "150",
        "SQ_INSTS_VALU": "1.52e+09",
    }
    content = vendor(("40001", values), ("40002", {"TCC_HIT_sum": "1", "TCC_MISS_sum": "3"}))
    analysis = load(tmp_path, content, NAMED)
    assert (analysis.sources[0].format, analysis.sources[0].skipped) == ("rocpctl", {})
    found = {r.device: r for r in analysis.results}
    assert {d: r.l2_hit_ratio for d, r in found.items()} == {A: 0.85, B: 0.25}
    # It tells neither for how long it counted nor over how many dies.
    assert (found[A].counter_observed_ns, found[A].slots_available) == (None, None)
    assert found[A].valu_instructions == 1_520_000_000


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e40", "", "12 apples", "0x10"])
def test_a_text_that_is_no_count_is_absent(tmp_path: Path, value: str) -> None:
    analysis = load(tmp_path, vendor(("40001", {"TCC_HIT_sum": value, "TCC_MISS_sum": "3"})), NAMED)
    assert analysis.sources[0].skipped == {"invalid": 1}
    assert only(analysis).l2_hit_ratio is None


def test_zeros_of_the_vendors_helper_are_as_absent(tmp_path: Path) -> None:
    values = {"GRBM_COUNT": "1e8", "GRBM_GUI_ACTIVE": "5e7", "SQ_WAVES": "0", "TCC_HIT_sum": "1"}
    analysis = load(tmp_path, vendor(("40001", values), ("40002", {"SQ_WAVES": "0"})), NAMED)
    assert analysis.sources[0].skipped == {"shaders_hidden": 1, "all_zero": 1}
    assert set(only(analysis).counters) == {"GRBM_COUNT", "GRBM_GUI_ACTIVE", "TCC_HIT_sum"}
