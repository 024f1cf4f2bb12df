"""What the polls say of each GPU that a window has to know: memory, sleep, resets, partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.model import Device, DeviceId, Reason, Series, Slot, Value
from exporter.windows.policy import GpuFacts

_RESETS = "amdgpu_resets_total"
_USED, _SIZE = "amdgpu_memory_used_bytes", "amdgpu_memory_size_bytes"
_POOL = ("vram",)


@dataclass(frozen=True, slots=True)
class _State:
    """What may not have changed lately. A device that left and came back was reset, or replaced."""

    partitions: tuple[str | None, str | None]
    resets: Value | None
    here: bool = True


class Standing:
    """Remembers when each GPU was last reset or changed its partitions, as far as polls show it."""

    def __init__(self) -> None:
        self._states: dict[DeviceId, _State] = {}
        self._reset: dict[DeviceId, float] = {}
        self._repartitioned: dict[DeviceId, float] = {}

    def look(self, devices: Iterable[Device], slots: Sequence[Slot], mono: float) -> tuple[GpuFacts, ...]:
        """The facts of the GPUs that are there now; must be called at least once per poll or so."""
        values: dict[Series, Value] = {}
        for slot in reversed(slots):  # the most trusted source comes first, so it goes last
            values.update(zip(slot.series, slot.values, strict=True))
        asleep = {gap.device for slot in slots for gap in slot.gaps if gap.reason is Reason.SUSPENDED}
        found, present = [], set()
        for device in devices:
            present.add(device.id)
            self._note(device, values, mono)
            found.append(
                GpuFacts(
                    device.id,
                    device.gfx,
                    _memory(device.id, values),
                    None,
                    _since(self._reset, device.id, mono),
                    _since(self._repartitioned, device.id, mono),
                    device.id in asleep or device.id.socket in asleep,
                )
            )
        for key in self._states.keys() - present:
            old = self._states[key]
            self._states[key] = _State(old.partitions, old.resets, here=False)
        return tuple(found)

    def _note(self, device: Device, values: Mapping[Series, Value], mono: float) -> None:
        resets = values.get(Series(_RESETS, device.id.socket))
        now = _State((device.compute_partition, device.memory_partition), resets)
        old = self._states.get(device.id)
        self._states[device.id] = now
        if old is None:
            siblings = [k for k in self._states if k.pci == device.id.pci and k != device.id]
            # Partitions that appear on a socket we know are the sign of a change there.
            if siblings and not all(self._states[k].here for k in siblings):
                self._repartitioned[device.id] = mono
            return
        if old.partitions != now.partitions and None not in (old.partitions[0], now.partitions[0]):
            self._repartitioned[device.id] = mono
        if not old.here or (resets is not None and old.resets is not None and resets != old.resets):
            self._reset[device.id] = mono


def _memory(device: DeviceId, values: Mapping[Series, Value]) -> float | None:
    for key in (device, device.socket):
        used, size = values.get(Series(_USED, key, _POOL)), values.get(Series(_SIZE, key, _POOL))
        if isinstance(used, int | float) and isinstance(size, int | float) and size > 0:
            return used / size
    return None


def _since(times: Mapping[DeviceId, float], device: DeviceId, mono: float) -> float | None:
    at = times.get(device)
    return None if at is None else max(0.0, mono - at)
