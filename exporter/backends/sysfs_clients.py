"""Which processes use which GPU, from the graphics driver's descriptors, where there is no compute driver.

A look at every descriptor of every process costs, so a look is rare and bounded: processes known to have one
first, those that had none twice only at every tenth look.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.backends.sysfs_owners import Owners, by_owner
from exporter.formats import proc_text
from exporter.host import Root, reason_of
from exporter.model import FormatError, Owner, Raw, Reason

log = logging.getLogger(__name__)

_DESCRIPTORS = 4096  # links read in one look
_AGAIN = 10
_SMALL = 4096


@dataclass(slots=True)
class _Card:
    """What all clients together do on one GPU."""

    holders: set[str] = field(default_factory=set)
    memory: dict[Owner, int] = field(default_factory=dict)
    fault: Reason | None = None


class DrmClients:
    """Processes and their memory by PCI address, looked at every ``every_s`` seconds."""

    def __init__(
        self,
        procfs: Root,
        *,
        every_s: float = 60.0,
        descriptors: int = _DESCRIPTORS,
        logs: Root | None = None,
    ) -> None:
        self._procfs = procfs
        self._owners = Owners(procfs, logs)
        self._every_s = every_s
        self._most = descriptors
        self._due = float("-inf")
        self._nodes: dict[str, str] = {}
        self._groups: dict[str, Raw] = {}
        self._look_number = 0
        self._without: dict[str, int] = {}  # process -> looks that found no descriptor of a GPU
        self._have: set[str] = set()
        self._complaint = ""

    def read(self, now: float, nodes: Mapping[str, str]) -> Mapping[str, Raw]:
        """A group for each PCI address in ``nodes`` (by ``/dev/dri/renderD128``): count, memory by owner.

        Absent: a Reason for the whole group: DENIED where one process may not be looked into, TIMEOUT while
        not every process has had its turn.
        """
        if now < self._due and nodes == self._nodes:
            return self._groups
        self._due, self._nodes = now + self._every_s, dict(nodes)
        addresses = sorted(set(nodes.values()))
        self._look_number += 1
        try:
            numbers = [n for n in self._procfs.names("") if n.isdecimal()]
        except OSError as e:
            self._groups = dict.fromkeys(addresses, reason_of(e))
            return self._groups
        if not numbers:
            self._groups = dict.fromkeys(addresses, Reason.UNSUPPORTED)
            return self._groups
        self._owners.begin()
        cards = {address: _Card() for address in addresses}
        fault = self._look(numbers, cards)
        self._groups = {
            address: card.fault or fault or {"count": len(card.holders), "memory": by_owner(card.memory)}
            for address, card in cards.items()
        }
        return self._groups

    def _look(self, numbers: list[str], cards: dict[str, _Card]) -> Reason | None:
        here = set(numbers)
        self._have &= here
        self._without = {n: looks for n, looks in self._without.items() if n in here}
        left = self._most
        fault: Reason | None = None
        clients: set[tuple[str, int]] = set()
        for number in sorted(here, key=self._turn):
            if self._skip(number):
                continue
            if left <= 0:
                return fault or Reason.TIMEOUT
            try:
                descriptors, used = self._descriptors(number)
                left -= used
                self._take(number, descriptors, cards, clients)
            except FileNotFoundError:
                continue  # ended while we looked
            except OSError as e:
                reason = reason_of(e)
                if reason not in (Reason.GONE, Reason.UNSUPPORTED):
                    fault = reason
        return fault

    def _turn(self, number: str) -> tuple[int, int, int]:
        """Those with a descriptor first, then those not looked at yet."""
        return (0 if number in self._have else 1), self._without.get(number, 0), int(number)

    def _skip(self, number: str) -> bool:
        return self._without.get(number, 0) >= 2 and (self._look_number + int(number)) % _AGAIN != 0

    def _descriptors(self, number: str) -> tuple[dict[str, str], int]:
        """Descriptors of a process that are open on one of our GPUs, with its address, and the links read."""
        names = self._procfs.names(f"{number}/fd")
        found: dict[str, str] = {}
        for name in names:
            try:
                address = self._nodes.get(self._procfs.target(f"{number}/fd/{name}"))
            except FileNotFoundError:
                continue
            if address is not None:
                found[name] = address
        if found:
            self._have.add(number)
            self._without.pop(number, None)
        else:
            self._have.discard(number)
            self._without[number] = self._without.get(number, 0) + 1
        return found, max(1, len(names))

    def _take(
        self, number: str, descriptors: Mapping[str, str], cards: dict[str, _Card], seen: set[tuple[str, int]]
    ) -> None:
        """Add one process's clients to the cards; a card whose client cannot be read says why."""
        for name, address in descriptors.items():
            card = cards[address]
            try:
                client = proc_text.drm_client(self._procfs.read(f"{number}/fdinfo/{name}", _SMALL))
                if client is None:
                    card.fault = Reason.UNSUPPORTED  # a kernel that does not say what a descriptor holds
                    continue
                card = cards.get(client.pci, card)
                card.holders.add(number)
                if (client.pci, client.client) in seen:
                    continue  # one client behind several descriptors, or shared by processes
                seen.add((client.pci, client.client))
                owner = self._owners.of(number)
            except FileNotFoundError:
                continue
            except FormatError as e:
                self._complain(number, e)
                card.fault = Reason.MALFORMED
                continue
            vram = client.memory.get("vram")
            if client.faults or vram is None:
                card.fault = Reason.MALFORMED if client.faults else Reason.UNSUPPORTED
            elif isinstance(owner, Reason):
                card.fault = owner
            else:
                card.memory[owner] = card.memory.get(owner, 0) + vram

    def _complain(self, number: str, error: FormatError) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.warning("file=%s/fdinfo event=malformed detail=%s", number, error)
