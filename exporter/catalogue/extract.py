"""Raw groups of one device -> readings and gaps, as the catalogue's fields say. Pure.

Never guesses: what is not a finite number inside the metric's range becomes a Gap with a reason.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from math import inf, isfinite
from typing import Any

from exporter.catalogue.schema import Catalogue, Field, Metric, Scope
from exporter.catalogue.shape import MALFORMED, REFUSED, SERVED, USED, Leaf, Scaling, Shape
from exporter.model import Device, DeviceId, Gap, Raw, RawGroups, Reason, Series, Value

Labels = tuple[str, ...]
_LARGEST = sys.float_info.max


class Extractor:
    """The catalogue's fields for one backend, prepared once.

    ``Series`` objects are shared between polls so that the same readings compare equal by identity. A group
    that a backend hands out again, the same object, is taken as unchanged and not gone through again.
    """

    def __init__(self, catalogue: Catalogue, backend: str) -> None:
        self._plan = [
            _Plan(m, [_Step(m, f) for f in m.fields if f.backend == backend])
            for m in catalogue
            if any(f.backend == backend for f in m.fields)
        ]
        self._shapes: dict[DeviceId, Shape] = {}

    def extract(
        self, device: Device, groups: RawGroups, series: list[Series], values: list[Value], gaps: list[Gap]
    ) -> None:
        """Append what ``groups`` hold for ``device``.

        A partition other than the first carries no socket-scoped metric: the first speaks for the socket.
        """
        shape = self._shapes.get(device.id)
        new = shape.follow(groups) if shape else None
        if shape is None or new is None:
            shape = self._look(device.id, groups)
            new = shape.values
        series += shape.series
        values += new
        gaps += shape.gaps

    def _look(self, key: DeviceId, groups: RawGroups) -> Shape:
        """Go through every leaf, and remember how it came out."""
        shape = Shape(groups)
        for plan in self._plan:
            if not (plan.of_socket and key.partition):
                plan.take(key.socket if plan.of_socket else key, groups, shape)
        self._shapes[key] = shape
        return shape


class _Plan:
    """One metric and its fields for one backend."""

    __slots__ = ("_high", "_known", "_low", "_name", "_steps", "of_socket")

    def __init__(self, metric: Metric, steps: list[_Step]) -> None:
        self.of_socket = metric.scope is Scope.SOCKET
        self._name = metric.name
        # Finite bounds let one comparison refuse NaN and the infinities too.
        self._low, self._high = max(metric.range[0], -_LARGEST), min(metric.range[1], _LARGEST)
        self._steps = steps
        self._known: dict[DeviceId, dict[Labels, Series]] = {}

    def take(self, owner: DeviceId, groups: RawGroups, shape: Shape) -> None:
        """Append what the plan's fields give."""
        series, values, gaps = shape.series, shape.values, shape.gaps
        low, high, steps = self._low, self._high, self._steps
        known = self._known.get(owner)
        if known is None:
            known = self._known[owner] = {}
        done: set[Labels] | None = None if len(steps) == 1 else set()
        missing: dict[Labels | None, Reason] = {}
        before = len(series)
        for step in steps:
            scaling = Scaling(step.divisor, step.scale, low, high)
            divisor, scale = step.divisor, step.scale
            leaves: list[Leaf] = []
            for labels, raw in step.leaves(groups):
                at = len(values)
                part: object = MALFORMED
                if done is not None and labels in done:
                    leaves.append(Leaf(SERVED, scaling, at))
                    continue
                kind = type(raw)
                if labels is not None and (kind is int or kind is float):
                    try:
                        value = raw / divisor if divisor else raw * scale
                    except OverflowError:  # an integer that no float holds
                        value = inf
                    if low <= value <= high:
                        key = known.get(labels)
                        if key is None:
                            key = known[labels] = Series(self._name, owner, labels)
                        series.append(key)
                        values.append(value)
                        part = USED
                        if done is not None:
                            done.add(labels)
                        if missing:
                            missing.pop(labels, None)
                    elif isfinite(value):
                        part = REFUSED
                        _worse(missing, labels, Reason.IMPLAUSIBLE)
                    else:
                        _worse(missing, labels, Reason.MALFORMED)
                elif raw is None or kind is Reason:
                    part = raw
                    _worse(missing, labels, Reason.UNSUPPORTED if raw is None else raw)
                else:
                    _worse(missing, labels, Reason.MALFORMED)
                leaves.append(Leaf(part, scaling, at))
            shape.add(
                step.group, step.trunk, len(step.slots) if step.at_end or not step.slots else None, leaves
            )
        if missing:
            # A whole group that is not there speaks only if nothing else served the metric.
            general = missing.pop(None, None)
            if general is not None and not missing and len(series) == before:
                missing[None] = general
            gaps.extend(Gap(self._name, owner, reason) for reason in missing.values())


class _LabelCache(dict[Any, Labels]):
    """Label values by the keys that stand for the stars; made once for each."""

    def __init__(self, template: Labels, slots: tuple[int, ...]) -> None:
        self._template, self._slots = template, slots

    def __missing__(self, keys: Any) -> Labels:
        labels = list(self._template)
        for slot, key in zip(self._slots, keys if len(self._slots) > 1 else (keys,), strict=True):
            labels[slot] = str(key)
        made = self[keys] = tuple(labels)
        return made


class _Step:
    """One Field, its path split and its scale decided."""

    __slots__ = ("_cache", "at_end", "divisor", "group", "labels", "path", "scale", "slots", "trunk")

    def __init__(self, metric: Metric, field: Field) -> None:
        self.group = field.group
        self.path = tuple(field.path.split("."))
        self.scale = float(field.scale)
        # Dividing by 100 keeps 0.57 where multiplying by 0.01 gives 0.5700000000000001.
        inverse = round(1 / field.scale)
        self.divisor = inverse if field.scale < 1 and abs(inverse * field.scale - 1) < 1e-12 else 0
        fixed = dict(field.fixed)
        self.labels = tuple(fixed.get(label, "") for label in metric.labels)
        self.slots = tuple(metric.labels.index(label) for label in field.each)
        # One or two stars at the end of the path, where nearly all are, go without recursion.
        stars = len(self.slots)
        self.trunk = self.path[: self.path.index("*")] if stars else self.path
        self.at_end = stars in (1, 2) and self.path[-stars:] == ("*",) * stars
        self._cache = _LabelCache(self.labels, self.slots)

    def leaves(self, groups: RawGroups) -> Iterable[tuple[Labels | None, Raw]]:
        """(label values, raw leaf) pairs; label values are None where the labels cannot be known."""
        node: Raw = groups.get(self.group)
        if not self.slots:
            for part in self.path:
                if type(node) is not dict and not isinstance(node, Mapping):
                    break
                node = node.get(part)
            return ((self.labels, node if not isinstance(node, Mapping | list | tuple) else None),)
        if self.at_end:
            inner = node
            for part in self.trunk:
                if type(inner) is not dict:
                    break
                inner = inner.get(part)
            if type(inner) is dict:
                cache = self._cache
                if len(self.slots) == 1:
                    return [(cache[key], leaf) for key, leaf in inner.items()]
                if all(type(sub) is dict for sub in inner.values()):
                    return [(cache[a, b], leaf) for a, sub in inner.items() for b, leaf in sub.items()]
        return self._walk(node, 0, list(self.labels), 0)

    def _walk(self, node: Raw, at: int, labels: list[str], star: int) -> Iterator[tuple[Labels | None, Raw]]:
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


def _worse(missing: dict[Labels | None, Reason], labels: Labels | None, reason: Reason) -> None:
    """Keep the reason that says more: anything beats "unsupported"."""
    if missing.get(labels, Reason.UNSUPPORTED) is Reason.UNSUPPORTED:
        missing[labels] = reason
