"""How a window of device counters is asked for, of our helper and of AMD's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.model import Device, DeviceId, SourceError, WindowOutcome
from exporter.profilers import find
from exporter.profilers.plan import Plan, Refusal, Request, Tool
from exporter.profilers.toolbox import Toolbox

A, B = DeviceId("0000:03:00.0"), DeviceId("0000:26:00.0")
DEVICES = (
    Device(A, 0, gfx="gfx942", kfd_gpu_id=11, indices={"kfd": 4, "drm": 1}),
    Device(B, 1, gfx="gfx942", kfd_gpu_id=22, indices={"kfd": 5, "drm": 2}),
)
COUNTERS = ("GRBM_COUNT", "TCC_HIT_sum", "TCC_MISS_sum")
OWN = Tool("amdgpu-exporter-counting", "/usr/local/bin/amdgpu-exporter-counting", (1, 0))
VENDOR = Tool("rocpctl", "/home/amd/bin/rocpctl", None, frozenset({"-d", "-p", "-h", "--help"}))


def plan(tools: tuple[Tool, ...], **more: object) -> Plan | Refusal:
    asked = {"devices": DEVICES, "counters": COUNTERS, "every_gpu": True} | more
    return Toolbox().plan(Request("counters", 0.01, **asked), tools, "/scratch")  # type: ignore[arg-type]


def planned(tools: tuple[Tool, ...], **more: object) -> Plan:
    made = plan(tools, **more)
    assert isinstance(made, Plan), made
    return made


def refused(tools: tuple[Tool, ...], **more: object) -> Refusal:
    made = plan(tools, **more)
    assert isinstance(made, Refusal), made
    assert made.outcome is WindowOutcome.BLOCKED
    return made


def test_our_helper_is_told_the_gpus_by_the_drivers_numbers() -> None:
    made = planned((VENDOR, OWN))
    assert made.argv == (OWN.path, "--gpu", "4", "--gpu", "5", "--milliseconds", "10", *COUNTERS)
    assert (made.tool, made.version, made.stdout, made.ends_itself) == (
        "device_counting",
        "1.0",
        "counters.json",
        True,
    )
    assert (made.seconds, made.grace_s) == (0.01, 10)
    assert dict(made.env) == {}


def test_a_gpu_without_a_number_is_told_by_its_address_unless_it_is_one_of_several_parts() -> None:
    made = planned((OWN,), devices=(Device(A, 0),))
    assert made.argv[1:3] == ("--gpu", A.pci)
    assert refused((OWN,), devices=(Device(DeviceId(A.pci, 1), 0),)).reason == "no_gpu"
    assert refused((OWN,), devices=()).reason == "no_gpu"


def test_the_vendors_helper_is_asked_where_ours_is_not() -> None:
    made = planned((VENDOR,))
    assert made.argv == (VENDOR.path, "-d", "10000", *COUNTERS)
    assert made.stdout == "counters.json"


def test_the_vendors_helper_is_not_asked_for_some_of_the_gpus() -> None:
    assert refused((VENDOR,), every_gpu=False).reason == "not_every_gpu"


def test_an_old_one_that_counts_one_by_one_is_refused() -> None:
    old = Tool("rocpctl", "/home/amd/bin/rocpctl")
    assert refused((old,)).reason == "too_old"


def test_without_a_helper_the_way_out_is_told() -> None:
    assert "deploy/device-counting builds it" in refused(()).detail
    assert refused((Tool("rocprofv3", "/opt/rocm/bin/rocprofv3"),)).reason == "no_profiler"
    assert refused((OWN,), counters=()).reason == "no_counters"


@pytest.mark.parametrize("gfx", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100"])
def test_sets_fit_one_pass(gfx: str) -> None:
    most = {"SQ": 8, "TCC": 4, "GRBM": 2, "GL2C": 4}
    for deep in (False, True):
        for names in Toolbox().sets(gfx, deep):
            blocks = [name.split("_")[0] for name in names]
            assert all(blocks.count(block) <= limit for block, limit in most.items()), names
            assert "GRBM_COUNT" in names  # what everything is divided by, of the same pass
    light = Toolbox().sets(gfx, False)
    assert len(light) == 1
    assert {"TCC_HIT_sum", "TCC_MISS_sum"} <= set(light[0]) or {"GL2C_HIT", "GL2C_MISS"} <= set(light[0])


def test_a_chip_that_is_not_known_has_no_set() -> None:
    assert (Toolbox().sets("gfx1036", False), Toolbox().sets("", True)) == ((), ())


# --- what is found on a machine -------------------------------------------------------------------------


def script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def path_of(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}:{os.defpath}"}


def test_helpers_are_found_and_asked_what_they_are_the_vendors_only_where_ours_is_not(tmp_path: Path) -> None:
    usage = 'echo "Usage: rocpctl [OPTIONS]\n  -d <duration>\n  -p <delay>"'
    vendor = script(tmp_path, "rocpctl", f"touch {tmp_path}/started; {usage}")
    own = script(tmp_path, OWN.name, 'echo "amdgpu-exporter-counting version: 1.0 protocol: 1"')
    [found] = find.tools("counters", path_of(tmp_path))
    assert (found.name, found.path, found.version) == (OWN.name, str(own), (1, 0))
    assert not (tmp_path / "started").exists()  # it loads HIP even to print its help
    own.unlink()
    [found] = find.tools("counters", path_of(tmp_path))
    assert (found.name, found.path, found.version) == ("rocpctl", str(vendor), None)
    assert {"-d", "-p"} <= found.options
    assert find.tools("counters", path_of(tmp_path / "none")) == ()


def test_other_modes_start_no_helper(tmp_path: Path) -> None:
    script(tmp_path, OWN.name, f"touch {tmp_path}/started")
    assert find.tools("trace", {"PATH": str(tmp_path)}) == ()
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo 'librocprofiler-sdk.so.1: cannot open' >&2; exit 127", "librocprofiler-sdk.so.1: cannot open"),
        ("echo 'amdgpu-exporter-counting version: 2.0 protocol: 2'", "speaks another protocol than 1"),
        ("kill -6 $$", "--version ended"),
    ],
)
def test_a_helper_that_does_not_work_is_told(tmp_path: Path, text: str, words: str) -> None:
    script(tmp_path, OWN.name, text)
    with pytest.raises(SourceError, match=words):
        find.tools("counters", path_of(tmp_path))
    # Where the other works, it does.
    script(tmp_path, "rocpctl", "echo '  -d <duration>'")
    assert [t.name for t in find.tools("counters", path_of(tmp_path))] == ["rocpctl"]
