"""The same trees under Prometheus' own node_exporter: where a file exists both say the same.

node_exporter writes 0 for a file that is missing; there ours must be absent.
"""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import trees
from prometheus_client.parser import text_string_to_metric_families

# node_exporter's name -> (ours, pool or engine, the file below the device, factor)
DRM = {
    "node_drm_gpu_busy_percent": ("busy_ratio", "gfx", "gpu_busy_percent", 0.01),
    "node_drm_memory_vram_size_bytes": ("memory_size_bytes", "vram", "mem_info_vram_total", 1),
    "node_drm_memory_vram_used_bytes": ("memory_used_bytes", "vram", "mem_info_vram_used", 1),
    "node_drm_memory_vis_vram_size_bytes": (
        "memory_size_bytes",
        "visible_vram",
        "mem_info_vis_vram_total",
        1,
    ),
    "node_drm_memory_vis_vram_used_bytes": ("memory_used_bytes", "visible_vram", "mem_info_vis_vram_used", 1),
    "node_drm_memory_gtt_size_bytes": ("memory_size_bytes", "gtt", "mem_info_gtt_total", 1),
    "node_drm_memory_gtt_used_bytes": ("memory_used_bytes", "gtt", "mem_info_gtt_used", 1),
}
HWMON = {
    "node_hwmon_temp_celsius": ("temperature_celsius", ""),
    "node_hwmon_temp_crit_celsius": ("temperature_limit_celsius", ",critical"),
    "node_hwmon_temp_emergency_celsius": ("temperature_limit_celsius", ",emergency"),
    "node_hwmon_in_volts": ("voltage_volts", ""),
}
SINGLE = {
    "node_hwmon_power_average_watt": ("power1", "power_watts"),
    "node_hwmon_power_cap_watt": ("power1", "power_limit_watts"),
    "node_hwmon_power_watt": ("power1", "power_watts"),
    "node_hwmon_fan_rpm": ("fan1", "fan_speed_rpm"),
}

Sample = tuple[str, dict[str, str], float]


def scrape(binary: str, root: Path, port: int) -> list[Sample]:
    """One page of node_exporter with the drm and hwmon collectors on ``root``."""
    url = f"http://127.0.0.1:{port}/metrics"
    command = [
        binary,
        f"--path.sysfs={root}",
        "--collector.disable-defaults",
        "--collector.drm",
        "--collector.hwmon",
        "--web.disable-exporter-metrics",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 20
            while True:
                try:
                    with urllib.request.urlopen(url, timeout=10) as answer:
                        text = answer.read().decode()
                    break
                except urllib.error.URLError:
                    assert process.poll() is None, "node_exporter ended"
                    assert time.monotonic() < deadline, "node_exporter does not answer"
                    time.sleep(0.02)
        finally:
            process.terminate()
    return [(s.name, s.labels, s.value) for f in text_string_to_metric_families(text) for s in f.samples]


def compare(root: Path, theirs: list[Sample]) -> tuple[int, int]:
    """(values that agree, values of theirs without a file); AssertionError on any difference."""
    machine = trees.Machine(root)
    ours = {(m.removeprefix("amdgpu_"), pci, labels): v for (m, pci, labels), v in machine.poll().items()}
    cards = {f"card{d.indices['drm']}": d.id.pci for d in machine.devices}
    names = {(s["chip"], s["sensor"]): s["label"] for n, s, _ in theirs if n == "node_hwmon_sensor_label"}
    # Where a card has both, ours is the average.
    averaged = {s["chip"] for n, s, _ in theirs if n == "node_hwmon_power_average_watt"}
    agreed = invented = 0
    for name, labels, value in theirs:
        if name == "node_hwmon_power_watt" and labels["chip"] in averaged:
            continue
        if name in DRM:
            metric, label, file, factor = DRM[name]
            pci = cards[labels["card"]]
            content = root / f"devices/pci0000:00/{pci}" / file
            if content.is_file() and content.read_text().strip():
                assert ours[metric, pci, label] == pytest.approx(value * factor, rel=1e-12), (name, labels)
                agreed += 1
            else:
                assert value == 0
                # Elsewhere the same fact may stand (the table, KFD); a 0 from nowhere may not.
                assert ours.get((metric, pci, label)) != 0 or metric == "busy_ratio"
                invented += 1
        elif name.startswith("node_hwmon_") and (key := _hwmon(name, labels, names)):
            pci = labels["chip"].split("_", 1)[1].replace("_", ".")
            pci = f"{pci[:-2].replace('.', ':')}{pci[-2:]}"
            assert ours[key[0], pci, key[1]] == pytest.approx(value, rel=1e-9), (name, labels)
            agreed += 1
    return agreed, invented


def _hwmon(name: str, labels: dict[str, str], names: dict[tuple[str, str], str]) -> tuple[str, str] | None:
    if name in HWMON:
        metric, more = HWMON[name]
        return metric, names.get((labels["chip"], labels["sensor"]), labels["sensor"]) + more
    if name in SINGLE and labels["sensor"] == SINGLE[name][0]:
        return SINGLE[name][1], ""
    return None


def test_every_value_of_node_exporter_is_ours_where_the_file_exists(
    samples: Path, node_exporter: str, free_port: Callable[[], int]
) -> None:
    agreed = invented = 0
    for name in trees.sample_names(samples):
        root = trees.laid_out(samples, name)
        if (root / "class/drm").is_dir():
            both, lone = compare(root, scrape(node_exporter, root, free_port()))
            agreed, invented = agreed + both, invented + lone
    assert agreed > 130
    assert invented > 20


def test_a_node_of_instinct_agrees_too_and_missing_files_are_absent(
    tmp_path: Path, node_exporter: str, free_port: Callable[[], int]
) -> None:
    devices = trees.mi300x(tmp_path, sockets=4)
    (tmp_path / "class/hwmon").mkdir()
    for n, device in enumerate(devices, 2):
        (tmp_path / f"class/hwmon/hwmon{n}").symlink_to(device / f"hwmon/hwmon{n}")
        (device / f"hwmon/hwmon{n}/device").symlink_to("../..")
    (devices[1] / "mem_info_gtt_used").unlink()
    (devices[2] / "mem_info_vis_vram_total").unlink()
    agreed, invented = compare(tmp_path, scrape(node_exporter, tmp_path, free_port()))
    assert agreed == 4 * 7 - 2 + 4 * 9
    assert invented == 2
    rows = trees.Machine(tmp_path).poll()
    assert ("amdgpu_memory_used_bytes", "0000:25:00.0", "gtt") not in rows
    assert ("amdgpu_memory_size_bytes", "0000:45:00.0", "visible_vram") not in rows
