"""Intervals and goodput: against published forms, against a table worked out by hand, and against a simulated job."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptstorm.forecast import goodput
from ckptstorm.forecast.goodput import Costs

#: Llama 3's: 419 unexpected interruptions of 16,384 GPUs in 54 days.
MTTF_S = 50_676 * 3600
RESTART_S = 300.0

#: GPUs, save (s), Daly's interval (min), goodput there, for a restart of 300 s.
TABLE = [
    (1_024, 10, 31.3, 0.988),
    (1_024, 60, 76.4, 0.973),
    (1_024, 300, 169, 0.942),
    (16_384, 10, 7.8, 0.933),
    (16_384, 60, 18.6, 0.876),
    (16_384, 300, 39.8, 0.765),
    (100_000, 10, 3.1, 0.763),
    (100_000, 60, 7.1, 0.649),
    (100_000, 300, 14.3, 0.450),
]
HOURS = st.floats(0.2, 1000.0)
SECONDS = st.floats(0.5, 1200.0)


def _costs(save_s: float, mtbf_s: float, restart_s: float = RESTART_S) -> Costs:
    return Costs((save_s,), (restart_s,), mtbf_s)


@pytest.mark.parametrize(("gpus", "save_s", "minutes", "share"), TABLE)
def test_the_table(gpus, save_s, minutes, share):
    """Daly's interval and the goodput there, to the digits that are given."""
    mtbf_s = MTTF_S / gpus
    interval_s = goodput.daly(save_s, mtbf_s)
    assert interval_s / 60 == pytest.approx(minutes, abs=0.5 if minutes > 100 else 0.051)
    assert goodput.synchronous(_costs(save_s, mtbf_s), interval_s).goodput == pytest.approx(share, abs=0.00051)


@given(save_s=SECONDS, hours=HOURS, restart_s=SECONDS, interval_s=st.floats(1.0, 1e5))
def test_it_is_dalys_complete_model(save_s, hours, restart_s, interval_s):
    """Of constant times; and the shares add up to 1."""
    mtbf_s = hours * 3600
    shares = goodput.synchronous(_costs(save_s, mtbf_s, restart_s), interval_s)
    wall = mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1((interval_s + save_s) / mtbf_s) / interval_s
    assert shares.goodput == pytest.approx(1 / wall, rel=1e-9)
    assert shares.goodput + shares.saving + shares.lost + shares.restarting == pytest.approx(1)
    assert min(shares.goodput, shares.saving, shares.lost, shares.restarting) >= 0


@given(times=st.lists(SECONDS, min_size=1, max_size=6), hours=HOURS, factor=st.floats(0.2, 5.0))
def test_no_interval_wastes_less(times, hours, factor):
    """Than the one that is said to waste least; the published ones never beat it."""
    costs = Costs(tuple(times), (RESTART_S,), hours * 3600)
    best_s = goodput.least(costs)
    best = goodput.synchronous(costs, best_s).goodput
    mean_s = sum(times) / len(times)
    others = [best_s * factor, goodput.young(mean_s, costs.mtbf_s), goodput.daly(mean_s, costs.mtbf_s)]
    others.append(goodput.availability(mean_s, RESTART_S, costs.mtbf_s))
    for other_s in others:
        if other_s > 0:
            assert goodput.synchronous(costs, other_s).goodput <= best * (1 + 1e-12)


def test_published_intervals_agree_where_failures_are_rare():
    """All of them tend to √(2 d M)."""
    save_s, mtbf_s = 10.0, 1e8
    expected = math.sqrt(2 * save_s * mtbf_s)
    found = [
        goodput.young(save_s, mtbf_s),
        goodput.daly(save_s, mtbf_s),
        goodput.availability(save_s, 0.0, mtbf_s),
        goodput.least(_costs(save_s, mtbf_s)),
    ]
    assert found == pytest.approx([expected] * 4, rel=1e-3)


def test_daly_beyond_its_range():
    """A save longer than twice the time between failures: Daly's own rule is t = M."""
    assert goodput.daly(250.0, 100.0) == 100.0


def test_availability_is_the_optimum_it_claims():
    """(T − d)/T × M/(M + R + T/2) is largest at T = t + d."""
    save_s, restart_s, mtbf_s = 60.0, 300.0, 11_000.0

    def available(period_s: float) -> float:
        return (period_s - save_s) / period_s * mtbf_s / (mtbf_s + restart_s + period_s / 2)

    best_s = goodput.availability(save_s, restart_s, mtbf_s) + save_s
    assert available(best_s) > max(available(best_s * 0.99), available(best_s * 1.01))


def _simulated(costs: Costs, blocking_s: float | None, interval_s: float, lives: int) -> float:
    """Goodput of a job that is played out: failures, restarts that fail, saves that fail."""
    dice = random.Random(7)
    wall_s = kept_s = 0.0
    for _ in range(lives):
        left_s, done = dice.expovariate(1 / costs.mtbf_s), 0
        wall_s += left_s
        while True:
            save_s = dice.choice(costs.save_s)
            held_s = save_s if blocking_s is None else blocking_s
            drains_s = 0.0 if blocking_s is None else save_s
            if left_s < interval_s + held_s + drains_s:
                break
            left_s -= interval_s + held_s
            done += 1
        kept_s += done * interval_s
        while True:
            restart_s, fails_s = dice.choice(costs.restart_s), dice.expovariate(1 / costs.mtbf_s)
            wall_s += min(restart_s, fails_s)
            if fails_s >= restart_s:
                break
    return kept_s / wall_s


@pytest.mark.parametrize("blocking_s", [None, 5.0])
def test_a_job_played_out_comes_to_the_same(blocking_s):
    """20,000 failures of a job whose saves and restarts vary: within 1 % of the formula."""
    costs = Costs((40.0, 60.0, 200.0), (100.0, 500.0), 3000.0)
    interval_s = 500.0
    way = goodput.synchronous if blocking_s is None else (lambda c, t: goodput.asynchronous(c, blocking_s, t))
    assert _simulated(costs, blocking_s, interval_s, 20_000) == pytest.approx(way(costs, interval_s).goodput, rel=0.012)


def test_asynchronous_saves_follow_as_fast_as_they_drain():
    """Training held for nothing: the shorter the period the better, and the slowest save ends that."""
    costs = Costs((40.0, 60.0), (300.0,), 11_000.0)
    assert goodput.asynchronous_least(costs, 0.0) == 60.0
    held_s = goodput.asynchronous_least(costs, 30.0)
    assert held_s > 60.0
    best = goodput.asynchronous(costs, 30.0, held_s).goodput
    for factor in (0.9, 1.1):
        assert goodput.asynchronous(costs, 30.0, held_s * factor).goodput < best


def test_what_a_stated_overhead_needs():
    """16.56 TB, a failure in 3 h, 5 %: 13.5 s by the first-order rule d = overhead² M ÷ 2."""
    mtbf_s = 3 * 3600.0
    save_s = goodput.synchronous_save_s(0.05, mtbf_s)
    assert save_s == pytest.approx(13.5, rel=0.06)
    costs = Costs((save_s,), (0.0,), mtbf_s)
    assert 1 - goodput.synchronous(costs, goodput.least(costs)).goodput == pytest.approx(0.05, rel=1e-6)
    drain_s = goodput.asynchronous_save_s(0.05, 0.0, mtbf_s)
    assert drain_s == pytest.approx(2 * 0.05 * mtbf_s / 3, rel=0.06)
    assert goodput.asynchronous_save_s(0.001, 600.0, mtbf_s) == 0.0
