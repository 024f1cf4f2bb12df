"""The verbs. Each gathers its options and calls the module that does the work."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exporter import __version__, options
from exporter.compare import usage
from exporter.model import ConfigError, SourceError
from exporter.probes import usage as probing

if TYPE_CHECKING:
    from exporter import config as configuration

app = typer.Typer(
    name="amdgpu-exporter",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Prometheus exporter for AMD GPUs that says not only that a GPU is slow but why.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("compare", epilog=usage.EXAMPLE)(usage.compare)
app.command("probe", epilog=probing.EXAMPLE)(probing.probe)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"amdgpu-exporter {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog="Example: amdgpu-exporter serve --listen :9408 --interval 5s")
def serve(
    config: Annotated[Path | None, typer.Option(help="Configuration file (YAML).")] = None,
    listen: Annotated[str | None, typer.Option(help="ADDRESS:PORT to serve on [127.0.0.1:9408].")] = None,
    backend: Annotated[str | None, typer.Option(help="auto, amdsmi, sysfs, smi_cli or replay.")] = None,
    capture: Annotated[str | None, typer.Option(help="Capture folder for --backend replay.")] = None,
    sysfs: options.Sysfs = None,
    procfs: options.Procfs = None,
    debugfs: Annotated[str | None, typer.Option("--path.debugfs", help="Mount point of debugfs.")] = None,
    interval: Annotated[str | None, typer.Option(help="Time between polls, such as 5s.")] = None,
    web_config: Annotated[
        str | None,
        typer.Option("--web.config.file", help="TLS, users and headers, as Prometheus' exporters have it."),
    ] = None,
    print_config: Annotated[bool, typer.Option(help="Print the configuration in force and end.")] = False,
) -> None:
    """Run the daemon: poll the GPUs and serve /metrics."""
    from exporter import config as configuration

    flags: dict[str, Any] = {
        "listen": listen,
        "backend": backend,
        "capture": capture,
        "path.sysfs": sysfs,
        "path.procfs": procfs,
        "path.debugfs": debugfs,
        "poll.interval": interval,
        "web.config_file": web_config,
    }
    flags = {key: value for key, value in flags.items() if value is not None}

    def load() -> configuration.Loaded:
        return configuration.load(config, os.environ, flags)

    loaded = load()
    for warning in loaded.warnings:
        typer.echo(f"amdgpu-exporter: warning: {warning}", err=True)
    if print_config:
        typer.echo(configuration.dump(loaded.config), nl=False)
        return
    from exporter import service

    service.serve(loaded.config, load)


@app.command(epilog="Example: amdgpu-exporter devices --json")
def devices(
    json: options.Json = False,
    sysfs: options.Sysfs = None,
    procfs: options.Procfs = None,
    everything: Annotated[bool, typer.Option("--all", help="Show integrated GPUs too.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget GPUs that were here and are taken out for good.")
    ] = False,
    config: options.ConfigFile = None,
) -> None:
    """List every GPU with all its names side by side. Exit 1 if there is none."""
    if forget:
        options.forget(config, sysfs)
    from exporter.backends.sysfs import SysfsBackend
    from exporter.checks import devices as table
    from exporter.host import Root

    found = options.roots(sysfs, procfs)
    backend = SysfsBackend(Root(found[0]), Root(found[1]), show_integrated=everything)
    listed = [device for device, _ in backend.poll()]
    options.print_json(table.as_json(listed)) if json else typer.echo(table.table(listed))
    if not listed:
        typer.echo(f"amdgpu-exporter: no AMD GPU under {found[0]}", err=True)
        raise typer.Exit(1)


@app.command(epilog="Example: amdgpu-exporter check --bundle report.tar.gz")
def check(
    json: options.Json = False,
    bundle: Annotated[
        Path | None, typer.Option(help="Also pack all that a maintainer needs into this new .tar.gz, masked.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Log whose end goes into the bundle.")] = None,
    config: options.ConfigFile = None,
    sysfs: options.Sysfs = None,
    procfs: options.Procfs = None,
) -> None:
    """Say what works here, what does not, and the command that mends it.

    Exit 0 fine, 1 degraded, 2 broken. docs/CHECK.md lists every finding and the form of --json.
    """
    import logging

    from exporter import sources
    from exporter.checks import bundle as bundles
    from exporter.checks import check as checks
    from exporter.checks.gather import gather

    logging.disable(logging.CRITICAL)  # what a daemon would log is in the findings
    machine = gather(options.settings(config, sysfs, procfs), os.environ, sources.each)
    findings = checks.run(machine)
    options.print_json(checks.as_json(machine, findings)) if json else typer.echo(checks.text(findings))
    if bundle:
        bundles.write(machine, findings, bundle, log)
        typer.echo(f"wrote {bundle}; look into it before you send it", err=True)
    raise typer.Exit(checks.exit_code(findings))


@app.command(epilog="Example: amdgpu-exporter health --over 10s")
def health(
    json: options.Json = False,
    config: options.ConfigFile = None,
    sysfs: options.Sysfs = None,
    procfs: options.Procfs = None,
    over: Annotated[str | None, typer.Option(help="Look twice, this far apart, to see what rises.")] = None,
) -> None:
    """Say of each GPU: healthy, degraded, unhealthy or unknown, and why.

    One line, or JSON with every reason. Exit 0 healthy, 1 not, 2 unknown, as node-problem-detector reads it.
    """
    import asyncio
    import logging

    from exporter import sources
    from exporter.checks import health as rules
    from exporter.checks import poll

    loaded = options.load(config, sysfs, procfs).config
    logging.disable(logging.ERROR)  # what a daemon would log is in the answer
    asked = sources.build(loaded)[0]
    verdicts = asyncio.run(poll.ask(asked, again_after_s=options.seconds("--over", over) if over else 0.0))
    expected = loaded.devices.expected
    if expected is None and loaded.backend != "replay":
        expected = options.remembered(loaded).most
    states = poll.states(asked)
    if json:
        options.print_json(rules.as_json(verdicts, expected, states))
    else:
        typer.echo(rules.line(verdicts, expected, states))
    raise typer.Exit(rules.exit_code(rules.overall(verdicts, expected, states)[0]))


@app.command(epilog="Example: amdgpu-exporter analyze /tmp/rocprof-out --json")
def analyze(
    paths: Annotated[list[Path], typer.Argument(help="Profiler output: files or folders.")],
    json: options.Json = False,
) -> None:
    """Reduce profiler output to queue time, timeline, bottleneck, top kernels and counter ratios.

    Known by content: rocprofv3 tables, JSON and rocpd databases; rocprof v1, rocprofv2 and roctracer output;
    folders of rocprof-compute and omniperf; PyTorch traces. All but databases also as .gz.
    """
    from exporter.checks.analyze import run

    raise typer.Exit(run(paths, json))


@app.command(
    epilog="Example: amdgpu-exporter run --every 10m -- python train.py",
    context_settings={"allow_interspersed_args": False},
)
def run(
    command: Annotated[list[str], typer.Argument(help="The job: a command and its arguments.")],
    every: Annotated[str, typer.Option(help="Time between two windows.")] = "5m",
    length: Annotated[str, typer.Option(help="Length of one window.")] = "1s",
    windows: Annotated[int, typer.Option(help="How many windows at most.", min=1, max=1000)] = 12,
    spool: Annotated[Path | None, typer.Option(help="The daemon's spool folder.")] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Run it cold and warm, and write what it took to this .md and the .json beside."),
    ] = None,
    repeat: Annotated[int, typer.Option(help="How many warm runs for --report.", min=1, max=1000)] = 5,
    items: Annotated[float | None, typer.Option(help="How much one run does, such as images.", min=0)] = None,
    config: options.ConfigFile = None,
) -> None:
    """Run a job with profiling windows built in; they go to the daemon when it ends.

    The job's terminal, signals and exit code are its own. It needs rocprofv3 of ROCm 6.4 or later; if that or
    anything else is missing, one line on stderr says so, and the job runs without.

    With --report it is a benchmark for a model card: docs/PROBE.md says what is run and measured.
    """
    if report is not None:
        from exporter.cards import verb

        raise typer.Exit(verb.main(verb.Wish(tuple(command), report, repeat, items, length), config))
    from exporter.checks import run as jobs

    raise typer.Exit(jobs.main(command, (every, length, windows), config, spool))


@app.command(epilog="Example: amdgpu-exporter mark new-driver")
def mark(
    phase: Annotated[str, typer.Argument(help="Name of the phase that begins now.")],
    url: Annotated[str | None, typer.Option(help="Address of the daemon [http://127.0.0.1:9408].")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token for POST.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificate of the authority, for https.")] = None,
    config: options.ConfigFile = None,
) -> None:
    """Name the phase from now on, so that before and after a change can be compared."""
    from exporter.checks import mark as marks

    loaded = options.load(config, None, None).config
    typer.echo(marks.mark(phase, url or marks.address(loaded.listen), token_file, ca_file))


@app.command(
    epilog="Example: amdgpu-exporter sample --pid 4711 --duration 500ms",
    context_settings={"allow_interspersed_args": False},
)
def sample(
    command: Annotated[list[str] | None, typer.Argument(help="A command to trace, after --.")] = None,
    pid: Annotated[int | None, typer.Option(help="Process to trace; it must be prepared.", min=1)] = None,
    mode: Annotated[str | None, typer.Option(help="counters or trace.")] = None,
    duration: Annotated[str, typer.Option(help="Length of the window.")] = "1s",
    json: options.Json = False,
    config: options.ConfigFile = None,
    sysfs: options.Sysfs = None,
    procfs: options.Procfs = None,
) -> None:
    """Take one profiling window now, under the rules of the daemon, and print what it says.

    Of a process that was started with ROCP_TOOL_ATTACH=1 (--pid), of a command (after --), or the counters of
    every GPU. Exit 1 where no window is taken, with the reason.
    """
    import logging

    from exporter import sources
    from exporter.checks import sample as samples

    chosen = mode or ("trace" if pid or command else "counters")
    if chosen not in ("counters", "trace"):
        raise ConfigError(f"--mode {chosen}: expected counters or trace")
    if chosen == "counters" and (pid or command):
        raise ConfigError("--mode counters: counters are of whole GPUs; leave --pid and the command out")
    wish = samples.Wish(chosen, options.seconds("--duration", duration), pid, tuple(command or ()))
    loaded = options.load(config, sysfs, procfs).config
    logging.disable(logging.ERROR)  # what a daemon would log is in the answer
    raise typer.Exit(samples.run(wish, loaded, sources.build(loaded)[0], json))


@app.command(epilog="Example: amdgpu-exporter record ./my-node --frames 12 --every 5s")
def record(
    dest: Annotated[Path, typer.Argument(help="New folder for the capture.")],
    frames: Annotated[int, typer.Option(help="How often to read.", min=1)] = 1,
    every: Annotated[str, typer.Option(help="Time between two frames.")] = "5s",
    sysfs: options.Sysfs = None,
    procfs: options.Procfs = None,
) -> None:
    """Make a capture of this machine, identifiers masked, for replay, tests and bug reports."""
    from exporter.checks.record import record as make
    from exporter.host import Root

    seconds = options.seconds("--every", every)
    found = options.roots(sysfs, procfs)
    make(Root(found[0]), Root(found[1]), dest, frames, seconds)
    typer.echo(f"captured to {dest}; replay it with: amdgpu-exporter serve --backend replay --capture {dest}")


@app.command(epilog="Example: amdgpu-exporter metrics --format json")
def metrics(
    form: Annotated[str, typer.Option("--format", help="markdown or json.")] = "markdown",
) -> None:
    """Print the catalogue of metrics."""
    from exporter.catalogue import CATALOGUE, docs

    if form == "json":
        options.print_json(docs.as_json(CATALOGUE))
    elif form == "markdown":
        typer.echo(docs.markdown(CATALOGUE), nl=False)
    else:
        raise ConfigError(f"--format {form}: expected markdown or json")


def main() -> None:
    """Run a verb. Bad usage and bad configuration end in one line on stderr and exit 2."""
    try:
        code = app(prog_name="amdgpu-exporter", standalone_mode=False)
    except (ConfigError, SourceError) as e:
        _end(str(e))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except Exception as e:
        # typer carries its own copy of click; its usage errors are known by what they can do.
        if not hasattr(e, "format_message"):
            raise
        verb = getattr(getattr(e, "ctx", None), "command_path", "amdgpu-exporter")
        _end(f"{e.format_message().rstrip('.')}; see {verb} --help")
    sys.exit(code if isinstance(code, int) else 0)


def _end(message: str) -> None:
    sys.stderr.write(f"amdgpu-exporter: error: {' '.join(message.split())}\n")
    sys.exit(2)
