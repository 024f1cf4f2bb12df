"""Other exporters' series, made of ours: rules for a switch that keeps their dashboards working.

Which of our metrics a name stands for is the catalogue's word (``peers``); how it is scaled and labelled is
``peers.yaml``'s. A name of the catalogue that has no line there is listed as such, and a test fails on it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from exporter.catalogue import CATALOGUE
from exporter.catalogue.schema import Scope

PEERS = Path(__file__).with_name("peers.yaml")
QUERIES = Path(__file__).with_name("peer_queries.yaml")
NO_RULE = "peers.yaml does not say yet how it is made of ours"
_KEYS = {"where", "times", "sum", "each", "relabel", "metric", "expr", "node", "cannot"}
_SOCKET = "cluster, instance, gpu, pci"
_HOST = "([^:]+)(?::[0-9]+)?"
# One series per GPU that carries their identity labels; every rule takes them from it.
_IDENTITY: dict[str, tuple[tuple[str, str, Any], ...]] = {
    "dme": (
        ("gpu_id", "gpu", "(.*)"),
        ("gpu_uuid", "uuid", "(.*)"),
        ("serial_number", "serial", "(.*)"),
        ("card_model", "model", "(.*)"),
        ("driver_version", "driver", "(.*)"),
        ("vbios_version", "vbios", "(.*)"),
        ("card_vendor", "gpu", {".*": "AMD"}),
        ("gpu_partition_id", "gpu", {".*": "0"}),  # as theirs: what is the socket's stands on partition 0
        ("hostname", "instance", _HOST),
        ("cluster_name", "cluster", "(.*)"),
    ),
    "omnistat": (("card", "gpu", "(.*)"),),
}
# Who uses a GPU, where their series say it; of a shared one nobody is named.
_OWNER: dict[str, str] = {"dme": "job_id, pod, namespace", "omnistat": ""}
_NODE_LABELS: dict[str, tuple[tuple[str, str, Any], ...]] = {
    "dme": (("hostname", "instance", _HOST), ("cluster_name", "cluster", "(.*)")),
    "omnistat": (),
}


class PeerError(ValueError):
    """peers.yaml and the catalogue disagree."""


def table() -> dict[str, Any]:
    """peers.yaml."""
    return dict(yaml.safe_load(PEERS.read_text(encoding="utf-8")))


def ours(peer: str, name: str, entry: Mapping[str, Any]) -> str:
    """Which of our metrics a peer's name stands for. Errors: PeerError."""
    if "metric" in entry:
        if entry["metric"] not in CATALOGUE:
            raise PeerError(f"peers.yaml: {name}: {entry['metric']} is not in the catalogue")
        return str(entry["metric"])
    found = [m.name for m in CATALOGUE if f"{peer}:{name}" in m.peers]
    if len(found) != 1:
        raise PeerError(f"peers.yaml: {name}: the catalogue names {len(found)} metrics; give metric or expr")
    return found[0]


def without(peer: str) -> dict[str, str]:
    """Names that have no series, with the reason."""
    names = table()[peer]["names"]
    listed = {p.partition(":")[2] for m in CATALOGUE for p in m.peers if p.startswith(f"{peer}:")}
    unsaid = dict.fromkeys(sorted(listed - set(names)), NO_RULE)
    return {n: e["cannot"] for n, e in names.items() if "cannot" in e} | unsaid


def rules(peer: str) -> dict[str, str]:
    """Every name with its expression; the identity series first. Errors: PeerError."""
    names = table()[peer]["names"]
    made = dict(_identity(peer))
    for name, entry in names.items():
        if strange := sorted(set(entry) - _KEYS):
            raise PeerError(f"peers.yaml: {name}: unknown key {strange[0]}")
        if "cannot" not in entry:
            made.update(_rules_of(peer, name, entry))
    return made


def _rules_of(peer: str, name: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "expr" in entry:
        yield name, entry["expr"] if entry.get("node") else _labelled(peer, entry["expr"])
        return
    metric = ours(peer, name, entry)
    label, values = (entry["each"]["label"], entry["each"]["names"]) if "each" in entry else (None, {"": ""})
    for theirs, value in values.items():
        where = {**entry.get("where", {}), **({label: value} if label else {})}
        expr = metric + _matchers(metric, where)
        if entry.get("sum"):
            expr = f"sum by ({_SOCKET}) ({expr})"
        if "times" in entry:
            top, _, under = str(entry["times"]).partition("/")
            expr = f"{expr} / {under}" if under else f"{expr} * {top}"
        for change in entry.get("relabel", ()):
            expr = _relabel(expr, *change)
        node = CATALOGUE[metric].scope is Scope.NODE
        written = name.replace(f"<{label}>", theirs) if label else name
        yield written, _node_labelled(peer, expr) if node else _labelled(peer, expr)


def _matchers(metric: str, where: Mapping[str, str]) -> str:
    known = {*CATALOGUE[metric].labels}
    if strange := sorted(set(where) - known):
        raise PeerError(f"peers.yaml: {metric} has no label {strange[0]}")
    parts = [f'{k}=~"{v[1:]}"' if v.startswith("~") else f'{k}="{v}"' for k, v in where.items()]
    return "{" + ",".join(parts) + "}" if parts else ""


def _relabel(expr: str, theirs: str, from_ours: str, how: Any = "(.*)") -> str:
    if isinstance(how, str):
        return f'label_replace({expr}, "{theirs}", "$1", "{from_ours}", "{how}")'
    for value, written in how.items():
        expr = f'label_replace({expr}, "{theirs}", "{written}", "{from_ours}", "{value}")'
    return expr


def _identity_name(peer: str) -> str:
    return f"gpu:amdgpu_{peer}_identity:info"


def _identity(peer: str) -> Iterator[tuple[str, str]]:
    # One series per socket, also where it is partitioned: the first partition speaks for it.
    card = 'amdgpu_info{partition=~"0?"}'
    for change in _IDENTITY[peer]:
        card = _relabel(card, *change)
    card = f"max by ({_SOCKET}, {', '.join(theirs for theirs, _, _ in _IDENTITY[peer])}) ({card})"
    if owner := _OWNER[peer]:
        each = f"group by ({_SOCKET}, {owner}) (amdgpu_workload_info)"
        named, only = f"gpu:amdgpu_{peer}_card:info", f"gpu:amdgpu_{peer}_owner:info"
        yield named, card
        yield only, f"{each}\n  and on ({_SOCKET}) count by ({_SOCKET}) ({each}) == 1"
        card = (
            f"{named} * on ({_SOCKET}) group_left ({owner}) {only}\n  or {named} unless on ({_SOCKET}) {only}"
        )
    yield _identity_name(peer), card


def _labelled(peer: str, expr: str) -> str:
    labels = ", ".join([*(theirs for theirs, _, _ in _IDENTITY[peer]), *filter(None, [_OWNER[peer]])])
    return f"({expr})\n  * on ({_SOCKET}) group_left ({labels}) {_identity_name(peer)}"


def _node_labelled(peer: str, expr: str) -> str:
    for change in _NODE_LABELS[peer]:
        expr = _relabel(expr, *change)
    return expr


def files(interval: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Peer's file name -> (comment that lists what cannot be had, rule groups). Errors: PeerError."""
    made = {}
    for peer, content in table().items():
        records = [{"record": n, "expr": e} for n, e in rules(peer).items()]
        group = {"name": f"amdgpu-compat-{peer}", "interval": interval, "rules": records}
        file_name = str(content["title"]).lower()
        made[file_name] = (_note(peer, str(content["title"])), {"groups": [group]})
    return made


def _note(peer: str, title: str) -> str:
    lines = [
        f"# {title}'s names over amdgpu-exporter's series: its dashboards keep working after a switch.",
        "# Load it only where those dashboards are used, and never beside the other exporter itself.",
        "# Names that cannot be had:",
    ]
    for name, reason in without(peer).items():
        lines += textwrap.wrap(f"#   {name}: {reason}", 110, subsequent_indent="#     ")
    return "\n".join(lines) + "\n"


def page() -> str:
    """docs/COMPATIBILITY.md."""
    out = [
        "# Compatibility with other exporters",
        "",
        "Generated from the catalogue and alerts/peers.yaml by `make generate`; do not edit.",
        "",
        "Each file of rules makes another exporter's series out of ours, with its units and labels, so that",
        "dashboards can be moved first and names later. Load a file only where it is needed:",
        "",
        "<!-- run -->",
        "```yaml",
        "rule_files:",
        *(f"  - /etc/prometheus/amdgpu/compat-{str(c['title']).lower()}.yml" for c in table().values()),
        "```",
        "",
        "A name is absent where ours is. Gauges of theirs that only rise are made of our counters.",
    ]
    for peer, content in table().items():
        out += ["", f"## {content['title']}", "", f"Labels filled: {content['identity']}.", ""]
        out += ["| Name | Expression |", "| --- | --- |"]
        for name, expr in rules(peer).items():
            if name.startswith("gpu:"):
                continue  # what the others take their labels from
            shown = (
                expr.split("\n  * on")[0].removeprefix("(").removesuffix(")") if "\n  * on" in expr else expr
            )
            out.append(f"| `{name}` | `{shown.replace('|', chr(92) + '|')}` |")
        out += _dashboards(peer)
        out += ["", "Names that cannot be had:", ""]
        out += [f"- `{name}`: {reason}." for name, reason in without(peer).items()]
    return "\n".join(out) + "\n"


def queries(peer: str) -> dict[str, list[dict[str, str]]]:
    """What each published dashboard of a peer asks for."""
    return dict(yaml.safe_load(QUERIES.read_text(encoding="utf-8"))[peer])


def _dashboards(peer: str) -> list[str]:
    """Which queries of the published dashboards find something, and which cannot."""
    out = [
        "",
        "Queries of the published dashboards, each asked over the demo node by a test (which pages were read",
    ]
    out += ["whole, and which in part, is said in alerts/peer_queries.yaml):", ""]
    out += ["| Dashboard | Find something | Cannot |", "| --- | ---: | ---: |"]
    reasons: list[str] = []
    for dashboard, forms in queries(peer).items():
        counts = [
            sum(len(f["names"].split()) for f in forms if ("cannot" in f) == cannot)
            for cannot in (False, True)
        ]
        out.append(f"| {dashboard} | {counts[0]} | {counts[1]} |")
        reasons += [
            f"- {dashboard}: `{'`, `'.join(f['names'].split())}` by `{f['labels']}`: {f['cannot']}."
            for f in forms
            if "cannot" in f
        ]
    return [*out, "", "Those that cannot:", "", *reasons]
