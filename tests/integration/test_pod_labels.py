"""Labels of pods, from an API server to the daemon's page."""

from __future__ import annotations

import http.server
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon import environment, serving, until

NODE = "gpu-node-7"


class Server:
    """An API server with pods; ``changes`` go out on the watch, None ends it."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.changes: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.asked: list[str] = []
        self.code = 200
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                self.send_response(outer.code)
                self.end_headers()
                if outer.code != 200:
                    return
                if "watch=true" not in self.path:
                    answer = {"items": outer.pods, "metadata": {"resourceVersion": "10"}}
                    self.wfile.write(json.dumps(answer).encode())
                    return
                while (change := outer.changes.get()) is not None:
                    self.wfile.write(json.dumps(change).encode() + b"\n")
                    self.wfile.flush()

            def log_message(self, *_: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()


def pod(name: str, labels: dict[str, str], version: str = "1", phase: str = "Running") -> dict[str, Any]:
    meta = {"namespace": "ml", "name": name, "labels": labels, "resourceVersion": version}
    return {"metadata": meta, "status": {"phase": phase}}


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.changes.put(None)
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def started(server: Server, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "account").mkdir()
    (tmp_path / "account/token").write_text("secret\n")
    env = {"NODE_NAME": NODE, "KUBERNETES_SERVICE_HOST": "127.0.0.1"}
    env |= {"KUBERNETES_API": f"http://127.0.0.1:{server.http.server_port}"}
    command = [sys.executable, "-m", "exporter.pod_labels", "--label", "ray.io/cluster", "--label", "app"]
    command += ["--file", str(tmp_path / "texts/pod_labels.prom"), "--account", str(tmp_path / "account")]
    server.pods = [
        pod("train-0", {"app": 'a "b"', "ray.io/cluster": "c1", "secret": "x"}),
        pod("done", {"app": "old"}, phase="Succeeded"),
        pod("bare", {}),
    ]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, env=environment(**env), stderr=log) as p,
    ):
        yield p
        server.changes.put(None)
        p.send_signal(signal.SIGTERM)


def lines(tmp_path: Path) -> list[str]:
    path = tmp_path / "texts/pod_labels.prom"
    return (
        [x for x in path.read_text().splitlines() if not x.startswith("#")] if path.exists() else ["absent"]
    )


APP = 'gpu_pod_label_info{namespace="ml",pod="train-0",label="app",value="a \\"b\\""} 1'
RAY = 'gpu_pod_label_info{namespace="ml",pod="train-0",label="ray.io/cluster",value="c1"} 1'


def test_chosen_labels_reach_the_page_and_follow_the_pods(
    server: Server, started: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    until(lambda: lines(tmp_path) == [APP, RAY], what="the list")
    assert f"fieldSelector=spec.nodeName%3D{NODE}" in server.asked[0]
    (tmp_path / "c.yaml").write_text(
        f"textfile: {{folder: {tmp_path / 'texts'}}}\npoll: {{interval: 200ms}}\n"
    )
    with serving(tmp_path, "--backend", "replay", "--config", str(tmp_path / "c.yaml")) as daemon:
        shown = lambda: {n for n in daemon.series() if n.startswith("gpu_pod_label_info")}  # noqa: E731
        until(lambda: len(shown()) == 2, what="the labels on the page")
        assert any('value="a \\"b\\""' in name for name in shown())
        server.changes.put({"type": "ADDED", "object": pod("new", {"app": "n"}, "11")})
        until(lambda: len(lines(tmp_path)) == 3, what="the new pod")
        server.changes.put({"type": "MODIFIED", "object": pod("new", {}, "12")})
        server.changes.put({"type": "DELETED", "object": pod("train-0", {}, "13")})
        until(lambda: lines(tmp_path) == [], what="their end")
        until(lambda: not shown(), what="the page")
    assert len([path for path in server.asked if "watch=true" in path]) == 1, "one watch"
    started.send_signal(signal.SIGTERM)
    assert started.wait(5) == 0
    assert lines(tmp_path) == ["absent"]


def test_a_watch_that_ends_goes_on_where_it_stopped_and_one_too_old_begins_anew(
    server: Server, started: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    until(lambda: lines(tmp_path) == [APP, RAY])
    server.changes.put({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "40"}}})
    server.changes.put(None)
    until(lambda: any("resourceVersion=40" in path for path in server.asked), what="the next watch")
    server.pods = [pod("other", {"app": "z"})]
    server.changes.put({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
    until(lambda: len(lines(tmp_path)) == 1 and "other" in lines(tmp_path)[0], what="the new list")


def test_where_pods_may_not_be_listed_it_says_so_once_and_asks_no_more(
    server: Server, started: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    until(lambda: lines(tmp_path) == [APP, RAY])
    server.code = 403
    server.changes.put(None)
    until(lambda: "may not be listed" in (tmp_path / "log").read_text(), what="the line")
    assert lines(tmp_path) == ["absent"]
    asked = len(server.asked)
    assert started.poll() is None
    assert len(server.asked) == asked
