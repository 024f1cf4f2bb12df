"""What one probe measured, as it is kept, and as readings. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter.catalogue import CATALOGUE
from exporter.model import DeviceId, FormatError, Series

BANDWIDTH = "amdgpu_probe_bandwidth_bytes_per_second"
OPERATIONS = "amdgpu_probe_operations_per_second"
LAUNCH = "amdgpu_probe_launch_seconds"
KINDS = {"bandwidth": BANDWIDTH, "gemm": OPERATIONS, "launch": LAUNCH}
LABELS = {BANDWIDTH: 2, OPERATIONS: 1, LAUNCH: 1}
SELF = "self"
VERSION = 1
_VALUES_MOST = 20_000
_TEXT_MOST = 80
# Beyond that many GPUs the copies among them are a matrix that nobody can afford as series.
MATRIX_MOST = 16


class Value(NamedTuple):
    """One measurement of one GPU; ``labels`` in catalogue order."""

    device: DeviceId
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Record:
    """One run of one probe. ``at`` in wall-clock seconds; ``missing`` counts values by reason."""

    probe: str
    at: float
    tool: str
    version: str
    values: tuple[Value, ...]
    missing: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The object that is kept and that ``--json`` prints."""
        names = _NAMES[self.probe]
        return {
            "version": VERSION,
            "probe": self.probe,
            "at": self.at,
            "tool": self.tool,
            "tool_version": self.version or None,
            "unit": _UNITS[self.probe],
            "values": [
                {
                    "pci": v.device.pci,
                    "partition": v.device.partition,
                    **dict(zip(names, v.labels, strict=True)),
                    "value": v.value,
                }
                for v in self.values
            ],
            "missing": dict(self.missing),
            "notes": list(self.notes),
            "environment": dict(self.environment),
        }


_NAMES = {"bandwidth": ("peer", "direction"), "gemm": ("precision",), "launch": ("pattern",)}
_UNITS = {"bandwidth": "bytes_per_second", "gemm": "operations_per_second", "launch": "seconds"}


def from_json(found: Any) -> Record:
    """What ``as_json`` made. Errors: FormatError for anything else."""
    try:
        if found["version"] != VERSION or found["probe"] not in KINDS:
            raise FormatError(f"version {found['version']!r}, probe {found['probe']!r}: not known here")
        if len(found["values"]) > _VALUES_MOST:
            raise FormatError(f"{len(found['values'])} values are too many")
        names = _NAMES[found["probe"]]
        low, high = CATALOGUE[KINDS[found["probe"]]].range
        values = tuple(_value(one, names) for one in found["values"])
        if any(not low <= v.value <= high for v in values):
            raise FormatError("a value is out of the range of its metric")
        missing = {_text(k): _count(v) for k, v in found["missing"].items()}
        return Record(
            found["probe"],
            _positive(found["at"]),
            _text(found["tool"]),
            _text(found["tool_version"] or ""),
            values,
            missing,
            tuple(map(str, found["notes"])),
            found["environment"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise FormatError(f"no record of a probe: {e!r}"[:200]) from None


def readings(records: Iterable[Record], here: Collection[DeviceId]) -> list[tuple[Series, float]]:
    """The latest record of each probe as series, of the GPUs that are here."""
    found: list[tuple[Series, float]] = []
    for record in records:
        metric = KINDS[record.probe]
        wide = len({v.device for v in record.values}) > MATRIX_MOST
        found += [
            (Series(metric, v.device, v.labels), v.value)
            for v in record.values
            if v.device in here and not (wide and metric == BANDWIDTH and not _near(v.labels[0]))
        ]
        found.append((Series("amdgpu_probe_last_timestamp_seconds", None, (record.probe,)), record.at))
        tool = (record.probe, record.tool, record.version or "unknown")
        found.append((Series("amdgpu_probe_info", None, tool), 1))
        found += [
            (Series("amdgpu_probe_values_missing", None, (record.probe, reason)), count)
            for reason, count in sorted(record.missing.items())
        ]
    return found


def _near(peer: str) -> bool:
    return peer == SELF or peer.startswith("cpu")


def _value(one: Mapping[str, Any], names: tuple[str, ...]) -> Value:
    partition = one["partition"]
    if partition is not None and (type(partition) is not int or partition < 0):
        raise ValueError("partition")
    device = DeviceId(_text(one["pci"]), partition)
    return Value(device, tuple(_text(one[name]) for name in names), _positive(one["value"]))


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _VALUES_MOST:
        raise ValueError(f"{value!r} is no count")
    return value


def _positive(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{value!r} is no positive number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_MOST:
        raise ValueError("a text is missing or too long")
    return value
