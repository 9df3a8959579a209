"""How sure a median of rounds is: an interval by order statistics, which asks nothing of the distribution.

Of n independent rounds in order of time, the true median lies between the k-th and the (n − k + 1)-th with
probability 1 − 2 P(B < k), B binomial with n trials and probability 1/2: it lies below the k-th exactly when fewer
than k rounds fall below it (David and Nagaraja, Order Statistics, 3rd edition, section 7.1; recommended for
performance data by Hoefler and Belli, SC 2015, rule 5). Rounds of storage are skewed and have outliers, so an
interval of the mean would say less. With fewer than six rounds there is no such interval at 95 %.

Who looks after every round and stops when it is narrow enough is a little less sure than 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true median lies.

    Attributes:
        low, high: its bounds, both values that were seen.
        confidence: the probability that it lies there, at least `CONFIDENCE`.
    """

    low: float
    high: float
    confidence: float

    def within(self, median: float) -> float:
        """How far the median may be off, as a share of itself."""
        return max(self.high - median, median - self.low) / median if median > 0 else math.inf


def median_interval(values: Sequence[float]) -> Interval | None:
    """The narrowest such interval that holds the median with 95 %; None when there are too few values."""
    ordered, count = sorted(values), len(values)
    half, below, rank = 2**count * 25 // 1000, 1, 0  # outcomes of 2^n that may lie outside, per side
    sure = 0
    while below <= half and rank < count // 2:  # `below`: outcomes with at most `rank` rounds below the median
        rank, sure = rank + 1, below
        below += math.comb(count, rank)
    if rank == 0:
        return None
    return Interval(ordered[rank - 1], ordered[count - rank], 1 - 2 * sure / 2**count)
