"""What is kept of windows: running totals per GPU in memory, and the slot that serves them.

Knows no clock and no file: time is handed in. No counter ever falls while the process lives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from exporter.catalogue import CATALOGUE
from exporter.catalogue.window import SAMPLING_STATES
from exporter.model import (
    Bottleneck,
    Device,
    DeviceId,
    Gap,
    Outcome,
    Reason,
    Series,
    Slot,
    Source,
    Value,
    Window,
    WindowOutcome,
    WindowResult,
)
from exporter.windows.book import FOREIGN, MODES, Book, faults
from exporter.windows.kernels import UNSEEN_S, checked, short

SOURCE = "windows"
_MANY_DEVICES = 16
_REASONS_MAX = 20
_RECENT = 50
_TEXT_MAX = 500
_VERSION = 1
_PREFIX = "totals "
_NODE_KEY = "totals node"


@dataclass(frozen=True, slots=True)
class Keep:
    """How long and how much is kept: gauges of the last window, kernels with a series, kernels unseen."""

    hold_s: float = 900.0
    kernels: int = 10
    kernels_many_devices: int = 5
    unseen_s: float = UNSEEN_S


class Finding(NamedTuple):
    """What one window said of one GPU; the parts people look at."""

    gpu: str
    device: DeviceId | None
    bottleneck: Bottleneck
    timeline_reason: str | None
    launches: int
    queue_delay_ratio: float | None


@dataclass(frozen=True, slots=True)
class Taken:
    """One window as it was taken in; ``reason`` says why it gave less than it could."""

    id: str
    tool: str
    mode: str
    outcome: WindowOutcome
    at: float
    reason: str
    findings: tuple[Finding, ...]


class Ledger:
    """Adds windows up."""

    def __init__(self, keep: Keep | None = None) -> None:
        self._keep = keep or Keep()
        self._books: dict[DeviceId, Book] = {}
        self._known: dict[DeviceId, None] = {}
        self._unmapped = {(mode, o.value): 0 for mode in MODES for o in WindowOutcome}
        self._skipped: dict[str, int] = {}
        self._at: float | None = None
        self._series: tuple[Series, ...] = ()
        self._cached: tuple[tuple[Value, ...], tuple[Gap, ...]] = (), ()
        self._fresh_until: float | None = None
        self._fresh_state: str | None = None
        self._recent: deque[Taken] = deque(maxlen=_RECENT)
        self._kept: dict[str, Any] = {}

    @property
    def recent(self) -> tuple[Taken, ...]:
        """The windows taken in last, newest first."""
        return tuple(reversed(self._recent))

    @property
    def ready(self) -> bool:
        """Whether any GPU was ever known; before that, no window can be given to one."""
        return bool(self._books)

    def configure(self, keep: Keep) -> None:
        """Take other limits from now on; totals stay."""
        self._keep = keep
        self._stale()

    def know(self, devices: Iterable[Device]) -> None:
        """Say which GPUs there are now: each has its counters at once, one that left has no series.

        Totals of a GPU that leaves are kept, so that it goes on where it was when it comes back.
        """
        known: dict[DeviceId, None] = {}
        for device in devices:
            known[device.id] = None
            book = self._books.get(device.id)
            if book is None:
                self._books[device.id] = self._begun(device)
            elif device.gfx:
                book.gfx = device.gfx
        if known.keys() != self._known.keys():
            self._known = known
            self._stale()

    def expect(self, mode: str) -> None:
        """Say that windows of a mode are started here: every way they may end is counted from 0."""
        keys = [("amdgpu_windows_total", (mode, outcome.value)) for outcome in WindowOutcome]
        for device in self._known:
            totals = self._books[device].totals
            if keys[-1] not in totals:
                totals.update({key: 0 for key in keys if key not in totals})
                self._stale()

    def add(
        self,
        window: Window,
        sources: Sequence[Source],
        results: Sequence[WindowResult],
        outcome: WindowOutcome,
        at: float,
        detail: str = "",
    ) -> None:
        """Take in one window; ``at`` is wall-clock seconds, ``detail`` why nothing could be read of it.

        Errors: ValueError where a result would make a counter fall; then nothing of the window is kept.
        """
        for result in results:
            for fault in faults(result):
                raise ValueError(f"window {window.id}, GPU {result.gpu}: {fault}")
        self._stale()
        self._recent.append(_taken(window, sources, results, outcome, at, detail))
        self._at = at if self._at is None else max(self._at, at)
        mode = window.mode if window.mode in MODES else FOREIGN
        for source in sources:
            for reason, rows in source.skipped.items():
                self._skip(reason, rows)
        # GPUs that are not seen at this moment count too: a window may tell why the driver does not answer.
        mine = [(r.device, r) for r in results if r.device is not None and r.device in self._books]
        # A window without any result still speaks of the GPUs that it was taken on.
        devices = {d for d, _ in mine} if results else {d for d in window.agents.values() if d in self._books}
        for device in devices:
            self._books[device].count_window(mode, outcome)
        if len(mine) < len(results) or not devices:
            key = mode, outcome.value
            self._unmapped[key] = self._unmapped.get(key, 0) + 1
        keep = self._keep
        limit = keep.kernels if len(self._known) <= _MANY_DEVICES else keep.kernels_many_devices
        for device, result in mine:
            self._books[device].add(window, result, at, limit, keep.unseen_s)

    def dump(self, devices: Iterable[DeviceId] | None = None) -> dict[str, Any]:
        """Totals by key, as JSON values: those of some GPUs, or of all, and those of the node."""
        chosen = self._books if devices is None else {d: self._books[d] for d in devices if d in self._books}
        unmapped = [[*key, n] for key, n in self._unmapped.items()]
        found = {_NODE_KEY: {"version": _VERSION, "unmapped": unmapped, "skipped": self._skipped}}
        for key, book in chosen.items():
            found[_key(key)] = {"version": _VERSION, "uuid": book.uuid, **book.dump()}
        return found

    def restore(self, kept: Mapping[str, Any]) -> list[str]:
        """Go on from what ``dump`` gave, before the first window; returns what could not be taken over.

        A GPU's totals are taken over when it is first known, if it is the same one.
        """
        problems = []
        self._kept = {key: value for key, value in kept.items() if key.startswith(_PREFIX)}
        node = self._kept.pop(_NODE_KEY, None)
        if node is not None:
            try:
                if node["version"] != _VERSION:
                    raise ValueError(f"version {node['version']}")
                unmapped = {(str(m), str(o)): int(checked(n)) for m, o, n in node["unmapped"]}
                skipped = {str(why): int(checked(n)) for why, n in node["skipped"].items()}
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                problems.append(f"totals of the node begin at 0: {type(e).__name__}: {e}")
            else:
                self._unmapped |= unmapped
                self._skipped |= skipped
        self._stale()
        return problems

    def _begun(self, device: Device) -> Book:
        """The page of a GPU that was not known, with an earlier daemon's totals if it is the same GPU."""
        book = Book(device)
        raw = self._kept.pop(_key(device.id), None)
        if raw is None:
            return book
        try:
            same = not raw["uuid"] or not device.uuid or raw["uuid"] == device.uuid
            if same and raw["version"] == _VERSION:
                book.restore(raw)
        except (ValueError, KeyError, TypeError, AttributeError):
            return Book(device)  # a counter that begins at 0 is a reset, which queries know
        return book

    def slot(self, now: float, sampling_state: str = "off") -> Slot:
        """Everything that stands now. The ``series`` tuple is the same object while the set stays."""
        if sampling_state not in SAMPLING_STATES:
            raise ValueError(f"no sampling state {sampling_state!r}")
        fresh = self._fresh_until is not None and now < self._fresh_until
        if not fresh or sampling_state != self._fresh_state:
            self._rebuild(now, sampling_state)
        values, gaps = self._cached
        outcome = Outcome(SOURCE, True, None, "", 0.0, now, now)
        return Slot(outcome, self._series, values, gaps)

    def next_expiry(self, now: float) -> float | None:
        """When the next series will vanish unless a window comes before."""
        return min((t for t in self._expiries() if t > now), default=None)

    def kernel_names(self) -> Mapping[str, str]:
        """Label value -> one full name it stands for, for every kernel that has a series."""
        return {k: v for d in self._known for k, v in self._books[d].kernels.examples.items()}

    def _expiries(self) -> Iterable[float]:
        for device in self._known:
            book = self._books[device]
            yield from (shown.at + self._keep.hold_s for shown in book.shown.values())
            yield from book.kernels.expiries(self._keep.unseen_s)

    def _skip(self, reason: str, rows: int) -> None:
        known = reason in self._skipped or len(self._skipped) < _REASONS_MAX
        label = short(reason) if known else FOREIGN
        self._skipped[label] = self._skipped.get(label, 0) + rows

    def _stale(self) -> None:
        self._fresh_until = None

    def _rebuild(self, now: float, state: str) -> None:
        found: dict[Series, Value] = {}
        gaps: list[Gap] = []
        for s in SAMPLING_STATES:
            found[Series("amdgpu_sampling_state", None, (s,))] = int(s == state)
        for key, n in self._unmapped.items():
            found[Series("amdgpu_windows_unmapped_total", None, key)] = n
        for reason, n in self._skipped.items():
            found[Series("amdgpu_window_rows_skipped_total", None, (reason,))] = n
        for device in self._known:
            book = self._books[device]
            book.kernels.expire(now, self._keep.unseen_s)
            for (metric, labels), value in book.read(now, self._keep.hold_s):
                if _plausible(metric, value):
                    found[Series(metric, device, labels)] = value
                else:
                    gaps.append(Gap(metric, device, Reason.IMPLAUSIBLE))
        if len(found) != len(self._series) or not all(map(found.__contains__, self._series)):
            self._series = tuple(found)
        self._cached = tuple(map(found.__getitem__, self._series)), tuple(gaps)
        expiry = self.next_expiry(now)
        self._fresh_until = float("inf") if expiry is None else expiry
        self._fresh_state = state


def _key(device: DeviceId) -> str:
    part = "" if device.partition is None else f"/{device.partition}"
    return f"{_PREFIX}{device.pci}{part}"


def _taken(
    window: Window,
    sources: Sequence[Source],
    results: Sequence[WindowResult],
    outcome: WindowOutcome,
    at: float,
    detail: str,
) -> Taken:
    reasons = [detail] if detail else []
    for source in sources:
        name = source.path.rpartition("/")[2]
        reasons += [f"{name}: {rows} rows skipped: {why}" for why, rows in source.skipped.items()]
        reasons += [f"{name} is cut"] if source.partial else []
    findings = tuple(
        Finding(r.gpu, r.device, r.bottleneck, r.timeline_reason, r.launches, r.queue_delay_ratio)
        for r in results
    )
    return Taken(window.id, window.tool, window.mode, outcome, at, "; ".join(reasons)[:_TEXT_MAX], findings)


def _plausible(metric: str, value: Value) -> bool:
    low, high = CATALOGUE[metric].range
    amount = value if isinstance(value, int | float) else value.sum
    return isfinite(amount) and low <= amount <= high
