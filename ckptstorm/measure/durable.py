"""Was it synced? Read from the op table and its results, because a flag that says so may do nothing.

A file counts as synced when a sync of it succeeded that began after its last write had returned,
or when every open that could write it carried O_DSYNC. A sync of another file, one before the last
write, or one that failed, does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ckptstorm.program import WRITES, Kind, Program
from ckptstorm.sinks import OpTimes

Int64s = NDArray[np.int64]

#: Syncs that cover the data of the file they are called on; syncfs covers all files.
_FILE_SYNCS = (Kind.FSYNC, Kind.FDATASYNC, Kind.MSYNC, Kind.MPI_SYNC)
_NEVER = np.int64(-1)


class Ran(Protocol):
    """A program that ran (`phase_row.PartRun`)."""

    @property
    def program(self) -> Program:
        """What was to be run."""

    @property
    def times(self) -> OpTimes:
        """When each op ran, and what it returned."""

    @property
    def ops_run(self) -> int:
        """Ops from the first on that were run."""


def is_every_file_synced(parts: Iterable[Ran]) -> bool:
    """Whether each file that was written is synced; true when none was written."""
    return not unsynced_files(parts)


def unsynced_files(parts: Iterable[Ran]) -> tuple[str, ...]:
    """The files that were written, and not synced after their last write; relative to the storm's root."""
    ran = tuple(parts)
    names = _names(ran)
    seen = _Seen(len(names))
    for part in ran:
        seen.add(part, [names[part.program.location(file)] for file in range(len(part.program.paths))])
    return tuple(name for name, number in names.items() if seen.is_unsynced(number))


def _names(ran: Iterable[Ran]) -> dict[str, int]:
    """A number for each path, the same in all programs: threads may share a file."""
    names: dict[str, int] = {}
    for part in ran:
        for file in range(len(part.program.paths)):
            names.setdefault(part.program.location(file), len(names))
    return names


class _Seen:
    """Per file: when its last write returned, when its last good sync began, how it was opened for writing."""

    def __init__(self, file_count: int) -> None:
        self.written_ns = np.full(file_count, _NEVER, dtype=np.int64)
        self.synced_ns = np.full(file_count, _NEVER, dtype=np.int64)
        self.has_dsync = np.zeros(file_count, dtype=np.bool_)
        self.lacks_dsync = np.zeros(file_count, dtype=np.bool_)

    def add(self, part: Ran, number_of_file: list[int]) -> None:
        """Take in the ops of one program that ran."""
        ran = slice(0, part.ops_run)
        ops, times = part.program.ops[ran], part.times
        files = np.array(number_of_file, dtype=np.int64)[ops["file"]] if len(ops) else np.zeros(0, dtype=np.int64)
        is_fine = times.result[ran] >= 0
        is_write = np.isin(ops["kind"], WRITES)
        is_sync = np.isin(ops["kind"], _FILE_SYNCS) & is_fine
        np.maximum.at(self.written_ns, files[is_write], times.end_ns[ran][is_write])
        np.maximum.at(self.synced_ns, files[is_sync], times.start_ns[ran][is_sync])
        of_all_ns = times.start_ns[ran][(ops["kind"] == Kind.SYNCFS) & is_fine]
        self.synced_ns = np.maximum(self.synced_ns, of_all_ns.max(initial=_NEVER))
        self._add_opens(files, ops)

    def _add_opens(self, files: Int64s, ops: NDArray[np.void]) -> None:
        flags = ops["length_bytes"].astype(np.int64)
        is_writer = (ops["kind"] == Kind.OPEN) & ((flags & os.O_ACCMODE) != os.O_RDONLY)
        is_dsync = (flags & os.O_DSYNC) != 0
        self.has_dsync[files[is_writer & is_dsync]] = True
        self.lacks_dsync[files[is_writer & ~is_dsync]] = True

    def is_unsynced(self, file: int) -> bool:
        """Whether the file was written and nothing made it durable."""
        if self.written_ns[file] == _NEVER or (self.has_dsync[file] and not self.lacks_dsync[file]):
            return False
        return bool(self.synced_ns[file] < self.written_ns[file])
