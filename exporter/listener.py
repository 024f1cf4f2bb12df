"""The server's side of each connection: how many, how large, how slow, and TLS. The rest is uvicorn's.

What one client does costs only that client: whoever sends slowly, too much, or opens more connections than
are left is cut off, and a scrape in the middle of an answer never is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from exporter.access import Access

CONNECTIONS_MAX = 512
HEAD_BYTES_MAX = 32 * 1024
BODY_BYTES_MAX = 1024 * 1024
REQUEST_S = 10.0  # from the connection, or the first byte of a further request, to its last
ANSWER_S = 120.0
HANDSHAKE_S = 5.0
BACKLOG = 128  # connections taken at once; with the maximum, fewer than the usual limit on open files

REFUSALS = ("connections", "head", "body", "malformed", "slow", "tls", "password", "rate")


class Door:
    """Hands out a protocol for each new connection; ``refused`` counts by REFUSALS."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.refused: Counter[str] = Counter(dict.fromkeys(REFUSALS, 0))
        self._inside: dict[Guest, None] = {}

    def protocol(self, **given: Any) -> asyncio.Protocol:
        """What uvicorn calls for each connection."""
        self.access.refresh()
        return _Handshake(self, given) if self.access.secure else Guarded(self, **given)

    def enter(self, guest: Guest) -> None:
        """Let one in; beyond the maximum the one that has been idle or unfinished for longest must go."""
        self._inside[guest] = None
        if len(self._inside) > CONNECTIONS_MAX:
            self.refused["connections"] += 1
            last = next((g for g in self._inside if not g.answering), guest)
            self.leave(last)
            last.end()

    def leave(self, guest: Guest) -> None:
        self._inside.pop(guest, None)


class Guest:
    """One connection as the door sees it."""

    answering = False

    def end(self) -> None:
        raise NotImplementedError


class Guarded(HttpToolsProtocol, Guest):
    """HTTP on one connection, within the limits."""

    def __init__(self, door: Door, **given: Any) -> None:
        super().__init__(**given)
        self._door = door
        self._taken = 0
        self._head_done = False
        self._timer: asyncio.TimerHandle | None = None
        self._early: list[bytes] = []

    def end(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._by(REQUEST_S)
        self._door.enter(self)
        for data in self._early:
            self.data_received(data)
        self._early.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is None:
            return  # lost at the end of its handshake
        self._by(None)
        self._door.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            # Python up to 3.11 delivers what came with the handshake before start_tls returns.
            self._early.append(data)
            return
        # The parser keeps what belongs to an unfinished header; so count before it sees it.
        self._taken += len(data)
        if not self._head_done and self._taken > HEAD_BYTES_MAX + len(data):
            self._refuse("head", 431)
        elif self._head_done and self._taken > BODY_BYTES_MAX:
            self._refuse("body", 413)
        elif not self.transport.is_closing():
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        self._door.refused["malformed"] += 1
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._taken, self._head_done = 0, False
        if not self.answering:
            self._by(REQUEST_S)

    def on_headers_complete(self) -> None:
        self._taken, self._head_done = 0, True
        length = next((v for k, v in self.headers if k == b"content-length"), b"0")
        if sum(len(k) + len(v) for k, v in self.headers) + len(self.url) > HEAD_BYTES_MAX:
            self._refuse("head", 431)
        elif len(length) > 12 or int(length) > BODY_BYTES_MAX:
            self._refuse("body", 413)
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.transport.is_closing():
            return
        # What follows in the same piece belongs to the next request.
        self._taken, self._head_done = 0, False
        self.answering = True
        self._by(ANSWER_S)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.answering = bool(self.pipeline)
        # Idle between two requests is uvicorn's own time limit.
        self._by(ANSWER_S if self.answering else None)
        super().on_response_complete()

    def _by(self, seconds: float | None) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._late) if seconds is not None else None

    def _late(self) -> None:
        self._refuse("slow", None if self.answering else 408)

    def _refuse(self, why: str, status: int | None) -> None:
        """Count, answer in one line if nothing was answered yet, and close whether or not that is read."""
        self._door.refused[why] += 1
        self._by(None)
        if status is not None and not self.transport.is_closing():
            phrase = HTTPStatus(status).phrase
            text = f"{phrase.lower()}\n"
            self.transport.write(
                f"HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
                f"content-length: {len(text)}\r\nconnection: close\r\n\r\n{text}".encode()
            )
        self.transport.close()
        # A peer that never reads keeps what was written; it does not get to keep the connection too.
        self.loop.call_later(1.0, self.transport.abort)


class _Handshake(asyncio.Protocol, Guest):
    """A connection until TLS stands; only then is there any HTTP."""

    def __init__(self, door: Door, given: dict[str, Any]) -> None:
        self._door = door
        self._given = given
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def end(self) -> None:
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a connection that cannot be read and written")
        self._transport = transport
        transport.pause_reading()
        self._door.enter(self)
        self._task = asyncio.get_running_loop().create_task(self._open(transport))

    async def _open(self, transport: asyncio.Transport) -> None:
        access = self._door.access
        inner = Guarded(self._door, **self._given)
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                inner,
                access.context(),
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=1.0,
            )
        except OSError:  # everything that a handshake can come to is one
            secured = None
        finally:
            self._door.leave(self)
        if secured is None or not _named(secured, access.allowed_names):
            self._door.refused["tls"] += 1
            (secured or transport).abort()
            return
        inner.connection_made(secured)


def _named(transport: asyncio.Transport, allowed: tuple[str, ...]) -> bool:
    """Whether the client's certificate, where it gave one, carries one of the names."""
    if not allowed:
        return True
    peer: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    certificate: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        certificate = (peer and peer.getpeercert()) or {}
    if not certificate:
        return True  # one that must be given was asked for in the handshake already
    return any(name in allowed for _, name in certificate.get("subjectAltName", ()))
