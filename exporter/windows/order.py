"""What the sampler is given: what the configuration asks for, where it is, and whom it asks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from exporter.model import Device, Slot, Window, WindowOutcome
from exporter.windows.baseline import Healthy
from exporter.windows.policy import Rules


@dataclass(frozen=True, slots=True)
class Order:
    """What the configuration asks for. ``window_s`` is the length where it is not that of the rules,
    ``grace_s`` the time beyond it where it is not the profiler's own.
    """

    rules: Rules = field(default_factory=Rules)
    interval_s: float = 300.0
    device_counting: bool = False
    command: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    max_bytes: int = 256 << 20
    healthy: Healthy = field(default_factory=Healthy)
    window_s: float | None = None
    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where we are: the node's name, its boot, the spool folder, the lock file, the mount point of sysfs."""

    node: str
    boot_id: str
    spool: str
    lock: str
    sysfs: str = "/sys"


class Keeper(Protocol):
    """What outlives a restart, by key; values are JSON."""

    async def state(self, key: str) -> Any: ...

    async def set_state(self, key: str, value: Any) -> None: ...


class Polled(Protocol):
    """What is known of the GPUs, and to whom news is told."""

    def present(self) -> list[Device]: ...

    def slots(self) -> Sequence[Slot]: ...

    def publish(self) -> None: ...

    def failed(self, window: Window, outcome: WindowOutcome, detail: str) -> None: ...


class Memory:
    """A Keeper for a daemon without a disk."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    async def state(self, key: str) -> Any:
        return self._kept.get(key)

    async def set_state(self, key: str, value: Any) -> None:
        self._kept[key] = value
