"""Entries about the exporter itself: sources, readings missing, configuration, cost."""

from exporter.catalogue.schema import Kind, Metric, Scope, Unit

_WHOLE = (0, 2**53)
_TIME = (0, 2**35)


def _own(
    key: str,
    kind: Kind,
    unit: Unit,
    text: str,
    labels: tuple[str, ...] = (),
    span: tuple[float, float] = _WHOLE,
    check: str | None = None,
) -> Metric:
    return Metric(f"exporter_{key}", kind, unit, text, Scope.NODE, span, labels=labels, check=check)


METRICS: tuple[Metric, ...] = (
    _own(
        "build",
        Kind.INFO,
        Unit.NONE,
        "Version of the exporter and of the Python that runs it.",
        labels=("version", "python"),
        check="amdgpu-exporter --version",
    ),
    _own(
        "replay",
        Kind.INFO,
        Unit.NONE,
        "Present only while a capture is replayed: nothing served describes this machine.",
        labels=("capture", "synthetic"),
    ),
    _own(
        "source",
        Kind.INFO,
        Unit.NONE,
        "Which backend serves a source, and what it reads.",
        labels=("source", "backend", "root"),
    ),
    _own(
        "source_up",
        Kind.GAUGE,
        Unit.NONE,
        "1 if the latest poll of the source succeeded, 0 if it failed, hung or its reader died.",
        labels=("source",),
        span=(0, 1),
    ),
    _own(
        "source_duration",
        Kind.GAUGE,
        Unit.SECONDS,
        "How long the latest poll of the source took, the wait for its reader included.",
        labels=("source",),
        span=_TIME,
    ),
    _own(
        "source_last_success",
        Kind.GAUGE,
        Unit.TIMESTAMP,
        "When the source last succeeded; absent until it has.",
        labels=("source",),
        span=_TIME,
    ),
    _own(
        "source_failures",
        Kind.COUNTER,
        Unit.NONE,
        "Polls of the source that failed, by reason.",
        labels=("source", "reason"),
    ),
    _own(
        "readings_missing",
        Kind.GAUGE,
        Unit.NONE,
        "Readings that the source should give and did not in its latest successful poll, by reason.",
        labels=("source", "reason"),
    ),
    _own(
        "child_starts",
        Kind.COUNTER,
        Unit.NONE,
        "Starts of a helper process; more than one means that it died or had to be ended.",
        labels=("child",),
    ),
    _own(
        "textfile_modified",
        Kind.GAUGE,
        Unit.TIMESTAMP,
        "When a file of the textfile folder was last changed; an old time means that its writer stopped.",
        labels=("file",),
        span=_TIME,
        check="ls -l --time-style=full-iso FOLDER",
    ),
    _own(
        "textfile_errors",
        Kind.COUNTER,
        Unit.NONE,
        "Times a file of the textfile folder was looked at and not taken, whole; the log says why.",
        labels=("file",),
        check="promtool check metrics < FILE",
    ),
    _own(
        "requests_refused",
        Kind.COUNTER,
        Unit.NONE,
        "Connections and requests turned away: more connections than are taken, a head or body too large, "
        "not HTTP (malformed), too slow, no TLS that holds, a wrong password, more changes or passwords "
        "at once than are taken (rate).",
        labels=("reason",),
    ),
    _own(
        "owner_devices",
        Kind.GAUGE,
        Unit.NONE,
        "Devices that the kubelet or a job file names as held, matched: found among this node's GPUs, "
        "unmatched: not; the log says which.",
        labels=("source", "result"),
    ),
    _own(
        "history_up",
        Kind.GAUGE,
        Unit.NONE,
        "1 while windows are kept on disk, 0 where that fails; the log says why. Absent where switched off.",
        span=(0, 1),
        check="ls -l STATE/history.db",
    ),
    _own(
        "history_windows",
        Kind.GAUGE,
        Unit.NONE,
        "Windows kept on disk.",
        check="sqlite3 -readonly STATE/history.db 'SELECT count(*) FROM window'",
    ),
    _own(
        "history_size",
        Kind.GAUGE,
        Unit.BYTES,
        "Size of the history on disk.",
        check="du -b STATE/history.db*",
    ),
    _own(
        "history_windows_lost",
        Kind.COUNTER,
        Unit.NONE,
        "Windows that could not be kept; they count in all other metrics.",
    ),
    _own("series", Kind.GAUGE, Unit.NONE, "Time series in the page that carries this sample."),
    _own(
        "series_dropped",
        Kind.COUNTER,
        Unit.NONE,
        "Time series left out of a page because of the configured limit, added up over pages.",
    ),
    _own(
        "generation",
        Kind.COUNTER,
        Unit.NONE,
        "Pages rendered since start.",
    ),
    _own(
        "render_duration",
        Kind.GAUGE,
        Unit.SECONDS,
        "How long the previous page took to render and compress.",
        span=_TIME,
    ),
    _own(
        "config_last_reload_successful",
        Kind.GAUGE,
        Unit.NONE,
        "1 if the latest attempt to load the configuration succeeded; 0 means the last good one is in force.",
        span=(0, 1),
        check="amdgpu-exporter serve --config FILE --print-config",
    ),
    _own(
        "config_last_reload_success",
        Kind.GAUGE,
        Unit.TIMESTAMP,
        "When the configuration in force was loaded.",
        span=_TIME,
    ),
    _own(
        "cpu",
        Kind.COUNTER,
        Unit.SECONDS,
        "Processor time used by the exporter's processes; a child's share restarts when it is replaced.",
        labels=("process",),
        span=_TIME,
        check="ps -o pid,time,args -C amdgpu-exporter",
    ),
    _own(
        "resident_memory",
        Kind.GAUGE,
        Unit.BYTES,
        "Resident memory of the exporter's processes.",
        labels=("process",),
        check="ps -o pid,rss,args -C amdgpu-exporter",
    ),
)
