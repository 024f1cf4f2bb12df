"""Checks: what we may do here, and how the host is set."""

from __future__ import annotations

import re

from exporter.checks.finding import Check, Seen, Severity, elsewhere, info, listed, ok, warning
from exporter.checks.machine import CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE, Machine

_OTHERS = {
    "rdcd": "ROCm Data Center tool",
    "gpuagent": "AMD device metrics exporter",
    "omnistat-monito": "Omnistat",
    "rocprofv3": "rocprofv3",
    "rocprof": "rocprof",
}


def _kfd_node(m: Machine) -> Seen:
    if not m.live:
        return elsewhere()
    may = m.access("dev/kfd")
    if may is None:
        return warning(
            "/dev/kfd is not there: amdsmi and profilers cannot work", "ls -l /dev/kfd; lsmod | grep amdgpu"
        )
    return (
        ok("/dev/kfd may be opened") if may else warning(f"/dev/kfd may not be opened by {m.user}", _join(m))
    )


def _render_nodes(m: Machine) -> Seen:
    if not m.live:
        return elsewhere()
    minors = sorted({n for d in m.devices if (n := d.indices.get("render")) is not None})
    if not minors:
        return info("no GPU has a render node", "ls -l /dev/dri")
    may = {f"/dev/dri/renderD{n}": m.access(f"dev/dri/renderD{n}") for n in minors}
    if absent := [p for p, a in may.items() if a is None]:
        return warning(f"not there, as in a container without them: {listed(absent)}", "ls -l /dev/dri")
    if denied := [p for p, a in may.items() if not a]:
        return warning(f"may not be opened by {m.user}: {listed(denied)}", _join(m))
    return ok(f"{len(minors)} render nodes may be opened")


def _join(m: Machine) -> str:
    return f"sudo usermod -aG render,video {m.user}  # then log in again"


def _perfmon(m: Machine) -> Seen:
    level = m.proc_number("sys/kernel/perf_event_paranoid")
    may = m.capable(CAP_PERFMON, CAP_SYS_ADMIN)
    if level is None:
        return info("perf_event_paranoid is not known") if m.live else elsewhere()
    if may or level <= 2:
        return ok(f"perf_event_paranoid is {level}, CAP_PERFMON is {'held' if may else 'not needed'}")
    return warning(
        f"perf_event_paranoid is {level} and CAP_PERFMON is missing: counters come degraded or as 0"
    )


def _ptrace(m: Machine) -> Seen:
    may = m.capable(CAP_SYS_PTRACE)
    if may is None:
        return info("capabilities are not known") if m.live else elsewhere()
    if may:
        return ok("CAP_SYS_PTRACE is held")
    return info(f"CAP_SYS_PTRACE is missing: GPU processes of other users than {m.user} stay nameless")


def _yama(m: Machine) -> Seen:
    scope = m.proc_number("sys/kernel/yama/ptrace_scope")
    if scope is None:
        return ok("Yama is not in this kernel") if m.live else elsewhere()
    if scope == 0 or (scope < 3 and m.capable(CAP_SYS_PTRACE)):
        return ok(f"ptrace_scope is {scope}")
    if scope == 3:
        return info(
            "ptrace_scope is 3: no profiler can attach until the next boot", "cat /etc/sysctl.d/*ptrace*"
        )
    return info(f"ptrace_scope is {scope}: a profiler cannot attach to a running process")


def _lsm(m: Machine) -> Seen:
    profile = ((m.procfs and m.procfs.text("self/attr/current")) or "").strip("\0\n ")
    enforcing = m.sysfs.text("fs/selinux/enforce") == "1"
    if not m.live and not profile:
        return elsewhere()
    if profile.endswith("(enforce)"):
        name = profile.rpartition(" ")[0]
        return info(
            f"confined by AppArmor profile {name}: attaching and device nodes may be denied",
            f"sudo journalctl -k -g 'apparmor=\"DENIED\".*{name}'",
        )
    if enforcing:
        domain = f" as {profile}" if profile else ""
        return info(f"SELinux is enforcing{domain}: device nodes and sockets may be denied")
    return ok("neither AppArmor nor SELinux confines us")


def _huge_pages(m: Machine) -> Seen:
    text = m.sysfs.text("kernel/mm/transparent_hugepage/enabled") or ""
    mode = re.search(r"\[(\w+)\]", text)
    if not mode:
        return info("huge pages are not known") if m.live else elsewhere()
    total = re.search(
        r"^HugePages_Total:\s+(\d+)", (m.procfs and m.procfs.text("meminfo")) or "", re.MULTILINE
    )
    reserved = f", {total[1]} reserved" if total else ""
    if mode[1] == "never":
        return info(
            f"transparent huge pages are off{reserved}: copies from and to pageable host memory are slower"
        )
    return ok(f"transparent huge pages: {mode[1]}{reserved}")


def _governor(m: Machine) -> Seen:
    governor = m.sysfs.text("devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor is None:
        return ok("the CPU's frequency is not governed here") if m.live else elsewhere()
    if governor == "powersave" and m.sysfs.text("devices/system/cpu/cpu0/cpufreq/scaling_driver") not in (
        "intel_pstate",
        "amd-pstate-epp",
    ):
        return info("the CPU governor is powersave: launches take longer on a slow CPU")
    return ok(f"the CPU governor is {governor}")


def _others(m: Machine) -> Seen:
    if m.procfs is None:
        return elsewhere()
    names = {
        name for pid in m.procfs.listdir("") if pid.isdecimal() and (name := m.procfs.text(f"{pid}/comm"))
    }
    found = {what for name, what in _OTHERS.items() if name in names}
    if tool := m.environ.get("HSA_TOOLS_LIB") or m.environ.get("ROCP_TOOL_LIBRARIES"):
        found.add(f"the tool {tool} in our environment")
    if not found:
        return ok("no other profiler or GPU monitor runs")
    return info(f"also at work here: {listed(sorted(found))}; only one can have the counters at a time")


CHECKS: tuple[Check, ...] = (
    Check(
        "rights.kfd",
        "Opening /dev/kfd: amdsmi, profilers and every ROCm program need it. Reading /sys does not.",
        Severity.WARNING,
        "sudo usermod -aG render,video $USER",
        _kfd_node,
    ),
    Check(
        "rights.render",
        "Opening the render nodes of the GPUs: uuid, VRAM and VBIOS come through them in amdsmi.",
        Severity.WARNING,
        "sudo usermod -aG render,video $USER",
        _render_nodes,
    ),
    Check(
        "rights.perfmon",
        "Hardware counters: with perf_event_paranoid above 2 and no CAP_PERFMON they are silently degraded.",
        Severity.WARNING,
        "sudo sysctl kernel.perf_event_paranoid=2  # or give the service CAP_PERFMON",
        _perfmon,
    ),
    Check(
        "rights.ptrace",
        "Looking into processes of other users, to say whose a GPU process is.",
        Severity.INFO,
        "sudo systemctl edit amdgpu-exporter  # AmbientCapabilities=CAP_SYS_PTRACE",
        _ptrace,
    ),
    Check(
        "rights.yama",
        "Attaching a profiler to a running process; windows in a spool folder do not need it.",
        Severity.INFO,
        "sudo sysctl kernel.yama.ptrace_scope=0",
        _yama,
    ),
    Check(
        "rights.confinement",
        "AppArmor or SELinux around us: what they deny looks like missing hardware.",
        Severity.INFO,
        "sudo ausearch -m avc -ts recent",
        _lsm,
    ),
    Check(
        "host.huge_pages",
        "Transparent huge pages. The exporter does not need them; jobs copy faster with them.",
        Severity.INFO,
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        _huge_pages,
    ),
    Check(
        "host.cpu_governor",
        "The clock of the CPU that launches kernels.",
        Severity.INFO,
        "sudo cpupower frequency-set -g performance",
        _governor,
    ),
    Check(
        "host.other_monitors",
        "Other programs that use the counters or hold GPUs open.",
        Severity.INFO,
        "ps -eo pid,user,comm | grep -E 'rdcd|gpuagent|omnistat|rocprof'",
        _others,
    ),
)
