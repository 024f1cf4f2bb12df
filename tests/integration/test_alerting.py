"""From a capture to a person: daemon, real Prometheus, the shipped rules, real Alertmanager, a webhook.

Every duration of the rules is shortened by the generator itself; their expressions are the shipped ones.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import demo_windows
import pytest
import yaml
from daemon import ROOT, free_port, serving, until
from demo_tables import PCI

from alerts import build

ROUND_S = 3  # each GPU's window comes once a round, as it does every 10 minutes in life
SCALE = ROUND_S / 600
LAUNCH_BOUND, HOST_STARVED, SATURATED = PCI[1], PCI[3], PCI[6]
QUEUE_DELAY, STARVED = "AmdGpuQueueDelayHigh", "AmdGpuHostStarved"


def launch_bound(w: demo_windows.Demo) -> None:
    """Ratio 0.89, executing 0.07: small kernels one by one."""
    spans = {"call": (8_000, 8_000), "wait": (3_756, 3_756), "run": (1_455, 1_455), "pause": (7_340, 7_340)}
    demo_windows.one_by_one(w, 400, (demo_windows.ADD, demo_windows.NORM), spans)


def host_starved(w: demo_windows.Demo) -> None:
    """Ratio 0.11, executing 0.08: long pauses between long kernels."""
    spans = {"call": (16_000, 16_000), "wait": (5_474, 5_474), "run": (176_070, 176_070)}
    demo_windows.one_by_one(w, 15, (demo_windows.GEMM,), spans | {"pause": (2_140_703, 2_140_703)})


WINDOWS = (
    ("1-launch_bound", LAUNCH_BOUND, launch_bound, 0.89, 0.07),
    ("2-host_starved", HOST_STARVED, host_starved, 0.11, 0.08),
    ("3-saturated", SATURATED, demo_windows.gpu_bound, 0.99, 0.98),
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo node standing still, with one window for each of three GPUs."""
    folder = tmp_path_factory.mktemp("made") / "capture"
    shutil.copytree(ROOT / "exporter" / "demo" / "mi300x-8x" / "sys", folder / "sys", symlinks=True)
    due = []
    for seed, (name, pci, schedule, ratio, executing) in enumerate(WINDOWS, start=61):
        w = demo_windows.Demo(name, pci, seed)
        schedule(w)
        assert w.sums["queue_ns"] / w.sums["launch_duration_ns"] == pytest.approx(ratio, abs=0.005)
        assert w.timeline["executing"] / (w.now - w.start) == pytest.approx(executing, abs=0.006)
        for file, body in demo_windows._files(w).items():
            path = folder / "windows" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
        due.append({"path": f"windows/{name}", "at": len(due) * ROUND_S / 3})
    frames = {"count": 1, "seconds": ROUND_S}
    described = {"version": 1, "name": "made", "synthetic": True, "frames": frames, "windows": due}
    (folder / "capture.json").write_text(json.dumps(described))
    return folder


@dataclass
class Webhook:
    """What Alertmanager has delivered, by receiver."""

    url: str
    got: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def alerts(self) -> list[tuple[str, dict[str, Any]]]:
        return [(receiver, alert) for receiver, body in list(self.got) for alert in body["alerts"]]

    def names(self, pci: str) -> set[str]:
        return {a["labels"]["alertname"] for _, a in self.alerts() if a["labels"].get("pci") == pci}


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            hook.got.append((self.path.strip("/"), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook = Webhook(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield hook
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def running(log: Path, url: str, *argv: str) -> Iterator[None]:
    """A server that answers on ``/-/ready``; ended at the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    try:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(OSError):
                return bool(urllib.request.urlopen(f"{url}/-/ready", timeout=2).status == 200)
            return False

        until(ready, 20, f"{argv[0]} to be ready")
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]


def tool(*names: str) -> str:
    path = next((p for n in names if (p := shutil.which(n))), None)
    if path is None:
        pytest.skip(f"{names[0]} is not installed; tests/install-parts fetches it")
    return path


def alertmanager() -> list[str]:
    """How to start it: Debian's build wants its templates in /usr/share, wherever it lies itself."""
    path = Path(tool("prometheus-alertmanager", "alertmanager"))
    if Path("/usr/share/prometheus/alertmanager/default.tmpl").exists() or path.name == "alertmanager":
        return [str(path)]
    # Its own view of the file system, for this one process: nothing of the machine changes.
    view = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    share = path.parent.parent / "share"
    argv = [*view, f'mount --bind "{share}" /usr/share && exec "$@"', "sh", str(path)]
    if subprocess.run([*argv, "--version"], capture_output=True).returncode != 0:
        pytest.skip("Alertmanager is unpacked, not installed, and no mount namespace can be had here")
    return argv


def routes(webhook: Webhook) -> dict[str, Any]:
    """The shipped routes and inhibition; only addresses and waiting times are ours."""
    shipped = yaml.safe_load((ROOT / "alerts" / "alertmanager.yml").read_text())
    for receiver in shipped["receivers"]:
        hook = {"url": f"{webhook.url}/{receiver['name']}", "send_resolved": True}
        receiver["webhook_configs"] = [hook]
    for route in (shipped["route"], *shipped["route"]["routes"]):
        route |= {"group_wait": "500ms", "group_interval": "1s", "repeat_interval": "1h"}
    return dict(shipped)


def test_a_slow_gpu_reaches_a_person_and_a_healthy_one_does_not(
    capture: Path, webhook: Webhook, tmp_path: Path
) -> None:
    prometheus, manager = tool("prometheus"), alertmanager()
    (tmp_path / "am.yml").write_text(yaml.safe_dump(routes(webhook)))
    build.main(["--time-scale", str(SCALE), "--out", str(tmp_path)])
    prom_url, am_url = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    with serving(tmp_path, "--backend", "replay", "--capture", str(capture)) as node:
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "rule_files": ["rules/*.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [am_url[7:]]}]}]},
            "scrape_configs": [
                {"job_name": "amdgpu-exporter", "static_configs": [{"targets": [node.url[7:]]}]}
            ],
        }
        (tmp_path / "prom.yml").write_text(yaml.safe_dump(config))
        am = (f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/am")
        am += (f"--web.listen-address={am_url[7:]}", "--cluster.listen-address=")
        prom = (f"--config.file={tmp_path}/prom.yml", f"--storage.tsdb.path={tmp_path}/tsdb")
        prom += (f"--web.listen-address={prom_url[7:]}",)
        with (
            running(tmp_path / "am.log", am_url, *manager, *am),
            running(tmp_path / "prom.log", prom_url, prometheus, *prom),
        ):
            until(
                lambda: QUEUE_DELAY in webhook.names(LAUNCH_BOUND) and STARVED in webhook.names(HOST_STARVED),
                45,
                "both alerts to arrive",
            )
            # As many windows again, so that whatever else would fire has had its time.
            seen = node.value(rf'^amdgpu_windows_total\{{.*{SATURATED}.*mode="trace",result="ok"')
            assert seen is not None
            done = rf'^amdgpu_windows_total\{{.*{SATURATED}.*mode="trace",result="ok"'
            until(lambda: (node.value(done) or 0) >= seen + 2, 15, "two more windows")
            alerts = ask(f"{prom_url}/api/v1/alerts")["alerts"]
            rules = ask(f"{prom_url}/api/v1/rules")["groups"]
            # What a person clicks on is there, served by the daemon that the alert is about.
            runbooks = {
                a["labels"]["alertname"]: fetch(a["annotations"]["runbook_url"])
                for r, a in webhook.alerts()
                if r == "amdgpu-ticket"
            }
    assert webhook.names(LAUNCH_BOUND) - {"AmdGpuLaunchBound"} == {QUEUE_DELAY}
    assert webhook.names(HOST_STARVED) == {STARVED}
    assert webhook.names(SATURATED) == set()
    # Nothing else either: the node is well. Its GPUs do run unlike loads, which is told as context.
    told = {(receiver, a["labels"]["alertname"]) for receiver, a in webhook.alerts()}
    context = {("amdgpu-context", "AmdGpuLaunchBound"), ("amdgpu-context", "AmdGpuImbalance")}
    assert told - context == {("amdgpu-ticket", QUEUE_DELAY), ("amdgpu-ticket", STARVED)}
    # Not even pending.
    assert [a for a in alerts if a["labels"].get("pci") == SATURATED] == []
    assert [(r["name"], r["lastError"]) for g in rules for r in g["rules"] if r.get("lastError")] == []
    _tells_everything(webhook, node.url)
    assert set(runbooks) == {QUEUE_DELAY, STARVED}
    assert all(f"<h1>{name}</h1>" in page for name, page in runbooks.items())


def _tells_everything(webhook: Webhook, url: str) -> None:
    receiver, alert = next((r, a) for r, a in webhook.alerts() if a["labels"]["alertname"] == QUEUE_DELAY)
    assert receiver == "amdgpu-ticket"
    labels, told = alert["labels"], alert["annotations"]
    assert (alert["status"], labels["severity"], labels["about"]) == ("firing", "warning", "gpu")
    assert (labels["instance"], labels["gpu"], labels["pci"]) == (url[7:], "1", LAUNCH_BOUND)
    assert float(told["value"].removesuffix("%")) == pytest.approx(89, abs=1)
    assert told["runbook_url"] == f"{url}/runbooks/{QUEUE_DELAY}"
    assert told["dashboard_url"] == f"{url}/"
    for part in (url[7:], LAUNCH_BOUND, told["value"], "amdgpu-exporter analyze"):
        assert part in told["description"], part
