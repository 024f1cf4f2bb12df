"""Identifiers in texts -> made-up ones, the same for the same original. Not to be led back. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from exporter.checks.record import Mask

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_MAC = re.compile(r"(?<![\w:])[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?![\w:])", re.IGNORECASE)
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-f]*:[0-9a-f:]*:[0-9a-f]*(?![\w:])", re.IGNORECASE)
_HOME = re.compile(r"/home/([^/\s\"',:;\\]+)")
_KEPT = frozenset({"127.0.0.1", "0.0.0.0", "::1", "::"})  # noqa: S104 - shown, not bound
_KEPT_WORDS = frozenset({"root", "localhost", "nobody", "daemon", "unknown", "none"})


class TextMask:
    """Replaces in text what it was told, and what looks like an address.

    ``numbers`` are unique ids, which stand in hexadecimal or decimal; they become what ``mask`` makes of them
    in a capture. ``words`` are whole words by kind.
    """

    def __init__(self, mask: Mask, numbers: Iterable[int], words: Iterable[tuple[str, str]]) -> None:
        self._made: dict[tuple[str, str], str] = {}
        swap: dict[str, str] = {}
        users: dict[str, str] = {}
        for number in numbers:
            if number:
                new = mask.number(number)
                swap |= {f"{number:x}": f"{new:016x}", f"{number:016x}": f"{new:016x}", str(number): str(new)}
        for kind, word in words:
            if len(word) > 1 and word.lower() not in _KEPT_WORDS:
                (users if kind == "user" else swap).setdefault(word.lower(), self._name(kind, word))
        self._swap = {**users, **swap}
        # Hosts and numbers are often joined to other things by _; user names are often parts of such names.
        self._patterns = [
            re.compile(rf"(?<!{inside})(0x)?({_either(swaps)})(?!{inside})", re.IGNORECASE)
            for swaps, inside in ((swap, "[0-9A-Za-z]"), (users, r"\w"))
            if swaps
        ]

    def text(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(lambda m: (m[1] or "") + self._swap[m[2].lower()], text)
        text = _UUID.sub(lambda m: self._name("uuid", m[0]), text)
        text = _MAC.sub(lambda m: self._name("mac", m[0]), text)
        text = _IPV4.sub(lambda m: self._address(m[0]), text)
        text = _IPV6.sub(lambda m: self._address(m[0]), text)
        return _HOME.sub(lambda m: f"/home/{self._name('user', m[1])}", text)

    def _address(self, text: str) -> str:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return text  # a time, a PCI address
        return text if text in _KEPT else self._name(f"ipv{address.version}", text)

    def _name(self, kind: str, original: str) -> str:
        if re.fullmatch(rf"{kind}-\d+", original):
            return original  # made up already
        key = kind, original.lower()
        if key not in self._made:
            self._made[key] = f"{kind}-{1 + sum(k == kind for k, _ in self._made)}"
        return self._made[key]


def _either(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
