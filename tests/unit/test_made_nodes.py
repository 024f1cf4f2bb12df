"""Nodes that no capture has: right devices, right labels, and no number that nobody measured."""

from __future__ import annotations

import csv
import errno
from itertools import pairwise
from pathlib import Path

import made_nodes
import pytest
import trees

from exporter.catalogue import CATALOGUE
from exporter.exposition import Renderer

FIRST, SECOND = "0000:05:00.0", "0000:25:00.0"


def test_the_second_die_of_an_mi250_has_no_power_and_not_zero(tmp_path: Path) -> None:
    made_nodes.mi250x(tmp_path)
    machine = trees.Machine(tmp_path)
    rows = machine.poll()
    assert [d.model for d in machine.devices] == ["Instinct MI250X"] * 2
    assert [(d.gpu, d.id.partition, d.compute_units) for d in machine.devices] == [
        (0, None, 110),
        (1, None, 110),
    ]
    assert {d: v for (m, d, _), v in rows.items() if m == "amdgpu_power_watts"} == {FIRST: 489}
    assert [d for m, d, _ in rows if m == "amdgpu_energy_joules_total"] == [FIRST]
    assert ("amdgpu_power_watts", SECOND, "implausible") in machine.missing()
    for die in (FIRST, SECOND):
        assert rows["amdgpu_busy_ratio", die, "gfx"] == 0.37
        assert rows["amdgpu_temperature_celsius", die, "hbm2"] == 48
        assert ("amdgpu_busy_seconds_total", die, "gfx") not in rows  # its firmware does not count samples


def test_eight_mi300x_in_cpx_are_64_devices_and_socket_readings_stand_once(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=8, partitions=8)
    machine = trees.Machine(tmp_path)
    rows = machine.poll()
    assert len(machine.devices) == 64
    by_metric: dict[str, set[str]] = {}
    for metric, device, _ in rows:
        by_metric.setdefault(metric, set()).add(device)
    partitions = {f"{d.id.pci}/{d.id.partition}" for d in machine.devices}
    sockets = {d.id.pci for d in machine.devices}
    assert len(partitions) == 64
    for metric, devices in by_metric.items():
        assert devices in (sockets, partitions), metric
    assert by_metric["amdgpu_busy_ratio"] == by_metric["amdgpu_processes"] == partitions
    assert by_metric["amdgpu_power_watts"] == by_metric["amdgpu_ecc_correctable_errors_total"] == sockets
    assert by_metric["amdgpu_memory_used_bytes"] == sockets
    layout = Renderer(CATALOGUE).layout({d.id: d for d in machine.devices}, [tuple(machine.series)], 12_000)
    assert layout.dropped == 0


def test_a_guest_without_identity_is_a_gpu_without_a_name_and_without_lies(tmp_path: Path) -> None:
    made_nodes.guest(tmp_path)
    machine = trees.Machine(tmp_path)
    machine.root.errors = dict.fromkeys(made_nodes.GUEST_ERRORS, errno.EPERM)
    rows = machine.poll()
    (device,) = machine.devices
    assert (device.uuid, device.vbios, device.serial) == (None, None, None)
    assert (device.compute_partition, device.memory_partition, device.id.partition) == (None, None, None)
    assert (device.model, device.gfx, device.compute_units) == ("Instinct MI300X VF", "gfx942", 304)
    assert rows["amdgpu_busy_ratio", FIRST, "gfx"] == 0.37
    absent = {"power_watts", "energy_joules_total", "temperature_celsius", "ecc_correctable_errors_total"}
    absent |= {"busy_seconds_total", "throttle_samples_total", "retired_pages"}
    assert not absent & {m.removeprefix("amdgpu_") for m, _, _ in rows}
    assert {m.removeprefix("amdgpu_") for m, _, _ in machine.missing()} >= absent


def test_other_makers_and_a_sleeping_gpu_in_the_cpu_are_left_alone(tmp_path: Path) -> None:
    *_, sleeping = made_nodes.mixed(tmp_path)
    machine = trees.Machine(tmp_path)
    rows = machine.poll()
    assert [(d.gpu, d.id.pci, d.indices["drm"]) for d in machine.devices] == [(0, FIRST, 0), (1, SECOND, 1)]
    assert {d for _, d, _ in rows} == {FIRST, SECOND}
    harmless = {"vendor", "device", "class", "revision", "uevent", "runtime_status", "numa_node"}
    read = {r.rsplit("/", 1)[1] for r in machine.root.reads if sleeping.name in r}
    assert read <= harmless
    assert not [r for r in machine.root.reads if "0000:01:00.0" in r and r.endswith("gpu_busy_percent")]


def test_a_partitions_own_table_serves_where_the_cards_cannot(tmp_path: Path) -> None:
    (device,) = trees.mi300x(tmp_path, partitions=2)
    other = tmp_path / "devices/platform/amdgpu_xcp.1"
    # Kernels that speak of partitions in files of their own; the card's table says nothing of them.
    trees.put(device / "gpu_metrics", trees.blob((1, 8), trees.METRICS))
    rows = trees.Machine(tmp_path).poll()
    assert not [k for k in rows if k[0] == "amdgpu_busy_ratio"]
    trees.put(
        device / "xcp/xcp_metrics", trees.attributes([(40, 4, [40, 60, 65535]), (42, 2, [8])], revision=1)
    )
    trees.put(other / "xcp/xcp_metrics", trees.attributes([(40, 4, [10, 30])], revision=1))
    rows = trees.Machine(tmp_path).poll()
    busy = {(d, e): v for (m, d, e), v in rows.items() if m == "amdgpu_busy_ratio"}
    assert busy == {(f"{FIRST}/0", "gfx"): 0.5, (f"{FIRST}/0", "vcn"): 0.08, (f"{FIRST}/1", "gfx"): 0.2}


@pytest.mark.parametrize("content", [b"", b"\x01", b"\0" * 300, b"N/A\n"])
def test_a_partitions_own_table_that_is_none_costs_its_partition(tmp_path: Path, content: bytes) -> None:
    (device,) = trees.mi300x(tmp_path, partitions=2)
    trees.put(device / "gpu_metrics", trees.blob((1, 8), trees.METRICS))
    trees.put(device / "xcp/xcp_metrics", content)
    trees.put(
        tmp_path / "devices/platform/amdgpu_xcp.1/xcp/xcp_metrics",
        trees.attributes([(40, 4, [10, 30])], revision=1),
    )
    machine = trees.Machine(tmp_path)
    rows = machine.poll()
    assert [d for m, d, _ in rows if m == "amdgpu_busy_ratio"] == [f"{FIRST}/1"]
    assert ("amdgpu_busy_ratio", f"{FIRST}/0", "malformed") in machine.missing()


def increase(samples: list[float]) -> float:
    """What Prometheus makes of a counter: a fall is a start from 0."""
    return sum(b - a if b >= a else b for a, b in pairwise(samples))


def test_case_27_energy_through_a_driver_reload_a_stuck_counter_and_a_sentinel(
    samples: Path, tmp_path: Path
) -> None:
    (device,) = trees.mi300x(tmp_path)
    machine = trees.Machine(tmp_path)
    seen: list[float] = []
    with open(samples / "cases/27-energy-counter-reset/samples.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        count = int(row["energy_accumulator"])
        trees.put(
            device / "gpu_metrics", trees.blob((1, 8), {**trees.METRICS, "energy_accumulator": [count]})
        )
        value = machine.poll().get(("amdgpu_energy_joules_total", FIRST, ""))
        if count == 2**64 - 1:
            assert value is None
            assert ("amdgpu_energy_joules_total", FIRST, "unsupported") in machine.missing()
        else:
            assert isinstance(value, float)
            seen.append(value)
    assert len(seen) == len(rows) - 1
    # The stated sum uses the resolution as tools print it, rounded; the counter's own is 2^-16 J.
    printed = float(rows[0]["counter_resolution_uj"]) * 1e-6
    assert increase(seen) * 65536 * printed == pytest.approx(151827.1, abs=0.06)
    assert increase(seen) == pytest.approx(151827.1, rel=2e-5)
