"""The thresholds, read and checked: every key is one the rules use, every rule finds its keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

THRESHOLDS = Path(__file__).with_name("thresholds.yaml")
SEVERITIES = ("critical", "warning", "info")
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_EVERY_ALERT = ("severity", "for", "keep")


class ThresholdError(Exception):
    """A thresholds file that cannot be used; one line that names the section, the key and the way out."""


def milliseconds(text: object) -> int:
    """Return a duration such as ``15m``. Errors: ThresholdError."""
    match = _DURATION.match(text) if isinstance(text, str) else None
    if match is None:
        raise ThresholdError(f"{text!r} is no duration; write it with its unit, such as 30s, 15m or 7d")
    return round(float(match[1]) * _UNITS[match[2]])


def prom(ms: int) -> str:
    """Return a duration as PromQL writes it, in the largest unit that divides it."""
    unit = next((u for u in ("d", "h", "m", "s") if ms and ms % _UNITS[u] == 0), "ms" if ms else "s")
    return f"{ms // _UNITS[unit]}{unit}"


@dataclass(frozen=True)
class Section:
    """The numbers of one alert, or those that all share. Remembers which were used."""

    name: str
    values: Mapping[str, Any]
    time_scale: float = 1.0
    used: set[str] = field(default_factory=set)

    def __getitem__(self, key: str) -> Any:
        """The value as it stands. Errors: ThresholdError where it is missing."""
        if key not in self.values:
            raise ThresholdError(f"{self.name}: {key} is missing")
        self.used.add(key)
        return self.values[key]

    def number(self, key: str) -> str:
        """A number, as PromQL text."""
        value = self[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ThresholdError(f"{self.name}: {key} is {value!r}, which is no number")
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"

    def ms(self, key: str, times: float = 1) -> int:
        """A duration after scaling, in milliseconds; never 0 unless it was."""
        try:
            whole = milliseconds(self[key]) * times
        except ThresholdError as e:
            raise ThresholdError(f"{self.name}: {key}: {e}") from None
        return max(round(whole * self.time_scale), 1 if whole else 0)

    def span(self, key: str, times: float = 1) -> str:
        """A duration as PromQL writes it."""
        return prom(self.ms(key, times))

    def seconds(self, key: str) -> str:
        """A duration as a number of seconds, unscaled: it is compared with a measured one."""
        return f"{milliseconds(self[key]) / 1000:g}"


@dataclass(frozen=True)
class Settings:
    """All sections. ``time_scale`` shortens every duration alike, so that a test need not wait an hour."""

    sections: Mapping[str, Section]

    def __getitem__(self, name: str) -> Section:
        if name not in self.sections:
            raise ThresholdError(f"section {name} is missing")
        return self.sections[name]

    @property
    def common(self) -> Section:
        return self["common"]

    @property
    def window_range(self) -> str:
        """The range over windows: so many periods that one lost window does not decide."""
        return self.common.span("window_period", self.common["window_periods"])

    def enabled(self, alert: str) -> bool:
        section = self[alert]
        section.used.add("enabled")
        on = section.values.get("enabled", True) is not False
        if not on:
            section.used.update(section.values)
        return on

    def unused(self) -> list[str]:
        """Keys that no rule has asked for: misspelt, or of a rule that is gone."""
        return [f"{s.name}.{k}" for s in self.sections.values() for k in s.values if k not in s.used]


def read(
    path: Path = THRESHOLDS,
    time_scale: float = 1.0,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Read a thresholds file; ``changes`` replaces single values of it. Errors: ThresholdError."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ThresholdError(f"{path}: {e.strerror}") from e
    except yaml.YAMLError as e:
        raise ThresholdError(f"{path}: no YAML: {e}".replace("\n", " ")) from e
    if not isinstance(raw, dict) or not all(isinstance(v, dict) for v in raw.values()):
        raise ThresholdError(f"{path}: must hold one section per alert, and common")
    for name, values in (changes or {}).items():
        if name not in raw or set(values) - set(raw[name]) - {"enabled"}:
            raise ThresholdError(f"{name}: {sorted(values)} cannot be changed, there is no such key")
        raw[name] = {**raw[name], **values}
    sections = {name: Section(name, values, time_scale) for name, values in raw.items()}
    for name, section in sections.items():
        if name != "common":
            _check(section)
    common = sections.get("common")
    if common is None or not common["window_periods"] >= 4:
        raise ThresholdError("common: window_periods must be 4 or more: fewer windows decide nothing")
    return Settings(sections)


def _check(section: Section) -> None:
    missing = [k for k in _EVERY_ALERT if k not in section.values]
    if missing:
        raise ThresholdError(f"{section.name}: {missing[0]} is missing")
    if section["severity"] not in SEVERITIES:
        raise ThresholdError(f"{section.name}: severity must be one of {', '.join(SEVERITIES)}")
