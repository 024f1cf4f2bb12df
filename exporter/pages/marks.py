"""The part of the API that names phases: before and after a change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, StringConstraints

PHASE = r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}"


class Marks(Protocol):
    """What the pages ask of whoever keeps phases."""

    @property
    def phases(self) -> Sequence[tuple[float, str]]: ...

    @property
    def folder(self) -> str: ...

    async def mark(self, phase: str) -> None: ...


class Mark(BaseModel):
    """A phase that begins now."""

    phase: Annotated[str, StringConstraints(pattern=f"^{PHASE}$")]


def add(app: FastAPI, marks: Marks | None, allowed: Callable[[Request], bool]) -> None:
    """Add the routes, if phases are kept. ``allowed`` says who may POST."""
    if marks is None:
        return

    @app.get("/api/v1/marks")
    async def phases() -> list[dict[str, Any]]:
        """When each phase began, oldest first."""
        return [{"at": at, "phase": phase} for at, phase in marks.phases]

    @app.post("/api/v1/marks", status_code=201)
    async def mark(request: Request, body: Mark) -> dict[str, Any]:
        """Name the phase from now on."""
        if not allowed(request):
            raise HTTPException(403, "POST needs the bearer token or a client on this host")
        await marks.mark(body.phase)
        at, phase = marks.phases[-1]
        return {"at": at, "phase": phase}
