"""Invented nodes of the kinds that are rare in captures: two dies on a card, guests, and a mixed bag."""

from __future__ import annotations

from pathlib import Path

import trees


def mi250x(root: Path) -> list[Path]:
    """Both dies of an MI250X: each a PCI function of its own, the second without a power sensor."""
    devices = trees.mi300x(root, sockets=2, forbidden=False)
    for die, device in enumerate(devices):
        for name in ("current_compute_partition", "current_memory_partition", "vcn_busy_percent"):
            (device / name).unlink()
        trees.put(device / "device", "0x7408")
        trees.put(device / "uevent", f"DRIVER=amdgpu\nPCI_ID=1002:7408\nPCI_SLOT_NAME={device.name}")
        hwmon = device / f"hwmon/hwmon{die + 2}"
        (hwmon / "power1_input").unlink()
        trees.put(hwmon / "power1_average", "0" if die else "489000000")
        trees.put(hwmon / "temp1_input", "41000")
        trees.put(hwmon / "temp1_label", "edge")
        values = {
            "temperature_edge": [41],
            "temperature_hotspot": [55],
            "temperature_mem": [48],
            "average_gfx_activity": [88],
            "average_umc_activity": [31],
            "average_socket_power": [0 if die else 489],
            "energy_accumulator": [0 if die else 6122129286992],
            "temperature_hbm": [47, 48, 48, 46],
        }
        trees.put(device / "gpu_metrics", trees.blob((1, 3), values))
        node = root / f"class/kfd/kfd/topology/nodes/{die + 1}"
        text = (node / "properties").read_text()
        text = text.replace("90402", "90010").replace("29857", "29704").replace("num_xcc 8", "num_xcc 1")
        trees.put(node / "properties", text.replace("simd_count 1216", "simd_count 440").strip())
    return devices


def guest(root: Path) -> Path:
    """A virtual function in a guest: no identity, no error counts, no hwmon, a table with little in it."""
    (device,) = trees.mi300x(root, forbidden=False)
    for name in ("unique_id", "serial_number", "vbios_version", "pcie_replay_count", "mem_busy_percent"):
        (device / name).unlink()
    for folder in ("ras", "hwmon"):
        for file in sorted((device / folder).rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        (device / folder).rmdir()
    trees.put(device / "device", "0x74b5")
    trees.put(device / "uevent", f"DRIVER=amdgpu\nPCI_ID=1002:74B5\nPCI_SLOT_NAME={device.name}")
    trees.put(
        device / "gpu_metrics", trees.blob((1, 8), {"average_gfx_activity": [17], "curr_socket_power": [0]})
    )
    node = root / "class/kfd/kfd/topology/nodes/1/properties"
    kept = [line for line in node.read_text().splitlines() if not line.startswith(("unique_id", "hive_id"))]
    trees.put(node, "\n".join(kept).replace("29857", "29877"))
    return device


# What a guest may not read.
GUEST_ERRORS = ("current_compute_partition", "current_memory_partition")


def mixed(root: Path) -> list[Path]:
    """Two accelerators beside another maker's GPU, a display chip, and a GPU in the CPU that sleeps."""
    devices = trees.mi300x(root, sockets=2, forbidden=False)
    others = (("01", "0x10de", "0x2330", "0x030200"), ("02", "0x1a03", "0x2000", "0x030000"))
    for number, (bus, vendor, ident, pci_class) in enumerate(others, start=2):
        device = root / f"devices/pci0000:00/0000:{bus}:00.0"
        for name, text in (("vendor", vendor), ("device", ident), ("class", pci_class)):
            trees.put(device / name, text)
        trees.put(device / "gpu_busy_percent", "99")
        trees._drm(root, device, number, 128 + number)
    sleeping = root / "devices/pci0000:00/0000:c4:00.0"
    for name, text in trees.DEVICE_FILES.items():
        trees.put(sleeping / name, text)
    for name, text in (("device", "0x13c0"), ("class", "0x030000"), ("power/runtime_status", "suspended")):
        trees.put(sleeping / name, text)
    trees._drm(root, sleeping, 4, 132)
    return [*devices, sleeping]
