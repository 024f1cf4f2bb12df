"""Cadences, deadlines, slots: asks the reader children, keeps what they said, publishes generations.

Runs in the event loop of the daemon and never blocks it: the children do the reading. A generation is
published when a source finishes, when a window is added, and when data expires.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from exporter.catalogue.schema import Catalogue
from exporter.child import Child
from exporter.exposition import Foreign, Page, Renderer, workload_labels
from exporter.host import Clock
from exporter.logs import event
from exporter.model import (
    Device,
    DeviceId,
    Outcome,
    Owner,
    Reason,
    Slot,
    Snapshot,
    SourceError,
)
from exporter.slots import Decoder
from exporter.vitals import SOURCE, Facts, SlotBuilder, SourceFacts, count, fill

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """How often, how long, how old; seconds."""

    interval_s: float
    deadline_s: float
    max_age_s: float


_VARIANT_KEPT = 100

Judge = Callable[
    [float, Mapping[DeviceId, Device], Sequence[Slot], frozenset[DeviceId]], Mapping[DeviceId, str]
]
TextFiles = tuple[tuple[str, float | None, int], ...]
Holders = Mapping[DeviceId, tuple[Owner, ...]]
Owners = Callable[
    [float, Mapping[DeviceId, Device], Iterable[Slot]], tuple[Slot | None, Holders, tuple[SourceFacts, ...]]
]
_NO_LABELS: Mapping[DeviceId, str] = {}


class Published:
    """One generation as it is sent: two formats, plain or compressed.

    What clients asked for lately is made before they ask again; anything else when it is first asked for.
    """

    def __init__(self, snapshot: Snapshot, page: Page, asked: dict[tuple[bool, bool], int]) -> None:
        self.snapshot = snapshot
        self.page = page
        self._asked = asked
        self._packed: dict[bool, bytes] = {}
        for (openmetrics, packed), generation in asked.items():
            if snapshot.generation - generation < _VARIANT_KEPT:
                self._make(openmetrics, packed)

    def body(self, *, openmetrics: bool, packed: bool) -> bytes:
        self._asked[openmetrics, packed] = self.snapshot.generation
        return self._make(openmetrics, packed)

    def _make(self, openmetrics: bool, packed: bool) -> bytes:
        plain = self.page.encode(openmetrics=openmetrics)
        if not packed:
            return plain
        if openmetrics not in self._packed:
            self._packed[openmetrics] = gzip.compress(plain, 1, mtime=0)
        return self._packed[openmetrics]


class PolledSource:
    """One source: its child, its latest slot, its failures."""

    def __init__(
        self, name: str, backend: str, root: str, child: Child, deadline_s: float | None = None
    ) -> None:
        self.name = name
        self.deadline_s = deadline_s  # its own, where the common one does not fit
        self.backend = backend
        self.root = root
        self.child = child
        self.slot: Slot | None = None  # the latest success; kept through failures until it expires
        self.outcome: Outcome | None = None
        self.failures: dict[Reason, int] = {}
        self.missing: dict[Reason, int] = {}
        self.answering: frozenset[DeviceId] = frozenset()
        self._decoder = Decoder()
        self._decoder_of = 0

    async def poll(self, deadline_s: float, clock: Clock) -> None:
        """Ask once. Failure changes the outcome and leaves the data to age."""
        start = clock.monotonic()
        try:
            answer = await self.child.request({"op": "poll"}, deadline_s)
            self._take(answer, clock.now(), clock.monotonic() - start)
        except SourceError as e:
            self.fail(e.reason, str(e), clock.now(), clock.monotonic() - start)
        except (ValueError, KeyError, TypeError) as e:
            self.fail(Reason.MALFORMED, f"answer not understood: {e}", clock.now(), clock.monotonic() - start)

    def fail(self, reason: Reason, detail: str, now: float, seconds: float) -> None:
        last = self.outcome
        if last is None or last.ok or last.reason is not reason:
            event(log, logging.ERROR, "source is down", source=self.name, reason=reason, detail=detail)
        self.failures[reason] = self.failures.get(reason, 0) + 1
        self.outcome = Outcome(self.name, False, reason, detail, seconds, now, last.last_ok if last else None)

    def fresh(self, now: float, max_age_s: float) -> Slot | None:
        slot = self.slot
        return slot if slot and now - slot.outcome.at <= max_age_s else None

    def _take(self, answer: dict[str, Any], now: float, seconds: float) -> None:
        if self._decoder_of != self.child.starts:
            self._decoder, self._decoder_of = Decoder(), self.child.starts
        poll = self._decoder.decode(answer)
        if self.outcome is not None and not self.outcome.ok:
            event(log, logging.INFO, "source is back", source=self.name)
        self.outcome = Outcome(self.name, True, None, "", seconds, now, now)
        old = self.slot
        self.slot = Slot(self.outcome, poll.series, poll.values, poll.gaps, poll.devices)
        if old is None or old.series is not poll.series or old.gaps is not poll.gaps:
            self.missing = count(gap.reason for gap in poll.gaps)
            asleep = {g.device for g in poll.gaps if g.reason is Reason.SUSPENDED}
            speaking = {s.device for s in poll.series} | asleep
            self.answering = frozenset(
                d.id for d in poll.devices if d.id in speaking or d.id.socket in speaking
            )


class Inventory:
    """Every GPU seen since start, with its ordinal; a GPU that leaves keeps its place."""

    def __init__(self) -> None:
        self.devices: Mapping[DeviceId, Device] = {}
        self._listed: tuple[tuple[Device, ...], ...] = ()

    def update(self, listed: tuple[tuple[Device, ...], ...]) -> None:
        """Take what the sources list now, in order of trust; keeps its mapping object if nothing changed."""
        if len(listed) == len(self._listed) and all(
            a is b for a, b in zip(listed, self._listed, strict=True)
        ):
            return
        self._listed = listed
        now: dict[DeviceId, Device] = {}
        for devices in listed:
            for device in devices:
                known = now.get(device.id)
                now[device.id] = device if known is None else _filled(known, device)
        here = {key.pci for key in now}
        gone = {key: d for key, d in self.devices.items() if key.pci not in here}
        merged = {**now, **gone}
        ordinal = {pci: n for n, pci in enumerate(sorted({key.pci for key in merged}))}
        new = {key: replace(merged[key], gpu=ordinal[key.pci]) for key in sorted(merged, key=_order)}
        for key in sorted(new.keys() - self.devices.keys(), key=_order):
            device = new[key]
            event(log, logging.INFO, "GPU seen", device=_say(key), gpu=device.gpu, model=device.model)
        if new != self.devices:
            self.devices = new


class Collector:
    """Owns the sources and the current generation.

    ``windows`` gives the window ledger's slot for a time; ``windows_expiry`` when it changes by itself;
    ``probes`` what was measured by the verb of that name.
    ``judge`` gives the health of each socket for a time, all GPUs, fresh slots and those that answer;
    ``owners`` gives who holds each GPU, for a time, all GPUs and fresh slots; ``inline``: on each series.
    ``remember`` takes the number of GPUs seen and gives how many there should be; ``foreign`` gives what
    others have to say for a time, and of each of their files when it was changed and how often refused.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        clock: Clock,
        timing: Timing,
        sources: list[PolledSource],
        *,
        series_max: int,
        expected: int | None = None,
        replay: tuple[str, bool] | None = None,
    ) -> None:
        self.timing = timing
        self.sources = sources
        self.series_max = series_max
        self.expected = expected
        self.should_have = expected
        self.current: Published | None = None
        self.first = asyncio.Event()
        self.reload_ok = True
        self.reload_at = clock.now()
        self.inventory = Inventory()
        self.processes: dict[str, tuple[float, int]] = {}
        self.children: list[Child] = [s.child for s in sources]
        self.windows: Callable[[float], Slot | None] = lambda _now: None
        self.windows_expiry: Callable[[float], float | None] = lambda _now: None
        self.probes: Callable[[float], Slot | None] = lambda _now: None
        self.judge: Judge = lambda _now, _devices, _slots, _answering: {}
        self.remember: Callable[[int], int | None] = lambda _seen: None
        self.begun = True  # whether all that is kept from before has been read
        self.refused: Mapping[str, int] = {}
        self.owners: Owners = lambda _now, _devices, _slots: (None, {}, ())
        self.inline = False
        self.foreign: Callable[[float], tuple[Foreign, TextFiles]] = lambda _now: (Foreign(), ())
        self._catalogue = catalogue
        self._clock = clock
        self._replay = replay
        self._renderer = Renderer(catalogue)
        self._builder = SlotBuilder()
        # Prometheus asks for compressed OpenMetrics: have that ready before its first scrape.
        self._asked = {(True, True): 0}
        self._workloads: Mapping[DeviceId, str] = {}
        self._generation = 0
        self._dropped = 0
        self._render_seconds: float | None = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def ready(self) -> bool:
        """Each source has finished a poll, well or badly, so that the page is as full as it gets."""
        return self.current is not None and self.begun and all(s.outcome for s in self.sources)

    def present(self) -> list[Device]:
        """The GPUs that fresh sources list now, with their ordinals; the same ones that are up."""
        now = self._clock.now()
        here = {
            device.id
            for s in self.sources
            if (slot := s.fresh(now, self.timing.max_age_s))
            for device in slot.devices
        }
        return [device for key, device in self.inventory.devices.items() if key in here]

    async def run(self, source: PolledSource) -> None:
        """Poll one source for ever, at its cadence; a slow poll skips ticks instead of queueing them."""
        loop = asyncio.get_running_loop()
        source.child.on_death = lambda detail: self._died(source, detail)
        due = loop.time()
        while True:
            await source.poll(source.deadline_s or self.timing.deadline_s, self._clock)
            self.publish()
            due += self.timing.interval_s
            if due < loop.time():
                due = loop.time() + self.timing.interval_s
            await asyncio.sleep(due - loop.time())

    def publish(self) -> None:
        """Render what is fresh now and make it the current generation."""
        start = self._clock.monotonic()
        now = self._clock.now()
        fresh = {s.name: slot for s in self.sources if (slot := s.fresh(now, self.timing.max_age_s))}
        self.inventory.update(tuple(slot.devices for slot in fresh.values()))
        for more in (self.windows(now), self.probes(now)):
            if more is not None:
                fresh[more.outcome.source] = more
        owners, holders, asked = self.owners(now, self.inventory.devices, fresh.values())
        if owners is not None:
            fresh[owners.outcome.source] = owners
        foreign, textfiles = self.foreign(now)
        fill(self._builder, self._catalogue, self._facts(now, fresh, textfiles, asked))
        # Its own place in the page is known before its value is.
        self._builder.add("amdgpu_exporter_series", 0)
        vitals = self._builder.finish(Outcome(SOURCE, True, None, "", 0.0, now, now))
        blocks = [*fresh.values(), vitals]
        layout = self._renderer.layout(
            self.inventory.devices,
            [b.series for b in blocks],
            self.series_max,
            self._labels(holders) if self.inline else _NO_LABELS,
        )
        if layout.dropped and not self._dropped:
            event(
                log,
                logging.WARNING,
                "more series than series.max; the dearest are left out",
                exposed=layout.exposed,
                dropped=layout.dropped,
                limit=self.series_max,
            )
        self._dropped += layout.dropped
        values = [b.values for b in blocks]
        values[-1] = (*vitals.values[:-1], layout.exposed + foreign.series)
        page = layout.render(values, foreign)
        self._generation += 1
        fresh[SOURCE] = vitals
        snapshot = Snapshot(self._generation, now, self.inventory.devices, fresh)
        self.current = Published(snapshot, page, self._asked)
        self._render_seconds = self._clock.monotonic() - start
        if self.ready:
            self.first.set()
        self._schedule_expiry(now)

    def _facts(
        self,
        now: float,
        fresh: Mapping[str, Slot],
        textfiles: TextFiles,
        asked: tuple[SourceFacts, ...],
    ) -> Facts:
        alive = [s for s in self.sources if s.name in fresh]
        devices = self.inventory.devices
        present = frozenset().union(*(s.answering for s in alive))
        remembered = self.remember(len({key.pci for key in present}))
        self.should_have = remembered if self.expected is None else self.expected
        return Facts(
            at=now,
            devices=devices,
            present=present,
            expected=self.should_have,
            sources=tuple(
                SourceFacts(
                    s.name, s.backend, s.root, s.outcome, s.missing if s.name in fresh else None, s.failures
                )
                for s in self.sources
            )
            + asked,
            children={c.name: c.starts for c in self.children},
            processes=self.processes,
            replay=self._replay,
            reload_ok=self.reload_ok,
            reload_at=self.reload_at,
            generation=self._generation,
            dropped_total=self._dropped,
            render_seconds=self._render_seconds,
            observed=bool(alive),
            health=self.judge(now, devices, [fresh[s.name] for s in alive], present),
            textfiles=textfiles,
            refused=self.refused,
        )

    def _labels(self, holders: Holders) -> Mapping[DeviceId, str]:
        """The holder of each GPU as labels; the same object while nobody came or went."""
        found = workload_labels(holders)
        if found != self._workloads:
            self._workloads = found
        return self._workloads

    def _died(self, source: PolledSource, detail: str) -> None:
        """A child that dies between polls is known at once, not at the next poll."""
        source.fail(Reason.CRASHED, detail, self._clock.now(), 0.0)
        self.publish()

    def _schedule_expiry(self, now: float) -> None:
        """Publish again the moment the first of the fresh data gets too old."""
        if self._expiry:
            self._expiry.cancel()
        ends = [
            s.slot.outcome.at + self.timing.max_age_s
            for s in self.sources
            if s.slot and s.fresh(now, self.timing.max_age_s)
        ]
        if (other := self.windows_expiry(now)) is not None:
            ends.append(other)
        if ends:
            delay = max(0.0, min(ends) - now) + 0.01
            self._expiry = asyncio.get_running_loop().call_later(delay, self.publish)


def _filled(device: Device, other: Device) -> Device:
    """``device`` with what it does not know of itself taken from a less trusted source."""
    unknown = {
        f.name: theirs
        for f in fields(Device)
        if getattr(device, f.name) is None and (theirs := getattr(other, f.name)) is not None
    }
    return replace(device, **unknown, indices={**other.indices, **device.indices})


def _order(key: DeviceId) -> tuple[str, int]:
    return key.pci, -1 if key.partition is None else key.partition


def _say(key: DeviceId) -> str:
    return key.pci if key.partition is None else f"{key.pci}/{key.partition}"
