"""The reducer child: reads one window's files and answers with what they say, inside hard limits.

``python -m exporter.windows.reducer '{"memory_bytes": N}'``; imports nothing of the web or the configuration.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from dataclasses import replace
from pathlib import Path

from exporter import worker
from exporter.model import FormatError, Reason, SourceError, WindowOutcome
from exporter.windows import grids, identity, intake, manifests, wire
from exporter.windows.bottleneck import Thresholds
from exporter.windows.identity import Here

MEMORY_BYTES = 1 << 30
_NICE = 10
_SAYS_ITSELF = frozenset({WindowOutcome.OK, WindowOutcome.PARTIAL, WindowOutcome.EMPTY})


def main() -> None:
    settings = worker.spec()
    confine(int(settings.get("memory_bytes", MEMORY_BYTES)))
    here = identity.here_of(settings)
    worker.serve({"reduce": lambda request: reduce(request, here)})


def confine(memory_bytes: int) -> None:
    """Bound what a hostile or huge file can do: memory, core files, and the share of the processor."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    bound = memory_bytes if most == resource.RLIM_INFINITY else min(memory_bytes, most)
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    with contextlib.suppress(OSError):
        os.nice(_NICE)


def reduce(request: wire.Message, here: Here | None = None) -> wire.Message:
    """Reduce the window at ``path``. Errors: SourceError that names the path and says what is wrong.

    ``here`` is what the window's manifest must not contradict.
    """
    path = Path(request["path"])
    if not path.exists():
        raise SourceError(Reason.GONE, f"{path}: no longer there")
    if here is not None and (claim := _false_claim(path, here)):
        raise SourceError(Reason.MALFORMED, f"{path}: {claim}")
    try:
        analysis = intake.load([path], Thresholds(**request.get("limits", {})))
    except FormatError as e:
        raise SourceError(Reason.MALFORMED, str(e)) from None
    except PermissionError as e:
        raise SourceError(Reason.DENIED, f"{e.filename or path}: {e.strerror}") from None
    except OSError as e:
        raise SourceError(Reason.GONE, f"{e.filename or path}: {e.strerror}") from None
    except MemoryError:
        limit_mib = resource.getrlimit(resource.RLIMIT_AS)[0] >> 20
        detail = f"{path}: needs more than {limit_mib} MiB to reduce; take a shorter window"
        raise SourceError(Reason.CRASHED, detail) from None
    for note in analysis.notes:
        # The parent logs what its children say.
        sys.stderr.write(f"{note}\n")
    if analysis.sources and not any(s.format for s in analysis.sources):
        detail = analysis.notes[0] if analysis.notes else "no file in it is known profiler output"
        raise SourceError(Reason.MALFORMED, detail)
    window = replace(analysis.window, grid_mix=grids.mix([path]))
    answer = wire.encode(window, analysis.sources, analysis.results)
    outcome = wire.outcome_of(analysis.sources, analysis.results)
    answer["outcome"] = outcome.value
    answer["detail"] = analysis.notes[0] if analysis.notes and outcome not in _SAYS_ITSELF else ""
    return answer


def _false_claim(path: Path, here: Here) -> str | None:
    manifest = manifests.read(path, [])
    if manifest is None:
        return None
    owner = path.lstat().st_uid
    return identity.fault(manifest.uid, manifest.node, manifest.boot_id, owner, here)


if __name__ == "__main__":
    main()
