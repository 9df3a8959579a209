"""An open loop for engines that keep no schedule themselves: action by action, in Python, a few hundred a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.engines.contract import Notes, Repeating
from ckptstorm.loads.contract import Thread
from ckptstorm.program import Program
from ckptstorm.sinks import STOP, Shifted, Sink

_NAP_S = 0.02


def scheduled(prepared: Repeating, thread: Thread, program: Program) -> Repeating:
    """The program as it is, when its engine keeps the schedule; else kept for it."""
    return prepared if hasattr(prepared, "schedule") else Scheduled(prepared, thread, program)


class Scheduled:
    """A prepared program whose actions are begun when they are due; see `contract.Repeating`."""

    def __init__(self, inner: Repeating, thread: Thread, program: Program) -> None:
        self._inner = inner
        due_ns = program.due_ns
        assert due_ns is not None
        self._due_ns = due_ns
        self._begins = [*(thread.first + np.flatnonzero(thread.leads)).tolist(), thread.stop]
        self._origin_ns = self._lap_ns = 0

    def schedule(self, origin_ns: int, lap_ns: int = 0) -> None:
        """From when due times count, and how long a lap takes."""
        self._origin_ns, self._lap_ns = origin_ns, lap_ns

    def run(self, sink: Sink, first: int, stop: int) -> int:
        """See `contract.Prepared.run`; what is not of the ring is due at once."""
        return self._inner.run(sink, first, stop)

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
        total, lap = 0, 0
        while op_limit is None or total < op_limit:
            shifted = Shifted(sink, lap * (stop - first) - first)
            for begin, end in zip(self._begins, self._begins[1:], strict=False):
                due_ns = self._origin_ns + lap * self._lap_ns + int(self._due_ns[begin])
                if due_ns >= deadline_ns or not _wait(sink, due_ns):
                    return total
                done = self._inner.run(shifted, begin, end)
                total += done - begin
                if done < end:
                    return total
            lap += 1
            if refill is not None:
                refill()
        return total

    def finish(self) -> Notes:
        """See `contract.Prepared.finish`."""
        return self._inner.finish()


def _wait(sink: Sink, due_ns: int) -> bool:
    """Until then; False when the sink asks to stop."""
    while not sink.control[STOP]:
        left_ns = due_ns - monotonic_ns()
        if left_ns <= 0:
            return True
        time.sleep(min(_NAP_S, left_ns / NS_PER_S))
    return False
