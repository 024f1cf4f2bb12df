"""The site beside ``/metrics``: the page, its files, the API, reload. FastAPI; imported on first use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from exporter import __version__
from exporter.checks import devices as device_table
from exporter.checks import health
from exporter.collect import Collector
from exporter.model import ConfigError, Snapshot
from exporter.pages import compare as compare_routes
from exporter.pages import first_paint, runbooks
from exporter.pages import marks as mark_routes
from exporter.pages import sampling as sampling_routes
from exporter.pages.live import Live
from exporter.web import may_post

# Nothing is loaded from elsewhere and nothing inline runs, whatever a kernel is called.
_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class Files:
    """The files that the page loads, read once; addressed with their digest, so that they may be kept."""

    def __init__(self, folder: Path) -> None:
        self._files = {
            path.name: (body := path.read_bytes(), sha256(body).hexdigest()[:16], _TYPES[path.suffix])
            for path in sorted(folder.iterdir())
            if path.suffix in _TYPES
        }

    def link(self, name: str) -> str:
        """The address of one file as it is now."""
        return f"/page/{name}?v={self._files[name][1]}"

    def answer(self, name: str, version: str | None, known: str | None) -> Response:
        """The file; 304 where the client has it."""
        if name not in self._files:
            raise HTTPException(404, "no such file")
        body, digest, kind = self._files[name]
        keep = "public, max-age=31536000, immutable" if version == digest else "no-cache"
        headers = {"etag": f'"{digest}"', "cache-control": keep, "content-type": kind}
        if known == f'"{digest}"':
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers)


def create(
    collector: Collector,
    reload: Callable[[], Awaitable[tuple[str, ...]]],
    token: Callable[[], str | None],
    live: Live,
    watch: health.Watch | None = None,
    sampling: sampling_routes.Sampling | None = None,
    marks: mark_routes.Marks | None = None,
) -> FastAPI:
    """The application.

    ``reload`` loads the configuration again and returns the keys that need a restart, or raises ConfigError.
    """
    app = FastAPI(title="amdgpu-exporter", version=__version__, docs_url=None, redoc_url=None)
    files = Files(Path(__file__).resolve().parent.parent / "page")

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        answer = await call_next(request)
        answer.headers.update(_HEADERS)
        return answer

    # What reads the ledger runs in the event loop, where the ledger changes; hence async without await.
    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def landing() -> HTMLResponse:
        view = live.now(collector.current.snapshot) if collector.current else None
        text = first_paint.page(view, live.sources(), live.notes(), files.link)
        return HTMLResponse(text.encode("utf-8", "replace"), headers={"cache-control": "no-cache"})

    # FastAPI's own page of the API is loaded from elsewhere; ours works offline.
    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    def documentation() -> str:
        return first_paint.api_page(app.openapi(), files.link)

    @app.get("/page/{name}", include_in_schema=False)
    async def file(request: Request, name: str, v: str | None = None) -> Response:
        return files.answer(name, v, request.headers.get("if-none-match"))

    runbooks.add(app, files.link)

    def view(name: str) -> Response:
        body = live.answer(name)
        if body is None:
            raise HTTPException(503, "first poll pending")
        return Response(body, media_type="application/json", headers={"cache-control": "no-store"})

    @app.get("/api/v1/live")
    async def now() -> Response:
        """Every GPU as it stands, and what is missing with the reason."""
        return view("live")

    @app.get("/api/v1/kernels")
    async def kernels() -> Response:
        """The kernels with a series, with the full names of shortened ones."""
        return view("kernels")

    @app.get("/api/v1/windows")
    async def windows() -> Response:
        """The windows taken in last, with results and reasons."""
        return view("windows")

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
    async def status() -> dict[str, Any]:
        """Version, sources and what each of them lacks, and whether windows are taken."""
        return {
            "version": __version__,
            "generation": _snapshot(collector).generation,
            "notes": live.notes(),
            "sources": live.sources(),
            "sampling": live.sampling(),
        }

    allowed = partial(_may_post, token)
    sampling_routes.add(app, sampling, allowed)
    mark_routes.add(app, marks, allowed)
    compare_routes.add(app, marks.folder if marks else None)
    return app


def _may_post(token: Callable[[], str | None], request: Request) -> bool:
    return may_post(request.scope, token())


def _snapshot(collector: Collector) -> Snapshot:
    if collector.current is None:
        raise HTTPException(503, "first poll pending")
    return collector.current.snapshot
