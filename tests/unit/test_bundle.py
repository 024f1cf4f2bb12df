"""The bundle for a maintainer: all that is needed, and not one identifier of the machine."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trees
import yaml
from checkmade import healthy, machine

from exporter.backends.replay import describe
from exporter.checks import bundle, check
from exporter.checks.machine import Machine
from exporter.checks.mask import TextMask
from exporter.checks.record import Mask
from exporter.config import Config, WebSection
from exporter.model import ConfigError

UNIQUE = 0x1D5F1D3BF5B1E400
SECRETS = (
    f"{UNIQUE:016x}",
    f"{UNIQUE:X}",
    str(UNIQUE),
    "123456789",  # the hive
    "692103000000",
    "gpu-node-17",
    "gpu-node-17.cluster.example.org",
    "mallory",
    "10.20.30.40",
    "2001:db8::17",
    "02:42:ac:11:00:02",
    "1d5f1d3b-f5b1-e400-8000-00112233aabb",
    "/etc/exporter/token",
)
LOG = f"""time=1 msg="serving" url=http://10.20.30.40:9408/ host=gpu-node-17.cluster.example.org
GPU[0] unique id 0x{UNIQUE:X}, in decimal {UNIQUE}, serial 692103000000 hive 123456789
mallory ran /home/mallory/train.py on GPU-NODE-17 from 2001:db8::17 ({"02:42:ac:11:00:02"}) at 04:05:06
0000:05:00.0 again 10.20.30.40, another 10.20.30.41, loopback 127.0.0.1
uuid 1d5f1d3b-f5b1-e400-8000-00112233aabb
"""


@pytest.fixture
def looked(tmp_path: Path) -> Machine:
    root = healthy(tmp_path / "node")
    trees.put(root / "proc/sys/kernel/hostname", "gpu-node-17.cluster.example.org")
    trees.put(root / "etc/os-release", 'NAME="x"\nPRETTY_NAME="Debian 12"')
    made = machine(root, user="mallory")
    config = Config(web=WebSection(token_file="/etc/exporter/token"))
    page = f'amdgpu_info{{uuid="{UNIQUE:016x}",serial="692103000000",host="gpu-node-17"}} 1\n'
    return replace(made, settings=replace(made.settings, config=config), daemon=page)


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        assert all(m.uid == 0 and m.mtime == 0 and not m.uname for m in tar)
        return {
            m.name.removeprefix("amdgpu-exporter-report/"): (
                f.read() if m.isreg() and (f := tar.extractfile(m)) else m.linkname.encode()
            )
            for m in tar
        }


def _write(looked: Machine, dest: Path, log: Path | None = None) -> dict[str, bytes]:
    bundle.write(looked, check.run(looked), dest, log)
    return contents(dest)


def test_no_identifier_of_the_machine_survives(looked: Machine, tmp_path: Path) -> None:
    log = tmp_path / "exporter.log"
    log.write_text(LOG)
    files = _write(looked, tmp_path / "b.tar.gz", log)
    everything = b"\n".join(name.encode() + b"\n" + data for name, data in files.items())
    left = [s for s in SECRETS if s.lower().encode() in everything.lower()]
    assert left == []
    assert files["log.txt"].count(b"ipv4-1") == 2
    assert b"ipv4-2" in files["log.txt"]
    for kept in (b"0000:05:00.0", b"127.0.0.1", b"04:05:06"):
        assert kept in files["log.txt"], "what is no identifier stays readable"


def test_one_original_is_one_replacement_everywhere(looked: Machine, tmp_path: Path) -> None:
    log = tmp_path / "exporter.log"
    log.write_text(LOG)
    files = _write(looked, tmp_path / "b.tar.gz", log)
    told = json.loads(files["devices.json"])[0]["uuid"]
    assert told.encode() in files["metrics.txt"]
    captured = files["capture/sys/devices/pci0000:00/0000:05:00.0/unique_id"].decode().strip()
    assert captured == told
    properties = files["capture/sys/class/kfd/kfd/topology/nodes/1/properties"].decode()
    assert f"unique_id {int(told, 16)}\n" in properties
    assert told.encode() in files["log.txt"].lower()
    assert str(int(told, 16)).encode() in files["log.txt"]


def test_it_holds_what_a_maintainer_needs_and_replays(looked: Machine, tmp_path: Path) -> None:
    files = _write(looked, tmp_path / "b.tar.gz")
    assert {n.partition("/")[0] for n in files} == {
        "check.json",
        "devices.json",
        "config.yaml",
        "versions.json",
        "metrics.txt",
        "capture",
    }
    assert json.loads(files["check.json"])["findings"]
    assert json.loads(files["versions.json"])["system"] == '"Debian 12"'
    assert yaml.safe_load(files["config.yaml"])["web"]["token_file"] == "(set)"
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        tar.extractall(tmp_path / "out", filter="data")
    capture = tmp_path / "out" / "amdgpu-exporter-report" / "capture"
    assert describe(capture).count == 1
    before, after = trees.Machine(Path(looked.sysfs.path)), trees.Machine(capture / "sys")
    assert after.poll() == before.poll()


def test_it_never_overwrites_and_leaves_nothing_half_made(looked: Machine, tmp_path: Path) -> None:
    dest = tmp_path / "b.tar.gz"
    dest.write_text("precious")
    with pytest.raises(ConfigError, match="already"):
        _write(looked, dest)
    assert dest.read_text() == "precious"
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="already"):
        _write(looked, tmp_path / "link")
    with pytest.raises(ConfigError, match="No such"):
        _write(looked, tmp_path / "none" / "b.tar.gz")
    with pytest.raises(ConfigError, match="--log"):
        _write(looked, tmp_path / "c.tar.gz", tmp_path / "no.log")
    assert not (tmp_path / "c.tar.gz").exists()


def test_it_is_for_its_owner_and_bounded(
    looked: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "exporter.log"
    log.write_text("".join(f"line {n}\n" for n in range(10_000)))
    files = _write(looked, tmp_path / "b.tar.gz", log)
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    assert files["log.txt"].splitlines()[-1] == b"line 9999"
    assert len(files["log.txt"].splitlines()) == bundle.LOG_LINES
    monkeypatch.setattr(bundle, "SIZE_LIMIT", 1000)
    with pytest.raises(ConfigError, match="more than 1000"):
        _write(looked, tmp_path / "c.tar.gz", log)
    assert not (tmp_path / "c.tar.gz").exists()


def test_without_a_gpu_there_is_a_bundle_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    files = _write(machine(tmp_path / "node", daemon=None), tmp_path / "b.tar.gz")
    assert b"no AMD GPU" in files["no-capture.txt"]
    assert "metrics.txt" not in files


def _mask(*words: tuple[str, str]) -> Callable[[str], str]:
    return TextMask(Mask(), (), words).text


@pytest.mark.parametrize(
    "text",
    [
        "0000:05:00.0 at 12:34:56 on 2026-12-01T04:05:06Z",
        "version 6.14.5, 7.0.2-56, 113-M3000100-103",
        "::1 and 127.0.0.1 and :9408",
        "gfx942:sramecc+:xnack-",
        "amdgpu_up 1",
        "1.2.3.4.5 and 999.1.1.1",
        "root@localhost",
    ],
)
def test_what_names_nobody_stays(text: str) -> None:
    assert _mask(("host", "node"), ("user", "up"))(text) == text


def test_names_are_replaced_as_whole_words_in_any_case() -> None:
    mask = _mask(("host", "node1"), ("host", "node1.example.org"), ("user", "eve"))
    assert (
        mask("NODE1 node1.example.org node10 eve seven Eve@node1")
        == "host-1 host-2 node10 user-1 seven user-1@host-1"
    )
    assert mask("/home/bob/x /home/eve/y") == "/home/user-2/x /home/user-1/y"


def test_the_mask_may_be_applied_twice() -> None:
    mask = _mask(("host", "node1"))
    once = mask("node1 10.1.1.1 /home/bob 1d5f1d3b-f5b1-e400-8000-00112233aabb")
    assert mask(once) == once


def test_a_binary_is_left_as_it_is() -> None:
    blob = bytes(range(256))
    assert bundle._clean(blob, TextMask(Mask(), (), [("host", "abc")])) == blob
