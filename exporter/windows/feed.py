"""Brings finished windows into the ledger: folder -> reducer child -> ledger -> next generation.

Parsing and reducing happen in a bounded child, one folder at a time; a folder that cannot be read is set
aside with its reason and costs nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from exporter.child import Child
from exporter.host import Clock
from exporter.logs import event
from exporter.model import FormatError, Source, SourceError, Window, WindowOutcome, WindowResult
from exporter.windows import wire
from exporter.windows.bottleneck import Thresholds
from exporter.windows.ledger import Ledger

log = logging.getLogger(__name__)

Told = Callable[[str, WindowOutcome, str, Sequence[WindowResult]], None]

LOOK_EVERY_S = 1.0
DEADLINE_S = 120.0
_IDLE_S = 30.0
_FIRST_POLL_S = 10.0


class Spool(Protocol):
    """Where finished windows lie: the spool folder, or a capture's schedule."""

    def complete(self) -> list[Path]: ...

    def done(self, path: Path) -> None: ...

    def quarantine(self, path: Path, reason: str) -> None: ...


class Archive(Protocol):
    """What keeps windows beyond this process, and knows those of an earlier one."""

    async def knows(self, path: Path, /) -> bool: ...

    async def keep(
        self,
        path: Path,
        window: Window,
        sources: Sequence[Source],
        results: Sequence[WindowResult],
        outcome: WindowOutcome,
        at: float,
        /,
    ) -> None: ...


class Forgetful:
    """An archive for a daemon without one."""

    async def knows(self, _path: Path, /) -> bool:
        return False

    async def keep(self, *_window: object) -> None:
        return None


class Feed:
    """Looks for finished windows for ever.

    ``added`` is called after each one, to publish; ``limits`` gives the thresholds in force; ``told`` hears
    how each one went: its folder's name, the outcome, the reason, the results.
    """

    def __init__(
        self,
        ledger: Ledger,
        spool: Spool,
        reducer: Child,
        clock: Clock,
        added: Callable[[], None],
        limits: Callable[[], Thresholds],
        told: Told = lambda _name, _outcome, _detail, _results: None,
        archive: Archive | None = None,
    ) -> None:
        self._ledger = ledger
        self._spool = spool
        self._reducer = reducer
        self._clock = clock
        self._added = added
        self._limits = limits
        self._told = told
        self._archive = archive or Forgetful()

    async def run(self) -> None:
        started = idle_since = self._clock.monotonic()
        while True:
            # What lies in the spool at start would belong to no GPU before the first poll has found them.
            early = not self._ledger.ready and self._clock.monotonic() - started < _FIRST_POLL_S
            for path in () if early else await asyncio.to_thread(self._spool.complete):
                await self.take(path)
                idle_since = self._clock.monotonic()
            if self._reducer.pid and self._clock.monotonic() - idle_since > _IDLE_S:
                # Windows are rare: an idle child would only hold memory.
                await self._reducer.stop()
            await asyncio.sleep(LOOK_EVERY_S)

    async def take(self, path: Path) -> None:
        """One folder: reduce it, add it, and clear it away."""
        now = self._clock.now
        if await self._archive.knows(path):
            # A daemon before us took it in, and ended before it could clear it away.
            await asyncio.to_thread(self._spool.done, path)
            return
        try:
            request = {"op": "reduce", "path": str(path), "limits": asdict(self._limits())}
            answer = await self._reducer.request(request, DEADLINE_S)
            window, sources, results = wire.decode(answer)
            outcome = WindowOutcome(answer["outcome"])
            at, detail = now(), str(answer.get("detail", ""))
            self._ledger.add(window, sources, results, outcome, at, detail)
        except SourceError as e:
            self._fail(path, wire.outcome_of_failure(e.reason), str(e))
        except (FormatError, ValueError, KeyError) as e:
            self._fail(path, WindowOutcome.MALFORMED, str(e))
        else:
            await self._archive.keep(path, window, sources, results, outcome, at)
            self._told(path.name, outcome, detail, results)
            await asyncio.to_thread(self._spool.done, path)
        self._added()

    def _fail(self, path: Path, outcome: WindowOutcome, detail: str) -> None:
        """Count a window that gave nothing, and keep its files where someone can look at them."""
        event(log, logging.WARNING, "window set aside", window=path, outcome=outcome, detail=detail)
        self._ledger.add(Window(path.name, "unknown", "other"), (), (), outcome, self._clock.now(), detail)
        self._told(path.name, outcome, detail, ())
        self._spool.quarantine(path, detail)
