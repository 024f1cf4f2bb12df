"""The daemon's side of the textfile folder: asks the child at the cadence of polls, keeps what it said."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from exporter.child import Child
from exporter.collect import TextFiles, Timing
from exporter.exposition import Foreign
from exporter.host import Clock
from exporter.logs import event
from exporter.model import SourceError

log = logging.getLogger(__name__)


class TextFeed:
    """What the folder holds. ``timing`` is asked at every look, so that a reload reaches it."""

    def __init__(self, folder: str, max_bytes: int, clock: Clock, timing: Callable[[], Timing]) -> None:
        self.child = Child("textfile", "exporter.textfile.folder", {"folder": folder, "max_bytes": max_bytes})
        self._folder, self._clock, self._timing = folder, clock, timing
        self._foreign = Foreign()
        self._changed: dict[str, float | None] = {}
        self._refused: dict[str, int] = {}
        self._said: dict[str, str] = {}
        self._at = float("-inf")

    async def run(self, publish: Callable[[], None]) -> None:
        """Look for ever; a failed look leaves what there is to age."""
        while True:
            before = self._foreign
            await self.look()
            if self._foreign != before:
                publish()
            await asyncio.sleep(self._timing().interval_s)

    async def look(self) -> None:
        try:
            answer = await self.child.request({"op": "look"}, max(5.0, self._timing().deadline_s))
        except SourceError as e:
            self._say("", f"{self._folder}: {e}")
            return
        self._say("", None)
        self._take(answer)

    def at(self, now: float) -> tuple[Foreign, TextFiles]:
        """What goes into a page made now; nothing once it is too old to be true."""
        if now - self._at > max(self._timing().max_age_s, 15.0):
            return Foreign(), ()
        return self._foreign, tuple((n, c, self._refused.get(n, 0)) for n, c in self._changed.items())

    def _take(self, answer: dict[str, Any]) -> None:
        self._at = self._clock.now()
        self._foreign = Foreign(answer["text"], answer["openmetrics"], answer["series"])
        self._changed = {name: changed for name, changed, _ in answer["files"]}
        # A name that comes back goes on where it stopped; one of many that went is forgotten.
        self._refused = {n: self._refused.get(n, 0) for n in self._changed}
        for name, _, problem in answer["files"]:
            self._refused[name] += problem is not None
            self._say(name, problem and f"{self._folder}/{name}: {problem}")

    def _say(self, about: str, problem: str | None) -> None:
        """Log a problem when it is new, and that it has ended."""
        if problem == self._said.get(about):
            return
        if problem is None:
            event(log, logging.INFO, "textfile is taken again", file=f"{self._folder}/{about}")
            del self._said[about]
        else:
            event(log, logging.WARNING, "textfile is not taken", detail=problem)
            self._said[about] = problem
