"""The machine that checks look at: its file trees, tools, rights, and what the sources said once."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from exporter.backends import amdsmi_module
from exporter.backends.sysfs_cards import AMD
from exporter.backends.sysfs_topology import Socket, discover
from exporter.collect import PolledSource
from exporter.command import Ending, run_once
from exporter.config import Config
from exporter.host import Root, reason_of
from exporter.model import Device, DeviceId, Reason

TOOLS = {
    "amd-smi": ("version",),
    "rocm-smi": ("--version",),
    "rocprofv3": ("--version",),
    "rocprofv2": ("--version",),
    "rocprof": ("--version",),
    "rocprof-compute": ("--version",),
    "amdgpu-exporter-counting": ("--version",),
}
_VERSION_S = 3.0
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")
CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON = 19, 21, 38

Readings = Mapping[tuple[str, tuple[str, ...]], float]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool that was found; ``version`` is None where it did not tell, and ``problem`` says how."""

    path: str
    version: str | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One source, asked once: what it gave, or why nothing."""

    name: str
    ok: bool
    detail: str = ""
    devices: tuple[Device, ...] = ()
    readings: int = 0
    missing: Mapping[Reason, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration as it was loaded, or why it was not."""

    config: Config
    file: Path | None = None
    problem: str | None = None
    warnings: tuple[str, ...] = ()
    state: Path = Path("/nowhere")
    remembered: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything the checks may ask. ``live``: the trees are this machine's, not a copy."""

    sysfs: Root
    procfs: Root | None  # None: a copy came without one
    files: Root
    live: bool
    settings: Settings
    trials: tuple[Trial, ...] = ()
    readings: Mapping[DeviceId, Readings] = field(default_factory=dict)
    tools: Mapping[str, Tool] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    modules: Sequence[str] = ()  # where Python looks
    user: str = "root"
    access: Callable[[str], bool | None] = lambda _path: None  # read and write; None: not there
    daemon: str | None = None  # what answers on the configured address

    @property
    def devices(self) -> tuple[Device, ...]:
        """What the first source that lists any has."""
        return next((t.devices for t in self.trials if t.devices), ())

    @property
    def answers(self) -> bool:
        """Whether the files of the GPUs themselves may be read: not where a child that did so hung."""
        return all(t.ok for t in self.trials if t.name == "sysfs")

    def sockets(self) -> list[Socket]:
        """Every AMD GPU of the tree, integrated ones too."""
        try:
            return discover(self.sysfs, show_integrated=True)
        except OSError:
            return []

    def pci(self) -> dict[str, str | None]:
        """Every AMD display or accelerator function on PCI with the driver that has it, if any."""
        found = {}
        for address in self.sysfs.listdir("bus/pci/devices"):
            base = f"bus/pci/devices/{address}"
            vendor, kind = self.sysfs.text(f"{base}/vendor"), self.sysfs.text(f"{base}/class") or ""
            if vendor == f"0x{AMD:04x}" and kind[:4] in ("0x03", "0x12"):
                found[address] = self._driver(base)
        return found

    def _driver(self, base: str) -> str | None:
        try:
            path = self.sysfs.resolve(f"{base}/driver")
        except OSError:
            return None
        name = path.rpartition("/")[2]
        return None if name == "driver" else name

    def proc_number(self, rel: str) -> int | None:
        """A number from procfs; None where there is none."""
        try:
            return int((self.procfs and self.procfs.text(rel)) or "")
        except ValueError:
            return None

    def capable(self, *capabilities: int) -> bool | None:
        """Whether we have any of these capabilities; None where it cannot be told."""
        for line in ((self.procfs and self.procfs.text("self/status")) or "").splitlines():
            if line.startswith("CapEff:"):
                bits = int(line.split()[1], 16)
                return any(bits >> c & 1 for c in capabilities)
        return None

    def rocm(self) -> dict[str, str]:
        """Every ROCm installation with its version."""
        named = [p for key in ("ROCM_PATH", "ROCM_HOME") if (p := self.environ.get(key))]
        found = [f"/opt/{n}" for n in self.files.listdir("opt") if n == "rocm" or n.startswith("rocm-")]
        versions = {
            prefix.rstrip("/"): self.files.text(f"{prefix.strip('/')}/.info/version")
            for prefix in dict.fromkeys([*named, *found])
        }
        return {prefix: version for prefix, version in versions.items() if version}

    def amdsmi(self) -> tuple[bool, str]:
        """Whether there is a module that may be tried, and in words what files say of it; loads nothing."""
        return amdsmi_module.examine(self.environ, self.files, self.modules)


def trial(source: PolledSource) -> Trial:
    """What a polled source has to show."""
    outcome, slot = source.outcome, source.slot
    if outcome is None or not outcome.ok or slot is None:
        return Trial(source.name, False, outcome.detail if outcome else "never asked")
    return Trial(source.name, True, "", slot.devices, len(slot.series), source.missing)


def readings(sources: Sequence[PolledSource]) -> dict[DeviceId, dict[tuple[str, tuple[str, ...]], float]]:
    """All readings by socket; the first source in order of trust speaks, the busiest partition stands."""
    out: dict[DeviceId, dict[tuple[str, tuple[str, ...]], float]] = {}
    for source in reversed(sources):
        if source.slot and source.outcome and source.outcome.ok:
            one: dict[DeviceId, dict[tuple[str, tuple[str, ...]], float]] = {}
            for series, value in zip(source.slot.series, source.slot.values, strict=True):
                if series.device and isinstance(value, int | float):
                    of, key = one.setdefault(series.device.socket, {}), (series.metric, series.labels)
                    of[key] = max(value, of.get(key, value))
            for socket, found in one.items():
                out.setdefault(socket, {}).update(found)
    return out


def find_tools(environ: Mapping[str, str], files: Root) -> dict[str, Tool]:
    """The vendor's tools on PATH or in an installed ROCm, each asked for its version and nothing else."""
    folders = [f for f in environ.get("PATH", "").split(os.pathsep) if f.startswith("/")]
    folders += ["/opt/rocm/bin", *(f"/opt/{n}/bin" for n in files.listdir("opt") if n.startswith("rocm-"))]
    found = {}
    for name, ask in TOOLS.items():
        for folder in dict.fromkeys(folders):
            path = os.path.normpath(f"{files.path}/{folder}/{name}")
            if os.path.isfile(path) and os.access(path, os.X_OK):
                found[name] = _asked(path, ask, environ)
                break
    return found


def _asked(path: str, ask: Sequence[str], environ: Mapping[str, str]) -> Tool:
    done = run_once([path, *ask], _VERSION_S, 65536, environ)
    if done.outcome is not Ending.EXITED:
        return Tool(path, None, f"{done.outcome.value.replace('_', ' ')} after {done.seconds:.1f} s")
    version = _VERSION.search(done.stdout.decode("utf-8", "replace")) or _VERSION.search(
        done.stderr.decode("utf-8", "replace")
    )
    return Tool(path, version[0]) if version else Tool(path, None, f"tells no version (exit {done.code})")


def access(files: Root) -> Callable[[str], bool | None]:
    """Whether a device node below ``files`` may be read and written."""

    def ask(path: str) -> bool | None:
        full = f"{files.path}/{path}"
        return os.access(full, os.R_OK | os.W_OK) if os.path.exists(full) else None

    return ask


def unreadable(root: Root, rel: str) -> Reason | None:
    """Why a file that is there cannot be read; None where it can, or is not there."""
    if not root.exists(rel):
        return None
    try:
        root.read(rel)
    except OSError as e:
        return reason_of(e)
    return None


def python_path() -> list[str]:
    return list(sys.path)
