"""A reduced window travels between processes exactly."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from windowmade import GPU0, counted, traced, window

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
from exporter.windows import wire

_COUNT = st.integers(0, 2**63)
_AMOUNT = st.none() | st.floats(allow_nan=False)
_DEVICE = st.builds(DeviceId, st.text(max_size=12), st.none() | st.integers(0, 7))
_BUCKETS = st.lists(_COUNT, min_size=11, max_size=11).map(tuple)
_LAUNCHES = st.builds(
    LaunchStats, st.sampled_from(["kernel", "graph"]), _COUNT, _COUNT, _COUNT, _BUCKETS, _BUCKETS
)
_KERNEL = st.builds(
    KernelStat, st.text(), _COUNT, _COUNT, _COUNT, _COUNT, st.sampled_from(["compute", "copy"])
)
_SOURCE = st.builds(
    Source,
    st.text(),
    st.none() | st.text(),
    st.none() | st.text(),
    _COUNT,
    st.dictionaries(st.text(), _COUNT, max_size=3),
    st.booleans(),
)
_WINDOW = st.builds(
    Window,
    st.text(),
    st.text(),
    st.text(),
    st.none() | st.tuples(_COUNT, _COUNT),
    st.dictionaries(st.text(), _DEVICE, max_size=3),
    st.sampled_from(["process", "device"]),
)
_BY_TYPE = {
    "str": st.text(),
    "int": _COUNT,
    "int | None": st.none() | _COUNT,
    "float | None": _AMOUNT,
    "str | None": st.none() | st.text(),
    "DeviceId | None": st.none() | _DEVICE,
    "Bottleneck": st.sampled_from(Bottleneck),
    "tuple[int, ...] | None": st.none() | _BUCKETS,
    "tuple[LaunchStats, ...]": st.lists(_LAUNCHES, max_size=2).map(tuple),
    "tuple[KernelStat, ...]": st.lists(_KERNEL, max_size=2).map(tuple),
    "Mapping[str, int | None]": st.dictionaries(st.text(), st.none() | _COUNT, max_size=4),
    "Mapping[str, int] | None": st.none() | st.dictionaries(st.text(), _COUNT, max_size=3),
    "Mapping[str, int]": st.dictionaries(st.text(), _COUNT, max_size=3),
    "Mapping[str, float]": st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=3),
}
# Built from the fields as they are declared, so that a new field is tested without being named here.
_RESULT = st.builds(WindowResult, **{f.name: _BY_TYPE[str(f.type)] for f in dataclasses.fields(WindowResult)})


def through_json(message: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(message))


def types_of(value: Any) -> Any:
    """The value's shape with every type named, since 1 == 1.0 and a tuple compares by its items."""
    if dataclasses.is_dataclass(value):
        return {f.name: types_of(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return type(value).__name__, [types_of(v) for v in value]
    if isinstance(value, dict):
        return {k: types_of(v) for k, v in value.items()}
    return type(value).__name__


@settings(max_examples=80, deadline=None)
@given(_WINDOW, st.lists(_SOURCE, max_size=2).map(tuple), st.lists(_RESULT, max_size=2).map(tuple))
def test_every_window_comes_back_as_it_was(window: Window, sources: tuple, results: tuple) -> None:
    back = wire.decode(through_json(wire.encode(window, sources, results)))
    assert back == (window, sources, results)
    assert types_of(back) == types_of((window, sources, results))


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"window": {}, "sources": [], "results": []},
        {"window": None, "sources": [], "results": []},
        {"window": wire.encode(window(), [], [])["window"], "sources": [], "results": [{"gpu": "x"}]},
        {**wire.encode(window(), [], [traced()]), "sources": 5},
    ],
)
def test_what_is_no_reduced_window_is_a_format_error(broken: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="not a reduced window"):
        wire.decode(broken)


def test_an_unknown_bottleneck_is_a_format_error() -> None:
    message = through_json(wire.encode(window(), [], [traced()]))
    message["results"][0]["bottleneck"] = "gremlins"
    with pytest.raises(FormatError, match="gremlins"):
        wire.decode(message)


def test_success_is_rows_and_a_cut_file_is_partial() -> None:
    whole, cut = Source("a", None, None, 3), Source("b", None, None, 2, {}, partial=True)
    assert wire.outcome_of([whole], [traced()]) is WindowOutcome.OK
    assert wire.outcome_of([whole], [counted(kernels=0)]) is WindowOutcome.OK
    assert wire.outcome_of([whole, cut], [traced()]) is WindowOutcome.PARTIAL
    assert wire.outcome_of([whole], []) is WindowOutcome.EMPTY
    assert wire.outcome_of([whole], [traced(kernels=0, device=GPU0)]) is WindowOutcome.EMPTY


def test_every_reason_has_an_outcome() -> None:
    assert wire.outcome_of_failure(Reason.TIMEOUT) is WindowOutcome.TIMEOUT
    assert wire.outcome_of_failure(Reason.CRASHED) is WindowOutcome.CRASH
    assert wire.outcome_of_failure(Reason.DENIED) is WindowOutcome.DENIED
    assert wire.outcome_of_failure(Reason.MALFORMED) is WindowOutcome.MALFORMED
