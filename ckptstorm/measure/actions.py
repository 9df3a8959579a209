"""Times of a load's actions, because a user asks for creates and not for opens.

An action (create, stat, read …) is one op or several that follow one another: its time is that of its
ops together, whatever lies between them. One that failed is counted by its ops' errors and as nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.folding import FoldTimes
from ckptstorm.measure.histogram import BUCKET_COUNT, bucket_index
from ckptstorm.program import Ops

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ActionTable:
    """What was achieved, a row an action of the load's list.

    Attributes:
        counts: histograms of the actions' times, shape (actions, histogram.BUCKET_COUNT).
        max_ns: the exact maximum of each.
        bytes: that they moved.
    """

    counts: Int64s
    max_ns: Int64s
    bytes: Int64s

    @classmethod
    def blank(cls, action_count: int) -> ActionTable:
        """Nothing was done."""
        return cls(
            np.zeros((action_count, BUCKET_COUNT), dtype=np.int64),
            np.zeros(action_count, dtype=np.int64),
            np.zeros(action_count, dtype=np.int64),
        )

    def add(self, other: ActionTable) -> None:
        """Take in another thread's."""
        np.add(self.counts, other.counts, out=self.counts)
        np.maximum(self.max_ns, other.max_ns, out=self.max_ns)
        np.add(self.bytes, other.bytes, out=self.bytes)


class FoldActions:
    """A sink that adds ops up to actions, and hands every op on.

    Where every op is an action of its own, and what an op does tells which, the inner sink's histograms say it all.

    Attributes:
        control: the inner sink's.
    """

    def __init__(
        self, inner: FoldTimes, ops: Ops, action_of: NDArray[np.uint8], leads: NDArray[np.bool_], action_count: int
    ) -> None:
        """Fold a ring of ops.

        Args:
            inner: takes every op's times.
            ops: the ring.
            action_of: per op of the ring, which action it belongs to.
            leads: per op, whether an action begins with it; the first one does.
            action_count: how many actions the load has.
        """
        assert len(ops) == len(action_of) == len(leads) and (len(leads) == 0 or leads[0])
        self.control = inner.control
        self._table = ActionTable.blank(action_count)
        self._action_of_kind = _plain(ops, action_of, leads)
        self._inner, self._ops, self._action_of, self._leads = inner, ops, action_of, leads
        self._open_ns = self._open_bytes = 0
        self._open_is_fine = True

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """See `sinks.Sink.store`."""
        self._inner.store(first, start_ns, end_ns, result)
        if not len(start_ns) or self._action_of_kind:
            return
        rows = (first + np.arange(len(start_ns))) % len(self._leads)
        self._fold(rows, end_ns - start_ns, result)

    @property
    def table(self) -> ActionTable:
        """What was achieved."""
        if not self._action_of_kind:
            return self._table
        found, latency = ActionTable.blank(len(self._table.bytes)), self._inner.latency()
        for row, (key, moved) in enumerate(zip(latency.keys, self._inner.moved_bytes().tolist(), strict=True)):
            action = self._action_of_kind[int(key.kind)]
            found.counts[action] += latency.counts[row]
            found.max_ns[action] = max(int(found.max_ns[action]), int(latency.max_ns[row]))
            found.bytes[action] += moved
        return found

    def leads_at(self, first: int, count: int) -> NDArray[np.bool_]:
        """Which of the ops `first`, `first + 1` … (counted over all laps) begin an action."""
        return np.asarray(self._leads[(first + np.arange(count)) % len(self._leads)])

    def _fold(self, rows: Int64s, elapsed_ns: Int64s, result: Int64s) -> None:
        begins = np.flatnonzero(self._leads[rows])
        if not len(begins) or begins[0]:  # an action that began in the chunk before goes on
            begins = np.concatenate([[0], begins])
        sums_ns = np.add.reduceat(elapsed_ns, begins)
        moved = np.add.reduceat(np.maximum(result, 0), begins)
        has_failed = (result < 0) & (-result != self._ops["expect"][rows])
        is_fine = np.add.reduceat(has_failed.astype(np.int64), begins) == 0
        if not self._leads[rows[0]]:
            sums_ns[0] += self._open_ns
            moved[0] += self._open_bytes
            is_fine[0] &= self._open_is_fine
        self._open_ns, self._open_bytes, self._open_is_fine = 0, 0, True
        whole = len(begins)
        if not self._leads[(rows[-1] + 1) % len(self._leads)]:
            whole -= 1
            self._open_ns, self._open_bytes = int(sums_ns[-1]), int(moved[-1])
            self._open_is_fine = bool(is_fine[-1])
        actions = self._action_of[rows[begins[:whole]]]
        self._count(actions, sums_ns[:whole], moved[:whole], is_fine[:whole])

    def _count(self, actions: NDArray[np.uint8], sums_ns: Int64s, moved: Int64s, is_fine: NDArray[np.bool_]) -> None:
        table = self._table
        for action in np.unique(actions).tolist():
            mine = is_fine & (actions == action)
            if not mine.any():
                continue
            table.counts[action] += np.bincount(bucket_index(sums_ns[mine]), minlength=BUCKET_COUNT)
            table.max_ns[action] = max(int(table.max_ns[action]), int(sums_ns[mine].max()))
            table.bytes[action] += int(moved[mine].sum())


def _plain(ops: Ops, action_of: NDArray[np.uint8], leads: NDArray[np.bool_]) -> dict[int, int]:
    """Which action each op kind is, where every op is an action and all of a kind are the same; else nothing."""
    if not leads.all():
        return {}
    pairs = np.unique(ops["kind"].astype(np.int64) * 256 + action_of)
    kinds, actions = (pairs // 256).tolist(), (pairs % 256).tolist()
    return dict(zip(kinds, actions, strict=True)) if len(set(kinds)) == len(kinds) else {}


class AfterRamp:
    """A sink that leaves the ramp out: it hands on from the first action that begins at an instant or later.

    What failed before is an error all the same.
    """

    def __init__(self, inner: FoldActions, fold: FoldTimes, counted_from_ns: int) -> None:
        self.control = inner.control
        self._inner, self._fold, self._counted_from_ns = inner, fold, counted_from_ns
        self._has_begun = False

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """See `sinks.Sink.store`."""
        begin = 0
        if not self._has_begun:
            leads = self._inner.leads_at(first, len(start_ns))
            found = np.flatnonzero(leads & (start_ns >= self._counted_from_ns))
            self._has_begun = len(found) > 0
            begin = int(found[0]) if self._has_begun else len(start_ns)
            self._fold.store_failures(first, start_ns[:begin], result[:begin])
        if begin == len(start_ns):
            return
        self._inner.store(first + begin, start_ns[begin:], end_ns[begin:], result[begin:])
