"""Backend ``smi_cli``: AMD GPUs through the vendor's command line tools, ``amd-smi`` or ``rocm-smi``.

The last resort: each poll starts a process that loads the driver library, answers once and ends, or is killed
with its whole group before the poll's own deadline. Success is JSON with a GPU in it, never an exit code.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping, Sequence

from exporter.backends.smi_cli_tools import ENOUGH_S, AmdSmi, RocmSmi, Runner, Tool, clean_environment
from exporter.formats.smi_json import Entry, first_function
from exporter.host import Clock, Root
from exporter.model import Device, DeviceId, RawGroups, Reason, SourceError

log = logging.getLogger(__name__)

TOOLS = ("amd-smi", "rocm-smi")  # in the order of trust
_FOLDERS = ("/opt/rocm/bin",)


class SmiCliBackend:
    """Polls every GPU that a command line tool shows.

    ``tool`` is a path or a name; None takes the first of ``TOOLS`` that answers. ``sysfs`` tells real PCI
    functions from the digits a tool makes up for partitions. Names, limits and addresses are read every
    ``slow_s`` seconds, or when the set of GPUs changes.
    """

    name = "smi_cli"

    def __init__(
        self,
        tool: str | None = None,
        *,
        sysfs: Root | None = None,
        deadline_s: float = 4.0,
        serials: bool = False,
        slow_s: float = 60.0,
        clock: Clock | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._wanted, self._sysfs, self._serials = tool, sysfs, serials
        self._deadline_s, self._slow_s = deadline_s, slow_s
        self._clock = clock or Clock()
        self._env = clean_environment(os.environ if env is None else env)
        self._tools: dict[str, Tool] = {}
        self._answering: str | None = None
        self._trust_again = float("-inf")
        self._said: set[str] = set()

    def poll(self) -> list[tuple[Device, RawGroups]]:
        """Ask a tool once.

        Errors: SourceError with unsupported where there is no tool, else with what the most trusted one said.
        """
        paths = self._find()
        if not paths:
            raise SourceError(Reason.UNSUPPORTED, self._not_found())
        now = self._clock.monotonic()
        runner = Runner(self._env, self._clock, now + self._deadline_s)
        if now >= self._trust_again:
            self._answering, self._trust_again = None, now + self._slow_s
        first: SourceError | None = None
        for path in sorted(paths, key=lambda p: p != self._answering):
            if first and runner.left() < ENOUGH_S:
                break
            try:
                entries = self._tool(path).read(runner, self._socket)
            except SourceError as e:
                first = first or e
                continue
            self._answering = path
            return self._devices(entries, os.path.basename(path))
        self._answering = None
        raise first or SourceError(Reason.NO_DATA, "no tool answered")

    def _find(self) -> list[str]:
        """Paths of the tools; looked for at every poll, as ROCm may be installed or replaced meanwhile."""
        search = os.pathsep.join((self._env.get("PATH", os.defpath), *_FOLDERS))
        names = (self._wanted,) if self._wanted else TOOLS
        return [path for name in names if (path := shutil.which(name, path=search))]

    def _not_found(self) -> str:
        if self._wanted:
            return f"{self._wanted} is not there or not executable; give the path of amd-smi or rocm-smi"
        return (
            f"neither {' nor '.join(TOOLS)} found on PATH or in {_FOLDERS[0]}; install one or name its path"
        )

    def _tool(self, path: str) -> Tool:
        if path not in self._tools:
            kind = RocmSmi if "rocm" in os.path.basename(path).lower() else AmdSmi
            self._tools[path] = kind(path, self._slow_s)
        return self._tools[path]

    def _socket(self, address: str) -> str:
        """The PCI function that is really there for an address a tool shows."""
        if self._sysfs is None or not self._sysfs.exists("bus/pci/devices"):
            return first_function(address)
        slot = address[:-1]
        for candidate in (address, *(f"{slot}{function}" for function in range(8))):
            if self._is_gpu(self._sysfs, f"bus/pci/devices/{candidate}"):
                return candidate
        return first_function(address)

    @staticmethod
    def _is_gpu(sysfs: Root, path: str) -> bool:
        """Whether a display controller or accelerator is there; a Radeon has its sound device beside it."""
        kind = sysfs.text(f"{path}/class")
        return kind.startswith(("0x03", "0x12")) if kind else sysfs.exists(path)

    def _devices(self, entries: Sequence[Entry], tool: str) -> list[tuple[Device, RawGroups]]:
        sockets = list(dict.fromkeys(e.pci for e in entries if e.pci))
        lost = [str(e.index) for e in entries if e.pci is None]
        if lost and not sockets:
            raise SourceError(Reason.NO_DATA, f"{tool} shows {len(lost)} GPUs without a usable PCI address")
        if lost:
            self._warn(f"{tool}: GPU {', '.join(lost)} left out: no PCI address of its own")
        return [(self._device(e, e.pci, sockets.index(e.pci), tool), e.groups) for e in entries if e.pci]

    def _device(self, entry: Entry, pci: str, gpu: int, tool: str) -> Device:
        texts = {key: value for key, value in entry.identity.items() if isinstance(value, str)}
        numbers = {key: value for key, value in entry.identity.items() if isinstance(value, int)}
        units = entry.groups.get("asic", {}).get("compute_units")
        return Device(
            DeviceId(pci, entry.partition),
            gpu,
            model=texts.get("model"),
            gfx=texts.get("gfx"),
            uuid=texts.get("uuid"),
            serial=texts.get("serial") if self._serials else None,
            vbios=texts.get("vbios"),
            driver=texts.get("driver"),
            compute_partition=texts.get("compute_partition"),
            memory_partition=texts.get("memory_partition"),
            compute_units=units if isinstance(units, int) else None,
            kfd_gpu_id=numbers.get("kfd_gpu_id"),
            indices=self._indices(entry, pci, "rocm_smi" if "rocm" in tool else "amdsmi"),
        )

    def _indices(self, entry: Entry, pci: str, tool: str) -> dict[str, int]:
        indices = {tool: entry.index}
        if isinstance(node := entry.identity.get("kfd"), int):
            indices["kfd"] = node
        if self._sysfs is not None and entry.partition is None:
            for name in self._sysfs.listdir(f"bus/pci/devices/{pci}/drm"):
                for prefix, key in (("card", "drm"), ("renderD", "render")):
                    if name.startswith(prefix) and name.removeprefix(prefix).isdigit():
                        indices.setdefault(key, int(name.removeprefix(prefix)))
        return indices

    def _warn(self, text: str) -> None:
        if text not in self._said and len(self._said) < 100:
            self._said.add(text)
            log.warning("%s", text)
