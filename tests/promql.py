"""What a PromQL expression reads and what its result is labelled with, from its syntax tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import promql_parser as promql

_RANKING = {"topk", "bottomk", "limitk"}  # keep their input's labels
_FIRST_SIDE = {"and", "or", "unless", "==", "!=", ">", "<", ">=", "<="}
_NO_SERIES = {"vector", "time", "scalar"}


@dataclass(frozen=True)
class Read:
    """One selector."""

    name: str
    labels: tuple[str, ...]
    seconds: float | None  # of its range


@cache
def parse(expression: str) -> Any:
    """The tree; ValueError where it is no PromQL."""
    return promql.parse(expression)


def reads(node: Any) -> Iterator[Read]:
    """Every selector below a node."""
    match node:
        case promql.VectorSelector():
            yield Read(node.name or "", tuple(m.name for m in node.matchers.matchers), None)
        case promql.MatrixSelector():
            [inner] = reads(node.vector_selector)
            yield Read(inner.name, inner.labels, node.range.total_seconds())
        case _:
            for child in children(node):
                yield from reads(child)


def children(node: Any) -> list[Any]:
    match node:
        case promql.BinaryExpr():
            return [node.lhs, node.rhs]
        case promql.AggregateExpr():
            return [node.expr] + ([node.param] if node.param is not None else [])
        case promql.Call():
            return list(node.args)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return [node.expr]
        case _:
            return []


def grouping(node: Any) -> Iterator[str]:
    """Every label that the expression groups or joins by, at any depth."""
    modifier = getattr(node, "modifier", None)
    if isinstance(node, promql.AggregateExpr) and modifier:
        yield from modifier.labels
    if isinstance(node, promql.BinaryExpr) and modifier and modifier.matching:
        yield from modifier.matching.labels
    for child in children(node):
        yield from grouping(child)


def keeps(node: Any, label: str) -> bool:
    """Whether series of the result can have ``label``."""
    match node:
        case promql.VectorSelector() | promql.MatrixSelector():
            return True
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return keeps(node.expr, label)
        case promql.Call():
            return node.func.name not in _NO_SERIES and any(keeps(a, label) for a in node.args)
        case promql.AggregateExpr():
            return _kept_by_aggregation(node, label)
        case promql.BinaryExpr():
            return _kept_by_binary(node, label)
        case _:
            return False


def _kept_by_aggregation(node: Any, label: str) -> bool:
    if str(node.op) in _RANKING:
        return keeps(node.expr, label)
    if node.modifier is None:
        return False
    listed = label in node.modifier.labels
    by = node.modifier.type == promql.AggModifierType.By
    return listed == by and keeps(node.expr, label)


def _kept_by_binary(node: Any, label: str) -> bool:
    left, right = keeps(node.lhs, label), keeps(node.rhs, label)
    if str(node.op) == "or":
        return left or right
    matching = node.modifier.matching if node.modifier else None
    if not _is_vector(node.lhs) or not _is_vector(node.rhs):
        return left or right
    many = node.modifier and node.modifier.card != promql.VectorMatchCardinality.OneToOne
    if str(node.op) in _FIRST_SIDE or many or matching is None:
        return left
    listed = label in matching.labels
    return left and listed == (matching.type == promql.LabelModifierType.Include)


def _is_vector(node: Any) -> bool:
    match node:
        case promql.NumberLiteral():
            return False
        case promql.ParenExpr() | promql.UnaryExpr():
            return _is_vector(node.expr)
        case promql.Call():
            return node.func.name not in ("time", "scalar")
        case promql.BinaryExpr():
            return _is_vector(node.lhs) or _is_vector(node.rhs)
        case _:
            return True
