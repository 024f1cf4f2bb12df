"""The runbooks as the daemon serves them."""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient, Response

from exporter.pages import runbooks

PAGES = sorted(runbooks.FOLDER.glob("*.md"))


class Client:
    """Asks the pages as they are mounted."""

    def __init__(self) -> None:
        self._app = FastAPI()
        runbooks.add(self._app, lambda name: f"/page/{name}")

    def get(self, path: str) -> Response:
        async def ask() -> Response:
            async with AsyncClient(transport=ASGITransport(self._app), base_url="http://node") as client:
                return await client.get(path)

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def client() -> Client:
    return Client()


class Words(HTMLParser):
    """Text, links and blocks of commands of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v or "" for k, v in attrs if tag == "a" and k == "href"]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_every_runbook_is_served_with_all_its_words_and_links(client: Client, path: Path) -> None:
    answer = client.get(f"/runbooks/{path.stem}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    page = Words(answer.text)
    plain = re.sub(
        r"```\w*|[`*#]|\]\([^)]*\)|\[|^\s*(?:\d+\.|-)\s", " ", path.read_text(), flags=re.MULTILINE
    )
    shown = re.sub(r"[`*#]|\[", " ", " ".join(page.text))
    assert set(re.findall(r"[\w.:/-]{4,}", plain)) <= set(re.findall(r"[\w.:/-]{4,}", shown))
    assert answer.text.count("<pre") == path.read_text().count("```") // 2
    for link in page.links:
        assert link == "/" or client.get(link).status_code == 200, link


def test_the_list_names_them_all(client: Client) -> None:
    assert set(Words(client.get("/runbooks").text).links) >= {f"/runbooks/{p.stem}" for p in PAGES}


def test_the_names_of_files_work_too_and_others_do_not(client: Client) -> None:
    assert client.get("/runbooks/AmdGpuMissing.md").text == client.get("/runbooks/AmdGpuMissing").text
    for name in ("NoSuch", "..%2f..%2fservice.py", "AmdGpuMissing.md.md"):
        assert client.get(f"/runbooks/{name}").status_code == 404


def test_what_is_written_cannot_become_markup() -> None:
    made = runbooks.to_html(
        "# a <b>\n\n`<i>` **<u>** [x<y](z.md) <s>\n\n```sh\n<script>&\n```\n\n1. one\n2. *two*\n"
    )
    assert made == (
        "<h1>a &lt;b&gt;</h1><p><code>&lt;i&gt;</code> <strong>&lt;u&gt;</strong> "
        '<a href="/runbooks/z">x&lt;y</a> &lt;s&gt;</p>'
        '<pre tabindex="0"><code>&lt;script&gt;&amp;</code></pre>'
        "<ol><li>one<li>*two*</ol>"
    )
