"""Whether rounds get slower: the slope of time over rounds, with its confidence, for soaks of hours.

Theil and Sen's slope is the median of the slopes between all pairs of rounds, so a few wild rounds do not
move it; its interval comes from the variance of Kendall's statistic, n (n − 1) (2 n + 5) / 18 (Sen 1968, "Estimates of
the regression coefficient based on Kendall's tau", section 3), by the normal approximation, good from ten rounds on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: The normal approximation is off by less than a hundredth from here on (Gilbert 1987, section 16.4).
ROUNDS_LEAST = 10
_Z_95 = 1.959964


@dataclass(frozen=True, slots=True)
class Trend:
    """How a number changes from round to round, as a share of its median.

    Attributes:
        round_count: rounds looked at.
        share_per_round: the slope ÷ the median; above 0: it grows.
        low, high: the 95 % interval of that.
    """

    round_count: int
    share_per_round: float
    low: float
    high: float

    @property
    def is_seen(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


def trend(numbers: Sequence[int], values: Sequence[float]) -> Trend | None:
    """The trend of values over the numbers of their rounds; None when there are too few.

    Args:
        numbers: of the rounds, rising; failed rounds are left out.
        values: one a round.
    """
    count = len(values)
    median = float(np.median(values)) if count else 0.0
    if count < ROUNDS_LEAST or median <= 0:
        return None
    x, y = np.asarray(numbers, dtype=np.float64), np.asarray(values, dtype=np.float64)
    first, second = np.triu_indices(count, k=1)
    slopes = np.sort((y[second] - y[first]) / (x[second] - x[first])) / median
    spread = _Z_95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(math.floor((len(slopes) - spread) / 2) - 1, 0)
    high = min(math.ceil((len(slopes) + spread) / 2), len(slopes) - 1)
    return Trend(count, float(np.median(slopes)), float(slopes[low]), float(slopes[high]))
