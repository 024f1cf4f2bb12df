"""Checks: ROCm, its tools and libraries, and what the sources gave."""

from __future__ import annotations

from exporter.checks.finding import Check, Seen, Severity, broken, elsewhere, info, listed, ok, warning
from exporter.checks.machine import Machine
from exporter.model import Reason

_SMI = ("amd-smi", "rocm-smi")
# The ones that windows are taken with; the first can attach, too.
_TRACERS = ("rocprofv3", "rocprofv2", "rocprof")
_PROFILERS = ("rocprofv3", "rocprofv2", "rocprof", "rocprof-compute")


_COUNTER = "amdgpu-exporter-counting"
_BUILD = "cmake -S deploy/device-counting -B build && cmake --build build  # where ROCm 7 or later is"
_COUNTING = "AMDGPU_EXPORTER_WINDOWS__DEVICE_COUNTING=true amdgpu-exporter serve  # on a node that may fail"


def _rocm(m: Machine) -> Seen:
    if not m.live:
        return elsewhere()
    found = m.rocm()
    if not found:
        return info("no ROCm: the kernel's files are enough for all but a few readings")
    versions = listed(f"{v} in {p}" for p, v in found.items())
    if len({v.split("-")[0] for v in found.values()}) > 1:
        return info(f"several ROCm versions: {versions}; tools of one may not fit libraries of another")
    return ok(f"ROCm {versions}")


def _module(m: Machine) -> Seen:
    if not m.live:
        return elsewhere()
    usable, words = m.amdsmi()
    if usable:
        return ok(words)
    return (warning if "mixed" in words else info)(words)


def _tool_text(m: Machine, names: tuple[str, ...]) -> str:
    return listed(
        f"{n} {m.tools[n].version or ''}".strip() + f" ({m.tools[n].path})" for n in names if n in m.tools
    )


def _smi_tools(m: Machine) -> Seen:
    if not m.live:
        return elsewhere()
    found = [n for n in _SMI if n in m.tools]
    if not found:
        return info("neither amd-smi nor rocm-smi; backend smi_cli cannot be used, the others can")
    return _mute(m, found) or ok(_tool_text(m, _SMI))


def _mute(m: Machine, names: list[str]) -> Seen | None:
    mute = [n for n in names if m.tools[n].version is None]
    if not mute:
        return None
    return warning(
        f"does not work: {listed(f'{m.tools[n].path}: {m.tools[n].problem}' for n in mute)}",
        f"{m.tools[mute[0]].path} --help",
    )


def _profilers(m: Machine) -> Seen:
    if not m.live:
        return elsewhere()
    found = [n for n in _PROFILERS if n in m.tools]
    if not found:
        return info("no profiler found; files that profilers wrote elsewhere can still be read")
    return _mute(m, found) or ok(_tool_text(m, _PROFILERS))


def _modes(m: Machine) -> Seen:
    """Which windows this machine could take, and what keeps the preset from taking them."""
    if not m.live:
        return elsewhere()
    modes = ["spool (files that jobs leave)"]
    if any(n in m.tools for n in _TRACERS):
        modes.append("command (a profiler around a command)")
    if "rocprofv3" in m.tools:
        modes.append("attach (rocprofv3, to processes started for it)")
    if _COUNTER in m.tools:
        modes.append(f"counters ({_COUNTER})")
    windows = m.settings.config.windows
    preset = windows.preset
    text = f"possible here: {', '.join(modes)}; preset in force: {preset}"
    if preset == "off":
        return info(f"{text}, so no window is taken in")
    if preset == "counters" and not windows.device_counting:
        why = "it never ran on hardware, and windows.device_counting is not set"
        return warning(f"{text}, which takes no window: {why}", _COUNTING)
    if preset == "counters" and _COUNTER not in m.tools:
        return warning(f"{text}, which takes no window: there is no {_COUNTER}", _BUILD)
    fit = {"canary": _TRACERS, "attach": _TRACERS[:1]}.get(preset)
    if fit and not any(n in m.tools for n in fit):
        return warning(f"{text}, which takes no window: there is no rocprofv3", "ls /opt/rocm*/bin/rocprofv3")
    return ok(text)


def _chosen(m: Machine) -> Seen:
    if not m.trials:
        return broken("no source could be asked")
    text = "; ".join(
        f"{t.name}: {len(t.devices)} GPUs, {t.readings} readings" if t.ok else f"{t.name}: {t.detail}"
        for t in m.trials
    )
    if not any(t.ok for t in m.trials):
        return broken(f"no source works: {text}", f"ls {m.sysfs.path}/class/drm {m.sysfs.path}/class/kfd")
    if not m.live:
        return ok(f"sysfs, since the tree is a copy ({text})")
    amdsmi = next((t for t in m.trials if t.name == "amdsmi"), None)
    if amdsmi is None:
        return ok(f"auto takes sysfs, since {m.amdsmi()[1]} ({text})")
    if amdsmi.ok:
        return ok(f"auto takes amdsmi, and sysfs for what it does not give ({text})")
    return warning(
        f"auto takes amdsmi and gets nothing from it; sysfs serves ({text})",
        "AMDGPU_EXPORTER_BACKEND=sysfs amdgpu-exporter serve  # until amd-smi works: amd-smi list",
    )


def _denied(m: Machine) -> Seen:
    denied = {t.name: n for t in m.trials if (n := t.missing.get(Reason.DENIED, 0))}
    if not denied:
        return ok("no reading is denied to us")
    return warning(
        f"readings that are there and denied to {m.user}: {listed(f'{n} by {s}' for s, n in denied.items())}",
        "sudo amdgpu-exporter check  # does root see more? then run the service so, or in group render",
    )


def _odd(m: Machine) -> Seen:
    reasons = (Reason.MALFORMED, Reason.IMPLAUSIBLE)
    odd = {t.name: n for t in m.trials if (n := sum(t.missing.get(r, 0) for r in reasons))}
    if not odd:
        return ok("every reading was understood")
    return warning(
        f"readings that made no sense and are left out: {listed(f'{n} of {s}' for s, n in odd.items())}"
    )


def _disagree(m: Machine) -> Seen:
    counts = {t.name: len({d.id.pci for d in t.devices}) for t in m.trials if t.ok}
    if len(set(counts.values())) <= 1:
        return ok("the sources list the same number of GPUs")
    return warning(f"GPUs by source: {listed(f'{s} {n}' for s, n in counts.items())}")


CHECKS: tuple[Check, ...] = (
    Check(
        "rocm.version",
        "The installed ROCm. It is optional; its amdsmi module and profilers come with it.",
        Severity.INFO,
        "cat /opt/rocm*/.info/version",
        _rocm,
    ),
    Check(
        "rocm.amdsmi",
        "The amdsmi module and its library, of one release: two releases mixed corrupt memory.",
        Severity.WARNING,
        "python3 -m pip uninstall amdsmi  # and install amd-smi-lib of the installed ROCm",
        _module,
    ),
    Check(
        "tools.smi",
        "amd-smi and rocm-smi, for backend smi_cli and for you.",
        Severity.WARNING,
        "ls /opt/rocm*/bin/amd-smi",
        _smi_tools,
    ),
    Check(
        "tools.profilers",
        "rocprofv3, rocprofv2, rocprof and rocprof-compute on PATH or in /opt/rocm*.",
        Severity.WARNING,
        "ls /opt/rocm*/bin/rocprof*",
        _profilers,
    ),
    Check(
        "windows.modes",
        "Which kinds of profiling windows this machine allows, and what keeps the preset from taking any.",
        Severity.WARNING,
        "AMDGPU_EXPORTER_WINDOWS__PRESET=spool amdgpu-exporter serve",
        _modes,
    ),
    Check(
        "sources.chosen",
        "The sources of readings, each asked once, and the one that backend auto takes.",
        Severity.BROKEN,
        "amdgpu-exporter serve --backend sysfs",
        _chosen,
    ),
    Check(
        "sources.denied",
        "Readings we may not have. A permission is missing; the hardware is fine.",
        Severity.WARNING,
        "sudo usermod -aG render,video $USER",
        _denied,
    ),
    Check(
        "sources.odd",
        "Readings outside what is possible, or in a form that is not known: never served, always counted.",
        Severity.WARNING,
        "amdgpu-exporter check --bundle report.tar.gz  # and send it to the maintainers",
        _odd,
    ),
    Check(
        "sources.agree",
        "As many GPUs by every source: a tool that shows fewer hides some.",
        Severity.WARNING,
        "amdgpu-exporter devices; amd-smi list",
        _disagree,
    ),
)
