"""Which jobs use which GPU, by the files that a scheduler's prolog and epilog write: any scheduler's.

One file per GPU (``3``) or partition (``3.1``), by our number or a PCI address; one job id per line, several
allowed: the form that others' tools read too. A file that is empty or gone means no job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from exporter.host import Root, reason_of
from exporter.model import SourceError

_FILES_MAX = 1024
_BYTES_MAX = 4096
_JOBS_MAX = 16
_JOB = re.compile(r"[\w.:@+\[\]-]{1,128}\Z")
_SLURM_V2 = "system.slice"


def read(folder: Root) -> tuple[dict[str, list[str]], dict[str, str]]:
    """File name -> job ids, and file name -> what is wrong with it.

    Errors: SourceError where the folder cannot be read.
    """
    try:
        names = sorted(n for n in folder.names("") if not n.startswith(".") and not n.endswith((".tmp", "~")))
    except OSError as e:
        raise SourceError(reason_of(e), f"{folder.path}: {e.strerror}; a prolog makes it") from None
    jobs: dict[str, list[str]] = {}
    problems: dict[str, str] = {}
    for name in names[:_FILES_MAX]:
        try:
            text = folder.read(name, _BYTES_MAX + 1)
        except FileNotFoundError:
            continue  # the job has just ended
        except OSError as e:
            problems[name] = e.strerror or str(e)
            continue
        found, problem = ids(text)
        if problem:
            problems[name] = problem
        if found:
            jobs[name] = found
    if len(names) > _FILES_MAX:
        problems[""] = f"holds {len(names)} files; only {_FILES_MAX} are read"
    return jobs, problems


def ids(data: bytes) -> tuple[list[str], str | None]:
    """The job ids of one file, each once, and what is wrong with the rest of it."""
    if len(data) > _BYTES_MAX:
        return [], f"larger than {_BYTES_MAX} bytes; expected one job id per line"
    found: dict[str, None] = {}
    problem = None
    for line in data.decode("utf-8", "replace").splitlines():
        text = line.strip()
        if not text:
            continue
        if not _JOB.match(text):
            problem = "expected one job id per line, such as 4711"
        elif len(found) >= _JOBS_MAX:
            problem = f"more than {_JOBS_MAX} jobs; the rest is left out"
        else:
            found[text] = None
    return list(found), problem


def ended(jobs: Mapping[str, Iterable[str]], cgroups: Root) -> frozenset[str]:
    """Ids of jobs that Slurm has no control group for any more: an epilog that never ran leaves its file.

    Says nothing (no job has ended) on a node where Slurm's groups cannot be seen, or are named by SLUID.
    """
    living: set[str] = set()
    seen = False
    for scope in _scopes(cgroups):
        for name in cgroups.listdir(scope):
            if name.startswith("job_"):
                living.add(name.removeprefix("job_"))
            elif re.fullmatch(r"s[0-9A-Z]{13}", name):
                return frozenset()
        seen = True
    numbers = {job for each in jobs.values() for job in each if job.isdecimal()}
    return frozenset(numbers - living) if seen else frozenset()


def _scopes(cgroups: Root) -> Iterable[str]:
    """Folders that hold ``job_N``: of version 2, and of any controller of version 1."""
    for name in cgroups.listdir(_SLURM_V2):
        if name.endswith("slurmstepd.scope"):
            yield f"{_SLURM_V2}/{name}"
    for controller in ("memory", "cpuset", "devices", "freezer"):
        for top in cgroups.listdir(controller):
            if top == "slurm" or top.startswith("slurm_"):
                for user in cgroups.listdir(f"{controller}/{top}"):
                    if user.startswith("uid_"):
                        yield f"{controller}/{top}/{user}"
