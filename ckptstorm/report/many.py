"""Many storms as one table, in the order of their start: what a folder of nightly results says at a glance."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ckptstorm.clock import NS_PER_S
from ckptstorm.errors import (
    EXIT_INTERRUPTED,
    EXIT_LOST_RANK,
    EXIT_MET,
    EXIT_NOT_MET,
    EXIT_REFUSED,
    EXIT_STORAGE,
    PlaceError,
)
from ckptstorm.measure.rows import Phase
from ckptstorm.record import files, settings
from ckptstorm.record.rounds import RoundsSummary
from ckptstorm.record.words import counted
from ckptstorm.report import folders
from ckptstorm.report.facts import Known, know
from ckptstorm.report.parts import Block, Fact, Line, Section, Table
from ckptstorm.units import rate_text, time_text

#: What a shell sees of several storms is the first of these that any of them ended with.
_GRAVEST_FIRST = (EXIT_INTERRUPTED, EXIT_LOST_RANK, EXIT_STORAGE, EXIT_NOT_MET, EXIT_REFUSED)
#: Keys of the resolved job that tell two questions apart, in the table's own words when they differ.
_TOLD = (
    ("model", "name"), ("layout", "name"), ("parallel", "sharding"), ("io", "engine"), ("io", "mode"),
    ("io", "durability"),
)  # fmt: skip
#: The random end of a storm's name; its time tells it apart well enough where the line is short.
_RANDOM_END = re.compile(r"(\d{8}-\d{6})-[0-9a-f]{6}\Z")


@dataclass(frozen=True, slots=True)
class Numbers:
    """A phase over its measured rounds: the median and the worst time, the median bandwidth; seconds, bytes per s."""

    seconds: float
    seconds_worst: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One storm.

    Attributes:
        folder, storm_id, started: which.
        ranks: of its world.
        told: what was asked, by key; `_TOLD`.
        save, restore: None where no measured round was finished.
        verdict: one word.
        exit_code: what the storm ended with.
    """

    folder: str
    storm_id: str
    started: str
    ranks: int
    told: dict[str, str]
    save: Numbers | None
    restore: Numbers | None
    verdict: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Many:
    """Several storms.

    Attributes:
        rows: in the order of their start.
        unread: folders that could not be read, each with why.
    """

    rows: tuple[Row, ...]
    unread: tuple[tuple[str, str], ...]

    @property
    def exit_code(self) -> int:
        """The gravest of all; a folder that could not be read is the least of them."""
        found = {row.exit_code for row in self.rows} | ({EXIT_REFUSED} if self.unread else set())
        return next((code for code in _GRAVEST_FIRST if code in found), EXIT_MET)

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {"storms": [asdict(row) for row in self.rows], "unread": [list(pair) for pair in self.unread]}


def read(paths: Sequence[str]) -> Many:
    """Read result folders, folders of them and patterns; what cannot be read is told, and the rest is shown.

    Raises:
        PlaceError: there is none at all.
    """
    rows: list[Row] = []
    unread: list[tuple[str, str]] = []
    for folder in dict.fromkeys(each for path in paths for each in _found(path, unread)):
        try:
            rows.append(_row(folder, know(files.load(folder))))
        except PlaceError as error:
            unread.append((str(folder), str(error)))
    if not rows:
        why = unread[0][1] if unread else "no path was named"
        raise PlaceError(f"none of these is a result folder: {why}", "name the folders that ckptstorm run made")
    return Many(tuple(sorted(rows, key=lambda row: (row.started, row.storm_id))), tuple(unread))


def _found(path: str, unread: list[tuple[str, str]]) -> tuple[Path, ...]:
    try:
        return folders.find(path)
    except PlaceError as error:
        unread.append((path, str(error)))
        return ()


def _row(folder: Path, known: Known) -> Row:
    record = known.record
    return Row(
        str(folder),
        record.storm_id,
        settings.text(record.environment, "started"),
        len(record.node_of_rank),
        {".".join(keys): settings.text(record.job, *keys, default="-") for keys in _TOLD},
        _numbers(known.over_rounds(Phase.SAVE)),
        _numbers(known.over_rounds(Phase.RESTORE)),
        _word(known),
        known.verdict.exit_code,
    )


def _numbers(rounds: RoundsSummary | None) -> Numbers | None:
    return Numbers(rounds.seconds.median, rounds.seconds.most, rounds.bytes_per_s.median) if rounds else None


def _word(known: Known) -> str:
    if known.record.ended != "complete":
        return known.record.ended.replace("_", " ").upper()
    if known.is_instrument and known.verdict.exit_code == EXIT_MET:
        return "instrument"
    if not known.verdict.valid:
        return "INVALID"
    return "valid" if known.verdict.met else "MISSED"


def sections(many: Many) -> tuple[Section, ...]:
    """One table, what the storms differ in, and what could not be read."""
    head = ("storm", "ranks", "save T", "worst", "bandwidth", "restore T", "")
    rows = tuple(
        (
            _RANDOM_END.sub(r"\1", row.storm_id),
            f"{row.ranks:,}",
            *_cells(row.save),
            _time(row.restore.seconds) if row.restore else "-",
            row.verdict,
        )
        for row in many.rows
    )
    blocks: list[Block] = [Line(counted(len(rows), "storm")), Line(""), Table(head, rows, left=(6,)), Line("")]
    blocks += [Fact(key, told) for key, told in _differences(many.rows)]
    blocks += [Fact("not read", why, "bad") for _, why in many.unread]
    blocks.append(Fact("read", "T, bandwidth: median of measured rounds; ckptstorm report DIR tells all", "quiet"))
    return (Section("", tuple(blocks)),)


def _cells(numbers: Numbers | None) -> tuple[str, str, str]:
    if numbers is None:
        return "-", "-", "-"
    return _time(numbers.seconds), _time(numbers.seconds_worst), rate_text(numbers.bytes_per_s)


def _time(seconds: float) -> str:
    return time_text(seconds * NS_PER_S)


def _differences(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Where the storms did not ask the same, how many asked what."""
    told: list[tuple[str, str]] = []
    for key in (".".join(keys) for keys in _TOLD):
        counts = Counter(row.told[key] for row in rows)
        if len(counts) > 1:
            told.append((key, ", ".join(f"{value} ({count})" for value, count in counts.most_common(6))))
    return told
