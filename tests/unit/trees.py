"""Builds sysfs trees for tests: an invented MI300X node, and captured samples laid out as a kernel does."""

from __future__ import annotations

import atexit
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from exporter.backends.sysfs import SysfsBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.catalogue.schema import Catalogue
from exporter.formats import gpu_metrics
from exporter.host import READ_LIMIT, Clock, Root
from exporter.model import Device, DeviceId, Gap, Series, Value

VRAM = 206141652992
HWMON_FILES = {
    "name": "amdgpu",
    "temp2_input": "66000",
    "temp2_label": "junction",
    "temp2_crit": "100000",
    "temp2_emergency": "105000",
    "temp3_input": "48000",
    "temp3_label": "mem",
    "temp3_crit": "95000",
    "temp3_emergency": "105000",
    "power1_input": "410000000",
    "power1_cap": "750000000",
    "freq1_input": "2100000000",
    "freq1_label": "sclk",
    "freq2_input": "1300000000",
    "freq2_label": "mclk",
    "in0_input": "812",
    "in0_label": "vddgfx",
}
DEVICE_FILES = {
    "vendor": "0x1002",
    "device": "0x74a1",
    "revision": "0x00",
    "class": "0x120000",
    "power/runtime_status": "active",
    "gpu_busy_percent": "37",
    "mem_busy_percent": "12",
    "vcn_busy_percent": "5",
    "mem_info_vram_total": str(VRAM),
    "mem_info_vram_used": "51539607552",
    "mem_info_vis_vram_total": str(VRAM),
    "mem_info_vis_vram_used": "51539607553",
    "mem_info_gtt_total": "1082331758592",
    "mem_info_gtt_used": "21495808",
    "pp_dpm_sclk": "0: 132Mhz\n1: 2100Mhz *",
    "pp_dpm_mclk": "0: 900Mhz\n1: 1300Mhz *",
    "pp_dpm_fclk": "0: 1200Mhz\n1: 1800Mhz *",
    "pp_dpm_socclk": "0: 28Mhz *\n1: 1143Mhz",
    "pp_dpm_vclk": "0: 29Mhz *\n1: 1000Mhz",
    "pp_dpm_dclk": "0: 22Mhz *\n1: 1000Mhz",
    "current_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": "16",
    "pcie_replay_count": "3",
    "numa_node": "0",
    "vbios_version": "113-M3000100-102",
    "fw_version/smc_fw_version": "0x00556a00",
    "fw_version/mec_fw_version": "0x000000a8",
    "fw_version/uvd_fw_version": "0x00000000",
    "current_compute_partition": "SPX",
    "current_memory_partition": "NPS1",
    "ras/umc_err_count": "ue: 0\nce: 2\nde: 1",
    "ras/gfx_err_count": "ue: 1\nce: 0",
    "ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P",
}
# Reading one of these costs a second, wakes or changes something.
FORBIDDEN_FILES = (
    "pcie_bw",
    "pp_od_clk_voltage",
    "pp_features",
    "pp_table",
    "xgmi_error",
)
METRICS = {
    "temperature_hotspot": [67],
    "temperature_mem": [49],
    "temperature_vrsoc": [55],
    "curr_socket_power": [411],
    "average_gfx_activity": [38],
    "average_umc_activity": [13],
    "energy_accumulator": [6122129286992],
    "accumulation_counter": [8213780],
    "prochot_residency_acc": [0],
    "ppt_residency_acc": [4711],
    "socket_thm_residency_acc": [12],
    "vr_thm_residency_acc": [0],
    "hbm_thm_residency_acc": [3],
    "pcie_link_width": [16],
    "pcie_link_speed": [320],
    "pcie_l0_to_recov_count_acc": [9],
    "pcie_replay_count_acc": [4],
    "pcie_replay_rover_count_acc": [0],
    "pcie_nak_sent_count_acc": [5],
    "pcie_nak_rcvd_count_acc": [6],
    "gfx_activity_acc": [308_016_750],
    "mem_activity_acc": [106_779_140],
    "xgmi_read_data_acc": [1000 + i for i in range(7)],
    "xgmi_write_data_acc": [2000 + i for i in range(7)],
    "xgmi_link_status": [1, 1, 1, 1, 1, 1, 0],
    "current_gfxclk": [2100 + i for i in range(8)],
    "current_socclk": [1100 + i for i in range(4)],
    "current_vclk0": [29 + i for i in range(4)],
    "current_dclk0": [22 + i for i in range(4)],
    "current_uclk": [1300],
    "num_partition": [1],
}
SLOT = {
    "gfx_busy_inst": [30 + i for i in range(8)],
    "jpeg_busy": [0] * 32,
    "vcn_busy": [0, 8, 0, 0],
    "gfx_busy_acc": [70_000_000 + i for i in range(8)],
    "gfx_below_host_limit_ppt_acc": [400 + 2 * i for i in range(8)],
    "gfx_below_host_limit_thm_acc": [10] * 8,
    "gfx_low_utilization_acc": [5_000 + i for i in range(8)],
    "gfx_below_host_limit_total_acc": [900 + i for i in range(8)],
}
_CODE = {1: "B", 2: "H", 4: "I", 8: "Q"}


def blob(
    version: tuple[int, int], values: dict[str, list[int]], slots: tuple[dict[str, list[int]], ...] = ()
) -> bytes:
    """A gpu_metrics table; what is not given stays all ones, as the kernel leaves it."""
    layout = gpu_metrics.table(version)
    out = bytearray(b"\xff" * layout.size)
    struct.pack_into("<HBB", out, 0, layout.size, *version)
    _fill(out, layout, 0, values)
    if layout.partitions:
        nested = gpu_metrics.partition_table(layout.partitions[0])
        for i, slot in enumerate(slots):
            _fill(out, nested, layout.partitions[1] + i * nested.size, slot)
    return bytes(out)


def _fill(out: bytearray, layout: gpu_metrics.Table, start: int, values: dict[str, list[int]]) -> None:
    for name, numbers in values.items():
        if name in layout.offsets:
            at, width, count = layout.offsets[name]
            struct.pack_into(f"<{len(numbers[:count])}{_CODE[width]}", out, start + at, *numbers[:count])


def attributes(rows: list[tuple[int, int, list[int]]], revision: int = 9) -> bytes:
    """A self-describing table of (id, type number, values)."""
    out = b""
    for ident, kind, values in rows:
        out += struct.pack("<Q", kind << 20 | ident << 10 | len(values))
        out += struct.pack(f"<{len(values)}{'BbHhIiQq'[kind]}", *values)
    return struct.pack("<HBBi", 8 + len(out), 1, revision, len(rows)) + out


def mi300x(
    root: Path, sockets: int = 1, partitions: int = 1, forbidden: bool = True, buses: tuple[int, ...] = ()
) -> list[Path]:
    """An invented node of MI300X under ``root``; returns the PCI device folders by address."""
    devices = []
    node = root / "class/kfd/kfd/topology/nodes"
    put(node.parent / "generation_id", "1")
    put(root / "class/devcoredump/disabled", "0")
    put(node / "0/properties", "cpu_cores_count 96\nsimd_count 0\nlocation_id 0")
    put(node / "0/gpu_id", "0")
    (node.parent.parent / "proc").mkdir()
    for s in range(sockets):
        bus = buses[s] if buses else 5 + 0x20 * s
        device = root / f"devices/pci0000:00/0000:{bus:02x}:00.0"
        devices.append(device)
        for name, text in DEVICE_FILES.items():
            put(device / name, text)
        put(device / "uevent", f"DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME={device.name}")
        put(device / "unique_id", f"{0x1D5F1D3BF5B1E400 + s:016x}")
        put(device / "serial_number", f"69210300{s:04d}")
        for name in FORBIDDEN_FILES if forbidden else ():
            put(device / name, "must never be read")
        for name, text in HWMON_FILES.items():
            put(device / f"hwmon/hwmon{s + 2}" / name, text)
        slots = (
            tuple(SLOT for _ in range(1))
            if partitions == 1
            else tuple(
                {**SLOT, "gfx_busy_inst": [10 * p + i for i in range(8 // partitions)]}
                for p in range(partitions)
            )
        )
        put(device / "gpu_metrics", blob((1, 8), METRICS, slots))
        card = s * partitions
        _drm(root, device, card, 128 + card)
        if partitions > 1:
            put(device / "current_compute_partition", {2: "DPX", 4: "QPX", 8: "CPX"}[partitions])
        for p in range(partitions):
            if p:
                _drm(root, root / f"devices/platform/amdgpu_xcp.{s * 8 + p}", card + p, 128 + card + p)
            n = 1 + card + p
            put(node / f"{n}/gpu_id", str(10000 + n))
            put(node / f"{n}/name", "ip discovery")
            put(
                node / f"{n}/properties",
                f"cpu_cores_count 0\nsimd_count {1216 // partitions}\nsimd_per_cu 4\nvendor_id 4098\n"
                f"device_id 29857\ngfx_target_version 90402\nlocation_id {bus << 8 | p}\ndomain 0\n"
                f"drm_render_minor {128 + card + p}\nunique_id {0x1D5F1D3BF5B1E400 + s}\n"
                f"hive_id 123456789\nnum_xcc {8 // partitions}",
            )
            put(
                node / f"{n}/mem_banks/0/properties",
                f"heap_type 1\nsize_in_bytes {VRAM // partitions}",
            )
    return devices


def dumped(root: Path, name: str, device: Path) -> Path:
    """A core dump that the driver left of ``device``."""
    folder = root / "class/devcoredump" / name
    folder.mkdir(parents=True)
    (folder / "failing_device").symlink_to(os.path.relpath(device, folder))
    put(folder / "data", "must never be read")
    return folder


def host(proc: Path) -> Path:
    """A procfs that shows the whole host."""
    put(proc / "2/comm", "kthreadd")
    return proc


def alive(
    proc: Path, pid: int, *, user: int = 1000, start: int = 5000, state: str = "S", threads: int = 4
) -> None:
    """One process, with a name that is hard to step over."""
    fields = ["0"] * 16 + [str(threads), "0"]
    put(proc / f"{pid}/stat", f"{pid} (a) b) R 1) {state} {' '.join(fields)} {start} 0 0")
    put(proc / f"{pid}/status", f"Name:\ta\nUid:\t{user}\t0\t0\t0\nGid:\t7\t7\t7\t7")


def using(
    root: Path,
    pid: int | str,
    vram: dict[int, int],
    queues: tuple[tuple[int, int], ...] = (),
    **counters: int,
) -> Path:
    """One entry of the compute driver's list: memory by GPU id, (GPU id, type) of queues, counters."""
    base = root / f"class/kfd/kfd/proc/{pid}"
    (base / "queues").mkdir(parents=True, exist_ok=True)
    put(base / "pasid", "32768")
    for gpu, size in vram.items():
        put(base / f"vram_{gpu}", str(size))
        put(base / f"sdma_{gpu}", str(counters.get("sdma_us", 0)))
        put(base / f"stats_{gpu}/evicted_ms", str(counters.get("evicted_ms", 0)))
        put(base / f"stats_{gpu}/cu_occupancy", str(counters.get("occupied", 0)))
        for name, key in (("faults", "faults"), ("page_in", "pages_in"), ("page_out", "pages_out")):
            put(base / f"counters_{gpu}/{name}", str(counters.get(key, 0)))
    for number, (gpu, kind) in enumerate(queues):
        put(base / f"queues/{number}/gpuid", str(gpu))
        put(base / f"queues/{number}/type", str(kind))
        put(base / f"queues/{number}/size", "16777216")
    return base


def _drm(root: Path, device: Path, card: int, render: int) -> None:
    for name in (f"card{card}", f"renderD{render}"):
        folder = device / "drm" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to("../..")
        link = root / "class/drm" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../{folder.relative_to(root)}")
    (root / f"class/drm/card{card}-DP-1").mkdir(exist_ok=True)


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())


def sample_names(samples: Path) -> list[str]:
    """Every captured tree: those with a DRM card and those with KFD topology only."""
    return sorted(
        s.name
        for s in (samples / "hardware").iterdir()
        if list(s.glob("card*/device")) or (s / "kfd/topology").is_dir()
    )


def lay_out(samples: Path, name: str, dest: Path) -> Path:
    """One captured sample as a sysfs root."""
    sample = samples / "hardware" / name
    if list(sample.glob("card*/device")):
        tool = samples / "hardware/tools/layout_sys.py"
        subprocess.run([sys.executable, str(tool), str(dest), str(sample)], check=True, timeout=60)
    else:
        shutil.copytree(sample / "kfd", dest / "class/kfd/kfd", symlinks=True)
    return dest


@cache
def laid_out(samples: Path, name: str) -> Path:
    """The same, made once for all tests that only read it."""
    return lay_out(samples, name, Path(_scratch().name) / name)


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="trees-")
    atexit.register(folder.cleanup)
    return folder


class TestClock(Clock):
    """A clock that moves when told."""

    __test__ = False

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


class WatchedRoot(Root):
    """A root that remembers every file read, and fails where told."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.reads: list[str] = []
        self.errors: dict[str, int] = {}  # end of a path -> errno

    def names(self, rel: str) -> list[str]:
        self._fail(rel)
        return super().names(rel)

    def read(self, rel: str, limit: int = READ_LIMIT) -> bytes:
        self.reads.append(rel)
        self._fail(rel)
        return super().read(rel, limit)

    def _fail(self, rel: str) -> None:
        for end, number in self.errors.items():
            if rel.endswith(end):
                raise OSError(number, os.strerror(number), rel)


class Machine:
    """One tree under the sysfs backend: poll it, and see readings and gaps."""

    def __init__(
        self, root: Path, proc: Path | None = None, catalogue: Catalogue = CATALOGUE, **options: Any
    ) -> None:
        self.root = WatchedRoot(root)
        self.procfs = WatchedRoot(proc or root / "no-proc")
        self.clock = TestClock()
        self.backend = SysfsBackend(self.root, self.procfs, clock=self.clock, **options)
        self._extractor = Extractor(catalogue, "sysfs")
        self.series: list[Series] = []
        self.values: list[Value] = []
        self.gaps: list[Gap] = []
        self.devices: list[Device] = []

    def poll(self) -> dict[tuple[str, str, str], Value]:
        """(metric, device, labels) -> value, as text; ``5`` seconds pass first."""
        self.clock.at += 5
        self.series, self.values, self.gaps, self.devices = [], [], [], []
        for device, groups in self.backend.poll():
            self.devices.append(device)
            self._extractor.extract(device, groups, self.series, self.values, self.gaps)
        rows = {(s.metric, _name(s.device), ",".join(s.labels)): v for s, v in self.pairs()}
        assert len(rows) == len(self.series), "a series stands twice"
        return rows

    def pairs(self) -> list[tuple[Series, Value]]:
        return list(zip(self.series, self.values, strict=True))

    def missing(self) -> list[tuple[str, str, str]]:
        return sorted((g.metric, _name(g.device), str(g.reason)) for g in self.gaps)


def _name(device: DeviceId | None) -> str:
    if device is None:
        return ""
    return device.pci if device.partition is None else f"{device.pci}/{device.partition}"
