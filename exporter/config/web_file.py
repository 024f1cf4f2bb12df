"""The file that says how the server is protected, in the format that Prometheus' own exporters read.

``--web.config.file``: TLS with or without client certificates, users with bcrypt hashes, headers for answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.config.yaml_file import read
from exporter.model import ConfigError

_SECTIONS = frozenset({"tls_server_config", "http_server_config"})
_VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
# What Python's ssl can do: ask for a certificate without checking it is not among it.
_CLIENT_AUTH = {
    "NoClientCert": None,
    "VerifyClientCertIfGiven": False,
    "RequireAndVerifyClientCert": True,
}
# Go's names of the suites of TLS 1.2 that are still sound, and OpenSSL's; those of 1.3 are always on in both.
_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
_SUITES_13 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_HEADERS = frozenset(
    {
        "Content-Security-Policy",
        "Strict-Transport-Security",
        "X-Content-Type-Options",
        "X-Frame-Options",
        "X-XSS-Protection",
    }
)


@dataclass(frozen=True, slots=True)
class Tls:
    """What the TLS side offers and asks for; ``ask`` is None for no client certificates."""

    cert_file: str
    key_file: str
    client_ca_file: str | None = None
    ask: bool | None = None  # False: checked where given; True: required
    allowed_names: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WebFile:
    """How the server is protected. Without anything in it: plain HTTP for everybody."""

    tls: Tls | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def decode(blob: bytes, name: str) -> WebFile:
    """Read the file's text; relative paths in it are relative to it.

    Errors: ConfigError, one line with file, line and key, for whatever cannot be kept: what is asked for
    here and not given would leave a door open.
    """
    tls: dict[str, Any] = {}
    users: dict[str, str] = {}
    headers: dict[str, str] = {}
    base = os.path.dirname(name)
    for path, value, line in read(blob, name, _SECTIONS):
        at = f"{name}:{line}: {path}"
        section, _, key = path.rpartition(".")
        if path == "basic_auth_users":
            users = _users(value, at)
        elif section == "tls_server_config" and key in _TLS:
            tls[key] = _TLS[key](value, at, base)
        elif path == "http_server_config.headers":
            headers = _headers(value, at)
        elif path == "http_server_config.http2":
            pass  # this server speaks HTTP/1.1, which every client falls back to
        else:
            raise ConfigError(f"{at}: not known here; docs/SECURITY.md lists the keys")
    return WebFile(_tls(tls, name) if tls else None, users, headers)


def _tls(given: Mapping[str, Any], name: str) -> Tls:
    for key in ("cert_file", "key_file"):
        if key not in given:
            raise ConfigError(f"{name}: tls_server_config.{key}: expected beside the other keys")
    ask = given.get("client_auth_type")
    if ask is not None and "client_ca_file" not in given:
        raise ConfigError(f"{name}: tls_server_config.client_ca_file: expected, to check clients with")
    if ask is None and ("client_ca_file" in given or "client_allowed_sans" in given):
        raise ConfigError(
            f"{name}: tls_server_config.client_auth_type: expected RequireAndVerifyClientCert or "
            "VerifyClientCertIfGiven beside client_ca_file, or no client is ever asked"
        )
    tls = Tls(
        given["cert_file"],
        given["key_file"],
        given.get("client_ca_file"),
        ask,
        given.get("client_allowed_sans", ()),
        given.get("min_version", "TLS12"),
        given.get("max_version", "TLS13"),
        given.get("cipher_suites", ()),
    )
    if _VERSIONS.index(tls.min_version) > _VERSIONS.index(tls.max_version):
        raise ConfigError(f"{name}: tls_server_config.min_version: expected at most max_version")
    return tls


def _users(value: Any, at: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise ConfigError(f"{at}: expected user names with bcrypt hashes")
    for user, hashed in value.items():
        if not str(hashed).startswith(("$2a$", "$2b$", "$2y$")) or len(hashed) != 60:
            raise ConfigError(f"{at}: {user}: expected a bcrypt hash, as htpasswd -nBC 10 '' prints it")
    return {str(user): hashed for user, hashed in value.items()}


def _headers(value: Any, at: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(f"{at}: expected header names with texts")
    for key, text in value.items():
        if key not in _HEADERS:
            raise ConfigError(f"{at}: {key}: expected one of {', '.join(sorted(_HEADERS))}")
        if not isinstance(text, str) or not text.isprintable() or not text.isascii():
            raise ConfigError(f"{at}: {key}: expected printable ASCII text")
    return dict(value)


def _file(value: Any, at: str, base: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ConfigError(f"{at}: expected a path")
    return os.path.join(base, value)


def _version(value: Any, at: str, _base: str) -> str:
    if value not in _VERSIONS:
        raise ConfigError(f"{at}: expected one of {', '.join(_VERSIONS)}")
    return str(value)


def _auth(value: Any, at: str, _base: str) -> bool | None:
    if value not in _CLIENT_AUTH:
        raise ConfigError(f"{at}: expected one of {', '.join(_CLIENT_AUTH)}; others are not offered here")
    return _CLIENT_AUTH[value]


def _suites(value: Any, at: str, _base: str) -> tuple[str, ...]:
    found = []
    for suite in _words(value, at, _base):
        if suite in _SUITES:
            found.append(_SUITES[suite])
        elif suite not in _SUITES_13:  # those of 1.3 are always on
            raise ConfigError(f"{at}: {suite}: not offered here; expected of {', '.join(_SUITES)}")
    return tuple(found)


def _words(value: Any, at: str, _base: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ConfigError(f"{at}: expected a list of words")
    return tuple(value)


def _true(value: Any, at: str, _base: str) -> bool:
    if value is not True:
        raise ConfigError(f"{at}: expected true; the server's order of suites always counts")
    return True


_TLS: dict[str, Callable[[Any, str, str], Any]] = {
    "cert_file": _file,
    "key_file": _file,
    "client_ca_file": _file,
    "client_auth_type": _auth,
    "client_allowed_sans": _words,
    "min_version": _version,
    "max_version": _version,
    "cipher_suites": _suites,
    "prefer_server_cipher_suites": _true,
}
