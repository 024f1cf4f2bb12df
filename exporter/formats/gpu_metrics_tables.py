"""The fixed ``gpu_metrics`` tables, as the kernel lays them out: names, widths and counts in order. Pure.

A field is ``name[*count][:bytes]``, two bytes wide unless told; ``-`` is padding. Fields stand at their
natural alignment and a table's size is a multiple of eight, as the compiler does it. Source: the kernel's
``kgd_pp_interface.h``.
"""

from __future__ import annotations

# Parts that several tables share. A table is never assumed to extend an older one unless it is built so here.
_DISCRETE_CLOCKS = (
    "average_gfxclk_frequency average_socclk_frequency average_uclk_frequency average_vclk0_frequency "
    "average_dclk0_frequency average_vclk1_frequency average_dclk1_frequency current_gfxclk current_socclk "
    "current_uclk current_vclk0 current_dclk0 current_vclk1 current_dclk1 "
    "throttle_status:4 current_fan_speed "
)
_DISCRETE_HEAD = (
    "temperature_edge temperature_hotspot temperature_mem "
    "temperature_vrgfx temperature_vrsoc temperature_vrmem "
    "average_gfx_activity average_umc_activity average_mm_activity average_socket_power "
)
_V1_1 = (
    _DISCRETE_HEAD
    + "energy_accumulator:8 system_clock_counter:8 "
    + _DISCRETE_CLOCKS
    + "pcie_link_width pcie_link_speed - gfx_activity_acc:4 mem_activity_acc:4 temperature_hbm*4 "
)
_V1_2 = _V1_1 + "firmware_timestamp:8 "
_V1_3 = _V1_2 + "voltage_soc voltage_gfx voltage_mem - indep_throttle_status:8 "

_SOCKET_HEAD = (
    "temperature_hotspot temperature_mem temperature_vrsoc curr_socket_power "
    "average_gfx_activity average_umc_activity "
)
_SOCKET_LINKS = (
    "gfxclk_lock_status:4 pcie_link_width pcie_link_speed xgmi_link_width xgmi_link_speed "
    "gfx_activity_acc:4 mem_activity_acc:4 pcie_bandwidth_acc:8 pcie_bandwidth_inst:8 "
    "pcie_l0_to_recov_count_acc:8 pcie_replay_count_acc:8 pcie_replay_rover_count_acc:8 "
)
_NAKS = "pcie_nak_sent_count_acc:4 pcie_nak_rcvd_count_acc:4 "
_XGMI = "xgmi_read_data_acc*8:8 xgmi_write_data_acc*8:8 "
_SOCKET_CLOCKS = (
    "firmware_timestamp:8 current_gfxclk*8 current_socclk*4 current_vclk0*4 current_dclk0*4 current_uclk "
)
_ACCUMULATORS = (
    "accumulation_counter:4 prochot_residency_acc:4 ppt_residency_acc:4 socket_thm_residency_acc:4 "
    "vr_thm_residency_acc:4 hbm_thm_residency_acc:4 "
)
_V1_7_BODY = (
    _SOCKET_HEAD
    + "mem_max_bandwidth:8 energy_accumulator:8 system_clock_counter:8 "
    + _ACCUMULATORS
    + _SOCKET_LINKS
    + _NAKS
    + _XGMI
    + "xgmi_link_status*8 - "
    + _SOCKET_CLOCKS
)

_APU_2_1 = (
    "temperature_gfx temperature_soc temperature_core*8 temperature_l3*2 average_gfx_activity "
    "average_mm_activity system_clock_counter:8 "
)
_APU_REST = (
    "average_socket_power average_cpu_power average_soc_power average_gfx_power average_core_power*8 "
    "average_gfxclk_frequency average_socclk_frequency average_uclk_frequency average_fclk_frequency "
    "average_vclk_frequency average_dclk_frequency current_gfxclk current_socclk current_uclk current_fclk "
    "current_vclk current_dclk current_coreclk*8 current_l3clk*2 throttle_status:4 fan_pwm "
)
_V2_1 = _APU_2_1 + _APU_REST + "-*3 "
_V2_2 = _V2_1 + "indep_throttle_status:8 "
_V2_3 = (
    _V2_2
    + "average_temperature_gfx average_temperature_soc average_temperature_core*8 average_temperature_l3*2 "
)

LAYOUTS: dict[tuple[int, int], str] = {
    (1, 0): "system_clock_counter:8 "
    + _DISCRETE_HEAD
    + "energy_accumulator:4 "
    + _DISCRETE_CLOCKS
    + "pcie_link_width:1 pcie_link_speed:1",
    (1, 1): _V1_1,
    (1, 2): _V1_2,
    (1, 3): _V1_3,
    (1, 4): _SOCKET_HEAD
    + "vcn_activity*4 energy_accumulator:8 system_clock_counter:8 throttle_status:4 "
    + _SOCKET_LINKS
    + _XGMI
    + _SOCKET_CLOCKS
    + "-",
    (1, 5): _SOCKET_HEAD
    + "vcn_activity*4 jpeg_activity*32 energy_accumulator:8 system_clock_counter:8 throttle_status:4 "
    + _SOCKET_LINKS
    + _NAKS
    + _XGMI
    + _SOCKET_CLOCKS
    + "-",
    (1, 6): _SOCKET_HEAD
    + "energy_accumulator:8 system_clock_counter:8 "
    + _ACCUMULATORS
    + _SOCKET_LINKS
    + _NAKS
    + _XGMI
    + _SOCKET_CLOCKS
    + "num_partition xcp_stats@1.6 pcie_lc_perf_other_end_recovery:4",
    (1, 7): _V1_7_BODY + "num_partition xcp_stats@1.7 pcie_lc_perf_other_end_recovery:4",
    (1, 8): _V1_7_BODY + "num_partition xcp_stats@1.8 pcie_lc_perf_other_end_recovery:4",
    (2, 0): "system_clock_counter:8 " + _APU_2_1.replace("system_clock_counter:8 ", "") + _APU_REST + "-",
    (2, 1): _V2_1,
    (2, 2): _V2_2,
    (2, 3): _V2_3,
    (2, 4): _V2_3 + "average_cpu_voltage average_soc_voltage average_gfx_voltage "
    "average_cpu_current average_soc_current average_gfx_current",
    (3, 0): "temperature_gfx temperature_soc temperature_core*16 temperature_skin average_gfx_activity "
    "average_vcn_activity average_ipu_activity*8 average_core_c0_activity*16 average_dram_reads "
    "average_dram_writes average_ipu_reads average_ipu_writes system_clock_counter:8 "
    "average_socket_power:4 average_ipu_power average_apu_power:4 average_gfx_power:4 "
    "average_dgpu_power:4 average_all_core_power:4 average_core_power*16 average_sys_power "
    "stapm_power_limit current_stapm_power_limit average_gfxclk_frequency average_socclk_frequency "
    "average_vpeclk_frequency average_ipuclk_frequency average_fclk_frequency average_vclk_frequency "
    "average_uclk_frequency average_mpipu_frequency current_coreclk*16 current_core_maxfreq "
    "current_gfx_maxfreq throttle_residency_prochot:4 throttle_residency_spl:4 "
    "throttle_residency_fppt:4 throttle_residency_sppt:4 throttle_residency_thm_core:4 "
    "throttle_residency_thm_gfx:4 throttle_residency_thm_soc:4 time_filter_alphavalue:4",
}

PARTITIONS = 8  # slots of xcp_stats

PARTITION_LAYOUTS: dict[str, str] = {
    "1.6": "gfx_busy_inst*8:4 jpeg_busy*32 vcn_busy*4 gfx_busy_acc*8:8",
    "1.7": "gfx_busy_inst*8:4 jpeg_busy*32 vcn_busy*4 gfx_busy_acc*8:8 gfx_below_host_limit_acc*8:8",
    "1.8": "gfx_busy_inst*8:4 jpeg_busy*40 vcn_busy*4 gfx_busy_acc*8:8 gfx_below_host_limit_ppt_acc*8:8 "
    "gfx_below_host_limit_thm_acc*8:8 gfx_low_utilization_acc*8:8 gfx_below_host_limit_total_acc*8:8",
}

# A partition's own table, 1.0; its 1.1 describes itself.
PARTITION_OWN = (
    "current_gfxclk*8 current_socclk*4 current_vclk0*4 current_dclk0*4 current_uclk - "
    "gfx_busy_inst*8:4 jpeg_busy*40 vcn_busy*4 gfx_busy_acc*8:8 gfx_below_host_limit_ppt_acc*8:8 "
    "gfx_below_host_limit_thm_acc*8:8 gfx_low_utilization_acc*8:8 gfx_below_host_limit_total_acc*8:8"
)

# Attribute ids of the self-describing table that mean the same on every kernel.
ATTRIBUTES: tuple[str, ...] = (
    "temperature_hotspot",
    "temperature_mem",
    "temperature_vrsoc",
    "curr_socket_power",
    "average_gfx_activity",
    "average_umc_activity",
    "mem_max_bandwidth",
    "energy_accumulator",
    "system_clock_counter",
    "accumulation_counter",
    "prochot_residency_acc",
    "ppt_residency_acc",
    "socket_thm_residency_acc",
    "vr_thm_residency_acc",
    "hbm_thm_residency_acc",
    "gfxclk_lock_status",
    "pcie_link_width",
    "pcie_link_speed",
    "xgmi_link_width",
    "xgmi_link_speed",
    "gfx_activity_acc",
    "mem_activity_acc",
    "pcie_bandwidth_acc",
    "pcie_bandwidth_inst",
    "pcie_l0_to_recov_count_acc",
    "pcie_replay_count_acc",
    "pcie_replay_rover_count_acc",
    "pcie_nak_sent_count_acc",
    "pcie_nak_rcvd_count_acc",
    "xgmi_read_data_acc",
    "xgmi_write_data_acc",
    "xgmi_link_status",
    "firmware_timestamp",
    "current_gfxclk",
    "current_socclk",
    "current_vclk0",
    "current_dclk0",
    "current_uclk",
    "num_partition",
    "pcie_lc_perf_other_end_recovery",
    "gfx_busy_inst",
    "jpeg_busy",
    "vcn_busy",
    "gfx_busy_acc",
    "gfx_below_host_limit_ppt_acc",
    "gfx_below_host_limit_thm_acc",
    "gfx_low_utilization_acc",
    "gfx_below_host_limit_total_acc",
    "temperature_hbm",
)
