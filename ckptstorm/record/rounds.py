"""Rounds taken together: the median, the spread and the worst of the measured ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ckptstorm.measure.rows import Phase
from ckptstorm.record.confidence import Interval, median_interval
from ckptstorm.record.summary import PhaseSummary
from ckptstorm.record.trend import Trend, trend


@dataclass(frozen=True, slots=True)
class Spread:
    """One number over rounds.

    Attributes:
        median, least, most: over the measured rounds.
        spread: (most - least) ÷ median; 0 of one round.
        interval: where the true median lies, with 95 %; None with fewer than six rounds.
    """

    median: float
    least: float
    most: float
    interval: Interval | None = None

    @property
    def spread(self) -> float:
        """(most - least) ÷ median."""
        return (self.most - self.least) / self.median if self.median else 0.0

    @property
    def within(self) -> float | None:
        """How far the median may be off, as a share of itself; None when that is not known."""
        return None if self.interval is None else self.interval.within(self.median)


@dataclass(frozen=True, slots=True)
class RoundsSummary:
    """A phase over its measured rounds.

    Attributes:
        phase: which.
        round_count: measured rounds that were finished; warm-up is not among them.
        seconds, committed_seconds, bytes_per_s, iops, iops_over_4k, straggler_ratio: over rounds.
        worst: the slowest round.
        middle: the round whose time is the median.
    """

    phase: Phase
    round_count: int
    seconds: Spread
    committed_seconds: Spread
    bytes_per_s: Spread
    iops: Spread
    iops_over_4k: Spread
    straggler_ratio: Spread
    worst: PhaseSummary
    middle: PhaseSummary


def measured(summaries: Iterable[PhaseSummary], phase: Phase, name: str = "") -> tuple[PhaseSummary, ...]:
    """The measured rounds of a phase (of a load: of that name), failed ones among them."""
    return tuple(each for each in summaries if (each.phase, each.name) == (phase, name) and each.is_measured)


def over_rounds(summaries: Iterable[PhaseSummary], phase: Phase, name: str = "") -> RoundsSummary | None:
    """A phase over its measured rounds that were finished; None when there is none.

    A round in which ops failed has no time: the verdict tells of it (exit code 3), numbers do not.
    """
    rounds = tuple(summary for summary in measured(summaries, phase, name) if summary.is_finished)
    if not rounds:
        return None
    by_time = sorted(rounds, key=lambda summary: summary.seconds)
    return RoundsSummary(
        phase,
        len(rounds),
        spread_of(rounds, lambda summary: summary.seconds),
        spread_of(rounds, lambda summary: summary.committed_seconds),
        spread_of(rounds, lambda summary: summary.bytes_per_s),
        spread_of(rounds, lambda summary: summary.iops),
        spread_of(rounds, lambda summary: summary.iops_over_4k),
        spread_of(rounds, lambda summary: summary.straggler_ratio),
        worst=by_time[-1],
        middle=by_time[(len(by_time) - 1) // 2],
    )


def spread_of(rounds: Iterable[PhaseSummary], number: Callable[[PhaseSummary], float]) -> Spread:
    """Median, least and most of one number; the median of an even count is the mean of the middle two."""
    values = sorted(number(summary) for summary in rounds)
    return Spread(median_of(values), values[0], values[-1], median_interval(values))


def median_of(values: Sequence[float]) -> float:
    """The median of some values; of an even count the mean of the middle two."""
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def trend_of(rounds: tuple[PhaseSummary, ...]) -> Trend | None:
    """Of the time of the finished rounds."""
    finished = [summary for summary in rounds if summary.is_finished]
    return trend([summary.round for summary in finished], [summary.seconds for summary in finished])


def ops_per_s(summary: PhaseSummary) -> float:
    """All ops of all ranks ÷ T: what a load comes to whose time is fixed."""
    count = summary.data_op_count + summary.metadata_op_count + summary.sync_count
    return count / summary.seconds if summary.seconds > 0 else 0.0
