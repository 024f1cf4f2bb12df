"""The verb ``compare``: two sides in, a report and an exit code out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from exporter.compare import context, folders, report
from exporter.compare.judge import Comparison, Options, Verdict, compare
from exporter.compare.rows import Row
from exporter.model import ConfigError

FORMATS = ("text", "markdown", "html", "json")
_CODES = {Verdict.WORSE: 3, Verdict.NOT_COMPARABLE: 4}


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked on the command line."""

    a: str
    b: str
    form: str = "text"
    fail_on: str = "worse"
    changed: tuple[str, ...] = ()
    least_effect: float = 0.02


class Kept(Protocol):
    """What was kept of windows: the history, or a Prometheus."""

    def rows(self, side: str, notes: list[str], /) -> list[Row]: ...
    def close(self) -> None: ...


def run(wish: Wish, opened: Callable[[], Kept]) -> int:
    """Print the report; 0 no regression, 3 regression, 4 not comparable. Errors: ConfigError."""
    options = check(wish)
    found = judge(wish.a, wish.b, options, opened)
    names = (wish.a, wish.b)
    if wish.form == "json":
        json.dump(report.as_dict(found, names), sys.stdout, indent=1, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
    elif wish.form == "text":
        sys.stdout.write(report.text(found, names, sys.stdout.isatty()))
    else:
        sys.stdout.write((report.markdown if wish.form == "markdown" else report.html)(found, names))
    return 0 if wish.fail_on == "never" else _CODES.get(found.verdict, 0)


def check(wish: Wish) -> Options:
    """The options of a comparison. Errors: ConfigError for a value that is not known."""
    if wish.form not in FORMATS:
        raise ConfigError(f"--format {wish.form}: expected {', '.join(FORMATS)}")
    if wish.fail_on not in ("worse", "never"):
        raise ConfigError(f"--fail-on {wish.fail_on}: expected worse or never")
    for name in wish.changed:
        if name not in context.CHANGEABLE:
            raise ConfigError(f"--changed {name}: expected one of {', '.join(context.CHANGEABLE)}")
    if not 0 <= wish.least_effect < 1:
        raise ConfigError(f"--least-effect {wish.least_effect}: expected a ratio such as 0.02")
    return Options(frozenset(wish.changed), wish.least_effect)


def judge(a: str, b: str, options: Options, opened: Callable[[], Kept]) -> Comparison:
    """Compare two sides, each a folder, a phase or a time range."""
    notes: list[str] = []
    kept: Kept | None = None

    def rows(side: str) -> list[Row]:
        nonlocal kept
        if Path(side).exists():
            return folders.rows(Path(side), notes)
        if "/" in side and ".." not in side:
            raise ConfigError(f"{side}: no such folder")
        kept = kept or opened()
        return kept.rows(side, notes)

    try:
        found = compare(rows(a), rows(b), options)
    finally:
        if kept:
            kept.close()
    return replace(found, notes=(*found.notes, *dict.fromkeys(notes)))
