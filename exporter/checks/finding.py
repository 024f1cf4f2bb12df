"""What a check is, and what it finds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.checks.machine import Machine


class Severity(StrEnum):
    OK = "ok"
    INFO = "info"  # worth knowing; nothing is wrong
    WARNING = "warning"  # something does not work, the rest does
    BROKEN = "broken"  # nothing works until this is mended


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check saw. ``mend`` replaces the check's own command: by a better one, or "" by none."""

    severity: Severity
    text: str
    mend: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One question about the machine. ``worst`` is the gravest answer it gives."""

    id: str
    means: str  # what is asked, and why it matters
    worst: Severity
    mend: str
    look: Callable[[Machine], Seen]
    of_gpus: bool = False  # there is nothing to look at without one


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one check; a finding that is ok has nothing to mend."""

    id: str
    severity: Severity
    seen: str
    mend: str | None


def ok(text: str) -> Seen:
    return Seen(Severity.OK, text)


def info(text: str, mend: str | None = None) -> Seen:
    return Seen(Severity.INFO, text, mend)


def warning(text: str, mend: str | None = None) -> Seen:
    return Seen(Severity.WARNING, text, mend)


def broken(text: str, mend: str | None = None) -> Seen:
    return Seen(Severity.BROKEN, text, mend)


def find(check: Check, machine: Machine) -> Finding:
    nothing = check.of_gpus and not machine.devices
    seen = info("no GPU to look at", "") if nothing else check.look(machine)
    mend = check.mend if seen.mend is None else seen.mend
    return Finding(check.id, seen.severity, seen.text, None if seen.severity is Severity.OK else mend or None)


def listed(things: Iterable[object], most: int = 8) -> str:
    """A list for a line: the first few, and how many more."""
    all_ = [str(t) for t in things]
    more = f" and {len(all_) - most} more" if len(all_) > most else ""
    return ", ".join(all_[:most]) + more


def elsewhere() -> Seen:
    """The answer about a machine that is not this one."""
    return info("not looked at: the tree is a copy, and this asks about the machine it came from", "")
