"""One file with all that a maintainer needs, and nothing that tells whose machine it is."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import pwd
import socket
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from exporter import __version__
from exporter.checks import check, devices
from exporter.checks.finding import Finding
from exporter.checks.machine import Machine
from exporter.checks.mask import TextMask
from exporter.checks.record import Mask, record
from exporter.config import Config, dump
from exporter.config.keys import keys
from exporter.host import Root
from exporter.model import ConfigError

SIZE_LIMIT = 32 * 1024 * 1024
LOG_LINES = 500
_LOG_BYTES = 1024 * 1024
_PACKAGES = ("prometheus-client", "psutil", "fastapi", "uvicorn", "httptools", "pyyaml", "pydantic", "typer")


def write(machine: Machine, findings: Sequence[Finding], dest: Path, log: Path | None = None) -> list[str]:
    """Write the bundle to ``dest``, a new file; returns the names of what is in it.

    Errors: ConfigError where the file is there already or cannot be written, the log cannot be read, or it
    would be larger than ``SIZE_LIMIT``; nothing is left behind then.
    """
    if dest.exists() or dest.is_symlink():
        raise ConfigError(f"{dest}: is there already; name a new file")
    mask = Mask()
    texts = TextMask(mask, _unique_ids(machine), _words(machine))
    members = _members(machine, findings, log)
    with tempfile.TemporaryDirectory(prefix="amdgpu-exporter-") as scratch:
        try:
            if not machine.answers:
                raise ConfigError("no capture: the files of the GPUs could not be read in time")
            record(machine.sysfs, machine.procfs or Root(scratch), Path(scratch) / "capture", mask=mask)
        except ConfigError as e:
            members["no-capture.txt"] = f"{e}\n".encode()
        files: dict[str, bytes | str | None] = {name: _clean(data, texts) for name, data in members.items()}
        files |= _tree(Path(scratch), texts)
    size = sum(len(data or "") for data in files.values())
    if size > SIZE_LIMIT:
        raise ConfigError(f"{dest}: would hold {size} bytes, more than {SIZE_LIMIT}; leave out --log")
    try:
        _pack(dest, files)
    except OSError as e:
        raise ConfigError(f"{e.filename or dest}: {e.strerror}; name a file that can be written") from e
    return sorted(files)


def _members(machine: Machine, findings: Sequence[Finding], log: Path | None) -> dict[str, bytes]:
    settings = machine.settings
    members = {
        "check.json": _json(check.as_json(machine, findings)),
        "devices.json": _json(devices.as_json(machine.devices)),
        "config.yaml": dump(without_secrets(settings.config)).encode(),
        "versions.json": _json(_versions(machine)),
    }
    if machine.daemon:
        members["metrics.txt"] = machine.daemon.encode()
    if log is not None:
        members["log.txt"] = _last_lines(log)
    return members


def without_secrets(config: Config) -> Config:
    """The same with ``(set)`` where a secret, or the way to one, stands."""
    for path, key in keys().items():
        extra = key.info.json_schema_extra
        section, _, name = path.rpartition(".")
        holder = getattr(config, section) if section else config
        if isinstance(extra, dict) and extra.get("x-secret") and getattr(holder, name) is not None:
            changed = holder.model_copy(update={name: "(set)"})
            config = config.model_copy(update={section: changed}) if section else changed
    return config


def _versions(machine: Machine) -> dict[str, Any]:
    release = machine.files.text("etc/os-release") or ""
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "exporter": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": next(
            (v for line in release.splitlines() if (v := line.partition("PRETTY_NAME=")[2])), None
        ),
        "rocm": machine.rocm() if machine.live else None,
        "tools": {name: {"path": t.path, "version": t.version} for name, t in machine.tools.items()},
        "packages": packages,
    }


def _last_lines(log: Path) -> bytes:
    try:
        with log.open("rb") as f:
            f.seek(max(0, f.seek(0, os.SEEK_END) - _LOG_BYTES))
            lines = f.read(_LOG_BYTES).splitlines(keepends=True)
    except OSError as e:
        raise ConfigError(f"--log {log}: {e.strerror}") from e
    return b"".join(lines[-LOG_LINES:])


def _unique_ids(machine: Machine) -> Iterator[int]:
    for device in (*machine.devices, *(p.device for s in machine.sockets() for p in s.parts)):
        if device.uuid:
            try:
                yield int(device.uuid, 16)
            except ValueError:
                continue
    for node in machine.sysfs.listdir("class/kfd/kfd/topology/nodes"):
        text = machine.sysfs.text(f"class/kfd/kfd/topology/nodes/{node}/properties") or ""
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name in ("unique_id", "hive_id") and value.isdecimal():
                yield int(value)


def _words(machine: Machine) -> Iterator[tuple[str, str]]:
    """Names that tell whose machine it is: (kind, word)."""
    hosts = [socket.gethostname(), platform.node()]
    if machine.procfs:
        hosts.append(machine.procfs.text("sys/kernel/hostname") or "")
    hosts.append(machine.files.text("etc/hostname") or "")
    for host in hosts:
        yield from (("host", name) for name in dict.fromkeys((host, host.partition(".")[0])) if name)
    users = [machine.user, *(machine.environ.get(k, "") for k in ("USER", "LOGNAME", "SUDO_USER"))]
    users += [entry.pw_name for entry in pwd.getpwall() if 1000 <= entry.pw_uid < 65534]
    yield from (("user", user) for user in users if user)
    for device in machine.devices:
        if device.serial:
            yield "serial", device.serial
        if device.uuid and not _is_hex(device.uuid):
            yield "uuid", device.uuid
    for s in machine.sockets():
        if s.path and (serial := machine.sysfs.text(f"{s.path}/serial_number")):
            yield "serial", serial


def _is_hex(text: str) -> bool:
    try:
        int(text, 16)
    except ValueError:
        return False
    return True


def _clean(data: bytes, texts: TextMask) -> bytes:
    """Text with its identifiers masked; what is no text stays as it is."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    return data if "\0" in text else texts.text(text).encode()


def _tree(scratch: Path, texts: TextMask) -> dict[str, bytes | str | None]:
    """Files as bytes, links as where they lead, folders as None: an empty one tells of a device too."""
    found: dict[str, bytes | str | None] = {}
    for folder, folders, names in os.walk(scratch):
        for name in (*names, *folders):
            path = Path(folder) / name
            rel = str(path.relative_to(scratch))
            if path.is_symlink():
                found[rel] = os.readlink(path)
            else:
                found[rel] = None if path.is_dir() else _clean(path.read_bytes(), texts)
    return found


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def _pack(dest: Path, files: dict[str, bytes | str | None]) -> None:
    """A tar that says nothing of who made it; ``dest`` must be new, and is for its owner only."""
    fd = os.open(dest, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as tar:
            for name, data in sorted(files.items()):
                entry = tarfile.TarInfo(f"amdgpu-exporter-report/{name}")
                if data is None:
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
                elif isinstance(data, str):
                    entry.type, entry.linkname = tarfile.SYMTYPE, data
                    tar.addfile(entry)
                else:
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
    except OSError:
        dest.unlink(missing_ok=True)
        raise
