"""What the published dashboards of other exporters ask for is found over a replay, through the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from alerts import compat
from exporter.backends.replay import demo_path
from tests.conftest import REPO
from tests.rules.test_rules_fire import PROMTOOLS
from tests.tools.replay_history import Node, sample_lines

FILES = {"dme": "compat-device-metrics-exporter.yml", "omnistat": "compat-omnistat.yml"}
INSTANCE, START = "node-a:9408", 1_767_225_600
# Part numbers that their lists hold.
LISTS = {"MI200": "102-D65208-0C", "MI300": "102-G30211-00"}
OWNERS = (
    'amdgpu_workload_info{cluster="demo",instance="%s",gpu="0",pci="0000:05:00.0",kind="slurm",job_id="4711",user="ada"}',
    'amdgpu_workload_info{cluster="demo",instance="%s",gpu="1",pci="0000:26:00.0",kind="pod",namespace="ml",pod="train-0"}',
)
# A node on which nobody runs anything.
EMPTY = tuple(
    f'{name}{{cluster="demo",instance="node-b:9408"{labels}}}'
    for name, labels in (
        ("amdgpu_devices", ""),
        ("amdgpu_info", ',gpu="0",pci="0000:05:00.0",uuid="b0"'),
        ("amdgpu_power_watts", ',gpu="0",pci="0000:05:00.0"'),
    )
)


@dataclass(frozen=True)
class Form:
    """One metric in one form of query of one dashboard."""

    peer: str
    dashboard: str
    name: str
    labels: str
    wrap: str
    cannot: str

    @property
    def id(self) -> str:
        return f"{self.dashboard}: {self.wrap.replace('X', self.name)} by {self.labels}"

    def query(self, chosen: dict[str, str]) -> str:
        matchers = [m for part in self.labels.split() if part != "-" for m in [_matcher(part, chosen)]]
        name, _, own = self.name.partition("{")
        inner = ",".join([*filter(None, [own.rstrip("}")]), *matchers])
        selector = f"{name}{{{inner}}}" if inner else name
        return re.sub(r"\bX\b", lambda _: selector, self.wrap)


def _matcher(part: str, chosen: dict[str, str]) -> str:
    label, how, value = re.fullmatch(r"(\w+)(!=|=~|!~|)(\w*)", part).groups()  # type: ignore[union-attr]
    if value:
        return f'{label}{how}"{LISTS[value]}"'
    return {"": f'{label}="{chosen.get(label)}"', "!=": f'{label}!=""', "=~": f'{label}=~".+"'}[how]


def forms() -> Iterator[Form]:
    for peer in FILES:
        for dashboard, entries in compat.queries(peer).items():
            for e in entries:
                for name in e["names"].split():
                    yield Form(peer, dashboard, name, e["labels"], e["as"], e.get("cannot", ""))


FORMS = tuple(forms())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Samples of the demo node as a database stores them, and who uses two of its GPUs."""
    capture = Path(shutil.copytree(demo_path(), tmp_path_factory.mktemp("demo") / "capture"))
    *_, (at, text) = Node("node-a", capture, expected=8, held=False).pages(START, 60)
    samples = [line.rsplit(" ", 1)[0] for line in sample_lines(text, at, cluster="demo", instance=INSTANCE)]
    return [*samples, *(f"{owner % INSTANCE} 1" for owner in OWNERS), *(f"{s} 8" for s in EMPTY)]


@pytest.fixture(scope="module")
def missed(page: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """What promtool complains of, by peer."""
    promtool = PROMTOOLS["installed"]
    if promtool is None:
        pytest.skip("promtool is not installed; tests/install-parts fetches it")
    uuid = next(re.search(r'uuid="([^"]+)"', s)[1] for s in page if "amdgpu_info{" in s and 'gpu="0"' in s)  # type: ignore[index]
    chosen = {"cluster_name": "demo", "hostname": "node-a", "gpu_id": "0", "gpu_uuid": uuid}
    chosen |= {"instance": INSTANCE, "job_id": "4711", "pod": "train-0"}

    @cache
    def run(peer: str) -> str:
        folder = tmp_path_factory.mktemp(peer)
        given = [
            {"series": s.rsplit(" ", 1)[0], "values": f"{float(s.rsplit(' ', 1)[1]):.12g}x6"} for s in page
        ]
        asked = [
            {
                "expr": f"clamp_max(count({form.query(chosen)}), 1) + {n} - 1",
                "eval_time": "5m",
                "exp_samples": [] if form.cannot else [{"labels": "{}", "value": n}],
            }
            for n, form in enumerate(FORMS)
            if form.peer == peer
        ]
        test = {"interval": "1m", "input_series": given, "promql_expr_test": asked}
        content = {"rule_files": [str(REPO / "alerts" / FILES[peer])], "tests": [test]}
        (folder / "t.yml").write_text(json.dumps(content))
        done = subprocess.run([promtool, "test", "rules", folder / "t.yml"], capture_output=True, text=True)
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize("n", range(len(FORMS)), ids=lambda n: f"{FORMS[n].peer} {FORMS[n].id}")
def test_a_query_of_their_dashboards_finds_something_or_says_why_not(
    n: int, missed: Callable[[str], str]
) -> None:
    said = missed(FORMS[n].peer)
    assert "expr: " in said or "SUCCESS" in said, said
    mine = [part for part in re.split(r"(?=expr: )", said) if re.search(rf"\+ {n} - 1\"", part)]
    assert mine == []


def test_every_name_they_ask_for_has_a_rule_or_a_reason() -> None:
    for form in FORMS:
        if form.name.startswith("{"):
            continue
        known = re.sub(r"^gpu_prof_\w+", "gpu_prof_<counter>", form.name)
        known = re.sub(r"^omnistat_host_\w+", "omnistat_host_<metric>", known)
        if not known.startswith("node_"):
            has = known in compat.rules(form.peer)
            assert has != (known in compat.without(form.peer)), form.id
            assert has or form.cannot or "vector(0)" in form.wrap, form.id
