"""The part of the API that compares phases and times of the history."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query

from exporter.child import Child
from exporter.compare.context import CHANGEABLE
from exporter.model import Reason, SourceError

_DEADLINE_S = 60.0
_MEMORY_BYTES = 1 << 30
_Side = Annotated[str, Query(pattern=r"^[A-Za-z0-9._:+-]{1,80}$")]


def add(app: FastAPI, folder: str | None) -> None:
    """Add the route, if there is a history. One comparison runs at a time, in a child that ends with it."""
    if folder is None:
        return
    busy = asyncio.Lock()

    @app.get("/api/v1/compare")
    async def compare(
        a: _Side, b: _Side, changed: Annotated[list[str] | None, Query(max_length=32)] = None
    ) -> dict[str, Any]:
        """What ``compare A B --format json`` says of two marked phases or time ranges ``SINCE..UNTIL``."""
        if strange := [name for name in changed or () if name not in CHANGEABLE]:
            raise HTTPException(422, f"changed={strange[0][:40]}: expected one of {', '.join(CHANGEABLE)}")
        if busy.locked():
            raise HTTPException(429, "another comparison is running")
        async with busy:
            spec = {"folder": folder, "memory_bytes": _MEMORY_BYTES}
            child = Child("compare", "exporter.compare.worker", spec)
            try:
                request = {"op": "compare", "a": a, "b": b, "changed": changed or []}
                answer = await child.request(request, _DEADLINE_S)
            except SourceError as e:
                raise HTTPException(404 if e.reason is Reason.MALFORMED else 503, str(e)) from None
            finally:
                await child.stop()
        report: dict[str, Any] = answer["report"]
        return report
