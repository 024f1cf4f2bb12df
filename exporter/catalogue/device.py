"""Entries: identity, use, power, heat, clocks and links of a GPU.

The labels of the info metrics are fields of ``Device`` or names of its indices; nothing else fills them.
"""

from __future__ import annotations

from exporter.catalogue import activity, links, processes
from exporter.catalogue.schema import Field, Kind, Metric, Scope, Unit

_ANY = 1e15  # no counter of a GPU reaches this in its life; larger is a misread field
_COUNT = (0.0, 2.0**64)


def _sysfs(group: str, path: str, scale: float = 1.0, each: tuple[str, ...] = (), **fixed: str) -> Field:
    return Field("sysfs", group, path, scale, each, tuple(fixed.items()))


def _cli(group: str, path: str, scale: float = 1.0, each: tuple[str, ...] = (), **fixed: str) -> Field:
    return Field("smi_cli", group, path, scale, each, tuple(fixed.items()))


def _amdsmi(group: str, path: str, scale: float = 1.0, each: tuple[str, ...] = (), **fixed: str) -> Field:
    return Field("amdsmi", group, path, scale, each, tuple(fixed.items()))


_IDENTITY = (
    Metric(
        "",
        Kind.INFO,
        Unit.NONE,
        "Who this GPU is; constant 1, everything is in the labels, empty where unknown. Join other "
        "series to it on gpu, pci and partition.",
        Scope.PARTITION,
        (0, 1),
        labels=(
            "uuid",
            "model",
            "gfx",
            "vbios",
            "driver",
            "serial",
            "drm",
            "render",
            "kfd_gpu_id",
        ),
        peers=(
            "node_exporter:node_drm_card_info",
            "omnistat:rocm_version_info",
        ),
        check="amdgpu-exporter devices",
    ),
    Metric(
        "partition",
        Kind.INFO,
        Unit.NONE,
        "Compute (SPX, DPX, TPX, QPX, CPX) and memory (NPS1 to NPS8) partition mode this GPU runs in; "
        "constant 1.",
        Scope.PARTITION,
        (0, 1),
        labels=("compute_partition", "memory_partition"),
        check="cat /sys/class/drm/card*/device/current_{compute,memory}_partition",
    ),
    Metric(
        "up",
        Kind.GAUGE,
        Unit.NONE,
        "1 if the last poll read this GPU, 0 if it was expected and could not be read.",
        Scope.PARTITION,
        (0, 1),
        peers=("dme:gpu_health",),
        check="amdgpu-exporter devices",
    ),
    Metric(
        "devices",
        Kind.GAUGE,
        Unit.NONE,
        "AMD GPUs seen on this node, counted as PCI functions, so that a change of partition mode is quiet.",
        Scope.NODE,
        (0, 1024),
        peers=("dme:gpu_nodes_total", "omnistat:rocm_num_gpus"),
        check="amdgpu-exporter devices",
    ),
    Metric(
        "expected_devices",
        Kind.GAUGE,
        Unit.NONE,
        "AMD GPUs this node should have, from configuration or remembered; more than amdgpu_devices "
        "means one is gone.",
        Scope.NODE,
        (0, 1024),
        check="amdgpu-exporter devices",
    ),
)

_USE = (
    Metric(
        "busy",
        Kind.GAUGE,
        Unit.RATIO,
        "Share of time an engine had any work, as the firmware averages it; says nothing about how well the "
        "engine was used. A partition shows its own XCCs only.",
        Scope.PARTITION,
        (0, 1),
        labels=("engine",),
        fields=(
            _amdsmi("busy", "*", 0.01, ("engine",)),
            _sysfs("busy", "*", 0.01, ("engine",)),
            _sysfs("gpu_metrics", "busy.*", 0.01, ("engine",)),
            _cli("busy", "*", 0.01, ("engine",)),
        ),
        peers=(
            "dme:gpu_gfx_activity",
            "dme:gpu_umc_activity",
            "omnistat:rocm_utilization_percentage",
            "omnistat:rocm_vram_busy_percentage",
            "node_exporter:node_drm_gpu_busy_percent",
        ),
        check="cat /sys/class/drm/card*/device/gpu_busy_percent",
    ),
    Metric(
        "compute_units",
        Kind.GAUGE,
        Unit.NONE,
        "Compute units this device (a partition where the GPU is partitioned) can run work on.",
        Scope.PARTITION,
        (1, 4096),
        fields=(
            _amdsmi("device", "compute_units"),
            _sysfs("kfd", "compute_units"),
            _cli("asic", "compute_units"),
        ),
        peers=("omnistat:rocm_num_compute_units",),
        check="grep -E 'simd_(count|per_cu)' /sys/class/kfd/kfd/topology/nodes/*/properties",
    ),
    Metric(
        "memory_used",
        Kind.GAUGE,
        Unit.BYTES,
        "Memory in use on the whole card by pool: vram, visible_vram (the part the CPU can reach), gtt "
        "(system memory the GPU maps).",
        Scope.SOCKET,
        (0, _ANY),
        labels=("pool",),
        fields=(
            _amdsmi("memory", "*", 1.0, ("pool",)),
            _sysfs("memory", "used.*", 1.0, ("pool",)),
            _cli("memory", "used.*", 1.0, ("pool",)),
        ),
        peers=(
            "dme:gpu_used_vram",
            "dme:gpu_used_gtt",
            "dme:gpu_used_visible_vram",
            "node_exporter:node_drm_memory_vram_used_bytes",
            "node_exporter:node_drm_memory_vis_vram_used_bytes",
            "node_exporter:node_drm_memory_gtt_used_bytes",
        ),
        check="cat /sys/class/drm/card*/device/mem_info_vram_used",
    ),
    Metric(
        "memory_size",
        Kind.GAUGE,
        Unit.BYTES,
        "Size of each memory pool of the whole card; see amdgpu_memory_used_bytes.",
        Scope.SOCKET,
        (1, _ANY),
        labels=("pool",),
        fields=(
            _amdsmi("limits", "size.*", 1.0, ("pool",)),
            _sysfs("memory", "size.*", 1.0, ("pool",)),
            _sysfs("kfd", "vram_bytes", pool="vram"),
            _cli("memory", "size.*", 1.0, ("pool",)),
        ),
        peers=(
            "dme:gpu_total_vram",
            "dme:gpu_total_gtt",
            "dme:gpu_total_visible_vram",
            "omnistat:rocm_vram_total_bytes",
            "node_exporter:node_drm_memory_vram_size_bytes",
            "node_exporter:node_drm_memory_vis_vram_size_bytes",
            "node_exporter:node_drm_memory_gtt_size_bytes",
        ),
        check="cat /sys/class/drm/card*/device/mem_info_vram_total",
    ),
)

_POWER = (
    Metric(
        "power",
        Kind.GAUGE,
        Unit.WATTS,
        "Power draw of the socket, averaged by the firmware where it does. A GPU that is on never draws 0 W: "
        "firmware that says 0 has no sensor for this die, and the series is absent.",
        Scope.SOCKET,
        (0.001, 10000),
        fields=(
            _amdsmi("metrics", "power"),
            _amdsmi("power", "current_socket_power"),
            _amdsmi("power", "socket_power"),
            _amdsmi("power", "average_socket_power"),
            _sysfs("hwmon", "power_average", 1e-6),
            _sysfs("hwmon", "power_input", 1e-6),
            _sysfs("gpu_metrics", "power"),
            _cli("power", "socket"),
        ),
        peers=(
            "dme:gpu_package_power",
            "dme:gpu_average_package_power",
            "dme:gpu_power_usage",
            "omnistat:rocm_average_socket_power_watts",
        ),
        check="cat /sys/class/drm/card*/device/hwmon/hwmon*/power1_{average,input}",
    ),
    Metric(
        "power_limit",
        Kind.GAUGE,
        Unit.WATTS,
        "Power cap in force; the firmware lowers clocks to stay below it.",
        Scope.SOCKET,
        (0, 10000),
        fields=(
            _amdsmi("power_cap", "limit", 1e-6),
            _sysfs("hwmon", "power_cap", 1e-6),
            _cli("power", "limit"),
        ),
        peers=("omnistat:rocm_power_cap_watts",),
        check="cat /sys/class/drm/card*/device/hwmon/hwmon*/power1_cap",
    ),
    Metric(
        "energy",
        Kind.COUNTER,
        Unit.JOULES,
        "Energy the socket has drawn since the driver started. Absent on chips whose counter never moves.",
        Scope.SOCKET,
        (0, _ANY),
        # The accumulator counts 2^-16 J; the 15.3 uJ other tools multiply by is this number, rounded.
        fields=(
            _amdsmi("metrics", "energy", 2.0**-16),
            _amdsmi("energy", "accumulator", 2.0**-16),
            _sysfs("gpu_metrics", "energy", 2.0**-16),
            _cli("energy", "joules"),
        ),
        peers=("dme:gpu_energy_consumed", "omnistat:rocm_energy_joules"),
        check="amd-smi metric --energy",
    ),
    Metric(
        "temperature",
        Kind.GAUGE,
        Unit.CELSIUS,
        "Temperature by sensor as the driver names it: junction is the hottest spot of the chip, mem the "
        "memory, edge the board side of the die (absent on Instinct since MI300).",
        Scope.SOCKET,
        (-50, 200),
        labels=("sensor",),
        fields=(
            _amdsmi("metrics", "temperature.*", 1.0, ("sensor",)),
            _amdsmi("sensors", "temperature.*", 1.0, ("sensor",)),
            _sysfs("hwmon", "temperature.*", 1e-3, ("sensor",)),
            _sysfs("gpu_metrics", "temperature.*", 1.0, ("sensor",)),
            _sysfs("gpu_metrics", "temperatures.*", 1.0, ("sensor",)),
            _cli("temperature", "*", 1.0, ("sensor",)),
        ),
        peers=(
            "dme:gpu_edge_temperature",
            "dme:gpu_junction_temperature",
            "dme:gpu_memory_temperature",
            "dme:gpu_hbm_temperature",
            "omnistat:rocm_temperature_celsius",
            "omnistat:rocm_temperature_memory_celsius",
            "node_exporter:node_hwmon_temp_celsius",
        ),
        check="cat /sys/class/drm/card*/device/hwmon/hwmon*/temp*_input",
    ),
    Metric(
        "temperature_limit",
        Kind.GAUGE,
        Unit.CELSIUS,
        "Temperature at which the firmware acts: critical is where it throttles, emergency where it cuts "
        "power.",
        Scope.SOCKET,
        (-50, 200),
        labels=("sensor", "limit"),
        fields=(
            _amdsmi("limits", "critical.*", 1.0, ("sensor",), limit="critical"),
            _amdsmi("limits", "emergency.*", 1.0, ("sensor",), limit="emergency"),
            _sysfs("hwmon", "temperature_critical.*", 1e-3, ("sensor",), limit="critical"),
            _sysfs("hwmon", "temperature_emergency.*", 1e-3, ("sensor",), limit="emergency"),
            _cli("temperature_limit", "critical.*", 1.0, ("sensor",), limit="critical"),
            _cli("temperature_limit", "emergency.*", 1.0, ("sensor",), limit="emergency"),
        ),
        peers=("node_exporter:node_hwmon_temp_crit_celsius",),
        check="cat /sys/class/drm/card*/device/hwmon/hwmon*/temp*_{crit,emergency}",
    ),
    Metric(
        "fan_speed",
        Kind.GAUGE,
        Unit.RPM,
        "Fan speed; 0 is a fan that stands still. Absent on passive cards.",
        Scope.SOCKET,
        (0, 100000),
        fields=(
            _amdsmi("sensors", "fan"),
            _sysfs("hwmon", "fan"),
            _cli("fan", "rpm"),
        ),
        peers=("node_exporter:node_hwmon_fan_rpm",),
        check="cat /sys/class/drm/card*/device/hwmon/hwmon*/fan1_input",
    ),
    Metric(
        "voltage",
        Kind.GAUGE,
        Unit.VOLTS,
        "Voltage by rail as the driver names it: vddgfx feeds the compute cores.",
        Scope.SOCKET,
        (0, 20),
        labels=("rail",),
        fields=(
            _amdsmi("metrics", "voltage", 1e-3, rail="vddgfx"),
            _amdsmi("sensors", "voltage.*", 1e-3, ("rail",)),
            _sysfs("hwmon", "voltage.*", 1e-3, ("rail",)),
            _sysfs("gpu_metrics", "voltage", 1e-3, rail="vddgfx"),
            _cli("voltage", "*", 1.0, ("rail",)),
        ),
        peers=("node_exporter:node_hwmon_in_volts",),
        check="cat /sys/class/drm/card*/device/hwmon/hwmon*/in*_input",
    ),
    Metric(
        "clock",
        Kind.GAUGE,
        Unit.HERTZ,
        "Clock by domain as the driver names it (sclk compute, mclk memory, fclk fabric, socclk, vclk "
        "and dclk video). With an index it is one die (sclk: one XCC), without one the whole GPU. Idle "
        "GPUs clock down.",
        Scope.SOCKET,
        (0, 20e9),
        labels=("domain", "index"),
        fields=(
            _amdsmi("metrics", "clock.*", 1e6, ("domain",)),
            _amdsmi("metrics", "clocks.*.*", 1e6, ("domain", "index")),
            _amdsmi("sensors", "clock.*", 1e6, ("domain",)),
            _sysfs("hwmon", "clock.*", 1.0, ("domain",)),
            _sysfs("dpm", "*", 1e6, ("domain",)),
            _sysfs("gpu_metrics", "clock.*", 1e6, ("domain",)),
            _sysfs("gpu_metrics", "clocks.*.*", 1e6, ("domain", "index")),
            _cli("clock", "*", 1.0, ("domain",)),
            _cli("clocks", "*.*", 1.0, ("domain", "index")),
        ),
        peers=("dme:gpu_clock", "omnistat:rocm_sclk_clock_mhz", "omnistat:rocm_mclk_clock_mhz"),
        check="cat /sys/class/drm/card*/device/pp_dpm_*",
    ),
    Metric(
        "throttle_residency",
        Kind.COUNTER,
        Unit.NONE,
        "Firmware samples in which this reason held clocks down; divide its rate by that of "
        "amdgpu_throttle_samples_total for the share of time.",
        Scope.SOCKET,
        _COUNT,
        labels=("reason",),
        fields=(
            _amdsmi("metrics", "throttle.*", 1.0, ("reason",)),
            _amdsmi("violations", "throttle.*", 1.0, ("reason",)),
            _sysfs("gpu_metrics", "throttle.*", 1.0, ("reason",)),
            _cli("throttle", "residency.*", 1.0, ("reason",)),
        ),
        peers=("dme:gpu_violation_<reason>_accumulated", "omnistat:rocm_throttle_events"),
        check="amd-smi metric --violation",
        seen_on="Instinct MI300 and later, with table gpu_metrics 1.6 or later",
    ),
    Metric(
        "throttle_samples",
        Kind.COUNTER,
        Unit.NONE,
        "Firmware samples taken; the denominator of amdgpu_throttle_residency_total.",
        Scope.SOCKET,
        _COUNT,
        fields=(
            _amdsmi("metrics", "throttle_samples"),
            _amdsmi("violations", "samples"),
            _sysfs("gpu_metrics", "throttle_samples"),
            _cli("throttle", "samples"),
        ),
        peers=("dme:gpu_violation_current_accumulated_counter",),
        check="amd-smi metric --violation",
        seen_on="Instinct MI300 and later, with table gpu_metrics 1.6 or later",
    ),
)


METRICS: tuple[Metric, ...] = _IDENTITY + _USE + activity.METRICS + processes.METRICS + _POWER + links.METRICS
