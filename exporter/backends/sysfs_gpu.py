"""Reads the files of one GPU into raw groups, as cheaply as a poll needs.

Never touches a file whose reading costs or changes something: ``pcie_bw`` (blocks a second), ``xgmi_error``
(clears on read), ``pp_od_clk_voltage``, ``pp_features``, ``pp_table``.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any

from exporter.formats import sysfs_text
from exporter.formats.gpu_metrics import Decoded, decode, version_of
from exporter.formats.gpu_metrics_units import unify
from exporter.host import Held, Root, reason_of
from exporter.model import FormatError, Raw, Reason

log = logging.getLogger(__name__)

GROUPS = ("busy", "memory", "hwmon", "dpm", "link", "ras", "gpu_metrics")

_Parse = Callable[[bytes], Raw]
Wanted = Callable[..., bool]  # (group, *path): whether any metric asks for what is there
_SMALL = 4096
_BLOB = 16384
_SETTLED_NS = 1_000_000_000  # a folder changed less than this ago may change again within its stamp's grain

_BUSY = {"gfx": "gpu_busy_percent", "memory": "mem_busy_percent", "vcn": "vcn_busy_percent"}
_POOLS = {"vram": "mem_info_vram", "visible_vram": "mem_info_vis_vram", "gtt": "mem_info_gtt"}
_DOMAINS = ("sclk", "mclk", "fclk", "socclk", "vclk", "dclk")
_LINK: tuple[tuple[str, str, _Parse], ...] = (
    ("width", "current_link_width", sysfs_text.lanes),
    ("speed", "current_link_speed", sysfs_text.transfers_per_second),
    ("replays", "pcie_replay_count", sysfs_text.integer),
)
_LINK_LIMITS: tuple[tuple[str, str, _Parse], ...] = (
    ("max_width", "max_link_width", sysfs_text.lanes),
    ("max_speed", "max_link_speed", sysfs_text.transfers_per_second),
)
_HWMON = re.compile(r"(temp|freq|in)(\d+)_(input|label)\Z")
_SERIES = {"temp": "temperature", "freq": "clock", "in": "voltage"}
_RAS_BLOCK = re.compile(r"(\w+)_err_count\Z")


class GpuReader:
    """The files of one PCI device.

    Fast files are read on every poll. Limits and sizes are kept for ``slow_s`` seconds, error counts for
    ``ras_s``; what cannot be read is tried again on every poll. A file that is not there is looked for again
    when the folder says that it changed, and every ``slow_s``, as sysfs may not say it. What is not
    ``wanted`` is not read.
    """

    def __init__(self, root: Root, path: str, slow_s: float, ras_s: float, wanted: Wanted) -> None:
        self._root = root
        self._read = root.read
        self.path = path
        self._slow_s, self._ras_s = slow_s, ras_s
        self._status = f"{path}/power/runtime_status"
        self._blob = f"{path}/gpu_metrics"
        self._wanted = wanted
        self._busy: list[tuple[str, str, _Parse]] = [
            (key, f"{path}/{file}", sysfs_text.integer) for key, file in _BUSY.items() if wanted("busy", key)
        ]
        self._used: list[tuple[str, str, _Parse]] = [
            (pool, f"{path}/{file}_used", sysfs_text.integer)
            for pool, file in _POOLS.items()
            if wanted("memory", "used", pool)
        ]
        self._dpm: list[tuple[str, str, _Parse]] = [
            (domain, f"{path}/pp_dpm_{domain}", sysfs_text.active_megahertz)
            for domain in _DOMAINS
            if wanted("dpm", domain)
        ]
        self._link = [(key, f"{path}/{file}", parse) for key, file, parse in _LINK if wanted("link", key)]
        self._wants_hwmon, self._wants_ras = wanted("hwmon"), wanted("ras")
        self._wants_table = any(map(wanted, ("gpu_metrics", "busy_seconds", "dies")))
        self._hwmon: _Hwmon | None = None
        self._folder = _Folder(root, path)
        self._held = Held(root)
        self._missing: set[str] = set()
        self._limits = _Kept(root, _limit_files(path, wanted))
        self._slow_due = float("-inf")
        self._ras = _Ras(root, f"{path}/ras", wanted)
        self._ras_due = float("-inf")
        self._complaint = ""

    def asleep(self) -> bool:
        """Whether the GPU is suspended; asking does not wake it. Raises OSError where the device is gone."""
        try:
            return self._read(self._status, _SMALL).startswith(b"suspend")
        except OSError as e:
            if reason_of(e) is Reason.GONE or not self._root.exists(self.path):
                raise
            return False

    def read(self, now: float) -> tuple[dict[str, Raw], Decoded | None]:
        """All groups, and the decoded table for what concerns partitions."""
        refresh = now >= self._slow_due
        if refresh:
            self._slow_due = now + self._slow_s
        again = not self._folder.unchanged() or refresh
        if again:
            self._missing.clear()
            self._held.drop()
        hwmon = self._read_hwmon(refresh) if self._wants_hwmon else None
        clocks = hwmon["clock"] if isinstance(hwmon, dict) else {}
        limits = self._limits.read(again)
        table, decoded = self._table() if self._wants_table else (None, None)
        groups: dict[str, Raw] = {
            "busy": self._values(self._busy),
            "memory": {"used": self._values(self._used), "size": limits["size"]},
            "hwmon": hwmon,
            # Each of these asks the power controller, so none is read where hwmon has said it already.
            "dpm": self._values([file for file in self._dpm if type(clocks.get(file[0])) is not int]),
            "link": {**self._values(self._link), **limits["link"]},
            "ras": self._read_ras(now) if self._wants_ras else None,
            "gpu_metrics": table,
        }
        return groups, decoded

    def _values(self, files: list[tuple[str, str, _Parse]]) -> dict[str, Raw]:
        read, missing = self._held.read, self._missing
        out: dict[str, Raw] = {}
        for key, rel, parse in files:
            if rel in missing:
                out[key] = Reason.UNSUPPORTED
                continue
            try:
                out[key] = parse(read(rel, _SMALL))
            except OSError as e:
                out[key] = reason_of(e)
                if isinstance(e, FileNotFoundError):
                    missing.add(rel)
        return out

    def _table(self) -> tuple[Raw, Decoded | None]:
        try:
            blob = self._read(self._blob, _BLOB)
        except OSError as e:
            return reason_of(e), None
        if not blob:
            return Reason.UNSUPPORTED, None
        try:
            decoded = decode(blob)
            return unify(decoded, version_of(blob)), decoded
        except FormatError as e:
            if str(e) != self._complaint:
                self._complaint = str(e)
                log.warning("file=%s event=malformed detail=%s; other files serve instead", self._blob, e)
            return Reason.MALFORMED, None

    def _read_hwmon(self, refresh: bool) -> Raw:
        if self._hwmon is None or not self._hwmon.current():
            self._hwmon = _Hwmon.open(self._root, f"{self.path}/hwmon", self._wanted)
            refresh = True
        return Reason.UNSUPPORTED if self._hwmon is None else self._hwmon.read(refresh)

    def _read_ras(self, now: float) -> Raw:
        if now >= self._ras_due or self._ras.unsettled:
            self._ras_due = now + self._ras_s
            self._ras.refresh()
        return self._ras.groups


def _limit_files(path: str, wanted: Wanted) -> dict[str, dict[str, tuple[str, _Parse]]]:
    return {
        "size": {
            pool: (f"{path}/{file}_total", sysfs_text.integer)
            for pool, file in _POOLS.items()
            if wanted("memory", "size", pool)
        },
        "link": {key: (f"{path}/{file}", parse) for key, file, parse in _LINK_LIMITS if wanted("link", key)},
    }


class _Folder:
    """Notices when entries of one folder come or go, where the file system tells."""

    def __init__(self, root: Root, path: str) -> None:
        self._root, self._path = root, path
        self._stamp = root.stamp(path)
        self._settled = _settled(self._stamp)

    def unchanged(self) -> bool:
        stamp = self._root.stamp(self._path)
        same = stamp == self._stamp and self._settled
        self._stamp, self._settled = stamp, _settled(stamp)
        return same


def _settled(stamp: int | None) -> bool:
    return stamp is None or time.time_ns() - stamp > _SETTLED_NS


class _Kept:
    """Files that rarely change: kept while they are readable, until they are asked for ``again``."""

    def __init__(self, root: Root, files: dict[str, dict[str, tuple[str, _Parse]]]) -> None:
        self._root, self._files = root, files
        self._values: dict[str, dict[str, Raw]] = {group: {} for group in files}

    def read(self, again: bool) -> dict[str, dict[str, Raw]]:
        for group, files in self._files.items():
            old = self._values[group]
            new: dict[str, Raw] | None = None
            for key, (rel, parse) in files.items():
                if again or type(old.get(key)) not in (int, float):
                    if new is None:
                        new = dict(old)
                    new[key] = self._one(rel, parse)
            if new is not None:
                self._values[group] = new
        return self._values

    def _one(self, rel: str, parse: _Parse) -> Raw:
        try:
            return parse(self._root.read(rel, _SMALL))
        except OSError as e:
            return reason_of(e)


class _Hwmon:
    """One hwmon folder: which sensors it has, found once; their values, read every time."""

    @classmethod
    def open(cls, root: Root, parent: str, wanted: Wanted) -> _Hwmon | None:
        """The GPU's hwmon folder; None where there is none."""
        paths = [f"{parent}/{n}" for n in root.listdir(parent) if n.startswith("hwmon")]
        # Another driver may hang sensors of its own on the device, and a capture keeps an emptied folder.
        named = (path for path in paths if root.text(f"{path}/name") == "amdgpu")
        path = next(named, paths[0] if len(paths) == 1 else None)
        return cls(root, path, wanted) if path else None

    def __init__(self, root: Root, path: str, wanted: Wanted) -> None:
        self._root, self._path = root, path
        self._folder = _Folder(root, path)
        self._held = Held(root)
        self._fast: list[tuple[str, str, str]] = []  # group, sensor, file
        self._lost = False
        # Sensors without a limit: known from the listing, so no poll has to look for the file.
        self._without: dict[str, dict[str, Raw]] = {"temperature_critical": {}, "temperature_emergency": {}}
        names = root.listdir(path)
        have = set(names)
        slow: dict[str, dict[str, tuple[str, _Parse]]] = {
            "temperature_critical": {},
            "temperature_emergency": {},
            "power": {},
        }
        seen: set[tuple[str, str]] = set()
        for name in names:
            match = _HWMON.match(name)
            if not match or (match[1], match[2]) in seen:
                continue
            seen.add((match[1], match[2]))
            stem = match[1] + match[2]
            sensor = root.text(f"{path}/{stem}_label") or stem
            if wanted("hwmon", _SERIES[match[1]], sensor):
                self._fast.append((_SERIES[match[1]], sensor, f"{path}/{stem}_input"))
            if match[1] == "temp":
                for kind, group in (("crit", "temperature_critical"), ("emergency", "temperature_emergency")):
                    if not wanted("hwmon", group, sensor):
                        continue
                    if f"{stem}_{kind}" in have:
                        slow[group][sensor] = (f"{path}/{stem}_{kind}", sysfs_text.integer)
                    else:
                        self._without[group][sensor] = Reason.UNSUPPORTED
        if "power1_cap" in have and wanted("hwmon", "power_cap"):
            slow["power"]["power_cap"] = (f"{path}/power1_cap", sysfs_text.integer)
        self._single = [
            (key, f"{path}/{file}")
            for key, file in (
                ("power_average", "power1_average"),
                ("power_input", "power1_input"),
                ("fan", "fan1_input"),
            )
            if file in have and wanted("hwmon", key)
        ]
        self._slow = _Kept(root, slow)

    def current(self) -> bool:
        """Whether what was found still stands."""
        return not self._lost and self._folder.unchanged()

    def read(self, refresh: bool) -> dict[str, Raw]:
        kept = self._slow.read(refresh)
        read, integer = self._held.read, sysfs_text.integer
        if refresh:
            self._held.drop()
        out: dict[str, Any] = {
            "temperature": {},
            "clock": {},
            "voltage": {},
            **kept["power"],
            **{group: {**kept[group], **without} for group, without in self._without.items()},
        }
        for group, sensor, rel in self._fast:
            try:
                out[group][sensor] = integer(read(rel, _SMALL))
            except OSError as e:
                out[group][sensor] = self._failed(e)
        for key, rel in self._single:
            try:
                out[key] = integer(read(rel, _SMALL))
            except OSError as e:
                out[key] = self._failed(e)
        return out

    def _failed(self, error: OSError) -> Reason:
        if isinstance(error, FileNotFoundError):
            self._lost = True
        return reason_of(error)


class _Ras:
    """Error counts by block. Each read asks the hardware, so the answers are kept for a while."""

    def __init__(self, root: Root, path: str, wanted: Wanted) -> None:
        self._root, self._path = root, path
        self._folder = _Folder(root, path)
        self._wants_counts = any(wanted("ras", severity) for severity in ("ce", "ue", "de"))
        self._wants_pages = wanted("ras", "pages")
        self._busy = False
        self._blocks: set[str] = set()  # every block that was ever there: one that goes is missed
        self.groups: Raw = Reason.UNSUPPORTED

    @property
    def unsettled(self) -> bool:
        """Whether to ask again now: entries changed, or a block was busy."""
        return not self._folder.unchanged() or self._busy

    def refresh(self) -> None:
        names = self._root.listdir(self._path)
        self._busy = False
        if not names:
            self.groups = Reason.UNSUPPORTED
            return
        out: dict[str, dict[str, Raw]] = {"ce": {}, "ue": {}, "de": {}}
        self._blocks.update(match[1] for name in names if (match := _RAS_BLOCK.match(name)))
        for block in sorted(self._blocks) if self._wants_counts else ():
            self._block(block, f"{self._path}/{block}_err_count", out)
        groups: dict[str, Raw] = dict(out)
        if "gpu_vram_bad_pages" in names and self._wants_pages:
            try:
                groups["pages"] = sysfs_text.retired_pages(
                    self._root.read(f"{self._path}/gpu_vram_bad_pages")
                )
            except OSError as e:
                groups["pages"] = reason_of(e)
        self.groups = groups

    def _block(self, block: str, rel: str, out: dict[str, dict[str, Raw]]) -> None:
        try:
            counts: Raw = sysfs_text.ras_counts(self._root.read(rel, _SMALL))
        except OSError as e:
            counts = reason_of(e)
        self._busy = self._busy or counts is Reason.BUSY
        for severity in ("ce", "ue"):
            value = counts.get(severity, Reason.UNSUPPORTED) if isinstance(counts, dict) else counts
            out[severity][block] = value
        if isinstance(counts, dict) and "de" in counts:
            out["de"][block] = counts["de"]
