"""Golden pages of captures that are no sysfs tree: tool output, tables, processes, a library, windows.

Each goes the whole way: a backend reads it as it would read the machine, and the page is what is compared.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pagemade
import pytest
import trees
from amdsmi_made import Driver, forget
from pagemade import by_name

from exporter.backends import replay
from exporter.backends.amdsmi_socket import Cadence
from exporter.backends.smi_cli import SmiCliBackend
from exporter.backends.sysfs import SysfsBackend
from exporter.host import Root
from exporter.model import Device, Outcome, Owner, RawGroups, Reason, Series, SourceError, WindowOutcome
from exporter.vitals import SourceFacts
from exporter.windows import wire
from exporter.windows.ledger import Ledger
from exporter.windows.reducer import reduce

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
Golden = Callable[[Path, str], None]
FIRST = "0000:03:00.0"

_forget = pytest.fixture(autouse=True)(forget)


# --- the command line tools ----------------------------------------------------------------------------

# What a tool printed -> the tool. Of amd-smi's verbs those that a capture does not have say nothing.
CAPTURED: dict[str, tuple[str, str]] = {
    "cli-rocm-smi-mi100": ("rocm-smi", "hardware/cli-rocm-smi-json/mi100_rocm571.json"),
    "cli-rocm-smi-mi210": ("rocm-smi", "hardware/cli-rocm-smi-json/mi210_rocm5x_wandb.json"),
    "cli-rocm-smi-rx6700xt-4.3": ("rocm-smi", "hardware/cli-rocm-smi-json/rx6700xt_rocm430.json"),
    "cli-rocm-smi-rx6700xt-6.0": ("rocm-smi", "hardware/cli-rocm-smi-json/rx6700xt_rocm602.json"),
    "cli-rocm-smi-rx6700xt-6.1": ("rocm-smi", "hardware/cli-rocm-smi-json/rx6700xt_rocm612.json"),
    "cli-rocm-smi-vega10": ("rocm-smi", "hardware/cli-rocm-smi-json/vega-10-XT.json"),
    "cli-amd-smi-mi210-static": ("amd-smi", "hardware/cli-amd-smi/mi210-static-rocm70.json"),
    "case-16-rocmsmi-mi250x": ("rocm-smi", "cases/16-rocmsmi-mi250x/stdout.txt"),
    "case-18-amdsmi-bare-list": ("amd-smi", "cases/18-amdsmi-bare-list/metric.json"),
    "case-19-amdsmi-gpu_data-dpx": ("amd-smi", "cases/19-amdsmi-gpu_data-dpx/metric.json"),
    "case-20-amdsmi-vf-na": ("amd-smi", "cases/20-amdsmi-vf-na/stdout.txt"),
}
TEXT_ONLY = (
    "cli-amd-smi/mi3xx-dpx-metric-violation-rocm70.txt",
    "cli-amd-smi/mi3xx-dpx-monitor-excerpt-rocm70.txt",
    "cli-rocm-smi-text/mi300x-x4-sriov-rocm6-all.txt",
    "cli-rocm-smi-text/mi300x-x4-sriov-rocm6-concise.txt",
)


# Captures of ``amd-smi metric`` and ``static`` hold no address: that is what ``list`` is asked for. Made.
LISTED = [{"gpu": n, "bdf": f"0000:{5 + n:02x}:00.0", "partition_id": 0} for n in range(2)]
LISTED_DPX = [{"gpu": n, "bdf": f"0000:05:00.{n}", "partition_id": n} for n in range(2)]


def printing(folder: Path, tool: str, out: Path, err: Path | None = None) -> SmiCliBackend:
    """The backend on a tool that prints a file, whatever else than ``list`` it is asked for."""
    script = folder / tool
    said = f"cat {shlex.quote(str(err))} >&2\n" if err else ""
    listed = json.dumps(LISTED_DPX if "dpx" in str(out) else LISTED)
    if (tool == "amd-smi" and out.suffix == ".json") or "amdsmi" in str(out):
        said += f'if [ "$1" = list ]; then echo {shlex.quote(listed)}; exit; fi\n'
    script.write_text(f"#!/bin/sh\n{said}exec cat {shlex.quote(str(out))}\n")
    script.chmod(0o755)
    return SmiCliBackend(str(script), env={"PATH": "/usr/bin:/bin"}, deadline_s=20)


@pytest.mark.parametrize("name", CAPTURED)
def test_what_a_tool_printed_has_its_reviewed_page(
    samples: Path, tmp_path: Path, golden: Golden, name: str
) -> None:
    tool, file = CAPTURED[name]
    text = pagemade.of_backend("smi_cli", printing(tmp_path, tool, samples / file).poll())
    pagemade.sound(text)
    golden(GOLDEN / "tools" / f"{name}.prom", text)


@pytest.fixture
def case(samples: Path, tmp_path: Path) -> Callable[[str], str]:
    def page(name: str) -> str:
        tool, file = CAPTURED[name]
        return pagemade.of_backend("smi_cli", printing(tmp_path, tool, samples / file).poll())

    return page


def test_case_16_as_stated_on_the_page(case: Callable[[str], str]) -> None:
    text = case("case-16-rocmsmi-mi250x")
    assert sorted(by_name(text, "busy_ratio", engine="gfx").values()) == [0, 0, 0.96, 0.97]
    power = by_name(text, "power_watts")
    assert (sorted(power.values()), sum(power.values())) == ([92, 311], 403)
    assert by_name(text, "devices") == {"": 4}
    assert 'engine="GFX' not in text


def test_case_17_as_stated_is_no_data_and_no_device(samples: Path, tmp_path: Path) -> None:
    folder = samples / "cases/17-rocmsmi-no-json"
    backend = printing(tmp_path, "rocm-smi", folder / "stdout.txt", folder / "stderr.txt")
    with pytest.raises(SourceError) as caught:
        backend.poll()
    assert caught.value.reason is Reason.NO_DATA


def test_case_18_as_stated_on_the_page(case: Callable[[str], str]) -> None:
    text = case("case-18-amdsmi-bare-list")
    assert list(by_name(text, "busy_ratio", engine="gfx").values()) == [0.88, 0]
    assert next(iter(by_name(text, "power_watts").values())) == 702
    assert next(iter(by_name(text, "temperature_celsius", sensor="junction").values())) == 71
    assert next(iter(by_name(text, "energy_joules_total").values())) == 9123456.789
    assert next(iter(by_name(text, "memory_used_bytes", pool="vram").values())) == 158334976000
    assert by_name(text, "temperature_celsius", sensor="edge") == {}


def test_case_19_as_stated_on_the_page(case: Callable[[str], str]) -> None:
    text = case("case-19-amdsmi-gpu_data-dpx")
    busy = by_name(text, "busy_ratio", engine="gfx")
    assert [where.rpartition("/")[2] for where in busy] == ["0", "1"]
    assert list(busy.values()) == [0.965, 0.30]
    for once in ("power_watts", "energy_joules_total"):
        assert [where.count("/") for where in by_name(text, once)] == [0], once


def test_case_20_as_stated_on_the_page(case: Callable[[str], str]) -> None:
    text = case("case-20-amdsmi-vf-na")
    assert list(by_name(text, "busy_ratio", engine="gfx").values()) == [0.55]
    assert list(by_name(text, "memory_used_bytes", pool="vram").values()) == [70000 * 1048576]
    for absent in ("power_watts", "temperature_celsius", "energy_joules_total", "ecc_"):
        assert f"\namdgpu_{absent}" not in text


@pytest.mark.parametrize("file", TEXT_ONLY)
@pytest.mark.parametrize("tool", ["amd-smi", "rocm-smi"])
def test_output_that_is_text_is_refused_by_the_backend_and_gives_no_device(
    samples: Path, tmp_path: Path, tool: str, file: str
) -> None:
    with pytest.raises(SourceError, match="no JSON") as caught:
        printing(tmp_path, tool, samples / "hardware" / file).poll()
    assert caught.value.reason in (Reason.NO_DATA, Reason.MALFORMED)


# --- tables of the driver ------------------------------------------------------------------------------


def bare_card(root: Path, table: bytes) -> Path:
    """A card, or for an APU's table an APU, of which nothing is known but its address and its table."""
    ident, pci_class = ("15bf", "0x030000") if table[2:3] == b"\2" else ("740f", "0x038000")
    device = root / f"devices/pci0000:00/{FIRST}"
    files = {"vendor": "0x1002", "device": f"0x{ident}", "class": pci_class, "power/runtime_status": "active"}
    for name, text in files.items():
        trees.put(device / name, text)
    trees.put(device / "uevent", f"DRIVER=amdgpu\nPCI_ID=1002:{ident.upper()}\nPCI_SLOT_NAME={FIRST}")
    trees.put(device / "gpu_metrics", table)
    trees._drm(root, device, 0, 128)
    return device


TABLES = {
    **{f"table-{v}": f"gpu-metrics-synthetic/{v}.bin" for v in ("v1_0", "v1_1", "v1_4", "v1_6", "v1_8")},
    **{f"table-{v}": f"gpu-metrics-synthetic/{v}.bin" for v in ("v1_9", "v1_9-temp", "v2_0", "v2_3")},
    "table-rx6700s": "gpu-metrics-blobs/rx6700s-or-6800s-class-v1_3.bin",
    "table-invalid-header": "gpu-metrics-blobs/invalid-header.bin",
}


def test_no_captured_table_is_left_out(samples: Path) -> None:
    there = {f"{p.parent.name}/{p.name}" for p in (samples / "hardware").glob("gpu-metrics-*/*.bin")}
    assert there == set(TABLES.values())


@pytest.mark.parametrize("name", TABLES)
def test_a_table_alone_has_its_reviewed_page(
    samples: Path, tmp_path: Path, golden: Golden, name: str
) -> None:
    bare_card(tmp_path, (samples / "hardware" / TABLES[name]).read_bytes())
    text = pagemade.of_tree(tmp_path)
    pagemade.sound(text)
    golden(GOLDEN / "tables" / f"{name}.prom", text)


# Stated field -> our metric, its labels, and what one count of the field is worth.
STATED: dict[str, tuple[str, dict[str, str], float]] = {
    "average_gfx_activity": ("busy_ratio", {"engine": "gfx"}, 0.01),
    "average_umc_activity": ("busy_ratio", {"engine": "memory"}, 0.01),
    "average_socket_power": ("power_watts", {}, 1),
    "curr_socket_power": ("power_watts", {}, 1),
    "energy_accumulator": ("energy_joules_total", {}, 2**-16),
    "temperature_edge": ("temperature_celsius", {"sensor": "edge"}, 1),
    "temperature_hotspot": ("temperature_celsius", {"sensor": "junction"}, 1),
    "temperature_mem": ("temperature_celsius", {"sensor": "mem"}, 1),
    "pcie_link_width": ("pcie_link_width_lanes", {}, 1),
    "pcie_link_speed": ("pcie_link_transfers_per_second", {}, 1e8),
    "accumulation_counter": ("throttle_samples_total", {}, 1),
    "ppt_residency_acc": ("throttle_residency_total", {"reason": "power"}, 1),
    "pcie_nak_sent_count_acc": ("pcie_nacks_sent_total", {}, 1),
}


def test_what_is_stated_of_every_discrete_table_is_on_its_page(samples: Path, tmp_path: Path) -> None:
    compared = 0
    for name, file in TABLES.items():
        path = samples / "hardware" / file
        truth = json.loads((path.parent / "TRUTH.json").read_text())[path.name]
        if not str(truth.get("version", "")).startswith("1."):
            continue  # APU tables have other units, and invalid ones have nothing
        bare_card(root := tmp_path / name, path.read_bytes())
        text = pagemade.of_tree(root)
        for field, (metric, labels, scale) in STATED.items():
            stated = truth["fields"].get(field, "not in this table")
            if stated == "not in this table":
                continue
            found = list(by_name(text, metric, **labels).values())
            if stated is None:
                assert found == [], (name, field)
            else:
                assert found == pytest.approx([stated * scale]), (name, field)
                compared += 1
    assert compared > 45


def test_case_23_as_stated_on_the_page(samples: Path, tmp_path: Path, golden: Golden) -> None:
    folder = samples / "cases/23-gpu_metrics-sentinels"
    device = bare_card(tmp_path, (folder / "gpu_metrics.bin").read_bytes())
    text = pagemade.of_tree(tmp_path)
    assert by_name(text, "temperature_celsius", sensor="junction") == {FIRST: 66}
    assert by_name(text, "temperature_celsius", sensor="mem") == {FIRST: 58}
    assert by_name(text, "busy_ratio", engine="memory") == {FIRST: 0.35}
    for metric, labels in (
        ("temperature_celsius", {"sensor": "edge"}),
        ("busy_ratio", {"engine": "gfx"}),
        ("power_watts", {}),
    ):
        assert by_name(text, metric, **labels) == {}
    # Stated with the rounded resolution that tools print; the counter's own is 2^-16 J.
    assert by_name(text, "energy_joules_total") == {FIRST: pytest.approx(411993, rel=2e-5)}
    golden(GOLDEN / "tables" / "case-23-gpu_metrics-sentinels.prom", text)
    for broken in ("gpu_metrics_short.bin", "gpu_metrics_empty.bin"):
        trees.put(device / "gpu_metrics", (folder / broken).read_bytes())
        page = pagemade.of_tree(tmp_path)
        assert by_name(page, "up") == {FIRST: 1}
        assert not [k for k in pagemade.sound(page) if k[0].startswith(("amdgpu_energy", "amdgpu_temp"))]


def test_case_21_as_stated_on_the_page(samples: Path) -> None:
    text = pagemade.of_tree(samples / "cases/21-sysfs-mixed-vendors/sys")
    gpu = "0000:43:00.0"
    assert by_name(text, "up") == {gpu: 1}
    assert by_name(text, "info", drm="1", render="128") == {gpu: 1}
    assert by_name(text, "busy_ratio", engine="gfx") == {gpu: 0.37}
    assert by_name(text, "power_watts") == {gpu: 410}
    assert by_name(text, "temperature_celsius", sensor="junction") == {gpu: 66}


def test_case_22_as_stated_on_the_page(samples: Path) -> None:
    text = pagemade.of_tree(samples / "cases/22-kfd-order-reversed/sys")
    # Stated in HIP's order, which is the reverse: e3, c1, 26, 05 have 131, 130, 129, 128.
    renders = {"05": "128", "26": "129", "c1": "130", "e3": "131"}
    for gpu, (bus, render) in enumerate(renders.items()):
        assert by_name(text, "info", gpu=str(gpu), render=render) == {f"0000:{bus}:00.0": 1}


# --- processes, partitions, firmware -------------------------------------------------------------------


def test_descriptors_of_three_kernels_have_their_reviewed_page(
    samples: Path, tmp_path: Path, golden: Golden
) -> None:
    """Without the compute driver the GPU's clients are found by their open descriptors."""
    root, proc = tmp_path / "sys", trees.host(tmp_path / "proc")
    folder = samples / "hardware/fdinfo"
    for n, bus in enumerate(("04", "08")):
        device = root / f"devices/pci0000:00/0000:{bus}:00.0"
        for name, text in (("vendor", "0x1002"), ("device", "0x73bf"), ("class", "0x030000")):
            trees.put(device / name, text)
        trees.put(device / "power/runtime_status", "active")
        trees.put(device / "uevent", f"DRIVER=amdgpu\nPCI_ID=1002:73BF\nPCI_SLOT_NAME=0000:{bus}:00.0")
        trees._drm(root, device, n, 128 + n)
    for pid, (name, node) in enumerate(
        (
            ("kernel-6.1-style-pasid-first.txt", 129),
            ("kernel-6.12-style-mixed-units.txt", 128),
            ("kernel-6.13-style-compute-client.txt", 128),
        ),
        start=11,
    ):
        trees.alive(proc, pid)
        (proc / f"{pid}/fd").mkdir()
        (proc / f"{pid}/fd/5").symlink_to(f"/dev/dri/renderD{node}")
        trees.put(proc / f"{pid}/fdinfo/5", (folder / name).read_bytes())
    text = pagemade.of_tree(root, proc)
    assert by_name(text, "processes") == {"0000:04:00.0": 2, "0000:08:00.0": 1}
    stated = json.loads((folder / "TRUTH.json").read_text())
    assert stated, "the folder states what its files hold"
    assert by_name(text, "process_memory_bytes") == {
        "0000:04:00.0": 557494272 + 45633536,
        "0000:08:00.0": 2117632,
    }
    pagemade.sound(text)
    golden(GOLDEN / "processes" / "fdinfo-three-kernels.prom", text)


def test_a_partitioned_card_as_the_platform_shows_it_has_its_reviewed_page(
    samples: Path, tmp_path: Path, golden: Golden
) -> None:
    trees.mi300x(tmp_path, partitions=4)
    shutil.rmtree(tmp_path / "devices/platform")
    for n in range(1, 4):
        (tmp_path / f"class/drm/card{n}").unlink()
        (tmp_path / f"class/drm/renderD{128 + n}").unlink()
    skeleton = samples / "hardware/instinct-partition-xcp-skeleton"
    shutil.copytree(skeleton, tmp_path, symlinks=True, dirs_exist_ok=True)
    text = pagemade.of_tree(tmp_path)
    pagemade.sound(text)
    assert len(by_name(text, "busy_ratio", engine="gfx")) == 4
    assert len(by_name(text, "power_watts")) == 1
    golden(GOLDEN / "partitions" / "instinct-partition-xcp-skeleton.prom", text)


def test_a_listing_of_firmware_is_on_the_page_as_stated(
    samples: Path, tmp_path: Path, golden: Golden
) -> None:
    """Kernels that have no ``fw_version`` list the same in debugfs, to root."""
    root, debugfs = tmp_path / "sys", tmp_path / "debug"
    bare_card(root, b"")
    listing = (samples / "hardware/debugfs/amdgpu_firmware_info").read_bytes()
    trees.put(debugfs / "dri/0/amdgpu_firmware_info", listing)
    text = pagemade.of_tree(root, debugfs=Root(str(debugfs)))
    lines = dict(
        re.findall(r"^(.+) feature version: .+ version: (0x[0-9a-f]+)$", listing.decode(), re.MULTILINE)
    )
    stated = {name.lower().replace(" ", "_"): v for name, v in lines.items() if int(v, 16)}
    assert (stated["smc"], stated["mec2"], "mc" in stated) == ("0x001c2800", "0x00000160", False)
    found = {dict(k[1])["block"]: dict(k[1])["version"] for k in pagemade.sound(text) if "firmware" in k[0]}
    assert found == stated
    golden(GOLDEN / "processes" / "debugfs-firmware.prom", text)
    assert "firmware" not in pagemade.of_tree(root)


# --- the library ---------------------------------------------------------------------------------------

LIBRARY: dict[str, dict[str, Any]] = {
    "amdsmi-mi300x": {"node": "mi300x:2"},
    "amdsmi-mi300x-6.1": {"node": "mi300x:1", "release": "6.1"},
    "amdsmi-mi300x-10.0": {"node": "mi300x:1", "release": "10.0"},
    "amdsmi-mi300x-cpx": {"node": "mi300x-cpx:1"},
    "amdsmi-mi210": {"node": "mi210:1"},
    "amdsmi-mi250x": {"node": "mi250x:1"},
    "amdsmi-rx7800xt": {"node": "rx7800xt:1"},
    "amdsmi-mi300x-records": {"node": "mi300x:1", "release": "10.0", "cadence": Cadence(records_s=5)},
}


@pytest.mark.parametrize("name", LIBRARY)
def test_a_pretend_library_has_its_reviewed_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden, name: str
) -> None:
    driver = Driver(monkeypatch, tmp_path, **LIBRARY[name])
    driver.poll()
    rows = driver.poll()  # some things are not looked for at once
    text = pagemade.render(driver.devices, list(rows.items()))
    pagemade.sound(text)
    golden(GOLDEN / "library" / f"{name}.prom", text)


# --- windows, and the exporter itself ------------------------------------------------------------------


def _demo() -> tuple[Sequence[tuple[Device, RawGroups]], Path]:
    clock = trees.TestClock()
    path = Path(replay.demo_path())
    sysfs, procfs = replay.open_capture(path, clock)
    backend = SysfsBackend(sysfs, procfs, clock=clock)
    backend.poll()
    clock.at += 5  # what is counted over time needs a second look
    return backend.poll(), path


def test_the_demo_after_all_its_windows_has_its_reviewed_page(golden: Golden, monkeypatch: Any) -> None:
    pairs, capture = _demo()
    devices = [d for d, _ in pairs]
    ledger = Ledger()
    ledger.know(devices)
    for at, folder in enumerate(sorted(p for p in (capture / "windows").iterdir() if p.is_dir())):
        answer = reduce({"op": "reduce", "path": str(folder)})
        window, sources, results = wire.decode(answer)
        ledger.add(window, sources, results, WindowOutcome(answer["outcome"]), 100.0 + 5 * at)
    # What the demo's own files do not have: rows that nobody could read.
    ledger.add(window, [replace(sources[0], skipped={"malformed": 2})], (), WindowOutcome.MALFORMED, 390.0)
    slot = ledger.slot(400.0, "ready")
    assert slot.gaps == ()
    ok = Outcome("devices", True, None, "", 0.012, 1000.0, 1000.0)
    facts = replace(
        pagemade.NOTHING_KNOWN,
        at=1000.0,
        expected=8,
        sources=(SourceFacts("devices", "replay", "demo", ok, {Reason.UNSUPPORTED: 2}, {Reason.TIMEOUT: 1}),),
        children={"reader": 1, "reducer": 1},
        processes={"daemon": (1.5, 50 << 20), "reader": (0.5, 30 << 20)},
        replay=("demo", True),
        reload_at=900.0,
        generation=12,
        render_seconds=0.004,
        health={d.id: "healthy" for d in devices},
        textfiles=(("site.prom", 990.0, 0),),
        refused={"busy": 3},
    )
    monkeypatch.setattr("exporter.vitals.__version__", "0.0.0")
    monkeypatch.setattr("platform.python_version", lambda: "3.0.0")
    rows = pagemade.readings("sysfs", pairs) + list(zip(slot.series, slot.values, strict=True))
    rows.append((Series("amdgpu_exporter_series", None, ()), 1234))  # the layout alone knows it
    # Who holds a GPU, schedulers tell; the integration tests ask some.
    holder = Owner("pod", "team-a", "train-0", "trainer")
    rows.append((Series("amdgpu_workload_info", devices[0].id, holder), 1))
    rows += [
        (Series("amdgpu_phase_info", None, ("baseline",)), 1),
        (Series("amdgpu_exporter_history_up"), 1),
        (Series("amdgpu_exporter_history_windows"), 12),
        (Series("amdgpu_exporter_history_size_bytes"), 65536),
        (Series("amdgpu_exporter_history_windows_lost_total"), 0),
    ]
    rows += [
        (Series("amdgpu_exporter_owner_devices", None, ("kubelet", result)), n)
        for result, n in (("matched", 1), ("unmatched", 0))
    ]
    text = pagemade.render(devices, rows, facts, own=True)
    pagemade.sound(text)
    golden(GOLDEN / "demo" / "demo-after-its-windows.prom", text)


# --- nothing is left out -------------------------------------------------------------------------------

# A folder of captures that is no sysfs tree -> the golden folder, or the test, that shows it.
SHOWN_BY = {
    "cli-amd-smi": "tools",
    "cli-rocm-smi-json": "tools",
    "cli-rocm-smi-text": "test_output_that_is_text_is_refused_by_the_backend_and_gives_no_device",
    "debugfs": "test_a_listing_of_firmware_is_on_the_page_as_stated",
    "fdinfo": "processes",
    "gpu-metrics-blobs": "tables",
    "gpu-metrics-synthetic": "tables",
    "instinct-partition-xcp-skeleton": "partitions",
    "tools": "test_the_real_rocm_smi_says_the_same",  # what lays trees out, no capture
}


def test_every_folder_of_captures_is_shown(samples: Path) -> None:
    there = {p.name for p in (samples / "hardware").iterdir() if p.is_dir()}
    trees_shown = {p.stem for p in GOLDEN.glob("*.prom")}
    assert there - trees_shown == set(SHOWN_BY)
    for folder, by in SHOWN_BY.items():
        if by.startswith("test_"):
            source = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
            assert f"def {by}(" in source, folder
        else:
            assert any((GOLDEN / by).glob("*.prom")), folder


def test_no_page_is_left_of_a_source_that_is_gone() -> None:
    there = {str(p.relative_to(GOLDEN).with_suffix("")) for p in GOLDEN.glob("*/*.prom")}
    made = (
        {f"tools/{n}" for n in CAPTURED} | {f"tables/{n}" for n in TABLES} | {f"library/{n}" for n in LIBRARY}
    )
    made |= {"tables/case-23-gpu_metrics-sentinels", "processes/fdinfo-three-kernels"}
    made |= {"processes/debugfs-firmware"}
    made |= {"partitions/instinct-partition-xcp-skeleton", "demo/demo-after-its-windows"}
    # Suffixes of versions look like extensions.
    assert {n.rpartition("/")[2] for n in there} == {n.rpartition("/")[2] for n in made}
