"""What a report says of trouble that is no error: ranks that were waited for beyond the time-out,
and what was left after one was lost."""

from __future__ import annotations

from ckptstorm.clock import NS_PER_S
from ckptstorm.record import settings
from ckptstorm.record.recovery import duration, found
from ckptstorm.record.words import round_words
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Block, Fact, Line, Section, Tone
from ckptstorm.units import time_text

_SHOWN = 8


def waits(known: Known) -> Section:
    """Ranks that made no progress for longer than the time-out, and went on."""
    listed = known.record.environment.get("waits")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list | tuple) else []
    blocks: list[Block] = [_fact(entry) for entry in entries[:_SHOWN]]
    if len(entries) > _SHOWN:
        blocks.append(Line(f"{len(entries) - _SHOWN:,} more in storm.json", "quiet"))
    return Section("Waited for beyond the time-out", tuple(blocks))


def recovery(known: Known) -> Section:
    """What training could go on from after a rank was lost."""
    one = found(known.record)
    if one is None:
        return Section("Recovery", ())
    is_torn: Tone = "bad" if one.names_torn else "plain"
    is_found: Tone = "good" if one.found and one.found == one.newest else "bad"
    torn = f"; it is torn: {one.torn_because}" if one.names_torn else ""
    facts: list[Block] = [
        Fact("lost", known.record.ended_because, "doubt"),
        Fact("pointer", f"{one.choice}{torn}", is_torn),
        Fact(
            "went on", f"from {one.found}" if one.found else "from nothing: no complete checkpoint was left", is_found
        ),
        Fact("newest", f"complete: {one.newest or 'none'}"),
        Fact("after", duration(one)),
    ]
    return Section("Recovery: what training could go on from", tuple(facts))


def _fact(entry: dict[str, object]) -> Fact:
    seconds = settings.number(entry, "seconds", default=0.0)
    where = f"{entry.get('phase')} of {round_words(settings.count(entry, 'round', default=1))}"
    text = f"({entry.get('host')}) {time_text(int(seconds * NS_PER_S))} in {where}: {entry.get('op')}"
    return Fact(f"rank {entry.get('rank')}", text, "doubt")
