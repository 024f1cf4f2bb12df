"""How the daemon's log lines look: one line per event, logfmt or JSON, a message and its fields."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

_PLAIN = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+\Z")


def event(log: logging.Logger, level: int, text: str, **fields: object) -> None:
    """Log ``text`` with ``fields``; fields that are None are left out."""
    given = {key: value for key, value in fields.items() if value is not None}
    log.log(level, "%s", text, extra={"fields": given})


def setup(level: str, form: str) -> None:
    """Send this package's log to stderr; other libraries' from warning on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Logfmt())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # It warns of each request that is no HTTP, and whoever sends them would write the log; they are counted.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    set_level(level)


def set_level(level: str) -> None:
    logging.getLogger("exporter").setLevel(level.upper())


class _Lines(logging.Formatter):
    def parts(self, record: logging.LogRecord) -> dict[str, Any]:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        parts = {"time": at.replace("+00:00", "Z"), "level": record.levelname.lower()}
        parts["msg"] = record.getMessage()
        parts.update(getattr(record, "fields", {}))
        if record.exc_info:
            parts["trace"] = self.formatException(record.exc_info)
        return parts


class _Logfmt(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quoted(str(value))}" for key, value in self.parts(record).items())


class _Json(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.parts(record), default=str, ensure_ascii=False)


def _quoted(text: str) -> str:
    return text if _PLAIN.match(text) else json.dumps(text, ensure_ascii=False)
