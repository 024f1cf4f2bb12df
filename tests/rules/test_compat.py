"""Other exporters' names, made of ours: right values, their labels, nothing left out silently."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from alerts import compat
from exporter.catalogue import CATALOGUE
from tests.conftest import REPO
from tests.rules.peer_names import NAMES
from tests.rules.test_rules_fire import PROMTOOLS

GPU = 'instance="n1:9408",gpu="2",pci="0000:46:00.0"'
INFO = f'amdgpu_info{{{GPU},uuid="ff02",model="MI300X",serial="S1",driver="6.12",vbios="113",gfx="gfx942"}}'
DME = (
    'gpu_id="2",gpu_uuid="ff02",serial_number="S1",card_model="MI300X",hostname="n1",card_vendor="AMD",'
    'driver_version="6.12",vbios_version="113",gpu_partition_id="0",' + GPU
)
OMNI = f'card="2",{GPU}'
# ours with its value -> theirs with the value in their unit, computed by hand.
DME_VALUES = (
    ("amdgpu_power_watts{%s}", 512.5, "gpu_average_package_power{%s}", 512.5),
    ('amdgpu_busy_ratio{%s,engine="gfx"}', 0.98, 'gpu_gfx_activity{%s,engine="gfx"}', 98),
    ('amdgpu_memory_used_bytes{%s,pool="vram"}', 3 * 2**30, 'gpu_used_vram{%s,pool="vram"}', 3072),
    ("amdgpu_energy_joules_total{%s}", 7.5, "gpu_energy_consumed{%s}", 7.5e6),
    (
        'amdgpu_temperature_celsius{%s,sensor="junction"}',
        71,
        'gpu_junction_temperature{%s,sensor="junction"}',
        71,
    ),
    (
        'amdgpu_clock_hertz{%s,domain="sclk",index="3"}',
        2.1e9,
        'gpu_clock{%s,domain="sclk",index="3",clock_index="3",clock_type="GPU_CLOCK_TYPE_SYSTEM"}',
        2100,
    ),
    ("amdgpu_pcie_link_transfers_per_second{%s}", 32e9, "pcie_speed{%s}", 32),
    (
        'amdgpu_xgmi_received_bytes_total{%s,link="4"}',
        4096,
        'gpu_xgmi_link_rx{%s,link="4",link_index="4"}',
        4,
    ),
    ('amdgpu_ecc_correctable_errors_total{%s,block="umc"}', 9, 'gpu_ecc_correct_umc{%s,block="umc"}', 9),
    (
        'amdgpu_throttle_residency_total{%s,reason="prochot"}',
        5,
        'gpu_violation_processor_hot_residency_accumulated{%s,reason="prochot"}',
        5,
    ),
)
OMNI_VALUES = (
    ('amdgpu_busy_ratio{%s,engine="memory"}', 0.25, 'rocm_vram_busy_percentage{%s,engine="memory"}', 25),
    ("amdgpu_power_watts{%s}", 512.5, "rocm_average_socket_power_watts{%s}", 512.5),
    ('amdgpu_clock_hertz{%s,domain="mclk"}', 1.3e9, 'rocm_mclk_clock_mhz{%s,domain="mclk"}', 1300),
    ('amdgpu_xgmi_received_bytes_total{%s,link="4"}', 4096, "rocm_xgmi_total_read_kilobytes{%s}", 4),
    (
        'amdgpu_ecc_uncorrectable_errors_total{%s,block="gfx"}',
        2,
        'rocm_ras_gfx_uncorrectable_count{%s,block="gfx"}',
        2,
    ),
    (
        'amdgpu_temperature_celsius{%s,sensor="hbm_0"}',
        46,
        'rocm_temperature_memory_celsius{%s,sensor="hbm_0",location="hbm_0"}',
        46,
    ),
    (
        'amdgpu_kernel_seconds_total{%s,kernel="gemm"}',
        0.25,
        'omnistat_kernel_total_duration_ns{%s,kernel="gemm"}',
        2.5e8,
    ),
)


@pytest.mark.parametrize(
    ("file", "identity", "values"),
    [("device-metrics-exporter", DME, DME_VALUES), ("omnistat", OMNI, OMNI_VALUES)],
)
def test_values_come_in_their_unit_and_with_their_labels(
    file: str, identity: str, values: tuple[tuple[str, float, str, float], ...], tmp_path: Path
) -> None:
    promtool = PROMTOOLS["installed"]
    if promtool is None:
        pytest.skip("promtool is not installed; tests/install-parts fetches it")
    given = [{"series": INFO, "values": "1x5"}]
    given += [{"series": ours % GPU, "values": f"{value:.12g}x5"} for ours, value, _, _ in values]
    expected = [
        {
            "expr": re.sub(r"\{.*", "", theirs) + " * 1",  # the same without its name
            "eval_time": "4m",
            "exp_samples": [{"labels": re.sub(r"^\w+", "", theirs % identity), "value": value}],
        }
        for _, _, theirs, value in values
    ]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": expected}
    content = {"rule_files": [str(REPO / "alerts" / f"compat-{file}.yml")], "tests": [test]}
    (tmp_path / "t.yml").write_text(json.dumps(content))
    done = subprocess.run([promtool, "test", "rules", tmp_path / "t.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("peer", ["dme", "omnistat"])
def test_every_name_the_catalogue_lists_has_a_rule_or_a_reason(peer: str) -> None:
    listed = {p.partition(":")[2] for m in CATALOGUE for p in m.peers if p.startswith(f"{peer}:")}
    names = compat.table()[peer]["names"]
    assert len(listed) > 10
    assert listed <= set(names)
    made = set(compat.rules(peer))
    for name, entry in names.items():
        pattern = re.compile(re.sub(r"<\w+>", r"\\w+", name))
        assert ("cannot" in entry) != any(pattern.fullmatch(m) for m in made), name


def test_what_cannot_be_had_is_said_in_the_file_and_on_the_page() -> None:
    page = compat.page()
    for peer, file in (("dme", "device-metrics-exporter"), ("omnistat", "omnistat")):
        head = (REPO / "alerts" / f"compat-{file}.yml").read_text().split("groups:")[0]
        for name, reason in compat.without(peer).items():
            assert name in head
            assert reason in page


def test_a_name_the_table_forgets_is_listed_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compat.table()
    del whole["omnistat"]["names"]["rocm_power_cap_watts"]
    monkeypatch.setattr(compat, "table", lambda: whole)
    assert compat.without("omnistat")["rocm_power_cap_watts"] == compat.NO_RULE


def test_a_line_that_fits_no_metric_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for entry, complaint in (
        ({"metric": "amdgpu_nothing"}, "not in the catalogue"),
        ({"metric": "amdgpu_power_watts", "where": {"sensor": "x"}}, "no label sensor"),
        ({"tims": 3}, "unknown key tims"),
        ({}, "names 0 metrics"),
    ):
        whole = compat.table()
        whole["omnistat"]["names"]["rocm_made_up"] = entry
        monkeypatch.setattr(compat, "table", lambda whole=whole: whole)
        with pytest.raises(compat.PeerError, match=complaint):
            compat.rules("omnistat")
        monkeypatch.undo()


# --- measured against what the others publish -----------------------------------------------------------


def _fits(pattern: str, name: str) -> bool:
    return re.fullmatch(re.sub(r"<\w+>", r"\\w+", pattern), name) is not None


@pytest.mark.parametrize("peer", sorted(NAMES))
def test_every_name_that_the_other_exporter_serves_is_made_or_has_a_reason(peer: str) -> None:
    assert len(NAMES[peer]) == len(set(NAMES[peer]))
    made, reasons = compat.rules(peer), compat.without(peer)
    for name in NAMES[peer]:
        why = [reason for pattern, reason in reasons.items() if _fits(pattern, name)]
        assert name in made or why, f"{peer}: {name} has neither a rule nor a reason in alerts/peers.yaml"
        assert all(len(reason) > 10 and reason != compat.NO_RULE for reason in why), name


@pytest.mark.parametrize("peer", sorted(NAMES))
def test_the_page_shows_an_expression_or_a_reason_for_every_name(peer: str) -> None:
    title = compat.table()[peer]["title"]
    part = (REPO / "docs/COMPATIBILITY.md").read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    shown = set(re.findall(r"^(?:\| |- )`([^`]+)`", part, re.MULTILINE))
    missing = [n for n in NAMES[peer] if not any(_fits(pattern, n) for pattern in shown)]
    assert missing == []


@pytest.mark.parametrize("peer", sorted(NAMES))
def test_no_name_is_attributed_that_the_other_exporter_does_not_have(peer: str) -> None:
    ours = {p.partition(":")[2] for m in CATALOGUE for p in m.peers if p.startswith(f"{peer}:")}
    ours |= set(compat.table()[peer]["names"])
    invented = [name for name in ours if not any(_fits(name, real) for real in NAMES[peer])]
    assert invented == []


def test_there_are_as_many_fields_as_the_other_exporter_counts() -> None:
    """Its documents count 52 fields of the profiler, and 60 of ECC."""
    dme = NAMES["dme"]
    assert sum(n.startswith("gpu_prof_") for n in dme) == 52
    assert sum(n.startswith("gpu_ecc_") for n in dme) == 60


def test_who_uses_a_gpu_is_told_where_it_is_one_and_of_no_shared_one(tmp_path: Path) -> None:
    promtool = PROMTOOLS["installed"]
    if promtool is None:
        pytest.skip("promtool is not installed; tests/install-parts fetches it")
    holder = f'amdgpu_workload_info{{{GPU},job_id="%s"}}'
    for holders, expected in (((), ""), (("1",), 'job_id="1"'), (("1", "2"), "")):
        given = [{"series": INFO, "values": "1x5"}, {"series": f"amdgpu_up{{{GPU}}}", "values": "1x5"}]
        given += [{"series": holder % job, "values": "1x5"} for job in holders]
        labels = "{" + ",".join(filter(None, [DME, expected])) + "}"
        asked = {"expr": "gpu_health * 1", "eval_time": "4m", "exp_samples": [{"labels": labels, "value": 1}]}
        test = {"interval": "1m", "input_series": given, "promql_expr_test": [asked]}
        file = str(REPO / "alerts" / "compat-device-metrics-exporter.yml")
        (tmp_path / "t.yml").write_text(json.dumps({"rule_files": [file], "tests": [test]}))
        done = subprocess.run([promtool, "test", "rules", tmp_path / "t.yml"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
