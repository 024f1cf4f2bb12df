"""Which tools can measure what, how each is called, and which package brings it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from exporter.formats import launch_loop
from exporter.model import Device

TRANSFERBENCH, BANDWIDTH_TEST, ROCBLAS, TORCH = (
    "TransferBench",
    "rocm-bandwidth-test",
    "rocblas-bench",
    "torch",
)
# By probe, the one that is taken first standing first.
TOOLS: Mapping[str, tuple[str, ...]] = {
    "bandwidth": (TRANSFERBENCH, BANDWIDTH_TEST),
    "gemm": (ROCBLAS,),
    "launch": (TRANSFERBENCH, ROCBLAS, TORCH),
}
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    TRANSFERBENCH: ("TransferBench",),
    BANDWIDTH_TEST: ("rocm_bandwidth_test", "rocm-bandwidth-test"),
    ROCBLAS: ("rocblas-bench",),
}
PACKAGES: Mapping[str, str] = {
    "bandwidth": (
        "install transferbench-dev, rocm-validation-suite (which brings TransferBench) or, "
        "before ROCm 7.14, rocm-bandwidth-test"
    ),
    "gemm": "install rocblas-clients (in Debian and Ubuntu: librocblas5-bench or librocblas0-bench)",
    "launch": (
        "install a TransferBench that has the preset empty, rocblas-clients (in Debian and Ubuntu: "
        "librocblas5-bench or librocblas0-bench), or name a Python that has PyTorch for ROCm with "
        "--tool torch --python"
    ),
}
PRECISIONS = ("f64", "f32", "f16", "bf16")
_SIZE = 8192
_HALF = ("f16", "bf16")
_BYTES = 268_435_456
_TABLE_S, _CALL_S, _LOOP_S = 900.0, 180.0, 300.0
BATCH = 256  # launches between two waits
# The tools count GPUs as the runtime does; these would make it count otherwise.
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
_PASSED = (OVERRIDE, "ROCBLAS_TENSILE_LIBPATH")  # without which the libraries may not work here at all
HIDING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that measures; ``plugin``: a rocm_bandwidth_test that runs TransferBench as a plugin."""

    name: str
    path: str
    plugin: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One call. ``key`` says what it gives; ``device`` is the GPU that it measures, None for all."""

    key: str
    argv: tuple[str, ...]
    seconds: float
    device: Device | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False


def steps(probe: str, tool: Tool, devices: Sequence[Device], environ: Mapping[str, str]) -> tuple[Step, ...]:
    """All calls that a probe takes, in order."""
    passed = {name: environ[name] for name in _PASSED if name in environ}
    made = _steps(probe, tool, devices, environ)
    return tuple(replace(step, env={**passed, **step.env}) for step in made)


def _steps(probe: str, tool: Tool, devices: Sequence[Device], environ: Mapping[str, str]) -> tuple[Step, ...]:
    if probe == "bandwidth":
        return _tables(tool)
    known = [d for d in devices if "hip" in d.indices]
    if tool.name == TORCH:
        env = {k: v for k, v in environ.items() if k not in HIDING}
        script = ("-c", launch_loop.SCRIPT)
        return tuple(
            Step("launch", (tool.path, *script, str(d.indices["hip"])), _LOOP_S, d, env) for d in known
        )
    if probe == "launch" and tool.name == TRANSFERBENCH:
        env = {"BATCHSIZES": f"1,{BATCH}", "GRIDSIZES": "1", "BLOCKSIZES": "64", "NUM_ITERATIONS": "100"}
        first = Step("topology", (tool.path,), _CALL_S, optional=True)
        return first, Step("empty", (tool.path, "empty"), _CALL_S, env=env)
    if probe == "launch":
        call = ("-f", "axpy", "-r", "f32_r", "-n", "1", "--alpha", "1", "--incx", "1", "--incy", "1")
        return tuple(_bench(tool, "launch", d, (*call, "-i", "10000", "-j", "1000")) for d in known)
    return tuple(_bench(tool, kind, d, gemm(kind)) for d in known for kind in PRECISIONS)


def gemm(precision: str) -> tuple[str, ...]:
    """A matrix product that is large enough to fill any GPU; halves are added up in single precision."""
    size = str(_SIZE)
    shape = ["--transposeA", "N", "--transposeB", "T", "-m", size, "-n", size, "-k", size]
    shape += ["--lda", size, "--ldb", size, "--ldc", size, "--alpha", "1", "--beta", "0"]
    loops = ("-i", "20", "-j", "5")
    if precision not in _HALF:
        return ("-f", "gemm", "-r", f"{precision}_r", *shape, *loops)
    types = [w for m in "abcd" for w in (f"--{m}_type", f"{precision}_r")]
    return ("-f", "gemm_ex", *types, "--compute_type", "f32_r", *shape, "--ldd", size, *loops)


def _tables(tool: Tool) -> tuple[Step, ...]:
    if tool.name == BANDWIDTH_TEST and not tool.plugin:
        return (Step("table", (tool.path, "-a"), _TABLE_S),)
    first = (tool.path, "plugin", "--run", "tb") if tool.plugin else (tool.path,)
    size = () if tool.plugin else (str(_BYTES),)
    return (
        Step("topology", first, _CALL_S, optional=True),
        Step("table", (*first, "p2p", *size), _TABLE_S, env={"P2P_MODE": "1"}),
    )


def _bench(tool: Tool, key: str, device: Device, call: Sequence[str]) -> Step:
    return Step(key, (tool.path, *call, "--device", str(device.indices["hip"])), _CALL_S, device)
