"""Durations as people write them: ``500ms``, ``15s``, ``1h30m``; seconds inside. A bare number is none."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

# Whole microseconds below a year are exact as float seconds, so text -> seconds -> text loses nothing.
_MICROSECONDS = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
LIMIT_S = 366 * 86_400
EXPECTED = "a duration with its unit, such as 500ms, 15s, 2m or 24h"
_PART = r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|d)"
_TEXT = re.compile(f"(?:{_PART})+")
_PARTS = re.compile(_PART)


def parse_duration(text: str) -> float:
    """Return the seconds that ``text`` says.

    Errors: ValueError where a unit is missing or unknown, or the duration is finer than 1 us or above a year.
    """
    compact = text.strip()
    if not _TEXT.fullmatch(compact):
        raise ValueError(f"expected {EXPECTED}")
    total = sum(Decimal(number) * _MICROSECONDS[unit] for number, unit in _PARTS.findall(compact))
    if total != int(total) or total > LIMIT_S * 1_000_000:
        raise ValueError("expected whole microseconds, and at most 366 days")
    return int(total) / 1_000_000


def format_duration(seconds: float) -> str:
    """Write ``seconds`` in the largest unit that leaves a whole number."""
    total = round(seconds * 1_000_000)
    if total == 0:
        return "0s"
    for unit, size in _MICROSECONDS.items():
        # 24h says more than 1d to people who think in windows; days start at two.
        if total % size == 0 and (unit != "d" or total > size):
            return f"{total // size}{unit}"
    raise AssertionError("every whole number of microseconds has a unit")


def _read(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[
    float,
    BeforeValidator(_read),
    Field(ge=0, le=LIMIT_S, allow_inf_nan=False),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^(?:{_PART})+$", "examples": ["500ms", "15s", "24h"]}),
]
