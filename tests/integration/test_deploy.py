"""What is shipped under deploy/ is accepted by the tool it is for, and the scripts do what they say."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from daemon import COMMAND, ROOT, Daemon, environment, free_port, serving, until, verb

from exporter import config
from exporter.config.keys import keys
from exporter.host import Root
from exporter.owners import jobs

DEPLOY = ROOT / "deploy"
JOB_FILES = DEPLOY / "slurm" / "amdgpu-job-files"
PLUGIN = DEPLOY / "node-problem-detector" / "amdgpu-health.sh"


def tool(name: str, newer: bool = False) -> str:
    """A program, or a skip that says what installs it."""
    place = ROOT / ".cache" / "parts" / "newer" / "usr" / "bin" / name
    found = str(place) if newer and place.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not here; make test fetches it where it can")
    return found


def run(*argv: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=60, **more)


# systemd


@pytest.fixture
def units(tmp_path: Path) -> Callable[[bool], Path]:
    """The unit in a folder of its own, its program one that is here; with the drop-in or without."""

    def make(profiling: bool) -> Path:
        folder = tmp_path / ("profiling" if profiling else "metrics")
        (folder / "amdgpu-exporter.service.d").mkdir(parents=True)
        text = (DEPLOY / "systemd" / "amdgpu-exporter.service").read_text()
        assert "/opt/amdgpu-exporter/bin/amdgpu-exporter serve" in text
        text = text.replace("/opt/amdgpu-exporter/bin/amdgpu-exporter serve", "/bin/true serve")
        (folder / "amdgpu-exporter.service").write_text(text)
        if profiling:
            shutil.copy(DEPLOY / "systemd" / "profiling.conf", folder / "amdgpu-exporter.service.d")
        return folder / "amdgpu-exporter.service"

    return make


@pytest.mark.parametrize("profiling", [False, True], ids=["metrics", "with the drop-in"])
def test_systemd_has_nothing_to_say_about_the_unit(profiling: bool, units: Callable[[bool], Path]) -> None:
    done = run(tool("systemd-analyze"), "verify", "--man=no", units(profiling))
    # An unknown key is printed and the exit code stays 0.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_check_of_the_unit_would_find_a_misspelt_key(units: Callable[[bool], Path]) -> None:
    unit = units(False)
    unit.write_text(unit.read_text().replace("ProtectHome=", "ProtctHome="))
    done = run(tool("systemd-analyze"), "verify", "--man=no", unit)
    assert "ProtctHome" in done.stderr


@pytest.mark.parametrize(
    ("profiling", "most"), [(False, 20), (True, 30)], ids=["metrics", "with the drop-in"]
)
def test_the_unit_exposes_little(profiling: bool, most: int, units: Callable[[bool], Path]) -> None:
    argv = ("security", "--offline=true", f"--threshold={most}", "--no-pager", units(profiling))
    done = run(tool("systemd-analyze"), *argv)
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 0, last
    [exposure] = re.findall(r"Overall exposure level for amdgpu-exporter.service: (\d+\.\d)", last)
    page = (ROOT / "docs" / "INSTALL.md").read_text()
    told = re.findall(r"`systemd-analyze security`: (\d\.\d)\).*?\((\d\.\d)\)", page, re.DOTALL)
    # Another version of systemd weighs a little differently.
    assert float(exposure) == pytest.approx(float(told[0][profiling]), abs=0.4)


def test_only_the_drop_in_opens_devices_and_keeps_capabilities(units: Callable[[bool], Path]) -> None:
    shut = []
    for profiling in (False, True):
        argv = ("security", "--offline=true", "--no-pager", "--json=short", units(profiling))
        table = {
            row["json_field"]: row["set"] for row in json.loads(run(tool("systemd-analyze"), *argv).stdout)
        }
        bounds = "CapabilityBoundingSet_CAP_"
        shut.append(
            [table[f] for f in ("PrivateDevices", f"{bounds}DAC_FOWNER_IPC_OWNER", f"{bounds}SYS_PTRACE")]
        )
    assert shut == [[True, True, True], [False, False, True]]


def test_users_and_folders_are_made_as_the_unit_expects(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may make users below another root")
    (tmp_path / "etc").mkdir()
    done = run(
        tool("systemd-sysusers"), f"--root={tmp_path}", DEPLOY / "systemd" / "amdgpu-exporter.sysusers"
    )
    assert done.returncode == 0, done.stderr
    user = next(u for u in (tmp_path / "etc" / "passwd").read_text().splitlines() if "amdgpu" in u).split(":")
    tmpfiles = DEPLOY / "systemd" / "amdgpu-exporter.tmpfiles"
    done = run(tool("systemd-tmpfiles"), f"--root={tmp_path}", "--create", tmpfiles)
    assert done.returncode == 0, done.stderr
    spool = (tmp_path / "var" / "lib" / "amdgpu-exporter" / "spool").stat()
    assert (spool.st_mode & 0o7777, spool.st_uid) == (0o1733, int(user[2]))
    assert (tmp_path / "run" / "amdgpu-exporter" / "jobs").stat().st_uid == 0


def test_the_unit_and_its_configuration_mean_the_same_places() -> None:
    loaded = config.load(DEPLOY / "systemd" / "config.yaml", {}, {})
    assert loaded.warnings == ()
    assert loaded.config.address == ("", 9408)
    assert (loaded.config.windows.preset, loaded.config.backend) == ("off", "sysfs")
    tmpfiles = (DEPLOY / "systemd" / "amdgpu-exporter.tmpfiles").read_text()
    assert f"d {loaded.config.owners.job_files} " in tmpfiles
    assert str(loaded.config.owners.job_files) in JOB_FILES.read_text()
    text = (DEPLOY / "systemd" / "profiling.conf").read_text()
    variables = dict(re.findall(r"^Environment=(AMDGPU_EXPORTER_\w+)=(\S+)$", text, re.MULTILINE))
    known = {key.env for key in keys().values()}
    assert set(variables) <= known
    assert config.load(None, variables, {}).config.windows.preset == "spool"


def allowed_calls() -> frozenset[str]:
    """The system calls that the unit's filter lets through, groups taken apart."""

    def expand(name: str) -> set[str]:
        lines = run(tool("systemd-analyze"), "syscall-filter", name).stdout.splitlines()[1:]
        found: set[str] = set()
        for line in (line.strip() for line in lines):
            if line and not line.startswith("#"):
                found |= expand(line) if line.startswith("@") else {line}
        return found

    allowed: set[str] = set()
    text = (DEPLOY / "systemd" / "amdgpu-exporter.service").read_text()
    for words in re.findall(r"^SystemCallFilter=(.*)$", text, re.MULTILINE):
        groups = set().union(*(expand(w) for w in words.lstrip("~").split()))
        allowed = allowed - groups if words.startswith("~") else allowed | groups
    return frozenset(allowed)


WITHOUT_CODE_IN_DATA = """
import ctypes, os, sys
# As MemoryDenyWriteExecute=yes; a kernel that does not know it says so and goes on.
sys.stderr.write(f"denied={ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0}\\n")
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_the_daemon_lives_with_what_the_unit_takes_from_it(tmp_path: Path) -> None:
    """Its system calls are those of the filter, and it needs no memory that is written and executed."""
    if run(tool("strace"), "-f", "-o", tmp_path / "try", "true").returncode:
        pytest.skip("strace may not trace here")
    port = free_port()
    sysfs = ROOT / "exporter" / "demo" / "mi300x-8x" / "sys"
    serve = [
        *COMMAND,
        "serve",
        "--backend",
        "sysfs",
        "--path.sysfs",
        str(sysfs),
        "--listen",
        f"127.0.0.1:{port}",
    ]
    traced = [tool("strace"), "-f", "-qq", "-c", "-U", "name", "-o", str(tmp_path / "calls")]
    argv = [*traced, sys.executable, "-c", WITHOUT_CODE_IN_DATA, *serve]
    env = environment(STATE_DIRECTORY=str(tmp_path / "state"))
    with (tmp_path / "log").open("wb") as err, subprocess.Popen(argv, stderr=err, env=env) as process:
        daemon = Daemon(process, port, tmp_path / "log")
        try:
            until(lambda: _answers(daemon), 30, "the traced daemon being ready")
            assert daemon.get("/metrics")[1].count("\namdgpu_up{") == 8
            assert daemon.get("/")[0] == daemon.post("/-/reload")[0] == 200
            [traced_one] = psutil.Process(process.pid).children()
            traced_one.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()
    table = re.findall(r"^\s*([a-z]\w*)$", (tmp_path / "calls").read_text(), re.MULTILINE)
    used = set(table) - {"syscall", "total"}
    assert len(used) > 40
    # SQLite gives its files the owner of their folder where it is root, which the unit's user is not.
    as_root = {"fchown"} if os.geteuid() == 0 else set()
    assert used - allowed_calls() - as_root == set()


def _answers(daemon: Daemon) -> bool:
    with contextlib.suppress(OSError):
        return daemon.get("/-/ready")[0] == 200
    return False


# Slurm


def job_files(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    return run("bash", JOB_FILES, *args, env={**kept, "AMDGPU_EXPORTER_JOB_FILES": str(folder), **env})


def written(folder: Path) -> dict[str, list[str]]:
    """What the exporter reads."""
    found, problems = jobs.read(Root(str(folder)))
    assert problems == {}
    return found


def test_a_prolog_writes_a_file_per_gpu_and_the_epilog_takes_the_job_out(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    slurm = {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_ID": "912", "SLURM_JOB_GPUS": "0,2-4"}
    done = job_files(folder, **slurm)
    assert (done.returncode, done.stderr) == (0, "")
    assert written(folder) == {gpu: ["912"] for gpu in "0234"}
    assert (folder / "0").read_text() == "912\n"
    done = job_files(folder, **{**slurm, "SLURM_SCRIPT_CONTEXT": "epilog_slurmd", "SLURM_JOB_GPUS": ""})
    assert (done.returncode, done.stderr) == (0, "")
    assert written(folder) == {}


def test_jobs_that_share_a_gpu_all_stand_in_its_file_and_none_takes_another_out(tmp_path: Path) -> None:
    several = [
        subprocess.Popen(
            ["bash", JOB_FILES, "prolog", f"{900 + n}_1", "1,1.3,0000:C6:00.0"],
            env={**os.environ, "AMDGPU_EXPORTER_JOB_FILES": str(tmp_path)},
        )
        for n in range(8)
    ]
    assert [p.wait(30) for p in several] == [0] * 8
    everyone = [f"{900 + n}_1" for n in range(8)]
    found = written(tmp_path)
    assert set(found) == {"1", "1.3", "0000:C6:00.0"}
    assert all(sorted(ids) == everyone for ids in found.values())
    job_files(tmp_path, "prolog", "903_1", "1")  # twice is once
    job_files(tmp_path, "epilog", "900_1")
    assert sorted(written(tmp_path)["1"]) == everyone[1:]


@pytest.mark.parametrize(
    ("job", "gpus", "said"),
    [
        ("912\n913", "0", "no job id that can be written"),
        ('912"}', "0", "no job id that can be written"),
        ("../../etc/passwd", "0", "no job id that can be written"),
        ("", "0", "no job id that can be written"),
        ("x" * 65, "0", "no job id that can be written"),
        ("912", "../0", "is no GPU number"),
        ("912", "0;touch x", "is no GPU number"),
        ("912", "$(touch x)", "is no GPU number"),
        ("912", "0-99999999", "is no GPU number"),
        ("912", "0-9999", "is no GPU number"),
        ("912", "*", "is no GPU number"),
    ],
)
def test_what_comes_in_can_neither_name_a_file_nor_fail_the_job(
    job: str, gpus: str, said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "jobs"
    done = job_files(folder, "prolog", job, gpus, SLURM_JOB_ID="", SLURM_JOB_GPUS="")
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert said in line
    assert [p for p in tmp_path.rglob("*") if p not in (folder, folder / ".lock")] == []


def test_the_phase_of_a_node_is_named_after_its_job_where_that_is_asked_for(tmp_path: Path) -> None:
    program = tmp_path / "amdgpu-exporter"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/marks\n')
    program.chmod(0o755)
    defaults = tmp_path / "defaults"
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "AMDGPU_EXPORTER_DEFAULTS": str(defaults)}
    assert job_files(tmp_path / "jobs", "prolog", "912", "0", **env).returncode == 0
    assert not (tmp_path / "marks").exists()
    defaults.write_text("AMDGPU_EXPORTER_MARKS=yes\n")
    for step in ("prolog", "epilog"):
        assert job_files(tmp_path / "jobs", step, "912", "0", **env).returncode == 0
    assert (tmp_path / "marks").read_text().splitlines() == ["mark job-912", "mark idle"]
    program.write_text("#!/bin/sh\nexit 1\n")  # a daemon that is not there
    done = job_files(tmp_path / "jobs", "prolog", "913", "0", **env)
    assert (done.returncode, "could not be named job-913" in done.stderr) == (0, True)


def test_a_mark_of_the_prolog_is_one_that_the_daemon_takes(tmp_path: Path) -> None:
    with serving(tmp_path, "--backend", "replay") as daemon:
        done = verb("mark", "job-912_1.batch", AMDGPU_EXPORTER_LISTEN=daemon.url.removeprefix("http://"))
        assert done.returncode == 0, done.stderr


def test_a_folder_that_cannot_be_written_does_not_fail_the_job(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = job_files(tmp_path / "file" / "jobs", "prolog", "912", "0")
    assert (done.returncode, "cannot make" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    "script",
    [*sorted((ROOT / "tests").glob("install-*")), JOB_FILES, PLUGIN, DEPLOY / "image" / "build-helper"],
    ids=lambda p: p.name,
)
def test_scripts_are_clean(script: Path) -> None:
    assert run("bash", "-n", script).returncode == 0
    done = run(tool("shellcheck"), script)
    assert done.returncode == 0, done.stdout


def test_the_helper_is_built_where_its_source_and_the_library_are_and_left_out_elsewhere(
    tmp_path: Path,
) -> None:
    script = DEPLOY / "image" / "build-helper"
    source, dest, rocm, programs = (tmp_path / name for name in ("source", "dest", "rocm", "programs"))
    programs.mkdir()
    (programs / "cmake").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n')
    (programs / "cmake").chmod(0o755)
    env = {**os.environ, "ROCM_PATH": str(rocm), "PATH": f"{programs}:{os.environ['PATH']}"}

    def build() -> str:
        done = run("sh", script, source, dest, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert (dest / "bin").is_dir()  # COPY in the image wants it
        return done.stdout

    assert "no source at" in build()
    (source / "deploy" / "device-counting").mkdir(parents=True)
    (source / "deploy" / "device-counting" / "CMakeLists.txt").touch()
    assert "no rocprofiler-sdk in" in build()
    assert not (tmp_path / "called").exists()
    (rocm / "include" / "rocprofiler-sdk").mkdir(parents=True)
    assert build() == ""
    configure, make, install = (tmp_path / "called").read_text().splitlines()
    assert f"-DCMAKE_PREFIX_PATH={rocm}" in configure
    assert make.startswith("--build")
    assert install.endswith(f"--prefix {dest}")


# node-problem-detector


@pytest.mark.parametrize("where", ["", "host"])
def test_the_plugin_is_described_as_node_problem_detector_reads_it(where: str) -> None:
    described = json.loads((DEPLOY / "node-problem-detector" / where / "amdgpu-health.json").read_text())
    assert described["plugin"] == "custom"
    conditions = {c["type"] for c in described["conditions"]}
    for rule in described["rules"]:
        assert rule["type"] in ("permanent", "temporary")
        assert rule.get("condition") in (conditions if rule["type"] == "permanent" else {None})
        assert Path(rule["path"]).name == PLUGIN.name
        assert rule["args"][0] in ("unhealthy", "degraded")


HEALTHY = {"gpu": "0", "pci": "0000:05:00.0", "status": "healthy", "reasons": []}
DEGRADED = {
    "gpu": "1",
    "pci": "0000:26:00.0",
    "status": "degraded",
    "reasons": [{"id": "pcie_link", "status": "degraded", "text": "x8 of x16"}],
}
UNHEALTHY = {
    "gpu": "2",
    "pci": "0000:46:00.0",
    "status": "unhealthy",
    "reasons": [{"id": "gone", "status": "unhealthy", "text": "gone"}],
}


@pytest.mark.parametrize(
    ("status", "gpus", "unhealthy", "degraded"),
    [
        ("healthy", [HEALTHY], (0, "all AMD GPUs are healthy"), (0, "all AMD GPUs are healthy")),
        (
            "degraded",
            [HEALTHY, DEGRADED],
            (0, "no AMD GPU is unhealthy"),
            (1, "GPU 0000:26:00.0 is degraded: pcie_link"),
        ),
        (
            "unhealthy",
            [DEGRADED, UNHEALTHY],
            (1, "GPU 0000:46:00.0 is unhealthy: gone"),
            (1, "GPU 0000:26:00.0 is degraded: pcie_link"),
        ),
        ("unhealthy", [HEALTHY], (1, "AMD GPUs of this node are unhealthy"), (0, "no AMD GPU is degraded")),
        ("unknown", [], (2, "not known: unknown"), (2, "not known: unknown")),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_the_plugin_says_what_the_rules_of_health_say(
    status: str,
    gpus: list[dict[str, Any]],
    unhealthy: tuple[int, str],
    degraded: tuple[int, str],
    indent: int | None,
    tmp_path: Path,
) -> None:
    answer = {"version": 1, "status": status, "expected": 8, "missing": 0, "sources": {}, "gpus": gpus}
    (tmp_path / "answer").write_text(json.dumps(answer, indent=indent))
    fake = tmp_path / "amdgpu-exporter"
    fake.write_text(f"#!/bin/sh\n[ \"$*\" = 'health --json' ] && cat {tmp_path}/answer\n")
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for asked, want in (("unhealthy", unhealthy), ("degraded", degraded)):
        done = run("bash", PLUGIN, asked, env=env)
        assert (done.returncode, done.stdout.strip()) == want
        assert len(done.stdout) <= 80  # what node-problem-detector keeps


def test_the_plugin_asks_a_daemon_and_does_not_know_where_none_answers(tmp_path: Path) -> None:
    with serving(tmp_path, "--backend", "replay") as daemon:
        said = json.loads(daemon.get("/api/v1/health")[1])["status"]
        for asked in ("unhealthy", "degraded"):
            done = run("bash", PLUGIN, asked, f"{daemon.url}/api/v1/health")
            assert done.returncode == (1 if said == asked else 0), (said, done.stdout)
    done = run("bash", PLUGIN, "unhealthy", f"http://127.0.0.1:{free_port()}/api/v1/health")
    assert (done.returncode, done.stdout.strip()) == (2, "not known: the exporter does not answer")


# Prometheus and those that read its form


@pytest.fixture
def beside(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a configuration with the rules and the list of nodes where it expects them."""

    def place(path: Path) -> Path:
        shutil.copytree(ROOT / "alerts" / "rules", tmp_path / "rules", dirs_exist_ok=True)
        (tmp_path / "nodes").mkdir(exist_ok=True)
        shutil.copy(DEPLOY / "prometheus" / "nodes.yml", tmp_path / "nodes" / "gpu.yml")
        return Path(shutil.copy(path, tmp_path / path.name))

    return place


SCRAPED = ("prometheus.yml", "sharded-0.yml", "sharded-1.yml", "agent.yml")


@pytest.mark.parametrize("newer", [False, True], ids=["installed", "newer"])
@pytest.mark.parametrize("name", [*(f"prometheus/{n}" for n in SCRAPED), "compose/prometheus.yml"])
def test_promtool_accepts_every_configuration(name: str, newer: bool, beside: Callable[[Path], Path]) -> None:
    path = beside(DEPLOY / name)
    agent = ["--agent"] if path.name == "agent.yml" else []
    done = run(tool("promtool", newer), "check", "config", *agent, path)
    assert done.returncode == 0, done.stderr
    if not agent:
        assert "SUCCESS: 2 rule files found" in done.stdout


def test_every_node_is_in_exactly_one_shard(beside: Callable[[Path], Path]) -> None:
    seen: list[str] = []
    parts = []
    for name in ("sharded-0.yml", "sharded-1.yml"):
        argv = ("check", "service-discovery", "--timeout=1s", beside(DEPLOY / "prometheus" / name))
        found = json.loads(run(tool("promtool"), *argv, "amdgpu-exporter").stdout)
        kept = [t["discoveredLabels"]["__address__"] for t in found if t.get("labels")]
        parts.append(kept)
        seen += kept
    [group] = yaml.safe_load((DEPLOY / "prometheus" / "nodes.yml").read_text())
    assert sorted(seen) == sorted(group["targets"])
    assert all(parts)


def test_what_the_collector_scrapes_is_a_configuration_of_prometheus(tmp_path: Path) -> None:
    whole = yaml.safe_load((DEPLOY / "opentelemetry" / "collector.yaml").read_text())
    (tmp_path / "scrape.yml").write_text(yaml.safe_dump(whole["receivers"]["prometheus"]["config"]))
    done = run(tool("promtool"), "check", "config", tmp_path / "scrape.yml")
    assert done.returncode == 0, done.stderr
    for pipeline in whole["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(whole[kind])


def test_vmagent_accepts_its_configuration(beside: Callable[[Path], Path], tmp_path: Path) -> None:
    path = beside(DEPLOY / "victoriametrics" / "vmagent.yml")
    argv = ("-dryRun", f"-promscrape.config={path}", "-promscrape.config.strictParse=true")
    store = f"-remoteWrite.tmpDataPath={tmp_path / 'vm'}"
    done = run(
        tool("vmagent", newer=True), *argv, store, "-remoteWrite.url=http://127.0.0.1:1/x", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_test_of_the_chart_passes_where_pods_answer_and_fails_where_none_does(tmp_path: Path) -> None:
    program = ROOT / "helm" / "amdgpu-exporter" / "files" / "test.py"
    with serving(tmp_path, "--backend", "replay") as daemon:
        port = daemon.url.rpartition(":")[2]
        done = run(sys.executable, program, "127.0.0.1", port, "read")
        assert (done.returncode, done.stdout) == (0, "127.0.0.1 amdgpu_devices 8\n1 pods answer\n")
        assert run(sys.executable, program, "127.0.0.1", port, "connect").returncode == 0
    assert run(sys.executable, program, "127.0.0.1", port, "read").returncode != 0


# Compose


def mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    return [(m.split(":")[0], m.split(":")[1]) for m in service.get("volumes", ())]


def test_what_compose_mounts_exists_and_is_what_the_programs_look_for() -> None:
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    services: dict[str, dict[str, Any]] = compose["services"]
    for name, service in services.items():
        for source, _ in mounts(service):
            if source.startswith("."):
                assert (DEPLOY / "compose" / source).exists(), (name, source)
            else:
                assert source in compose["volumes"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
    targets = _targets(yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text()))
    assert {t.partition(":")[0] for t in targets} <= set(services)
    [provider] = yaml.safe_load(
        (DEPLOY / "compose" / "grafana" / "provisioning" / "dashboards" / "amdgpu.yml").read_text()
    )["providers"]
    assert ("../../dashboards", provider["options"]["path"]) in mounts(services["grafana"])
    variables = {v for v in services["exporter"]["environment"] if v.startswith("AMDGPU_EXPORTER_")}
    assert variables <= {key.env for key in keys().values()}
    amtool = run(tool("amtool"), "check-config", ROOT / "alerts" / "alertmanager.yml")
    assert amtool.returncode == 0, amtool.stderr


def _targets(prometheus: dict[str, Any]) -> Sequence[str]:
    listed = [*prometheus["scrape_configs"], *prometheus["alerting"]["alertmanagers"]]
    return [t for entry in listed for group in entry["static_configs"] for t in group["targets"]]
