"""What of the chart is generated: its schema and page, its copies of rules, dashboards and health plugin."""

from __future__ import annotations

from pathlib import Path

import yaml

from dashboards import build as dashboards
from helm import readme, rules, schema

REPO = Path(__file__).resolve().parent.parent
CHART = Path("helm/amdgpu-exporter")
PLUGIN = Path("deploy/node-problem-detector")


def generated() -> dict[Path, str]:
    """Each generated file of the chart with what it should hold."""
    values = (REPO / CHART / "values.yaml").read_text(encoding="utf-8")
    plugin = [p for p in sorted((REPO / PLUGIN).iterdir()) if p.suffix in (".json", ".sh")]
    return {
        CHART / "values.schema.json": schema.text(yaml.safe_load(values)),
        CHART / "README.md": readme.page(values),
        **{CHART / "files" / path: text for path, text in rules.files().items()},
        **{CHART / "files" / path: text for path, text in dashboards.built().items()},
        **{CHART / "files" / path.name: path.read_text(encoding="utf-8") for path in plugin},
    }
