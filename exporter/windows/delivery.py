"""How a window that was taken here gets into the spool: its scratch folder, its manifest, the rename."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.model import Device, Reason, WindowOutcome
from exporter.profilers.legacy_window import LEGACY
from exporter.profilers.plan import Tool
from exporter.windows.agents import label
from exporter.windows.policy import COUNTERS

MANIFEST = "manifest.json"
_SCRATCH = ".window-"
_OUTCOMES = {
    Reason.TIMEOUT: WindowOutcome.TIMEOUT,
    Reason.BUSY: WindowOutcome.BLOCKED,
    Reason.DENIED: WindowOutcome.DENIED,
}


def name(kind: str, wall: float) -> str:
    """A name for a window that none before has."""
    return f"{kind}-{int(wall * 1000)}-{os.urandom(2).hex()}"


def scratch(spool: Path, window: str) -> Path:
    """Where a window is made: in the spool, so that it can be renamed, under a name that is not looked at."""
    return spool / f"{_SCRATCH}{window}"


def deliver(spool: Path, window: str, manifest: Mapping[str, Any]) -> Path:
    """Finish the window and put it where the feed finds it. Errors: OSError."""
    made, own = scratch(spool, window), spool / str(os.geteuid())
    try:
        (made / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        own.mkdir(mode=0o700, exist_ok=True)
        os.rename(made, own / window)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return own / window


def manifest(window: str, tool: str, mode: str, node: str, devices: Sequence[Device]) -> dict[str, Any]:
    """What every manifest says; agents are named as the tools count them, by the driver's node number."""
    agents = {f"Agent {d.indices['kfd']}": label(d.id) for d in devices if "kfd" in d.indices}
    if mode == COUNTERS:
        agents |= {f"gpu_id {d.kfd_gpu_id}": label(d.id) for d in devices if d.kfd_gpu_id is not None}
    if tool in LEGACY:
        agents |= _counted_anyhow(devices)
    return {"version": 1, "id": window, "tool": tool, "mode": mode, "node": node, "agents": agents}


def _counted_anyhow(devices: Sequence[Device]) -> dict[str, str]:
    """Numbers of GPUs by tools that write the driver's ids in some releases, and in others a count.

    What is counted, and from where, is not known: it says which GPU it was where there is only one.
    """
    named = {str(d.kfd_gpu_id): label(d.id) for d in devices if d.kfd_gpu_id is not None}
    if len(devices) == 1:
        named |= {str(n): label(devices[0].id) for n in range(devices[0].indices.get("kfd", 0) + 1)}
    return named


def sweep(spool: Path) -> None:
    """Remove what windows of a daemon that was killed left half made."""
    with contextlib.suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            if entry.name.startswith(_SCRATCH) and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)


def limiters(sysfs: str, devices: Sequence[Device]) -> list[str]:
    """Patterns of the files that say whether the tops limiter of these GPUs is on."""
    cards = sorted({d.indices["drm"] for d in devices if "drm" in d.indices})
    places = ("ptl_enable", "*/ptl_enable")
    return [f"{sysfs}/class/drm/card{card}/device/{place}" for card in cards for place in places]


def outcome_of(reason: Reason) -> WindowOutcome:
    """How a window went whose runner refused, or died."""
    return _OUTCOMES.get(reason, WindowOutcome.CRASH)


def tool_of(raw: Mapping[str, Any]) -> Tool:
    """A tool as the runner's probe writes it."""
    version = raw.get("version")
    return Tool(
        str(raw["name"]),
        str(raw["path"]),
        None if version is None else tuple(int(part) for part in version),
        frozenset(map(str, raw.get("options", ()))),
        tuple(map(str, raw.get("notes", ()))),
    )
