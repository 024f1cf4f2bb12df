"""The policy over a fleet: a thousand nodes, thirty days, every decision that a daemon would take."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from exporter.model import DeviceId, WindowOutcome
from exporter.windows.policy import Facts, GpuFacts, Policy, Rules, Start
from exporter.windows.schedule import Schedule, fraction

NODES, DAYS = 1_000, 30
PERIOD_S, WINDOW_S, CAP = 1_800.0, 7.5, 0.004  # more than the cap allows, so that the budget is the limit
EPOCH = 1_760_000_000.0
SPAN_S = DAYS * 86_400
GPUS = tuple(GpuFacts(DeviceId(f"0000:{n:02x}:00.0"), "gfx942", 0.5, 4_000.0) for n in range(8))
KINDS = ("step", "nap", "restart", "crash")
OK, TIMEOUT = WindowOutcome.OK, WindowOutcome.TIMEOUT
CALM = Facts(GPUS, "7.2.0")
BUSY = Facts(tuple(GpuFacts(g.device, "gfx942", 0.99, 10.0) for g in GPUS), "7.2.0")


@dataclass
class Fleet:
    """What the simulation saw."""

    decisions: int = 0
    starts: bytearray = field(default_factory=lambda: bytearray(SPAN_S + 7_200))  # by second of true time
    worst_duty: float = 0.0
    overlaps: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


def simulate() -> Fleet:
    """Each node with its own boot, overrunning windows, failures, restarts, clock steps and naps."""
    seen, random = Fleet(), Random(20261201)
    draws, starts, outcomes, decisions = random.random, seen.starts, seen.outcomes, 0
    rules = Rules(preset="counters", window_s=WINDOW_S, duty_ratio=CAP)
    for n in range(NODES):
        boot = random.uniform(0, 1e6)  # how long the node was up when the simulation begins
        offset = EPOCH - boot  # its wall clock minus its monotonic one
        asleep = 0.0  # true time that its monotonic clock has missed
        mono = boot
        policy = Policy(rules, mono)
        schedule = Schedule(f"node-{n:04d}", PERIOD_S, mono, mono + offset)
        end = boot + SPAN_S
        events = iter(sorted((boot + random.uniform(0, SPAN_S), random.choice(KINDS)) for _ in range(8)))
        event_at, kind = next(events)
        spent = free_at = 0.0
        while (mono := schedule.due) + asleep < end:
            while event_at <= mono:
                if kind == "step":
                    offset += random.choice((-7_200.0, 7_200.0))
                elif kind == "nap":
                    offset += 3_600.0
                    asleep += 3_600.0
                elif kind == "restart":
                    kept = json.loads(json.dumps(policy.dump(mono, mono + offset)))
                    policy = Policy(rules, mono)
                    policy.restore(kept, mono, mono + offset)
                else:
                    policy.breaker.took(WindowOutcome.CRASH, "signal 6", mono)
                event_at, kind = next(events, (float("inf"), ""))
            wall = mono + offset
            if schedule.stepped(mono, wall) and schedule.due > mono:
                continue
            draw = draws()
            decision = policy.decide(BUSY if draw < 0.02 else CALM, mono)
            decisions += 1
            if isinstance(decision, Start):
                if mono < free_at:
                    seen.overlaps += 1
                seconds = WINDOW_S * (0.5 + draw)
                policy.began(decision, mono)
                free_at = mono + seconds
                policy.ended(free_at)
                policy.breaker.took(TIMEOUT if draw > 0.999 else OK, "", free_at)
                spent += seconds
                starts[int(mono - boot + asleep)] += 1
            else:
                outcomes[decision.reason] += 1
            schedule.passed(mono, wall)
        seen.worst_duty = max(seen.worst_duty, spent / (end - boot - asleep))
    seen.decisions = decisions
    return seen


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return simulate()


def test_no_node_spends_more_than_the_duty_cycle(fleet: Fleet) -> None:
    assert 0.9 * CAP < fleet.worst_duty <= CAP


def test_no_node_has_two_windows_at_once(fleet: Fleet) -> None:
    assert fleet.overlaps == 0


def test_no_second_of_a_month_sees_more_than_a_hundredth_of_the_fleet_start(fleet: Fleet) -> None:
    assert 1 <= max(fleet.starts) <= NODES / 100


def test_the_whole_month_takes_a_bounded_number_of_decisions(fleet: Fleet) -> None:
    assert 0.9 * NODES * SPAN_S / PERIOD_S < fleet.decisions <= 5_000_000
    assert {"young_process", "memory_full", "tripped", "budget"} & set(fleet.outcomes)


def starts(names: list[str], period_s: float, hours: float) -> Counter[int]:
    """Starts by second of a fleet whose daemons began at times of their own."""
    random, found = Random(7), Counter[int]()
    for name in names:
        mono = random.uniform(0, 1e6)
        schedule = Schedule(name, period_s, mono, EPOCH)
        offset, began = EPOCH - mono, mono
        while schedule.due < began + hours * 3_600:
            mono = schedule.due
            found[int(mono + offset - EPOCH)] += 1
            schedule.passed(mono, mono + offset)
    return found


FLEETS = {
    "numbered": [f"node-{n:04d}" for n in range(NODES)],
    "racks": [f"r{r:02d}-gpu{n:02d}.cluster" for r in range(50) for n in range(20)],
    "addresses": [f"ip-10-4-{n // 250}-{n % 250}.internal" for n in range(NODES)],
    "tens": [f"gpu{10 * n}" for n in range(NODES)],
}


@pytest.mark.parametrize("names", FLEETS.values(), ids=list(FLEETS))
@pytest.mark.parametrize("period_s", [600.0, 300.0, 120.0, 60.0, 15.0])
def test_start_times_are_spread_at_every_period(names: list[str], period_s: float) -> None:
    found = starts(names, period_s, 0.5)
    mean = NODES / period_s
    assert max(found.values()) <= (NODES / 100 if period_s >= 600 else 3 * mean)
    # Half an hour without its ends, where a period may be cut: no slot is lost or doubled.
    inner = sum(count for at, count in found.items() if period_s <= at < 1_800 - period_s)
    assert inner == pytest.approx(mean * (1_800 - 2 * period_s), rel=0.02)


def test_names_without_any_number_are_spread_as_by_chance() -> None:
    random = Random(3)
    names = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(NODES)]
    assert max(starts(names, 600.0, 0.5).values()) <= NODES / 100


def test_a_node_keeps_its_place_and_two_nodes_have_their_own() -> None:
    assert fraction("node-0007") == fraction("node-0007")
    assert all(0 <= fraction(name) < 1 for names in FLEETS.values() for name in names)
    assert len({fraction(name) for names in FLEETS.values() for name in names}) == 4 * NODES
