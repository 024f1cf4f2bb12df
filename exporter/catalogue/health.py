"""Entries: health."""

from exporter.catalogue.schema import Metric

METRICS: tuple[Metric, ...] = ()
