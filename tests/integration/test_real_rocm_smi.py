"""The command line backend with Debian's real rocm-smi, on captured trees.

A tree is mounted over /sys in a private namespace. What both the tool and our own reader of the same tree
give must agree.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.backends.sysfs import SysfsBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.formats.sysfs_text import active_megahertz
from exporter.host import Root
from exporter.model import Gap, Series, Value

REPO = Path(__file__).resolve().parents[2]
CARDS = ("radeon-rx-vega56", "radeon-rx6900xt", "radeon-rx7900xtx", "radeon-rx9070")
# Runs inside the namespace; reads only /sys, the repository and the tool.
INSIDE = """
import json, sys
from exporter.backends.smi_cli import SmiCliBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.host import Root

[(device, groups)] = SmiCliBackend(sys.argv[1], sysfs=Root("/sys"), deadline_s=30).poll()
series, values, gaps = [], [], []
Extractor(CATALOGUE, "smi_cli").extract(device, groups, series, values, gaps)
rows = [[s.metric, ",".join(s.labels), v] for s, v in zip(series, values)]
print(json.dumps({"pci": device.id.pci, "vbios": device.vbios, "indices": device.indices, "rows": rows}))
"""
Rows = dict[tuple[str, str], Value]


def namespace(tree: Path, argv: list[str]) -> subprocess.CompletedProcess[str]:
    # Its own /dev/shm as well: the library leaves locks there, and a stale one blocks the next run.
    script = 'mount -t tmpfs none /dev/shm && mount --bind "$1" /sys && shift && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", str(tree), *argv]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def rocm_smi(tmp_path_factory: pytest.TempPathFactory) -> str:
    tool = shutil.which("rocm-smi")
    if tool is None:
        pytest.skip("rocm-smi is not installed; tests/install-parts fetches it")
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not installed")
    probe = namespace(tmp_path_factory.mktemp("probe"), ["true"])
    if probe.returncode:
        pytest.skip(f"a private mount namespace is not permitted here: {probe.stderr.strip()}")
    return tool


def by_ourselves(tree: Path) -> Rows:
    [(device, groups)] = SysfsBackend(Root(str(tree)), Root(str(tree / "no-procfs"))).poll()
    series: list[Series] = []
    values: list[Value] = []
    gaps: list[Gap] = []
    Extractor(CATALOGUE, "sysfs").extract(device, groups, series, values, gaps)
    return {(s.metric, ",".join(s.labels)): v for s, v in zip(series, values, strict=True)}


@pytest.mark.parametrize("card", CARDS)
def test_the_real_tool_and_our_own_reader_agree(
    samples: Path, tmp_path: Path, rocm_smi: str, card: str
) -> None:
    hardware, tree = samples / "hardware", tmp_path / "sys"
    layout = [sys.executable, str(hardware / "tools/layout_sys.py"), str(tree), str(hardware / card)]
    subprocess.run(layout, check=True, capture_output=True)
    done = namespace(tree, [sys.executable, "-c", INSIDE, rocm_smi])
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    ours = by_ourselves(tree)
    pci = tree / "bus/pci/devices" / theirs["pci"]
    assert theirs["vbios"] == (pci / "vbios_version").read_text().strip()
    assert (theirs["indices"]["drm"], theirs["indices"]["rocm_smi"]) == (0, 0)
    compared = set()
    for metric, labels, value in theirs["rows"]:
        if (metric, labels) not in ours:
            continue
        expected = ours[metric, labels]
        if metric == "amdgpu_clock_hertz":
            # The tool shows the active level, which an idle GPU may be far below; hwmon has the clock itself.
            mhz = active_megahertz((pci / f"pp_dpm_{labels.rstrip(',')}").read_bytes())
            assert isinstance(mhz, int)
            expected = mhz * 1e6
        near = 1.0 if metric == "amdgpu_power_watts" else 0.0  # it prints whole watts
        assert value == pytest.approx(expected, rel=1e-9, abs=near), (metric, labels)
        compared.add((metric, labels))
    wanted = {
        ("amdgpu_busy_ratio", "gfx"),
        ("amdgpu_power_watts", ""),
        ("amdgpu_temperature_celsius", "junction"),
    }
    assert wanted <= compared
    assert len(compared) >= 7
