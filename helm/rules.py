"""The rules with marks in place of numbers, so that the chart can put in those of its values.

The generators of alerts/ write the expressions; here they are given marks to write. ``<<value:A.key>>`` is a
value as it stands, ``<<seconds:A.key>>`` a duration as seconds, ``<<times4:A.key>>`` four times a duration.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alerts import build
from alerts.settings import Section, Settings, read

HEADER = build.HEADER.format(source="alerts/")
# How many windows are one range stands in names of recording rules, so it is no value of the chart.
FIXED = frozenset({"window_periods"})
# Empty: the exporters' own pages, by the name of their service; an instance is no address in a cluster.
SERVED = ("runbook_base", "runbook_base_elsewhere")


@dataclass(frozen=True)
class Marks(Section):
    """A section that answers with marks."""

    def __getitem__(self, key: str) -> Any:
        value = Section.__getitem__(self, key)
        return value if key in FIXED else f"<<value:{self.name}.{key}>>"

    def number(self, key: str) -> str:
        Section.__getitem__(self, key)
        return f"<<value:{self.name}.{key}>>"

    def ms(self, key: str, times: float = 1) -> int:
        return Section(self.name, self.values, self.time_scale, self.used).ms(key, times)

    def span(self, key: str, times: float = 1) -> str:
        Section.__getitem__(self, key)
        return f"<<value:{self.name}.{key}>>" if times == 1 else f"<<times{times:g}:{self.name}.{key}>>"

    def seconds(self, key: str) -> str:
        Section.__getitem__(self, key)
        return f"<<seconds:{self.name}.{key}>>"


def marked() -> Settings:
    """The settings of alerts/ with marks in place of every value."""
    return Settings({name: Marks(name, section.values) for name, section in read().sections.items()})


def thresholds() -> dict[str, dict[str, Any]]:
    """The numbers as they are by default, by section: what the chart's values are laid over."""
    found = {name: dict(section.values) for name, section in read().sections.items()}
    found["common"] = {k: "" if k in SERVED else v for k, v in found["common"].items() if k not in FIXED}
    return found


def files() -> dict[Path, str]:
    """What the chart holds of the rules."""
    settings = marked()
    return {
        Path("rules/recording.yaml"): HEADER + build.dump(build.recording_file(settings)),
        Path("rules/alerts.yaml"): HEADER + build.dump(build.alert_file(settings)),
        Path("rules/thresholds.yaml"): HEADER + build.dump(thresholds()),
    }
