"""Machines for the checks: made trees looked at without children, tools or rights of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import trees

from exporter.checks.check import CHECKS
from exporter.checks.finding import Finding, find
from exporter.checks.machine import Machine, Settings, Trial
from exporter.config import Config
from exporter.host import Root
from exporter.model import DeviceId
from exporter.vitals import count


def machine(root: Path, *, live: bool = True, **changes: Any) -> Machine:
    """The tree under ``root`` as a live machine, polled once through the sysfs backend.

    ``root`` is also the root of all files and the state folder; ``root/proc`` is procfs where it is there.
    """
    polled = trees.Machine(root)
    polled.poll()
    readings: dict[DeviceId, dict[tuple[str, tuple[str, ...]], float]] = {}
    for series, value in polled.pairs():
        if series.device and isinstance(value, int | float):
            readings.setdefault(series.device.socket, {})[series.metric, series.labels] = value
    missing = count(gap.reason for gap in polled.gaps)
    trial = Trial("sysfs", True, "", tuple(polled.devices), len(polled.series), missing)
    made = Machine(
        sysfs=Root(str(root)),
        procfs=Root(str(root / "proc")) if (root / "proc").is_dir() or live else None,
        files=Root(str(root)),
        live=live,
        settings=Settings(Config(), state=root / "state"),
        trials=(trial,),
        readings=readings,
        user="operator",
        access=lambda _path: True,
        daemon="amdgpu_exporter_build_info 1\n",
    )
    return replace(made, **changes)


def one(ident: str, looked: Machine) -> Finding:
    [check] = [c for c in CHECKS if c.id == ident]
    found = find(check, looked)
    assert "\n" not in found.seen
    return found


def healthy(root: Path) -> Path:
    """A node of two MI300X on which every check is content."""
    for device in trees.mi300x(root, sockets=2):
        trees.put(device / "power_dpm_force_performance_level", "auto")
        pci = root / "bus/pci/devices" / device.name
        pci.parent.mkdir(parents=True, exist_ok=True)
        pci.symlink_to(device)
        (device / "driver").symlink_to("../../../bus/pci/drivers/amdgpu")
        trees.put(device / "ras/gfx_err_count", "ue: 0\nce: 0")
        trees.put(device / "ras/umc_err_count", "ue: 0\nce: 2\nde: 0")
        trees.put(device / "ras/gpu_vram_bad_pages", "0x00000001 : 0x00001000 : R")
    (root / "bus/pci/drivers/amdgpu").mkdir(parents=True)
    trees.put(root / "module/amdgpu/initstate", "live")
    trees.put(root / "kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    trees.put(root / "devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance")
    trees.put(root / "opt/rocm/.info/version", "7.0.2-56")
    trees.put(root / "proc/self/status", "CapEff:\t000001ffffffffff")
    trees.put(root / "proc/self/attr/current", "unconfined")
    trees.put(root / "proc/sys/kernel/perf_event_paranoid", "4")
    trees.put(root / "proc/sys/kernel/yama/ptrace_scope", "1")
    trees.put(root / "proc/meminfo", "MemTotal: 1 kB\nHugePages_Total:       0")
    (root / "state").mkdir()
    return root


def without(mapping: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in mapping.items() if k not in names}
