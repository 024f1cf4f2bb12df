"""What is asked of each request before anything answers it: a password where there are users, a rate."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable
from time import monotonic

from exporter.access import Access, TooBusyError
from exporter.web import Scope, Send, reply

# A probe of the kubelet carries no password, and these say nothing but that we live.
_OPEN = ("/-/healthy", "/-/ready")
_POSTS_PER_S = 5.0
_POSTS_AT_ONCE = 20.0


class Guard:
    """Stands before the application. ``refused`` counts whom it turned away."""

    def __init__(self, access: Access, token: Callable[[], str | None], refused: Counter[str]) -> None:
        self._access = access
        self._token = token
        self._refused = refused
        self._posts = _POSTS_AT_ONCE
        self._posts_at = monotonic()

    def dress(self, send: Send) -> Send:
        """Add the configured headers to every answer."""
        headers = self._access.headers
        if not headers:
            return send

        async def dressed(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                own = {k for k, _ in message["headers"]}  # type: ignore[attr-defined]
                message["headers"] = [*message["headers"], *(h for h in headers if h[0] not in own)]  # type: ignore[misc]
            await send(message)

        return dressed  # type: ignore[return-value]

    async def admits(self, scope: Scope, send: Send) -> bool:
        """Whether the request may go on; else it has its answer."""
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and not self._another():
            self._refused["rate"] += 1
            await reply(
                scope, send, 429, b"too many requests that change something\n", ((b"retry-after", b"1"),)
            )
            return False
        if not self._access.asks_password or scope["path"] in _OPEN:
            return True
        given = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"authorization"), "")
        token = self._token() if given.lower().startswith("bearer ") else None
        if token and hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return True  # whoever may change things may look at them
        try:
            if await self._access.knows(given):
                return True
        except TooBusyError:
            self._refused["rate"] += 1
            await reply(scope, send, 429, b"too many passwords at once\n", ((b"retry-after", b"1"),))
            return False
        self._refused["password"] += 1
        ask = (b"www-authenticate", b'Basic realm="amdgpu-exporter", charset="UTF-8"')
        await reply(scope, send, 401, b"user name and password needed\n", (ask,))
        return False

    def _another(self) -> bool:
        """Whether one more request that changes something fits into the rate."""
        now = monotonic()
        self._posts = min(_POSTS_AT_ONCE, self._posts + (now - self._posts_at) * _POSTS_PER_S)
        self._posts_at = now
        if self._posts < 1:
            return False
        self._posts -= 1
        return True
