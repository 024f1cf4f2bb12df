"""What the configuration and this machine say to whoever takes windows."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from exporter.config import Config
from exporter.host import Root
from exporter.model import Device
from exporter.windows.baseline import Healthy
from exporter.windows.breaker import BreakerRules
from exporter.windows.order import Order
from exporter.windows.policy import Deny, Rules

_ACTIVE = re.compile(r"^\s*\d+\s+(\w+)\s*\*", re.MULTILINE)


def order_of(config: Config, *, replayed: bool = False) -> Order:
    """What the configuration asks of the sampler. A replay starts nothing, whatever the preset."""
    windows, advice = config.windows, config.advice
    preset = "spool" if replayed and windows.preset != "off" else windows.preset
    rules = Rules(
        preset=preset,
        window_s=windows.duration,
        duty_ratio=windows.duty_cycle,
        memory_ratio=windows.memory_most,
        process_age_s=windows.process_age,
        quiet_s=windows.quiet,
        collective_gpus=windows.collective_gpus,
        deep_per_day=windows.deep_per_day,
        deny=tuple(map(Deny.parse, windows.deny)),
        breaker=BreakerRules(windows.breaker_errors, windows.breaker_backoff),
    )
    return Order(
        rules,
        windows.interval,
        windows.device_counting,
        windows.command,
        windows.allow,
        windows.max_bytes,
        Healthy(**advice.model_dump()),
        grace_s=windows.grace,
    )


def node_name(environ: Mapping[str, str]) -> str:
    """The name of this node: what an orchestrator calls it, else the host's."""
    return environ.get("NODE_NAME") or os.uname().nodename


def boot_id(procfs: str) -> str:
    """What names this boot of the kernel, the same in every namespace; empty where it cannot be read."""
    return Root(procfs).text("sys/kernel/random/boot_id") or ""


def rocm(environ: Mapping[str, str]) -> str | None:
    """The version of the installed ROCm; the one that is named first."""
    named = [environ.get("ROCM_PATH"), environ.get("ROCM_HOME"), "/opt/rocm"]
    texts = (Root("/").text(f"{prefix.strip('/')}/.info/version") for prefix in named if prefix)
    return next((text for text in texts if text), None)


def power_profile(sysfs: Root, device: Device) -> str | None:
    """The power profile in force, which the driver marks with an asterisk."""
    card = device.indices.get("drm")
    if card is None:
        return None
    try:
        folder = sysfs.resolve(f"class/drm/card{card}/device")
    except OSError:
        return None
    found = _ACTIVE.search(sysfs.text(f"{folder}/pp_power_profile_mode") or "")
    return found[1] if found else None
