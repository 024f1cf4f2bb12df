"""Runbooks at ``/runbooks``: what an alert links to is read from the daemon itself, without a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse

from exporter.pages.first_paint import head

FOLDER = Path(__file__).resolve().parent.parent / "runbooks"
_INLINE = re.compile(r"`([^`]+)`|\[([^\]]+)\]\(([^)\s]+)\)|\*\*([^*]+)\*\*")
_ITEM = re.compile(r"(?:\d+\.|-) (.*)")


def add(app: FastAPI, link: Callable[[str], str], folder: Path = FOLDER) -> None:
    """Add the pages to the application. They are read once."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}

    @app.get("/runbooks", response_class=HTMLResponse, include_in_schema=False)
    async def index() -> str:
        names = "".join(f'<li><a href="/runbooks/{escape(n)}">{escape(n)}</a>' for n in texts)
        return _page("Runbooks", f"<h1>Runbooks</h1><ul>{names}</ul>", link)

    @app.get("/runbooks/{name}", response_class=HTMLResponse, include_in_schema=False)
    async def runbook(name: str) -> str:
        text = texts.get(name.removesuffix(".md"))
        if text is None:
            raise HTTPException(404, "there is no such runbook; /runbooks lists them")
        return _page(name.removesuffix(".md"), to_html(text), link)


def _page(title: str, body: str, link: Callable[[str], str]) -> str:
    return (
        f'{head(title, link)}<body><nav aria-label="Other pages"><ul><li><a href="/">Live page</a>'
        f'<li><a href="/runbooks">Runbooks</a></ul></nav><main id="main">{body}</main></body></html>'
    )


def to_html(markdown: str) -> str:
    """The part of Markdown that runbooks are written in; anything else stays as it is written."""
    return "".join(_blocks(markdown))


def _blocks(markdown: str) -> Iterator[str]:
    for n, part in enumerate(re.split(r"^```\w*\n(.*?)^```\n?", markdown, flags=re.MULTILINE | re.DOTALL)):
        if n % 2:
            yield f'<pre tabindex="0"><code>{escape(part.rstrip())}</code></pre>'
            continue
        for block in re.split(r"\n\s*\n", part):
            if block.strip():
                yield from _block(block.strip())


def _block(block: str) -> Iterator[str]:
    heading = re.fullmatch(r"(#{1,3}) (.*)", block)
    if heading:
        level = len(heading[1])
        yield f"<h{level}>{_inline(heading[2])}</h{level}>"
    elif _ITEM.match(block):
        items = re.split(r"\n(?=(?:\d+\.|-) )", block)
        kind = "ol" if block[0].isdigit() else "ul"
        texts = (_ITEM.fullmatch(" ".join(item.split())) for item in items)
        yield f"<{kind}>" + "".join(f"<li>{_inline(t[1])}" for t in texts if t) + f"</{kind}>"
    else:
        yield f"<p>{_inline(' '.join(block.split()))}</p>"


def _inline(text: str) -> str:
    out, end = [], 0
    for found in _INLINE.finditer(text):
        out.append(escape(text[end : found.start()]))
        end = found.end()
        code, words, target, strong = found.groups()
        if code is not None:
            out.append(f"<code>{escape(code)}</code>")
        elif strong is not None:
            out.append(f"<strong>{escape(strong)}</strong>")
        else:
            out.append(f'<a href="{escape(_target(target))}">{escape(words)}</a>')
    return "".join([*out, escape(text[end:])])


def _target(written: str) -> str:
    """Pages of ours are linked by their names."""
    ours = re.fullmatch(r"([\w-]+)\.md", written)
    return f"/runbooks/{ours[1]}" if ours else written
