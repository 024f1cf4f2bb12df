"""In what share of the firmware's samples heat held clocks down, lately. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Thermal:
    """Residency counters of one GPU at the start of the present and of the previous period."""

    old: tuple[float, float, Mapping[str, float]] | None = None
    new: tuple[float, float, Mapping[str, float]] | None = None

    def share(
        self, at: float, samples: float, residency: Mapping[str, float], period_s: float
    ) -> dict[str, float]:
        """Shares over the last third to two thirds of ``period_s``, less where it was not watched longer."""
        now = (at, samples, dict(residency))
        if self.new is None or samples < self.new[1]:  # first look, or the driver started anew
            self.old = self.new = now
        elif at - self.new[0] >= period_s / 3:
            self.old, self.new = self.new, now
        base = self.old
        taken = samples - base[1] if base else 0
        if base is None or taken <= 0:
            return {}
        return {r: (v - base[2].get(r, v)) / taken for r, v in residency.items() if v >= base[2].get(r, v)}
