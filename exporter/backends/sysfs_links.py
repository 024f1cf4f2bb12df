"""How GPUs reach each other and their CPU: the links of KFD's topology, sockets only.

A node of partitions lists a link to every other partition, 63 in all for 64; what counts is which socket is
reached, so the links of each socket's first node speak for it and those inside a socket are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.backends.sysfs_cards import KFD
from exporter.backends.sysfs_topology import Socket
from exporter.formats import sysfs_text
from exporter.host import Root
from exporter.model import Raw, Reason

_XGMI, _PCIE = 11, 2
_NAMES = {_PCIE: "pcie", _XGMI: "xgmi"}
_SMALL = 4096
_FAR = 8  # hops; a node has no longer path
_HOP = 15  # what the driver counts for each xGMI hop


@dataclass(frozen=True, slots=True)
class _Link:
    """One link as KFD lists it; ``direct`` is False for a path through others that allows peer access."""

    to: int
    type: int
    weight: int
    direct: bool


class Links:
    """Links by socket; read anew only when the topology or the list of sockets changes."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._key: object = None
        self._groups: dict[str, Raw] = {}

    def read(self, generation: object, sockets: Iterable[Socket]) -> Mapping[str, Raw]:
        """A group for each PCI address: peers {peer: {type: {hops: {weight: 1}}}} and numa_node."""
        sockets = tuple(sockets)
        key = (
            generation,
            [(s.pci, s.path, [p.node.number if p.node else None for p in s.parts]) for s in sockets],
        )
        if key != self._key:
            self._groups = self._read(sockets)
            self._key = key
        return self._groups

    def _read(self, sockets: tuple[Socket, ...]) -> dict[str, Raw]:
        base = self._root.resolve(f"{KFD}/nodes")
        owner = {p.node.number: s.pci for s in sockets for p in s.parts if p.node is not None}
        first = {
            s.pci: min(p.node.number for p in s.parts if p.node)
            for s in sockets
            if any(p.node for p in s.parts)
        }
        cpus = self._cpus(base, owner)
        links = {n: self._of_node(f"{base}/{n}") for n in (*first.values(), *cpus)}
        out: dict[str, Raw] = {}
        for socket in sockets:
            group: dict[str, Raw] = {"numa_node": self._numa(socket)}
            number = first.get(socket.pci)
            if number is not None and links[number]:
                group["peers"] = _peers(number, links, owner, first, cpus)
            out[socket.pci] = group
        return out

    def _cpus(self, base: str, owner: Mapping[int, str]) -> list[int]:
        """Nodes that are CPUs; a node that may not be seen is none."""
        found = []
        for name in self._root.listdir(base):
            if name.isdecimal() and int(name) not in owner:
                p = sysfs_text.properties(self._bytes(f"{base}/{name}/properties"))
                if p.get("cpu_cores_count", 0) > 0 and not p.get("simd_count"):
                    found.append(int(name))
        return found

    def _of_node(self, node: str) -> list[_Link]:
        out = []
        for folder, direct in (("io_links", True), ("p2p_links", False)):
            for name in self._root.listdir(f"{node}/{folder}"):
                p = sysfs_text.properties(self._bytes(f"{node}/{folder}/{name}/properties"))
                if "node_to" in p and "type" in p and p.get("weight", -1) >= 0:
                    out.append(_Link(p["node_to"], p["type"], p["weight"], direct))
        return out

    def _numa(self, socket: Socket) -> Raw:
        if socket.path is None:
            return None
        value = sysfs_text.integer(self._bytes(f"{socket.path}/numa_node"))
        # -1 is how the kernel says that the machine has no such thing.
        return Reason.UNSUPPORTED if isinstance(value, int) and value < 0 else value

    def _bytes(self, rel: str) -> bytes:
        try:
            return self._root.read(rel, _SMALL)
        except OSError:
            return b""


def _peers(
    start: int,
    links: Mapping[int, list[_Link]],
    owner: Mapping[int, str],
    first: Mapping[str, int],
    cpus: list[int],
) -> dict[str, Raw]:
    mine = owner[start]
    out: dict[str, Raw] = {}
    listed: dict[str, _Link] = {}
    for link in sorted(links[start], key=lambda x: (not x.direct, x.weight)):
        peer = owner.get(link.to)
        if peer is not None and peer != mine:
            listed.setdefault(peer, link)
        elif link.to in cpus and link.direct:
            out.setdefault(f"cpu{link.to}", _one(link.type, 1, link.weight))
    for peer, number in first.items():
        if peer == mine:
            continue
        known = listed.get(peer)
        if known is not None and known.direct:
            # The driver lists every GPU of a hive as if it were next door, and hides the hops in the weight.
            far = known.type == _XGMI and known.weight > 0 and known.weight % _HOP == 0
            out[peer] = _one(known.type, known.weight // _HOP if far else 1, known.weight)
        elif (path := _shortest(start, number, links)) is not None:
            kind = _PCIE if any(step.type != _XGMI for step in path) else _XGMI
            weight = known.weight if known else sum(step.weight for step in path)
            out[peer] = _one(kind, len(path), weight)
    return out


def _one(kind: int, hops: int, weight: int) -> Raw:
    return {_NAMES.get(kind, "other"): {str(hops): {str(weight): 1}}}


def _shortest(start: int, goal: int, links: Mapping[int, list[_Link]]) -> list[_Link] | None:
    """The path of fewest links from one node to another, and of those the lightest; None without one."""
    frontier: dict[int, list[_Link]] = {start: []}
    seen = {start}
    for _ in range(_FAR):
        reached: dict[int, list[_Link]] = {}
        for node, path in frontier.items():
            for link in _from(node, links):
                if link.to in seen:
                    continue
                new = [*path, link]
                old = reached.get(link.to)
                if old is None or sum(x.weight for x in new) < sum(x.weight for x in old):
                    reached[link.to] = new
        if goal in reached:
            return reached[goal]
        if not reached:
            return None
        seen |= reached.keys()
        frontier = reached
    return None


def _from(node: int, links: Mapping[int, list[_Link]]) -> list[_Link]:
    """Direct links out of a node; one that only the other end lists counts too."""
    out = [link for link in links.get(node, ()) if link.direct]
    known = {link.to for link in out}
    for other, theirs in links.items():
        if other not in known:
            out += [_Link(other, x.type, x.weight, True) for x in theirs if x.direct and x.to == node]
    return out
