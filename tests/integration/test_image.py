"""The image is built by buildah on a base of Debian packages, and serves as its user, its root read-only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from daemon import ROOT, free_port, until
from kube_parts import kube_python, kube_tool

PARTS = ROOT / ".cache" / "parts" / "image"
BASE = "localhost/amdgpu-exporter-base"
TAG = "localhost/amdgpu-exporter:test"
LAUNCHER = Path(__file__).with_name("image_root.sh")
USER = 10001
MIB = 1 << 20


@dataclass
class Image:
    """A built image: where its files are mounted, what it is configured to do, its size beyond the base."""

    root: Path
    config: dict[str, Any]
    added: int
    log: str

    def environment(self, **more: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.config["Env"]) | more

    def command(self, *argv: str) -> list[str]:
        """What starts ``argv`` inside, found on the image's own PATH."""
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", str(LAUNCHER)]
        return [*apart, str(self.root), str(USER), *argv]


def buildah(*args: str, check: bool = True) -> str:
    """Run buildah on storage of its own; plain copies where overlays are not to be had."""
    storage = PARTS / "storage"
    driver = PARTS / "driver"
    if not driver.exists():
        probe = [*_buildah(storage, "overlay"), "info"]
        works = subprocess.run(probe, capture_output=True).returncode == 0
        driver.write_text("overlay" if works else "vfs")
    done = subprocess.run([*_buildah(storage, driver.read_text()), *args], capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip() or done.stderr


def _buildah(storage: Path, driver: str) -> list[str]:
    places = ["--root", str(storage / "root"), "--runroot", str(storage / "run")]
    return ["buildah", *places, "--storage-driver", driver]


def size(root: Path) -> int:
    done = subprocess.run(["du", "-s", "-x", "--block-size=1", root], capture_output=True, text=True)
    return int(done.stdout.split()[0])


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    if os.geteuid() != 0:
        pytest.skip("only root may build and mount an image here")
    if not shutil.which("buildah") or not (PARTS / "base.tar").exists():
        pytest.skip("no buildah, or no base: tests/install-image-parts makes them")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    if "sha256" not in buildah("images", "--no-trunc", "-q", BASE, check=False):
        empty = buildah("from", "scratch")
        buildah("add", "-q", empty, str(PARTS / "base.tar"), "/")
        buildah("commit", "-q", "--rm", empty, BASE)
    authorities = Path("/etc/ssl/certs/ca-certificates.crt")
    mounts = ["-v", f"{authorities}:{authorities}:ro"] if authorities.exists() else []
    build = ["bud", "--isolation", "chroot", "--pull-never", "--format", "docker", *mounts]
    args = ["--build-arg", f"BASE={BASE}", "--build-arg", "VERSION=1.2.3"]
    log = buildah(*build, *args, "-t", TAG, str(ROOT), check=False)
    if not buildah("images", "-q", TAG, check=False):
        lines = log.splitlines()
        offline = [line for line in lines if "Could not find a version" in line or "Max retries" in line]
        if offline:
            pytest.skip(f"the packages of the image cannot be had: {offline[0]}")
        pytest.fail("\n".join(lines[-40:]))
    config = json.loads(buildah("inspect", "--type", "image", TAG))["Docker"]["config"]
    whole, bare = buildah("from", "--pull-never", TAG), buildah("from", "--pull-never", BASE)
    try:
        root, base = Path(buildah("mount", whole)), Path(buildah("mount", bare))
        yield Image(root, config, size(root) - size(base), log)
    finally:
        buildah("rm", whole, bare, check=False)
        buildah("rmi", TAG, check=False)


@contextlib.contextmanager
def started(image: Image, tmp_path: Path, *args: str) -> Iterator[tuple[str, psutil.Process]]:
    """The image's own command with ``args``, until it answers; its address and the daemon's process."""
    port = free_port()
    argv = [*image.config["Entrypoint"], *image.config["Cmd"], *args]
    environment = image.environment(AMDGPU_EXPORTER_LISTEN=f"127.0.0.1:{port}")
    log = tmp_path / "log"
    with log.open("wb") as err:
        process = subprocess.Popen(image.command(*argv), env=environment, stderr=err, stdout=err)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            return bool(urllib.request.urlopen(f"{url}/-/ready", timeout=5).status == 200)
        return False

    try:
        until(answers, 30, "the image's daemon being ready")
        # The launcher is the first process of a namespace and has become the daemon.
        [daemon] = psutil.Process(process.pid).children()
        yield url, daemon
        daemon.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait(10)


def test_it_serves_a_replay_as_its_user_on_a_read_only_root_without_a_shell(
    image: Image, tmp_path: Path
) -> None:
    with started(image, tmp_path, "--backend", "replay") as (url, daemon):
        page = urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode()
        assert page.count("\namdgpu_up{") == 8
        assert urllib.request.urlopen(f"{url}/", timeout=10).status == 200
        status = Path(f"/proc/{daemon.pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == [str(USER)] * 4
        assert fields["Gid"].split() == [str(USER)] * 4
        assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
        assert fields["NoNewPrivs"] == "1"
        mounts = Path(f"/proc/{daemon.pid}/mounts").read_text().splitlines()
        [root] = [line.split()[3].split(",") for line in mounts if line.split()[1] == "/"]
        assert "ro" in root
        for child in daemon.children(recursive=True):
            assert child.uids().effective == USER


def test_its_health_check_tells_a_daemon_that_answers_from_one_that_does_not(
    image: Image, tmp_path: Path
) -> None:
    kind, *argv = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"  # not CMD-SHELL

    def check(port: str) -> int:
        inside = [part.replace("9408", port) for part in argv]
        return subprocess.run(image.command(*inside), env=image.environment(), capture_output=True).returncode

    with started(image, tmp_path, "--backend", "replay") as (url, _):
        assert check(url.rpartition(":")[2]) == 0
    assert check(str(free_port())) != 0


def test_it_says_what_it_is(image: Image) -> None:
    labels = image.config["Labels"]
    assert labels["org.opencontainers.image.title"] == "amdgpu-exporter"
    assert labels["org.opencontainers.image.version"] == "1.2.3"
    assert image.config["User"] == f"{USER}:{USER}"
    assert list(image.config["ExposedPorts"]) == ["9408/tcp"]


def test_without_rocm_in_the_build_it_says_that_the_helper_is_left_out(image: Image) -> None:
    assert "built without it" in image.log


def test_it_is_as_small_as_the_page_says(image: Image) -> None:
    """The base comes on top."""
    [told] = re.findall(r"adds about (\d+) MiB", (ROOT / "docs" / "INSTALL.md").read_text())
    print(f"beyond the base: {image.added / MIB:.0f} MiB")
    assert image.added / MIB == pytest.approx(int(told), rel=0.2)


def test_nothing_in_it_installs_packages(image: Image) -> None:
    assert not list(image.root.glob("opt/amdgpu-exporter/bin/pip*"))


def test_its_bill_of_materials_names_what_is_installed(image: Image) -> None:
    bill = json.loads((image.root / "opt/amdgpu-exporter/sbom.cdx.json").read_text())
    told = {c["purl"] for c in bill["components"]} | {bill["metadata"]["component"]["purl"]}
    folders = list(image.root.glob("opt/amdgpu-exporter/lib/python*/site-packages/*.dist-info"))
    assert len(folders) > 15
    for folder in folders:
        name, version = folder.name.removesuffix(".dist-info").rsplit("-", 1)
        assert f"pkg:pypi/{name.replace('_', '-').lower()}@{version}" in told
    status = (image.root / "var/lib/dpkg/status").read_text()
    assert sum(p.startswith("pkg:deb/debian/") for p in told) == status.count("Status: install ok installed")


def test_its_bill_of_materials_keeps_to_the_schema(image: Image) -> None:
    program = (
        "import sys; from cyclonedx.schema import SchemaVersion;"
        "from cyclonedx.validation.json import JsonStrictValidator;"
        "fault = JsonStrictValidator(SchemaVersion.V1_5).validate_str(sys.stdin.read());"
        "sys.exit(str(fault) if fault else 0)"
    )
    text = (image.root / "opt/amdgpu-exporter/sbom.cdx.json").read_text()
    done = subprocess.run([kube_python(), "-c", program], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run([kube_tool("hadolint"), ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_checkov_has_nothing_to_say() -> None:
    options = ["--framework", "dockerfile", "--compact", "--quiet", "--skip-download"]
    argv = [kube_tool("checkov"), "-f", str(ROOT / "Dockerfile"), *options]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
