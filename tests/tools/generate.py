"""Rewrite every generated file, or with ``--check`` say which ones are not what they would be.

python -m tests.tools.generate [--check]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from alerts import build as alert_build
from alerts import compat
from dashboards import build as dashboards
from exporter.catalogue import CATALOGUE, docs
from exporter.checks import check
from exporter.config import docs as config_docs
from helm import build as chart

REPO = Path(__file__).resolve().parents[2]
DEMO = Path(__file__).with_name("make_demo.py")  # writes the demo capture, or with --check compares it


def generated() -> dict[Path, str]:
    """Return each generated page with what it should hold now."""
    return {
        Path("docs/METRICS.md"): docs.markdown(CATALOGUE),
        Path("docs/CONFIG.md"): config_docs.markdown(),
        Path("docs/CHECK.md"): check.markdown(),
        **dashboards.built(),
        Path("docs/COMPATIBILITY.md"): compat.page(),
        **{Path("alerts") / path: text for path, text in alert_build.generated().items()},
        **chart.generated(),
    }


def stale() -> list[Path]:
    """Return the pages that differ from what they should hold, or are missing."""
    return [p for p, text in generated().items() if not (REPO / p).exists() or (REPO / p).read_text() != text]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything would change")
    check = parser.parse_args().check
    differing = stale()
    for path in differing:
        if check:
            print(f"{path} is not what is generated now: run make generate", file=sys.stderr)
        else:
            (REPO / path).parent.mkdir(parents=True, exist_ok=True)
            (REPO / path).write_text(generated()[path])
            print(f"wrote {path}")
    demo = subprocess.run([sys.executable, DEMO, *(["--check"] if check else [])], check=False)
    return int(demo.returncode != 0 or (check and bool(differing)))


if __name__ == "__main__":
    sys.exit(main())
