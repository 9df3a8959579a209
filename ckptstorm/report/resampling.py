"""Whether two handfuls of rounds differ: an interval by resampling, and the odds of chance, without assuming a shape.

Rounds are few and their times skewed, so nothing here rests on a normal distribution. Everything is seeded: the same
two records give the same answer every time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Resamplings: an interval's end of 2.5 % rests on 250 of them, and moves by less than a tenth of its width.
RESAMPLES = 10_000
_SEED = 20_261_101
#: Arrangements that are counted one by one; beyond that the normal approximation is good to the third digit.
_COUNTED = 20_000
_ORDERS_COUNTED = 7


@dataclass(frozen=True, slots=True)
class Interval:
    """A relative change, 0.1 for a tenth more: the estimate, and the ends of its interval."""

    change: float
    low: float
    high: float


def change_interval(before: Floats, after: Floats, confidence: float) -> Interval:
    """The change of the median from `before` to `after`, with a percentile bootstrap interval over rounds.

    Rounds of each side are drawn anew with replacement, and the ratio of the medians is taken each time.

    Args:
        before: one value a round, all above 0.
        after: likewise; the count may differ.
        confidence: of the interval, 0 to 1.
    """
    random = np.random.default_rng(_SEED)
    drawn_before = np.median(random.choice(before, (RESAMPLES, len(before))), axis=1)
    drawn_after = np.median(random.choice(after, (RESAMPLES, len(after))), axis=1)
    ratios = np.sort(drawn_after / drawn_before) - 1
    ends = np.quantile(ratios, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(np.median(after) / np.median(before)) - 1, float(ends[0]), float(ends[1]))


def least_chance(before_count: int, after_count: int) -> float:
    """The smallest `chance` that so many rounds can show: that of two sides that do not overlap at all."""
    return 2 / math.comb(before_count + after_count, before_count)


def chance(before: Floats, after: Floats) -> float:
    """How often rounds that do not differ would look at least as different (Wilcoxon's rank-sum test, two-sided).

    Exact up to 20,000 arrangements; else by the normal approximation, corrected for ties.
    """
    ranks = _midranks(np.concatenate([before, after]))
    middle = len(before) * (len(ranks) + 1) / 2
    seen = abs(float(ranks[: len(before)].sum()) - middle)
    if math.comb(len(ranks), len(before)) <= _COUNTED:
        sums = np.array(_sums(ranks, len(before)))
        return float(np.mean(np.abs(sums - middle) >= seen - 1e-9))
    variance = len(before) * len(after) / len(ranks) * float(((ranks - ranks.mean()) ** 2).sum()) / (len(ranks) - 1)
    return math.erfc(seen / math.sqrt(2 * variance)) if variance else 1.0


def trend_chance(values: Floats) -> float:
    """How often values in no order would rise or fall at least as steadily (Mann and Kendall's test, two-sided)."""
    seen = abs(_ups(tuple(values.tolist())))
    if not seen:
        return 1.0
    count = len(values)
    if count <= _ORDERS_COUNTED:
        orders = list(permutations(values.tolist()))
        return sum(abs(_ups(order)) >= seen for order in orders) / len(orders)
    ties = [int(tie) for tie in np.unique(values, return_counts=True)[1]]
    variance = (count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    return math.erfc((seen - 1) / math.sqrt(2 * variance))


def least_trend_chance(count: int) -> float:
    """The smallest `trend_chance` that so many values can show: that of a perfect order."""
    return 2 / math.factorial(count)


def drift(values: Floats) -> float:
    """The relative change from the first to the last value along the median of all slopes (Theil and Sen's line).

    Args:
        values: all above 0. Where the line itself begins at or below 0, the first value is what it is relative to.
    """
    slopes = [(values[j] - values[i]) / (j - i) for i, j in combinations(range(len(values)), 2)]
    slope = float(np.median(slopes))
    start = float(np.median(values - slope * np.arange(len(values))))
    return slope * (len(values) - 1) / (start if start > 0 else float(values[0]))


def _ups(values: tuple[float, ...]) -> int:
    """Pairs that rise less pairs that fall."""
    return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))


def _sums(ranks: Floats, count: int) -> list[float]:
    return [sum(chosen) for chosen in combinations(ranks.tolist(), count)]


def _midranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    order = np.sort(values)
    edges = np.flatnonzero(np.concatenate([[True], np.diff(order) > 0, [True]]))
    middle = {float(order[first]): (first + 1 + last) / 2 for first, last in pairwise(edges.tolist())}
    return np.array([middle[float(value)] for value in values])
