"""The report as data: which sections there are, in which order; one function a section.

A new section is a function here or in a file of its own, and one line in `SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record.definitions import DEFINITIONS
from ckptstorm.record.receipts import invalidates
from ckptstorm.record.record import Failure, PhaseRecord, StormRecord
from ckptstorm.record.rounds import RoundsSummary
from ckptstorm.record.settings import allow
from ckptstorm.record.words import counted, round_words
from ckptstorm.report import course
from ckptstorm.report.allocation import allocation
from ckptstorm.report.beside import beside
from ckptstorm.report.facts import Known, know
from ckptstorm.report.halves import halves
from ckptstorm.report.headline import asked, headline
from ckptstorm.report.loads import loads
from ckptstorm.report.parts import Block, Fact, Line, Section, Table, Tone
from ckptstorm.report.phases import restore, save
from ckptstorm.report.storage import storage
from ckptstorm.report.trouble import recovery, waits
from ckptstorm.units import time_text

#: Rows of a table of errors or mismatches; storm.json has them all.
_ERRORS_SHOWN = 8
#: Definitions that a reader of a terminal needs, by the word that the report uses; all are in storm.json.
_FOOTNOTES = {
    "T": "seconds",
    "bandwidth": "bytes_per_s",
    "IOPS": "iops",
    "done": "first_done_s",
    "committed": "committed_seconds",
    "stall": "stall_gpu_seconds",
    "straggler": "stragglers",
    "latency": "latency_ns",
    "rounds": "rounds",
    "limits": "limits",
}


def sections(record: StormRecord) -> tuple[Section, ...]:
    """All that a report says of a record, in reading order; sections with nothing to say are left out."""
    known = know(record)
    made = [write(known) for write in SECTIONS]
    return tuple(section for section in made if section.blocks)


def limits(known: Known) -> Section:
    """Each limit of [slo] with what was found and the margin."""
    rows = tuple(
        (
            limit.key,
            f"{_BOUNDS[limit.bound]} {limit.text(limit.limit)}",
            "nothing" if limit.found is None else limit.text(limit.found),
            "-" if limit.margin is None else f"{limit.margin * 100:+.1f} %",
            "met" if limit.is_met else "MISSED",
        )
        for limit in known.limits
    )
    head = ("limit", "asked", "found (worst)", "margin", "")
    return Section("Limits", (Table(head, rows, left=(4,)),) if rows else ())


#: Short, so that the longest keys stand whole.
_BOUNDS = {"at most": "<=", "at least": ">="}


def receipts(known: Known) -> Section:
    """Each claim with its state and what shows it."""
    declared = allow(known.record)
    facts: list[Block] = []
    for name, receipt in known.receipts.items():
        is_bad = invalidates(name, receipt, declared)
        tone: Tone = "bad" if is_bad else _TONES.get(receipt.state, "plain")
        facts.append(Fact(name, f"{receipt.state.upper().replace('_', ' ')}: {receipt.evidence}", tone))
    return Section("Receipts: what shows that this is true", tuple(facts))


_TONES: dict[str, Tone] = {"yes": "good", "cold": "good", "all": "good", "ok": "good"}
_TONES |= {"warm": "doubt", "unknown": "doubt", "client_bound": "doubt", "no": "doubt"}


def others(known: Known) -> Section:
    """The phases around save and restore, over measured rounds."""
    rounds = [known.over_rounds(phase) for phase in (Phase.PREPARE, Phase.SETTLE, Phase.CLEAN_UP)]
    facts = [Fact(each.phase.word, _median_words(each)) for each in rounds if each is not None]
    return Section("Other phases", tuple(facts))


def _median_words(rounds: RoundsSummary) -> str:
    return f"{time_text(rounds.seconds.median * NS_PER_S)} (median of {counted(rounds.round_count, 'round')})"


def errors(known: Known) -> Section:
    """What the storage answered instead of doing its work, and bytes that came back wrong."""
    phases = [one for one in known.record.phases if one.phase != Phase.RECOVER]  # a section of its own
    classes = [
        Fact(failure.errno, _failure_words(failure, each), "bad") for each in phases for failure in each.failures
    ]
    wrong = [
        Fact("mismatch", f"rank {seen.rank} ({seen.host}): {seen.sentence}", "bad")
        for each in phases
        for seen in each.mismatches
    ]
    told = [*classes[:_ERRORS_SHOWN], *wrong[:_ERRORS_SHOWN]]
    left = len(classes) + len(wrong) - len(told)
    more = [Line(f"{left:,} more in storm.json", "quiet")] if left else []
    return Section("Errors", (*told, *more))


def _failure_words(failure: Failure, phase: PhaseRecord) -> str:
    on = f" on {counted(failure.rank_count, 'rank')}" if failure.rank_count > 1 else ""
    first = f"first on rank {failure.rank} ({failure.host}) at {failure.file}, offset {failure.offset_bytes:,}"
    most = failure.ranks[0] if failure.rank_count > 1 and failure.ranks else None
    often = f"; most often, {counted(most[1], 'time')}, on rank {most[0]}" if most and most[1] > 1 else ""
    where = f"{phase.word} of {round_words(phase.round)}"
    return f"{counted(failure.count, 'time')} from {failure.op} in {where}{on}; {first}{often}"


def faults(known: Known) -> Section:
    """Faults that the job planted: without them a straggler would be blamed on the storage."""
    planted = known.record.job.get("fault")
    tables = [fault for fault in planted if isinstance(fault, dict)] if isinstance(planted, list | tuple) else []
    said = [Line(", ".join(f"{key} = {value}" for key, value in fault.items()), "doubt") for fault in tables]
    return Section("Faults planted by the job", tuple(said))


def footnotes(known: Known) -> Section:
    """How the numbers are defined."""
    del known
    notes = [Fact(word, DEFINITIONS[name], "quiet") for word, name in _FOOTNOTES.items()]
    return Section("How to read this", (*notes, Fact("more", "docs/reading-a-result.md", "quiet")))


#: In reading order.
SECTIONS: tuple[Callable[[Known], Section], ...] = (
    headline,
    asked,
    limits,
    errors,
    waits,
    recovery,
    save,
    restore,
    loads,
    beside,
    course.staged,
    course.over_rounds,
    course.deletion,
    others,
    storage,
    receipts,
    halves,
    allocation,
    faults,
    footnotes,
)
