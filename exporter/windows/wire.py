"""How a reduced window travels between processes: plain JSON values and back, exactly. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from exporter.model import (
    Bottleneck,
    DeviceId,
    FormatError,
    KernelStat,
    LaunchStats,
    Reason,
    Source,
    Window,
    WindowOutcome,
    WindowResult,
)

Message = dict[str, Any]
T = TypeVar("T")

_OUTCOMES = {
    Reason.TIMEOUT: WindowOutcome.TIMEOUT,
    Reason.CRASHED: WindowOutcome.CRASH,
    Reason.DENIED: WindowOutcome.DENIED,
    Reason.NO_DATA: WindowOutcome.EMPTY,
}


def encode(window: Window, sources: Sequence[Source], results: Sequence[WindowResult]) -> Message:
    """One window as JSON values."""
    return {"window": _plain(window), "sources": _plain(sources), "results": _plain(results)}


def decode(message: Mapping[str, Any]) -> tuple[Window, tuple[Source, ...], tuple[WindowResult, ...]]:
    """The window that ``encode`` was given. Raises FormatError for anything that is not its output."""
    try:
        return (
            _build(Window, message["window"]),
            tuple(_build(Source, s) for s in message["sources"]),
            tuple(_build(WindowResult, r) for r in message["results"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise FormatError(f"not a reduced window: {type(e).__name__}: {e}") from None


# Why a profiler that ran well may have counted nothing; what it lacks goes before who was in its way.
_REFUSED = {
    "denied": WindowOutcome.DENIED,
    "busy": WindowOutcome.BLOCKED,
    "damaged": WindowOutcome.MALFORMED,
}


def outcome_of(sources: Sequence[Source], results: Sequence[WindowResult]) -> WindowOutcome:
    """How a window that could be read went: success is rows, never an exit code."""
    if not any(r.kernels or r.counters for r in results):
        refused = {reason for s in sources for reason in s.skipped}
        return next((o for reason, o in _REFUSED.items() if reason in refused), WindowOutcome.EMPTY)
    return WindowOutcome.PARTIAL if any(s.partial for s in sources) else WindowOutcome.OK


def outcome_of_failure(reason: Reason) -> WindowOutcome:
    """How a window that could not be reduced went."""
    return _OUTCOMES.get(reason, WindowOutcome.MALFORMED)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _build(kind: type[T], raw: Mapping[str, Any]) -> T:
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if raw.keys() != names:
        raise ValueError(f"{kind.__name__} with {', '.join(sorted(raw.keys() ^ names))} missing or unknown")
    hooks = _HOOKS.get(kind, {})
    return kind(**{name: hooks[name](v) if v is not None and name in hooks else v for name, v in raw.items()})


def _device(raw: Sequence[Any]) -> DeviceId:
    return DeviceId(*raw)


# Fields that JSON cannot bring back by itself. None stays None.
_HOOKS: dict[type, dict[str, Callable[[Any], Any]]] = {
    Window: {"bounds": tuple, "agents": lambda raw: {key: _device(v) for key, v in raw.items()}},
    LaunchStats: {"queue_buckets": tuple, "duration_buckets": tuple},
    WindowResult: {
        "device": _device,
        "bottleneck": Bottleneck,
        "launch_call_buckets": tuple,
        "launch_stats": lambda raw: tuple(_build(LaunchStats, s) for s in raw),
        "kernel_stats": lambda raw: tuple(_build(KernelStat, k) for k in raw),
    },
}
