"""Who may talk to the server: the web configuration file in force, the TLS side of it, and users' passwords.

The file and what it names are looked at again when they change, at most once a second; a broken one leaves
the last good one in force, so that a slip of the pen neither opens the door nor shuts it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import os
import ssl
import time
from collections.abc import Iterable
from pathlib import Path

from exporter.config import web_file
from exporter.config.web_file import Tls, WebFile
from exporter.logs import event
from exporter.model import ConfigError

log = logging.getLogger(__name__)

_SIZE_LIMIT = 256 * 1024
_LOOK_EVERY_S = 1.0
_WAITING_MAX = 4
_KNOWN_MAX = 64
_PASSWORD_BYTES = 72  # bcrypt looks at no more
_NOBODY = b"$2b$10$" + b"." * 53  # hashes as slowly as a real one and matches nothing
_TLS_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}


class TooBusyError(Exception):
    """More passwords wait to be checked than may."""


class Access:
    """The protection in force. Errors: ConfigError where the file cannot be used at the start."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file = WebFile()
        self._context: ssl.SSLContext | None = None
        self._seen: tuple[object, ...] = ()
        self._looked = time.monotonic()
        self._right: dict[bytes, None] = {}
        self._waiting = 0
        self._one = asyncio.Lock()
        if path:
            self._seen = _stamps((path,))
            self._take(*_read(path))

    @property
    def secure(self) -> bool:
        """Whether this server speaks TLS; decided at the start."""
        return self._context is not None

    @property
    def asks_password(self) -> bool:
        return bool(self._file.users)

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """What every answer carries."""
        return tuple((k.lower().encode(), v.encode()) for k, v in self._file.headers.items())

    @property
    def allowed_names(self) -> tuple[str, ...]:
        """Names of which a client certificate must carry one; empty: any will do."""
        return self._file.tls.allowed_names if self._file.tls else ()

    def context(self) -> ssl.SSLContext:
        """The TLS side for the next connection. Errors: RuntimeError where there is none."""
        if self._context is None:
            raise RuntimeError("no TLS is configured")
        return self._context

    def refresh(self) -> None:
        """Take a changed file. Cheap: most calls look at nothing."""
        now = time.monotonic()
        if self._path is None or now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        seen = _stamps(self._files())
        if seen == self._seen:
            return
        self._seen = seen
        try:
            file, context = _read(self._path)
            if (context is None) != (self._context is None):
                raise ConfigError(f"{self._path}: TLS is switched on or off by a restart only")
        except ConfigError as e:
            event(log, logging.ERROR, "web configuration refused; the last good one stays", detail=e)
            return
        self._take(file, context)
        event(log, logging.INFO, "web configuration taken", file=self._path)

    async def knows(self, authorization: str) -> bool:
        """Whether this is the right user with the right password.

        Errors: TooBusyError where guesses come faster than they can be checked.
        """
        kind, _, packed = authorization.partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            text = base64.b64decode(packed.strip(), validate=True)
        except (binascii.Error, ValueError):
            return False
        user, colon, password = text.partition(b":")
        if not colon:
            return False
        hashed = self._file.users.get(user.decode("utf-8", "replace"))
        digest = hashlib.sha256(repr((user, password, hashed)).encode()).digest()
        if digest in self._right:
            return True
        if self._waiting >= _WAITING_MAX:
            raise TooBusyError
        self._waiting += 1
        try:
            # A check is meant to take long; scrapes must not wait for it, nor may many run at once.
            async with self._one:
                right = await asyncio.to_thread(_matches, password, hashed)
        finally:
            self._waiting -= 1
        if right:
            while len(self._right) >= _KNOWN_MAX:
                self._right.pop(next(iter(self._right)))
            self._right[digest] = None
        return right

    def _take(self, file: WebFile, context: ssl.SSLContext | None) -> None:
        self._file, self._context = file, context
        self._right.clear()
        self._seen = _stamps(self._files())

    def _files(self) -> Iterable[str]:
        tls = self._file.tls
        named = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls else ()
        return [path for path in (self._path, *named) if path]


def _matches(password: bytes, hashed: str | None) -> bool:
    import bcrypt  # only servers with users pay for it

    # The same work for a user who does not exist, so that answers do not tell who does.
    right = bcrypt.checkpw(password[:_PASSWORD_BYTES], hashed.encode() if hashed else _NOBODY)
    return right and hashed is not None


def _read(path: str) -> tuple[WebFile, ssl.SSLContext | None]:
    try:
        with Path(path).open("rb") as stream:
            blob = stream.read(_SIZE_LIMIT + 1)
    except OSError as e:
        raise ConfigError(f"web.config_file: {path}: cannot be read: {e.strerror or e}") from None
    if len(blob) > _SIZE_LIMIT:
        raise ConfigError(
            f"web.config_file: {path}: larger than {_SIZE_LIMIT} bytes; is this the right file?"
        )
    file = web_file.decode(blob, path)
    return file, _context(file.tls) if file.tls else None


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _TLS_VERSIONS[tls.min_version]
    context.maximum_version = _TLS_VERSIONS[tls.max_version]
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    what = f"cert_file {tls.cert_file} with key_file {tls.key_file}"
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
        if tls.ciphers:
            what = "cipher_suites"
            context.set_ciphers(":".join(tls.ciphers))
        if tls.ask is not None:
            what = f"client_ca_file {tls.client_ca_file}"
            context.load_verify_locations(tls.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED if tls.ask else ssl.CERT_OPTIONAL
    except (OSError, ValueError) as e:
        why = getattr(e, "strerror", None) or getattr(e, "reason", None) or e
        raise ConfigError(f"tls_server_config: {what} cannot be used: {why}") from None
    return context


def _no_password() -> str:
    raise ValueError("the key asks for a pass phrase; give one without")


def _stamps(paths: Iterable[str]) -> tuple[object, ...]:
    """What changes when any of the files does, also where Kubernetes turns a link."""
    found: list[object] = []
    for path in paths:
        try:
            at = os.stat(path)
            found.append((path, at.st_mtime_ns, at.st_size, at.st_ino))
        except OSError as e:
            found.append((path, e.errno))
    return tuple(found)
