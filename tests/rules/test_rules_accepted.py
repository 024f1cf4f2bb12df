"""Every program that may load the rules accepts them, and they name nothing that does not exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import build, compat, recording
from alerts.settings import THRESHOLDS, ThresholdError, read
from exporter.catalogue import CATALOGUE
from exporter.catalogue.schema import Kind, Scope
from tests.conftest import REPO
from tests.rules.test_rules_fire import PROMTOOLS

ALERTS = REPO / "alerts"
RULES = sorted((ALERTS / "rules").glob("*.yml"))
COMPAT = sorted(ALERTS.glob("compat-*.yml"))
NEWER = str(REPO / ".cache" / "parts" / "newer" / "usr" / "bin")
# Labels that Prometheus or the rules themselves give.
_GIVEN = {"cluster", "instance", "job", "le", "signal", "mode"}
_HISTOGRAM = ("_bucket", "_sum", "_count")


def rules(*files: Path) -> list[dict[str, Any]]:
    return [r for f in files for g in yaml.safe_load(f.read_text())["groups"] for r in g["rules"]]


def labels_of() -> dict[str, set[str]]:
    """Every name of the catalogue with the labels it carries."""
    known = {}
    for m in CATALOGUE:
        own = {*m.labels}
        own |= {"gpu", "pci"} if m.scope is not Scope.NODE else set()
        own |= {"partition"} if m.scope is Scope.PARTITION else set()
        names = [m.name + s for s in _HISTOGRAM] if m.kind is Kind.HISTOGRAM else [m.name]
        known |= dict.fromkeys(names, own)
    return known


@pytest.mark.parametrize("which", PROMTOOLS)
def test_promtool_accepts_every_file(which: str) -> None:
    promtool = PROMTOOLS[which]
    if promtool is None:
        pytest.skip(f"no {which} promtool; tests/install-parts fetches it")
    done = subprocess.run([promtool, "check", "rules", *RULES, *COMPAT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "duplicate" not in done.stdout.lower(), done.stdout


def test_vmalert_accepts_every_file() -> None:
    vmalert = shutil.which("vmalert", path=NEWER)
    if vmalert is None:
        pytest.skip("no vmalert that knows keep_firing_for; tests/install-parts fetches it")
    files = [f"-rule={f}" for f in (*RULES, *COMPAT)]
    done = subprocess.run([vmalert, "-dryRun", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_amtool_accepts_the_routes() -> None:
    amtool = shutil.which("amtool")
    if amtool is None:
        pytest.skip("amtool is not installed; tests/install-parts fetches it")
    done = subprocess.run(
        [amtool, "check-config", ALERTS / "alertmanager.yml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_names_and_labels_exist() -> None:
    parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed")
    known, recorded = labels_of(), {r["record"] for r in rules(*RULES, *COMPAT) if "record" in r}
    assert len(recorded) == sum("record" in r for r in rules(*RULES, *COMPAT)), "a rule is recorded twice"
    wrong = []
    for rule in rules(*RULES, *COMPAT):
        for name, matchers in selectors(parser, rule["expr"]):
            if name not in known and name not in recorded and name != "up":
                wrong.append(f"{name}: unknown, in {rule.get('record') or rule['alert']}")
            if name in known and (strange := matchers - known[name] - _GIVEN):
                wrong.append(f"{name}: has no label {strange}")
    assert wrong == []


def test_labels_that_are_grouped_or_joined_by_exist() -> None:
    every = set().union(*labels_of().values()) | _GIVEN
    every |= {theirs for change in compat._IDENTITY.values() for theirs, _, _ in change}
    for rule in rules(*RULES, *COMPAT):
        for group in re.findall(r"\b(?:by|on|group_left|without)\s*\(([^)]*)\)", rule["expr"]):
            used = {x.strip() for x in group.split(",") if x.strip()}
            assert used <= every, (rule, used - every)


def selectors(parser: Any, expr: str) -> list[tuple[str, set[str]]]:
    """Every series an expression reads, with the labels it is matched by."""
    found: list[tuple[str, set[str]]] = []

    def walk(node: Any) -> None:
        match type(node).__name__:
            case "VectorSelector":
                found.append((node.name, {m.name for m in node.matchers.matchers}))
            case "MatrixSelector":
                walk(node.vector_selector)
            case "BinaryExpr":
                walk(node.lhs)
                walk(node.rhs)
            case "Call":
                for arg in node.args:
                    walk(arg)
            case "AggregateExpr" | "ParenExpr" | "UnaryExpr" | "SubqueryExpr":
                walk(node.expr)
            case "NumberLiteral" | "StringLiteral":
                pass
            case other:
                raise AssertionError(f"no way to walk {other}")

    walk(parser.parse(expr))
    return found


def test_no_alert_reads_a_gauge_of_the_last_window() -> None:
    gauges = {m.name for m in CATALOGUE if "Of the last window alone" in m.help}
    assert len(gauges) > 10
    for rule in rules(*RULES):
        assert not gauges & set(re.findall(r"amdgpu_\w+", rule["expr"])), rule


def test_every_rule_that_help_recommends_exists() -> None:
    named = {n for m in CATALOGUE for n in re.findall(r"\b\w+:amdgpu_\w+:\w+", m.help)}
    assert named
    assert named <= {r["record"] for r in rules(*RULES) if "record" in r}


def test_levels_are_named_for_what_they_keep() -> None:
    for rule in rules(*RULES):
        if "record" not in rule:
            continue
        assert re.fullmatch(r"(gpu|job|node|cluster):amdgpu_[a-z0-9_]+:[a-z0-9]+", rule["record"])
        level = rule["record"].partition(":")[0]
        outer = re.match(r"\w+ by \(([^)]*)\)", rule["expr"])
        if outer:
            has = {x.strip() for x in outer[1].split(",")}
            assert ("instance" in has) == (level in ("gpu", "node")), rule
            assert ("pci" in has) == (level == "gpu"), rule


def test_ranges_over_windows_span_at_least_four_periods() -> None:
    from exporter.config.settings import Config

    settings = read()
    most = settings.common.ms("window_period") / 1000
    assert Config().windows.interval <= most, "windows may be rarer than the rules think"
    for change, expected in (({"window_period": "25m"}, "100m"), ({"window_periods": 6}, "1h")):
        made = read(changes={"common": change})
        records = recording.windows(made)
        # All but whether one came lately.
        exprs = [r.expr for r in records if "increase(" in r.expr and not r.name.endswith("increase20m")]
        assert exprs
        for expr in exprs:
            assert set(re.findall(r"increase\([^[]*\[(\w+)\]", expr)) == {expected}
    with pytest.raises(ThresholdError, match="4 or more"):
        read(changes={"common": {"window_periods": 3}})


def test_a_shortened_rule_file_differs_in_durations_alone() -> None:
    duration = re.compile(r"\b\d+(ms|s|m|h|d)\b")
    shipped, short = (build.dump(build.alert_file(read(time_scale=f))) for f in (1.0, 0.005))
    assert shipped != short
    assert duration.sub("T", shipped) == duration.sub("T", short)


def test_every_threshold_says_when_to_change_it() -> None:
    for line in THRESHOLDS.read_text().splitlines():
        if re.match(r"\s+\w+: ", line):
            assert re.search(r"\S+\s+# .{8,}", line), line


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ("AmdGpuMissing:\n  severity: critical\n  for: 5m\n", "keep is missing"),
        ("AmdGpuNoSuch:\n  severity: info\n  for: 1m\n  keep: 1m\n", "there is no such alert"),
        (
            "AmdGpuThrottled:\n  severity: loud\n  for: 1m\n  keep: 1m\n  share: 0.1\n",
            "severity must be one of",
        ),
        ("AmdGpuThrottled:\n  severity: info\n  for: 15\n  keep: 1m\n  share: 0.1\n", "15 is no duration"),
        ("AmdGpuThrottled:\n  severity: info\n  for: 1m\n  keep: 1m\n  share: x\n", "is no number"),
        (
            "AmdGpuThrottled:\n  severity: info\n  for: 1m\n  keep: 1m\n  share: 0.1\n  typo: 1\n",
            "is it misspelt",
        ),
        ("common: 1\n", "one section per alert"),
        ("a: [\n", "no YAML"),
    ],
)
def test_a_broken_thresholds_file_is_one_clear_line(
    changed: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    base = yaml.safe_load(THRESHOLDS.read_text())
    try:
        base.update(yaml.safe_load(changed))
        file.write_text(yaml.safe_dump(base))
    except yaml.YAMLError:
        file.write_text(changed)
    assert build.main(["--thresholds", str(file), "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
    assert str(file) in said
    assert list(tmp_path.iterdir()) == [file]


def test_an_alert_can_be_switched_off(tmp_path: Path) -> None:
    base = yaml.safe_load(THRESHOLDS.read_text())
    base["AmdGpuImbalance"]["enabled"] = False
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(base))
    assert build.main(["--thresholds", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "out")]) == 0
    names = {r["alert"] for r in rules(tmp_path / "out" / "rules" / "alerts.yml")}
    assert "AmdGpuImbalance" not in names
    assert len(names) == len(rules(ALERTS / "rules" / "alerts.yml")) - 1
