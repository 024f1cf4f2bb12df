"""Makes the Machine that the checks look at: asks the sources, the tools and a running daemon, each once."""

from __future__ import annotations

import asyncio
import http.client
import os
import pwd
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from exporter.checks import poll
from exporter.checks.machine import Machine, Settings, access, find_tools, python_path, readings, trial
from exporter.collect import PolledSource
from exporter.config import Config
from exporter.host import Root, belonging

_DAEMON_S = 1.0
_PAGE_LIMIT = 16 * 1024 * 1024


def gather(
    settings: Settings,
    environ: Mapping[str, str],
    sources: Callable[[Config, Sequence[str]], list[PolledSource]],
    *,
    files: str = "/",
    ask_daemon: Callable[[Config], str | None] | None = None,
) -> Machine:
    """Look once. ``sources`` makes the named sources; a copy of a tree is asked through sysfs alone."""
    config = settings.config
    live = os.path.ismount(config.path.sysfs)
    found = belonging(config.path.sysfs, config.path.procfs)
    procfs = Root(found) if found == config.path.procfs else None
    machine = Machine(
        sysfs=Root(config.path.sysfs),
        procfs=procfs,
        files=Root(files),
        live=live,
        settings=settings,
        # Before any thread starts, which the way commands are run demands.
        tools=find_tools(environ, Root(files)) if live else {},
        environ=environ,
        modules=python_path(),
        user=user_name(),
        access=access(Root(files)),
        daemon=(ask_daemon or page_of_daemon)(config) if live else None,
    )
    names = ["sysfs"]
    if live:
        names = [*(["amdsmi"] if machine.amdsmi()[0] else []), "sysfs"]
        names += ["smi_cli"] if {"amd-smi", "rocm-smi"} & set(machine.tools) else []
    asked = sources(config, names)
    asyncio.run(poll.ask(asked))
    return replace(machine, trials=tuple(map(trial, asked)), readings=readings(asked))


def user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def page_of_daemon(config: Config) -> str | None:
    """What answers ``/metrics`` on the configured address, if anything."""
    host, port = config.address
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    url = f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=_DAEMON_S) as answer:
            return str(answer.read(_PAGE_LIMIT).decode("utf-8", "replace"))
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError, http.client.HTTPException):
        return None
