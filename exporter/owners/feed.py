"""The daemon's side of owners: asks the child at the cadence of polls, and says who holds each GPU now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from exporter.child import Child
from exporter.collect import Holders, Timing
from exporter.host import Clock
from exporter.logs import event
from exporter.model import Device, DeviceId, Outcome, Owner, Reason, Slot, SourceError
from exporter.owners.kubelet import Held
from exporter.owners.match import Names, holders
from exporter.vitals import SlotBuilder, SourceFacts

log = logging.getLogger(__name__)

SOURCE = "owners"
_MEMORY = "amdgpu_process_memory_bytes"
_SAID_MAX = 200


@dataclass(frozen=True, slots=True)
class Settings:
    """What is asked: the kubelet's socket and the folder of job files, None for not at all."""

    kubelet: str | None = None
    jobs: str | None = None
    resources: tuple[str, ...] = ("amd.com/gpu", "amd.com/?px_nps?", "gpu.amd.com")
    cgroups: str = "/sys/fs/cgroup"


class OwnersFeed:
    """Who holds each GPU. ``timing`` is asked at every look, so that a reload reaches it."""

    def __init__(self, settings: Settings, clock: Clock, timing: Callable[[], Timing]) -> None:
        spec = {"kubelet": settings.kubelet, "jobs": settings.jobs, "cgroups": settings.cgroups}
        self.child = Child("owners", "exporter.owners.reader", spec)
        self._settings, self._clock, self._timing = settings, clock, timing
        self._builder = SlotBuilder()
        self._outcomes: dict[str, Outcome] = {}
        self._failures: dict[str, dict[Reason, int]] = {}
        self._held: tuple[Held, ...] = ()
        self._jobs: dict[str, list[str]] = {}
        self._said: set[str] = set()

    @property
    def asks(self) -> bool:
        """Whether there is anybody to ask; processes on the GPUs are seen without."""
        return bool(self._settings.kubelet or self._settings.jobs)

    async def run(self, publish: Callable[[], None]) -> None:
        """Ask for ever."""
        while True:
            before = self._held, self._jobs, {n: o.ok for n, o in self._outcomes.items()}
            await self.look()
            if before != (self._held, self._jobs, {n: o.ok for n, o in self._outcomes.items()}):
                publish()
            await asyncio.sleep(self._timing().interval_s)

    async def look(self) -> None:
        start, deadline_s = self._clock.monotonic(), max(2.0, self._timing().deadline_s)
        try:
            answer = await self.child.request({"op": "look", "deadline_s": deadline_s}, deadline_s + 5.0)
        except SourceError as e:
            answer = {name: {"reason": e.reason, "detail": str(e)} for name in self._asked()}
        seconds = self._clock.monotonic() - start
        for name in self._asked():
            self._judge(name, answer.get(name) or {}, seconds)
        kubelet, jobs = answer.get("kubelet", {}), answer.get("jobs", {})
        if "held" in kubelet:
            self._held = tuple(Held(*row) for row in kubelet["held"])
        if "jobs" in jobs:
            self._take(jobs)

    def at(
        self, now: float, devices: Mapping[DeviceId, Device], slots: Iterable[Slot]
    ) -> tuple[Slot, Holders, tuple[SourceFacts, ...]]:
        """The readings of a page made now, from what was heard and whose processes fresh slots show.

        What was heard too long ago is no longer true: those holders end.
        """
        names = Names(devices.values())
        listed: list[tuple[DeviceId, Owner]] = []
        counts: dict[str, list[int]] = {}
        for source, places, owner, text in self._listed(now, names):
            count = counts.setdefault(source, [0, 0])
            count[0 if places else 1] += 1
            if not places:
                self._say(f"{source}: {text} is none of this node's AMD GPUs")
            listed += [(device, owner) for device in places]
        running = (
            (series.device, Owner(*series.labels))
            for slot in slots
            for series in slot.series
            if series.metric == _MEMORY and series.device is not None
        )
        found = holders(listed, running)
        add = self._builder.add
        for device in sorted(found, key=lambda d: (d.pci, d.partition or 0)):
            for owner in found[device]:
                add("amdgpu_workload_info", 1, *owner, device=device)
        for source in self._asked():
            if self._fresh(source, now):
                matched, unmatched = counts.get(source, (0, 0))
                add("amdgpu_exporter_owner_devices", matched, source, "matched")
                add("amdgpu_exporter_owner_devices", unmatched, source, "unmatched")
        return self._builder.finish(Outcome(SOURCE, True, None, "", 0.0, now, now)), found, self._facts()

    def _facts(self) -> tuple[SourceFacts, ...]:
        """How the sources do, for the exporter's own metrics."""
        roots = {"kubelet": self._settings.kubelet or "", "jobs": self._settings.jobs or ""}
        return tuple(
            SourceFacts(n, n, roots[n], self._outcomes.get(n), None, self._failures.get(n, {}))
            for n in self._asked()
        )

    def _asked(self) -> tuple[str, ...]:
        settings = self._settings
        return (*(("kubelet",) if settings.kubelet else ()), *(("jobs",) if settings.jobs else ()))

    def _fresh(self, source: str, now: float) -> bool:
        outcome = self._outcomes.get(source)
        return bool(
            outcome and outcome.last_ok is not None and now - outcome.last_ok <= self._timing().max_age_s
        )

    def _listed(self, now: float, names: Names) -> Iterator[tuple[str, tuple[DeviceId, ...], Owner, str]]:
        """(source, GPUs, owner, name as given) of all that schedulers said lately enough."""
        if self._fresh("kubelet", now):
            for row in self._held:
                if any(fnmatchcase(row.resource, pattern) for pattern in self._settings.resources):
                    one = names.device(row.device)
                    owner = Owner("pod", row.namespace, row.pod, row.container)
                    yield "kubelet", (one,) if one else (), owner, f"{row.resource} {row.device}"
        if self._fresh("jobs", now):
            for name, jobs in self._jobs.items():
                for job in jobs:
                    yield "jobs", names.place(name), Owner("job", job_id=job), f"file {name}"

    def _judge(self, name: str, answer: Mapping[str, Any], seconds: float) -> None:
        now, last = self._clock.now(), self._outcomes.get(name)
        if "reason" not in answer:
            if last and not last.ok:
                event(log, logging.INFO, "source is back", source=name)
            self._outcomes[name] = Outcome(name, True, None, "", seconds, now, now)
            return
        reason, detail = Reason(answer["reason"]), str(answer["detail"])
        failures = self._failures.setdefault(name, {})
        failures[reason] = failures.get(reason, 0) + 1
        if last is None or last.ok or last.detail != detail:
            event(log, logging.WARNING, "owners are not known from here", source=name, detail=detail)
        self._outcomes[name] = Outcome(
            name, False, reason, detail, seconds, now, last.last_ok if last else None
        )

    def _take(self, jobs: Mapping[str, Any]) -> None:
        for name, problem in jobs["problems"].items():
            self._say(f"{self._settings.jobs}/{name}: {problem}")
        ended = frozenset(jobs["ended"])
        for job in sorted(ended):
            self._say(
                f"{self._settings.jobs}: job {job} has ended and its file is still there; is the epilog set?"
            )
        self._jobs = {
            name: living
            for name, ids in jobs["jobs"].items()
            if (living := [j for j in ids if j not in ended])
        }

    def _say(self, text: str) -> None:
        """Log each thing once."""
        if text not in self._said and len(self._said) < _SAID_MAX:
            self._said.add(text)
            event(log, logging.WARNING, text)
