"""Which sources the configuration asks for, in order of trust, each with the child that reads it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from exporter.child import Child
from exporter.collect import PolledSource
from exporter.config import Config
from exporter.host import Root, belonging
from exporter.logs import event
from exporter.model import ConfigError
from exporter.owners.feed import Settings

log = logging.getLogger(__name__)

Replay = tuple[str, bool]  # the capture's name, and whether it was made up


def build(config: Config) -> tuple[list[PolledSource], Replay | None]:
    """The sources, most trusted first; ConfigError where one cannot be had."""
    if config.backend == "replay":
        return _replay(config)
    if not os.path.isdir(config.path.sysfs):
        raise ConfigError(f"path.sysfs: {config.path.sysfs} is no folder; give the mount point of sysfs")
    wanted = [config.backend]
    if config.backend == "auto":
        wanted = ["amdsmi", "sysfs"] if _rocm_module() else ["sysfs"]
        event(log, logging.INFO, "sources chosen", sources=",".join(wanted))
    return [_SOURCES[name](config) for name in wanted], None


def each(config: Config, names: Iterable[str]) -> list[PolledSource]:
    """These sources, to be tried one beside the other."""
    return [_SOURCES[name](config) for name in names]


def _rocm_module() -> bool:
    """Whether an installed ROCm brings its amdsmi module; a look at files, nothing is loaded."""
    from exporter.backends.amdsmi_module import present

    return present(os.environ, Root("/"), sys.path)


def _replay(config: Config) -> tuple[list[PolledSource], Replay]:
    from exporter.backends.replay import demo_path, describe

    path = config.capture or str(demo_path())
    about = describe(Path(path))
    source = _polled(
        "sysfs", path, {"backend": "replay", "capture": path, "disable": disabled(config)}, backend="replay"
    )
    return [source], (about.name, about.synthetic)


def _sysfs(config: Config) -> PolledSource:
    return _polled("sysfs", config.path.sysfs, _on_host(config, "sysfs"))


def _amdsmi(config: Config) -> PolledSource:
    # A GPU that answers slowly must not cost the others their readings of this poll.
    spec = {**_on_host(config, "amdsmi"), "budget_s": 0.7 * config.poll.deadline}
    spec["records_s"] = config.amdsmi.error_records or 0.0
    return _polled("amdsmi", "library", spec)


def _smi_cli(config: Config) -> PolledSource:
    cli = config.smi_cli
    # Ending a tool that ignores SIGTERM takes part of the time the poll has.
    spec = {**_on_host(config, "smi_cli"), "tool": cli.tool, "deadline": max(0.5, cli.deadline - 0.8)}
    return _polled("smi_cli", cli.tool or "PATH", spec, deadline_s=cli.deadline)


def _on_host(config: Config, backend: str) -> dict[str, Any]:
    path = config.path
    return {
        "backend": backend,
        "sysfs": path.sysfs,
        "procfs": belonging(path.sysfs, path.procfs),
        "debugfs": belonging(path.sysfs, path.debugfs),
        "container_logs": config.owners.container_logs,
        "integrated": config.devices.integrated,
        "disable": disabled(config),
    }


def owners(config: Config, *, replayed: bool) -> Settings:
    """Who is asked whose each GPU is; nobody of this machine while a capture is replayed."""
    chosen = config.owners
    if replayed:
        return Settings()
    ask = chosen.kubelet == "on" or (chosen.kubelet == "auto" and os.path.exists(chosen.kubelet_socket))
    return Settings(chosen.kubelet_socket if ask else None, chosen.job_files, chosen.resources)


def disabled(config: Config) -> list[str]:
    """Names of metrics and groups that are not to be read."""
    return [*config.metrics.disable, *([] if config.metrics.dies else ["dies"])]


def _polled(
    name: str,
    root: str,
    spec: Mapping[str, Any],
    *,
    backend: str | None = None,
    deadline_s: float | None = None,
) -> PolledSource:
    child = Child("reader" if name == "sysfs" else f"reader_{name}", "exporter.reader", spec)
    return PolledSource(name, backend or name, root, child, deadline_s)


_SOURCES = {"amdsmi": _amdsmi, "sysfs": _sysfs, "smi_cli": _smi_cli}
