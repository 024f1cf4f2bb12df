"""What several tests share: the sample library, real Prometheus tools, free ports, golden files."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
# Where tests/install-parts unpacks real tools; whatever the machine has installed comes first.
os.environ["PATH"] = os.pathsep.join(
    (os.environ.get("PATH", ""), str(REPO / ".cache" / "parts" / "usr" / "bin"))
)
# Children that a test starts run this checkout, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(REPO), os.environ.get("PYTHONPATH"))))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the product says now into the golden files; read the diff before you commit it",
    )


def samples_path() -> Path:
    """Where the shared samples are looked for, whether or not they are there."""
    return Path(os.environ.get("AMDGPU_EXPORTER_SAMPLES") or REPO.parent / "shared" / "samples")


@pytest.fixture(scope="session")
def samples() -> Path:
    """The library of real and hostile inputs, kept beside the checkout; read-only."""
    path = samples_path()
    if not path.is_dir():
        pytest.skip(f"no sample library at {path}; set AMDGPU_EXPORTER_SAMPLES to its folder")
    return path


@pytest.fixture(scope="session")
def repo() -> Path:
    return REPO


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[Path, str], None]:
    """Compare a text with a golden file; with ``--update-golden``, write it instead."""

    def check(path: Path, text: str) -> None:
        if update_golden:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path} is missing: run pytest --update-golden and review it"
        hint = f"{path.name} differs; if that is meant: make golden, then review the diff"
        assert text == path.read_text(encoding="utf-8"), hint

    return check


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed; tests/install-parts installs it")
    return path


@pytest.fixture(scope="session")
def promtool() -> str:
    return _tool("promtool")


@pytest.fixture(scope="session")
def node_exporter() -> str:
    return _tool("prometheus-node-exporter")


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A port that nobody listened on a moment ago."""

    def pick() -> int:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return int(s.getsockname()[1])

    return pick
