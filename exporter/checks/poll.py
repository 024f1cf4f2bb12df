"""Ask the sources now, without a daemon: each in its own child, so that one that hangs is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from exporter.checks.health import Verdict, Watch
from exporter.collect import Inventory, PolledSource
from exporter.host import Clock
from exporter.model import Device, DeviceId, Slot

PATIENCE_S = 8.0


async def ask(
    sources: Sequence[PolledSource],
    watch: Watch | None = None,
    *,
    again_after_s: float = 0.0,
    patience_s: float = PATIENCE_S,
) -> tuple[Verdict, ...]:
    """Poll every source once, or twice to see what rises; the sources keep outcome and data.

    Returns the verdicts of ``watch``.
    """
    clock, watch, inventory = Clock(), watch or Watch(), Inventory()
    try:
        for turn in range(2 if again_after_s else 1):
            if turn:
                await asyncio.sleep(again_after_s)
            deadlines = [max(s.deadline_s or 0, patience_s) for s in sources]
            await asyncio.gather(*(s.poll(d, clock) for s, d in zip(sources, deadlines, strict=True)))
            slots = fresh(sources)
            inventory.update(tuple(slot.devices for slot in slots))
            answering = frozenset().union(*(s.answering for s in sources if s.outcome and s.outcome.ok))
            watch.look(clock.now(), inventory.devices, slots, answering)
    finally:
        await asyncio.gather(*(s.child.stop() for s in sources))
    return watch.verdicts


def fresh(sources: Sequence[PolledSource]) -> list[Slot]:
    """What the sources said that answered the latest poll, in order of trust."""
    return [s.slot for s in sources if s.slot and s.outcome and s.outcome.ok]


def states(sources: Sequence[PolledSource]) -> dict[str, str]:
    """Each source with "up" or why it is down."""
    return {
        s.name: "up" if s.outcome and s.outcome.ok else s.outcome.detail if s.outcome else "" for s in sources
    }


def devices(sources: Sequence[PolledSource]) -> Mapping[DeviceId, Device]:
    inventory = Inventory()
    inventory.update(tuple(slot.devices for slot in fresh(sources)))
    return inventory.devices
