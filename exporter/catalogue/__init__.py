"""Every metric, as data. ``CATALOGUE`` is the one list; all else about a metric derives from it."""

from exporter.catalogue import condition, device, health, meta, probe, window
from exporter.catalogue.schema import Catalogue

CATALOGUE = Catalogue(
    (
        *device.METRICS,
        *health.METRICS,
        *condition.METRICS,
        *window.METRICS,
        *probe.METRICS,
        *meta.METRICS,
    )
)
