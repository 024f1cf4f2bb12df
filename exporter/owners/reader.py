"""The owners' child: asks the kubelet and reads job files, so that the daemon waits for neither.

``python -m exporter.owners.reader SPEC``: ``kubelet`` (socket), ``jobs`` (folder), ``cgroups`` (mount point).
"""

from __future__ import annotations

from exporter import worker
from exporter.host import Root
from exporter.model import SourceError
from exporter.owners import jobs
from exporter.owners.kubelet import Kubelet


class Look:
    """Answers ``look``: what each asked source says, or why it says nothing."""

    def __init__(self, spec: worker.Message) -> None:
        self._kubelet = Kubelet(spec["kubelet"]) if spec.get("kubelet") else None
        self._jobs = Root(spec["jobs"]) if spec.get("jobs") else None
        self._cgroups = Root(spec.get("cgroups", "/sys/fs/cgroup"))

    def look(self, request: worker.Message) -> worker.Message:
        answer: worker.Message = {}
        if self._kubelet:
            try:
                answer["kubelet"] = {"held": self._kubelet.held(float(request["deadline_s"]))}
            except SourceError as e:
                answer["kubelet"] = {"reason": e.reason, "detail": str(e)}
        if self._jobs:
            try:
                found, problems = jobs.read(self._jobs)
                ended = sorted(jobs.ended(found, self._cgroups))
                answer["jobs"] = {"jobs": found, "ended": ended, "problems": problems}
            except SourceError as e:
                answer["jobs"] = {"reason": e.reason, "detail": str(e)}
        return answer


def main() -> None:
    look = Look(worker.spec())
    worker.serve({"look": look.look})


if __name__ == "__main__":
    main()
