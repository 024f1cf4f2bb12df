"""A real Alertmanager with the shipped routes: what explains an alert silences it, and nothing else does."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from daemon import ROOT, free_port, until
from test_alerting import alertmanager, running

N1, N2 = "node-1:9408", "node-2:9408"
P1, P2 = ({"gpu": str(n), "pci": f"0000:0{n}:00.0"} for n in (1, 2))


def _rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "alerts" / "rules" / "alerts.yml").read_text())["groups"]
    return {r["alert"]: r for g in groups for r in g["rules"]}


def _alert(name: str, instance: str, who: dict[str, str] | None = None) -> dict[str, Any]:
    labels = {"alertname": name, "instance": instance, **(who or {}), **_rules()[name]["labels"]}
    return {"labels": labels, "annotations": {}}


# (alert, whether another one silences it)
GIVEN = (
    (_alert("AmdGpuExporterDown", N1), False),
    (_alert("AmdGpuThrottled", N1, P1), True),
    (_alert("AmdGpuEccUncorrectable", N1, P1), True),
    (_alert("AmdGpuMissing", N2, P1), False),
    (_alert("AmdGpuThrottled", N2, P1), True),
    (_alert("AmdGpuStraggler", N2, P1), True),
    (_alert("AmdGpuEccUncorrectable", N2, P1), False),
    (_alert("AmdGpuImbalance", N2), True),
    (_alert("AmdGpuOverTemperature", N2, P2), False),
    (_alert("AmdGpuThrottled", N2, P2), True),
    (_alert("AmdGpuQueueDelayHigh", N2, P2), False),
    (_alert("AmdGpuLaunchBound", N2, P2), True),
    (_alert("AmdGpuLaunchBound", N2, {**P2, "partition": "1"}), False),
    (_alert("AmdGpuSourceDown", N2), False),
    (_alert("AmdGpuDataStale", N2), True),
)


def test_what_explains_an_alert_silences_it(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    argv = [*alertmanager(), f"--config.file={ROOT}/alerts/alertmanager.yml", f"--storage.path={tmp_path}/am"]
    argv += [f"--web.listen-address={url[7:]}", "--cluster.listen-address="]
    with running(tmp_path / "am.log", url, *argv):
        body = json.dumps([alert for alert, _ in GIVEN]).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{url}/api/v2/alerts", body, headers), timeout=5)

        def told() -> dict[str, bool]:
            with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=5) as answer:
                return {_key(a["labels"]): bool(a["status"]["inhibitedBy"]) for a in json.load(answer)}

        expected = {_key(alert["labels"]): silenced for alert, silenced in GIVEN}
        assert len(expected) == len(GIVEN)
        # Whether an alert is inhibited is worked out when its group is first notified.
        until(lambda: told() == expected, 20, f"{expected}")


def _key(labels: dict[str, str]) -> str:
    return json.dumps(labels, sort_keys=True)
