"""The part of the API that starts windows, and stops them from being started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from exporter.windows.policy import Skip, Start

_NOT_NOW: dict[int | str, dict[str, Any]] = {
    409: {"description": "No window is started; reason and detail say why."}
}


class Sampling(Protocol):
    """What the pages ask of whoever takes windows."""

    def status(self) -> Mapping[str, Any]: ...

    async def window(self) -> Start | Skip: ...

    async def pause(self, paused: bool, /) -> None: ...


def add(app: FastAPI, sampling: Sampling | None, allowed: Callable[[Request], bool]) -> None:
    """Add the routes, if there is anyone who takes windows. ``allowed`` says who may POST."""
    if sampling is None:
        return

    def guard(request: Request) -> None:
        if not allowed(request):
            raise HTTPException(403, "POST needs the bearer token or a client on this host")

    @app.post("/api/v1/windows", status_code=202, responses=_NOT_NOW)
    async def window(request: Request) -> JSONResponse:
        """Start one window now, if the policy allows: 202, or 409 with the reason."""
        guard(request)
        answer = await sampling.window()
        if isinstance(answer, Skip):
            return JSONResponse({"reason": answer.reason.value, "detail": answer.detail}, 409)
        started = {"mode": answer.mode, "set": answer.set, "gpus": [d.pci for d in answer.devices]}
        left_out = {device.pci: reason.value for device, reason in answer.left_out.items()}
        return JSONResponse({"started": started, "left_out": left_out}, 202)

    @app.post("/api/v1/sampling/pause")
    async def pause(request: Request) -> JSONResponse:
        """Start no window until resumed, also after a restart; a window that runs goes on to its end."""
        guard(request)
        await sampling.pause(True)
        return JSONResponse(dict(sampling.status()))

    @app.post("/api/v1/sampling/resume")
    async def resume(request: Request) -> JSONResponse:
        """Start windows again."""
        guard(request)
        await sampling.pause(False)
        return JSONResponse(dict(sampling.status()))
