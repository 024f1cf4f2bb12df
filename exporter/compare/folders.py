"""Window folders as one side of a comparison: whatever profiler output the intake reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from exporter.compare.rows import Row
from exporter.history import schema
from exporter.history.amounts import metrics
from exporter.model import ConfigError, TimelineState, WindowResult
from exporter.windows import grids, intake
from exporter.windows.spool import MANIFEST

_PROCESS = re.compile(r"(\d+)_")
_WORKLOAD = ("sysinfo.csv", "pmc_perf.csv")
# What rocprof-compute writes of the machine, by our names.
_SYSTEM = {
    "gpu_model": "model",
    "gpu_arch": "gfx",
    "gpu_soc": "gfx",
    "hostname": "node",
    "amd_gpu_kernel_version": "driver",
    "vbios": "vbios",
    "compute_partition": "compute_partition",
    "memory_partition": "memory_partition",
    "rocm_version": "rocm",
    "linux_kernel_version": "kernel",
}
_AGENT = {"name": "gfx", "product_name": "model"}
_UNKNOWN = ("", "NA", "N/A", "nan", "None")


def rows(path: Path, notes: list[str]) -> list[Row]:
    """Rows of every window below a folder; each process is a run.

    Errors: ConfigError where nothing in it can be read as windows.
    """
    found: list[Row] = []
    for run, files in _units(path):
        analysis = intake.load(files)
        notes += analysis.notes
        window = analysis.window
        about = _context(files)
        planned = window.bounds is not None
        name = window.run or run
        at = min((f.stat().st_mtime for f in _files(files)), default=0.0)
        for result in analysis.results:
            context = {**about, "planned": planned}
            if window.pytorch:
                context["pytorch"] = window.pytorch
            found += _rows(result, at, name, window.mode, window.tool, window.first, context)
    if not found:
        why = f": {notes[-1]}" if notes else ""
        raise ConfigError(f"{path}: no profiler output that says anything of a GPU{why}")
    return found


def _units(path: Path) -> Iterator[tuple[str, list[Path]]]:
    """What is one process's output: a window with a manifest, a workload, or the files of one process."""
    if not path.is_dir():
        yield str(path), [path]
        return
    below = sorted(path.iterdir())
    names = {entry.name for entry in below}
    if MANIFEST in names or names & set(_WORKLOAD):
        yield str(path), [path]
        return
    processes: dict[str, list[Path]] = {}
    for file in below:
        if file.is_file():
            known = _PROCESS.match(file.name)
            processes.setdefault(known[1] if known else "", []).append(file)
    for process, files in processes.items():
        yield f"{path}/{process}", files
    for entry in below:
        if entry.is_dir() and not entry.is_symlink():
            yield from _units(entry)


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        yield from (p for p in path.rglob("*") if p.is_file()) if path.is_dir() else (path,)


def _rows(
    r: WindowResult, at: float, run: str, mode: str, tool: str, first: bool, context: Mapping[str, Any]
) -> Iterator[Row]:
    amounts: dict[str, float | None] = {name: getattr(r, name) for name in (*schema.FIELDS, *schema.COUNTS)}
    amounts |= {state.value: r.timeline_ns.get(state.value) for state in TimelineState}
    span = r.span_ns if mode != "counters" else r.counter_observed_ns
    coverage = (r.kernels - r.unmatched_kernels) / r.kernels if r.kernels and r.launches else None

    def row(kernel: str | None, values: Mapping[str, float]) -> Row:
        seconds = span / 1e9 if span else None
        return Row(
            at, run, r.device, r.gpu, kernel, mode, tool, seconds, values, None, coverage, first, context
        )

    yield row(None, metrics(amounts, planned=bool(context["planned"])))
    if mode == "counters":
        return  # a counter pass runs kernels one by one: their times are none of the application's
    total = sum(k.total_ns for k in r.kernel_stats)
    for k in r.kernel_stats:
        if k.calls and k.total_ns > 0:
            shares = {"kernel_share_ratio": k.total_ns / total}
            yield row(k.kernel, {"kernel_seconds": k.total_ns / k.calls / 1e9, **shares})


# --- what is known of the machine ---------------------------------------------------------------------


def _context(paths: list[Path]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in _files(paths):
        if file.name == "sysinfo.csv":
            found |= _named(file, _SYSTEM, 1)
        elif file.name.endswith("agent_info.csv"):
            found |= _named(file, _AGENT, 64)
    if sizes := grids.mix(paths):
        found["grid_mix"] = sizes
    return found


def _named(file: Path, names: Mapping[str, str], most: int) -> dict[str, Any]:
    found: dict[str, set[str]] = {}
    for row in grids.table(file, most):
        if row.get("agent_type", "GPU").strip().upper() != "GPU":
            continue
        for theirs, ours in names.items():
            value = row.get(theirs, "").strip()
            if value not in _UNKNOWN:
                found.setdefault(ours, set()).add(value)
    return {key: "+".join(sorted(values)) for key, values in found.items()}
