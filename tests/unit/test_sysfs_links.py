"""Links between sockets: hops, weights and types of captured topologies, and what they cost to read."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import trees

NODES = "class/kfd/kfd/topology/nodes"
Links = dict[tuple[str, str], tuple[str, int, int]]


def links(machine: trees.Machine) -> Links:
    """(GPU, peer) -> type, hops, weight."""
    out: Links = {}
    for metric, device, labels in machine.poll():
        if metric == "amdgpu_link_info":
            peer, kind, hops, weight = labels.split(",")
            assert (device, peer) not in out, "two links to one peer"
            out[device, peer] = (kind, int(hops), int(weight))
    return out


def link(root: Path, a: int, b: int, kind: int, weight: int, folder: str = "io_links") -> None:
    base = root / f"{NODES}/{a}/{folder}"
    number = len(list(base.iterdir())) if base.is_dir() else 0
    trees.put(base / f"{number}/properties", f"type {kind}\nnode_from {a}\nnode_to {b}\nweight {weight}")


def test_two_hives_of_mi210_are_as_the_truth_says(samples: Path) -> None:
    name = "instinct-mi210-8x-kfd"
    nodes = json.loads((samples / "hardware" / name / "TRUTH.json").read_text())["kfd_nodes"]
    pci = {n["node"]: n["bdf"] for n in nodes if n["is_gpu"]}
    found = links(trees.Machine(trees.laid_out(samples, name)))
    direct = 0
    for node in nodes:
        for to, truth in (node.get("io_links") or {}).items():
            peer = pci.get(int(to), f"cpu{to}")
            if node["is_gpu"]:
                kind = {"2": "pcie", "11": "xgmi"}[truth["type"]]
                assert found[pci[node["node"]], peer] == (kind, 1, truth["weight"])
                direct += 1
    far = {v for k, v in found.items() if k[1].startswith("0000") and v[0] == "pcie"}
    assert far == {("pcie", 3, 72)}  # GPU, CPU, the other CPU, GPU
    assert direct == 8 * 4
    assert len(found) == 8 * 8  # seven peers and a CPU each


def test_64_partitions_show_the_links_of_eight_sockets_and_read_them_once(
    samples: Path, tmp_path: Path
) -> None:
    with tarfile.open(samples / "hardware/instinct-mi300x-8x-cpx-kfd/kfd-full.tar.gz") as tar:
        for member in tar.getmembers():
            match = re.search(r"topology/(nodes/\d+/.*properties|generation_id)$", member.name)
            content = tar.extractfile(member) if match else None
            if match and content:
                trees.put(tmp_path / "class/kfd/kfd" / match[0], content.read())
    machine = trees.Machine(tmp_path)
    found = links(machine)
    assert len(machine.devices) == 63  # the capture stops one short
    assert len(found) == 8 * 8
    assert {v for (_, peer), v in found.items() if peer.startswith("0000")} == {("xgmi", 1, 41)}
    assert {v for (_, peer), v in found.items() if peer.startswith("cpu")} == {("pcie", 1, 20)}
    read = [r for r in machine.root.reads if "_links/" in r]
    assert len({r.split("/nodes/")[1].split("/")[0] for r in read}) == 8 + 2  # of 64, and the CPUs
    machine.root.reads = []
    assert links(machine) == found
    machine.clock.at += 60
    assert links(machine) == found
    assert not [r for r in machine.root.reads if "_links/" in r]
    trees.put(tmp_path / "class/kfd/kfd/topology/generation_id", "7")
    links(machine)
    assert [r for r in machine.root.reads if "_links/" in r]


def test_hops_hidden_in_the_weight_of_an_xgmi_link_are_shown(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=4)
    for a in range(1, 5):
        for b in range(1, 5):
            if a != b:  # a ring, which the driver lists as if all were neighbours
                link(tmp_path, a, b, 11, 30 if abs(a - b) == 2 else 15)
    found = links(trees.Machine(tmp_path))
    first = "0000:05:00.0"
    assert found[first, "0000:25:00.0"] == ("xgmi", 1, 15)
    assert found[first, "0000:45:00.0"] == ("xgmi", 2, 30)


def test_without_a_link_the_shortest_way_is_counted(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=3)
    trees.put(tmp_path / f"{NODES}/4/properties", "cpu_cores_count 96\nsimd_count 0\nlocation_id 0")
    link(tmp_path, 1, 0, 2, 20)
    link(tmp_path, 2, 0, 2, 20)
    link(tmp_path, 4, 3, 2, 20)  # listed at the CPU's end only
    link(tmp_path, 0, 4, 1, 32)
    link(tmp_path, 1, 2, 2, 52, "p2p_links")
    found = links(trees.Machine(tmp_path))
    a, b, c = (f"0000:{bus}:00.0" for bus in ("05", "25", "45"))
    assert found[a, "cpu0"] == ("pcie", 1, 20)
    assert found[a, b] == ("pcie", 2, 52)  # the driver's own measure of a way through others
    assert found[b, a] == ("pcie", 2, 40)
    assert found[a, c] == ("pcie", 3, 72)
    assert (c, a) not in found  # a node that lists nothing says nothing


def test_a_topology_in_part_unreadable_costs_only_what_it_hides(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=2)
    link(tmp_path, 1, 2, 11, 15)
    trees.put(tmp_path / f"{NODES}/1/io_links/1/properties", b"\xff\xfe nonsense")
    trees.put(tmp_path / f"{NODES}/1/io_links/2/properties", "type 11\nnode_to 77\nweight 15")
    trees.put(tmp_path / f"{NODES}/1/io_links/3/properties", "type 11\nnode_to 2\nweight -4")
    found = links(trees.Machine(tmp_path))
    assert found == {("0000:05:00.0", "0000:25:00.0"): ("xgmi", 1, 15)}


def test_numa_node_is_absent_where_the_kernel_has_none(tmp_path: Path) -> None:
    (device,) = trees.mi300x(tmp_path)
    trees.put(device / "numa_node", "-1")
    machine = trees.Machine(tmp_path)
    assert not [k for k in machine.poll() if k[0] == "amdgpu_numa_node"]
    assert ("amdgpu_numa_node", "0000:05:00.0", "unsupported") in machine.missing()
