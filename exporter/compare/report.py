"""A comparison as text, Markdown, a page, or JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from exporter.compare.advice import advice
from exporter.compare.judge import Comparison, Finding, Verdict

_COLOURS = {
    Verdict.BETTER: "32",
    Verdict.WORSE: "31",
    Verdict.NO_CHANGE: "2",
    Verdict.NOT_COMPARABLE: "33",
}
_SHADES = {
    Verdict.BETTER: "#1a7f37",
    Verdict.WORSE: "#cf222e",
    Verdict.NO_CHANGE: "#6e7781",
    Verdict.NOT_COMPARABLE: "#9a6700",
}
_ORDER = (Verdict.WORSE, Verdict.BETTER, Verdict.NO_CHANGE, Verdict.NOT_COMPARABLE)
_PLOTTED = 40
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;
color:#1f2328;background:#fff}
table{border-collapse:collapse;margin:1rem 0}
td,th{padding:.25rem .7rem;border-bottom:1px solid #d0d7de;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}code{overflow-wrap:anywhere}.scroll{overflow-x:auto}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td,th{border-color:#30363d}}
"""


def text(found: Comparison, names: tuple[str, str], colour: bool = False) -> str:
    """Lines for a terminal."""

    def paint(verdict: Verdict, words: str) -> str:
        return f"\x1b[{_COLOURS[verdict]}m{words}\x1b[0m" if colour else words

    lines = [f"{names[0]} -> {names[1]}: {paint(found.verdict, str(found.verdict))}"]
    for (gpu, workload, reasons), findings in _blocks(found):
        lines += ["", f"GPU {gpu}" + (f", {workload}" if workload else "")]
        if reasons:
            lines += [f"  {paint(Verdict.NOT_COMPARABLE, 'not comparable')}: {reason}" for reason in reasons]
            continue
        for f in findings:
            why = f"  ({'; '.join(f.reasons)})" if f.reasons else ""
            lines.append(f"  {paint(f.verdict, f'{f.verdict:<15}')} {_change(f):<28} {_what(f)}{why}")
    lines += ["", *_beside(found)]
    lines += [f"note: {note}" for note in found.notes]
    lines += [f"next: {one.text} ({one.evidence})" for one in advice(found.findings, found.groups)]
    return "\n".join(lines) + "\n"


def markdown(found: Comparison, names: tuple[str, str]) -> str:
    """A section for a pull request."""
    lines = [f"### {_md(names[0])} → {_md(names[1])}: **{found.verdict}**", ""]
    for (gpu, workload, reasons), findings in _blocks(found):
        lines += [f"**GPU {_md(gpu)}**" + (f", {_md(workload)}" if workload else ""), ""]
        if reasons:
            lines += [*(f"- not comparable: {_md(reason)}" for reason in reasons), ""]
            continue
        lines += ["| Verdict | Change (95 %) | What | Runs | Why |", "|---|---|---|---|---|"]
        for f in findings:
            runs = f"{f.runs[0]} / {f.runs[1]}"
            lines.append(
                f"| {f.verdict} | {_change(f)} | {_md(_what(f))} | {runs} | {_md('; '.join(f.reasons))} |"
            )
        lines.append("")
    lines += [f"- {_md(line)}" for line in (*_beside(found), *found.notes)]
    lines += [
        f"- next: {_md(one.text)} ({_md(one.evidence)})" for one in advice(found.findings, found.groups)
    ]
    lines += ["", "| Environment | Before | After |", "|---|---|---|"]
    lines += [f"| {_md(k)} | {_md(a)} | {_md(b)} |" for k, a, b in _environment(found)]
    return "\n".join(lines) + "\n"


def html(found: Comparison, names: tuple[str, str]) -> str:
    """One self-contained page with intervals drawn."""
    title = f"{escape(names[0])} → {escape(names[1])}: {found.verdict}"
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>",
    ]
    for (gpu, workload, reasons), findings in _blocks(found):
        parts.append(f"<h2>GPU {escape(gpu)}{', ' + escape(workload) if workload else ''}</h2>")
        if reasons:
            items = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
            parts.append(f"<p>Not comparable:</p><ul>{items}</ul>")
            continue
        parts.append(_plot(findings))
        heads = "".join(
            f"<th>{h}</th>" for h in ("Verdict", "Change (95 %)", "What", "Runs", "Windows", "Why")
        )
        rows = "".join(_row(f) for f in findings)
        parts.append(f'<div class="scroll"><table><tr>{heads}</tr>{rows}</table></div>')
    items = "".join(f"<li>{escape(line)}</li>" for line in (*_beside(found), *found.notes))
    items += "".join(
        f"<li>Next: {escape(one.text)} ({escape(one.evidence)})</li>"
        for one in advice(found.findings, found.groups)
    )
    rows = "".join(
        f"<tr><td>{escape(k)}</td><td>{escape(a)}</td><td>{escape(b)}</td></tr>"
        for k, a, b in _environment(found)
    )
    parts.append(
        f"<ul>{items}</ul><h2>Environment</h2><table><tr><th></th><th>Before</th><th>After</th></tr>"
    )
    return "".join((*parts, rows, "</table></html>\n"))


def as_dict(found: Comparison, names: tuple[str, str]) -> dict[str, Any]:
    """The object of ``--format json``; every key there, null where unknown."""
    return {
        "version": 1,
        "a": names[0],
        "b": names[1],
        "verdict": str(found.verdict),
        "environment": {"a": dict(found.before), "b": dict(found.after)},
        "notes": list(found.notes),
        "advice": [
            {"text": one.text, "evidence": one.evidence} for one in advice(found.findings, found.groups)
        ],
        "groups": [
            {
                "gpu": g.gpu,
                "workload": g.workload,
                "reasons": list(g.reasons),
                "covariates": {k: {"a": a, "b": b} for k, (a, b) in g.covariates.items()},
                "unknown": list(g.unknown),
            }
            for g in found.groups
        ],
        "findings": [_finding(f) for f in found.findings],
    }


def _finding(f: Finding) -> dict[str, Any]:
    e = f.estimate
    return {
        "gpu": f.gpu,
        "workload": f.workload,
        "kernel": f.kernel,
        "metric": f.metric or None,
        "verdict": str(f.verdict),
        "reasons": list(f.reasons),
        "a": f.before,
        "b": f.after,
        "change_ratio": e.change if e else None,
        "low_ratio": e.low if e else None,
        "high_ratio": e.high if e else None,
        "p_adjusted": f.p,
        "within_run": e.within_run if e else None,
        "runs": {"a": f.runs[0], "b": f.runs[1]},
        "windows": {"a": f.windows[0], "b": f.windows[1]},
    }


_Block = tuple[tuple[str, str | None, tuple[str, ...]], list[Finding]]


def _blocks(found: Comparison) -> Iterable[_Block]:
    """Findings by GPU and workload, what matters most first."""
    reasons = {(g.gpu, g.workload): g.reasons for g in found.groups}
    for key, findings in groupby(found.findings, lambda f: (f.gpu, f.workload)):
        ranked = sorted(findings, key=lambda f: (_ORDER.index(f.verdict), -_size(f), f.kernel or ""))
        yield (*key, reasons.get(key, ())), ranked
    judged = {(f.gpu, f.workload) for f in found.findings}
    for group in found.groups:
        if (group.gpu, group.workload) not in judged:
            yield (group.gpu, group.workload, group.reasons), []


def _size(f: Finding) -> float:
    return abs(f.estimate.change) if f.estimate else 0.0


def _change(f: Finding) -> str:
    if f.estimate is None:
        return ""
    e = f.estimate
    return f"{e.change:+.1%} ({e.low:+.1%} to {e.high:+.1%})"


def _what(f: Finding) -> str:
    return f"{f.kernel}: {f.metric}" if f.kernel else f.metric


def _beside(found: Comparison) -> list[str]:
    lines = []
    for group in found.groups:
        measured = [
            f"{name} {_number(a)} -> {_number(b)}" for name, (a, b) in sorted(group.covariates.items())
        ]
        if measured:
            lines.append(f"GPU {group.gpu}, measured beside: {', '.join(measured)}")
        if group.unknown:
            lines.append(f"GPU {group.gpu}, not known on both sides: {', '.join(group.unknown)}")
    return lines


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


def _environment(found: Comparison) -> list[tuple[str, str, str]]:
    before, after = found.before, found.after
    keys: Mapping[str, None] = dict.fromkeys((*before, *after))
    return [(key, before.get(key, "unknown"), after.get(key, "unknown")) for key in keys]


def _md(words: str) -> str:
    """Words that cannot end a cell or start markup: kernels are named by whoever wrote them."""
    for mark in ("\\", "|", "*", "_", "`", "[", "]", "#"):
        words = words.replace(mark, f"\\{mark}")
    return escape(words, quote=False).replace("\n", " ")


def _row(f: Finding) -> str:
    cells = (
        f'<td style="color:{_SHADES[f.verdict]}">{f.verdict}</td><td class="n">{_change(f)}</td>'
        f"<td><code>{escape(_what(f))}</code></td><td class=n>{f.runs[0]} / {f.runs[1]}</td>"
        f"<td class=n>{f.windows[0]} / {f.windows[1]}</td><td>{escape('; '.join(f.reasons))}</td>"
    )
    return f"<tr>{cells}</tr>"


def _plot(findings: Sequence[Finding]) -> str:
    """Change and interval of each value on one scale, no change in the middle."""
    shown = [f for f in findings if f.estimate is not None][:_PLOTTED]
    if not shown:
        return ""
    most = max(0.05, *(max(abs(f.estimate.low), abs(f.estimate.high)) for f in shown if f.estimate))
    width, left, step = 900, 420, 22

    def x(change: float) -> float:
        return left + (width - left) / 2 * (1 + change / most * 0.95)

    height = step * (len(shown) + 1)
    head = (
        f'<svg role="img" aria-label="Changes with their 95 % intervals" viewBox="0 0 {width} {height}" '
        f'style="max-width:100%;font-size:12px" fill="currentColor" stroke="none">'
        f'<path d="M{x(0):.1f} 0V{height - step}" stroke="#6e7781"/>'
    )
    parts = [head]
    for i, f in enumerate(shown):
        if f.estimate is None:
            continue
        y, e, shade = step * i + step / 2, f.estimate, _SHADES[f.verdict]
        name = _what(f)
        short = name if len(name) < 58 else f"{name[:28]}…{name[-28:]}"
        parts.append(
            f'<text x="0" y="{y + 4}">{escape(short)}</text>'
            f'<path d="M{x(e.low):.1f} {y}H{x(e.high):.1f}" stroke="{shade}" stroke-width="3"/>'
            f'<circle cx="{x(e.change):.1f}" cy="{y}" r="5" fill="{shade}"/>'
        )
    scale = (
        f'<text x="{x(change):.1f}" y="{height - 5}" text-anchor="middle">{change:+.0%}</text>'
        for change in (-most, 0, most)
    )
    return "".join((*parts, *scale, "</svg>"))
