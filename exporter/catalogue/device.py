"""Entries: device."""

from exporter.catalogue.schema import Metric

METRICS: tuple[Metric, ...] = ()
