"""Loads beside the save: what it did to them, side by side, and what they did to it."""

from __future__ import annotations

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.actions import ActionTable
from ckptstorm.measure.rows import Phase
from ckptstorm.record.beside import BEFORE_SAVE, DURING_SAVE, WINDOWS, Beside
from ckptstorm.record.latencies import Percentiles, percentiles
from ckptstorm.record.load import LoadRecord
from ckptstorm.record.words import counted, percent
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Block, Fact, Line, Section, Table
from ckptstorm.units import count_text, time_text

#: What puts a tree back between laps is nobody's action.
_UNTOLD = "reset"
_ACTIONS_SHOWN = 4


def beside(known: Known) -> Section:
    """Each load: its latencies before, during and after, how it kept its rate, and what it cost the save."""
    names = tuple(dict.fromkeys(load.load for load in _windows(known)))
    blocks: list[Block] = []
    for name in names:
        blocks += ([Line("")] if blocks else []) + _load(known, name)
    if blocks and (cost := _cost(known)):
        blocks += [Line(""), Fact("the save", cost)]
    return Section("Beside the save (all measured rounds)", tuple(blocks)) if blocks else Section("", ())


def beside_answer(known: Known) -> list[Fact]:
    """The first screen: "stat p99 0.4 ms alone, 212 ms during the save", one line a load."""
    facts = []
    for name in dict.fromkeys(load.load for load in _windows(known)):
        alone, during = (_merged(known, name, window) for window in (BEFORE_SAVE, DURING_SAVE))
        common = sorted(during, key=lambda word: -during[word].count)[:2]
        said = ", ".join(
            f"{word} p99 {time_text(alone[word].p99)} alone, {time_text(during[word].p99)} during the save"
            for word in common
            if word in alone
        )
        facts.append(Fact(name, "; ".join(part for part in (said, _rate_answer(known, name)) if part)))
    return facts


def _windows(known: Known, name: str = "", window: str = "") -> list[LoadRecord]:
    """Of measured rounds."""
    return [
        phase.load
        for phase in known.record.phases
        if phase.round >= 1
        and phase.load is not None
        and phase.load.beside is not None
        and name in ("", phase.load.load)
        and window in ("", phase.load.beside.window)
    ]


def _merged(known: Known, name: str, window: str) -> dict[str, Percentiles]:
    """Every action over all measured rounds."""
    loads = _windows(known, name, window)
    if not loads:
        return {}
    table = ActionTable.blank(len(loads[0].actions))
    for load in loads:
        table.add(load.table)
    found = {
        word: percentiles(table.counts[number], int(table.max_ns[number]))
        for number, word in enumerate(loads[0].actions)
        if word != _UNTOLD
    }
    return {word: each for word, each in found.items() if each.count}


def _kept(known: Known, name: str, window: str) -> Beside:
    each = [load.beside for load in _windows(known, name, window) if load.beside is not None]
    return Beside(
        window,
        sum(one.seconds for one in each),
        sum(one.due_count for one in each),
        sum(one.ended_count for one in each),
        max((one.late_ns_max for one in each), default=0),
    )


def _load(known: Known, name: str) -> list[Block]:
    windows = [window for window in WINDOWS if _windows(known, name, window)]
    found = {window: _merged(known, name, window) for window in windows}
    words = sorted({word for each in found.values() for word in each}, key=lambda word: -_count(found, word))
    rows: list[tuple[str, ...]] = []
    for word in words[:_ACTIONS_SHOWN]:
        for window in windows:
            if word in found[window]:
                rows.append(_row(f"{word} {window}", found[window][word]))
    facts = [Fact(name, f"{window}: {_rate_words(_kept(known, name, window))}") for window in windows]
    head = ("latency from when it was due", "count", "p50", "p90", "p99", "max")
    return [*facts, Line(""), Table(head, tuple(rows))]


def _count(found: dict[str, dict[str, Percentiles]], word: str) -> int:
    return sum(each[word].count for each in found.values() if word in each)


def _row(name: str, each: Percentiles) -> tuple[str, ...]:
    return (name, count_text(each.count), *(time_text(ns) for ns in (each.p50, each.p90, each.p99, each.max)))


def _rate_words(kept: Beside) -> str:
    rate = f"{count_text(kept.achieved_per_s)}/s of {count_text(kept.declared_per_s)}/s due"
    late = f", the latest start {time_text(kept.late_ns_max)} late"
    if kept.is_held:
        return f"{rate}{late}"
    share = percent(kept.behind_count / max(kept.due_count, 1))
    return f"{rate}: fell behind by {counted(kept.behind_count, 'action')} ({share}){late}"


def _rate_answer(known: Known, name: str) -> str:
    kept = _kept(known, name, DURING_SAVE)
    if not kept.due_count or kept.is_held:
        return f"held {count_text(kept.declared_per_s)}/s" if kept.due_count else ""
    return f"fell behind: {count_text(kept.achieved_per_s)}/s of {count_text(kept.declared_per_s)}/s"


def _cost(known: Known) -> str:
    """What the loads cost the save: pairs of saves with and without them, round by round."""
    quiet = {one.round: one.seconds for one in known.rounds(Phase.QUIET_SAVE) if one.is_finished}
    loaded = {one.round: one.seconds for one in known.rounds(Phase.SAVE) if one.is_finished}
    shares = sorted(loaded[number] / quiet[number] - 1 for number in quiet if number in loaded)
    if not shares:
        return ""
    over_quiet, over_loaded = known.over_rounds(Phase.QUIET_SAVE), known.over_rounds(Phase.SAVE)
    assert over_quiet is not None and over_loaded is not None
    middle = shares[len(shares) // 2] if len(shares) % 2 else sum(shares[len(shares) // 2 - 1 :][:2]) / 2
    quiet_s, loaded_s = (time_text(each.seconds.median * NS_PER_S) for each in (over_quiet, over_loaded))
    pairs = f"median of {counted(len(shares), 'pair')}"
    if len(shares) > 1:
        pairs += f", from {shares[0] * 100:+.0f} % to {shares[-1] * 100:+.0f} %"
    return f"{quiet_s} without the loads, {loaded_s} with them: {middle * 100:+.0f} % ({pairs})"
