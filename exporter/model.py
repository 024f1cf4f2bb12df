"""The nouns that every part shares, and the protocols between the layers.

Knows no metric name, no file, no clock. Everything here is immutable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol


class Reason(StrEnum):
    """Why something we wanted is not there. Raw groups carry these in place of a value."""

    UNSUPPORTED = "unsupported"  # the driver, chip or kernel does not offer it
    DENIED = "denied"  # it exists and we may not read it
    TIMEOUT = "timeout"  # no answer before the deadline
    SUSPENDED = "suspended"  # the GPU sleeps; reading would wake it
    IMPLAUSIBLE = "implausible"  # outside what the quantity can be
    MALFORMED = "malformed"  # there, and not understood
    BUSY = "busy"  # reset or firmware access in progress; the next poll may have it
    GONE = "gone"  # the device left while we read
    NO_DATA = "no_data"  # the source answered without any data
    CRASHED = "crashed"  # the child that reads died


class ConfigError(Exception):
    """Bad usage or configuration: one line that names the key or file and the way out. Exit 2."""


class SourceError(Exception):
    """A source could not deliver at all; carries the reason and one line of detail."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class FormatError(Exception):
    """A file or blob is not what it claims to be; one line that says what was found."""


class DeviceId(NamedTuple):
    """The only join key. ``partition`` is None on an unpartitioned socket.

    ``pci`` is lower-case ``dddd:bb:dd.f`` of the socket's PCI function.
    """

    pci: str
    partition: int | None = None

    @property
    def socket(self) -> DeviceId:
        return DeviceId(self.pci)


@dataclass(frozen=True, slots=True)
class Device:
    """Identity of one logical GPU; never a measured value. Unknown fields are None.

    ``gpu`` is the ordinal of the socket among the node's AMD compute GPUs by ascending PCI address.
    ``indices`` holds the names other tools give it: drm (card), render (minor), kfd (node), hip, amdsmi.
    """

    id: DeviceId
    gpu: int
    model: str | None = None
    gfx: str | None = None
    uuid: str | None = None
    serial: str | None = None
    vbios: str | None = None
    driver: str | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    compute_units: int | None = None
    xccs: int | None = None
    kfd_gpu_id: int | None = None
    indices: Mapping[str, int] = field(default_factory=dict)


class Owner(NamedTuple):
    """Who uses a GPU; a text is empty where it does not apply or is not known. Never a process number.

    ``kind`` is pod, slurm, job (of any scheduler, by its files), container or process (a plain user's).
    """

    kind: str
    namespace: str = ""
    pod: str = ""
    container: str = ""
    job_id: str = ""
    user: str = ""


class Series(NamedTuple):
    """One time series: metric name, device (None: the node), label values in catalogue order."""

    metric: str
    device: DeviceId | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative bucket counts without +Inf, in the metric's bucket order; total count; sum in base units."""

    buckets: tuple[int, ...]
    count: int
    sum: float


Value = float | Histogram


class Reading(NamedTuple):
    """A finite value in the metric's base unit and inside its range; anything else is a Gap."""

    series: Series
    value: Value


class Gap(NamedTuple):
    """A reading we wanted and do not have."""

    metric: str
    device: DeviceId | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one poll of one source went; explicit, never inferred from an exception.

    ``at`` and ``last_ok`` are wall-clock seconds; ``last_ok`` is None until the first success.
    """

    source: str
    ok: bool
    reason: Reason | None
    detail: str
    seconds: float
    at: float
    last_ok: float | None


@dataclass(frozen=True, slots=True)
class Slot:
    """One source's latest finished poll; replaced whole.

    ``series`` and ``values`` run in parallel. A source hands out the *same* ``series`` tuple while the
    set of series stays, so that readers may key caches on its identity.
    """

    outcome: Outcome
    series: tuple[Series, ...] = ()
    values: tuple[Value, ...] = ()
    gaps: tuple[Gap, ...] = ()
    devices: tuple[Device, ...] = ()

    def readings(self) -> Iterator[Reading]:
        return map(Reading, self.series, self.values)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is served; immutable, published by replacing one reference."""

    generation: int
    at: float
    devices: Mapping[DeviceId, Device]
    slots: Mapping[str, Slot]


# Raw material: what a backend fetched, before the catalogue gives it names and units.
# A leaf is a number, a text, None (the field's own "not available") or a Reason; inner nodes are
# mappings or lists. Groups are named by what they are ("hwmon", "gpu_metrics"), not by file.
Raw = Any
RawGroups = Mapping[str, Raw]


class Backend(Protocol):
    """Fetches raw groups from one source. Lives in the reader child; may block, raise SourceError, or die."""

    name: str

    def poll(self) -> list[tuple[Device, RawGroups]]:
        """Read every device once. Devices carry ``gpu`` ordinals by ascending PCI address."""
        ...


# --- windows -----------------------------------------------------------------------------------------


class WindowOutcome(StrEnum):
    OK = "ok"
    EMPTY = "empty"
    PARTIAL = "partial"
    TIMEOUT = "timeout"
    CRASH = "crash"
    BLOCKED = "blocked"
    NOT_ATTACHABLE = "not_attachable"
    DENIED = "denied"
    MALFORMED = "malformed"


class TimelineState(StrEnum):
    EXECUTING = "executing"
    QUEUED = "queued"
    LAUNCHING = "launching"
    STARVED = "starved"


class Bottleneck(StrEnum):
    COMMUNICATION = "communication"
    GPU_BOUND = "gpu_bound"
    CONTENDED = "contended"
    COPY_BOUND = "copy_bound"
    DEPENDENCY_BOUND = "dependency_bound"
    LAUNCH_BOUND = "launch_bound"
    HOST_STALLED = "host_stalled"
    BALANCED = "balanced"
    UNKNOWN = "unknown"


class ProcessKey(NamedTuple):
    """One process instance: half of every join key. ``start`` is 0 where the input does not tell."""

    host: str
    pid: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """One capture, as its manifest or the reader of foreign files describes it.

    ``bounds`` are nanoseconds in the trace's own clock, None where they were not planned.
    ``agents`` maps an agent as the files name it ("Agent 4") to the device.
    """

    id: str
    tool: str
    mode: str
    bounds: tuple[int, int] | None = None
    agents: Mapping[str, DeviceId] = field(default_factory=dict)
    scope: str = "process"
    run: str | None = None  # the process instance it was taken of, where that is known
    first: bool = False  # the first window of its run, in which caches and clocks are cold
    counter_set: str | None = None  # "light" or "deep", of windows of counters that were taken here
    pytorch: str | None = None  # the version in the job's own Python
    grid_mix: Mapping[str, float] = field(default_factory=dict)  # shares of launches by grid size


@dataclass(frozen=True, slots=True)
class Source:
    """One input file: what it was found to be, rows used, rows skipped by reason, cut or whole."""

    path: str
    format: str | None
    tool: str | None
    rows: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    partial: bool = False


@dataclass(frozen=True, slots=True)
class KernelStat:
    """One kernel name on one GPU in one window; nanoseconds."""

    kernel: str
    calls: int
    total_ns: int
    p50_ns: int
    p95_ns: int
    kind: str = "compute"  # compute | collective | copy


@dataclass(frozen=True, slots=True)
class LaunchStats:
    """The paired launches of one kind ("kernel" or "graph"): sums and cumulative histogram counts."""

    launch: str
    count: int
    queue_ns: int
    duration_ns: int
    queue_buckets: tuple[int, ...]
    duration_buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WindowResult:
    """What one window says about one GPU. Integers are nanoseconds or counts; None is "cannot be known".

    Ratios are kept as numerator and denominator so that results can be summed before they are divided.
    """

    gpu: str  # the PCI address where known, else the agent as the files name it
    device: DeviceId | None
    kernels: int
    launches: int
    span_ns: int | None
    span_kind: str  # "planned" | "kernels"
    execution_ns: int | None
    busy_ns: int | None
    queue_ns: int | None
    launch_duration_ns: int | None
    launch_call_ns: int | None
    launch_call_count: int | None
    launch_call_buckets: tuple[int, ...] | None
    launch_stats: tuple[LaunchStats, ...]
    queue_p50_ns: int | None
    queue_p95_ns: int | None
    queue_depth_ns: int | None  # sum of waiting time clipped to the window; divide by span_ns for the depth
    paired: int
    skewed: int
    unmatched_kernels: int
    unmatched_calls: int
    timeline_ns: Mapping[str, int | None]  # by TimelineState
    timeline_reason: str | None  # why parts of the timeline are None
    bottleneck: Bottleneck
    exposed_delay_ns: int | None
    copy_exposed_ns: Mapping[str, int] | None  # by direction; None without a copy trace
    collective_exposed_ns: int | None
    execution_class_ns: Mapping[str, int]  # compute, collective, copy
    counters: Mapping[str, float]  # sums over dispatches
    l2_hits: float | None
    l2_requests: float | None
    valu_instructions: float | None
    slots_available: float | None  # instruction slots of the same pass; None where the chip's peak is unknown
    slots_active: float | None  # the same over GUI_ACTIVE
    counter_observed_ns: int | None
    kernel_stats: tuple[KernelStat, ...]

    @property
    def queue_delay_ratio(self) -> float | None:
        return _ratio(self.queue_ns, self.launch_duration_ns)

    @property
    def l2_hit_ratio(self) -> float | None:
        return _ratio(self.l2_hits, self.l2_requests)

    @property
    def compute_density_ratio(self) -> float | None:
        return _ratio(self.valu_instructions, self.slots_available)

    @property
    def compute_density_active_ratio(self) -> float | None:
        return _ratio(self.valu_instructions, self.slots_active)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


LAUNCH_BUCKETS_NS: tuple[int, ...] = (
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    500_000,
    2_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
)
"""Upper bounds of the launch histograms; +Inf makes twelve."""
