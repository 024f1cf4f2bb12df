"""PyTorch's profiler trace: exact times, bounded memory, damage."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import load

from exporter.formats.torch_trace import TorchTrace, _nanoseconds
from exporter.formats.trace import Decoded, Names


def event(cat: str, name: str, ts: object, dur: object, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": dur, "args": args}


def kernel(ts: object, dur: object, correlation: int, name: str = "k") -> dict[str, object]:
    return event("kernel", name, ts, dur, device=0, stream=7, correlation=correlation)


def call(ts: object, dur: object, correlation: int, name: str = "hipLaunchKernel", cat: str = "cuda_runtime"):
    return event(cat, name, ts, dur, correlation=correlation)


EVENTS = [call(5.5, 2.25, 1), kernel(10.125, 3, 1), call(20, 1, 2), kernel(30.001, 0.999, 2, 'q"[{}]"')]


def decode(text: str, step: int = 1 << 20) -> Decoded:
    decoder = TorchTrace(Names(), "pytorch-trace", "pytorch")
    data = text.encode()
    for at in range(0, len(data), step):
        decoder.feed(data[at : at + step])
    decoder.finish()
    return decoder.decoded


def test_microseconds_become_exact_nanoseconds():
    decoded = decode(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "traceName": "x"}))
    assert list(decoded.kernels.start) == [10_125, 30_001]
    assert list(decoded.kernels.end) == [13_125, 31_000]
    assert list(decoded.calls.start) == [5_500, 20_000]
    assert (decoded.rows, decoded.partial, decoded.skipped) == (4, False, {})


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("5233330401113.027", 5_233_330_401_113_027),  # a float of this many digits has lost its last
        ("1790857026123456.789", 1_790_857_026_123_456_789),
        ("7", 7_000),
        ("0.5", 500),
        ("-1.25", -1_250),
        ("1.2345", 1_234),
        ("1e3", 1_000_000),
        ("NaN", None),
        ("Infinity", None),
        (None, None),
        ([], None),
    ],
)
def test_decimal_text_is_read_without_rounding(text: object, ns: int | None):
    assert _nanoseconds(text) == ns


@given(st.integers(0, 10**15), st.integers(0, 999))
def test_any_time_with_three_decimals_is_exact(whole: int, part: int):
    assert _nanoseconds(f"{whole}.{part:03d}") == whole * 1000 + part


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.sampled_from([None, 0, 2]))
def test_events_come_the_same_however_the_bytes_are_dealt(step: int, indent: int | None):
    text = json.dumps({"a": [1, {"b": "traceEvents"}], "traceEvents": EVENTS, "z": 1}, indent=indent)
    decoded = decode(text, step)
    assert list(decoded.kernels.start) == [10_125, 30_001]
    assert not decoded.partial


def test_a_bare_list_of_events_is_a_trace_too(tmp_path: Path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(EVENTS))
    (result,) = load(path).results
    assert (result.launches, result.queue_ns) == (2, 4_625 + 10_001)


def test_a_cut_trace_is_partial_and_gives_what_came_before():
    text = json.dumps({"traceEvents": EVENTS, "traceName": "x"})
    counts = []
    for cut in range(text.index("[") + 1, len(text)):
        decoded = decode(text[:cut])
        counts.append(decoded.rows)
        assert decoded.partial or cut > text.rindex("]"), cut
        assert list(decoded.kernels.start) == [10_125, 30_001][: len(decoded.kernels)]
    assert counts == sorted(counts)
    assert counts[-1] == 4


def test_one_bad_event_costs_itself():
    good = [json.dumps(e) for e in EVENTS]
    for bad, reason in (
        ('{"ph": "X", "cat": "kernel" broken}', "malformed"),
        ('{"ph": "X", "cat": "kernel", "name": "k", "ts": "x", "dur": 1, "args": {}}', "malformed"),
        ('{"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "args": {}}', "malformed"),
        ('{"ph": "X", "cat": "kernel", "name": "k", "ts": NaN, "dur": 1, "args": {}}', "malformed"),
        ('{"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": -1, "args": {}}', "invalid"),
        ("7", "malformed"),
    ):
        text = '{"traceEvents": [' + ", ".join([*good[:2], bad, *good[2:]]) + "]}"
        decoded = decode(text)
        assert (decoded.rows, decoded.skipped) == (4, {reason: 1}), bad


def test_other_events_mean_nothing_and_rocm_categories_are_calls():
    text = json.dumps(
        {
            "traceEvents": [
                {"ph": "M", "name": "process_name", "pid": 0, "args": {}},
                event("cpu_op", "aten::add", 1, 1),
                event("gpu_memset", "Memset (Device)", 3, 1, device=0, stream=7),
                call(5, 1, 3, cat="hip_runtime"),
                event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 9, 2, device=0, stream=7),
            ]
        }
    )
    decoded = decode(text)
    assert (len(decoded.calls), len(decoded.copies), len(decoded.kernels), decoded.rows) == (1, 1, 0, 2)


def test_memory_does_not_grow_with_the_metadata_or_one_huge_event():
    decoder = TorchTrace(Names(), "pytorch-trace", "pytorch")
    decoder.feed(b'{"deviceProperties": [')
    for _ in range(50):
        decoder.feed(b'{"id": 0}, ' * 10_000)
    assert len(decoder._buffer) <= 64
    decoder.feed(b'{}], "traceEvents": [{"ph": "X", "name": "')
    for _ in range(50):
        decoder.feed(b"x" * 100_000)
    assert len(decoder._buffer) < 1 << 20


def test_a_compressed_trace_is_read_the_same(tmp_path: Path):
    text = json.dumps({"traceEvents": EVENTS})
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "b.bin").write_bytes(gzip.compress(text.encode()))
    assert load(tmp_path / "a.json").results == load(tmp_path / "b.bin").results
