"""elbencho's CSV: a row a phase, with the moment when the first thread was done and when the last was."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from ckptstorm.report.importers.reading import not_one, text_of
from ckptstorm.report.importers.seen import PhaseSeen, Seen
from ckptstorm.units import MIB

_TOOL = "elbencho"
_NEEDED = ("operation", "time ms [first]", "time ms [last]", "MiB/s [last]", "hosts", "threads")
_WORDS = {"WRITE": "save", "READ": "restore"}
#: Rows that wait or prepare, and measure nothing.
_PASSED_OVER = ("SYNC", "DROPCACHE")
_BASIS = (
    "until the last thread was done, to a millisecond, each on its own host's clock; a sync is a phase of its own and"
    " not in it"
)


def read(path: str) -> tuple[Seen, ...]:
    """One run a label of the file; each row is a phase.

    Raises:
        PlaceError: the file is none of elbencho's, or a row is cut off or holds what is no number.
    """
    file = Path(path)
    try:
        rows = list(csv.DictReader(io.StringIO(text_of(file, _TOOL))))
    except csv.Error as error:
        raise not_one(file, _TOOL, str(error)) from None
    lacks = [name for name in _NEEDED if not rows or name not in rows[0]]
    if lacks:
        raise not_one(file, _TOOL, f'it has no column "{lacks[0]}"' if rows else "it has no rows")
    numbered = list(enumerate(rows, 2))
    labels = dict.fromkeys(row.get("label") or "" for row in rows)
    runs = [_run(label, [each for each in numbered if (each[1].get("label") or "") == label], file) for label in labels]
    return tuple(run for run in runs if run.phases)


def _run(label: str, rows: list[tuple[int, dict[str, str]]], file: Path) -> Seen:
    rounds: dict[str, int] = {}
    phases = []
    for line, row in rows:
        operation = (row["operation"] or "").strip()
        if not operation or operation in _PASSED_OVER:
            continue
        rounds[operation] = rounds.get(operation, 0) + 1
        phases.append(_phase(operation, rounds[operation], _Row(file, line, row)))
    first = _Row(file, *rows[0])
    hosts, threads = first.number("hosts"), first.number("threads")
    name = f"elbencho:{file.name}{':' + label if label else ''}"
    world = int(hosts * threads) if hosts and threads else None
    return Seen(
        "elbencho",
        rows[0][1].get("version") or "",
        name,
        str(file),
        world,
        int(hosts) if hosts else None,
        rows[0][1].get("ISO date") or "",
        tuple(phases),
        ("first done is elbencho's hero number; a training step waits for last done",),
    )


class _Row:
    """One line, read with its place for the refusal."""

    def __init__(self, file: Path, line: int, row: dict[str, str]) -> None:
        self._file, self._line, self._row = file, line, row

    def number(self, column: str) -> float | None:
        """The number in a column; None of an empty or absent one."""
        text = self._row.get(column)
        if text is None or not text.strip():
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e18:
            raise not_one(self._file, _TOOL, f'line {self._line}, column "{column}": {text[:40]!r} is no such number')
        return value


def _phase(operation: str, number: int, row: _Row) -> PhaseSeen:
    last_ms, first_ms = row.number("time ms [last]"), row.number("time ms [first]")
    moved, rate = row.number("MiB [last]"), row.number("MiB/s [last]")
    seconds = last_ms / 1000 if last_ms else None
    iops, entries = row.number("IOPS [last]"), row.number("entries [last]")
    return PhaseSeen(
        _WORDS.get(operation, operation.lower()),
        number,
        seconds,
        _BASIS,
        tool_seconds=seconds,
        tool_bytes_per_s=rate * MIB if rate is not None else None,
        tool_per_s=iops,
        bytes=int(moved * MIB) if moved is not None else None,
        metadata_op_count=int(entries) if entries is not None and operation not in _WORDS else None,
        first_done_s=first_ms / 1000 if first_ms is not None else None,
    )
