"""The chart by the real Helm: what it renders is valid for each Kubernetes it allows; bad values end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from daemon import ROOT, verb
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kube_parts import kube_python, kube_tool

from alerts import build
from alerts.settings import read
from exporter import __version__, config
from exporter.catalogue import CATALOGUE

CHART = ROOT / "helm" / "amdgpu-exporter"
VERSIONS = [f"1.{minor}" for minor in range(28, 38)]
EVERYTHING = {
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "nodeHealth": {"plugin": True},
}
ATTACH = {
    "profile": "profiling",
    "profiling": {"preset": "attach", "devices": {"resource": "example.com/amdgpu-all"}},
    "config": {"windows": {"allow": ["python*"]}},
}
COUNTERS = {
    "profile": "profiling",
    "profiling": {"preset": "counters", "devices": {"resource": "example.com/amdgpu-all"}},
    "config": {"windows": {"device_counting": True}},
}
CANARY = {
    "profile": "profiling",
    "profiling": {"preset": "canary", "devices": {"privileged": True}},
    "config": {"windows": {"command": ["/opt/rocm/bin/rocblas-bench"]}},
}
PROTECTED = {
    "web": {"secret": "gpus-web", "tokenSecret": "gpus-token", "scheme": "https", "probe": "tcp"},
    "serviceMonitor": {"enabled": True, "tlsConfig": {"serverName": "gpus"}},
    "rocm": {"hostPath": "/opt/rocm"},
    "extraVolumes": [{"name": "texts", "hostPath": {"path": "/srv/texts"}}],
    "extraVolumeMounts": [{"name": "texts", "mountPath": "/texts", "readOnly": True}],
    "state": {"hostPath": "/srv/amdgpu"},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
}
SETUPS: dict[str, dict[str, Any]] = {
    "with TLS": PROTECTED,
    "node condition": {"nodeHealth": {"condition": True, "label": True}},
    "pod labels": {"profile": "attribution", "attribution": {"podLabels": ["app", "ray.io/cluster"]}},
    "metrics": {"profile": "metrics"},
    "attribution": {"profile": "attribution"},
    "attribution with processes": {"profile": "attribution", "attribution": {"hostPID": True}},
    "spool": {"profile": "profiling"},
    "profiling off": {"profile": "profiling", "profiling": {"preset": "off"}},
    "counters": COUNTERS,
    "canary, privileged": CANARY,
    "attach": ATTACH,
    "with everything": EVERYTHING,
}

Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Helm with values, given as a tree."""
    program = kube_tool("helm")
    home = tmp_path_factory.mktemp("helm")
    places = {f"HELM_{what}_HOME": str(home / what) for what in ("CACHE", "CONFIG", "DATA")}

    def run(*args: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        argv = [program, *args, *(["--values", "-"] if values is not None else [])]
        text = None if values is None else json.dumps(values)
        return subprocess.run(
            argv, input=text, capture_output=True, text=True, env={**os.environ, **places}, timeout=60
        )

    return run


@pytest.fixture(scope="module")
def render(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., Objects]:
    """The objects for some values."""

    def render(values: dict[str, Any], *args: str) -> Objects:
        done = helm("template", "gpus", str(CHART), "--namespace", "monitoring", *args, values=values)
        assert done.returncode == 0, done.stderr
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [found for found in yaml.load_all(done.stdout, loader) if found]

    return render


@pytest.fixture(scope="module")
def faults() -> Iterator[Callable[[Objects, list[str]], list[str]]]:
    """What an API server of each version would refuse."""
    program = [kube_python(), str(Path(__file__).with_name("kube_check.py"))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout

        def ask(objects: Objects, versions: list[str]) -> list[str]:
            process.stdin.write(json.dumps({"objects": objects, "versions": versions}) + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            answer: list[str] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            return answer

        yield ask
        process.stdin.close()


def one(objects: Objects, kind: str, ending: str = "") -> dict[str, Any]:
    found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"].endswith(ending)]
    assert len(found) == 1, [(o["kind"], o["metadata"]["name"]) for o in objects]
    return found[0]


def container(objects: Objects) -> dict[str, Any]:
    found = one(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    return dict(next(c for c in found if c["name"] == "exporter"))


@pytest.mark.parametrize("setup", SETUPS)
def test_helm_lints_it_strictly(setup: str, helm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = helm("lint", "--strict", str(CHART), values=SETUPS[setup])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("setup", SETUPS)
def test_every_object_is_valid_for_every_kubernetes_it_allows(
    setup: str, render: Callable[..., Objects], faults: Callable[[Objects, list[str]], list[str]]
) -> None:
    assert faults(render(SETUPS[setup]), VERSIONS) == []


def test_the_check_itself_finds_what_is_wrong(
    render: Callable[..., Objects], faults: Callable[[Objects, list[str]], list[str]]
) -> None:
    objects = render(EVERYTHING)
    one(objects, "DaemonSet")["spec"]["template"]["spec"]["hostPidd"] = True
    one(objects, "ServiceMonitor")["spec"]["endpoints"][0]["intervl"] = "15s"
    one(objects, "PrometheusRule", "alerts")["spec"]["groups"][0]["rules"][0]["for"] = 5
    found = faults(objects, ["1.28"])
    assert [next(w for w in ("hostPidd", "intervl", "for", "?") if w in f) for f in found] == [
        "hostPidd",
        "for",
        "intervl",
    ]


def test_an_older_kubernetes_is_refused(helm: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = helm("template", str(CHART), "--kube-version", "1.27.9")
    assert done.returncode != 0
    assert "incompatible with Kubernetes v1.27.9" in done.stderr


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,12}[a-z0-9])?", fullmatch=True)
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=20)
LABELS = st.dictionaries(
    NAMES, st.from_regex(r"([A-Za-z0-9][A-Za-z0-9._-]{0,9}[A-Za-z0-9])?", fullmatch=True), max_size=2
)
NOTES = st.dictionaries(NAMES, TEXTS, max_size=2)
FOLDERS = st.from_regex(r"(/[a-zA-Z0-9._-]{1,9}){1,3}", fullmatch=True)
DURATIONS = st.from_regex(r"[1-9][0-9]{0,3}(ms|s|m|h|d)", fullmatch=True)


def tree(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of the parts."""
    return st.fixed_dictionaries({}, optional=parts)


VALUES = tree(
    profile=st.sampled_from(["metrics", "attribution"]) | st.just("profiling"),
    image=tree(
        repository=NAMES, tag=st.sampled_from(["", "1.2.3", "007", "1e3"]), pullPolicy=st.just("Always")
    ),
    imagePullSecrets=st.lists(tree(name=NAMES).filter(bool), max_size=2),
    nameOverride=NAMES,
    fullnameOverride=NAMES,
    attribution=tree(podResources=FOLDERS, jobFiles=FOLDERS, hostPID=st.booleans()),
    profiling=st.just({"preset": "off"})
    | st.just({"preset": "spool"})
    | st.just({"preset": "counters", "devices": {"privileged": True}})
    | st.just({"preset": "attach", "devices": {"resource": "a.example/all"}}),
    rocm=tree(hostPath=FOLDERS),
    state=tree(hostPath=FOLDERS, sizeLimit=st.just("1Gi")),
    nodes=tree(anyOf=st.lists(st.just({"key": "true"}) | st.just({"key": "a/b", "value": "1"}), max_size=2)),
    nodeSelector=LABELS,
    tolerations=st.lists(st.just({"operator": "Exists"}), max_size=2),
    priorityClassName=NAMES,
    updateStrategy=tree(
        maxUnavailable=st.integers(1, 9) | st.sampled_from(["1%", "100%"]), minReadySeconds=st.integers(0, 99)
    ),
    resources=st.sampled_from([{}, {"limits": {"memory": "1Gi"}}, {"requests": {"cpu": "1"}}]),
    podAnnotations=NOTES,
    podLabels=LABELS,
    env=st.lists(st.fixed_dictionaries({"name": NAMES, "value": TEXTS}), max_size=2),
    seLinuxOptions=st.just({}) | st.just({"type": "spc_t"}),
    serviceAccount=tree(
        create=st.booleans(), name=NAMES, annotations=st.dictionaries(NAMES, TEXTS, max_size=2)
    ),
    service=tree(port=st.integers(1024, 65535)),
    serviceMonitor=tree(
        enabled=st.booleans(),
        labels=LABELS,
        interval=st.sampled_from(["5s", "1m30s"]),
        honorLabels=st.booleans(),
        dropTargetLabels=st.booleans(),
        job=st.sampled_from(["amdgpu", "1", "true"]),
    ),
    prometheusRule=tree(
        enabled=st.booleans(),
        labels=LABELS,
        recording=st.booleans(),
        alerts=st.booleans(),
        rules=tree(
            AmdGpuMissing=tree(enabled=st.booleans(), keep=DURATIONS),
            AmdGpuThrottled=tree(share=st.floats(0, 1), severity=st.sampled_from(["critical", "info"])),
        ),
    ),
    dashboards=tree(enabled=st.booleans(), labelValue=TEXTS),
    networkPolicy=tree(enabled=st.booleans(), **{"from": st.just([{"podSelector": {}}])}),
    nodeHealth=tree(condition=st.booleans(), plugin=st.booleans(), pluginNamespace=NAMES),
    config=tree(
        log=tree(level=st.sampled_from(["debug", "error"])),
        poll=tree(interval=st.sampled_from(["1s", "1m30s"])),
        series=tree(max=st.integers(100, 1_000_000)),
        metrics=tree(dies=st.booleans()),
    ),
)


# Without shrinking: each example starts Helm, and its values can be read as they are.
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(values=VALUES)
def test_whatever_the_schema_takes_is_rendered_and_valid_or_refused_in_one_line(
    values: dict[str, Any],
    helm: Callable[..., subprocess.CompletedProcess[str]],
    faults: Callable[[Objects, list[str]], list[str]],
) -> None:
    done = helm("template", "gpus", str(CHART), values=values)
    if done.returncode:
        [said] = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
        assert re.search(
            r"daemonset\.yaml:\d+:\d+\): (profiling|serviceMonitor|web|nodeHealth)\.\S+", said
        ), said
        return
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    objects = [found for found in yaml.load_all(done.stdout, loader) if found]
    assert faults(objects, [VERSIONS[0], VERSIONS[-1]]) == []
    spec = one(objects, "DaemonSet")["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    if values.get("profile", "metrics") == "metrics":
        context = container(objects)["securityContext"]
        assert (context["runAsUser"], context["capabilities"]) == (10001, {"drop": ["ALL"]})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"profile": "metric"}, "at '/profile': value must be one of 'metrics', 'attribution', 'profiling'"),
        ({"profil": "metrics"}, "additional properties 'profil' not allowed"),
        ({"profiling": {"preset": "spol"}}, "at '/profiling/preset': value must be one of 'off', 'spool'"),
        ({"config": {"poll": {"intervall": "5s"}}}, "at '/config/poll': additional properties 'intervall'"),
        ({"config": {"poll": {"interval": 5}}}, "at '/config/poll/interval': got number, want string"),
        (
            {"config": {"windows": {"preset": "spool"}}},
            "at '/config/windows': additional properties 'preset'",
        ),
        ({"config": {"series": {"max": 3}}}, "at '/config/series/max': minimum: got 3, want 100"),
        ({"service": {"port": "http"}}, "at '/service/port': got string, want integer"),
        ({"service": {"port": 80}}, "at '/service/port': minimum: got 80, want 1,024"),
        ({"image": {"digest": "sha256:12"}}, "at '/image/digest'"),
        (
            {"prometheusRule": {"rules": {"AmdGpuMising": {}}}},
            "additional properties 'AmdGpuMising' not allowed",
        ),
        (
            {"prometheusRule": {"rules": {"AmdGpuMissing": {"for": 5}}}},
            "at '/prometheusRule/rules/AmdGpuMissing/for'",
        ),
        (
            {"prometheusRule": {"common": {"dashboard_base": "a'b"}}},
            "at '/prometheusRule/common/dashboard_base'",
        ),
        ({"updateStrategy": {"maxUnavailable": 0}}, "at '/updateStrategy/maxUnavailable'"),
        ({"serviceMonitor": {"interval": "15"}}, "at '/serviceMonitor/interval'"),
        ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "scraped twice; choose one"),
        (
            {"profile": "profiling", "profiling": {"preset": "counters"}},
            "profiling.preset counters opens /dev/kfd and /dev/dri: name the device plugin resource",
        ),
        ({**CANARY, "config": {}}, "profiles a command, and config.windows.command names none"),
        ({**ATTACH, "config": {}}, "config.windows.allow, and it lists none"),
        ({"profiling": {"devices": {"privileged": True}}}, "opens no device; leave it false"),
        ({"web": {"scheme": "https"}}, "web.secret names no Secret"),
        ({"attribution": {"podLabels": ["a b"]}}, "podLabels"),
        (
            {"attribution": {"podLabels": ["app"]}, "config": {"textfile": {"folder": "/x"}}},
            "leave one of them out",
        ),
        ({"nodeHealth": {"label": True}}, "nodeHealth.condition is not; the label comes with it"),
        ({"nodeHealth": {"condition": True, "plugin": True}}, "both set the condition; choose one"),
        ({"nodeHealth": {"condition": True}, "web": {"secret": "x"}}, "asks the daemon over plain HTTP"),
    ],
)
def test_a_bad_value_is_refused_with_a_line_that_names_it(
    values: dict[str, Any], said: str, helm: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = helm("template", "gpus", str(CHART), values=values)
    assert done.returncode == 1
    assert said in done.stderr


def test_the_metrics_profile_can_do_nothing_but_read(render: Callable[..., Objects]) -> None:
    objects = render({"profile": "metrics"})
    pod = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    context = container(objects)["securityContext"]
    assert context["runAsUser"] == context["runAsGroup"] == 10001
    assert context["readOnlyRootFilesystem"] is context["runAsNonRoot"] is True
    assert context["privileged"] is context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert [v for v in pod["volumes"] if "hostPath" in v] == []
    assert (
        pod["hostPID"] is pod["hostNetwork"] is pod["hostIPC"] is pod["automountServiceAccountToken"] is False
    )


def test_only_the_container_of_the_pod_labels_may_list_pods(render: Callable[..., Objects]) -> None:
    objects = render(SETUPS["pod labels"])
    pod = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    holders = [c["name"] for c in pod["containers"] if "api" in {m["name"] for m in c["volumeMounts"]}]
    assert holders == ["pod-labels"]
    side = next(c for c in pod["containers"] if c["name"] == "pod-labels")
    assert side["args"][1:] == ["--label=app", "--label=ray.io/cluster"]
    [role] = [o for o in objects if o["kind"] == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    mounted = {m["mountPath"] for m in container(objects)["volumeMounts"] if m["name"] == "pod-labels"}
    [config] = [o for o in objects if o["kind"] == "ConfigMap" and "config.yaml" in o["data"]]
    assert f"folder: {mounted.pop()}" in config["data"]["config.yaml"]


@pytest.mark.parametrize("label", [False, True])
def test_only_the_container_of_the_node_condition_has_a_token_and_little_it_may_do(
    label: bool, render: Callable[..., Objects]
) -> None:
    objects = render({"nodeHealth": {"condition": True, "label": label}})
    pod = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    [api] = [v["name"] for v in pod["volumes"] if "projected" in v]
    holders = [c["name"] for c in pod["containers"] if api in {m["name"] for m in c["volumeMounts"]}]
    assert holders == ["node-health"]
    side = next(c for c in pod["containers"] if c["name"] == "node-health")
    assert side["securityContext"] == container(objects)["securityContext"]
    assert ("--label" in side["args"]) is label
    allowed = {
        (o["kind"], resource, verb)
        for o in objects
        if o["kind"] in ("Role", "ClusterRole")
        for rule in o["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    least = {("ClusterRole", "nodes/status", verb) for verb in ("get", "patch")} | {
        ("Role", "events", "create")
    }
    assert allowed == least | ({("ClusterRole", "nodes", "patch")} if label else set())


@pytest.mark.parametrize("setup", sorted(SETUPS.keys() - {"node condition", "pod labels"}))
def test_no_profile_talks_to_the_api_server(setup: str, render: Callable[..., Objects]) -> None:
    objects = render(SETUPS[setup])
    assert [o for o in objects if "Role" in o["kind"]] == []
    pod = one(objects, "DaemonSet")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert one(objects, "NetworkPolicy")["spec"]["egress"] == []


@pytest.mark.parametrize(
    ("values", "added", "host_pid", "resource"),
    [
        ({"profile": "attribution"}, None, False, False),
        ({"profile": "attribution", "attribution": {"hostPID": True}}, None, True, False),
        ({"profile": "profiling", "profiling": {"preset": "off"}}, None, False, False),
        ({"profile": "profiling"}, ["DAC_OVERRIDE"], False, False),
        (COUNTERS, ["DAC_OVERRIDE", "PERFMON"], False, True),
        (ATTACH, ["DAC_OVERRIDE", "SYS_PTRACE"], True, True),
    ],
)
def test_a_profile_has_exactly_the_rights_its_table_says(
    values: dict[str, Any],
    added: list[str] | None,
    host_pid: bool,
    resource: bool,
    render: Callable[..., Objects],
) -> None:
    objects = render(values)
    pod, found = one(objects, "DaemonSet")["spec"]["template"]["spec"], container(objects)
    assert found["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert found["securityContext"]["capabilities"].get("add") == added
    assert found["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["hostPID"] is host_pid
    assert ("example.com/amdgpu-all" in found["resources"]["limits"]) is resource
    for mount in found["volumeMounts"]:
        assert mount.get("readOnly") or mount["name"] in ("state", "tmp"), mount


def test_the_daemon_understands_the_configuration_that_is_mounted(
    render: Callable[..., Objects], tmp_path: Path
) -> None:
    for name, values in SETUPS.items():
        if name == "attribution":
            values = {**values, "attribution": {"jobFiles": "/run/jobs"}}
        objects = render(values)
        text = one(objects, "ConfigMap", "gpus-amdgpu-exporter")["data"]["config.yaml"]
        (tmp_path / "config.yaml").write_text(text)
        loaded = config.load(tmp_path / "config.yaml", {}, {})
        assert loaded.warnings == (), name
        preset = values.get("profiling", {}).get("preset", "spool")
        assert loaded.config.windows.preset == (preset if values.get("profile") == "profiling" else "off")
        assert loaded.config.address == ("", 9408)
        state = next(
            v
            for v in one(objects, "DaemonSet")["spec"]["template"]["spec"]["volumes"]
            if v["name"] == "state"
        )
        if "emptyDir" in state:
            assert loaded.config.history.max_bytes == 32 << 20
            assert state["emptyDir"]["sizeLimit"] == "64Mi"
        opens = preset in ("counters", "canary", "attach")
        assert loaded.config.backend == ("auto" if opens else "sysfs")


def test_a_protected_daemon_is_scraped_and_probed_as_it_asks(render: Callable[..., Objects]) -> None:
    objects = render(PROTECTED)
    found = container(objects)
    text = one(objects, "ConfigMap", "gpus-amdgpu-exporter")["data"]["config.yaml"]
    web = yaml.safe_load(text)["web"]
    mounted = {m["mountPath"]: m["name"] for m in found["volumeMounts"]}
    assert mounted[str(Path(web["config_file"]).parent)] == "web"
    assert mounted[str(Path(web["token_file"]).parent)] == "token"
    [endpoint] = one(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"serverName": "gpus"})
    assert all(found[f"{kind}Probe"]["tcpSocket"] == {"port": "metrics"} for kind in ("startup", "liveness"))
    peers = one(objects, "NetworkPolicy")["spec"]["ingress"][0]["from"]
    assert len(peers) == 2  # the one given, and the test pod


def test_what_the_values_say_of_the_daemon_wins_over_what_the_chart_would_take(
    render: Callable[..., Objects],
) -> None:
    given = {"backend": "auto", "history": {"max_bytes": 1_000_000}, "poll": {"interval": "1s"}}
    text = one(render({"config": given}), "ConfigMap", "gpus-amdgpu-exporter")["data"]["config.yaml"]
    written = yaml.safe_load(text)
    assert {key: written[key] for key in given} == given
    assert written["windows"] == {"preset": "off"}


def test_with_default_numbers_the_rules_are_those_of_the_repository(render: Callable[..., Objects]) -> None:
    # Where to read more is another place in a cluster.
    links = {"runbook_base": "https://x.example/", "runbook_base_elsewhere": "https://y.example/"}
    changes = {"common": {**links, "dashboard_base": "https://g.example"}}
    objects = render({"prometheusRule": {"enabled": True, **changes}})
    want = read(changes=changes)
    assert one(objects, "PrometheusRule", "-recording")["spec"] == build.recording_file(want)
    assert one(objects, "PrometheusRule", "-alerts")["spec"] == build.alert_file(want)


def test_alerts_lead_to_the_pages_that_the_service_serves(render: Callable[..., Objects]) -> None:
    alerts = one(render(EVERYTHING), "PrometheusRule", "-alerts")["spec"]["groups"]
    told = [rule["annotations"] for group in alerts for rule in group["rules"]]
    assert len(told) > 20
    for one_told in told:
        assert one_told["runbook_url"].startswith(
            "http://gpus-amdgpu-exporter.monitoring:9408/runbooks/AmdGpu"
        )
        assert "dashboard_url" not in one_told


def test_numbers_of_the_values_reach_the_expressions_as_the_generator_would_write_them(
    render: Callable[..., Objects],
) -> None:
    changes: dict[str, dict[str, Any]] = {
        "common": {
            "window_period": "20m",
            "exporter_job": "gpus",
            "dashboard_base": "https://g.example/x",
            "runbook_base": "http://{{ $labels.instance }}/r/",
            "runbook_base_elsewhere": "https://y.example/",
        },
        "AmdGpuMissing": {"for": "10m", "severity": "warning", "missing": 2},
        "AmdGpuThrottled": {"share": 0.125},
        "AmdGpuDataStale": {"age": "2m"},
        "AmdGpuL2HitDrop": {"requests": 2500000, "offset": "90m"},
        "AmdGpuQueueDelayHigh": {"windows": 5},
        "AmdGpuPowerCapped": {"enabled": False},
    }
    rules = {"common": changes["common"], "rules": {k: v for k, v in changes.items() if k != "common"}}
    objects = render({"prometheusRule": {"enabled": True, **rules}})
    want = read(changes=changes)
    recording, alerts = (one(objects, "PrometheusRule", f"-{n}")["spec"] for n in ("recording", "alerts"))
    assert recording == build.recording_file(want)
    assert alerts == build.alert_file(want)
    assert "AmdGpuPowerCapped" not in json.dumps(alerts)


def test_promtool_accepts_the_rules(render: Callable[..., Objects], promtool: str, tmp_path: Path) -> None:
    rules = {"AmdGpuThrottled": {"share": 0.001}, "AmdGpuCollectionSlow": {"duration": "1500ms"}}
    objects = render(
        {"prometheusRule": {"enabled": True, "rules": rules, "common": {"window_period": "90s"}}}
    )
    for found in (o for o in objects if o["kind"] == "PrometheusRule"):
        path = tmp_path / f"{found['metadata']['name']}.yml"
        path.write_text(yaml.safe_dump(found["spec"]))
        done = subprocess.run(
            [promtool, "check", "rules", "--lint-fatal", path], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


# What a target of the operator carries besides; the exporter's own pod.
TARGET = {
    "__meta_kubernetes_pod_node_name": "node01",
    "namespace": "monitoring",
    "pod": "amdgpu-exporter-x7k2p",
    "container": "exporter",
    "endpoint": "metrics",
    "service": "amdgpu-exporter",
}


@pytest.mark.parametrize("kind", ["serviceMonitor", "podMonitor"])
def test_a_target_is_its_node_and_not_the_pod_of_the_exporter(
    kind: str, render: Callable[..., Objects], promtool: str, tmp_path: Path
) -> None:
    objects = render({kind: {"enabled": True}})
    spec = one(objects, kind[0].upper() + kind[1:])["spec"]
    [endpoint] = spec["endpoints" if kind == "serviceMonitor" else "podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("15s", "10s")
    assert endpoint["port"] == one(objects, "Service")["spec"]["ports"][0]["name"]
    assert spec["selector"]["matchLabels"].items() <= one(objects, "Service")["metadata"]["labels"].items()
    # As the operator writes them: names in snake case.
    written = [
        {re.sub(r"(?<=[a-z])([A-Z])", lambda m: f"_{m[1].lower()}", k): v for k, v in rule.items()}
        for rule in endpoint["relabelings"]
    ]
    target = {"targets": ["10.0.0.1:9408"], "labels": TARGET}
    job = {"job_name": "x", "static_configs": [target], "relabel_configs": written}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    argv = [promtool, "check", "service-discovery", "--timeout=1s", tmp_path / "prometheus.yml", "x"]
    done = subprocess.run(argv, capture_output=True, text=True)
    [seen] = json.loads(done.stdout)
    labels = {name: value for name, value in seen["labels"].items() if not name.startswith("__")}
    assert labels == {"instance": "node01", "job": "amdgpu-exporter"}


def test_the_service_of_the_plugin_is_not_scraped(render: Callable[..., Objects]) -> None:
    objects = render(EVERYTHING)
    local = one(objects, "Service", "-local")
    assert local["spec"]["internalTrafficPolicy"] == "Local"
    [unless] = one(objects, "ServiceMonitor")["spec"]["selector"]["matchExpressions"]
    assert unless["operator"] == "DoesNotExist"
    assert unless["key"] in local["metadata"]["labels"]
    assert unless["key"] not in one(objects, "Service", "amdgpu-exporter")["metadata"]["labels"]


def test_each_dashboard_has_a_config_map_that_an_apply_can_hold(render: Callable[..., Objects]) -> None:
    found = [o for o in render(EVERYTHING) if o["metadata"].get("labels", {}).get("grafana_dashboard") == "1"]
    shipped = {p.name: json.loads(p.read_text()) for p in (ROOT / "dashboards").glob("*.json")}
    assert {k: json.loads(v) for o in found for k, v in o["data"].items()} == shipped
    assert all(len(json.dumps(o)) < 262_144 for o in found)


def test_checkov_finds_exactly_what_is_explained_beside_it(
    render: Callable[..., Objects], tmp_path: Path
) -> None:
    program = kube_tool("checkov")
    explained: set[tuple[str, str, str]] = set()
    for name in (
        "metrics",
        "attribution with processes",
        "spool",
        "canary, privileged",
        "attach",
        "node condition",
    ):
        objects = render(SETUPS[name])
        folder = name.replace(" ", "-").replace(",", "")
        for o in objects:
            notes = o["metadata"].setdefault("annotations", {})
            for key in [k for k in notes if k.startswith("checkov.io/skip")]:
                check, _, reason = notes.pop(key).partition("=")
                assert len(reason) >= 8, (check, reason)
                explained.add((folder, o["kind"], check))
        (tmp_path / f"{folder}.yaml").write_text(yaml.safe_dump_all(objects))
    options = ["--framework", "kubernetes", "--output", "json", "--quiet", "--skip-download", "--compact"]
    done = subprocess.run([program, "-d", str(tmp_path), *options], capture_output=True, text=True)
    failed = json.loads(done.stdout)["results"]["failed_checks"]
    found = {(Path(f["file_path"]).stem, f["resource"].split(".")[0], f["check_id"]) for f in failed}
    assert found - explained == set(), "neither mended nor explained"
    assert sorted(explained - found) == [], "explained, but not found any more"


def test_the_example_is_valid_and_uses_the_folder_of_the_daemon(
    render: Callable[..., Objects], faults: Callable[[Objects, list[str]], list[str]], tmp_path: Path
) -> None:
    example = list(yaml.safe_load_all((CHART / "examples" / "job.yaml").read_text()))
    assert faults(example, VERSIONS) == []
    state = next(
        v["hostPath"]["path"]
        for v in one(render({"profile": "profiling"}), "DaemonSet")["spec"]["template"]["spec"]["volumes"]
        if v["name"] == "state"
    )
    pod = next(o for o in example if o["kind"] == "Pod")
    assert {v["hostPath"]["path"] for v in pod["spec"]["volumes"] if "hostPath" in v} == {f"{state}/spool"}
    [job] = pod["spec"]["containers"]
    assert [m["mountPath"] for m in job["volumeMounts"]] == ["/var/lib/amdgpu-exporter/spool"]
    # The command is one that the exporter takes; without a profiler the job runs all the same.
    command = [
        str(tmp_path) if word == job["volumeMounts"][0]["mountPath"] else word for word in job["command"]
    ]
    assert command[0] == "amdgpu-exporter"
    assert command[-2:] == ["python3", "train.py"]
    done = verb(*command[1:-2], sys.executable, "-c", "print('trained')")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr


def test_the_version_is_that_of_the_exporter() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def test_metrics_named_on_the_page_of_the_chart_exist() -> None:
    named = set(re.findall(r"\bamdgpu_[a-z0-9_]+\b", (CHART / "README.md").read_text()))
    assert named <= {m.name for m in CATALOGUE}


@pytest.mark.parametrize("name", ["metrics", "attribution", "profiling-spool"])
def test_golden_plain_manifests_are_what_the_chart_renders(
    name: str,
    helm: Callable[..., subprocess.CompletedProcess[str]],
    golden: Callable[[Path, str], None],
) -> None:
    values = {"profile": name.partition("-")[0], "networkPolicy": {"enabled": True}}
    done = helm(
        "template",
        "amdgpu-exporter",
        str(CHART),
        "--namespace",
        "gpu-monitoring",
        "--skip-tests",
        values=values,
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.replace("app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl")
    text = re.sub(r"^ *helm\.sh/chart: .*\n", "", text, flags=re.MULTILINE)
    golden(ROOT / "deploy" / "kubernetes" / f"{name}.yaml", text)


def test_no_image_is_named_with_a_registry() -> None:
    texts = [ROOT / "Dockerfile", *CHART.rglob("*.yaml"), *(ROOT / "deploy").rglob("*.y*ml")]
    named = re.compile(r"^(?:.*\bimage|FROM|ARG BASE|.*repository)(?:: |=| )(\S+)", re.MULTILINE)
    images = [(path.name, name) for path in texts for name in named.findall(path.read_text())]
    assert len(images) > 5
    assert [(p, n) for p, n in images if re.match(r"[^/{}]*\.[^/{}]*/", n)] == []
