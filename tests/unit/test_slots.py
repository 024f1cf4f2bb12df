"""What travels between reader and collector, and what is left out because it did not change."""

from __future__ import annotations

import json

import pytest

from exporter.model import Device, DeviceId, Gap, Reason, Series
from exporter.slots import Decoder, Encoder

ID = DeviceId("0000:05:00.0")
PART = DeviceId("0000:05:00.0", 3)
DEVICES = [Device(ID, 0, model="MI300X", indices={"drm": 1, "render": 128}), Device(PART, 0)]
SERIES = [Series("amdgpu_power_watts", ID), Series("amdgpu_clock_hertz", PART, ("sclk", "0"))]
GAPS = [Gap("amdgpu_energy_joules_total", ID, Reason.DENIED)]


def wire(message: dict) -> dict:
    return json.loads(json.dumps(message))


def test_a_poll_arrives_as_it_was_sent() -> None:
    poll = Decoder().decode(wire(Encoder().encode(DEVICES, SERIES, [700.5, 2_100_000_000], GAPS)))
    assert poll.devices == tuple(DEVICES)
    assert poll.series == tuple(SERIES)
    assert poll.values == (700.5, 2_100_000_000)
    assert poll.gaps == tuple(GAPS)


def test_what_did_not_change_is_left_out_and_stays_the_same_object() -> None:
    encoder, decoder = Encoder(), Decoder()
    first = decoder.decode(wire(encoder.encode(DEVICES, SERIES, [1, 2], GAPS)))
    message = encoder.encode(list(DEVICES), list(SERIES), [3, 4], list(GAPS))
    assert set(message) == {"values"}
    second = decoder.decode(wire(message))
    assert second.series is first.series
    assert second.devices is first.devices
    assert second.gaps is first.gaps
    assert second.values == (3, 4)
    third = decoder.decode(wire(encoder.encode(DEVICES, SERIES[:1], [5], [])))
    assert third.series == tuple(SERIES[:1])
    assert third.gaps == ()


def test_values_that_do_not_fit_the_series_are_refused() -> None:
    with pytest.raises(ValueError, match="3 values for 2 series"):
        Decoder().decode(wire(Encoder().encode(DEVICES, SERIES, [1, 2, 3], [])))
