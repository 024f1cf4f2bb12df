"""The node's condition, events and label as an API server gets them from the process of the pod."""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from daemon import environment, serving, until

from exporter.node_status import REASONS, Verdict, condition, verdict

NODE = "gpu-node-7"
GPU = {"gpu": "2", "pci": "0000:46:00.0", "status": "unhealthy", "reasons": [{"id": "gone"}, {"id": "reset"}]}
HEALTHY = {"version": 1, "status": "healthy", "expected": 8, "missing": 0, "gpus": []}
UNHEALTHY = {**HEALTHY, "status": "unhealthy", "gpus": [GPU]}


@dataclass
class Cluster:
    """A daemon's health page and an API server, both made here; what the server was asked is kept."""

    health: Any = field(default_factory=lambda: HEALTHY)
    refuse: dict[str, int] = field(default_factory=dict)  # end of a path -> status
    stands: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    url: str = ""

    def sent(self, method: str, ending: str) -> list[Any]:
        return [body for m, path, _, body in self.asked if m == method and path.endswith(ending)]

    def conditions(self) -> list[dict[str, Any]]:
        return [body["status"]["conditions"][0] for body in self.sent("PATCH", "/status")]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self, code: int, body: Any) -> None:
            blob = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("content-length", str(len(blob)))
            self.end_headers()
            self.wfile.write(blob)

        def _handle(self) -> None:
            if self.path == "/api/v1/health":
                code = 200 if made.health is not None else 503
                return self._answer(code, made.health)
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            made.tokens.append(self.headers["authorization"])
            made.asked.append((self.command, self.path, self.headers.get("content-type", ""), body))
            code = next((c for ending, c in made.refuse.items() if self.path.endswith(ending)), 200)
            return self._answer(code, {"status": {"conditions": made.stands}})

        do_GET = do_PATCH = do_POST = _handle  # noqa: N815 - the base class' names

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def reporting(cluster: Cluster, tmp_path: Path, *args: str, health: str = "") -> Iterator[Path]:
    """The process as the chart starts it; its log."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("first\n")
    log = tmp_path / "log"
    host = {"NODE_NAME": NODE, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_API": cluster.url}
    argv = [sys.executable, "-P", "-m", "exporter.node_status", "--account", str(account), "--every", "0.1"]
    argv += ["--health", health or f"{cluster.url}/api/v1/health", *args]
    with log.open("wb") as err:
        process = subprocess.Popen(argv, env=environment(**host), stderr=err)
    try:
        yield log
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


def test_a_condition_follows_the_verdict_and_a_change_is_an_event(cluster: Cluster, tmp_path: Path) -> None:
    with reporting(cluster, tmp_path):
        until(cluster.conditions, what="the first condition")
        cluster.health = UNHEALTHY
        until(lambda: cluster.sent("POST", "/events"), what="an event")
        cluster.health = HEALTHY
        until(lambda: len(cluster.sent("POST", "/events")) == 2, what="the second event")
    assert [c["status"] for c in cluster.conditions()] == ["False", "True", "False"]
    assert all(c["type"] == "AmdGpuUnhealthy" for c in cluster.conditions())
    assert cluster.conditions()[1]["message"] == "GPU 0000:46:00.0 is unhealthy: gone, reset"
    kinds = {
        kind for method, path, kind, _ in cluster.asked if path.endswith("/status") and method == "PATCH"
    }
    assert kinds == {"application/strategic-merge-patch+json"}
    bad, good = cluster.sent("POST", "/api/v1/namespaces/default/events")
    assert (bad["type"], bad["reason"], good["type"]) == ("Warning", "AmdGpuIsUnhealthy", "Normal")
    assert bad["involvedObject"]["name"] == NODE
    assert bad["metadata"]["name"] != good["metadata"]["name"]
    assert cluster.sent("PATCH", f"/nodes/{NODE}") == []  # no label unless asked for


def test_a_label_is_kept_where_it_is_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    with reporting(cluster, tmp_path, "--label"):
        until(lambda: cluster.sent("PATCH", f"/nodes/{NODE}"), what="a label")
        cluster.health = UNHEALTHY
        until(lambda: len(cluster.sent("PATCH", f"/nodes/{NODE}")) == 2, what="the second label")
    assert [b["metadata"]["labels"] for b in cluster.sent("PATCH", f"/nodes/{NODE}")] == [
        {"amdgpu-exporter/health": "healthy"},
        {"amdgpu-exporter/health": "unhealthy"},
    ]


def test_what_is_forbidden_is_said_once_and_not_tried_again_and_the_rest_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.refuse = {f"/nodes/{NODE}": 403}
    with reporting(cluster, tmp_path, "--label") as log:
        until(cluster.conditions, what="the condition")
        cluster.health = UNHEALTHY
        until(lambda: len(cluster.conditions()) == 2, what="the second condition")
    assert len(cluster.sent("PATCH", f"/nodes/{NODE}")) == 1
    assert log.read_text().count("forbidden") == 1


def test_where_all_is_forbidden_it_asks_no_more_and_ends_when_told(cluster: Cluster, tmp_path: Path) -> None:
    cluster.refuse = {"/status": 403, "/events": 403}
    cluster.health = UNHEALTHY
    with reporting(cluster, tmp_path) as log:
        until(lambda: log.read_text().count("forbidden") == 2, what="both refusals")
        asked = len(cluster.asked)
        cluster.health = HEALTHY
        with pytest.raises(AssertionError, match="did not happen"):
            until(lambda: len(cluster.asked) > asked, 0.5, "another question")


def test_a_server_that_fails_is_asked_again_with_the_token_of_then(cluster: Cluster, tmp_path: Path) -> None:
    cluster.refuse = {"/status": 500}
    with reporting(cluster, tmp_path) as log:
        until(lambda: "could not be told" in log.read_text(), what="a failure")
        (tmp_path / "account" / "token").write_text("second\n")
        cluster.refuse = {}
        until(cluster.conditions, what="the condition")
    assert cluster.tokens[0] == "Bearer first"
    assert cluster.tokens[-1] == "Bearer second"
    assert "first" not in log.read_text()


def test_a_daemon_that_does_not_answer_makes_the_condition_unknown(cluster: Cluster, tmp_path: Path) -> None:
    cluster.health = None
    with reporting(cluster, tmp_path):
        until(cluster.conditions, what="a condition")
    assert cluster.conditions()[0]["status"] == "Unknown"
    assert cluster.conditions()[0]["message"] == "the exporter does not answer"


def test_it_reads_what_a_real_daemon_says(cluster: Cluster, tmp_path: Path) -> None:
    with serving(tmp_path, "--backend", "replay") as daemon:
        said = json.loads(daemon.get("/api/v1/health")[1])["status"]
        with reporting(cluster, tmp_path, health=f"{daemon.url}/api/v1/health"):
            until(cluster.conditions, what="a condition")
    assert cluster.conditions()[0]["reason"] == REASONS[said]


def test_a_condition_that_stands_keeps_the_time_of_its_change(cluster: Cluster, tmp_path: Path) -> None:
    cluster.stands = [{"type": "Ready", "status": "True"}, {"type": "AmdGpuUnhealthy", "status": "False"}]
    with reporting(cluster, tmp_path):
        until(cluster.conditions, what="a condition")
    assert "lastTransitionTime" not in cluster.conditions()[0]


def test_what_is_said_is_bounded_and_never_guessed() -> None:
    many = {**UNHEALTHY, "missing": 2, "gpus": [GPU] * 64}
    found = verdict(many)
    assert found.text.startswith("2 of 8 GPUs are missing; GPU 0000:46:00.0 is unhealthy")
    assert len(found.text) == 512
    assert verdict({"status": "splendid"}).status == "unknown"
    assert verdict({}).status == "unknown"
    assert condition("now", Verdict("degraded", ""), None)["status"] == "False"


def test_outside_of_a_pod_it_says_what_it_needs() -> None:
    argv = [sys.executable, "-P", "-m", "exporter.node_status", "--health", "http://x/"]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment(), timeout=30)
    assert done.returncode == 2
    assert "NODE_NAME" in done.stderr
    assert "Traceback" not in done.stderr
