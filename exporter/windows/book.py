"""What one GPU has shown in windows: running totals, histograms, the gauges of its last windows. Pure.

Integers inside (nanoseconds, counts); seconds only where series are handed out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.catalogue import CATALOGUE, chips
from exporter.catalogue.schema import Unit
from exporter.model import (
    LAUNCH_BUCKETS_NS,
    Bottleneck,
    Device,
    Histogram,
    KernelStat,
    TimelineState,
    Value,
    Window,
    WindowOutcome,
    WindowResult,
)
from exporter.windows.kernels import OTHER, KernelSet, checked

MODES = ("trace", "counters")
FOREIGN = "other"  # label value for what files may call anything they like
# Results that any GPU may see; the others name a GPU seldom and get their series when they first do.
_USUAL = (WindowOutcome.OK, WindowOutcome.EMPTY, WindowOutcome.PARTIAL)
_LAUNCHES = ("kernel", "graph")
_DIRECTIONS = ("host_to_device", "device_to_host", "device_to_device")
_CLASSES = ("compute", "collective", "copy")
_SIDES = ("kernel", "call")
_SETS = ("compute", "l2")
_OCCUPANCY_KNOWN = frozenset({"gfx90a", "gfx942", "gfx950"})
_DENSITY_MAX = 1.02
_WAVE = 64
_SIMDS = 4
_WAVE_SLOTS = 32
_CYCLES_PER_COUNT = 4  # SQ_WAVE_CYCLES counts in quad cycles on these chips

Key = tuple[str, tuple[str, ...]]
# Kilobytes by direction: what the deep sets count of the memory.
_TRAFFIC = (("FETCH_SIZE", "read"), ("WRITE_SIZE", "written"))
_IN_NS = frozenset(m.name for m in CATALOGUE if m.unit is Unit.SECONDS)


@dataclass(slots=True)
class Tally:
    """A histogram that only grows; buckets are cumulative."""

    buckets: list[int] = field(default_factory=lambda: [0] * len(LAUNCH_BUCKETS_NS))
    count: int = 0
    ns: int = 0

    def grow(self, buckets: tuple[int, ...], count: int, ns: int) -> None:
        self.buckets = [a + b for a, b in zip(self.buckets, buckets, strict=True)]
        self.count += count
        self.ns += ns


@dataclass(frozen=True, slots=True)
class Shown:
    """The gauges of one window, in base units, and when it was."""

    at: float
    values: Mapping[Key, float]


class Book:
    """One GPU's page of the ledger."""

    def __init__(self, device: Device) -> None:
        self.gfx = device.gfx
        self.uuid = device.uuid
        self.totals: dict[Key, int | float] = dict.fromkeys(_zero_keys(), 0)
        self.tallies: dict[Key, Tally] = {key: Tally() for key in _tally_keys()}
        self.kernels = KernelSet()
        self.shown: dict[str, Shown] = {}
        self.last: dict[str, float] = {}
        # Where the issue peak is known, every full set of counters comes with its instruction slots.
        chip = chips.by_gfx(device.gfx) if device.gfx else None
        self._peak_known = chip is not None and chip.issue_peak is not None
        if not self._peak_known:
            # Zero slots would read as an infinite density; the series comes with the first slots seen.
            del self.totals["amdgpu_counters_available_instructions_total", ("compute",)]

    def count_window(self, mode: str, outcome: WindowOutcome) -> None:
        self._grow("amdgpu_windows_total", 1, mode, outcome.value)

    def add(
        self, window: Window, result: WindowResult, at: float, kernel_limit: int, unseen_s: float
    ) -> None:
        """Take in what one window says of this GPU."""
        mode = window.mode if window.mode in MODES else FOREIGN
        observed = result.span_ns if result.span_ns is not None else result.counter_observed_ns
        self._grow("amdgpu_window_observed_seconds_total", observed, mode)
        self.last[mode] = max(at, self.last.get(mode, at))
        # A counter pass runs kernels one by one: its times are no times of the application.
        if mode != "counters":
            self._add_trace(result)
            medians = self.kernels.add(result.kernel_stats, at, kernel_limit, unseen_s)
            self._show("trace", at, {**trace_gauges(mode, result), **_median_gauges(medians)})
        if has_counters(result):
            # Deep sets are for GPUs that stand out: what light ones say is not to lean towards these.
            if window.counter_set == "deep":
                for key, value in deep_gauges(result).items():
                    self._show(f"deep {key}", at, {key: value})
            else:
                self._add_counters(result)
                self._show("counters", at, counter_gauges(result, self.gfx))
        if window.run:
            labels = mode, window.tool, window.run, "1" if window.first else "0"
            self._show(f"{mode} run", at, {("amdgpu_window_run_info", labels): 1})

    def dump(self) -> dict[str, Any]:
        """All that only grows, as JSON values."""
        return {
            "totals": [[name, list(labels), value] for (name, labels), value in self.totals.items()],
            "tallies": [
                [name, list(labels), t.buckets, t.count, t.ns] for (name, labels), t in self.tallies.items()
            ],
            "last": self.last,
            "kernels": self.kernels.dump(),
        }

    def restore(self, raw: Mapping[str, Any]) -> None:
        """Go on from what ``dump`` gave. Errors: ValueError, KeyError, TypeError; then nothing is changed.

        What the catalogue no longer knows is left out.
        """
        totals = {(n, tuple(map(str, ls))): checked(v) for n, ls, v in raw["totals"] if _known(n, ls)}
        tallies = {}
        for name, labels, buckets, count, ns in raw["tallies"]:
            if _known(name, labels) and len(buckets) == len(LAUNCH_BUCKETS_NS):
                tallies[name, tuple(map(str, labels))] = Tally(
                    [int(checked(b)) for b in buckets], int(checked(count)), int(checked(ns))
                )
        last = {str(mode): checked(at) for mode, at in raw["last"].items()}
        self.kernels.restore(raw["kernels"])
        self.totals |= totals
        self.tallies |= tallies
        self.last |= last
        if totals.get(("amdgpu_counters_available_instructions_total", ("compute",))):
            self._peak_known = True

    def _add_trace(self, r: WindowResult) -> None:
        timeline = [(state, r.timeline_ns.get(state)) for state in TimelineState]
        # Without planned bounds the starved time is a lower bound; with a part unknown the shares would lie.
        if r.span_kind == "planned" and all(ns is not None for _, ns in timeline):
            for state, ns in timeline:
                self._grow("amdgpu_timeline_seconds_total", ns, state.value)
        self._grow("amdgpu_launch_exposed_delay_seconds_total", r.exposed_delay_ns)
        for direction, ns in (r.copy_exposed_ns or {}).items():
            known = direction if direction in _DIRECTIONS else FOREIGN
            self._grow("amdgpu_copy_exposed_seconds_total", ns, known)
        self._grow("amdgpu_collective_exposed_seconds_total", r.collective_exposed_ns)
        for kind, ns in r.execution_class_ns.items():
            self._grow("amdgpu_execution_seconds_total", ns, kind)
        self._grow("amdgpu_window_verdicts_total", 1, r.bottleneck.value)
        self._grow("amdgpu_launches_unmatched_total", r.unmatched_kernels, "kernel")
        self._grow("amdgpu_launches_unmatched_total", r.unmatched_calls, "call")
        self._grow("amdgpu_launches_skewed_total", r.skewed)
        for s in r.launch_stats:
            self._tally("amdgpu_launch_queue_seconds", s.launch).grow(s.queue_buckets, s.count, s.queue_ns)
            self._tally("amdgpu_launch_duration_seconds", s.launch).grow(
                s.duration_buckets, s.count, s.duration_ns
            )
        if r.launch_call_buckets is not None:
            self._tally("amdgpu_launch_call_seconds").grow(
                r.launch_call_buckets, r.launch_call_count or 0, r.launch_call_ns or 0
            )

    def _add_counters(self, r: WindowResult) -> None:
        if r.l2_hits is not None and r.l2_requests is not None:
            self._grow("amdgpu_cache_hits_total", r.l2_hits, "l2")
            self._grow("amdgpu_cache_requests_total", r.l2_requests, "l2")
            self._grow("amdgpu_counters_observed_seconds_total", r.counter_observed_ns, "l2")
        if r.valu_instructions is None:
            return
        if r.slots_available is None:
            # A set that lacks its denominator would bend the ratio of every other window.
            if self._peak_known:
                return
        elif r.valu_instructions > _DENSITY_MAX * r.slots_available:
            return
        else:
            self._peak_known = True
            self._grow("amdgpu_counters_available_instructions_total", r.slots_available, "compute")
        self._grow("amdgpu_valu_instructions_total", r.valu_instructions)
        self._grow("amdgpu_counters_observed_seconds_total", r.counter_observed_ns, "compute")

    def _show(self, part: str, at: float, values: Mapping[Key, float]) -> None:
        # A window that comes late must not hide a newer one.
        if part not in self.shown or at >= self.shown[part].at:
            self.shown[part] = Shown(at, values)

    def _grow(self, metric: str, amount: float | None, *labels: str) -> None:
        if amount is not None:
            key = (metric, labels)
            self.totals[key] = self.totals.get(key, 0) + amount

    def _tally(self, metric: str, *labels: str) -> Tally:
        return self.tallies.setdefault((metric, labels), Tally())

    def read(self, now: float, hold_s: float) -> Iterator[tuple[Key, Value]]:
        """Every series of this GPU and its value in base units."""
        for key, amount in self.totals.items():
            yield key, amount / 1e9 if key[0] in _IN_NS else amount
        for key, tally in self.tallies.items():
            yield key, Histogram(tuple(tally.buckets), tally.count, tally.ns / 1e9)
        for name, total in ((OTHER, self.kernels.other), *self.kernels.named.items()):
            yield ("amdgpu_kernel_seconds_total", (name,)), total.ns / 1e9
            yield ("amdgpu_kernel_dispatches_total", (name,)), total.calls
        for mode, at in self.last.items():
            yield ("amdgpu_window_last_timestamp_seconds", (mode,)), at
        for shown in self.shown.values():
            if now < shown.at + hold_s:
                yield from shown.values.items()


def _known(name: str, labels: Sequence[str]) -> bool:
    return name in CATALOGUE and len(CATALOGUE[name].labels) == len(labels)


def _zero_keys() -> Iterator[Key]:
    """Counters that stand at 0 as soon as the GPU is known, so that ``increase`` sees the first window."""
    for state in TimelineState:
        yield "amdgpu_timeline_seconds_total", (state.value,)
    yield "amdgpu_launch_exposed_delay_seconds_total", ()
    for direction in _DIRECTIONS:
        yield "amdgpu_copy_exposed_seconds_total", (direction,)
    yield "amdgpu_collective_exposed_seconds_total", ()
    for kind in _CLASSES:
        yield "amdgpu_execution_seconds_total", (kind,)
    for verdict in Bottleneck:
        yield "amdgpu_window_verdicts_total", (verdict.value,)
    for side in _SIDES:
        yield "amdgpu_launches_unmatched_total", (side,)
    yield "amdgpu_launches_skewed_total", ()
    for mode in MODES:
        yield "amdgpu_window_observed_seconds_total", (mode,)
        for outcome in _USUAL:
            yield "amdgpu_windows_total", (mode, outcome.value)
    for name in _SETS:
        yield "amdgpu_counters_observed_seconds_total", (name,)
    yield "amdgpu_counters_available_instructions_total", ("compute",)
    yield "amdgpu_valu_instructions_total", ()
    yield "amdgpu_cache_hits_total", ("l2",)
    yield "amdgpu_cache_requests_total", ("l2",)


def _tally_keys() -> Iterator[Key]:
    for launch in _LAUNCHES:
        yield "amdgpu_launch_queue_seconds", (launch,)
        yield "amdgpu_launch_duration_seconds", (launch,)
    yield "amdgpu_launch_call_seconds", ()


def has_counters(r: WindowResult) -> bool:
    return bool(r.counters) or r.valu_instructions is not None or r.l2_requests is not None


def trace_gauges(mode: str, r: WindowResult) -> dict[Key, float]:
    """What one traced window says, in base units; what cannot be known is left out."""
    out: dict[Key, float] = {}
    paired = sum(s.count for s in r.launch_stats)
    if paired and r.queue_ns is not None and r.launch_duration_ns is not None:
        out["amdgpu_launch_queue_mean_seconds", ()] = sum(s.queue_ns for s in r.launch_stats) / paired / 1e9
        out["amdgpu_launch_duration_mean_seconds", ()] = (
            sum(s.duration_ns for s in r.launch_stats) / paired / 1e9
        )
    if (ratio := r.queue_delay_ratio) is not None:
        out["amdgpu_queue_delay_ratio", ()] = ratio
    if r.span_ns:
        if r.queue_depth_ns is not None:
            out["amdgpu_launch_queue_depth", ()] = r.queue_depth_ns / r.span_ns
        for state in TimelineState:
            if (ns := r.timeline_ns.get(state)) is not None:
                out["amdgpu_timeline_ratio", (state.value,)] = ns / r.span_ns
    for verdict in Bottleneck:
        out["amdgpu_bottleneck_state", (verdict.value,)] = int(verdict is r.bottleneck)
    if r.kernels and (r.launches or r.launch_call_count is not None):
        out["amdgpu_window_coverage_ratio", (mode,)] = (r.kernels - r.unmatched_kernels) / r.kernels
    return out


def _median_gauges(medians: Mapping[str, int]) -> dict[Key, float]:
    return {("amdgpu_kernel_median_seconds", (name,)): ns / 1e9 for name, ns in medians.items()}


def counter_gauges(r: WindowResult, gfx: str | None) -> dict[Key, float]:
    """What one counter window says, in base units; what cannot be known is left out."""
    found = {
        "amdgpu_compute_density_ratio": r.compute_density_ratio,
        "amdgpu_compute_density_active_ratio": r.compute_density_active_ratio,
        "amdgpu_l2_hit_ratio": r.l2_hit_ratio,
    }
    if r.valu_instructions is not None and r.counter_observed_ns:
        found["amdgpu_valu_instructions_per_second"] = r.valu_instructions / (r.counter_observed_ns / 1e9)
    c = r.counters
    if (issued := c.get("SQ_ACTIVE_INST_VALU")) and (lanes := c.get("SQ_THREAD_CYCLES_VALU")) is not None:
        found["amdgpu_valu_utilization_ratio"] = lanes / (issued * _WAVE)
    if r.slots_active and gfx in _OCCUPANCY_KNOWN:
        # One instruction slot is one cycle of one compute unit on these chips.
        if (busy := c.get("SQ_VALU_MFMA_BUSY_CYCLES")) is not None:
            found["amdgpu_matrix_busy_ratio"] = busy / (r.slots_active * _SIMDS)
        if (waves := c.get("SQ_WAVE_CYCLES")) is not None:
            found["amdgpu_occupancy_ratio"] = waves * _CYCLES_PER_COUNT / (r.slots_active * _WAVE_SLOTS)
    return {(name, ()): value for name, value in found.items() if value is not None}


def deep_gauges(r: WindowResult) -> dict[Key, float]:
    """What one window of a deep counter set says, each of one pass; what cannot be known is left out."""
    out: dict[Key, float] = {}
    for name, direction in _TRAFFIC:
        if (kilobytes := r.counters.get(name)) is not None and r.counter_observed_ns:
            key = "amdgpu_memory_bandwidth_bytes_per_second", (direction,)
            out[key] = kilobytes * 1024 / (r.counter_observed_ns / 1e9)
    requests, atomics = r.counters.get("TCC_REQ_sum"), r.counters.get("TCC_ATOMIC_sum")
    if requests and atomics is not None and atomics <= requests:
        out["amdgpu_atomic_ratio", ()] = atomics / requests
    return out


_AMOUNTS = (
    "kernels",
    "span_ns",
    "exposed_delay_ns",
    "collective_exposed_ns",
    "skewed",
    "unmatched_kernels",
    "unmatched_calls",
    "launch_call_ns",
    "launch_call_count",
    "counter_observed_ns",
    "l2_hits",
    "l2_requests",
    "valu_instructions",
    "slots_available",
)


def faults(r: WindowResult) -> Iterator[str]:
    """What in a result would make a counter fall, in words."""
    amounts = {name: getattr(r, name) for name in _AMOUNTS}
    for name in ("timeline_ns", "copy_exposed_ns", "execution_class_ns"):
        amounts |= {f"{name}.{key}": v for key, v in (getattr(r, name) or {}).items()}
    for s in r.launch_stats:
        amounts |= {f"{s.launch}.queue_ns": s.queue_ns, f"{s.launch}.duration_ns": s.duration_ns}
        amounts |= {f"{s.launch}.count": s.count}
        yield from _bucket_faults(f"{s.launch}.queue_buckets", s.queue_buckets, s.count)
        yield from _bucket_faults(f"{s.launch}.duration_buckets", s.duration_buckets, s.count)
    if r.launch_call_buckets is not None:
        yield from _bucket_faults("launch_call_buckets", r.launch_call_buckets, r.launch_call_count or 0)
    for k in r.kernel_stats:
        amounts |= _kernel_amounts(k)
    for name, amount in amounts.items():
        # Written so that NaN and infinity fail as well.
        if amount is not None and not 0 <= amount < float("inf"):
            yield f"{name} is {amount}"


def _kernel_amounts(k: KernelStat) -> dict[str, int]:
    return {f"{k.kernel}.calls": k.calls, f"{k.kernel}.total_ns": k.total_ns, f"{k.kernel}.p50_ns": k.p50_ns}


def _bucket_faults(name: str, buckets: tuple[int, ...], count: int) -> Iterator[str]:
    if len(buckets) != len(LAUNCH_BUCKETS_NS):
        yield f"{name} has {len(buckets)} buckets"
    elif list(buckets) != sorted(buckets) or buckets[0] < 0 or buckets[-1] > count:
        yield f"{name} is not cumulative"
