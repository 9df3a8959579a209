"""Which rounds a page shows one by one: of twenty, three tell the story."""

from __future__ import annotations

from ckptstorm.measure.rows import Phase
from ckptstorm.record.record import PhaseRecord
from ckptstorm.report.facts import Known


def shown_rounds(known: Known, phase: Phase) -> list[tuple[str, PhaseRecord]]:
    """The rounds of a phase that are worth a view of their own: the slowest, the median and the fastest one."""
    rounds = [each for each in known.rounds(phase) if each.seconds > 0]
    by_time = sorted(rounds, key=lambda each: -each.seconds)
    wanted = {"slowest": 0, "median": len(by_time) // 2, "fastest": len(by_time) - 1} if by_time else {}
    found: dict[int, str] = {}
    for word, index in wanted.items():
        found.setdefault(by_time[index].round, word)
    records = {each.round: each for each in known.record.phases if each.phase == phase}
    if len(rounds) == 1:
        return [(phase.word, records[number]) for number in found]
    return [(f"{phase.word}, round {number} ({word})", records[number]) for number, word in found.items()]
