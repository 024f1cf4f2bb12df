"""Tell Kubernetes what the health rules say of this node: a condition with events, and a label if asked for.

python -m exporter.node_status --health URL [--label]

Runs beside the daemon, which itself never talks to the API server. What it may not do it stops doing: a
forbidden condition or label is said once and not tried again until the next start.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from exporter import logs
from exporter.host import Clock
from exporter.logs import event

log = logging.getLogger(__name__)

CONDITION = "AmdGpuUnhealthy"
LABEL = "amdgpu-exporter/health"
REASONS = {
    "healthy": "AmdGpusAreHealthy",
    "degraded": "AmdGpuIsDegraded",
    "unhealthy": "AmdGpuIsUnhealthy",
    "unknown": "AmdGpusAreNotKnown",
}
ACCOUNT = Path("/var/run/secrets/amdgpu-exporter")
_EVERY_S = 30.0
_AGAIN_S = 300.0  # a condition that stays is sent again, so that its age is known
_BACKOFF_MAX_S = 300.0
_TIMEOUT_S = 10.0
_SILENCE_S = 330.0  # a watch ends before
_ANSWER_MAX = 4 << 20
_TEXT_MAX = 512


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the node is and why, in one line."""

    status: str
    text: str


def verdict(answer: Mapping[str, Any] | None) -> Verdict:
    """Return what ``/api/v1/health`` says; None is a daemon that does not answer."""
    if answer is None:
        return Verdict("unknown", "the exporter does not answer")
    status = answer.get("status")
    if status not in REASONS:
        return Verdict("unknown", "the exporter's answer is not understood")
    told = [
        f"GPU {gpu['pci']} is {gpu['status']}: {', '.join(r['id'] for r in gpu['reasons'])}"
        for gpu in answer.get("gpus", ())
        if gpu["status"] in ("unhealthy", "degraded")
    ]
    if missing := answer.get("missing"):
        told.insert(0, f"{missing} of {answer.get('expected')} GPUs are missing")
    text = "; ".join(told) or f"AMD GPUs are {status}"
    return Verdict(status, text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…")


def condition(now: str, found: Verdict, before: str | None) -> dict[str, Any]:
    """The condition of a node. ``before`` is its status until now, None where it has none."""
    status = {"unhealthy": "True", "unknown": "Unknown"}.get(found.status, "False")
    made = {
        "type": CONDITION,
        "status": status,
        "reason": REASONS[found.status],
        "message": found.text,
        "lastHeartbeatTime": now,
    }
    # Left out where nothing changed: what the API server has stays.
    return made if status == before else {**made, "lastTransitionTime": now}


class Api:
    """The API server as seen from a pod. The token is read each time, because it is renewed."""

    def __init__(self, url: str, account: Path) -> None:
        self._url, self._account = url.rstrip("/"), account
        authority = account / "ca.crt"
        self._tls = ssl.create_default_context(cafile=str(authority)) if url.startswith("https:") else None

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Return the answer. Errors: OSError (HTTPError is one), ValueError for one that is no JSON."""
        with self._open(method, path, body, kind, _TIMEOUT_S) as answer:
            return json.loads(answer.read(_ANSWER_MAX))

    def lines(self, path: str) -> Iterator[bytes]:
        """Return the lines of an answer that goes on, as they come, until the server ends it."""
        with self._open("GET", path, None, "application/json", _SILENCE_S) as answer:
            while line := answer.readline(_ANSWER_MAX):
                if line.strip():
                    yield line

    def _open(self, method: str, path: str, body: Any, kind: str, timeout_s: float) -> Any:
        token = (self._account / "token").read_text(encoding="utf-8").strip()
        request = urllib.request.Request(  # noqa: S310 - the address of the API server, from the pod's environment
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": kind},
        )
        return urllib.request.urlopen(request, timeout=timeout_s, context=self._tls)  # noqa: S310


@dataclass(slots=True)
class Reporter:
    """Sends what changed; remembers what was sent and what is forbidden."""

    api: Api
    node: str
    clock: Clock
    wanted: set[str] = field(default_factory=lambda: {"condition", "event"})
    _before: str | None = None
    _asked: bool = False
    _sent: dict[str, Verdict] = field(default_factory=dict)
    _sent_at: float = float("-inf")

    def report(self, found: Verdict) -> None:
        """Send it. Errors: OSError, ValueError for what may work later; nothing for what is forbidden."""
        changed = self._sent.get("condition") != found
        if "condition" in self.wanted and (changed or self.clock.monotonic() - self._sent_at >= _AGAIN_S):
            self._try("condition", self._condition, found)
        if "event" in self.wanted and self._differs("event", found):
            self._try("event", self._event, found)
        if "label" in self.wanted and self._differs("label", found):
            self._try("label", self._label, found)

    def _differs(self, what: str, found: Verdict) -> bool:
        sent = self._sent.get(what)
        return sent is None or sent.status != found.status

    def _try(self, what: str, send: Any, found: Verdict) -> None:
        try:
            send(found)
        except urllib.error.HTTPError as e:
            with e:
                if e.code != 403:
                    raise
            self.wanted.discard(what)
            event(
                log,
                logging.ERROR,
                f"the {what} of the node is forbidden to us; not tried again",
                node=self.node,
            )
            return
        self._sent[what] = found

    def _condition(self, found: Verdict) -> None:
        path = f"/api/v1/nodes/{quote(self.node, safe='')}/status"
        if not self._asked:
            stands = self.api.call("GET", path).get("status", {}).get("conditions") or ()
            self._before = next((c.get("status") for c in stands if c.get("type") == CONDITION), None)
            self._asked = True
        made = condition(_stamp(self.clock.now()), found, self._before)
        patch = {"status": {"conditions": [made]}}
        self.api.call("PATCH", path, patch, "application/strategic-merge-patch+json")
        self._before, self._sent_at = made["status"], self.clock.monotonic()

    def _event(self, found: Verdict) -> None:
        if "event" not in self._sent and found.status == "healthy":
            return  # a start is no news
        now = self.clock.now()
        self.api.call(
            "POST",
            "/api/v1/namespaces/default/events",
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{self.node}.{int(now * 1e6):x}", "namespace": "default"},
                "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node},
                "type": "Normal" if found.status == "healthy" else "Warning",
                "reason": REASONS[found.status],
                "message": found.text,
                "source": {"component": "amdgpu-exporter", "host": self.node},
                "firstTimestamp": _stamp(now),
                "lastTimestamp": _stamp(now),
                "count": 1,
            },
        )

    def _label(self, found: Verdict) -> None:
        patch = {"metadata": {"labels": {LABEL: found.status}}}
        path = f"/api/v1/nodes/{quote(self.node, safe='')}"
        self.api.call("PATCH", path, patch, "application/merge-patch+json")


def ask(url: str) -> Mapping[str, Any] | None:
    """What the daemon says, None where it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - our own daemon
            found = json.loads(answer.read(_ANSWER_MAX))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else {}


def run(reporter: Reporter, url: str, stop: threading.Event, every_s: float = _EVERY_S) -> None:
    """Report until ``stop``. Where all is forbidden nothing is asked any more, and it waits for its end."""
    wait_s = every_s
    while not stop.is_set():
        if not reporter.wanted:
            stop.wait()
            return
        try:
            reporter.report(verdict(ask(url)))
            wait_s = every_s
        except (OSError, ValueError) as e:
            wait_s = min(2 * wait_s, _BACKOFF_MAX_S)
            event(log, logging.WARNING, "the API server could not be told", detail=e, again_s=wait_s)
        stop.wait(wait_s)


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def address(environ: Mapping[str, str]) -> str | None:
    """Return where the API server is, as a pod is told; None outside of one."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return None
    return environ.get("KUBERNETES_API") or f"https://{f'[{host}]' if ':' in host else host}:{port}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="exporter.node_status", description=__doc__)
    parser.add_argument("--health", required=True, help="address of the daemon's /api/v1/health")
    parser.add_argument("--label", action="store_true", help=f"keep the label {LABEL} on the node too")
    parser.add_argument("--account", type=Path, default=ACCOUNT, help="folder with token and ca.crt")
    parser.add_argument("--every", type=float, default=_EVERY_S, help="seconds between two looks")
    args = parser.parse_args(argv)
    logs.setup("info", "logfmt")
    node, url = os.environ.get("NODE_NAME"), address(os.environ)
    if not node or not url:
        parser.error("NODE_NAME and KUBERNETES_SERVICE_HOST must be set; it runs in a pod")
    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: stop.set())
    reporter = Reporter(Api(url, args.account), node, Clock())
    if args.label:
        reporter.wanted.add("label")
    run(reporter, args.health, stop, args.every)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
