"""Two storms set against each other: for each number the change, its interval over rounds, and a word for it.

Nothing is called better or worse on the strength of two figures: the interval must lie on one side, and rounds that do
not differ must be unlikely to look so. Where neither can be computed, the word is "cannot tell", with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ckptstorm.errors import PlaceError
from ckptstorm.measure.rows import Phase
from ckptstorm.record.record import StormRecord, Verdict
from ckptstorm.record.settings import is_instrument
from ckptstorm.record.summary import PhaseSummary, summarize
from ckptstorm.record.verdict import verdict
from ckptstorm.report import resampling
from ckptstorm.report.compared_numbers import PHASES, Number, Unit, numbers
from ckptstorm.report.likeness import Difference, differences, planned_bytes
from ckptstorm.report.resampling import Floats, Interval

Word = Literal["better", "worse", "same", "cannot tell"]

#: The odds of a false alarm that each number is judged with; the headline's numbers share them.
FALSE_ALARM = 0.05
#: A change within this is no change that matters: MLPerf Storage calls runs within it reproducible.
SAME_WITHIN = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """One number of one phase, judged.

    Attributes:
        phase, name, unit: which; the phase by its word, a load's stage by its name ("ls during the save").
        before, after: medians over the measured rounds.
        interval: of the relative change; None when it could not be computed.
        confidence: of the interval.
        chance: how often rounds that do not differ would look so; None likewise.
        word: the judgement.
        because: why it cannot be told; "" when it can.
        is_headline: whether it decides the whole.
        worse_by: the change in the direction that is worse, 0.1 for a tenth; 0 when unknown.
    """

    phase: str
    name: str
    unit: Unit
    before: float
    after: float
    interval: Interval | None
    confidence: float
    chance: float | None
    word: Word
    because: str
    is_headline: bool
    worse_by: float


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two storms, as far as the reader must know it."""

    storm_id: str
    verdict: Verdict
    is_instrument: bool
    round_count: int

    @property
    def is_believable(self) -> bool:
        """Whether its numbers may be set against others: valid, or an instrument's that ended well."""
        return self.verdict.valid or (self.is_instrument and self.verdict.exit_code == 0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two storms set against each other.

    Attributes:
        before, after: the storms.
        differences: what differs between them.
        changes: every number that both have, in reading order.
        left_out: numbers that cannot be compared because the bytes differ.
        same_within: the change that does not matter.
    """

    before: Side
    after: Side
    differences: tuple[Difference, ...]
    changes: tuple[Change, ...]
    left_out: tuple[str, ...]
    same_within: float

    @property
    def headline(self) -> tuple[Change, ...]:
        """The numbers that decide: the time of the save and of the restore."""
        return tuple(change for change in self.changes if change.is_headline)

    @property
    def word(self) -> Word:
        """Worse when any headline number is; better when one is and none is worse; same when all are."""
        words = [change.word for change in self.headline]
        for found in ("worse", "better"):
            if found in words:
                return "worse" if found == "worse" else "better"
        return "same" if words and all(word == "same" for word in words) else "cannot tell"

    def worst(self, above: float) -> tuple[Change, ...]:
        """Headline numbers that are worse by more than `above`."""
        return tuple(change for change in self.headline if change.word == "worse" and change.worse_by > above)


@dataclass(frozen=True, slots=True)
class _Bar:
    """What a number is judged with: the change that does not matter, and the odds of a false alarm."""

    same_within: float
    false_alarm: float
    is_headline: bool


Rounds = tuple[PhaseSummary, ...]


def compare(
    before: StormRecord,
    after: StormRecord,
    same_within: float = SAME_WITHIN,
    unlike: Literal["refuse", "allow"] = "refuse",
) -> Comparison:
    """Set two records against each other.

    Raises:
        PlaceError: they are unlike (unless allowed), or have no number in common.
    """
    found = differences(before, after)
    refusing = [each for each in found if each.weight == "refuses"]
    if refusing and unlike == "refuse":
        raise _unlike(before, after, refusing)
    rounds = _rounds(before), _rounds(after)
    changes: list[Change] = []
    left_out: list[str] = []
    for phase in rounds[0]:
        if rounds[0][phase] and rounds[1].get(phase):
            is_same_size = planned_bytes(before, phase) == planned_bytes(after, phase)
            decides = "" if phase not in PHASES else "seconds" if is_same_size else "bytes_per_s"
            for number in numbers(phase, rounds[0][phase] + rounds[1][phase]):
                if number.grows_with_bytes and not is_same_size:
                    left_out.append(f"{phase} {number.name}")
                    continue
                bar = _bar(same_within, "headline" if number.name == decides else "detail")
                judged = _judge(number, phase, (rounds[0][phase], rounds[1][phase]), bar)
                changes += [judged] if judged else []
    if not changes:
        raise PlaceError(
            f"{before.storm_id} and {after.storm_id} have no number in common: no measured round was finished in both",
            "look at each with ckptstorm report",
        )
    sides = _side(before, rounds[0]), _side(after, rounds[1])
    return Comparison(*sides, found, tuple(changes), tuple(left_out), same_within)


def _bar(same_within: float, rank: Literal["headline", "detail"]) -> _Bar:
    """The headline's numbers share the odds of a false alarm."""
    is_headline = rank == "headline"
    return _Bar(same_within, FALSE_ALARM / len(PHASES) if is_headline else FALSE_ALARM, is_headline)


def _unlike(before: StormRecord, after: StormRecord, refusing: list[Difference]) -> PlaceError:
    shown = [each.sentence() for each in refusing[:_SHOWN]]
    more = [f"and {len(refusing) - _SHOWN} more"] if len(refusing) > _SHOWN else []
    return PlaceError(
        f"{before.storm_id} and {after.storm_id} are unlike: {'; '.join([*shown, *more])}",
        "compare storms of one job on one world, or what is alike in these with --anyway",
    )


_SHOWN = 4


def _side(record: StormRecord, rounds: dict[str, Rounds]) -> Side:
    count = max(len(each) for each in rounds.values())
    return Side(record.storm_id, verdict(record), is_instrument(record), count)


def _rounds(record: StormRecord) -> dict[str, Rounds]:
    """The measured rounds that were finished, of saves, restores and each load's stage."""
    found: dict[str, list[PhaseSummary]] = {word: [] for word in PHASES}
    for each in summarize(record):
        word = each.name if each.phase == Phase.LOAD else each.phase.word
        if each.is_measured and each.is_finished and (each.phase == Phase.LOAD or word in PHASES):
            found.setdefault(word, []).append(each)
    return {word: tuple(rounds) for word, rounds in found.items()}


def _judge(number: Number, phase: str, rounds: tuple[Rounds, Rounds], bar: _Bar) -> Change | None:
    before, after = (_values(number, each) for each in rounds)
    if before is None or after is None:
        return None
    medians = float(np.median(before)), float(np.median(after))
    made = Change(
        phase, number.name, number.unit, *medians, None, 1 - bar.false_alarm, None, "cannot tell",
        _too_little(before, after, bar.false_alarm), bar.is_headline, _worse_by(number, medians),
    )  # fmt: skip
    if made.because:
        return made
    interval = resampling.change_interval(before, after, made.confidence)
    odds = resampling.chance(before, after)
    toward_worse = (interval.low, interval.high) if number.is_better_small else (-interval.high, -interval.low)
    word = _word(toward_worse, odds, bar)
    because = "the rounds of the two overlap too much" if word == "cannot tell" else ""
    return replace(made, interval=interval, chance=odds, word=word, because=because)


def _worse_by(number: Number, medians: tuple[float, float]) -> float:
    """The change toward the worse; nothing is known of a change from nothing."""
    if min(medians) <= 0:
        return 0.0
    change = medians[1] / medians[0] - 1
    return change if number.is_better_small else -change


def _values(number: Number, rounds: Rounds) -> Floats | None:
    """One value a round; None when a round has none."""
    found = [value for each in rounds if (value := number.of(each)) is not None]
    return np.array(found, dtype=np.float64) if len(found) == len(rounds) else None


def _too_little(before: Floats, after: Floats, false_alarm: float) -> str:
    if min(before.min(), after.min()) <= 0:
        return "a round shows nothing"
    counts = len(before), len(after)
    if resampling.least_chance(*counts) > false_alarm:
        return f"{counts[0]} and {counts[1]} rounds are too few: chance alone could part them"
    return ""


def _word(toward_worse: tuple[float, float], odds: float, bar: _Bar) -> Word:
    low, high = toward_worse
    if -bar.same_within <= low and high <= bar.same_within:
        return "same"
    if odds > bar.false_alarm or low <= 0 <= high:
        return "cannot tell"
    return "worse" if low > 0 else "better"
