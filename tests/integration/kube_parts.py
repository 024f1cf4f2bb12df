"""Where tests/install-kube-parts puts Helm and the checkers of manifests; a test without them is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = ROOT / ".cache" / "parts" / "kube"


def kube_tool(name: str) -> str:
    """The path of a program."""
    for place in (PARTS / "bin" / name, PARTS / "venv" / "bin" / name):
        if place.exists():
            return str(place)
    pytest.skip(f"{name} is not here; tests/install-kube-parts fetches it")


def kube_python() -> str:
    """A Python that has the checkers as libraries."""
    return kube_tool("python")
