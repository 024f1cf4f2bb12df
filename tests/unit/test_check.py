"""Every finding of ``check``: what triggers it, and that it is quiet on a machine where all is well."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trees
from checkmade import healthy, machine, one

from exporter.checks import check
from exporter.checks.finding import Severity
from exporter.checks.machine import Tool, Trial, find_tools
from exporter.config import Config, DevicesSection, TextfileSection, WindowsSection
from exporter.host import Root
from exporter.model import Device, DeviceId, Reason

WARNING, BROKEN, INFO, OK = Severity.WARNING, Severity.BROKEN, Severity.INFO, Severity.OK
GPU = "devices/pci0000:00/0000:05:00.0"
ROCPROF = {
    "rocprofv3": Tool("/opt/rocm/bin/rocprofv3", "1.0.0"),
    "amd-smi": Tool("/opt/rocm/bin/amd-smi", "26.0.2"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return healthy(tmp_path / "node")


def _with_amdsmi(root: Path) -> None:
    trees.put(root / "opt/rocm/share/amd_smi/amdsmi/__init__.py", "")
    trees.put(root / "opt/rocm/share/amd_smi/amdsmi/_version.py", '__version__ = "26.0.2"')
    trees.put(root / "opt/rocm/lib/libamd_smi.so.26.0.70002", "")
    (root / "opt/rocm/lib/libamd_smi.so").symlink_to("libamd_smi.so.26.0.70002")


def test_nothing_is_found_on_a_machine_where_all_is_well(root: Path) -> None:
    _with_amdsmi(root)
    looked = machine(root, tools=ROCPROF)
    amdsmi = replace(looked.trials[0], name="amdsmi")
    findings = check.run(replace(looked, trials=(amdsmi, *looked.trials)))
    assert [(f.id, f.seen) for f in findings if f.severity is not OK] == []
    assert check.verdict(findings) == "ok"
    assert check.exit_code(findings) == 0
    assert all(f.mend is None for f in findings)


Change = Callable[[Path], dict[str, object]]


def wrote(rel: str, text: str, **changes: object) -> Change:
    def do(root: Path) -> dict[str, object]:
        trees.put(root / rel, text)
        return changes

    return do


def gone(rel: str) -> Change:
    def do(root: Path) -> dict[str, object]:
        (root / rel).rename(root / "elsewhere")
        return {}

    return do


def told(**changes: object) -> Change:
    return lambda _root: changes


def _loaded(half: str, width: str) -> Change:
    def do(root: Path) -> dict[str, object]:
        trees.put(root / GPU / "current_link_width", width)
        trees.put(root / GPU / "gpu_busy_percent", half)
        table = {**trees.METRICS, "pcie_link_width": [int(width)], "average_gfx_activity": [int(half)]}
        trees.put(root / GPU / "gpu_metrics", trees.blob((1, 8), table, (trees.SLOT,)))
        return {}

    return do


def _trial(name: str, count: int, ok: bool = True, **missing: int) -> Trial:
    devices = tuple(Device(DeviceId(f"0000:{n:02x}:00.0"), n, uuid="1") for n in range(count))
    return Trial(name, ok, "" if ok else "hangs", devices, 10, {Reason(k): v for k, v in missing.items()})


def _dump(root: Path) -> dict[str, object]:
    (root / "class/devcoredump/devcd1").mkdir(parents=True)
    return {}


def _driver(name: str | None) -> Change:
    def do(root: Path) -> dict[str, object]:
        link = root / GPU / "driver"
        link.unlink()
        if name:
            link.symlink_to(f"../../../bus/pci/drivers/{name}")
        return {}

    return do


def _bad_modules(root: Path) -> dict[str, object]:
    _with_amdsmi(root)
    trees.put(root / "opt/rocm/share/amd_smi/amdsmi/_version.py", '__version__ = "24.7.1"')
    return {}


def _configured(**sections: object) -> Change:
    def do(root: Path) -> dict[str, object]:
        return {"settings": replace(machine(root).settings, config=Config(**sections))}  # type: ignore[arg-type]

    return do


def _settings(**changes: object) -> Change:
    return lambda root: {"settings": replace(machine(root).settings, **changes)}  # type: ignore[arg-type]


def _file(path: str, **more: object) -> Change:
    """A file stands where a folder should be: not even root can make one there."""

    def do(root: Path) -> dict[str, object]:
        trees.put(root / path, "")
        return {"settings": replace(machine(root).settings, state=root / path / "state", **more)}  # type: ignore[arg-type]

    return do


def _silent(root: Path) -> dict[str, object]:
    looked = machine(root)
    return {"readings": dict(list(looked.readings.items())[1:])}


TRIGGERS: list[tuple[str, Change, Severity, str]] = [
    ("gpu.without_driver", _driver(None), WARNING, "0000:05:00.0 (no driver)"),
    ("gpu.without_driver", _driver("vfio-pci"), INFO, "vfio-pci"),
    ("gpu.expected", _configured(devices=DevicesSection(expected=8)), WARNING, "2 seen, 8 expected"),
    ("gpu.expected", _settings(remembered=3), WARNING, "2 seen, 3 expected"),
    (
        "gpu.identity",
        told(trials=(Trial("sysfs", True, devices=(Device(DeviceId("0000:05:00.0"), 0),)),)),
        INFO,
        "0000:05:00.0",
    ),
    ("kfd.topology", gone("class/kfd"), WARNING, "no KFD topology"),
    ("driver.dumps", _dump, WARNING, "devcd1"),
    ("gpu.asleep", wrote(f"{GPU}/power/runtime_status", "suspended"), INFO, "0000:05:00.0"),
    ("gpu.silent", _silent, WARNING, "0000:05:00.0"),
    ("gpu.pcie_link", _loaded("90", "8"), WARNING, "under load: 0000:05:00.0 x8 of x16"),
    ("gpu.pcie_link", _loaded("10", "8"), INFO, "without load: 0000:05:00.0 x8 of x16"),
    (
        "gpu.performance_level",
        wrote(f"{GPU}/power_dpm_force_performance_level", "low"),
        WARNING,
        "low clocks",
    ),
    ("gpu.performance_level", wrote(f"{GPU}/power_dpm_force_performance_level", "manual"), INFO, "by hand"),
    ("gpu.partitions", wrote(f"{GPU}/current_memory_partition", "NPS4"), INFO, "different modes"),
    (
        "gpu.errors",
        wrote(f"{GPU}/ras/umc_err_count", "ue: 2\nce: 0"),
        WARNING,
        "0000:05:00.0 2 uncorrectable",
    ),
    ("gpu.errors", wrote(f"{GPU}/ras/umc_err_count", "ue: 0\nce: 0\nde: 3"), WARNING, "3 deferred"),
    ("gpu.bad_pages", wrote(f"{GPU}/ras/gpu_vram_bad_pages", "0x1 : 0x1000 : P"), WARNING, "1 pending"),
    ("gpu.temperature", wrote(f"{GPU}/hwmon/hwmon2/temp3_crit", "40000"), WARNING, "mem 4"),
    ("rocm.version", gone("opt/rocm"), INFO, "no ROCm"),
    ("rocm.version", wrote("opt/rocm-6.4.1/.info/version", "6.4.1-83"), INFO, "several"),
    ("rocm.amdsmi", told(), INFO, "no amdsmi module"),
    ("rocm.amdsmi", _bad_modules, WARNING, "24.7.1"),
    ("tools.smi", told(), INFO, "neither"),
    (
        "tools.smi",
        told(tools={"amd-smi": Tool("/a/amd-smi", None, "timeout after 3.0 s")}),
        WARNING,
        "/a/amd-smi",
    ),
    ("tools.profilers", told(), INFO, "no profiler"),
    (
        "tools.profilers",
        told(tools={"rocprof": Tool("/a/rocprof", None, "exit 1")}),
        WARNING,
        "/a/rocprof: exit 1",
    ),
    ("windows.modes", _configured(windows=WindowsSection(preset="off")), INFO, "no window"),
    (
        "windows.modes",
        _configured(windows=WindowsSection(preset="counters")),
        WARNING,
        "never ran on hardware",
    ),
    (
        "windows.modes",
        _configured(windows=WindowsSection(preset="counters", device_counting=True)),
        WARNING,
        "there is no amdgpu-exporter-counting",
    ),
    (
        "windows.modes",
        _configured(windows=WindowsSection(preset="canary", command=("true",))),
        WARNING,
        "there is no rocprofv3",
    ),
    ("sources.chosen", told(trials=(_trial("sysfs", 0, ok=False),)), BROKEN, "sysfs: hangs"),
    ("sources.chosen", told(trials=()), BROKEN, "no source"),
    (
        "sources.chosen",
        told(trials=(_trial("amdsmi", 0, ok=False), _trial("sysfs", 2))),
        WARNING,
        "gets nothing from it",
    ),
    ("sources.denied", told(trials=(_trial("sysfs", 2, denied=4),)), WARNING, "4 by sysfs"),
    ("sources.odd", told(trials=(_trial("sysfs", 2, malformed=1, implausible=2),)), WARNING, "3 of sysfs"),
    ("sources.agree", told(trials=(_trial("amdsmi", 1), _trial("sysfs", 2))), WARNING, "amdsmi 1, sysfs 2"),
    ("rights.kfd", told(access=lambda p: None), WARNING, "not there"),
    ("rights.kfd", told(access=lambda p: False), WARNING, "operator"),
    ("rights.render", told(access=lambda p: None), WARNING, "renderD128"),
    ("rights.render", told(access=lambda p: not p.endswith("129")), WARNING, "renderD129"),
    ("rights.perfmon", wrote("proc/self/status", "CapEff:\t0000000000000000"), WARNING, "is 4"),
    ("rights.ptrace", wrote("proc/self/status", "CapEff:\t0000000000000000"), INFO, "operator"),
    ("rights.yama", wrote("proc/sys/kernel/yama/ptrace_scope", "3"), INFO, "until the next boot"),
    (
        "rights.confinement",
        wrote("proc/self/attr/current", "cri-containerd.apparmor.d (enforce)"),
        INFO,
        "cri-con",
    ),
    ("rights.confinement", wrote("fs/selinux/enforce", "1"), INFO, "SELinux"),
    (
        "host.huge_pages",
        wrote("kernel/mm/transparent_hugepage/enabled", "always madvise [never]"),
        INFO,
        "off",
    ),
    (
        "host.cpu_governor",
        wrote("devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
        INFO,
        "powersave",
    ),
    ("host.other_monitors", wrote("proc/77/comm", "rdcd"), INFO, "Data Center"),
    ("host.other_monitors", told(environ={"HSA_TOOLS_LIB": "libx.so"}), INFO, "libx.so"),
    ("config.understood", _settings(problem="a.yaml:3: listen: nonsense"), BROKEN, "a.yaml:3"),
    ("config.understood", _settings(warnings=("unknown key pol",)), WARNING, "unknown key pol"),
    ("state.writable", _file("blocked"), WARNING, "cannot be made"),
    ("spool.writable", _file("blocked"), WARNING, "spool"),
    (
        "textfile.readable",
        _configured(textfile=TextfileSection(folder="/nowhere/at/all")),
        WARNING,
        "/nowhere",
    ),
    ("daemon.answers", told(daemon=None), INFO, "no daemon"),
    ("daemon.answers", told(daemon="<html>"), WARNING, "something else"),
]


@pytest.mark.parametrize(
    ("ident", "change", "severity", "words"), TRIGGERS, ids=[f"{t[0]}-{n}" for n, t in enumerate(TRIGGERS)]
)
def test_a_fault_is_found_and_its_mending_named(
    root: Path, ident: str, change: Change, severity: Severity, words: str
) -> None:
    changes = change(root)
    found = one(ident, machine(root, **changes))
    assert (found.severity, words in found.seen) == (severity, True), found
    assert found.mend


def test_a_machine_without_gpus_is_broken_and_says_why(tmp_path: Path) -> None:
    looked = machine(tmp_path)
    assert one("driver.loaded", looked).mend == "sudo modprobe amdgpu"
    assert one("driver.loaded", looked).severity is BROKEN
    assert one("gpu.found", looked).severity is BROKEN
    assert check.exit_code(check.run(looked)) == 2
    trees.put(tmp_path / "module/amdgpu/version", "6.14.5")
    assert one("driver.loaded", looked).severity is OK
    assert "6.14.5" in one("driver.loaded", looked).seen
    assert one("gpu.found", looked).severity is BROKEN


def test_a_gpu_on_pci_that_the_driver_does_not_show_is_named(tmp_path: Path) -> None:
    trees.put(tmp_path / "module/amdgpu/initstate", "live")
    trees.put(tmp_path / "bus/pci/devices/0000:05:00.0/vendor", "0x1002")
    trees.put(tmp_path / "bus/pci/devices/0000:05:00.0/class", "0x120000")
    trees.put(tmp_path / "bus/pci/devices/0000:06:00.0/vendor", "0x1002")
    trees.put(tmp_path / "bus/pci/devices/0000:06:00.0/class", "0x040300")  # the sound of a graphics card
    found = one("gpu.found", machine(tmp_path))
    assert "0000:05:00.0" in found.seen
    assert "0000:06:00.0" not in found.seen
    assert "dmesg" in str(found.mend)


def test_a_source_that_shows_one_partition_of_each_gpu_is_found_out(tmp_path: Path) -> None:
    trees.mi300x(tmp_path, sockets=2, partitions=4)
    looked = machine(tmp_path)
    assert one("kfd.logical", looked).severity is OK
    first = tuple(d for d in looked.devices if d.id.partition == 0)
    found = one("kfd.logical", replace(looked, trials=(replace(looked.trials[0], devices=first),)))
    assert found.severity is WARNING
    assert found.seen == "the kernel lists 8 logical GPUs, the sources 2"


def test_nodes_of_other_containers_are_told_from_missing_ones(
    root: Path,
) -> None:
    node = "class/kfd/kfd/topology/nodes/2/properties"
    watched = trees.WatchedRoot(root)
    watched.errors[node] = 1
    found = one("kfd.hidden", machine(root, sysfs=watched))
    assert (found.severity, found.seen[:6]) == (WARNING, "1 of 3")


def test_an_integrated_gpu_left_out_is_shown_with_the_way_to_have_it(samples: Path) -> None:
    found = one("gpu.excluded", machine(samples / "cases" / "21-sysfs-mixed-vendors" / "sys", live=False))
    assert found.severity is INFO
    assert "0000:c4:00.0" in found.seen
    assert "INTEGRATED=show" in str(found.mend)


def test_a_table_newer_than_the_tool_is_only_a_fault_of_the_tool(root: Path) -> None:
    trees.put(root / GPU / "gpu_metrics", trees.attributes([(1, 2, [5])], revision=9))
    old = {"amd-smi": Tool("/opt/rocm/bin/amd-smi", "26.2.0")}
    assert one("gpu.table_version", machine(root, tools=old)).severity is INFO
    assert one("gpu.table_version", machine(root, tools={"amd-smi": Tool("/x", "26.3.1")})).severity is OK
    assert one("gpu.table_version", machine(root)).severity is OK


def test_files_of_gpus_that_hang_are_not_touched(root: Path) -> None:
    watched = trees.WatchedRoot(root)
    looked = machine(root, tools={"amd-smi": Tool("/x", "26.0.2")})
    hung = replace(looked.trials[0], ok=False, detail="no answer within 8 s; killed")
    amdsmi = replace(looked.trials[0], name="amdsmi")
    check.run(replace(looked, sysfs=watched, trials=(amdsmi, replace(hung, devices=()))))
    ends = ("gpu_metrics", "gpu_vram_bad_pages", "power_dpm_force_performance_level", "_input")
    assert [r for r in watched.reads if r.endswith(ends)] == []
    found = one("gpu.found", replace(looked, trials=(replace(hung, devices=()),)))
    assert (found.severity, "no source can read them: 0000:05:00.0" in found.seen) == (BROKEN, True)


def test_bad_pages_for_root_only_are_no_fault_of_the_gpu(root: Path) -> None:
    watched = trees.WatchedRoot(root)
    watched.errors["gpu_vram_bad_pages"] = 13
    found = one("gpu.bad_pages", machine(root, sysfs=watched, readings={}))
    assert (found.severity, found.mend) == (INFO, "sudo amdgpu-exporter check")


def test_every_check_has_a_trigger_here() -> None:
    elsewhere = {
        "driver.loaded",
        "kfd.logical",
        "gpu.found",
        "kfd.hidden",
        "gpu.excluded",
        "gpu.table_version",
        "kfd.lost",
    }
    assert {c.id for c in check.CHECKS} == {t[0] for t in TRIGGERS} | elsewhere
    worst: dict[str, Severity] = {}
    order = [OK, INFO, WARNING, BROKEN]
    for ident, _, severity, _ in TRIGGERS:
        worst[ident] = max(severity, worst.get(ident, OK), key=order.index)
    stated = {c.id: c.worst for c in check.CHECKS if c.id not in elsewhere}
    assert worst == stated, "the documented worst is what can be had"


def test_ids_are_unique_and_every_mending_is_one_line() -> None:
    ids = [c.id for c in check.CHECKS]
    assert len(set(ids)) == len(ids)
    assert [c.id for c in check.CHECKS if "\n" in c.mend or not c.mend or not c.means.endswith(".")] == []


def test_the_json_has_every_id_always_and_in_the_same_order(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for looked in (machine(root), machine(tmp_path / "empty"), machine(root, live=False)):
        told_ = check.as_json(looked, check.run(looked))
        json.dumps(told_, allow_nan=False)
        assert [f["id"] for f in told_["findings"]] == [c.id for c in check.CHECKS]
        assert set(told_) == {"version", "verdict", "exporter", "sysfs", "live", "counts", "findings"}
        assert sum(told_["counts"].values()) == len(check.CHECKS)
        for f in told_["findings"]:
            assert set(f) == {"id", "severity", "seen", "mend"}


def test_the_documentation_names_every_id() -> None:
    page = check.markdown()
    assert [c.id for c in check.CHECKS if f"| `{c.id}` |" not in page] == []


def test_a_copy_says_nothing_of_the_machine_it_came_from(root: Path) -> None:
    looked = machine(root, live=False, procfs=None)
    for ident in (
        "rights.kfd",
        "rights.render",
        "rights.perfmon",
        "rocm.version",
        "tools.smi",
        "rights.ptrace",
    ):
        found = one(ident, looked)
        assert (found.severity, found.mend) == (INFO, None), ident
        assert "copy" in found.seen


def test_every_captured_tree_gets_the_right_verdict(samples: Path) -> None:
    for name in trees.sample_names(samples):
        looked = machine(trees.laid_out(samples, name), live=False)
        findings = check.run(looked)
        graver = {f.id: f.seen for f in findings if f.severity in (WARNING, BROKEN)}
        assert graver == {}, (name, graver)


def test_the_hostile_trees_get_the_right_verdict(samples: Path) -> None:
    """One GPU and a sleeping integrated one beside a BMC; four GPUs in reverse order; no socket at all."""
    expected = {
        "cases/21-sysfs-mixed-vendors/sys": ("ok", {"gpu.excluded", "gpu.asleep", "kfd.topology"}),
        "cases/22-kfd-order-reversed/sys": ("ok", {"gpu.asleep"}),  # KFD alone tells no state
        "hardware/instinct-partition-xcp-skeleton": ("broken", {"kfd.topology", "gpu.asleep"}),
    }
    for tree, (verdict, notes) in expected.items():
        findings = check.run(machine(samples / tree, live=False))
        assert check.verdict(findings) == verdict, tree
        about_gpus = {"gpu.excluded", "gpu.asleep", "kfd.topology"}
        assert {f.id for f in findings if f.severity is not OK and f.id in about_gpus} == notes, tree


def test_a_tree_of_kfd_alone_is_not_said_to_be_well_where_nobody_looked(samples: Path) -> None:
    looked = machine(trees.laid_out(samples, "instinct-mi300x-8x-cpx-kfd"), live=False)
    unknown = (
        "gpu.without_driver",
        "driver.dumps",
        "gpu.asleep",
        "gpu.pcie_link",
        "gpu.performance_level",
        "gpu.errors",
        "gpu.temperature",
        "daemon.answers",
    )
    for ident in unknown:
        found = one(ident, looked)
        assert (found.severity, found.mend) == (INFO, None), ident
    assert "partitioned" in one("gpu.partitions", looked).seen
    assert "no GPU is partitioned" not in one("gpu.partitions", looked).seen


def test_a_gpu_that_only_kfd_lists_is_named_with_what_holds_it(root: Path) -> None:
    assert one("kfd.lost", machine(root)).severity is OK
    (root / "class/drm/card1").unlink()
    found = one("kfd.lost", machine(root))
    assert (found.severity, found.mend is not None and "fuser" in found.mend) == (WARNING, True)
    assert "0000:25:00.0" in found.seen
    assert "0000:05:00.0" not in found.seen
    shutil.rmtree(root / "class/drm")
    assert one("kfd.lost", machine(root)).severity is OK


def _script(path: Path, body: str) -> None:
    trees.put(path, f"#!/bin/sh\n{body}")
    os.chmod(path, 0o755)


def test_tools_are_asked_for_their_version_and_nothing_else(tmp_path: Path) -> None:
    said = tmp_path / "said"
    _script(tmp_path / "usr/bin/rocprofv3", f'echo "$@" >> {said}; echo "rocprofv3 version: 1.1.0"')
    _script(tmp_path / "opt/rocm/bin/rocprofv3", "exit 1")
    _script(tmp_path / "opt/rocm-7.0.2/bin/amd-smi", 'echo "AMDSMI Tool: 26.0.2+abc | ROCm version: 7.0.2"')
    _script(tmp_path / "usr/bin/rocprof", "echo oops >&2; exit 3")
    (tmp_path / "usr/bin/rocm-smi").write_text("not executable")
    found = find_tools({"PATH": "/usr/bin:relative"}, Root(str(tmp_path)))
    assert {n: t.version for n, t in found.items()} == {
        "rocprofv3": "1.1.0",
        "amd-smi": "26.0.2",
        "rocprof": None,
    }
    assert found["rocprof"].problem == "tells no version (exit 3)"
    assert said.read_text() == "--version\n"


def test_a_tool_that_hangs_is_ended_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.checks.machine._VERSION_S", 0.2)
    _script(tmp_path / "usr/bin/rocprof", "trap '' TERM; sleep 60")
    [tool] = find_tools({"PATH": "/usr/bin"}, Root(str(tmp_path))).values()
    assert tool.version is None
    assert tool.problem is not None
    assert tool.problem.startswith("timeout")
