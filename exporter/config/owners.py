"""The sections about who uses each GPU."""

from __future__ import annotations

from typing import Literal

from exporter.config.section import PathText, Section, Texts
from exporter.config.section import declare as _key


class OwnersSection(Section):
    """Who uses each GPU: which schedulers are asked. Processes' control groups are always looked at."""

    kubelet: Literal["auto", "on", "off"] = _key(
        "auto",
        "Ask the kubelet which pods hold which devices: if its socket is there at the start (auto), always "
        "(on), never (off).",
        reload=False,
    )
    kubelet_socket: PathText = _key(
        "/var/lib/kubelet/pod-resources/kubelet.sock", "Its pod-resources socket.", reload=False
    )
    resources: Texts = _key(
        ("amd.com/gpu", "amd.com/?px_nps?", "gpu.amd.com"),
        "Resources and claim drivers whose devices are GPUs, as patterns.",
        reload=False,
    )
    container_logs: PathText | None = _key(
        "/var/log/containers",
        "Folder of the kubelet's links to containers' logs; their names tell a process' pod. None: not used.",
        reload=False,
    )
    job_files: PathText | None = _key(
        None,
        "Folder of job files: one per GPU (`3`) or partition (`3.1`), a job id per line; none: no files.",
        reload=False,
    )


class LabelsSection(Section):
    """Labels of GPU series."""

    workload: Literal["info", "inline"] = _key(
        "info",
        "Where the holder of a GPU stands: in amdgpu_workload_info, to be joined (info), or on each series "
        "of the GPU as well (inline); then kind is `shared` where there are two or more.",
    )
