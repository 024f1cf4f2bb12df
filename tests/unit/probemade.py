"""Outputs of the tools that probe runs, in the form that they print, with numbers of our own."""

from __future__ import annotations

from collections.abc import Sequence

Matrix = Sequence[Sequence[float | None]]

# Two NUMA nodes and two GPUs; GB/s from row to column. No measurement is by chance like another.
CPUS, GPUS = 2, 2
UNI: Matrix = (
    (91.25, 102.5, 45.11, 45.16),
    (104.75, 90.09, 44.74, 44.76),
    (55.47, 55.54, 2132.28, 57.39),
    (55.59, 55.66, 48.41, 2152.51),
)
BI: Matrix = (
    (None, 178.56, 99.9, 99.84),
    (176.79, None, 99.45, 99.37),
    (99.73, 99.41, None, 109.3),
    (99.82, 99.46, 109.34, None),
)
PCI = ("0000:05:00.0", "0000:25:00.0")


def _cell(value: float | None, form: str, width: int) -> str:
    return f"{'N/A' if value is None else format(value, form):>{width}}"


def _name(end: int, cpus: int) -> str:
    return f"CPU {end:02}" if end < cpus else f"GPU {end - cpus:02}"


def transferbench(uni: Matrix | None = UNI, bi: Matrix | None = BI, cpus: int = CPUS) -> str:
    """TransferBench p2p as of 1.5x to 1.6x."""
    out = ["TransferBench v1.62.00", "[Common]", "NUM_ITERATIONS       =           10 : Running 10 timed", ""]
    out.append("Bytes Per Direction 268435456")
    for title, matrix in (("Uni", uni), ("Bi", bi)):
        if matrix is None:
            continue
        names = [_name(n, cpus) for n in range(len(matrix))]
        out.append(
            f"{title}directional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)"
        )
        corner = "SRC\\DST" if title == "Bi" else "SRC+EXE\\DST"
        heads = [f"{name:>10}" for name in names]
        out.append(f"{corner:>12}{''.join(heads[:cpus])}   {''.join(heads[cpus:])}")
        for n, row in enumerate(matrix):
            if n == cpus:
                out.append("")
            if title == "Bi":
                for arrow, share in ((" ->", 0.45), ("<- ", 0.55)):
                    halves = [None if v is None else v * share for v in row]
                    out.append(_row(names[n], arrow, halves, cpus))
                out.append(_row(names[n], "<->", row, cpus))
                out.append("")
            else:
                out.append(_row(names[n], " ->", row, cpus))
        out.append("                           CPU->CPU  CPU->GPU  GPU->CPU  GPU->GPU")
        out += [f"Averages (During {title + 'Dir':>6}):    103.63     44.94     55.56     52.90", ""]
    return "\n".join(out) + "\n"


def _row(name: str, arrow: str, row: Sequence[float | None], cpus: int) -> str:
    cells = [_cell(v, ".2f", 10) for v in row]
    return f"{name:>8} {arrow:>3}{''.join(cells[:cpus])}   {''.join(cells[cpus:])}"


def tb_topology(pci: Sequence[str] = PCI, gfx: str = "gfx942") -> str:
    """What TransferBench prints without arguments."""
    heads = "".join(f" {gfx:>6} |" for _ in pci)
    gpus = "".join(f" GPU {n:02} |" for n in range(len(pci)))
    out = ["TransferBench v1.62.00", "", "Detected Topology:", "==================", "        |" + heads]
    out.append(f"        |{gpus} PCIe Bus ID  | #CUs | NUMA | #DMA | #XCC | NIC")
    out.append("--------+" * (len(pci) + 1) + "--------------+------+------+------+------+------")
    for n, bus in enumerate(pci):
        links = "".join("    N/A |" if m == n else " XGMI-1 |" for m in range(len(pci)))
        out.append(f" GPU {n:02} |{links} {bus:<11} | 304  | {n:<4} | 16   | 8    | -1  ")
    return "\n".join(out) + "\n"


def bandwidth_test(
    uni: Matrix | None = UNI, bi: Matrix | None = None, cpus: int = CPUS, pci: Sequence[str] = PCI
) -> str:
    """rocm-bandwidth-test 2.6.0 -a and -A."""
    pad = " " * 10
    out = ["....", f"{pad}RocmBandwidthTest Version: 2.6.0", "", f"{pad}Launch Command is: rbt -a", "", ""]
    out += [f"{pad}Device: {n},  AMD EPYC 9554 64-Core Processor" for n in range(cpus)]
    for n, bus in enumerate(pci):
        short = bus.split(":", 1)[1].replace(":00.", ":0.")
        out.append(f"{pad}Device: {cpus + n},  AMD Instinct MI300X,  GPU-06c9d21390bc2e7{n},  {short}")
    size = cpus + len(pci)
    out += [
        "",
        f"{pad}Inter-Device Access",
        "",
        f"{pad}D/D       " + "".join(f"{n:<10}" for n in range(size)),
    ]
    out += [line for n in range(size) for line in ("", f"{pad}{n:<10}" + "1         " * size)]
    out += ["", "", f"{pad}Inter-Device Numa Distance", "", f"{pad}D/D       0         1"]
    out += ["", f"{pad}0         0         32", ""]
    for title, matrix in (("Unidirectional", uni), ("Bidirectional", bi)):
        if matrix is None:
            continue
        out += ["", f"{pad}{title} copy peak bandwidth GB/s", ""]
        out += [f"{pad}D/D       " + "".join(f"{n:<12}" for n in range(len(matrix)))]
        for n, row in enumerate(matrix):
            # Copies between two CPUs are filtered out.
            cells = [None if n < cpus and m < cpus else v for m, v in enumerate(row)]
            out += ["", f"{pad}{n:<10}" + "".join(_cell(v, ".3f", 0).ljust(12) for v in cells)]
        out += ["", ""]
    return "\n".join(out) + "\n"


GEMM = "transA,transB,M,N,K,alpha,lda,beta,ldb,ldc,ldd,batch_count,cold_iters,hot_iters,rocblas-Gflops,us"


def rocblas(
    names: str, values: str, devices: int = 2, gfx: str = "gfx942", version: str = "4.5.0.713501e60"
) -> str:
    """rocblas-bench 4.x; without names nothing was measured."""
    out = ["rocBLAS info: client (OPENMP) reduced omp_set_num_threads to 46", f"rocBLAS version: {version}"]
    out += ["rocBLAS-commit-hash: 713501e6022e39b4", f"Query device success: there are {devices} devices"]
    for n in range(devices):
        out += ["-" * 79, f"Device ID {n} : AMD Instinct MI300X {gfx}"]
        out += ["with 206.1 GB memory, max. SCLK 2100 MHz, max. MCLK 1300 MHz, compute capability 9.4"]
    out += ["-" * 79, "", *([names, values] if names else [])]
    return "\n".join(out) + "\n"


def gemm(gflops: float, size: int = 8192) -> str:
    """A matrix product of one size at a rate; its time follows."""
    us = 2 * size**3 / gflops / 1e3
    row = f"N,T,{size},{size},{size},1,{size},0,{size},{size},{size},1, 2, 10, {gflops:.6g}, {us:.6g}"
    return rocblas(GEMM, row)


def axpy(us: float) -> str:
    """A vector operation of one element."""
    names = "N,alpha,incx,incy,cold_iters,hot_iters,rocblas-Gflops,rocblas-GB/s,us"
    return rocblas(names, f"1,1,1,1, 100, 10000, {2e-3 / us:.6g}, {12e-3 / us:.6g}, {us:.6g}")


def loop(back_to_back_s: float = 4.25e-06, round_trip_s: float = 1.375e-05, devices: int = 2) -> str:
    """The last line of our loop in PyTorch, below what a library said."""
    return (
        "UserWarning: something about fonts\n"
        f'{{"torch": "2.8.0+rocm7.0", "hip": "7.0.51831", "devices": {devices}, '
        f'"name": "AMD Instinct MI300X", "gfx": "gfx942:sramecc+:xnack-", '
        f'"back_to_back_s": {back_to_back_s!r}, "round_trip_s": {round_trip_s!r}}}\n'
    )


def empty(batch: tuple[float, ...] = (2.125, 3.25), alone: tuple[float, ...] = (9.5, 11.75)) -> str:
    """TransferBench empty, for as many GPUs as there are times; microseconds of the host's clock."""
    out = ["TransferBench v1.68.00", "[EmptyKernel Related]"]
    out += ["BATCHSIZES           =        1,256 : Kernels per batch before hipStreamSynchronize", ""]
    out += ["EmptyKernel preset: times in microseconds per kernel launch (averaged across batch size).", ""]
    out += ["Evt = hipEvent measured time", "Cpu = CPU wallclock measured time", ""]
    out += ["BatS     GrdS BlkS Rank GPU EvtMin EvtAvg EvtMax CpuMin CpuAvg CpuMax"]
    for size, times in ((1, alone), (256, batch)):
        for gpu, us in enumerate(times):
            cells = " ".join(f"{v:6.3f}" for v in (us / 4, us / 3, us / 2, us - 0.5, us, us + 1.5))
            out.append(f"{size:4} {1:8} {64:4} {0:4} {gpu:3} {cells}")
    return "\n".join(out) + "\n"
