"""Raw groups of one device -> readings and gaps, as the catalogue's fields say. Pure.

Never guesses: what is not a finite number inside the metric's range becomes a Gap with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite

from exporter.catalogue.schema import Catalogue, Field, Metric, Scope
from exporter.model import Device, DeviceId, Gap, Raw, RawGroups, Reason, Series, Value


class Extractor:
    """The catalogue's fields for one backend, prepared once; keeps no values, only ``Series`` objects.

    ``Series`` objects are shared between polls so that the same readings compare equal by identity.
    """

    def __init__(self, catalogue: Catalogue, backend: str) -> None:
        self._plan = [
            (m, [_Step(m, f) for f in m.fields if f.backend == backend])
            for m in catalogue
            if any(f.backend == backend for f in m.fields)
        ]
        self._known: dict[Series, Series] = {}

    def extract(
        self, device: Device, groups: RawGroups, series: list[Series], values: list[Value], gaps: list[Gap]
    ) -> None:
        """Append what ``groups`` hold for ``device``.

        A partition other than the first carries no socket-scoped metric: the first speaks for the socket.
        """
        secondary = bool(device.id.partition)
        for metric, steps in self._plan:
            if metric.scope is Scope.SOCKET:
                if secondary:
                    continue
                owner = device.id.socket
            else:
                owner = device.id
            self._one(metric, steps, owner, groups, series, values, gaps)

    def _one(
        self,
        metric: Metric,
        steps: list[_Step],
        owner: DeviceId,
        groups: RawGroups,
        series: list[Series],
        values: list[Value],
        gaps: list[Gap],
    ) -> None:
        low, high = metric.range
        done: set[tuple[str, ...]] | None = None if len(steps) == 1 else set()
        missing: dict[tuple[str, ...] | None, Reason] = {}
        for step in steps:
            for labels, raw in step.leaves(groups):
                if done is not None and labels in done:
                    continue
                kind = type(raw)
                if kind is int or kind is float:
                    value = raw / step.divisor if step.divisor else raw * step.scale
                    if not isfinite(value):
                        missing.setdefault(labels, Reason.MALFORMED)
                    elif not low <= value <= high:
                        missing.setdefault(labels, Reason.IMPLAUSIBLE)
                    else:
                        key = Series(metric.name, owner, labels or ())
                        series.append(self._known.setdefault(key, key))
                        values.append(value)
                        if done is not None:
                            done.add(labels or ())
                        missing.pop(labels, None)
                elif kind is Reason:
                    _worse(missing, labels, raw)
                else:
                    _worse(missing, labels, Reason.UNSUPPORTED if raw is None else Reason.MALFORMED)
        if missing:
            # A whole group that is not there speaks only if nothing else served the metric.
            general = missing.pop(None, None)
            if general is not None and not missing and not (done or _served(series, metric.name, owner)):
                missing[None] = general
            gaps.extend(Gap(metric.name, owner, reason) for reason in missing.values())


class _Step:
    """One Field, its path split and its scale decided."""

    __slots__ = ("divisor", "group", "labels", "path", "scale", "slots")

    def __init__(self, metric: Metric, field: Field) -> None:
        self.group = field.group
        self.path = tuple(field.path.split("."))
        self.scale = field.scale
        # Dividing by 100 keeps 0.57 where multiplying by 0.01 gives 0.5700000000000001.
        inverse = round(1 / field.scale)
        self.divisor = inverse if field.scale < 1 and abs(inverse * field.scale - 1) < 1e-12 else 0
        fixed = dict(field.fixed)
        self.labels = tuple(fixed.get(label, "") for label in metric.labels)
        self.slots = tuple(metric.labels.index(label) for label in field.each)

    def leaves(self, groups: RawGroups) -> Iterator[tuple[tuple[str, ...] | None, Raw]]:
        """(label values, raw leaf) pairs; label values are None where the labels cannot be known."""
        node: Raw = groups.get(self.group)
        if not self.slots:
            for part in self.path:
                if not isinstance(node, Mapping):
                    break
                node = node.get(part)
            yield self.labels, node if not isinstance(node, Mapping | list | tuple) else None
            return
        yield from self._walk(node, 0, list(self.labels), 0)

    def _walk(
        self, node: Raw, at: int, labels: list[str], star: int
    ) -> Iterator[tuple[tuple[str, ...] | None, Raw]]:
        for index in range(at, len(self.path)):
            part = self.path[index]
            if part == "*":
                items = (
                    node.items()
                    if isinstance(node, Mapping)
                    else enumerate(node)
                    if isinstance(node, list | tuple)
                    else None
                )
                if items is None:
                    break
                for key, child in items:
                    labels[self.slots[star]] = str(key)
                    yield from self._walk(child, index + 1, labels, star + 1)
                return
            if not isinstance(node, Mapping):
                break
            node = node.get(part)
        else:
            yield tuple(labels), node
            return
        # Not deep enough: the reason (or absence) stands for every label set below.
        yield None, node if isinstance(node, Reason) or node is None else Reason.MALFORMED


def _worse(
    missing: dict[tuple[str, ...] | None, Reason], labels: tuple[str, ...] | None, reason: Reason
) -> None:
    """Keep the reason that says more: anything beats "unsupported"."""
    if missing.get(labels, Reason.UNSUPPORTED) is Reason.UNSUPPORTED:
        missing[labels] = reason


def _served(series: list[Series], name: str, owner: DeviceId) -> bool:
    return bool(series) and series[-1].metric == name and series[-1].device == owner
