"""One JSON document as a stream: named parts of it one value at a time, the rest skipped. Pure."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

VALUE_MOST = 1 << 20
_DEEPEST = 32
_SPACE = re.compile(r"[ \t\r\n]*")

Path = tuple[str, ...]
Taker = Callable[[Any], None]
Steps = Generator[None, None, None]


class DamagedError(Exception):
    """The document cannot be followed any further; the text is the reason it is counted under."""


class JsonStream:
    """Calls ``takers`` with each element of the arrays (or with the value) at their paths.

    An array in a path is written ``*``. Objects are walked, elements of arrays that nobody takes are dropped.
    ``boundary`` finds the next element of an array after one that cannot be read; ``bad`` is told of each.
    Only one value is held at a time, and none longer than VALUE_MOST characters.
    """

    def __init__(
        self,
        takers: dict[Path, Taker],
        opened: dict[Path, Callable[[], None]],
        boundary: re.Pattern[str],
        bad: Callable[[str], None],
    ) -> None:
        self._takers, self._opened, self._boundary, self._bad = takers, opened, boundary, bad
        self._walked = {path[:i] for path in [*takers, *opened] for i in range(len(path))} | set(opened)
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._json = json.JSONDecoder(parse_constant=str)
        self._buffer = ""
        self._at = 0
        self._last = False
        self._steps: Steps = self._document()
        self.whole = False
        self._running = True

    def feed(self, data: bytes) -> None:
        self._more(self._text.decode(data))

    def finish(self) -> None:
        """What is left over; ``whole`` says afterwards whether the document ended as it should."""
        self._last = True
        self._more(self._text.decode(b"", True))

    def _more(self, text: str) -> None:
        if not self._running:
            return
        self._buffer = self._buffer[self._at :] + text
        self._at = 0
        try:
            next(self._steps)
        except StopIteration:
            self.whole, self._running = True, False
        except DamagedError as e:
            self._bad(str(e))
            self._running = False
        if not self._running:
            self._buffer = ""

    # --- walking; every step gives way where it needs more text --------------------------------------

    def _document(self) -> Steps:
        yield from self._value(())

    def _peek(self) -> Generator[None, None, str]:
        """The next character that is no space."""
        while True:
            found = _SPACE.match(self._buffer, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if self._last:
                raise DamagedError("truncated")
            yield

    def _expect(self, wanted: str) -> Generator[None, None, str]:
        found = yield from self._peek()
        if found not in wanted:
            raise DamagedError("malformed")
        self._at += 1
        return found

    def _value(self, path: Path) -> Steps:
        first = yield from self._peek()
        if len(path) > _DEEPEST:
            raise DamagedError("malformed")
        if first == "{" and path not in self._takers:
            yield from self._object(path)
        elif first == "[" and path not in self._takers:
            yield from self._array(path)
        else:
            value = yield from self._decoded()
            taker = self._takers.get(path)
            if taker is not None:
                taker(value)

    def _object(self, path: Path) -> Steps:
        opened = self._opened.get(path)
        if opened is not None:
            opened()
        yield from self._expect("{")
        if (yield from self._peek()) == "}":
            self._at += 1
            return
        while True:
            if (yield from self._peek()) != '"':
                raise DamagedError("malformed")
            key = yield from self._decoded()
            yield from self._expect(":")
            yield from self._value((*path, key))
            if (yield from self._expect(",}")) == "}":
                return

    def _array(self, path: Path) -> Steps:
        yield from self._expect("[")
        if (yield from self._peek()) == "]":
            self._at += 1
            return
        inner = (*path, "*")
        while True:
            if inner in self._walked and inner not in self._takers:
                yield from self._value(inner)
            else:
                yield from self._element(inner)
            if (yield from self._expect(",]")) == "]":
                return

    def _element(self, path: Path) -> Steps:
        """One element; after one that cannot be read the next is looked for."""
        while True:
            try:
                value = yield from self._decoded()
            except DamagedError as e:
                yield from self._next_element(e)
                self._bad("malformed")
                continue
            taker = self._takers.get(path)
            if taker is not None:
                taker(value)
            return

    def _next_element(self, error: DamagedError) -> Steps:
        while True:
            found = self._boundary.search(self._buffer, self._at)
            if found is not None:
                self._at = found.end()
                return
            if self._last:
                raise error
            self._at = max(self._at, len(self._buffer) - 64)
            yield

    def _decoded(self) -> Generator[None, None, Any]:
        yield from self._peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._buffer, self._at)
            except RecursionError:
                raise DamagedError("malformed") from None
            except ValueError:
                if self._last or len(self._buffer) - self._at >= VALUE_MOST:
                    raise DamagedError("truncated" if self._last else "malformed") from None
            else:
                if end < len(self._buffer) or self._last:  # a number may go on in what comes next
                    self._at = end
                    return value
            yield


def at(value: Any, *keys: str) -> Any:
    """What lies below these keys; None where there is nothing of that kind."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
