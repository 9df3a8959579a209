"""A sink for an open-loop load: latency counts from when an op was due, and is told apart by what went on then.

The load runs through a whole round: by itself, beside the save, by itself again, beside the restore. Each
action belongs to the window in which it was due: that is when its user came. Where a window begins may be heard
a little after ops that are due in it have ended, so ops are held back until then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.sinks import CONTROL_SLOTS, Sink

Int64s = NDArray[np.int64]

#: Ops held back: 8 MB. Beyond, what was due so long ago that every window is known is folded.
_HELD_OPS = 1 << 18
_HEARD_WITHIN_NS = 10 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Kept:
    """How a thread kept its schedule in one window.

    Attributes:
        due_count: actions that were due in it.
        ended_count: actions that ended in it, whenever they were due.
        late_ns_max: the latest start after it was due.
    """

    due_count: int = 0
    ended_count: int = 0
    late_ns_max: int = 0


@dataclass(slots=True)
class Window:
    """A stretch of a thread's time, and what was due in it.

    Attributes:
        name: "before the save", "during the save" …; "" for time that nobody asks about.
        begin_ns, end_ns: on this node's clock; the end is that of all time until the next one is heard of.
        inner: what took the ops; None for time that nobody asks about.
    """

    name: str
    begin_ns: int
    end_ns: int
    inner: Sink | None
    due_count: int = 0
    ended_count: int = 0
    late_ns_max: int = 0

    def kept(self) -> Kept:
        """How the schedule was kept."""
        return Kept(self.due_count, self.ended_count, self.late_ns_max)


_FOR_EVER_NS = 1 << 62


class Windows:
    """Takes the times of one thread's ring, and hands them to the window in which they were due.

    Attributes:
        control: see `sinks.Sink`.
    """

    def __init__(self, make_inner: Callable[[], Sink], begins: NDArray[np.bool_], due_ns: Int64s, lap_ns: int) -> None:
        """Fold a ring.

        Args:
            make_inner: a sink for each window that has a name.
            begins: per op of the ring, whether an action that counts begins with it.
            due_ns: per op of the ring, when it is due in the first lap, after the origin.
            lap_ns: how long a lap takes.
        """
        self.control = np.zeros(CONTROL_SLOTS, dtype=np.int64)
        self._make_inner, self._begins, self._due_ns, self._lap_ns = make_inner, begins, due_ns, lap_ns
        self._origin_ns = 0
        self._lock = threading.Lock()
        self._held: list[tuple[int, Int64s, Int64s, Int64s]] = []
        self._held_count = 0
        self._windows = [Window("", 0, _FOR_EVER_NS, None)]

    def begin(self, origin_ns: int) -> None:
        """The schedule begins there; ops of the ring are counted from 0 again."""
        self._origin_ns = origin_ns

    def cut(self, instant_ns: int, name: str) -> None:
        """From that instant on (not before the last one heard of) ops belong to a new window; "" to none."""
        with self._lock:
            self._windows[-1].end_ns = instant_ns
            self._windows.append(Window(name, instant_ns, _FOR_EVER_NS, self._make_inner() if name else None))

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """See `sinks.Sink.store`."""
        if not len(start_ns):
            return
        with self._lock:
            self._held.append((first, start_ns.copy(), end_ns.copy(), result.copy()))
            self._held_count += len(start_ns)
            if self._held_count > _HELD_OPS:
                self._fold(int(start_ns[-1]) - _HEARD_WITHIN_NS)

    def finish(self) -> tuple[Window, ...]:
        """All windows that have a name, in order, once the thread has ended."""
        with self._lock:
            self._fold(_FOR_EVER_NS)
            return tuple(window for window in self._windows if window.inner is not None)

    def _fold(self, until_ns: int) -> None:
        """Hand on what is due before `until_ns`."""
        held, self._held, self._held_count = self._held, [], 0
        for first, start_ns, end_ns, result in held:
            index = first + np.arange(len(start_ns))
            ring = index % len(self._due_ns)
            due_ns = self._origin_ns + (index // len(self._due_ns)) * self._lap_ns + self._due_ns[ring]
            count = int(np.searchsorted(due_ns, until_ns))
            self._hand_on(first, due_ns[:count], start_ns[:count], end_ns[:count], result[:count])
            if count < len(index):
                self._held.append((first + count, start_ns[count:], end_ns[count:], result[count:]))
                self._held_count += len(index) - count

    def _hand_on(self, first: int, due_ns: Int64s, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        leads = self._begins[(first + np.arange(len(due_ns))) % len(self._begins)]
        # What follows within an action began when the op before it ended: their sum is due to end.
        counted_from_ns = np.where(leads, due_ns, start_ns)
        begins = np.array([window.begin_ns for window in self._windows], dtype=np.int64)
        ended = np.bincount(np.searchsorted(begins, end_ns[leads], side="right") - 1, minlength=len(begins))
        edges = [*np.searchsorted(due_ns, begins).tolist(), len(due_ns)]
        for number, window in enumerate(self._windows):
            part = slice(edges[number], edges[number + 1])
            window.ended_count += int(ended[number])
            if window.inner is None or part.start >= part.stop:
                continue
            window.due_count += int(leads[part].sum())
            late_ns = (start_ns - due_ns)[part][leads[part]]
            window.late_ns_max = max(window.late_ns_max, int(late_ns.max(initial=0)))
            window.inner.store(first + part.start, counted_from_ns[part], end_ns[part], result[part])
