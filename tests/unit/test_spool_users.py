"""The spool and its users: each has a share, nobody has another's, and a living job is left alone."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_traces import C, K, window

from exporter.child import Child
from exporter.host import Clock
from exporter.model import Reason, SourceError
from exporter.windows import identity, quota
from exporter.windows.identity import Here
from exporter.windows.quota import Share
from exporter.windows.spool import QUARANTINE, Spool

NOW = 1_700_000_000.0
ME = str(os.geteuid())
HERE = Here("node-1", "boot-1")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make folders of other users")


class Still(Clock):
    def now(self) -> float:
        return NOW


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that other users can reach; those of pytest they cannot."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def spool(root: Path, share: Share | None = None) -> Spool:
    root.mkdir(exist_ok=True)
    return Spool(root, Still(), share)


def make(root: Path, rel: str, age_s: float = 60.0, size: int = 10) -> Path:
    folder = root / rel
    folder.mkdir(parents=True)
    (folder / "x.csv").write_bytes(b"x" * size)
    (folder / "manifest.json").write_text("{}")
    for path in (*folder.iterdir(), folder):
        os.utime(path, (NOW - age_s, NOW - age_s))
    return folder


def test_windows_beyond_a_users_count_go_the_newest_first(tmp_path: Path) -> None:
    one = spool(tmp_path / "s", Share(windows=2))
    folders = [make(tmp_path / "s", f"{ME}/w{n}", age_s=100 - n) for n in range(4)]
    assert one.complete() == folders[:2]
    assert [f.exists() for f in folders] == [True, True, False, False]
    assert one.dropped == 2


def test_bytes_beyond_a_users_share_go_too_and_other_users_keep_theirs(tmp_path: Path) -> None:
    one = spool(tmp_path / "s", Share(size=1 << 20))
    small, large = make(tmp_path / "s", f"{ME}/a", 90), make(tmp_path / "s", f"{ME}/b", 80, size=2 << 20)
    other = make(tmp_path / "s", "dropped-by-hand", 70, size=2 << 20)
    assert one.complete() == [small, other]
    assert not large.exists()


def test_what_a_living_job_writes_to_is_left_alone_and_remains_of_a_dead_one_go(tmp_path: Path) -> None:
    root = tmp_path / "s"
    one = spool(root)
    living, dead = (make(root, f"{ME}/{name}.partial", 9_000) for name in "ab")
    young = make(root, f"{ME}/c.partial", 10)
    script = (
        "import sys\nfrom pathlib import Path\nfrom exporter.windows import quota\n"
        "quota.hold(Path(sys.argv[1]))\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(living)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout
        job.stdout.readline()
        assert one.complete() == []
        assert [p.exists() for p in (living, dead, young)] == [True, False, True]
        assert job.stdin
        job.stdin.close()
    assert one.complete() == []
    assert not living.exists()


def test_a_hold_is_kept_by_the_job_when_its_parent_ends(tmp_path: Path) -> None:
    folder = make(tmp_path, "w.partial", 9_000)
    fd = quota.hold(folder)
    with subprocess.Popen(["/bin/sleep", "60"], pass_fds=(fd,)) as job:
        os.close(fd)
        assert list(quota.over(tmp_path, Share(), NOW)) == []
        job.kill()
    assert [name for name, _ in quota.over(tmp_path, Share(), NOW)] == ["w.partial"]


@as_root
def test_a_folder_that_another_user_made_in_ones_name_is_set_aside(tmp_path: Path) -> None:
    one = spool(tmp_path / "s")
    make(tmp_path / "s", "4001/w")
    os.chown(tmp_path / "s" / "4001", 4002, 4002)
    (tmp_path / "s" / "4003").write_text("a file in the place of a folder")
    assert one.complete() == []
    assert not (tmp_path / "s" / "4001").exists()
    assert not (tmp_path / "s" / "4003").exists()
    reasons = [p.read_text() for p in sorted((tmp_path / "s" / QUARANTINE).glob("*.reason"))]
    assert reasons == [f"uid {uid} is another user than who made this\n" for uid in (4001, 4003)]


@as_root
def test_a_user_makes_a_folder_of_their_own_and_sees_no_others(open_to_all: Path) -> None:
    from exporter.config import Config
    from exporter.profiling import Profiling

    path = open_to_all / "spool"
    config = Config.model_validate({"windows": {"spool_dir": str(path)}})
    made = Profiling.__new__(Profiling)
    made.config, made._replay, made._clock = config, None, Clock()
    made._spool()
    assert path.stat().st_mode & 0o7777 == 0o1733
    script = (
        "import os, sys\nos.setgid(4001); os.setuid(4001)\nroot = sys.argv[1]\n"
        "os.mkdir(root + '/4001', 0o700)\n"
        "try: os.listdir(root)\nexcept PermissionError: print('hidden')\n"
        "try: os.rename(root + '/4001', root + '/x'); os.rename(root + '/0', root + '/y')\n"
        "except PermissionError: print('kept')\n"
    )
    (path / "0").mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["hidden", "kept"]


# --- who a window says it is of -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({}, None),
        ({"uid": 7}, None),
        ({"uid": 8}, "says it is of uid 8, and belongs to uid 7"),
        ({"node": "pod-xyz", "boot_id": "boot-1"}, None),  # a container of this node has a name of its own
        ({"node": "node-1", "boot_id": "boot-0"}, None),  # before a reboot
        ({"node": "node-2", "boot_id": "boot-2"}, "says it is of node node-2, and this is node-1"),
        ({"boot_id": "boot-2"}, "is of another boot"),
        ({"node": "node-2"}, "says it is of node node-2"),
    ],
)
def test_a_claim_is_checked_against_the_owner_and_this_boot(
    claim: dict[str, object], words: str | None
) -> None:
    whole: dict[str, object] = {"uid": None, "node": None, "boot_id": None, **claim}
    found = identity.fault(owner=7, here=HERE, **whole)  # type: ignore[arg-type]
    assert found is None if words is None else words in (found or "")


def reduced(folder: Path) -> SourceError | None:
    async def ask() -> SourceError | None:
        child = Child("reducer", "exporter.windows.reducer", {"node": "node-1", "boot_id": "boot-1"})
        try:
            await child.request({"op": "reduce", "path": str(folder)}, 30)
        except SourceError as e:
            return e
        finally:
            await child.stop()
        return None

    return asyncio.run(ask())


def test_a_window_that_claims_another_identity_is_not_read(tmp_path: Path) -> None:
    rows = {"kernel_rows": [K(100, 200, 1)], "call_rows": [C(50, 70, 1)]}
    good = window(tmp_path / "good", **rows, node="pod", boot_id="boot-1", uid=os.geteuid())
    assert reduced(good) is None
    bad = window(tmp_path / "bad", **rows, boot_id="boot-1", uid=os.geteuid() + 1)
    error = reduced(bad)
    assert error is not None
    assert (error.reason, "belongs to uid" in str(error)) == (Reason.MALFORMED, True)
    assert json.loads((bad / "manifest.json").read_text())["uid"] == os.geteuid() + 1
