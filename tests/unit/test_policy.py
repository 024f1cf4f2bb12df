"""What may start when, and why not; clocks that jump; and what survives a restart."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import DeviceId, WindowOutcome
from exporter.windows.breaker import Breaker, BreakerRules, BreakerState, Budget
from exporter.windows.policy import Deny, Facts, GpuFacts, Policy, Rules, Skip, SkipReason, Start
from exporter.windows.schedule import Schedule

A, B = DeviceId("0000:03:00.0"), DeviceId("0000:26:00.0")
WALL = 1_760_000_000.0
RICH = 1e6  # a monotonic time at which the budget has long been full
GPU = GpuFacts(A, "gfx942", 0.5, 5_000.0, 1e5, 1e5)


def policy(preset: str = "counters", **more: object) -> Policy:
    return Policy(Rules(preset=preset, **more), 0.0)  # type: ignore[arg-type]


def facts(*gpus: GpuFacts, **more: object) -> Facts:
    return Facts(gpus or (GPU, replace(GPU, device=B)), "7.2.0", **more)  # type: ignore[arg-type]


def reason(made: Policy, seen: Facts, mono: float = RICH, **more: bool) -> SkipReason | None:
    decision = made.decide(seen, mono, **more)
    return decision.reason if isinstance(decision, Skip) else None


def test_a_calm_node_starts_the_light_set_on_every_gpu() -> None:
    assert policy().decide(facts(), RICH) == Start("counters", "light", (A, B), {})


@pytest.mark.parametrize("preset", ["off", "spool"])
def test_presets_that_start_nothing_start_nothing(preset: str) -> None:
    assert reason(policy(preset), facts()) is SkipReason.OFF


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"paused": True}, SkipReason.PAUSED),
        ({"other_profiler": "rocprofv3, process 7"}, SkipReason.OTHER_PROFILER),
        ({"opted_in": False}, SkipReason.NOT_OPTED_IN),
        ({"obstacle": (SkipReason.NO_PROFILER, "no rocprofv3")}, SkipReason.NO_PROFILER),
    ],
)
def test_what_stands_in_the_way_of_the_node(change: dict[str, object], expected: SkipReason) -> None:
    assert reason(policy(), facts(**change)) is expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"memory_ratio": 0.971}, SkipReason.MEMORY_FULL),
        ({"memory_ratio": 0.97}, None),
        ({"memory_ratio": None}, None),
        ({"youngest_process_s": 119.9}, SkipReason.YOUNG_PROCESS),
        ({"youngest_process_s": 120.0}, None),
        ({"since_reset_s": 599.0}, SkipReason.RESET),
        ({"since_partition_change_s": 0.0}, SkipReason.PARTITION_CHANGE),
        ({"suspended": True}, SkipReason.SUSPENDED),
    ],
)
def test_what_makes_one_gpu_unfit(change: dict[str, object], expected: SkipReason | None) -> None:
    odd = replace(GPU, **change)  # type: ignore[arg-type]
    assert reason(policy(), facts(odd)) is expected
    # Counters are taken of the others; a trace cannot be narrowed, so that it is not started.
    both = facts(odd, replace(GPU, device=B))
    left_out = {A: expected} if expected else {}
    assert policy().decide(both, RICH) == Start("counters", "light", (B,) if expected else (A, B), left_out)
    assert reason(policy("canary"), both) is expected


@pytest.mark.parametrize(("gpus", "expected"), [(4, None), (5, SkipReason.COLLECTIVES), (None, None)])
def test_collectives_on_many_gpus_are_not_traced(gpus: int | None, expected: SkipReason | None) -> None:
    assert reason(policy("attach"), facts(collective_gpus=gpus)) is expected
    assert reason(policy("counters"), facts(collective_gpus=gpus)) is None


@pytest.mark.parametrize(
    ("entry", "denied"),
    [
        ("gfx942:7.2*:counters", True),
        ("gfx*:*:*", True),
        ("gfx942:7.1*:counters", False),
        ("gfx942:*:attach", False),
        ("gfx90a:*:*", False),
    ],
)
def test_the_deny_list_names_chip_release_and_mode(entry: str, denied: bool) -> None:
    made = policy(deny=(Deny.parse(entry),))
    assert reason(made, facts()) is (SkipReason.DENY_LIST if denied else None)


def test_a_release_that_is_unknown_fits_only_a_star() -> None:
    assert Deny.parse("*:*:*").fits(None, None, "trace")
    assert not Deny.parse("gfx942:7*:trace").fits("gfx942", None, "trace")
    with pytest.raises(ValueError, match="CHIP:ROCM:MODE"):
        Deny.parse("gfx942")


def test_only_one_window_runs_at_a_time() -> None:
    made = policy(window_s=1.0)
    start = made.decide(facts(), RICH)
    assert isinstance(start, Start)
    made.began(start, RICH)
    assert reason(made, facts(), RICH + 1) is SkipReason.RUNNING
    made.ended(RICH + 1)
    assert reason(made, facts(), RICH + 2) is None


def test_the_first_window_waits_until_its_time_is_saved_up() -> None:
    made = policy(window_s=1.0, duty_ratio=0.004)
    assert reason(made, facts(), 249.0) is SkipReason.BUDGET
    late = made.decide(facts(), 249.0)
    assert isinstance(late, Skip)
    assert "1 s" in late.detail
    assert reason(made, facts(), 250.0) is None


def test_a_window_that_overran_is_paid_for_before_the_next() -> None:
    made = policy(window_s=1.0, duty_ratio=0.01)
    start = made.decide(facts(), 100.0)
    assert isinstance(start, Start)
    made.began(start, 100.0)
    made.ended(131.0)  # 31 s: thirty more than saved
    assert reason(made, facts(), 3_150.0) is SkipReason.BUDGET
    assert reason(made, facts(), 3_201.0) is None


def test_a_stepped_clock_costs_one_slot() -> None:
    assert reason(policy(), facts(), stepped=True) is SkipReason.CLOCK_STEPPED
    assert reason(policy(), facts()) is None


def test_the_deep_set_is_for_gpus_that_left_their_baseline_and_has_a_daily_cap() -> None:
    made = policy(deep_per_day=2)
    seen = facts(replace(GPU, left=("l2_hit",)), replace(GPU, device=B))
    assert made.wants_deep(seen)
    assert not made.wants_deep(facts())
    at = RICH
    for _ in range(2):
        start = made.decide(seen, at, deep=True)
        assert start == Start("counters", "deep", (A,), {})
        made.began(start, at)  # type: ignore[arg-type]
        made.ended(at + 1)
        at += 1_000
    assert reason(made, seen, at, deep=True) is SkipReason.DEEP_CAP
    assert reason(made, seen, at) is None
    assert reason(made, seen, RICH + 86_400, deep=True) is None


# --- the breaker --------------------------------------------------------------------------------------


def test_one_crash_opens_the_breaker_and_a_good_trial_closes_it() -> None:
    made = policy(breaker=BreakerRules(backoff_s=900))
    made.breaker.took(WindowOutcome.CRASH, "rocprofv3 died of SIGSEGV", RICH)
    late = made.decide(facts(), RICH + 899)
    assert isinstance(late, Skip)
    assert late.reason is SkipReason.TRIPPED
    assert "SIGSEGV" in late.detail
    assert "next trial in 1 s" in late.detail
    start = made.decide(facts(), RICH + 900)
    assert isinstance(start, Start)
    assert made.breaker.state is BreakerState.HALF_OPEN
    made.began(start, RICH + 900)
    made.ended(RICH + 901)
    made.breaker.took(WindowOutcome.OK, "", RICH + 902)
    assert made.breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize("soft", ["timeout", "malformed", "denied", "not_attachable"])
def test_three_soft_errors_in_a_row_open_it(soft: str) -> None:
    breaker = Breaker()
    for n in range(2):
        breaker.took(WindowOutcome(soft), "why", float(n))
    assert breaker.allows(2.0)
    breaker.took(WindowOutcome.OK, "", 2.0)
    for n in range(3):
        assert breaker.allows(3.0 + n)
        breaker.took(WindowOutcome(soft), "why", 3.0 + n)
    assert not breaker.allows(6.0)
    assert "3 windows in a row" in breaker.reason
    assert "why" in breaker.reason


def test_a_busy_counter_and_an_empty_window_are_no_errors() -> None:
    breaker = Breaker()
    for n in range(10):
        breaker.took(WindowOutcome.BLOCKED, "busy", n)
        breaker.took(WindowOutcome.EMPTY, "", n)
    assert breaker.state is BreakerState.CLOSED


def test_each_failed_trial_doubles_the_back_off_up_to_a_day() -> None:
    breaker, at, waits = Breaker(BreakerRules(backoff_s=900)), 0.0, []
    for _ in range(9):
        breaker.took(WindowOutcome.CRASH, "again", at)
        waits.append(breaker.opens_in(at))
        at += waits[-1]
        assert breaker.allows(at)
    assert waits == [900, 1800, 3600, 7200, 14400, 28800, 57600, 86400, 86400]


# --- restarts and clocks ------------------------------------------------------------------------------


def through_disk(made: Policy, mono: float, wall: float, mono_now: float, wall_now: float) -> Policy:
    again = Policy(made.rules, mono_now)
    again.restore(json.loads(json.dumps(made.dump(mono, wall))), mono_now, wall_now)
    return again


def test_a_window_that_opened_it_does_not_close_it_by_having_rows() -> None:
    breaker = Breaker()
    breaker.trip("a window changed ptl_enable", 0.0)
    breaker.took(WindowOutcome.OK, "", 1.0)  # what it had counted is taken in a moment later
    assert (breaker.state, breaker.reason) == (BreakerState.OPEN, "a window changed ptl_enable")
    assert not breaker.allows(2.0)
    assert breaker.allows(901.0)
    breaker.took(WindowOutcome.OK, "", 902.0)
    assert breaker.state is BreakerState.CLOSED


def test_breaker_budget_pause_and_deep_cap_survive_a_restart() -> None:
    made = policy(deep_per_day=1)
    seen = facts(replace(GPU, left=("l2_hit",)))
    start = made.decide(seen, RICH, deep=True)
    made.began(start, RICH)  # type: ignore[arg-type]
    made.ended(RICH + 20)
    made.breaker.took(WindowOutcome.CRASH, "dead", RICH + 20)
    made.paused = True
    again = through_disk(made, RICH + 20, WALL, 5.0, WALL + 60)
    assert reason(again, seen, 5.0) is SkipReason.PAUSED
    again.paused = False
    assert reason(again, seen, 5.0) is SkipReason.TRIPPED
    assert again.breaker.opens_in(5.0) == pytest.approx(840.0)
    assert reason(again, seen, 5.0 + 841, deep=True) is SkipReason.DEEP_CAP
    assert reason(again, seen, 5.0 + 841) is SkipReason.BUDGET  # the 20 s are still owed: 14.4 were saved
    assert reason(again, seen, 5.0 + 3_000) is None


@given(
    st.floats(-7_200, 7_200) | st.floats(-1e12, 1e12),
    st.floats(0, 1e7),
    st.integers(0, 4),
)
def test_no_step_of_the_clock_makes_anything_negative_or_huge(step: float, mono: float, crashes: int) -> None:
    made = policy()
    for n in range(crashes):
        made.breaker.took(WindowOutcome.CRASH, "dead", mono + n)
    made.budget.spend(30.0)
    again = through_disk(made, mono, WALL, 3.0, WALL + step)
    assert 0 <= again.breaker.opens_in(3.0) <= made.breaker.rules.backoff_most_s
    assert 0 <= again.budget.wait_s(1.0, 3.0) <= 3_700 / 0.004
    assert again.budget._seconds <= 0.004 * 3_600


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"paused": 1, "breaker": {}, "budget": {}, "deep": []},
        {"paused": False, "breaker": None, "budget": None, "deep": None},
        {"paused": True, "breaker": Breaker().dump(0.0, WALL) | {"trips": 7}, "budget": {}, "deep": []},
    ],
)
def test_what_is_no_state_is_refused_and_changes_nothing(kept: dict[str, object]) -> None:
    made = policy()
    before = made.dump(0.0, WALL)
    with pytest.raises((KeyError, ValueError, TypeError)):
        made.restore(kept, 0.0, WALL)
    assert made.dump(0.0, WALL) == before


def test_a_budget_never_saves_more_than_an_hour() -> None:
    budget = Budget(0.004, 0.0)
    assert not budget.allows(15.0 - 0.5, 3_600.0)
    budget.allows(1.0, 1e9)
    assert budget._seconds == pytest.approx(14.4)


@given(
    st.sampled_from([15.0, 300.0, 600.0]),
    st.lists(
        st.tuples(
            st.floats(0.1, 2_000),  # time that passes before the next look
            st.sampled_from([0.0, 0.0, 7_200.0, -7_200.0, 3_600.0, 0.02]),  # and how the wall clock jumps
        ),
        max_size=30,
    ),
)
def test_slots_are_at_least_half_a_period_apart_whatever_the_wall_clock_does(
    period_s: float, steps: list[tuple[float, float]]
) -> None:
    mono, wall = 50.0, WALL
    schedule = Schedule("node-17", period_s, mono, wall)
    last = None
    for passed, jump in steps:
        mono, wall = mono + passed, wall + passed + jump
        schedule.stepped(mono, wall)
        assert schedule.due <= mono + 1.5 * period_s + 1
        if schedule.due <= mono:
            assert last is None or mono - last >= period_s / 2 - 1e-3
            last = mono
            schedule.passed(mono, wall)
            assert mono < schedule.deep_due < schedule.due


def test_the_step_of_a_clock_is_seen_once_and_slewing_is_none() -> None:
    schedule = Schedule("n", 300.0, 10.0, WALL)
    assert not schedule.stepped(20.0, WALL + 10.5)
    assert schedule.stepped(30.0, WALL + 20 + 7_200)
    assert not schedule.stepped(40.0, WALL + 30 + 7_200)
    assert schedule.stepped(50.0, WALL + 40)
