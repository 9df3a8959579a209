"""A sink for long loads: it folds times into histograms, one-second bins and the worst ops, and keeps no op.

A load of half a million ops a second would fill a gigabyte of times in a minute. Folded, it takes what
`ALL_KEYS` histograms take (2.5 MB), 16 bytes a second, and a fixed number of worst ops, however long it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure import latency
from ckptstorm.measure.histogram import BUCKET_COUNT, bucket_index
from ckptstorm.measure.latency import LatencyTable
from ckptstorm.program import Ops, Program
from ckptstorm.sinks import CONTROL_SLOTS

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Worst:
    """One of the slowest ops.

    Attributes:
        op_index: into the program's table.
        start_ns: CLOCK_MONOTONIC of this node.
        elapsed_ns: how long it took.
        result: bytes moved, or minus the errno.
    """

    op_index: int
    start_ns: int
    elapsed_ns: int
    result: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Ops of one kind that failed in one way.

    Attributes:
        kind: number of the op kind.
        errno: what the kernel answered.
        op_index: of the first of them, into the program's table.
        start_ns: when that one began.
        count: how many.
    """

    kind: int
    errno: int
    op_index: int
    start_ns: int
    count: int


class FoldTimes:
    """Takes the times of a program that is run once, or lap after lap.

    Attributes:
        control: see `sinks.Sink`.
        error_counts: ops that failed, by errno (an errno that the op expects is no failure).
        failed: they by kind and errno, each with the first.
        first_start_ns, last_end_ns: of all ops; 0 when there was none.
    """

    def __init__(self, program: Program, first: int = 0, stop: int | None = None, worst_count: int = 100) -> None:
        """Fold the ops [first, stop) of `program`; sink indices count from 0 over all laps."""
        self.control = np.zeros(CONTROL_SLOTS, dtype=np.int64)
        self.error_counts: dict[int, int] = {}
        self.failed: dict[tuple[int, int], Failed] = {}
        self.first_start_ns = self.last_end_ns = 0
        self._ops = program.ops[first:stop]
        self._first, self._worst_count = first, worst_count
        key_count = len(latency.ALL_KEYS)
        self._counts = np.zeros((key_count, BUCKET_COUNT), dtype=np.int64)
        self._moved = np.zeros(key_count, dtype=np.int64)
        self._max_ns, self._sum_ns = np.zeros(key_count, dtype=np.int64), np.zeros(key_count, dtype=np.int64)
        #: When the first second begins: the first op's end, unless a caller sets it before (all ranks' release).
        self.origin_ns = 0
        self._seconds = np.zeros((0, 2), dtype=np.int64)
        self._worst: list[Worst] = []

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """See `sinks.Sink.store`."""
        if not len(start_ns):
            return
        ops, elapsed_ns = self._ring(first, len(start_ns)), end_ns - start_ns
        moved = result
        if int(result.min()) < 0:
            is_fine = (result >= 0) | (-result == ops["expect"])
            self._fail_each(np.flatnonzero(~is_fine), first, start_ns, result)
            self._fold(
                latency.key_index(ops["kind"], result)[is_fine], elapsed_ns[is_fine], np.maximum(result, 0)[is_fine]
            )
            moved = np.where(is_fine, np.maximum(result, 0), 0)
        else:
            self._fold(latency.key_index(ops["kind"], result), elapsed_ns, result)
        self.first_start_ns = self.first_start_ns or int(start_ns[0])
        self.last_end_ns = max(self.last_end_ns, int(end_ns.max()))
        self._bin(end_ns, moved)
        self._keep_worst(first, start_ns, elapsed_ns, result)

    def store_failures(self, first: int, start_ns: Int64s, result: Int64s) -> None:
        """Of ops that are in no other number (a ramp), those that failed."""
        if len(result) and int(result.min()) < 0:
            is_fine = (result >= 0) | (-result == self._ring(first, len(result))["expect"])
            self._fail_each(np.flatnonzero(~is_fine), first, start_ns, result)

    def _ring(self, first: int, count: int) -> Ops:
        """The rows of ops that are counted over all laps: of one lap a view, which costs nothing."""
        at = first % len(self._ops)
        if at + count <= len(self._ops):
            return self._ops[at : at + count]
        return self._ops[(at + np.arange(count)) % len(self._ops)]

    def _fail_each(self, places: NDArray[np.intp], first: int, start_ns: Int64s, result: Int64s) -> None:
        for at in places.tolist():
            row = (first + at) % len(self._ops)
            self._fail(int(self._ops["kind"][row]), -int(result[at]), row + self._first, int(start_ns[at]))

    def _fail(self, kind: int, errno: int, op_index: int, start_ns: int) -> None:
        self.error_counts[errno] = self.error_counts.get(errno, 0) + 1
        known = self.failed.get((kind, errno), Failed(kind, errno, op_index, start_ns, 0))
        self.failed[kind, errno] = replace(known, count=known.count + 1)

    def moved_bytes(self) -> Int64s:
        """Bytes that the ops of each key of `latency()` moved, in its order."""
        return self._moved[self._counts.any(axis=1)].copy()

    def latency(self) -> LatencyTable:
        """The histograms of all ops that did not fail."""
        present = np.asarray(self._counts.any(axis=1), dtype=np.bool_)
        return latency.from_aligned(
            present, self._counts[present].copy(), self._max_ns[present].copy(), self._sum_ns[present].copy()
        )

    def seconds(self) -> tuple[int, Int64s]:
        """(when the first bin begins, [ops, bytes] that ended in each second); shape (seconds, 2)."""
        return self.origin_ns, self._seconds.copy()

    def worst(self) -> tuple[Worst, ...]:
        """The slowest ops, slowest first."""
        return tuple(self._worst)

    def _fold(self, keys: Int64s, elapsed_ns: Int64s, moved: Int64s) -> None:
        if not len(keys):
            return
        # Most rings are of one kind and size: then nothing has to be picked out.
        distinct = keys[:1].tolist() if (keys == keys[0]).all() else np.unique(keys).tolist()
        for key in distinct:
            mine = slice(None) if len(distinct) == 1 else keys == key
            elapsed = elapsed_ns[mine]
            self._counts[key] += np.bincount(bucket_index(elapsed), minlength=BUCKET_COUNT)
            self._max_ns[key] = max(int(self._max_ns[key]), int(elapsed.max()))
            self._sum_ns[key] += int(elapsed.sum())
            self._moved[key] += int(moved[mine].sum())

    def _bin(self, end_ns: Int64s, moved: Int64s) -> None:
        self.origin_ns = self.origin_ns or int(end_ns.min())
        first, last = (max(int(end) - self.origin_ns, 0) // NS_PER_S for end in (end_ns.min(), end_ns.max()))
        if last >= len(self._seconds):
            more = np.zeros((last + 1 - len(self._seconds), 2), dtype=np.int64)
            self._seconds = np.concatenate([self._seconds, more])
        if first == last:
            self._seconds[last] += (len(end_ns), int(moved.sum()))
            return
        second = np.maximum((end_ns - self.origin_ns) // NS_PER_S, 0)
        self._seconds[:, 0] += np.bincount(second, minlength=len(self._seconds))
        self._seconds[:, 1] += np.bincount(second, weights=moved, minlength=len(self._seconds)).astype(np.int64)

    def _keep_worst(self, first: int, start_ns: Int64s, elapsed_ns: Int64s, result: Int64s) -> None:
        floor_ns = self._worst[-1].elapsed_ns if len(self._worst) >= self._worst_count else -1
        slow = np.flatnonzero(elapsed_ns > floor_ns)
        if len(slow) > self._worst_count:
            slow = slow[np.argpartition(elapsed_ns[slow], -self._worst_count)[-self._worst_count :]]
        count, base = len(self._ops), self._first
        found = [
            Worst((first + int(i)) % count + base, int(start_ns[i]), int(elapsed_ns[i]), int(result[i])) for i in slow
        ]
        if found:
            ranked = sorted([*self._worst, *found], key=lambda worst: -worst.elapsed_ns)
            self._worst = ranked[: self._worst_count]
