"""What a window is to be, and how one profiler would take it: the words between policy, planners and runner.

Pure. A planner turns a Request and a Tool into a Plan or a Refusal; the runner child runs Plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from exporter.model import Device, WindowOutcome


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted. ``counters`` is one single-pass set; ``command`` or ``pid`` say whose kernels."""

    mode: str  # "counters" | "trace"
    seconds: float
    devices: tuple[Device, ...] = ()
    counters: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    pid: int | None = None
    every_gpu: bool = False  # no GPU of the node is left out


@dataclass(frozen=True, slots=True)
class Tool:
    """A profiler of this machine as it was probed; ``options`` are those its help lists."""

    name: str
    path: str
    version: tuple[int, ...] | None = None
    options: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The tool as it travels between processes."""
        return {**asdict(self), "options": sorted(self.options)}


@dataclass(frozen=True, slots=True)
class Plan:
    """One command. ``env`` is added to a small environment; ``files`` are written into the scratch folder.

    ``output`` is where in the scratch folder its files land; ``stdout`` a file there for what it prints.
    A tool that does not end by itself is interrupted after ``seconds``.
    """

    tool: str
    version: str
    argv: tuple[str, ...]
    seconds: float
    grace_s: float
    env: Mapping[str, str] = field(default_factory=dict)
    ends_itself: bool = True
    output: str = "out"
    files: Mapping[str, str] = field(default_factory=dict)
    stdout: str | None = None
    cwd: str | None = None  # none: the scratch folder

    def as_json(self) -> dict[str, Any]:
        """The plan as the runner child takes it."""
        return {**asdict(self), "argv": list(self.argv), "env": dict(self.env), "files": dict(self.files)}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no window can be taken so. ``reason`` is from a small closed list, ``detail`` names the way out."""

    outcome: WindowOutcome
    reason: str
    detail: str
