"""Options that verbs share, and what is made of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.model import ConfigError

if TYPE_CHECKING:
    from exporter import config as configuration
    from exporter.checks.expected import Expected
    from exporter.checks.machine import Settings

Sysfs = Annotated[str | None, typer.Option("--path.sysfs", help="Mount point of sysfs, or a captured copy.")]
Procfs = Annotated[
    str | None,
    typer.Option(
        "--path.procfs", help="Mount point of procfs; one of this machine is not read beside a copied sysfs."
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Configuration file (YAML).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def seconds(option: str, text: str) -> float:
    """A duration as an option has it."""
    from exporter.config.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as e:
        raise ConfigError(f"{option} {text}: {e}") from e


def load(
    file: Path | None, sysfs: str | None, procfs: str | None, environ: Mapping[str, str] = os.environ
) -> configuration.Loaded:
    """The configuration as the daemon would have it, with the given roots."""
    from exporter import config

    flags = {k: v for k, v in (("path.sysfs", sysfs), ("path.procfs", procfs)) if v is not None}
    return config.load(file, environ, flags)


def settings(file: Path | None, sysfs: str | None, procfs: str | None) -> Settings:
    """The configuration for a check, which goes on where a daemon would not start."""
    from exporter.checks.machine import Settings
    from exporter.config import state_directory

    problem: str | None = None
    try:
        loaded = load(file, sysfs, procfs)
    except ConfigError as e:
        problem, loaded = str(e), load(None, sysfs, procfs, {})
    config = loaded.config
    if not os.path.isdir(config.path.sysfs):
        raise ConfigError(f"path.sysfs: {config.path.sysfs} is no folder; give the root that holds class/drm")
    state = state_directory(config, os.environ)
    return Settings(config, file, problem, loaded.warnings, state, remembered(config).most)


def remembered(config: configuration.Config) -> Expected:
    """What the daemon remembers of the GPUs that were here."""
    from exporter.checks.expected import Expected
    from exporter.config import state_directory

    return Expected(state_directory(config, os.environ), config.path.sysfs)


def forget(file: Path | None, sysfs: str | None) -> None:
    """Forget GPUs that are taken out for good."""
    expected = remembered(load(file, sysfs, None).config)
    expected.forget()
    typer.echo(f"forgotten in {expected.file}; a running daemon notices within a minute", err=True)


def roots(sysfs: str | None, procfs: str | None) -> tuple[str, str]:
    """The given roots, else those of the environment, else the live ones."""
    from exporter.host import belonging

    path = load(None, sysfs, procfs).config.path
    if not os.path.isdir(path.sysfs):
        raise ConfigError(f"path.sysfs: {path.sysfs} is no folder; give the root that holds class/drm")
    return path.sysfs, belonging(path.sysfs, path.procfs)


def print_json(value: object) -> None:
    """One JSON value on stdout."""
    import json

    typer.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
