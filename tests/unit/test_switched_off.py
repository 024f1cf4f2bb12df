"""What is switched off in the configuration is not read: seen by the reads themselves."""

from __future__ import annotations

from pathlib import Path

import made_nodes
import pytest
import trees

from exporter.catalogue import CATALOGUE
from exporter.catalogue.select import Wanted, pointless, without
from exporter.config import load
from exporter.model import ConfigError
from exporter.reader import open_backend
from exporter.sources import disabled

# What is switched off -> ends of the paths that are then not opened, and metrics that are then not there.
CASES = {
    "ras": ({"_err_count", "gpu_vram_bad_pages"}, {"ecc_correctable_errors_total", "retired_pages"}),
    "retired_pages": ({"gpu_vram_bad_pages"}, {"retired_pages"}),
    "amdgpu_memory_used_bytes": ({"vram_used", "gtt_used", "vis_vram_used"}, {"memory_used_bytes"}),
    "memory_*": ({"mem_info_"}, {"memory_used_bytes", "memory_size_bytes"}),
    "clock_hertz": ({"pp_dpm_", "freq1_input", "freq2_input"}, {"clock_hertz"}),
    "temperature_*": ({"temp2_input", "temp3_crit"}, {"temperature_celsius", "temperature_limit_celsius"}),
    "voltage_volts": ({"in0_input"}, {"voltage_volts"}),
    "hwmon": ({"power1_cap", "temp2_input", "in0_input"}, {"power_limit_watts", "voltage_volts"}),
    "pcie_*": ({"current_link_", "max_link_", "pcie_replay_count"}, {"pcie_replays_total"}),
    "links": ({"io_links", "numa_node"}, {"link_info", "numa_node"}),
    "processes": ({"vram_10001", "queues", "cu_occupancy", "11/stat", "2/comm"}, {"compute_queues"}),
    "occupied_compute_units": ({"cu_occupancy"}, {"occupied_compute_units"}),
    "*_seconds_total": ({"sdma_10001", "evicted_ms"}, {"busy_seconds_total", "evictions_seconds_total"}),
    "resets_total": ({"devcoredump/disabled"}, {"resets_total"}),
    "firmware_info": ({"fw_version"}, {"firmware_info"}),
    "busy_ratio": ({"gpu_busy_percent", "mem_busy_percent", "vcn_busy_percent"}, {"busy_ratio"}),
}


def node(folder: Path) -> tuple[Path, Path]:
    root, proc = folder / "sys", trees.host(folder / "proc")
    trees.mi300x(root)
    trees.put(root / "class/kfd/kfd/topology/nodes/1/io_links/0/properties", "type 2\nnode_to 0\nweight 20")
    trees.using(root, 11, {10001: 5}, ((10001, 0),))
    trees.alive(proc, 11)
    return root, proc


def machine(folder: Path, *off: str) -> tuple[trees.Machine, set[str]]:
    """A polled machine with names switched off, and the metrics it gave."""
    catalogue = without(CATALOGUE, off)
    m = trees.Machine(*node(folder), catalogue=catalogue, wanted=Wanted(catalogue, "sysfs"))
    return m, {metric.removeprefix("amdgpu_") for metric, _, _ in m.poll()}


def reads(m: trees.Machine) -> list[str]:
    return m.root.reads + m.procfs.reads


@pytest.mark.parametrize("off", CASES)
def test_what_is_switched_off_is_not_read(tmp_path: Path, off: str) -> None:
    whole, all_metrics = machine(tmp_path / "whole")
    part, metrics = machine(tmp_path / "part", off)
    files, gone = CASES[off]
    for file in files:
        assert [r for r in reads(whole) if file in r], f"{file} is never read, so nothing is shown"
        assert not [r for r in reads(part) if file in r]
    assert all_metrics >= gone
    assert not metrics & gone
    assert len(reads(part)) < len(reads(whole))
    # Nothing else is lost, and nothing is missed that nobody asked for.
    lost = all_metrics - metrics
    left = [m for m in without(CATALOGUE, [off]) if any(f.backend == "sysfs" for f in m.fields)]
    assert lost & {m.name.removeprefix("amdgpu_") for m in left} <= gone
    assert {m for m, _, _ in part.missing()} <= {m.name for m in without(CATALOGUE, [off])}


def test_the_table_is_not_read_when_everything_from_it_is_off(tmp_path: Path) -> None:
    m, metrics = machine(tmp_path, "gpu_metrics", "busy_seconds", "dies")
    assert not [r for r in reads(m) if r.endswith("gpu_metrics")]
    assert {"power_watts", "temperature_celsius"} <= metrics  # hwmon has them too
    assert "energy_joules_total" not in metrics


def test_with_everything_off_only_identity_is_read(tmp_path: Path) -> None:
    m, metrics = machine(tmp_path, "*")
    assert metrics == set()
    m.root.reads, m.procfs.reads = [], []
    m.poll()
    assert {r.rsplit("/", 1)[1] for r in reads(m)} == {"generation_id", "runtime_status"}


def test_names_of_identity_and_of_the_exporter_cannot_be_switched_off() -> None:
    kept = {m.name for m in without(CATALOGUE, ["*"])}
    assert {"amdgpu_info", "amdgpu_up", "amdgpu_exporter_source_up"} <= kept
    assert not [m for m in without(CATALOGUE, ["*"]) if m.fields]
    assert pointless(CATALOGUE, ["amdgpu_up", "ras", "no_such", "xgmi_*"]) == ["amdgpu_up", "no_such"]


def test_series_of_single_dies_can_be_switched_off_alone(tmp_path: Path) -> None:
    made_nodes.mi250x(tmp_path / "two")
    hbm = {k for k in trees.Machine(tmp_path / "two").poll() if "hbm" in k[2]}
    assert len(hbm) == 8
    for off in (("gpu_metrics.clocks", "gpu_metrics.temperatures"), ("dies",)):
        catalogue = without(CATALOGUE, off)
        rows = trees.Machine(tmp_path / "two", catalogue=catalogue).poll()
        assert bool({k for k in rows if "hbm" in k[2]}) == (off == ("dies",))
        one, _ = machine(tmp_path / off[0], *off)
        clocks = {labels for m, _, labels in one.poll() if m == "amdgpu_clock_hertz"}
        assert {"sclk,", "mclk,"} <= clocks
        assert bool({c for c in clocks if c[-1].isdigit()}) == (off == ("dies",))


def test_the_configuration_carries_it_to_the_reader(tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text("metrics:\n  disable: [processes, 'xgmi_*']\n")
    config = load(file).config
    assert disabled(config) == ["processes", "xgmi_*", "dies"]
    assert disabled(load(None, {"AMDGPU_EXPORTER_METRICS__DISABLE": "ras, links"}).config)[:2] == [
        "ras",
        "links",
    ]
    assert disabled(load(None, {"AMDGPU_EXPORTER_METRICS__DIES": "true"}).config) == []
    root, proc = node(tmp_path)
    spec = {"backend": "sysfs", "sysfs": str(root), "procfs": str(proc), "disable": disabled(config)}
    ((_, groups),) = open_backend(spec).poll()
    assert groups["processes"] is None
    assert groups["links"] is not None


@pytest.mark.parametrize("value", ["[ras, rsa]", "rsa", "[1]", "{a: b}"])
def test_a_name_that_is_none_is_refused_with_the_place(tmp_path: Path, value: str) -> None:
    file = tmp_path / "config.yml"
    file.write_text(f"metrics:\n  disable: {value}\n")
    with pytest.raises(ConfigError) as e:
        load(file)
    assert str(e.value).startswith(f"{file}:2: metrics.disable: expected a list of names")
    assert "rsa" in str(e.value) or "rsa" not in value
