"""How a poll travels from the reader child to the collector: JSON, and only what changed. Pure.

Devices, series and gaps seldom change, so each is sent once and then left out until it does. The decoder
hands out the same tuple for as long as it is left out, which is what caches downstream key on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from exporter.model import Device, DeviceId, Gap, Reason, Series, Value

Message = dict[str, Any]


class Encoder:
    """The child's side; remembers what the other side has."""

    def __init__(self) -> None:
        self._sent: dict[str, Sequence[Any]] = {}

    def encode(
        self, devices: list[Device], series: list[Series], values: list[Value], gaps: list[Gap]
    ) -> Message:
        message: Message = {"values": values}
        if self._changed("devices", devices):
            message["devices"] = [dataclasses.asdict(d) for d in devices]
        if self._changed("series", series):
            message["series"] = series
        if self._changed("gaps", gaps):
            message["gaps"] = gaps
        return message

    def _changed(self, key: str, new: Sequence[Any]) -> bool:
        if self._sent.get(key) == new:
            return False
        self._sent[key] = new
        return True


@dataclasses.dataclass(frozen=True, slots=True)
class Poll:
    """One decoded poll."""

    devices: tuple[Device, ...]
    series: tuple[Series, ...]
    values: tuple[Value, ...]
    gaps: tuple[Gap, ...]


class Decoder:
    """The collector's side; one per child process, since a new child starts from nothing."""

    def __init__(self) -> None:
        self._devices: tuple[Device, ...] = ()
        self._series: tuple[Series, ...] = ()
        self._gaps: tuple[Gap, ...] = ()

    def decode(self, message: Message) -> Poll:
        """Raises ValueError where values and series do not match."""
        if (devices := message.get("devices")) is not None:
            self._devices = tuple(_device(d) for d in devices)
        if (series := message.get("series")) is not None:
            self._series = tuple(Series(m, _id(d), tuple(labels)) for m, d, labels in series)
        if (gaps := message.get("gaps")) is not None:
            self._gaps = tuple(Gap(m, _id(d), Reason(r)) for m, d, r in gaps)
        values = tuple(message["values"])
        if len(values) != len(self._series):
            raise ValueError(f"{len(values)} values for {len(self._series)} series")
        return Poll(self._devices, self._series, values, self._gaps)


def _device(raw: Message) -> Device:
    return Device(**{**raw, "id": _id(raw["id"])})


def _id(raw: Sequence[Any] | None) -> DeviceId | None:
    return None if raw is None else DeviceId(*raw)
