"""Reads one socket through the library into raw groups: what is wanted, what is due, what time allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from exporter.backends import amdsmi_groups as groups
from exporter.backends.amdsmi_identity import Gpu
from exporter.backends.amdsmi_module import Library
from exporter.backends.amdsmi_records import Records
from exporter.model import Device, Raw, RawGroups, Reason

GROUPS = (
    "device",
    "busy",
    "metrics",
    "power",
    "power_cap",
    "energy",
    "memory",
    "link",
    "sensors",
    "limits",
    "ras",
    "pages",
    "violations",
    "records",
)
# What is read only where it is asked for.
_ASKED = ("violations", "records")
_NOTHING: Raw = {"count": {}, "newest": {}, "afid": {}}


@dataclass(frozen=True, slots=True)
class Cadence:
    """Seconds for which a group's answers are kept, and the groups that are never read.

    ``violations_s`` 0 is never: the call sleeps 100 ms for each GPU. ``records_s`` 0 is never, too: libraries
    have crashed on error records.
    """

    slow_s: float = 60.0
    ras_s: float = 15.0
    violations_s: float = 0.0
    records_s: float = 0.0
    skip: frozenset[str] = frozenset()

    def wants(self, group: str) -> bool:
        never = group in _ASKED and getattr(self, f"{group}_s") <= 0
        return group not in self.skip and not never


class SocketReader:
    """One socket. Answers that seldom change are kept for a while; one with a gap in it is asked again."""

    def __init__(self, cadence: Cadence) -> None:
        self._cadence = cadence
        self._kept: dict[str, tuple[float, Raw]] = {}
        self._blocks: set[str] = set()  # that ever counted errors: one that stops is missed
        self._records = Records()
        self._records_from: float | None = None

    def read(
        self, library: Library, gpu: Gpu, clock: Callable[[], float], late: float
    ) -> list[tuple[Device, RawGroups]]:
        """The groups of every partition; a group for which no time was left is TIMEOUT."""
        wants = self._cadence.wants
        lib, handle = library, gpu.handle
        raw: Raw = None
        if wants("metrics") or wants("busy"):
            raw = lib.call("get_gpu_metrics_info", handle) if clock() < late else Reason.TIMEOUT
        table = groups.table(raw)
        known: Mapping[str, Raw] = table if isinstance(table, dict) else {}

        def kept(name: str, seconds: float, read: Callable[[], Raw], *, gaps: bool = False) -> Raw:
            until, value = self._kept.get(name, (0.0, None))
            now = clock()
            if now < until:
                return value
            if now >= late:
                return Reason.TIMEOUT
            value = read()
            if gaps or _whole(value):
                self._kept[name] = (now + seconds, value)
            return value

        rare = self._cadence
        reads: dict[str, Callable[[], Raw]] = {
            # Asked only where the table has no answer, which is where it can have none.
            "power": lambda: {} if known.get("power") is not None else groups.power(lib, handle),
            "energy": lambda: {} if known.get("energy") is not None else groups.energy(lib, handle),
            "power_cap": lambda: groups.power_cap(lib, handle),
            "memory": lambda: groups.memory_used(lib, handle),
            "link": lambda: groups.link(lib, handle),
            "sensors": lambda: groups.sensors(lib, handle, table),
        }
        seldom: dict[str, Callable[[], Raw]] = {
            "limits": lambda: kept("limits", rare.slow_s, lambda: groups.limits(lib, handle)),
            "ras": lambda: kept("ras", rare.ras_s, lambda: groups.errors(lib, handle, self._blocks)),
            "pages": lambda: kept("pages", rare.ras_s, lambda: groups.retired_pages(lib, handle)),
            "violations": lambda: kept(
                "violations", rare.violations_s, lambda: groups.violations(lib, handle), gaps=True
            ),
        }
        out: dict[str, Raw] = {"metrics": table} if wants("metrics") else {}
        for name, read in reads.items():
            if wants(name):
                out[name] = read() if clock() < late else Reason.TIMEOUT
        for name, read in seldom.items():
            if wants(name):
                out[name] = read()
        # What is not asked for is not missing.
        out["records"] = _NOTHING
        if wants("records") and self._records_may(clock()):
            out["records"] = kept(
                "records", rare.records_s, lambda: self._records.read(lib, handle), gaps=True
            )
        return [(d, self._of(d, raw, out if n == 0 else {})) for n, d in enumerate(gpu.devices)]

    def _records_may(self, now: float) -> bool:
        """Not in a process's first moments: a library that crashes on them still gives the rest."""
        if self._records_from is None:
            self._records_from = now + self._cadence.records_s
        return now >= self._records_from

    def _of(self, device: Device, raw: Raw, socket: Mapping[str, Raw]) -> dict[str, Raw]:
        out = dict(socket)
        if self._cadence.wants("device"):
            out["device"] = {"compute_units": device.compute_units}
        if self._cadence.wants("busy"):
            partition = device.id.partition
            out["busy"] = groups.busy(raw) if partition is None else groups.partition_busy(raw, partition)
        return out


def _whole(value: Raw) -> bool:
    """Whether every leaf is a number, or the group as a whole is nothing for this card or this user."""
    return value in (Reason.UNSUPPORTED, Reason.DENIED) or _numbers_only(value)


def _numbers_only(value: Raw) -> bool:
    if isinstance(value, Mapping):
        return all(map(_numbers_only, value.values()))
    return type(value) in (int, float)
