"""The simulated fleet of the benchmark: which series are asked for, and how they are written."""

from __future__ import annotations

import http.client
import re
import shutil
import struct
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alerts import build, recording
from alerts.settings import read
from exporter.backends.replay import demo_path
from tests import promql
from tests.tools import panel_queries
from tests.tools.replay_history import Node

SECONDS, STEP_S, GPUS = 1800, 30, 8
JOB = 16  # nodes of the job that is looked at
# What Grafana fills in for half an hour of scrapes each 30 s.
BUILT_IN = {"__rate_interval": "2m", "__interval": "30s", "__range": "30m", "offset": "10m"}


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


# --- what is asked --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """One query of a panel, filled in as Grafana would."""

    name: str
    expr: str
    instant: bool


def panels() -> list[Panel]:
    """Every query of every dashboard, with its choices as it opens."""
    return [
        Panel(f"{asked.name} [{n}]" if n else asked.name, asked.expr, asked.instant)
        for board in panel_queries.boards().values()
        for n, asked in _numbered(panel_queries.queries(board, **BUILT_IN, **opened(board)))
    ]


def opened(board: dict[str, Any]) -> dict[str, str]:
    """A choice of one among all is the first one; a job has the nodes that it is on."""
    one = {"node": "node-0000"}
    variables = {v["name"]: v for v in board["templating"]["list"]}
    if "workload" in variables:
        return {"workload": "train-0", "job_id": "", "node": "|".join(f"node-{n:04d}" for n in range(JOB))}
    return {n: v for n, v in one.items() if n in variables and not variables[n].get("includeAll")}


def _numbered(asked: Iterable[panel_queries.Asked]) -> Iterator[tuple[int, panel_queries.Asked]]:
    seen: dict[str, int] = {}
    for a in asked:
        yield seen.setdefault(a.name, 0), a
        seen[a.name] += 1


def names_read() -> set[str]:
    """Every series that a rule or a panel reads."""
    settings = read()
    exprs = [r.expr for group in recording.groups(settings).values() for r in group]
    exprs += [a.expr for group in build.alerts(settings).values() for a in group]
    exprs += [p.expr for p in panels()]
    return {r.name for e in exprs for r in promql.reads(promql.parse(e))}


# --- what is written ------------------------------------------------------------------------------------


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def message(number: int, body: bytes) -> bytes:
    """A protobuf field that holds bytes."""
    return bytes((number << 3 | 2,)) + varint(len(body)) + body


def label(name: str, value: str) -> bytes:
    return message(1, message(1, name.encode()) + message(2, value.encode()))


def snappy(body: bytes) -> bytes:
    """As the block format has it, uncompressed: one literal. What is measured is the database."""
    return varint(len(body)) + b"\xfc" + struct.pack("<I", len(body) - 1) + body


@dataclass(frozen=True)
class Template:
    """One series of a node as remote write has it, without the node's name."""

    before: bytes
    after: bytes
    samples: bytes

    def of(self, instance: bytes) -> bytes:
        return message(1, self.before + instance + self.after + self.samples)


def templates(end: float) -> list[Template]:
    """The series of one node over the half hour that ends at ``end``."""
    wanted, start = names_read(), end - SECONDS
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(shutil.copytree(demo_path(), Path(folder) / "capture"))
        pages = list(Node("node", capture, expected=GPUS).pages(start, SECONDS + 1))[::2]
    series: dict[str, list[tuple[float, float]]] = {"up": [(at, 1.0) for at, _ in pages]}
    for at, page in pages:
        for line in page.splitlines():
            head, _, value = line.rpartition(" ")
            if not line.startswith("#") and head.partition("{")[0] in wanted:
                series.setdefault(head, []).append((at, float(value)))
    return [_template(head, values) for head, values in series.items()]


def _template(head: str, values: list[tuple[float, float]]) -> Template:
    name, _, rest = head.partition("{")
    pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', rest)
    labels = {k: v.replace('\\"', '"').replace("\\\\", "\\") for k, v in pairs}
    labels |= {"__name__": name, "cluster": "bench", "job": "amdgpu-exporter"}
    parts = {n: label(n, v) for n, v in labels.items()}
    before = b"".join(parts[n] for n in sorted(parts) if n < "instance")
    after = b"".join(parts[n] for n in sorted(parts) if n > "instance")
    samples = (b"\x09" + struct.pack("<d", v) + b"\x10" + varint(int(at * 1000)) for at, v in values)
    return Template(before, after, b"".join(message(2, s) for s in samples))


def result(name: str, labels: dict[str, str], value: float, at: float) -> bytes:
    """One series of one sample: what a recording rule leaves behind."""
    pairs = sorted({**labels, "__name__": name}.items())
    sample = b"\x09" + struct.pack("<d", value) + b"\x10" + varint(int(at * 1000))
    return message(1, b"".join(label(k, v) for k, v in pairs) + message(2, sample))


def fleet(nodes: int, made: list[Template]) -> Iterator[bytes]:
    """The body of one request for each node."""
    for n in range(nodes):
        instance = label("instance", f"node-{n:04d}")
        yield b"".join(t.of(instance) for t in made)
        if nodes >= 1000 and n % 200 == 199:
            say(f"  {n + 1} nodes written")


def write(url: str, bodies: Iterable[bytes]) -> None:
    """By remote write. Errors: SystemExit with what the database said."""
    host = urllib.parse.urlsplit(url).netloc
    connection = http.client.HTTPConnection(host, timeout=120)
    headers = {
        "Content-Encoding": "snappy",
        "Content-Type": "application/x-protobuf",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    for body in bodies:
        connection.request("POST", "/api/v1/write", snappy(body), headers)
        answer = connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"remote write: {answer.status} {said[:300]!r}")
    connection.close()
