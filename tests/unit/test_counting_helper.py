"""The helper that counts device events: compiled against a stand-in of rocprofiler-sdk, and run.

Hand values stand in tests/fakes/rocprofiler-sdk/fake.cpp: two GPUs with eight dies each.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from exporter.model import WindowOutcome
from exporter.windows import intake, wire

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "deploy" / "device-counting"
FAKE = ROOT / "tests" / "fakes" / "rocprofiler-sdk"
NAME = "amdgpu-exporter-counting"
LIGHT = ("GRBM_COUNT", "GRBM_GUI_ACTIVE", "SQ_INSTS_VALU", "SQ_WAVES", "TCC_HIT_sum", "TCC_MISS_sum")

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="no g++ here: apt-get install g++ cmake; the helper is not compiled"
)


def compiled(*args: object) -> None:
    done = subprocess.run([*map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr, done.stderr


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ROCm would be: headers, libraries, and what cmake looks for."""
    root = tmp_path_factory.mktemp("rocm")
    shutil.copytree(FAKE / "include", root / "include")
    for name in ("rocprofiler-sdk", "hsa-runtime64"):
        (root / "lib" / "cmake" / name).mkdir(parents=True)
        shutil.copy(FAKE / "cmake" / f"{name}-config.cmake", root / "lib" / "cmake" / name)
    sdk = root / "lib" / "librocprofiler-sdk.so"
    flags = ("g++", "-std=c++17", "-fPIC", "-shared", f"-I{root / 'include'}")
    compiled(*flags, f"-Wl,-soname,{sdk.name}", "-o", sdk, FAKE / "fake.cpp")
    (root / "lib" / "libhsa-runtime64.so").symlink_to(sdk.name)
    compiled(*flags, "-o", root / "lib" / "libamdhip64.so", FAKE / "hip.cpp")
    return root


@pytest.fixture(scope="module")
def helper(prefix: Path) -> Path:
    """Built as the image builds it where cmake is, else by the compiler alone."""
    out = prefix / "out"
    if shutil.which("cmake"):
        script = ROOT / "deploy" / "image" / "build-helper"
        build = {**os.environ, "ROCM_PATH": str(prefix), "BUILD": str(prefix / "build")}
        done = subprocess.run(["sh", script, ROOT, out], env=build, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        (out / "bin").mkdir(parents=True)
        libs = (f"-L{prefix / 'lib'}", "-lrocprofiler-sdk", "-lhsa-runtime64", "-ldl")
        flags = ("-std=c++17", "-Wall", "-Wextra", f"-I{prefix / 'include'}")
        compiled("g++", *flags, "-o", out / "bin" / NAME, SOURCE / "counting.cpp", *libs)
    return out / "bin" / NAME


class Helper:
    """The program with the libraries beside it."""

    def __init__(self, path: Path, prefix: Path) -> None:
        self.path, self.lib = path, prefix / "lib"

    def run(self, *args: str, mode: str = "ok", timeout: float = 20) -> subprocess.CompletedProcess[str]:
        env = {"FAKE_SDK": mode, "LD_LIBRARY_PATH": str(self.lib)}
        return subprocess.run([self.path, *args], env=env, capture_output=True, text=True, timeout=timeout)

    def count(self, *args: str, mode: str = "ok") -> tuple[int, dict[str, Any], str]:
        done = self.run(*(args or LIGHT), mode=mode)
        assert done.stdout.count("\n") == 1
        answer: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, answer, done.stderr


@pytest.fixture(scope="module")
def counting(helper: Path, prefix: Path) -> Helper:
    return Helper(helper, prefix)


def test_both_gpus_are_counted_and_dies_are_added_up(counting: Helper) -> None:
    code, answer, said = counting.count()
    assert (code, said, answer["errors"]) == (0, "", [])
    assert (answer["protocol"], answer["tool"], answer["sdk"]) == (1, NAME, "1.0.0")
    assert (answer["asked_seconds"], answer["counters_asked"]) == (0.01, list(LIGHT))
    one, two = answer["devices"]
    assert one["counters"] == {
        "GRBM_COUNT": 160_000_000,
        "GRBM_GUI_ACTIVE": 80_000_000,
        "SQ_INSTS_VALU": 1_520_000_000,
        "SQ_WAVES": 8_000,
        "TCC_HIT_sum": 850,
        "TCC_MISS_sum": 150,
    }
    assert (two["counters"]["SQ_INSTS_VALU"], two["counters"]["TCC_HIT_sum"]) == (760_000_000, 550)
    assert (one["instances"]["GRBM_COUNT"], one["instances"]["TCC_HIT_sum"]) == (8, 1)
    assert [d["status"] for d in (one, two)] == ["ok", "ok"]
    assert [d["lock"] for d in (one, two)] == [None, None]
    assert {k: one[k] for k in ("pci", "node", "gpu_id", "render_minor", "device_id", "gfx")} == {
        "pci": "0000:05:00.0",
        "node": 4,
        "gpu_id": 40001,
        "render_minor": 128,
        "device_id": 0x74A1,
        "gfx": "gfx942",
    }
    assert (one["compute_units"], one["xccs"]) == (304, 8)
    assert all(0.01 <= d["seconds"] < 5 and 0 <= d["read_seconds"] <= d["seconds"] for d in (one, two))


@pytest.mark.parametrize("name", ["0000:26:00.0", "5"])
def test_a_gpu_is_chosen_by_address_or_by_node(counting: Helper, name: str) -> None:
    code, answer, _ = counting.count("--gpu", name, "--milliseconds", "1.5", "SQ_WAVES")
    assert (code, answer["asked_seconds"]) == (0, 0.0015)
    assert [d["pci"] for d in answer["devices"]] == ["0000:26:00.0"]
    assert answer["devices"][0]["counters"] == {"SQ_WAVES": 4_000}


def test_a_gpu_that_is_not_there_is_named(counting: Helper) -> None:
    code, answer, said = counting.count("--gpu", "0000:77:00.0", "SQ_WAVES")
    assert (code, answer["devices"], answer["errors"]) == (1, [], ["no GPU 0000:77:00.0"])
    assert said == f"{NAME}: no GPU 0000:77:00.0\n"


def test_an_unknown_counter_is_named_and_the_others_are_counted(counting: Helper) -> None:
    code, answer, _ = counting.count("SQ_WAVES", "L2CacheHit")
    one = answer["devices"][0]
    assert (code, one["counters"], one["unknown"]) == (0, {"SQ_WAVES": 8_000}, ["L2CacheHit"])
    code, answer, _ = counting.count("L2CacheHit")
    assert code == 1
    assert {d["status"] for d in answer["devices"]} == {"unsupported"}
    assert answer["devices"][0]["counters"] == {}


@pytest.mark.parametrize(
    ("mode", "status", "words"),
    [
        ("denied", "denied", "starting to count: CAP_PERFMON is not set"),
        ("too_many", "too_many_counters", "grouping the counters: more than the hardware"),
        ("error", "failed", "reading the counters: General error"),
        ("silent", "failed", "no value came for any counter"),
        ("no_hsa", "failed", "hsa_init: "),
    ],
)
def test_what_the_library_refuses_has_its_status_and_no_value(
    counting: Helper, mode: str, status: str, words: str
) -> None:
    code, answer, said = counting.count(mode=mode)
    assert code == 1
    for device in answer["devices"]:
        assert (device["status"], device["counters"], device["seconds"]) == (status, {}, None)
        assert device["error"].startswith(words)
    assert words in said


def test_a_gpu_whose_counters_another_holds_gives_no_value(counting: Helper) -> None:
    code, answer, said = counting.count(mode="lock_busy")
    one, two = answer["devices"]
    assert (code, one["status"], one["lock"], one["counters"]["TCC_HIT_sum"]) == (0, "ok", None, 850)
    assert (two["status"], two["lock"], two["counters"]) == ("busy", "busy", {})
    assert "has a profiler attached to it" in said  # the library's own words reach the log, too


@pytest.mark.parametrize(("mode", "lock"), [("lock_denied", "denied"), ("lock_old", "unsupported")])
def test_counting_without_the_drivers_lock_is_told(counting: Helper, mode: str, lock: str) -> None:
    code, answer, _ = counting.count(mode=mode)
    assert code == 0
    for device in answer["devices"]:
        assert (device["status"], device["lock"]) == ("ok", lock)
        assert (device["counters"]["SQ_WAVES"], device["counters"]["GRBM_GUI_ACTIVE"]) == (0, 80_000_000)


def test_a_value_that_is_no_number_is_null(counting: Helper) -> None:
    _, answer, _ = counting.count(mode="nan")
    assert answer["devices"][0]["counters"]["SQ_WAVES"] is None
    assert answer["devices"][0]["counters"]["TCC_HIT_sum"] == 850


def test_more_records_than_expected_are_all_added_up(counting: Helper) -> None:
    _, answer, _ = counting.count(mode="many")
    assert answer["devices"][0]["counters"]["GRBM_COUNT"] == 160_000_000
    assert answer["devices"][0]["instances"]["GRBM_COUNT"] == 8 * 4096


def test_where_only_hip_loads_hsa_it_is_asked(counting: Helper) -> None:
    code, answer, _ = counting.count(mode="needs_hip")
    assert (code, answer["devices"][1]["counters"]["TCC_MISS_sum"]) == (0, 450)


def test_a_reading_that_hangs_prints_nothing_and_ends_when_told(counting: Helper) -> None:
    env = {"FAKE_SDK": "hang", "LD_LIBRARY_PATH": str(counting.lib)}
    with subprocess.Popen([counting.path, "SQ_WAVES"], env=env, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(0.3)
        assert process.poll() is None
        process.terminate()
        out, _ = process.communicate(timeout=10)
    assert (out, process.returncode) == ("", -15)


def test_a_library_that_aborts_leaves_no_core_file(counting: Helper, tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    done = subprocess.run(
        [counting.path, "SQ_WAVES"],
        env={"FAKE_SDK": "abort", "LD_LIBRARY_PATH": str(counting.lib)},
        cwd=tmp_path,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
    )
    assert (done.returncode, done.stdout) == (-6, b"")
    assert b"exceeds the capabilities of the hardware" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "no counter is named"),
        (("--milliseconds", "0", "X"), "--milliseconds 0 is no time"),
        (("--milliseconds", "1e9", "X"), "is no time up to 10000"),
        (("--milliseconds", "5s", "X"), "--milliseconds 5s is no time"),
        (("--gpu",), "--gpu needs a value"),
        (("--pid", "5"), "unknown option --pid"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_code_2(
    counting: Helper, args: tuple[str, ...], words: str
) -> None:
    done = counting.run(*args)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


def test_it_says_its_version_and_what_it_takes(counting: Helper) -> None:
    assert counting.run("--version").stdout == f"{NAME} version: 1.0 protocol: 1\n"
    assert "example:" in counting.run("--help").stdout


def test_what_it_prints_is_what_the_exporter_reads(counting: Helper, tmp_path: Path) -> None:
    (tmp_path / "counters.json").write_text(counting.run(*LIGHT, "L2CacheHit").stdout)
    analysis = intake.load([tmp_path])
    assert analysis.sources[0].skipped == {"unknown_counter": 2}
    one, two = analysis.results
    # 20 million cycles of each of eight dies, 304 compute units: 6.08 billion slots
    assert (one.gpu, one.compute_density_ratio, one.compute_density_active_ratio) == (
        "0000:05:00.0",
        0.25,
        0.5,
    )
    assert (two.gpu, two.compute_density_ratio, two.compute_density_active_ratio) == (
        "0000:26:00.0",
        0.125,
        0.25,
    )
    assert (one.l2_hit_ratio, two.l2_hit_ratio) == (0.85, 0.55)


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [("denied", WindowOutcome.DENIED), ("zeros", WindowOutcome.OK), ("many", WindowOutcome.OK)],
)
def test_what_it_refuses_is_no_value_of_the_exporter(
    counting: Helper, tmp_path: Path, mode: str, outcome: WindowOutcome
) -> None:
    (tmp_path / "counters.json").write_text(counting.run(*LIGHT, mode=mode).stdout)
    analysis = intake.load([tmp_path])
    assert wire.outcome_of(analysis.sources, analysis.results) is outcome
    if mode != "many":
        assert all(r.valu_instructions is None for r in analysis.results)
    assert {r.l2_hit_ratio for r in analysis.results} == (set() if mode == "denied" else {0.85, 0.55})
