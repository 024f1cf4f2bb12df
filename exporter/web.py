"""HTTP: ``/metrics`` and the health paths as bytes from memory, everything else through FastAPI.

FastAPI is imported when the first page or API call asks for it: a daemon that is only scraped never pays
for it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from exporter.collect import Published
from exporter.exposition import OPENMETRICS, TEXT

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Daemon(Protocol):
    """What the web layer needs of the running service."""

    @property
    def current(self) -> Published | None: ...

    @property
    def ready(self) -> bool: ...


class Gate(Protocol):
    """What stands before every request; answers those that it does not admit."""

    def dress(self, send: Send) -> Send: ...

    async def admits(self, scope: Scope, send: Send) -> bool: ...


class Web:
    """The ASGI application. ``pages`` builds the rest of the site when it is first needed."""

    def __init__(self, daemon: Daemon, pages: Callable[[], App], gate: Gate | None = None) -> None:
        self._daemon = daemon
        self._build = pages
        self._gate = gate
        self._pages: asyncio.Task[App] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self._gate:
            send = self._gate.dress(send)
            if not await self._gate.admits(scope, send):
                return
        path = scope["path"]
        if path == "/metrics":
            await self._metrics(scope, send)
        elif path == "/-/healthy":
            await reply(scope, send, 200, b"healthy\n")
        elif path == "/-/ready":
            ready = self._daemon.ready
            await reply(scope, send, 200 if ready else 503, b"ready\n" if ready else b"first poll pending\n")
        else:
            if self._pages is None:
                self._pages = asyncio.create_task(asyncio.to_thread(self._build))
            await (await asyncio.shield(self._pages))(scope, receive, send)

    async def _metrics(self, scope: Scope, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await reply(scope, send, 405, b"only GET and HEAD\n", ((b"allow", b"GET, HEAD"),))
            return
        now = self._daemon.current
        if now is None:
            await reply(scope, send, 503, b"first poll pending\n")
            return
        accept = encoding = ""
        for key, value in scope["headers"]:
            if key == b"accept":
                accept = f"{accept},{value.decode('latin-1')}" if accept else value.decode("latin-1")
            elif key == b"accept-encoding":
                encoding = f"{encoding},{value.decode('latin-1')}" if encoding else value.decode("latin-1")
        openmetrics = wants_openmetrics(accept)
        packed = wants_gzip(encoding)
        body = now.body(openmetrics=openmetrics, packed=packed)
        headers = (
            (b"content-type", OPENMETRICS.encode() if openmetrics else TEXT.encode()),
            (b"vary", b"accept, accept-encoding"),
            *(((b"content-encoding", b"gzip"),) if packed else ()),
        )
        await reply(scope, send, 200, body, headers)


async def reply(
    scope: Scope, send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send one whole response; the body is left out for HEAD."""
    if not any(k == b"content-type" for k, _ in headers):
        headers = (*headers, (b"content-type", b"text/plain; charset=utf-8"))
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def wants_openmetrics(accept: str) -> bool:
    """Whether the client prefers OpenMetrics 1.0 to the text format, by its q-values.

    Without a preference the plain text format is served, as it is to a client that accepts neither.
    """
    best = {"openmetrics": 0.0, "text": 0.0}
    named = dict.fromkeys(best, -1)
    for media, params, q in _parse(accept):
        version = params.get("version")
        for form, full, versions in (
            ("openmetrics", "application/openmetrics-text", ("1.0.0", None)),
            ("text", "text/plain", ("0.0.4", "1.0.0", None)),
        ):
            exact = 2 if media == full else 1 if media == full.split("/")[0] + "/*" else 0
            if exact == 0 and media != "*/*":
                continue
            if exact == 2 and version not in versions:
                continue
            # The most specific range decides; among equally specific ones the best.
            if exact > named[form] or (exact == named[form] and q > best[form]):
                named[form], best[form] = exact, q
    return best["openmetrics"] > best["text"] or (
        named["openmetrics"] == 2 and best["openmetrics"] == best["text"] > 0
    )


def wants_gzip(encoding: str) -> bool:
    """Whether the client takes gzip at all; q=0 refuses it."""
    q: dict[str, float] = {media: weight for media, _, weight in _parse(encoding)}
    return q.get("gzip", q.get("*", 0.0)) > 0


def _parse(header: str) -> list[tuple[str, dict[str, str], float]]:
    """(name, parameters, q) of each element; an unreadable q counts as 0, as if it were refused."""
    found = []
    for element in header.lower().split(","):
        name, *rest = (part.strip() for part in element.split(";"))
        if not name:
            continue
        params = dict(p.split("=", 1) for p in rest if "=" in p)
        try:
            q = float(params.pop("q", "1"))
        except ValueError:
            q = 0.0
        found.append((name, {k: v.strip('"') for k, v in params.items()}, q if 0 <= q <= 1 else 0.0))
    return found


def may_post(scope: Scope, token: str | None) -> bool:
    """A bearer token, or a peer on this machine that is not a web page of somewhere else."""
    headers = {k: v.decode("latin-1") for k, v in scope["headers"]}
    if token is not None and hmac.compare_digest(
        headers.get(b"authorization", "").encode(), f"Bearer {token}".encode()
    ):
        return True
    origin, host = headers.get(b"origin"), headers.get(b"host", "")
    if origin and origin.split("//", 1)[-1] != host:
        return False
    client = scope.get("client")
    try:
        address = ipaddress.ip_address(client[0]) if client else None
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool(address and (mapped or address).is_loopback)
