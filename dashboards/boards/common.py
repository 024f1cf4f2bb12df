"""What several boards share: the variables, why a panel may be empty, colours of states."""

from __future__ import annotations

from dashboards.panels import Variable
from dashboards.query import OWNERS, anywhere

NO_TRACES = (
    "No traced window here: none was delivered to the spool and no preset that traces is on. "
    "The dashboard Exporter health says which."
)
NO_COUNTERS = (
    "No counter window here: no preset that counts is on, or the counters are not permitted. "
    "The dashboard Exporter health says which."
)
NO_PEAK = f"{NO_COUNTERS} Also absent on chips whose issue peak is not known."
NO_ECC = "No ECC counters: these GPUs have none, or the driver does not show them."
NOTHING_OR_DEAD = (
    "No rows: nothing is wrong, or no node is heard. Nodes reporting and Nodes gone silent tell which."
)

STATES = {"executing": "green", "queued": "yellow", "launching": "orange", "starved": "red"}

_NODES = "amdgpu_exporter_build_info"
CLUSTER = Variable(
    "cluster",
    "Cluster",
    f"label_values({_NODES}, cluster)",
    about="An external label of Prometheus; All if there is none.",
)
NODE = Variable(
    "node",
    "Node",
    f'label_values({_NODES}{{cluster=~"$cluster"}}, instance)',
    about="The label instance of the target.",
)
# Opens with the first one: all GPUs of a thousand nodes in one graph help nobody, and cost most.
SOME_NODES = Variable(
    "node",
    "Node",
    NODE.query,
    current=("", ""),
    about="The label instance of the target. Several can be chosen; the board Fleet ranks them all.",
)
GPU = Variable(
    "gpu",
    "GPU",
    f"label_values({anywhere('amdgpu_info')}, gpu)",
    about="Number of the GPU on its node, by rising PCI address.",
)
KERNEL = Variable(
    "kernel",
    "Kernel",
    f"label_values({anywhere('amdgpu_kernel_seconds_total')}, kernel)",
    about="Top kernels; other is the rest.",
)
# At least four times the default window period, so that a rate always sees some windows.
WINDOW = Variable(
    "window",
    "Windows of",
    values="40m,2h,6h,1d",
    current=("40m", "40m"),
    several=False,
    interval=True,
    about="How far back windows are added up. At least four times windows.interval, or panels have holes.",
)
PLACE = (CLUSTER, NODE)
DEVICE = (CLUSTER, SOME_NODES, GPU, WINDOW)


def owners() -> tuple[Variable, ...]:
    """Namespace, pod and job of those who hold GPUs, and the nodes these are on.

    Opens with the first pod, or where there are none the first job. The nodes are listed one by one, so that
    no query goes over those of others.
    """
    place = 'cluster=~"$cluster", namespace=~"$namespace"'
    pods, jobs = f'{place}, pod=~"$workload"', f'{place}, pod=~"$workload", job_id=~"$job_id"'
    return (
        Variable("namespace", "Namespace", f'label_values({OWNERS}{{cluster=~"$cluster"}}, namespace)'),
        Variable("workload", "Pod", f"label_values({OWNERS}{{{place}}}, pod)", current=("", "")),
        Variable("job_id", "Job", f"label_values({OWNERS}{{{pods}}}, job_id)", current=("", "")),
        Variable(
            "node",
            "Nodes of it",
            f"label_values({OWNERS}{{{jobs}}}, instance)",
            listed=True,
            about="Nodes on which the chosen pods and jobs hold GPUs.",
        ),
    )
