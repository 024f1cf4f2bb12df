"""What can be configured: one frozen section per component, each key with its meaning, default and bounds.

Never reads a file or the environment; that is ``load``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator

from exporter.catalogue import CATALOGUE
from exporter.catalogue.select import pointless
from exporter.config.durations import Duration
from exporter.config.owners import LabelsSection, OwnersSection
from exporter.config.section import PathText, Ratio, Section
from exporter.config.section import declare as _key
from exporter.config.windows import AdviceSection, WindowsSection
from exporter.windows.bottleneck import Thresholds

_LIMITS = Thresholds()


def split_listen(text: str) -> tuple[str, int]:
    """Return host and port of ``ADDRESS:PORT``; an empty host means every interface.

    Errors: ValueError where it is not that.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if (
        not colon
        or not port.isascii()
        or not port.isdigit()
        or int(port) > 65535
        or (":" in host and not bracketed)
    ):
        raise ValueError("expected ADDRESS:PORT")
    return (host[1:-1] if bracketed else host), int(port)


def _listen(text: str) -> str:
    split_listen(text)
    return text


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := pointless(CATALOGUE, names):
        raise ValueError(f"no metric and no group is called {unknown[0]}")
    return names


Listen = Annotated[str, AfterValidator(_listen)]

# A list, so that it can also be given as one text with commas.
Names = Annotated[tuple[str, ...], AfterValidator(_names)]


class PathSection(Section):
    """Where the kernel's file systems are mounted."""

    sysfs: PathText = _key(
        "/sys", "Mount point of sysfs, or a captured copy.", flag="--path.sysfs", reload=False
    )
    procfs: PathText = _key("/proc", "Mount point of procfs.", flag="--path.procfs", reload=False)
    debugfs: PathText = _key(
        "/sys/kernel/debug", "Mount point of debugfs.", flag="--path.debugfs", reload=False
    )


class PollSection(Section):
    """How often GPUs are read, and how long an answer may take and live."""

    interval: Duration = _key(5.0, "Time between two polls of the GPUs.", flag="--interval", ge=0.05, le=3600)
    deadline: Duration = _key(
        2.0, "Time after which a poll that has not answered counts as failed.", ge=0.01, le=600
    )
    max_age: Duration = _key(
        lambda data: 3 * data["interval"],
        "Age at which readings are withdrawn when no newer poll has succeeded; at least the interval.",
        derived="3 × poll.interval",
        ge=0.05,
    )


class AmdsmiSection(Section):
    """The driver library, for backend amdsmi."""

    error_records: Duration | None = _key(
        None,
        "Time between two looks at the driver's error records (CPER); none: never. Needs root and ROCm 7.14 "
        "or later: libraries before it crash on records and are not asked.",
        reload=False,
        ge=5,
        le=86_400,
    )


class SmiCliSection(Section):
    """The command line tools, for backend smi_cli."""

    tool: PathText | None = _key(
        None, "amd-smi or rocm-smi to run; none: the first on PATH or in /opt/rocm/bin.", reload=False
    )
    deadline: Duration = _key(
        10.0,
        "Time for all the commands of one poll, in place of poll.deadline.",
        reload=False,
        ge=1,
        le=600,
    )


class DevicesSection(Section):
    """Which GPUs count."""

    expected: int | None = _key(
        None, "Number of GPUs (PCI functions) that should be here; none: what was seen before.", ge=0, le=4096
    )
    integrated: Literal["auto", "show"] = _key(
        "auto", "Integrated GPUs: show them, or hide them beside discrete ones (auto).", reload=False
    )


class MetricsSection(Section):
    """Which readings are taken from the GPUs. What is switched off is not read either."""

    disable: Names = _key(
        (),
        "Metrics that are not wanted, by name (`xgmi_*`, `amdgpu_clock_hertz`), and groups of raw readings "
        "or parts of one that are not to be read for any metric, as docs/METRICS.md has them under From "
        "(`processes`, `ras`; of single dies: `gpu_metrics.clocks`, `gpu_metrics.temperatures`).",
        reload=False,
    )
    dies: bool = _key(False, "Series of their own for the dies of a GPU: busy by XCC.", reload=False)


class KernelsSection(Section):
    """Which kernels get series of their own."""

    top: int = _key(10, "Kernels per GPU with a series of their own (count).", ge=0, le=1000)
    top_many_devices: int = _key(5, "The same on a node with more than 16 devices (count).", ge=0, le=1000)
    forget_after: Duration = _key(86_400.0, "Time unseen after which a kernel's series ends.", ge=1)


class BottleneckSection(Section):
    """From where on a window is called what, in the order in which the verdicts are tried (ratios 0 to 1)."""

    communication: Ratio = _key(
        _LIMITS.communication, "communication: exposed collectives, of the window (ratio)."
    )
    gpu_bound: Ratio = _key(_LIMITS.gpu_bound, "gpu_bound: executing, of the window (ratio).")
    idle_share: Ratio = _key(
        _LIMITS.idle_share,
        "contended, copy_bound, dependency_bound, launch_bound: their part of the idle time (ratio).",
    )
    graph_share: Ratio = _key(
        _LIMITS.graph_share, "dependency_bound: kernels of graphs, of the execution (ratio)."
    )
    launching_little: Ratio = _key(
        _LIMITS.launching_little,
        "dependency_bound, without graphs: launching, at most this much of the idle time (ratio).",
    )
    launches_least: int = _key(_LIMITS.launches_least, "launch_bound: paired launches needed (count).", ge=1)
    starved: Ratio = _key(_LIMITS.starved, "host_stalled: starved, of the window (ratio).")
    skewed_most: Ratio = _key(
        _LIMITS.skewed_most,
        "Pairs with a negative queue time, of all, above which a window has no queue values (ratio).",
    )

    @property
    def thresholds(self) -> Thresholds:
        """The same as the reducer takes it."""
        return Thresholds(**self.model_dump())


class HistorySection(Section):
    """What is kept of windows on disk, in the state folder."""

    enabled: bool = _key(
        True, "Keep windows, so that they can be compared and totals outlive a restart.", reload=False
    )
    max_bytes: int = _key(
        2 * 1024**3, "Size of the file (bytes); the oldest windows make way.", reload=False, ge=1_000_000
    )
    max_age: Duration = _key(366 * 86_400.0, "Age at which windows make way.", reload=False, ge=3600)


class SeriesSection(Section):
    """The bound on what is served."""

    max: int = _key(
        12_000,
        "Series served at most (count); what goes first: kernels, histograms, links.",
        ge=100,
        le=1_000_000,
    )


class TextfileSection(Section):
    """Metrics of other programs, taken into the page from files."""

    folder: PathText | None = _key(
        None,
        "Folder of files `*.prom` in the Prometheus text format, written elsewhere and renamed into place; "
        "none: no such folder.",
        reload=False,
    )
    max_bytes: int = _key(
        1024 * 1024, "Size of all the files together (bytes).", reload=False, ge=1, le=64 * 1024 * 1024
    )


class LogSection(Section):
    """What is written to stderr."""

    level: Literal["debug", "info", "warning", "error"] = _key(
        "info", "Least severe message that is written."
    )
    format: Literal["logfmt", "json"] = _key("logfmt", "One key=value line or one JSON object per message.")


class WebSection(Section):
    """Who may read and who may POST."""

    config_file: PathText | None = _key(
        None,
        "File with TLS, users and headers in the format of Prometheus' own exporters; none: plain HTTP for "
        "all. Looked at again when it changes; TLS itself is switched on or off by a restart only.",
        flag="--web.config.file",
        reload=False,
    )
    token_file: PathText | None = _key(
        None, "File that holds the bearer token for POST; none: only from this host.", secret=True
    )


class Config(Section):
    """Everything that can be configured."""

    listen: Listen = _key(
        "127.0.0.1:9408",
        "Address and port to serve on; an empty address is every interface, port 0 a free one.",
        flag="--listen",
        reload=False,
        expected="ADDRESS:PORT, such as 127.0.0.1:9408, [::1]:9408 or :9408",
    )
    backend: Literal["auto", "amdsmi", "sysfs", "smi_cli", "replay"] = _key(
        "auto",
        "Where readings come from: the driver library where ROCm is installed and the kernel's files (auto), "
        "one of them alone (amdsmi, sysfs), the command line tools (smi_cli), or a capture (replay).",
        flag="--backend",
        reload=False,
    )
    capture: PathText | None = _key(
        None, "Capture folder for backend replay; none: the demo node.", flag="--capture", reload=False
    )
    state_dir: PathText | None = _key(
        None,
        "Folder for what outlives a restart; none: $STATE_DIRECTORY, else /var/lib/amdgpu-exporter where it "
        "can be written, else the user's XDG state folder.",
        reload=False,
    )
    path: PathSection = PathSection()
    poll: PollSection = PollSection()
    amdsmi: AmdsmiSection = AmdsmiSection()
    smi_cli: SmiCliSection = SmiCliSection()
    devices: DevicesSection = DevicesSection()
    metrics: MetricsSection = MetricsSection()
    windows: WindowsSection = WindowsSection()
    advice: AdviceSection = AdviceSection()
    owners: OwnersSection = OwnersSection()
    labels: LabelsSection = LabelsSection()
    kernels: KernelsSection = KernelsSection()
    bottleneck: BottleneckSection = BottleneckSection()
    history: HistorySection = HistorySection()
    series: SeriesSection = SeriesSection()
    textfile: TextfileSection = TextfileSection()
    log: LogSection = LogSection()
    web: WebSection = WebSection()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of ``listen``; an empty host means every interface."""
        return split_listen(self.listen)
