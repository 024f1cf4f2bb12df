"""What the writer of a window said about it, read with distrust: a part that makes no sense costs itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.model import DeviceId
from exporter.windows.agents import device_of, label
from exporter.windows.spans import Terms

MANIFEST = "manifest.json"
_MANIFEST_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the writer of a window said about it; unknown parts are None or empty."""

    id: str | None = None
    tool: str | None = None
    mode: str | None = None
    terms: Terms = field(default_factory=Terms)
    agents: Mapping[str, DeviceId] | None = None
    node: str | None = None
    uid: int | None = None
    boot_id: str | None = None
    run: str | None = None
    first: bool = False
    counter_set: str | None = None
    pytorch: str | None = None


def read(root: Path, notes: list[str]) -> Manifest | None:
    path = root / MANIFEST
    try:
        with open(path, "rb") as f:
            raw = json.loads(f.read(_MANIFEST_MOST))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except OSError as e:
        notes.append(f"{path}: cannot be read: {e.strerror or e}")
        return None
    except (ValueError, RecursionError):
        notes.append(f"{path}: is no JSON; the window is read without it")
        return None
    if not isinstance(raw, dict) or raw.get("version") != 1:
        return None
    return Manifest(
        _text(raw, "id", path, notes),
        _text(raw, "tool", path, notes),
        _text(raw, "mode", path, notes),
        Terms(
            _bounds(raw.get("bounds_ns"), path, notes),
            _pause(raw.get("pause_ns"), path, notes),
            _by_device(raw, "processes_seen", path, notes),
            _by_device(raw, "busy_ratio", path, notes),
        ),
        _named(raw.get("agents"), path, notes),
        _text(raw, "node", path, notes),
        _whole(raw, "uid", path, notes),
        _text(raw, "boot_id", path, notes),
        _text(raw, "run", path, notes),
        raw.get("first") is True,
        _text(raw, "set", path, notes),
        _text(raw, "pytorch", path, notes),
    )


def _text(raw: Mapping[str, Any], key: str, path: Path, notes: list[str]) -> str | None:
    value = raw.get(key)
    if value is None or isinstance(value, str):
        return value or None
    notes.append(f"{path}: {key} is no text and is ignored")
    return None


def _bounds(value: Any, path: Path, notes: list[str]) -> tuple[int, int] | None:
    if value is None:
        return None
    if (
        isinstance(value, list)
        and len(value) == 2
        and all(type(v) is int for v in value)
        and 0 <= value[0] < value[1] < 1 << 63
    ):
        return value[0], value[1]
    notes.append(f"{path}: bounds_ns is not [start, end] in nanoseconds and is ignored")
    return None


def _named(value: Any, path: Path, notes: list[str]) -> dict[str, DeviceId]:
    found: dict[str, DeviceId] = {}
    for agent, text in value.items() if isinstance(value, dict) else ():
        device = device_of(text) if isinstance(text, str) else None
        if device is None:
            notes.append(
                f"{path}: agents: {agent!r} is mapped to {text!r}, which is no PCI address dddd:bb:dd.f"
            )
        else:
            found[agent] = device
    return found


def _pause(value: Any, path: Path, notes: list[str]) -> int | None:
    if value is None or (type(value) is int and 0 < value < 1 << 63):
        return value
    notes.append(f"{path}: pause_ns is no time in nanoseconds and is ignored")
    return None


def _whole(raw: Mapping[str, Any], key: str, path: Path, notes: list[str]) -> int | None:
    value = raw.get(key)
    if value is None or (type(value) is int and value >= 0):
        return value
    notes.append(f"{path}: {key} is no whole number and is ignored")
    return None


def _by_device(raw: Mapping[str, Any], key: str, path: Path, notes: list[str]) -> dict[str, Any]:
    """Numbers not below 0 by PCI address, as the addresses are written everywhere."""
    given, found = raw.get(key), {}
    for text, value in given.items() if isinstance(given, dict) else ():
        device = device_of(text)
        if device is None or isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            notes.append(
                f"{path}: {key}: {text!r}: {value!r} is not a number for a PCI address, and is ignored"
            )
        else:
            found[label(device)] = value
    return found
