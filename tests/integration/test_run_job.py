"""The verb ``run``: the job's terminal, signals and exit code are its own, with profiling and without."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made_traces import C, K, calls, kernels

from exporter import config as configuration
from exporter.checks import run as jobs
from exporter.profilers.job import Periods
from exporter.windows import intake
from tests.integration.daemon import COMMAND, environment, until
from tests.unit import trees

FAKE = Path(__file__).resolve().parent.parent / "fakes" / "job_rocprofv3"
ROWS = "=== kernel_trace\n{}=== hip_api_trace\n{}"
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
can_unshare = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run([*UNSHARE, "/bin/true"], check=False).returncode != 0,
    reason="needs root and unshare, to make PID namespaces",
)


class Job:
    """A node with a spool and a rocprofv3 on PATH."""

    def __init__(self, root: Path) -> None:
        self.root, self.spool = root, root / "spool"
        self.spool.mkdir()
        self.spool.chmod(0o1733)
        (root / "bin").mkdir()
        shutil.copy(FAKE, root / "bin" / "rocprofv3")
        (root / "rows").write_text(
            ROWS.format(
                kernels([K(100, 200, 1), K(20_000, 20_100, 2)]).decode(),
                calls([C(50, 70, 1), C(19_950, 19_970, 2)]).decode(),
            )
        )
        trees.mi300x(root / "sys", sockets=2)
        self.env = environment(
            PATH=f"{root / 'bin'}:{os.environ['PATH']}",
            FAKE_ROWS=str(root / "rows"),
            AMDGPU_EXPORTER_WINDOWS__SPOOL_DIR=str(self.spool),
            AMDGPU_EXPORTER_PATH__SYSFS=str(root / "sys"),
        )

    def argv(self, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        return [*COMMAND, "run", *options, "--", *command]

    def run(
        self, *command: str, options: tuple[str, ...] = (), **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*command, options=options),
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.root,
            env={**self.env, **env},
        )

    def windows(self) -> list[Path]:
        return sorted(p for p in self.spool.glob("*/*") if p.is_dir())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_job_delivers_its_windows_with_all_that_names_it(job: Job) -> None:
    done = job.run(
        "sh", "-c", "echo out; echo err >&2; exit 7", options=("--every", "15us", "--length", "1ms")
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    [folder] = job.windows()
    assert folder.parent.name == str(os.geteuid())
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    manifest = json.loads((folder / "manifest.json").read_text())
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (manifest["boot_id"], manifest["uid"], manifest["node"]) == (
        boot_id,
        os.geteuid(),
        os.uname().nodename,
    )
    assert manifest["pid_namespace"] == os.stat("/proc/self/ns/pid").st_ino
    assert manifest["agents"] == {"Agent 1": "0000:05:00.0", "Agent 2": "0000:25:00.0"}
    assert manifest["planned"] == {"length_ns": 1_000_000, "windows": 12}
    assert manifest["cgroup"]
    # 15 us are the pause: the two kernels, 19.8 us apart, are of two windows.
    first, second = intake.load([folder]).results
    assert [r.kernels for r in (first, second)] == [1, 1]


def test_the_pytorch_of_a_job_is_named_without_importing_it(job: Job) -> None:
    package = job.root / "lib" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "version.py").write_text("__version__ = '2.9.0+rocm7.0'\nhip = '7.0'\n")
    done = job.run(sys.executable, "-c", "pass", PYTHONPATH=f"{job.root / 'lib'}:{job.env['PYTHONPATH']}")
    assert (done.returncode, done.stderr) == (0, "")
    [folder] = job.windows()
    assert intake.load([folder]).window.pytorch == "2.9.0+rocm7.0"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("old", "no --collection-period; rocprofv3 of ROCm 6.4 or later has"),
        ("fatal", "Failed to resolve path"),
    ],
)
def test_where_the_profiler_fails_the_job_runs_once_and_one_line_says_so(
    job: Job, kind: str, words: str
) -> None:
    done = job.run("sh", "-c", "echo once >> ran; exit 3", FAKE_ROCPROFV3=kind)
    assert (done.returncode, (job.root / "ran").read_text()) == (3, "once\n")
    assert done.stderr.count("\n") == 1
    assert "runs without profiling" in done.stderr
    assert words in done.stderr
    assert not list(job.spool.glob("*/*"))


def no_tool(job: Job) -> None:
    (job.root / "bin" / "rocprofv3").unlink()


def no_spool(job: Job) -> None:
    job.spool.rmdir()


def open_folder(job: Job) -> None:
    own = job.spool / str(os.geteuid())
    own.mkdir()
    own.chmod(0o777)


def full_folder(job: Job) -> None:
    own = job.spool / str(os.geteuid())
    (own / "waiting").mkdir(parents=True)
    own.chmod(0o700)
    job.env["AMDGPU_EXPORTER_WINDOWS__SPOOL_USER_WINDOWS"] = "1"


def profiled_already(job: Job) -> None:
    job.env["ROCP_TOOL_LIBRARIES"] = "libother.so"


def wrong_configuration(job: Job) -> None:
    job.env["AMDGPU_EXPORTER_POLL__INTERVAL"] = "soon"


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (no_tool, "no rocprofv3"),
        (no_spool, "no spool folder"),
        (open_folder, "is not this user's alone"),
        (full_folder, "is full"),
        (profiled_already, "another profiler"),
    ],
)
def test_whatever_is_missing_is_found_before_the_job_starts(
    job: Job, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[Job], object], words: str
) -> None:
    break_it(job)
    for name, value in job.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(job.root)
    config = configuration.load(None, os.environ).config
    with pytest.raises(jobs.UnprofiledError, match=words):
        jobs.prepare(["true"], Periods(1.0, 1.0, 1), config, None)
    assert not list(job.spool.glob("*/*.partial"))


def test_a_wrong_configuration_costs_one_line_and_never_the_job(job: Job) -> None:
    wrong_configuration(job)
    done = job.run("sh", "-c", "echo ran; exit 5")
    assert (done.returncode, done.stdout) == (5, "ran\n")
    assert done.stderr.count("\n") == 1
    assert "runs without profiling" in done.stderr
    assert "poll.interval" in done.stderr


def test_a_job_without_files_leaves_nothing_behind(job: Job) -> None:
    done = job.run("true", FAKE_ROCPROFV3="empty")
    assert done.returncode == 0
    assert "left no files" in done.stderr
    assert job.windows() == []


def test_a_command_that_is_not_there_ends_as_in_a_shell(job: Job) -> None:
    (job.root / "bin" / "rocprofv3").unlink()
    assert job.run("no-such-command").returncode == 127
    assert job.run(str(job.root / "rows")).returncode == 126


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_that_dies_of_a_signal_ends_us_by_the_same(job: Job, sign: signal.Signals) -> None:
    done = job.run("sh", "-c", f"kill -{sign.value} $$")
    assert done.returncode == -sign
    assert len(job.windows()) == 1


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_us_reaches_the_job_once(job: Job, sign: signal.Signals) -> None:
    script = (
        "import signal, sys, time\n"
        f"def heard(n, _): open('heard', 'a').write(f'{{n}} ')\n"
        f"signal.signal({sign.value}, heard)\n"
        "open('ready', 'w').close()\n"
        "end = time.monotonic() + 20\n"
        "import os\n"
        "while not os.path.exists('heard') and time.monotonic() < end: time.sleep(0.02)\n"
        "time.sleep(0.2); sys.exit(9)\n"
    )
    with subprocess.Popen(job.argv(sys.executable, "-c", script), cwd=job.root, env=job.env) as process:
        until((job.root / "ready").exists, 30, "the job's start")
        process.send_signal(sign)
        assert process.wait(20) == 9
    assert (job.root / "heard").read_text() == f"{sign.value} "


def test_the_terminal_is_the_jobs_and_control_c_is_heard_once(job: Job) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda n, _: open('heard', 'a').write(f'{n} '))\n"
        "print('tty', os.isatty(0), os.isatty(1), os.tcgetpgrp(0) == os.getpgrp(), flush=True)\n"
        "while not os.path.exists('heard'): time.sleep(0.02)\n"
        "time.sleep(0.3); print('over', input(), flush=True)\n"
    )
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(job.root)
        os.execve(sys.executable, job.argv(sys.executable, "-c", script), job.env)
    seen = b""

    def read(word: bytes) -> None:
        nonlocal seen
        end = time.monotonic() + 30
        while word not in seen and time.monotonic() < end:
            try:
                seen += os.read(fd, 4096)
            except OSError:
                break
        assert word in seen, seen

    read(b"tty True True True")
    os.write(fd, b"\x03")
    os.write(fd, b"typed\n")
    read(b"over typed")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(fd)
    assert (job.root / "heard").read_text() == "2 "


@can_unshare
def test_two_jobs_of_the_same_number_in_two_pid_namespaces_stay_apart(job: Job) -> None:
    orders = ("0,1", "1,0")
    running = []
    for order in orders:
        command = ["sh", "-c", "test $HIP_VISIBLE_DEVICES = $0", order]
        argv = [*UNSHARE, *job.argv(*command)]
        env = {**job.env, "HIP_VISIBLE_DEVICES": order, "ROCR_VISIBLE_DEVICES": order}
        running.append(subprocess.Popen(argv, cwd=job.root, env=env, stderr=subprocess.PIPE))
    assert [p.communicate(timeout=60)[1] for p in running] == [b"", b""]
    assert [p.returncode for p in running] == [0, 0]
    folders = job.windows()
    assert len(folders) == 2
    manifests = [json.loads((f / "manifest.json").read_text()) for f in folders]
    assert manifests[0]["pid"] == manifests[1]["pid"] < 100
    assert len({m["pid_namespace"] for m in manifests}) == 2
    assert [m["host_pid"] for m in manifests] == [None, None]
    # Agents are named by the driver's node whatever the order of visible devices.
    assert (
        manifests[0]["agents"]
        == manifests[1]["agents"]
        == {"Agent 1": "0000:05:00.0", "Agent 2": "0000:25:00.0"}
    )
    for folder in folders:
        [result] = intake.load([folder]).results[:1]
        assert (result.paired, result.unmatched_kernels) == (2, 0)


def test_processes_seen_on_the_gpu_besides_the_job_are_counted(job: Job) -> None:
    trees.using(job.root / "sys", 900, {10001: 1 << 30}, ((10001, 0), (10001, 0)))
    trees.using(job.root / "sys", 901, {10001: 1 << 30}, ((10001, 0),))
    (job.root / "rows").write_text(
        ROWS.format(kernels([K(100, 200, 1, agent="Agent 1")]).decode(), calls([C(50, 70, 1)]).decode())
    )
    assert job.run("true").returncode == 0
    [folder] = job.windows()
    assert json.loads((folder / "manifest.json").read_text())["processes_seen"] == {"0000:05:00.0": 2}
    [result] = intake.load([folder]).results
    assert result.timeline_reason == "untraced_process"
