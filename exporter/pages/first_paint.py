"""The page as it stands before, and without, any script: HTML from what is known now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from exporter import __version__

Json = dict[str, Any]

_COLUMNS: tuple[tuple[str, str, float, str], ...] = (
    ("Busy", "busy_ratio", 100, " %"),
    ("Power", "power_watts", 1, " W"),
    ("Temperature", "temperature_celsius", 1, " °C"),
    ("VRAM used", "memory_used_bytes", 2**-30, " GiB"),
    ("L2 hit", "l2_hit_ratio", 100, " %"),
)
_NUMBERS = frozenset({*(c[0] for c in _COLUMNS), "Executing"})
_LINKS = (
    ("/metrics", "Metrics"),
    ("/api/v1/devices", "Devices"),
    ("/api/v1/status", "Status"),
    ("/api/v1/health", "Health"),
    ("/-/healthy", "Healthy"),
    ("/-/ready", "Ready"),
    ("/docs", "API"),
    ("/runbooks", "Runbooks"),
)


def head(title: str, link: Callable[[str], str], scripts: Iterable[str] = ()) -> str:
    """Everything before the body's content; nothing inline, as the content security policy demands."""
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f'<link rel="icon" type="image/svg+xml" href="{link("icon.svg")}">',
        f'<link rel="stylesheet" href="{link("uplot.css")}">',
        f'<link rel="stylesheet" href="{link("page.css")}">',
        *(f'<script defer src="{link(name)}"></script>' for name in scripts),
    ]
    return "".join(parts) + "</head>"


def page(view: Json | None, sources: list[Json], notes: list[str], link: Callable[[str], str]) -> str:
    """The whole page. ``view`` is the live view, None before the first poll."""
    parts = [
        head("amdgpu-exporter", link, ("uplot.js", "page.js", "compare.js")),
        '<body><a class="skip" href="#main">Skip to the GPUs</a><header><h1>amdgpu-exporter</h1>',
        f"<p>Prometheus exporter for AMD GPUs, version {escape(__version__)}:",
        " not only that a GPU is slow, but why.</p>",
        '<nav aria-label="Other pages"><ul>',
        *(f'<li><a href="{path}">{text}</a>' for path, text in _LINKS),
        '</ul></nav></header><main id="main" tabindex="-1">',
        '<div id="notes">',
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        '</div><p id="status" role="status"></p>',
        _gpus(view),
        '<section id="live" hidden aria-labelledby="live-h"><h2 id="live-h">Live</h2>',
        '<p class="hint">The last five minutes at most, lowest to highest, as seen by this page; ',
        "which begins anew with each visit.</p>",
        '<div id="cards"></div></section>',
        _hidden_table(
            "kernels", "Top kernels", "Time of each kernel in all windows since the daemon started"
        ),
        _hidden_table("windows", "Latest windows", "Windows taken in last, newest first"),
        _compare(),
        _sources(sources),
        "</main></body></html>",
    ]
    return "".join(parts)


def api_page(schema: Json, link: Callable[[str], str]) -> str:
    """Every path of the API with what it does."""
    rows = "".join(
        f"<tr><td>{escape(method.upper())}<td><code>{escape(path)}</code>"
        f"<td>{escape(what.get('description') or what.get('summary') or '')}"
        for path, methods in schema["paths"].items()
        for method, what in methods.items()
    )
    columns = ("Method", "Path", "What it does")
    return (
        f"{head('amdgpu-exporter API', link)}<body><header><h1>API</h1>"
        '<nav aria-label="Other pages"><ul><li><a href="/">Start</a></ul></nav></header><main>'
        '<p>The same for machines: <a href="/openapi.json">/openapi.json</a> (OpenAPI).</p>'
        f"{_table('Paths', 'API paths', columns, rows)}</main></body></html>"
    )


def _table(identity: str, caption: str, columns: Iterable[str], rows: str) -> str:
    heads = "".join(f'<th scope="col"{" class=n" if c in _NUMBERS else ""}>{escape(c)}' for c in columns)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">'
        f'<table id="{escape(identity)}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</thead><tbody>{rows}</tbody></table></div>"
    )


def _hidden_table(identity: str, title: str, caption: str) -> str:
    """A section that the script fills and shows."""
    return (
        f'<section id="{identity}" hidden aria-labelledby="{identity}-h"><h2 id="{identity}-h">{title}</h2>'
        f'<p class="hint" id="{identity}-none"></p>'
        f"{_table(f'{identity}-table', caption, (), '')}</section>"
    )


def _compare() -> str:
    """A form that the script shows and answers."""

    def side(name: str, text: str) -> str:
        return (
            f'<label for="compare-{name}">{text}</label> '
            f'<input id="compare-{name}" name="{name}" list="phases" required maxlength="80" '
            'autocomplete="off" spellcheck="false"> '
        )

    return (
        '<section id="compare" hidden aria-labelledby="compare-h"><h2 id="compare-h">Compare</h2>'
        '<p class="hint">Each side is a phase named with <code>amdgpu-exporter mark</code>, or a time range '
        "<code>SINCE..UNTIL</code> of the history.</p>"
        f'<form id="compare-form">{side("a", "Before")}{side("b", "After")}'
        '<button type="submit">Compare</button></form><datalist id="phases"></datalist>'
        '<p id="compare-verdict" class="verdict" role="status"></p><ul id="compare-why" class="hint"></ul>'
        f"{_table('compare-table', 'What was compared', (), '').replace('<div', '<div hidden', 1)}</section>"
    )


def _gpus(view: Json | None) -> str:
    start = '<section aria-labelledby="gpus-h"><h2 id="gpus-h">GPUs</h2>'
    if view is None:
        return f"{start}<p>The first poll is pending.</p></section>"
    if not view["gpus"]:
        return f"{start}<p>No AMD GPU is visible here.</p></section>"
    columns = ("GPU", "PCI", "Model", *(c[0] for c in _COLUMNS), "Executing", "Bottleneck")
    rows = "".join(_row(gpu) for gpu in view["gpus"])
    return f"{start}{_table('gpus', 'Every GPU as it stands', columns, rows)}</section>"


def _row(gpu: Json) -> str:
    part = "" if gpu["partition"] is None else f"/{gpu['partition']}"
    cells = [f'<th scope="row">{gpu["gpu"]}{part}', f"<td><code>{escape(gpu['pci'])}</code>"]
    cells.append(f"<td>{escape(gpu['model'] or 'unknown')}")
    for _, field, factor, unit in _COLUMNS:
        cells.append(_number(gpu[field], factor, unit, gpu["missing"].get(field)))
    shares = gpu["timeline_ratio"] or {}
    why = gpu["missing"].get("timeline_ratio")
    cells.append(_number(shares.get("executing"), 100, " %", why))
    found = gpu["bottleneck"]
    why = gpu["missing"].get("bottleneck", "")
    cells.append(f"<td>{escape(found['name'].replace('_', ' '))}" if found else f"<td>{_absent(why)}")
    return "<tr>" + "".join(cells)


def _number(value: float | None, factor: float, unit: str, why: str | None) -> str:
    if value is None:
        return f'<td class="n">{_absent(why or "")}'
    digits = 1 if unit == " GiB" else 0
    return f'<td class="n">{value * factor:.{digits}f}{unit}'


def _absent(why: str) -> str:
    return f'<span title="{escape(why)}">—</span>'


def _sources(sources: list[Json]) -> str:
    rows = "".join(
        f"<tr><td>{escape(s['source'])}<td>{escape(s['backend'])}<td><code>{escape(s['root'])}</code>"
        f"<td>{escape(source_state(s))}<td>{escape(_missing(s['missing']))}"
        for s in sources
    )
    columns = ("Source", "Backend", "Reads", "State", "Missing readings")
    return (
        '<section aria-labelledby="sources-h"><h2 id="sources-h">Sources</h2>'
        f"{_table('sources', 'What is read from where, and what it lacks', columns, rows)}</section>"
    )


def source_state(source: Json) -> str:
    """Up, pending, or down with the reason."""
    if source["up"]:
        return "up"
    return f"down: {source['detail']}" if source["reason"] else "pending"


def _missing(missing: dict[str, int]) -> str:
    return ", ".join(f"{n} {reason}" for reason, n in sorted(missing.items())) or "none"
