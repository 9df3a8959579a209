"""Asynchronous saves: training waits for a copy into bounded host memory, the drain to the storage goes on behind it.

Most large trainers save like this (PyTorch DCP's async_save, Megatron's and NeMo's async saves). A rank's threads meet
here: the trainer copies its shard into staging memory, then trains on; the engine's threads drain, and may write no
byte that was not copied; what they have written makes room for more. One save is in flight at a time, as in those
frameworks: who comes to the next save before the drain has ended waits for it.

The copy is a real one, from memory larger than a core's caches into memory of its own. The bytes that
the drain writes are made anew by the engine (they must prove themselves on the way back); the order and the
amounts are those of the copy. Steps are simulated by sleeping: GPUs compute, the host's cores are idle.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.engines.contract import Notes, Prepared, Preparer
from ckptstorm.errors import JobError
from ckptstorm.job import Job
from ckptstorm.measure.pace import Pace, pace_row
from ckptstorm.model.parallel import World
from ckptstorm.payload import Payload
from ckptstorm.plan import facts_of, plan
from ckptstorm.program import WRITES, Program
from ckptstorm.reshaping import ALIGNMENT_BYTES
from ckptstorm.sinks import STOP, Sink
from ckptstorm.storm.lowered import Lowered, LoweredRun, lowered
from ckptstorm.units import bytes_text

#: What stands for the GPU's memory: more than a core's own caches hold.
SOURCE_BYTES = 64 << 20
#: Copied at once: small enough that the drain starts soon, large enough that a lock is nothing.
_PIECE_BYTES = 8 << 20
#: The memory is handed on in at least this many parts, so that copying and draining overlap when it is the smaller one.
_PARTS = 4
#: Who waits looks for a stop this often.
_NAP_S = 0.05


def staged_bytes(stages: Sequence[Lowered]) -> int:
    """What a rank copies in a save: the bytes that its data programs write."""
    programs = [
        one for stage in stages if isinstance(stage, LoweredRun) and stage.part == "data" for one in stage.programs
    ]
    return sum(int(_written(program).sum()) for program in programs)


def least_bytes(stages: Sequence[Lowered]) -> int:
    """The least staging memory with which a rank's save cannot come to a standstill."""
    programs = [one for stage in stages if isinstance(stage, LoweredRun) for one in stage.programs]
    largest = max((int(_written(program).max(initial=0)) for program in programs), default=0)
    return min(staged_bytes(stages), 2 * largest)


def host_bytes(job: Job) -> int:
    """What asynchronous saves take of a node's memory for each of its ranks, at most."""
    return int(job.storm.staging) + SOURCE_BYTES if job.storm.staging else 0


def check_staging(job: Job, world: World) -> None:
    """Refuse what could not come to an end, or would say nothing. Raises JobError."""
    staging = int(job.storm.staging)
    if not staging:
        return
    least = least_bytes(lowered(plan(job, world, 0).save, facts_of(job, ALIGNMENT_BYTES), job.io))
    if staging < least:
        raise JobError(
            f"[storm] staging = {bytes_text(staging)}: the layout writes so much at once that at least "
            f"{bytes_text(least)} is needed",
            'raise it, or cut the requests: [io] transfer = "16MiB"',
        )
    if job.storm.step < NS_PER_S // 1000:
        raise JobError("[storm] step: shorter than a millisecond is no training step", 'allowed: "1ms" and longer')


class Area:
    """Bounded staging memory of one rank, used round after round."""

    def __init__(self, size_bytes: int, shard_bytes: int) -> None:
        self.size_bytes, self.shard_bytes = max(1, min(size_bytes, shard_bytes)), shard_bytes
        self._memory = _touched(self.size_bytes)
        self._source = _touched(min(SOURCE_BYTES, max(1, shard_bytes)))
        self._changed = threading.Condition()
        self.begin()

    def begin(self) -> None:
        """A save begins: the memory is empty (the drain of the one before has ended)."""
        self.copied_bytes = self.taken_bytes = self.drained_bytes = 0
        self.is_stopping = False

    @property
    def span_bytes(self) -> int:
        """What the drain writes before it looks again whether there is more."""
        return max(1, self.size_bytes // _PARTS)

    def copy(self) -> int:
        """The trainer: copy the whole shard, waiting for room where there is none; how long it waited, ns."""
        room_ns, piece_most = 0, max(1, min(_PIECE_BYTES, self.span_bytes))
        while self.copied_bytes < self.shard_bytes and not self.is_stopping:
            at, left = self.copied_bytes % self.size_bytes, self.shard_bytes - self.copied_bytes
            source_at = self.copied_bytes % len(self._source)
            piece = min(piece_most, left, self.size_bytes - at, len(self._source) - source_at)
            begun_ns = monotonic_ns()
            if not self._wait_for_room(piece):
                break
            room_ns += monotonic_ns() - begun_ns
            np.copyto(self._memory[at : at + piece], self._source[source_at : source_at + piece])
            with self._changed:
                self.copied_bytes += piece
                self._changed.notify_all()
        return room_ns

    def take(self, count: int, sink: Sink) -> bool:
        """The drain: wait until the next `count` bytes were copied; the first of all wait until no more fit.

        Returns:
            False when the sink, or the end of the save, asked to stop.
        """
        with self._changed:
            self.taken_bytes = min(self.taken_bytes + count, self.shard_bytes)
            mine = self.taken_bytes
            while self.copied_bytes < (
                mine if self.drained_bytes else max(mine, min(self.shard_bytes, self.size_bytes))
            ):
                if sink.control[STOP] or self.is_stopping:
                    return False
                self._changed.wait(_NAP_S)
        return True

    def give_back(self, count: int) -> None:
        """The drain: these bytes are written, and their memory is free."""
        with self._changed:
            self.drained_bytes = min(self.drained_bytes + count, self.shard_bytes)
            self._changed.notify_all()

    def stop(self) -> None:
        """The save is over, whatever is left."""
        with self._changed:
            self.is_stopping = True
            self._changed.notify_all()

    def _wait_for_room(self, piece: int) -> bool:
        with self._changed:
            while self.copied_bytes - self.drained_bytes + piece > self.size_bytes:
                if self.is_stopping:
                    return False
                self._changed.wait(_NAP_S)
        return True


class StagedEngine:
    """An engine whose programs write only what was copied before; everything else is the wrapped engine's."""

    def __init__(self, inner: Preparer, area: Area) -> None:
        self._inner, self._area = inner, area

    def prepare(self, program: Program, payload: Payload) -> Prepared:
        """See `contract.Engine.prepare`."""
        return _StagedProgram(self._inner.prepare(program, payload), program, self._area)


class _StagedProgram:
    """The wrapped program, run in spans of some bytes."""

    def __init__(self, inner: Prepared, program: Program, area: Area) -> None:
        self._inner, self._area = inner, area
        self._written = np.cumsum(_written(program))

    def run(self, sink: Sink, first: int, stop: int) -> int:
        """See `contract.Prepared.run`."""
        index = first
        while index < stop:
            before = int(self._written[index - 1]) if index else 0
            end = int(np.searchsorted(self._written, before + self._area.span_bytes)) + 1
            if before + self._area.span_bytes > int(self._written[stop - 1]):
                end = stop
            count = int(self._written[end - 1]) - before
            if count and not self._area.take(count, sink):
                break
            done = self._inner.run(sink, index, end)
            self._area.give_back(count)
            if done < end or done == index:
                return done
            index = done
        return index

    def finish(self) -> Notes:
        """See `contract.Prepared.finish`."""
        return self._inner.finish()


class Trainer:
    """The training of one rank during one save: it is blocked while the shard is copied, then it goes on."""

    def __init__(self, area: Area, step_ns: int, backpressure_ns: int) -> None:
        self._area, self._step_ns, self._backpressure_ns = area, step_ns, backpressure_ns
        self._release_ns = self._copied_ns = self._room_ns = 0
        self._step_count = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)

    def start(self, release_ns: int) -> None:
        """Begin to copy at that instant of this node's clock."""
        self._release_ns = release_ns
        self._thread.start()

    def finish(self, delay_ns: int) -> Pace:
        """The save is over: stop, and say what it was like. Shape (1,)."""
        self._is_over.set()
        self._area.stop()
        self._thread.join()
        return pace_row(
            delay_ns=delay_ns,
            blocked_ns=self._backpressure_ns + max(0, self._copied_ns - self._release_ns),
            backpressure_ns=self._backpressure_ns,
            room_ns=self._room_ns,
            copied_bytes=self._area.copied_bytes,
            step_count=self._step_count,
        )

    def _train(self) -> None:
        self._is_over.wait(max(0, self._release_ns - monotonic_ns()) / NS_PER_S)
        self._room_ns = self._area.copy()
        self._copied_ns = monotonic_ns()
        while not self._is_over.wait(self._step_ns / NS_PER_S):
            self._step_count += 1


def _written(program: Program) -> NDArray[np.int64]:
    return np.where(np.isin(program.ops["kind"], WRITES), program.ops["length_bytes"], 0).astype(np.int64)


def _touched(size_bytes: int) -> NDArray[np.uint8]:
    """Anonymous memory, with its pages there: no page fault of ours falls into a copy."""
    memory = np.frombuffer(mmap.mmap(-1, size_bytes), dtype=np.uint8)
    memory.fill(1)
    return memory
