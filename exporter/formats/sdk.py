"""What the database and the JSON of the rocprofiler SDK have in common: agents, times, ids of calls. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.catalogue.chips import gfx_name
from exporter.formats.summaries import pci_address
from exporter.formats.trace import Agent, Decoded

UNNAMED = "unknown_kernel"  # the SDK's own word for a kernel without a symbol
_GPU = 2
_CLIMB_MOST = 64


def natural(value: Any) -> int | None:
    """An integer that fits a column; None for anything else, also for true and false."""
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def agent_label(node: int) -> str:
    """As the tables of the same tool name it, so that both mean one GPU."""
    return f"Agent {node}"


def agent(fields: Mapping[str, Any]) -> Agent | None:
    """One agent from its fields; None without the node number that rows refer to."""
    node = natural(fields.get("node_id"))
    if node is None:
        return None
    kind, name = fields.get("type"), fields.get("name")
    is_gpu = kind == _GPU or str(kind).upper() == "GPU"
    location, domain = natural(fields.get("location_id")), natural(fields.get("domain"))
    known = is_gpu and location is not None and domain is not None
    gfx = gfx_name(natural(fields.get("gfx_target_version")) or 0)
    if gfx is None and isinstance(name, str) and name.startswith("gfx"):
        gfx = name
    minor = natural(fields.get("drm_render_minor"))
    return Agent(
        node,
        is_gpu,
        pci_address(domain or 0, location or 0) if known else None,
        natural(fields.get("gpu_id")) or -1,
        -1 if minor is None else minor,
        natural(fields.get("device_id")) or -1,
        gfx,
        natural(fields.get("cu_count")) or None,
        natural(fields.get("num_xcc")) or None,
    )


def span(decoded: Decoded, start: Any, end: Any) -> tuple[int, int] | None:
    """Start and end if they can be; else None, and the row is counted as given up."""
    first, last = natural(start), natural(end)
    if first is None or last is None:
        decoded.skip("invalid" if type(start) is int and type(end) is int else "malformed")
        return None
    if first == 0 or last < first:
        decoded.skip("invalid")
        return None
    return first, last


class Climb:
    """From the innermost traced call up to the HIP call around it, where HSA calls were traced too."""

    def __init__(self) -> None:
        self._above: dict[tuple[object, int], int] = {}

    def below(self, process: object, call: int, parent: int) -> None:
        """Note that ``call`` is no HIP call and was made inside ``parent``."""
        if call and parent and parent != call:
            self._above[process, call] = parent

    def __bool__(self) -> bool:
        return bool(self._above)

    def top(self, process: object, call: int) -> int:
        for _ in range(_CLIMB_MOST if self else 0):
            above = self._above.get((process, call))
            if above is None:
                break
            call = above
        return call
