"""Whether a window may start now: facts in, Start or Skip with its reason out. Pure.

What is asked comes in the order of how long it lasts: what a person decided, then the node, then each GPU,
then the budget. A GPU that is not fit is left out; a window that cannot be narrowed to the others is not
started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from exporter.model import DeviceId
from exporter.windows.breaker import Breaker, BreakerRules, BreakerState, Budget

COUNTERS, TRACE = "counters", "trace"
LIGHT, DEEP = "light", "deep"
_DAY_S = 86_400.0


class SkipReason(StrEnum):
    """Why no window was started. Values are labels."""

    OFF = "off"
    NOT_ENABLED = "not_enabled"
    PAUSED = "paused"
    RUNNING = "running"
    TRIPPED = "tripped"
    CLOCK_STEPPED = "clock_stepped"
    NOT_OPTED_IN = "not_opted_in"
    NO_PROFILER = "no_profiler"
    NOT_ATTACHABLE = "not_attachable"
    OTHER_PROFILER = "other_profiler"
    COLLECTIVES = "collectives"
    NO_GPU = "no_gpu"
    DENY_LIST = "deny_list"
    SUSPENDED = "suspended"
    RESET = "reset"
    PARTITION_CHANGE = "partition_change"
    MEMORY_FULL = "memory_full"
    YOUNG_PROCESS = "young_process"
    DEEP_CAP = "deep_cap"
    BUDGET = "budget"


# These pass by themselves with the next slots; the others say that something stands in the way.
PASSING = frozenset(
    {SkipReason.RUNNING, SkipReason.CLOCK_STEPPED, SkipReason.BUDGET, SkipReason.DEEP_CAP, SkipReason.OFF}
)


@dataclass(frozen=True, slots=True)
class Deny:
    """A combination in which no window is started; each part may hold ``*``."""

    gfx: str
    rocm: str
    mode: str

    @classmethod
    def parse(cls, text: str) -> Deny:
        """From ``CHIP:ROCM:MODE``. Raises ValueError for anything else."""
        parts = text.strip().split(":")
        if len(parts) != 3 or not all(parts):
            raise ValueError("expected CHIP:ROCM:MODE, such as gfx942:7.2*:attach")
        return cls(*parts)

    def fits(self, gfx: str | None, rocm: str | None, mode: str) -> bool:
        """Whether it speaks of this; what is unknown here only fits ``*``."""
        return (
            fnmatchcase(gfx or "", self.gfx)
            and fnmatchcase(rocm or "", self.rocm)
            and fnmatchcase(mode, self.mode)
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration says. ``preset`` is off, spool, counters, canary or attach."""

    preset: str = "spool"
    window_s: float = 1.0
    duty_ratio: float = 0.004
    memory_ratio: float = 0.97
    process_age_s: float = 120.0
    quiet_s: float = 600.0  # after a reset or a partition change
    collective_gpus: int = 4
    deep_per_day: int = 4
    deny: tuple[Deny, ...] = ()
    breaker: BreakerRules = field(default_factory=BreakerRules)

    @property
    def mode(self) -> str | None:
        """What kind of window the preset starts; None where it starts none."""
        return {"counters": COUNTERS, "canary": TRACE, "attach": TRACE}.get(self.preset)


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU now. None is unknown, which forbids nothing by itself."""

    device: DeviceId
    gfx: str | None = None
    memory_ratio: float | None = None
    youngest_process_s: float | None = None
    since_reset_s: float | None = None
    since_partition_change_s: float | None = None
    suspended: bool = False
    left: tuple[str, ...] = ()  # what left its baseline or a threshold, and asks for the deep set


@dataclass(frozen=True, slots=True)
class Facts:
    """The node now. ``gpus`` are those that the window would be of."""

    gpus: tuple[GpuFacts, ...] = ()
    rocm: str | None = None
    paused: bool = False
    opted_in: bool = True
    other_profiler: str | None = None  # who holds the counters
    collective_gpus: int | None = None  # GPUs that take part in collectives
    obstacle: tuple[SkipReason, str] | None = None  # what planning the window ran into


class Start(NamedTuple):
    """Start one window of these GPUs now; ``left_out`` says why each other one is not among them."""

    mode: str
    set: str
    devices: tuple[DeviceId, ...]
    left_out: Mapping[DeviceId, SkipReason]


class Skip(NamedTuple):
    """Start none. ``detail`` is one line for people."""

    reason: SkipReason
    detail: str = ""


class Policy:
    """Decides for one node. Time is handed in: ``mono`` is monotonic, ``wall`` the time of day."""

    def __init__(self, rules: Rules, mono: float) -> None:
        self.rules = rules
        self._mode = rules.mode
        self.breaker = Breaker(rules.breaker)
        self.budget = Budget(rules.duty_ratio, mono)
        self.paused = False
        self._since: float | None = None
        self._deep: dict[DeviceId, list[float]] = {}
        self._seen: Facts | None = None
        self._fit: tuple[DeviceId, ...] = ()
        self._unfit: dict[DeviceId, SkipReason] = {}
        self._barred: Skip | None = None
        self._light = Start("", LIGHT, (), {})

    @property
    def running(self) -> bool:
        return self._since is not None

    def configure(self, rules: Rules) -> None:
        """Take other rules from now on; breaker, budget and counts stay."""
        self.rules, self._mode = rules, rules.mode
        self.breaker.rules = rules.breaker
        self.budget.duty_ratio = rules.duty_ratio
        self._seen = None

    def decide(
        self,
        facts: Facts,
        mono: float,
        *,
        deep: bool = False,
        stepped: bool = False,
        unpaid: bool = False,
    ) -> Start | Skip:
        """Whether to start a window now. Whoever is told to must call ``began`` and later ``ended``."""
        mode = self._mode
        if mode is None:
            return Skip(SkipReason.OFF, f"preset {self.rules.preset} starts no profiler; set windows.preset")
        if self.paused or facts.paused:
            return Skip(SkipReason.PAUSED, "resume with POST /api/v1/sampling/resume")
        if self._since is not None:
            return Skip(SkipReason.RUNNING, "another window runs on this node")
        breaker = self.breaker
        if breaker.state is not BreakerState.CLOSED and not breaker.allows(mono):
            return Skip(SkipReason.TRIPPED, self._tripped(mono))
        if stepped:
            return Skip(SkipReason.CLOCK_STEPPED, "a clock was stepped, or the machine slept")
        if facts is not self._seen:
            self._look(facts, mode)
        if self._barred is not None:
            return self._barred
        fit = self._fit
        if self._unfit and (not fit or mode == TRACE):
            return self._all_unfit()
        if not fit:
            return Skip(SkipReason.NO_GPU, "no GPU is up")
        if deep:
            fit = self._deep_wanted(facts, mono)
            if not fit:
                return Skip(SkipReason.DEEP_CAP, f"each had {self.rules.deep_per_day} in the last 24 h")
        if not unpaid and not self.budget.allows(self.rules.window_s, mono):
            wait_s = self.budget.wait_s(self.rules.window_s, mono)
            ratio = self.rules.duty_ratio
            return Skip(SkipReason.BUDGET, f"a duty cycle of {ratio:.2%} allows the next in {wait_s:.0f} s")
        return Start(mode, DEEP, fit, self._unfit) if deep else self._light

    def wants_deep(self, facts: Facts) -> bool:
        """Whether any GPU gives reason for the deep set."""
        return self.rules.mode == COUNTERS and any(gpu.left for gpu in facts.gpus)

    def began(self, start: Start, mono: float) -> None:
        """A window has started."""
        self._since = mono
        if start.set == DEEP:
            for device in start.devices:
                self._deep.setdefault(device, []).append(mono)

    def ended(self, mono: float) -> None:
        """The window that began is over; how it went is for the breaker to hear when that is known."""
        if self._since is not None and mono > self._since:
            self.budget.spend(mono - self._since)
        self._since = None

    def dump(self, mono: float, wall: float) -> dict[str, Any]:
        """What outlives a restart, as JSON values."""
        return {
            "paused": self.paused,
            "breaker": self.breaker.dump(mono, wall),
            "budget": self.budget.dump(mono, wall),
            "deep": [[d.pci, d.partition, wall - (mono - at)] for d, ats in self._deep.items() for at in ats],
        }

    def restore(self, kept: Mapping[str, Any], mono: float, wall: float) -> None:
        """Go on where ``dump`` left off. Raises KeyError, ValueError or TypeError for anything else."""
        deep: dict[DeviceId, list[float]] = {}
        for pci, partition, at in kept["deep"][-10_000:]:
            # From a clock that was ahead: as if it had just been.
            ago = min(max(wall - float(at), 0.0), _DAY_S)
            device = DeviceId(str(pci), None if partition is None else int(partition))
            deep.setdefault(device, []).append(mono - ago)
        breaker, budget = Breaker(self.rules.breaker), Budget(self.rules.duty_ratio, mono)
        breaker.restore(kept["breaker"], mono, wall)
        budget.restore(kept["budget"], mono, wall)
        paused = kept["paused"] is True
        self.breaker, self.budget, self.paused, self._deep = breaker, budget, paused, deep

    # --- the parts of a decision ----------------------------------------------------------------------

    def _node(self, facts: Facts, mode: str) -> Skip | None:
        if facts.obstacle is not None:
            return Skip(*facts.obstacle)
        if not facts.opted_in:
            return Skip(SkipReason.NOT_OPTED_IN, "no process on a GPU here is on windows.allow")
        if facts.other_profiler:
            return Skip(SkipReason.OTHER_PROFILER, f"{facts.other_profiler} is at work")
        if mode == TRACE and (facts.collective_gpus or 0) > self.rules.collective_gpus:
            limit = self.rules.collective_gpus
            detail = f"collectives on {facts.collective_gpus} GPUs; tracing more than {limit} may hang them"
            return Skip(SkipReason.COLLECTIVES, detail)
        return None

    def _look(self, facts: Facts, mode: str) -> None:
        unfit: dict[DeviceId, SkipReason] = {}
        for gpu in facts.gpus:
            reason = self._fault(gpu, facts.rocm, mode)
            if reason is not None:
                unfit[gpu.device] = reason
        self._fit = tuple(gpu.device for gpu in facts.gpus if gpu.device not in unfit)
        self._unfit, self._barred, self._seen = unfit, self._node(facts, mode), facts
        self._light = Start(mode, LIGHT, self._fit, unfit)

    def _fault(self, gpu: GpuFacts, rocm: str | None, mode: str) -> SkipReason | None:
        rules = self.rules
        names = (mode, rules.preset)
        if any(deny.fits(gpu.gfx, rocm, name) for deny in rules.deny for name in names):
            return SkipReason.DENY_LIST
        if gpu.suspended:
            return SkipReason.SUSPENDED
        if _within(gpu.since_reset_s, rules.quiet_s):
            return SkipReason.RESET
        if _within(gpu.since_partition_change_s, rules.quiet_s):
            return SkipReason.PARTITION_CHANGE
        if gpu.memory_ratio is not None and gpu.memory_ratio > rules.memory_ratio:
            return SkipReason.MEMORY_FULL
        if _within(gpu.youngest_process_s, rules.process_age_s):
            return SkipReason.YOUNG_PROCESS
        return None

    def _all_unfit(self) -> Skip:
        reason, count = Counter(self._unfit.values()).most_common(1)[0]
        which = ", ".join(d.pci for d, r in list(self._unfit.items())[:3] if r is reason)
        return Skip(reason, f"{count} GPUs: {which}" if count > 1 else f"GPU {which}")

    def _deep_wanted(self, facts: Facts, mono: float) -> tuple[DeviceId, ...]:
        wanted = []
        for gpu in facts.gpus:
            if gpu.left and gpu.device not in self._unfit:
                recent = [at for at in self._deep.get(gpu.device, ()) if mono - at < _DAY_S]
                self._deep[gpu.device] = recent
                if len(recent) < self.rules.deep_per_day:
                    wanted.append(gpu.device)
        return tuple(wanted)

    def _tripped(self, mono: float) -> str:
        return f"{self.breaker.reason}; next trial in {self.breaker.opens_in(mono):.0f} s"


def _within(seconds: float | None, limit_s: float) -> bool:
    return seconds is not None and seconds < limit_s
