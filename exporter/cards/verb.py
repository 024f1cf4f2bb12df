"""``run --report``: a command run cold and warm, and what it took, as a report for a model card.

The job comes first: it has our terminal, its signals pass through, the exit code is that of the run that
failed, if any, and whatever fails of ours costs a part of the report and never a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter import command
from exporter.cards import card, samples
from exporter.cards.card import Card
from exporter.cards.samples import Run, Sample
from exporter.checks import analyze, surroundings
from exporter.checks import run as jobs
from exporter.compare import advice
from exporter.config import Config, load, parse_duration
from exporter.host import Clock, Root, belonging
from exporter.model import ConfigError
from exporter.profilers.job import Periods
from exporter.windows import intake
from exporter.windows.intake import Analysis

_EVERY_S = 1.0
_AT_ONCE_S = 0.5  # how long a reading between two runs is waited for
_FILE_MOST = 256 << 20
_WINDOWS = 2


@dataclass(frozen=True, slots=True)
class Wish:
    """``length`` of a window at most, as it was given; ``items``: how much one run does."""

    command: tuple[str, ...]
    file: Path
    repeat: int
    items: float | None
    length: str


def main(wish: Wish, file: Path | None) -> int:
    """The verb, for which nothing of ours is a reason not to run the job."""
    try:
        config, length_s = load(file, os.environ).config, parse_duration(wish.length)
    except (ConfigError, ValueError) as e:
        return jobs.without(wish.command, f"{e}; no report is made")
    if problem := _unwritable(wish.file):
        return jobs.without(wish.command, f"{problem}; no report is made")
    return run(wish, config, length_s)


def run(wish: Wish, config: Config, length_s: float) -> int:
    """Run it all, write the report. Gives the exit code of the job, or ends as it ended."""
    at = Clock().now()
    missing: dict[str, str] = {}
    try:
        scratch = tempfile.TemporaryDirectory(prefix="amdgpu-exporter-", ignore_cleanup_errors=True)
    except OSError as e:
        return jobs.without(wish.command, f"{e.strerror or e}; no report is made")
    with scratch as folder:
        try:
            with _meter(config, Path(folder), missing) as meter:
                runs, done = _all(wish, meter)
        except OSError as e:
            jobs.say(f"{wish.command[0]}: cannot be run: {e.strerror or e}")
            _leave_none(wish.file)
            return 127 if isinstance(e, FileNotFoundError) else 126
        try:
            analysis = _profiled(wish, config, length_s, runs, Path(folder), missing) if done else None
            made = _card(wish, config, at, runs, meter.read(), analysis, missing)
            _write(wish.file, made)
        except Exception as e:  # noqa: BLE001 - the job has run, and its exit code stays what it is
            jobs.say(f"no report: {type(e).__name__}: {' '.join(str(e).split())}")
    return jobs.end_as(next((run.code for run in runs if run.code), 0))


def _unwritable(file: Path) -> str | None:
    """Why a report could not be written, known before the first run instead of after the last."""
    try:
        for path in _files(file):
            with path.open("a", encoding="utf-8"):
                pass
    except OSError as e:
        return f"{e.filename}: {e.strerror}"
    return None


def _files(file: Path) -> tuple[Path, Path]:
    """The Markdown and the JSON beside it, whichever of the two was named."""
    stem = file.stem if file.suffix in (".md", ".json") else file.name
    return file.with_name(f"{stem}.md"), file.with_name(f"{stem}.json")


def _leave_none(file: Path) -> None:
    """Remove the files that were made to see whether they can be."""
    for path in _files(file):
        with contextlib.suppress(OSError):
            if path.stat().st_size == 0:
                path.unlink()


# --- the runs ------------------------------------------------------------------------------------------


def _all(wish: Wish, meter: _Meter) -> tuple[list[Run], bool]:
    """One cold run and the warm ones; false where they were broken off. Errors: OSError by the first."""
    runs: list[Run] = []
    for number in range(1 + wish.repeat):
        kind = "warm" if number else "cold"
        if sys.stderr.isatty():
            jobs.say(f"{kind} run {number or 1} of {wish.repeat if number else 1}")
        meter.read_now()
        began = time.monotonic()
        process = jobs.start(wish.command)
        code, told = jobs.wait(process)
        runs.append(Run(kind, began, time.monotonic(), code))
        meter.read_now()
        if code or told:
            return runs, False
    return runs, True


def _profiled(
    wish: Wish,
    config: Config,
    length_s: float,
    runs: Sequence[Run],
    folder: Path,
    missing: dict[str, str],
) -> Analysis | None:
    """One more run, with windows in it, which counts nowhere else."""
    part = min(run.seconds for run in runs) / (2 * _WINDOWS)
    periods = Periods(max(0.2, part), min(length_s, max(0.05, part)), _WINDOWS)
    spool = folder / "spool"
    spool.mkdir()
    try:
        made = jobs.prepare(wish.command, periods, config, spool)
    except jobs.UnprofiledError as e:
        missing["kernels"] = str(e)
        return None
    try:
        if sys.stderr.isatty():
            jobs.say("one more run, with profiling windows, for the table of kernels")
        code = jobs.attend(jobs.start(made.argv, (made.held,)), made, Root(config.path.sysfs))
        if code:
            missing["kernels"] = f"the run with rocprofv3 ended with code {code}"
            return None
        (made.partial / "manifest.json").write_text(
            json.dumps({**made.manifest, "processes_seen": made.seen})
        )
        found = intake.load([made.partial])
    finally:
        with contextlib.suppress(OSError):
            os.close(made.held)
    if not found.results:
        missing["kernels"] = "rocprofv3 saw no kernel in its windows"
        return None
    return found


# --- the meter -----------------------------------------------------------------------------------------


class _Meter:
    """The process that reads the GPUs, and the file that it writes; none where there are no GPUs."""

    def __init__(self, process: command.Process[bytes] | None, path: Path) -> None:
        self._process, self._path = process, path

    def read_now(self) -> None:
        """Have it read once more, for the energy of a run. Waits a moment, not for ever."""
        if self._process is None or self._process.poll() is not None:
            return
        before = self._size()
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGUSR1)
        until = time.monotonic() + _AT_ONCE_S
        while self._size() == before and time.monotonic() < until and self._process.poll() is None:
            time.sleep(0.005)

    def read(self) -> list[Sample]:
        try:
            return samples.read(self._path.read_text("utf-8", "replace").splitlines())
        except OSError:
            return []

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


@contextlib.contextmanager
def _meter(config: Config, folder: Path, missing: dict[str, str]) -> Iterator[_Meter]:
    path = folder / "samples"
    procfs = belonging(config.path.sysfs, config.path.procfs)
    argv = [sys.executable, "-P", "-m", "exporter.cards.meter", config.path.sysfs, procfs, str(path)]
    process: command.Process[bytes] | None = None
    try:
        process = command.start([*argv, f"{_EVERY_S:g}"], _environment(), str(folder), _FILE_MOST)
    except (OSError, ValueError) as e:
        missing["gpus"] = f"they cannot be read: {e}"
    meter = _Meter(process, path)
    try:
        _first(process, path)
        yield meter
    finally:
        if process is not None:
            process.kill()
            with contextlib.suppress(command.StillRunning):
                process.wait(2.0)


def _first(process: command.Process[bytes] | None, path: Path) -> None:
    """Wait until it reads, so that what it takes to start is over before the first run."""
    until = time.monotonic() + 10.0
    while process and process.poll() is None and not path.exists() and time.monotonic() < until:
        time.sleep(0.02)


def _environment() -> Mapping[str, str]:
    home = str(Path(__file__).resolve().parent.parent.parent)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{home}{os.pathsep}{path}" if path else home}


# --- the report ----------------------------------------------------------------------------------------


def _card(
    wish: Wish,
    config: Config,
    at: float,
    runs: Sequence[Run],
    read: Sequence[Sample],
    analysis: Analysis | None,
    missing: dict[str, str],
) -> Card:
    sysfs, procfs = config.path.sysfs, belonging(config.path.sysfs, config.path.procfs)
    devices, environment = surroundings.take(Root(sysfs), Root(procfs), wish.command, os.environ)
    if not devices:
        missing.setdefault("gpus", f"there is no AMD GPU under {sysfs}")
    elif not any(sample.gpus for sample in read):
        missing.setdefault("gpus", "the driver gave no readings of them")
    if len(runs) <= wish.repeat:
        missing.setdefault("kernels", "the runs were broken off")
    windows: list[Mapping[str, Any]] = analyze.as_dict(analysis)["gpus"] if analysis else []
    told = [one for r in analysis.results for one in advice.of_window(advice.facts_of(r))] if analysis else []
    return Card(
        wish.command,
        at,
        tuple(runs),
        wish.repeat,
        tuple(read),
        _EVERY_S,
        environment,
        tuple(windows),
        tuple(dict.fromkeys(told)),
        wish.items,
        missing,
    )


def _write(file: Path, made: Card) -> None:
    """Both files, each whole or as it was."""
    whole = json.dumps(card.as_dict(made), indent=1, ensure_ascii=False, allow_nan=False)
    for path, text in zip(_files(file), (card.markdown(made), whole + "\n"), strict=True):
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        # A command line may hold bytes that are no text.
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")
        with contextlib.suppress(OSError):
            shutil.copymode(path, beside)
        beside.replace(path)
    if sys.stderr.isatty():
        jobs.say(f"wrote {' and '.join(str(path) for path in _files(file))}")
