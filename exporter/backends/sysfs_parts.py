"""The groups of one logical device: a socket's own, or a partition's share of them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from exporter.backends.sysfs_topology import Part
from exporter.formats.gpu_metrics import Decoded, decode_partition
from exporter.formats.gpu_metrics_units import die_busy, own_busy, partition_busy
from exporter.host import Root, reason_of
from exporter.model import FormatError, Raw, Reason

_TABLE = "xcp/xcp_metrics"
_BLOB = 16384


def part_groups(
    root: Root,
    part: Part,
    groups: Mapping[str, Raw],
    decoded: Decoded | None,
    wants: AbstractSet[str],
) -> dict[str, Raw]:
    """What ``groups`` of the socket say of one part; a partition has its own KFD figures and busy share."""
    out = dict(groups)
    out["kfd"] = part.kfd
    if decoded is not None and "dies" in wants:
        out["dies"] = {"busy": die_busy(decoded)}
    partition = part.device.id.partition
    if partition is None or out.get("busy") is Reason.SUSPENDED or "busy" not in wants:
        return out
    # The files and the table's averages speak of the whole card.
    table = out.get("gpu_metrics")
    if isinstance(table, Mapping):
        out["gpu_metrics"] = {**table, "busy": {}}
    if decoded is not None:
        busy = partition_busy(decoded, partition, part.device.xccs)
        if busy["gfx"] is not None:
            out["busy"] = busy
            return out
    # The card's table speaks for every partition where it can, in one read; this file for one only.
    own = _own(root, part) if "gpu_metrics" in wants else None
    if isinstance(own, dict):
        out["busy"] = own
    else:
        out["busy"] = {"gfx": own or (table if isinstance(table, Reason) else None)}
    return out


def _own(root: Root, part: Part) -> Raw:
    """Busy percent in the partition's own table; a Reason or None without one."""
    if part.path is None:
        return None
    try:
        return own_busy(decode_partition(root.read(f"{part.path}/{_TABLE}", _BLOB)))
    except OSError as e:
        reason = reason_of(e)
        return None if reason is Reason.UNSUPPORTED else reason
    except FormatError:
        return Reason.MALFORMED
