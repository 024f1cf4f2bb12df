"""What a file is, from its first bytes; its name and extension are never asked. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from exporter.formats import counters, device_counting, rocprofv3, roctracer, summaries
from exporter.formats.rocprof_text import STARTS, Printed
from exporter.formats.rocprofv3_json import SdkJson
from exporter.formats.rows import header
from exporter.formats.torch_trace import TorchTrace
from exporter.formats.trace import Decoder, Names

HEAD = 1 << 18
GZIP = b"\x1f\x8b"
SQLITE = b"SQLite format 3\0"
_TIMES = {"start_timestamp", "end_timestamp"}
_COUNTED = {"counter_name", "counter_value", "kernel_name", "dispatch_id"}
_CALLED = {"function", "correlation_id"} | _TIMES
_DISPATCHED = {"kernel_name", "gpu_id", "dispatch_id"}
# The first whose columns are all there, and for the formats in _ONLY no others.
_TABLES: tuple[tuple[set[str], Callable[..., Decoder], str, str], ...] = (
    (_COUNTED | {"agent_id"}, counters.LongCounters, "rocprofv3-counters", "rocprofv3"),
    (_COUNTED | {"gpu_id"}, counters.LongCounters, "rocprof-compute-counters", "rocprof-compute"),
    (_CALLED | {"thread_id"}, rocprofv3.ApiTrace, "rocprofv3-api-trace", "rocprofv3"),
    (_CALLED | {"guid"}, rocprofv3.ApiTrace, "rocprofv3-api-trace", "rocprofv3"),
    (_CALLED, rocprofv3.ApiTrace, "rocprofv2-api-trace", "rocprofv2"),
    ({"direction"} | _TIMES, rocprofv3.CopyTrace, "rocprofv3-copy-trace", "rocprofv3"),
    ({"kernelname", "gpu-id"}, counters.Wide, "rocprof-v1", "rocprof"),
    (_DISPATCHED, summaries.Known, "rocprof-compute-dispatches", "rocprof-compute"),
    (_DISPATCHED | {"pid", "correlation_id"}, counters.Wide, "rocprofv2", "rocprofv2"),
    (_DISPATCHED, counters.Wide, "rocprof-compute", "rocprof-compute"),
    ({"kernel_name", "agent_id"} | _TIMES, rocprofv3.KernelTrace, "rocprofv3-kernel-trace", "rocprofv3"),
    ({"name", "calls", "totaldurationns", "minns"}, summaries.Stats, "rocprofv3-stats", "rocprofv3"),
    ({"name", "calls", "totaldurationns"}, summaries.Stats, "rocprof-stats", "rocprof"),
    ({"node_id", "agent_type"}, summaries.AgentInfo, "rocprofv3-agents", "rocprofv3"),
    ({"cu_per_gpu", "gpu_arch"}, summaries.SystemInfo, "rocprof-compute-sysinfo", "rocprof-compute"),
    ({"numcu", "gpu_soc"}, summaries.SystemInfo, "rocprof-compute-sysinfo", "rocprof-compute"),
    ({"cu_per_gpu", "gpu_soc"}, summaries.SystemInfo, "rocprof-compute-sysinfo", "rocprof-compute"),
    ({"hbmbw", "l2bw"}, summaries.Known, "rocprof-compute-roofline", "rocprof-compute"),
    ({"kind", "operation"} | _TIMES, summaries.Known, "rocprofv3-memory-trace", "rocprofv3"),
)
_ONLY = {"rocprof-compute-dispatches"}
# The log and the settings that rocprof-compute keeps in a workload's folder.
_COMPUTE_TEXT = re.compile(
    rb"^(?:config_dir: .*rocprof_compute|format_rocprof_output: |(?:Rocprofiler-Compute|Omniperf) version: )",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Found:
    """A decoder and how many bytes of the head are not for it; without a decoder, one line that says why."""

    decoder: Decoder | None
    offset: int = 0
    note: str = ""


def find(head: bytes, names: Names) -> Found:
    """The decoder for a file that begins with ``head``."""
    if not head.strip(b"\0 \t\r\n"):
        return Found(None, note="is empty")
    if head.startswith(SQLITE):
        return Found(None, note="is a compressed SQLite database; unpack it first: gunzip -k FILE")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in (b"{", b"[") and not _COMPUTE_TEXT.search(head):
        return _json(text, names)
    end = head.find(b"\n") + 1
    line = head[:end] if end else head
    make = _table(header(line))
    if make is not None:
        return Found(make(names), end or len(head))
    if b"\0" in head[:4096]:
        return Found(None, note="is binary data of no known kind")
    if line.startswith(b"pmc:"):
        return Found(summaries.Known((), names, "rocprof-input", "rocprof"))
    if _COMPUTE_TEXT.search(head):
        return Found(summaries.Known((), names, "rocprof-compute-text", "rocprof-compute"))
    if any(part.lstrip().startswith(STARTS) for part in head.split(b"\n")):
        return Found(Printed(names, "rocprofv2-text", "rocprofv2"))
    if roctracer.looks_like(head):
        return Found(roctracer.Roctracer(names))
    return Found(None, note="is no profiler output known here; its first line is " + _shown(line))


def _json(text: bytes, names: Names) -> Found:
    if (form := device_counting.looks_like(text)) is not None:
        return Found(device_counting.MAKERS[form](names))
    if b'"rocprofiler-sdk-tool"' in text:
        return Found(SdkJson(names))
    if b'"traceEvents"' in text or (text[:1] == b"[" and b'"ph"' in text):
        return Found(TorchTrace(names, "pytorch-trace", "pytorch"))
    return Found(None, note='is JSON without the "traceEvents" of a profiler trace')


def _table(written: list[str]) -> Callable[[Names], Decoder] | None:
    """The maker of a decoder for a table with these columns."""
    raw = {name.lower() for name in written}
    have = raw | set(rocprofv3.plain_columns(written))
    for needs, kind, form, tool in _TABLES:
        if needs <= have and (kind is not summaries.Known or form not in _ONLY or needs == raw):
            return lambda names: kind(written, names, form, tool)
    return None


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    text = "".join(ch if ch.isprintable() else "\ufffd" for ch in text)
    return repr(text if len(text) <= 60 else text[:57] + "...")
