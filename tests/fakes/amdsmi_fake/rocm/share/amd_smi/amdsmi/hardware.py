"""Raw state of some machines, as the C structures hold it: integers, all ones where a chip has nothing.

FAKE_AMDSMI_NODE lists what is in the machine: "mi300x:8", "mi300x-cpx:1", "mi210:2", "mi250x:1" (two dies),
"rx7800xt:1", joined by commas.
"""

import copy
import os

U8, U16, U32, U64 = 0xFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
MIB = 1 << 20

_EMPTY = {
    **dict.fromkeys(
        [
            "temperature_edge",
            "temperature_hotspot",
            "temperature_mem",
            "temperature_vrgfx",
            "temperature_vrsoc",
            "temperature_vrmem",
            "average_gfx_activity",
            "average_umc_activity",
            "average_mm_activity",
            "average_socket_power",
            "average_gfxclk_frequency",
            "average_socclk_frequency",
            "average_uclk_frequency",
            "average_vclk0_frequency",
            "average_dclk0_frequency",
            "average_vclk1_frequency",
            "average_dclk1_frequency",
            "current_gfxclk",
            "current_socclk",
            "current_uclk",
            "current_vclk0",
            "current_dclk0",
            "current_vclk1",
            "current_dclk1",
            "current_fan_speed",
            "pcie_link_width",
            "pcie_link_speed",
            "voltage_soc",
            "voltage_gfx",
            "voltage_mem",
            "current_socket_power",
            "xgmi_link_width",
            "xgmi_link_speed",
            "num_partition",
        ],
        U16,
    ),
    **dict.fromkeys(
        [
            "throttle_status",
            "gfx_activity_acc",
            "mem_activity_acc",
            "gfxclk_lock_status",
            "pcie_nak_sent_count_acc",
            "pcie_nak_rcvd_count_acc",
            "pcie_lc_perf_other_end_recovery",
        ],
        U32,
    ),
    **dict.fromkeys(
        [
            "energy_accumulator",
            "system_clock_counter",
            "firmware_timestamp",
            "indep_throttle_status",
            "pcie_bandwidth_acc",
            "pcie_bandwidth_inst",
            "pcie_l0_to_recov_count_acc",
            "pcie_replay_count_acc",
            "pcie_replay_rover_count_acc",
            "accumulation_counter",
            "prochot_residency_acc",
            "ppt_residency_acc",
            "socket_thm_residency_acc",
            "vr_thm_residency_acc",
            "hbm_thm_residency_acc",
            "vram_max_bandwidth",
        ],
        U64,
    ),
    "temperature_hbm": [U16] * 4,
    "vcn_activity": [U16] * 4,
    "jpeg_activity": [U16] * 32,
    "current_gfxclks": [U16] * 8,
    "current_socclks": [U16] * 4,
    "current_vclk0s": [U16] * 4,
    "current_dclk0s": [U16] * 4,
    "xgmi_read_data_acc": [U64] * 8,
    "xgmi_write_data_acc": [U64] * 8,
    "xgmi_link_status": [U16] * 8,
    "xcp_stats.gfx_busy_inst": [[U32] * 8 for _ in range(8)],
    "xcp_stats.jpeg_busy": [[U16] * 32 for _ in range(8)],
    "xcp_stats.vcn_busy": [[U16] * 4 for _ in range(8)],
    "xcp_stats.gfx_busy_acc": [[U64] * 8 for _ in range(8)],
}
WIDTHS = {k: (U32 if "gfx_busy_inst" in k else U64) if "xcp_stats.gfx" in k else U16 for k in _EMPTY}
WIDTHS |= {k: v for k, v in _EMPTY.items() if not isinstance(v, list)}
WIDTHS |= {"xgmi_read_data_acc": U64, "xgmi_write_data_acc": U64}


def _mi300x(index, cpx):
    cells = [62, 60, 58, 64, 61, 59, 63, 57]
    table = copy.deepcopy(_EMPTY)
    table |= {
        "temperature_hotspot": 61,
        "temperature_mem": 52,
        "temperature_vrsoc": 55,
        "average_gfx_activity": 60,
        "average_umc_activity": 23,
        "current_socket_power": 512,
        # 2^-16 J each: 1,000,000 J and a half
        "energy_accumulator": 65536 * 1_000_000 + 32768,
        "system_clock_counter": 12345678901234,
        "firmware_timestamp": 98765432100,
        "current_gfxclk": 2089,
        "current_uclk": 1300,
        "current_socclk": 1000,
        "current_vclk0": 29,
        "current_dclk0": 22,
        "pcie_link_width": 16,
        "pcie_link_speed": 320,
        "gfxclk_lock_status": 0,
        "gfx_activity_acc": 4_000_000,
        "mem_activity_acc": 1_500_000,
        "pcie_bandwidth_acc": 700_000,
        "pcie_bandwidth_inst": 3,
        "pcie_l0_to_recov_count_acc": 1,
        "pcie_replay_count_acc": 2,
        "pcie_replay_rover_count_acc": 0,
        "pcie_nak_sent_count_acc": 3,
        "pcie_nak_rcvd_count_acc": 4,
        "accumulation_counter": 900_000,
        "prochot_residency_acc": 0,
        "ppt_residency_acc": 45_000,
        "socket_thm_residency_acc": 7,
        "vr_thm_residency_acc": 0,
        "hbm_thm_residency_acc": 0,
        "num_partition": 8 if cpx else 1,
        "xgmi_link_width": 16,
        "xgmi_link_speed": 32,
        "vcn_activity": [0, 0, 4, 0],
        "current_gfxclks": [2089, 2090, 2091, 2092, 2093, 2094, 2095, 2096],
        "current_socclks": [1000, 1001, 1002, 1003],
        "current_vclk0s": [29, 29, 30, 29],
        "current_dclk0s": [22, 22, 23, 22],
        "xgmi_read_data_acc": [0] + [1_000_000 + 10 * i for i in range(7)],
        "xgmi_write_data_acc": [0] + [2_000_000 + 10 * i for i in range(7)],
        "xgmi_link_status": [U16, 1, 1, 1, 1, 1, 0, 1],
        "jpeg_activity": [0] * 32,
    }
    if cpx:
        for p, busy in enumerate(cells):
            # One XCC each. Slots of XCCs that are not there hold 16 ones in a field of 32 bits.
            table["xcp_stats.gfx_busy_inst"][p] = [busy] + [U16] * 7
            table["xcp_stats.vcn_busy"][p] = [p, U16, U16, U16]
    else:
        table["xcp_stats.gfx_busy_inst"][0] = list(cells)
        table["xcp_stats.vcn_busy"][0] = [0, 0, 4, 0]
        table["xcp_stats.jpeg_busy"][0] = [0] * 32
    bus = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)[index % 8]
    return {
        "kind": "mi300x",
        "bdf": f"{index // 8:04x}:{bus:02x}:00.0",
        "name": "AMD Instinct MI300X",
        "device_id": 0x74A1,
        "rev_id": 0,
        "gfx": 0x942,
        "serial": f"{0x5EAF00D0 + index:X}",
        "cus": 304,
        "xccs": 8,
        "vbios": "113-M3000100-103",
        "mode": "CPX" if cpx else "SPX",
        "memory_mode": "NPS1",
        "partitions": 8 if cpx else 1,
        "table": table,
        "cap_uw": 750_000_000,
        "temps": {"HOTSPOT": (61, 100, 105), "VRAM": (52, 105, 110)},
        "clocks": {"DF": 1800},
        "fan": None,
        "volt": None,
        "memory": {
            "VRAM": (205_822_885_888, 150_000_000_000),
            "VIS_VRAM": (205_822_885_888, 150_000_000_000),
            "GTT": (540_000_000_000, 250_000_000),
        },
        "ecc": {
            "UMC": (5, 1, 2),
            "SDMA": (0, 0, 0),
            "GFX": (0, 0, 0),
            "MMHUB": (0, 0, 0),
            "XGMI_WAFL": (3, 0, 0),
        },
        "pages": [0, 0, 1],
        # 25 corrected ones, more than one call gives, then one that was not and one that was fatal.
        "cper": [
            {"severity": "non_fatal_corrected", "at": f"2026/11/30 10:{m:02d}:00", "afids": [17]}
            for m in range(25)
        ]
        + [
            {"severity": "non_fatal_uncorrected", "at": "2026/11/30 11:00:00", "afids": [25, 29]},
            {"severity": "fatal", "at": "2026/11/30 12:00:00", "afids": [30]},
        ],
        "pcie": (16, 32000, 16, 32000, 2),
    }


def _mi210(index, second=False, bus=None):
    table = copy.deepcopy(_EMPTY)
    table |= {
        "temperature_edge": 38,
        "temperature_hotspot": 45,
        "temperature_mem": 41,
        "temperature_vrgfx": 0,
        "average_gfx_activity": 0,
        "average_umc_activity": 0,
        # MI200 fills the average only; the second die of a package has no sensor and says 0.
        "average_socket_power": 0 if second else 43,
        "energy_accumulator": 0 if second else 65536 * 2_000,
        "current_gfxclk": 800,
        "current_uclk": 1600,
        "current_socclk": 1090,
        "pcie_link_width": 16,
        "pcie_link_speed": 160,
        "gfx_activity_acc": 12_345,
        "mem_activity_acc": 678,
        "temperature_hbm": [40, 41, 40, 39],
        "voltage_gfx": 806,
        "indep_throttle_status": 0,
        "throttle_status": 0,
    }
    return _mi300x(index, False) | {
        "kind": "mi210",
        "bdf": f"0000:{bus if bus is not None else 0x03 + 0x20 * index:02x}:00.0",
        "name": "AMD Instinct MI210",
        "device_id": 0x740F,
        "gfx": 0x90A,
        "serial": f"{0xA5A5A5A500000000 + index * 2 + second:X}",
        "cus": 104,
        "xccs": 1,
        "vbios": "113-D67301-063",
        "mode": None,
        "memory_mode": None,
        "table": table,
        "cap_uw": 300_000_000,
        "temps": {"EDGE": (38, 100, 105), "HOTSPOT": (45, 110, 115), "VRAM": (41, 105, 110)},
        "clocks": {"DF": 1400},
        "volt": {"VDDGFX": 806},
        "memory": {
            "VRAM": (68_702_699_520, 10_600_448),
            "VIS_VRAM": (68_702_699_520, 10_600_448),
            "GTT": (67_507_597_312, 12_000_000),
        },
        "ecc": {"UMC": (0, 0, 0), "SDMA": (0, 0, 0), "GFX": (1, 0, 0)},
        "pages": [],
        "cper": [],
        "pcie": (16, 16000, 16, 16000, 0),
    }


def _rx7800xt(index):
    table = copy.deepcopy(_EMPTY)
    table |= {
        "temperature_edge": 41,
        "temperature_hotspot": 46,
        "temperature_mem": 52,
        "temperature_vrgfx": 40,
        "temperature_vrsoc": 43,
        "temperature_vrmem": 45,
        "average_gfx_activity": 3,
        "average_umc_activity": 1,
        "average_socket_power": 36,
        "energy_accumulator": 0,  # RDNA3 has the field and never counts
        "current_gfxclk": 58,
        "current_uclk": 772,
        "current_socclk": 1200,
        "current_vclk0": 25,
        "current_dclk0": 25,
        "current_fan_speed": 0,
        "pcie_link_width": 16,
        "pcie_link_speed": 160,
        "throttle_status": 0,
        "indep_throttle_status": 0,
    }
    return _mi300x(index, False) | {
        "kind": "rx7800xt",
        "bdf": f"0000:{0x09 + index:02x}:00.0",
        "name": "AMD Radeon RX 7800 XT",
        "device_id": 0x747E,
        "rev_id": 0xC8,
        "gfx": 0x1101,
        "serial": f"{0xDEADBEEF00000000 + index:X}",
        "cus": 60,
        "xccs": 1,
        "vbios": "113-D7120101-100",
        "mode": None,
        "memory_mode": None,
        "table": table,
        "cap_uw": 236_000_000,
        "temps": {"EDGE": (41, 100, 105), "HOTSPOT": (46, 110, 115), "VRAM": (52, 108, 113)},
        "clocks": {"DF": 1600},
        "fan": 0,  # stands still, which is a measurement
        "volt": {"VDDGFX": 650},
        "memory": {
            "VRAM": (17_163_091_968, 668_274_688),
            "VIS_VRAM": (17_163_091_968, 668_274_688),
            "GTT": (33_000_000_000, 60_000_000),
        },
        "ecc": {},
        "pages": None,
        "cper": None,
        "pcie": (16, 16000, 16, 16000, 0),
    }


def machine():
    """One entry for every socket, in order of the PCI address as the library lists them."""
    found = []
    for part in os.environ.get("FAKE_AMDSMI_NODE", "mi300x:2").split(","):
        name, _, count = part.partition(":")
        for index in range(int(count or 1)):
            if name in ("mi300x", "mi300x-cpx"):
                found.append(_mi300x(index, name.endswith("cpx")))
            elif name == "mi210":
                found.append(_mi210(index))
            elif name == "mi250x":
                for second in (False, True):
                    die = _mi210(index, second, 0x31 + 2 * index + second)
                    found.append(die | {"device_id": 0x7408, "name": "AMD Instinct MI250X", "cus": 110})
            elif name == "rx7800xt":
                found.append(_rx7800xt(index))
            else:
                raise ValueError(name)
    return sorted(found, key=lambda gpu: gpu["bdf"])
