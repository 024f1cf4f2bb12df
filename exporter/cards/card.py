"""The report of a benchmark: one object, and the same as Markdown for a model card. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from statistics import median
from typing import Any

from exporter import __version__, fingerprint
from exporter.cards.samples import Run, Sample, Use, as_json, together, use
from exporter.compare.advice import Advice

_BARS = "▁▂▃▄▅▆▇█"
_SPARK = 48
_KERNELS = 10
_GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class Card:
    """All that is known of a benchmark. ``missing`` says why a part is not there, by its name.

    ``windows`` are GPUs as ``analyze --json`` has them; ``items`` is how much one run does, if told.
    """

    command: tuple[str, ...]
    at: float
    runs: tuple[Run, ...]
    wanted: int
    samples: tuple[Sample, ...]
    every_s: float
    environment: Mapping[str, Any]
    windows: tuple[Mapping[str, Any], ...] = ()
    advice: tuple[Advice, ...] = ()
    items: float | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def warm(self) -> list[Run]:
        """The runs that count."""
        return [r for r in self.runs if r.kind == "warm" and r.code == 0]


def as_dict(card: Card) -> dict[str, Any]:
    """The object of the JSON file: every key there, null where unknown."""
    uses = [use(card.samples, run) for run in card.runs]
    return {
        "version": 1,
        "exporter": __version__,
        "command": list(card.command),
        "at": card.at,
        "protocol": {"cold": 1, "warm": card.wanted, "sampled_every_seconds": card.every_s},
        "environment": dict(card.environment),
        "runs": [
            {
                "kind": run.kind,
                "code": run.code,
                "seconds": run.seconds,
                "gpus": {pci: as_json(one) for pci, one in gpus.items() if one.samples or one.energy_from},
            }
            for run, gpus in zip(card.runs, uses, strict=True)
        ],
        "gpus": {pci: as_json(one) for pci, one in _together(card, uses).items()},
        "times": _times(card),
        "throughput": _throughput(card, uses),
        "memory_curve": {pci: [list(p) for p in curve] for pci, curve in _curves(card, uses).items()},
        "windows": [dict(gpu) for gpu in card.windows] or None,
        "advice": [{"text": one.text, "evidence": one.evidence} for one in card.advice],
        "missing": dict(card.missing),
    }


def _times(card: Card) -> dict[str, Any]:
    cold = next((r.seconds for r in card.runs if r.kind == "cold" and r.code == 0), None)
    warm = [r.seconds for r in card.warm]
    middle = median(warm) if warm else None
    return {
        "cold_seconds": cold,
        "warm_median_seconds": middle,
        "warm_least_seconds": min(warm, default=None),
        "warm_most_seconds": max(warm, default=None),
        "warm_runs": len(warm),
        "cold_over_warm_ratio": cold / middle if cold and middle else None,
    }


def _throughput(card: Card, uses: Sequence[Mapping[str, Use]]) -> dict[str, Any]:
    """How much is done in a second and per joule, over the warm runs."""
    middle = _times(card)["warm_median_seconds"]
    energies = [
        sum(known)
        for run, gpus in zip(card.runs, uses, strict=True)
        if run in card.warm and (known := _energies(gpus)) is not None
    ]
    energy = median(energies) if energies else None
    items = card.items
    return {
        "runs_per_second": 1 / middle if middle else None,
        "items_per_run": items,
        "items_per_second": items / middle if items and middle else None,
        "energy_joules_per_run": energy,
        "items_per_joule": items / energy if items and energy else None,
    }


def _together(card: Card, uses: Sequence[Mapping[str, Use]]) -> dict[str, Use]:
    """Each GPU over the warm runs."""
    warm = [gpus for run, gpus in zip(card.runs, uses, strict=True) if run in card.warm]
    addresses = sorted({pci for gpus in warm for pci, one in gpus.items() if one.samples or one.energy_from})
    return {pci: together([gpus[pci] for gpus in warm if pci in gpus]) for pci in addresses}


def _energies(gpus: Mapping[str, Use]) -> list[float] | None:
    """The energy of every GPU that was used; None where that of one is not known, or none was used."""
    found = [one.energy_joules for one in gpus.values() if one.used]
    known = [e for e in found if e is not None]
    return known if known and len(known) == len(found) else None


def _curves(card: Card, uses: Sequence[Mapping[str, Use]]) -> dict[str, tuple[tuple[float, float], ...]]:
    """Memory over the first warm run, of the GPUs that were used; over the cold one where none was warm."""
    order = sorted(zip(card.runs, uses, strict=True), key=lambda pair: pair[0].kind != "warm")
    if not order:
        return {}
    return {pci: one.curve for pci, one in order[0][1].items() if one.used and one.curve}


# --- Markdown -------------------------------------------------------------------------------------------


def markdown(card: Card) -> str:
    """A section for a model card."""
    return "\n".join(_lines(card)) + "\n"


def _lines(card: Card) -> Iterator[str]:
    found = as_dict(card)
    when = datetime.fromtimestamp(card.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    yield f"## Benchmark: `{_code(shlex.join(card.command))}`"
    yield ""
    yield (
        f"Measured {when} with amdgpu-exporter {__version__}: one cold run, then {card.wanted} warm ones; "
        f"GPUs read every {card.every_s:g} s."
    )
    failed = next((r for r in card.runs if r.code != 0), None)
    if failed:
        how = f"with code {failed.code}" if failed.code > 0 else f"by signal {-failed.code}"
        yield f"\n**The {failed.kind} run ended {how}; nothing was run after it.**"
    yield from _table("Results", ("", ""), list(_results(found)))
    rows = list(_gpu_rows(found["gpus"]))
    heads = ("GPU", "Energy", "Mean power", "Peak memory", "Busy", "Clock", "Hottest")
    yield from _table("GPUs, middle of the warm runs", heads, rows) if rows else _why(card, "gpus")
    curves = found["memory_curve"]
    lines = [(pci, f"`{_spark(curve)}`", _gib(max(v for _, v in curve))) for pci, curve in curves.items()]
    yield from _table("Memory over one run", ("GPU", "From start to end", "Peak"), lines) if lines else ()
    yield from _kernels(card)
    if card.advice:
        yield from ("", "### What to look at next", "")
        yield from (f"{n}. {_md(one.text)} ({_md(one.evidence)})" for n, one in enumerate(card.advice, 1))
    yield from _table("Environment", ("", ""), fingerprint.lines(card.environment))


def _results(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    times, rate = found["times"], found["throughput"]
    yield "Cold run", _seconds(times["cold_seconds"])
    spread = f" ({_seconds(times['warm_least_seconds'])} to {_seconds(times['warm_most_seconds'])})"
    runs = times["warm_runs"]
    yield f"Warm run, median of {runs}", _seconds(times["warm_median_seconds"]) + (spread if runs > 1 else "")
    if times["cold_over_warm_ratio"] is not None:
        yield "Cold over warm", f"{times['cold_over_warm_ratio']:.2f}"
    if rate["items_per_second"] is not None:
        yield "Throughput", f"{rate['items_per_second']:.4g} items per second"
    elif rate["runs_per_second"] is not None:
        yield "Throughput", f"{rate['runs_per_second']:.4g} runs per second"
    energy = rate["energy_joules_per_run"]
    yield "Energy of a run, all its GPUs", "unknown" if energy is None else f"{energy:.4g} J"
    if rate["items_per_joule"] is not None:
        yield "Efficiency", f"{rate['items_per_joule']:.4g} items per joule"


def _gpu_rows(gpus: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for pci, one in gpus.items():
        clock, heat, busy = one["clock_mean_hertz"], one["temperature_peak_celsius"], one["busy_mean_ratio"]
        by = " (from power)" if one["energy_from"] == "power" else ""
        yield (
            pci,
            _or_unknown(one["energy_joules"], "{:.4g} J") + by,
            _or_unknown(one["power_mean_watts"], "{:.0f} W"),
            _or_unknown(one["memory_peak_bytes"], "{:.2f} GiB", _GIB),
            _or_unknown(busy, "{:.0%}"),
            _or_unknown(clock, "{:.0f} MHz", 1e6),
            _or_unknown(heat, "{:.0f} °C"),
        )


def _kernels(card: Card) -> Iterator[str]:
    if not card.windows:
        yield from _why(card, "kernels")
        return
    for gpu in card.windows:
        rows = [
            (
                f"`{_code(k['kernel'])}`",
                _or_unknown(k["share_ratio"], "{:.1%}"),
                str(k["calls"]),
                _or_unknown(k["mean_seconds"], "{:.4g} us", 1e-6),
            )
            for k in gpu["top_kernels"][:_KERNELS]
        ]
        shares = ", ".join(
            f"{state} {share:.0%}" for state, share in gpu["timeline_ratio"].items() if share is not None
        )
        title = f"Kernels on {gpu['gpu']}: {gpu['bottleneck'].replace('_', ' ')}"
        yield from _table(title, ("Kernel", "Share", "Calls", "Mean"), rows)
        yield from (
            "",
            f"Timeline: {shares or 'unknown'}. From a run with rocprofv3 that counts nowhere above.",
        )


def _why(card: Card, part: str) -> Iterator[str]:
    titles = {"gpus": "GPUs", "kernels": "Kernels"}
    yield from (
        "",
        f"### {titles[part]}",
        "",
        f"Not known: {_md(card.missing.get(part, 'nothing was read'))}.",
    )


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from ("", f"### {_md(title)}", "", _row(heads), _row(["---"] * len(heads)))
    for row in rows:
        yield _row([cell if cell.startswith("`") else _md(cell) for cell in row])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _spark(curve: Sequence[Sequence[float]]) -> str:
    """A curve in one line of bars, from zero to its highest point."""
    values = [value for _, value in curve]
    step = max(1, -(-len(values) // _SPARK))
    peaks = [max(values[i : i + step]) for i in range(0, len(values), step)]
    top = max(peaks) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(v / top * len(_BARS)))] for v in peaks)


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g} s"


def _gib(value: float) -> str:
    return f"{value / _GIB:.2f} GiB"


def _or_unknown(value: float | None, form: str, unit: float = 1.0) -> str:
    return "unknown" if value is None else form.format(value / unit)


def _code(words: str) -> str:
    """Words between backquotes, which nothing inside may end."""
    return words.replace("`", "'").replace("|", "¦").replace("\n", " ")


def _md(words: str) -> str:
    """Words that cannot end a cell or start markup."""
    for mark in ("\\", "|", "*", "_", "`", "[", "]", "#"):
        words = words.replace(mark, f"\\{mark}")
    return escape(words, quote=False).replace("\n", " ")
