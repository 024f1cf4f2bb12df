"""What an alert is; wording that all share is made here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from alerts.settings import Settings

_WHERE = {
    "gpu": "{{ $labels.instance }}, GPU {{ $labels.gpu }} at {{ $labels.pci }}"
    "{{ with $labels.partition }}, partition {{ . }}{{ end }}: ",
    "node": "{{ $labels.instance }}: ",
    "job": "{{ with $labels.job_id }}job {{ . }}{{ end }}"
    "{{ with $labels.pod }}pod {{ $labels.namespace }}/{{ . }}{{ end }}: ",
    "fleet": "",
}
PERCENT = "{{ $value | humanizePercentage }}"
DURATION = "{{ $value | humanizeDuration }}"
PLAIN = '{{ $value | printf "%.4g" }}'
WHOLE = '{{ $value | printf "%.0f" }}'
_PAGES = {
    "fleet": "amdgpu-fleet",
    "node": "amdgpu-node",
    "kernels": "amdgpu-kernels",
    "history": "amdgpu-history",
    "job": "amdgpu-job",
}
_PAGES["exporter"] = "amdgpu-exporter-health"


@dataclass(frozen=True)
class Alert:
    """One alert. ``about`` is what it speaks of; ``what`` is one sentence that may hold ``{value}``.

    ``command`` is the first one to run, on the node unless it names another place.
    """

    name: str
    about: str  # gpu, node, job or fleet
    expr: str
    summary: str
    what: str
    command: str
    value: str = PLAIN
    page: str = "node"  # which dashboard shows it
    bottlenecks: tuple[str, ...] = ()  # pages of the bottleneck runbooks that say what to try
    silent: bool = False  # the node's exporter does not answer, so its pages cannot be linked to

    def rule(self, settings: Settings, annotations: bool = True) -> dict[str, Any]:
        """The alert as Prometheus reads it. Behaviour tests leave the wording out."""
        own = settings[self.name]
        rule: dict[str, Any] = {"alert": self.name, "expr": self.expr, "for": own.span("for")}
        if own.ms("keep"):
            rule["keep_firing_for"] = own.span("keep")
        rule["labels"] = {"severity": own["severity"], "about": self.about}
        if annotations:
            rule["annotations"] = self._annotations(settings)
        return rule

    def _annotations(self, settings: Settings) -> dict[str, str]:
        common = settings.common
        here = self.about in ("gpu", "node") and not self.silent
        bases = common["runbook_base"], common["runbook_base_elsewhere"]
        base, suffix = bases[0 if here else 1], common["runbook_suffix"]
        first = f"First: {self.command}"
        description = f"{_WHERE[self.about]}{self.what.replace('{value}', self.value)} {first}"
        told = {
            "summary": self.summary,
            "description": description,
            "value": self.value,
            "command": self.command,
            "runbook_url": f"{base}{self.name}{suffix}",
        }
        if common["dashboard_base"]:
            told["dashboard_url"] = self._dashboard(common["dashboard_base"])
        elif here:
            told["dashboard_url"] = "http://{{ $labels.instance }}/"
        if self.bottlenecks:
            told["bottleneck_url"] = " ".join(f"{base}bottleneck-{b}{suffix}" for b in self.bottlenecks)
        return told

    def _dashboard(self, base: str) -> str:
        picked = {
            "gpu": ("node", "gpu"),
            "node": ("node",),
            "job": ("namespace", "workload", "job_id"),
            "fleet": (),
        }[self.about]
        label = {
            "node": "{{ $labels.instance }}",
            "gpu": "{{ $labels.gpu }}",
            "namespace": "{{ $labels.namespace }}",
            "workload": "{{ $labels.pod }}",
            "job_id": "{{ $labels.job_id }}",
        }
        query = "&".join(f"var-{name}={label[name]}" for name in picked)
        return f"{base}/d/{_PAGES[self.page]}" + (f"?{query}" if query else "")
