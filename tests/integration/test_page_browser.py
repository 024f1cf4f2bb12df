"""The page in a real browser, over a real daemon that replays the demo node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from playwright import sync_api as playwright
from test_compare_verb import kept

from exporter.backends.replay import demo_path
from tests.integration.daemon import Daemon, serving, verb

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed; tests/install-browser installs it"
)

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
AXE = "axe-core@4.14.1"
WAIT_S = 30
VERDICT = (
    "[...document.querySelectorAll('.verdict')].some(p => /^Bottleneck: (?!not known)/.test(p.textContent))"
)
WINDOW = "document.querySelectorAll('#windows-table tbody tr').length > 0"
DRAWN = "document.querySelectorAll('#cards .plot canvas').length"
# The pixels of the first chart of a busy GPU: they differ when the line has moved.
PICTURE = "document.querySelector('#cards .plot canvas').toDataURL()"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with serving(tmp_path_factory.mktemp("page"), "--backend", "replay", "--interval", "1s") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


class Visit:
    """One page that was opened, what its console said and where it sent requests."""

    def __init__(self, browser: Any, url: str, width: int = 1280, scheme: str = "light", **more: Any) -> None:
        size = {"width": width, "height": 900}
        self.context = browser.new_context(color_scheme=scheme, viewport=size, **more)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(url)

    def wait(self, true: str, seconds: float = WAIT_S) -> None:
        # The page's policy forbids the browser to wait for an expression; the debugger may ask.
        end = time.monotonic() + seconds
        while not self.page.evaluate(true):
            assert time.monotonic() < end, f"{true} did not come true within {seconds} s: {self.said}"
            self.page.wait_for_timeout(50)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, from npm; never part of the product."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here, so axe-core cannot be fetched")
    folder = tmp_path_factory.mktemp("axe")
    try:
        subprocess.run([npm, "pack", AXE], cwd=folder, capture_output=True, check=True, timeout=60)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
        pytest.skip(f"npm pack {AXE} failed, so axe-core cannot be had: {e}")
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        member = packed.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def test_charts_move_a_window_appears_and_the_bottleneck_is_shown(daemon: Daemon, browser: Any) -> None:
    with Visit(browser, daemon.url) as visit:
        visit.wait(f"{DRAWN} === 32")
        before = visit.page.evaluate(PICTURE)
        visit.wait(f"{PICTURE} !== {json.dumps(before)}")
        visit.wait(WINDOW)
        visit.wait(VERDICT)
        assert "replay" in visit.page.locator(".note").first.inner_text()
        shares = visit.page.locator("#cards article:has(.bar:visible) .shares").first.inner_text()
        for part in ("executing", "queued", "launching", "starved"):
            assert part in shares
        assert visit.page.locator("#kernels-table tbody tr").count() > 0
        assert visit.said == []
        assert {url.split("/")[2] for url in visit.asked} == {daemon.url.split("/")[2]}


def test_the_bar_shows_the_shares_that_the_metrics_say(daemon: Daemon, browser: Any) -> None:
    with Visit(browser, daemon.url) as visit:
        visit.wait("document.querySelectorAll('.bar:not([hidden])').length > 0")
        find = (
            "(() => { const bar = document.querySelector('.bar:not([hidden])');"
            "return [bar.parentElement.querySelector('h3').textContent.match(/GPU (\\d+)/)[1],"
            " bar.firstChild.getBoundingClientRect().width / bar.clientWidth]; })()"
        )
        gpu, share = visit.page.evaluate(find)
        said = daemon.value(rf'^amdgpu_timeline_ratio\{{gpu="{gpu}".*state="executing"')
        assert said == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("width", [360, 1920])
def test_the_page_does_not_scroll_sideways(daemon: Daemon, browser: Any, width: int) -> None:
    with Visit(browser, daemon.url, width) as visit:
        visit.wait(f"{DRAWN} === 32 && {WINDOW}")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(daemon: Daemon, browser: Any, axe: str, scheme: str) -> None:
    # What is injected for the test is what the page's policy forbids.
    with Visit(browser, daemon.url, scheme=scheme, bypass_csp=True) as visit:
        visit.wait(f"{DRAWN} === 32 && {WINDOW} && {VERDICT}")
        visit.page.evaluate(axe)
        found = visit.page.evaluate("axe.run().then(r => r.violations)")
        serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
        assert serious == []


def test_every_control_is_reached_by_the_keyboard(daemon: Daemon, browser: Any) -> None:
    with Visit(browser, daemon.url) as visit:
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate("document.activeElement.className") == "skip"
        visit.page.keyboard.press("Enter")
        assert visit.page.evaluate("document.activeElement.id") == "main"
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate("document.activeElement.className") == "scroll"


def test_two_phases_are_compared_with_the_verdict_and_its_reasons(
    tmp_path: Path, browser: Any, axe: str
) -> None:
    kept(tmp_path / "state", time.time() - 20_000)
    with (
        serving(tmp_path, "--backend", "sysfs", "--path.sysfs", f"{demo_path()}/sys") as daemon,
        Visit(browser, daemon.url, bypass_csp=True) as v,
    ):
        assert verb("mark", "now", "--url", daemon.url).returncode == 0
        v.page.reload()
        v.wait("!document.getElementById('compare').hidden")
        choices = "[...document.querySelectorAll('#phases option')].map(o => o.value)"
        assert set(v.page.evaluate(choices)) == {"old", "new", "now"}
        v.page.fill("#compare-a", "old")
        v.page.fill("#compare-b", "new")
        v.page.click("#compare-form button")
        v.wait("document.getElementById('compare-verdict').textContent.startsWith('Verdict: ')", 60)
        status, said = daemon.get("/api/v1/compare?a=old&b=new")
        assert status == 200
        report = json.loads(said)
        assert "worse" in {f["verdict"] for f in report["findings"]}
        assert v.page.locator("#compare-verdict").inner_text() == f"Verdict: {report['verdict']}."
        assert v.page.locator("#compare-table tbody tr").count() == len(report["findings"]) > 0
        reasons = {reason for group in report["groups"] for reason in group["reasons"]}
        assert reasons <= set(v.page.locator("#compare-why li").all_inner_texts())
        v.page.evaluate(axe)
        found = v.page.evaluate("axe.run().then(r => r.violations)")
        assert [x["id"] for x in found if x["impact"] in ("serious", "critical")] == []
        assert v.said == []
        v.page.fill("#compare-a", "never-marked")
        v.page.click("#compare-form button")
        v.wait("document.getElementById('compare-verdict').textContent.includes('never-marked')", 60)
        assert {url.split("/")[2] for url in v.asked} == {daemon.url.split("/")[2]}


def test_without_script_the_table_stands_and_nothing_dead_is_shown(daemon: Daemon, browser: Any) -> None:
    with Visit(browser, daemon.url, java_script_enabled=False) as visit:
        assert visit.page.locator("#gpus tbody tr").count() == 8
        assert visit.page.locator("#sources tbody tr").count() == 1
        for hidden in ("#live", "#kernels", "#windows", "#compare"):
            assert not visit.page.locator(hidden).is_visible()


def test_hostile_names_are_shown_as_text(daemon: Daemon, browser: Any) -> None:
    hostile = "<img src=x onerror=\"document.title='broken'\"></td><script>document.title='broken'</script>"

    def poison(route: Any) -> None:
        answer = json.loads(daemon.get("/api/v1/kernels")[1])
        row = {"gpu": 0, "pci": "x", "partition": None, "kernel": hostile, "full_name": hostile}
        row |= {"seconds": 1.0, "dispatches": 1, "median_seconds": None, "share_ratio": 1.0}
        route.fulfill(json=[row, *answer])

    with Visit(browser, "about:blank") as visit:
        visit.page.route("**/api/v1/kernels", poison)
        visit.page.goto(daemon.url)
        visit.wait("document.querySelectorAll('#kernels-table tbody tr').length > 0")
        assert visit.page.locator("#kernels-table tbody td").first.inner_text() == hostile
        assert visit.page.locator("#kernels-table img, #kernels-table script").count() == 0
        assert visit.page.title() == "amdgpu-exporter"
        assert visit.said == []


def test_a_daemon_that_is_gone_is_said_and_its_return_too(tmp_path: Path, browser: Any) -> None:
    with (
        serving(tmp_path, "--backend", "replay", "--interval", "1s") as daemon,
        Visit(browser, daemon.url) as v,
    ):
        v.wait(f"{DRAWN} === 32")
        v.context.set_offline(True)
        v.wait("document.getElementById('status').textContent.includes('does not answer')")
        v.context.set_offline(False)
        v.wait("document.getElementById('status').textContent.startsWith('Bottlenecks')")


def test_pictures_of_the_page_are_kept_when_asked_for(daemon: Daemon, browser: Any) -> None:
    folder = os.environ.get("PAGE_PICTURES")
    if not folder:
        pytest.skip("set PAGE_PICTURES to a folder to keep pictures of the page")
    with Visit(browser, daemon.url, 1440) as visit:
        visit.wait(f"{WINDOW} && document.querySelectorAll('.bar:not([hidden])').length >= 6", 90)
        for scheme in ("dark", "light"):
            visit.page.emulate_media(color_scheme=scheme)
            visit.page.screenshot(path=Path(folder) / f"page-{scheme}.png", full_page=True)
