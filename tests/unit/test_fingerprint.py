"""What a machine is: the same for the same machine, null where unknown, with a reason where there is one."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from exporter import fingerprint
from exporter.checks import surroundings
from exporter.fingerprint import Host
from exporter.host import Root
from exporter.model import Device, DeviceId, Series

A, B = DeviceId("0000:05:00.0"), DeviceId("0000:25:00.0")
TWO = [
    Device(
        d,
        n,
        model="Instinct MI300X",
        gfx="gfx942",
        driver="6.12.12",
        vbios="113-M3000100-102",
        compute_partition="SPX",
        memory_partition="NPS1",
    )
    for n, d in enumerate((A, B))
]
READINGS = {
    Series("amdgpu_firmware_info", A, ("smc", "85.115.0")): 1,
    Series("amdgpu_firmware_info", B, ("smc", "85.110.0")): 1,
    Series("amdgpu_firmware_info", B, ("mec", "171")): 1,
    Series("amdgpu_link_info", A, (B.pci, "xgmi", "1", "15")): 1,
    Series("amdgpu_link_info", B, (A.pci, "xgmi", "1", "15")): 1,
    Series("amdgpu_link_info", A, ("cpu0", "pcie", "1", "20")): 1,
    Series("amdgpu_power_limit_watts", A): 750.0,
    Series("amdgpu_power_limit_watts", B): 650.0,
    Series("amdgpu_busy_ratio", A, ("gfx",)): 0.5,
}


def test_what_is_known_stands_there_and_nothing_that_is_measured() -> None:
    found = fingerprint.of(TWO, READINGS, Host("n1", "6.8.0", "7.0.0", {"version": "2.8.0", "hip": "7.0"}))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [g["power_limit_watts"] for g in found["gpus"]] == [750.0, 650.0]
    assert found["gpus"][1]["firmware"] == {"mec": "171", "smc": "85.110.0"}
    assert found["driver"] == "6.12.12"
    assert "0.5" not in json.dumps(found)
    words = dict(fingerprint.lines(found))
    assert words["GPUs"] == "2 x Instinct MI300X (gfx942)"
    assert words["Links"] == "1 pairs by xgmi of 1 hops, weight 15"
    assert words["Firmware"] == "mec 171, smc 85.110.0/85.115.0"
    assert words["Power limit"] == "650 W, 750 W"
    assert words["PyTorch"] == "2.8.0 (HIP 7.0)"
    assert words["Power profile"] == "unknown"


def test_the_order_in_which_readings_come_changes_nothing() -> None:
    turned = dict(reversed(READINGS.items()))
    assert fingerprint.of(TWO, READINGS, Host()) == fingerprint.of(TWO, turned, Host())


def test_without_a_gpu_everything_is_unknown_and_the_reason_is_told() -> None:
    found = fingerprint.of([], {}, Host(missing={"pytorch": "the command is no Python"}))
    assert found["driver"] is None
    words = dict(fingerprint.lines(found))
    assert words["GPUs"] == "unknown"
    assert words["PyTorch"] == "unknown (the command is no Python)"


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (" 0 BOOTUP_DEFAULT*:\n 1 3D_FULL_SCREEN :\n 5        COMPUTE :\n", "BOOTUP_DEFAULT"),
        ("NUM        MODE_NAME     SCLK_UP_HYST\n  0 BOOTUP_DEFAULT:  -\n  5   COMPUTE *:  0\n", "COMPUTE"),
        ("  1   3D_FULL_SCREEN*\n", "3D_FULL_SCREEN"),
        ("", None),
        ("nothing marked\n", None),
    ],
)
def test_the_power_profile_is_the_marked_one(tmp_path: Path, table: str, name: str | None) -> None:
    folder = tmp_path / "class/drm/card0/device"
    folder.mkdir(parents=True)
    (folder / "pp_power_profile_mode").write_text(table)
    device = Device(A, 0, indices={"drm": 0})
    host = surroundings.look(Root(str(tmp_path)), [device], ["true"], os.environ)
    assert host.profiles == ({A.pci: name} if name else {})
    assert ("power profile" in host.missing) == (name is None)


def script(path: Path, first: str) -> Path:
    path.write_text(f"{first}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_python_of_a_job_is_found_by_its_name_or_its_first_line(tmp_path: Path) -> None:
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    (tmp_path / "python3").symlink_to(sys.executable)
    python = str(tmp_path / "python3")
    assert surroundings.python_of(["python3", "train.py"], env) == python
    for n, first in enumerate((f"#!{python}", "#!/usr/bin/env python3", "#!/usr/bin/env -S python3 -u")):
        script(tmp_path / f"job{n}", first)
        assert surroundings.python_of([f"job{n}"], env) == python
    script(tmp_path / "shell", "#!/bin/sh")
    assert surroundings.python_of(["shell"], env) is None
    assert surroundings.python_of(["not-there"], env) is None
    assert surroundings.python_of(["/bin/ls"], env) is None


def test_pytorch_is_told_of_without_being_imported(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('it was imported')\n")
    (package / "version.py").write_text(
        "from typing import Optional\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
        "__version__ = '2.8.0+rocm7.0'\ndebug = False\ncuda: Optional[str] = None\n"
        "hip: Optional[str] = '7.0.51831'\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found, _ = surroundings.pytorch([sys.executable], env)
    assert found == {"version": "2.8.0+rocm7.0", "hip": "7.0.51831"}


def test_where_there_is_no_pytorch_it_says_so(tmp_path: Path) -> None:
    fake = script(tmp_path / "python3", "#!/bin/sh\nexit 3")
    assert surroundings.pytorch([str(fake)], os.environ) == (None, f"{fake} does not tell")
    found, why = surroundings.pytorch(["/bin/ls"], os.environ)
    assert (found, why) == (None, "the command is no Python")
