"""What a report says of trouble that is no error: ranks that were waited for beyond the time-out."""

from __future__ import annotations

from ckptstorm.clock import NS_PER_S
from ckptstorm.record import settings
from ckptstorm.record.words import round_words
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Block, Fact, Line, Section
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


def _fact(entry: dict[str, object]) -> Fact:
    seconds = settings.number(entry, "seconds", default=0.0)
    where = f"{entry.get('phase')} of {round_words(settings.count(entry, 'round', default=1))}"
    text = f"({entry.get('host')}) {time_text(int(seconds * NS_PER_S))} in {where}: {entry.get('op')}"
    return Fact(f"rank {entry.get('rank')}", text, "doubt")
