"""What the page shows, as JSON: GPUs now, kernels, windows, sources. Nothing here keeps a history.

Called in the event loop alone, where the ledger changes; each answer is made once per generation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any

from exporter import __version__
from exporter.collect import Collector
from exporter.compare import advice
from exporter.model import Bottleneck, Device, DeviceId, Series, Snapshot, TimelineState, Value
from exporter.windows.bottleneck import ADVICE
from exporter.windows.kernels import OTHER
from exporter.windows.ledger import Finding, Ledger

# The first that is there is shown: the hottest spot of the die before the package.
_SENSORS = ("junction", "edge", "gfx", "soc")
_NOW: tuple[tuple[str, str, tuple[tuple[str, ...], ...]], ...] = (
    ("busy_ratio", "amdgpu_busy_ratio", (("gfx",),)),
    ("power_watts", "amdgpu_power_watts", ((),)),
    ("power_limit_watts", "amdgpu_power_limit_watts", ((),)),
    ("temperature_celsius", "amdgpu_temperature_celsius", tuple((s,) for s in _SENSORS)),
    ("memory_used_bytes", "amdgpu_memory_used_bytes", (("vram",),)),
    ("memory_size_bytes", "amdgpu_memory_size_bytes", (("vram",),)),
    ("l2_hit_ratio", "amdgpu_l2_hit_ratio", ((),)),
    ("compute_density_ratio", "amdgpu_compute_density_ratio", ((),)),
    ("queue_delay_ratio", "amdgpu_queue_delay_ratio", ((),)),
)
_FROM_WINDOWS = frozenset({"l2_hit_ratio", "compute_density_ratio", "queue_delay_ratio"})
_GONE = "the last window is too old to speak of now"
_TIMELINE_REASONS = {
    "untraced_process": "another process on this GPU was not traced, so idle time cannot be explained",
    "incomplete_trace": "the trace shows less work than the GPU's own busy counter",
    "no_launch_calls": "the window holds no launch calls, so idle time cannot be explained",
    "clock_skew": "times of host and GPU do not fit together",
    "no_kernel_times": "the window holds no times of kernels",
    "summary_only": "the file holds sums per kernel, and no times",
}

Json = dict[str, Any]


class Live:
    """The views of one daemon. ``preset`` is where windows come from by configuration."""

    def __init__(
        self,
        collector: Collector,
        ledger: Ledger,
        notes: Callable[[], list[str]],
        preset: Callable[[], str],
        sampling: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.notes = notes
        self._collector = collector
        self._ledger = ledger
        self._preset = preset
        self.sampling = sampling or (dict)
        self._made: dict[str, tuple[object, bytes]] = {}

    def answer(self, name: str) -> bytes | None:
        """One view (``live``, ``windows`` or ``kernels``) as JSON; None before the first poll."""
        current = self._collector.current
        if current is None:
            return None
        # Sources change their outcome and notes only on the way to a new generation.
        made = self._made.get(name)
        if made is None or made[0] is not current:
            views = {"live": self.now, "windows": self.windows, "kernels": self.kernels}
            text = json.dumps(_finite(views[name](current.snapshot)), allow_nan=False, ensure_ascii=False)
            # Half a surrogate pair in a name must not cost the answer.
            made = self._made[name] = current, text.encode("utf-8", "replace")
        return made[1]

    def now(self, snapshot: Snapshot) -> Json:
        """Every GPU as it stands, and every source."""
        values = _values(snapshot)
        reasons = _reasons(snapshot)
        return {
            "version": __version__,
            "generation": snapshot.generation,
            "at": snapshot.at,
            "interval_seconds": self._collector.timing.interval_s,
            "notes": self.notes(),
            "windows": self._preset(),
            "gpus": [self._gpu(d, values, reasons) for d in snapshot.devices.values()],
            "sources": self.sources(),
        }

    def sources(self) -> list[Json]:
        """What is read from where, how that went, and how many readings are missing by reason."""
        return [
            {
                "source": s.name,
                "backend": s.backend,
                "root": s.root,
                "up": bool(s.outcome and s.outcome.ok),
                "reason": s.outcome.reason if s.outcome else None,
                "detail": s.outcome.detail if s.outcome else "first poll pending",
                "missing": {str(reason): n for reason, n in s.missing.items()},
            }
            for s in self._collector.sources
        ]

    def kernels(self, snapshot: Snapshot) -> list[Json]:
        """The kernels with a series, heaviest first within each GPU; ``full_name`` undoes the shortening."""
        names = self._ledger.kernel_names()
        found: dict[DeviceId, list[Json]] = {}
        values = _values(snapshot)
        for series, seconds in values.items():
            if series.metric != "amdgpu_kernel_seconds_total" or series.device is None:
                continue
            device, labels = series.device, series.labels
            found.setdefault(device, []).append(
                {
                    "kernel": labels[0],
                    "full_name": names.get(labels[0]),
                    "seconds": seconds,
                    "dispatches": values.get(Series("amdgpu_kernel_dispatches_total", device, labels)),
                    "median_seconds": values.get(Series("amdgpu_kernel_median_seconds", device, labels)),
                }
            )
        rows: list[Json] = []
        for device, kernels in found.items():
            if device not in snapshot.devices:
                continue
            total = sum(k["seconds"] for k in kernels)
            kernels.sort(key=lambda k: (k["kernel"] == OTHER, -k["seconds"]))
            place = _place(snapshot.devices[device])
            rows += [
                {**place, **k, "share_ratio": k["seconds"] / total if total else None}
                for k in kernels
                if k["dispatches"]
            ]
        return rows

    def windows(self, snapshot: Snapshot) -> Json:
        """The windows taken in last, newest first, and why there are none if so."""
        return {
            "preset": self._preset(),
            "sampling": self.sampling(),
            "why_none": None if self._ledger.recent else self._why_none(),
            "recent": [
                {
                    "id": w.id,
                    "tool": w.tool,
                    "mode": w.mode,
                    "result": w.outcome,
                    "at": w.at,
                    "reason": w.reason or None,
                    "gpus": [_finding(f, snapshot.devices) for f in w.findings],
                }
                for w in self._ledger.recent
            ],
        }

    def _why_none(self) -> str:
        if self._preset() == "off":
            return "windows are switched off (windows.preset: off)"
        sampling = self.sampling()
        if sampling.get("state") in ("blocked", "tripped"):
            why = sampling["detail"] or sampling["reason"] or sampling["breaker"]["reason"] or "it is paused"
            return f"no window is started: {why}"
        return "no window has been taken in since the daemon started"

    def _gpu(
        self,
        device: Device,
        values: Mapping[Series, Value],
        reasons: Mapping[tuple[str, DeviceId | None], str],
    ) -> Json:
        key = device.id
        out: Json = {**_place(device), "model": device.model, "gfx": device.gfx}
        missing: dict[str, str] = {}
        for field, metric, labels in _NOW:
            value = _first(values, metric, key, labels)
            out[field] = value
            if value is not None:
                continue
            if field in _FROM_WINDOWS:
                missing[field] = self._why_no_window(key)
            else:
                why = reasons.get((metric, key)) or reasons.get((metric, key.socket))
                missing[field] = why or "no source offers it"
        out["temperature_sensor"] = _sensor(values, key)
        states = {s.value: _first(values, "amdgpu_timeline_ratio", key, ((s.value,),)) for s in TimelineState}
        out["timeline_ratio"] = states if any(v is not None for v in states.values()) else None
        if None in states.values():
            missing["timeline_ratio"] = self._why_no_window(key)
        out["bottleneck"] = _bottleneck(values, key, out)
        if out["bottleneck"] is None:
            missing["bottleneck"] = self._why_no_window(key)
        return {**out, "missing": missing}

    def _why_no_window(self, key: DeviceId) -> str:
        mine = [f for w in self._ledger.recent if w.mode != "counters" for f in w.findings if f.device == key]
        if mine and (reason := mine[0].timeline_reason):
            return _TIMELINE_REASONS.get(reason, reason.replace("_", " "))
        if mine:
            return _GONE
        return "no window of this GPU yet" if self._ledger.recent else self._why_none()


def _values(snapshot: Snapshot) -> dict[Series, Any]:
    """Every reading; of two sources that give the same one the first is believed, as on the metrics page."""
    found: dict[Series, Any] = {}
    for slot in snapshot.slots.values():
        for series, value in zip(slot.series, slot.values, strict=True):
            found.setdefault(series, value)
    return found


def _reasons(snapshot: Snapshot) -> dict[tuple[str, DeviceId | None], str]:
    found: dict[tuple[str, DeviceId | None], str] = {}
    for slot in snapshot.slots.values():
        for gap in slot.gaps:
            found.setdefault((gap.metric, gap.device), gap.reason.value)
    return found


def _first(
    values: Mapping[Series, Any], metric: str, key: DeviceId, labels: Iterable[tuple[str, ...]]
) -> float | None:
    """The first of several label sets that has a value; a partition falls back on its socket."""
    for one in labels:
        for device in (key, key.socket):
            value = values.get(Series(metric, device, one))
            if isinstance(value, int | float):
                return value
    return None


def _sensor(values: Mapping[Series, Any], key: DeviceId) -> str | None:
    metric = "amdgpu_temperature_celsius"
    return next((s for s in _SENSORS if _first(values, metric, key, ((s,),)) is not None), None)


def _bottleneck(values: Mapping[Series, Any], key: DeviceId, known: Json) -> Json | None:
    """The verdict with the numbers it stands on, what to try, and what else there is to do."""
    for verdict in Bottleneck:
        if values.get(Series("amdgpu_bottleneck_state", key, (verdict.value,))) == 1:
            facts = advice.Facts(
                verdict,
                known["timeline_ratio"] or {},
                queue_delay_ratio=known["queue_delay_ratio"],
                l2_hit_ratio=known["l2_hit_ratio"],
                compute_density_ratio=known["compute_density_ratio"],
            )
            first, *more = advice.of_window(facts)
            return {
                "name": verdict.value,
                "meaning": ADVICE[verdict].meaning,
                "evidence": advice.evidence(facts) or None,
                "try": first.text,
                "more": [{"text": one.text, "evidence": one.evidence} for one in more],
                "runbook": None if verdict is Bottleneck.UNKNOWN else f"bottleneck-{verdict.value}.md",
            }
    return None


def _place(device: Device) -> Json:
    return {"gpu": device.gpu, "pci": device.id.pci, "partition": device.id.partition}


def _finding(finding: Finding, devices: Mapping[DeviceId, Device]) -> Json:
    device = devices.get(finding.device) if finding.device else None
    reason = finding.timeline_reason
    return {
        "gpu": device.gpu if device else None,
        "name": finding.gpu,
        "partition": device.id.partition if device else None,
        "bottleneck": finding.bottleneck,
        "launches": finding.launches,
        "queue_delay_ratio": finding.queue_delay_ratio,
        "reason": _TIMELINE_REASONS.get(reason, reason) if reason else None,
    }


def _finite(value: Any) -> Any:
    """The same with null where a number is not finite, which JSON cannot say."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value
