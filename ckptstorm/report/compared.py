"""What `compare` prints: the judgement first, then what differs, then every number with its interval."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ckptstorm.clock import NS_PER_S
from ckptstorm.record.words import counted, percent
from ckptstorm.report.compare import FALSE_ALARM, Change, Comparison, Side, Word
from ckptstorm.report.compared_numbers import PHASES
from ckptstorm.report.drift import Drift, Series
from ckptstorm.report.parts import Block, Fact, Line, Section, Table, Tone
from ckptstorm.units import count_text, rate_text, time_text

_TONES: dict[Word, Tone] = {"better": "good", "worse": "bad", "same": "plain", "cannot tell": "doubt"}
#: Short names of what storm.json calls otherwise; the report's own words.
NAMES = {
    "seconds": "T",
    "committed_seconds": "committed",
    "first_done_s": "first done",
    "median_done_s": "median done",
    "blocked_seconds": "training held",
    "straggler_ratio": "slowest ÷ median",
    "bytes_per_s": "bandwidth",
    "iops": "IOPS",
    "ops_per_s": "ops",
}
_HEAD = ("", "before", "after", "change", "interval", "")
_DIFFERENCES_SHOWN = 12


def sections(comparison: Comparison, fail_above: float | None = None) -> tuple[Section, ...]:
    """One comparison as a page."""
    return (
        _headline(comparison, fail_above),
        _differences(comparison),
        *(_phase(comparison, phase) for phase in dict.fromkeys(each.phase for each in comparison.changes)),
        _footnotes(comparison),
    )


def series_sections(found: Series, fail_above: float | None = None) -> tuple[Section, ...]:
    """Many storms against a baseline: the drift, each storm in a line, and the newest one in full."""
    first, *others = sections(found.comparisons[-1], fail_above)
    return (_drift_section(found), _storms(found), Section("The newest storm", first.blocks), *others)


def data(comparison: Comparison) -> dict[str, Any]:
    """For programs; changes are shares, 0.1 for a tenth more."""
    return {
        "word": comparison.word,
        "same_within": comparison.same_within,
        "before": _side_data(comparison.before),
        "after": _side_data(comparison.after),
        "differences": [asdict(each) for each in comparison.differences],
        "changes": [asdict(each) for each in comparison.changes],
        "left_out": list(comparison.left_out),
    }


def series_data(found: Series) -> dict[str, Any]:
    """For programs: the storms in order, and the drift."""
    return {
        "word": found.word,
        "storms": [data(each) for each in found.comparisons],
        "drifts": [asdict(each) | {"worse_by": each.worse_by} for each in found.drifts],
    }


def _side_data(side: Side) -> dict[str, Any]:
    return {"storm_id": side.storm_id, "valid": side.verdict.valid, "round_count": side.round_count}


def _headline(comparison: Comparison, fail_above: float | None) -> Section:
    before, after = comparison.before, comparison.after
    blocks: list[Block] = [
        Line(comparison.word.upper(), _TONES[comparison.word]),
        *(_sentence(change) for change in comparison.headline),
        Fact("before", _side(before)),
        Fact("after", _side(after)),
        *_doubts(before, after),
        *([Fact("doubt", "both are the same storm", "doubt")] if before.storm_id == after.storm_id else []),
    ]
    if fail_above is not None:
        blocks.append(_gate(comparison, fail_above))
    return Section("", tuple(blocks))


def _sentence(change: Change) -> Block:
    what = f"{change.phase} {NAMES.get(change.name, change.name)}"
    told = f"{_value(change, change.before)} before, {_value(change, change.after)} after"
    if change.interval is None:
        return Fact(change.phase, f"cannot tell whether {what} changed ({told}): {change.because}", "doubt")
    interval = f"{_percent(change.interval.change)} ({_ends(change)})"
    because = f"; {change.because}: more rounds would tell" if change.because else ""
    return Fact(change.phase, f"{change.word}: {what} {told}, {interval}{because}", _TONES[change.word])


def _side(side: Side) -> str:
    return f"{side.storm_id}, {counted(side.round_count, 'measured round')}"


def _doubts(before: Side, after: Side) -> list[Block]:
    doubts: list[Block] = []
    for name, side in (("before", before), ("after", after)):
        if not side.is_believable:
            why = side.verdict.reasons[0] if side.verdict.reasons else "see its report"
            doubts.append(Fact("doubt", f"the record {name} is INVALID: {why}", "bad"))
        elif side.is_instrument:
            doubts.append(Fact("note", f"{name}: the null engine, no storage was measured", "doubt"))
    return doubts


def _gate(comparison: Comparison, fail_above: float) -> Block:
    worst = comparison.worst(fail_above)
    asked = f"--fail-above {percent(fail_above)}"
    if worst:
        named = ", ".join(f"{each.phase} by {each.worse_by * 100:.1f} %" for each in worst)
        return Fact("gate", f"FAILED ({asked}): worse in {named}", "bad")
    if not (comparison.before.is_believable and comparison.after.is_believable):
        return Fact("gate", f"FAILED ({asked}): an invalid record proves nothing", "bad")
    unsure = [each.phase for each in comparison.headline if each.word == "cannot tell"]
    if unsure:
        return Fact("gate", f"passed ({asked}), but nothing can be told of the {' and the '.join(unsure)}", "doubt")
    return Fact("gate", f"passed ({asked})", "good")


def _differences(comparison: Comparison) -> Section:
    shown = comparison.differences[:_DIFFERENCES_SHOWN]
    blocks: list[Block] = [
        Fact("unlike" if each.weight == "refuses" else "differs", each.sentence(), _weight_tone(each.weight))
        for each in shown
    ]
    if len(comparison.differences) > len(shown):
        blocks.append(Line(f"{len(comparison.differences) - len(shown)} more (--json)", "quiet"))
    if comparison.left_out:
        blocks.append(Fact("left out", f"for the bytes differ: {', '.join(comparison.left_out)}", "doubt"))
    return Section("What differs between the two", tuple(blocks) or (Line("nothing that is recorded"),))


def _weight_tone(weight: str) -> Tone:
    return "doubt" if weight == "refuses" else "plain"


def _phase(comparison: Comparison, phase: str) -> Section:
    changes = [each for each in comparison.changes if each.phase == phase]
    rows = tuple(_row(each) for each in changes)
    return Section(phase[:1].upper() + phase[1:], (Table(_HEAD, rows, left=(5,)),))


def _row(change: Change) -> tuple[str, ...]:
    interval = change.interval
    return (
        NAMES.get(change.name, change.name),
        _value(change, change.before),
        _value(change, change.after),
        _percent(interval.change) if interval else "-",
        f"{_signed(interval.low)} … {_percent(interval.high)}" if interval else "-",
        change.word.upper() if change.word in ("worse", "better") else change.word,
    )


def _footnotes(comparison: Comparison) -> Section:
    tested = sum(each.interval is not None and not each.is_headline for each in comparison.changes)
    notes = (
        Fact("change", "of the median over measured rounds; before is the first storm named", "quiet"),
        Fact(
            "interval",
            f"bootstrap over rounds, {100 * (1 - FALSE_ALARM):.0f} % (of the two headline times "
            f"{100 * (1 - FALSE_ALARM / len(PHASES)):.1f} % each, so that both hold)",
            "quiet",
        ),
        Fact(
            "worse",
            "the interval lies on one side, and rounds that do not differ would look so less often than the interval"
            " allows (Wilcoxon's rank-sum test); better likewise",
            "quiet",
        ),
        Fact("same", f"the interval lies within ± {percent(comparison.same_within)} (--same-within)", "quiet"),
        Fact("by chance", f"of {tested} numbers {tested * FALSE_ALARM:.1f} would seem to differ", "quiet"),
    )
    return Section("How to read this", notes)


def _drift_section(found: Series) -> Section:
    blocks: list[Block] = [Line(f"{found.word.upper()}: {counted(len(found.comparisons), 'storm')} and a baseline")]
    blocks += [Fact(f"{each.phase} drift", _drift_words(each), _TONES[each.word]) for each in found.drifts]
    return Section("", tuple(blocks))


def _drift_words(drift: Drift) -> str:
    what = f"{_percent(drift.total)} in {NAMES.get(drift.name, drift.name)} from the first to the last"
    if drift.chance is None or drift.because:
        return f"cannot tell ({what}): {drift.because}"
    if drift.word == "same":
        return f"none: every storm lies close to the baseline ({what})"
    return f"ALARM, {drift.word}: {what}; in no order that would come once in {1 / drift.chance:,.0f} times"


def _storms(found: Series) -> Section:
    head = ("storm", *(f"{phase} T" for phase in PHASES), "change", "", "change", "")
    rows = []
    for each in found.comparisons:
        changes = {change.phase: change for change in each.headline}
        times = [_value(c, c.after) if (c := changes.get(phase)) else "-" for phase in PHASES]
        words = [cell for phase in PHASES for cell in _brief(changes.get(phase))]
        rows.append((each.after.storm_id, *times, *words))
    return Section("Each storm against the baseline", (Table(head, tuple(rows), left=(4, 6)),))


def _brief(change: Change | None) -> tuple[str, str]:
    if change is None:
        return "-", "-"
    told = _percent(change.interval.change) if change.interval else "-"
    return told, change.word.upper() if change.word in ("worse", "better") else change.word


def _value(change: Change, value: float) -> str:
    if change.unit == "seconds":
        return time_text(value * NS_PER_S)
    if change.unit == "ns":
        return time_text(value)
    if change.unit == "bytes_per_s":
        return rate_text(value)
    return f"{count_text(value)}/s" if change.unit == "per_s" else f"{value:.2f}"


def _percent(change: float) -> str:
    return f"{_signed(change)} %"


def _signed(change: float) -> str:
    """Without a minus before what rounds to nothing."""
    text = f"{change * 100:+.1f}"
    return "+0.0" if text == "-0.0" else text


def _ends(change: Change) -> str:
    assert change.interval is not None
    return (
        f"{change.confidence * 100:.1f} % interval {_percent(change.interval.low)} to {_percent(change.interval.high)}"
    )
