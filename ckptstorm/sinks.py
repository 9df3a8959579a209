"""Where an engine leaves its times, how far it has come, and whether it should stop.

Times are stored between ops, never between the two clock reads around one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

#: A deadline that does not come.
NEVER_NS = (1 << 63) - 1
#: Slots of `Sink.control`, an int64 array that two threads share without a lock.
#: The engine writes OPS_DONE and BYTES_MOVED; the main thread reads them and writes STOP.
OPS_DONE, BYTES_MOVED, STOP, CONTROL_SLOTS = 0, 1, 2, 8


@dataclass(frozen=True, slots=True, eq=False)
class OpTimes:
    """One row for one op of a program, in its order.

    Attributes:
        start_ns, end_ns: CLOCK_MONOTONIC of this node, just before and after the call; 0 for an op not run.
        result: bytes moved (0 for ops that move none), or minus the errno.
    """

    start_ns: Int64s
    end_ns: Int64s
    result: Int64s

    @classmethod
    def empty(cls, count: int) -> OpTimes:
        """Room for `count` ops, touched, so that no page fault falls into the storm."""
        return cls(*(np.full(count, 0, dtype=np.int64) for _ in range(3)))


class Sink(Protocol):
    """What an engine needs of a sink."""

    control: Int64s

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """Take the times of the ops `first`, `first + 1`, … (arrays of equal length, reused by the caller)."""


class KeepTimes:
    """A sink that keeps every op's times."""

    def __init__(self, op_count: int) -> None:
        self.times = OpTimes.empty(op_count)
        self.control = np.zeros(CONTROL_SLOTS, dtype=np.int64)

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """See `Sink.store`."""
        stop = first + len(start_ns)
        self.times.start_ns[first:stop] = start_ns
        self.times.end_ns[first:stop] = end_ns
        self.times.result[first:stop] = result


class Shifted:
    """A sink that counts its ops from elsewhere: for laps of a ring, each of which an engine numbers alike."""

    def __init__(self, sink: Sink, by: int) -> None:
        self.control = sink.control
        self._sink, self._by = sink, by

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """See `Sink.store`."""
        self._sink.store(first + self._by, start_ns, end_ns, result)
