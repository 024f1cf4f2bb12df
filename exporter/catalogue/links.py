"""Entries: PCIe and xGMI links of a GPU."""

from __future__ import annotations

from exporter.catalogue.schema import Field, Kind, Metric, Scope, Unit

_COUNT = (0.0, 2.0**64)


def _sysfs(group: str, path: str, scale: float = 1.0, each: tuple[str, ...] = ()) -> Field:
    return Field("sysfs", group, path, scale, each)


def _cli(path: str) -> Field:
    return Field("smi_cli", "link", path)


def _amdsmi(group: str, path: str, scale: float = 1.0, each: tuple[str, ...] = ()) -> Field:
    return Field("amdsmi", group, path, scale, each)


def _pcie_count(key: str, sentence: str, field: str, *peers: str) -> Metric:
    return Metric(
        key,
        Kind.COUNTER,
        Unit.NONE,
        sentence,
        Scope.SOCKET,
        _COUNT,
        fields=(
            _amdsmi("metrics", field),
            _amdsmi("link", field.removeprefix("pcie_")),
            _sysfs("gpu_metrics", field),
            _cli(field.removeprefix("pcie_")),
        ),
        peers=peers,
        check="amd-smi metric --pcie",
        seen_on="Instinct MI300 and later, with table gpu_metrics 1.4 or later (NAKs: 1.5)",
    )


def _xgmi_bytes(direction: str, field: str, *peers: str) -> Metric:
    return Metric(
        f"xgmi_{direction}",
        Kind.COUNTER,
        Unit.BYTES,
        f"Bytes {direction} over each xGMI link since the driver started; the firmware counts in KiB. The "
        "link is its number on this GPU.",
        Scope.SOCKET,
        (0, 2.0**74),
        labels=("link",),
        fields=(
            _amdsmi("metrics", field, 1024, ("link",)),
            _sysfs("gpu_metrics", field, 1024, ("link",)),
        ),
        peers=peers,
        check="amd-smi xgmi --metric",
        seen_on="Instinct MI300 and later joined by xGMI, with table gpu_metrics 1.4 or later",
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        "pcie_link_width",
        Kind.GAUGE,
        Unit.LANES,
        "PCIe lanes in use. Fewer than amdgpu_pcie_max_link_width_lanes under load is a bad slot, riser "
        "or card.",
        Scope.SOCKET,
        (1, 64),
        fields=(
            _amdsmi("link", "width"),
            _amdsmi("metrics", "pcie.width"),
            _sysfs("link", "width"),
            _sysfs("gpu_metrics", "pcie.width"),
            _cli("width"),
        ),
        peers=("node_exporter:node_pcidevice_current_link_width",),
        check="cat /sys/class/drm/card*/device/current_link_width",
    ),
    Metric(
        "pcie_link",
        Kind.GAUGE,
        Unit.TRANSFERS_PER_SECOND,
        "PCIe transfers per second and lane in use; an idle link slows down to save power.",
        Scope.SOCKET,
        (1e9, 1e12),
        fields=(
            _amdsmi("link", "speed", 1e6),
            _amdsmi("metrics", "pcie.speed", 1e8),
            _sysfs("link", "speed"),
            _sysfs("gpu_metrics", "pcie.speed", 1e8),
            _cli("speed"),
        ),
        peers=("dme:pcie_speed", "node_exporter:node_pcidevice_current_link_transfers_per_second"),
        check="cat /sys/class/drm/card*/device/current_link_speed",
    ),
    Metric(
        "pcie_max_link_width",
        Kind.GAUGE,
        Unit.LANES,
        "PCIe lanes this GPU can use.",
        Scope.SOCKET,
        (1, 64),
        fields=(
            _amdsmi("link", "max_width"),
            _sysfs("link", "max_width"),
            _cli("max_width"),
        ),
        peers=("node_exporter:node_pcidevice_max_link_width",),
        check="cat /sys/class/drm/card*/device/max_link_width",
    ),
    Metric(
        "pcie_max_link",
        Kind.GAUGE,
        Unit.TRANSFERS_PER_SECOND,
        "PCIe transfers per second and lane this GPU can use.",
        Scope.SOCKET,
        (1e9, 1e12),
        fields=(
            _amdsmi("link", "max_speed", 1e6),
            _sysfs("link", "max_speed"),
            _cli("max_speed"),
        ),
        peers=("dme:pcie_max_speed", "node_exporter:node_pcidevice_max_link_transfers_per_second"),
        check="cat /sys/class/drm/card*/device/max_link_speed",
    ),
    Metric(
        "pcie_replays",
        Kind.COUNTER,
        Unit.NONE,
        "PCIe packets sent again after an error since the driver started; a steady rise is a bad slot or "
        "riser.",
        Scope.SOCKET,
        _COUNT,
        fields=(
            _amdsmi("metrics", "pcie_replays"),
            _amdsmi("link", "replays"),
            _sysfs("link", "replays"),
            _sysfs("gpu_metrics", "pcie_replays"),
            _cli("replays"),
        ),
        peers=("dme:pcie_replay_count",),
        check="cat /sys/class/drm/card*/device/pcie_replay_count",
    ),
    _pcie_count(
        "pcie_replay_rollovers",
        "Times the PCIe replay counter overflowed and the link was trained again.",
        "pcie_replay_rollovers",
        "dme:pcie_replay_rollover_count",
    ),
    _pcie_count(
        "pcie_recoveries",
        "Times the PCIe link went from working to recovery.",
        "pcie_recoveries",
        "dme:pcie_recovery_count",
    ),
    _pcie_count(
        "pcie_nacks_sent",
        "PCIe packets this GPU received damaged and refused.",
        "pcie_naks_sent",
        "dme:pcie_nack_sent_count",
    ),
    _pcie_count(
        "pcie_nacks_received",
        "PCIe packets of this GPU that the other end refused.",
        "pcie_naks_received",
        "dme:pcie_nack_received_count",
    ),
    _xgmi_bytes("received", "xgmi_read.*", "dme:gpu_xgmi_link_rx", "omnistat:rocm_xgmi_total_read_kilobytes"),
    _xgmi_bytes(
        "transmitted", "xgmi_write.*", "dme:gpu_xgmi_link_tx", "omnistat:rocm_xgmi_total_write_kilobytes"
    ),
    Metric(
        "xgmi_link",
        Kind.STATE,
        Unit.NONE,
        "State of each xGMI link, 1 for the one that holds. A link that is down halves or ends peer traffic.",
        Scope.SOCKET,
        (0, 1),
        labels=("link", "state"),
        states=("up", "down"),
        fields=(
            _amdsmi("metrics", "xgmi_link.*.*", 1.0, ("link", "state")),
            _sysfs("gpu_metrics", "xgmi_link.*.*", 1.0, ("link", "state")),
        ),
        check="amd-smi xgmi --link-status",
        seen_on="Instinct MI300 and later joined by xGMI, with table gpu_metrics 1.7 or later",
    ),
    Metric(
        "link",
        Kind.INFO,
        Unit.NONE,
        "How this GPU reaches each other one (peer is its PCI address) and its CPU (peer is cpu and the node "
        "of the topology); constant 1. A link is direct with hops 1; the weight is the driver's measure of "
        "distance. Whole sockets: links between partitions of one are left out.",
        Scope.SOCKET,
        (0, 1),
        labels=("peer", "type", "hops", "weight"),
        fields=(_sysfs("links", "peers.*.*.*.*", 1.0, ("peer", "type", "hops", "weight")),),
        check="grep . /sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties",
    ),
    Metric(
        "numa_node",
        Kind.GAUGE,
        Unit.NONE,
        "NUMA node of the host that this GPU hangs on; run its processes there. Absent on hosts of one.",
        Scope.SOCKET,
        (0, 1024),
        fields=(_sysfs("links", "numa_node"),),
        check="cat /sys/class/drm/card*/device/numa_node",
        seen_on="any GPU of a host with two or more NUMA nodes",
    ),
    Metric(
        "firmware",
        Kind.INFO,
        Unit.NONE,
        "Version of each firmware the driver has loaded (block smc is power management, mec the queues); "
        "constant 1. GPUs of one fleet that differ here may differ in speed and in faults.",
        Scope.SOCKET,
        (0, 1),
        labels=("block", "version"),
        fields=(_sysfs("firmware", "version.*.*", 1.0, ("block", "version")),),
        check="grep . /sys/class/drm/card*/device/fw_version/*",
    ),
)
