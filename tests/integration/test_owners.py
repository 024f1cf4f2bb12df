"""Who holds each GPU, through the real daemon: a kubelet that speaks gRPC, job files, control groups."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import trees

from tests.fakes.kubelet import Kubelet, claim, pod
from tests.integration.daemon import Daemon, serving, until

GPUS = ("0000:05:00.0", "0000:25:00.0")


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    fake = Kubelet(tmp_path / "kubelet.sock").start()
    yield fake
    fake.stop()


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node of two sockets whose processes can be seen."""
    trees.mi300x(tmp_path / "sys", sockets=2)
    trees.host(tmp_path / "proc")
    return tmp_path


def started(node: Path, config: dict[str, object], interval: str = "200ms"):  # type: ignore[no-untyped-def]
    file = node / "node.yaml"
    file.write_text(json.dumps({"backend": "sysfs", "poll": {"deadline": "1s", "max_age": "1s"}, **config}))
    paths = ("--path.sysfs", str(node / "sys"), "--path.procfs", str(node / "proc"))
    return serving(node, "--config", str(file), "--interval", interval, *paths)


def on(kubelet: Kubelet, **more: object) -> dict[str, object]:
    return {"owners": {"kubelet": "on", "kubelet_socket": str(kubelet.socket), **more}}


def holders(daemon: Daemon) -> set[tuple[str, ...]]:
    """(pci, partition, kind, namespace, pod, container, job, user) of every holder; empty where absent."""
    keys = ("pci", "partition", "kind", "namespace", "pod", "container", "job_id", "user")
    found = set()
    for name in daemon.series():
        if name.startswith("amdgpu_workload_info"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', name))
            found.add(tuple(labels.get(k, "") for k in keys))
    return found


def held(pci: str, namespace: str, name: str, container: str, partition: str = "") -> tuple[str, ...]:
    return (pci, partition, "pod", namespace, name, container, "", "")


def up(daemon: Daemon, source: str = "kubelet") -> float | None:
    return daemon.value(rf'^amdgpu_exporter_source_up\{{source="{source}"')


def test_a_pod_has_its_series_and_they_end_within_one_interval_after_it(node: Path, kubelet: Kubelet) -> None:
    kubelet.pods = [pod("team-a", "train-0", "trainer", "0000:05:00.0")]
    with started(node, on(kubelet), "1s") as daemon:
        until(lambda: holders(daemon) == {held(GPUS[0], "team-a", "train-0", "trainer")})
        kubelet.pods = []
        asked = kubelet.asked
        until(lambda: kubelet.asked > asked, 2, "the next question")
        until(lambda: holders(daemon) == set(), 0.5, "the series' end")
        assert up(daemon) == 1


def test_ids_are_known_in_any_case_and_others_are_counted(node: Path, kubelet: Kubelet) -> None:
    kubelet.pods = [
        pod("a", "one", "c", GPUS[0].upper(), "0000:ff:00.0"),
        pod("b", "two", "c", GPUS[1].removeprefix("0000:")),
        pod("n", "other-vendor", "c", GPUS[0], resource="nvidia.com/gpu"),
        pod("n", "look-alike", "c", GPUS[0], resource="amd.com/gpu-mem"),
        {"name": "no-device", "namespace": "n", "containers": [{"name": "c"}]},
    ]
    with started(node, on(kubelet)) as daemon:
        until(lambda: holders(daemon) == {held(GPUS[0], "a", "one", "c"), held(GPUS[1], "b", "two", "c")})
        assert daemon.value(r'owner_devices\{source="kubelet",result="unmatched"') == 1
        assert daemon.value(r'owner_devices\{source="kubelet",result="matched"') == 2
        assert "0000:ff:00.0 is none of this node's AMD GPUs" in daemon.log.read_text()


def test_all_holders_of_a_shared_gpu_are_shown(node: Path, kubelet: Kubelet) -> None:
    kubelet.pods = [pod("a", "one", "c", GPUS[0]), pod("b", "two", "c", GPUS[0])]
    with started(node, on(kubelet)) as daemon:
        until(lambda: holders(daemon) == {held(GPUS[0], "a", "one", "c"), held(GPUS[0], "b", "two", "c")})


def test_devices_of_a_resource_claim_are_found_by_card_and_render_node(node: Path, kubelet: Kubelet) -> None:
    with started(node, on(kubelet)) as daemon:
        name = "gpu-1-129"
        kubelet.pods = [claim("a", "one", "c", name), claim("b", "two", "c", name, driver="other.example")]
        until(lambda: holders(daemon) == {held(GPUS[1], "a", "one", "c")})


def test_the_case_of_the_sample_library_comes_out_as_stated(
    tmp_path: Path, kubelet: Kubelet, samples: Path
) -> None:
    kubelet.pods = json.loads((samples / "cases/24-podresources-plugin/list.json").read_text())[
        "pod_resources"
    ]
    partitions(tmp_path / "sys")
    trees.host(tmp_path / "proc")
    with started(tmp_path, on(kubelet)) as daemon:
        trainer, server = ("team-a", "train-llm-worker-0", "trainer"), ("team-b", "infer-7c9f", "server")
        until(
            lambda: (
                holders(daemon)
                == {
                    *(held(pci, *trainer, "0") for pci in ("0000:05:00.0", "0000:26:00.0", "0000:c1:00.0")),
                    held("0000:e1:00.0", *server, "6"),
                    held("0000:e1:00.0", *server, "7"),
                }
            ),
            what="the stated holders",
        )


def test_a_slow_kubelet_costs_its_own_answer_alone(node: Path, kubelet: Kubelet) -> None:
    kubelet.pods = [pod("a", "one", "c", GPUS[0])]
    with started(node, on(kubelet)) as daemon:
        until(lambda: holders(daemon) != set())
        kubelet.delay_s = 20
        until(lambda: up(daemon) == 0, 10, "the timeout")
        # Too old to be true.
        assert holders(daemon) == set()
        assert daemon.value(r'source_failures_total\{source="kubelet",reason="timeout"') == 1
        assert up(daemon, "sysfs") == 1
        assert daemon.value(r"^amdgpu_devices") == 2
        kubelet.delay_s = 0
        until(lambda: holders(daemon) != set(), 20, "the kubelet's return")


def test_a_restarted_kubelet_is_asked_again_and_an_absent_one_is_said(node: Path, kubelet: Kubelet) -> None:
    kubelet.pods = [pod("a", "one", "c", GPUS[0])]
    with started(node, on(kubelet)) as daemon:
        until(lambda: holders(daemon) != set())
        kubelet.stop()
        until(lambda: up(daemon) == 0 and holders(daemon) == set(), 10, "its absence")
        until(lambda: "no such socket" in daemon.log.read_text(), what="the line")
        kubelet.start()
        until(lambda: up(daemon) == 1 and holders(daemon) != set(), 15, "its return")


@pytest.mark.parametrize("garbage", [b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x08"])
def test_bytes_that_are_no_answer_are_malformed(node: Path, kubelet: Kubelet, garbage: bytes) -> None:
    kubelet.garbage = garbage
    with started(node, on(kubelet)) as daemon:
        until(lambda: up(daemon) == 0, what="the refusal")
        assert (daemon.value(r'source_failures_total\{source="kubelet",reason="malformed"') or 0) >= 1
        kubelet.garbage, kubelet.pods = None, [pod("a", "one", "c", GPUS[0])]
        until(lambda: holders(daemon) != set(), 15, "the next answer")


def test_refusals_have_their_reason(node: Path, kubelet: Kubelet) -> None:
    with started(node, on(kubelet)) as daemon:
        for code, reason in (
            (grpc.StatusCode.PERMISSION_DENIED, "denied"),
            (grpc.StatusCode.UNIMPLEMENTED, "unsupported"),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "malformed"),
        ):
            kubelet.code = code
            failed = rf'source_failures_total\{{source="kubelet",reason="{reason}"'
            until(lambda: (daemon.value(failed) or 0) > 0, what=reason)  # noqa: B023 - asked at once


def test_a_socket_that_never_answers_or_is_none_is_said(node: Path) -> None:
    silent = socket.socket(socket.AF_UNIX)
    path = node / "silent.sock"
    silent.bind(str(path))
    silent.listen()
    config = {"owners": {"kubelet": "on", "kubelet_socket": str(path)}}
    try:
        with started(node, config) as daemon:
            until(lambda: up(daemon) == 0, 15, "the refusal")
            assert daemon.get("/-/ready")[0] == 200
    finally:
        silent.close()
    path.unlink()
    path.write_text("no socket")
    with started(node, config) as daemon:
        until(lambda: "silent.sock: not a socket" in daemon.log.read_text(), what="the line")


def test_job_files_name_jobs_by_gpu_and_by_partition(tmp_path: Path) -> None:
    partitions(tmp_path / "sys")
    trees.host(tmp_path / "proc")
    files = tmp_path / "jobs"
    files.mkdir()
    (files / "0").write_text("4711\n4712\n\n4711\n")
    (files / "3.2").write_text("j-9.server")
    (files / "0000:26:00.0").write_text("5\n")
    (files / "7").write_text("6\n")
    (files / "1").write_text('{"SLURM_JOB_ID":"912"}')
    with started(tmp_path, {"owners": {"kubelet": "off", "job_files": str(files)}}) as daemon:
        until(
            lambda: (
                {(h[0], h[1], h[2], h[6]) for h in holders(daemon)}
                == {
                    *(("0000:05:00.0", str(p), "job", j) for p in range(8) for j in ("4711", "4712")),
                    ("0000:26:00.0", "0", "job", "5"),
                    ("0000:e1:00.0", "2", "job", "j-9.server"),
                }
            )
        )
        log = daemon.log.read_text()
        assert "jobs/1: expected one job id per line" in log
        assert "file 7 is none of this node's AMD GPUs" in log
        (files / "0").write_text("")
        (files / "3.2").unlink()
        until(lambda: {h[6] for h in holders(daemon)} == {"5"}, 2, "the jobs' end")


def test_a_running_job_is_told_by_its_control_group_and_once_where_a_file_names_it_too(node: Path) -> None:
    (node / "jobs").mkdir()
    (node / "jobs/0").write_text("77\n")
    trees.using(node / "sys", 11, {10001: 1 << 30})
    trees.alive(node / "proc", 11)
    (node / "proc/11/cgroup").write_text("0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n")
    with started(node, {"owners": {"kubelet": "off", "job_files": str(node / "jobs")}}) as daemon:
        until(lambda: holders(daemon) == {(GPUS[0], "", "slurm", "", "", "", "77", "1000")})


def test_inline_labels_name_the_holder_or_say_shared_and_never_double_a_series(
    node: Path, kubelet: Kubelet
) -> None:
    kubelet.pods = [pod("a", "one", "c", GPUS[0], GPUS[1]), pod("b", "two", "c", GPUS[1])]
    with started(node, {**on(kubelet), "labels": {"workload": "inline"}}) as daemon:
        until(lambda: len(holders(daemon)) == 3)
        power = [name for name in daemon.series() if name.startswith("amdgpu_power_watts")]
        assert sorted(re.sub(r'gpu="."', "", n) for n in power) == [
            'amdgpu_power_watts{,pci="0000:05:00.0",kind="pod",namespace="a",pod="one",container="c"}',
            'amdgpu_power_watts{,pci="0000:25:00.0",kind="shared"}',
        ]
        kubelet.pods = []
        until(lambda: not any("kind=" in n for n in daemon.series()), what="their end")


def partitions(sysfs: Path) -> None:
    """Four sockets in CPX; of the last one amdgpu_xcp_30 and 31 are the partitions 6 and 7."""
    trees.mi300x(sysfs, sockets=4, partitions=8, buses=(0x05, 0x26, 0xC1, 0xE1))
