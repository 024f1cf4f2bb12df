"""Running totals that never fall, made of counters that come, go and start over. No clock, no files."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet

from exporter.formats.gpu_metrics import Decoded
from exporter.formats.gpu_metrics_units import activity, samples


class Totals:
    """Adds up the counters of things (processes) into one total by name (GPU and kind).

    A total starts at 0 with the exporter: what a thing counted before we knew it is left out, so that a
    restart looks to a database like any other counter reset and is not counted again. A thing that began
    while we watched counts whole. When it ends its part stays.
    """

    def __init__(self) -> None:
        self._totals: dict[Hashable, float] = {}
        self._last: dict[Hashable, dict[tuple[Hashable, str], float]] = {}  # by thing

    def add(self, name: Hashable, thing: Hashable, part: str, value: float, *, whole: bool) -> None:
        """Take one counter of a thing as it stands; ``part`` tells several of one name apart.

        ``whole`` says that the thing began while we watched. A value below the highest seen adds nothing:
        a thing is known by its identity, so what fell is a glitch of the source.
        """
        parts = self._last.setdefault(thing, {})
        last = parts.get((name, part), 0.0 if whole else value)
        self._totals[name] = self._totals.get(name, 0.0) + max(0.0, value - last)
        parts[name, part] = max(last, value)

    def keep(self, things: AbstractSet[Hashable]) -> None:
        """Forget all things but these; what they added stays."""
        self._last = {thing: parts for thing, parts in self._last.items() if thing in things}

    def get(self, name: Hashable) -> float:
        return self._totals.get(name, 0.0)


_U32 = 1 << 32
_LONGEST_S = 3600.0  # a 32-bit accumulator of percent at 1 kHz goes round in twelve hours
_RATIO_MAX = 1.02


class BusyTime:
    """Busy seconds from accumulators of percent per firmware sample, whose sample period nobody states.

    Between two readings the busy share is certain: percent added, over samples added. Times the seconds
    between them it is busy time. An interval that cannot be trusted (the samples started over, it is longer
    than an hour, the share is above 1) adds nothing.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last: tuple[float, int, Mapping[str, float]] | None = None

    def pause(self) -> None:
        """The time until the next reading is not to be counted."""
        self._last = None

    def take(
        self, now: float, decoded: Decoded, partition: int | None, xccs: int | None
    ) -> dict[str, float] | None:
        """Busy seconds by engine up to now; None where the table does not count its samples."""
        count = samples(decoded)
        if count is None:
            self._last = None
            return None
        self.update(now, count, activity(decoded, partition, xccs))
        return {engine: self.seconds[engine] for engine in self._last[2]} if self._last else None

    def update(self, now: float, samples: int, percents: Mapping[str, float]) -> None:
        """Take the accumulators (percent summed over samples) by engine as they stand at ``now``."""
        last, self._last = self._last, (now, samples, percents)
        for engine in percents:
            self.seconds.setdefault(engine, 0.0)
        if last is None:
            return
        passed, taken = now - last[0], samples - last[1]
        if taken <= 0 or not 0 < passed <= _LONGEST_S:
            return
        for engine, percent in percents.items():
            before = last[2].get(engine)
            if before is None:
                continue
            # The samples went on, so an accumulator that fell went round.
            added = percent - before if percent >= before else percent - before + _U32
            share = added / 100 / taken
            if 0 <= share <= _RATIO_MAX:
                self.seconds[engine] += min(share, 1.0) * passed
