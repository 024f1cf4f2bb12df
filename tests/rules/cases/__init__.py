"""For each alert: series on which it must fire, and series on which it must be quiet."""

from __future__ import annotations

from tests.rules.cases import on_devices, on_exporter, on_jobs, on_windows
from tests.rules.cases.case import Case

CASES: tuple[Case, ...] = (
    *on_devices.cases(),
    *on_jobs.cases(),
    *on_windows.cases(),
    *on_exporter.cases(),
)
