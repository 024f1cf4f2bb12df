"""When a node's slots are: spread over the fleet by the node's name, aligned to the wall clock. Pure.

Due times are kept on the monotonic clock. The wall clock only says where a period begins, so that nodes
which start together do not sample together; when it is stepped the slots are laid anew, never closer to the
last one than half a period.
"""

from __future__ import annotations

import hashlib
import re

STEP_S = 5.0  # wall and monotonic clock further apart than this since the last look: stepped, or suspended

_WORD = 1 << 64
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: its multiples fill a circle evenly
_DIGITS = re.compile(r"\d+")


def fraction(node: str) -> float:
    """Where in a period the node's slot is, 0 to below 1.

    Names that differ by their number, as those of a fleet do, lie further apart than chance would put them.
    """
    number = int("".join(_DIGITS.findall(node))[-18:] or "0")
    stem = hashlib.sha256(_DIGITS.sub("#", node).encode()).digest()
    return ((int.from_bytes(stem[:8], "big") + number * _GOLDEN) % _WORD >> 11) / (1 << 53)


class Schedule:
    """The slots of one node. A period has a light slot, and a deep one half a period later."""

    def __init__(self, node: str, period_s: float, mono: float, wall: float) -> None:
        self._fraction = fraction(node)
        self.period_s = period_s
        self._offset = wall - mono
        self._last = mono - period_s
        self.due = self._next(mono, wall, 0.0)
        self.deep_due = self.due - period_s / 2
        if self.deep_due <= mono:
            self.deep_due += period_s

    def configure(self, period_s: float, mono: float, wall: float) -> None:
        """Take another period from now on."""
        if period_s != self.period_s:
            self.period_s = period_s
            self._lay(mono, wall)

    def stepped(self, mono: float, wall: float) -> bool:
        """Whether a clock was stepped or the machine slept since the last look; lays the slots anew if so."""
        offset = wall - mono
        jump = offset - self._offset
        self._offset = offset
        if -STEP_S <= jump <= STEP_S:
            return False
        self._lay(mono, wall)
        return True

    def passed(self, mono: float, wall: float) -> None:
        """The light slot that was due is over, used or not; those missed meanwhile are not made up for."""
        self._last = mono
        self.due = self._next(mono, wall, self.period_s / 2)
        self.deep_due = self.due - self.period_s / 2

    def deep_passed(self) -> None:
        """The deep slot that was due is over."""
        self.deep_due = self.due + self.period_s / 2

    def _lay(self, mono: float, wall: float) -> None:
        soonest = max(0.0, self._last + self.period_s / 2 - mono)
        self.due = self._next(mono, wall, min(soonest, self.period_s / 2))
        self.deep_due = self.due + self.period_s / 2

    def _next(self, mono: float, wall: float, soonest_s: float) -> float:
        """Monotonic time of the first slot that is more than ``soonest_s`` away; at most a period after."""
        period = self.period_s
        phase = self._fraction * period
        return mono + ((wall + soonest_s - phase) // period + 1.0) * period + phase - wall
