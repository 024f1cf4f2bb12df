"""Opens what a profiler left: finds files, detects each by content, feeds decoders, builds the window."""

from __future__ import annotations

import gc
import gzip
import os
import re
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path

from exporter.formats import sniff
from exporter.formats.trace import Decoded, Names
from exporter.model import Source, Window, WindowResult
from exporter.windows import manifests, rocpd
from exporter.windows.assemble import Assembly, File
from exporter.windows.bottleneck import Thresholds
from exporter.windows.manifests import MANIFEST, Manifest

_CHUNK = 1 << 19
_PASS = re.compile(r"(?:pmc|pass)_\d+")
_SUFFIX = re.compile(
    r"_?(?:kernel_trace|(?:hip|hsa|marker|rccl|hip_runtime|hip_compiler|rocdecode|rocjpeg|ompt)_(?:api_)?trace"
    r"|api_trace|memory_copy_trace|memory_allocation_trace|scratch_memory_trace|counter_collection|agent_info"
    r"|(?:kernel|hip|hsa|hip_api|hsa_api|marker_api|rccl_api|memory_copy|scratch_memory|domain|\w+)_stats|results)"
)
_EXTENSION = re.compile(r"(?:\.(?:csv|json|db|txt|gz))+", re.IGNORECASE)
_WHOLE = ("rocprofv3-rocpd", "rocprofv3-json")  # one file for all that a run recorded, the better one first
# Formats in which one file holds calls and kernels of one process, so that no other file is joined to it.
_ALONE = frozenset({"pytorch-trace", "rocprof-v1", "rocprofv2-text"})


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was read and what it says. ``notes`` are lines about files that could not be used."""

    sources: tuple[Source, ...]
    results: tuple[WindowResult, ...]
    window: Window
    notes: tuple[str, ...] = ()


def load(paths: Sequence[Path], limits: Thresholds | None = None) -> Analysis:
    """Read files and folders; a bad file costs itself and gives a note.

    Each path given is a window of its own, single files of one folder together; so is each folder below
    that holds a manifest.
    """
    collecting = gc.isenabled()
    gc.disable()  # millions of short-lived rows, none of them in a cycle
    try:
        return _load(paths, limits)
    finally:
        if collecting:
            gc.enable()


def _load(paths: Sequence[Path], limits: Thresholds | None) -> Analysis:
    names = Names()
    notes: list[str] = []
    sources: list[Source] = []
    results: list[WindowResult] = []
    first: Window | None = None
    for root, found in _windows(paths).items():
        manifest = manifests.read(root, notes)
        files, read = [], []
        for path in found:
            decoded = read_file(path, names, notes)
            read.append((path, decoded))
            files.append(_placed(path, root, decoded, manifest is not None))
        _once(read, files, notes)
        first = first or _window(root, manifest, [d for _, d in read])
        assembly = Assembly(
            files, names, manifest.terms if manifest else None, (manifest.agents if manifest else None) or {}
        )
        results += assembly.results(limits)
        sources += [
            Source(str(path), d.format, d.tool, d.rows, dict(d.skipped), d.partial) for path, d in read
        ]
    return Analysis(tuple(sources), tuple(results), first or Window("none", "unknown", "trace"), tuple(notes))


def read_file(path: Path, names: Names, notes: list[str]) -> Decoded:
    """Decode one file. Never raises for what is in it: the reason goes to ``notes``."""
    try:
        with open(path, "rb") as raw:
            head = raw.peek(len(sniff.SQLITE))[: len(sniff.SQLITE)]
            if head == sniff.SQLITE:
                return rocpd.read(path, names, notes)
            stream = gzip.GzipFile(fileobj=raw) if head.startswith(sniff.GZIP) else raw
            return _decode(path, stream, names, notes)
    except OSError as e:
        notes.append(f"{path}: cannot be read: {e.strerror or e}")
        return Decoded(skipped={"unreadable": 1})


def _decode(path: Path, stream: BufferedReader | gzip.GzipFile, names: Names, notes: list[str]) -> Decoded:
    chunks = _Chunks(stream)
    head = b""
    while len(head) < sniff.HEAD and (chunk := chunks.next()):
        head += chunk
    found = sniff.find(head, names)
    if found.decoder is None:
        why = "is cut or damaged before anything could be read" if chunks.cut and not head else found.note
        notes.append(f"{path}: {why}")
        return Decoded(note=why, partial=chunks.cut)
    decoder = found.decoder
    decoder.feed(head[found.offset :])
    del head
    while chunk := chunks.next():
        decoder.feed(chunk)
    decoder.finish(chunks.cut)
    if decoder.decoded.note:
        notes.append(f"{path}: {decoder.decoded.note}")
    if chunks.cut:
        notes.append(f"{path}: compressed data ends early or is damaged; what came before is used")
    return decoder.decoded


class _Chunks:
    """Blocks of a stream; a damaged or cut container ends it and sets ``cut``."""

    def __init__(self, stream: BufferedReader | gzip.GzipFile) -> None:
        self._stream = stream
        self.cut = False

    def next(self) -> bytes:
        if self.cut:
            return b""
        try:
            return self._stream.read1(_CHUNK)  # a full read would lose what comes before the damage
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.cut = True
            return b""


# --- which files, and whose ---------------------------------------------------------------------------


def _windows(paths: Sequence[Path]) -> dict[Path, list[Path]]:
    """Files by the folder of their window."""
    found: dict[Path, list[Path]] = {}
    for path in paths:
        if not path.is_dir():
            found.setdefault(path.parent, []).append(path)
            continue
        root = path
        for folder, below, files in os.walk(path):
            below.sort()
            here = Path(folder)
            top = next((p for p in (here, *here.parents) if p == root or _has_manifest(p, path)), root)
            for name in sorted(files):
                if name != MANIFEST and stat.S_ISREG(_mode(here / name)):
                    found.setdefault(top, []).append(here / name)
        if _has_manifest(path, path):
            found.setdefault(root, [])
    return {root: list(dict.fromkeys(files)) for root, files in found.items()}


def _has_manifest(folder: Path, limit: Path) -> bool:
    return (folder == limit or limit in folder.parents) and (folder / MANIFEST).is_file()


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return stat.S_IFREG  # let opening it say what is wrong


def _placed(path: Path, root: Path, decoded: Decoded, one_node: bool) -> File:
    """Which run on which node wrote a file: the folder is the node's unless a manifest speaks for all."""
    try:
        parts = list(path.parent.relative_to(root).parts)
    except ValueError:
        parts = []
    run = "/".join(part for part in parts if _PASS.fullmatch(part))
    folder = "/".join(part for part in parts if not _PASS.fullmatch(part))
    stem = _EXTENSION.sub("", path.name) if not path.name.startswith(".") else path.name
    known = _SUFFIX.search(stem)
    if decoded.format in _ALONE:
        prefix = path.name
    elif known is not None and known.end() == len(stem):
        prefix = stem[: known.start()]
    else:
        prefix = ""
    if not (decoded.format or "").startswith("rocprofv3"):
        run = f"{run}/{path.name}"
    prefix = f"{folder}/{prefix}" if one_node else prefix
    return File(decoded, f"{root}" if one_node else f"{root}/{folder}", prefix, run)


def _once(read: Sequence[tuple[Path, Decoded]], files: Sequence[File], notes: list[str]) -> None:
    """Use a run once that was written in several formats; the file that holds all of it goes first."""
    runs: dict[tuple[str, str, str], list[tuple[Path, Decoded]]] = {}
    for pair, file in zip(read, files, strict=True):
        named = file.prefix and not file.prefix.endswith("/")
        if named and (pair[1].format or "").startswith("rocprofv3"):
            runs.setdefault((file.folder, file.prefix, file.run), []).append(pair)
    for pairs in runs.values():
        whole = [pair for pair in pairs if pair[1].format in _WHOLE and pair[1].rows]
        if not whole:
            continue
        used, best = min(whole, key=lambda pair: (pair[1].partial, _WHOLE.index(pair[1].format or "")))
        for path, decoded in pairs:
            if decoded is not best and decoded.empty_out():
                notes.append(f"{path}: of the same run as {used.name}, which says it all; not used")


def _window(root: Path, manifest: Manifest | None, decoded: Sequence[Decoded]) -> Window:
    tools = [d.tool for d in decoded if d.tool]
    traced = any(len(d.calls) or (len(d.kernels) and not d.timed_by_counters) for d in decoded)
    counted = any(d.dispatches for d in decoded)
    mode = "counters" if counted and not traced else "trace"
    window = Window(root.name or str(root), tools[0] if tools else "unknown", mode)
    if manifest is None:
        return window
    return replace(
        window,
        id=manifest.id or window.id,
        tool=manifest.tool or window.tool,
        mode=manifest.mode or window.mode,
        bounds=manifest.terms.bounds,
        agents=manifest.agents or {},
        run=manifest.run,
        first=manifest.first,
        counter_set=manifest.counter_set,
        pytorch=manifest.pytorch,
    )
