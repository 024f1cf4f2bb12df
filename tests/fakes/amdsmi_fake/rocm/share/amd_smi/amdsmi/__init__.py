"""A pretend driver library module: the names, shapes, units and failures of the real one, release by release.

FAKE_AMDSMI_RELEASE selects the release ("7.0"), FAKE_AMDSMI_NODE the machine, FAKE_AMDSMI_IMPORT a way to
fail at import, FAKE_AMDSMI_LIBRARY another library version than the module's. See ``control`` for faults.
"""
# ruff: noqa: F401, PLW0603 - names are looked up from outside; the library has one global state

import ctypes
import os
from enum import IntEnum

from . import amdsmi_exception, amdsmi_wrapper, control, hardware, releases
from ._version import __version__
from .amdsmi_exception import (
    AmdSmiBdfFormatException,
    AmdSmiException,
    AmdSmiKeyException,
    AmdSmiLibraryException,
    AmdSmiParameterException,
    AmdSmiRetryException,
    AmdSmiTimeoutException,
)

_R = releases.THIS
CONTROL = control.THIS

# How the real ones fail where there is no library: text on stdout first, then anything but ImportError.
_WAY = os.environ.get("FAKE_AMDSMI_IMPORT")
if _WAY:
    print("Unable to find libamd_smi.so library try installing amd-smi-lib from your package manager")
    if _WAY == "KeyError":
        raise KeyError("libamd_smi.so")
    if _WAY == "AttributeError":
        raise AttributeError("/opt/rocm/lib/libamd_smi.so: undefined symbol: amdsmi_get_cpu_model")
    if _WAY == "OSError":
        raise OSError("libdrm.so.2: cannot open shared object file: No such file or directory")
    if _WAY == "ImportError":
        raise ImportError("cannot import name 'amdsmi_wrapper'")
    if _WAY == "SystemExit":
        raise SystemExit(1)


class AmdSmiInitFlags(IntEnum):
    INIT_ALL_PROCESSORS = 0xFFFFFFFF
    INIT_AMD_CPUS = 1
    INIT_AMD_GPUS = 2


class AmdSmiTemperatureType(IntEnum):
    EDGE = 0
    HOTSPOT = 1
    JUNCTION = 1
    VRAM = 2
    HBM_0 = 3
    HBM_1 = 4
    HBM_2 = 5
    HBM_3 = 6
    PLX = 7


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0
    MAX = 1
    CRITICAL = 5
    EMERGENCY = 7


class AmdSmiMemoryType(IntEnum):
    VRAM = 0
    VIS_VRAM = 1
    GTT = 2


class AmdSmiClkType(IntEnum):
    SYS = 0
    GFX = 0
    DF = 1
    DCEF = 2
    SOC = 3
    MEM = 4
    PCIE = 5
    VCLK0 = 6
    VCLK1 = 7
    DCLK0 = 8
    DCLK1 = 9


AmdSmiVoltageType = IntEnum("AmdSmiVoltageType", {"VDDGFX": 0, **({"VDDBOARD": 1} if _R.vddboard else {})})


class AmdSmiVoltageMetric(IntEnum):
    CURRENT = 0


class AmdSmiMemoryPageStatus(IntEnum):
    RESERVED = 0
    PENDING = 1
    UNRESERVABLE = 2


AmdSmiGpuBlock = IntEnum(
    "AmdSmiGpuBlock",
    {
        name: 1 << bit
        for bit, name in enumerate(
            [
                "UMC",
                "SDMA",
                "GFX",
                "MMHUB",
                "ATHUB",
                "PCIE_BIF",
                "HDP",
                "XGMI_WAFL",
                "DF",
                "SMN",
                "SEM",
                "MP0",
                "MP1",
                "FUSE",
                "MCA",
                "VCN",
                "JPEG",
                "IH",
                "MPIO",
            ]
        )
    },
)


class _Handle:
    """What the real ones give: opaque, dead after the next shut-down."""

    def __init__(self, gpu, partition, session):
        self.gpu, self.partition, self.session = gpu, partition, session


_session = 0
_open = []
_initialised = False


def _fail(name):
    raise AmdSmiLibraryException(getattr(amdsmi_wrapper, f"AMDSMI_STATUS_{name}"))


def _na(value, ones, *, activity=False):
    """All ones of the field's width become "N/A"; so does an activity above 100."""
    if isinstance(value, list):
        return [_na(v, ones, activity=activity) for v in value]
    return "N/A" if value == ones or (activity and value > 100) else value


_BEFORE_INIT = ("amdsmi_init", "amdsmi_get_lib_version", "amdsmi_get_rocm_version")


def _public(function):
    """Count, fault and mutate as the switches say; check the handle as the library does."""
    name = function.__name__

    def call(*args):
        first = args[0] if args else None
        handle = first if isinstance(first, _Handle) else None
        CONTROL.enter(name.removeprefix("amdsmi_"), handle.gpu["bdf"] if handle else None)
        if not _initialised and name not in _BEFORE_INIT:
            _fail("NOT_INIT")
        if handle is not None and (
            handle.session != _session or CONTROL.unloaded or handle.gpu["bdf"] in CONTROL.gone
        ):
            _fail("NOT_FOUND")
        value = function(*args)
        if CONTROL.na and handle is not None:
            value = _all(value, "N/A")
        if handle is not None and handle.gpu["bdf"] in CONTROL.leaves:
            value = _all(value, CONTROL.leaves[handle.gpu["bdf"]])
        if CONTROL.mutate and CONTROL.mutate[0] == name.removeprefix("amdsmi_"):
            value = _replaced(value, CONTROL.mutate[1], CONTROL.mutate[2])
        return value

    call.__name__ = name
    return call


def _all(value, leaf):
    if isinstance(value, dict):
        return {k: _all(v, leaf) for k, v in value.items()}
    if isinstance(value, list):
        return [_all(v, leaf) for v in value]
    return leaf


def _replaced(value, path, new):
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: _replaced(value[path[0]], path[1:], new)}
    copy = list(value)
    copy[path[0]] = _replaced(copy[path[0]], path[1:], new)
    return copy


# --- lifetime ------------------------------------------------------------------------------------------


@_public
def amdsmi_init(flag=AmdSmiInitFlags.INIT_AMD_GPUS):
    global _session, _initialised
    if not isinstance(flag, AmdSmiInitFlags):
        raise AmdSmiParameterException(flag, AmdSmiInitFlags)
    if CONTROL.unloaded:
        _fail("DRIVER_NOT_LOADED")
    _session += 1
    _initialised = True
    if CONTROL.hold:
        _open.append(os.open(CONTROL.hold, os.O_RDONLY))
    if CONTROL.hold_for_ever:
        os.set_inheritable(os.open(CONTROL.hold_for_ever, os.O_RDONLY), True)


@_public
def amdsmi_shut_down():
    global _session, _initialised
    _initialised = False
    _session += 1
    while _open:
        os.close(_open.pop())


_machine = hardware.machine()


@_public
def amdsmi_get_processor_handles():
    handles = []
    for gpu in _machine:
        if gpu["bdf"] in CONTROL.gone:
            continue
        count = {None: gpu["partitions"], "SPX": 1, "CPX": gpu["xccs"]}[CONTROL.partitions]
        handles += [_Handle(gpu, p, _session) for p in range(count)]
    return handles


@_public
def amdsmi_get_lib_version():
    version = amdsmi_wrapper.amdsmi_version_t()
    if status := amdsmi_wrapper.amdsmi_get_lib_version(ctypes.byref(version)):
        raise AmdSmiLibraryException(status)
    # 6.4 leaves out the year that its structure has: 25.5.1 comes out as 5.1.0.
    keys = ("year", "major", "minor", "release") if _R.year else ("major", "minor", "release")
    return {key: getattr(version, key) for key in keys} | {"build": "p"}


# --- identity ------------------------------------------------------------------------------------------


@_public
def amdsmi_get_gpu_device_bdf(handle):
    # Partitions are shown with a function number that no PCI device has.
    return f"{handle.gpu['bdf'][:-1]}{handle.partition}".upper().replace("X", "x")


@_public
def amdsmi_get_gpu_device_uuid(handle):
    # One per card before 7.0, one per partition since.
    last = handle.partition if releases.NAME[0] != "6" else 0
    bus = int(handle.gpu["bdf"][5:7], 16)
    return f"{last:02x}ff{handle.gpu['device_id']:04x}-0000-1000-80{bus:02x}-00c0ffee0000"


@_public
def amdsmi_get_gpu_asic_info(handle):
    gpu = handle.gpu
    info = {
        "market_name": gpu["name"],
        "vendor_id": "0x1002",
        "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
        "subvendor_id": "0x1002",
        "device_id": hex(gpu["device_id"]),
        "rev_id": f"0x{gpu['rev_id']:02x}",
        "asic_serial": f"0x{int(gpu['serial'], 16):016X}",
        "oam_id": "N/A",
    }
    if _R.kfd:
        info |= {"num_compute_units": gpu["cus"], "target_graphics_version": f"gfx{gpu['gfx']:x}"}
    if _R.header:
        info["subsystem_id"] = "0x74a1"
    return info


@_public
def amdsmi_get_gpu_board_info(handle):
    return {
        "model_number": "102-G30211-00",
        "product_serial": "692445000001",
        "fru_id": "113-AMDG302110100",
        "product_name": handle.gpu["name"],
        "manufacturer_name": "AMD",
    }


@_public
def amdsmi_get_gpu_vbios_info(handle):
    return {
        "name": "AMD VBIOS",
        "build_date": "2025/01/01 00:00",
        "part_number": handle.gpu["vbios"],
        "version": "022.040.003.043.000001",
    }


@_public
def amdsmi_get_gpu_driver_info(handle):
    return {"driver_name": "amdgpu", "driver_version": "6.12.12", "driver_date": "2015/01/01 00:00"}


def _mode(handle):
    return CONTROL.partitions or handle.gpu["mode"]


@_public
def amdsmi_get_gpu_compute_partition(handle):
    return _mode(handle) or _fail("NOT_SUPPORTED")


@_public
def amdsmi_get_gpu_memory_partition(handle):
    return handle.gpu["memory_mode"] or _fail("NOT_SUPPORTED")


if _R.kfd:

    @_public
    def amdsmi_get_gpu_kfd_info(handle):
        index = _machine.index(handle.gpu)
        return {
            "kfd_id": 10_000 + 100 * index + handle.partition,
            "node_id": 2 + 8 * index + handle.partition,
            "current_partition_id": handle.partition,
        }


if _R.enumeration:

    @_public
    def amdsmi_get_gpu_enumeration_info(handle):
        at = sum(g["partitions"] for g in _machine[: _machine.index(handle.gpu)]) + handle.partition
        return {
            # 6.4.1 gives every partition the same render node.
            "drm_render": 128 if releases.NAME == "6.4" and handle.gpu["partitions"] > 1 else 128 + at,
            "drm_card": 1 + at,
            "hsa_id": 1 + at,
            "hip_id": at,
            "hip_uuid": f"GPU-{handle.gpu['serial'].lower()}",
        }

    @_public
    def amdsmi_get_gpu_xcd_counter(handle):
        return handle.gpu["xccs"]

    @_public
    def amdsmi_get_rocm_version():
        return True, os.environ.get("FAKE_AMDSMI_ROCM", _R.rocm)


# --- measured ------------------------------------------------------------------------------------------

_ACTIVITY = ("activity", "busy_inst", "_busy")


@_public
def amdsmi_get_gpu_metrics_info(handle):
    if handle.partition:
        _fail("UNEXPECTED_DATA")  # the file is the first partition's
    table = {}
    for key, value in handle.gpu["table"].items():
        if not _R.residency and ("xcp_stats" in key or "residency" in key or key == "accumulation_counter"):
            continue
        if not _R.residency and key in ("num_partition", "pcie_lc_perf_other_end_recovery"):
            continue
        if not _R.enumeration and key in ("xgmi_link_status", "vram_max_bandwidth"):
            continue
        if key in ("throttle_status", "indep_throttle_status"):
            table[key] = "N/A" if value == hardware.WIDTHS[key] else bool(value)
        else:
            activity = "acc" not in key and any(a in key for a in _ACTIVITY)
            table[key] = _na(value, hardware.WIDTHS[key], activity=activity)
    if _R.header:
        table["common_header.structure_size"] = 2208
        table["common_header.format_revision"] = 1
        table["common_header.content_revision"] = 7
    return table


@_public
def amdsmi_get_gpu_activity(handle):
    table = handle.gpu["table"]
    return {
        "gfx_activity": table["average_gfx_activity"],
        "umc_activity": table["average_umc_activity"],
        "mm_activity": "N/A",
    }


@_public
def amdsmi_get_power_info(handle):
    table = handle.gpu["table"]
    info = {
        "current_socket_power": _na(table["current_socket_power"], 0xFFFF),
        "average_socket_power": _na(table["average_socket_power"], 0xFFFF),
        "gfx_voltage": _na(table["voltage_gfx"], 0xFFFF),
        "soc_voltage": "N/A",
        "mem_voltage": "N/A",
        "power_limit": handle.gpu["cap_uw"],
    }
    if _R.socket_power:
        used = [info[k] for k in ("current_socket_power", "average_socket_power") if info[k] != "N/A"]
        info["socket_power"] = used[0] if used else "N/A"
    return info


@_public
def amdsmi_get_power_cap_info(handle):
    cap = handle.gpu["cap_uw"]
    return {
        "power_cap": cap,
        "default_power_cap": cap,
        "dpm_cap": 0,
        "min_power_cap": 0,
        "max_power_cap": cap,
    }


@_public
def amdsmi_get_energy_count(handle):
    return {
        _R.energy_key: handle.gpu["table"]["energy_accumulator"],
        "counter_resolution": 15.300000190734863,
        "timestamp": 1_700_000_000_000_000_000,
    }


@_public
def amdsmi_get_clock_info(handle, kind):
    if not isinstance(kind, AmdSmiClkType):
        raise AmdSmiParameterException(kind, AmdSmiClkType)
    table, known = handle.gpu["table"], handle.gpu["clocks"]
    names = {"GFX": "current_gfxclk", "MEM": "current_uclk", "SOC": "current_socclk"}
    names |= {"VCLK0": "current_vclk0", "DCLK0": "current_dclk0"}
    mhz = known.get(kind.name, table[names[kind.name]] if kind.name in names else 0xFFFF)
    if mhz == 0xFFFF:
        _fail("NOT_SUPPORTED")
    if _R.clock_key == "cur_clk":
        return {"cur_clk": mhz, "max_clk": 2100, "min_clk": 132, "sleep_clk": 0}
    return {"clk": mhz, "min_clk": 132, "max_clk": 2100, "clk_locked": False, "clk_deep_sleep": 255}


@_public
def amdsmi_get_temp_metric(handle, sensor, metric):
    for value, kind in ((sensor, AmdSmiTemperatureType), (metric, AmdSmiTemperatureMetric)):
        if not isinstance(value, kind):
            raise AmdSmiParameterException(value, kind)
    name = "HOTSPOT" if sensor == AmdSmiTemperatureType.HOTSPOT else sensor.name
    if name not in handle.gpu["temps"]:
        _fail("NOT_SUPPORTED")
    return handle.gpu["temps"][name][{0: 0, 5: 1, 7: 2}[metric]]


@_public
def amdsmi_get_gpu_volt_metric(handle, kind, metric):
    volts = handle.gpu["volt"] or {}
    return volts[kind.name] if kind.name in volts else _fail("NOT_SUPPORTED")


@_public
def amdsmi_get_gpu_fan_rpms(handle, index):
    return _fail("NOT_SUPPORTED") if handle.gpu["fan"] is None else handle.gpu["fan"]


@_public
def amdsmi_get_gpu_memory_total(handle, kind):
    return handle.gpu["memory"][AmdSmiMemoryType(kind).name][0]


@_public
def amdsmi_get_gpu_memory_usage(handle, kind):
    return handle.gpu["memory"][AmdSmiMemoryType(kind).name][1]


@_public
def amdsmi_get_gpu_vram_info(handle):
    info = {"vram_type": 4, "vram_vendor": 6, _R.vram_key: handle.gpu["memory"]["VRAM"][0] // hardware.MIB}
    if _R.kfd:
        info["vram_bit_width"] = 4294967295  # a sentinel that leaks through
    if _R.enumeration:
        info["vram_max_bandwidth"] = hardware.U64
    return info


@_public
def amdsmi_get_gpu_ecc_count(handle, block):
    if not isinstance(block, AmdSmiGpuBlock):
        raise AmdSmiParameterException(block, AmdSmiGpuBlock)
    counts = handle.gpu["ecc"].get(block.name) or _fail("NOT_SUPPORTED")
    return dict(zip(("correctable_count", "uncorrectable_count", "deferred_count"), counts, strict=True))


@_public
def amdsmi_get_gpu_bad_page_info(handle):
    if handle.gpu["pages"] is None:
        _fail("NOT_SUPPORTED")
    return [
        {"value": i, "page_address": 0x1000 * i, "page_size": 4096, "status": status}
        for i, status in enumerate(handle.gpu["pages"])
    ]


@_public
def amdsmi_get_pcie_info(handle):
    width, speed, max_width, max_speed, replays = handle.gpu["pcie"]
    table = handle.gpu["table"]
    metric = {
        "pcie_width": width,
        "pcie_speed": speed,  # MT/s
        "pcie_bandwidth": "N/A",
        "pcie_replay_count": replays,
        "pcie_l0_to_recovery_count": _na(table["pcie_l0_to_recov_count_acc"], hardware.U64),
        "pcie_replay_roll_over_count": _na(table["pcie_replay_rover_count_acc"], hardware.U64),
        "pcie_nak_sent_count": _na(table["pcie_nak_sent_count_acc"], hardware.U32),
        "pcie_nak_received_count": _na(table["pcie_nak_rcvd_count_acc"], hardware.U32),
    }
    if _R.kfd:
        metric["pcie_lc_perf_other_end_recovery_count"] = "N/A"
    static = {"max_pcie_width": max_width, "max_pcie_speed": max_speed, "pcie_interface_version": 5}
    return {"pcie_static": static | {"slot_type": "OAM"}, "pcie_metric": metric}


if _R.residency:

    @_public
    def amdsmi_get_violation_status(handle):
        # The real one sleeps 100 ms between two samples; here only the count of calls tells.
        table = handle.gpu["table"]
        info = {
            "reference_timestamp": 1,
            "violation_timestamp": 2,
            "acc_counter": table["accumulation_counter"],
        }
        names = {"prochot_thrm": "prochot", "ppt_pwr": "ppt", "socket_thrm": "socket_thm"}
        for name, source in (names | {"vr_thrm": "vr_thm", "hbm_thrm": "hbm_thm"}).items():
            info[f"acc_{name}"] = _na(table[f"{source}_residency_acc"], hardware.U64)
            info[f"per_{name}"] = 0
            info[f"active_{name}"] = False
        return info


@_public
def amdsmi_get_gpu_pci_throughput(handle):
    raise AssertionError("this call blocks for a second; nobody may make it")


if _R.cper:

    @_public
    def amdsmi_get_gpu_cper_entries(handle, severity_mask, buffer_size=4 * 1048576, cursor=0):
        """At most 20 records a call from ``cursor`` on; fewer where the buffer is small."""
        kept = handle.gpu["cper"]
        if kept is None:
            _fail("FILE_NOT_FOUND")
        bits = {"non_fatal_uncorrected": 1, "fatal": 2, "non_fatal_corrected": 4}
        wanted = [r for r in kept[cursor:] if severity_mask & bits.get(r["severity"], 0)]
        page = wanted[: min(20, buffer_size // 4096)]
        entries = {
            i: {
                "error_severity": r["severity"],
                "notify_type": "81212a96",
                "timestamp": r["at"],
                "signature": b"CPER",
                "revision": 256,
                "signature_end": "0xffffffff",
                "sec_cnt": 1,
                "record_length": 248,
                "platform_id": b"0x1002:0x74A1",
                "creator_id": b"amdgpu",
                "record_id": b"7:1",
                "flags": 0,
                "persistence_info": 0,
            }
            for i, r in enumerate(page)
        }
        # The real one hands out c_byte, which is signed.
        data = [{"bytes": [67, 80, -1, *r["afids"]], "size": 3 + len(r["afids"])} for r in page]
        more = len(wanted) > len(page)
        status = amdsmi_wrapper.AMDSMI_STATUS_MORE_DATA if more else amdsmi_wrapper.AMDSMI_STATUS_SUCCESS
        return entries, cursor + len(page), data, status

    @_public
    def amdsmi_get_afids_from_cper(record):
        if not isinstance(record, bytes):
            raise AmdSmiParameterException(record, bytes)
        ids = [int(b) for b in record[3:]]
        return ids, len(ids)


if _R.busy_percent:

    @_public
    def amdsmi_get_gpu_busy_percent(handle):
        return handle.gpu["table"]["average_gfx_activity"]
