"""Checks: the driver, and the GPUs it shows."""

from __future__ import annotations

from exporter.backends.sysfs_cards import DRM, cards, nodes
from exporter.checks.finding import Check, Seen, Severity, broken, info, listed, ok, warning
from exporter.checks.machine import Machine, unreadable
from exporter.model import Reason

_KFD_NODES = "class/kfd/kfd/topology/nodes"


def _loaded(m: Machine) -> Seen:
    if m.sysfs.exists("module/amdgpu"):
        built_in = m.sysfs.text("module/amdgpu/initstate") is None
        version = m.sysfs.text("module/amdgpu/version")
        kind = "built into the kernel, or from before it told" if built_in else "a module"
        return ok(f"amdgpu is loaded ({kind}{f', version {version}' if version else ', of the kernel'})")
    if m.sockets():
        return ok("the tree lists GPUs of the driver")
    return broken("amdgpu is not loaded" if m.live else "the tree shows no amdgpu")


def _found(m: Machine) -> Seen:
    if m.devices:
        models = sorted({d.model or "of unknown model" for d in m.devices})
        sockets = len({d.id.pci for d in m.devices})
        return ok(f"{sockets} AMD GPU{'s' * (sockets != 1)} ({len(m.devices)} logical): {listed(models, 4)}")
    if listing := m.sockets():
        names = listed(s.pci for s in listing)
        return broken(
            f"the kernel lists GPUs and no source can read them: {names}", "sudo dmesg | grep -i amdgpu"
        )
    if m.pci():
        return broken(
            f"AMD GPUs are on PCI and the driver shows none: {listed(m.pci())}", "sudo dmesg | grep -i amdgpu"
        )
    return broken(f"no AMD GPU under {m.sysfs.path}")


def _without_driver(m: Machine) -> Seen:
    without = {a: d for a, d in m.pci().items() if d != "amdgpu"}
    if not m.live and not m.sysfs.exists("bus/pci/devices"):
        return info("the tree has no bus/pci, so what has which driver is not known", "")
    if not without:
        return ok("every AMD GPU on PCI has the driver amdgpu")
    text = listed(f"{a} ({d or 'no driver'})" for a, d in without.items())
    if set(without.values()) <= {"vfio-pci", "pci-stub"}:
        return info(f"given to virtual machines: {text}", f"lspci -nnks {next(iter(without))}")
    return warning(f"AMD GPUs without the driver amdgpu: {text}", f"lspci -nnks {next(iter(without))}")


def _excluded(m: Machine) -> Seen:
    shown = {d.id.pci for d in m.devices}
    hidden = [s for s in m.sockets() if s.pci not in shown]
    if not hidden or not shown:
        return ok("no GPU is left out")
    names = listed(f"{s.pci} ({s.parts[0].device.model or 'model unknown'})" for s in hidden)
    return info(f"integrated beside others, so left out: {names}")


def _expected(m: Machine) -> Seen:
    wanted = m.settings.config.devices.expected
    if wanted is None:
        wanted = m.settings.remembered
    now = len({d.id.pci for d in m.devices})
    if wanted is None or now >= wanted:
        return ok(f"{now} seen, {'any number' if wanted is None else wanted} expected")
    return warning(f"{now} seen, {wanted} expected")


def _identity(m: Machine) -> Seen:
    unnamed = [d.id.pci for d in m.devices if d.uuid is None]
    if not unnamed:
        return ok("every GPU has a unique id")
    return info(f"without a unique id, as many GPUs and all guests are: {listed(dict.fromkeys(unnamed))}")


def _kfd(m: Machine) -> Seen:
    if m.sysfs.exists(_KFD_NODES):
        return ok("the KFD topology is there")
    if not m.live:
        return info("the tree has no KFD topology: no processes, links or partitions")
    return warning("no KFD topology: no processes, links or partitions, and ROCm cannot run")


def _hidden(m: Machine) -> Seen:
    nodes = [n for n in m.sysfs.listdir(_KFD_NODES) if n.isdecimal()]
    denied = [n for n in nodes if unreadable(m.sysfs, f"{_KFD_NODES}/{n}/properties") is Reason.DENIED]
    if not denied:
        return ok(f"{len(nodes)} KFD nodes, all readable")
    return warning(
        f"{len(denied)} of {len(nodes)} KFD nodes may not be read, as in a container with part of the GPUs"
    )


def _lost(m: Machine) -> Seen:
    shown = {card.pci for card in cards(m.sysfs)[0]}
    slots = {pci.rpartition(".")[0] for pci in shown}
    lost = {n.pci(0) for n in nodes(m.sysfs) if n.pci(0).rpartition(".")[0] not in slots}
    if not m.sysfs.exists(DRM) or not lost:
        return ok("KFD lists no GPU that the driver has let go of")
    return warning(f"gone, and still listed by KFD since a process holds it: {listed(sorted(lost))}")


def _logical(m: Machine) -> Seen:
    parts = sum(len(s.parts) for s in m.sockets())
    shown = {d.id.pci for d in m.devices}
    left = sum(len(s.parts) for s in m.sockets() if s.pci not in shown)
    if len(m.devices) >= parts - left:
        return ok(f"{len(m.devices)} logical GPUs, as the kernel lists them")
    return warning(f"the kernel lists {parts - left} logical GPUs, the sources {len(m.devices)}")


def _dumps(m: Machine) -> Seen:
    dumps = [n for n in m.sysfs.listdir("class/devcoredump") if n.startswith("devcd")]
    if not dumps and not m.live and not m.sysfs.exists("class/devcoredump"):
        return info("the tree has no class/devcoredump, so whether a GPU left a dump is not known", "")
    if not dumps:
        return ok("no GPU has left a dump")
    return warning(f"a device left a dump of its state, as a GPU does at a reset: {listed(dumps)}")


CHECKS: tuple[Check, ...] = (
    Check(
        "driver.loaded",
        "The kernel driver amdgpu, as a module or built in. Without it nothing can be read.",
        Severity.BROKEN,
        "sudo modprobe amdgpu",
        _loaded,
    ),
    Check(
        "gpu.found",
        "At least one AMD GPU. A daemon on a node without any starts and serves amdgpu_devices 0.",
        Severity.BROKEN,
        "lspci -nn -d 1002:",
        _found,
    ),
    Check(
        "gpu.without_driver",
        "AMD GPUs on PCI that another driver or none has: nobody can monitor those.",
        Severity.WARNING,
        "sudo modprobe amdgpu",
        _without_driver,
    ),
    Check(
        "gpu.excluded",
        "Integrated GPUs beside discrete ones are left out unless they are asked for.",
        Severity.INFO,
        "AMDGPU_EXPORTER_DEVICES__INTEGRATED=show amdgpu-exporter serve",
        _excluded,
    ),
    Check(
        "gpu.expected",
        "As many GPUs as configured, or as were ever seen. One that fell off the bus leaves no other trace.",
        Severity.WARNING,
        "amdgpu-exporter devices --forget  # only if it was taken out; else: sudo dmesg | grep -i amdgpu",
        _expected,
    ),
    Check(
        "gpu.identity",
        "A unique id for each GPU, which follows the card when it changes its slot.",
        Severity.INFO,
        "cat /sys/class/drm/card*/device/unique_id",
        _identity,
        of_gpus=True,
    ),
    Check(
        "kfd.topology",
        "The compute driver's list of GPUs: processes, links between GPUs, partitions.",
        Severity.WARNING,
        "zgrep CONFIG_HSA_AMD /proc/config.gz /boot/config-$(uname -r)",
        _kfd,
    ),
    Check(
        "kfd.hidden",
        "KFD nodes that may not be read: a container sees its own GPUs only, a node exporter must see all.",
        Severity.WARNING,
        "ls -l /sys/class/kfd/kfd/topology/nodes /dev/dri  # give the container all of /dev/dri",
        _hidden,
    ),
    Check(
        "kfd.lost",
        "GPUs that fell off the bus or lost their driver while a process held them; KFD still lists those.",
        Severity.WARNING,
        "sudo fuser -v /dev/kfd  # end what holds it, then: sudo dmesg | grep -i amdgpu",
        _lost,
    ),
    Check(
        "kfd.logical",
        "As many logical GPUs as the kernel lists: tools have shown the first partition of each only.",
        Severity.WARNING,
        "amdgpu-exporter devices --json",
        _logical,
        of_gpus=True,
    ),
    Check(
        "driver.dumps",
        "Dumps a device leaves when it is reset after a hang.",
        Severity.WARNING,
        "sudo dmesg | grep -iE 'amdgpu.*(reset|hang|fault)'",
        _dumps,
    ),
)
