"""Pages that are generated hold what would be generated now; pages written by hand point at what exists."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.config.keys import keys
from tests.tools import generate

REPO = Path(__file__).resolve().parent.parent
README = REPO / "README.md"
WRITTEN = ("README.md", "CHANGELOG.md", "docs/ARCHITECTURE.md", "docs/ALERTS.md", "docs/SOURCES.md")
WRITTEN += ("docs/PROBE.md",)


def test_generated_pages_are_fresh() -> None:
    assert generate.stale() == [], "run make generate"


def test_a_stale_page_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "REPO", tmp_path)
    assert generate.stale() == list(generate.generated())
    for path, text in generate.generated().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert generate.stale() == []
    (tmp_path / "docs" / "CONFIG.md").write_text("old")
    assert generate.stale() == [Path("docs/CONFIG.md")]


def test_every_key_is_documented_once() -> None:
    page = (REPO / "docs" / "CONFIG.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.0-9]+)` \|", page, re.MULTILINE)
    assert rows == list(keys())


@pytest.mark.parametrize("page", WRITTEN)
def test_links_lead_somewhere(page: str) -> None:
    text = (REPO / page).read_text(encoding="utf-8")
    targets = [t for t in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in t]
    assert [t for t in targets if not ((REPO / page).parent / t).exists()] == []


@pytest.mark.parametrize("page", WRITTEN)
def test_every_make_verb_in_a_text_exists(page: str) -> None:
    verbs = set(re.findall(r"^([a-z]+):", (REPO / "Makefile").read_text(), re.MULTILINE))
    used = set(re.findall(r"`make ([a-z]+)", (REPO / page).read_text(encoding="utf-8")))
    assert used <= verbs


@pytest.mark.parametrize("page", WRITTEN)
def test_every_metric_named_in_a_text_exists(page: str) -> None:
    from exporter.catalogue import CATALOGUE

    text = (REPO / page).read_text(encoding="utf-8")
    named = set(re.findall(r"\bamdgpu_[a-z0-9_]+\b", text))
    known = {f"{m.name}{suffix}" for m in CATALOGUE for suffix in ("", "_sum", "_count", "_bucket")}
    assert sorted(named - known) == []


def test_make_help_lists_every_verb_that_people_use() -> None:
    shown = subprocess.run(["make", "help"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    verbs = ("run", "test", "check", "fmt", "lint", "types", "generate", "golden", "bench", "clean", "help")
    for verb in verbs:
        assert re.search(rf"^  make {verb} +\S", shown, re.MULTILINE), verb


def test_the_generator_says_what_is_stale() -> None:
    command = [sys.executable, "-m", "tests.tools.generate", "--check"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_commands_shown_print_what_is_shown() -> None:
    blocks = re.findall(
        r"^```console\n\$ amdgpu-exporter (.*)\n((?:.*\n)*?)```$", README.read_text(), re.MULTILINE
    )
    assert blocks
    for command, shown in blocks:
        argv = [sys.executable, "-m", "exporter", *shlex.split(command)]
        done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True)
        assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines(), command


@pytest.mark.parametrize(("gpu", "window"), [("0", "0001-gpu_bound"), ("2", "0002-launch_bound")])
def test_the_readme_shows_what_the_replayed_windows_say(gpu: str, window: str) -> None:
    text = README.read_text(encoding="utf-8")
    folder = str(REPO / "exporter" / "demo" / "mi300x-8x" / "windows" / window)
    argv = [sys.executable, "-m", "exporter", "analyze", folder, "--json"]
    [said] = json.loads(subprocess.run(argv, cwd=REPO, capture_output=True, check=True).stdout)["gpus"]
    for state, ratio in said["timeline_ratio"].items():
        [shown] = re.findall(rf'amdgpu_timeline_ratio\{{gpu="{gpu}",.*state="{state}"\}} (\S+)', text)
        assert float(shown) == pytest.approx(ratio, abs=1e-6), state
    [shown] = re.findall(rf'amdgpu_queue_delay_ratio\{{gpu="{gpu}",.*\}} (\S+)', text)
    assert float(shown) == pytest.approx(said["queue_delay_ratio"], abs=1e-6)
    assert (
        f'amdgpu_bottleneck_state{{gpu="{gpu}",pci="{said["gpu"]}",bottleneck="{said["bottleneck"]}"}} 1'
        in text
    )


def test_the_driver_library_is_no_requirement_and_the_page_on_sources_says_why() -> None:
    import tomllib

    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [d for d in project["dependencies"] if d.startswith("amdsmi")] == []
    assert project["optional-dependencies"]["amdsmi"] == ["amdsmi"]
    page = (REPO / "docs" / "SOURCES.md").read_text(encoding="utf-8")
    assert "pip install 'amdgpu-exporter[amdsmi]' 'amdsmi==" in page
    assert "docs/SOURCES.md" in README.read_text(encoding="utf-8")


def test_the_page_on_sources_names_every_backend_and_only_keys_that_exist() -> None:
    page = (REPO / "docs" / "SOURCES.md").read_text(encoding="utf-8")
    assert all(f"`{backend}`" in page for backend in ("amdsmi", "sysfs", "smi_cli", "replay"))
    known = set(keys())
    named = set(re.findall(r"`((?:amdsmi|metrics|poll|smi_cli|devices)\.[a-z_]+)`", page))
    assert named
    assert named <= known
