"""A sink for an open-loop load that runs alone: the time of an action counts from when it was due."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ckptstorm.sinks import Int64s, Sink


class FromDue:
    """Hands ops on with the due time of an action as the start of its first op.

    Attributes:
        control: the inner sink's.
    """

    def __init__(self, inner: Sink, begins: NDArray[np.bool_], due_ns: Int64s, origin_ns: int, lap_ns: int) -> None:
        """Take the times of a ring.

        Args:
            inner: takes them on.
            begins: per op of the ring, whether an action that counts begins with it.
            due_ns: per op of the ring, when it is due in the first lap, after the origin.
            origin_ns: on CLOCK_MONOTONIC: when the schedule begins.
            lap_ns: how long a lap takes.
        """
        self.control = inner.control
        self._inner, self._begins, self._due_ns = inner, begins, due_ns
        self._origin_ns, self._lap_ns = origin_ns, lap_ns

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """See `sinks.Sink.store`."""
        index = first + np.arange(len(start_ns))
        ring = index % len(self._due_ns)
        due_ns = self._origin_ns + (index // len(self._due_ns)) * self._lap_ns + self._due_ns[ring]
        # What follows within an action began when the op before it ended: their sum counts from its due time.
        self._inner.store(first, np.where(self._begins[ring], due_ns, start_ns), end_ns, result)
