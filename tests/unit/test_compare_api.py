"""GET /api/v1/compare: the history compared in a child, and refusals in one line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from test_compare_verb import kept

from exporter.pages import compare


def ask(folder: Path, *queries: str) -> list[httpx.Response]:
    app = FastAPI()
    compare.add(app, str(folder))

    async def all_of_them() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return await asyncio.gather(*(client.get(f"/api/v1/compare?{q}") for q in queries))

    return asyncio.run(all_of_them())


def test_two_phases_are_compared(tmp_path: Path) -> None:
    (answer,) = ask(kept(tmp_path), "a=old&b=new")
    assert answer.status_code == 200
    said = answer.json()
    assert said["verdict"] == "worse"
    assert {f["kernel"] for f in said["findings"] if f["verdict"] == "worse"} == {"gemm"}


def test_one_runs_at_a_time(tmp_path: Path) -> None:
    answers = ask(kept(tmp_path), "a=old&b=new", "a=old&b=new")
    assert sorted(a.status_code for a in answers) == [200, 429]


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("a=old&b=other", 404, "marked phases: old, new"),
        ("a=2000..1000&b=old", 404, "expected SINCE..UNTIL"),
        ("a=/etc/passwd&b=old", 422, "pattern"),
        ("a=old&b=new&changed=weather", 422, "expected one of"),
        ("a=old", 422, "missing"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(
    tmp_path: Path, query: str, code: int, words: str
) -> None:
    (answer,) = ask(kept(tmp_path), query)
    assert answer.status_code == code
    assert words in answer.text


def test_without_a_history_there_is_no_such_route() -> None:
    app = FastAPI()
    compare.add(app, None)
    assert "/api/v1/compare" not in app.openapi()["paths"]
