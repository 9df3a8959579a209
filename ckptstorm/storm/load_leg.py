"""One thread of a load: opens, a ramp that counts for nothing, the ring that is measured, closes."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from ckptstorm.engines.contract import Repeating
from ckptstorm.loads.contract import Refill, Stage, Thread
from ckptstorm.measure.actions import AfterRamp, FoldActions
from ckptstorm.measure.folding import Failed, FoldTimes
from ckptstorm.program import Program
from ckptstorm.sinks import NEVER_NS, STOP, KeepTimes, Shifted, Sink
from ckptstorm.storm.phase import Leg


class LoadLeg(Leg):
    """A program of a load on its own thread.

    Attributes:
        fold, actions: what the ring was seen to do.
        opening, closing: the ops before and after it.
        ring_ops_run: over all laps, those of the ramp among them.
    """

    def __init__(self, stage: Stage, thread: Thread, program: Program, prepared: Repeating) -> None:
        """Take a thread of a stage.

        Args:
            stage: whose.
            thread: its ring.
            program: the thread's, in the load's directory; it shares the thread's op table.
            prepared: that program.
        """
        super().__init__(program, prepared, "data")
        self.thread, self._stage, self._repeating = thread, stage, prepared
        ring = program.ops[thread.first : thread.stop]
        self.fold = FoldTimes(program, thread.first, thread.stop)
        self.actions = FoldActions(self.fold, ring, thread.action_of, thread.leads, len(stage.actions))
        self.opening, self.closing = KeepTimes(thread.first), KeepTimes(len(program.ops) - thread.stop)
        self.opening.control = self.closing.control = self.fold.control
        self.sink = self.opening  # its control is everybody's
        self.ring_ops_run = 0
        self._has_opened = self._has_closed = False
        self._refiller = None if thread.refill is None else Refiller(thread)

    @property
    def is_whole(self) -> bool:
        """Whether it opened, ran its amount (or its time), and closed."""
        wanted = self.thread.op_limit
        has_run = self.ring_ops_run == wanted if wanted is not None else not self.fold.control[STOP]
        return self._has_opened and self._has_closed and has_run and not self.failed

    @property
    def failed(self) -> tuple[Failed, ...]:
        """Every class of errors, of the ring and of the ops around it."""
        around = []
        for first, times in ((0, self.opening.times), (self.thread.stop, self.closing.times)):
            for at in np.flatnonzero((times.end_ns > 0) & (times.result < 0)).tolist():
                row, errno = self.program.ops[first + at], -int(times.result[at])
                if errno != int(row["expect"]):
                    around.append(Failed(int(row["kind"]), errno, first + at, int(times.start_ns[at]), 1))
        return (*self.fold.failed.values(), *around)

    @property
    def has_failed(self) -> bool:
        """See `Leg.has_failed`."""
        return not self.is_whole

    def _run(self) -> None:
        thread, stage = self.thread, self._stage
        counted_from_ns = self.release_ns + stage.ramp_ns
        self.fold.origin_ns = counted_from_ns
        try:
            self._has_opened = self.prepared.run(self.opening, 0, thread.first) == thread.first
            if self._has_opened and thread.stop > thread.first:
                deadline_ns = counted_from_ns + stage.duration_ns if stage.duration_ns else NEVER_NS
                self.ring_ops_run = self._repeating.repeat(
                    self._ring_sink(), thread.first, thread.stop, deadline_ns, thread.op_limit, self._refiller
                )
            if self._has_opened:
                self._close()
        finally:
            if self._refiller is not None:
                self._refiller.end()
        self.ops_run = len(thread.program.ops) if self.is_whole else 0

    def _ring_sink(self) -> Sink:
        """Where the times of the ring go."""
        ramp_ns = self._stage.ramp_ns
        return AfterRamp(self.actions, self.fold, self.release_ns + ramp_ns) if ramp_ns else self.actions

    def _close(self) -> None:
        """Also after a stop: what is open is closed, and a sync that was asked for is made."""
        count = len(self.thread.program.ops)
        shifted = Shifted(self.closing, -self.thread.stop)
        self._has_closed = self.prepared.run(shifted, self.thread.stop, count) == count

    @property
    def last_end_ns(self) -> int:
        """When the last op that counts had returned: of the ring, or the sync after it."""
        syncs = len(self.closing.times.end_ns) > 1
        return max(self.fold.last_end_ns, int(self.closing.times.end_ns[-2]) if syncs else 0)


class Refiller:
    """Writes the offsets of the next lap into a ring; they are drawn while the lap before it runs.

    Attributes:
        lap: which one stands in the ring.
    """

    def __init__(self, thread: Thread) -> None:
        self.lap = 0
        self._offsets = thread.program.ops["offset_bytes"][thread.first : thread.stop]
        assert thread.refill is not None
        self._draw: Refill = thread.refill
        self._next: NDArray[np.uint64] | None = None
        self._wanted, self._ready = threading.Event(), threading.Event()
        self._is_ending = False
        self._helper: threading.Thread | None = None

    def __call__(self) -> None:
        """Put the next lap into the table."""
        if self._helper is None:
            self._next = self._draw(self.lap + 1)
            self._helper = threading.Thread(target=self._help, daemon=True)
            self._helper.start()
        else:
            self._ready.wait()
        assert self._next is not None
        self._offsets[:] = self._next
        self.lap += 1
        self._ready.clear()
        self._wanted.set()

    def end(self) -> None:
        """No more laps."""
        self._is_ending = True
        self._wanted.set()

    def _help(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            if self._is_ending:
                return
            self._next = self._draw(self.lap + 1)
            self._ready.set()
