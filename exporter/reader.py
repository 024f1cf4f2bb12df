"""The reader child: owns one backend and answers polls. Imports nothing of the web or of configuration.

Started as ``python -m exporter.reader SPEC``; see ``main`` for what SPEC holds.
"""

from __future__ import annotations

import gc
import math
import os
import sys
from typing import Any

from exporter import worker
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.catalogue.schema import Catalogue
from exporter.catalogue.select import Wanted, without
from exporter.host import Clock, Root, resident_bytes
from exporter.model import Backend, Device, Gap, Reason, Series, SourceError, Value
from exporter.slots import Encoder

# Growth of this process, after its first answer, that only a leaking library brings about.
GROWTH_BYTES = 64 * 1024 * 1024


class Reader:
    """One backend and the extractor for its groups."""

    def __init__(self, backend: Backend, catalogue: Catalogue) -> None:
        self._backend = backend
        self._extractor = Extractor(catalogue, backend.name)
        self._encoder = Encoder()
        self._procfs = Root("/proc")
        self._size: int | None = None

    def poll(self, _request: dict[str, Any]) -> dict[str, Any]:
        """Read all devices once; the answer is for ``slots.Decoder``."""
        devices: list[Device] = []
        series: list[Series] = []
        values: list[Value] = []
        gaps: list[Gap] = []
        for device, groups in self._backend.poll():
            devices.append(device)
            self._extractor.extract(device, groups, series, values, gaps)
        return self._encoder.encode(devices, series, values, gaps)

    def worn_out(self) -> str | None:
        """Why this process should start afresh: it has grown too much, or the backend says so."""
        size = resident_bytes(self._procfs)
        if size is not None:
            if self._size is None:
                self._size = size
            elif size - self._size > GROWTH_BYTES:
                return f"grown by {(size - self._size) >> 20} MiB since its first answer"
        reason: str | None = getattr(self._backend, "spent", None)
        return reason


def open_backend(spec: dict[str, Any]) -> Backend:
    """The backend that ``spec`` names.

    Keys: ``backend``; ``sysfs``, ``procfs`` for sysfs; ``capture`` for replay. For amdsmi ``sysfs``, and if
    wanted ``dev``, ``budget_s``, ``violations_s`` and ``records_s`` (0: never), ``skip`` (groups). For
    smi_cli ``sysfs``, ``deadline``, and ``tool`` or null. For all ``disable``, names of metrics and groups
    that are not read.
    """
    name = spec["backend"]
    wanted = Wanted(without(CATALOGUE, spec.get("disable", ())), "amdsmi" if name == "amdsmi" else "sysfs")
    if name == "sysfs":
        from exporter.backends.sysfs import SysfsBackend

        return SysfsBackend(
            Root(spec["sysfs"]),
            Root(spec["procfs"]),
            debugfs=Root(spec["debugfs"]) if "debugfs" in spec else None,
            logs=Root(spec["container_logs"]) if spec.get("container_logs") else None,
            show_integrated=spec.get("integrated", "auto") == "show",
            wanted=wanted,
        )
    if name == "amdsmi":
        from exporter.backends.amdsmi import AmdsmiBackend
        from exporter.backends.amdsmi_socket import GROUPS, Cadence

        skip = frozenset(spec.get("skip", ())) | {g for g in GROUPS if not wanted(g)}
        return AmdsmiBackend(
            Root(spec["sysfs"]),
            environ=os.environ,
            path=sys.path,
            dev=spec.get("dev", "/dev"),
            show_integrated=spec.get("integrated", "auto") == "show",
            cadence=Cadence(
                violations_s=spec.get("violations_s", 0.0), records_s=spec.get("records_s", 0.0), skip=skip
            ),
            budget_s=spec.get("budget_s", math.inf),
        )
    if name == "smi_cli":
        from exporter.backends.smi_cli import SmiCliBackend

        return SmiCliBackend(spec.get("tool"), sysfs=Root(spec["sysfs"]), deadline_s=spec["deadline"])
    if name == "replay":
        from exporter.backends.replay import open_capture
        from exporter.backends.sysfs import SysfsBackend

        sysfs, procfs = open_capture(spec["capture"], Clock())
        return SysfsBackend(sysfs, procfs, wanted=wanted)
    raise SourceError(Reason.UNSUPPORTED, f"unknown backend {name!r}")


def main() -> None:
    reader: Reader | None = None

    def poll(request: dict[str, Any]) -> dict[str, Any]:
        # Opened at the first poll, so that a backend that cannot start says why in an answer.
        nonlocal reader
        if reader is None:
            spec = worker.spec()
            reader = Reader(open_backend(spec), without(CATALOGUE, spec.get("disable", ())))
            # What is loaded by now stays: keep the collector from walking it at every poll.
            gc.freeze()
        return reader.poll(request)

    worker.serve({"poll": poll}, lambda: reader.worn_out() if reader else None)


if __name__ == "__main__":
    main()
