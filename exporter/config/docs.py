"""The configuration as a reference page; says nothing that the model does not say."""

from __future__ import annotations

from exporter.catalogue.docs import table
from exporter.config.keys import Key, keys, sections

_HEAD = """# Configuration

Generated from the configuration model by `make generate`; do not edit.

Everything has a default; no file is needed. Sources, each overruling the one before: defaults, the YAML file
(`--config FILE`), the environment, flags. `amdgpu-exporter serve --print-config` prints what results.

- A value that is not understood ends the start with one line that names where it stands. On reload it leaves
  the configuration in force as it is, and `amdgpu_exporter_config_last_reload_successful` turns 0.
- A key that is not known is left out with a warning that names the nearest one that is.
- Durations are text with a unit: `500ms`, `15s`, `2m`, `1h30m`, `24h`. A bare number is not a duration.
- SIGHUP or `POST /-/reload` takes a changed file. Keys marked "restart" keep their old value until then.
- An empty variable means none where a key may be none; elsewhere it is an error.
"""


def markdown() -> str:
    """Write the reference page: a table for the top level and one for each section."""
    parts = [_HEAD, "## Top level\n", _table([k for k in keys().values() if "." not in k.path])]
    for name, section in sections().items():
        parts += [f"## {name}\n", f"{section.__doc__}\n"]
        parts.append(_table([k for k in keys().values() if k.path.startswith(f"{name}.")]))
    return "\n".join(parts)


def _table(rows: list[Key]) -> str:
    header = ("Key", "Value", "Default", "Variable", "Flag", "Meaning", "Taken by")
    return table(
        header,
        [
            (
                f"`{k.path}`",
                k.expected,
                k.default,
                f"`{k.env}`",
                f"`{k.flag}`" if k.flag else "",
                k.info.description or "",
                "reload" if k.reloadable else "restart",
            )
            for k in rows
        ],
    )
