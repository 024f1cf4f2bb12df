"""Entries: baselines that ``amdgpu-exporter probe`` measured with the vendor's tools, and when."""

from __future__ import annotations

from exporter.catalogue.schema import Kind, Metric, Scope, Unit

_SEEN = "any node on which amdgpu-exporter probe was run"
_STAYS = "Stays until the next probe; amdgpu_probe_last_timestamp_seconds says how old it is."

METRICS: tuple[Metric, ...] = (
    Metric(
        "probe_bandwidth",
        Kind.GAUGE,
        Unit.BYTES_PER_SECOND,
        "Bytes copied per second from this GPU (transmitted) to a peer, or from the memory of a CPU "
        "(received), each copied byte counted once. The peer is a PCI address, cpu and the number of a NUMA "
        f"node, or self. Nodes of more than 16 GPUs show no peers that are GPUs. {_STAYS}",
        Scope.PARTITION,
        (1, 1e14),
        labels=("peer", "direction"),
        check="amdgpu-exporter probe bandwidth",
        seen_on=_SEEN,
    ),
    Metric(
        "probe_operations",
        Kind.GAUGE,
        Unit.PER_SECOND,
        "Floating-point operations per second of one large matrix product, by the type of its elements. "
        f"{_STAYS}",
        Scope.PARTITION,
        (1, 1e17),
        labels=("precision",),
        check="amdgpu-exporter probe gemm",
        seen_on=_SEEN,
    ),
    Metric(
        "probe_launch",
        Kind.GAUGE,
        Unit.SECONDS,
        "Time per launch of a kernel that does nothing: back_to_back one after another without waiting, "
        f"round_trip with a wait for each; the tool's own call is in it, so compare only one tool. {_STAYS}",
        Scope.PARTITION,
        (1e-9, 3600),
        labels=("pattern",),
        check="amdgpu-exporter probe launch",
        seen_on=_SEEN,
    ),
    Metric(
        "probe_last",
        Kind.GAUGE,
        Unit.TIMESTAMP,
        "When a probe last ended with values.",
        Scope.NODE,
        (0, 2**35),
        labels=("probe",),
        check="ls -l STATE/probes",
        seen_on=_SEEN,
    ),
    Metric(
        "probe",
        Kind.INFO,
        Unit.NONE,
        "Which tool of which version a probe measured with; numbers of different tools do not compare.",
        Scope.NODE,
        (0, 1),
        labels=("probe", "tool", "version"),
        check="amdgpu-exporter probe bandwidth --json",
        seen_on=_SEEN,
    ),
    Metric(
        "probe_values_missing",
        Kind.GAUGE,
        Unit.NONE,
        "Values that a probe should have given and did not, by reason: not_measured, truncated, implausible, "
        "unknown_gpu, not_understood.",
        Scope.NODE,
        (0, 2**53),
        labels=("probe", "reason"),
        check="amdgpu-exporter probe bandwidth --json",
        seen_on=_SEEN,
    ),
)
