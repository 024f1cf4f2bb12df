"""The daemon's side of the history, a convenience: where it cannot be used, the daemon goes on without."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from exporter.child import Child
from exporter.host import Clock
from exporter.logs import event
from exporter.model import Series, Source, SourceError, Value, Window, WindowOutcome, WindowResult
from exporter.windows import wire

log = logging.getLogger(__name__)

_DEADLINE_S = 20.0
_IDLE_S = 60.0


class History:
    """What outlives a restart. ``open`` once before anything is asked of it.

    Values by key are kept in memory as well, so that a broken disk costs what comes after the next restart
    and nothing now. No method raises.
    """

    def __init__(self, folder: str, max_bytes: int, max_age_s: float, clock: Clock) -> None:
        spec = {"folder": folder, "max_bytes": max_bytes, "max_age_s": max_age_s}
        self.child = Child("history", "exporter.history.worker", spec)
        self._folder, self._clock = folder, clock
        self._kept: dict[str, Any] = {}
        self._phases: list[tuple[float, str]] = []
        self._trouble = ""
        self._windows: int | None = None
        self._bytes: int | None = None
        self._idle: asyncio.TimerHandle | None = None
        self.lost = 0

    @property
    def kept(self) -> Mapping[str, Any]:
        """All values by key."""
        return self._kept

    @property
    def folder(self) -> str:
        """Where the file is."""
        return self._folder

    @property
    def up(self) -> bool:
        return not self._trouble

    @property
    def trouble(self) -> str:
        """Why nothing is kept; empty while all is well."""
        return self._trouble

    async def open(self) -> None:
        """Read what an earlier daemon kept."""
        answer = await self._ask({"op": "open", "now": self._clock.now()})
        if answer is None:
            return
        self._kept = dict(answer["state"])
        self._phases = [(float(at), str(name)) for at, name in answer["phases"]]
        self._count(answer)
        for note in answer["notes"]:
            event(log, logging.WARNING, note)

    async def state(self, key: str) -> Any:
        """The value kept under a key; None where there is none."""
        return self._kept.get(key)

    async def set_state(self, key: str, value: Any) -> None:
        self._kept[key] = value
        await self._ask({"op": "set_state", "values": {key: value}})

    async def knows(self, origin: str) -> bool:
        """Whether the window from there was taken in before: a daemon may be killed between the two."""
        answer = await self._ask({"op": "has", "origin": origin})
        return bool(answer and answer["known"])

    async def append(
        self,
        window: Window,
        sources: Sequence[Source],
        results: Sequence[WindowResult],
        outcome: WindowOutcome,
        at: float,
        *,
        origin: str | None = None,
        contexts: Mapping[str, Mapping[str, Any]] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep one window and the totals that it changed, both or neither."""
        self._kept |= state or {}
        message = {
            **wire.encode(window, sources, results),
            "op": "append",
            "outcome": outcome.value,
            "at": at,
            "origin": origin,
            "contexts": contexts or {},
            "state": state or {},
        }
        answer = await self._ask(message)
        if answer is None:
            self.lost += 1
        else:
            self._count(answer)

    async def mark(self, phase: str) -> None:
        """Name the phase from now on."""
        at = self._clock.now()
        self._phases.append((at, phase))
        await self._ask({"op": "mark", "phase": phase, "at": at})

    @property
    def phases(self) -> Sequence[tuple[float, str]]:
        """When each phase began, oldest first."""
        return self._phases

    def readings(self) -> list[tuple[Series, Value]]:
        """How the history does."""
        found: list[tuple[Series, Value]] = [
            (Series("amdgpu_exporter_history_up"), int(self.up)),
            (Series("amdgpu_exporter_history_windows_lost_total"), self.lost),
        ]
        if self._windows is not None and self._bytes is not None:
            found.append((Series("amdgpu_exporter_history_windows"), self._windows))
            found.append((Series("amdgpu_exporter_history_size_bytes"), self._bytes))
        if self._phases:
            found.append((Series("amdgpu_phase_info", None, (self._phases[-1][1],)), 1))
        return found

    def _rest(self) -> None:
        """End the child when nothing is asked for a while: windows are rare, and it holds memory."""
        if self._idle:
            self._idle.cancel()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(_IDLE_S, lambda: loop.create_task(self.child.stop()))

    def _count(self, answer: Mapping[str, Any]) -> None:
        self._windows, self._bytes = int(answer["windows"]), int(answer["bytes"])
        if gone := answer["gone"]:
            event(log, logging.INFO, "the oldest windows of the history made way", windows=gone)

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """One request; None where it could not be done, which is said when it is new."""
        try:
            answer = await self.child.request(message, _DEADLINE_S)
        except SourceError as e:
            if str(e) != self._trouble:
                event(log, logging.ERROR, "the history cannot be used; going on without", detail=e)
            self._trouble = str(e)
            return None
        self._rest()
        if self._trouble:
            event(log, logging.INFO, "the history is kept again", folder=self._folder)
            self._trouble = ""
        return answer
