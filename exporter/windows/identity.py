"""Whether a window is of whom and where its manifest says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Here:
    """This node: its name and its boot. Namespaces have their own host names, but the kernel's boot."""

    node: str
    boot_id: str


def fault(uid: int | None, node: str | None, boot_id: str | None, owner: int, here: Here) -> str | None:
    """What a manifest claims and is not so, in words; None where it claims nothing or is right."""
    if uid is not None and uid != owner:
        return f"says it is of uid {uid}, and belongs to uid {owner}"
    if boot_id and boot_id == here.boot_id:
        return None
    # Of an earlier boot of this node, or of another node that shares the folder.
    if node and node != here.node:
        return f"says it is of node {node}, and this is {here.node}"
    if boot_id and not node:
        return "is of another boot, and names no node"
    return None


def here_of(settings: Mapping[str, object]) -> Here | None:
    """As a child is told it; None where nothing is to be checked."""
    node, boot_id = settings.get("node"), settings.get("boot_id")
    return Here(node, boot_id) if isinstance(node, str) and isinstance(boot_id, str) else None
