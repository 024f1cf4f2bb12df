"""Checks: the daemon's own configuration and folders."""

from __future__ import annotations

import os
from pathlib import Path

from exporter.checks.finding import Check, Seen, Severity, broken, elsewhere, info, ok, warning
from exporter.checks.machine import Machine


def _config(m: Machine) -> Seen:
    s = m.settings
    name = str(s.file) if s.file else "no file; defaults and environment"
    again = f"amdgpu-exporter serve{f' --config {s.file}' if s.file else ''} --print-config"
    if s.problem:
        return broken(s.problem, again)
    if s.warnings:
        return warning("; ".join(s.warnings), again)
    return ok(f"understood ({name})")


def _folder(path: Path, what: str, user: str) -> Seen:
    """Whether a folder can be written, or made."""
    at = path
    while not at.exists() and at != at.parent:
        at = at.parent
    if at.is_dir() and os.access(at, os.W_OK | os.X_OK):
        return ok(f"{path} can be written" if at == path else f"{path} can be made")
    return warning(
        f"{path} cannot be {'written' if at == path else 'made'} by {user}: {what}",
        f"sudo install -d -o {user} {path}",
    )


def _state(m: Machine) -> Seen:
    return _folder(m.settings.state, "what should outlive a restart is lost", m.user)


def _spool(m: Machine) -> Seen:
    windows = m.settings.config.windows
    if windows.preset == "off":
        return ok("windows are off, so no spool folder is needed")
    path = Path(windows.spool_dir) if windows.spool_dir else m.settings.state / "spool"
    return _folder(path, "no windows are taken in", m.user)


def _textfile(m: Machine) -> Seen:
    folder = m.settings.config.textfile.folder
    if folder is None:
        return ok("no textfile folder is configured")
    if os.path.isdir(folder) and os.access(folder, os.R_OK | os.X_OK):
        return ok(f"{folder} can be read")
    return warning(f"{folder} is no folder that {m.user} can read", f"sudo install -d -m 0755 {folder}")


def _daemon(m: Machine) -> Seen:
    listen = m.settings.config.listen
    if not m.live:
        return elsewhere()
    if m.daemon is None:
        return info(f"no daemon answers on {listen}", "amdgpu-exporter serve")
    if "amdgpu_exporter_build_info" in m.daemon:
        return ok(f"a daemon answers on {listen}")
    return warning(
        f"something else answers on {listen}; a daemon cannot start there",
        f"sudo ss -ltnp 'sport = :{m.settings.config.address[1]}'",
    )


CHECKS: tuple[Check, ...] = (
    Check(
        "config.understood",
        "The configuration, every key of it: a daemon with a broken one does not start.",
        Severity.BROKEN,
        "amdgpu-exporter serve --print-config",
        _config,
    ),
    Check(
        "state.writable",
        "The state folder: how many GPUs there should be is remembered there.",
        Severity.WARNING,
        "sudo install -d -o $USER /var/lib/amdgpu-exporter",
        _state,
    ),
    Check(
        "spool.writable",
        "The spool folder, where jobs leave profiling windows.",
        Severity.WARNING,
        "sudo install -d -o $USER /var/lib/amdgpu-exporter/spool",
        _spool,
    ),
    Check(
        "textfile.readable",
        "The folder of other programs' metrics, where one is configured.",
        Severity.WARNING,
        "sudo install -d -m 0755 FOLDER",
        _textfile,
    ),
    Check(
        "daemon.answers",
        "A daemon on the configured address.",
        Severity.WARNING,
        "systemctl status amdgpu-exporter",
        _daemon,
    ),
)
