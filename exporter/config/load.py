"""Where configuration comes from: defaults, YAML file, environment, flags, each overruling the one before.

Never falls back: a value that is not understood ends the load with one line that says where it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from exporter.config.keys import ENV_PREFIX, Key, keys, sections
from exporter.config.settings import Config
from exporter.model import ConfigError

# Not configuration: where tests find samples, where the command line finds the file.
_OTHER_VARIABLES = frozenset({f"{ENV_PREFIX}SAMPLES", f"{ENV_PREFIX}CONFIG"})
# Kubernetes puts these into every pod beside a Service called amdgpu-exporter.
_SERVICE_LINK = re.compile(
    ENV_PREFIX + r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
_SIZE_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and one line for each thing in it that was not used."""

    config: Config
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Given:
    """A value and the words that say where it stands."""

    value: Any
    origin: str


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Read the configuration from all its sources.

    ``flags`` maps dotted keys to texts; None is a flag that was not given.
    Errors: ConfigError, one line, for anything but an unknown key, which is a warning.
    """
    warnings: list[str] = []
    given: dict[str, _Given] = {}
    if file is not None:
        given.update(_from_file(file, warnings))
    given.update(_from_environ(environ or {}, warnings))
    given.update(_from_flags(flags or {}))
    tree: dict[str, Any] = {}
    for path, one in given.items():
        section, _, name = path.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[name] = one.value
    config = Config.model_validate(tree)
    for path, problem in _conflicts(config):
        origin = given[path].origin if path in given else "configuration"
        raise ConfigError(f"{origin}: {path}: {problem}")
    return Loaded(config, tuple(warnings))


def state_directory(config: Config, environ: Mapping[str, str]) -> Path:
    """Return the folder for what outlives a restart; it may not exist yet."""
    if config.state_dir is not None:
        return Path(config.state_dir)
    if named := environ.get("STATE_DIRECTORY"):
        return Path(named.split(":")[0])  # systemd lists several with colons
    system = Path("/var/lib/amdgpu-exporter")
    if os.access(system if system.exists() else system.parent, os.W_OK | os.X_OK):
        return system
    base = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME") or "/", ".local", "state")
    return Path(base) / "amdgpu-exporter"


def _from_file(file: Path, warnings: list[str]) -> Iterator[tuple[str, _Given]]:
    from exporter.config.yaml_file import read  # yaml stays out of a process without a file

    try:
        with file.open("rb") as stream:
            blob = stream.read(_SIZE_LIMIT + 1)
    except OSError as e:
        raise ConfigError(f"{file}: cannot be read: {e.strerror or e}") from None
    if len(blob) > _SIZE_LIMIT:
        raise ConfigError(f"{file}: larger than {_SIZE_LIMIT} bytes; is this the right file?")
    known = sections()
    found = list(read(blob, str(file), frozenset(known)))
    if not found:
        warnings.append(f"{file}: sets nothing, so the defaults hold")
    for path, value, line in found:
        origin = f"{file}:{line}"
        if path in known:
            raise ConfigError(
                f"{origin}: {path}: expected a section with keys such as "
                f"{', '.join(list(known[path].model_fields)[:3])}, got {_show(value)}"
            )
        if key := keys().get(path):
            yield path, _Given(_check(key, value, origin), origin)
        else:
            warnings.append(f"{origin}: unknown key {path}, ignored{_nearest(path)}")


def _from_environ(environ: Mapping[str, str], warnings: list[str]) -> Iterator[tuple[str, _Given]]:
    for variable in sorted(environ):
        if (
            not variable.startswith(ENV_PREFIX)
            or variable in _OTHER_VARIABLES
            or _SERVICE_LINK.fullmatch(variable)
        ):
            continue
        path = variable.removeprefix(ENV_PREFIX).lower().replace("__", ".")
        if key := keys().get(path):
            yield path, _Given(_check(key, key.read_text(environ[variable]), variable), variable)
        else:
            near = _nearest(path, _variable)
            warnings.append(f"environment: unknown variable {variable} (key {path}), ignored{near}")


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, _Given]]:
    for path, value in flags.items():
        if value is None:
            continue
        key = keys().get(path)
        if key is None:
            raise ConfigError(f"flag --{path}: unknown key {path}{_nearest(path)}")
        origin = f"flag {key.flag or '--' + path}"
        text = os.fspath(value) if isinstance(value, os.PathLike) else str(value)
        yield path, _Given(_check(key, key.read_text(text), origin), origin)


def _check(key: Key, value: Any, origin: str) -> Any:
    try:
        return key.check(value)
    except ValueError:
        listed = key.kind == "list" and isinstance(value, list)
        wrong = next(filter(key.wrong, value), value) if listed else value
        got = "something else" if key.secret else _show(wrong)
        raise ConfigError(f"{origin}: {key.path}: expected {key.expected}, got {got}") from None


def _conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Pairs of values that are right alone and wrong together."""
    if config.poll.max_age < config.poll.interval:
        yield "poll.max_age", "expected at least poll.interval, or readings end before the next poll"
    if config.windows.gauge_max_age < config.windows.interval:
        yield (
            "windows.gauge_max_age",
            "expected at least windows.interval, or gauges end before the next window",
        )
    if config.windows.preset == "canary" and not config.windows.command:
        yield "windows.preset", "canary needs windows.command, the command that it profiles"
    if config.windows.preset == "attach" and not config.windows.allow:
        yield "windows.preset", "attach needs windows.allow, the names of processes it may attach to"
    if config.capture is not None and config.backend != "replay":
        yield "capture", f"only backend replay reads a capture, and backend is {config.backend}"


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _variable(path: str) -> str:
    return ENV_PREFIX + path.upper().replace(".", "__")


def _nearest(path: str, name: Callable[[str], str] = str) -> str:
    """Words that name the known key closest to ``path``: by its whole path, else by its last part."""
    if path in sections():
        first = next(k for k in keys() if k.startswith(f"{path}."))
        return f"; it is a section, with keys such as {name(first)}"
    known = [*keys(), *sections()]
    near = get_close_matches(path, known, 1, 0.75)
    if not near:
        tails = {k.rpartition(".")[2]: k for k in reversed(known)}
        near = [tails[t] for t in get_close_matches(path.rpartition(".")[2], tails, 1, 0.75)]
    return f"; did you mean {name(near[0])}?" if near else "; docs/CONFIG.md lists all keys"
