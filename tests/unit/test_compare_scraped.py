"""Windows out of scraped series: what cannot be told apart is left out and said; answers that are none."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.compare import scraped
from exporter.compare.prometheus import Place, Scrapes, Server
from exporter.compare.rows import Row
from exporter.compare.scraped import Span
from exporter.model import ConfigError

PCI = "0000:05:00.0"
ALL = Span(0.0, 1e9)
Page = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page(windows: int, at: float, kernel_s: float = 0.0, run: str = "1:2@b", **more: float) -> Page:
    """The counters of a GPU after so many windows of 1 s in which a kernel ran ten times each."""
    made: Page = {
        ("amdgpu_window_observed_seconds_total", (("mode", "trace"),)): float(windows),
        ("amdgpu_windows_total", (("mode", "trace"), ("result", "ok"))): float(windows),
        ("amdgpu_launch_queue_seconds_sum", (("launch", "kernel"),)): 0.25 * windows,
        ("amdgpu_launch_duration_seconds_sum", (("launch", "kernel"),)): 0.5 * windows,
        ("amdgpu_launch_exposed_delay_seconds_total", ()): 0.125 * windows,
        ("amdgpu_cache_hits_total", (("cache", "l2"),)): 0.0,
        ("amdgpu_cache_requests_total", (("cache", "l2"),)): 0.0,
        ("amdgpu_kernel_seconds_total", (("kernel", "gemm"),)): kernel_s,
        ("amdgpu_kernel_dispatches_total", (("kernel", "gemm"),)): 10.0 * windows,
        ("amdgpu_kernel_seconds_total", (("kernel", "other"),)): 7.0 * windows,
        ("amdgpu_kernel_dispatches_total", (("kernel", "other"),)): 7.0 * windows,
    }
    if windows:
        made["amdgpu_window_last_timestamp_seconds", (("mode", "trace"),)] = at
        labels = ("mode", "trace"), ("tool", "rocprofv3"), ("run", run), ("first", "0")
        made["amdgpu_window_run_info", labels] = 1.0
    return made | {(name, ()): value for name, value in more.items()}


def matrix(pages: dict[float, Page], **labels: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    series: dict[object, tuple[dict[str, str], list[tuple[float, float]]]] = {}
    for at, one in pages.items():
        for (name, own), value in one.items():
            full = {"__name__": name, "instance": "n1", "gpu": "0", "pci": PCI, **dict(own), **labels}
            series.setdefault((name, own), (full, []))[1].append((at, value))
    return list(series.values())


def rows(
    pages: dict[float, Page], span: Span = ALL, part: tuple[float, float] = (0, 1e9)
) -> tuple[list[Row], str]:
    found = scraped.Found()
    scraped.take(matrix(pages), span, part, found)
    return found.chosen(1), "; ".join(found.notes())


def test_a_window_is_what_the_counters_grew_by() -> None:
    found, notes = rows({100.0: page(0, 0), 130.0: page(1, 111.5, 0.5), 160.0: page(1, 111.5, 0.5)})
    whole, kernel = found  # the first look has the counters at 0
    assert (whole.at, whole.run, whole.tool, whole.mode, whole.seconds) == (
        111.5,
        "1:2@b",
        "rocprofv3",
        "trace",
        1.0,
    )
    assert whole.metrics == {"queue_delay_ratio": 0.5, "exposed_delay_ratio": 0.125}
    assert kernel.kernel == "gemm"
    assert kernel.metrics == {"kernel_seconds": 0.05, "kernel_share_ratio": 0.5}
    assert whole.context["node"] == "n1"
    assert notes == "kernels are those with a series of their own; all others are in none"


def test_a_kernel_that_has_just_got_its_series_says_nothing_yet() -> None:
    before = {key: v for key, v in page(0, 0).items() if ("kernel", "gemm") not in key[1]}
    found, _ = rows({100.0: before, 130.0: page(1, 111.0, 0.5), 160.0: page(2, 141.0, 1.1)})
    assert [(r.at, r.kernel) for r in found] == [(111.0, None), (141.0, None), (141.0, "gemm")]
    assert found[2].metrics["kernel_seconds"] == pytest.approx(0.06)


def test_two_windows_between_two_scrapes_are_none() -> None:
    found, notes = rows({100.0: page(1, 90.0), 130.0: page(3, 120.0, 0.5), 160.0: page(4, 140.0, 0.9)})
    assert [r.at for r in found if r.kernel is None] == [140.0]
    assert "1 windows of a GPU left out: several between two scrapes" in notes


def test_counters_that_fell_and_a_page_without_one_before_it_give_nothing() -> None:
    found, notes = rows({100.0: page(5, 90.0, 2.0), 130.0: page(1, 120.0, 0.5)})
    assert not found
    assert "1 windows of a GPU left out: a counter fell" in notes
    only_up: Page = {("amdgpu_power_limit_watts", ()): 750.0}
    found, notes = rows({100.0: only_up, 130.0: page(1, 120.0, 0.5)})
    assert not found
    assert "left out: no scrape before it" in notes


def test_one_window_found_in_two_answers_counts_once() -> None:
    found = scraped.Found()
    pages = {100.0: page(0, 0), 130.0: page(1, 115.0, 0.5)}
    for _ in range(2):
        scraped.take(matrix(pages), ALL, (0, 1e9), found)
    assert [r.at for r in found.chosen(1) if r.kernel is None] == [115.0]


def test_a_window_at_the_change_of_a_phase_is_of_neither() -> None:
    spans = scraped.phases({("n1", "old"): [100.0, 130.0], ("n1", "new"): [160.0, 190.0]}, 200.0)
    assert spans == {"old": [Span(100.0, 130.0, None, 160.0, "n1")], "new": [Span(160, 200, 130, None, "n1")]}
    pages = {130.0: page(0, 0), 160.0: page(1, 145.0, 0.5), 190.0: page(2, 170.0, 1.0)}
    for phase, times in (("old", []), ("new", [170.0])):
        found, notes = rows(pages, spans[phase][0])
        assert [r.at for r in found if r.kernel is None] == times
        assert "1 windows of a GPU left out: taken in while the phase changed" in notes


def test_a_phase_of_another_node_is_not_this_ones() -> None:
    found, _ = rows({100.0: page(0, 0), 130.0: page(1, 115.0)}, Span(0, 1e9, instance="n2"))
    assert not found


def test_gpus_of_several_nodes_are_told_apart() -> None:
    found = scraped.Found()
    for instance in ("n1", "n2"):
        pages = {100.0: page(0, 0), 130.0: page(1, 115.0)}
        scraped.take(matrix(pages, instance=instance), ALL, (0, 1e9), found)
    assert {r.gpu_name for r in found.chosen(1)} == {f"n1 {PCI}", f"n2 {PCI}"}


def test_looks_lie_between_any_two_windows() -> None:
    def last(*times: float) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        return [({"instance": "n", "pci": PCI, "mode": "trace"}, [(t, t) for t in times])]

    assert scraped.step([], 15, 600) is None
    assert scraped.step(last(0, 6000), 15, 600) == 600
    assert scraped.step(last(0, 600), 15, 600) == 300
    assert scraped.step(last(0, 70, 600), 15, 600) == 18.75 * 1
    assert scraped.step(last(0, 1), 15, 600) == 15


# --- a server that is none ------------------------------------------------------------------------------

Answer = tuple[int, bytes, dict[str, str]]


@pytest.fixture
def server() -> Iterator[Callable[[Answer], str]]:
    answers: list[Answer] = []
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            code, body, headers = answers[-1]
            self.send_response(code)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()

    def start(answer: Answer) -> str:
        answers.append(answer)
        return f"127.0.0.1:{made.server_port}"

    start.seen = seen  # type: ignore[attr-defined]
    yield start
    made.shutdown()
    made.server_close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, b"no", {}), "wants credentials (401)"),
        ((403, b"no", {}), "wants credentials (403)"),
        ((404, b"no", {}), "--prometheus is the URL before /api"),
        ((302, b"", {"Location": "http://elsewhere/"}), "sends elsewhere (302)"),
        (
            (422, json.dumps({"status": "error", "error": "too many samples"}).encode(), {}),
            "too many samples",
        ),
        ((500, b"<html>", {}), "(500)"),
        ((200, b"<html>hello</html>", {}), "its answer is none of a Prometheus"),
        (
            (200, b'{"status": "success", "data": {"result": [{"values": [[1]]}]}}', {}),
            "none of a Prometheus",
        ),
        ((200, b'{"status": "success", "data": {"res', {}), "none of a Prometheus"),
        ((200, b'{"status": "error", "error": "out of order"}', {}), "out of order"),
        ((200, b"{}", {"Content-Length": "100"}), "127.0.0.1"),
    ],
)
def test_an_answer_that_is_none_is_said_in_one_line_without_the_password(
    server: Callable[[Answer], str], answer: Answer, words: str
) -> None:
    place = Place(f"http://someone:secret%21@{server(answer)}/")
    with pytest.raises(ConfigError) as caught:
        Scrapes(place).rows("1000..2000", [])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert server.seen == ["Basic c29tZW9uZTpzZWNyZXQh"]  # type: ignore[attr-defined]


def test_a_token_is_read_from_its_file(server: Callable[[Answer], str], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc\n")
    url = f"http://{server((401, b'', {}))}"
    with pytest.raises(ConfigError, match="wants credentials"):
        Scrapes(Place(url, token_file=token)).rows("1000..2000", [])
    assert server.seen == ["Bearer abc"]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"token-file .*none: No such file"):
        Server(Place(url, token_file=tmp_path / "none"))


@pytest.mark.parametrize("url", ["", "prometheus:9090", "file:///etc/passwd", "http://", "http://h:99999/"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        Scrapes(Place(url)).rows("1000..2000", [])


def test_nobody_there_is_said() -> None:
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:9: Connection refused"):
        Scrapes(Place("http://127.0.0.1:9/")).rows("1000..2000", [])
