"""Entries: meta."""

from exporter.catalogue.schema import Metric

METRICS: tuple[Metric, ...] = ()
