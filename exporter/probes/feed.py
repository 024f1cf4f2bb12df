"""The daemon's side of probes: what the verb left in the state folder, looked at now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path

from exporter.host import Clock
from exporter.logs import event
from exporter.model import DeviceId, Outcome, Series, Slot, Value
from exporter.probes.record import Record, readings
from exporter.probes.shelf import Shelf

log = logging.getLogger(__name__)

SOURCE = "probes"
_EVERY_S = 5.0


class ProbeFeed:
    """The latest record of each probe. ``here`` gives the GPUs that there are now."""

    def __init__(self, state: Path, clock: Clock, here: Callable[[], Collection[DeviceId]]) -> None:
        self._shelf, self._clock, self._here = Shelf(state), clock, here
        self._records: list[Record] = []
        self._said: list[str] = []
        self._made: tuple[object, tuple[Series, ...], tuple[Value, ...]] | None = None

    async def run(self, publish: Callable[[], None]) -> None:
        """Look for ever."""
        while True:
            if await self.look():
                publish()
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> bool:
        """Take what is there now; whether it is other than before."""
        # The disk may be slow, and this is the event loop.
        records, problems = await asyncio.to_thread(self._shelf.latest)
        if problems != self._said:
            for problem in problems:
                event(log, logging.WARNING, "a probe cannot be shown", detail=problem)
            self._said = problems
        changed = records != self._records
        if changed:
            self._records, self._made = records, None
        return changed

    def slot(self, now: float) -> Slot | None:
        """The readings; None before any probe was run. The same series while nothing changes."""
        if not self._records:
            return None
        here = self._here()
        if self._made is None or self._made[0] is not here:
            found = readings(self._records, here)
            self._made = (here, tuple(s for s, _ in found), tuple(v for _, v in found))
        return Slot(Outcome(SOURCE, True, None, "", 0.0, now, now), self._made[1], self._made[2])
