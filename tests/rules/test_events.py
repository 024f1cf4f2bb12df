"""All rules together over healthy nodes to which ordinary things happen: nothing fires."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from alerts import build
from alerts.settings import read
from tests.rules.events import EVENTS, MINUTES, Event
from tests.rules.made import write
from tests.rules.test_rules_fire import PROMTOOLS


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What promtool says of every event at once; each has a node of its own."""
    promtool = PROMTOOLS["installed"]
    if promtool is None:
        pytest.skip("promtool is not installed; tests/install-parts fetches it")
    folder = tmp_path_factory.mktemp("events")
    files = (build.recording_file(read()), build.alert_file(read(), annotations=False))
    # One group, so that each rule is evaluated after what it needs.
    every = [rule for content in files for group in content["groups"] for rule in group["rules"]]
    (folder / "r.yml").write_text(json.dumps({"groups": [{"name": "all", "interval": "1m", "rules": every}]}))
    fired = 'sum by (alertname, signal) (count_over_time(ALERTS{alertstate="firing",%s}[5h]))'
    looks = [
        {"expr": fired % f'{label}="{e.instance}"', "eval_time": f"{MINUTES}m", "exp_samples": []}
        for e in EVENTS
        for label in ("instance", "job_id")
    ]
    given = [{"series": n, "values": write(v)} for e in EVENTS for n, v in e.series()]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": looks}
    content = {"rule_files": ["r.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "t.yml").write_text(json.dumps(content))
    done = subprocess.run([promtool, "test", "rules", "t.yml"], cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.name)
def test_no_rule_cries_wolf(event: Event, said: str) -> None:
    mine = [part for part in re.split(r"(?=expr: )", said) if event.instance in part]
    fired = {name for part in mine for name in re.findall(r'alertname="(\w+)"', part)}
    assert fired == event.firing, mine
