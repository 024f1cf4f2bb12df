"""What a file is, from its first bytes; its name and extension are never asked. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from exporter.formats import counters, rocprofv3, summaries
from exporter.formats.rocprof_text import STARTS, Printed
from exporter.formats.rows import header
from exporter.formats.torch_trace import TorchTrace
from exporter.formats.trace import Decoder, Names

HEAD = 1 << 18
GZIP = b"\x1f\x8b"
_TIMES = {"start_timestamp", "end_timestamp"}


@dataclass(frozen=True, slots=True)
class Found:
    """A decoder and how many bytes of the head are not for it; or, without a decoder, one line that says why."""

    decoder: Decoder | None
    offset: int = 0
    note: str = ""


def find(head: bytes, names: Names) -> Found:
    """The decoder for a file that begins with ``head``."""
    if not head.strip(b"\0 \t\r\n"):
        return Found(None, note="is empty")
    if head.startswith(b"SQLite format 3\0"):
        return Found(None, note="is an SQLite database (rocpd); convert it first: rocpd convert -i FILE -f csv")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in (b"{", b"["):
        return _json(text, names)
    if b"\0" in head[:4096]:
        return Found(None, note="is binary data of no known kind")
    end = head.find(b"\n") + 1
    line = head[:end] if end else head
    make = _table(header(line))
    if make is not None:
        return Found(make(names), end or len(head))
    if any(part.lstrip().startswith(STARTS) for part in head.split(b"\n")):
        return Found(Printed(names, "rocprofv2-text", "rocprofv2"))
    return Found(None, note="is no profiler output known here; its first line is " + _shown(line))


def _json(text: bytes, names: Names) -> Found:
    if b'"rocprofiler-sdk-tool"' in text:
        return Found(None, note="is rocprofv3 JSON, which is not read yet; run rocprofv3 with --output-format csv")
    if b'"traceEvents"' in text or (text[:1] == b"[" and b'"ph"' in text):
        return Found(TorchTrace(names, "pytorch-trace", "pytorch"))
    return Found(None, note='is JSON without the "traceEvents" of a profiler trace')


def _table(written: list[str]) -> Callable[[Names], Decoder] | None:
    """The maker of a decoder for a table with these columns."""
    columns = rocprofv3.plain_columns(written)
    have, raw = set(columns), {name.lower() for name in written}

    def make(kind: Callable[..., Decoder], form: str, tool: str = "rocprofv3") -> Callable[[Names], Decoder]:
        return lambda names: kind(written, names, form, tool)

    if {"counter_name", "counter_value", "kernel_name", "dispatch_id"} <= have:
        if "gpu_id" in have and "agent_id" not in have:
            return make(counters.LongCounters, "rocprof-compute-counters", "rocprof-compute")
        return make(counters.LongCounters, "rocprofv3-counters")
    if {"function", "correlation_id"} | _TIMES <= have:
        if "thread_id" in have or "guid" in have:
            return make(rocprofv3.ApiTrace, "rocprofv3-api-trace")
        return make(rocprofv3.ApiTrace, "rocprofv2-api-trace", "rocprofv2")
    if {"direction"} | _TIMES <= have:
        return make(rocprofv3.CopyTrace, "rocprofv3-copy-trace")
    if {"kernelname", "gpu-id"} <= raw:
        return make(counters.Wide, "rocprof-v1", "rocprof")
    if {"kernel_name", "gpu_id", "dispatch_id"} <= have:
        if not raw - {"dispatch_id", "kernel_name", "gpu_id"}:
            return make(summaries.Known, "rocprof-compute-dispatches", "rocprof-compute")
        if "pid" in raw and "correlation_id" in raw:
            return make(counters.Wide, "rocprofv2", "rocprofv2")
        return make(counters.Wide, "rocprof-compute", "rocprof-compute")
    if {"kernel_name", "agent_id"} | _TIMES <= have:
        return make(rocprofv3.KernelTrace, "rocprofv3-kernel-trace")
    if {"name", "calls", "totaldurationns"} <= raw:
        return make(summaries.Stats, "rocprofv3-stats" if "minns" in raw else "rocprof-stats")
    if {"node_id", "agent_type"} <= raw:
        return make(summaries.AgentInfo, "rocprofv3-agents")
    if "cu_per_gpu" in raw and raw & {"gpu_arch", "gpu_soc"}:
        return make(summaries.SystemInfo, "rocprof-compute-sysinfo", "rocprof-compute")
    if {"kind", "operation"} | _TIMES <= have:
        return make(summaries.Known, "rocprofv3-memory-trace")
    return None


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    text = "".join(ch if ch.isprintable() else "\ufffd" for ch in text)
    return repr(text if len(text) <= 60 else text[:57] + "...")
