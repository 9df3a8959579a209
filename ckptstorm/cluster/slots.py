"""What the board is made of: a header and 64 bytes a rank, in memory that processes share; imports no MPI.

The parent that starts ranks reads the board too, and is no MPI process.
"""

from __future__ import annotations

import enum
import mmap
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Which storm is on the board; rank 0 fills it in. `is_ending`: rank 0 has given the world up and aborts it.
HEADER_DTYPE = np.dtype([("token", "S16"), ("storm_id", "S40"), ("is_ending", "<i8")])
#: A rank's line, in the slot of its number. What is a count (beat, ops_done) is watched for change by whoever
#: looks, on the looker's own clock: the clocks of two nodes, or of two time namespaces, differ by anything.
SLOT_DTYPE = np.dtype(
    [
        ("rank", "<u4"),
        ("pid", "<u4"),
        ("node", "<u4"),
        ("file", "<u4"),
        ("state", "u1"),
        ("phase", "u1"),
        ("kind", "u1"),
        ("process", "u1"),  # the kernel's letter for the process, as the node's first rank saw it; 0: not looked
        ("round", "<i2"),  # beyond what it holds: the largest
        ("program", "<u2"),  # which of the rank's programs in this phase
        ("offset_bytes", "<u8"),
        ("beat", "<i8"),  # looks of the rank's main thread; it looks whenever it waits
        ("ops_done", "<i8"),
        ("bytes_moved", "<i8"),
        ("started", "<u8"),  # of the process, in the kernel's ticks: with the pid, proof that it is the same one
    ]
)
assert HEADER_DTYPE.itemsize == SLOT_DTYPE.itemsize == 64

#: The letter of a process that is no more; the kernel's own letters are R, S, D, T, t, Z, X, I.
GONE = ord("-")
STOPPED = (ord("T"), ord("t"))
#: Where a parent offers its board: "PATH:TOKEN".
VARIABLE = "CKPTSTORM_BOARD"


class State(enum.IntEnum):
    """What a rank is doing, as far as anyone waits for it."""

    WAITING = 0  # for others
    RUNNING = 1  # an op
    DONE = 2  # with the phase
    ENDED = 3  # with the storm: its process may go


@dataclass(frozen=True, slots=True)
class Shared:
    """A mapped board.

    Attributes:
        header: one record of `HEADER_DTYPE`.
        slots: one record of `SLOT_DTYPE` a rank of the world.
    """

    header: NDArray[np.void]
    slots: NDArray[np.void]


def size_bytes(rank_count: int) -> int:
    """Of a board; pages of ranks that live on other nodes are never touched, so they cost nothing."""
    return HEADER_DTYPE.itemsize + rank_count * SLOT_DTYPE.itemsize


def map_board(path: str, rank_count: int) -> Shared:
    """Map a board that somebody has made.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is smaller than the world.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        mapped = mmap.mmap(fd, size_bytes(rank_count))
    finally:
        os.close(fd)
    header = np.frombuffer(mapped, dtype=HEADER_DTYPE, count=1)
    return Shared(header, np.frombuffer(mapped, dtype=SLOT_DTYPE, offset=HEADER_DTYPE.itemsize))


def process_start(pid: int) -> tuple[int, int]:
    """(the kernel's letter, start in ticks) of a process; (`GONE`, 0) when there is none.

    A zombie that nobody has collected is as gone as any.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return GONE, 0
    letter = ord(fields[0])
    return (GONE if letter in (ord("Z"), ord("X")) else letter), int(fields[19])


def process_letter(pid: int, started: int) -> int:
    """The kernel's letter for that very process; `GONE` when it is no more, whoever has its number now."""
    letter, seen = process_start(pid)
    return letter if seen == started else GONE


class Ages:
    """How long each rank has shown no change, on the looker's own clock."""

    def __init__(self) -> None:
        self._seen: dict[str, NDArray[np.int64]] = {}
        self._since: dict[str, NDArray[np.int64]] = {}

    def look(self, lines: NDArray[np.void], column: str, now_ns: int) -> NDArray[np.int64]:
        """Nanoseconds since `column` of each line last changed, as far as it was looked at."""
        values = lines[column].astype(np.int64)
        if column not in self._seen or len(self._seen[column]) != len(values):
            self._seen[column], self._since[column] = values, np.full(len(values), now_ns, dtype=np.int64)
        changed = values != self._seen[column]
        self._seen[column] = values
        self._since[column][changed] = now_ns
        return now_ns - self._since[column]
