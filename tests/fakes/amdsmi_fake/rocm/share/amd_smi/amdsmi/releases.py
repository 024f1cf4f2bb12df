"""What differs between releases of the driver library's Python module, as data.

Facts measured from the published modules: function availability, renamed keys, moved enumeration numbers.
"""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    module: str  # what __version__ says: the library's own numbering, as ROCm builds it
    library: tuple  # what the library says of itself
    year: bool = True  # get_lib_version had a "year" up to 6.3; the structure below it up to 6.4
    structure_year: bool = True
    clock_key: str = "clk"  # "cur_clk" up to 6.1
    vram_key: str = "vram_size"  # "vram_size_mb" up to 6.1
    energy_key: str = "energy_accumulator"  # "power" up to 6.3
    kfd: bool = True  # get_gpu_kfd_info, number of compute units, gfx name: since 6.3
    residency: bool = True  # accumulators of throttling and xcp_stats: since 6.3
    enumeration: bool = (
        True  # get_gpu_enumeration_info, xGMI link status, xcd_counter, rocm_version: since 6.4
    )
    header: bool = True  # "common_header.*" keys: since 7.0
    socket_power: bool = True  # one more key of get_power_info: since 7.0
    busy_percent: bool = False  # get_gpu_busy_percent: since 7.2
    cper: bool = True  # get_gpu_cper_entries: since 6.4
    more_data: int = 39  # AMDSMI_STATUS_MORE_DATA was 57 in 6.4
    vddboard: bool = True  # voltage type: since 6.4
    xgmi_link_type: int = 2  # 1 up to 6.4
    rocm: str = ""


_OLD = {
    "cper": False,
    "enumeration": False,
    "header": False,
    "socket_power": False,
    "xgmi_link_type": 1,
    "vddboard": False,
}

RELEASES = {
    "6.1": Release(
        "24.5.1",
        (24, 5, 1, 0),
        clock_key="cur_clk",
        vram_key="vram_size_mb",
        energy_key="power",
        kfd=False,
        residency=False,
        **_OLD,
    ),
    "6.2": Release("24.6.3", (24, 6, 3, 0), energy_key="power", kfd=False, residency=False, **_OLD),
    "6.3": Release("24.7.1", (24, 7, 1, 0), energy_key="power", **_OLD),
    "6.4": Release(
        "25.5.1",
        (25, 5, 1, 0),
        year=False,
        header=False,
        socket_power=False,
        more_data=57,
        xgmi_link_type=1,
        rocm="6.4.2",
    ),
    "7.0": Release("26.0.2", (26, 0, 2), year=False, structure_year=False, rocm="7.0.2"),
    "7.2": Release("26.2.1", (26, 2, 1), year=False, structure_year=False, busy_percent=True, rocm="7.2.0"),
    "10.0": Release("27.0.0", (27, 0, 0), year=False, structure_year=False, busy_percent=True, rocm="10.0.0"),
}

NAME = os.environ.get("FAKE_AMDSMI_RELEASE", "7.0")
THIS = RELEASES[NAME]
