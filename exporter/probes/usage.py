"""The options of the verb ``probe``."""

from __future__ import annotations

from typing import Annotated

import typer

from exporter import options

EXAMPLE = "Example: amdgpu-exporter probe bandwidth"


def probe(
    what: Annotated[str, typer.Argument(help="bandwidth, gemm or launch.")],
    tool: Annotated[
        str | None, typer.Option(help="TransferBench, rocm-bandwidth-test, rocblas-bench or torch.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="Python that has PyTorch for ROCm, for launch with --tool torch.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure although a GPU is in use.")] = False,
    deadline: Annotated[str | None, typer.Option(help="Time each call of the tool may take.")] = None,
    json: options.Json = False,
    config: options.ConfigFile = None,
    sysfs: options.Sysfs = None,
    procfs: options.Procfs = None,
) -> None:
    """Measure copies, matrix products or launches with the vendor's tools; a baseline of this node.

    The result is kept in the state folder, and the daemon exports it with its time. It refuses while a GPU is
    in use. Exit 0 with values, 1 without, with the reason. docs/PROBE.md says which tool measures what.
    """
    import logging

    from exporter.probes import verb

    seconds = options.seconds("--deadline", deadline) if deadline else None
    loaded = options.load(config, sysfs, procfs).config
    logging.disable(logging.ERROR)  # what a child says is in the answer
    raise typer.Exit(verb.run(verb.Wish(what, tool, python, force, seconds), loaded, json))
