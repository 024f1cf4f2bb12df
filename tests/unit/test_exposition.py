"""Readings to bytes: both formats, escaping, order, limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.catalogue.schema import Catalogue, Kind, Metric, Scope, Unit
from exporter.exposition import Layout, Renderer
from exporter.model import Device, DeviceId, Histogram, Series, Value

A, B = DeviceId("0000:05:00.0"), DeviceId("0000:26:00.0")
B1 = DeviceId("0000:26:00.0", 1)
DEVICES = {A: Device(A, 0), B1: Device(B1, 1)}


def entry(key: str, kind: Kind = Kind.GAUGE, unit: Unit = Unit.NONE, **more: object) -> Metric:
    given = {"scope": Scope.PARTITION, "range": (0, 1e18), **more}
    return Metric(key, kind, unit, f"Test entry for {key or 'the device'} only.", **given)  # type: ignore[arg-type]


CATALOGUE = Catalogue(
    [
        entry("", Kind.INFO, labels=("model",)),
        entry("power", unit=Unit.WATTS, scope=Scope.SOCKET),
        entry("energy", Kind.COUNTER, Unit.JOULES, scope=Scope.SOCKET),
        entry("kernel", Kind.COUNTER, Unit.SECONDS, labels=("kernel",)),
        entry("launch_queue", Kind.HISTOGRAM, Unit.SECONDS, buckets=(0.001, 0.1), labels=("launch",)),
        entry("mood", Kind.STATE, labels=("state",), states=("good", "bad")),
        entry("clock", unit=Unit.HERTZ, labels=("domain", "index")),
        entry("devices", scope=Scope.NODE),
    ]
)


def page(rows: list[tuple[Series, Value]], limit: int = 10_000) -> tuple[str, str, Layout]:
    series = tuple(s for s, _ in rows)
    layout = Renderer(CATALOGUE).layout(DEVICES, [series], limit)
    made = layout.render([tuple(v for _, v in rows)])
    return made.text.decode(), made.openmetrics.decode(), layout


ROWS: list[tuple[Series, Value]] = [
    (Series("amdgpu_info", A, ("MI300X",)), 1),
    (Series("amdgpu_power_watts", B, ()), 0.57),
    (Series("amdgpu_power_watts", A, ()), 700),
    (Series("amdgpu_energy_joules_total", A, ()), 12.5),
    (Series("amdgpu_launch_queue_seconds", A, ("kernel",)), Histogram((1, 3), 4, 0.25)),
    (Series("amdgpu_mood_state", A, ("good",)), 1),
    (Series("amdgpu_mood_state", A, ("bad",)), 0),
    (Series("amdgpu_clock_hertz", B1, ("sclk", "")), 2_100_000_000),
    (Series("amdgpu_devices", None, ()), 2),
]


def test_the_text_format_reads_as_written() -> None:
    text, _, _ = page(ROWS)
    assert "# HELP amdgpu_power_watts Test entry for power only.\n# TYPE amdgpu_power_watts gauge\n" in text
    # Sorted by labels, whatever order the source has.
    assert text.index('amdgpu_power_watts{gpu="0",pci="0000:05:00.0"} 700\n') < text.index(
        'amdgpu_power_watts{gpu="1",pci="0000:26:00.0"} 0.57\n'
    )
    assert 'amdgpu_clock_hertz{gpu="1",pci="0000:26:00.0",partition="1",domain="sclk"} 2100000000\n' in text
    assert "amdgpu_devices 2\n" in text
    assert "# TYPE amdgpu_info gauge\n" in text
    histogram = 'gpu="0",pci="0000:05:00.0",launch="kernel"'
    for line in (
        f'amdgpu_launch_queue_seconds_bucket{{{histogram},le="0.001"}} 1',
        f'amdgpu_launch_queue_seconds_bucket{{{histogram},le="+Inf"}} 4',
        f"amdgpu_launch_queue_seconds_sum{{{histogram}}} 0.25",
        f"amdgpu_launch_queue_seconds_count{{{histogram}}} 4",
    ):
        assert line + "\n" in text


def test_both_formats_say_the_same_to_the_reference_parser() -> None:
    text, openmetrics, layout = page(ROWS)
    assert openmetrics.endswith("# EOF\n")
    assert "# TYPE amdgpu_energy_joules counter\n# UNIT amdgpu_energy_joules joules\n" in openmetrics
    assert "# TYPE amdgpu info\n" in openmetrics

    def samples(families: object) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
        return {
            (s.name, tuple(sorted(s.labels.items())), s.value)
            for f in families  # type: ignore[attr-defined]
            for s in f.samples
        }

    plain = samples(parse_text(text))
    assert plain == samples(parse_openmetrics(openmetrics))
    assert len(plain) == layout.exposed == len(ROWS) + 4


@given(st.text(max_size=60))
def test_any_kernel_name_survives_the_round_trip(name: str) -> None:
    rows: list[tuple[Series, Value]] = [(Series("amdgpu_kernel_seconds_total", A, (name,)), 1.0)]
    text, openmetrics, _ = page(rows)
    expected = name.encode("utf-8", "replace").decode()
    for families in (parse_openmetrics(openmetrics), parse_text(text)):
        [family] = families
        # A label without a value is left out: Prometheus takes both for the same.
        assert family.samples[0].labels.get("kernel", "") == expected


def test_a_hostile_name_is_escaped_as_the_format_asks() -> None:
    rows: list[tuple[Series, Value]] = [
        (Series("amdgpu_kernel_seconds_total", A, ('path\\sep "q"',)), 1.0),
        (Series("amdgpu_kernel_seconds_total", A, ("line1\nline2",)), 1.0),
        (Series("amdgpu_kernel_seconds_total", A, ("行列積",)), 1.0),
    ]
    text, _, _ = page(rows)
    assert r'kernel="path\\sep \"q\""' in text
    assert r'kernel="line1\nline2"' in text
    assert 'kernel="行列積"' in text


def test_the_first_source_in_order_of_trust_speaks_for_a_series() -> None:
    series = Series("amdgpu_power_watts", A, ())
    layout = Layout(CATALOGUE, DEVICES, [(series,), (series,)], 100)
    assert layout.exposed == 1
    assert b"} 1\n" in layout.render([(1,), (2,)]).text


def test_kernels_go_first_when_there_are_too_many_series_then_histograms_then_links() -> None:
    kernels: list[tuple[Series, Value]] = [
        (Series("amdgpu_kernel_seconds_total", A, (f"k{n}",)), 1.0) for n in range(50)
    ]
    text, _, layout = page(ROWS + kernels, limit=20)
    assert "kernel_seconds" not in text
    assert layout.dropped == 50
    text, _, layout = page(ROWS + kernels, limit=9)
    assert "launch_queue" not in text
    assert "amdgpu_clock_hertz" in text
    text, _, layout = page(ROWS + kernels, limit=1)
    assert "amdgpu_info" in text
    assert "amdgpu_devices" in text
    assert "amdgpu_power_watts" not in text


def test_the_layout_is_reused_while_the_series_stay_and_only_then() -> None:
    renderer = Renderer(CATALOGUE)
    series = (Series("amdgpu_power_watts", A, ()),)
    first = renderer.layout(DEVICES, [series], 10)
    assert renderer.layout(DEVICES, [series], 10) is first
    assert renderer.layout(DEVICES, [(*series,)], 10) is not first
    again = renderer.layout(DEVICES, [series], 10)
    assert renderer.layout(dict(DEVICES), [series], 10) is not again


def test_a_plain_number_where_a_histogram_belongs_is_refused() -> None:
    with pytest.raises(TypeError, match="launch_queue"):
        page([(Series("amdgpu_launch_queue_seconds", A, ("kernel",)), 1.0)])


def test_a_family_whose_values_are_the_same_object_is_not_rendered_again() -> None:
    old, new = (Series("amdgpu_power_watts", A, ()),), (Series("amdgpu_devices", None, ()),)
    layout = Layout(CATALOGUE, DEVICES, [old, new], 100)
    values = (700,)
    first = layout.render([values, (2,)]).text
    assert b"amdgpu_devices 2\n" in first
    second = layout.render([values, (3,)]).text
    assert b"} 700\n" in second
    assert b"amdgpu_devices 3\n" in second
    assert b"} 800\n" in layout.render([(800,), (3,)]).text
