"""What keeps windows from doing harm twice: a breaker that opens on failures, a budget of window time. Pure.

Both count on the monotonic clock. What they hand out to be kept on disk carries the wall clock, and what
comes back is bounded by it: a clock that was stepped meanwhile makes nothing negative or huge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from exporter.model import WindowOutcome

# What a profiler does wrong. Blocked is somebody else's turn, and a window without rows may be the truth.
SOFT = frozenset(
    {WindowOutcome.TIMEOUT, WindowOutcome.MALFORMED, WindowOutcome.DENIED, WindowOutcome.NOT_ATTACHABLE}
)
GOOD = frozenset({WindowOutcome.OK, WindowOutcome.PARTIAL, WindowOutcome.EMPTY})
_HOUR_S = 3600.0


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """Soft errors in a row that open it, and how long it stays open: twice as long at each failed trial."""

    soft_errors: int = 3
    backoff_s: float = 900.0
    backoff_most_s: float = 86_400.0


class Breaker:
    """Closed, open, or half open: then the next window is a trial that closes it or opens it for longer."""

    def __init__(self, rules: BreakerRules | None = None) -> None:
        self.rules = rules or BreakerRules()
        self.state = BreakerState.CLOSED
        self.reason = ""
        self.trips = 0
        self._soft = 0
        self._in_a_row = 0
        self._until = 0.0

    def allows(self, mono: float) -> bool:
        """Whether a window may start; turns half open when the back-off is over."""
        if self.state is not BreakerState.OPEN:
            return True
        if mono < self._until:
            return False
        self.state = BreakerState.HALF_OPEN
        return True

    def opens_in(self, mono: float) -> float:
        """Seconds until the next trial; 0 where one is allowed."""
        return max(0.0, self._until - mono) if self.state is BreakerState.OPEN else 0.0

    def took(self, outcome: WindowOutcome, detail: str, mono: float) -> None:
        """Take in how a window went."""
        if outcome in GOOD:
            if self.state is BreakerState.OPEN:
                return  # its rows are good, and it may be this very window that opened it
            self.state, self.reason = BreakerState.CLOSED, ""
            self._soft = self._in_a_row = 0
        elif outcome is WindowOutcome.CRASH:
            self.trip(f"a profiler crashed: {detail}", mono)
        elif outcome in SOFT:
            self._soft += 1
            if self._soft >= self.rules.soft_errors or self.state is BreakerState.HALF_OPEN:
                self.trip(f"{self._soft} windows in a row failed, the last: {outcome}: {detail}", mono)

    def trip(self, reason: str, mono: float) -> None:
        """Open at once."""
        rules = self.rules
        # The power alone would be too large a number after months of failed trials.
        back_off = rules.backoff_s * 2.0 ** min(self._in_a_row, 32)
        self._until = mono + min(back_off, rules.backoff_most_s)
        self._in_a_row += 1
        self._soft = 0
        self.trips += 1
        self.state, self.reason = BreakerState.OPEN, reason

    def dump(self, mono: float, wall: float) -> dict[str, Any]:
        """What outlives a restart, as JSON values."""
        return {
            "state": self.state.value,
            "reason": self.reason,
            "trips": self.trips,
            "soft": self._soft,
            "in_a_row": self._in_a_row,
            "until": wall + self.opens_in(mono),
        }

    def restore(self, kept: Mapping[str, Any], mono: float, wall: float) -> None:
        """Go on where ``dump`` left off. Raises KeyError, ValueError or TypeError for anything else."""
        state = BreakerState(kept["state"])
        reason, trips = str(kept["reason"]), int(kept["trips"])
        soft, in_a_row = int(kept["soft"]), int(kept["in_a_row"])
        left = float(kept["until"]) - wall
        if not left == left or min(trips, soft, in_a_row) < 0:
            raise ValueError("a breaker that is none")
        self.state, self.reason, self.trips = state, reason, trips
        self._soft, self._in_a_row = soft, in_a_row
        self._until = mono + min(max(left, 0.0), self.rules.backoff_most_s)


class Budget:
    """Window time that may be spent: it grows by the duty cycle, up to an hour's worth, and begins at 0.

    A window that takes longer than planned leaves a debt, which is paid before the next one.
    """

    def __init__(self, duty_ratio: float, mono: float) -> None:
        self.duty_ratio = duty_ratio
        self._seconds = 0.0
        self._at = mono

    def allows(self, planned_s: float, mono: float) -> bool:
        """Whether there is time for a window."""
        passed = mono - self._at
        if passed > 0.0:
            self._at = mono
            most = self.duty_ratio * _HOUR_S
            if planned_s > most:
                most = planned_s
            self._seconds += passed * self.duty_ratio
            if self._seconds > most:
                self._seconds = most
        return self._seconds >= planned_s

    def wait_s(self, planned_s: float, mono: float) -> float:
        """How long until there is time for a window."""
        self.allows(planned_s, mono)
        return max(0.0, planned_s - self._seconds) / self.duty_ratio

    def spend(self, seconds: float) -> None:
        """Take a window's time off."""
        self._seconds -= seconds

    def dump(self, mono: float, wall: float) -> dict[str, Any]:
        """What outlives a restart, as JSON values."""
        self.allows(0.0, mono)
        return {"seconds": self._seconds, "at": wall}

    def restore(self, kept: Mapping[str, Any], mono: float, wall: float) -> None:
        """Go on where ``dump`` left off. Raises KeyError, ValueError or TypeError for anything else."""
        seconds, away = float(kept["seconds"]), wall - float(kept["at"])
        if not seconds == seconds or not away == away:
            raise ValueError("a budget that is none")
        most = self.duty_ratio * _HOUR_S
        # Time off counts too, but no more than what could have been saved up.
        saved = max(seconds, -_HOUR_S) + min(max(away, 0.0), 2 * _HOUR_S) * self.duty_ratio
        self._seconds = min(saved, most)
        self._at = mono
