"""Which devices a tree shows and by what names: every captured tree, partitions, sleep, hot plug."""

from __future__ import annotations

import errno
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import trees

from exporter.checks import devices as listing
from exporter.host import Root
from exporter.model import DeviceId, Reason

MI210_BY_PCI = ["03", "26", "43", "63", "83", "a3", "c3", "e3"]


def listed(root: Path, **options: Any) -> list[dict[str, Any]]:
    machine = trees.Machine(root, **options)
    machine.poll()
    return listing.as_json(machine.devices)


def column(rows: list[dict[str, Any]], key: str) -> list[Any]:
    return [row[key] for row in rows]


SINGLE = {
    "apu-radeon-780m-phoenix": ("0000:64:00.0", "Radeon 760M/780M (Phoenix)", "gfx1103", None, 12),
    "apu-radeon-890m-strixpoint": ("0000:c1:00.0", "Radeon 880M/890M (Strix Point)", "gfx1150", None, 12),
    "apu-vangogh-steamdeck": ("0000:04:00.0", "Radeon (Van Gogh)", "gfx1033", None, 8),
    "instinct-mi25-kfd": ("0000:19:00.0", "Instinct MI25", "gfx900", "a5a515f51cf90553", 64),
    # The layout tool invents the KFD node of these, so its compute units mean nothing.
    "radeon-hd7870": ("0000:01:00.0", "Radeon HD 7870", "gfx601", None, ...),
    "radeon-rx-vega-procfs": ("0000:09:00.0", "Radeon RX Vega 64", "gfx900", "a5a5703d06f85f01", ...),
    "radeon-rx-vega56": ("0000:0b:00.0", "Radeon RX Vega 56", "gfx900", None, ...),
    "radeon-rx5700xt": ("0000:28:00.0", "Radeon RX 5600/5700", "gfx1010", None, ...),
    "radeon-rx580": ("0000:09:00.0", "Radeon RX 580", "gfx803", None, ...),
    "radeon-rx6900xt": ("0000:0c:00.0", "Radeon RX 6900 XT", "gfx1030", "a5a59b94c3b83a2a", ...),
    "radeon-rx7800xt": ("0000:03:00.0", "Radeon RX 7700/7800", "gfx1101", None, ...),
    "radeon-rx7900xtx": ("0000:03:00.0", "Radeon RX 7900", "gfx1100", None, ...),
    "radeon-rx9070": ("0000:03:00.0", "Radeon RX 9070", "gfx1201", None, ...),
}


def test_every_tree_with_one_gpu_shows_that_gpu(samples: Path, tmp_path: Path) -> None:
    many = {"instinct-mi210-8x-kfd", "instinct-mi300x-8x-cpx-kfd"}
    assert set(trees.sample_names(samples)) == set(SINGLE) | many
    for name, (pci, model, gfx, uuid, units) in SINGLE.items():
        (row,) = listed(trees.laid_out(samples, name))
        assert (row["gpu"], row["pci"], row["partition"]) == (0, pci, None), name
        assert (row["model"], row["gfx"], row["uuid"]) == (model, gfx, uuid), name
        assert row["render_minor"] == 128, name
        assert row["drm_card"] == (None if name.endswith("kfd") else "card0"), name
        if units is not ...:
            assert row["compute_units"] == units, name


def test_vbios_is_what_the_capture_says(samples: Path, tmp_path: Path) -> None:
    for name in SINGLE:
        truth = json.loads((samples / "hardware" / name / "TRUTH.json").read_text())
        for device in truth.get("devices", ()):
            (row,) = listed(trees.laid_out(samples, name))
            assert row["vbios"] == (device.get("vbios_version") or None)
            assert row["uuid"] == (device.get("unique_id") or None)
            assert row["pci"] == device["pci"]["bdf"]


def test_kfd_facts_agree_with_the_truth_of_every_topology(samples: Path, tmp_path: Path) -> None:
    for name in trees.sample_names(samples):
        nodes = json.loads((samples / "hardware" / name / "TRUTH.json").read_text()).get("kfd_nodes")
        if not nodes or name == "instinct-mi25-kfd":
            continue
        rows = {r["kfd_node"]: r for r in listed(trees.laid_out(samples, name))}
        truth = {n["node"]: n for n in nodes if n["is_gpu"]}
        assert set(rows) == set(truth), name
        for number, node in truth.items():
            row = rows[number]
            assert row["pci"] == node["bdf"][:-1] + "0"
            assert (row["partition"] or 0) == node["partition_index_from_location"]
            assert row["gfx"] == node["gfx_target"]
            assert row["compute_units"] == node["cu_count"]
            assert row["xccs"] == node["num_xcc"]
            assert (row["uuid"] or "0" * 16) == node["unique_id"]
            assert row["render_minor"] == node["drm_render_minor"]
            assert str(row["kfd_gpu_id"]) == str(node["gpu_id"])


def test_two_hives_of_mi210_sort_by_pci_and_hip_follows_kfd(samples: Path, tmp_path: Path) -> None:
    rows = listed(trees.laid_out(samples, "instinct-mi210-8x-kfd"))
    assert column(rows, "pci") == [f"0000:{bus}:00.0" for bus in MI210_BY_PCI]
    assert column(rows, "gpu") == column(rows, "amdsmi_index") == list(range(8))
    by_hip = sorted(rows, key=lambda r: r["hip_index"])
    assert column(by_hip, "kfd_node") == list(range(2, 10))
    assert column(by_hip, "render_minor") == list(range(128, 136))
    assert set(column(rows, "model")) == {"Instinct MI210"}
    assert column(rows, "partition") == [None] * 8


@pytest.mark.parametrize("full", [False, True])
def test_mi300x_in_cpx_is_eight_sockets_of_partitions(samples: Path, tmp_path: Path, full: bool) -> None:
    sample = samples / "hardware/instinct-mi300x-8x-cpx-kfd"
    if full:
        root = tmp_path / "sys"
        with tarfile.open(sample / "kfd-full.tar.gz") as tar:
            for member in tar.getmembers():
                # The links between 64 nodes are thousands of files, and nothing here reads them.
                if match := re.search(r"topology/nodes/\d+/properties$", member.name):
                    content = tar.extractfile(member)
                    assert content is not None
                    trees.put(root / "class/kfd/kfd" / match[0], content.read())
    else:
        root = trees.laid_out(samples, sample.name)
    rows = listed(root)
    sockets: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        sockets.setdefault(row["pci"], []).append(row)
    assert [pci[5:7] for pci in sockets] == ["05", "27", "47", "65", "85", "a7", "c7", "e5"]
    sizes = [len(parts) for parts in sockets.values()]
    assert sizes[:7] == [8] * 7
    # The origin's capture stops one node short.
    assert sizes[7] in (7, 8)
    for gpu, parts in enumerate(sockets.values()):
        assert column(parts, "partition") == list(range(len(parts)))
        assert set(column(parts, "gpu")) == {gpu}
        assert len(set(column(parts, "uuid"))) == 1
        assert column(parts, "compute_units") == [38] * len(parts)
    assert len(set(column(rows, "uuid"))) == 8
    assert column(rows, "render_minor") == list(range(128, 128 + len(rows)))


def test_two_gpus_that_claim_one_address_are_one_and_a_warning(
    samples: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (row,) = listed(trees.laid_out(samples, "instinct-mi25-kfd"))
    assert row["kfd_node"] == 1
    assert row["kfd_gpu_id"] == 13261
    assert [r.getMessage() for r in caplog.records] == [
        "pci=0000:19:00.0 event=conflict detail=KFD nodes 1 and 2 claim one address; node 2 is left out"
    ]


def test_case_21_lists_the_accelerator_and_leaves_the_sleeping_igpu_alone(samples: Path) -> None:
    machine = trees.Machine(samples / "cases/21-sysfs-mixed-vendors/sys")
    rows = machine.poll()
    (row,) = listing.as_json(machine.devices)
    assert (row["pci"], row["drm_card"], row["render_node"]) == ("0000:43:00.0", "card1", "renderD128")
    assert (row["model"], row["uuid"]) == ("Instinct MI300X", "a1b2c3d4e5f60718")
    assert (row["compute_partition"], row["memory_partition"]) == ("SPX", "NPS1")
    gpu = "0000:43:00.0"
    assert rows["amdgpu_busy_ratio", gpu, "gfx"] == 0.37
    assert rows["amdgpu_power_watts", gpu, ""] == 410
    assert rows["amdgpu_temperature_celsius", gpu, "junction"] == 66
    assert {device for _, device, _ in rows} == {gpu}
    harmless = {"vendor", "device", "class", "revision", "uevent", "runtime_status", "numa_node"}
    igpu = {r.rsplit("/", 1)[1] for r in machine.root.reads if "0000:c4:00.0" in r}
    assert igpu <= harmless
    assert not [r for r in machine.root.reads if r.endswith("pcie_bw")]


def test_case_21_shows_the_igpu_when_asked_and_still_lets_it_sleep(samples: Path) -> None:
    machine = trees.Machine(samples / "cases/21-sysfs-mixed-vendors/sys", show_integrated=True)
    rows = machine.poll()
    assert [d.id.pci for d in machine.devices] == ["0000:43:00.0", "0000:c4:00.0"]
    assert [m for m, device, _ in rows if device == "0000:c4:00.0"] == ["amdgpu_compute_units"]
    reasons = {g.reason for g in machine.gaps if g.device == DeviceId("0000:c4:00.0")}
    assert Reason.SUSPENDED in reasons
    assert not [r for r in machine.root.reads if "c4:00.0/gpu" in r or "c4:00.0/mem" in r]


def test_case_22_hip_order_is_the_reverse_of_pci_order(samples: Path) -> None:
    rows = listed(samples / "cases/22-kfd-order-reversed/sys")
    assert [pci[5:7] for pci in column(rows, "pci")] == ["05", "26", "c1", "e3"]
    assert column(rows, "hip_index") == [3, 2, 1, 0]
    assert column(rows, "render_minor") == [128, 129, 130, 131]
    assert column(rows, "kfd_gpu_id") == [24444, 33333, 41222, 52111]
    assert column(rows, "gpu") == [0, 1, 2, 3]


def _add_card(root: Path, pci: str, device_id: str, pci_class: str) -> None:
    device = root / f"devices/pci0000:00/{pci}"
    trees.put(device / "vendor", "0x1002")
    trees.put(device / "device", device_id)
    trees.put(device / "class", pci_class)
    trees.put(device / "gpu_busy_percent", "1")
    (device / "drm/card9").mkdir(parents=True)
    (device / "drm/card9/device").symlink_to("../..")
    (root / "class/drm/card9").symlink_to(f"../../devices/pci0000:00/{pci}/drm/card9")


def test_an_unknown_display_gpu_beside_an_accelerator_is_taken_for_the_cpus(tmp_path: Path) -> None:
    trees.mi300x(tmp_path)
    _add_card(tmp_path, "0000:c4:00.0", "0xbeef", "0x030000")
    assert column(listed(tmp_path), "pci") == ["0000:05:00.0"]
    assert column(listed(tmp_path, show_integrated=True), "pci") == ["0000:05:00.0", "0000:c4:00.0"]


def test_a_known_radeon_beside_an_accelerator_is_listed(tmp_path: Path) -> None:
    trees.mi300x(tmp_path)
    _add_card(tmp_path, "0000:03:00.0", "0x744c", "0x030000")
    rows = listed(tmp_path)
    assert column(rows, "pci") == ["0000:03:00.0", "0000:05:00.0"]
    assert column(rows, "model") == ["Radeon RX 7900", "Instinct MI300X"]


def test_platform_nodes_of_a_real_partitioned_card_find_their_partition(
    samples: Path, tmp_path: Path
) -> None:
    trees.mi300x(tmp_path, partitions=4)
    shutil.rmtree(tmp_path / "devices/platform")
    for n in range(1, 4):
        (tmp_path / f"class/drm/card{n}").unlink()
        (tmp_path / f"class/drm/renderD{128 + n}").unlink()
    skeleton = samples / "hardware/instinct-partition-xcp-skeleton"
    shutil.copytree(skeleton, tmp_path, symlinks=True, dirs_exist_ok=True)
    rows = listed(tmp_path)
    assert column(rows, "partition") == [0, 1, 2, 3]
    assert column(rows, "drm_card") == ["card0", "card2", "card3", "card4"]
    assert column(rows, "render_node") == ["renderD128", "renderD129", "renderD130", "renderD131"]


def test_a_cpu_gpu_alone_is_listed(samples: Path, tmp_path: Path) -> None:
    assert len(listed(trees.laid_out(samples, "apu-radeon-780m-phoenix"))) == 1


@pytest.mark.parametrize("partitions", [2, 4, 8])
def test_partitions_of_a_live_node_carry_their_drm_nodes(tmp_path: Path, partitions: int) -> None:
    trees.mi300x(tmp_path, sockets=2, partitions=partitions)
    rows = listed(tmp_path)
    assert column(rows, "gpu") == [0] * partitions + [1] * partitions
    assert column(rows, "partition") == list(range(partitions)) * 2
    assert column(rows, "drm_card") == [f"card{i}" for i in range(2 * partitions)]
    assert column(rows, "render_minor") == [128 + i for i in range(2 * partitions)]
    assert set(column(rows, "compute_units")) == {304 // partitions}


def test_the_high_bits_of_a_location_name_the_partition_where_they_are_used(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, partitions=4)
    for n in range(1, 5):
        file = tmp_path / f"class/kfd/kfd/topology/nodes/{n}/properties"
        text = file.read_text()
        file.write_text(text.replace(f"location_id {5 << 8 | n - 1}", f"location_id {n - 1 << 28 | 5 << 8}"))
    rows = listed(tmp_path)
    assert column(rows, "pci") == ["0000:05:00.0"] * 4
    assert column(rows, "partition") == [0, 1, 2, 3]


def test_functions_that_exist_are_no_partitions(samples: Path, tmp_path: Path) -> None:
    """Two virtual functions on one PCI device are two GPUs."""
    trees.mi300x(tmp_path)
    first = tmp_path / "devices/pci0000:00/0000:05:00.0"
    second = tmp_path / "devices/pci0000:00/0000:05:00.1"
    shutil.copytree(first, second, symlinks=True)
    (second / "drm/card0").rename(second / "drm/card1")
    (second / "drm/renderD128").rename(second / "drm/renderD129")
    (tmp_path / "class/drm/card1").symlink_to("../../devices/pci0000:00/0000:05:00.1/drm/card1")
    node = tmp_path / "class/kfd/kfd/topology/nodes"
    shutil.copytree(node / "1", node / "2")
    text = (node / "2/properties").read_text()
    (node / "2/properties").write_text(text.replace("location_id 1280", "location_id 1281"))
    rows = listed(tmp_path)
    assert column(rows, "pci") == ["0000:05:00.0", "0000:05:00.1"]
    assert column(rows, "partition") == [None, None]
    assert column(rows, "gpu") == [0, 1]


def test_a_container_that_sees_one_partition_names_it(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, partitions=8)
    nodes = tmp_path / "class/kfd/kfd/topology/nodes"
    for n in (1, 2, 3, 5, 6, 7, 8):
        (nodes / f"{n}/properties").unlink()
    shutil.rmtree(tmp_path / "class/drm")
    (row,) = listed(tmp_path)
    assert (row["pci"], row["partition"]) == ("0000:05:00.0", 3)


def test_cards_of_two_digits_and_connectors(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=3)
    drm = tmp_path / "class/drm"
    target = (drm / "card2").readlink()
    (drm / "card2").unlink()
    (drm / "card12").symlink_to(target)
    (drm / "card12-HDMI-A-1").mkdir()
    assert column(listed(tmp_path), "drm_card") == ["card0", "card1", "card12"]


def test_a_flat_tree_without_links_finds_its_address_in_uevent(samples: Path, tmp_path: Path) -> None:
    """The shape Prometheus' own fixtures have: class/drm/card0/device is a folder."""
    shutil.copytree(samples / "hardware/radeon-rx-vega-procfs/card0", tmp_path / "class/drm/card0")
    (row,) = listed(tmp_path)
    assert (row["pci"], row["drm_card"], row["hip_index"]) == ("0000:09:00.0", "card0", None)


def test_a_machine_without_any_gpu_lists_none(tmp_path: Path) -> None:
    assert listed(tmp_path) == []
    assert listing.table([]) == "no AMD GPU"


def test_a_gpu_that_is_plugged_in_or_out_is_noticed_at_the_next_poll(tmp_path: Path) -> None:
    devices = trees.mi300x(tmp_path, sockets=2)
    machine = trees.Machine(tmp_path)
    card = tmp_path / "class/drm/card1"
    target = card.readlink()
    hidden = tmp_path / "hidden"
    node = tmp_path / "class/kfd/kfd/topology/nodes/2"
    assert len({d for _, d, _ in machine.poll()}) == 2
    card.unlink()
    devices[1].rename(hidden)
    node.rename(tmp_path / "node2")
    machine.poll()
    assert [d.id.pci for d in machine.devices] == ["0000:05:00.0"]
    hidden.rename(devices[1])
    (tmp_path / "node2").rename(node)
    card.symlink_to(target)
    rows = machine.poll()
    assert [d.id.pci for d in machine.devices] == ["0000:05:00.0", "0000:25:00.0"]
    assert rows["amdgpu_power_watts", "0000:25:00.0", ""] == 410


def test_a_partition_change_is_noticed_at_the_next_poll(tmp_path: Path) -> None:
    trees.mi300x(tmp_path / "spx")
    trees.mi300x(tmp_path / "cpx", partitions=8)
    live = tmp_path / "live"
    shutil.copytree(tmp_path / "spx", live, symlinks=True)
    machine = trees.Machine(live)
    machine.poll()
    assert [d.id for d in machine.devices] == [DeviceId("0000:05:00.0")]
    shutil.rmtree(live)
    shutil.copytree(tmp_path / "cpx", live, symlinks=True)
    rows = machine.poll()
    assert [d.id.partition for d in machine.devices] == list(range(8))
    assert {d.compute_partition for d in machine.devices} == {"CPX"}
    # Whole-card readings stand once, partitions have their own share of busy.
    assert [d for m, d, _ in rows if m == "amdgpu_power_watts"] == ["0000:05:00.0"]
    busy = {d: v for (m, d, engine), v in rows.items() if m == "amdgpu_busy_ratio" and engine == "gfx"}
    assert busy == {f"0000:05:00.0/{p}": p / 10 for p in range(8)}
    size = {d: v for (m, d, pool), v in rows.items() if m == "amdgpu_memory_size_bytes" and pool == "vram"}
    assert size == {"0000:05:00.0": trees.VRAM}


def test_a_sleeping_gpu_is_not_read_and_is_read_when_it_wakes(tmp_path: Path) -> None:
    (device,) = trees.mi300x(tmp_path)
    trees.put(device / "power/runtime_status", "suspended")
    machine = trees.Machine(tmp_path)
    rows = machine.poll()
    kept_in_memory = {"vendor", "device", "class", "revision", "uevent", "runtime_status", "numa_node"}
    read = {r.rsplit("/", 1)[1] for r in machine.root.reads if "05:00.0" in r}
    assert read <= kept_in_memory
    assert {m.removeprefix("amdgpu_") for m, _, _ in rows} == {
        "compute_units",  # these are of the compute driver, which answers from memory
        "memory_size_bytes",
        "processes",
        "compute_queues",
        "occupied_compute_units",
        "evictions_seconds_total",
        "copy_engine_seconds_total",
        "page_faults_total",
        "migrated_pages_total",
        "numa_node",
    }
    assert {g.reason for g in machine.gaps} >= {Reason.SUSPENDED}
    assert machine.devices[0].vbios is None
    trees.put(device / "power/runtime_status", "active")
    assert machine.poll()["amdgpu_power_watts", "0000:05:00.0", ""] == 410
    machine.poll()
    assert machine.devices[0].vbios == "113-M3000100-102"
    trees.put(device / "power/runtime_status", "suspended")
    machine.clock.at += 3600
    machine.root.reads.clear()
    machine.poll()
    assert {r.rsplit("/", 1)[1] for r in machine.root.reads if "05:00.0" in r} <= kept_in_memory
    assert machine.devices[0].vbios == "113-M3000100-102"


def test_nothing_that_blocks_wakes_or_clears_is_ever_read(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=2)
    machine = trees.Machine(tmp_path)
    for _ in range(3):
        machine.clock.at += 100
        machine.poll()
    names = {Path(r).name for r in machine.root.reads}
    assert not names & {Path(f).name for f in trees.FORBIDDEN_FILES}
    assert "gpu_busy_percent" in names


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"9" * 4000, b"two\nlines", b"\x01"])
def test_a_nonsense_identity_file_costs_that_name_only(tmp_path: Path, content: bytes) -> None:
    (device,) = trees.mi300x(tmp_path)
    before = listed(tmp_path)[0]
    for name, key in (("vbios_version", "vbios"), ("current_memory_partition", "memory_partition")):
        trees.put(device / name, content)
        assert listed(tmp_path)[0] == {**before, key: None}
        before[key] = None
    trees.put(device / "unique_id", content)
    assert listed(tmp_path)[0] == before, "KFD has the same number"


def test_serial_numbers_are_read_only_when_asked(tmp_path: Path) -> None:
    trees.mi300x(tmp_path)
    assert column(listed(tmp_path), "serial") == [None]
    assert column(listed(tmp_path, serials=True), "serial") == ["692103000000"]


def test_discovery_is_not_repeated_while_nothing_changed(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=4)
    machine = trees.Machine(tmp_path)
    machine.poll()
    machine.poll()
    machine.root.reads.clear()
    machine.poll()
    assert not [r for r in machine.root.reads if r.endswith(("unique_id", "properties", "vbios_version"))]
    machine.clock.at += 100
    machine.poll()
    assert [r for r in machine.root.reads if r.endswith("vbios_version")]


def test_a_device_that_leaves_while_it_is_read_costs_that_device_only(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=2)
    machine = trees.Machine(tmp_path)
    whole = machine.poll()
    machine.root.errors = {
        f"05:00.0/{name}": errno.ENODEV for name in ("runtime_status", "gpu_busy_percent", "gpu_metrics")
    } | {"05:00.0/power/runtime_status": errno.ENODEV}
    rows = machine.poll()
    other = {k: v for k, v in whole.items() if k[1] == "0000:25:00.0"}
    assert {k: v for k, v in rows.items() if k[1] == "0000:25:00.0"} == other
    assert ("amdgpu_power_watts", "0000:05:00.0", "gone") in machine.missing()
    machine.root.errors = {}
    assert machine.poll() == whole


def test_the_table_leaves_out_what_nobody_has(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=2)
    machine = trees.Machine(tmp_path)
    machine.poll()
    lines = listing.table(machine.devices).splitlines()
    heads = "GPU  PCI           MODEL            GFX     CUS  UUID              CARD   RENDER  KFD  GPU_ID"
    assert lines[0].startswith(heads)
    assert "PART" not in lines[0]
    assert lines[1].startswith("0    0000:05:00.0  Instinct MI300X  gfx942  304  1d5f1d3bf5b1e400")
    assert len(lines) == 3


def test_identity_reads_stay_inside_the_root(tmp_path: Path) -> None:
    """An absolute link of a captured tree points at the capture, never at this machine."""
    trees.mi300x(tmp_path)
    card = tmp_path / "class/drm/card0"
    inside = card.readlink()
    card.unlink()
    card.symlink_to("/" + str(inside).removeprefix("../../"))
    assert Root(str(tmp_path)).resolve("class/drm/card0") == "devices/pci0000:00/0000:05:00.0/drm/card0"
    assert column(listed(tmp_path), "drm_card") == ["card0"]


def test_links_that_lead_in_a_circle_cost_only_what_lies_behind_them(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=2)
    kfd = tmp_path / "class/kfd/kfd"
    if kfd.is_symlink():
        kfd.unlink()
    else:
        shutil.rmtree(kfd)
    kfd.symlink_to("kfd")
    assert len(listed(tmp_path)) == 2


def test_sensors_of_another_driver_on_the_device_are_not_taken_for_the_gpus(tmp_path: Path) -> None:
    (device,) = trees.mi300x(tmp_path)
    foreign = device / "hwmon" / "hwmon0"
    foreign.mkdir()
    (foreign / "name").write_text("nvme\n")
    (foreign / "temp1_input").write_text("99000\n")
    rows = trees.Machine(tmp_path).poll()
    heat = {labels: v for (metric, _, labels), v in rows.items() if metric == "amdgpu_temperature_celsius"}
    assert heat["junction"] == 66
    assert 99 not in heat.values()


def test_firmware_is_read_once_and_not_of_a_sleeping_gpu(tmp_path: Path) -> None:
    (device,) = trees.mi300x(tmp_path)
    trees.put(device / "power/runtime_status", "suspended")
    machine = trees.Machine(tmp_path)
    machine.poll()
    assert not [r for r in machine.root.reads if "fw_version" in r]
    trees.put(device / "power/runtime_status", "active")
    for _ in range(4):
        rows = machine.poll()
    versions = {labels for metric, _, labels in rows if metric == "amdgpu_firmware_info"}
    assert versions == {"smc,0x00556a00", "mec,0x000000a8"}
    assert sum("smc_fw_version" in r for r in machine.root.reads) == 1


@pytest.mark.parametrize("content", [b"N/A\n", b"\xff\n", b"0x1 0x2\n"])
def test_a_firmware_file_of_another_shape_costs_its_block_only(tmp_path: Path, content: bytes) -> None:
    (device,) = trees.mi300x(tmp_path)
    trees.put(device / "fw_version/smc_fw_version", content)
    machine = trees.Machine(tmp_path)
    rows = machine.poll()
    assert {labels for metric, _, labels in rows if metric == "amdgpu_firmware_info"} == {"mec,0x000000a8"}
    assert ("amdgpu_firmware_info", "0000:05:00.0", "malformed") in machine.missing()


def test_a_gpu_that_only_kfd_still_lists_is_gone_where_cards_are_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = trees.mi300x(tmp_path, sockets=2)
    machine = trees.Machine(tmp_path)
    machine.poll()
    shutil.rmtree(second)
    (tmp_path / "class/drm/card1").unlink()
    machine.poll()
    assert [d.id.pci for d in machine.devices] == [first.name]
    assert f"pci={second.name} event=gone" in caplog.text
    machine.poll()
    assert caplog.text.count("event=gone") == 1
    # Where no card is shown at all, as in a tree of KFD alone, KFD is all there is to go by.
    shutil.rmtree(tmp_path / "class/drm")
    machine.poll()
    assert [d.id.pci for d in machine.devices] == [first.name, second.name]


def test_the_last_gpu_whose_card_goes_is_gone(tmp_path: Path) -> None:
    [device] = trees.mi300x(tmp_path)
    trees.put(tmp_path / "class/drm/version", "drm 1.1.0 20060810")
    machine = trees.Machine(tmp_path)
    machine.poll()
    shutil.rmtree(device)
    for link in (tmp_path / "class/drm").glob("[cr]*[0-9]"):
        link.unlink() if link.is_symlink() else link.rmdir()
    machine.poll()
    assert machine.devices == []
