# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled half of the native engine: a program that runs its op table in C, without the GIL.

Python is left to what happens between spans of ops: handing times to the sink, telling what was found.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free

import os

import numpy as np

from ckptstorm.engines.contract import Notes
from ckptstorm.errors import JobError, PlaceError
from ckptstorm.payload import Mismatch
from ckptstorm.program import DATA, OP_DTYPE, PROGRAM_VERSION, Kind

_MODES = {
    "sync": MODE_SYNC,
    "libaio": MODE_LIBAIO,
    "io_uring": MODE_IO_URING,
    "mmap": MODE_MMAP,
    "null": MODE_NULL,
}
#: Ops whose offset is the index of a second path.
_TWO_PATHS = (Kind.RENAME, Kind.LINK, Kind.COPY)
#: Times leave in chunks, so that a long program needs no second table. A queue runs empty between two
#: chunks (an op in flight must not wait for Python), so its chunks are longer: a fifth of a per mille is lost.
_CHUNK_OPS_IN_TURN = 4096
_CHUNK_OPS_IN_FLIGHT = 16384


def probe(mode: str) -> int:
    """0 when the kernel offers a mode's system calls to this process, else the errno."""
    return uring_probe() if mode == "io_uring" else aio_probe() if mode == "libaio" else 0


@cython.no_gc_clear  # a helper thread reads `ops` and `names` until `__dealloc__` has ended it
cdef class NativeProgram:
    """One program with its open files and buffers; see `contract.Prepared`."""

    cdef engine_t engine
    cdef feed_t feed
    cdef object program, setup, payload
    cdef object ops, names, due
    cdef int64_t origin_ns, lap_ns
    cdef object starts, ends, results
    cdef uint64_t chunk_ops
    cdef bint has_run

    def __cinit__(self, setup, program, payload):
        self.setup, self.program, self.payload = setup, program, payload
        # Kept alive for C, which points into them. A contiguous table is not copied: `repeat` lets it be refilled.
        self.ops = np.ascontiguousarray(program.ops, dtype=OP_DTYPE).view(np.uint8).reshape(-1)
        self.names = [os.fsencode(program.location(index) or ".") for index in range(len(program.paths))]
        _check_table(program)
        self.due = np.ascontiguousarray(() if program.due_ns is None else program.due_ns, dtype=np.int64)
        self._describe()
        self._take_files()
        self._take_buffers()
        self.chunk_ops = _CHUNK_OPS_IN_TURN
        if self.engine.mode == MODE_LIBAIO or self.engine.mode == MODE_IO_URING:
            _check(queue_take(&self.engine), f"a queue of {setup.queue_depth} for {setup.mode}")
            self.chunk_ops = _CHUNK_OPS_IN_FLIGHT
        self.chunk_ops = min(self.chunk_ops, max(self.engine.op_count, <uint64_t>1))
        self.starts, self.ends, self.results = (np.full(self.chunk_ops, 0, dtype=np.int64) for _ in range(3))

    def __dealloc__(self):
        self._give_back()

    def run(self, sink, uint64_t first, uint64_t stop):
        """See `contract.Prepared.run`."""
        self._seek(first, 0, self.engine.op_count, False)
        self.engine.deadline_ns = INT64_MAX
        self.engine.lap_began_ns = self.origin_ns
        return first + self._run_span(sink, first, stop, first)

    def schedule(self, int64_t origin_ns, int64_t lap_ns=0):
        """From when a program with `due_ns` counts; each later `run` or `repeat` follows this schedule.

        Args:
            origin_ns: on CLOCK_MONOTONIC; op k of a lap is due at origin_ns + lap * lap_ns + due_ns[k].
            lap_ns: how long a lap takes, for `repeat`.
        """
        cdef const int64_t[::1] due = self.due
        self.origin_ns, self.lap_ns = origin_ns, lap_ns
        self.engine.due_ns = &due[0] if len(self.due) else NULL

    def repeat(self, sink, uint64_t first, uint64_t stop, int64_t deadline_ns, op_limit=None, refill=None):
        """See `contract.Repeating.repeat`."""
        cdef uint64_t total = 0, done = 0, wanted = stop - first
        cdef uint64_t limit = <uint64_t>INT64_MAX if op_limit is None else op_limit
        cdef bint is_ring = refill is None
        self._seek(first, first, stop, is_ring)
        self.engine.deadline_ns = deadline_ns
        self.engine.lap_began_ns = self.origin_ns
        while stop > first and total < limit:
            wanted = min(stop - first, limit - total)
            done = self._run_span(sink, first, first + wanted, total)
            total += done
            self.engine.lap_began_ns += self.lap_ns
            if done < wanted or self.engine.has_failed:
                break
            if refill is not None and total < limit:
                # The feed reads ahead of the ops; it stands still at the end of the lap, and here the table changes.
                self._halt()
                refill()
                self._seek(first, first, stop, is_ring)
        return total

    def finish(self):
        """See `contract.Prepared.finish`."""
        cdef feed_t *feed = &self.feed
        self._halt()
        notes = Notes(
            generate_wait_ns=feed.generate_wait_ns,
            verify_wait_ns=feed.verify_wait_ns,
            verified_bytes=feed.verified_bytes,
            mismatch_count=feed.mismatch_count,
            mismatches=tuple(self._mismatch(k) for k in range(min(feed.mismatch_count, <uint64_t>8))),
            direct_file_count=self.engine.direct_file_count,
        )
        self._give_back()
        return notes

    cdef _describe(self):
        cdef const uint8_t[::1] ops = self.ops
        self.engine.op_count = len(self.program.ops)
        self.engine.ops = <const op_t *>&ops[0] if self.engine.op_count else NULL
        self.engine.root_fd = self.setup.root_fd
        self.engine.mode = _MODES[self.setup.mode]
        self.engine.is_direct = self.setup.is_direct
        self.engine.stops_on_error = self.setup.on_error == "stop"
        self.engine.queue_depth = self.setup.queue_depth
        self.engine.deadline_ns = INT64_MAX

    cdef _take_files(self):
        cdef image_t *image
        self.engine.file_count = len(self.names)
        self.engine.files = <file_t *>calloc(max(len(self.names), 1), sizeof(file_t))
        if self.engine.files is NULL:
            raise MemoryError
        for index, name in enumerate(self.names):
            self.engine.files[index].name = <const char *><bytes>name
            self.engine.files[index].fd = -1
        if self.payload is None:
            return
        with_data = self.program.ops["file"][np.isin(self.program.ops["kind"], DATA)]
        for index in np.unique(with_data).tolist():
            made = self.payload.image(self.program.paths[index])
            image = &self.engine.files[index].image
            image.storm, image.key = made.storm, made.key
            image.round_index, image.rank = made.round_index, made.rank

    cdef _take_buffers(self):
        cdef feed_size_t size = feed_size(&self.engine)
        cdef uint64_t largest = 0, k
        if size.batch_count == 0 or self.engine.mode == MODE_NULL:
            return
        if self.payload is not None:
            failure = feed_take(&self.feed, &self.engine, self.setup.verify_share)
            self.engine.feed = &self.feed
            _check(failure, f"{size.batch_count} buffers of {size.batch_bytes} bytes")
            return
        for k in range(self.engine.op_count):
            largest = max(largest, room_bytes(&self.engine, &self.engine.ops[k]))
        largest = -(-largest // 4096) * 4096
        _check(buffer_take(&self.engine.plain, largest * self.engine.queue_depth), f"buffers of {largest} bytes")
        buffer_scramble(&self.engine.plain)

    cdef _seek(self, uint64_t first, uint64_t lap_first, uint64_t lap_stop, bint is_ring):
        if self.engine.files is NULL:
            raise ValueError("the program is finished")
        self.engine.has_failed = False
        if self.engine.feed is not NULL:
            _check(feed_seek(self.engine.feed, first, lap_first, lap_stop, is_ring), "a helper thread")
        if self.engine.queue is not NULL:
            _check(queue_bind(&self.engine), f"a queue of {self.setup.queue_depth} for {self.setup.mode}")

    cdef _halt(self):
        cdef feed_t *feed = &self.feed
        if self.engine.feed is not NULL:
            with nogil:
                feed_halt(feed)

    cdef uint64_t _run_span(self, sink, uint64_t first, uint64_t stop, uint64_t stored_at) except? 0:
        """Run the ops [first, stop); how many were run. Their times are stored from index `stored_at`."""
        cdef int64_t[::1] control = sink.control, starts = self.starts, ends = self.ends, results = self.results
        cdef times_t times = times_t(&starts[0], &ends[0], &results[0])
        cdef uint64_t index = first, wanted, done
        cdef long slack_ns = sharpen_timers() if self.engine.due_ns is not NULL else 0
        self.engine.control = &control[0]
        while index < stop and not self.engine.has_failed:
            wanted = min(self.chunk_ops, stop - index)
            with nogil:
                if self.engine.queue is not NULL:
                    done = run_in_flight(&self.engine, index, index + wanted, times)
                else:
                    done = run_in_turn(&self.engine, index, index + wanted, times)
            if done:
                sink.store(stored_at, self.starts[:done], self.ends[:done], self.results[:done])
            index += done
            stored_at += done
            if done < wanted:
                break
        self.engine.control = NULL
        restore_timers(slack_ns)
        return index - first

    cdef _mismatch(self, uint64_t which):
        cdef mismatch_t *seen = &self.feed.mismatches[which]
        stamp = np.frombuffer(bytes(seen.stamp[:40]) if seen.has_stamp else b"", dtype=np.uint8)
        image = self.payload.image(self.program.paths[seen.file])
        return Mismatch(
            file=self.program.location(seen.file),
            offset_bytes=seen.offset_bytes,
            expected=seen.expected,
            found=seen.found,
            differing_bytes=seen.differing_bytes,
            stamp=image.whose(stamp, seen.offset_bytes - seen.offset_bytes % 4096, seen.offset_bytes),
        )

    cdef _give_back(self):
        # The queue first: closing it makes the kernel let go of the buffers.
        with nogil:
            queue_give_back(&self.engine)
            if self.engine.feed is not NULL:
                feed_give_back(self.engine.feed)
        self.engine.feed = NULL
        buffer_give_back(&self.engine.plain)
        if self.engine.files is not NULL:
            close_files(&self.engine)
            free(self.engine.files)
            self.engine.files = NULL
            self.engine.file_count = 0


def buffer_bytes(program, queue_depth: int) -> int:
    """The buffers that a program takes at most; see `native_engine.memory_bytes`."""
    cdef const uint8_t[::1] ops = np.ascontiguousarray(program.ops, dtype=OP_DTYPE).view(np.uint8).reshape(-1)
    cdef engine_t engine
    engine.op_count = len(program.ops)
    engine.ops = <const op_t *>&ops[0] if engine.op_count else NULL
    engine.queue_depth = queue_depth
    engine.is_direct = True  # the wider alignment
    cdef feed_size_t size = feed_size(&engine)
    return size.batch_bytes * size.batch_count


def _check_table(program):
    """Refuse what would let C read beyond a table.

    Raises:
        JobError: another version's program, or an op that names a path that there is not.
    """
    if program.version != PROGRAM_VERSION:
        raise JobError(
            f"the native engine runs programs of version {PROGRAM_VERSION}, this one has version {program.version}",
            "install planner and engine from one release of ckptstorm",
        )
    named = [program.ops["file"], program.ops["offset_bytes"][np.isin(program.ops["kind"], _TWO_PATHS)]]
    largest = max(int(indices.max(initial=0)) for indices in named)
    if len(program.ops) and largest >= len(program.paths):
        raise JobError(f"an op names path {largest}, the program has {len(program.paths)}")
    if program.due_ns is not None and len(program.due_ns) != len(program.ops):
        raise JobError(f"{len(program.due_ns)} due times for {len(program.ops)} ops")


cdef _check(int failure, what):
    if failure:
        raise PlaceError(f"this machine does not give the native engine {what}: {os.strerror(-failure)}")
