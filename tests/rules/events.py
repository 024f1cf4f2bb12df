"""What happens to healthy nodes in a normal week. No rule may cry wolf at any of it.

Each event is a whole node, all its series, and what an ordinary incident does to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tests.rules.made import (
    BALANCED,
    INSTANCE,
    Series,
    Values,
    counted,
    flat,
    gap,
    gpu,
    ramp,
    reset,
    series,
    traced,
)

MINUTES, AT = 210, 100
GPUS = (0, 1)
NODE = {"instance": INSTANCE}
WORK = replace(BALANCED, kernels={"gemm": (0.008, 80), "add": (0.002, 200)})
# Counters of the driver and of the firmware: they begin anew when the driver is loaded.
DRIVER = ("_errors_total", "throttle_", "pcie_replays", "energy")


@dataclass(frozen=True)
class Event:
    """A named incident, of a node of its own."""

    name: str
    given: list[Series]
    firing: frozenset[str] = frozenset()

    @property
    def instance(self) -> str:
        return f"{re.sub('[^a-z]+', '-', self.name.lower())}:9408"

    def series(self) -> list[Series]:
        """The series under the name of its own node and job, so that all events can be told at once."""
        job = f'job_id="{self.instance}"'
        return [(n.replace(INSTANCE, self.instance).replace('job_id="7"', job), v) for n, v in self.given]


def healthy(gpus: Iterable[int] = GPUS, minutes: int = MINUTES) -> list[Series]:
    """Every series that rules read, of a node on which all is well."""
    found = [s for n in gpus for s in _gpu(n, minutes)]
    clock = [m * 60.0 for m in range(minutes)]
    return [
        *found,
        series("up", flat(1, minutes), **NODE, job="amdgpu-exporter"),
        *(
            series(f"amdgpu_{name}", values, **NODE, **labels)
            for name, values, labels in _node(minutes, clock)
        ),
    ]


def _node(minutes: int, clock: Values) -> list[tuple[str, Values, dict[str, str]]]:
    source = {"source": "sysfs"}
    return [
        ("devices", flat(len(GPUS), minutes), {}),
        ("expected_devices", flat(len(GPUS), minutes), {}),
        ("exporter_build_info", flat(1, minutes), {"version": "1", "python": "3.11"}),
        ("exporter_source_up", flat(1, minutes), source),
        ("exporter_source_last_success_timestamp_seconds", clock, source),
        ("exporter_source_duration_seconds", flat(0.1, minutes), source),
        ("exporter_series_dropped_total", flat(0, minutes), {}),
        ("exporter_config_last_reload_successful", flat(1, minutes), {}),
        ("exporter_child_starts_total", flat(1, minutes), {"child": "reader"}),
        *(
            ("sampling_state", flat(v, minutes), {"state": s})
            for s, v in (("off", 0), ("ready", 1), ("tripped", 0))
        ),
    ]


def _gpu(n: int, minutes: int) -> list[Series]:
    who = gpu(n)
    gauges = {
        "up": (1, {}),
        "info": (1, {"uuid": str(n), "model": "MI300X"}),
        "busy_ratio": (0.8, {"engine": "gfx"}),
        "memory_used_bytes": (0.99, {"pool": "vram"}),
        "memory_size_bytes": (1, {"pool": "vram"}),
        "power_watts": (500, {}),
        "temperature_celsius": (80, {"sensor": "junction"}),
        "temperature_limit_celsius": (105, {"sensor": "junction", "limit": "critical"}),
        "retired_pages": (0, {"state": "pending"}),
        "pcie_link_width_lanes": (16, {}),
        "pcie_max_link_width_lanes": (16, {}),
        "pcie_link_transfers_per_second": (32e9, {}),
        "pcie_max_link_transfers_per_second": (32e9, {}),
    }
    counters = {
        "throttle_samples_total": (6000, {}),
        "throttle_residency_total": (60, {"reason": "socket_thermal"}),
        "ecc_correctable_errors_total": (0.05, {"block": "umc"}),
        "pcie_replays_total": (0.05, {}),
    }
    return [
        *(series(f"amdgpu_{k}", flat(v, minutes), **who, **more) for k, (v, more) in gauges.items()),
        *(series(f"amdgpu_{k}", ramp(v, minutes, 1000), **who, **more) for k, (v, more) in counters.items()),
        # Found long ago: it is no news.
        series("amdgpu_ecc_uncorrectable_errors_total", flat(3, minutes), **who, block="umc"),
        series("amdgpu_workload_info", flat(1, minutes), **who, kind="slurm", job_id="7", user="ada"),
        *traced([WORK], minutes, who),
        *(counted([0.8], minutes) if n == 0 else []),
    ]


def changed(found: list[Series], change: Callable[[str, Values], Values]) -> list[Series]:
    return [(name, change(name, values)) for name, values in found]


def _down(minutes: int, and_counters: bool = False) -> list[Series]:
    """Not scraped for a while: up says 0, all else is missing. Counters go on, or begin anew."""

    def change(name: str, values: Values) -> Values:
        if name.startswith("up{"):
            return [0.0 if AT <= m < AT + minutes else v for m, v in enumerate(values)]
        anew = and_counters and ("_total{" in name or "_count{" in name or "_sum{" in name)
        return gap(reset(values, AT) if anew else values, AT, AT + minutes - 1)

    return changed(healthy(), change)


def _upgraded() -> list[Series]:
    def is_build(name: str) -> bool:
        return "build_info" in name

    old = [(n, [*v[:AT], *[None] * (MINUTES - AT)] if is_build(n) else v) for n, v in _down(2, True)]
    return [
        *old,
        series(
            "amdgpu_exporter_build_info",
            [*[None] * (AT + 2), *flat(1, MINUTES - AT - 2)],
            **NODE,
            version="2",
        ),
    ]


def _reloaded() -> list[Series]:
    """The driver is unloaded for three minutes: its GPUs are gone, its counters begin anew."""

    def change(name: str, values: Values) -> Values:
        if name.startswith(("amdgpu_devices{", "amdgpu_up{")):
            return [0.0 if AT <= m < AT + 3 else v for m, v in enumerate(values)]
        if 'pci="' not in name:
            return values
        return gap(reset(values, AT) if any(d in name for d in DRIVER) else values, AT, AT + 2)

    return changed(healthy(), change)


def _forgotten() -> list[Series]:
    """GPU 1 is taken out, and the exporter is told: one less is expected, its series end."""

    def change(name: str, values: Values) -> Values:
        if name.startswith(("amdgpu_devices{", "amdgpu_expected_devices{")):
            return [v if m < AT else 1.0 for m, v in enumerate(values)]
        return [*values[:AT], *[None] * (MINUTES - AT)] if gpu(1)["pci"] in name else values

    return changed(healthy(), change)


def _lost() -> list[Series]:
    def change(name: str, values: Values) -> Values:
        if name.startswith("amdgpu_up{") and gpu(1)["pci"] in name:
            return [v if m < AT else 0.0 for m, v in enumerate(values)]
        return [*values[:AT], *[None] * (MINUTES - AT)] if gpu(1)["pci"] in name else values

    return changed(healthy(), change)


def _partitioned() -> list[Series]:
    """GPU 1 is split in two; what belongs to a partition ends, and goes on under two names."""
    socket = ("temperature", "pcie", "ecc", "power", "throttle", "memory", "retired")
    found: list[Series] = []
    for name, values in healthy():
        if gpu(1)["pci"] not in name or any(part in name for part in socket):
            found.append((name, values))
            continue
        found.append((name, [*values[:AT], *[None] * (MINUTES - AT)]))
        for part in ("0", "1"):
            begun = [
                None if m < AT else v for m, v in enumerate(reset(values, AT) if "_total" in name else values)
            ]
            found.append((name.replace("}", f',partition="{part}"}}'), begun))
    return found


def _new_node() -> list[Series]:
    return changed(healthy(), lambda _, values: [None if m < AT else v for m, v in enumerate(values)])


def _skewed(by_s: float) -> list[Series]:
    return changed(
        healthy(), lambda name, values: [v and v + by_s for v in values] if "timestamp" in name else values
    )


def _job_ends() -> list[Series]:
    """The job ends; nothing runs, nothing is held, no window comes."""

    def change(name: str, values: Values) -> Values:
        if "busy_ratio" in name:
            return [v if m < AT else 0.0 for m, v in enumerate(values)]
        if "workload_info" in name:
            return [*values[:AT], *[None] * (MINUTES - AT)]
        window = any(k in name for k in ("window", "launch", "kernel", "timeline", "cache", "exposed"))
        return [v if m < AT else values[AT] for m, v in enumerate(values)] if window else values

    return changed(healthy(), change)


EVENTS = (
    Event("nothing at all", healthy()),
    Event("the node restarts and is back after eight minutes", _down(8, and_counters=True)),
    Event("the exporter is upgraded", _upgraded()),
    Event("the exporter restarts and goes on counting", _down(1)),
    Event(
        "Prometheus restarts: nothing is stored for six minutes",
        changed(healthy(), lambda _, v: gap(v, AT, AT + 5)),
    ),
    Event(
        "every third scrape is lost",
        changed(healthy(), lambda _, v: [None if m % 3 == 2 else x for m, x in enumerate(v)]),
    ),
    Event("the node's clock is two minutes slow", _skewed(-120)),
    Event("the node's clock is two minutes fast", _skewed(120)),
    Event("the partition mode of a GPU is changed", _partitioned()),
    Event("a GPU is taken out by command", _forgotten()),
    Event("the driver is loaded anew", _reloaded()),
    Event("a node joins", _new_node()),
    Event("the job ends", _job_ends()),
    # Lest a slip in the question makes everything quiet: this must be heard.
    Event("a GPU is lost", _lost(), frozenset({"AmdGpuMissing"})),
)
