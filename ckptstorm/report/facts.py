"""What every section of a report draws on, computed once from the record."""

from __future__ import annotations

from dataclasses import dataclass

from ckptstorm.measure.rows import Phase
from ckptstorm.record import settings
from ckptstorm.record.limits import Limit
from ckptstorm.record.receipts import receipts
from ckptstorm.record.record import Receipt, StormRecord, Verdict
from ckptstorm.record.rounds import RoundsSummary, measured, over_rounds
from ckptstorm.record.summary import PhaseSummary, summarize
from ckptstorm.record.verdict import limits, verdict


@dataclass(frozen=True, slots=True)
class Known:
    """A record with all that follows from it.

    Attributes:
        record: itself.
        summaries: of every phase.
        verdict, receipts, limits: as judged.
        is_instrument: whether no storage was touched.
    """

    record: StormRecord
    summaries: tuple[PhaseSummary, ...]
    verdict: Verdict
    receipts: dict[str, Receipt]
    limits: tuple[Limit, ...]
    is_instrument: bool

    def rounds(self, phase: Phase, name: str = "") -> tuple[PhaseSummary, ...]:
        """The measured rounds of a phase (of a load's, those of its name)."""
        return measured(self.summaries, phase, name)

    def over_rounds(self, phase: Phase, name: str = "") -> RoundsSummary | None:
        """They taken together (of a load's phase, those of its name); None when there is none."""
        return over_rounds(self.summaries, phase, name)

    def stages(self) -> tuple[str, ...]:
        """The names of the loads' phases, in the order they ran."""
        alone = [phase for phase in self.record.phases if phase.load is not None and phase.load.beside is None]
        return tuple(dict.fromkeys(phase.name for phase in alone if phase.phase == Phase.LOAD))


def know(record: StormRecord) -> Known:
    """Judge a record."""
    return Known(
        record,
        summarize(record),
        verdict(record),
        receipts(record),
        limits(record),
        settings.is_instrument(record),
    )
