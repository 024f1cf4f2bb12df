"""What works on this machine and what does not, and the command that mends each thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from exporter import __version__
from exporter.catalogue.docs import table
from exporter.checks import health, on_daemon, on_driver, on_gpus, on_rights, on_tools
from exporter.checks.finding import Check, Finding, Severity, find
from exporter.checks.machine import Machine

_SUBJECTS = (
    ("The driver and its GPUs", on_driver.CHECKS),
    ("The state of the GPUs", on_gpus.CHECKS),
    ("ROCm, tools and sources", on_tools.CHECKS),
    ("Rights and the host", on_rights.CHECKS),
    ("The daemon", on_daemon.CHECKS),
)
CHECKS: tuple[Check, ...] = tuple(check for _, checks in _SUBJECTS for check in checks)
_ORDER = (Severity.BROKEN, Severity.WARNING, Severity.INFO, Severity.OK)
_VERDICT = {Severity.BROKEN: "broken", Severity.WARNING: "degraded"}
_EXIT = {"ok": 0, "degraded": 1, "broken": 2}

_HEAD = """# What `check` finds

Generated from the checks by `make generate`; do not edit.

`amdgpu-exporter check` looks at this machine and says what works, what does not, and the command that mends
it. It uses a GPU no more than one poll of each source does. It needs no rights; without them it says which
are missing. `--path.sysfs` points it at a captured tree: what asks about the machine itself is then not
looked at.

Exit 0: fine. 1: degraded, at least one warning. 2: broken, nothing can be served until it is mended; a
machine that has no AMD GPU is broken in this sense.

`--json` prints one object; keys are only ever added:

| Key | Value |
| --- | --- |
| `version` | 1 |
| `verdict` | `ok`, `degraded` or `broken` |
| `exporter` | version of the exporter |
| `sysfs`, `live` | the tree that was looked at; whether it is this machine's own |
| `counts` | findings by severity |
| `findings` | one object for each id below, always all of them, in this order |
| `findings[].id` | stable |
| `findings[].severity` | `ok`, `info` (worth knowing), `warning` (that part does not work), `broken` |
| `findings[].seen` | one line for people; not stable |
| `findings[].mend` | a command, null where the severity is `ok` |

`check --bundle FILE.tar.gz` packs all of it for a maintainer: this object, the devices, a capture, the
configuration without secrets, versions, the page of a running daemon, and with `--log FILE` the end of its
log. Serial numbers, unique ids, host and user names and network addresses are replaced by made-up ones, the
same one for the same original throughout; what looks like an IPv4 address goes too, even where it is a
version of four numbers. It never overwrites a file. Look into it before you send it.
"""

_HEALTH = """## What `health` says

`amdgpu-exporter health` polls once and says of each GPU whether it is healthy, degraded (it works and
something is wrong), unhealthy (give it no work) or unknown (nothing was read that could tell, which is
never the same as healthy). It prints one line of at most 80 bytes; exit 0 all healthy, 1 not, 2 unknown, as
node-problem-detector's custom plugins read it. What has to rise to be seen (new errors, resets, heat) needs
`--over 10s`, or the daemon, which serves the same as `amdgpu_health_state` and with these reasons in
`/api/v1/health`.
"""


def run(machine: Machine) -> list[Finding]:
    """Every check, in the order they are documented."""
    return [find(check, machine) for check in CHECKS]


def verdict(findings: Sequence[Finding]) -> str:
    worst = min((f.severity for f in findings), key=_ORDER.index, default=Severity.OK)
    return _VERDICT.get(worst, "ok")


def exit_code(findings: Sequence[Finding]) -> int:
    return _EXIT[verdict(findings)]


def as_json(machine: Machine, findings: Sequence[Finding]) -> dict[str, Any]:
    counts = Counter(f.severity for f in findings)
    return {
        "version": 1,
        "verdict": verdict(findings),
        "exporter": __version__,
        "sysfs": machine.sysfs.path,
        "live": machine.live,
        "counts": {s.value: counts[s] for s in _ORDER},
        "findings": [
            {"id": f.id, "severity": f.severity.value, "seen": f.seen, "mend": f.mend} for f in findings
        ],
    }


def text(findings: Sequence[Finding]) -> str:
    """For a terminal: the gravest first, each with its command; what is fine last, one line each."""
    lines = [f"verdict: {verdict(findings)}"]
    for f in sorted(findings, key=lambda f: _ORDER.index(f.severity)):
        lines.append(f"{f.severity.value:8} {f.id}: {f.seen}")
        if f.mend and f.severity in _VERDICT:
            lines.append(f"         -> {f.mend}")
    return "\n".join(lines)


def markdown() -> str:
    """The reference page: every id there is."""
    parts = [_HEAD]
    for title, checks in _SUBJECTS:
        rows = [(f"`{c.id}`", c.worst.value, c.means, f"`{c.mend}`") for c in checks]
        parts += [f"## {title}\n", table(("Id", "At worst", "What is asked", "Command"), rows)]
    reasons = [(f"`{ident}`", status, text) for ident, status, text in health.REASONS]
    parts += [_HEALTH, table(("Id", "The GPU is", "Why"), reasons)]
    return "\n".join(parts)
