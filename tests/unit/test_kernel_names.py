"""Kernel names as label values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import KernelStat
from exporter.windows import kernels
from exporter.windows.kernels import NAME_LIMIT, KernelSet, short


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("", "unknown"),
        ("  \n", "unknown"),
        ("gemm<float, 64>(float const*)", "gemm<float, 64>(float const*)"),
        ('path\\sep "q"', 'path\\sep "q"'),
        ("line1\nline2", "line1\nline2"),
        ("漢字🚀", "漢字🚀"),
        ("half \ud800 pair", "half \ufffd pair"),
        ("triton_poi_fused_add_123", "triton_poi_fused_add_N"),
        ("triton_red_fused__to_copy_mean_7", "triton_red_fused__to_copy_mean_N"),
        ("triton_poi_fused_add_0d1d2d3de", "triton_poi_fused_add_N"),
        ("loop_add_fusion_12", "loop_add_fusion_N"),
        ("input_reduce_fusion.3", "input_reduce_fusion_N"),
        ("fused_nn_dense_add_3_kernel0", "fused_nn_dense_add_3_kernel_N"),
        ("op_4f3c2b1a9d8e7f60_fwd", "op_H_fwd"),
        ("mha_fwd_64", "mha_fwd_64"),
        ("node_0(float*)", "node_0(float*)"),
    ],
)
def test_names_keep_what_says_something(name: str, label: str) -> None:
    assert short(name) == label


def test_a_kernel_called_other_is_not_added_to_the_rest() -> None:
    assert short("other").startswith("other~")


def test_long_names_are_cut_and_stay_apart() -> None:
    one, two = short("k" * 300), short("k" * 301)
    assert one != two
    assert len(one) == len(two) == NAME_LIMIT
    assert one.startswith("kkk")
    assert one[-9] == "~"


def test_tensile_names_keep_their_tile_and_stay_apart() -> None:
    head = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64"
    one = short(head + "_MI16x16x1_SN_LDSB1" + "_AF0" * 30)
    two = short(head + "_MI32x32x1_SN_LDSB1" + "_AF0" * 30)
    assert one != two
    assert one.startswith(head + "~")
    assert two.startswith(head + "~")


@given(st.text(max_size=400))
def test_every_label_is_short_stable_text(name: str) -> None:
    label = short(name)
    assert 0 < len(label) <= NAME_LIMIT
    label.encode()
    assert short(name) == label
    assert label != "other"


def test_totals_forgotten_for_good_still_never_come_back_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_RETIRED_MAX", 3)
    known = KernelSet()
    day = kernels.UNSEEN_S
    for i in range(8):
        known.add([KernelStat(f"k{i}", 1 + i, 1000 - i, 1, 1)], i * 2 * day, limit=1)
    known.add([KernelStat("k0", 1, 1, 1, 1)], 100 * day, limit=1)
    assert known.named["k0"].ns >= 1001
    assert known.named["k0"].calls >= 2
