"""The real reader child on a pretend driver library that hangs, dies, leaks and goes away."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from daemon import Daemon, serving, until

from exporter.child import Child
from exporter.model import Reason, SourceError
from exporter.slots import Decoder

REPO = Path(__file__).resolve().parent.parent.parent
ROCM = REPO / "tests" / "fakes" / "amdsmi_fake" / "rocm"
MIB = 1 << 20


class Faults:
    """The switches, in a file that the library looks at before each call."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, **faults: Any) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(faults))
        fresh.rename(self._path)


Work = Callable[[Child, Faults], Coroutine[Any, Any, None]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    def start(work: Work, *, node: str = "mi300x:2", **spec: Any) -> None:
        control = tmp_path / "control.json"
        monkeypatch.setenv("PYTHONPATH", str(REPO))
        monkeypatch.setenv("ROCM_PATH", str(ROCM))
        monkeypatch.setenv("FAKE_AMDSMI_NODE", node)
        monkeypatch.setenv("FAKE_AMDSMI_CONTROL", str(control))
        faults = Faults(control)
        faults.set()

        async def main() -> None:
            child = Child("reader", "exporter.reader", {"backend": "amdsmi", "sysfs": str(tmp_path), **spec})
            try:
                await work(child, faults)
            finally:
                await child.stop()

        asyncio.run(main())

    return start


async def poll(child: Child, deadline_s: float = 20.0) -> dict[str, Any]:
    return await child.request({"op": "poll"}, deadline_s)


async def fails(child: Child, deadline_s: float = 20.0) -> SourceError:
    with pytest.raises(SourceError) as caught:
        await poll(child, deadline_s)
    return caught.value


async def recovers(child: Child) -> dict[str, Any]:
    """Poll until it answers; a child that failed twice in a row waits a moment before it starts again."""
    for _ in range(100):
        try:
            return await poll(child)
        except SourceError:
            await asyncio.sleep(0.1)
    raise AssertionError("the reader did not recover")


def resident(child: Child) -> int:
    assert child.pid is not None
    return psutil.Process(child.pid).memory_info().rss


def metrics(answer: dict[str, Any]) -> set[str]:
    return {series[0] for series in answer["series"]}


def test_the_reader_serves_what_the_library_says(run: Callable[..., None]) -> None:
    async def work(child: Child, faults: Faults) -> None:
        answer = await poll(child)
        assert [d["id"][0] for d in answer["devices"]] == ["0000:05:00.0", "0000:26:00.0"]
        readings = dict(zip(map(json.dumps, answer["series"]), answer["values"], strict=True))
        assert readings['["amdgpu_power_watts", ["0000:05:00.0", null], []]'] == 512
        # Unchanged series are not sent again.
        again = await poll(child)
        assert "series" not in again
        assert again["values"] == answer["values"]
        assert child.starts == 1

    run(work)


def test_a_call_that_hangs_is_a_timeout_and_the_next_reader_serves(run: Callable[..., None]) -> None:
    async def work(child: Child, faults: Faults) -> None:
        good = await poll(child)
        faults.set(hang=["get_gpu_metrics_info:0000:26:00.0"])
        error = await fails(child, deadline_s=0.5)
        assert error.reason is Reason.TIMEOUT
        faults.set()
        assert (await recovers(child))["values"] == good["values"]
        assert child.starts == 2

    run(work)


def test_a_library_that_crashes_takes_one_poll_with_it(run: Callable[..., None]) -> None:
    async def work(child: Child, faults: Faults) -> None:
        good = await poll(child)
        for function in ("get_gpu_metrics_info", "init"):
            faults.set(segfault=[function], hold="/dev/null")
            error = await fails(child)
            assert error.reason is Reason.CRASHED
            assert "SIGSEGV" in str(error)
            faults.set()
            assert (await recovers(child))["values"] == good["values"]
            # The crash at init needs a reader that has not initialised yet.
            await child.stop()

    run(work)


def test_a_library_that_crashes_on_error_records_gives_every_other_reading(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_AMDSMI_RELEASE", "10.0")

    async def work(child: Child, faults: Faults) -> None:
        faults.set(segfault=["get_gpu_cper_entries"], hold="/dev/null")
        for _ in range(2):
            # A new process does not look at once, so it answers before it may crash again.
            answer = await recovers(child)
            assert len(answer["values"]) > 100
            await asyncio.sleep(1.1)
            assert (await fails(child)).reason is Reason.CRASHED

    run(work, records_s=1.0)


def test_a_leak_of_a_mebibyte_per_call_stays_bounded_and_loses_no_poll(run: Callable[..., None]) -> None:
    async def work(child: Child, faults: Faults) -> None:
        good = await poll(child)
        pid, start = child.pid, resident(child)
        faults.set(leak_bytes=MIB)
        decoder = Decoder()
        decoder.decode(good)
        peaks, fresh = [], 0
        for _ in range(30):
            answer = await poll(child)
            peaks.append(resident(child))
            fresh += "series" in answer
            assert decoder.decode(answer).values == tuple(good["values"])
        # Some twenty calls a poll: without a bound this would be more than half a gibibyte by now.
        assert max(peaks) - start < 256 * MIB
        assert fresh >= 3, "it never started afresh"
        # In place: the same process, so nothing counts as a death.
        assert child.pid == pid
        assert child.starts == 1

    run(work, node="mi300x:1")


def test_a_driver_that_is_unloaded_and_loaded_again_needs_nobody(run: Callable[..., None]) -> None:
    async def work(child: Child, faults: Faults) -> None:
        good = await poll(child)
        faults.set(unloaded=True)
        for _ in range(2):
            error = await fails(child)
            assert error.reason is Reason.GONE
            assert "DRIVER_NOT_LOADED" in str(error)
        faults.set()
        assert (await poll(child))["values"] == good["values"]
        assert child.starts == 1

    run(work)


def test_between_polls_no_device_is_open_even_if_the_library_never_closes_it(
    run: Callable[..., None], tmp_path: Path
) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    (dev / "kfd").write_text("")

    def held(child: Child) -> list[str]:
        folder = f"/proc/{child.pid}/fd"
        links = []
        for fd in os.listdir(folder):
            try:
                links.append(os.readlink(f"{folder}/{fd}"))
            except FileNotFoundError:
                continue
        return [link for link in links if link.startswith(str(dev))]

    async def work(child: Child, faults: Faults) -> None:
        for name in ("hold", "hold_for_ever"):
            faults.set(**{name: str(dev / "kfd")})
            for _ in range(3):
                answer = await poll(child)
                assert answer["values"]
                for _ in range(200):
                    if not held(child):
                        break
                    await asyncio.sleep(0.01)
                assert held(child) == []
        assert child.starts == 1

    run(work, dev=str(dev))


def test_what_the_library_prints_is_no_answer_and_no_module_is_one_reason(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(child: Child, faults: Faults) -> None:
        error = await fails(child)
        assert error.reason is Reason.UNSUPPORTED
        assert "KeyError: 'libamd_smi.so'" in str(error)
        assert "Unable to find libamd_smi.so" in str(error)

    monkeypatch.setenv("FAKE_AMDSMI_IMPORT", "KeyError")
    run(work)


def test_a_module_of_another_release_never_gets_to_read(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(child: Child, faults: Faults) -> None:
        error = await fails(child)
        assert error.reason is Reason.UNSUPPORTED
        assert "module is of ROCm 6.4.3, the installed one is 7.0.2" in str(error)

    monkeypatch.setenv("FAKE_AMDSMI_MODULE_VERSION", "6.4.3")
    run(work)


def _beyond(daemon: Daemon, series: str, last: float) -> bool:
    return (daemon.value(series) or 0) > last


def test_the_daemon_keeps_serving_through_every_fault_and_recovers_by_itself(tmp_path: Path) -> None:
    faults = Faults(tmp_path / "control.json")
    faults.set()
    (tmp_path / "sys").mkdir()
    env = {
        "ROCM_PATH": str(ROCM),
        "FAKE_AMDSMI_NODE": "mi300x:2",
        "FAKE_AMDSMI_CONTROL": str(tmp_path / "control.json"),
        "AMDGPU_EXPORTER_POLL__DEADLINE": "1s",
        "AMDGPU_EXPORTER_POLL__MAX_AGE": "3s",
    }
    arguments = ("--backend", "amdsmi", "--interval", "200ms", "--path.sysfs", str(tmp_path / "sys"))
    with serving(tmp_path, *arguments, **env) as daemon:
        up, power = r'source_up{source="amdsmi"}', r'amdgpu_power_watts{.*pci="0000:05:00.0"'
        assert daemon.value(up) == 1
        assert daemon.value(power) == 512
        for fault in ({"hang": ["*"]}, {"segfault": ["get_pcie_info"]}, {"unloaded": True}):
            faults.set(**fault)
            until(lambda: daemon.value(up) == 0, what=f"source_up 0 after {fault}")
            # What is served grows old and goes; it never poses as new.
            until(lambda: daemon.value(power) is None, what=f"withdrawal after {fault}")
            assert daemon.get("/-/healthy")[0] == 200
            faults.set()
            # Three failures in a row are followed by a pause of some seconds before the next start.
            until(lambda: daemon.value(power) == 512, 30, what=f"recovery after {fault}")
            assert daemon.value(up) == 1
        reader = daemon.reader()
        assert reader is not None
        failures = {k: v for k, v in daemon.series().items() if "source_failures_total" in k}
        faults.set(leak_bytes=MIB)
        sizes = [reader.memory_info().rss]
        generation, last = "exporter_generation_total", daemon.value("exporter_generation_total") or 0
        end = last + 40
        while last < end:
            until(partial(_beyond, daemon, generation, last), what=f"generation {last + 1:g}")
            last = daemon.value(generation) or 0
            sizes.append(reader.memory_info().rss)
            assert daemon.value(power) == 512
        assert max(sizes) - sizes[0] < 320 * MIB
        # Forty polls leak more than half a gibibyte; none of them failed.
        assert {k: v for k, v in daemon.series().items() if "source_failures_total" in k} == failures


EXCEPTIONS = (
    "INVAL",
    "NOT_SUPPORTED",
    "DRM_ERROR",
    "TIMEOUT",
    "NO_PERM",
    "BUSY",
    "NO_DATA",
    "UNEXPECTED_DATA",
    "AmdSmiException",
    "AmdSmiLibraryException",
    "AmdSmiRetryException",
    "AmdSmiTimeoutException",
    "AmdSmiParameterException",
    "AmdSmiKeyException",
    "AmdSmiBdfFormatException",
    "OSError",
    "KeyError",
    "TypeError",
)
LEAVES = ("N/A", None, "", "0", "12 W", [], [1, 2], {"value": 1}, True, -1, 1e308, 2**64 - 1, 65535)


def _ours(daemon: Daemon, pci: str) -> dict[str, float]:
    changing = ("amdgpu_up", "amdgpu_health", "amdgpu_info")
    return {k: v for k, v in daemon.series().items() if f'pci="{pci}"' in k and not k.startswith(changing)}


def test_the_daemon_loses_only_what_an_exception_or_a_wrong_type_spoils(tmp_path: Path) -> None:
    """Every type of exception in every call of one GPU, then every wrong type at every leaf of it."""
    good, bad = "0000:05:00.0", "0000:26:00.0"
    faults = Faults(tmp_path / "control.json")
    faults.set()
    (tmp_path / "sys").mkdir()
    env = {
        "ROCM_PATH": str(ROCM),
        "FAKE_AMDSMI_NODE": "mi300x:2",
        "FAKE_AMDSMI_CONTROL": str(tmp_path / "control.json"),
    }
    arguments = ("--backend", "amdsmi", "--interval", "100ms", "--path.sysfs", str(tmp_path / "sys"))
    with serving(tmp_path, *arguments, **env) as daemon:
        whole, others = _ours(daemon, good), _ours(daemon, bad)
        power = f'amdgpu_power_watts{{gpu="1",pci="{bad}"}}'
        assert (len(whole) > 60, whole.keys() != others.keys(), power in others) == (True, True, True)
        moods = [{"raises": {f"*:{bad}": what}} for what in EXCEPTIONS]
        moods += [{"leaves": {bad: leaf}} for leaf in LEAVES]
        for mood in moods:
            faults.set(**mood)
            _two_polls(daemon)
            assert _ours(daemon, good) == whole, mood
            assert daemon.value(r'source_up{source="amdsmi"}') == 1, mood
            # A number of the right kind at every leaf may be a reading where its range allows it.
            leaf = mood.get("leaves", {}).get(bad)
            if type(leaf) not in (int, float, bool, list):
                spoilt = {k: v for k, v in _ours(daemon, bad).items() if k in others}
                assert power not in spoilt, mood
                assert [k for k, v in spoilt.items() if v == 0 and others[k] != 0] == [], mood
        faults.set(gone=[bad])
        until(lambda: daemon.value(f'^amdgpu_up{{.*pci="{bad}"') == 0, what="the GPU being gone")
        assert _ours(daemon, good) == whole
        faults.set()
        until(lambda: _ours(daemon, bad) == others, what="everything being back")


def _two_polls(daemon: Daemon) -> None:
    begun = daemon.value("exporter_generation_total") or 0
    until(partial(_beyond, daemon, "exporter_generation_total", begun + 1), what="two more polls")
