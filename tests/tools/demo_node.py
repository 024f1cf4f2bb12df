"""The demo capture's node: an 8x MI300X system as sysfs shows it, for two minutes in steps of five seconds.

Synthetic. File names, formats and the gpu_metrics v1.6 layout are the kernel's; every value follows from the
load each GPU is given here. What is counted starts near zero in the first frame and only rises, so that the
start of a new round is the small counter reset of a driver reload.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from demo_tables import COMPUTE_UNITS, KFD_GPU_ID, KFD_NODE, PCI, RENDER, XCDS, Dice, location

COUNT, SECONDS = 24, 5
SAMPLES_PER_SECOND = 1000  # of the firmware, behind its accumulators
VRAM_BYTES = 196_592 << 20
GTT_BYTES = 1_081_862_496_256
CAP_W = 750
HIVE = 0x5A17_0000_0000_0D30
RAS_BLOCKS = ("umc", "sdma", "gfx", "mmhub", "pcie_bif", "xgmi_wafl")
_GONE = {2: 0xFFFF, 4: 0xFFFF_FFFF, 8: 0xFFFF_FFFF_FFFF_FFFF}

Tree = dict[str, bytes]
Frames = dict[str, list[bytes]]


@dataclass(frozen=True)
class Load:
    """What one GPU is busy with; percent, watts, MHz, gigabytes per second, GiB."""

    busy: int
    memory_busy: int
    watts: int
    sclk: int
    mclk: int
    junction: int
    vram_gib: int
    pcie_gbs: int = 0
    xgmi_gbs: int = 1
    capped: int = 0  # per mille of the time at the power limit


LOADS = dict(
    zip(
        PCI,
        (
            Load(98, 44, 736, 1720, 1300, 82, 171, pcie_gbs=1, capped=410),  # saturated by large products
            Load(0, 0, 139, 132, 900, 41, 0),  # idle
            Load(12, 6, 236, 2095, 1300, 49, 24, pcie_gbs=1),  # launch-bound: busy little, cool, clocks high
            Load(9, 5, 218, 2090, 1300, 48, 96, pcie_gbs=2),  # the host stalls it
            Load(99, 21, 438, 1980, 1300, 63, 158, xgmi_gbs=38),  # waits in all-reduces: busy, not hot
            Load(27, 18, 289, 2085, 1300, 53, 61, pcie_gbs=33),  # copies to and from the host
            Load(46, 17, 341, 2075, 1300, 57, 43),  # graphs of dependent small kernels
            Load(63, 71, 512, 2060, 1300, 69, 139),  # gathers that miss the L2
        ),
        strict=True,
    )
)


@dataclass
class State:
    """One GPU at one frame, with what it has counted so far."""

    busy: int = 0
    memory_busy: int = 0
    watts: int = 0
    sclk: int = 0
    junction: int = 0
    memory_temp: int = 0
    vram_used: int = 0
    joules: int = 0
    samples: int = 0
    busy_acc: int = 0
    memory_acc: int = 0
    capped_acc: int = 0
    pcie_acc: int = 0
    ecc: int = 0


def files() -> tuple[Tree, Frames, Tree]:
    """(``sys/`` with the first frame's values, records of the files that change, links as path -> target)."""
    tree: Tree = {}
    frames: Frames = {}
    links: Tree = {}
    xgmi = {pci: [[0] * 7, [0] * 7] for pci in PCI}
    courses = {pci: _course(pci) for pci in PCI}
    for frame in range(COUNT):
        _count_xgmi(xgmi, SECONDS if frame else 1)
        for pci in PCI:
            changing = _changing(pci, frame, courses[pci][frame], xgmi[pci])
            for name, body in changing.items():
                frames.setdefault(f"{device_path(pci)}/{name}", []).append(body)
    for index, pci in enumerate(PCI):
        tree |= {f"{device_path(pci)}/{name}": body for name, body in _still(pci, index).items()}
        links |= _links(pci, index)
    tree |= _topology()
    tree |= {
        "class/devcoredump/disabled": b"0\n",
        "module/amdgpu/initstate": b"live\n",
        "module/amdgpu/version": b"6.12.12\n",
    }
    frames = {path: records for path, records in frames.items() if len(set(records)) > 1 or path not in tree}
    tree |= {path: records[0] for path, records in frames.items()}
    # A file that never changes needs no frames.
    return tree, {path: _padded(r) for path, r in frames.items() if len(set(r)) > 1}, links


def device_path(pci: str) -> str:
    bus = int(pci[5:7], 16)
    root = f"pci0000:{bus & 0xE0:02x}"
    return f"devices/{root}/{root.removeprefix('pci')}:01.1/{pci}"


def _course(pci: str) -> list[State]:
    """What one GPU does in every frame; power is what was drawn since the frame before."""
    load, dice = LOADS[pci], Dice(100 + int(pci[5:7], 16))
    states = [State()]
    for frame in range(COUNT):
        old, new = states[-1], State()
        seconds = SECONDS if frame else 1
        sway = dice.throw(-2, 2) if load.busy else 0
        new.busy = min(100, max(0, load.busy + sway))
        new.memory_busy = max(0, load.memory_busy + (sway if load.busy else 0))
        new.watts = min(CAP_W, load.watts + (3 * sway if load.busy else dice.throw(-1, 1)))
        new.sclk = load.sclk - 4 * sway if load.busy else load.sclk + dice.throw(-2, 2)
        new.junction = load.junction + (sway + 1) // 2
        new.memory_temp = 36 + load.memory_busy * 3 // 10 + load.junction // 10
        new.vram_used = 297_795_584 + (load.vram_gib << 30) + (frame // 6 * (48 << 20) if load.busy else 0)
        new.joules = old.joules + new.watts * seconds
        ticks = SAMPLES_PER_SECOND * seconds
        new.samples = old.samples + ticks
        new.busy_acc = old.busy_acc + new.busy * ticks
        new.memory_acc = old.memory_acc + new.memory_busy * ticks
        new.capped_acc = old.capped_acc + ticks * load.capped // 1000
        new.pcie_acc = old.pcie_acc + load.pcie_gbs * ticks
        new.ecc = (frame >= 9) + (frame >= 17) if pci == PCI[7] else 0
        states.append(new)
    return states[1:]


def _count_xgmi(xgmi: dict[str, list[list[int]]], seconds: int) -> None:
    """Add a step's traffic in KB; what one end writes the other reads, and the slower end sets the pace."""
    for a in PCI:
        for b in PCI:
            if a != b:
                kilobytes = min(LOADS[a].xgmi_gbs, LOADS[b].xgmi_gbs) * 20_000 * seconds
                if PCI[4] in (a, b) and PCI[0] in (a, b):
                    kilobytes = LOADS[PCI[4]].xgmi_gbs * 1_000_000 * seconds
                xgmi[a][1][_link(a, b)] += kilobytes
                xgmi[b][0][_link(b, a)] += kilobytes


def _link(of: str, to: str) -> int:
    return [p for p in PCI if p != of].index(to)


def _changing(pci: str, frame: int, s: State, xgmi: list[list[int]]) -> dict[str, bytes]:
    load = LOADS[pci]
    hwmon = _hwmon(pci)
    out = {
        "gpu_busy_percent": f"{s.busy}\n",
        "mem_busy_percent": f"{s.memory_busy}\n",
        "mem_info_vram_used": f"{s.vram_used}\n",
        "mem_info_vis_vram_used": f"{s.vram_used}\n",
        "mem_info_gtt_used": f"{25_239_552 + 4096 * load.pcie_gbs * 1000}\n",
        "pp_dpm_sclk": _sclk_levels(s.sclk),
        "pp_dpm_mclk": _levels((900, 1100, 1300), load.mclk),
        "pp_dpm_fclk": _levels((1300, 1550, 1800), 1800 if load.busy else 1300),
        "ras/umc_err_count": f"ue: 0\nce: {s.ecc}\nde: 0\n",
        f"{hwmon}/temp2_input": f"{s.junction * 1000}\n",
        f"{hwmon}/temp3_input": f"{s.memory_temp * 1000}\n",
        f"{hwmon}/power1_input": f"{s.watts * 1_000_000}\n",
        f"{hwmon}/freq1_input": f"{s.sclk * 1_000_000}\n",
        f"{hwmon}/freq2_input": f"{load.mclk * 1_000_000}\n",
        f"{hwmon}/in0_input": f"{(720 + s.sclk // 12 if load.busy else 690)}\n",
    }
    return {name: text.encode() for name, text in out.items()} | {
        "gpu_metrics": _gpu_metrics(load, frame, s, xgmi)
    }


def _sclk_levels(mhz: int) -> str:
    if mhz < 500:
        return f"S: {mhz}Mhz *\n0: 500Mhz \n1: 2100Mhz \n"
    return f"0: 500Mhz \n1: {mhz}Mhz *\n2: 2100Mhz \n"


def _levels(levels: tuple[int, ...], now: int) -> str:
    return "".join(f"{i}: {mhz}Mhz {'*' if mhz == now else ''}\n" for i, mhz in enumerate(levels))


def _gpu_metrics(load: Load, frame: int, s: State, xgmi: list[list[int]]) -> bytes:
    """Table v1.6, 1664 bytes; what the firmware does not fill stays all ones."""
    blob = bytearray(b"\xff" * 1664)

    def put(offset: int, width: int, *values: int) -> None:
        code = {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
        struct.pack_into(f"<{len(values)}{code}", blob, offset, *values)

    seconds = 1 + SECONDS * frame
    put(0, 2, 1664)
    put(2, 1, 1, 6)
    put(4, 2, s.junction, s.memory_temp, s.junction - 4, s.watts, s.busy, s.memory_busy)
    put(16, 8, s.joules << 16, seconds * 1_000_000_000)  # energy in 2^-16 J; system clock in ns
    put(32, 4, s.samples, 0, s.capped_acc, s.capped_acc // 200, 0, 0, 0)
    put(60, 2, 16, 320, 16, 32)  # PCIe and xGMI width and speed
    put(68, 4, s.busy_acc, s.memory_acc)
    put(80, 8, s.pcie_acc, load.pcie_gbs, 2, 0, 0)
    put(120, 4, 0, 0)
    put(128, 8, *xgmi[0], _GONE[8])
    put(192, 8, *xgmi[1], _GONE[8])
    put(256, 8, seconds * 100_000_000)  # in steps of 10 ns
    put(264, 2, *(s.sclk - xcd % 3 for xcd in range(XCDS)))
    put(280, 2, *[1143 if load.busy else 30] * 4)
    put(288, 2, *[29] * 4)
    put(296, 2, *[22] * 4)
    put(304, 2, load.mclk, 1)
    put(312, 4, *[s.busy] * XCDS)  # the one partition: busy per XCD, JPEG, VCN, busy summed
    put(312 + 32, 2, *[0] * 32)
    put(312 + 96, 2, *[0] * 4)
    put(312 + 104, 8, *[s.busy_acc] * XCDS)
    put(1656, 4, 0)
    return bytes(blob)


def _hwmon(pci: str) -> str:
    return f"hwmon/hwmon{3 + PCI.index(pci)}"


def _still(pci: str, index: int) -> dict[str, bytes]:
    hwmon = _hwmon(pci)
    out: dict[str, object] = {
        "vendor": "0x1002",
        "device": "0x74a1",
        "subsystem_vendor": "0x1002",
        "subsystem_device": "0x74a1",
        "revision": "0x00",
        "class": "0x120000",
        "uevent": "DRIVER=amdgpu\nPCI_CLASS=120000\nPCI_ID=1002:74A1\nPCI_SUBSYS_ID=1002:74A1\n"
        f"PCI_SLOT_NAME={pci}",
        "unique_id": f"{_unique(pci):016x}",
        "product_name": "AMD Instinct MI300X OAM",
        "vbios_version": "113-M3000100-103",
        "fw_version/smc_fw_version": "0x00557300",
        "fw_version/mec_fw_version": "0x000000b1",
        "fw_version/sdma_fw_version": "0x00000018",
        "numa_node": index // 4,
        "mem_info_vram_total": VRAM_BYTES,
        "mem_info_vis_vram_total": VRAM_BYTES,
        "mem_info_gtt_total": GTT_BYTES,
        "mem_info_vram_vendor": "hynix",
        "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": 16,
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": 16,
        "pcie_replay_count": 0,
        "current_compute_partition": "SPX",
        "available_compute_partition": "SPX, DPX, QPX, CPX",
        "current_memory_partition": "NPS1",
        "pp_dpm_socclk": "0: 889Mhz \n1: 1143Mhz *"
        if LOADS[pci].busy
        else "S: 30Mhz *\n0: 889Mhz \n1: 1143Mhz ",
        "pp_dpm_vclk": "S: 29Mhz *\n0: 914Mhz \n1: 1333Mhz ",
        "pp_dpm_dclk": "S: 22Mhz *\n0: 711Mhz \n1: 1143Mhz ",
        "power_dpm_force_performance_level": "auto",
        "power/runtime_status": "active",
        "power/control": "on",
        "power_state": "D0",
        "xgmi_hive_info/xgmi_hive_id": HIVE,
        "xgmi_device_id": _unique(pci),
        f"{hwmon}/name": "amdgpu",
        f"{hwmon}/temp2_label": "junction",
        f"{hwmon}/temp2_crit": 100_000,
        f"{hwmon}/temp2_emergency": 105_000,
        f"{hwmon}/temp3_label": "mem",
        f"{hwmon}/temp3_crit": 105_000,
        f"{hwmon}/temp3_emergency": 110_000,
        f"{hwmon}/power1_label": "PPT",
        f"{hwmon}/power1_cap": CAP_W * 1_000_000,
        f"{hwmon}/power1_cap_max": CAP_W * 1_000_000,
        f"{hwmon}/power1_cap_min": 0,
        f"{hwmon}/power1_cap_default": CAP_W * 1_000_000,
        f"{hwmon}/freq1_label": "sclk",
        f"{hwmon}/freq2_label": "mclk",
        f"{hwmon}/in0_label": "vddgfx",
        f"drm/card{index + 1}/dev": f"226:{index + 1}",
        f"drm/renderD{RENDER[pci]}/dev": f"226:{RENDER[pci]}",
    }
    out |= {f"ras/{block}_err_count": "ue: 0\nce: 0" for block in RAS_BLOCKS if block != "umc"}
    return {name: f"{value}\n".encode() for name, value in out.items()}


def _links(pci: str, index: int) -> Tree:
    out = {}
    for name in (f"card{index + 1}", f"renderD{RENDER[pci]}"):
        out[f"class/drm/{name}"] = f"../../{device_path(pci)}/drm/{name}".encode()
        out[f"{device_path(pci)}/drm/{name}/device"] = f"../../../{pci}".encode()
    out[f"{device_path(pci)}/{_hwmon(pci)}/device"] = f"../../../{pci}".encode()
    return out


def _unique(pci: str) -> int:
    return 0x00DE_30D0_0000_0000 | location(pci) << 12 | 0x7


def _topology() -> Tree:
    top = "class/kfd/kfd/topology"
    out = {
        f"{top}/generation_id": "2",
        f"{top}/system_properties": "platform_oem 0\nplatform_id 0\nplatform_rev 0",
    }
    nodes: list[str | int] = [0, 1, *sorted(PCI, key=KFD_NODE.__getitem__)]
    for number, what in enumerate(nodes):
        node = f"{top}/nodes/{number}"
        peers = [
            n for n in range(len(nodes)) if n != number and (isinstance(what, str) or n < 2 or _near(n, what))
        ]
        heap, size = (1, VRAM_BYTES) if isinstance(what, str) else (0, GTT_BYTES)
        out |= {
            f"{node}/gpu_id": str(KFD_GPU_ID[what] if isinstance(what, str) else 0),
            f"{node}/name": "ip discovery" if isinstance(what, str) else "",
            f"{node}/properties": _properties(what, len(peers)),
            f"{node}/mem_banks/0/properties": f"heap_type {heap}\nsize_in_bytes {size}\nflags 0\nwidth 8192",
        }
        for i, peer in enumerate(peers):
            out[f"{node}/io_links/{i}/properties"] = _io_link(number, peer)
    return {path: f"{text}\n".encode() for path, text in out.items()}


def _near(node: int, cpu: int) -> bool:
    """Whether a GPU node hangs on that processor."""
    pci = next(p for p, n in KFD_NODE.items() if n == node)
    return PCI.index(pci) // 4 == cpu


def _io_link(a: int, b: int) -> str:
    kind, weight, megabytes = (11, 15, 64_000) if a > 1 and b > 1 else (2, 20, 64_000)
    if a < 2 and b < 2:
        kind, weight, megabytes = 1, 32, 128_000
    return (
        f"type {kind}\nversion_major 0\nversion_minor 0\nnode_from {a}\nnode_to {b}\nweight {weight}\n"
        f"min_latency 0\nmax_latency 0\nmin_bandwidth {megabytes if kind == 11 else 0}\n"
        f"max_bandwidth {megabytes}\nrecommended_transfer_size 0\nflags 1"
    )


def _properties(what: str | int, links: int) -> str:
    gpu = isinstance(what, str)
    values = {
        "cpu_cores_count": 0 if gpu else 96,
        "simd_count": 4 * COMPUTE_UNITS if gpu else 0,
        "mem_banks_count": 1,
        "caches_count": 0,
        "io_links_count": links,
        "p2p_links_count": 0,
        "cpu_core_id_base": 0 if gpu else 96 * int(what),
        "max_waves_per_simd": 8 if gpu else 0,
        "lds_size_in_kb": 64 if gpu else 0,
        "num_gws": 64 if gpu else 0,
        "wave_front_size": 64 if gpu else 0,
        "array_count": 32 if gpu else 0,
        "simd_arrays_per_engine": 1 if gpu else 0,
        "cu_per_simd_array": 10 if gpu else 0,
        "simd_per_cu": 4 if gpu else 0,
        "max_slots_scratch_cu": 32 if gpu else 0,
        "gfx_target_version": 90402 if gpu else 0,
        "vendor_id": 4098 if gpu else 0,
        "device_id": 29857 if gpu else 0,
        "location_id": location(str(what)) if gpu else 0,
        "domain": 0,
        "drm_render_minor": RENDER[str(what)] if gpu else 0,
        "hive_id": HIVE if gpu else 0,
        "num_sdma_engines": 2 if gpu else 0,
        "num_sdma_xgmi_engines": 14 if gpu else 0,
        "num_sdma_queues_per_engine": 8 if gpu else 0,
        "num_cp_queues": 24 if gpu else 0,
        "max_engine_clk_fcompute": 2100 if gpu else 0,
        "local_mem_size": 0,
        "fw_version": 177 if gpu else 0,
        "unique_id": _unique(str(what)) if gpu else 0,
        "num_xcc": XCDS if gpu else 0,
        "max_engine_clk_ccompute": 2400,
    }
    return "\n".join(f"{key} {value}" for key, value in values.items())


def _padded(records: list[bytes]) -> list[bytes]:
    """Records of one length; texts end in as many line ends as it takes."""
    longest = max(map(len, records))
    return [record.ljust(longest, b"\n") for record in records]
