"""Entries: what the processes of this node do on a GPU, as the drivers count it."""

from __future__ import annotations

from exporter.catalogue.schema import Field, Kind, Metric, Scope, Unit
from exporter.model import Owner

_COUNT = (0.0, 2.0**64)
OWNER = Owner._fields


def _sysfs(path: str, scale: float = 1.0, each: tuple[str, ...] = (), **fixed: str) -> Field:
    return Field("sysfs", "processes", path, scale, each, tuple(fixed.items()))


METRICS: tuple[Metric, ...] = (
    Metric(
        "workload",
        Kind.INFO,
        Unit.NONE,
        "Who holds this GPU: a pod by the kubelet's list, a job by a scheduler's file or the control groups "
        "of its processes, a container, or a plain user. One series for each holder of a shared GPU; labels "
        "that do not apply are left out.",
        Scope.PARTITION,
        (0, 1),
        labels=OWNER,
        check="cat /proc/PID/cgroup",
    ),
    Metric(
        "processes",
        Kind.GAUGE,
        Unit.NONE,
        "Living processes that hold memory or a queue of this GPU, by the compute driver; on a node without "
        "it, those that have the GPU open. Absent where the processes of the whole host cannot be seen.",
        Scope.PARTITION,
        (0, 1e6),
        fields=(_sysfs("count"),),
        check="ls /sys/class/kfd/kfd/proc",
    ),
    Metric(
        "process_memory",
        Kind.GAUGE,
        Unit.BYTES,
        "GPU memory that processes allocated, summed over the processes of one owner as their control groups "
        "tell it: a Slurm job, a container, else the user id. Does not add up to amdgpu_memory_used_bytes, "
        "which holds the driver's own too.",
        Scope.PARTITION,
        (0, 1e15),
        labels=OWNER,
        fields=(_sysfs("memory" + ".*" * len(OWNER), 1.0, OWNER),),
        check="grep . /sys/class/kfd/kfd/proc/*/vram_*",
    ),
    Metric(
        "compute_queues",
        Kind.GAUGE,
        Unit.NONE,
        "Queues that processes hold open on this GPU, by type: compute runs kernels, sdma and sdma_xgmi "
        "copy. More compute queues than the hardware has slots means that they take turns.",
        Scope.PARTITION,
        (0, 1e6),
        labels=("type",),
        fields=(_sysfs("queues.*", 1.0, ("type",)),),
        check="grep . /sys/class/kfd/kfd/proc/*/queues/*/type",
    ),
    Metric(
        "occupied_compute_units",
        Kind.GAUGE,
        Unit.NONE,
        "Compute units with waves of any process at the moment of the reading, as the driver works it out "
        "from the number of waves; on gfx942 it is that of one die, scaled. A glimpse, no average, and no "
        "occupancy in a profiler's sense.",
        Scope.PARTITION,
        (0, 4096),
        fields=(_sysfs("occupied"),),
        peers=("dme:gpu_process_cu_occupancy", "omnistat:rocm_compute_unit_occupancy"),
        check="grep . /sys/class/kfd/kfd/proc/*/stats_*/cu_occupancy",
    ),
    Metric(
        "evictions",
        Kind.COUNTER,
        Unit.SECONDS,
        "Time queues of processes stood still because their memory was moved out to make room, summed over "
        "processes since the exporter started; a rise means more memory is asked for than there is. What a "
        "process adds between its last reading and its end is lost.",
        Scope.PARTITION,
        _COUNT,
        fields=(_sysfs("evicted_ms", 1e-3),),
        check="grep . /sys/class/kfd/kfd/proc/*/stats_*/evicted_ms",
    ),
    Metric(
        "copy_engine",
        Kind.COUNTER,
        Unit.SECONDS,
        "Time SDMA engines copied for processes, summed over engines and processes since the exporter "
        "started; read once a minute.",
        Scope.PARTITION,
        _COUNT,
        fields=(_sysfs("sdma_us", 1e-6),),
        check="grep . /sys/class/kfd/kfd/proc/*/sdma_*",
    ),
    Metric(
        "page_faults",
        Kind.COUNTER,
        Unit.NONE,
        "Faults on shared virtual memory that the driver mended, summed over processes since the exporter "
        "started; read once a minute.",
        Scope.PARTITION,
        _COUNT,
        fields=(_sysfs("faults"),),
        check="grep . /sys/class/kfd/kfd/proc/*/counters_*/faults",
    ),
    Metric(
        "migrated_pages",
        Kind.COUNTER,
        Unit.NONE,
        "Pages of shared virtual memory moved between this GPU and the host, in is towards the GPU; summed "
        "over processes since the exporter started, read once a minute.",
        Scope.PARTITION,
        _COUNT,
        labels=("direction",),
        fields=(_sysfs("pages_in", direction="in"), _sysfs("pages_out", direction="out")),
        check="grep . /sys/class/kfd/kfd/proc/*/counters_*/page_{in,out}",
    ),
)
