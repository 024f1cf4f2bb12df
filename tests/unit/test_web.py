"""What a client gets for what it asks: formats, codings, methods."""

from __future__ import annotations

import asyncio
import gzip
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.exposition import OPENMETRICS, TEXT
from exporter.web import Web, may_post, wants_gzip, wants_openmetrics

PROM_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROM_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        (PROM_2, True),
        (PROM_3, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0", True),
        ("application/openmetrics-text; version=2.0.0, text/plain;q=0.1", False),
        ("text/plain;q=0.9,application/openmetrics-text;version=1.0.0;q=0.1", False),
        ("text/plain;q=0.1,application/openmetrics-text;version=1.0.0;q=0.9", True),
        ("application/openmetrics-text;q=0, text/plain", False),
        ("application/openmetrics-text;q=0", False),
        ("application/*;q=0.9, text/*;q=0.8", True),
        ("application/openmetrics-text;q=bogus, text/plain;q=0.5", False),
        ('APPLICATION/OPENMETRICS-TEXT; version="1.0.0"', True),
    ],
)
def test_the_format_follows_the_q_values(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("", False),
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("gzip;q=0", False),
        ("*", True),
        ("*;q=0", False),
        ("identity, *;q=0", False),
        ("br", False),
        ("GZIP;q=0.001", True),
    ],
)
def test_gzip_only_where_it_is_taken(encoding: str, packed: bool) -> None:
    assert wants_gzip(encoding) is packed


class Answer:
    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.body += message["body"]


def get(web: Web, path: str, method: str = "GET", **headers: str) -> Answer:
    answer = Answer()
    raw = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    scope = {"type": "http", "path": path, "method": method, "headers": raw}
    asyncio.run(web(scope, None, answer.send))  # type: ignore[arg-type]
    return answer


class Current:
    def body(self, *, openmetrics: bool, packed: bool) -> bytes:
        plain = b"openmetrics" if openmetrics else b"text"
        return gzip.compress(plain) if packed else plain


def site(*, published: bool = True, ready: bool = True) -> Web:
    daemon = SimpleNamespace(current=Current() if published else None, ready=ready)
    return Web(daemon, lambda: pytest.fail("no page was asked for"))  # type: ignore[arg-type]


def test_metrics_come_in_both_formats_plain_and_packed() -> None:
    for accept, kind, body in (("", TEXT, b"text"), (PROM_3, OPENMETRICS, b"openmetrics")):
        plain = get(site(), "/metrics", accept=accept)
        assert (plain.status, plain.headers["content-type"], plain.body) == (200, kind, body)
        assert plain.headers["content-length"] == str(len(body))
        packed = get(site(), "/metrics", accept=accept, accept_encoding="gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == body


def test_head_gives_headers_only_and_post_is_refused() -> None:
    head = get(site(), "/metrics", "HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "4")
    assert get(site(), "/metrics", "POST").status == 405


def test_before_the_first_poll_it_is_healthy_but_not_ready() -> None:
    early = site(published=False, ready=False)
    assert get(early, "/-/healthy").status == 200
    assert get(early, "/-/ready").status == 503
    assert get(early, "/metrics").status == 503
    assert get(site(), "/-/ready").status == 200


def post(client: str | None, token: str | None = None, **headers: str) -> bool:
    raw = [(k.encode(), v.encode()) for k, v in headers.items()]
    return may_post({"headers": raw, "client": (client, 1) if client else None}, token)


def test_post_is_for_this_host_or_the_bearer_of_the_token() -> None:
    assert post("127.0.0.1")
    assert post("::1")
    assert post("::ffff:127.0.0.1")
    assert not post("192.0.2.7")
    assert not post("not-an-address")
    assert not post(None)
    assert post("192.0.2.7", "secret", authorization="Bearer secret")
    assert not post("192.0.2.7", "secret", authorization="Bearer guess")
    assert not post("192.0.2.7", None, authorization="Bearer ")


def test_a_web_page_of_elsewhere_cannot_post_through_the_users_browser() -> None:
    assert not post("127.0.0.1", origin="http://evil.example", host="127.0.0.1:9408")
    assert post("127.0.0.1", origin="http://127.0.0.1:9408", host="127.0.0.1:9408")
