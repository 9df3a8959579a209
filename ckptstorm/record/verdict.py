"""The verdict: may the numbers be believed, did the limits hold, and what does the shell see.

The order of exit codes is the order of what one must know first: an interrupted storm was ended by
a person, a lost rank hides whatever the storage did, a failing storage makes limits moot.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptstorm.errors import EXIT_INTERRUPTED, EXIT_LOST_RANK, EXIT_MET, EXIT_NOT_MET, EXIT_STORAGE
from ckptstorm.measure.rows import STATE_INCOMPLETE, Phase
from ckptstorm.record import settings
from ckptstorm.record.limits import Limit, judge
from ckptstorm.record.receipts import invalidates, receipts
from ckptstorm.record.record import PhaseRecord, StormRecord, Verdict
from ckptstorm.record.recovery import complaints
from ckptstorm.record.summary import PhaseSummary, summarize
from ckptstorm.record.words import counted, round_words
from ckptstorm.units import bytes_text, time_text

_ENDED_EXIT = {"interrupted": EXIT_INTERRUPTED, "lost_rank": EXIT_LOST_RANK, "storage_failed": EXIT_STORAGE}
_ENDED_SAYS = {
    "interrupted": "INTERRUPTED: the storm was ended before it was over",
    "lost_rank": "LOST RANK: a rank died or hung",
    "storage_failed": "STORAGE: the storage failed after the first byte",
}
#: Failures that are told one by one; the report lists all classes.
_FAILURES_TOLD = 4


def verdict(record: StormRecord) -> Verdict:
    """Judge a record by sections 6 and 7 of the design (docs/reading-a-result.md)."""
    ended = _ended(record)
    failed = tuple(_storage_failures(record))
    if settings.is_instrument(record) and not ended and not failed:
        reason = "INSTRUMENT: the null engine touches no storage; these numbers are the cost of the tool itself"
        return Verdict(valid=False, met=not settings.has_limits(record), reasons=(reason,), exit_code=EXIT_MET)
    summaries = summarize(record)
    doubts = () if ended else tuple(_doubts(record, summaries))
    against = tuple(complaints(record))
    missed = tuple(f"LIMIT: {limit.sentence()}" for limit in judge(record, summaries) if not limit.is_met)
    source = ("SIMULATED: a model made these numbers, no storage was measured",) if record.simulated else ()
    return Verdict(
        valid=not (ended or failed or doubts or source),
        met=not missed and not against,
        reasons=(*ended, *failed, *source, *doubts, *against, *missed),
        exit_code=_exit_code(record, failed, (*doubts, *against, *missed)),
    )


def limits(record: StormRecord) -> tuple[Limit, ...]:
    """Every limit of the job, judged; none for a record of the instrument itself."""
    return () if settings.is_instrument(record) else judge(record, summarize(record))


def _exit_code(record: StormRecord, failed: tuple[str, ...], against: tuple[str, ...]) -> int:
    if record.ended in _ENDED_EXIT:
        return _ENDED_EXIT[record.ended]
    if failed:
        return EXIT_STORAGE
    return EXIT_NOT_MET if against else EXIT_MET


def _ended(record: StormRecord) -> tuple[str, ...]:
    if record.ended in ("complete", "recovered"):
        return ()
    because = f": {record.ended_because}" if record.ended_because else ""
    return (f"{_ENDED_SAYS[record.ended]}{because}",)


def _storage_failures(record: StormRecord) -> Iterator[str]:
    """What the storage did wrong in any phase, warm-up included: an error there is an error."""
    told = 0
    for phase in (one for one in record.phases if one.phase != Phase.RECOVER):  # what is torn is `complaints`' to tell
        where = _where(phase)
        for failure in phase.failures:
            told += 1
            if told <= _FAILURES_TOLD:
                yield (
                    f"ERROR: {where}: {counted(failure.count, 'time')} {failure.errno} from {failure.op}, "
                    f"first on rank {failure.rank} ({failure.host}) in {failure.file}"
                )
        errors = int(phase.rows["error_count"].sum())
        if errors and not phase.failures:
            yield f"ERROR: {where}: {counted(errors, 'op')} failed"
        mismatches = int(phase.rows["mismatch_count"].sum())
        if mismatches or phase.mismatches:
            first = f", first: {phase.mismatches[0].sentence}" if phase.mismatches else ""
            yield f"WRONG BYTES: {where}: {counted(max(mismatches, len(phase.mismatches)), 'read')} differed{first}"
        if record.ended == "complete" and phase.phase in (Phase.SAVE, Phase.RESTORE, Phase.LOAD):
            yield from _short(phase, where)
    if told > _FAILURES_TOLD:
        yield f"ERROR: {told - _FAILURES_TOLD:,} more classes of errors"


def _short(phase: PhaseRecord, where: str) -> Iterator[str]:
    """A phase in which fewer bytes moved than planned has failed, whatever it says of itself."""
    moved, planned = int(phase.rows["bytes"].sum()), phase.planned_bytes
    unfinished = int(((phase.rows["state"] & STATE_INCOMPLETE) != 0).sum())
    if moved < planned:
        yield f"SHORT: {where}: {moved:,} bytes moved of {planned:,} planned ({bytes_text(planned - moved)} missing)"
    elif unfinished:
        yield f"SHORT: {where}: {counted(unfinished, 'rank')} ran fewer ops, or moved fewer bytes, than planned"


def _mismatch_count(record: StormRecord) -> int:
    return sum(int(one.rows["mismatch_count"].sum()) for one in record.phases if one.phase != Phase.RECOVER)


def _doubts(record: StormRecord, summaries: tuple[PhaseSummary, ...]) -> Iterator[str]:
    """Why the numbers may not be believed, although nothing failed."""
    allow = settings.allow(record)
    if settings.mount_type(record) == "tmpfs" and "tmpfs" not in allow:
        yield 'TMPFS: the directory is in memory, no storage was measured (declare it with allow = ["tmpfs"])'
    for name, receipt in receipts(record).items():
        if invalidates(name, receipt, allow) and not (name == "verified" and _mismatch_count(record)):
            remedy = ' (declare it with allow = ["warm"])' if name == "cold" else ""
            yield f"{name.upper()}: {receipt.state.replace('_', ' ')}: {receipt.evidence}{remedy}"
    yield from _missing_rounds(record, summaries)
    for phase, summary in zip(record.phases, summaries, strict=True):
        if summary.is_measured and phase.phase in (Phase.SAVE, Phase.RESTORE, Phase.LOAD):
            yield from _phase_doubts(record, phase, summary)


def _missing_rounds(record: StormRecord, summaries: tuple[PhaseSummary, ...]) -> Iterator[str]:
    if record.ended != "complete" or not settings.saves(record):
        return
    rounds = settings.rounds_planned(record)
    for phase in (Phase.SAVE, Phase.RESTORE):
        planned = 1 if phase == Phase.RESTORE and settings.is_staged(record) else rounds
        planned = settings.planned_in_half(record, phase.word, planned)
        found = len({summary.round for summary in summaries if summary.phase == phase and summary.is_measured})
        if found < planned and (phase == Phase.SAVE or found):
            yield f"ROUNDS: {found} of {planned} measured rounds have a {phase.word}"


def _phase_doubts(record: StormRecord, phase: PhaseRecord, summary: PhaseSummary) -> Iterator[str]:
    where, world = _where(phase), settings.rank_count(record, phase.phase)
    if len(phase.rows) < world:
        yield f"RANKS: {where}: {world - len(phase.rows):,} of {world:,} ranks did not report"
    if not summary.clock.agrees:
        check = summary.clock
        yield (
            f"CLOCK: {where}: rows tell {time_text(check.rows_ns)}, the barrier "
            f"{time_text(check.barrier_to_barrier_ns)}; 0 to {time_text(check.allowed_ns)} more was allowed"
        )
    if summary.beyond_count:
        yield f"RANGE: {where}: {counted(summary.beyond_count, 'op')} took longer than a histogram can hold"


def _where(phase: PhaseRecord) -> str:
    return f"{phase.word} of {round_words(phase.round)}"
