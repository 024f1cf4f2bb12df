"""Prometheus text of others: taken whole and rightly in both formats, or refused whole with a reason."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_format

from exporter.formats.prometheus_text import Merged, page, read
from exporter.model import FormatError

GOOD = b"""# HELP site_step_seconds Time of a training step.
# TYPE site_step_seconds histogram
site_step_seconds_bucket{le="1"} 3
site_step_seconds_bucket{le="2.5"} 5
site_step_seconds_bucket{le="+Inf"} 6
site_step_seconds_sum 8.5
site_step_seconds_count 6
# TYPE site_tokens_total counter
site_tokens_total{job_name="a \\"b\\" \\\\ c"} 12345678901
# TYPE site_rack gauge
site_rack{rack="r1"} -1.5
site_bare 7
"""


def _samples(families: object) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in families  # type: ignore[attr-defined]
        for s in family.samples
    }


def test_both_formats_hold_the_same_samples_under_the_same_names() -> None:
    families = read(GOOD)
    given = _samples(text_format(GOOD.decode()))
    text = _samples(text_format(page(families, openmetrics=False)))
    assert text == given
    other = _samples(openmetrics(page(families, openmetrics=True) + "# EOF\n"))
    assert {n for n, _ in other} == {n for n, _ in given}
    assert sorted(other.values()) == sorted(given.values())
    assert other["site_step_seconds_bucket", (("le", "1.0"),)] == 3
    assert other["site_tokens_total", (("job_name", 'a "b" \\ c'),)] == 12345678901


def test_types_and_help_are_kept_in_both_formats() -> None:
    families = read(GOOD)
    kinds = {f.name: (f.type, f.documentation) for f in text_format(page(families, openmetrics=False))}
    strict = {
        f.name: (f.type, f.documentation) for f in openmetrics(page(families, openmetrics=True) + "# EOF\n")
    }
    assert kinds == strict
    assert kinds["site_step_seconds"] == ("histogram", "Time of a training step.")
    assert {k: v[0] for k, v in kinds.items()} == {
        "site_step_seconds": "histogram",
        "site_tokens": "counter",
        "site_rack": "gauge",
        "site_bare": "unknown",
    }


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        (b"amdgpu_power_watts 1\n", "the exporter's own"),
        (b"# TYPE amdgpu_x_total counter\namdgpu_x_total 1\n", "the exporter's own"),
        (b"a 1\na 1\n", "twice"),
        (b'a{b="1",c="2"} 1\na{c="2",b="1"} 2\n', "twice"),
        (b"a 1\nb 1\n# TYPE a gauge\na 2\n", "twice"),
        (b"a 1 1700000000000\n", "timestamp"),
        (b"a NaN\n", "no measurement"),
        (b"a +Inf\n", "no measurement"),
        (b"# TYPE a counter\na 1\n", "must end in _total"),
        (b"# TYPE a_total counter\na_total -1\n", "negative"),
        (b"# TYPE a gauge\n", "no sample"),
        (b"a{b=} 1\n", "not Prometheus text"),
        (b"a{b\n", "not Prometheus text"),
        (b"\xff\xfe 1\n", "not Prometheus text"),
        (b"a one\n", "not Prometheus text"),
        (b"\0\0\0\0", "not "),
        (b'a{__name__="b"} 1\n', "specified more than once"),
        (b'a{__rack="b"} 1\n', "Invalid labels"),
        (b"a\n", "no sample"),
        (b'a{b="c} 1\n', "is no sample"),
        (b'{b="c"} 1\n', "is no sample"),
        (b'# TYPE a histogram\na_bucket{le="1"} 1\na_count 1\na_sum 1\n', "+Inf"),
        (b'# TYPE a histogram\na_bucket{le="1"} 3\na_bucket{le="+Inf"} 2\na_count 2\na_sum 1\n', "+Inf"),
        (b"# TYPE a histogram\na_count 2\na_sum 1\n", "+Inf"),
        (b'# TYPE a histogram\na_bucket{le="N/A"} 1\na_count 1\na_sum 1\n', "le='N/A' is no number"),
        (b'# TYPE a histogram\na_bucket{le="nan"} 1\na_count 1\na_sum 1\n', "le='nan' is no number"),
        (b'# TYPE a summary\na{quantile="half"} 1\na_count 1\na_sum 1\n', "is no number"),
        (b"# TYPE a counter\na_total 1\n# TYPE a_total gauge\na_total 1\n", "no sample"),
    ],
)
def test_what_might_cost_the_page_is_refused_with_a_reason(blob: bytes, words: str) -> None:
    with pytest.raises(FormatError) as e:
        read(blob)
    assert words in str(e.value)
    assert "\n" not in str(e.value)


def test_every_cut_of_a_file_is_refused_or_still_right() -> None:
    given = _samples(text_format(GOOD.decode()))
    for end in range(len(GOOD)):
        try:
            families = read(GOOD[:end])
        except FormatError:
            continue
        for key, value in _samples(text_format(page(families, openmetrics=False))).items():
            # A cut number is a number; names and labels are never made up.
            assert key in given or key[0].startswith("site_"), key
            assert value == value


def test_files_share_a_family_without_interleaving() -> None:
    merged = Merged()
    merged.add(read(b'# TYPE m gauge\nm{f="1"} 1\n# TYPE a gauge\na 1\n'))
    merged.add(read(b'# TYPE m gauge\nm{f="2"} 2\n'))
    text = merged.page(openmetrics=False)
    assert text.count("# TYPE m gauge") == 1
    assert merged.series == 3
    assert len(_samples(openmetrics(merged.page(openmetrics=True) + "# EOF\n"))) == 3


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (b"# TYPE m gauge\nm 2\n", "in another file already"),
        (b"# TYPE m_total counter\nm_total 1\n", "is a gauge in another file"),
        (b'# TYPE m untyped\nm{a="b"} 1\n', "is a gauge in another file"),
        (b"h_count 1\n", "clashes"),
    ],
)
def test_a_file_that_contradicts_an_earlier_one_is_refused_whole(second: bytes, words: str) -> None:
    merged = Merged()
    merged.add(read(b"# TYPE m gauge\nm 1\n# TYPE h summary\nh_count 1\nh_sum 2\n"))
    with pytest.raises(FormatError, match=words):
        merged.add(read(b"zz 1\n" + second))
    assert "zz" not in merged.page(openmetrics=False)


def test_a_label_named_as_a_bound_is_any_text_where_it_bounds_nothing() -> None:
    families = read(b'a{le="left",quantile="half"} 1\n')
    for text in (page(families, openmetrics=False), page(families, openmetrics=True)):
        assert 'a{le="left",quantile="half"} 1\n' in text
