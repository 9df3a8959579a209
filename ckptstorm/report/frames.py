"""Result folders as pandas frames: what an analyst opens. Each frame is made when it is first asked for.

    results = ckptstorm.load("results/")
    results.ranks[results.ranks.is_straggler]

The columns, with their units, are in `frame_columns` and docs/frames.md. A folder is data from a stranger:
it is read and checked by `record.files`, and nothing in it is executed.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ckptstorm.errors import PlaceError
from ckptstorm.record import files
from ckptstorm.record.record import StormRecord
from ckptstorm.report import folders

if TYPE_CHECKING:
    from pandas import DataFrame

#: Records are kept for the next frame up to this many bytes of rows; beyond it they are read again.
_KEPT_BYTES = 256 << 20
_LARGE = frozenset({"kind_ns", "timeline"})


class Frames:
    """Frames of one or more storms.

    Attributes:
        folders: the result folders, by name.
    """

    def __init__(self, found: tuple[Path, ...]) -> None:
        self.folders = found
        self._kept: dict[Path, StormRecord] = {}

    def __repr__(self) -> str:
        return f"<ckptstorm results: {', '.join(folder.name for folder in self.folders)}>"

    def records(self) -> Iterator[StormRecord]:
        """Each storm's record, without its largest parts (`arrays.PARTS`)."""
        for folder in self.folders:
            record = self._kept.get(folder) or files.load(folder, leave_out=_LARGE)
            kept_bytes = sum(phase.rows.nbytes for each in (*self._kept.values(), record) for phase in each.phases)
            if kept_bytes <= _KEPT_BYTES:
                self._kept[folder] = record
            yield record

    @cached_property
    def storms(self) -> DataFrame:
        """One row a storm: what was asked, the verdict, the answer."""
        from ckptstorm.report import frame_rows

        pairs = zip(self.folders, self.records(), strict=True)
        return _joined([frame_rows.storm(folder, record) for folder, record in pairs])

    @cached_property
    def phases(self) -> DataFrame:
        """One row a phase and round: the numbers of docs/reading-a-result.md."""
        from ckptstorm.report import frame_rows

        return self._made(frame_rows.phases)

    @cached_property
    def ranks(self) -> DataFrame:
        """One row a rank, phase and round."""
        from ckptstorm.report import frame_tables

        return self._made(frame_tables.ranks)

    @cached_property
    def kind_ns(self) -> DataFrame:
        """What each rank's time went into, by op kind; rows in the order of `ranks`."""
        from ckptstorm.report import frame_tables

        return self._made_with("kind_ns", frame_tables.kind_ns).fillna(0)

    @cached_property
    def latency(self) -> DataFrame:
        """One row a bin of a latency histogram that is not empty, with the exact maximum beside it."""
        from ckptstorm.report import frame_tables

        return self._made(frame_tables.latency)

    @cached_property
    def loads(self) -> DataFrame:
        """What loads did: one row a stage or window, round and action."""
        from ckptstorm.report import frame_tables

        return self._made(frame_tables.loads)

    @cached_property
    def timeline(self) -> DataFrame:
        """One row a node and stretch of time, of each save and restore: bytes and ops."""
        from ckptstorm.report import frame_tables

        return self._made_with("timeline", frame_tables.timeline)

    @cached_property
    def placement(self) -> DataFrame:
        """Who ran where, and where files lie: one row a rank, file and target."""
        from ckptstorm.report import frame_tables

        return self._made(frame_tables.placement)

    @cached_property
    def clock(self) -> DataFrame:
        """One row a phase and round: skew of the release, uncertainty, and the barrier's independent check."""
        from ckptstorm.report import frame_rows

        return self._made(frame_rows.clock)

    def _made(self, make: Callable[[StormRecord], DataFrame]) -> DataFrame:
        return _joined([make(record) for record in self.records()])

    def _made_with(self, part: str, make: Callable[[StormRecord], DataFrame]) -> DataFrame:
        """From records read with one of their large parts, one after the other."""
        return _joined([make(files.load(folder, leave_out=_LARGE - {part})) for folder in self.folders])


def load(path: str | os.PathLike[str]) -> Frames:
    """Result folders as pandas frames, made when they are first asked for.

    Args:
        path: a result folder, a folder of them, or a pattern such as "results/llama3*".

    Raises:
        PlaceError: there is none there; or, from a frame, one is damaged: the sentence names the file.
    """
    found = folders.find(path)
    if importlib.util.find_spec("pandas") is None:
        raise PlaceError("ckptstorm.load needs pandas, which is not installed", "pip install 'ckptstorm[analysis]'")
    return Frames(found)


def _joined(frames: list[DataFrame]) -> DataFrame:
    """One below the other; of one nothing is copied."""
    from ckptstorm.report import frame_tables

    return frames[0] if len(frames) == 1 else frame_tables.stacked(frames)
