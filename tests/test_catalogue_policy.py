"""The laws of the catalogue: each can be broken, none is; and an entry is all that a metric needs."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from exporter.catalogue import CATALOGUE, docs, schema
from exporter.catalogue.extract import Extractor
from exporter.catalogue.schema import Catalogue, Field, Kind, Metric, Scope, Unit, faults
from exporter.exposition import Renderer
from exporter.model import Device, DeviceId, Gap, Reason, Series, Value

GOLDEN = Path(__file__).parent / "golden"

GOOD = Metric(
    key="test_draught",
    kind=Kind.GAUGE,
    unit=Unit.WATTS,
    help="How much draught the test makes.",
    scope=Scope.PARTITION,
    range=(0, 100),
    labels=("side",),
    fields=(Field("sysfs", "test", "draught.*", scale=1e-3, each=("side",)),),
    peers=("other:draught_mw",),
    check="cat /draught",
)
STATE = replace(GOOD, kind=Kind.STATE, unit=Unit.NONE, states=("on", "off"), fields=())
HISTOGRAM = replace(GOOD, kind=Kind.HISTOGRAM, fields=(), buckets=(1, 2))

BROKEN = [
    (replace(GOOD, key="Test_Draught"), "the key must be"),
    (replace(GOOD, key="test__draught"), "the key must be"),
    (replace(GOOD, help="No full stop here, alas"), "HELP must be a sentence"),
    (replace(GOOD, help="Short."), "HELP must be a sentence"),
    (replace(GOOD, help="Two lines are\none too many."), "HELP is one line"),
    (replace(GOOD, range=(1, 1)), "an empty range"),
    (replace(GOOD, unit=Unit.RATIO), "a ratio's range"),
    (replace(GOOD, kind=Kind.COUNTER, range=(-1, 1)), "a counter cannot be negative"),
    (replace(GOOD, buckets=(1, 2)), "buckets belong to histograms"),
    (replace(HISTOGRAM, buckets=()), "buckets belong to histograms"),
    (replace(HISTOGRAM, buckets=(2, 1)), "buckets must rise"),
    (replace(HISTOGRAM, buckets=tuple(range(12))), "buckets must rise"),
    (replace(GOOD, states=("on",)), "states belong to state metrics"),
    (replace(STATE, states=()), "states belong to state metrics"),
    (replace(STATE, labels=()), "last label names the state"),
    *(
        (replace(GOOD, labels=(label, "side")), f"label {label} is given")
        for label in ("gpu", "pci", "partition", "job", "instance", "le", "quantile")
    ),
    (replace(GOOD, labels=("side", "side")), "a label stands twice"),
    (replace(GOOD, seen_on="MI300."), "seen_on is words for hardware"),
    (replace(GOOD, fields=(Field("sysfs", "test", "draught.*"),)), "needs one label in each"),
    (replace(GOOD, fields=(Field("sysfs", "test", "a", fixed=(("no", "x"),)),)), "sets a label"),
]


@pytest.mark.parametrize(("metric", "words"), BROKEN, ids=[words for _, words in BROKEN])
def test_a_broken_law_is_named(metric: Metric, words: str) -> None:
    assert [f for f in faults(metric) if words in f], list(faults(metric))
    with pytest.raises(ValueError, match=re.escape(words)):
        Catalogue((metric,))


def test_every_law_has_a_case_that_breaks_it() -> None:
    tree = ast.parse(inspect.getsource(schema.faults) + inspect.getsource(schema._word_faults))
    laws = [node for node in ast.walk(tree) if isinstance(node, ast.Yield)]
    said = {fault for metric, _ in BROKEN for fault in faults(metric)}
    patterns = [_pattern(law) for law in laws]
    assert len(patterns) >= 14
    assert [p.pattern for p in patterns if not any(p.fullmatch(s) for s in said)] == []


def _pattern(law: ast.Yield) -> re.Pattern[str]:
    assert isinstance(law.value, ast.JoinedStr)
    pieces = (re.escape(str(v.value)) if isinstance(v, ast.Constant) else ".*" for v in law.value.values)
    return re.compile("".join(pieces), re.DOTALL)


@pytest.mark.parametrize("metric", [GOOD, STATE, HISTOGRAM], ids=["gauge", "state", "histogram"])
def test_a_lawful_entry_has_no_fault(metric: Metric) -> None:
    assert list(faults(metric)) == []


def test_no_name_is_given_twice() -> None:
    with pytest.raises(ValueError, match="amdgpu_test_draught_watts: defined twice"):
        Catalogue((GOOD, replace(GOOD, help="The same name with another meaning.")))


# --- the real catalogue --------------------------------------------------------------------------------

FOREIGN_UNITS = re.compile(
    r"_([kmg]hz|m[wjsv]|u[js]|ns|[kmg]i?b|percent(age)?|milli\w+|micro\w+|nano\w+|kilo\w+|mega\w+)(_|$)"
)
# Words for where a number comes from; a name says what it means.
TOOLS = re.compile(r"_(rocm|amdsmi|smi|sysfs|hwmon|kfd|rocprof\w*|hsa|hip|mi[0-9]{2,}\w*|gfx[0-9]\w*)(_|$)")
FAMILY_SUFFIXES = ("_total", "_info", "_bucket", "_sum", "_count", "_created", "_gsum", "_gcount")
BACKENDS = {"amdsmi", "sysfs", "smi_cli"}


def family(metric: Metric) -> str:
    """The name OpenMetrics gives the family: without the suffix that the kind puts on the sample."""
    suffix = {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(metric.kind, "")
    return metric.name.removesuffix(suffix)


def test_names_are_lower_case_words_behind_one_prefix() -> None:
    wrong = [m.name for m in CATALOGUE if not re.fullmatch(r"amdgpu(_[a-z0-9]+)+", m.name)]
    assert wrong == []


def test_total_is_on_counters_and_only_there() -> None:
    assert [m.name for m in CATALOGUE if m.name.endswith("_total") != (m.kind is Kind.COUNTER)] == []


def test_names_carry_base_units_and_no_tool() -> None:
    assert [m.name for m in CATALOGUE if FOREIGN_UNITS.search(m.name) or TOOLS.search(m.name)] == []


def test_every_named_unit_stands_in_the_name() -> None:
    stems = {m.name: m.name.removesuffix("_total") for m in CATALOGUE}
    assert [m.name for m in CATALOGUE if m.unit and not stems[m.name].endswith(f"_{m.unit}")] == []


def test_no_family_can_be_taken_for_a_sample_of_another() -> None:
    families = {m.name: family(m) for m in CATALOGUE}
    assert len(set(families.values())) == len(families), "two families of one name in OpenMetrics"
    mixed = [
        (a, b)
        for a, b in combinations(families.values(), 2)
        for long, short in ((a, b), (b, a))
        if long.startswith(short) and long.removeprefix(short) in FAMILY_SUFFIXES
    ]
    assert mixed == []


def test_no_help_is_used_twice() -> None:
    helps = [m.help for m in CATALOGUE]
    assert [h for h in set(helps) if helps.count(h) > 1] == []


def test_fields_name_known_backends_and_real_scales() -> None:
    assert [m.name for m in CATALOGUE for f in m.fields if f.backend not in BACKENDS or not f.scale > 0] == []


def test_no_two_fields_of_a_metric_are_the_same() -> None:
    assert [m.name for m in CATALOGUE if len(set(m.fields)) != len(m.fields)] == []


def test_peers_are_named_with_their_exporter() -> None:
    assert [(m.name, p) for m in CATALOGUE for p in m.peers if not re.fullmatch(r"[a-z_]+:\S+", p)] == []


def test_a_command_to_check_by_hand_is_one_line() -> None:
    assert [m.name for m in CATALOGUE if m.check is not None and ("\n" in m.check or not m.check)] == []


# --- one entry is all it takes -------------------------------------------------------------------------

GPU = Device(DeviceId("0000:05:00.0"), 0)


def grown() -> Catalogue:
    return Catalogue((*CATALOGUE, GOOD))


def take(raw: object) -> tuple[list[Series], list[Value], list[Gap]]:
    series: list[Series] = []
    values: list[Value] = []
    gaps: list[Gap] = []
    only = Catalogue((GOOD,))
    Extractor(only, "sysfs").extract(GPU, {"test": {"draught": raw}}, series, values, gaps)
    return series, values, gaps


def test_a_new_entry_is_extracted_and_its_range_is_checked() -> None:
    series, values, gaps = take({"left": 1500, "right": 100_001, "top": None, "back": 100_000, "low": 0})
    assert series == [Series(GOOD.name, GPU.id, (side,)) for side in ("left", "back", "low")]
    assert values == [1.5, 100, 0]
    assert sorted(g.reason for g in gaps) == [Reason.IMPLAUSIBLE, Reason.UNSUPPORTED]


def test_a_new_entry_is_served_with_its_help() -> None:
    series = (Series(GOOD.name, GPU.id, ("left",)),)
    page = Renderer(grown()).layout({GPU.id: GPU}, [series], 1000).render([(1.5,)])
    text = page.text.decode()
    assert f"# HELP {GOOD.name} {GOOD.help}\n# TYPE {GOOD.name} gauge\n" in text
    assert f'{GOOD.name}{{gpu="0",pci="0000:05:00.0",side="left"}} 1.5\n' in text


def test_a_new_entry_is_documented() -> None:
    assert GOOD.name not in docs.markdown(CATALOGUE)
    page = docs.markdown(grown())
    [row] = [line for line in page.splitlines() if line.startswith(f"| `{GOOD.name}` | gauge")]
    for words in (
        GOOD.help,
        "gpu, pci, partition, side",
        "watts",
        "sysfs: `test.draught.*` (each side, × 0.001)",
        "`other:draught_mw`",
        "`cat /draught`",
    ):
        assert words in row
    support = page.split("## Support by backend")[1]
    assert re.search(rf"\| `{GOOD.name}` \|.* test \|", support)
    [entry] = [e for e in docs.as_json(grown()) if e["name"] == GOOD.name]
    assert entry["labels"] == ["gpu", "pci", "partition", "side"]
    assert entry["range"] == [0, 100]
    assert entry["fields"][0]["scale"] == 1e-3


def test_a_bar_or_line_break_cannot_break_a_table() -> None:
    page = docs.markdown(Catalogue((replace(GOOD, check="a | b\nc"),)))
    assert r"| `a \| b c` |" in page


# --- golden files show every metric --------------------------------------------------------------------


def shown(pages: Iterable[Path]) -> set[str]:
    return {
        line.split(" ")[2]
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("# TYPE ")
    }


def captured() -> list[Path]:
    """The pages of real machines' output; the others are of made trees, made tables, a pretend library."""
    trees = [p for p in GOLDEN.glob("*.prom") if not p.stem.startswith(("made-", "case-"))]
    texts = [*GOLDEN.glob("tools/cli-*.prom"), *GOLDEN.glob("processes/*.prom")]
    return [*trees, *texts, GOLDEN / "tables" / "table-rx6700s.prom"]


def unseen(catalogue: Catalogue) -> set[str]:
    """Metrics that no golden page shows and of which nobody says what hardware would."""
    there = shown(GOLDEN.rglob("*.prom"))
    return {m.name for m in catalogue if m.name not in there and not m.seen_on}


def test_every_metric_is_in_a_golden_page_or_says_which_hardware_shows_it() -> None:
    missing = unseen(CATALOGUE)
    assert not missing, f"show it in a page of tests/unit/test_golden_*.py, or set seen_on: {missing}"


def test_what_no_captured_machine_shows_says_which_hardware_would() -> None:
    there = shown(captured())
    measured = {m.name: m.seen_on for m in CATALOGUE if m.fields}
    assert {n for n, hardware in measured.items() if hardware} == set(measured) - there


def test_a_new_entry_without_a_golden_page_is_noticed() -> None:
    assert unseen(grown()) - unseen(CATALOGUE) == {GOOD.name}
    told = Catalogue((*CATALOGUE, replace(GOOD, seen_on="cards with an open window")))
    assert unseen(told) == unseen(CATALOGUE)
    assert "to be seen on cards with an open window." in docs.markdown(told)
