"""What the tools behind probe print: values as stated, oddities absent with a reason or refused."""

from __future__ import annotations

import pytest
from probemade import (
    BI,
    GEMM,
    PCI,
    UNI,
    axpy,
    bandwidth_test,
    empty,
    gemm,
    loop,
    rocblas,
    tb_topology,
    transferbench,
)

from exporter.formats import copies, empty_kernels, launch_loop, rocblas_bench
from exporter.formats.copies import Copies, Endpoint, Gpu
from exporter.model import FormatError

CPU0, CPU1, GPU0, GPU1 = (Endpoint(k, n) for k, n in (("cpu", 0), ("cpu", 1), ("gpu", 0), ("gpu", 1)))
ENDS = (CPU0, CPU1, GPU0, GPU1)


def rate(found: Copies, source: Endpoint, target: Endpoint, both: bool = False) -> float | None:
    hits = [c.bytes_per_second for c in found.cells if c[:3] == (source, target, both)]
    assert len(hits) < 2
    return hits[0] if hits else None


def test_transferbench_tables_give_every_cell_one_way_and_both_ways() -> None:
    found = copies.transferbench(transferbench())
    assert found.version == "1.62.00"
    assert (found.cpus, found.gpus) == (2, (Gpu(0, None), Gpu(1, None)))
    for both, matrix in ((False, UNI), (True, BI)):
        for source, row in zip(ENDS, matrix, strict=True):
            for target, value in zip(ENDS, row, strict=True):
                wanted = None if value is None else pytest.approx(value * 1e9)
                assert rate(found, source, target, both) == wanted
    assert found.missing == {}  # of a copy both ways within one device there is none


def test_the_old_bandwidth_test_names_gpus_by_their_pci_address() -> None:
    found = copies.bandwidth_test(bandwidth_test(bi=BI))
    assert found.version == "2.6.0"
    assert (found.cpus, found.gpus) == (2, (Gpu(0, "05:00.0"), Gpu(1, "25:00.0")))
    assert rate(found, CPU1, GPU0) == pytest.approx(44.74e9)
    assert rate(found, GPU1, GPU0) == pytest.approx(48.41e9)
    # The tool counts what is read and written of a copy within one device, as its source says.
    assert rate(found, GPU0, GPU0) == pytest.approx(2132.28e9 / 2)
    assert rate(found, GPU1, CPU0, both=True) == pytest.approx(99.82e9)
    assert found.missing == {}  # the tool never copies between CPUs
    assert rate(found, CPU0, CPU1) is None


def test_version_2_0_of_the_bandwidth_test_has_six_digits_no_uuid_and_a_typo() -> None:
    text = (
        "............\n          RocmBandwidthTest Version: 2.0.1\n\n"
        "          Device: 0,  Intel(R) Core(TM) i7, 3.20GHz\n"
        "          Device: 1,  Vega 10 [Radeon PRO WX 8100],  0d:0.0\n"
        "          Device: 2,  Vega 10 [Radeon PRO WX 8100],  07:0.0\n\n"
        "          Unidirectional copy peak bandwidth GB/s\n\n"
        "          D/D       0           1           2           \n\n"
        "          0         N/A         13.377405   13.366351   \n\n"
        "          1         14.310061   404.438375  N/A         \n\n"
        "          2         14.309640   N/A         389.988691  \n\n\n"
        "          Bdirectional copy peak bandwidth GB/s\n\n"
        "          D/D       0           1           2           \n\n"
        "          0         N/A         25.912159   25.915931   \n\n"
        "          1         25.938865   N/A         N/A         \n\n"
        "          2         25.936705   N/A         N/A         \n\n"
    )
    found = copies.bandwidth_test(text)
    assert [gpu.pci for gpu in found.gpus] == ["0d:00.0", "07:00.0"]
    assert rate(found, GPU0, GPU0) == pytest.approx(404.438375e9 / 2)
    assert rate(found, CPU0, GPU1, both=True) == pytest.approx(25.915931e9)
    assert found.missing == {"not_measured": 2}  # the two GPUs do not reach each other


def test_many_numa_nodes_stay_apart() -> None:
    nodes, gpus = 8, 2
    matrix = [[float(10 * s + t) + 1.25 for t in range(nodes + gpus)] for s in range(nodes + gpus)]
    found = copies.transferbench(transferbench(matrix, None, cpus=nodes))
    assert found.cpus == 8
    assert rate(found, Endpoint("cpu", 7), GPU1) == pytest.approx((70 + 9 + 1.25) * 1e9)
    assert rate(found, GPU1, Endpoint("cpu", 7)) == pytest.approx((90 + 7 + 1.25) * 1e9)


def test_an_output_that_was_cut_gives_the_rows_that_are_whole_and_counts_the_rest() -> None:
    text = transferbench(UNI, None)
    at = text.index("48.41")
    found = copies.transferbench(text[: at + 4])  # "48.4" would be a number too
    assert rate(found, GPU0, GPU1) == pytest.approx(57.39e9)
    assert rate(found, GPU1, GPU0) is None
    assert found.missing == {"truncated": 4}
    old = bandwidth_test()
    found = copies.bandwidth_test(old[: old.index("2152.510")] + "\n")
    assert rate(found, GPU0, GPU1) == pytest.approx(57.39e9)
    assert found.missing == {"truncated": 4}


@pytest.mark.parametrize("cell", ["0.00", "99999999.25", "57", "1.5e3", "nan", "-57.39"])
def test_a_cell_that_is_no_bandwidth_gives_none(cell: str) -> None:
    found = copies.transferbench(transferbench(UNI, None).replace("57.39", f"{cell:>5}"))
    assert rate(found, GPU0, GPU1) is None
    assert sum(found.missing.values()) in (1, 4)  # the cell alone, or its row
    assert 57.39e9 not in {c.bytes_per_second for c in found.cells}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("TransferBench v1.62.00\n[ERROR] HIP Error: invalid resource handle\n", "invalid resource handle"),
        ("HSA error\nFailed to open /dev/kfd: Permission denied\n", "HSA error"),
        ("Unable to open /dev/kfd read-write: Permission denied\n", "Permission denied"),
    ],
)
def test_an_output_without_a_table_says_what_the_tool_said(text: str, words: str) -> None:
    for read in (copies.transferbench, copies.bandwidth_test):
        with pytest.raises(FormatError, match=words):
            read(text)


def test_a_table_that_names_a_device_twice_is_refused() -> None:
    with pytest.raises(FormatError, match="twice"):
        copies.transferbench(transferbench(UNI, None).replace("CPU 01    ", "CPU 00    ", 1))
    with pytest.raises(FormatError, match="row twice"):
        copies.transferbench(transferbench(UNI, None).replace("CPU 01  ->", "CPU 00  ->"))
    with pytest.raises(FormatError, match="not in the list"):
        copies.bandwidth_test(bandwidth_test().replace("Device: 3,", "Divice: 3,"))


def test_transferbench_says_which_gpu_is_which() -> None:
    assert copies.topology(tb_topology()) == (Gpu(0, PCI[0]), Gpu(1, PCI[1]))
    assert copies.topology(transferbench()) == ()
    assert copies.topology(tb_topology().replace("GPU 01 | XGMI", "GPU 00 | XGMI")) == ()


# --- rocblas-bench --------------------------------------------------------------------------------------


def test_a_matrix_product_is_read_with_its_rate_and_time() -> None:
    found = rocblas_bench.read(gemm(650_000))
    assert found.operations == pytest.approx(650e12)
    assert found.seconds == pytest.approx(2 * 8192**3 / 650e12, rel=1e-5)
    assert (found.version, found.devices) == ("4.5.0", 2)
    assert found.names[1] == "AMD Instinct MI300X gfx942"


def test_the_columns_of_older_and_newer_releases_are_found_by_name() -> None:
    old = "transA,transB,M,N,K,alpha,lda,ldb,beta,ldc,rocblas-Gflops,us"
    row = "N,N,4096,4096,4096,1,4096,4096,0,4096,11941.5,11509.4"
    assert rocblas_bench.read(rocblas(old, row)).operations == pytest.approx(11941.5e9)
    checked = f"{GEMM},CPU-Gflops,us,norm_error_1"
    row = "N,T,4096,4096,4096,1,4096,0,4096,4096,4096,1, 2, 10, 25977.3, 5290.73, 40.5, 3393000, 0"
    found = rocblas_bench.read(rocblas(checked, row))
    assert found.seconds == pytest.approx(5290.73e-6)  # of the GPU, not of the check on the CPU


def test_a_vector_operation_gives_a_time_and_no_rate_of_matrices() -> None:
    found = rocblas_bench.read(axpy(3.875))
    assert found.seconds == pytest.approx(3.875e-6)
    assert found.operations is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (gemm(650_000).replace("650000", "325000"), "do not fit"),
        (gemm(650_000).replace("650000", "inf"), "inf for rocblas-Gflops"),
        (gemm(650_000)[:-6], "no measurement"),
        (rocblas(GEMM, "N,T,8192,8192"), "4 values below 16 names"),
        (rocblas("", ""), "no measurement"),
        ("rocBLAS error: Cannot read TensileLibrary.dat: No such file for GPU arch : gfx1103\n", "gfx1103"),
        (axpy(3.875).replace("3.875", "N/A"), "no number for us"),
        ("", "it is empty"),
    ],
)
def test_a_measurement_that_is_none_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        rocblas_bench.read(text)


# --- the loop of launches -------------------------------------------------------------------------------


def test_the_loop_of_launches_is_read_from_its_last_line() -> None:
    found = launch_loop.read(loop())
    assert (found.back_to_back, found.round_trip) == (4.25e-06, 1.375e-05)
    assert (found.version, found.devices, found.gfx) == ("2.8.0+rocm7.0", 2, "gfx942:sramecc+:xnack-")


@pytest.mark.parametrize(
    "text",
    [
        "",
        loop()[:-3],
        loop().rstrip("\n"),
        loop(round_trip_s=float("nan")),
        loop(back_to_back_s=0.0),
        loop(back_to_back_s=-1e-6),
        loop(devices=0),
        loop().replace("1.375e-05", "true"),
        "Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'\n",
        "[1]\n",
        '{"torch": 2}\n',
    ],
)
def test_anything_else_on_the_last_line_is_refused(text: str) -> None:
    assert text != loop()
    with pytest.raises(FormatError):
        launch_loop.read(text)


def test_the_loop_is_a_program_that_python_takes() -> None:
    compile(launch_loop.SCRIPT, "loop", "exec")


# --- launches of kernels that do nothing ----------------------------------------------------------------


def test_launches_of_nothing_are_the_hosts_mean_alone_and_in_batches() -> None:
    found = empty_kernels.read(empty(), 256)
    assert found.version == "1.68.00"
    assert found.alone == pytest.approx({0: 9.5e-6, 1: 11.75e-6})
    assert found.batch == pytest.approx({0: 2.125e-6, 1: 3.25e-6})


def test_rows_that_are_cut_of_another_batch_or_no_time_give_nothing() -> None:
    text = empty()
    assert empty_kernels.read(text[: text.rindex(" 3.250") + 3], 256).batch == pytest.approx({0: 2.125e-6})
    assert empty_kernels.read(text, 16).batch == {}
    assert empty_kernels.read(text.replace(" 3.250 ", "   nan "), 256).batch == pytest.approx({0: 2.125e-6})
    assert empty_kernels.read(text.replace(" 3.250 ", " 0.000 "), 256).batch == pytest.approx({0: 2.125e-6})
    more = text.replace("GPU EvtMin", "GPU Evt0 EvtMin")
    with pytest.raises(FormatError, match="no row"):
        empty_kernels.read(more, 256)


def test_an_older_release_that_knows_no_such_preset_is_refused_with_what_it_says() -> None:
    with pytest.raises(FormatError, match="Unable to open"):
        empty_kernels.read("[ERROR] Unable to open transfer config file: [empty]\n", 256)
    twice = empty() + "".join(line + "\n" for line in empty().splitlines()[-4:])
    with pytest.raises(FormatError, match="two rows"):
        empty_kernels.read(twice, 256)
