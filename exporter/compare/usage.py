"""The options of the verb ``compare``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: amdgpu-exporter compare before/ after/ --format markdown"


def compare(
    a: Annotated[str, typer.Argument(help="Before: folder of windows, marked phase, or SINCE..UNTIL.")],
    b: Annotated[str, typer.Argument(help="After: the same.")],
    form: Annotated[str, typer.Option("--format", help="text, markdown, html or json.")] = "text",
    fail_on: Annotated[str, typer.Option(help="worse, or never: exit 0 whatever is found.")] = "worse",
    changed: Annotated[
        list[str] | None, typer.Option(help="What was meant to change, such as driver; repeat for more.")
    ] = None,
    least_effect: Annotated[float, typer.Option(help="Smallest change that counts, as a ratio.")] = 0.02,
    config: Annotated[Path | None, typer.Option("--config", help="Configuration file (YAML).")] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="Take phases and time ranges from this Prometheus, not the history.")
    ] = None,
    match: Annotated[
        str, typer.Option(help='Only series with these labels, such as instance="node7:9408".')
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token for --prometheus.")
    ] = None,
) -> None:
    """Say whether a change helped: better, worse, no clear change, or not comparable and why.

    Exit 0 no regression, 3 regression, 4 not comparable. docs/COMPARE.md says how it is decided.
    """
    from exporter.compare import verb
    from exporter.compare.past import Past
    from exporter.compare.prometheus import Place, Scrapes
    from exporter.config import load, state_directory
    from exporter.model import ConfigError

    def kept() -> verb.Kept:
        if prometheus is not None:
            return Scrapes(Place(prometheus, match, token_file))
        return Past(state_directory(load(config, os.environ, {}).config, os.environ))

    if prometheus is None and (match or token_file):
        raise ConfigError("--match and --token-file go with --prometheus")
    wish = verb.Wish(a, b, form, fail_on, tuple(changed or ()), least_effect)
    raise typer.Exit(verb.run(wish, kept))
