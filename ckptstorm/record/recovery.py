"""What a recovery found, read from a record, and judged: did training go on from the newest complete checkpoint?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ckptstorm.clock import NS_PER_S
from ckptstorm.record import settings
from ckptstorm.record.record import StormRecord
from ckptstorm.record.words import round_words
from ckptstorm.units import time_text


@dataclass(frozen=True, slots=True)
class Found:
    """A recovery.

    Attributes:
        choice: what the framework's own pointer said.
        chosen, found, newest: the checkpoint it names, the one that training could go on from, the newest complete
            one, each as "step-1 (round 2)"; "" for none.
        names_torn: whether the pointer names a checkpoint that is not complete.
        torn_because: what was wrong with the one chosen.
        seconds, start_seconds: until training could go on; of them until the new world was up.
        counted_from: of what these are counted ("the loss").
    """

    choice: str
    chosen: str
    found: str
    newest: str
    names_torn: bool
    torn_because: str
    seconds: float
    start_seconds: float
    counted_from: str


def found(record: StormRecord) -> Found | None:
    """What the record tells of a recovery; None when there was none."""
    told = settings.table(record.environment, "recovery")
    if not told:
        return None
    listed = told.get("attempts")
    attempts = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list | tuple) else []
    because = [settings.text(one, "torn_because") for one in attempts if settings.text(one, "why") == "chosen"]
    return Found(
        settings.text(told, "choice"),
        _place(told, "chosen"),
        _place(told, "found"),
        _place(told, "newest_complete"),
        settings.flag(told, "names_torn"),
        because[0] if because else "",
        settings.number(told, "seconds"),
        settings.number(told, "start_seconds"),
        settings.text(told, "counted_from"),
    )


def complaints(record: StormRecord) -> Iterator[str]:
    """What was wrong with the recovery, one sentence each."""
    one = found(record)
    if one is None:
        return
    if one.names_torn:
        yield f"TORN: {one.choice}, and that checkpoint is not complete: {one.torn_because}"
    elif one.torn_because:
        yield f"NO POINTER: nothing told that the newest, {one.chosen}, is not complete: {one.torn_because}"
    if not one.found:
        yield "NOTHING LEFT: no complete checkpoint was there to go on from"
    elif one.newest != one.found:
        yield f"STALE: training goes on from {one.found}, although {one.newest} is complete"
    if not one.chosen and one.found:
        yield f"NOT FOUND: {one.choice}; somebody had to look for {one.found}"


def duration(one: Found) -> str:
    """How long until training could go on, in words."""
    whole, start = int(one.seconds * NS_PER_S), int(one.start_seconds * NS_PER_S)
    return f"{time_text(whole)} from {one.counted_from}, {time_text(start)} of them until the new world was up"


def _place(told: dict[str, Any], key: str) -> str:
    if not settings.table(told, key):
        return ""
    number = settings.number(told, key, "round")
    return f"{settings.text(told, key, 'step')} ({round_words(int(number))})"
