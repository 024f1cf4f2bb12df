"""Recording rules: each GPU, each job, each node, the cluster.

Windows are sparse, so their counters are summed over a range of several window periods and divided by what
was observed in the same range; means of ratios and gauges of the last window are never used.
The ranges follow the thresholds. A name keeps its suffix (40m, 15m, 1h) whatever the range is, because
dashboards and HELP texts name the rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from alerts.settings import Settings

# cluster is a label only where the database adds one; without it, it stays empty and harms nothing.
NODE = "cluster, instance"
SOCKET = "cluster, instance, gpu, pci"
GPU = "cluster, instance, gpu, pci, partition"
SAME_GPU = f"on ({GPU})"
SAME_SOCKET = f"on ({SOCKET})"
SAME_NODE = f"on ({NODE})"
OWNER = "kind, namespace, pod, job_id, user"
JOB = f"cluster, {OWNER}"


@dataclass(frozen=True)
class Record:
    """One recording rule."""

    name: str
    expr: str


def over(numerator: str, denominator: str, join: str = "") -> str:
    """A quotient that is absent, not infinite or NaN, where the denominator is 0."""
    return f"{numerator}\n  / {join + ' ' if join else ''}({denominator} > 0)"


def groups(s: Settings) -> dict[str, list[Record]]:
    """All recording rules by group, in an order in which each finds what it needs."""
    return {
        "amdgpu-windows": windows(s),
        "amdgpu-gpus": hardware(s),
        "amdgpu-jobs": jobs(),
        "amdgpu-nodes": nodes(s),
        "amdgpu-clusters": clusters(),
    }


def windows(s: Settings) -> list[Record]:
    """What windows showed, per GPU, over several of them."""
    w, recent = s.window_range, s.common.span("window_period", 2)

    def grown(series: str, *labels: str) -> str:
        return f"sum by ({', '.join((GPU, *labels))}) (increase({series}[{w}]))"

    def total(record: str) -> str:
        return f"sum by ({GPU}) ({record})"

    gpu = "gpu:amdgpu_"
    return [
        Record(f"{gpu}timeline_seconds:increase40m", grown("amdgpu_timeline_seconds_total", "state")),
        Record(
            f"{gpu}timeline:ratio40m",
            over(
                f"{gpu}timeline_seconds:increase40m",
                total(f"{gpu}timeline_seconds:increase40m"),
                f"{SAME_GPU} group_left ()",
            ),
        ),
        Record(f"{gpu}trace_windows:increase40m", grown('amdgpu_windows_total{mode="trace",result="ok"}')),
        # Asked by most alerts on windows: whether one came in the last two periods.
        *(
            Record(
                f"{gpu}{name}_windows:increase20m",
                f'sum by ({GPU}) (increase(amdgpu_windows_total{{mode="{mode}",result="ok"}}[{recent}]))',
            )
            for name, mode in (("trace", "trace"), ("counter", "counters"))
        ),
        Record(
            f"{gpu}counter_windows:increase40m", grown('amdgpu_windows_total{mode="counters",result="ok"}')
        ),
        Record(f"{gpu}launches:increase40m", grown("amdgpu_launch_queue_seconds_count")),
        Record(f"{gpu}launch_queue_seconds:increase40m", grown("amdgpu_launch_queue_seconds_sum")),
        Record(f"{gpu}launch_duration_seconds:increase40m", grown("amdgpu_launch_duration_seconds_sum")),
        Record(
            f"{gpu}launch_queue:mean40m",
            over(f"{gpu}launch_queue_seconds:increase40m", f"{gpu}launches:increase40m"),
        ),
        Record(
            f"{gpu}launch_duration:mean40m",
            over(f"{gpu}launch_duration_seconds:increase40m", f"{gpu}launches:increase40m"),
        ),
        Record(
            f"{gpu}queue_delay:ratio40m",
            over(f"{gpu}launch_queue_seconds:increase40m", f"{gpu}launch_duration_seconds:increase40m"),
        ),
        # Most verdicts were never given: without the zeros it is a tenth of the series, and says the same.
        Record(
            f"{gpu}window_verdicts:increase40m", grown("amdgpu_window_verdicts_total", "bottleneck") + " > 0"
        ),
        Record(
            f"{gpu}window_verdicts:ratio40m",
            over(
                f"{gpu}window_verdicts:increase40m",
                total(f"{gpu}window_verdicts:increase40m"),
                f"{SAME_GPU} group_left ()",
            ),
        ),
        Record(
            f"{gpu}trace_observed_seconds:increase40m",
            grown('amdgpu_window_observed_seconds_total{mode="trace"}'),
        ),
        *(
            Record(
                f"{gpu}{what}:ratio40m",
                over(grown(f"amdgpu_{what}_seconds_total"), f"{gpu}trace_observed_seconds:increase40m"),
            )
            for what in ("collective_exposed", "copy_exposed", "launch_exposed_delay")
        ),
        Record(f"{gpu}kernel_seconds:increase40m", grown("amdgpu_kernel_seconds_total", "kernel")),
        Record(f"{gpu}kernel_dispatches:increase40m", grown("amdgpu_kernel_dispatches_total", "kernel")),
        Record(
            f"{gpu}kernel_share:ratio40m",
            over(
                f"{gpu}kernel_seconds:increase40m",
                total(f"{gpu}kernel_seconds:increase40m"),
                f"{SAME_GPU} group_left ()",
            ),
        ),
        Record(
            f"{gpu}kernel:mean40m",
            over(
                f'{gpu}kernel_seconds:increase40m{{kernel!="other"}}',
                f'{gpu}kernel_dispatches:increase40m{{kernel!="other"}}',
            ),
        ),
        Record(
            "node:amdgpu_kernel:median40m",
            f"quantile by ({NODE}, kernel) (0.5, {gpu}kernel:mean40m)\n"
            f"  and count by ({NODE}, kernel) ({gpu}kernel:mean40m) >= {s['AmdGpuStraggler'].number('gpus')}",
        ),
        Record(
            f"{gpu}kernel_compared:ratio40m",
            f"sum by ({GPU}) (\n  {gpu}kernel_share:ratio40m"
            f" and on ({NODE}, kernel) node:amdgpu_kernel:median40m\n)",
        ),
        Record(
            f"{gpu}kernel_slowdown:ratio40m",
            over(
                f"sum by ({GPU}) (\n  {gpu}kernel_share:ratio40m * on ({GPU}, kernel)\n"
                f"    ({gpu}kernel:mean40m\n"
                f"     / on ({NODE}, kernel) group_left () node:amdgpu_kernel:median40m)\n)",
                f"{gpu}kernel_compared:ratio40m",
            ),
        ),
        Record(
            f"{gpu}launches_unmatched:ratio40m",
            over(
                grown('amdgpu_launches_unmatched_total{side="kernel"}'),
                total(f"{gpu}kernel_dispatches:increase40m"),
            ),
        ),
        Record(
            f"{gpu}launches_skewed:ratio40m",
            over(
                grown("amdgpu_launches_skewed_total"),
                f"({grown('amdgpu_launches_skewed_total')} + {gpu}launches:increase40m)",
            ),
        ),
        Record(f"{gpu}valu_instructions:increase40m", grown("amdgpu_valu_instructions_total")),
        Record(
            f"{gpu}available_instructions:increase40m",
            grown('amdgpu_counters_available_instructions_total{set="compute"}'),
        ),
        Record(
            f"{gpu}compute_density:ratio40m",
            over(f"{gpu}valu_instructions:increase40m", f"{gpu}available_instructions:increase40m"),
        ),
        Record(
            f"{gpu}valu_instructions:rate40m",
            over(
                f"{gpu}valu_instructions:increase40m",
                grown('amdgpu_counters_observed_seconds_total{set="compute"}'),
            ),
        ),
        Record(f"{gpu}l2_hits:increase40m", grown('amdgpu_cache_hits_total{cache="l2"}')),
        Record(f"{gpu}l2_requests:increase40m", grown('amdgpu_cache_requests_total{cache="l2"}')),
        Record(f"{gpu}l2_hit:ratio40m", over(f"{gpu}l2_hits:increase40m", f"{gpu}l2_requests:increase40m")),
    ]


def hardware(s: Settings) -> list[Record]:
    """What polls showed, per GPU, steadied over a few scrapes."""
    c = s.common
    steady, range15, range1h = c.span("steady"), c.span("counter_range"), c.span("error_range")
    gpu = "gpu:amdgpu_"
    return [
        Record(
            f"{gpu}busy:avg15m",
            f'max by ({GPU}) (avg_over_time(amdgpu_busy_ratio{{engine="gfx"}}[{range15}]))',
        ),
        Record(
            f"{gpu}memory_used:ratio",
            over('amdgpu_memory_used_bytes{pool="vram"}', 'amdgpu_memory_size_bytes{pool="vram"}'),
        ),
        Record(f"{gpu}power:avg15m", f"avg by ({SOCKET}) (avg_over_time(amdgpu_power_watts[{range15}]))"),
        Record(
            f"{gpu}throttle_residency:ratio15m",
            over(
                f"sum by ({SOCKET}, reason) (increase(amdgpu_throttle_residency_total[{range15}]))",
                f"sum by ({SOCKET}) (increase(amdgpu_throttle_samples_total[{range15}]))",
                f"{SAME_SOCKET} group_left ()",
            ),
        ),
        # The least of a while, so that single hot samples do not count; the limit is the card's own.
        Record(
            f"{gpu}temperature_over_limit:celsius",
            f"max by ({SOCKET}) (\n"
            f"  min_over_time(amdgpu_temperature_celsius[{steady}])\n"
            f"  - on ({SOCKET}, sensor) group_left ()\n"
            f'  max by ({SOCKET}, sensor) (amdgpu_temperature_limit_celsius{{limit="critical"}})\n)',
        ),
        # The most of a while: an idle link slows down between bursts, a bad one never reaches its speed.
        Record(
            f"{gpu}pcie_link_width:ratio",
            over(
                f"max_over_time(amdgpu_pcie_link_width_lanes[{steady}])",
                "amdgpu_pcie_max_link_width_lanes",
                f"on ({SOCKET})",
            ),
        ),
        Record(
            f"{gpu}pcie_link_speed:ratio",
            over(
                f"max_over_time(amdgpu_pcie_link_transfers_per_second[{steady}])",
                "amdgpu_pcie_max_link_transfers_per_second",
                f"on ({SOCKET})",
            ),
        ),
        *(
            Record(f"{gpu}{key}:increase1h", f"sum by ({SOCKET}) (increase(amdgpu_{key}_total[{range1h}]))")
            for key in (
                "ecc_correctable_errors",
                "ecc_uncorrectable_errors",
                "ecc_deferred_errors",
                "pcie_replays",
            )
        ),
    ]


def jobs() -> list[Record]:
    """Who has each GPU, and how far the GPUs of one job lie apart, on whatever nodes they are.

    A GPU with two holders has no owner: nothing can be said of either.
    """
    gpu, job, w = "gpu:amdgpu_", "job:amdgpu_", f"{GPU}, {OWNER}"
    holders = f"group by ({w}) (amdgpu_workload_info)"
    # A job or a pod; a user's plain processes on several nodes are not one job.
    named = f'({gpu}workload:info{{job_id!=""}} or {gpu}workload:info{{pod!=""}})'
    owned = f"* on ({GPU}) group_left ({OWNER})\n  {named}"

    def spread(series: str) -> str:
        return f"max by ({JOB}) ({series}) - min by ({JOB}) ({series})\n  and {job}gpus:count > 1"

    return [
        Record(f"{gpu}workload:info", f"{holders}\n  and on ({GPU}) count by ({GPU}) ({holders}) == 1"),
        Record(f"{gpu}job_busy:avg15m", f"{gpu}busy:avg15m\n  {owned}"),
        Record(f"{gpu}job_executing:ratio40m", f'{gpu}timeline:ratio40m{{state="executing"}}\n  {owned}'),
        Record(f"{job}gpus:count", f"count by ({JOB}) ({gpu}job_busy:avg15m)"),
        Record(f"{job}busy:avg15m", f"avg by ({JOB}) ({gpu}job_busy:avg15m)"),
        Record(f"{job}busy:spread15m", spread(f"{gpu}job_busy:avg15m")),
        Record(f"{job}executing:spread40m", spread(f"{gpu}job_executing:ratio40m")),
    ]


def nodes(s: Settings) -> list[Record]:
    """Each node: sums over sums, and how far its GPUs lie apart."""
    node, gpu = "node:amdgpu_", "gpu:amdgpu_"
    working = f"{gpu}busy:avg15m > {s.common.number('working_busy')}"

    def spread(series: str) -> str:
        return f"max by ({NODE}) ({series}) - min by ({NODE}) ({series})"

    def lowest(series: str, *more: str) -> str:
        by = f"{NODE}{''.join(more)}"
        return over(f"min by ({by}) ({series})", f"max by ({by}) ({series})")

    def ratio(over_what: str, under: str) -> str:
        return over(f"sum by ({NODE}) ({over_what})", f"sum by ({NODE}) ({under})")

    return [
        Record(f"{node}devices:sum", f"max by ({NODE}) (amdgpu_devices)"),
        Record(
            f"{node}devices_missing:sum",
            f"max by ({NODE}) (amdgpu_expected_devices) - max by ({NODE}) (amdgpu_devices)",
        ),
        Record(f"{node}busy:avg15m", f"avg by ({NODE}) ({gpu}busy:avg15m)"),
        Record(f"{node}working_gpus:count", f"count by ({NODE}) ({working})"),
        # Idle GPUs are no imbalance: a job may use four of eight.
        Record(f"{node}busy:spread15m", f"{spread(working)}\n  and {node}working_gpus:count > 1"),
        Record(f"{node}power_watts:sum", f"sum by ({NODE}) (amdgpu_power_watts)"),
        Record(
            f"{node}memory_used:ratio",
            ratio('amdgpu_memory_used_bytes{pool="vram"}', 'amdgpu_memory_size_bytes{pool="vram"}'),
        ),
        Record(
            f"{node}timeline:ratio40m",
            over(
                f"sum by ({NODE}, state) ({gpu}timeline_seconds:increase40m)",
                f"sum by ({NODE}) ({gpu}timeline_seconds:increase40m)",
                f"{SAME_NODE} group_left ()",
            ),
        ),
        Record(f"{node}executing:spread40m", spread(f'{gpu}timeline:ratio40m{{state="executing"}}')),
        Record(
            f"{node}queue_delay:ratio40m",
            ratio(f"{gpu}launch_queue_seconds:increase40m", f"{gpu}launch_duration_seconds:increase40m"),
        ),
        Record(f"{node}queue_delay:spread40m", spread(f"{gpu}queue_delay:ratio40m")),
        Record(
            f"{node}compute_density:ratio40m",
            ratio(
                f"({gpu}valu_instructions:increase40m and {gpu}available_instructions:increase40m)",
                f"{gpu}available_instructions:increase40m",
            ),
        ),
        Record(f"{node}compute_density:spread40m", spread(f"{gpu}compute_density:ratio40m")),
        Record(f"{node}l2_hit:ratio40m", ratio(f"{gpu}l2_hits:increase40m", f"{gpu}l2_requests:increase40m")),
        Record(f"{node}l2_hit:spread40m", spread(f"{gpu}l2_hit:ratio40m")),
        # What probes measured: the slowest over the fastest, so that nodes of one kind can be held together.
        Record(
            f"{node}probe_bandwidth:least",
            lowest('amdgpu_probe_bandwidth_bytes_per_second{peer!~"self|cpu.*"}'),
        ),
        Record(f"{node}probe_operations:least", lowest("amdgpu_probe_operations_per_second", ", precision")),
        Record(
            f"{node}ecc_uncorrectable_errors:increase1h",
            f"sum by ({NODE}) ({gpu}ecc_uncorrectable_errors:increase1h)",
        ),
    ]


def clusters() -> list[Record]:
    """The cluster, from nodes and GPUs alone."""
    cluster, node, gpu = "cluster:amdgpu_", "node:amdgpu_", "gpu:amdgpu_"

    def ratio(over_what: str, under: str) -> str:
        return over(f"sum by (cluster) ({over_what})", f"sum by (cluster) ({under})")

    return [
        Record(f"{cluster}nodes:count", f"count by (cluster) ({node}devices:sum)"),
        Record(f"{cluster}devices:sum", f"sum by (cluster) ({node}devices:sum)"),
        Record(f"{cluster}devices_missing:sum", f"sum by (cluster) ({node}devices_missing:sum)"),
        Record(f"{cluster}busy:avg15m", f"avg by (cluster) ({gpu}busy:avg15m)"),
        Record(f"{cluster}working_gpus:count", f"sum by (cluster) ({node}working_gpus:count)"),
        Record(f"{cluster}power_watts:sum", f"sum by (cluster) ({node}power_watts:sum)"),
        Record(
            f"{cluster}timeline:ratio40m",
            over(
                f"sum by (cluster, state) ({gpu}timeline_seconds:increase40m)",
                f"sum by (cluster) ({gpu}timeline_seconds:increase40m)",
                "on (cluster) group_left ()",
            ),
        ),
        Record(
            f"{cluster}queue_delay:ratio40m",
            ratio(f"{gpu}launch_queue_seconds:increase40m", f"{gpu}launch_duration_seconds:increase40m"),
        ),
        Record(
            f"{cluster}compute_density:ratio40m",
            ratio(
                f"({gpu}valu_instructions:increase40m and {gpu}available_instructions:increase40m)",
                f"{gpu}available_instructions:increase40m",
            ),
        ),
        Record(
            f"{cluster}l2_hit:ratio40m", ratio(f"{gpu}l2_hits:increase40m", f"{gpu}l2_requests:increase40m")
        ),
        Record(
            f"{cluster}window_verdicts:sum40m",
            f"sum by (cluster, bottleneck) ({gpu}window_verdicts:increase40m)",
        ),
    ]
