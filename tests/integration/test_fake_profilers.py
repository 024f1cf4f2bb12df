"""Windows through public doors, taken by stand-ins for every profiler and release, well behaved or not.

The stand-ins are in tests/fakes/profilers; whoever wrote them had not read the code that starts them. What
they run launches kernels with times that are known by hand: 20 us after a call of 5 us, for 100 us, every
1 ms; so the queue-delay ratio is 20 / 120, whatever part of it a window saw.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.fakes.profilers import rocprofv3
from tests.fakes.profilers.stage import install, starts
from tests.integration.daemon import COMMAND, Daemon, environment, serving, until
from tests.unit import trees

WORKLOAD = [sys.executable, str(Path(rocprofv3.__file__).with_name("workload.py"))]
RATIO = 20 / 120
GPU = "0000:05:00.0"
AGENTS = [
    {"node": 1, "pci": GPU, "gfx": "gfx942", "render": 128, "gpu_id": 10001, "xcc": 8, "cu": 304},
    {"node": 2, "pci": "0000:25:00.0", "gfx": "gfx942", "render": 129, "gpu_id": 10002, "xcc": 8, "cu": 304},
]
COMMAND_RELEASES = ("6.2", "6.3", "6.4", "7.0", "7.1", "7.13", "10.1")
PERIOD_RELEASES = ("6.4", "7.1", "10.1")
OLD = {"rocprofv2": "rocprofv2", "rocprof": "rocprof"}
ATTACH_RELEASES = ("7.1", "7.2", "7.13", "10.0", "10.1")


def marked(mark: str) -> list[int]:
    """Processes that carry a mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"FAKE_PROFILER_MARKER={mark}\0".encode() in (folder / "environ").read_bytes() + b"\0":
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@dataclass
class Case:
    """What a verb did: its code and texts, the starts of the stand-in, and what it left behind."""

    code: int
    out: str
    err: str
    argv: list[list[str]]
    left_files: list[str]
    left_processes: list[int]
    spool: Path
    target: int | None = None
    target_code: int | None = None

    @property
    def gpu(self) -> dict[str, object]:
        [gpu] = json.loads(self.out)["gpus"]
        assert isinstance(gpu, dict)
        return gpu


class Bench:
    """Runs verbs beside one another; each has a folder, a node and a stand-in of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = ThreadPoolExecutor(4)
        self.planned: dict[tuple[str, str, str], dict[str, object]] = {}
        self.started: dict[tuple[str, str, str], Future[Case]] = {}

    def begin(self, verb: str, rocm: str, mode: str, **settings: object) -> None:
        self.planned[verb, rocm, mode] = settings

    def start(self) -> None:
        """Start all of them; where only a few are asked for, each starts when it is."""
        for key in self.planned:
            self._started(key)

    def case(self, verb: str, rocm: str, mode: str = "ok") -> Case:
        return self._started((verb, rocm, mode)).result(120)

    def _started(self, key: tuple[str, str, str]) -> Future[Case]:
        if key not in self.started:
            self.started[key] = self.pool.submit(self._run, *key, **self.planned[key])
        return self.started[key]

    def _run(
        self,
        verb: str,
        rocm: str,
        mode: str,
        tool: str = "rocprofv3",
        sockets: int = 2,
        **settings: object,
    ) -> Case:
        here = self.folder / f"{verb}-{rocm}-{mode}"
        here.mkdir()
        mark = f"{here.name}-{os.getpid()}"
        given = {"agents": AGENTS, "attach_dir": str(here), **settings}
        odd = mode if mode != "unprepared" else "ok"
        rocm = rocm if rocm in rocprofv3.RELEASES else "6.2"
        install(here / "bin", tool, rocm=rocm, mode=odd, log=str(here / "log"), marker=mark, **given)
        trees.mi300x(here / "sys", sockets=sockets)
        for name in ("tmp", "spool", "work"):
            (here / name).mkdir()
        grace = "grace: 4s, " if mode in ("hang", "slow-exit") and "slow_s" not in settings else ""
        (here / "c.yaml").write_text(f"windows: {{{grace}process_age: 0s, max_bytes: 67108864}}\n")
        args, target = self._arguments(verb, here, prepared=mode != "unprepared")
        # One window at a time on a node: each of these is a node of its own.
        own = {"TMPDIR": str(here / "tmp"), "STATE_DIRECTORY": str(here / "state")}
        env = environment(PATH=f"{here / 'bin'}:{os.environ['PATH']}", **own)
        # Into files: what survives would hold a pipe open.
        with (here / "out").open("w") as out, (here / "err").open("w") as err:
            try:
                done = subprocess.run(
                    [*COMMAND, *args], stdout=out, stderr=err, timeout=90, env=env, cwd=here / "work"
                )
            finally:
                target_code = _ended(target)
        left = [str(p) for p in (here / "tmp").rglob("*")]
        argv = [one["argv"] for one in starts(here / "log")]
        pid = target.pid if target else None
        return Case(
            *(done.returncode, (here / "out").read_text(), (here / "err").read_text()),
            *(argv, left, marked(mark)),
            *(here / "spool", pid, target_code),
        )

    def _arguments(
        self, verb: str, here: Path, prepared: bool
    ) -> tuple[list[str], subprocess.Popen[str] | None]:
        config = ["--config", str(here / "c.yaml")]
        if verb == "run":
            often = ["--every", "1s", "--length", "400ms", "--windows", "1"]
            job = [*WORKLOAD, "--seconds", "1.6", "--exit-code", "7"]
            return ["run", "--spool", str(here / "spool"), *config, *often, "--", *job], None
        sample = ["sample", "--json", "--duration", "200ms", *config, "--path.sysfs", str(here / "sys")]
        if verb == "sample":
            return [*sample, "--", *WORKLOAD, "--seconds", "0.2"], None
        target = prepared_target(prepared)
        trees.using(here / "sys", target.pid, {10001: 1 << 30}, ((10001, 0),))
        return [*sample, "--pid", str(target.pid)], target


def prepared_target(prepared: bool = True) -> subprocess.Popen[str]:
    env = {**os.environ, **({"ROCP_TOOL_ATTACH": "1"} if prepared else {})}
    target = subprocess.Popen([*WORKLOAD, "--seconds", "120"], stdout=subprocess.PIPE, text=True, env=env)
    assert target.stdout
    assert target.stdout.readline() == "ready\n"
    return target


def _ended(target: subprocess.Popen[str] | None) -> int | None:
    """End the target as its owner would; its code says whether it was still well."""
    if target is None:
        return None
    target.terminate()
    code = target.wait(10)
    if target.stdout:
        target.stdout.close()
    return code


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"))
    # What takes long goes first.
    made.begin("sample", "7.1", "hang-help")
    for mode in ("hang", "slow-exit"):
        made.begin("attach", "7.1", mode)
        made.begin("sample", "7.1", mode)
    made.begin("run", "7.1", "survivor")
    for mode in ("flood", "flood-text", "crash", "empty", "wrong-flag", "permission", "busy", "half-written"):
        made.begin("sample", "7.1", mode)
    made.begin("sample", "7.1", "survivor")
    made.begin("sample", "10.0", "slow-exit", slow_s=1.0)
    for mode in ("crash", "permission", "busy", "survivor", "wrong-flag"):
        made.begin("attach", "7.13", mode)
    for mode in ("crash", "wrong-flag", "permission", "empty"):
        made.begin("run", "7.1", mode)
    made.begin("attach", "7.13", "flood", flood_bytes=2 << 30)
    made.begin("attach", "7.1", "unprepared")
    for rocm in COMMAND_RELEASES:
        made.begin("sample", rocm, "ok")
    for rocm in ATTACH_RELEASES:
        made.begin("attach", rocm, "ok")
    for rocm in ("6.3", *PERIOD_RELEASES):
        made.begin("run", rocm, "ok")
    made.begin("attach", "7.0", "ok")
    for name, module in OLD.items():
        for mode in ("ok", "crash", "permission"):
            made.begin("sample", name, mode, tool=module)
    made.begin("sample", "rocprof-node", "ok", tool="rocprof", counted="node")
    made.begin("sample", "rocprof-alone", "ok", tool="rocprof", counted="node", sockets=1)
    if many(request):
        made.start()
    yield made
    made.pool.shutdown()


class Scenes:
    """Whole daemons, that mostly wait for their budget; so they do it beside the verbs."""

    def __init__(self, folders: Callable[[str], Path]) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.folders = folders
        self.started: dict[str, Future[None]] = {}

    def start(self) -> None:
        for play in (
            breaker_opens,
            flood_is_bounded,
            times_are_on_the_page,
            unprepared_is_left,
            none_is_started,
        ):
            self._started(play)

    def see(self, play: Callable[[Path], None]) -> None:
        self._started(play).result(150)

    def _started(self, play: Callable[[Path], None]) -> Future[None]:
        name = play.__name__
        if name not in self.started:
            self.started[name] = self.pool.submit(play, self.folders(name))
        return self.started[name]


def many(request: pytest.FixtureRequest) -> bool:
    """Whether more than a few of the tests here are asked for."""
    return sum(item.path == Path(__file__) for item in request.session.items) > 20


@pytest.fixture(scope="module", autouse=True)
def scenes(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Scenes]:
    made = Scenes(tmp_path_factory.mktemp)
    if many(request):
        made.start()
    yield made
    made.pool.shutdown()


@pytest.mark.parametrize("rocm", COMMAND_RELEASES)
def test_a_command_is_traced_by_every_release(bench: Bench, rocm: str) -> None:
    case = bench.case("sample", rocm)
    assert case.code == 0, case.err
    gpu = case.gpu
    assert gpu["gpu"] == GPU
    assert gpu["queue_delay_ratio"] == pytest.approx(RATIO)
    assert gpu["queue_p50_seconds"] == pytest.approx(20e-6)
    assert gpu["kernels"] == gpu["launches"]
    assert int(str(gpu["kernels"])) > 100
    assert (case.left_files, case.left_processes) == ([], [])


@pytest.mark.parametrize("rocm", ATTACH_RELEASES)
def test_a_prepared_process_is_attached_to_by_every_release_since_7_1(bench: Bench, rocm: str) -> None:
    case = bench.case("attach", rocm)
    assert case.code == 0, case.err
    assert case.gpu["queue_delay_ratio"] == pytest.approx(RATIO)
    # One launch each millisecond, for 200 ms.
    assert int(str(case.gpu["kernels"])) == pytest.approx(200, abs=30)
    assert (case.left_files, case.left_processes, case.target_code) == ([], [], 0)
    attached = case.argv[-1]
    assert attached[attached.index("--attach") + 1] == str(case.target)
    assert ("--attach-sync-output" in attached) == (rocm == "10.1")


def test_release_7_0_cannot_attach_and_is_not_asked_to(bench: Bench) -> None:
    case = bench.case("attach", "7.0")
    assert case.code == 1
    assert "no_profiler" in case.err
    assert case.argv == [["--help"], ["--version"]]
    assert case.target_code == 0


def test_a_process_that_was_not_prepared_is_left_alone(bench: Bench) -> None:
    # This release would have brought it down.
    case = bench.case("attach", "7.1", "unprepared")
    assert case.code == 1
    assert "not_attachable" in case.err
    assert "ROCP_TOOL_ATTACH=1" in case.err
    assert not any("--attach" in argv for argv in case.argv)
    assert case.target_code == 0


@pytest.mark.parametrize(("name", "queue_us"), [("rocprofv2", 20), ("rocprof", 15)])
def test_a_node_that_is_too_old_for_rocprofv3_has_its_commands_traced(
    bench: Bench, name: str, queue_us: int
) -> None:
    case = bench.case("sample", name)
    assert case.code == 0, case.err
    assert case.gpu["gpu"] == GPU
    # rocprof knows when the packet was written, at the end of the call of 5 us, and not when that began.
    assert case.gpu["queue_delay_ratio"] == pytest.approx(queue_us / (queue_us + 100))
    assert (case.left_files, case.left_processes) == ([], [])
    assert "--" not in case.argv[-1]


def test_a_number_that_could_be_any_gpu_is_none_where_there_are_two(bench: Bench) -> None:
    assert bench.case("sample", "rocprof-node").gpu["gpu"] == "1"
    assert bench.case("sample", "rocprof-alone").gpu["gpu"] == GPU


@pytest.mark.parametrize("name", OLD)
@pytest.mark.parametrize(("mode", "said"), [("crash", "crash: "), ("permission", "denied: ")])
def test_what_goes_wrong_with_the_old_ones_is_said_too(bench: Bench, name: str, mode: str, said: str) -> None:
    case = bench.case("sample", name, mode)
    assert (case.code, case.out) == (1, "")
    assert f"no window: {said}" in case.err
    assert (case.left_files, case.left_processes) == ([], [])


SAMPLED = {
    "hang": "timeout: not over after 4.2 s",
    "slow-exit": "timeout: not over after 4.2 s",
    "crash": "crash: died of SIGSEGV",
    "empty": "empty: ended well and wrote nothing",
    "wrong-flag": "malformed: exit code 2 and no files",
    "permission": "denied: Unable to open /dev/kfd",
    "flood": "malformed: wrote more than 64 MiB of files",
    "flood-text": "malformed: wrote more than 16 MiB of text",
}


@pytest.mark.parametrize("mode", SAMPLED)
def test_what_goes_wrong_with_a_command_is_said_and_nothing_is_left(bench: Bench, mode: str) -> None:
    case = bench.case("sample", "7.1", mode)
    assert (case.code, case.out) == (1, "")
    assert f"no window: {SAMPLED[mode]}" in case.err
    assert case.err.count("\n") == 1
    assert (case.left_files, case.left_processes) == ([], [])


def test_a_profiler_whose_help_hangs_is_given_up(bench: Bench) -> None:
    case = bench.case("sample", "7.1", "hang-help")
    assert (case.code, case.out) == (1, "")
    assert "rocprofv3 --help ended by timeout" in case.err
    assert case.argv == [["--help"]]
    assert (case.left_files, case.left_processes) == ([], [])


def test_one_that_takes_its_time_to_end_gives_its_window(bench: Bench) -> None:
    case = bench.case("sample", "10.0", "slow-exit")
    assert case.code == 0, case.err
    assert case.gpu["queue_delay_ratio"] == pytest.approx(RATIO)


def test_half_a_database_is_said_to_be_damaged(bench: Bench) -> None:
    case = bench.case("sample", "7.1", "half-written")
    assert case.code == 1
    assert "damaged" in case.err
    assert case.left_files == []


def test_a_trace_needs_no_lock_of_the_counters(bench: Bench) -> None:
    case = bench.case("sample", "7.1", "busy")
    assert case.code == 0
    assert case.gpu["queue_delay_ratio"] == pytest.approx(RATIO)


def test_what_forks_twice_and_calls_setsid_does_not_outlive_the_window(bench: Bench) -> None:
    case = bench.case("sample", "7.1", "survivor")
    assert case.code == 0
    assert (case.left_files, case.left_processes) == ([], [])


ATTACHED = {
    ("7.1", "hang"): "timeout: not over after 4.2 s",
    ("7.1", "slow-exit"): "timeout: not over after 4.2 s",
    ("7.13", "crash"): "crash: died of SIGSEGV",
    ("7.13", "permission"): "denied: ",
    # A process that is traced already answers as one that may not be.
    ("7.13", "busy"): "denied: ",
    ("7.13", "wrong-flag"): "malformed: exit code 2 and no files",
    ("7.13", "flood"): "malformed: wrote more than 64 MiB of files",
}


@pytest.mark.parametrize(("rocm", "mode"), ATTACHED)
def test_what_goes_wrong_with_an_attach_is_said_and_the_process_lives(
    bench: Bench, rocm: str, mode: str
) -> None:
    case = bench.case("attach", rocm, mode)
    assert (case.code, case.out) == (1, "")
    assert f"no window: {ATTACHED[rocm, mode]}" in case.err
    assert (case.left_files, case.left_processes, case.target_code) == ([], [], 0)


def test_what_survives_an_attach_is_ended_and_the_process_is_not(bench: Bench) -> None:
    case = bench.case("attach", "7.13", "survivor")
    assert case.code == 0, case.err
    assert (case.left_processes, case.target_code) == ([], 0)


@pytest.mark.parametrize("rocm", PERIOD_RELEASES)
def test_a_job_keeps_its_code_and_leaves_a_window(bench: Bench, rocm: str) -> None:
    case = bench.case("run", rocm)
    assert case.code == 7
    assert case.err == ""
    [manifest] = case.spool.rglob("manifest.json")
    files = [p.name for p in manifest.parent.rglob("*") if p.is_file() and p != manifest]
    wanted = "_kernel_trace.csv" if rocm == "6.4" else "_results.db"
    assert any(name.endswith(wanted) for name in files)
    period = case.argv[-1][case.argv[-1].index("--collection-period") + 1]
    assert period == "1000:400:1"
    done = subprocess.run(
        [*COMMAND, "analyze", "--json", str(manifest.parent / "out")],
        capture_output=True,
        text=True,
        env=environment(),
    )
    [gpu] = json.loads(done.stdout)["gpus"]
    # The window is 1.0 s to 1.4 s after the start of the tool, of which the job knows nothing.
    assert gpu["kernels"] == pytest.approx(400, abs=5)
    assert gpu["queue_delay_ratio"] == pytest.approx(RATIO)


@pytest.mark.parametrize(
    ("rocm", "mode", "said"),
    [
        ("6.3", "ok", "has no --collection-period"),
        ("7.1", "crash", "ended with code -11"),
        ("7.1", "wrong-flag", "unrecognized arguments"),
        ("7.1", "permission", "Permission denied"),
        ("7.1", "empty", "left no files"),
    ],
)
def test_a_job_runs_whatever_the_profiler_does(bench: Bench, rocm: str, mode: str, said: str) -> None:
    case = bench.case("run", rocm, mode)
    assert (case.code, case.out) == (7, "ready\n")
    assert said in case.err
    assert case.err.count("\n") == 1
    assert not [p for p in case.spool.rglob("*") if p.is_file()]


def test_what_the_trial_before_a_job_leaves_running_is_ended(bench: Bench) -> None:
    # The job's own run leaves one, too: that is its own.
    case = bench.case("run", "7.1", "survivor")
    try:
        assert case.code == 7
        assert len(case.left_processes) == 1
    finally:
        for pid in case.left_processes:
            os.kill(pid, signal.SIGKILL)


# --- the daemon -----------------------------------------------------------------------------------------


class Canary:
    """A node whose daemon may take windows; its stand-in can be exchanged while it runs."""

    def __init__(self, folder: Path, preset: str = "canary", **windows: object) -> None:
        self.folder, self.mark = folder, f"daemon-{folder.name}-{os.getpid()}"
        trees.mi300x(folder / "sys", sockets=2)
        given: dict[str, object] = {
            "preset": preset,
            "command": [*WORKLOAD, "--seconds", "0.2"],
            # Only asked for by hand, and as often as the budget allows.
            "interval": "24h",
            "duty_cycle": 0.1,
            "duration": "50ms",
            "process_age": "0s",
            "quiet": "0s",
            "breaker_backoff": "1s",
        }
        (folder / "c.yaml").write_text(json.dumps({"windows": {**given, **windows}}))

    def become(self, mode: str, rocm: str = "7.1", **settings: object) -> None:
        given = {"agents": AGENTS, "log": str(self.folder / "log"), "marker": self.mark, **settings}
        install(self.folder / "bin", "rocprofv3", rocm=rocm, mode=mode, **given)

    def serving(self, *args: str) -> contextlib.AbstractContextManager[Daemon]:
        config = ["--config", str(self.folder / "c.yaml"), "--path.sysfs", str(self.folder / "sys")]
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return serving(self.folder, *config, "--interval", "200ms", *args, PATH=path)

    def scratch(self) -> list[Path]:
        """What windows have left in the spool."""
        return [p for p in (self.folder / "state/spool").rglob("*") if p.is_file()]


def window(daemon: Daemon, result: str) -> None:
    """Ask for a window until the budget allows one, and wait until it is counted as ``result``."""
    before = count(daemon, result)

    def started() -> bool:
        time.sleep(0.3)  # more than a few requests a second that change something are refused
        return daemon.post("/api/v1/windows")[0] == 202

    until(started, 40, "a window's start")
    until(lambda: count(daemon, result) > before, 40, f"a window that is {result}")


def count(daemon: Daemon, result: str) -> float:
    series = daemon.series().items()
    return sum(v for k, v in series if k.startswith("amdgpu_windows_total") and f'result="{result}"' in k)


def state(daemon: Daemon) -> str:
    [found] = [k for k, v in daemon.series().items() if k.startswith("amdgpu_sampling_state") and v]
    return found.split('"')[1]


def shown(daemon: Daemon, name: str, **labels: str) -> float | None:
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    found = [
        value
        for series, value in daemon.series().items()
        if series.split("{")[0] == name and all(part in series for part in wanted)
    ]
    assert len(found) <= 1
    return found[0] if found else None


def breaker_opens(folder: Path) -> None:
    node = Canary(folder)
    node.become("permission")
    with node.serving() as daemon:
        until(lambda: state(daemon) == "ready", 20, "ready")
        for _ in range(2):
            window(daemon, "denied")
            assert state(daemon) == "ready"
        window(daemon, "denied")
        until(lambda: state(daemon) == "tripped", 5, "the breaker")
        code, body = daemon.post("/api/v1/windows")
        assert (code, json.loads(body)["reason"]) in ((409, "tripped"), (409, "budget"))
        node.become("ok")
        window(daemon, "ok")
        assert state(daemon) == "ready"
        assert shown(daemon, "amdgpu_queue_delay_ratio", pci=GPU) == pytest.approx(RATIO)
        assert shown(daemon, "amdgpu_launch_duration_mean_seconds", pci=GPU) == pytest.approx(120e-6)
        assert shown(daemon, "amdgpu_queue_delay_ratio", pci="0000:25:00.0") is None
        node.become("crash")
        window(daemon, "crash")
        assert state(daemon) == "tripped"
        [newest, *_] = json.loads(daemon.get("/api/v1/windows")[1])["recent"]
        assert newest["result"] == "crash"
        assert (node.scratch(), marked(node.mark)) == ([], [])


def flood_is_bounded(folder: Path) -> None:
    cap = 128 << 20
    node = Canary(folder, max_bytes=cap)
    node.become("flood", flood_bytes=2 << 30)
    most = {"memory": 0, "files": 0}
    over = threading.Event()

    def watch(root: psutil.Process) -> None:
        while not over.wait(0.01):
            with contextlib.suppress(psutil.Error, OSError):
                tree = [root, *root.children(recursive=True)]
                most["memory"] = max(most["memory"], sum(p.memory_info().rss for p in tree))
                most["files"] = max(most["files"], sum(p.stat().st_size for p in node.scratch()))

    with node.serving() as daemon:
        until(lambda: state(daemon) == "ready", 20, "ready")
        watcher = threading.Thread(target=watch, args=(psutil.Process(daemon.process.pid),))
        watcher.start()
        try:
            window(daemon, "malformed")
        finally:
            over.set()
            watcher.join()
        assert "128 MiB of files" in daemon.log.read_text()
        assert (node.scratch(), marked(node.mark)) == ([], [])
    # One file never grows beyond the cap; many together are looked at every few milliseconds.
    assert cap // 2 < most["files"] < 1.5 * cap
    assert most["memory"] < 256 << 20


def times_are_on_the_page(folder: Path) -> None:
    target = prepared_target()
    try:
        name = psutil.Process(target.pid).name()
        node = Canary(folder, "attach", allow=[name], duration="200ms")
        trees.using(folder / "sys", target.pid, {10001: 1 << 30}, ((10001, 0),))
        node.become("ok", attach_dir=str(folder))
        with node.serving("--path.procfs", "/proc") as daemon:
            until(lambda: state(daemon) == "ready", 20, "ready")
            window(daemon, "ok")
            assert shown(daemon, "amdgpu_queue_delay_ratio", pci=GPU) == pytest.approx(RATIO)
            assert shown(daemon, "amdgpu_launch_queue_mean_seconds", pci=GPU) == pytest.approx(20e-6)
            launches = shown(daemon, "amdgpu_launch_queue_seconds_count", pci=GPU, launch="kernel")
            # One launch each millisecond, for 200 ms.
            assert launches == pytest.approx(200, abs=30)
            sum_s = shown(daemon, "amdgpu_launch_queue_seconds_sum", pci=GPU, launch="kernel")
            assert sum_s == pytest.approx((launches or 0) * 20e-6)
            kernels = shown(daemon, "amdgpu_kernel_dispatches_total", pci=GPU, kernel="saxpy")
            assert kernels in (launches, None)
            assert node.scratch() == []
        assert target.poll() is None
    finally:
        assert _ended(target) == 0


def unprepared_is_left(folder: Path) -> None:
    target = prepared_target(prepared=False)
    try:
        name = psutil.Process(target.pid).name()
        node = Canary(folder, "attach", allow=[name])
        trees.using(folder / "sys", target.pid, {10001: 1 << 30}, ((10001, 0),))
        node.become("ok")
        with node.serving("--path.procfs", "/proc") as daemon:
            until(lambda: state(daemon) == "blocked", 20, "blocked")
            assert json.loads(daemon.post("/api/v1/windows")[1])["reason"] == "not_attachable"
            assert "ROCP_TOOL_ATTACH=1" in daemon.get("/api/v1/status")[1]
        assert not any("--attach" in one["argv"] for one in starts(folder / "log"))
    finally:
        assert _ended(target) == 0


TOOLS = {
    "rocprofv3": "rocprofv3",
    "rocprofv2": "rocprofv2",
    "rocprof": "rocprof",
    "rocprofv3-avail": "rocprofv3_avail",
    "rocprof-attach": "rocprof_attach",
    "rocprof-compute": "rocprof_compute",
    "omniperf": "rocprof_compute",
}


def none_is_started(folder: Path) -> None:
    log = folder / "log"
    for tool, module in TOOLS.items():
        install(folder / "bin", tool, module, log=str(log))
    trees.mi300x(folder / "sys", sockets=2)
    target = prepared_target()
    trees.using(folder / "sys", target.pid, {10001: 1 << 30}, ((10001, 0),))
    path = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    args = ("--path.sysfs", str(folder / "sys"), "--path.procfs", "/proc", "--interval", "50ms")
    try:
        with serving(folder, *args, **path) as daemon:
            until(lambda: (daemon.value("^amdgpu_exporter_generation_total") or 0) > 20, 20, "generations")
            assert state(daemon) == "off"
            assert daemon.post("/api/v1/windows")[0] == 409
            assert daemon.post("/-/reload")[0] == 200
            for page in ("/", "/metrics", "/api/v1/status", "/api/v1/windows", "/api/v1/devices"):
                assert daemon.get(page)[0] == 200
        assert starts(log) == []
    finally:
        _ended(target)
    for tool in TOOLS:
        # Each does leave a note when it is started.
        subprocess.run([str(folder / "bin" / tool), "-h"], capture_output=True, check=False, timeout=20)
    assert len(starts(log)) == len(TOOLS)


def test_three_failures_or_one_crash_open_the_breaker_and_a_good_window_closes_it(
    scenes: Scenes,
) -> None:
    scenes.see(breaker_opens)


def test_two_gigabytes_of_files_stay_within_the_cap_and_within_256_mib_of_memory(
    scenes: Scenes,
) -> None:
    scenes.see(flood_is_bounded)


def test_a_prepared_process_is_attached_to_and_its_times_are_on_the_page(
    scenes: Scenes,
) -> None:
    scenes.see(times_are_on_the_page)


def test_a_process_that_is_not_prepared_keeps_the_attach_preset_from_starting(
    scenes: Scenes,
) -> None:
    scenes.see(unprepared_is_left)


def test_the_default_configuration_starts_none_of_them(
    scenes: Scenes,
) -> None:
    scenes.see(none_is_started)
