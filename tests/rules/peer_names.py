"""Every name under which two other exporters serve AMD GPUs: facts, written down from what they publish.

Of device-metrics-exporter 1.5: its list of fields and its support matrix. Of Omnistat 1.14: its collectors.
Nothing here is taken from our catalogue or our rules; both are measured against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

_BLOCKS = (
    *("sdma", "gfx", "mmhub", "athub", "bif", "hdp", "xgmi_wafl", "df", "smn", "sem", "mp0", "mp1", "fuse"),
    *("umc", "mca", "vcn", "jpeg", "ih", "mpio"),
)
_RESIDENCIES = ("processor_hot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")
_LIMITS = ("power", "thermal", "total")
_COMMAND_PROCESSOR = [
    "cpc_cpc_stat_busy",
    "cpc_cpc_stat_idle",
    "cpc_cpc_stat_stall",
    "cpc_cpc_tciu_busy",
    "cpc_cpc_tciu_idle",
    "cpc_cpc_utcl2iu_busy",
    "cpc_cpc_utcl2iu_idle",
    "cpc_cpc_utcl2iu_stall",
    "cpc_me1_busy_for_packet_decode",
    "cpc_me1_dc0_spi_busy",
    "cpc_utcl1_stall_on_translation",
    "cpc_always_count",
    "cpc_adc_valid_chunk_not_avail",
    "cpc_adc_dispatch_alloc_done",
    "cpc_adc_valid_chunk_end",
    "cpc_sync_fifo_full_level",
    "cpc_sync_fifo_full",
    "cpc_gd_busy",
    "cpc_tg_send",
    "cpc_walk_next_chunk",
    "cpc_stalled_by_se0_spi",
    "cpc_stalled_by_se1_spi",
    "cpc_stalled_by_se2_spi",
    "cpc_stalled_by_se3_spi",
    "cpc_lte_all",
    "cpc_sync_wrreq_fifo_busy",
    "cpc_cane_busy",
    "cpc_cane_stall",
    "cpf_cmp_utcl1_stall_on_translation",
    "cpf_cpf_stat_busy",
    "cpf_cpf_stat_idle",
    "cpf_cpf_stat_stall",
    "cpf_cpf_tciu_busy",
    "cpf_cpf_tciu_idle",
    "cpf_cpf_tciu_stall",
]
_PROFILED = [
    "grbm_gui_active",
    "sq_waves",
    "grbm_count",
    "gui_util_percent",
    "sm_active",
    "fetch_size",
    "write_size",
    "total_16_ops",
    "total_32_ops",
    "total_64_ops",
    "occupancy_percent",
    "tensor_active_percent",
    "valu_pipe_issue_util",
    "occupancy_elapsed",
    "occupancy_per_active_cu",
    "occupancy_per_cu",
    "simd_utilization",
]


def _dme() -> Iterator[str]:
    yield from ("gpu_nodes_total", "gpu_health")
    yield from (f"gpu_{where}_temperature" for where in ("edge", "junction", "memory", "hbm"))
    yield from ("gpu_package_power", "gpu_average_package_power", "gpu_power_usage", "gpu_energy_consumed")
    yield from (f"gpu_{engine}_activity" for engine in ("gfx", "umc", "mma", "vcn", "jpeg"))
    yield from (f"gpu_{engine}_busy_instantaneous" for engine in ("gfx", "vcn", "jpeg"))
    yield from ("gpu_process_cu_occupancy", "gpu_voltage", "gpu_gfx_voltage", "gpu_memory_voltage")
    yield from ("gpu_clock", "gpu_min_clock", "gpu_max_clock", "gpu_vram_max_bandwidth")
    amounts = product(("total", "used", "free"), ("vram", "visible_vram", "gtt"))
    yield from (f"gpu_{amount}_{pool}" for amount, pool in amounts)
    yield from ("pcie_speed", "pcie_max_speed", "pcie_bandwidth", "pcie_bidirectional_bandwidth")
    yield from ("pcie_replay_count", "pcie_recovery_count", "pcie_replay_rollover_count")
    yield from ("pcie_nack_sent_count", "pcie_nack_received_count", "pcie_rx", "pcie_tx")
    yield from ("gpu_xgmi_link_rx", "gpu_xgmi_link_tx")
    packets = product((0, 1), ("nop", "req", "resp", "beats"))
    yield from (f"gpu_xgmi_nbr_{link}_{packet}_tx" for link, packet in packets)
    yield from (f"gpu_xgmi_nbr_{link}_tx_thrput" for link in range(6))
    counts = product(("correct", "uncorrect", "deferred"), ("total", *_BLOCKS))
    yield from (f"gpu_ecc_{severity}_{block}" for severity, block in counts)
    yield "gpu_violation_current_accumulated_counter"
    for form in ("accumulated", "percentage"):
        yield from (f"gpu_violation_{reason}_residency_{form}" for reason in _RESIDENCIES)
        yield from (f"gpu_violation_gfx_clock_below_host_limit_{limit}_{form}" for limit in _LIMITS)
        yield f"gpu_violation_low_utilization_{form}"
    yield "gpu_afid_errors"
    yield from (f"gpu_prof_{counter}" for counter in (*_COMMAND_PROCESSOR, *_PROFILED))


def _omnistat() -> Iterator[str]:
    yield from ("rocm_num_gpus", "rocm_version_info", "rocm_utilization_percentage")
    yield from ("rocm_vram_busy_percentage", "rocm_vram_total_bytes", "rocm_vram_used_percentage")
    yield from ("rocm_average_socket_power_watts", "rocm_power_cap_watts", "rocm_energy_joules")
    yield from ("rocm_sclk_clock_mhz", "rocm_mclk_clock_mhz")
    yield from ("rocm_temperature_celsius", "rocm_temperature_memory_celsius")
    blocks = ("umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl")
    counts = product(blocks, ("correctable", "uncorrectable", "deferred"))
    yield from (f"rocm_ras_{block}_{severity}_count" for block, severity in counts)
    yield from ("rocm_xgmi_total_read_kilobytes", "rocm_xgmi_total_write_kilobytes")
    yield from ("rocm_average_decoder_utilization_percentage", "rocm_throttle_events")
    yield from ("rocm_num_compute_units", "rocm_compute_unit_occupancy")
    yield from ("omnistat_hardware_counter", "omnistat_rocprofiler", "omnistat_kernel_dispatch_count")
    yield from ("omnistat_kernel_total_duration_ns", "omnistat_kernel_dropped_dispatches")
    yield from ("rmsjob_info", "rmsjob_annotations", "omnistat_info", "omnistat_fom")
    yield from (
        "omnistat_perf_runtime_seconds",
        "omnistat_perf_push_seconds",
        "omnistat_perf_push_data_bytes",
    )
    yield from ("omnistat_vendor_energy_joules", "omnistat_vendor_power_watts")
    host = (
        "mem_total_bytes mem_free_bytes mem_available_bytes io_read_total_bytes cpu_load1 boot_time_seconds"
    )
    yield from (f"omnistat_host_{what}" for what in host.split())
    yield from ("omnistat_network_rx_bytes", "omnistat_network_tx_bytes")


NAMES = {"dme": tuple(_dme()), "omnistat": tuple(_omnistat())}
