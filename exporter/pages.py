"""The site beside ``/metrics``: the landing page, the API, reload. FastAPI; imported on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import escape
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, PlainTextResponse

from exporter import __version__
from exporter.checks import devices as device_table
from exporter.checks import health
from exporter.collect import Collector
from exporter.model import ConfigError, Device, Series, Snapshot
from exporter.web import may_post

_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;"
    "padding:0 1rem}table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .7rem;"
    "border-bottom:1px solid #8886}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".note{border-left:.4rem solid #c60;padding:.5rem 1rem;background:#c602;margin:1rem 0}"
    "code{font-size:.95em}.scroll{overflow-x:auto}"
)
_COLUMNS = (
    ("Busy", "amdgpu_busy_ratio", ("gfx",), 100, "%"),
    ("Power", "amdgpu_power_watts", (), 1, " W"),
    ("Junction", "amdgpu_temperature_celsius", ("junction",), 1, " °C"),
    ("VRAM used", "amdgpu_memory_used_bytes", ("vram",), 2**-30, " GiB"),
    ("Executing", "amdgpu_timeline_ratio", ("executing",), 100, "%"),
    ("L2 hit", "amdgpu_l2_hit_ratio", (), 100, "%"),
)


def create(
    collector: Collector,
    reload: Callable[[], Awaitable[tuple[str, ...]]],
    token: Callable[[], str | None],
    notes: Callable[[], list[str]],
    watch: health.Watch | None = None,
) -> FastAPI:
    """The application.

    ``reload`` loads the configuration again and returns the keys that need a restart, or raises ConfigError.
    """
    app = FastAPI(title="amdgpu-exporter", version=__version__, redoc_url=None)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def landing() -> str:
        return landing_page(collector, notes())

    @app.post("/-/reload", response_class=PlainTextResponse)
    async def reload_configuration(request: Request) -> PlainTextResponse:
        """Load the configuration file again; the last good one stays in force if it is broken."""
        if not may_post(request.scope, token()):
            raise HTTPException(403, "POST needs the bearer token or a client on this host")
        try:
            restart = await reload()
        except ConfigError as e:
            return PlainTextResponse(f"{e}\n", 400)
        return PlainTextResponse(f"reloaded; restart_required: {', '.join(restart) or 'none'}\n")

    @app.get("/api/v1/devices")
    def devices() -> list[dict[str, Any]]:
        """Every GPU with all its names."""
        return device_table.as_json(list(_snapshot(collector).devices.values()))

    @app.get("/api/v1/health")
    def condition() -> dict[str, Any]:
        """Every GPU healthy, degraded, unhealthy or unknown, with the reasons."""
        _snapshot(collector)
        verdicts = watch.verdicts if watch else ()
        sources = {
            s.name: "pending" if s.outcome is None else "up" if s.outcome.ok else s.outcome.detail
            for s in collector.sources
        }
        return health.as_json(verdicts, collector.should_have, sources)

    @app.get("/api/v1/status")
    def status() -> dict[str, Any]:
        """Version, sources and what each of them lacks."""
        return {
            "version": __version__,
            "generation": _snapshot(collector).generation,
            "notes": notes(),
            "sources": [
                {
                    "source": s.name,
                    "backend": s.backend,
                    "root": s.root,
                    "up": bool(s.outcome and s.outcome.ok),
                    "reason": s.outcome.reason if s.outcome else None,
                    "detail": s.outcome.detail if s.outcome else "first poll pending",
                    "missing": s.missing,
                }
                for s in collector.sources
            ],
        }

    return app


def _snapshot(collector: Collector) -> Snapshot:
    if collector.current is None:
        raise HTTPException(503, "first poll pending")
    return collector.current.snapshot


def landing_page(collector: Collector, notes: list[str]) -> str:
    """What this is, what it sees, and where to go from here; HTML without any script."""
    snapshot = collector.current.snapshot if collector.current else None
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>amdgpu-exporter</title>",
        f'<meta name=viewport content="width=device-width"><style>{_STYLE}</style>',
        f"<h1>amdgpu-exporter</h1><p>Prometheus exporter for AMD GPUs, version {escape(__version__)}:",
        " not only that a GPU is slow, but why.</p>",
    ]
    parts += [f"<p class=note>{escape(note)}</p>" for note in notes]
    parts.append(
        "<p><a href=/metrics>Metrics</a> · <a href=/api/v1/devices>Devices</a> · "
        "<a href=/api/v1/status>Status</a> · <a href=/api/v1/health>Health</a> · "
        "<a href=/-/healthy>Healthy</a> · <a href=/-/ready>Ready</a> · "
        "<a href=/docs>API</a></p>"
    )
    parts.append(_devices(snapshot) if snapshot else "<p>The first poll is pending.</p>")
    parts.append(_sources(collector))
    return "".join(parts)


def _devices(snapshot: Snapshot) -> str:
    if not snapshot.devices:
        return "<h2>GPUs</h2><p>No AMD GPU is visible here.</p>"
    values = {s: v for slot in snapshot.slots.values() for s, v in zip(slot.series, slot.values, strict=True)}
    head = "".join(
        f"<th scope=col>{t}" for t in ("GPU", "PCI", "Model", *(c[0] for c in _COLUMNS), "Bottleneck")
    )
    rows = "".join(_row(device, values) for device in snapshot.devices.values())
    return f"<h2>GPUs</h2><div class=scroll><table><tr>{head}{rows}</table></div>"


def _row(device: Device, values: dict[Series, Any]) -> str:
    part = "" if device.id.partition is None else f"/{device.id.partition}"
    cells = [f"<td>{device.gpu}{part}", f"<td><code>{escape(device.id.pci)}</code>"]
    cells.append(f"<td>{escape(device.model or 'unknown')}")
    for _, metric, labels, factor, unit in _COLUMNS:
        value = values.get(Series(metric, device.id, labels))
        if value is None:
            value = values.get(Series(metric, device.id.socket, labels))
        cells.append("<td class=n>—" if value is None else f"<td class=n>{value * factor:.0f}{unit}")
    found = [
        s.labels[0]
        for s, v in values.items()
        if s.metric == "amdgpu_bottleneck_state" and s.device == device.id and v == 1
    ]
    cells.append(f"<td>{escape(found[0].replace('_', ' ')) if found else '—'}")
    return "<tr>" + "".join(cells)


def _sources(collector: Collector) -> str:
    rows = "".join(
        f"<tr><td>{escape(s.name)}<td>{escape(s.backend)}<td><code>{escape(s.root)}</code><td>"
        + ("pending" if s.outcome is None else "up" if s.outcome.ok else f"down: {escape(s.outcome.detail)}")
        for s in collector.sources
    )
    head = "<th scope=col>Source<th scope=col>Backend<th scope=col>Reads<th scope=col>State"
    return f"<h2>Sources</h2><table><tr>{head}{rows}</table>"
