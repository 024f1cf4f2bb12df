"""The amdsmi backend on a pretend library, and a sysfs tree that shows the same hardware."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trees import TestClock, blob, put

from exporter.backends.amdsmi import AmdsmiBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.host import Root
from exporter.model import Device, Gap, RawGroups, Reason, Series, SourceError, Value

ROCM = Path(__file__).resolve().parent.parent / "fakes" / "amdsmi_fake" / "rocm"
RELEASES = ("6.1", "6.2", "6.3", "6.4", "7.0", "7.2", "10.0")
NODES = ("mi300x:2", "mi300x-cpx:1", "mi210:2", "mi250x:1", "rx7800xt:1", "mi300x:1,rx7800xt:1")


class Driver:
    """One backend on one pretend machine: poll it, see readings and gaps, switch faults."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp: Path, **options: Any) -> None:
        release, node = options.pop("release", "7.0"), options.pop("node", "mi300x:2")
        monkeypatch.setenv("FAKE_AMDSMI_RELEASE", release)
        monkeypatch.setenv("FAKE_AMDSMI_NODE", node)
        for name, value in options.pop("env", {}).items():
            monkeypatch.setenv(name, value)
        self.clock = TestClock()
        self.backend = AmdsmiBackend(
            Root(str(tmp)),
            environ={**os.environ, "ROCM_PATH": str(ROCM)},
            path=[],
            clock=self.clock,
            **options,
        )
        self._extractor = Extractor(CATALOGUE, "amdsmi")
        self.devices: list[Device] = []
        self.groups: list[RawGroups] = []
        self.gaps: list[Gap] = []

    def poll(self) -> dict[Series, Value]:
        self.clock.at += 5
        series: list[Series] = []
        values: list[Value] = []
        self.gaps = []
        pairs = self.backend.poll()
        for device, groups in pairs:
            self._extractor.extract(device, groups, series, values, self.gaps)
        self.devices, self.groups = [d for d, _ in pairs], [g for _, g in pairs]
        assert len(set(series)) == len(series), "a series stands twice"
        return dict(zip(series, values, strict=True))

    def fails(self) -> SourceError:
        with pytest.raises(SourceError) as caught:
            self.poll()
        return caught.value

    @property
    def control(self) -> Any:
        return sys.modules["amdsmi"].CONTROL

    def reasons(self, metric: str) -> set[Reason]:
        return {gap.reason for gap in self.gaps if gap.metric == metric}


def forget() -> Iterator[None]:
    """Leave no pretend library behind for other tests."""
    yield
    for name in [n for n in sys.modules if n == "amdsmi" or n.startswith("amdsmi.")]:
        del sys.modules[name]


def value(readings: dict[Series, Value], metric: str, *labels: str, pci: str | None = None) -> Value | None:
    """The one reading of that name and those labels, of that GPU or of the only one there is."""
    found = [
        v
        for s, v in readings.items()
        if s.metric == f"amdgpu_{metric}"
        and s.labels == labels
        and (pci is None or (s.device is not None and s.device.pci == pci))
    ]
    assert len(found) <= 1, (metric, labels, found)
    return found[0] if found else None


_RENAMED = {
    "current_socket_power": "curr_socket_power",
    "current_gfxclks": "current_gfxclk",
    "current_socclks": "current_socclk",
    "current_vclk0s": "current_vclk0",
    "current_dclk0s": "current_dclk0",
}
_SCALAR_CLOCKS = {
    "sclk": "current_gfxclk",
    "mclk": "current_uclk",
    "socclk": "current_socclk",
    "vclk": "current_vclk0",
    "dclk": "current_dclk0",
}
_WORDS = {"EDGE": "edge", "HOTSPOT": "junction", "VRAM": "mem"}


def sysfs_of(root: Path, gpus: list[dict[str, Any]], version: tuple[int, int]) -> None:
    """The kernel's files for the raw state the pretend library holds."""
    for card, gpu in enumerate(gpus):
        device = root / "devices/pci0000:00" / gpu["bdf"]
        total, used = zip(*(gpu["memory"][k] for k in ("VRAM", "VIS_VRAM", "GTT")), strict=True)
        files = {
            "vendor": "0x1002",
            "device": hex(gpu["device_id"]),
            "revision": f"0x{gpu['rev_id']:02x}",
            "class": "0x120000",
            "unique_id": f"{int(gpu['serial'], 16):016x}",
            "product_name": gpu["name"],
            "vbios_version": gpu["vbios"],
            "power/runtime_status": "active",
            "current_link_width": str(gpu["pcie"][0]),
            "current_link_speed": f"{gpu['pcie'][1] / 1000} GT/s PCIe",
            "max_link_width": str(gpu["pcie"][2]),
            "max_link_speed": f"{gpu['pcie'][3] / 1000} GT/s PCIe",
            "pcie_replay_count": str(gpu["pcie"][4]),
            "hwmon/hwmon0/name": "amdgpu",
            "hwmon/hwmon0/power1_cap": str(gpu["cap_uw"]),
            "pp_dpm_fclk": f"0: {gpu['clocks']['DF']}Mhz *",
        }
        for domain, field in _SCALAR_CLOCKS.items():
            if gpu["table"][field] != 0xFFFF:
                files[f"pp_dpm_{domain}"] = f"0: {gpu['table'][field]}Mhz *"
        for i, pool in enumerate(("vram", "vis_vram", "gtt")):
            files[f"mem_info_{pool}_total"], files[f"mem_info_{pool}_used"] = str(total[i]), str(used[i])
        for n, (name, (now, critical, emergency)) in enumerate(gpu["temps"].items(), 1):
            stem = f"hwmon/hwmon0/temp{n}"
            files |= {f"{stem}_label": _WORDS[name], f"{stem}_input": str(now * 1000)}
            files |= {f"{stem}_crit": str(critical * 1000), f"{stem}_emergency": str(emergency * 1000)}
        if gpu["fan"] is not None:
            files["hwmon/hwmon0/fan1_input"] = str(gpu["fan"])
        if gpu["volt"]:
            files |= {
                "hwmon/hwmon0/in0_label": "vddgfx",
                "hwmon/hwmon0/in0_input": str(gpu["volt"]["VDDGFX"]),
            }
        for block, (ce, ue, de) in gpu["ecc"].items():
            files[f"ras/{block.lower()}_err_count"] = f"ue: {ue}\nce: {ce}\n" + (f"de: {de}\n" if de else "")
        if gpu["pages"] is not None:
            rows = (f"0x{i:08x} : 0x00001000 : {'RPF'[s]}" for i, s in enumerate(gpu["pages"]))
            files["ras/gpu_vram_bad_pages"] = "\n".join(rows)
        if gpu["mode"]:
            files |= {
                "current_compute_partition": gpu["mode"],
                "current_memory_partition": gpu["memory_mode"],
            }
        for name, content in files.items():
            put(device / name, content)
        put(device / "gpu_metrics", _table(gpu["table"], version))
        (root / "class/drm").mkdir(parents=True, exist_ok=True)
        (device / "drm" / f"card{card}").mkdir(parents=True)
        (device / "drm" / f"card{card}" / "device").symlink_to("../..")
        (root / f"class/drm/card{card}").symlink_to(f"../../devices/pci0000:00/{gpu['bdf']}/drm/card{card}")


def _table(table: dict[str, Any], version: tuple[int, int]) -> bytes:
    fields = {k: v if isinstance(v, list) else [v] for k, v in table.items() if "." not in k}
    if version >= (1, 4):
        # These tables hold arrays where the library gives the first slot by an older name, too.
        fields |= {new: fields[old] for old, new in _RENAMED.items()}
    slots = tuple(
        {name.partition(".")[2]: rows[i] for name, rows in table.items() if name.startswith("xcp_stats.")}
        for i in range(8)
    )
    return blob(version, fields, slots)
