"""The object graph of the daemon, and the order in which it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from exporter import config as configuration
from exporter import logs, sources
from exporter.access import Access
from exporter.catalogue import CATALOGUE
from exporter.checks.expected import Expected
from exporter.checks.health import Watch
from exporter.collect import Collector, Timing
from exporter.config import Config
from exporter.guard import Guard
from exporter.history.client import History
from exporter.host import Clock
from exporter.listener import BACKLOG, Door
from exporter.logs import event
from exporter.model import ConfigError
from exporter.owners.feed import OwnersFeed
from exporter.probes.feed import ProbeFeed
from exporter.profiling import Profiling
from exporter.textfile.feed import TextFeed
from exporter.web import App, Web

log = logging.getLogger(__name__)

_COST_EVERY_S = 15.0


class Service:
    """The running daemon. ``load`` gives the configuration anew for a reload."""

    def __init__(self, config: Config, load: Callable[[], configuration.Loaded]) -> None:
        self.config = config
        self._load = load
        self._clock = Clock()
        self.notes: list[str] = []
        polled, replay = sources.build(config)
        self.collector = Collector(
            CATALOGUE,
            self._clock,
            _timing(config),
            polled,
            series_max=config.series.max,
            expected=config.devices.expected,
            replay=replay,
        )
        if replay:
            kind = "synthetic" if replay[1] else "recorded"
            self.notes.append(
                f"This is a replay of a {kind} capture ({replay[0]}). Nothing here describes this machine."
            )
        self._door = Door(Access(config.web.config_file))
        self.collector.refused = self._door.refused
        root = polled[0].root if replay else None
        self._scratch = tempfile.TemporaryDirectory(prefix="amdgpu-exporter-") if replay else None
        self.profiling = Profiling(config, self.collector, self._clock, self._spawn, root, self._history())
        self.collector.windows, self.collector.windows_expiry = self.profiling.slot, self.profiling.expiry
        self.watch = Watch()
        self.collector.judge = self.watch.look
        self._expected: Expected | None = None
        self._probes: ProbeFeed | None = None
        self._writing: asyncio.Task[None] | None = None
        if not replay:
            state = configuration.state_directory(config, os.environ)
            self._expected = Expected(state, config.path.sysfs)
            self.collector.remember = self._remember
            self._probes = ProbeFeed(state, self._clock, lambda: self.collector.inventory.devices)
            self.collector.probes = self._probes.slot
        self._owners = OwnersFeed(
            sources.owners(config, replayed=replay is not None), self._clock, lambda: self.collector.timing
        )
        self.collector.owners = self._owners.at
        self.collector.inline = config.labels.workload == "inline"
        self._texts: TextFeed | None = None
        if folder := config.textfile.folder:
            timing = lambda: self.collector.timing  # noqa: E731
            self._texts = TextFeed(folder, config.textfile.max_bytes, self._clock, timing)
            self.collector.foreign = self._texts.at
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, listener: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT."""
        import uvicorn

        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, stop.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._spawn(self._reload_by_signal()))
        for source in self.collector.sources:
            self._spawn(self.collector.run(source))
        self._spawn(self.profiling.start())
        self._list_children()
        if self._probes:
            self._spawn(self._probes.run(self.collector.publish))
        if self._texts:
            self._spawn(self._texts.run(self.collector.publish))
        if self._owners.asks:
            self._spawn(self._owners.run(self.collector.publish))
        self._spawn(self._measure())
        self._spawn(self._announce(listener))
        server = uvicorn.Server(
            uvicorn.Config(
                Web(self.collector, self._pages, Guard(self._door.access, self._token, self._door.refused)),
                http=self._door.protocol,  # type: ignore[arg-type]
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                backlog=BACKLOG,
                timeout_graceful_shutdown=1,
            )
        )
        # Signals are ours: uvicorn would re-raise them after serving and turn exit 0 into a signal death.
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        serving = asyncio.create_task(server.serve([listener]))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        event(log, logging.INFO, "stopping")
        server.should_exit = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(self.profiling.stop(), *(child.stop() for child in self.collector.children))
        stopping.cancel()
        await serving
        if self._scratch:
            self._scratch.cleanup()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task that ends by an exception is a bug; say so and stop, so that a supervisor starts us anew."""
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()):
            log.critical("a task ended by an error, which is a bug; stopping", exc_info=error)
            os.kill(os.getpid(), signal.SIGTERM)

    async def reload(self) -> tuple[str, ...]:
        """Take a new configuration; on any fault the old one stays and ConfigError says why."""
        try:
            loaded = self._load()
        except ConfigError as e:
            self.collector.reload_ok = False
            self.collector.publish()
            event(log, logging.ERROR, "reload refused; the last good configuration stays", detail=e)
            raise
        restart = configuration.restart_required(self.config, loaded.config)
        self.config = configuration.merge_reload(self.config, loaded.config)
        for warning in loaded.warnings:
            event(log, logging.WARNING, warning)
        collector = self.collector
        collector.timing = _timing(self.config)
        collector.series_max = self.config.series.max
        collector.expected = self.config.devices.expected
        collector.inline = self.config.labels.workload == "inline"
        self.profiling.configure(self.config)
        self._list_children()
        collector.reload_ok, collector.reload_at = True, self._clock.now()
        logs.set_level(self.config.log.level)
        collector.publish()
        event(log, logging.INFO, "reloaded", restart_required=",".join(restart) or "none")
        return restart

    async def _reload_by_signal(self) -> None:
        with contextlib.suppress(ConfigError):
            await self.reload()

    def _pages(self) -> App:
        from exporter.pages.app import create
        from exporter.pages.live import Live

        windows = self.profiling
        preset = lambda: self.config.windows.preset  # noqa: E731
        notes = lambda: [*self._all_notes(), *windows.why()]  # noqa: E731
        live = Live(self.collector, windows.ledger, notes, preset, windows.status)
        return create(self.collector, self.reload, self._token, live, self.watch, windows, windows.history)

    def _history(self) -> History | None:
        """Where windows are kept; of a replay only for as long as it lasts."""
        keep = self.config.history
        if not keep.enabled:
            return None
        folder = Path(self._scratch.name) if self._scratch else None
        folder = folder or configuration.state_directory(self.config, os.environ)
        return History(str(folder), keep.max_bytes, keep.max_age, self._clock)

    def _list_children(self) -> None:
        own = [source.child for source in self.collector.sources]
        texts = [self._texts.child] if self._texts else []
        owners = [self._owners.child] if self._owners.asks else []
        self.collector.children = [*own, *texts, *owners, *self.profiling.children()]

    def _all_notes(self) -> list[str]:
        found, notes = self.collector.sources, [*self.notes, *self.profiling.notes]
        if not any(s.outcome and s.outcome.ok for s in found):
            down = "; ".join(f"{s.name}: {s.outcome.detail}" for s in found if s.outcome)
            return [*notes, f"No source can be read. {down}"] if down else notes
        if not self.collector.inventory.devices:
            return [*notes, "No AMD GPU is visible here; serving amdgpu_devices 0 until one appears."]
        return notes

    def _token(self) -> str | None:
        path = self.config.web.token_file
        if path is None:
            return None
        try:
            return Path(path).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError) as e:
            event(log, logging.ERROR, "no token can be read; POST is for this host only", file=path, detail=e)
            return None

    async def _announce(self, listener: socket.socket) -> None:
        """Say once where we serve and what we see."""
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if self._door.access.secure else "http"
        event(log, logging.INFO, "serving", url=f"{scheme}://{shown}:{port}/")
        await self.collector.first.wait()
        # What stands by now stays: a full collection would walk it again and again, and scrapes would wait.
        gc.collect()
        gc.freeze()
        current = self.collector.current
        found = len(current.snapshot.devices) if current else 0
        event(log, logging.INFO, "ready", devices=found)
        for note in self._all_notes():
            event(log, logging.WARNING, note)

    def _remember(self, seen: int) -> int | None:
        """How many GPUs there should be; more than ever before are written down at once."""
        expected = self._expected
        if expected is None:
            return None
        most = expected.saw(seen)
        if expected.dirty and not self._writing:
            self._writing = self._spawn(self._write(expected))
        return most

    async def _write(self, expected: Expected) -> None:
        # The disk may be slow, and this is the event loop.
        await asyncio.to_thread(expected.save)
        self._writing = None

    async def _measure(self) -> None:
        """What the daemon and its children cost, now and then."""
        import psutil

        while True:
            costs: dict[str, tuple[float, int]] = {}
            pids = {"daemon": os.getpid()}
            pids |= {c.name: pid for c in self.collector.children if (pid := c.pid)}
            for name, pid in pids.items():
                with contextlib.suppress(psutil.Error):
                    process = psutil.Process(pid)
                    times = process.cpu_times()
                    costs[name] = (times.user + times.system, process.memory_info().rss)
            self.collector.processes = costs
            if self._expected:
                await asyncio.to_thread(self._expected.refresh)
            await asyncio.sleep(_COST_EVERY_S)


def _timing(config: Config) -> Timing:
    poll = config.poll
    return Timing(poll.interval, poll.deadline, poll.max_age)


def bind(config: Config) -> socket.socket:
    """The listening socket; ConfigError names the address and what to do."""
    host, port = config.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, or asyncio leaves Nagle's algorithm on and every scrape waits for a delayed ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host or "0.0.0.0", port))  # noqa: S104 - an empty host asks for every interface
        listener.listen(1024)
    except (OSError, OverflowError) as e:
        listener.close()
        text = os.strerror(e.errno) if isinstance(e, OSError) and e.errno else str(e)
        raise ConfigError(
            f"listen: cannot serve on {config.listen}: {text}; choose another with --listen"
        ) from e
    listener.setblocking(False)
    return listener


def serve(config: Config, load: Callable[[], configuration.Loaded]) -> None:
    """Run the daemon until it is told to stop; ConfigError where it cannot start."""
    logs.setup(config.log.level, config.log.format)
    listener = bind(config)
    service = Service(config, load)
    asyncio.run(service.run(listener))
