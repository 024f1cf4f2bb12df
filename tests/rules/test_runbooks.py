"""Every alert leads somewhere: a runbook with commands, routes that know its name, clear wording."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import build
from alerts.settings import read
from exporter.catalogue import CATALOGUE
from exporter.model import Bottleneck
from tests.conftest import REPO

RUNBOOKS = REPO / "alerts" / "runbooks"
PAGES = sorted(RUNBOOKS.glob("*.md"))
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((REPO / "alerts" / "rules" / "alerts.yml").read_text())["groups"]
    return {r["alert"]: r for g in groups for r in g["rules"]}


def sections(page: Path) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(page: Path) -> list[str]:
    return [
        line
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
        for line in block.splitlines()
    ]


def test_there_is_a_page_for_every_alert_and_no_other() -> None:
    pages = {p.stem for p in PAGES if not p.stem.startswith("bottleneck-")}
    assert pages == set(alerts())


def test_there_is_a_page_for_every_bottleneck() -> None:
    pages = {p.stem.removeprefix("bottleneck-") for p in PAGES if p.stem.startswith("bottleneck-")}
    assert pages == {*Bottleneck} - {"unknown"} | {"cache"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_has_its_four_parts_each_with_a_command(page: Path) -> None:
    found = sections(page)
    assert list(found) == SECTIONS
    for title, body in found.items():
        assert re.search(r"```sh\n\S.*?\n```", body, re.DOTALL), f"{title} has no command"
        assert len(re.sub(r"```.*?```", "", body, flags=re.DOTALL).split()) >= 3, f"{title} says nothing"
    assert not re.search(r"TODO|FIXME|TBD|XXX", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_its_commands_and_links_exist(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)]+\.md)\)", text):
        assert (RUNBOOKS / target).exists(), target
    script = "\n".join(commands(page))
    assert subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True).stderr == ""
    named = {m for line in commands(page) for m in re.findall(r"(?<![:\w])amdgpu_[a-z0-9_]{6,}\b", line)}
    known = {m.name for m in CATALOGUE}
    for name in named:
        assert any(k.startswith(name) for k in known), name


def test_every_verb_a_page_or_an_alert_uses_exists() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "exporter", "--help"], cwd=REPO, capture_output=True, text=True, check=True
    ).stdout
    texts = [line for p in PAGES for line in commands(p)]
    texts += [a["annotations"]["command"] for a in alerts().values()]
    verbs = {v for t in texts for v in re.findall(r"(?<![-\w/])amdgpu-exporter ([a-z]+)\b", t)}
    assert verbs >= {"devices", "analyze", "serve", "record"}
    for verb in verbs:
        assert re.search(rf"^\W*{verb}\b", shown, re.MULTILINE), verb


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_where_what_and_what_to_do(name: str) -> None:
    rule = alerts()[name]
    assert re.fullmatch(r"AmdGpu[A-Z]\w+", name)
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert re.fullmatch(r"\d+(ms|s|m|h|d)", rule["for"])
    told = rule["annotations"]
    assert "{{" not in told["summary"], "a summary is static, so that alerts can be grouped by it"
    assert told["summary"].endswith(".")
    assert "$value" in told["value"]
    assert told["command"] in told["description"]
    about = rule["labels"]["about"]
    wanted = {
        "gpu": ("instance", "gpu", "pci"),
        "node": ("instance",),
        "job": ("job_id", "pod"),
        "fleet": (),
    }[about]
    for label in wanted:
        assert f"$labels.{label}" in told["description"], label
    _links_lead_somewhere(name, about, told)


def _links_lead_somewhere(name: str, about: str, told: dict[str, str]) -> None:
    """To the exporter that speaks, or, where none does, to any other."""
    answers = about in ("gpu", "node") and name not in ("AmdGpuExporterDown", "AmdGpuTargetGone")
    host = "http://{{ $labels.instance }}" if answers else "http://localhost:9408"
    assert told["runbook_url"] == f"{host}/runbooks/{name}"
    assert told.get("dashboard_url") == (f"{host}/" if answers else None)
    for url in told["bottleneck_url"].split(" http") if "bottleneck_url" in told else ():
        assert (RUNBOOKS / f"{url.rsplit('/', 1)[1]}.md").exists(), url


def test_links_lead_to_grafana_and_to_published_pages_where_they_are_named() -> None:
    common = {"dashboard_base": "https://g", "runbook_base": "https://r/", "runbook_suffix": ".md"}
    groups = build.alert_file(read(changes={"common": common}))["groups"]
    told = {r["alert"]: r["annotations"] for g in groups for r in g["rules"]}
    one = told["AmdGpuQueueDelayHigh"]
    assert one["runbook_url"] == "https://r/AmdGpuQueueDelayHigh.md"
    assert (
        one["dashboard_url"]
        == "https://g/d/amdgpu-node?var-node={{ $labels.instance }}&var-gpu={{ $labels.gpu }}"
    )
    assert one["bottleneck_url"] == "https://r/bottleneck-launch_bound.md https://r/bottleneck-contended.md"
    assert told["AmdGpuExporterAbsent"]["dashboard_url"] == "https://g/d/amdgpu-exporter-health"


def test_only_what_a_person_must_do_now_pages() -> None:
    pages = {n for n, r in alerts().items() if r["labels"]["severity"] == "critical"}
    assert pages == {"AmdGpuMissing", "AmdGpuEccUncorrectable", "AmdGpuExporterAbsent"}


def test_routes_name_alerts_that_exist() -> None:
    text = (REPO / "alerts" / "alertmanager.yml").read_text()
    named = set(re.findall(r"AmdGpu[A-Z]\w+", text))
    assert named
    assert named <= set(alerts())
    routes = yaml.safe_load(text)
    receivers = {r["name"] for r in routes["receivers"]}
    used = {routes["route"]["receiver"], *(r["receiver"] for r in routes["route"]["routes"])}
    assert used == receivers
