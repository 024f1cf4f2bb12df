"""What a running daemon may take from a new configuration, and how a configuration is written down."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from exporter.config.keys import keys
from exporter.config.settings import Config


def dump(config: Config) -> str:
    """Write ``config`` as YAML that ``load`` reads back to an equal one."""
    import yaml

    return yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True)


def schema() -> dict[str, Any]:
    """Return the JSON schema of the YAML file."""
    found = Config.model_json_schema()
    for key in keys().values():
        if key.kind == "duration" and key.info.default_factory is None:
            # pydantic leaves a default as the number that it is inside
            properties = found["$defs"][key.section.__name__]["properties"]
            properties[key.path.rpartition(".")[2]]["default"] = key.default
    return found


def restart_required(old: Config, new: Config) -> tuple[str, ...]:
    """Return the keys that differ and that only a restart can take."""
    return tuple(
        path for path, key in keys().items() if not key.reloadable and _get(old, path) != _get(new, path)
    )


def merge_reload(old: Config, new: Config) -> Config:
    """Return ``new``, with the values of ``old`` where only a restart can change them."""
    return _merge(old, new, "")


S = TypeVar("S", bound=BaseModel)


def _merge(old: S, new: S, prefix: str) -> S:
    kept: dict[str, Any] = {}
    for name in type(new).model_fields:
        key = keys().get(prefix + name)
        if key is None:
            kept[name] = _merge(getattr(old, name), getattr(new, name), f"{prefix}{name}.")
        elif not key.reloadable:
            kept[name] = getattr(old, name)
    return new.model_copy(update=kept)


def _get(config: Config, path: str) -> Any:
    value: Any = config
    for part in path.split("."):
        value = getattr(value, part)
    return value
