"""Each alert fires where it must and is quiet where it must be, by every promtool that can be had."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alerts import build, recording
from alerts.settings import read
from tests.conftest import REPO
from tests.rules.cases import CASES, Case
from tests.rules.made import write

_RECORDED = re.compile(r"\b(?:gpu|job|node|cluster):amdgpu_\w+:\w+")
# Prometheus of the installed release, and a 3.x of a newer one beside it.
PROMTOOLS = {
    "installed": shutil.which("promtool"),
    "newer": shutil.which("promtool", path=str(REPO / ".cache" / "parts" / "newer" / "usr" / "bin")),
}


def needed(expr: str, known: dict[str, str]) -> set[str]:
    """The recording rules an expression needs, and those they need."""
    found: set[str] = set()
    todo = [expr]
    while todo:
        for name in set(_RECORDED.findall(todo.pop())) - found:
            found.add(name)
            todo.append(known[name])
    return found


def rule_file(case: Case) -> dict[str, Any]:
    """The one alert without its wording, and no rule it does not need."""
    settings = read(changes=case.changes)
    alert = build.alert_file(settings, annotations=False, only={case.alert})["groups"]
    records = [r for group in recording.groups(settings).values() for r in group]
    known = {r.name: r.expr for r in records}
    wanted = needed(alert[0]["rules"][0]["expr"], known)
    rules = [{"record": r.name, "expr": r.expr} for r in records if r.name in wanted]
    # One group, so that rules are evaluated in this order.
    return {"groups": [{"name": "g", "interval": "1m", "rules": rules + alert[0]["rules"]}]}


def promtool_file(case: Case, rules: str) -> dict[str, Any]:
    settings = read()[case.alert]
    about = next(
        r["labels"]["about"]
        for g in build.alert_file(read(), only={case.alert})["groups"]
        for r in g["rules"]
    )
    extra = {"severity": settings["severity"], "about": about}
    return {
        "rule_files": [rules],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": case.step,
                "input_series": [{"series": n, "values": write(v)} for n, v in case.given],
                "alert_rule_test": [
                    {
                        "eval_time": f"{minute}m",
                        "alertname": case.alert,
                        "exp_alerts": [{"exp_labels": {**labels, **extra}} for labels in expected],
                    }
                    for minute, expected in case.at.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": f"max({expr})",
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": "{}", "value": value}],
                    }
                    for expr, minute, value in case.samples
                ],
            }
        ],
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases laid out for promtool."""
    folder = tmp_path_factory.mktemp("cases")
    for n, case in enumerate(CASES):
        (folder / f"{n}.rules.yml").write_text(json.dumps(rule_file(case)))
        content = json.dumps(promtool_file(case, f"{n}.rules.yml"))  # JSON is YAML, and quicker to write
        (folder / f"{n}.test.yml").write_text(content)
    return folder


@pytest.fixture(scope="module")
def said(files: Path) -> Callable[[str], dict[int, str]]:
    """What a promtool says of each case; it is started once, because starting takes longer than a case."""

    @functools.cache
    def run(promtool: str) -> dict[int, str]:
        names = [f"{n}.test.yml" for n in range(len(CASES))]
        # Both streams as one: what failed is written to the other one, and only the order says which it is.
        done = subprocess.run(
            [promtool, "test", "rules", *names],
            cwd=files,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines = re.sub(r"^Unit Testing: .*$", "", done.stdout, flags=re.MULTILINE)
        parts = re.split(r"^  (?=SUCCESS$|FAILED:$)", lines, flags=re.MULTILINE)[1:]
        assert len(parts) == len(CASES), done.stdout
        return dict(enumerate(parts))

    return run


@pytest.mark.parametrize("which", PROMTOOLS)
@pytest.mark.parametrize("n", range(len(CASES)), ids=lambda n: f"{CASES[n].alert}-{CASES[n].name}")
def test_an_alert_behaves(n: int, which: str, said: Callable[[str], dict[int, str]]) -> None:
    promtool = PROMTOOLS[which]
    if promtool is None:
        pytest.skip(f"no {which} promtool; tests/install-parts fetches it")
    answer = said(promtool)[n]
    assert answer.split() == ["SUCCESS"], answer


def test_every_alert_has_a_firing_and_a_quiet_case() -> None:
    names = {a.name for group in build.alerts(read()).values() for a in group}
    for kind in ("fires", "quiet"):
        assert {c.alert for c in CASES if c.name.startswith(kind)} == names, kind
