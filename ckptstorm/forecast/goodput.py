"""What saves, restores and failures leave of a job's time: the interval that wastes least, and the shares lost.

Failures of a job come at random, memoryless, once in M (a GPU's mean time to failure ÷ GPUs). The job works for
`interval_s`, saves, works again; after a failure it restarts and does again what was not saved. Seconds everywhere.

The exact model, for measured saves d and restarts R of any distribution: one interval with its save succeeds with
p = exp(-t/M) E[exp(-d/M)], a restart with q = E[exp(-R/M)] (else it starts over). A life, from one finished restart
to the next, lasts M/q on average and completes p/(1-p) intervals of work t, so goodput = t p q / (M (1-p)). For
constant d and R that is the inverse of Daly's complete model, T/T_work = M exp(R/M) (exp((t+d)/M) - 1) / t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

#: Halvings of an interval until it is narrower than a double can tell.
_HALVINGS = 200

#: Printed with the numbers: what each line is, its formula and where it is from.
FORMULAS: dict[str, str] = {
    "least": (
        "the t that maximizes goodput = t p q ÷ (M (1 - p)), p = exp(-t/M) mean(exp(-d/M)), q = mean(exp(-R/M)), over"
        " all measured saves d and restarts R; of constant d and R this is Daly's complete model, J. T. Daly, Future"
        " Generation Computer Systems 22 (2006): wall ÷ work = M exp(R/M) (exp((t + d)/M) - 1) ÷ t."
    ),
    "daly": (
        "t = √(2 d M) (1 + ⅓ √(d ÷ 2M) + ⅑ (d ÷ 2M)) - d below d = 2M, else M; Daly 2006, higher-order estimate; d is"
        " the mean save."
    ),
    "young": "t = √(2 d M); J. W. Young, Communications of the ACM 17 (1974).",
    "availability": (
        "t = √(2 (M + R) d + d²), the period less its save; N. R. Saxena and others, arXiv 2410.18124 (2024)."
    ),
    "asynchronous": (
        "training goes on while a save drains: goodput = t q mean(exp(-(t + b + d)/M)) ÷ (M (1 - exp(-(t + b)/M))),"
        " b what training is held for; the period t + b is at least the slowest save, for one drains at a time. A"
        " failure while a save drains falls back to the one before."
    ),
    "bandwidth": (
        "saving and lost work together at most the stated overhead (restarts left out), at the interval that wastes"
        " least; at a fixed interval t, synchronous bytes ÷ (overhead times t), asynchronous bytes ÷ t."
    ),
}


@dataclass(frozen=True, slots=True)
class Costs:
    """What a job pays for its checkpoints.

    Attributes:
        save_s: every measured save, seconds until it was committed; at least one, all above 0.
        restart_s: every measured restore plus what else a restart takes; at least one.
        mtbf_s: mean time between failures of the job.
    """

    save_s: tuple[float, ...]
    restart_s: tuple[float, ...]
    mtbf_s: float


@dataclass(frozen=True, slots=True)
class Shares:
    """Where the time of a job goes at one interval; the four shares add up to 1.

    Attributes:
        interval_s: work between one save and the next.
        goodput: work that counts.
        saving: training held by saves that were completed.
        lost: work, and saves, that a failure undid.
        restarting: from a failure until training goes on, restarts that failed included.
    """

    interval_s: float
    goodput: float
    saving: float
    lost: float
    restarting: float


def young(save_s: float, mtbf_s: float) -> float:
    """Young's first-order interval."""
    return math.sqrt(2 * save_s * mtbf_s)


def daly(save_s: float, mtbf_s: float) -> float:
    """Daly's higher-order interval."""
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    part = save_s / (2 * mtbf_s)
    return math.sqrt(2 * save_s * mtbf_s) * (1 + math.sqrt(part) / 3 + part / 9) - save_s


def availability(save_s: float, restart_s: float, mtbf_s: float) -> float:
    """The interval that maximizes availability: (T − d)/T × M/(M + R + T/2) over the period T, less the save d."""
    return math.sqrt(2 * (mtbf_s + restart_s) * save_s + save_s * save_s)


def least(costs: Costs) -> float:
    """The interval of the largest goodput in the exact model.

    With D = −M ln E[exp(−d/M)], the derivative of ln goodput is 0 where x + D/M + ln(1 − x) = 0, x = t/M: one root.
    """
    return costs.mtbf_s * _root(-math.log1p(-_undone(costs.save_s, costs.mtbf_s)))


def synchronous(costs: Costs, interval_s: float) -> Shares:
    """Shares when training stops for each save."""
    mtbf_s = costs.mtbf_s
    save_undone = _undone(costs.save_s, mtbf_s)
    restart_done = 1 - _undone(costs.restart_s, mtbf_s)
    work_done = math.exp(-interval_s / mtbf_s)
    fails = -math.expm1(-interval_s / mtbf_s) + work_done * save_undone
    intervals_a_life = work_done * (1 - save_undone) / fails
    survived_s = fmean(each * math.exp(-each / mtbf_s) for each in costs.save_s) / (1 - save_undone)
    return _shares(costs, interval_s, intervals_a_life * restart_done, survived_s)


def asynchronous(costs: Costs, blocking_s: float, interval_s: float) -> Shares:
    """Shares when training is held for `blocking_s` a save, and the save drains while it goes on."""
    mtbf_s, period_s = costs.mtbf_s, interval_s + blocking_s
    drained = 1 - _undone(costs.save_s, mtbf_s)
    restart_done = 1 - _undone(costs.restart_s, mtbf_s)
    intervals_a_life = drained * math.exp(-period_s / mtbf_s) / -math.expm1(-period_s / mtbf_s)
    return _shares(costs, interval_s, intervals_a_life * restart_done, blocking_s)


def asynchronous_least(costs: Costs, blocking_s: float) -> float:
    """The interval of the largest goodput of asynchronous saves: no period shorter than the slowest save drains in."""
    free_s = costs.mtbf_s * _root(blocking_s / costs.mtbf_s)
    return max(free_s, max(costs.save_s) - blocking_s)


def synchronous_save_s(overhead: float, mtbf_s: float) -> float:
    """The longest save with which saving and lost work, at their best interval, take at most `overhead` of the time."""

    def waste(save_s: float) -> float:
        costs = Costs((save_s,), (0.0,), mtbf_s)
        return 1 - synchronous(costs, least(costs)).goodput

    return _longest(waste, overhead, mtbf_s)


def asynchronous_save_s(overhead: float, blocking_s: float, mtbf_s: float) -> float:
    """The same for saves that drain while training goes on; 0 when `blocking_s` alone takes more."""

    def waste(save_s: float) -> float:
        costs = Costs((save_s,), (0.0,), mtbf_s)
        return 1 - asynchronous(costs, blocking_s, asynchronous_least(costs, blocking_s)).goodput

    return _longest(waste, overhead, mtbf_s)


def _shares(costs: Costs, interval_s: float, intervals: float, saving_s: float) -> Shares:
    """From the intervals that are completed in a time of M (a life times the share of restarts that succeed)."""
    goodput = intervals * interval_s / costs.mtbf_s
    saving = intervals * saving_s / costs.mtbf_s
    restarting = _undone(costs.restart_s, costs.mtbf_s)
    return Shares(interval_s, goodput, saving, max(1 - goodput - saving - restarting, 0.0), restarting)


def _undone(times_s: tuple[float, ...], mtbf_s: float) -> float:
    """The chance that a failure falls into such a time: 1 − E[exp(−time/M)]."""
    return fmean(-math.expm1(-each / mtbf_s) for each in times_s)


def _root(cost: float) -> float:
    """The x in [0, 1) with x + ln(1 − x) = −cost."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle < 1 and middle + math.log1p(-middle) > -cost:
            low = middle
        else:
            high = middle
    return low


def _longest(waste: Callable[[float], float], overhead: float, mtbf_s: float) -> float:
    """The largest save time whose waste, which grows with it, is at most `overhead`."""
    low, high = 0.0, 10 * mtbf_s
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle and waste(middle) <= overhead:
            low = middle
        else:
            high = middle
    return low
