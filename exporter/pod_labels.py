"""Chosen labels of this node's pods, as a text file that the daemon serves: gpu_pod_label_info.

python -m exporter.pod_labels --label ray.io/cluster --label app --file FOLDER/pod_labels.prom

Runs beside the daemon, which itself never talks to the API server. One list, then one watch; where that is
forbidden it says so once and asks no more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import threading
import urllib.error
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from exporter import logs
from exporter.logs import event
from exporter.node_status import ACCOUNT, Api, address

log = logging.getLogger(__name__)

_HEAD = (
    "# HELP gpu_pod_label_info Chosen labels of pods on this node; join by namespace and pod.\n"
    "# TYPE gpu_pod_label_info gauge\n"
)
_PODS_MAX = 1000
_VALUE_MAX = 256
_WATCH_S = 300  # the server ends a watch by then, and the next one goes on where it stopped
_BACKOFF_MAX_S = 60.0
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[tuple[str, str], Mapping[str, str]]


class Pods:
    """The pods of one node and their chosen labels, kept up to date by a watch."""

    def __init__(self, api: Api, node: str, wanted: Iterable[str]) -> None:
        self._api, self._node, self._wanted = api, node, tuple(wanted)
        self._version = ""
        self.labels: dict[tuple[str, str], dict[str, str]] = {}

    def list(self) -> None:
        """Begin anew. Errors: OSError (HTTPError is one), ValueError."""
        answer = self._api.call("GET", self._path())
        found: dict[tuple[str, str], dict[str, str]] = {}
        for pod in answer["items"][:_PODS_MAX]:
            self._take(found, pod)
        self.labels, self._version = found, str(answer["metadata"]["resourceVersion"])

    def watch(self, changed: Any) -> None:
        """Follow changes until the server ends the watch. Errors: as ``list``; ValueError: list again."""
        for line in self._api.lines(
            self._path(watch="true", resourceVersion=self._version, timeoutSeconds=str(_WATCH_S))
        ):
            change = json.loads(line)
            kind, pod = change["type"], change["object"]
            if kind == "ERROR":
                raise ValueError(pod.get("message", "the watch is too old"))
            self._version = str(pod["metadata"]["resourceVersion"])
            before = dict(self.labels)
            if kind == "DELETED":
                self.labels.pop(_key(pod), None)
            elif kind in ("ADDED", "MODIFIED"):
                self.labels.pop(_key(pod), None)
                self._take(self.labels, pod)
            if before != self.labels:
                changed()

    def _take(self, into: dict[tuple[str, str], dict[str, str]], pod: Mapping[str, Any]) -> None:
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return
        has = pod["metadata"].get("labels") or {}
        chosen = {k: str(has[k])[:_VALUE_MAX] for k in self._wanted if k in has}
        if chosen and len(into) < _PODS_MAX:
            into[_key(pod)] = chosen

    def _path(self, **more: str) -> str:
        return f"/api/v1/pods?{urlencode({'fieldSelector': f'spec.nodeName={self._node}', **more})}"


def _key(pod: Mapping[str, Any]) -> tuple[str, str]:
    return str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"])


def text(labels: Labels) -> str:
    """The page, sorted; without any label only its head."""
    lines = []
    for (namespace, pod), chosen in sorted(labels.items()):
        for key, value in sorted(chosen.items()):
            pairs = {"namespace": namespace, "pod": pod, "label": key, "value": value}
            inner = ",".join(f'{k}="{v.translate(_ESCAPES)}"' for k, v in pairs.items())
            lines.append(f"gpu_pod_label_info{{{inner}}} 1\n")
    return _HEAD + "".join(lines)


def write(path: Path, page: str) -> None:
    """Replace the file whole, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(page, encoding="utf-8")
    draft.replace(path)


def run(pods: Pods, path: Path, stop: threading.Event, patience_s: float = 1.0) -> None:
    """List and watch until ``stop``; a file that cannot be kept up to date is taken away."""
    wait_s = patience_s
    while not stop.is_set():
        try:
            pods.list()
            write(path, text(pods.labels))
            wait_s = patience_s
            while not stop.is_set():
                pods.watch(lambda: write(path, text(pods.labels)))
        except urllib.error.HTTPError as e:
            with e:
                if e.code in (401, 403):
                    event(log, logging.ERROR, "pods may not be listed by us; not asked again", code=e.code)
                    path.unlink(missing_ok=True)
                    stop.wait()
                    return
                problem: object = f"{e.code} {e.reason}"
        except (OSError, ValueError, KeyError, TypeError) as e:
            problem = e
        else:
            return
        if stop.is_set():
            return
        event(log, logging.WARNING, "the API server could not be asked", detail=problem, again_s=wait_s)
        # What is not known to be true any more must not be served.
        path.unlink(missing_ok=True)
        stop.wait(wait_s)
        wait_s = min(2 * wait_s, _BACKOFF_MAX_S)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="exporter.pod_labels", description=__doc__)
    parser.add_argument("--label", action="append", required=True, help="key of a label to show; repeatable")
    parser.add_argument("--file", type=Path, required=True, help="file in the daemon's textfile.folder")
    parser.add_argument("--account", type=Path, default=ACCOUNT, help="folder with token and ca.crt")
    args = parser.parse_args(argv)
    logs.setup("info", "logfmt")
    node, url = os.environ.get("NODE_NAME"), address(os.environ)
    if not node or not url:
        parser.error("NODE_NAME and KUBERNETES_SERVICE_HOST must be set; it runs in a pod")
    stop = threading.Event()
    worker = threading.Thread(
        target=run, args=(Pods(Api(url, args.account), node, args.label), args.file, stop), daemon=True
    )
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: stop.set())
    worker.start()
    stop.wait()
    with contextlib.suppress(OSError):
        args.file.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
