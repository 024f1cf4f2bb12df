"""Every block of commands in the pages is run here, or says which test runs it, or why none does.

Commands run in the checkout, with folders of the system below another root, ``sudo`` and Helm without effect
beyond it, and a replaying daemon where the pages say localhost:9408.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from daemon import ROOT, Daemon, environment, serving
from kube_parts import kube_tool

PAGES = (
    "README.md",
    *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
    "helm/amdgpu-exporter/README.md",
)
WRITTEN = ("docs/INSTALL.md", "docs/MIGRATION.md", "docs/SECURITY.md", "helm/amdgpu-exporter/README.md")
MARK = re.compile(r"^<!-- (run|run each|run by: \S+|not run: .+) -->$")
Block = tuple[str, int, str, str, str]


def blocks() -> Iterator[Block]:
    """(page, line, mark, language, text) of each fenced block; the mark is empty where there is none."""
    for page in PAGES:
        lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
        start: int | None = None
        for at, line in enumerate(lines):
            if not line.startswith("```"):
                continue
            if start is None:
                start = at
                continue
            mark = MARK.match(lines[start - 1])
            text = "\n".join(lines[start + 1 : at])
            yield page, start + 1, mark[1] if mark else "", lines[start].strip("`"), text
            start = None


def label(block: Block) -> str:
    return f"{Path(block[0]).name}:{block[1]}"


@pytest.mark.parametrize("block", list(blocks()), ids=label)
def test_every_block_says_whether_it_is_run(block: Block) -> None:
    page, line, mark, _, _ = block
    assert mark, f"{page}:{line}: put <!-- run -->, <!-- run by: TEST --> or <!-- not run: WHY --> before it"
    if mark.startswith("run by: "):
        assert (ROOT / mark.removeprefix("run by: ")).exists()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with serving(tmp_path_factory.mktemp("daemon"), "--backend", "replay") as running:
        yield running


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another root; what one block installs the next one finds."""
    root = tmp_path_factory.mktemp("root")
    programs = root / "programs"
    programs.mkdir()
    shims = {
        "sudo": 'exec "$@"',
        "python": f'exec {sys.executable} "$@"',
        "amdgpu-exporter": f'exec {sys.executable} -P -m exporter "$@"',
        "helm": f'exec {root}/helm "$@" --dry-run=client',
    }
    for name, text in shims.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return root


def moved(text: str, root: Path) -> str:
    """The text with the folders of the system below another root."""
    return re.sub(r"(?<![\w.}])/(etc|usr/lib|opt|run|var/lib)/", rf"{root}/\1/", text)


# What a page leaves to its reader.
NAMED = {
    ".venv/bin/": "",
    "FOLDER": "exporter/demo/mi300x-8x/windows/0001-gpu_bound",
    "my-thresholds.yaml": "alerts/thresholds.yaml",
    "python train.py": "python -c pass",
}
RUN = [b for b in blocks() if b[2].startswith("run") and not b[2].startswith("run by")]


@pytest.mark.parametrize("block", [b for b in RUN if b[3] not in ("promql", "yaml")], ids=label)
def test_commands_of_the_pages_work(block: Block, system: Path, daemon: Daemon) -> None:
    text = block[4]
    if block[2] == "run each":
        for line in text.splitlines():
            if "promtool" in line and not shutil.which("promtool"):
                continue
            done = _shell(line, system, daemon)
            # What a verb finds is in its exit code; a fault of ours is none of these.
            assert done.returncode in (0, 1, 2), line
            assert done.stdout or "promtool" in line, line
            assert "Traceback" not in done.stderr, line
        return
    if "helm " in text and not (system / "helm").exists():
        (system / "helm").symlink_to(kube_tool("helm"))
    for tool in ("promtool", "amtool"):
        if f"{tool} " in text and not shutil.which(tool):
            pytest.skip(f"{tool} is not here; tests/install-parts fetches it")
    if re.search(r"/slurm/(pro|epi)log.d/50", text):
        _install_the_scripts(system)
    if "promtool check rules /etc/prometheus/amdgpu" in text:
        shutil.copytree(ROOT / "alerts" / "rules", system / "etc" / "prometheus" / "amdgpu" / "rules")
    done = _shell(text, system, daemon)
    assert done.returncode == 0, f"{text}\n{done.stdout[-1000:]}\n{done.stderr[-1000:]}"
    if "grep" in text:
        assert done.stdout.strip()


@pytest.mark.parametrize("block", [b for b in RUN if b[3] == "yaml"], ids=label)
def test_configurations_of_the_pages_are_accepted(block: Block, promtool: str, tmp_path: Path) -> None:
    keys = set(yaml.safe_load(block[4]))
    if keys & {"rule_files", "scrape_configs"}:
        (tmp_path / "prometheus.yml").write_text(block[4])
        argv = [promtool, "check", "config", "--syntax-only", tmp_path / "prometheus.yml"]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    else:
        assert keys == {"apiVersion", "providers"}  # Grafana's, which no tool here checks


def _shell(text: str, system: Path, daemon: Daemon) -> subprocess.CompletedProcess[str]:
    demo = ROOT / "exporter" / "demo" / "mi300x-8x"
    more = {
        "AMDGPU_EXPORTER_PATH__SYSFS": str(demo / "sys"),
        "AMDGPU_EXPORTER_PATH__PROCFS": str(demo / "proc"),
    }
    more |= {f"HELM_{what}_HOME": str(system / "helm-home") for what in ("CACHE", "CONFIG", "DATA")}
    more |= {"AMDGPU_EXPORTER_JOB_FILES": f"{system}/run/amdgpu-exporter/jobs"}
    more |= {"PATH": f"{system / 'programs'}:{os.environ['PATH']}"}
    script = moved(text, system).replace("localhost:9408", daemon.url.removeprefix("http://"))
    for named, meant in NAMED.items():
        script = script.replace(named, meant)
    return subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=ROOT,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=60,
    )


def _install_the_scripts(system: Path) -> None:
    for step in ("prolog", "epilog"):
        place = system / "etc" / "slurm" / f"{step}.d" / "50-amdgpu-exporter"
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "deploy" / "slurm" / "amdgpu-job-files", place)


@pytest.mark.parametrize("block", [b for b in RUN if b[3] == "promql"], ids=label)
def test_queries_of_the_pages_are_promql_over_what_is_served(block: Block, daemon: Daemon) -> None:
    import promql_parser

    promql_parser.parse(block[4])
    served = {line.split("{")[0].split(" ")[0] for line in daemon.get("/metrics")[1].splitlines()}
    names = set(re.findall(r"\bamdgpu_\w+", block[4]))
    assert names
    assert names <= served


@pytest.mark.parametrize("page", WRITTEN)
def test_links_of_the_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [t for t in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in t]
    assert [t for t in targets if not ((ROOT / page).parent / t).exists()] == []
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)\s]+)\)", text)) <= anchors


@pytest.mark.parametrize("page", WRITTEN)
def test_metrics_keys_and_files_named_on_the_pages_exist(page: str) -> None:
    from exporter.catalogue import CATALOGUE
    from exporter.config.keys import keys, sections

    text = (ROOT / page).read_text(encoding="utf-8")
    assert set(re.findall(r"\bamdgpu_[a-z0-9_]+\b", text)) <= {m.name for m in CATALOGUE}
    named = (
        set()
        if "helm" in page
        else {t for t in re.findall(r"`([a-z_]+\.[a-z_]+)`", text) if t.split(".")[0] in sections()}
    )
    assert named <= set(keys())
    files = set(re.findall(r"\b(?:deploy|alerts|helm|tests)/[\w./-]+\w", text))
    assert [f for f in sorted(files) if not (ROOT / f).exists()] == []
