"""What a run took, from samples with known answers, and the report that is made of it."""

from __future__ import annotations

import json

import pytest

from exporter import fingerprint
from exporter.cards import card, samples
from exporter.cards.card import Card
from exporter.cards.samples import Run, Sample, Use
from exporter.compare.advice import Advice
from exporter.fingerprint import Host
from exporter.model import Device, DeviceId, Series

PCI, OTHER = "0000:05:00.0", "0000:25:00.0"
GIB = 2.0**30


def look(at: float, **values: float) -> Sample:
    return Sample(at, {PCI: values})


def test_the_energy_of_a_run_is_the_rise_of_the_counter_between_readings_around_it() -> None:
    run = Run("warm", 100.0, 110.0, 0)
    read = [look(99.9, energy=5000.0), look(105.0, energy=7000.0), look(110.1, energy=9080.0)]
    found = samples.use(read, run)[PCI]
    assert found.energy_joules == pytest.approx(4080.0 * 10 / 10.2)
    assert found.energy_from == "counter"
    assert found.power_mean_watts == pytest.approx(400.0)


@pytest.mark.parametrize(
    "read",
    [
        [look(95.0, energy=1.0), look(110.1, energy=900.0)],  # nobody knows what was drawn before
        [look(99.9, energy=1.0), look(115.0, energy=900.0)],  # nor after
        [look(99.9, energy=900.0), look(110.1, energy=1.0)],  # it started over
        [look(99.9, energy=900.0), look(110.1, energy=900.0)],  # it stands still
        [look(99.9, energy=900.0)],
        [],
    ],
)
def test_a_counter_that_does_not_bound_the_run_gives_no_energy(read: list[Sample]) -> None:
    found = samples.use([*read, look(105.0, busy=0.5)], Run("warm", 100.0, 110.0, 0))[PCI]
    assert (found.energy_joules, found.energy_from, found.power_mean_watts) == (None, None, None)


def test_without_a_counter_the_energy_is_the_mean_power_times_the_time_and_is_said_to_be() -> None:
    run = Run("warm", 0.0, 4.0, 0)
    read = [look(float(t), power=p) for t, p in enumerate((300.0, 400.0, 500.0, 400.0))]
    found = samples.use(read, run)[PCI]
    assert (found.energy_joules, found.energy_from) == (pytest.approx(1600.0), "power")
    few = samples.use(read[:2], run)[PCI]
    assert (few.energy_joules, few.power_peak_watts) == (None, 400.0)


def test_only_what_was_read_during_the_run_counts_and_the_rise_is_against_just_before() -> None:
    run = Run("warm", 10.0, 13.0, 0)
    read = [
        look(5.0, memory=50 * GIB, busy=1.0, temperature=99.0, clock=9e9),
        look(9.5, memory=1 * GIB),
        look(10.5, memory=3 * GIB, busy=0.2, temperature=60.0, clock=2.0e9),
        look(11.5, memory=9 * GIB, busy=0.8, temperature=70.0, clock=2.2e9),
        look(13.5, memory=60 * GIB, busy=1.0),
    ]
    found = samples.use(read, run)[PCI]
    assert (found.memory_peak_bytes, found.memory_rise_bytes) == (9 * GIB, 8 * GIB)
    assert (found.busy_mean_ratio, found.clock_mean_hertz) == (pytest.approx(0.5), pytest.approx(2.1e9))
    assert (found.temperature_peak_celsius, found.samples) == (70.0, 2)
    assert found.curve == ((0.5, 3 * GIB), (1.5, 9 * GIB))
    assert found.used


def test_a_gpu_that_the_run_left_alone_is_not_counted_as_used() -> None:
    read = [look(0.0, memory=GIB, busy=0.0), look(1.0, memory=GIB + 1000, busy=0.02)]
    assert not samples.use(read, Run("warm", 0.5, 1.5, 0))[PCI].used


def test_a_long_curve_is_thinned_and_keeps_its_peak() -> None:
    read = [look(t / 10, memory=GIB * (5 if t == 777 else 1)) for t in range(2000)]
    curve = samples.use(read, Run("warm", 0.0, 200.0, 0))[PCI].curve
    assert len(curve) <= 120
    assert max(v for _, v in curve) == 5 * GIB
    assert (77.7, 5 * GIB) in [(pytest.approx(t), v) for t, v in curve]


def test_samples_come_back_as_they_were_written_and_a_cut_line_costs_only_itself() -> None:
    read = [look(1.5, power=400.0, memory=GIB), look(2.5, power=401.0)]
    lines = [samples.line(one) for one in read]
    assert samples.read([lines[0], lines[1][:-9], "[]", '{"at": 1, "gpus": {"x": 3}}', lines[1]]) == read


def test_readings_are_kept_of_the_socket_and_the_first_label_that_has_one() -> None:
    gpu = DeviceId(PCI)
    found = samples.taken(
        3.0,
        {
            Series("amdgpu_temperature_celsius", gpu, ("edge",)): 50.0,
            Series("amdgpu_temperature_celsius", gpu, ("junction",)): 70.0,
            Series("amdgpu_power_watts", gpu): 410,
            Series("amdgpu_busy_ratio", gpu, ("vcn",)): 0.9,
        },
    )
    assert found == Sample(3.0, {PCI: {"temperature": 70.0, "power": 410.0}})


def test_several_runs_are_one_by_their_middle_and_peaks_by_the_highest() -> None:
    found = samples.together(
        [
            Use(100.0, "counter", 50.0, 60.0, 3.0, 2.0, 0.5, 1e9, 70.0, 2),
            Use(120.0, "power", 60.0, 65.0, 4.0, 1.0, 0.7, 1e9, 71.0, 2),
            Use(900.0, "counter", 70.0, None, 1.0, 1.0, 0.6, 1e9, 69.0, 2),
            Use(),
        ]
    )
    assert (found.energy_joules, found.energy_from, found.power_mean_watts) == (120.0, "power", 60.0)
    assert (found.power_peak_watts, found.memory_peak_bytes, found.temperature_peak_celsius) == (
        65.0,
        4.0,
        71.0,
    )
    assert (found.busy_mean_ratio, found.samples) == (0.6, 6)


# --- the report -----------------------------------------------------------------------------------------


def whole(**more: object) -> Card:
    runs = tuple(
        Run(kind, 100.0 * n, 100.0 * n + seconds, 0)
        for n, (kind, seconds) in enumerate((("cold", 30.0), ("warm", 10.0), ("warm", 12.0), ("warm", 11.0)))
    )
    read = []
    for n, run in enumerate(runs):
        read.append(look(run.began - 0.1, energy=10_000.0 * n, memory=GIB))
        read += [
            look(run.began + t + 0.5, memory=(2 + t % 4) * GIB, busy=0.9, power=500.0)
            for t in range(int(run.seconds))
        ]
        rise = 500.0 * (run.seconds + 0.2)
        read.append(look(run.ended + 0.1, energy=10_000.0 * n + rise))
    devices = [Device(DeviceId(PCI), 0, model="Instinct MI300X", gfx="gfx942")]
    given: dict[str, object] = {
        "command": ("python3", "train.py", "--name", "a|b `c`"),
        "at": 1_780_000_000.0,
        "runs": runs,
        "wanted": 3,
        "samples": tuple(read),
        "every_s": 1.0,
        "environment": fingerprint.of(devices, {}, Host(kernel="6.8.0")),
        "items": 220.0,
        "missing": {"kernels": "there is no rocprofv3 on PATH"},
        **more,
    }
    return Card(**given)  # type: ignore[arg-type]


def test_times_throughput_and_energy_are_those_of_the_warm_runs() -> None:
    found = card.as_dict(whole())
    assert json.loads(json.dumps(found, allow_nan=False))
    assert found["times"] == {
        "cold_seconds": 30.0,
        "warm_median_seconds": 11.0,
        "warm_least_seconds": 10.0,
        "warm_most_seconds": 12.0,
        "warm_runs": 3,
        "cold_over_warm_ratio": pytest.approx(30 / 11),
    }
    assert found["throughput"] == {
        "runs_per_second": pytest.approx(1 / 11),
        "items_per_run": 220.0,
        "items_per_second": pytest.approx(20.0),
        "energy_joules_per_run": pytest.approx(5500.0),
        "items_per_joule": pytest.approx(0.04),
    }
    assert found["gpus"][PCI]["memory_peak_bytes"] == 5 * GIB
    assert len(found["memory_curve"][PCI]) == 10


def test_a_run_that_failed_counts_nowhere_and_the_report_says_so() -> None:
    runs = (Run("cold", 0.0, 5.0, 0), Run("warm", 10.0, 11.0, 3))
    made = whole(runs=runs)
    found = card.as_dict(made)
    assert found["times"]["warm_runs"] == 0
    assert found["times"]["warm_median_seconds"] is None
    assert found["throughput"]["items_per_second"] is None
    assert "ended with code 3" in card.markdown(made)


def test_the_energy_of_a_run_is_unknown_where_that_of_one_of_its_gpus_is() -> None:
    made = whole()
    both = tuple(Sample(s.at, {**s.gpus, OTHER: {"busy": 0.9, "memory": GIB}}) for s in made.samples)
    found = card.as_dict(whole(samples=both))
    assert found["throughput"]["energy_joules_per_run"] is None
    assert found["gpus"][PCI]["energy_joules"] == pytest.approx(5500.0)


def test_the_markdown_holds_every_part_and_no_word_breaks_its_tables() -> None:
    gpu = {
        "gpu": PCI,
        "bottleneck": "launch_bound",
        "timeline_ratio": {"executing": 0.25, "queued": None, "launching": 0.5, "starved": 0.2},
        "top_kernels": [{"kernel": "k<a|b>`", "share_ratio": 0.6, "calls": 7, "mean_seconds": 4e-6}],
    }
    made = whole(windows=(gpu,), advice=(Advice("Fuse *them*.", "a | b"),), missing={})
    text = card.markdown(made)
    assert "20 items per second" in text
    assert "5500 J" in text
    assert "| Warm run, median of 3 | 11 s (10 s to 12 s) |" in text
    assert "launch bound" in text
    assert "executing 25%" in text
    assert "Fuse \\*them\\*." in text
    assert "(gfx942)" in text
    tables: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    assert len([t for t in tables if t]) == 5
    for table in tables:
        assert len({row.replace("\\|", "").count("|") for row in table}) <= 1, table


def test_what_is_not_known_is_said_with_its_reason_and_is_no_number() -> None:
    made = whole(samples=(), missing={"gpus": "there is no AMD GPU under /sys", "kernels": "no profiler"})
    text = card.markdown(made)
    assert "there is no AMD GPU under /sys" in text
    assert "no profiler" in text
    found = card.as_dict(made)
    assert (found["gpus"], found["memory_curve"], found["windows"]) == ({}, {}, None)
    assert found["throughput"]["energy_joules_per_run"] is None
    assert found["times"]["warm_median_seconds"] == 11.0
