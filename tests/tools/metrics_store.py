"""A real Prometheus over pages whose times are invented, and questions to it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.integration.daemon import free_port, until

EMPTY_CONFIG = "global: {scrape_interval: 15s}\n"


class QueryError(Exception):
    """What Prometheus says is wrong with a query."""


class Prometheus:
    """Answers from the HTTP API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: Any) -> Any:
        # POST: queries of the fleet board are longer than some servers take in an address.
        body = urllib.parse.urlencode(parameters, doseq=True).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, body), timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as e:
            raise QueryError(json.load(e)["error"]) from None

    def now(self, query: str, at: float) -> list[dict[str, Any]]:
        """Series of an instant query, in the order they come."""
        return list(self.get("/api/v1/query", query=query, time=at)["result"])

    def over(self, query: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        return list(self.get("/api/v1/query_range", query=query, start=start, end=end, step=step)["result"])

    def series_values(self, match: str, label: str) -> list[str]:
        """Values of a label of the series that match."""
        url = f"{self.url}/api/v1/label/{label}/values?{urllib.parse.urlencode({'match[]': match})}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return list(json.load(answer)["data"])


def make_blocks(folder: Path, lines: Iterable[str], promtool: str) -> None:
    """Write samples with their own times into the folder of a Prometheus."""
    text = folder / "pages.om"
    with text.open("w") as f:
        f.writelines(f"{line}\n" for line in lines)
        f.write("# EOF\n")
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    text.unlink()


@contextlib.contextmanager
def serving(folder: Path, prometheus: str, lookback: str = "14s") -> Iterator[Prometheus]:
    """Prometheus on the blocks in ``folder``; scrapes nothing.

    A scrape marks series that are gone; samples brought in cannot, so by default nothing is looked back for.
    """
    config = folder / "prometheus.yml"
    config.write_text(EMPTY_CONFIG)
    port = free_port()
    command = [
        prometheus,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--query.lookback-delta={lookback}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    store = Prometheus(f"http://127.0.0.1:{port}")

    def ready() -> bool:
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{store.url}/-/ready", timeout=2) as answer,
        ):
            return bool(answer.status == 200)
        return False

    try:
        until(ready, 30, "Prometheus ready")
        yield store
    finally:
        process.terminate()
        process.wait(20)
