"""Checks: the state the GPUs are in. Reads no file of a GPU that sleeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from exporter.backends.sysfs_cards import asleep
from exporter.backends.sysfs_topology import Socket
from exporter.checks.finding import Check, Seen, Severity, info, listed, ok, warning
from exporter.checks.machine import Machine, Readings, unreadable
from exporter.model import DeviceId, Reason

_LOAD = 0.5
_NEWEST_FOR_TOOLS = 8  # content revision of gpu_metrics that amd-smi before 7.3 can read


def _sleeping(m: Machine) -> Seen:
    names = [s.pci for s in m.sockets() if s.path and asleep(m.sysfs, s.path)]
    if not names and not any(s.path for s in m.sockets()):
        return info("no GPU's power state is known", "")
    if not names:
        return ok("no GPU sleeps")
    return info(
        f"asleep, and left asleep: {listed(names)}",
        f"echo on | sudo tee /sys/bus/pci/devices/{names[0]}/power/control",
    )


def _awake(m: Machine) -> Iterator[Socket]:
    shown = {d.id.pci for d in m.devices} if m.answers else set()
    for s in m.sockets():
        if s.path and s.pci in shown and not asleep(m.sysfs, s.path):
            yield s


def _pairs(readings: Readings) -> tuple[float | None, ...]:
    return tuple(
        readings.get((f"amdgpu_pcie_{name}", ()))
        for name in (
            "link_width_lanes",
            "max_link_width_lanes",
            "link_transfers_per_second",
            "max_link_transfers_per_second",
        )
    )


def _pcie(m: Machine) -> Seen:
    narrow, slow, known = [], [], 0
    for socket, readings in m.readings.items():
        width, widest, speed, fastest = _pairs(readings)
        busy = readings.get(("amdgpu_busy_ratio", ("gfx",)), 0.0)
        known += width is not None and widest is not None
        if width is not None and widest is not None and width < widest:
            narrow.append((busy >= _LOAD, f"{socket.pci} x{width:.0f} of x{widest:.0f}"))
        if speed is not None and fastest is not None and speed < fastest:
            slow.append((busy >= _LOAD, f"{socket.pci} {speed / 1e9:g} of {fastest / 1e9:g} GT/s"))
    loaded = [text for under_load, text in (*narrow, *slow) if under_load]
    if loaded:
        return warning(f"below its maximum under load: {listed(loaded)}")
    if narrow:
        return info(
            f"narrower than it can be, without load: {listed(t for _, t in narrow)}; look again under load"
        )
    if slow:
        return info(f"slower than it can be, which without load saves power: {listed(t for _, t in slow)}")
    return (
        ok("every PCIe link is at its maximum")
        if known
        else info("no link's width and maximum are known", "")
    )


def _level(m: Machine) -> Seen:
    levels = {
        s.pci: level
        for s in _awake(m)
        if (level := m.sysfs.text(f"{s.path}/power_dpm_force_performance_level"))
    }
    low = [pci for pci, level in levels.items() if level in ("low", "profile_min_sclk", "profile_min_mclk")]
    other = [f"{pci} {level}" for pci, level in levels.items() if level != "auto" and pci not in low]
    if low:
        return warning(
            f"held at low clocks: {listed(f'{pci} {levels[pci]}' for pci in low)}",
            f"echo auto | sudo tee /sys/bus/pci/devices/{low[0]}/power_dpm_force_performance_level",
        )
    if other:
        return info(f"the performance level was set by hand: {listed(other)}")
    return (
        ok(f"performance level auto on {len(levels)} GPUs")
        if levels
        else info("no performance level is known", "")
    )


def _partitions(m: Machine) -> Seen:
    modes = Counter(
        (d.compute_partition, d.memory_partition) for d in {d.id.pci: d for d in m.devices}.values()
    )
    known = {mode: n for mode, n in modes.items() if mode[0]}
    text = listed(
        f"{n}x {mode[0]}{f'/{mode[1]}' if mode[1] else ''}" for mode, n in sorted(known.items(), key=str)
    )
    if not known:
        sockets = Counter(d.id.pci for d in m.devices if d.id.partition is not None)
        if sockets:
            each = listed(f"{n} with {parts}" for parts, n in sorted(Counter(sockets.values()).items()))
            return info(f"GPUs are partitioned ({each}), and no mode is told", "")
        return ok("no GPU is partitioned")
    if len(modes) > 1:
        return info(f"different modes on one node: {text}")
    return ok(f"one mode everywhere: {text}")


def _ras(m: Machine) -> Seen:
    found = []
    for socket, readings in m.readings.items():
        for kind in ("uncorrectable", "deferred"):
            metric = f"amdgpu_ecc_{kind}_errors_total"
            if count := sum(v for (name, _), v in readings.items() if name == metric):
                found.append(f"{socket.pci} {count:.0f} {kind}")
    if found:
        return warning(f"since the driver started: {listed(found)}")
    if any(name.startswith("amdgpu_ecc_") for r in m.readings.values() for name, _ in r):
        return ok("no uncorrectable or deferred error since the driver started")
    if all((d.model or "").startswith("Radeon") for d in m.devices):
        return ok("no GPU here counts errors, as consumer cards do not")
    return info("no GPU shows its error counts here; guests and some containers have none", "")


def _pages(m: Machine) -> Seen:
    found = [
        f"{socket.pci} {count:.0f} {state}"
        for socket, readings in m.readings.items()
        for state in ("pending", "unreservable")
        if (count := readings.get(("amdgpu_retired_pages", (state,)), 0))
    ]
    if found:
        return warning(f"bad memory pages that are not out of use: {listed(found)}")
    denied = [
        s.pci for s in _awake(m) if unreadable(m.sysfs, f"{s.path}/ras/gpu_vram_bad_pages") is Reason.DENIED
    ]
    if denied:
        return info(f"the list of bad pages is for root only: {listed(denied)}", "sudo amdgpu-exporter check")
    if not any(name == "amdgpu_retired_pages" for r in m.readings.values() for name, _ in r):
        return ok("no GPU here lists bad memory pages")
    return ok("no bad memory page waits")


def _tables(m: Machine) -> Seen:
    newer = []
    for s in _awake(m):
        try:
            head = m.sysfs.read(f"{s.path}/gpu_metrics")[:4]
        except OSError:
            continue
        if len(head) == 4 and head[2] == 1 and head[3] > _NEWEST_FOR_TOOLS:
            newer.append(s.pci)
    tool = m.tools.get("amd-smi")
    version = tool.version if tool else None
    if not newer or version is None or not _below(version, (26, 3), (7, 3)):
        return ok("nothing the kernel serves is too new for the tools")
    return info(f"{listed(newer)}: gpu_metrics is newer than amd-smi {version} can read; it shows N/A or 0 W")


def _below(version: str, library: tuple[int, ...], rocm: tuple[int, ...]) -> bool:
    """A tool is numbered as its library (26 and up) or as ROCm."""
    parts = tuple(int(n) for n in version.split("."))
    return parts < (library if parts[0] >= 20 else rocm)


def _heat(m: Machine) -> Seen:
    hot = []
    for socket, readings in m.readings.items():
        for (metric, labels), value in readings.items():
            limit = readings.get(("amdgpu_temperature_limit_celsius", (*labels, "critical")))
            if metric == "amdgpu_temperature_celsius" and limit and value >= limit:
                hot.append(f"{socket.pci} {labels[0]} {value:.0f} °C of {limit:.0f} °C")
    if hot:
        return warning(f"at its critical temperature: {listed(hot)}")
    if not any(name == "amdgpu_temperature_limit_celsius" for r in m.readings.values() for name, _ in r):
        return info("no sensor with a limit is known", "")
    return ok("no sensor is at its limit")


def _idle_sockets(m: Machine) -> Seen:
    silent = [d.id.pci for d in m.devices if not m.readings.get(DeviceId(d.id.pci))]
    sleeping = {s.pci for s in m.sockets() if s.path and asleep(m.sysfs, s.path)}
    silent = [pci for pci in dict.fromkeys(silent) if pci not in sleeping]
    return (
        warning(f"listed, and give no reading: {listed(silent)}")
        if silent
        else ok("every GPU gives readings")
    )


CHECKS: tuple[Check, ...] = (
    Check(
        "gpu.asleep",
        "GPUs the kernel has suspended. Reading would wake them, so they have no readings; nothing is wrong.",
        Severity.INFO,
        "echo on | sudo tee /sys/bus/pci/devices/ADDRESS/power/control",
        _sleeping,
    ),
    Check(
        "gpu.silent",
        "GPUs that are listed and give nothing: in reset, lost, or not ours to read.",
        Severity.WARNING,
        "sudo dmesg | grep -i amdgpu | tail -50",
        _idle_sockets,
        of_gpus=True,
    ),
    Check(
        "gpu.pcie_link",
        "PCIe lanes and speed at their maximum under load; less is a bad slot, riser or card.",
        Severity.WARNING,
        "sudo lspci -vv -d 1002: | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'",
        _pcie,
        of_gpus=True,
    ),
    Check(
        "gpu.performance_level",
        "The power profile: anything but auto was set by somebody, and low makes everything slow.",
        Severity.WARNING,
        "echo auto | sudo tee /sys/class/drm/card*/device/power_dpm_force_performance_level",
        _level,
        of_gpus=True,
    ),
    Check(
        "gpu.partitions",
        "One partition mode on all GPUs of a node: schedulers and dashboards expect it.",
        Severity.INFO,
        "amdgpu-exporter devices",
        _partitions,
        of_gpus=True,
    ),
    Check(
        "gpu.errors",
        "Uncorrectable and deferred (poison) errors since the driver started: results may be wrong.",
        Severity.WARNING,
        "grep . /sys/class/drm/card*/device/ras/*_err_count  # drain the node, then reset the GPU",
        _ras,
        of_gpus=True,
    ),
    Check(
        "gpu.bad_pages",
        "Bad memory pages that wait for a reset or are still in use.",
        Severity.WARNING,
        "sudo cat /sys/class/drm/card*/device/ras/gpu_vram_bad_pages  # drain the node, then reset the GPU",
        _pages,
        of_gpus=True,
    ),
    Check(
        "gpu.temperature",
        "Every sensor below the limit its own GPU states.",
        Severity.WARNING,
        "grep . /sys/class/drm/card*/device/hwmon/hwmon*/temp*_{label,input,crit}",
        _heat,
        of_gpus=True,
    ),
    Check(
        "gpu.table_version",
        "Tables newer than the vendor's tool knows: it shows N/A or 0 where the exporter has values.",
        Severity.INFO,
        "amd-smi version",
        _tables,
        of_gpus=True,
    ),
)
