"""The op table: the centre of the house, one row for one system call that a framework would make.

Layouts and loads lower to it, engines run it, measurements are arrays beside it. It is a NumPy
structured array, so it can be printed, counted, compared with an strace of the real framework,
and tested without touching a disk.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

#: A compiled engine refuses a program of another version.
PROGRAM_VERSION = 1


class Kind(enum.IntEnum):
    """What an op does. The numbers are part of the format: append, never renumber."""

    MKDIR = 1
    OPEN = 2
    WRITE = 3
    WRITEV = 4
    READ = 5
    MMAP_READ = 6
    MSYNC = 7
    FSYNC = 8
    FDATASYNC = 9
    SYNCFS = 10
    FSYNC_DIR = 11
    CLOSE = 12
    RENAME = 13
    STAT = 14
    FSTAT = 15
    STATFS = 16
    READDIR = 17
    UNLINK = 18
    RMDIR = 19
    UTIME = 20
    CHMOD = 21
    TRUNCATE = 22
    FALLOCATE = 23
    FADVISE = 24
    LOCK = 25
    UNLOCK = 26
    LINK = 27
    SETXATTR = 28
    COPY = 29
    MPI_WRITE_AT = 30
    MPI_READ_AT = 31
    MPI_WRITE_AT_ALL = 32
    MPI_READ_AT_ALL = 33
    MPI_SYNC = 34
    H5_WRITE = 35
    H5_READ = 36
    TORCH_SAVE = 37
    TORCH_LOAD = 38

    @property
    def word(self) -> str:
        """The word that job files, columns and reports use."""
        return self.name.lower()


class TorchPart(enum.IntEnum):
    """What a tensor of a torch_save or torch_load op is part of."""

    ALONE = 0  # a call for this tensor alone, on an open file
    OF_PATH = 1  # one call for all tensors of the file, by its path
    LAST_OF_PATH = 2
    OF_STREAM = 3  # one call for all tensors of the file, on an open file
    LAST_OF_STREAM = 4


WRITES = (Kind.WRITE, Kind.WRITEV, Kind.MPI_WRITE_AT, Kind.MPI_WRITE_AT_ALL, Kind.H5_WRITE, Kind.TORCH_SAVE)
READS = (Kind.READ, Kind.MMAP_READ, Kind.MPI_READ_AT, Kind.MPI_READ_AT_ALL, Kind.H5_READ, Kind.TORCH_LOAD)
#: A data op is each of these as issued; everything else but the syncs is a metadata op.
DATA = WRITES + READS
SYNCS = (Kind.MSYNC, Kind.FSYNC, Kind.FDATASYNC, Kind.SYNCFS, Kind.FSYNC_DIR, Kind.MPI_SYNC)

#: One op, 24 bytes without padding.
#:   kind          a `Kind`
#:   flags         writev: the number of parts; lock: 1 shared, 2 exclusive; torch_save, torch_load: a
#:                 `TorchPart`; else 0
#:   expect        the errno that is no error here (EEXIST of N-1 mkdirs, ENOENT of a look-up); 0: none
#:   file          index into `Program.paths`; an open file is known by its path
#:   offset_bytes  where in the file; rename and link: the target's index into `Program.paths`
#:   length_bytes  how much; open: O_ flags in the low 32 bits, the mode above them; mkdir: the mode
OP_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("flags", "u1"),
        ("expect", "<u2"),
        ("file", "<u4"),
        ("offset_bytes", "<u8"),
        ("length_bytes", "<u8"),
    ]
)
assert OP_DTYPE.itemsize == 24

Ops = NDArray[np.void]
Int64s = NDArray[np.int64]

#: Indices into `Program.directories` that every checkpoint program uses.
ROOT, STEP = 0, 1


@dataclass(frozen=True, slots=True)
class Path:
    """A file or directory that a program names.

    Attributes:
        directory_index: which of the program's directories the name is relative to.
        name: relative path below that directory, "" for the directory itself.
        rank: the rank that writes it; stamped into its bytes.
        size_bytes: its size when complete: a read past it is short by plan. 0 when of no concern.
        content: the name whose bytes it holds, when not its own ('.metadata.tmp' is written with
            the bytes of '.metadata').
        is_shared: whether all ranks of the phase have it open together; engines with a communicator
            open it with all of them.
    """

    directory_index: int
    name: str
    rank: int = 0
    size_bytes: int = 0
    content: str = ""
    is_shared: bool = False

    @property
    def content_name(self) -> str:
        """The name that decides the bytes in it."""
        return self.content or self.name


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The ordered op table of one thread for one phase.

    Attributes:
        ops: the table, dtype `OP_DTYPE`.
        paths: what `ops["file"]` (and a rename's offset) points to.
        directories: relative to the storm's root; "" is the root itself.
        due_ns: open-loop loads only: when each op is due, nanoseconds after release.
        version: `PROGRAM_VERSION` of the writer.
        roots: further roots, absolute, each with a step directory behind the others in `directories`.
    """

    ops: Ops
    paths: tuple[Path, ...]
    directories: tuple[str, ...] = ("",)
    due_ns: Int64s | None = None
    version: int = field(default=PROGRAM_VERSION)
    roots: tuple[str, ...] = ()

    def in_step(self, step: str) -> Program:
        """The same program with its step directory named `step` (rounds share one op table)."""
        elsewhere = (f"{root}/{step}" for root in self.roots)
        return replace(self, directories=(self.directories[ROOT], step, *elsewhere))

    def location(self, file: int) -> str:
        """The path of `file` relative to the storm's root; absolute when it is below another one."""
        path = self.paths[file]
        return "/".join(part for part in (self.directories[path.directory_index], path.name) if part)

    def expected_bytes(self) -> Int64s:
        """Per op, the bytes that it moves when all goes well (0 for ops that move none).

        A read that reaches past the end of its file is short by plan.
        """
        kind, length = self.ops["kind"], self.ops["length_bytes"].astype(np.int64)
        sizes = np.array([path.size_bytes for path in self.paths] or [0], dtype=np.int64)
        left = np.maximum(sizes[self.ops["file"]] - self.ops["offset_bytes"].astype(np.int64), 0)
        is_read, is_write = np.isin(kind, READS), np.isin(kind, WRITES)
        return np.where(is_write, length, np.where(is_read, np.minimum(length, left), 0))


def op(
    kind: Kind, file: int, offset_bytes: int = 0, length_bytes: int = 0, *, flags: int = 0, expect: int = 0
) -> tuple[int, int, int, int, int, int]:
    """One row, in the order of `OP_DTYPE`."""
    return (int(kind), flags, expect, file, offset_bytes, length_bytes)


def open_length(os_flags: int, mode: int = 0o666) -> int:
    """An open's `length_bytes`: O_ flags below, mode above."""
    return (os_flags | os.O_CLOEXEC) | mode << 32


def open_flags(length_bytes: int) -> tuple[int, int]:
    """(O_ flags, mode) of an open's `length_bytes`."""
    return length_bytes & 0xFFFFFFFF, length_bytes >> 32


def table(rows: list[tuple[int, int, int, int, int, int]]) -> Ops:
    """Rows made by `op` as an op table."""
    return np.array(rows, dtype=OP_DTYPE)
