"""A process of its own that reads the GPUs every second, and at SIGUSR1 at once, until it is ended.

``python -m exporter.cards.meter SYSFS PROCFS FILE SECONDS``. What hangs here holds no job up.
"""

from __future__ import annotations

import signal
import sys

from exporter.backends.sysfs import SysfsBackend
from exporter.cards import samples
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.host import Clock, Root
from exporter.model import Gap, Series, Value

_GROUPS = frozenset({"busy", "memory", "hwmon", "dpm", "gpu_metrics"})


def main(argv: list[str]) -> None:
    sysfs, procfs, path, every = argv
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job
    clock = Clock()
    backend = SysfsBackend(Root(sysfs), Root(procfs), wanted=lambda group, *_path: group in _GROUPS)
    extractor = Extractor(CATALOGUE, backend.name)
    with open(path, "a", encoding="utf-8") as out:
        while True:
            series: list[Series] = []
            values: list[Value] = []
            gaps: list[Gap] = []
            for device, groups in backend.poll():
                extractor.extract(device, groups, series, values, gaps)
            # After the reading: what it says was so a moment before, not after.
            sample = samples.taken(clock.monotonic(), dict(zip(series, values, strict=True)))
            out.write(samples.line(sample) + "\n")
            out.flush()
            signal.sigtimedwait({signal.SIGUSR1}, float(every))


if __name__ == "__main__":
    main(sys.argv[1:])
