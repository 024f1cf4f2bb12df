"""The vendor's command line tools: what ``smi_cli`` asks them, how often, and what a failure means."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from exporter.command import Ending, Finished, run_once
from exporter.formats import amd_smi, rocm_smi
from exporter.formats.smi_json import Entry, Record, Socket, last_line, merge, why_nothing
from exporter.host import Clock
from exporter.model import FormatError, Reason, SourceError

log = logging.getLogger(__name__)

OUTPUT_LIMIT = 16 * 1024 * 1024  # 64 partitions with everything known are about 4 MiB
ENOUGH_S = 0.5  # no tool is started for what can wait with less than this left
# What of our environment a tool gets: where to find itself and its library, and nothing that selects GPUs.
_PASSED = ("PATH", "HOME", "LD_LIBRARY_PATH", "ROCM_PATH", "ROCM_HOME", "AMDSMI_LIB_OVERRIDE")


def clean_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """What a tool sees of our environment; English texts, as some are read for reasons."""
    kept = {name: ours[name] for name in _PASSED if name in ours}
    # The tools draw bullets, which older Pythons cannot write in locale C.
    return {**kept, "LC_ALL": "C", "PYTHONIOENCODING": "utf-8", "PYTHONNOUSERSITE": "1"}


class Runner:
    """Runs the commands of one poll within the time it has."""

    def __init__(self, env: Mapping[str, str], clock: Clock, until: float) -> None:
        self._env, self.clock, self._until = env, clock, until

    def left(self) -> float:
        return self._until - self.clock.monotonic()

    def records(self, argv: Sequence[str], read: Callable[[bytes], dict[int, Record]]) -> dict[int, Record]:
        """The records a command prints. Errors: SourceError; FailedError where asking for less may help."""
        given_s = max(0.05, self.left())
        done = run_once(argv, given_s, OUTPUT_LIMIT, self._env)
        what = " ".join((os.path.basename(argv[0]), *argv[1:2]))
        if done.outcome is Ending.TIMEOUT:
            raise SourceError(Reason.TIMEOUT, f"{what}: no answer within {given_s:.1f} s; killed")
        if done.outcome is Ending.FLOOD:
            raise SourceError(Reason.MALFORMED, f"{what}: more than {OUTPUT_LIMIT} bytes of output; killed")
        if done.outcome is Ending.NOT_STARTED:
            detail = last_line(done.stderr.decode("utf-8", "replace"))
            reason = Reason.DENIED if "ermission" in detail else Reason.CRASHED
            raise SourceError(reason, f"{what}: not started: {detail}")
        try:
            return read(done.stdout)
        except FormatError as e:
            raise _failure(what, done, str(e)) from None


class FailedError(SourceError):
    """The command ended by itself, badly and without data."""


def _failure(what: str, done: Finished, detail: str) -> SourceError:
    reason = why_nothing(done.stdout, done.stderr)
    code = done.code or 0
    if code < 0 and reason is not Reason.DENIED:
        reason, detail = Reason.CRASHED, f"died of signal {-code}"
    words = last_line(done.stderr.decode("utf-8", "replace"))
    text = f"{what}: {detail}" + (f" ({words})" if words and words not in detail else "")
    return (FailedError if code and reason is not Reason.DENIED else SourceError)(reason, text)


class Tool(Protocol):
    """One of the vendor's tools."""

    def read(self, runner: Runner, socket: Socket) -> list[Entry]:
        """All devices, sorted by address. Errors: SourceError."""
        ...


class AmdSmi:
    """``amd-smi``: ``metric`` at every poll, ``list`` and ``static`` rarely."""

    def __init__(self, path: str, slow_s: float) -> None:
        self._path, self._slow_s = path, slow_s
        self._list: dict[int, Record] = {}
        self._static: dict[int, Record] = {}
        self._seen: frozenset[int] | None = None
        self._list_due = self._static_due = float("-inf")

    def read(self, runner: Runner, socket: Socket) -> list[Entry]:
        now = runner.clock.monotonic()
        if now >= self._list_due:
            self._read_list(runner, now)
        metric = self._ask(runner, "metric")
        known, self._seen = self._seen, frozenset(metric)
        if known not in (None, self._seen):
            # GPUs came, went or were partitioned anew: what we knew of them may be another's.
            self._static, self._static_due = {}, float("-inf")
            self._read_list(runner, now)
        self._read_static(runner, now)
        records: dict[int, dict[str, Any]] = {}
        for source in (self._list, self._static, metric):
            for index, record in source.items():
                if index in metric:
                    # Not merged: metric has the newer word on what static shows too, as the clocks.
                    records.setdefault(index, {}).update(record)
        return amd_smi.decode(records, socket)

    def _read_list(self, runner: Runner, now: float) -> None:
        try:
            self._list = self._ask(runner, "list")
        except FailedError:
            self._list = {}  # ``static`` has the addresses too
        self._list_due = now + self._slow_s

    def _read_static(self, runner: Runner, now: float) -> None:
        if now < self._static_due or (self._list and runner.left() < ENOUGH_S):
            return
        # Kept from being asked again at once where it fails or is slow.
        self._static_due = now + self._slow_s
        try:
            self._static = self._ask(runner, "static")
        except SourceError as e:
            self._static = {}
            if not self._list:
                raise
            log.warning("names and limits are not known: %s", e)

    def _ask(self, runner: Runner, verb: str) -> dict[int, Record]:
        return runner.records([self._path, verb, "--json"], amd_smi.records)


_ADDRESS = ("--showbus",)
_READINGS: tuple[tuple[str, ...], ...] = (
    _ADDRESS,
    ("--showtemp",),
    ("--showpower", "--showmaxpower"),
    ("--showuse", "--showmemuse"),
    ("--showmeminfo", "vram", "vis_vram", "gtt"),
    ("--showclocks",),
    ("--showenergycounter",),
    ("--showvoltage",),
    ("--showfan",),
    ("--showreplaycount",),
)
_NAMES = (
    "--showid",
    "--showuniqueid",
    "--showserial",
    "--showvbios",
    "--showproductname",
    "--showdriverversion",
)


class RocmSmi:
    """``rocm-smi``: all readings in one command.

    Some releases abort on some cards for one group of readings, or do not know an option, and then say
    nothing at all: the groups are then asked one by one, and bad ones left out until ``slow_s`` has passed.
    """

    def __init__(self, path: str, slow_s: float) -> None:
        self._path, self._slow_s = path, slow_s
        self._names: dict[int, Record] = {}
        self._named: frozenset[int] = frozenset()
        self._good: set[tuple[str, ...]] = set()
        self._bad: set[tuple[str, ...]] = set()
        self._names_due = self._forgive_at = float("-inf")

    def read(self, runner: Runner, socket: Socket) -> list[Entry]:
        now = runner.clock.monotonic()
        if now >= self._forgive_at:
            self._good, self._bad = set(), set()
        wanted = [group for group in _READINGS if group not in self._bad]
        try:
            found = self._ask(runner, *wanted)
        except FailedError as e:
            found = self._one_by_one(runner, now, wanted, e)
        if now >= self._names_due or self._named != frozenset(found):
            self._read_names(runner, now)
            self._named = frozenset(found)
        records: dict[int, dict[str, Any]] = {}
        for source in (self._names, found):
            for index, record in source.items():
                if index in found or index == rocm_smi.SYSTEM:
                    records.setdefault(index, {}).update(record)
        return rocm_smi.decode(records, socket)

    def _one_by_one(
        self, runner: Runner, now: float, wanted: Sequence[tuple[str, ...]], cause: FailedError
    ) -> dict[int, Record]:
        """Find the bad groups; what there is no time for is found at the next polls."""
        if not self._bad:
            self._forgive_at = now + self._slow_s
        found: dict[int, dict[str, Any]] = {}
        good = [group for group in wanted if group in self._good] or [_ADDRESS]
        for batch in (good, *([group] for group in wanted if group not in good)):
            if runner.left() < ENOUGH_S:
                break
            try:
                for index, record in self._ask(runner, *batch).items():
                    merge(found.setdefault(index, {}), record)
            except SourceError as e:
                if batch is good:
                    self._good.clear()
                    raise cause from None
                if isinstance(e, FailedError):
                    self._bad.update(batch)
                    continue
                if e.reason is not Reason.NO_DATA:
                    raise
            self._good.update(batch)
        if not found:
            raise cause
        bad = ", ".join(group[0] for group in sorted(self._bad)) or "nothing"
        log.warning("%s; left out for now: %s", cause, bad)
        return dict(found)

    def _read_names(self, runner: Runner, now: float) -> None:
        if runner.left() < ENOUGH_S:
            return
        self._names_due = now + self._slow_s
        try:
            self._names = self._ask(runner, _NAMES)
        except SourceError as e:
            self._names = {}
            log.warning("names are not known: %s", e)

    def _ask(self, runner: Runner, *groups: tuple[str, ...]) -> dict[int, Record]:
        options = (option for group in groups for option in group)
        return runner.records([self._path, *options, "--json"], rocm_smi.records)
