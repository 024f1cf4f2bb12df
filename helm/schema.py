"""The schema of the chart's values: types by defaults, bounds from here, the daemon's keys by its model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from alerts.settings import SEVERITIES
from exporter.config.keys import Key, keys, sections
from helm import rules

DURATION = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"}
# What Prometheus takes as a duration in its own configuration.
SPAN = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$"}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECT = {"type": "object"}
OBJECTS = {"type": "array", "items": {"type": "object"}}
FOLDER = {"type": "string", "pattern": "^(/[^/ ]+)*$"}
# May hold {{ $labels.instance }}, which Prometheus fills in.
ADDRESS = {"type": "string", "pattern": "^[A-Za-z0-9:/._~%?&=+${} -]*$"}
NAME = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$", "maxLength": 63}
# What the chart writes into the daemon's configuration itself, and the value that decides it.
OWNED = {
    "listen": "service.port",
    "state_dir": "state.hostPath",
    "windows.preset": "profiling.preset",
    "owners.kubelet_socket": "attribution.podResources",
    "owners.job_files": "attribution.jobFiles",
    "web.config_file": "web.secret",
    "web.token_file": "web.tokenSecret",
}

# By path of the value; everything else has the type of its default.
BOUNDS: dict[str, dict[str, Any]] = {
    "profile": {"enum": ["metrics", "attribution", "profiling"]},
    "image.repository": {"type": "string", "minLength": 1, "pattern": "^[a-z0-9][a-zA-Z0-9._:/-]*$"},
    "image.tag": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$|^$"},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "imagePullSecrets": OBJECTS,
    "nameOverride": NAME,
    "fullnameOverride": NAME,
    "attribution.podResources": {**FOLDER, "minLength": 2},
    "attribution.jobFiles": FOLDER,
    "attribution.podLabels": {
        "type": "array",
        "maxItems": 20,
        "items": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._/-]*$", "maxLength": 317},
    },
    "profiling.preset": {"enum": ["off", "spool", "counters", "canary", "attach"]},
    "profiling.devices.resource": {"type": "string", "pattern": "^([a-z0-9.-]+/[A-Za-z0-9._-]+)?$"},
    "rocm.hostPath": FOLDER,
    "state.hostPath": FOLDER,
    "state.sizeLimit": {"type": "string", "pattern": "^[0-9]+(Ki|Mi|Gi)$"},
    "nodes.anyOf": {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["key"],
            "properties": {"key": {"type": "string", "minLength": 1}, "value": {"type": "string"}},
        },
    },
    "nodeSelector": LABELS,
    "tolerations": OBJECTS,
    "updateStrategy.maxUnavailable": {
        "oneOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": "^([1-9]|[1-9][0-9]|100)%$"},
        ]
    },
    "updateStrategy.minReadySeconds": {"type": "integer", "minimum": 0},
    "resources": OBJECT,
    "podAnnotations": LABELS,
    "podLabels": LABELS,
    "env": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    "extraVolumes": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    "extraVolumeMounts": {"type": "array", "items": {"type": "object", "required": ["name", "mountPath"]}},
    "seLinuxOptions": OBJECT,
    "web.scheme": {"enum": ["http", "https"]},
    "web.probe": {"enum": ["http", "tcp"]},
    "serviceAccount.annotations": LABELS,
    "service.port": {"type": "integer", "minimum": 1024, "maximum": 65535},
    "service.annotations": LABELS,
    "serviceMonitor.labels": LABELS,
    "serviceMonitor.interval": SPAN,
    "serviceMonitor.scrapeTimeout": SPAN,
    "serviceMonitor.job": {"type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9_./-]+$"},
    "serviceMonitor.relabelings": OBJECTS,
    "serviceMonitor.metricRelabelings": OBJECTS,
    "serviceMonitor.tlsConfig": OBJECT,
    "serviceMonitor.basicAuth": OBJECT,
    "prometheusRule.labels": LABELS,
    "dashboards.label": {"type": "string", "minLength": 1},
    "dashboards.annotations": LABELS,
    "networkPolicy.from": OBJECTS,
}


def schema(values: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of ``values``, the defaults. Errors: KeyError where BOUNDS names a value there is not."""
    left = dict(BOUNDS)
    made = _object(values, "", left)
    left_out = sorted(left)
    if left_out:
        raise KeyError(left_out[0])
    made["properties"]["config"] = config()
    made["properties"]["prometheusRule"]["properties"]["rules"] = _alerts()
    made["properties"]["prometheusRule"]["properties"]["common"] = _common()
    # Subcharts are given these by whoever includes them.
    made["properties"]["global"] = OBJECT
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "amdgpu-exporter", **made}


def text(values: Mapping[str, Any]) -> str:
    return json.dumps(schema(values), indent=1) + "\n"


def _object(values: Mapping[str, Any], prefix: str, left: dict[str, dict[str, Any]]) -> dict[str, Any]:
    properties = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if path in left:
            properties[name] = left.pop(path)
        elif isinstance(value, dict) and value:
            properties[name] = _object(value, f"{path}.", left)
        else:
            properties[name] = {"type": _kind(value)}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _kind(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def config() -> dict[str, Any]:
    """The daemon's configuration, without what the chart decides."""
    properties: dict[str, Any] = {}
    for name in sections():
        properties[name] = {"type": "object", "additionalProperties": False, "properties": {}}
    for path, key in keys().items():
        if path in OWNED:
            continue
        section, _, name = path.rpartition(".")
        (properties[section]["properties"] if section else properties)[name] = _key(key)
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _key(key: Key) -> dict[str, Any]:
    made = dict(_type(key))
    made["description"] = f"{key.info.description} Expected: {key.expected}. Default: {key.default}."
    if key.optional:
        made["type"] = [made["type"], "null"] if "type" in made else made.get("type")
    return made


def _type(key: Key) -> dict[str, Any]:
    if key.kind == "choice":
        return {"enum": list(key.choices)}
    if key.kind == "duration":
        # Several units in a row are understood, such as 1h30m.
        return {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"}
    if key.kind == "list":
        return {"type": "array", "items": {"type": "string"}}
    if key.kind in ("whole number", "number"):
        bounds = dict(_bounds(key))
        return {"type": "integer" if key.kind == "whole number" else "number", **bounds}
    return {"type": "boolean" if key.kind == "true or false" else "string"}


def _bounds(key: Key) -> Iterator[tuple[str, float]]:
    low, high = key.bounds
    if low is not None:
        yield "minimum", low
    if high is not None:
        yield "maximum", high


def _alerts() -> dict[str, Any]:
    numbers = rules.thresholds()
    properties = {
        name: {
            "type": "object",
            "additionalProperties": False,
            "properties": {"enabled": {"type": "boolean"}} | {k: _number(k, v) for k, v in values.items()},
        }
        for name, values in numbers.items()
        if name != "common"
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _common() -> dict[str, Any]:
    properties = {k: _number(k, v) for k, v in rules.thresholds()["common"].items()}
    properties["exporter_job"] = {"type": "string", "minLength": 1, "pattern": "^[A-Za-z0-9_.*+|()/-]+$"}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _number(name: str, value: Any) -> dict[str, Any]:
    if name == "severity":
        return {"enum": list(SEVERITIES)}
    if "_base" in name or name.endswith("_suffix"):
        return ADDRESS
    return DURATION if isinstance(value, str) else {"type": "number"}
