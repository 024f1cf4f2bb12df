"""Whose a process is, by the lines of its ``/proc/PID/cgroup``. Pure.

Paths are those that schedulers and container runtimes make; what none of them made belongs to a user alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# cgroup v1: slurm[_NODE]/uid_U/job_J/step_S; v2: [NODE_]slurmstepd.scope/job_J/step_S. From 26.05 on a job
# may stand under its SLUID instead, which only the controller can turn into a number.
_SLURM = re.compile(
    r"/(?:slurm(?:_[^/]+)?/uid_\d+|(?:[^/]+_)?slurmstepd\.scope)"
    r"/(?:job_(?P<job>\d{1,20})|(?P<sluid>s[0-9A-Z]{13}))(?:/step_(?P<step>[\w.+-]{1,32}))?(?:/|$)"
)
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice|/|$)")
_CONTAINER = re.compile(r"/(?:[a-z][a-z-]*-)?([0-9a-f]{64})(?:\.scope)?(?:/|$)")


class Place(NamedTuple):
    """Where a process stands; what is not known is None.

    ``job`` is None beside a ``sluid``: the job exists, and its number cannot be told from here.
    """

    job: str | None = None
    step: str | None = None
    sluid: str | None = None
    pod_uid: str | None = None
    container: str | None = None


def place(data: bytes) -> Place:
    """Read all lines, ``id:controllers:path``; controllers may stand in different places in v1.

    Absent: a path that nobody we know made gives a Place of Nones.
    """
    job = step = sluid = pod = container = None
    for line in data.decode("utf-8", "replace").splitlines():
        path = line.split(":", 2)[-1] if line.count(":") >= 2 else ""
        if (found := _SLURM.search(path)) and job is None and sluid is None:
            job, sluid, step = found["job"], found["sluid"], found["step"]
        if pod is None and (found := _POD.search(path)):
            pod = _uid(found[1])
        if container is None and (found := _CONTAINER.search(path)):
            container = found[1]
    return Place(job, step, sluid, pod, container)


def _uid(text: str) -> str:
    """With dashes, as Kubernetes writes it; static pods have theirs without any."""
    return text.replace("_", "-")
