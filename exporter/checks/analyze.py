"""The verb ``analyze``: reduce profiler output that exists already, as JSON or as a page to read."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from exporter.compare.advice import facts_of, of_window
from exporter.model import Source, TimelineState, WindowResult
from exporter.windows import intake
from exporter.windows.intake import Analysis

TOP = 10
_TELLS = {
    "communication": "collectives run while nothing else does",
    "gpu_bound": "the GPU is busy; make the kernels faster",
    "contended": "several processes wait for one another on this GPU",
    "copy_bound": "the GPU idles while copies run",
    "dependency_bound": "submitted kernels wait for others",
    "launch_bound": "launching takes longer than the kernels; fuse them or capture a graph",
    "host_stalled": "the host gives the GPU nothing to do",
    "balanced": "no single cause stands out",
    "unknown": "cannot be said from this input",
}


def run(paths: Sequence[Path], as_json: bool) -> int:
    """Print what the files say. 0 if anything was read, 1 if nothing could be, 2 for a path not there."""
    for path in paths:
        if not path.exists():
            _say(f"{path}: no such file or folder")
            return 2
    analysis = intake.load(paths)
    for note in analysis.notes:
        _say(note)
    read = any(source.rows or _holds_nothing(source) for source in analysis.sources)
    if not read and not analysis.notes:
        _say(_nothing(paths, analysis))
    if as_json:
        json.dump(as_dict(analysis), sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    elif read:
        show(analysis, sys.stdout)
    return 0 if read else 1


def _holds_nothing(source: Source) -> bool:
    """Whether a file of a known format is whole and has no rows: nothing ran, and that was read."""
    return source.format is not None and not (source.rows or source.skipped or source.partial)


def _say(line: str) -> None:
    sys.stderr.write(f"amdgpu-exporter: {line}\n")


def _nothing(paths: Sequence[Path], analysis: Analysis) -> str:
    where = ", ".join(map(str, paths))
    if not analysis.sources:
        return f"{where}: holds no files"
    faults = {reason for source in analysis.sources for reason in source.skipped}
    return f"{where}: no row could be used" + (f" ({', '.join(sorted(faults))})" if faults else "")


def as_dict(analysis: Analysis) -> dict[str, Any]:
    """The object of ``analyze --json``: every key there, null where unknown, seconds as numbers."""
    return {
        "version": 1,
        "sources": [
            {
                "path": source.path,
                "format": source.format,
                "tool": source.tool,
                "rows": source.rows,
                "skipped": dict(source.skipped),
                "partial": source.partial,
            }
            for source in analysis.sources
        ],
        "gpus": [_gpu(result) for result in analysis.results],
    }


def _gpu(r: WindowResult) -> dict[str, Any]:
    return {
        "gpu": r.gpu,
        "kernels": r.kernels,
        "launches": r.launches,
        "span_seconds": _seconds(r.span_ns),
        "execution_seconds": _seconds(r.execution_ns),
        "busy_seconds": _seconds(r.busy_ns),
        "queue_seconds": _seconds(r.queue_ns),
        "launch_duration_seconds": _seconds(r.launch_duration_ns),
        "launch_call_seconds": _seconds(r.launch_call_ns),
        "queue_p50_seconds": _seconds(r.queue_p50_ns),
        "queue_p95_seconds": _seconds(r.queue_p95_ns),
        "queue_delay_ratio": r.queue_delay_ratio,
        "timeline_ratio": {str(s): _share(r.timeline_ns.get(s), r.span_ns) for s in TimelineState},
        "bottleneck": str(r.bottleneck),
        "skewed_launches": r.skewed,
        "coverage_ratio": coverage(r),
        "compute_density_ratio": r.compute_density_ratio,
        "valu_instructions": r.valu_instructions,
        "l2_hit_ratio": r.l2_hit_ratio,
        "counters": dict(sorted(r.counters.items())),
        "top_kernels": [
            {
                "kernel": k.kernel,
                "calls": k.calls,
                "seconds": _seconds(k.total_ns),
                "mean_seconds": k.total_ns / k.calls / 1e9 if k.calls else None,
                "p50_seconds": _seconds(k.p50_ns) if r.span_ns is not None else None,
                "p95_seconds": _seconds(k.p95_ns) if r.span_ns is not None else None,
                "share_ratio": _share(k.total_ns, r.execution_ns),
            }
            for k in r.kernel_stats[:TOP]
        ],
        "advice": [{"text": one.text, "evidence": one.evidence} for one in of_window(facts_of(r))],
    }


def coverage(r: WindowResult) -> float | None:
    """Share of the window's kernels whose call was seen; None where the input shows no launches at all."""
    if r.timeline_reason in ("no_launch_calls", "no_kernel_times", "summary_only") and not r.launches:
        return None
    return _share(r.kernels - r.unmatched_kernels, r.kernels)


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


# --- for people --------------------------------------------------------------------------------------


def show(analysis: Analysis, out: TextIO) -> None:
    """A page: what was read, then each GPU with its verdict, timeline, launches and kernels."""
    width = shutil.get_terminal_size().columns if out.isatty() else 200
    for source in analysis.sources:
        skipped = "".join(f", {count} {reason}" for reason, count in sorted(source.skipped.items()))
        state = " (cut)" if source.partial else ""
        out.write(f"{source.path}: {source.format or 'not used'}, {source.rows} rows{skipped}{state}\n")
    if not analysis.results:
        out.write("\nNo kernel ran.\n")
    out.writelines(
        "\n" + "".join(f"{line}\n" for line in _page(result, width)) for result in analysis.results
    )


def _page(r: WindowResult, width: int) -> Iterator[str]:
    yield f"GPU {r.gpu}: {r.bottleneck} - {_TELLS[str(r.bottleneck)]}"
    states = ", ".join(f"{s} {_percent(_share(r.timeline_ns.get(s), r.span_ns))}" for s in TimelineState)
    why = f" ({r.timeline_reason})" if r.timeline_reason else ""
    yield f"  timeline   {states} of {_time(r.span_ns)}{why}"
    yield f"  kernels    {r.kernels}, execution {_time(r.execution_ns)}, busy {_time(r.busy_ns)}"
    skew = f", {r.skewed} with clock skew" if r.skewed else ""
    yield (
        f"  launches   {r.launches}, queue p50 {_time(r.queue_p50_ns)}, p95 {_time(r.queue_p95_ns)}, "
        f"queue-delay ratio {_number(r.queue_delay_ratio)}, calls {_time(r.launch_call_ns)}{skew}"
    )
    if r.counters:
        yield (
            f"  counters   L2 hit ratio {_number(r.l2_hit_ratio)}, "
            f"VALU instructions {_number(r.valu_instructions)}, "
            f"compute density {_number(r.compute_density_ratio)}"
        )
    for one in of_window(facts_of(r)):
        yield f"  next       {one.text} ({_printable(one.evidence)})"
    if r.kernel_stats:
        yield ""
        yield _row("share", "total", "calls", "mean", "p50", "p95", "kernel")
    for k in r.kernel_stats[:TOP]:
        mean = k.total_ns // k.calls if k.calls else None
        spread = (k.p50_ns, k.p95_ns) if r.span_ns is not None else (None, None)
        share = _percent(_share(k.total_ns, r.execution_ns))
        cells = (share, _time(k.total_ns), str(k.calls), _time(mean), *map(_time, spread))
        yield _row(*cells, _printable(k.kernel))[:width]


def _printable(words: str) -> str:
    return "".join(ch if ch.isprintable() else "\ufffd" for ch in words)


def _row(*cells: str) -> str:
    *numbers, name = cells
    return "  " + "".join(f"{cell:>10}" for cell in numbers) + f"  {name}"


def _time(ns: int | None) -> str:
    if ns is None:
        return "unknown"
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:.0f} {unit}"
    return f"{ns} ns"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f}%"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
