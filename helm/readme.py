"""The chart's page, written from its values: what each is, and what the three profiles give and need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from helm import rules

TEXT = Path(__file__).with_name("readme.md.in")


def page(text: str) -> str:
    """The page for a values file. Errors: ValueError for a value without a comment."""
    rows = "".join(f"| `{p}` | {_shown(v)} | {m} |\n" for p, v, m in _rows(text))
    numbers = "".join(
        f"| `{name}` | {', '.join(f'{key} {value}' for key, value in own.items())} |\n"
        for name, own in rules.thresholds().items()
    )
    return TEXT.read_text(encoding="utf-8").replace("@VALUES@", rows).replace("@NUMBERS@", numbers)


def _shown(value: Any) -> str:
    if value in ("", [], {}):
        return ""
    return f"`{json.dumps(value).strip(chr(34))}`"


def _rows(text: str) -> Iterator[tuple[str, Any, str]]:
    """(path, default, meaning) of each value that has no values of its own with a comment."""
    values = yaml.safe_load(text)
    told: dict[str, str] = {}
    parents: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if match := re.match(r"^( *)# ?(.*)$", line):
            comment.append(match[2])
            continue
        if match := re.match(r"^( *)([A-Za-z]+):", line):
            depth = len(match[1])
            parents = [p for p in parents if p[0] < depth]
            path = ".".join([*(name for _, name in parents), match[2]])
            parents.append((depth, match[2]))
            if comment:
                told[path] = " ".join(comment)
        comment = []
    for path, value in _leaves(values, ""):
        if path not in told:
            raise ValueError(f"{path}: has no comment")
        yield path, value, told[path]


def _leaves(value: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        path = f"{prefix}{name}"
        if isinstance(inner, dict) and inner and path != "resources":
            yield from _leaves(inner, f"{path}.")
        else:
            yield path, inner
