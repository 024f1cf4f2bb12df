"""Build the dashboards: python -m dashboards.build writes dashboards/*.json, --check compares them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dashboards.boards import comparison, fleet, health, history, job, kernels, node
from dashboards.grafana import Json, board
from dashboards.panels import Board

BOARDS: tuple[Board, ...] = (
    fleet.BOARD,
    node.BOARD,
    kernels.BOARD,
    history.BOARD,
    comparison.BOARD,
    job.BOARD,
    health.BOARD,
)
HERE = Path(__file__).resolve().parent


def built() -> dict[Path, str]:
    """Every dashboard by its file, relative to the repository."""
    return {Path("dashboards") / f"{b.uid}.json": text(board(b, BOARDS)) for b in BOARDS}


def text(dashboard: Json) -> str:
    return json.dumps(dashboard, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if anything would change")
    check = parser.parse_args().check
    stale = 0
    for path, now in built().items():
        file = HERE.parent / path
        if not file.exists() or file.read_text(encoding="utf-8") != now:
            stale += 1
            sys.stdout.write(f"{path} {'is not what is built now' if check else 'written'}\n")
            if not check:
                file.write_text(now, encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
