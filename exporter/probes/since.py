"""What a probe says against the one before: how far values moved, what else is not as it was. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import median

from exporter import fingerprint
from exporter.model import DeviceId
from exporter.probes.record import Record, Value

_MOVED = 0.05
_MOST = 5


def since(record: Record, before: Record | None, names: Mapping[DeviceId, str]) -> list[str]:
    """Lines for people; none without a record before."""
    if before is None:
        return []
    when = datetime.fromtimestamp(before.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if before.tool != record.tool:
        return [f"the probe of {when} was by {before.tool}, whose numbers do not compare"]
    old = {(v.device, v.labels): v.value for v in before.values}
    moved = [(v, v.value / old[v.device, v.labels] - 1) for v in record.values if (v.device, v.labels) in old]
    if not moved:
        return [f"the probe of {when} has no value of these GPUs"]
    lines = [f"against {when}: {median(change for _, change in moved):+.1%} in the middle"]
    far = sorted((one for one in moved if abs(one[1]) >= _MOVED), key=lambda one: -abs(one[1]))
    lines += [f"  {_place(v, names)}: {change:+.1%}" for v, change in far[:_MOST]]
    if len(far) > _MOST:
        lines.append(f"  and {len(far) - _MOST} more by {_MOVED:.0%} or above")
    return lines + _otherwise(record, before)


def _place(value: Value, names: Mapping[DeviceId, str]) -> str:
    return f"GPU {names.get(value.device, value.device.pci)}, {' '.join(value.labels).replace('_', ' ')}"


def _otherwise(record: Record, before: Record) -> list[str]:
    """What of the machine and the tool is another now."""
    found = []
    if record.version != before.version:
        found.append(("Tool", before.version or "unknown", record.version or "unknown"))
    sides: Sequence[dict[str, str]] = [_lines(one) for one in (before, record)]
    found += [
        (name, sides[0][name], sides[1][name])
        for name in sides[1]
        if name in sides[0] and sides[0][name] != sides[1][name]
    ]
    return [f"  {name} is another: {a}, now {b}" for name, a, b in found]


def _lines(record: Record) -> dict[str, str]:
    try:
        return dict(fingerprint.lines(record.environment))
    except (KeyError, TypeError, AttributeError):
        return {}  # a record that another version wrote
