"""What polls say of a GPU over time, and which GPUs leave what is usual for them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from exporter.model import Device, DeviceId, Gap, Outcome, Reason, Series, Slot
from exporter.windows.baseline import Baselines, Healthy, beyond, named
from exporter.windows.policy import GpuFacts
from exporter.windows.standing import Standing

A, B = DeviceId("0000:03:00.0"), DeviceId("0000:26:00.0")
GPU = Device(A, 0, gfx="gfx942", compute_partition="SPX", memory_partition="NPS1")


def slot(values: dict[Series, float] | None = None, gaps: tuple[Gap, ...] = ()) -> Slot:
    values = values or {}
    return Slot(Outcome("sysfs", True, None, "", 0, 0, 0), tuple(values), tuple(values.values()), gaps)


def memory(used: float, size: float, device: DeviceId = A) -> dict[Series, float]:
    return {
        Series("amdgpu_memory_used_bytes", device, ("vram",)): used,
        Series("amdgpu_memory_size_bytes", device, ("vram",)): size,
    }


def resets(count: float) -> dict[Series, float]:
    return {Series("amdgpu_resets_total", A): count}


def one(standing: Standing, device: Device, values: dict[Series, float], mono: float) -> GpuFacts:
    [facts] = standing.look([device], [slot(values)], mono)
    return facts


def test_memory_is_a_share_and_unknown_where_a_part_is() -> None:
    standing = Standing()
    assert one(standing, GPU, memory(97, 100), 0.0).memory_ratio == 0.97
    assert one(standing, GPU, {}, 0.0).memory_ratio is None
    assert one(standing, GPU, memory(5, 0), 0.0).memory_ratio is None
    partition = replace(GPU, id=DeviceId(A.pci, 1))
    assert one(standing, partition, memory(1, 4), 0.0).memory_ratio == 0.25


def test_of_two_sources_the_first_is_believed() -> None:
    [facts] = Standing().look([GPU], [slot(memory(1, 4)), slot(memory(3, 4))], 0.0)
    assert facts.memory_ratio == 0.25


def test_a_reset_is_one_more_on_the_counter_or_a_gpu_that_came_back() -> None:
    standing = Standing()
    assert one(standing, GPU, resets(3), 0.0).since_reset_s is None
    assert one(standing, GPU, resets(3), 5.0).since_reset_s is None
    assert one(standing, GPU, resets(4), 10.0).since_reset_s == 0.0
    assert one(standing, GPU, resets(4), 25.0).since_reset_s == 15.0
    standing.look([], [slot()], 30.0)
    assert one(standing, GPU, resets(4), 40.0).since_reset_s == 0.0


def test_a_partition_change_is_seen_in_the_mode_and_in_new_partitions() -> None:
    standing = Standing()
    assert one(standing, GPU, {}, 0.0).since_partition_change_s is None
    assert one(standing, replace(GPU, compute_partition="CPX"), {}, 5.0).since_partition_change_s == 0.0
    assert one(standing, replace(GPU, compute_partition="CPX"), {}, 9.0).since_partition_change_s == 4.0
    parts = [replace(GPU, id=DeviceId(A.pci, n), compute_partition="CPX") for n in (0, 1)]
    standing.look([], [slot()], 10.0)
    assert [f.since_partition_change_s for f in standing.look(parts, [slot()], 12.0)] == [0.0, 0.0]


def test_a_sleeping_gpu_is_told_by_its_gaps() -> None:
    gap = Gap("amdgpu_power_watts", A, Reason.SUSPENDED)
    [facts] = Standing().look([GPU], [slot(gaps=(gap,))], 0.0)
    assert facts.suspended


# --- what is usual --------------------------------------------------------------------------------------


def test_a_gpu_leaves_only_after_it_has_had_a_usual_state() -> None:
    baselines = Baselines()
    for _ in range(11):
        assert baselines.take(A, {"l2_hit": 0.8}) == ()
    assert Baselines().take(A, {"l2_hit": 0.1}) == ()
    assert baselines.take(A, {"l2_hit": 0.8}) == ()
    assert baselines.take(A, {"l2_hit": 0.5}) == ("l2_hit",)
    assert baselines.take(B, {"l2_hit": 0.5}) == ()


def test_a_hair_is_no_departure_however_steady_the_gpu_was() -> None:
    baselines = Baselines()
    for _ in range(50):
        baselines.take(A, {"l2_hit": 0.8})
    assert baselines.take(A, {"l2_hit": 0.7}) == ()  # an eighth; a fifth would be 0.64


def test_a_restless_gpu_needs_more_to_leave() -> None:
    baselines = Baselines()
    for n in range(60):
        baselines.take(A, {"l2_hit": 0.5 + 0.1 * (n % 2)})
    assert baselines.take(A, {"l2_hit": 0.75}) == ()
    assert baselines.take(A, {"l2_hit": 0.05}) == ("l2_hit",)


def test_a_new_usual_is_learnt() -> None:
    baselines = Baselines()
    for _ in range(20):
        baselines.take(A, {"l2_hit": 0.8})
    left = [bool(baselines.take(A, {"l2_hit": 0.4})) for _ in range(30)]
    assert left[0]
    assert not left[-1]


def test_baselines_survive_a_restart() -> None:
    baselines = Baselines()
    for _ in range(20):
        baselines.take(A, {"l2_hit": 0.8})
    again = Baselines()
    again.restore(json.loads(json.dumps(baselines.dump())))
    assert again.take(A, {"l2_hit": 0.5}) == ("l2_hit",)


@pytest.mark.parametrize(
    "kept", [[["x"]], [["p", None, "l2", 3, float("nan"), 0.1]], [["p", None, "l2", 3, 0.5, -1.0]]]
)
def test_baselines_that_are_none_are_refused(kept: list[list[object]]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Baselines().restore(kept)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"l2_hit": 0.84}, ("l2_hit",)),
        (
            {
                "l2_hit": 0.85,
                "valu_utilization": 0.70,
                "memory_busy": 0.90,
                "atomic": 0.05,
                "bandwidth": 0.60,
            },
            (),
        ),
        ({"launch_queue": 51e-6}, ("launch_queue",)),
        ({"atomic": 0.06, "memory_busy": 0.91}, ("memory_busy", "atomic")),
        # Few VALU instructions are full work where the matrix pipes are busy; unknown is no news.
        ({"compute_density": 0.2, "matrix_busy": 0.1}, ("compute_density",)),
        ({"compute_density": 0.2, "matrix_busy": 0.6}, ()),
        ({"compute_density": 0.2}, ()),
        ({}, ()),
    ],
)
def test_the_limits_of_a_healthy_gpu(values: dict[str, float], expected: tuple[str, ...]) -> None:
    assert beyond(values, Healthy()) == expected


def test_only_watched_gauges_count() -> None:
    gauges = {("amdgpu_l2_hit_ratio", ()): 0.5, ("amdgpu_occupancy_ratio", ()): 0.1}
    assert named(gauges) == {"l2_hit": 0.5}
