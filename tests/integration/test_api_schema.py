"""The API against its own description: generated requests, good and bad, never end in a server error."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from tests.integration.daemon import Daemon, serving


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with serving(tmp_path_factory.mktemp("schema"), "--backend", "replay", "--interval", "500ms") as running:
        yield running


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda m: m.value)
def test_no_request_ends_in_a_server_error(daemon: Daemon, mode: GenerationMode) -> None:
    described = schemathesis.openapi.from_url(f"{daemon.url}/openapi.json")
    seen: dict[str, set[int]] = {}
    for found in described.get_all_operations():
        operation = found.ok()
        name = f"{operation.method.upper()} {operation.path}"
        seen[name] = set()

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
        def ask(case: schemathesis.Case, statuses: set[int]) -> None:
            answer = case.call(timeout=20)
            while answer.status_code == 429:  # changes have a rate
                time.sleep(0.1)
                answer = case.call(timeout=20)
            assert answer.status_code < 500, f"{answer.request.method} {answer.request.url}: {answer.text}"
            statuses.add(answer.status_code)

        # Of an operation that takes nothing there is no wrong request.
        with contextlib.suppress(Unsatisfiable):
            ask(statuses=seen[name])
    assert len(seen) >= 12, "every operation of the description"
    if mode is GenerationMode.NEGATIVE:
        assert 422 in seen["POST /api/v1/marks"]
    else:
        assert all(seen.values())
    assert daemon.get("/-/ready")[0] == 200
    assert "Traceback" not in daemon.log.read_text()
