"""Other tools' results as frames: the columns that `ckptstorm.load` makes of ours, empty where not measured."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ckptstorm.errors import PlaceError
from ckptstorm.report import importers
from ckptstorm.report.frame_columns import COLUMNS
from ckptstorm.report.importers.seen import PhaseSeen, Seen

if TYPE_CHECKING:
    from pandas import DataFrame

#: Columns that only imported results have, beside those of `COLUMNS`.
EXTRA: dict[str, dict[str, str]] = {
    "storms": {"tool": "what measured it", "notes": "what must be known, joined by a line break"},
    "phases": {
        "tool_seconds": "what the tool's own headline divides by; seconds",
        "tool_bytes_per_s": "the tool's own headline; bytes per second",
        "tool_per_s": "the tool's own headline rate of ops, files or items",
        "basis": "how seconds was found, and what it leaves out",
    },
}
Row = dict[str, Any]


class Imported:
    """Frames of other tools' results.

    Attributes:
        runs: what was read.
    """

    def __init__(self, runs: tuple[Seen, ...]) -> None:
        self.runs = runs

    def __repr__(self) -> str:
        return f"<ckptstorm imported: {', '.join(run.name for run in self.runs)}>"

    @cached_property
    def storms(self) -> DataFrame:
        """One row a run."""
        return _frame("storms", (_storm(run) for run in self.runs))

    @cached_property
    def phases(self) -> DataFrame:
        """One row a phase and round, with the tool's own headline beside our definition."""
        return _frame("phases", (_phase(run, phase) for run in self.runs for phase in run.phases))

    @cached_property
    def ranks(self) -> DataFrame:
        """One row a rank, phase and round, where the tool tells them apart."""
        return _frame("ranks", (row for run in self.runs for phase in run.phases for row in _ranks(run, phase)))

    @cached_property
    def latency(self) -> DataFrame:
        """One row a histogram bin, where the tool keeps them."""
        return _frame("latency", (row for run in self.runs for phase in run.phases for row in _bins(run, phase)))

    @cached_property
    def kind_ns(self) -> DataFrame:
        """Nothing: no other tool tells it."""
        return _frame("kind_ns", ())

    @cached_property
    def loads(self) -> DataFrame:
        """Nothing: what other tools run is told as phases."""
        return _frame("loads", ())

    @cached_property
    def timeline(self) -> DataFrame:
        """Nothing yet: these outputs tell no course of time."""
        return _frame("timeline", ())

    @cached_property
    def placement(self) -> DataFrame:
        """Nothing: who ran where is not told."""
        return _frame("placement", ())

    @cached_property
    def clock(self) -> DataFrame:
        """Nothing: no other tool checks its clocks."""
        return _frame("clock", ())


def import_result(kind: str, path: str) -> Imported:
    """Another tool's result as frames.

    Args:
        kind: one of `importers.IMPORTERS`.
        path: of what the tool wrote.

    Raises:
        JobError: no such kind.
        PlaceError: it is none of that kind, or pandas is missing.
    """
    runs = importers.read(kind, path)
    if importlib.util.find_spec("pandas") is None:
        raise PlaceError("frames need pandas, which is not installed", "pip install 'ckptstorm[analysis]'")
    return Imported(runs)


def _frame(name: str, rows: Any) -> DataFrame:
    import pandas

    columns = [*COLUMNS[name], *EXTRA.get(name, {})]
    return pandas.DataFrame(list(rows), columns=columns)


def _storm(run: Seen) -> Row:
    row: Row = {
        "storm_id": run.name,
        "path": run.path,
        "version": run.version,
        "ranks": run.rank_count,
        "nodes": run.node_count,
        "started": run.started,
        "tool": run.tool,
        "notes": "\n".join(run.notes),
    }
    for word in ("save", "restore"):
        times = sorted(each.seconds for each in run.phases if each.phase == word and each.seconds is not None)
        rates = sorted(each.bytes_per_s for each in run.phases if each.phase == word and each.bytes_per_s is not None)
        row |= {
            f"{word}_rounds": len(times),
            f"{word}_seconds": _median(times),
            f"{word}_seconds_worst": max(times, default=math.nan),
            f"{word}_bytes_per_s": _median(rates),
        }
    return row


def _median(values: list[float]) -> float:
    if not values:
        return math.nan
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def _phase(run: Seen, phase: PhaseSeen) -> Row:
    times = sorted(rank.seconds for rank in phase.ranks)
    median = times[(len(times) - 1) // 2] if times else None
    return {
        "storm_id": run.name,
        "phase": phase.phase,
        "round": phase.round,
        "is_measured": True,
        "is_finished": phase.seconds is not None and not phase.error_count,
        "seconds": phase.seconds,
        "bytes": phase.bytes,
        "bytes_per_s": phase.bytes_per_s,
        "data_op_count": phase.data_op_count,
        "iops": phase.iops,
        "metadata_op_count": phase.metadata_op_count,
        "error_count": phase.error_count,
        "first_done_s": phase.first_done_s,
        "median_done_s": median if phase.seconds is not None else None,
        "last_done_s": phase.seconds,
        "tail_s": phase.seconds - phase.first_done_s if phase.seconds and phase.first_done_s is not None else None,
        "straggler_ratio": phase.seconds / median if phase.seconds and median else None,
        "reporting_ranks": len(phase.ranks) or None,
        "tool_seconds": phase.tool_seconds,
        "tool_bytes_per_s": phase.tool_bytes_per_s,
        "tool_per_s": phase.tool_per_s,
        "basis": phase.basis,
    }


def _ranks(run: Seen, phase: PhaseSeen) -> Iterator[Row]:
    for rank in phase.ranks:
        yield {
            "storm_id": run.name,
            "phase": phase.phase,
            "round": phase.round,
            "rank": rank.rank,
            "host": rank.host or None,
            "seconds": rank.seconds,
            "bytes": rank.bytes,
            "error_count": rank.error_count,
        }


def _bins(run: Seen, phase: PhaseSeen) -> Iterator[Row]:
    for table in phase.latencies:
        for each in table.bins:
            yield {
                "storm_id": run.name,
                "phase": phase.phase,
                "round": phase.round,
                "kind": table.kind,
                "size_class": "all",
                "low_ns": each.low_ns,
                "high_ns": each.high_ns,
                "count": each.count,
                "max_ns": table.max_ns,
            }
