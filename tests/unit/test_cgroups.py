"""Whose a process is, by the paths that schedulers and runtimes give to control groups."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees
from hypothesis import given
from hypothesis import strategies as st

from exporter.backends.sysfs_owners import Owners
from exporter.formats.cgroup import Place, place
from exporter.host import Root
from exporter.model import Owner, Reason

ID = "ab" * 32
UID = "0a1b2c3d-0000-1111-2222-333344445555"
JOB = "/system.slice/slurmstepd.scope/job_7/step_0/user/task_1"


def test_the_cases_of_the_sample_library_are_told_as_stated(samples: Path) -> None:
    lines = (samples / "cases/25-slurm-cgroups/cgroup_lines.txt").read_text().splitlines()
    found = {}
    for line in lines[1:]:
        pid, _, content = line.partition("\t")
        found[int(pid)] = place(content.replace("\\n", "\n").encode())
    container = "aaaabbbbccccddddeeeeffff00001111222233334444555566667777888899aa"
    assert found == {
        101: Place(job="100311", step="batch"),
        102: Place(job="100312", step="0"),
        103: Place(job="100313", step="1"),
        104: Place(job="100314", step="extern"),
        105: Place(sluid="s5K1KKYAYG5D00", step="0"),
        106: Place(),
        107: Place(pod_uid=UID, container=container),
        108: Place(),
    }


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"0::{JOB}", Place(job="7", step="0")),
        ("0::/system.slice/n1_slurmstepd.scope/job_8/step_batch/slurm", Place(job="8", step="batch")),
        ("0::/system.slice/slurmstepd.scope/job_9", Place(job="9")),
        ("4:memory:/slurm/uid_5/job_10", Place(job="10")),
        (
            f"0::/kubepods/burstable/pod{UID}/{ID}",
            Place(pod_uid=UID, container=ID),
        ),
        (
            f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope",
            Place(pod_uid=UID, container=ID),
        ),
        (
            f"0::/kubepods.slice/kubepods-besteffort-pod{'1f' * 16}.slice/cri-containerd-{ID}.scope",
            Place(pod_uid="1f" * 16, container=ID),
        ),
        (f"12:cpu,cpuacct:/docker/{ID}\n1:name=systemd:/docker/{ID}", Place(container=ID)),
        (f"0::/system.slice/docker-{ID}.scope", Place(container=ID)),
        (f"0::/machine.slice/libpod-{ID}.scope/container", Place(container=ID)),
        ("0::/user.slice/user-1000.slice/session-4.scope", Place()),
        ("0::/", Place()),
        ("", Place()),
        ("nonsense", Place()),
        # What merely looks alike was made by a user, who may name a group as he likes.
        ("0::/user.slice/job_11/step_0", Place()),
        ("0::/system.slice/slurmstepd.scope/job_x/step_0", Place()),
        ("0::/system.slice/slurmstepd.scope/s123/step_0", Place()),
        (f"0::/system.slice/docker-{ID[:40]}.scope", Place()),
    ],
)
def test_a_path_tells_whose_it_is(line: str, found: Place) -> None:
    assert place(line.encode()) == found


@given(st.binary(max_size=300))
def test_no_bytes_end_in_an_error(data: bytes) -> None:
    place(data)
    place(b"0::" + data)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return trees.host(tmp_path / "proc")


def belongs(proc: Path, number: int, cgroup: str | None, user: int = 1000) -> None:
    folder = proc / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text(f"Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\n")
    if cgroup is not None:
        (folder / "cgroup").write_text(cgroup + "\n")


def test_each_kind_of_owner_has_its_labels(proc: Path, tmp_path: Path) -> None:
    logs = tmp_path / "containers"
    logs.mkdir()
    (logs / f"train-0_team-a_trainer-{ID}.log").touch()
    (logs / "unrelated.log").touch()
    belongs(proc, 1, f"0::{JOB}")
    belongs(proc, 2, "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0")
    belongs(proc, 3, f"0::/kubepods/pod{UID}/{ID}")
    belongs(proc, 4, f"0::/kubepods/pod{UID}/{'cd' * 32}")
    belongs(proc, 5, f"0::/docker/{ID}")
    belongs(proc, 6, "0::/user.slice", user=1001)
    belongs(proc, 7, None)
    owners = Owners(Root(str(proc)), Root(str(logs)))
    owners.begin()
    assert [owners.of(str(n)) for n in range(1, 8)] == [
        Owner("slurm", job_id="7", user="1000"),
        Owner("slurm", user="1000"),
        Owner("pod", "team-a", "train-0", "trainer"),
        Owner("pod", container="cd" * 6),
        Owner("container", container="ab" * 6),
        Owner("process", user="1001"),
        Owner("process", user="1000"),
    ]
    with pytest.raises(FileNotFoundError):
        owners.of("8")


def test_a_status_without_a_user_is_no_user(proc: Path) -> None:
    belongs(proc, 1, f"0::{JOB}")
    (proc / "1" / "status").write_text("Name:\tx\n")
    assert Owners(Root(str(proc))).of("1") is Reason.MALFORMED


def test_memory_is_summed_by_job_and_by_container(tmp_path: Path) -> None:
    trees.mi300x(tmp_path / "sys", sockets=1)
    proc = trees.host(tmp_path / "proc")
    for number, cgroup in ((11, JOB), (12, JOB), (13, f"/docker/{ID}"), (14, "/user.slice")):
        trees.using(tmp_path / "sys", number, {10001: number << 20})
        trees.alive(proc, number)
        (proc / str(number) / "cgroup").write_text(f"0::{cgroup}\n")
    rows = trees.Machine(tmp_path / "sys", proc).poll()
    memory = {labels: v for (m, _, labels), v in rows.items() if m == "amdgpu_process_memory_bytes"}
    assert memory == {
        "slurm,,,,7,1000": 23 << 20,
        "container,,," + "ab" * 6 + ",,": 13 << 20,
        "process,,,,,1000": 14 << 20,
    }
