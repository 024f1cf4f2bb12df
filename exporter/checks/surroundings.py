"""What of a machine's fingerprint the GPUs do not say: kernel, ROCm, power profile, PyTorch of a job."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from exporter import fingerprint
from exporter.backends.sysfs import SysfsBackend
from exporter.catalogue import CATALOGUE
from exporter.catalogue.extract import Extractor
from exporter.command import Ending, run_once
from exporter.fingerprint import Host
from exporter.host import Root
from exporter.model import Device, Gap, Series, Value
from exporter.windows.place import node_name, power_profile, rocm

# Where PyTorch lies and what it says of itself, without importing it, which takes seconds and opens GPUs.
_ASK = """
import importlib.util, json, pathlib, re
spec = importlib.util.find_spec("torch")
text = (pathlib.Path(spec.origin).parent / "version.py").read_text() if spec and spec.origin else ""
def said(name):
    found = re.search(name + r"\\b[^=\\n]*=\\s*['\\"]([^'\\"]+)", text)
    return found and found[1]
print(json.dumps({"version": said("__version__"), "hip": said("hip")}))
"""
_ASK_S = 20.0
_ASK_BYTES = 1 << 16
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")


def take(
    sysfs: Root, procfs: Root, command: Sequence[str], environ: Mapping[str, str]
) -> tuple[list[Device], dict[str, Any]]:
    """The GPUs of the kernel's own files, and the fingerprint of the machine. No errors."""
    devices: list[Device] = []
    series: list[Series] = []
    values: list[Value] = []
    gaps: list[Gap] = []
    extractor = Extractor(CATALOGUE, SysfsBackend.name)
    for device, groups in SysfsBackend(sysfs, procfs).poll():
        devices.append(device)
        extractor.extract(device, groups, series, values, gaps)
    readings = dict(zip(series, values, strict=True))
    return devices, fingerprint.of(devices, readings, look(sysfs, devices, command, environ))


def look(sysfs: Root, devices: Sequence[Device], command: Sequence[str], environ: Mapping[str, str]) -> Host:
    """All that can be had quickly. ``command`` is the job whose Python is meant. No errors."""
    missing = {}
    torch, why = pytorch(command, environ)
    if torch is None:
        missing["pytorch"] = why
    profiles = {d.id.pci: p for d in devices if (p := power_profile(sysfs, d))}
    if not profiles:
        missing["power profile"] = "the driver shows none"
    return Host(node_name(environ), os.uname().release, rocm(environ), torch, profiles, missing)


def pytorch(
    command: Sequence[str], environ: Mapping[str, str]
) -> tuple[Mapping[str, str | None] | None, str]:
    """The PyTorch of a job's own Python, or why there is none to tell of."""
    python = python_of(command, environ)
    if python is None:
        return None, "the command is no Python"
    done = run_once([python, "-c", _ASK], _ASK_S, _ASK_BYTES, environ)
    if done.outcome is not Ending.EXITED or done.code != 0:
        return None, f"{python} does not tell"
    try:
        found = json.loads(done.stdout.splitlines()[-1])
        version, hip = found["version"], found["hip"]
    except (ValueError, IndexError, KeyError, TypeError):
        return None, f"{python} does not tell"
    return ({"version": version, "hip": hip}, "") if version else (None, f"not in {python}")


def python_of(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """The interpreter that a command starts: itself, or that of the script it is."""
    path = shutil.which(command[0], path=environ.get("PATH")) if command else None
    if path is None or _PYTHON.fullmatch(os.path.basename(path)):
        return path
    try:
        with open(path, "rb") as file:
            first = file.readline(256).decode("utf-8", "replace")
    except OSError:
        return None
    words = first[2:].split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [w for w in words[1:] if not w.startswith("-")]
    if not words or not _PYTHON.fullmatch(os.path.basename(words[0])):
        return None
    return shutil.which(words[0], path=environ.get("PATH"))
