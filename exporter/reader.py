"""The reader child: owns one backend and answers polls. Imports nothing of the web or of configuration.

Started as ``python -m exporter.reader SPEC``; see ``main`` for what SPEC holds.
"""

from __future__ import annotations

import gc
from typing import Any

from exporter import child
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.catalogue.schema import Catalogue
from exporter.host import Clock, Root
from exporter.model import Backend, Device, Gap, Reason, Series, SourceError, Value
from exporter.slots import Encoder


class Reader:
    """One backend and the extractor for its groups."""

    def __init__(self, backend: Backend, catalogue: Catalogue) -> None:
        self._backend = backend
        self._extractor = Extractor(catalogue, backend.name)
        self._encoder = Encoder()

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


def open_backend(spec: dict[str, Any]) -> Backend:
    """The backend that ``spec`` names.

    Keys: ``backend``; ``sysfs``, ``procfs`` for sysfs; ``capture`` for replay, ``epoch`` its start.
    """
    name = spec["backend"]
    if name == "sysfs":
        from exporter.backends.sysfs import SysfsBackend

        return SysfsBackend(
            Root(spec["sysfs"]),
            Root(spec["procfs"]),
            show_integrated=spec.get("integrated", "auto") == "show",
        )
    if name == "replay":
        from exporter.backends.replay import open_capture
        from exporter.backends.sysfs import SysfsBackend

        sysfs, procfs = open_capture(spec["capture"], Clock())
        return SysfsBackend(sysfs, procfs)
    raise SourceError(Reason.UNSUPPORTED, f"unknown backend {name!r}")


def main() -> None:
    reader: Reader | None = None

    def poll(request: dict[str, Any]) -> dict[str, Any]:
        # Opened at the first poll, so that a backend that cannot start says why in an answer.
        nonlocal reader
        if reader is None:
            reader = Reader(open_backend(child.spec()), CATALOGUE)
            # What is loaded by now stays: keep the collector from walking it at every poll.
            gc.freeze()
        return reader.poll(request)

    child.serve({"poll": poll})


if __name__ == "__main__":
    main()
