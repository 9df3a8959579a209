"""How a rate grows with ranks: the Universal Scalability Law, fitted with an interval.

N. J. Gunther, "Guerrilla Capacity Planning" (2007), chapters 4 to 6: a rate over N ranks is

    X(N) = λ N ÷ (1 + σ (N − 1) + κ N (N − 1))

λ is what one rank reaches alone. σ is the share of the work that is done one after the other (a lock, a server
that is full): with it alone the rate levels off at λ ÷ σ. κ is what every pair of ranks costs (coherence, false
sharing, thrashing): with it the rate has a peak at N* = √((1 − σ) ÷ κ) and falls beyond.

N ÷ X(N) is linear in 1, N − 1 and N (N − 1), so the fit is a least-squares one with coefficients that are not
negative, of relative errors (a rate is as uncertain at 8 ranks as at 8,000, in per cent).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Three coefficients want at least as many world sizes, or the curve is whatever one likes.
SIZES_LEAST = 3
#: Resamplings of the rounds of each size; seeded, so that a table says the same twice.
_RESAMPLES = 1_000
_SEED = 20_261_201
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the ends of its 95 % interval; infinite where there is no end."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Law:
    """A fitted curve.

    Attributes:
        rate: λ, of one rank alone, in the unit of the rates.
        contention: σ, 0 to 1 and above.
        crosstalk: κ.
        knee: N*, the world with the highest rate; infinite when the rate never falls.
        error: the largest relative difference between a measured median and the curve.
        has_intervals: False when no size has two rounds: the ends of all intervals are then the value.
    """

    rate: Interval
    contention: Interval
    crosstalk: Interval
    knee: Interval
    error: float
    has_intervals: bool

    def at(self, ranks: float) -> float:
        """The rate that the curve gives for a world of so many ranks."""
        return _rate(self.rate.value, self.contention.value, self.crosstalk.value, ranks)

    @property
    def ceiling(self) -> float:
        """The highest rate of any world: at the knee, or where it levels off; infinite when nothing limits it."""
        if math.isfinite(self.knee.value):
            return self.at(max(self.knee.value, 1.0))
        return self.rate.value / self.contention.value if self.contention.value > 0 else math.inf


def fit(points: Sequence[tuple[int, Sequence[float]]]) -> Law | None:
    """The law through measured rates; None with fewer than `SIZES_LEAST` sizes.

    Args:
        points: (ranks, the rate of each round, all above 0) of each world size, each size once.
    """
    if len(points) < SIZES_LEAST:
        return None
    ranks = np.array([count for count, _ in points], dtype=np.float64)
    medians = np.array([float(np.median(list(rates))) for _, rates in points])
    best = _coefficients(ranks, medians)
    has_intervals = any(len(rates) > 1 for _, rates in points)
    drawn = np.array([_law(*_coefficients(ranks, each)) for each in _resampled(points)]) if has_intervals else None
    law = _law(*best)
    fitted = np.array([_rate(*law[:3], count) for count in ranks])
    rate, contention, crosstalk, knee = (
        _interval(value, None if drawn is None else drawn[:, index]) for index, value in enumerate(law)
    )
    return Law(
        rate,
        contention,
        crosstalk,
        knee,
        error=float(np.max(np.abs(fitted / medians - 1))),
        has_intervals=has_intervals,
    )


def _rate(rate: float, contention: float, crosstalk: float, ranks: float) -> float:
    return rate * ranks / (1 + contention * (ranks - 1) + crosstalk * ranks * (ranks - 1))


def _coefficients(ranks: Floats, rates: Floats) -> tuple[float, float, float]:
    """1 ÷ λ, σ ÷ λ and κ ÷ λ, none negative: the best of the fits with each set of the last two left out.

    With three coefficients that is the exact answer of non-negative least squares, without its iterations.
    """
    wanted = ranks / rates
    columns = np.stack([np.ones_like(ranks), ranks - 1, ranks * (ranks - 1)], axis=1) / wanted[:, None]
    best, least = (float(np.median(wanted)), 0.0, 0.0), math.inf
    for kept in (each for size in (1, 2, 3) for each in combinations((0, 1, 2), size) if 0 in each):
        solved = np.linalg.lstsq(columns[:, kept], np.ones_like(ranks), rcond=None)[0]
        off = float(((columns[:, kept] @ solved - 1) ** 2).sum())
        # A coefficient that helps by rounding alone is none.
        if solved[0] > 0 and (solved[1:] >= 0).all() and off < least - 1e-12:
            found = dict(zip(kept, solved.tolist(), strict=True))
            best, least = (found[0], found.get(1, 0.0), found.get(2, 0.0)), off
    return best


def _law(alone: float, one_by_one: float, pairs: float) -> tuple[float, float, float, float]:
    """λ, σ, κ and the knee."""
    contention, crosstalk = one_by_one / alone, pairs / alone
    knee = math.sqrt(max(1 - contention, 0.0) / crosstalk) if crosstalk > 0 else math.inf
    return 1 / alone, contention, crosstalk, max(knee, 1.0)


def _resampled(points: Sequence[tuple[int, Sequence[float]]]) -> Floats:
    """Medians of rounds drawn anew with replacement, shape (resamples, sizes)."""
    random = np.random.default_rng(_SEED)
    return np.stack(
        [np.median(random.choice(np.array(rates), (_RESAMPLES, len(rates))), axis=1) for _, rates in points], axis=1
    )


def _interval(value: float, drawn: Floats | None) -> Interval:
    if drawn is None:
        return Interval(value, value, value)
    # Of sorted values and not by interpolation: between a number and infinity there is nothing to interpolate.
    ends = np.sort(drawn)[[int(len(drawn) * (1 - _CONFIDENCE) / 2), int(len(drawn) * (1 + _CONFIDENCE) / 2) - 1]]
    return Interval(value, min(value, float(ends[0])), max(value, float(ends[1])))
