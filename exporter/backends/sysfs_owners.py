"""Whose the processes on a GPU are: job, container or user, from procfs and names of containers' logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from exporter.formats import cgroup, proc_text
from exporter.host import Root, reason_of
from exporter.model import FormatError, Owner, Raw, Reason

_SMALL = 4096
_CGROUP = 64 * 1024
_SHORT = 12  # of a container's id, as runtimes show it
# The kubelet links every container's log as POD_NAMESPACE_CONTAINER-ID.log; none of the names holds a "_".
_LOG = re.compile(r"([^_]{1,253})_([^_]{1,63})_([^_]{1,253})-([0-9a-f]{64})\.log\Z")


class Owners:
    """Looks up the owner of a process. ``logs`` is ``/var/log/containers``, where it may be seen."""

    def __init__(self, procfs: Root, logs: Root | None = None) -> None:
        self._procfs, self._logs = procfs, logs
        self._containers: dict[str, tuple[str, str, str]] = {}

    def begin(self) -> None:
        """Look anew at which containers there are; names of files alone."""
        self._containers = dict(self._listed())

    def of(self, number: str) -> Owner | Reason:
        """The owner of a process; a Reason where nobody can tell.

        Errors: FileNotFoundError where the process has ended.
        """
        try:
            user = proc_text.user(self._procfs.read(f"{number}/status", _SMALL))
            place = self._place(number)
        except FileNotFoundError:
            raise
        except OSError as e:
            return reason_of(e)
        except FormatError:
            return Reason.MALFORMED
        if place.job or place.sluid:
            return Owner("slurm", job_id=place.job or "", user=user)
        if place.pod_uid:
            # A user id inside a pod says nothing outside of it.
            pod, namespace, container = self._containers.get(place.container or "", ("", "", ""))
            return Owner("pod", namespace, pod, container or (place.container or "")[:_SHORT])
        if place.container:
            return Owner("container", container=place.container[:_SHORT])
        return Owner("process", user=user)

    def _place(self, number: str) -> cgroup.Place:
        try:
            return cgroup.place(self._procfs.read(f"{number}/cgroup", _CGROUP))
        except FileNotFoundError:
            return cgroup.Place()  # a kernel without control groups

    def _listed(self) -> Iterator[tuple[str, tuple[str, str, str]]]:
        for name in self._logs.listdir("") if self._logs else ():
            if found := _LOG.match(name):
                yield found[4], (found[1], found[2], found[3])


def by_owner(amounts: Mapping[Owner, int]) -> Raw:
    """A level for each label, as a field of the catalogue finds them."""
    tree: dict[str, Any] = {}
    for owner, amount in amounts.items():
        node = tree
        for label in owner[:-1]:
            node = node.setdefault(label, {})
        node[owner[-1]] = amount
    return tree
