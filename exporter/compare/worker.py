"""The child that compares for the daemon: ``python -m exporter.compare.worker SPEC``."""

from __future__ import annotations

import contextlib

from exporter import worker
from exporter.compare import report
from exporter.compare.judge import Options, compare
from exporter.compare.past import Past
from exporter.model import ConfigError, Reason, SourceError
from exporter.windows.reducer import confine


def answer(folder: str, request: worker.Message) -> worker.Message:
    """The report as an object. Errors: SourceError in one line."""
    a, b = str(request["a"]), str(request["b"])
    notes: list[str] = []
    try:
        past = Past(folder)
        try:
            found = compare(past.rows(a, notes), past.rows(b, notes), Options(frozenset(request["changed"])))
        finally:
            past.close()
    except ConfigError as e:
        raise SourceError(Reason.MALFORMED, str(e)) from None
    except MemoryError:
        raise SourceError(Reason.BUSY, "needs more memory than it may have; take shorter times") from None
    said = report.as_dict(found, (a, b))
    said["notes"] += notes
    return {"report": said}


def main() -> None:
    settings = worker.spec()
    confine(int(settings["memory_bytes"]))
    with contextlib.suppress(KeyboardInterrupt):
        worker.serve({"compare": lambda request: answer(settings["folder"], request)})


if __name__ == "__main__":
    main()
