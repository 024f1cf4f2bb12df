"""Which GPUs the daemon knows, and by which number, as sources come and go."""

from __future__ import annotations

from exporter.collect import Inventory
from exporter.model import Device, DeviceId

A, B, C = (DeviceId(f"0000:{bus}:00.0") for bus in ("05", "26", "46"))


def test_what_one_source_does_not_know_of_a_gpu_comes_from_the_next() -> None:
    trusted = (Device(A, 0, model="MI300X", uuid="1", indices={"amdsmi": 0, "drm": 7}),)
    other = (Device(A, 0, model="another name", compute_units=304, indices={"kfd": 3, "drm": 1}),)
    inventory = Inventory()
    inventory.update((trusted, other))
    device = inventory.devices[A]
    assert (device.model, device.uuid, device.compute_units) == ("MI300X", "1", 304)
    assert device.indices == {"amdsmi": 0, "drm": 7, "kfd": 3}


def test_a_gpu_that_leaves_keeps_its_place_and_the_others_their_numbers() -> None:
    inventory = Inventory()
    inventory.update(((Device(A, 0), Device(B, 1), Device(C, 2)),))
    inventory.update(((Device(A, 0), Device(C, 1)),))
    assert {key: d.gpu for key, d in inventory.devices.items()} == {A: 0, B: 1, C: 2}


def test_partitions_of_a_gpu_that_is_here_are_forgotten_when_its_mode_changes() -> None:
    inventory = Inventory()
    parts = tuple(Device(DeviceId(A.pci, n), 0) for n in range(8))
    inventory.update(((*parts, Device(B, 1)),))
    assert len(inventory.devices) == 9
    inventory.update(((Device(A, 0), Device(B, 1)),))
    assert list(inventory.devices) == [A, B]


def test_the_table_is_the_same_object_while_nothing_changes() -> None:
    inventory = Inventory()
    listed = ((Device(A, 0),),)
    inventory.update(listed)
    first = inventory.devices
    inventory.update(listed)
    inventory.update(((Device(A, 0),),))
    assert inventory.devices is first
