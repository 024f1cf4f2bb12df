"""Tells a running daemon that a phase begins now."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from exporter.config.settings import split_listen
from exporter.model import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,63}\Z")
_PATIENCE_S = 10.0


def mark(phase: str, url: str, token_file: Path | None = None, ca_file: Path | None = None) -> str:
    """Name the phase from now on; returns the daemon's answer as one line.

    Errors: ConfigError that names what is wrong and the way out.
    """
    if not _NAME.match(phase):
        raise ConfigError(
            f"PHASE {phase!r}: expected up to 64 of letters, digits and . _ : + -, such as baseline"
        )
    headers = {"content-type": "application/json"}
    if token_file:
        try:
            headers["authorization"] = f"Bearer {token_file.read_text(encoding='utf-8').strip()}"
        except OSError as e:
            raise ConfigError(f"--token-file {token_file}: {e.strerror}") from None
    context = None
    if url.startswith("https:"):
        try:
            context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
        except OSError as e:
            raise ConfigError(f"--ca-file {ca_file}: {e.strerror or e}") from None
    address = f"{url.rstrip('/')}/api/v1/marks"
    body = json.dumps({"phase": phase}).encode()
    try:
        request = urllib.request.Request(address, body, headers, method="POST")  # noqa: S310 - told by the user
        with urllib.request.urlopen(request, timeout=_PATIENCE_S, context=context) as answer:  # noqa: S310
            said = json.loads(answer.read(65536))
    except urllib.error.HTTPError as e:
        hint = {403: "; give --token-file", 401: "; give --token-file", 404: "; its history is switched off"}
        raise ConfigError(f"{address}: answers {e.code} {e.reason}{hint.get(e.code, '')}") from None
    except (OSError, ValueError) as e:
        why = getattr(e, "reason", None) or e
        raise ConfigError(f"{address}: {why}; is the daemon running there? name another with --url") from None
    return f"phase {said['phase']} since {said['at']:.0f}"


def address(listen: str) -> str:
    """Where a daemon with this ``listen`` is reached from its own host."""
    host, port = split_listen(listen)
    if host in ("", "0.0.0.0"):  # noqa: S104 - every interface, so also this one
        host = "127.0.0.1"
    elif host == "::":
        host = "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
