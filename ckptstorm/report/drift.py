"""Many storms against one baseline: each night's change may be small, and the sum of a month's is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ckptstorm.report import resampling
from ckptstorm.report.compare import FALSE_ALARM, Change, Comparison, Word
from ckptstorm.report.compared_numbers import PHASES


@dataclass(frozen=True, slots=True)
class Drift:
    """Where a headline number went, storm after storm.

    Attributes:
        phase, name, unit: which.
        values: the baseline's median, then each storm's, in order.
        total: the relative change over all of them, along the median of all slopes.
        chance: how often storms in no order would rise or fall as steadily; None when not computed.
        word: "worse" and "better" when it drifts, "same" when all lie within what does not matter.
        because: why it cannot be told.
    """

    phase: str
    name: str
    unit: str
    values: tuple[float, ...]
    total: float
    chance: float | None
    word: Word
    because: str

    @property
    def worse_by(self) -> float:
        """The total toward the worse."""
        return -self.total if self.unit == "bytes_per_s" else self.total


@dataclass(frozen=True, slots=True)
class Series:
    """Storms in the order of their start, each against the same baseline.

    Attributes:
        comparisons: one a storm.
        drifts: of the headline numbers.
    """

    comparisons: tuple[Comparison, ...]
    drifts: tuple[Drift, ...]

    @property
    def word(self) -> Word:
        """What the newest storm says, or the drift, whichever is worse."""
        words = [self.comparisons[-1].word, *(drift.word for drift in self.drifts)]
        order: tuple[Word, ...] = ("worse", "cannot tell", "better", "same")
        return min(words, key=order.index) if "worse" in words else self.comparisons[-1].word


def series(comparisons: tuple[Comparison, ...]) -> Series:
    """Look for a drift over comparisons of one baseline with storm after storm."""
    drifts = []
    for phase in PHASES:
        changes = [_headline(each, phase) for each in comparisons]
        known = [each for each in changes if each is not None]
        if known and len(known) == len(changes) and len({each.name for each in known}) == 1:
            drifts.append(_drift(known, comparisons[-1].same_within))
    return Series(comparisons, tuple(drifts))


def _headline(comparison: Comparison, phase: str) -> Change | None:
    return next((each for each in comparison.headline if each.phase == phase), None)


def _drift(changes: list[Change], same_within: float) -> Drift:
    first = changes[0]
    values = np.array([first.before, *(each.after for each in changes)], dtype=np.float64)
    total = resampling.drift(values) if values.min() > 0 else 0.0
    made = (first.phase, first.name, first.unit, tuple(values.tolist()), total)
    false_alarm = FALSE_ALARM / len(PHASES)
    if values.min() <= 0 or resampling.least_trend_chance(len(values)) > false_alarm:
        because = f"{len(values)} storms are too few: chance alone could put them in order"
        return Drift(*made, None, "cannot tell", because)
    if np.all(np.abs(values / values[0] - 1) <= same_within):
        return Drift(*made, resampling.trend_chance(values), "same", "")
    odds = resampling.trend_chance(values)
    if odds > false_alarm or abs(total) <= same_within:
        return Drift(*made, odds, "cannot tell", "they rise and fall")
    toward: Literal["worse", "better"] = "worse" if (total > 0) == (first.unit != "bytes_per_s") else "better"
    return Drift(*made, odds, toward, "")
