"""What an attach leaves behind: libraries in the process, and files that come after its profiler has gone."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from exporter.host import Root
from exporter.windows import arrival, lookout

MAPS = "7f00-7f01 r-xp 0 0:0 1 /opt/rocm/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1\n"


def node(
    root: Path, *, prepared: bool = True, tracer: int | None = 0, environ: bytes | None = b"A=1\0"
) -> bool:
    """A process that has a profiler's library in it; gives whether one is said to be at work."""
    own = root / "proc/41"
    (root / "proc/2").mkdir(parents=True)
    (root / "proc/2/comm").write_text("kthreadd\n")
    (root / "proc/uptime").write_text("10000.00 1.0\n")
    (own / "ns").mkdir(parents=True)
    (own / "stat").write_text("41 (job) S 1 " + "0 " * 15 + "1 0 500 0 0\n")
    (own / "status").write_text("Uid:\t1000\t1000\t1000\t1000\n")
    (own / "comm").write_text("job\n")
    (own / "maps").write_text(MAPS)
    if environ is not None:
        (own / "environ").write_bytes(environ)
    for task, name in ((41, "job"), (42, "rocp-bg-attach" if prepared else "worker")):
        (own / f"task/{task}").mkdir(parents=True)
        (own / f"task/{task}/comm").write_text(f"{name}\n")
        if tracer is not None:
            (own / f"task/{task}/status").write_text(f"Name:\t{name}\nTracerPid:\t{tracer}\nUid:\t0\n")
    queue = root / "sys/class/kfd/kfd/proc/41/queues/0"
    queue.mkdir(parents=True)
    (queue / "gpuid").write_text("11\n")
    [one] = lookout.look(Root(str(root / "sys")), Root(str(root / "proc")))
    assert one.prepared == prepared
    assert one.profiler is not None
    return one.profiler


def test_what_an_earlier_attach_left_is_no_profiler_at_work(tmp_path: Path) -> None:
    assert not node(tmp_path)


@pytest.mark.parametrize(
    "more",
    [
        {"prepared": False},
        {"tracer": 7},
        {"tracer": None},
        {"environ": None},
        {"environ": b"A=1\0ROCP_TOOL_LIBRARIES=/opt/rocm/lib/x.so\0"},
        {"environ": b"LD_PRELOAD=/opt/rocm/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so\0"},
    ],
)
def test_a_profiler_is_at_work_where_it_traces_or_was_there_from_the_start_or_that_cannot_be_seen(
    tmp_path: Path, more: dict[str, object]
) -> None:
    assert node(tmp_path, **more)  # type: ignore[arg-type]


def waited(output: Path, within_s: float = 20.0) -> float:
    began = time.monotonic()
    arrival.wait(output, within_s)
    return time.monotonic() - began


def test_files_that_are_whole_are_waited_for_no_longer_than_it_takes_to_see_it(tmp_path: Path) -> None:
    (tmp_path / "1_results.db").write_bytes(b"rows")
    assert 1.4 < waited(tmp_path) < 5.0


def test_a_database_with_a_journal_is_not_whole(tmp_path: Path) -> None:
    (tmp_path / "1_results.db").write_bytes(b"rows")
    journal = tmp_path / "1_results.db-journal"
    journal.write_bytes(b"more to come")
    threading.Timer(2.5, journal.unlink).start()
    assert 3.9 < waited(tmp_path) < 8.0


def test_a_file_that_comes_late_is_there_in_the_end(tmp_path: Path) -> None:
    threading.Timer(0.5, (tmp_path / "1_results.db").write_bytes, (b"rows",)).start()
    assert 1.9 < waited(tmp_path) < 6.0
    assert (tmp_path / "1_results.db").read_bytes() == b"rows"


def test_the_wait_ends_with_its_time_where_nothing_comes(tmp_path: Path) -> None:
    assert 0.4 < waited(tmp_path, 0.5) < 3.0
