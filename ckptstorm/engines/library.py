"""What engines share that move bytes through a library: its calls in place of reads and writes, on the main thread.

A call on a shared file is one of all ranks. A rank that has failed, or was told to stop, may not leave
the others waiting in it: from then on it takes part with nothing to move, until its program is over.
Calls on names and directories are those of the kernel, as in every engine.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import monotonic_ns
from ckptstorm.engines import calls
from ckptstorm.engines.contract import Notes, Setup
from ckptstorm.engines.inline import InlinePayload
from ckptstorm.payload import Payload
from ckptstorm.program import READS, WRITES, Kind, Path, Program, open_flags
from ckptstorm.sinks import BYTES_MOVED, OPS_DONE, STOP, OpTimes, Sink

_CHUNK_OPS = 1024
_FILE_SYNCS = (Kind.FSYNC, Kind.FDATASYNC, Kind.MPI_SYNC)


class Backend(Protocol):
    """A library's calls on files, each known by its index in the program; they raise OSError with an errno."""

    def open(self, file: int, name: str, path: Path, flags: int) -> None:
        """Open `name`, an absolute path; a shared one with all ranks."""

    def write(self, file: int, kind: Kind, part: memoryview, offset_bytes: int) -> int:
        """Write `part`; bytes moved."""

    def read(self, file: int, kind: Kind, into: memoryview, offset_bytes: int) -> int:
        """Read into `into`; bytes moved, fewer at the end of the file."""

    def sync(self, file: int) -> None:
        """Make what was written durable."""

    def close(self, file: int) -> None:
        """Close it."""

    def is_open(self, file: int) -> bool:
        """Whether it is open."""

    def close_all(self) -> None:
        """Close what is still open."""

    def is_mine(self, file: int) -> bool:
        """Whether its calls are the library's; those of any other file are the kernel's."""

    def room(self, length_bytes: int) -> NDArray[np.uint8] | None:
        """Where the payload of the next write is to be made; None: wherever."""

    def found(self) -> NDArray[np.uint8] | None:
        """What the last read found, when it did not go where it was told to."""


class OwnMemory:
    """For backends that read and write where they are told to, and open every file."""

    def is_mine(self, file: int) -> bool:
        """See `Backend`."""
        del file
        return True

    def room(self, length_bytes: int) -> NDArray[np.uint8] | None:
        """See `Backend`."""
        del length_bytes
        return None

    def found(self) -> NDArray[np.uint8] | None:
        """See `Backend`."""
        return None


class LibraryProgram:
    """One program's buffer and tallies, run through a backend."""

    def __init__(self, setup: Setup, program: Program, payload: Payload, backend: Backend) -> None:
        self._setup, self._program, self._backend = setup, program, backend
        self._payload = InlinePayload(program, payload, setup.verify_share)
        self._rows: list[tuple[int, ...]] = program.ops.tolist()
        self._locations = [program.location(index) for index in range(len(program.paths))]
        self._names = calls.OpenFiles(setup.root_fd, self._locations)
        self._root = os.readlink(f"/proc/self/fd/{setup.root_fd}") if setup.root_fd >= 0 else ""
        lengths = program.ops["length_bytes"][np.isin(program.ops["kind"], WRITES + READS)]
        self._buffer = np.frombuffer(mmap.mmap(-1, max(1, int(lengths.max(initial=0)))), dtype=np.uint8)
        self._buffer.fill(0)
        self._view = memoryview(self._buffer.data)
        self._is_abstaining = False

    def run(self, sink: Sink, first: int, stop: int) -> int:
        """See `contract.Prepared.run`."""
        index = first
        while index < stop and not self._is_abstaining:
            index = self._run_chunk(sink, index, min(index + _CHUNK_OPS, stop))
            if sink.control[STOP] and not self._is_abstaining:
                self._abstain(index)
        return index

    def finish(self) -> Notes:
        """See `contract.Prepared.finish`."""
        self._backend.close_all()
        self._names.close_all()
        return self._payload.notes()

    def _run_chunk(self, sink: Sink, first: int, stop: int) -> int:
        times, control, index = OpTimes.empty(stop - first), sink.control, first
        while index < stop and not control[STOP]:
            row = self._rows[index]
            call = self._ready(row)
            error = 0
            # Between these two clock reads: the library's call, with what it does besides moving bytes
            # (exchanges between ranks, its own metadata). Not included: making and comparing payload.
            start = monotonic_ns()
            try:
                result = call()
            except OSError as failure:
                error = failure.errno or errno.EIO
                result = -error
            end = monotonic_ns()
            at = index - first
            times.start_ns[at], times.end_ns[at], times.result[at] = start, end, result
            index += 1
            control[OPS_DONE] += 1
            if result > 0:
                control[BYTES_MOVED] += result
                self._after_read(row, index - 1, result)
            if error and error != row[2] and self._setup.on_error == "stop":
                self._abstain(index)
                break
        count = index - first
        sink.store(first, times.start_ns[:count], times.end_ns[:count], times.result[:count])
        return index

    def _abstain(self, first: int) -> None:
        """Take part in the rest of the program's calls of all ranks, and move nothing."""
        self._is_abstaining = True
        for kind, _, _, file, offset, _ in self._rows[first:]:
            if not (self._program.paths[file].is_shared and self._setup.comm is not None):
                continue
            try:
                self._empty_call(Kind(kind), file, offset)
            except OSError:  # the failure that led here is what is reported
                continue

    def _empty_call(self, kind: Kind, file: int, offset: int) -> None:
        if kind is Kind.OPEN:
            length = next(row[5] for row in self._rows if row[0] == kind and row[3] == file)
            self._open(file, open_flags(length)[0])
        elif not self._backend.is_open(file):
            return
        elif kind in WRITES:
            self._backend.write(file, kind, self._view[:0], offset)
        elif kind in READS:
            self._backend.read(file, kind, self._view[:0], offset)
        elif kind in _FILE_SYNCS:
            self._backend.sync(file)
        elif kind is Kind.CLOSE:
            self._backend.close(file)

    def _ready(self, row: tuple[int, ...]) -> Callable[[], int]:
        """The call of an op with everything in place that must not be timed."""
        kind, _, _, file, offset, length = row
        backend, word = self._backend, Kind(kind)
        if not backend.is_mine(file):
            return self._by_the_kernel(word, row)
        if word is Kind.OPEN:
            flags = open_flags(length)[0]
            return _counting(lambda: self._open(file, flags))
        if word in WRITES or word in READS or word in _FILE_SYNCS or word is Kind.CLOSE:
            if not backend.is_open(file):
                return _not_open
            return self._on_open_file(word, file, offset, length)
        return self._names.other(word, row)

    def _on_open_file(self, kind: Kind, file: int, offset: int, length: int) -> Callable[[], int]:
        backend, part = self._backend, self._view[:length]
        if kind in WRITES:
            room = backend.room(length)
            self._payload.fill(file, self._buffer[:length] if room is None else room, offset)
            return lambda: backend.write(file, kind, part, offset)
        if kind in READS:
            return lambda: backend.read(file, kind, part, offset)
        act = backend.sync if kind in _FILE_SYNCS else backend.close
        return _counting(lambda: act(file))

    def _by_the_kernel(self, kind: Kind, row: tuple[int, ...]) -> Callable[[], int]:
        file, offset, part = row[3], row[4], self._view[: row[5]]
        if kind in WRITES:
            self._payload.fill(file, self._buffer[: row[5]], offset)
            return self._names.write(file, part, offset)
        return self._names.read(file, part, offset) if kind in READS else self._names.other(kind, row)

    def _open(self, file: int, flags: int) -> None:
        name = os.path.join(self._root, self._locations[file])
        if os.path.islink(name):  # a link in the way would lead a storm out of its own directory
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if self._backend.is_open(file):  # an open that replaces another
            self._backend.close(file)
        self._backend.open(file, name, self._program.paths[file], flags)

    def _after_read(self, row: tuple[int, ...], index: int, moved: int) -> None:
        kind, _, _, file, offset, _ = row
        if kind not in READS or not self._payload.is_picked(index):
            return
        found = self._backend.found() if self._backend.is_mine(file) else None
        self._payload.compare(file, self._buffer[:moved] if found is None else found, offset, moved)


def _counting(act: Callable[[], None]) -> Callable[[], int]:
    """A call that moves no bytes."""

    def call() -> int:
        act()
        return 0

    return call


def _not_open() -> int:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
