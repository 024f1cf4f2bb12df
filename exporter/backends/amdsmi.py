"""Backend ``amdsmi``: the driver library through the Python module of the installed ROCm.

Lives in the reader child alone: the library may hang, leak or crash. Between polls it holds no device open.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

from exporter.backends.amdsmi_identity import Gpu, enumerate_gpus, with_new_handles
from exporter.backends.amdsmi_module import Library, load
from exporter.backends.amdsmi_socket import GROUPS, Cadence, SocketReader
from exporter.host import Clock, Root
from exporter.model import Device, RawGroups, Reason, SourceError

log = logging.getLogger(__name__)

_GENERATION = "class/kfd/kfd/topology/generation_id"
_RETRY_S = 60.0

_Pairs = list[tuple[Device, RawGroups]]


class AmdsmiBackend:
    """Polls every AMD GPU the library lists.

    The library stays initialised between polls unless that keeps a KFD or DRM device open. It is initialised
    anew, which makes its handles anew, when KFD's topology changes (a partition mode, a driver reload) and
    when a GPU that answered stops answering altogether.
    ``spent`` says why this process should be replaced; None while it need not be.
    """

    name = "amdsmi"

    def __init__(
        self,
        sysfs: Root,
        *,
        environ: Mapping[str, str],
        path: Sequence[str],
        files: Root | None = None,
        process: Root | None = None,
        dev: str = "/dev",
        show_integrated: bool = False,
        serials: bool = False,
        cadence: Cadence | None = None,
        budget_s: float = math.inf,
        clock: Clock | None = None,
    ) -> None:
        self._sysfs = sysfs
        self._environ, self._path = environ, path
        self._files = files or Root("/")
        self._process = process or Root("/proc/self")
        self._devices = (f"{dev}/kfd", f"{dev}/dri/")
        self._show_integrated, self._serials = show_integrated, serials
        self._cadence = cadence or Cadence()
        self._budget_s = budget_s
        self._clock = clock or Clock()
        self.spent: str | None = None
        self._library: Library | None = None
        self._refused: SourceError | None = None
        self._retry_at = 0.0
        self._gpus: list[Gpu] | None = None  # None: not initialised
        self._known: list[Gpu] = []  # the latest there were; their handles may be dead
        self._identify_at = 0.0
        self._readers: dict[str, SocketReader] = {}
        self._generation: str | None = None
        self._silent: frozenset[str] = frozenset()
        self._first = 0  # where the next poll starts, so that a tight budget starves no GPU for ever

    def poll(self) -> _Pairs:
        """Read every GPU once.

        Shape:  one pair per logical device by ascending PCI address, then partition.
        Absent: a leaf, or a whole group, is a Reason; partitions beyond the first have ``busy`` alone.
        Errors: SourceError without a usable module, library or driver.
        """
        library = self._loaded()
        try:
            if self._gpus is not None and self._sysfs.text(_GENERATION) != self._generation:
                self._renew(library)
            reused = self._gpus is not None
            out, silent = self._read(library)
            if reused and silent - self._silent:
                # Handles outlive a reset or an unplugged GPU only in name: ask once more with new ones.
                self._renew(library)
                out, silent = self._read(library)
            self._silent = silent
        finally:
            self._release(library)
        return out

    def _loaded(self) -> Library:
        if self._library is None:
            now = self._clock.monotonic()
            if self._refused is not None and now < self._retry_at:
                raise SourceError(self._refused.reason, str(self._refused))
            try:
                self._library = load(self._environ, self._files, self._path)
            except SourceError as e:
                self._refused, self._retry_at = e, now + _RETRY_S
                raise
        return self._library

    def _read(self, library: Library) -> tuple[_Pairs, frozenset[str]]:
        gpus = self._opened(library)
        clock = self._clock.monotonic
        late = clock() + self._budget_s
        pairs: dict[str, _Pairs] = {}
        silent = set()
        start = self._first if self._first < len(gpus) else 0
        self._first = 0
        for gpu in gpus[start:] + gpus[:start]:
            if self._asleep(gpu.pci):
                pairs[gpu.pci] = [(d, dict.fromkeys(GROUPS, Reason.SUSPENDED)) for d in gpu.devices]
                continue
            if not self._first and clock() >= late:
                self._first = gpus.index(gpu)
            before = library.answered
            reader = self._readers.setdefault(gpu.pci, SocketReader(self._cadence))
            pairs[gpu.pci] = reader.read(library, gpu, clock, late)
            if library.answered == before and clock() < late:
                silent.add(gpu.pci)
        return [pair for gpu in gpus for pair in pairs[gpu.pci]], frozenset(silent)

    def _opened(self, library: Library) -> list[Gpu]:
        gpus = self._gpus
        if gpus is not None and all(gpu.whole or self._asleep(gpu.pci) for gpu in gpus):
            return gpus
        if gpus is None:
            if self._sleeper() is not None and self._known and all(self._asleep(g.pci) for g in self._known):
                return self._known
            self._initialise(library)
        now = self._clock.monotonic()
        self._gpus = None if now >= self._identify_at else with_new_handles(library, self._known)
        if self._gpus is None:
            try:
                self._gpus = enumerate_gpus(
                    library, self._sysfs, show_integrated=self._show_integrated, serials=self._serials
                )
            except SourceError:
                self._close(library)
                raise
            self._identify_at = now + self._cadence.slow_s
        self._known = self._gpus
        return self._gpus

    def _initialise(self, library: Library) -> None:
        """Initialise the library, which opens every GPU and so wakes those that sleep."""
        if (pci := self._sleeper()) is not None:
            raise SourceError(
                Reason.SUSPENDED,
                f"{pci} sleeps, and the library wakes every GPU when it starts; backend sysfs lets it sleep",
            )
        self._generation = self._sysfs.text(_GENERATION)
        flag = library.constant("AmdSmiInitFlags", "INIT_AMD_GPUS")
        library.demand("init", *(() if flag is None else (flag,)))
        self._gpus = []

    def _sleeper(self) -> str | None:
        """An AMD GPU that sleeps, known to the library or not."""
        return next((n for n in self._sysfs.listdir("bus/pci/drivers/amdgpu") if self._asleep(n)), None)

    def _renew(self, library: Library) -> None:
        """Drop everything that was learnt from handles that may be dead."""
        self._close(library)
        self._readers.clear()
        self._identify_at = 0.0

    def _close(self, library: Library) -> None:
        library.call("shut_down")
        self._gpus = None

    def _release(self, library: Library) -> None:
        """Let go of devices: an open KFD handle blocks partition changes and driver upgrades.

        A library that lists no GPU is asked anew next time, too.
        """
        held = self._held()
        if self._gpus is not None and (held or not self._gpus):
            self._close(library)
            held = self._held()
        if held:
            self.spent = f"the library keeps {held} open after it was shut down"

    def _held(self) -> str | None:
        return next(
            (target for target in self._process.link_targets("fd") if target.startswith(self._devices)), None
        )

    def _asleep(self, pci: str) -> bool:
        # Any call about a sleeping GPU wakes it, for seconds and many watts; this one does not.
        status = self._sysfs.text(f"bus/pci/devices/{pci}/power/runtime_status")
        return status in ("suspended", "suspending")
