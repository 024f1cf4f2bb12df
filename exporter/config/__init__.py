"""Configuration: one typed model; YAML file, environment and flags; reload."""

from exporter.config.durations import format_duration, parse_duration
from exporter.config.load import Loaded, load, state_directory
from exporter.config.reload import dump, merge_reload, restart_required, schema
from exporter.config.settings import (
    BottleneckSection,
    Config,
    DevicesSection,
    KernelsSection,
    LogSection,
    MetricsSection,
    PathSection,
    PollSection,
    SeriesSection,
    SmiCliSection,
    TextfileSection,
    WebSection,
)
from exporter.config.windows import AdviceSection, WindowsSection

__all__ = [
    "AdviceSection",
    "BottleneckSection",
    "Config",
    "DevicesSection",
    "KernelsSection",
    "Loaded",
    "LogSection",
    "MetricsSection",
    "PathSection",
    "PollSection",
    "SeriesSection",
    "SmiCliSection",
    "TextfileSection",
    "WebSection",
    "WindowsSection",
    "dump",
    "format_duration",
    "load",
    "merge_reload",
    "parse_duration",
    "restart_required",
    "schema",
    "state_directory",
]
