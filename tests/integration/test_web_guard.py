"""TLS, users and hostile clients, against a real daemon with curl and a real Prometheus."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import psutil
import pytest
import trustme

from exporter.listener import BODY_BYTES_MAX, CONNECTIONS_MAX, HEAD_BYTES_MAX
from tests.integration.daemon import COMMAND, Daemon, environment, free_port, serving, until, verb

HASH = bcrypt.hashpw(b"opensesame", bcrypt.gensalt(4)).decode()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Path:
    """A folder with a server's certificate, its key and the authority's certificate."""
    issue(authority, tmp_path)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path


def issue(authority: trustme.CA, folder: Path, not_after: dt.datetime | None = None) -> None:
    server = authority.issue_cert("127.0.0.1", "localhost", not_after=not_after)
    server.private_key_pem.write_to_path(folder / "key.pem")
    server.cert_chain_pems[0].write_to_path(folder / "cert.pem")


def written(folder: Path, text: str) -> Path:
    path = folder / "web.yml"
    path.write_text(text)
    return path


TLS = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
USERS = f"basic_auth_users:\n  prom: {HASH}\n"


@contextlib.contextmanager
def guarded(folder: Path, text: str, *more: str) -> Iterator[Daemon]:
    """A daemon with this web file; ready by its log, since its page may need a password and a certificate."""
    port = free_port()
    log = folder / "guarded.log"
    with log.open("wb") as err:
        process = subprocess.Popen(
            [
                *COMMAND,
                "serve",
                "--backend",
                "replay",
                "--interval",
                "200ms",
                "--listen",
                f"127.0.0.1:{port}",
                "--web.config.file",
                str(written(folder, text)),
                *more,
            ],
            stderr=err,
            env=environment(STATE_DIRECTORY=str(folder / "state")),
        )
    try:
        until(lambda: b"msg=ready" in log.read_bytes() or process.poll() is not None, 15, "ready")
        assert process.poll() is None, log.read_text()
        yield Daemon(process, port, log)
    finally:
        process.terminate()
        process.wait(5)


def curl(*args: str) -> tuple[int, str, str]:
    """(exit code, HTTP status, body or error)."""
    command = ["curl", "-sS", "-m", "10", "-w", "\n%{http_code}", *args]
    done = subprocess.run(command, capture_output=True, text=True)
    body, _, status = done.stdout.rpartition("\n")
    return done.returncode, status, body or done.stderr


def refused(daemon: Daemon, reason: str) -> float:
    return daemon.value(rf'requests_refused_total\{{reason="{reason}"') or 0.0


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")


@needs_curl
def test_over_tls_a_client_that_knows_the_authority_is_served_and_others_refuse(files: Path) -> None:
    with guarded(files, TLS) as daemon:
        url = daemon.url.replace("http", "https") + "/metrics"
        code, status, body = curl("--cacert", str(files / "ca.pem"), url)
        assert (code, status) == (0, "200")
        assert 'amdgpu_exporter_requests_refused_total{reason="tls"}' in body
        assert curl(url)[0] == 60, "curl does not know the authority"
        assert curl("--cacert", str(files / "ca.pem"), "--tls-max", "1.1", url)[0] == 35
        assert curl(daemon.url + "/metrics")[0] != 0, "plain HTTP to the TLS port"
        counted = 'amdgpu_exporter_requests_refused_total{reason="tls"} 3\n'
        until(lambda: counted in curl("--cacert", str(files / "ca.pem"), url)[2], what="the count")


@needs_curl
def test_a_renewed_certificate_is_served_without_a_restart_and_a_broken_one_is_not(
    files: Path, authority: trustme.CA
) -> None:
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    issue(authority, files, yesterday)
    with guarded(files, TLS) as daemon:
        url, ca = daemon.url.replace("http", "https") + "/metrics", str(files / "ca.pem")
        code, _, said = curl("--cacert", ca, url)
        assert code == 60, "an expired certificate is for the client to refuse"
        assert "expired" in said
        issue(authority, files)
        until(lambda: curl("--cacert", ca, url)[1] == "200", what="the new certificate")
        (files / "cert.pem").write_text("no certificate\n")
        until(lambda: curl("--cacert", ca, url) and "refused" in daemon.log.read_text(), what="the complaint")
        assert curl("--cacert", ca, url)[1] == "200", "the last good one stays"


@needs_curl
def test_a_client_without_its_certificate_is_not_served(files: Path, authority: trustme.CA) -> None:
    text = (
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem,\n"
        "  client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [prometheus.example]}\n"
    )
    for name in ("prometheus.example", "other.example"):
        client = authority.issue_cert(name)
        client.private_key_and_cert_chain_pem.write_to_path(files / f"{name}.pem")
    with guarded(files, text) as daemon:
        base = ("--cacert", str(files / "ca.pem"), daemon.url.replace("http", "https") + "/metrics")
        assert curl("--cert", str(files / "prometheus.example.pem"), *base)[1] == "200"
        assert curl("--cert", str(files / "other.example.pem"), *base)[1] == "000"
        assert curl(*base)[1] == "000"


@needs_curl
def test_only_the_right_password_opens_and_probes_need_none(tmp_path: Path) -> None:
    with guarded(tmp_path, USERS + "http_server_config: {headers: {X-Frame-Options: deny}}\n") as daemon:
        url = daemon.url + "/metrics"
        assert curl(url)[1] == "401"
        assert curl("-u", "prom:wrong", url)[1] == "401"
        assert curl("-u", "nobody:opensesame", url)[1] == "401"
        assert curl("-H", "Authorization: Basic !!!", url)[1] == "401"
        code, status, body = curl("-u", "prom:opensesame", "-D", "-", url)
        assert (code, status) == (0, "200")
        assert "x-frame-options: deny" in body
        assert "opensesame" not in daemon.log.read_text()
        assert curl(daemon.url + "/-/healthy")[1] == "200"
        # A new hash for the user ends the old password, also one that was right a moment ago.
        again = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
        written(tmp_path, f"basic_auth_users:\n  prom: {again}\n")
        until(lambda: curl("-u", "prom:opensesame", url)[1] == "401", what="the new password")
        assert curl("-u", "prom:other", url)[1] == "200"


def test_a_real_prometheus_scrapes_over_tls_with_a_password(files: Path) -> None:
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("prometheus is not installed; tests/install-parts installs it")
    with guarded(files, TLS + USERS) as daemon:
        target, port = daemon.url.removeprefix("http://"), free_port()
        (files / "prom.yml").write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s"},
                    "scrape_configs": [
                        {
                            "job_name": name,
                            "scheme": "https",
                            "tls_config": {"ca_file": str(files / "ca.pem")},
                            "basic_auth": {"username": "prom", "password": password},
                            "static_configs": [{"targets": [target]}],
                        }
                        for name, password in (("right", "opensesame"), ("wrong", "wrong"))
                    ],
                }
            )
        )
        server = subprocess.Popen(
            [
                prometheus,
                f"--config.file={files / 'prom.yml'}",
                f"--storage.tsdb.path={files / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: scraped(port) == {"right": ("up", ""), "wrong": ("down", "401")}, 30, "the scrapes")
        finally:
            server.terminate()
            server.wait(10)


def scraped(port: int) -> dict[str, tuple[str, str]]:
    """Job -> health and the status in the last error."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=5) as answer:
            targets = json.load(answer)["data"]["activeTargets"]
    except OSError:
        return {}
    return {
        t["labels"]["job"]: (t["health"], next(iter(re.findall(r"status (\d+)", t["lastError"])), ""))
        for t in targets
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tls_server_config: {cert_file: cert.pem}", "tls_server_config.key_file: expected"),
        ("tls_server_config: {cert_file: nowhere.pem, key_file: key.pem}", "nowhere.pem"),
        ("basic_auth_users: {prom: plain}", "bcrypt hash"),
        ("basic_auth_user: {prom: x}", "web.yml:1: basic_auth_user: not known here"),
        (
            "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem}",
            "client_auth_type",
        ),
        ("http_server_config: {headers: {Server: x}}", "Server: expected one of"),
        ('http_server_config: {headers: {X-Frame-Options: "a\\r\\nb"}}', "printable"),
    ],
)
def test_a_web_file_that_cannot_be_kept_ends_the_start_with_one_line(
    files: Path, text: str, words: str
) -> None:
    done = verb(
        "serve",
        "--backend",
        "replay",
        "--listen",
        "127.0.0.1:0",
        "--web.config.file",
        str(written(files, text)),
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


# --- hostile clients -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with serving(tmp_path_factory.mktemp("hostile"), "--backend", "replay", "--interval", "200ms") as running:
        yield running


def connect(daemon: Daemon) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(daemon.url.rpartition(":")[2])), timeout=20)


def sent(daemon: Daemon, data: bytes) -> bytes:
    """The first bytes of what comes back; empty where the connection is closed instead."""
    with connect(daemon) as s:
        with contextlib.suppress(ConnectionError):
            s.sendall(data)
        with contextlib.suppress(ConnectionError):
            return s.recv(200)
    return b""


def memory(daemon: Daemon) -> int:
    return psutil.Process(daemon.process.pid).memory_info().rss


def test_heads_that_are_too_large_are_refused(daemon: Daemon) -> None:
    before = refused(daemon, "head")
    start = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
    one = start + b"X: " + b"a" * (2 * HEAD_BYTES_MAX) + b"\r\n\r\n"
    many = start + b"".join(b"X%d: a\r\n" % n for n in range(10_000)) + b"\r\n"
    long_path = b"GET /" + b"a" * (2 * HEAD_BYTES_MAX) + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    for bomb in (one, many, long_path):
        assert sent(daemon, bomb)[9:12] in (b"431", b"")
    until(lambda: refused(daemon, "head") == before + 3, what="the count")


def test_a_header_without_end_costs_no_memory(daemon: Daemon) -> None:
    before = memory(daemon)
    with connect(daemon) as s, contextlib.suppress(ConnectionError):
        s.sendall(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(1000):
            s.sendall(b"a" * 100_000)
    assert memory(daemon) - before < 8 << 20
    assert daemon.get("/metrics")[0] == 200


def test_a_body_of_100_mb_is_refused_and_costs_no_memory(daemon: Daemon) -> None:
    daemon.get("/api/v1/status")  # what answers it is loaded by now
    before, times = memory(daemon), refused(daemon, "body")
    announced = b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"
    assert b" 413 " in sent(daemon, announced)
    with connect(daemon) as s, contextlib.suppress(ConnectionError):
        s.sendall(b"POST /-/reload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(1000):
            s.sendall(b"186a0\r\n" + b"a" * 100_000 + b"\r\n")
    until(lambda: refused(daemon, "body") == times + 2, what="the count")
    assert memory(daemon) - before < 8 * BODY_BYTES_MAX


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\0" * 500, b"POST / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_http_is_refused(daemon: Daemon, junk: bytes) -> None:
    before = refused(daemon, "malformed")
    assert sent(daemon, junk)[9:12] in (b"400", b"")
    until(lambda: refused(daemon, "malformed") == before + 1, what="the count")


@pytest.mark.parametrize("length", [b"-1", b"1e9", b"99999999999999999999", b"0x10"])
def test_lengths_that_are_none_are_refused(daemon: Daemon, length: bytes) -> None:
    answer = sent(daemon, b"POST /-/reload HTTP/1.1\r\nHost: x\r\nContent-Length: %b\r\n\r\n" % length)
    assert answer[9:12] in (b"400", b"413", b"")
    assert daemon.get("/-/healthy")[0] == 200


def test_slow_clients_are_cut_off_while_scrapes_go_on(daemon: Daemon) -> None:
    before = refused(daemon, "slow")
    slow = [connect(daemon) for _ in range(20)]
    try:
        for s in slow:
            s.sendall(b"GET /metrics HTTP/1.1\r\n")
        end = time.monotonic() + 20
        while refused(daemon, "slow") < before + 20 and time.monotonic() < end:
            for s in slow:
                with contextlib.suppress(OSError):
                    s.sendall(b"X: a\r\n")  # alive, and never done
            assert daemon.get("/metrics")[0] == 200
            time.sleep(0.5)
        until(lambda: refused(daemon, "slow") == before + 20, what="the count")
    finally:
        for s in slow:
            s.close()


@pytest.mark.parametrize(("first", "count"), [(b"", 2_000), (b"GET /metrics HTTP/1.1\r\n", 10_000)])
def test_thousands_of_connections_do_not_keep_a_scraper_out(daemon: Daemon, first: bytes, count: int) -> None:
    held: list[socket.socket] = []
    descriptors = psutil.Process(daemon.process.pid).num_fds
    most = 0
    try:
        for n in range(count):
            s = connect(daemon)
            with contextlib.suppress(OSError):
                s.sendall(first)
            held.append(s)
            if len(held) > 800:
                held.pop(0).close()
            if n % 500 == 499:
                most = max(most, descriptors())
                assert daemon.get("/metrics")[0] == 200
    finally:
        for s in held:
            s.close()
    assert CONNECTIONS_MAX <= most < 1024, "the usual limit on open files"
    until(lambda: refused(daemon, "connections") > 0, what="the count")
    until(lambda: descriptors() < 100, what="the connections' end")


def test_half_open_tls_connections_do_not_keep_a_scraper_out(files: Path) -> None:
    with guarded(files, TLS) as daemon:
        context = ssl.create_default_context(cafile=str(files / "ca.pem"))
        held = [connect(daemon) for _ in range(CONNECTIONS_MAX + 100)]
        try:
            url = daemon.url.replace("http", "https") + "/metrics"
            with urllib.request.urlopen(url, timeout=10, context=context) as answer:
                body = answer.read().decode()
            assert 'refused_total{reason="connections"} ' in body
        finally:
            for s in held:
                s.close()


def test_requests_that_change_something_have_a_rate(daemon: Daemon) -> None:
    answers = [daemon.post("/-/reload")[0] for _ in range(40)]
    assert answers[0] == 200
    assert answers[-1] == 429
    assert daemon.get("/metrics")[0] == 200
    until(lambda: daemon.post("/-/reload")[0] == 200, what="room for another")


def test_guesses_of_passwords_do_not_hold_up_scrapes(tmp_path: Path) -> None:
    slow = bcrypt.hashpw(b"opensesame", bcrypt.gensalt(11)).decode()
    with guarded(tmp_path, f"basic_auth_users:\n  prom: {slow}\n") as daemon:
        wrong = ["curl", "-s", "-o", os.devnull, "-u", "prom:wrong", daemon.url + "/metrics"]
        right = ["-u", "prom:opensesame", daemon.url + "/metrics"]
        assert curl(*right)[1] == "200"
        guesses = [subprocess.Popen(wrong) for _ in range(30)]
        try:
            began = time.monotonic()
            assert curl(*right)[1] == "200", "one that was right is known"
            assert time.monotonic() - began < 2
        finally:
            for g in guesses:
                g.wait(30)
