"""Which of the tools that measure are on this machine. May start one of them to ask for its help."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Mapping

from exporter.command import run_once
from exporter.model import ConfigError
from exporter.probes.plans import BANDWIDTH_TEST, PROGRAMS, TOOLS, TORCH, TRANSFERBENCH, Tool

# Where packages put them outside PATH: AMD's, and those of Debian and Ubuntu.
_FOLDERS = ("/opt/rocm/bin", "/opt/rocm-*/bin", "/usr/libexec/rocm/*")
_EMPTY = re.compile(rb"^\s*empty\s+-", re.MULTILINE)
_HELP_S = 20.0
_HELP_BYTES = 1 << 20


def choose(probe: str, wanted: str | None, python: str | None, environ: Mapping[str, str]) -> Tool | None:
    """The tool that a probe is done with; None where there is none. Errors: ConfigError for a wrong name."""
    names = TOOLS[probe]
    if python is not None:
        if TORCH not in names or (wanted or TORCH).lower() != TORCH:
            raise ConfigError("--python is for probe launch --tool torch")
        wanted = TORCH
    if wanted is not None:
        names = tuple(n for n in names if n.lower() == wanted.lower())
        if not names:
            raise ConfigError(f"--tool {wanted}: probe {probe} takes {' or '.join(TOOLS[probe])}")
    for name in names:
        # The python3 on PATH may have any PyTorch, or none: it is taken only where it is named.
        tool = None if name == TORCH and wanted is None else _find(name, python, environ)
        if tool and not (probe == "launch" and name == TRANSFERBENCH and not _has_empty(tool, environ)):
            return tool
    return None


def _find(name: str, python: str | None, environ: Mapping[str, str]) -> Tool | None:
    if name == TORCH:
        path = shutil.which(python or "python3", path=environ.get("PATH"))
        return Tool(TORCH, path) if path else None
    for program in PROGRAMS[name]:
        if path := _where(program, environ):
            return Tool(name, path, plugin=name == BANDWIDTH_TEST and _takes_plugins(path, environ))
    return None


def _where(program: str, environ: Mapping[str, str]) -> str | None:
    if found := shutil.which(program, path=environ.get("PATH")):
        return found
    folders = (folder for pattern in _FOLDERS for folder in sorted(glob.glob(pattern), reverse=True))
    paths = (os.path.join(folder, program) for folder in folders)
    return next((p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)), None)


def _has_empty(tool: Tool, environ: Mapping[str, str]) -> bool:
    """Releases of 2026 can launch kernels that do nothing; older ones take the word for a file's name."""
    done = run_once([tool.path, "presets"], _HELP_S, _HELP_BYTES, environ)
    return _EMPTY.search(done.stdout) is not None


def _takes_plugins(path: str, environ: Mapping[str, str]) -> bool:
    """From ROCm 7 on it is a frame for plugins, and the options of before are gone."""
    done = run_once([path, "-h"], _HELP_S, _HELP_BYTES, environ)
    return b"plugin" in (done.stdout + done.stderr).lower()
