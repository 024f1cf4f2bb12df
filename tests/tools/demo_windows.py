"""Profiled windows of the demo capture, laid out from schedules so that their truth is known beforehand.

Each schedule places calls, kernels and copies one after the other and adds what it has just placed to the
window's truth: how long the GPU executed, waited or starved is decided here, not measured afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from demo_tables import (
    CALL_COLUMNS,
    COMPUTE_UNITS,
    COPY_COLUMNS,
    COUNTER_COLUMNS,
    KERNEL_COLUMNS,
    KFD_NODE,
    MS,
    NODE,
    PCI,
    TOOL,
    US,
    XCDS,
    Dice,
    agents,
    csv,
    json_bytes,
)

GEMM = (
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1_ASEM1_CLR1_"
    "CADS0_DTLA0_DTLB0_DTVA0_DTVB0_EPS0_FDSI0_GRPM1_GRVWA8_GRVWB8_GSU1_GSUASB_GLS0_ISA942_IU1_K1_LBSPPA512"
)
GEMM_SMALL = (
    "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x64x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1_ASEM1_CLR1_"
    "CADS0_DTLA0_DTLB0_DTVA0_DTVB0_EPS0_FDSI0_GRPM1_GRVWA8_GRVWB8_GSU1_GSUASB_GLS0_ISA942_IU1_K1_LBSPPA256"
)
ATTENTION = "attn_fwd(float*, __hip_bfloat16 const*, __hip_bfloat16 const*, int, int, float)"
NORM = "void rms_norm_kernel<__hip_bfloat16, 1024>(__hip_bfloat16*, __hip_bfloat16 const*, float, int)"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
ALL_REDUCE = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "void embedding_gather<float, 128>(float*, float const*, long const*, int)"


@dataclass
class Demo:
    """One window being laid out: its rows and its truth."""

    name: str
    pci: str
    seed: int
    mode: str = "trace"
    calls: list[tuple[object, ...]] = field(default_factory=list)
    kernels: list[tuple[object, ...]] = field(default_factory=list)
    copies: list[tuple[object, ...]] | None = None
    counters: list[tuple[object, ...]] = field(default_factory=list)
    truth: dict[str, object] = field(default_factory=dict)
    kernel_ids: dict[str, int] = field(default_factory=dict)
    issued: dict[tuple[str, int], int] = field(default_factory=dict)  # ids given out, per process

    def __post_init__(self) -> None:
        self.dice = Dice(self.seed)
        self.pid = 40_000 + 7 * self.seed
        self.start = 1_550_000_000_000_000 + self.seed * 9_000_000_000
        self.now = self.start
        self.agent = f"Agent {KFD_NODE[self.pci]}"
        self.sums = dict.fromkeys(
            ("kernels", "launches", "queue_ns", "launch_duration_ns", "launch_call_ns", "execution_ns"), 0
        )
        self.timeline = dict.fromkeys(("executing", "queued", "launching", "starved"), 0)

    def call(self, function: str, at: int, took: int) -> int:
        correlation = self.issue("correlation")
        domain = "HIP_RUNTIME_API_EXT"
        self.calls.append((domain, function, self.pid, self.pid, correlation, at, at + took))
        return correlation

    def issue(self, what: str) -> int:
        """The next id of its kind; every process counts from 1."""
        self.issued[what, self.pid] = self.issued.get((what, self.pid), 0) + 1
        return self.issued[what, self.pid]

    def launch(self, at: int, took: int, function: str = "hipLaunchKernel") -> int:
        self.sums["launches"] += 1
        self.sums["launch_call_ns"] += took
        return self.call(function, at, took)

    def kernel(self, name: str, correlation: int, at: int, took: int, stream: int = 1) -> None:
        kernel_id = self.kernel_ids.setdefault(name, 10 + len(self.kernel_ids))
        dispatch = self.issue("dispatch")
        shape = (16384, 0, 128, 128, 96, 256, 1, 1, 77824, 1, 1)
        self.kernels.append(
            (
                *("KERNEL_DISPATCH", self.agent, stream, stream, self.pid, dispatch, kernel_id, name),
                *(correlation, at, at + took),
                *shape,
            )
        )
        self.sums["kernels"] += 1
        self.sums["execution_ns"] += took

    def paired(self, queue: int, took: int) -> None:
        """The launch just placed waited ``queue`` from its start; its first kernel ran ``took``."""
        self.sums["queue_ns"] += queue
        self.sums["launch_duration_ns"] += queue + took

    def copy(self, at: int, took: int, correlation: int, direction: str = "HOST_TO_DEVICE") -> None:
        assert self.copies is not None
        ends = ("Agent 0", self.agent) if direction == "HOST_TO_DEVICE" else (self.agent, "Agent 0")
        self.copies.append(("MEMORY_COPY", f"MEMORY_COPY_{direction}", 0, *ends, correlation, at, at + took))

    def spend(self, state: str, ns: int) -> None:
        """Let time pass in one state of the timeline."""
        self.timeline[state] += ns
        self.now += ns


def gpu_bound(w: Demo) -> None:
    """The host runs far ahead: the queue is long and the GPU never waits. One kernel is carried in."""
    carried = 90 * US
    w.kernel(GEMM, 0, w.start - 60 * US, 60 * US + carried)
    w.sums["execution_ns"] -= 60 * US  # clipped at the bound
    names = (GEMM, GEMM, ATTENTION, GEMM_SMALL, NORM, GEMM, ADD)
    lasts = (260, 240, 190, 95, 22, 230, 14)
    calls = [(w.start + (i + 1) * 11 * US, w.dice.throw(3_500, 5_200)) for i in range(182)]
    placed = [(at, w.launch(at, took)) for at, took in calls]
    w.spend("executing", carried)
    for i, (at, correlation) in enumerate(placed):
        w.spend("queued", w.dice.throw(1_800, 3_200))
        took = lasts[i % 7] * US + w.dice.throw(-4_000, 4_000)
        w.kernel(names[i % 7], correlation, w.now, took)
        w.paired(w.now - at, took)
        w.spend("executing", took)
    w.truth |= {"unmatched_kernels": 1, "bottleneck": "gpu_bound", "copy_exposed_ns": None}


def one_by_one(w: Demo, times: int, names: tuple[str, ...], spans: dict[str, tuple[int, int]]) -> None:
    """Launch, wait, run, and do nothing for a while; again and again. ``spans`` are (low, high) ns."""
    for i in range(times):
        call, wait, run, pause = (w.dice.throw(*spans[k]) for k in ("call", "wait", "run", "pause"))
        correlation = w.launch(w.now, call)
        w.kernel(names[i % len(names)], correlation, w.now + call + wait, run)
        w.paired(call + wait, run)
        w.spend("launching", call)
        w.spend("queued", wait)
        w.spend("executing", run)
        w.spend("starved", pause)


def launch_bound(w: Demo) -> None:
    spans = {"call": (7_000, 9_000), "wait": (5_000, 7_000), "run": (2_400, 3_600), "pause": (7_000, 9_000)}
    one_by_one(w, 800, (ADD, NORM, ADD, GATHER), spans)
    w.truth |= {"bottleneck": "launch_bound", "copy_exposed_ns": None}


def host_stalled(w: Demo) -> None:
    spans = {"call": (15_000, 21_000), "wait": (4_000, 8_000), "run": (170_000, 190_000)}
    one_by_one(w, 15, (GEMM, ATTENTION, GEMM_SMALL), spans | {"pause": (1_700_000, 1_900_000)})
    w.truth |= {"bottleneck": "host_stalled", "copy_exposed_ns": None}


def balanced(w: Demo) -> None:
    spans = {"call": (5_000, 9_000), "wait": (6_000, 10_000), "run": (120_000, 140_000)}
    one_by_one(w, 140, (GATHER, ADD, GATHER, GEMM_SMALL), spans | {"pause": (50_000, 70_000)})
    w.truth |= {"bottleneck": "balanced", "copy_exposed_ns": None}


def communication(w: Demo) -> None:
    """Layers of a product and an all-reduce that begins beside it and outlasts it."""
    layers = 42
    first = w.start
    placed = []
    for i in range(2 * layers):
        at = first + i * 9 * US
        placed.append((at, w.launch(at, 4 * US, "hipExtModuleLaunchKernel" if i % 2 else "hipLaunchKernel")))
    exposed = 0
    w.spend("launching", 4 * US)
    for layer in range(layers):
        w.spend("queued", w.dice.throw(3_000, 5_000))
        product, reduce, beside = w.dice.throw(270_000, 290_000), w.dice.throw(360_000, 400_000), 60 * US
        for (at, correlation), name, start, took, stream in (
            (placed[2 * layer], GEMM, w.now, product, 1),
            (placed[2 * layer + 1], ALL_REDUCE, w.now + product - beside, reduce, 2),
        ):
            w.kernel(name, correlation, start, took, stream)
            w.paired(start - at, took)
        exposed += reduce - beside
        w.spend("executing", product + reduce - beside)
    w.truth |= {"bottleneck": "communication", "collective_exposed_ns": exposed, "copy_exposed_ns": None}


def copy_bound(w: Demo) -> None:
    """Each batch is copied to the GPU while nothing else runs, then a short product, then a copy back."""
    w.copies = []
    exposed = {"host_to_device": 0, "device_to_host": 0}
    for _ in range(24):
        come, go = w.dice.throw(600_000, 660_000), w.dice.throw(180_000, 210_000)
        w.copy(w.now + 8 * US, come, w.call("hipMemcpy", w.now, come + 16 * US))
        exposed["host_to_device"] += come
        w.spend("starved", come + 20 * US)
        call, wait, run = 6 * US, w.dice.throw(5_000, 7_000), w.dice.throw(320_000, 350_000)
        correlation = w.launch(w.now, call)
        w.kernel(GEMM_SMALL, correlation, w.now + call + wait, run)
        w.paired(call + wait, run)
        w.spend("launching", call)
        w.spend("queued", wait)
        w.spend("executing", run)
        w.copy(w.now + 8 * US, go, w.call("hipMemcpy", w.now, go + 16 * US), "DEVICE_TO_HOST")
        exposed["device_to_host"] += go
        w.spend("starved", go + 30 * US)
    w.truth |= {"bottleneck": "copy_bound", "copy_exposed_ns": exposed}


def dependency_bound(w: Demo) -> None:
    """Graphs of small kernels that wait for each other: everything is submitted, little of it runs."""
    names = (*(f"triton_poi_fused_add_mul_{i}" for i in range(6)), "triton_red_fused_mean_6", GEMM_SMALL)
    for _ in range(36):
        call, wait = w.dice.throw(18_000, 24_000), w.dice.throw(6_000, 9_000)
        at = w.now
        correlation = w.launch(at, call, "hipGraphLaunch")
        w.spend("launching", call)
        for node in range(24):
            w.spend("queued", wait if node == 0 else w.dice.throw(10_000, 12_000))
            run = w.dice.throw(9_000, 13_000)
            w.kernel(names[node % 8], correlation, w.now, run)
            if node == 0:
                w.paired(w.now - at, run)
            w.spend("executing", run)
        w.spend("starved", w.dice.throw(20_000, 30_000))
    w.truth |= {"bottleneck": "dependency_bound", "copy_exposed_ns": None}


def contended(w: Demo) -> None:
    """Two processes keep their queues full and take turns; each turn costs a switch."""
    placed: list[tuple[int, int, int]] = []
    pids = (w.pid, w.pid + 1)
    for i in range(120):
        for pid in pids:
            w.pid, at = pid, w.start + i * 14 * US
            placed.append((pid, at, w.launch(at, 4 * US)))
    w.spend("launching", 4 * US)
    for pid, at, correlation in placed:
        w.spend("queued", w.dice.throw(54_000, 62_000))
        w.pid, took = pid, w.dice.throw(46_000, 54_000)
        w.kernel(ATTENTION if pid == pids[0] else GEMM_SMALL, correlation, w.now, took)
        w.paired(w.now - at, took)
        w.spend("executing", took)
    w.pid = pids[0]
    w.truth |= {"bottleneck": "contended", "copy_exposed_ns": None}


def empty(w: Demo) -> None:
    """Nothing ran: the profiler then writes no trace file at all."""
    w.spend("starved", 30 * MS)


@dataclass(frozen=True)
class Mix:
    """What the kernels of a counter window are like; shares in per mille, so that sums stay whole."""

    names: tuple[str, ...]
    dispatches: int
    clock_mhz: int
    density: int
    active: int
    hit: int
    lanes: int
    matrix: int
    waves: int


def counters(w: Demo, mix: Mix) -> None:
    """One pass of the light set; kernels run one by one, as counting makes them."""
    sums = dict.fromkeys(("valu", "slots", "slots_active", "hits", "requests", "duration"), 0)
    per_xcd = COMPUTE_UNITS // XCDS
    for i in range(mix.dispatches):
        w.now += w.dice.throw(60_000, 90_000)
        took = w.dice.throw(200, 260) * US
        cycles = took * mix.clock_mhz // 1000
        count, active = XCDS * cycles, XCDS * (cycles * mix.active // 1000)
        issued = cycles * COMPUTE_UNITS * mix.density // 1000
        requests = 1000 * w.dice.throw(400, 900)
        hits = requests // 1000 * (mix.hit + w.dice.throw(-9, 9))
        values = {
            "GRBM_COUNT": count,
            "GRBM_GUI_ACTIVE": active,
            "SQ_WAVES": 4864 + 64 * w.dice.throw(0, 9),
            "SQ_INSTS_VALU": issued,
            "SQ_ACTIVE_INST_VALU": issued,
            "SQ_THREAD_CYCLES_VALU": issued * 64 * mix.lanes // 1000,
            "SQ_VALU_MFMA_BUSY_CYCLES": active * per_xcd * 4 * mix.matrix // 1000,
            "SQ_BUSY_CU_CYCLES": active * per_xcd * 9 // 10,
            "SQ_WAVE_CYCLES": active * per_xcd * 8 * mix.waves // 1000,
            "TCC_HIT_sum": hits,
            "TCC_MISS_sum": requests - hits,
        }
        name = mix.names[i % len(mix.names)]
        kernel_id = w.kernel_ids.setdefault(name, 10 + len(w.kernel_ids))
        for counter, value in values.items():
            w.counters.append(
                (
                    *(i + 1, i + 1, w.agent, 1, w.pid, w.pid, 77824, kernel_id, name),
                    *(256, 16384, 0, 128, 128, 96),
                    *(counter, f"{value}.000000", w.now, w.now + took),
                )
            )
        w.now += took
        for key, more in (
            ("valu", issued),
            ("slots", count * per_xcd),
            ("slots_active", active * per_xcd),
            ("hits", hits),
            ("requests", requests),
            ("duration", took),
        ):
            sums[key] += more
    w.truth |= {
        "valu_instructions": sums["valu"],
        "compute_density_ratio": sums["valu"] / sums["slots"],
        "compute_density_active_ratio": sums["valu"] / sums["slots_active"],
        "l2_hits": sums["hits"],
        "l2_requests": sums["requests"],
        "l2_hit_ratio": sums["hits"] / sums["requests"],
        "dispatches": mix.dispatches,
    }


DENSE = Mix((GEMM, GEMM_SMALL, ATTENTION), 30, 1720, 410, 970, 820, 990, 620, 560)
SPARSE = Mix((GATHER, ADD), 30, 2080, 90, 940, 180, 870, 0, 310)
SMALL = Mix((ADD, NORM, GATHER), 20, 2100, 60, 310, 550, 930, 0, 120)

Schedule = Callable[[Demo], None]
# name, GPU, seconds after the start of a round, schedule
WINDOWS: tuple[tuple[str, str, float, Schedule], ...] = (
    ("0001-gpu_bound", PCI[0], 3.0, gpu_bound),
    ("0002-launch_bound", PCI[2], 13.0, launch_bound),
    ("0003-host_stalled", PCI[3], 23.0, host_stalled),
    ("0004-communication", PCI[4], 33.0, communication),
    ("0005-copy_bound", PCI[5], 43.0, copy_bound),
    ("0006-dependency_bound", PCI[6], 53.0, dependency_bound),
    ("0007-balanced", PCI[7], 63.0, balanced),
    ("0008-empty", PCI[1], 73.0, empty),
    ("0009-counters", PCI[0], 83.0, lambda w: counters(w, DENSE)),
    ("0010-counters", PCI[7], 93.0, lambda w: counters(w, SPARSE)),
    ("0011-counters", PCI[2], 103.0, lambda w: counters(w, SMALL)),
    ("0012-contended", PCI[6], 112.0, contended),
)


def files() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """(files of the capture below ``windows/``, truths by window name)."""
    out: dict[str, bytes] = {}
    truths: dict[str, bytes] = {}
    for seed, (name, pci, _, schedule) in enumerate(WINDOWS, start=1):
        w = Demo(name, pci, seed, "counters" if name.endswith("-counters") else "trace")
        schedule(w)
        out |= {f"{name}/{file}": body for file, body in _files(w).items()}
        truths[name] = json_bytes(_truth(w))
    return out, truths


def _truth(w: Demo) -> dict[str, object]:
    known: dict[str, object] = {"gpu": w.pci, "mode": w.mode, "span_ns": w.now - w.start}
    if w.mode == "trace" and w.kernels:
        known |= {**w.sums, "timeline_ns": w.timeline, "busy_ns": w.timeline["executing"]}
        known |= {"unmatched_kernels": 0, "unmatched_calls": 0, "skewed": 0, "collective_exposed_ns": 0}
    return known | w.truth


def _files(w: Demo) -> dict[str, bytes]:
    pids = sorted({pid for _, pid in w.issued} | {w.pid})
    manifest = {
        "version": 1,
        "id": f"demo-{w.name}",
        "tool": TOOL,
        "mode": w.mode,
        "bounds_ns": [w.start, w.now],
        "agents": {w.agent: w.pci},
        "node": NODE,
        "processes": [{"pid": pid, "start": pid * 100} for pid in pids],
        "run": "+".join(f"{pid}:{pid * 100}" for pid in pids),
    }
    out = {"manifest.json": json_bytes(manifest)}
    # Where a table names its process: by the thread that launched, which here is the process's only one.
    tables = {
        "kernel_trace": (KERNEL_COLUMNS, w.kernels, KERNEL_COLUMNS.index("Thread_Id")),
        "hip_api_trace": (CALL_COLUMNS, w.calls, CALL_COLUMNS.index("Process_Id")),
        "memory_copy_trace": (COPY_COLUMNS, w.copies or [], None),
        "counter_collection": (COUNTER_COLUMNS, w.counters, COUNTER_COLUMNS.index("Process_Id")),
    }
    for pid in pids:
        out[f"{pid}_agent_info.csv"] = agents()
        for table, (columns, found, owner) in tables.items():
            if rows := [row for row in found if owner is None or row[owner] == pid]:
                out[f"{pid}_{table}.csv"] = csv(columns, rows)
    return out
