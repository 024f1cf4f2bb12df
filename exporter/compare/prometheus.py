"""Marked phases and time ranges of a Prometheus as one side of a comparison, by its HTTP API. Only asks."""

from __future__ import annotations

import base64
import json
import math
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.compare import scraped
from exporter.compare.past import RESULTS_MOST, time_range
from exporter.compare.rows import Row
from exporter.model import ConfigError

Labels = Mapping[str, str]
Points = list[tuple[float, float]]

_TIMEOUT_S = 60.0
_ANSWER_MOST = 128 << 20
_POINTS_MOST = 10_000  # of one series in one answer; a server refuses more than 11,000
_FINE_S = 15.0
_COARSE_S = 600.0  # gauges of a window stand longer than that
_CHUNK_S = 6 * 3600.0
_STEPS = 150  # of one answer with all series, which holds 4,000 of them for 64 GPUs
_MATCH = re.compile(r'\w+\s*(=|!=|=~|!~)\s*"[^"\\{}]*"(\s*,\s*\w+\s*(=|!=|=~|!~)\s*"[^"\\{}]*")*')


@dataclass(frozen=True, slots=True)
class Place:
    """Where to ask, and of which series: ``match`` is what stands between the braces of a selector."""

    url: str
    match: str = ""
    token_file: Path | None = None
    within_s: float = 30 * 86400.0  # how far back a phase is looked for


class Server:
    """A Prometheus, or what answers as one does. Errors: ConfigError, one line, never with a password."""

    def __init__(self, place: Place) -> None:
        parts = urllib.parse.urlsplit(place.url)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("--prometheus: expected a URL such as http://prometheus:9090")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        path = parts.path.rstrip("/").removesuffix("/api/v1")
        self.name = f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}"
        self._match = place.match.strip().strip(",")
        if self._match and not _MATCH.fullmatch(self._match):
            raise ConfigError(
                f'--match {self._match}: expected label matchers, such as instance="node7:9408"'
            )
        self._headers = {"Accept": "application/json"}
        if place.token_file is not None:
            try:
                token = place.token_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as e:
                why = getattr(e, "strerror", None) or "is no text"
                raise ConfigError(f"--token-file {place.token_file}: {why}") from None
            self._headers["Authorization"] = f"Bearer {token}"
        elif parts.username is not None:
            pair = ":".join(map(urllib.parse.unquote, (parts.username, parts.password or "")))
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def selector(self, names: Sequence[str]) -> str:
        """A selector of several metrics at once."""
        metrics = f'__name__="{names[0]}"' if len(names) == 1 else f'__name__=~"{"|".join(names)}"'
        return f"{{{metrics}{',' if self._match else ''}{self._match}}}"

    def over(self, query: str, since: float, until: float, step: float) -> Iterator[tuple[Labels, Points]]:
        """Series of a query at steps of a time range, both ends included."""
        asked = {"query": query, "start": f"{since:.3f}", "end": f"{until:.3f}", "step": f"{step:.3f}"}
        data = self._ask("/api/v1/query_range", asked)
        try:
            for series in data["result"]:
                points = [(float(at), float(value)) for at, value in series["values"]]
                yield series["metric"], points
        except (KeyError, TypeError, ValueError):
            raise ConfigError(f"{self.name}: its answer is none of a Prometheus") from None

    def _ask(self, path: str, asked: Mapping[str, str]) -> Any:
        body = urllib.parse.urlencode(asked).encode()
        request = urllib.request.Request(self.name + path, body, self._headers)  # noqa: S310 - http(s) only
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
                raw = answer.read(_ANSWER_MOST + 1)
        except urllib.error.HTTPError as e:
            with e:
                raise ConfigError(f"{self.name}: {_refusal(e)}") from None
        except (OSError, ValueError, urllib.error.URLError) as e:
            why = getattr(e, "reason", e)
            raise ConfigError(f"{self.name}: {getattr(why, 'strerror', None) or why}") from None
        if len(raw) > _ANSWER_MOST:
            raise ConfigError(f"{self.name}: answers with more than 128 MiB; narrow it with --match")
        try:
            answered = json.loads(raw)
            if answered["status"] != "success":
                raise ConfigError(f"{self.name}: {answered.get('error') or answered['status']}")
            return answered["data"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigError(f"{self.name}: its answer is none of a Prometheus") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Credentials go where they were meant to, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect())


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return f"wants credentials ({error.code}): user:password@ in the URL, or --token-file"
    if error.code == 404:
        return "has no /api/v1/query_range; --prometheus is the URL before /api"
    if 300 <= error.code < 400:
        return f"sends elsewhere ({error.code}); name that URL itself"
    try:
        said = json.loads(error.read(1 << 16))["error"]
    except (ValueError, KeyError, TypeError, OSError):
        said = error.reason
    return f"{said} ({error.code})"


class Scrapes:
    """The windows that a Prometheus has seen."""

    def __init__(self, place: Place) -> None:
        self.server = Server(place)
        self._within_s = place.within_s
        self._phases: dict[str, list[scraped.Span]] | None = None

    def rows(self, side: str, notes: list[str]) -> list[Row]:
        """Rows of a phase or a time range. Errors: ConfigError."""
        found = scraped.Found()
        for span in self._spans(side):
            for chunk in _chunks((span.since, span.until), _CHUNK_S):
                self._take(chunk, span, found)
        notes += [f"{side}: {note}" for note in found.notes()]
        if not found.rows:
            raise ConfigError(f"{side}: {self.server.name} has no windows of that time")
        every = math.ceil(len(found.rows) / RESULTS_MOST)
        if every > 1:
            notes.append(f"{side}: {len(found.rows)} results; of {every} windows one is used")
        return found.chosen(every)

    def close(self) -> None:
        """Nothing stays open between questions."""

    def _take(self, chunk: tuple[float, float], span: scraped.Span, found: scraped.Found) -> None:
        server, (since, until) = self.server, chunk
        last = server.selector([scraped.LAST])
        coarse = scraped.step(server.over(last, since - _COARSE_S, until, _FINE_S), _FINE_S, _COARSE_S)
        if coarse is None:
            return
        for begin, end in _chunks(chunk, coarse * _STEPS):
            # One look before, to see the first window come, and one after, to see the last one.
            series = server.over(server.selector(scraped.NAMES), begin - 2 * coarse, end + coarse, coarse)
            scraped.take(series, span, (begin, end), found)

    def _spans(self, side: str) -> list[scraped.Span]:
        if ".." in side:
            since, until = time_range(side)
            now = time.time()
            if since >= now:
                raise ConfigError(f"{side}: begins in the future")
            return [scraped.Span(since, min(until, now))]
        if self._phases is None:
            now = time.time()
            since = now - self._within_s
            self._phases = {}
            phase = self.server.selector([scraped.PHASE])
            marked: dict[tuple[str, str], list[float]] = {}
            for begin, end in _chunks((since, now), _POINTS_MOST * _FINE_S):
                for labels, points in self.server.over(phase, begin, end, _FINE_S):
                    key = labels.get("instance", ""), labels.get("phase", "")
                    marked.setdefault(key, []).extend(at for at, _ in points)
            self._phases = scraped.phases(marked, now)
        if side not in self._phases:
            known = ", ".join(self._phases) or "none; see amdgpu-exporter mark"
            raise ConfigError(f"{side}: no phase of {self.server.name} or time range; phases: {known}")
        return self._phases[side]


def _chunks(span: tuple[float, float], size: float) -> Iterator[tuple[float, float]]:
    at, until = span
    while at < until:
        end = min(until, at + size)
        yield at, end
        at = end
