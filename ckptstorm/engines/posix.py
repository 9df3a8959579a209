"""The reference engine: every op is one call of Python's `os`, so anyone can read what was measured.

Payload is made and compared on the I/O thread itself, before and after the timed call: that wait is
inside the phase's time and in the notes. Python adds a microsecond or two to each op, so above some
ten thousand ops per second and rank the instrument shows; the native engine is for that.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from ckptstorm.clock import monotonic_ns
from ckptstorm.engines import calls
from ckptstorm.engines.contract import Notes, Setup
from ckptstorm.engines.inline import InlinePayload
from ckptstorm.engines.mapping import Mappings
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Program
from ckptstorm.sinks import BYTES_MOVED, NEVER_NS, OPS_DONE, STOP, OpTimes, Shifted, Sink

#: Times leave the engine in chunks, so that a long program needs no second table.
_CHUNK_OPS = 1024

_WRITES = (Kind.WRITE, Kind.WRITEV)
_READS = (Kind.READ, Kind.MMAP_READ)


class PosixEngine:
    """pread and pwrite from pure Python; needs no compiler."""

    name: ClassVar[str] = "posix"
    moves_data: ClassVar[bool] = True
    honours: ClassVar[dict[str, tuple[object, ...]]] = {"direct": (True,)}

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    @classmethod
    def missing(cls) -> str:
        """See `contract.Engine.missing`."""
        return ""

    def prepare(self, program: Program, payload: Payload) -> PosixProgram:
        """See `contract.Engine.prepare`."""
        return PosixProgram(self._setup, program, payload)


class PosixProgram:
    """One program's open files, its buffer and its tallies."""

    def __init__(self, setup: Setup, program: Program, payload: Payload) -> None:
        self._setup, self._program = setup, program
        self._payload = InlinePayload(program, payload, setup.verify_share)
        self._rows: list[tuple[int, ...]] = program.ops.tolist()
        self._files = calls.OpenFiles(setup.root_fd, [program.location(index) for index in range(len(program.paths))])
        self._mappings = Mappings()
        lengths = program.ops["length_bytes"][np.isin(program.ops["kind"], _WRITES + _READS)]
        # A mapping starts at a page, as O_DIRECT wants it; its pages are touched here and not within the storm.
        self._buffer = np.frombuffer(mmap.mmap(-1, max(1, int(lengths.max(initial=0)))), dtype=np.uint8)
        self._buffer.fill(0)
        self._view = memoryview(self._buffer.data)
        self._has_failed = False
        self._deadline_ns = NEVER_NS

    def run(self, sink: Sink, first: int, stop: int) -> int:
        """See `contract.Prepared.run`."""
        index = first
        while index < stop:
            chunk_stop = min(index + _CHUNK_OPS, stop)
            index = self._run_chunk(sink, index, chunk_stop)
            if self._has_failed or index < chunk_stop:
                break
        return index

    def repeat(
        self,
        sink: Sink,
        first: int,
        stop: int,
        deadline_ns: int,
        op_limit: int | None = None,
        refill: Callable[[], None] | None = None,
    ) -> int:
        """See `contract.Repeating.repeat`."""
        total, self._deadline_ns = 0, deadline_ns
        while stop > first and (op_limit is None or total < op_limit):
            wanted = stop - first if op_limit is None else min(stop - first, op_limit - total)
            done = self.run(Shifted(sink, total - first), first, first + wanted) - first
            total += done
            if done < wanted or self._has_failed:
                break
            if refill is not None and total != op_limit:
                refill()
                self._rows[first:stop] = self._program.ops[first:stop].tolist()
        self._deadline_ns = NEVER_NS
        return total

    def finish(self) -> Notes:
        """See `contract.Prepared.finish`."""
        self._mappings.drop_all()
        self._files.close_all()
        return self._payload.notes(self._files.direct_file_count)

    def _run_chunk(self, sink: Sink, first: int, stop: int) -> int:
        times = OpTimes.empty(stop - first)
        starts, ends, results = times.start_ns, times.end_ns, times.result
        control, stops_on_error = sink.control, self._setup.on_error == "stop"
        index, end = first, 0
        while index < stop and not control[STOP] and end < self._deadline_ns:
            row = self._rows[index]
            call = self._ready(row)
            error = 0
            # Between these two clock reads: the system call and Python's call of it. Not included:
            # making the payload, comparing it, bookkeeping.
            start = monotonic_ns()
            try:
                result = call()
            except OSError as failure:
                result, error = -(failure.errno or 0), failure.errno or 0
            end = monotonic_ns()
            starts[index - first], ends[index - first], results[index - first] = start, end, result
            index += 1
            control[OPS_DONE] += 1
            if result > 0:
                control[BYTES_MOVED] += result
                self._after_read(row, index - 1, result)
            if error and error != row[2] and stops_on_error:
                self._has_failed = True
                break
        count = index - first
        sink.store(first, starts[:count], ends[:count], results[:count])
        return index

    def _ready(self, row: tuple[int, ...]) -> Callable[[], int]:
        """The call of an op with everything in place that must not be timed."""
        kind, flags, _, file, offset, length = row
        if kind in _WRITES:
            part = self._view[:length]
            self._payload.fill(file, self._buffer[:length], offset)
            if kind == Kind.WRITEV and flags > 1:
                return self._files.gather(file, part, offset, flags)
            return self._files.write(file, part, offset)
        if kind == Kind.READ:
            return self._files.read(file, self._view[:length], offset)
        if kind == Kind.MMAP_READ:
            return self._mappings.read(file, self._files.descriptor(file), self._buffer[:length], offset)
        if kind == Kind.CLOSE:
            self._mappings.drop(file)
        return self._files.other(Kind(kind), row)

    def _after_read(self, row: tuple[int, ...], index: int, moved: int) -> None:
        kind, _, _, file, offset, _ = row
        if kind in _READS and self._payload.is_picked(index):
            self._payload.compare(file, self._buffer[:moved], offset, moved)
