"""The page and the API it reads, without a network: shapes, numbers, headers, files, hostile names."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient, Response

from exporter.catalogue import CATALOGUE
from exporter.collect import Collector, PolledSource, Published, Timing
from exporter.exposition import Renderer
from exporter.host import Clock
from exporter.model import (
    Bottleneck,
    Device,
    DeviceId,
    Gap,
    Outcome,
    Reason,
    Series,
    Slot,
    Snapshot,
    Window,
    WindowOutcome,
)
from exporter.pages.app import create
from exporter.pages.live import Live
from exporter.windows.bottleneck import ADVICE
from exporter.windows.ledger import Finding, Ledger, Taken

REPO = Path(__file__).resolve().parent.parent.parent
HOSTILE = "</td><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>\ud800"
GPU = DeviceId("0000:05:00.0")
PART = DeviceId("0000:26:00.0", 1)
NOW = 1_800_000_000.0


class NoChild:
    """A child that is never asked."""

    name = "sysfs"
    pid = None
    starts = 0


class Site:
    """A site over a made snapshot."""

    def __init__(self) -> None:
        self.collector = Collector(CATALOGUE, Clock(), Timing(5.0, 4.0, 15.0), [], series_max=1000)
        self.ledger = Ledger()
        self.preset = "spool"
        self.notes: list[str] = []
        self.live = Live(self.collector, self.ledger, lambda: self.notes, lambda: self.preset)

        async def reload() -> tuple[str, ...]:
            return ()

        self._app = create(self.collector, reload, lambda: None, self.live)

    def publish(
        self,
        readings: dict[Series, Any],
        gaps: tuple[Gap, ...] = (),
        model: str = "MI300X",
        generation: int = 1,
    ) -> None:
        devices = {GPU: Device(GPU, 0, model=model), PART: Device(PART, 1)}
        slot = Slot(
            Outcome("sysfs", True, None, "", 0.1, NOW, NOW), tuple(readings), tuple(readings.values()), gaps
        )
        snapshot = Snapshot(generation, NOW, devices, {"sysfs": slot})
        layout = Renderer(CATALOGUE).layout(devices, [slot.series], 1000)
        self.collector.current = Published(snapshot, layout.render([slot.values]), {})

    def get(self, path: str, **headers: str) -> Response:
        async def ask() -> Response:
            async with AsyncClient(transport=ASGITransport(self._app), base_url="http://node") as client:
                return await client.get(path, headers=headers)

        return asyncio.run(ask())

    def json(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is no JSON")

        return json.loads(answer.content, parse_constant=refuse)


@pytest.fixture
def site() -> Site:
    return Site()


class Reader(HTMLParser):
    """What a browser would run, load or apply."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_live_view_gives_each_value_in_its_base_unit(site: Site) -> None:
    site.publish(
        {
            Series("amdgpu_busy_ratio", GPU, ("gfx",)): 0.37,
            Series("amdgpu_busy_ratio", GPU, ("vcn",)): 0.99,
            Series("amdgpu_power_watts", GPU): 412.0,
            Series("amdgpu_temperature_celsius", GPU, ("edge",)): 50.0,
            Series("amdgpu_temperature_celsius", GPU, ("junction",)): 71.0,
            Series("amdgpu_memory_used_bytes", PART.socket, ("vram",)): 5_000,
            Series("amdgpu_timeline_ratio", GPU, ("executing",)): 0.07,
            Series("amdgpu_bottleneck_state", GPU, ("gpu_bound",)): 0,
            Series("amdgpu_bottleneck_state", GPU, ("launch_bound",)): 1,
        }
    )
    view = site.json("/api/v1/live")
    one, part = view["gpus"]
    assert (one["gpu"], one["pci"], one["partition"], one["model"]) == (0, "0000:05:00.0", None, "MI300X")
    assert (one["busy_ratio"], one["power_watts"]) == (0.37, 412.0)
    assert (one["temperature_celsius"], one["temperature_sensor"]) == (71.0, "junction")
    assert one["timeline_ratio"] == {"executing": 0.07, "queued": None, "launching": None, "starved": None}
    assert one["bottleneck"]["name"] == "launch_bound"
    assert "graph" in one["bottleneck"]["try"]
    assert (one["bottleneck"]["evidence"], one["bottleneck"]["more"]) == (None, [])
    # A partition shows what only its socket knows.
    assert (part["partition"], part["memory_used_bytes"]) == (1, 5_000)
    assert view["interval_seconds"] == 5.0


def test_a_verdict_comes_with_the_numbers_that_it_stands_on_and_what_else_there_is_to_do(site: Site) -> None:
    shares = {"executing": 0.2, "queued": 0.1, "launching": 0.45, "starved": 0.25}
    site.publish(
        {
            **{Series("amdgpu_timeline_ratio", GPU, (state,)): share for state, share in shares.items()},
            Series("amdgpu_bottleneck_state", GPU, ("launch_bound",)): 1,
        }
    )
    found = site.json("/api/v1/live")["gpus"][0]["bottleneck"]
    assert found["evidence"] == "launches were made or waited while no kernel ran for 55% of the window"
    assert [one["evidence"] for one in found["more"]] == [
        "nothing ran, waited or was being launched for 25% of the window"
    ]


def test_what_is_absent_is_null_with_its_reason_and_never_zero(site: Site) -> None:
    site.publish({}, (Gap("amdgpu_power_watts", GPU, Reason.DENIED),))
    gpu = site.json("/api/v1/live")["gpus"][0]
    assert (gpu["power_watts"], gpu["missing"]["power_watts"]) == (None, "denied")
    assert (gpu["busy_ratio"], gpu["missing"]["busy_ratio"]) == (None, "no source offers it")
    assert (gpu["timeline_ratio"], gpu["bottleneck"]) == (None, None)
    assert gpu["missing"]["bottleneck"] == "no window has been taken in since the daemon started"


def test_a_zero_stays_a_zero(site: Site) -> None:
    site.publish({Series("amdgpu_busy_ratio", GPU, ("gfx",)): 0.0})
    gpu = site.json("/api/v1/live")["gpus"][0]
    assert gpu["busy_ratio"] == 0
    assert "busy_ratio" not in gpu["missing"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_that_json_cannot_say_is_sent(site: Site, bad: float) -> None:
    site.publish(
        {
            Series("amdgpu_power_watts", GPU): bad,
            Series("amdgpu_kernel_seconds_total", GPU, ("k",)): bad,
            Series("amdgpu_kernel_dispatches_total", GPU, ("k",)): 3,
        }
    )
    assert site.json("/api/v1/live")["gpus"][0]["power_watts"] is None
    assert site.json("/api/v1/kernels")[0]["seconds"] is None


def test_windows_switched_off_are_named_as_the_reason(site: Site) -> None:
    site.preset = "off"
    site.publish({})
    windows = site.json("/api/v1/windows")
    assert (windows["preset"], windows["recent"]) == ("off", [])
    assert windows["why_none"] == "windows are switched off (windows.preset: off)"
    assert site.json("/api/v1/live")["gpus"][0]["missing"]["timeline_ratio"] == windows["why_none"]


def test_windows_come_newest_first_with_result_and_reason(site: Site) -> None:
    site.ledger.add(Window("first", "rocprofv3", "trace", agents={"a": GPU}), (), (), WindowOutcome.EMPTY, 10)
    site.ledger.add(
        Window("second", "unknown", "other"), (), (), WindowOutcome.MALFORMED, 20, "x.csv: no header"
    )
    site.publish({})
    windows = site.json("/api/v1/windows")
    assert [(w["id"], w["result"], w["at"], w["reason"]) for w in windows["recent"]] == [
        ("second", "malformed", 20, "x.csv: no header"),
        ("first", "empty", 10, None),
    ]
    assert windows["why_none"] is None


def test_only_so_many_windows_are_kept(site: Site) -> None:
    for n in range(200):
        site.ledger.add(Window(str(n), "t", "trace"), (), (), WindowOutcome.EMPTY, n)
    site.publish({})
    recent = site.json("/api/v1/windows")["recent"]
    assert (recent[0]["id"], len(recent)) == ("199", 50)


def test_a_timeline_that_the_window_could_not_tell_says_so(site: Site) -> None:
    finding = Finding(GPU.pci, GPU, Bottleneck.UNKNOWN, "untraced_process", 5, None)
    site.ledger._recent.append(Taken("w", "t", "trace", WindowOutcome.OK, 1.0, "", (finding,)))
    site.publish({Series("amdgpu_timeline_ratio", GPU, ("executing",)): 0.5})
    assert "not traced" in site.json("/api/v1/live")["gpus"][0]["missing"]["timeline_ratio"]
    assert "not traced" in site.json("/api/v1/windows")["recent"][0]["gpus"][0]["reason"]


def test_kernels_are_sorted_with_their_share_and_the_rest_last(site: Site) -> None:
    seconds = {"other": 6.0, "small": 1.0, "large": 3.0}
    readings: dict[Series, Any] = {}
    for name, value in seconds.items():
        readings[Series("amdgpu_kernel_seconds_total", GPU, (name,))] = value
        readings[Series("amdgpu_kernel_dispatches_total", GPU, (name,))] = 2
    readings[Series("amdgpu_kernel_median_seconds", GPU, ("large",))] = 1.5
    site.publish(readings)
    rows = site.json("/api/v1/kernels")
    assert [(r["kernel"], r["share_ratio"], r["median_seconds"]) for r in rows] == [
        ("large", 0.3, 1.5),
        ("small", 0.1, None),
        ("other", 0.6, None),
    ]


def test_an_answer_is_made_once_for_each_generation(site: Site) -> None:
    site.publish({})
    first = site.live.answer("live")
    assert site.live.answer("live") is first
    site.publish({}, generation=2)
    assert json.loads(site.live.answer("live") or b"")["generation"] == 2


@pytest.mark.parametrize("path", ["/api/v1/live", "/api/v1/windows", "/api/v1/kernels", "/api/v1/devices"])
def test_before_the_first_poll_the_api_says_so(site: Site, path: str) -> None:
    answer = site.get(path)
    assert (answer.status_code, answer.json()) == (503, {"detail": "first poll pending"})


def test_before_the_first_poll_the_page_says_so(site: Site) -> None:
    assert "The first poll is pending" in site.get("/").text


@pytest.mark.parametrize("path", ["/", "/docs", "/api/v1/live", "/openapi.json", "/nowhere"])
def test_every_answer_forbids_what_comes_from_elsewhere(site: Site, path: str) -> None:
    site.publish({})
    headers = site.get(path).headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_hold_nothing_inline_and_nothing_from_elsewhere(site: Site, path: str) -> None:
    site.publish({})
    page = Reader(site.get(path).text)
    for tag, attrs in page.tags:
        assert tag != "style"
        assert tag != "script" or attrs.get("src")
        assert not [a for a in attrs if a == "style" or a.startswith("on")]
        for target in (attrs.get("src"), attrs.get("href")):
            assert target is None or re.match(r"(/(?!/)|#)", target), target


def test_every_file_that_the_page_loads_is_there_and_may_be_kept(site: Site) -> None:
    page = Reader(site.get("/").text)
    files = {a.get("src") or a.get("href") for t, a in page.tags if t in ("script", "link")}
    assert {str(f).partition("?")[0] for f in files} == {
        f"/page/{n}" for n in ("page.js", "compare.js", "page.css", "uplot.js", "uplot.css", "icon.svg")
    }
    for path in files:
        answer = site.get(str(path))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        again = site.get(str(path), **{"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        bare = str(path).partition("?")[0]
        assert site.get(bare).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fpages%2Fapp.py", "%2e%2e/cli.py", "app.py", ""])
def test_no_other_file_is_served(site: Site, name: str) -> None:
    assert site.get(f"/page/{name}").status_code == 404


def test_the_licence_of_the_chart_library_is_shipped_with_it(site: Site) -> None:
    assert "MIT License" in site.get("/page/uplot-LICENSE.txt").text


def test_the_page_files_are_small(repo: Path) -> None:
    files = [p.read_bytes() for p in (repo / "exporter" / "page").iterdir()]
    assert sum(len(gzip.compress(f)) for f in files) < 50_000


def test_hostile_texts_stay_texts(site: Site) -> None:
    site.notes = [HOSTILE]
    kernel = Series("amdgpu_kernel_seconds_total", GPU, (HOSTILE,))
    calls = Series("amdgpu_kernel_dispatches_total", GPU, (HOSTILE,))
    site.publish({kernel: 1.0, calls: 1}, model=HOSTILE)
    page = Reader(site.get("/").text)
    assert [t for t, a in page.tags if t == "img"] == []
    assert [a["src"] for t, a in page.tags if t == "script"] == [
        a["src"] for t, a in page.tags if t == "script" and str(a["src"]).startswith("/page/")
    ]
    shown = HOSTILE.replace("\ud800", "?")
    assert page.texts.count(shown) == 2  # the note and the model
    assert site.json("/api/v1/kernels")[0]["kernel"] == shown
    assert site.json("/api/v1/live")["gpus"][0]["model"] == shown


def test_the_page_without_script_has_the_table_of_gpus(site: Site) -> None:
    site.publish(
        {
            Series("amdgpu_busy_ratio", GPU, ("gfx",)): 0.37,
            Series("amdgpu_memory_used_bytes", GPU, ("vram",)): 48 * 2**30,
            Series("amdgpu_bottleneck_state", GPU, ("host_stalled",)): 1,
        }
    )
    texts = Reader(site.get("/").text).texts
    for text in ("0000:05:00.0", "MI300X", "37 %", "48.0 GiB", "host stalled", "1/1"):
        assert text in texts


def test_a_source_that_is_down_says_why(site: Site) -> None:
    source = PolledSource("sysfs", "sysfs", "/", NoChild())  # type: ignore[arg-type]
    source.outcome = Outcome("sysfs", False, Reason.DENIED, "/sys: <denied>", 0.0, NOW, None)
    source.missing = {Reason.UNSUPPORTED: 3, Reason.DENIED: 1}
    site.collector.sources = [source]
    site.publish({})
    assert site.json("/api/v1/live")["sources"][0]["missing"] == {"unsupported": 3, "denied": 1}
    texts = Reader(site.get("/").text).texts
    assert "down: /sys: <denied>" in texts
    assert "1 denied, 3 unsupported" in texts


def test_the_api_page_names_every_path_and_works_offline(site: Site) -> None:
    page = site.get("/docs").text
    for path in site.json("/openapi.json")["paths"]:
        assert path in page


@pytest.mark.parametrize("verdict", Bottleneck)
def test_every_verdict_has_advice_and_a_runbook_that_exists(verdict: Bottleneck) -> None:
    assert all(text.endswith(".") and len(text) < 110 for text in ADVICE[verdict])
    if verdict is not Bottleneck.UNKNOWN:
        assert (REPO / "alerts" / "runbooks" / f"bottleneck-{verdict.value}.md").is_file()


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def _contrast(a: str, b: str) -> float:
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_read(repo: Path, scheme: int) -> None:
    css = (repo / "exporter" / "page" / "page.css").read_text()
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
    least: Callable[[str, str], float] = lambda a, b: _contrast(colours[a], colours[b])  # noqa: E731
    for back in ("back", "card", "note"):
        assert least("text", back) >= 4.5
    for text in ("soft", "link"):
        assert min(least(text, "back"), least(text, "card")) >= 4.5
    for part in ("executing", "queued", "launching", "starved", "chart"):
        assert least(part, "card") >= 3
