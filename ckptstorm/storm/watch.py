"""What the main thread does while it waits: signals, the rank's board line, heartbeats, progress, time-outs."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ckptstorm.cluster.board import Board
from ckptstorm.cluster.slots import State
from ckptstorm.measure.rows import Phase
from ckptstorm.program import Program
from ckptstorm.sinks import BYTES_MOVED, OPS_DONE, STOP, Sink


class Underway(Protocol):
    """A program that is running."""

    @property
    def program(self) -> Program:
        """What is to be run."""

    @property
    def sink(self) -> Sink:
        """Where its times go."""

    @property
    def started_ns(self) -> int:
        """When it began; 0 while it waits for its release."""


#: What rank 0 does with everyone's board lines (progress, time-outs); it may raise.
LookOut = Callable[[Phase, int, NDArray[np.void]], None]


#: What a board line has room for.
_ROUND_MOST, _PROGRAM_MOST = (1 << 15) - 1, (1 << 16) - 1

#: How often a helper keeps the line of a main thread that runs ops itself.
_PULSE_S = 0.1


class StopSignals:
    """Signals that ask the storm to end in order; nothing is cut off in the middle of a call.

    SIGUSR1 is what a batch system is asked to send some time before the limit (`--signal=USR1@120`).
    """

    def __init__(self) -> None:
        self.is_raised = False
        self._before = {
            number: signal.signal(number, self._take)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
        }

    def _take(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.is_raised = True

    def give_back(self) -> None:
        """Restore the handlers that were there before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Watch:
    """One rank's main thread, while others work.

    Attributes:
        is_stopping: the storm is to end: running programs were told to stop, later ones do not start.
        is_sync_due: the phase under way claims that each file is synced after its last write.
    """

    def __init__(self, board: Board, signals: StopSignals, look_out: LookOut | None) -> None:
        self._board, self._signals, self._look_out = board, signals, look_out
        self._phase, self._round = Phase.PREPARE, 0
        self._legs: Sequence[Underway] = ()
        self._all_legs: Sequence[Underway] = ()
        self._is_looking = False
        self.is_stopping = False
        self.is_sync_due = False

    def begin(self, phase: Phase, round_number: int, legs: Sequence[Underway]) -> None:
        """A phase is about to start, with these programs in all."""
        self._phase, self._round, self._all_legs = phase, round_number, legs
        self._board.mine["phase"], self._board.mine["round"] = int(phase), min(round_number, _ROUND_MOST)
        self._board.mine["kind"] = 0
        self.waiting()

    def running(self, legs: Sequence[Underway]) -> None:
        """These programs run from now on."""
        self._legs = legs
        self._line(State.RUNNING)

    def waiting(self) -> None:
        """This rank waits for others."""
        self._legs = ()
        self._line(State.WAITING)

    def done(self) -> None:
        """This rank has finished the phase."""
        self._legs = ()
        self._line(State.DONE)

    def stop(self) -> None:
        """End the storm in order: tell what runs to stop."""
        self.is_stopping = True
        for leg in self._legs:
            leg.sink.control[STOP] = 1

    def resume(self) -> None:
        """Go on after a stop: the clean-up must run. A second signal stops that too."""
        self.is_stopping = self._signals.is_raised = False

    def sleep(self, seconds: float) -> None:
        """A short sleep that still looks at everything."""
        time.sleep(max(0.0, seconds))
        self.tick()

    @contextlib.contextmanager
    def pulse(self) -> Iterator[None]:
        """While inside, the main thread itself runs ops and looks at nothing: a helper keeps its board line."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(_PULSE_S):
                self._board.mine["beat"] += 1
                self._line(State.RUNNING)

        helper = threading.Thread(target=keep, daemon=True)
        helper.start()
        try:
            yield
        finally:
            over.set()
            helper.join()

    def tick(self) -> None:
        """Look at all there is to look at; runs while waiting, so it must be quick, and must not wait itself."""
        if self._is_looking:
            return
        self._is_looking = True
        try:
            if self._signals.is_raised:
                self.stop()
            self._board.mine["beat"] += 1
            if self._legs:
                self._line(State.RUNNING)
            if self._board.beat() and self._look_out is not None:
                self._look_out(self._phase, self._round, self._board.everyone())
        finally:
            self._is_looking = False

    def _line(self, state: State) -> None:
        line = self._board.mine
        done = sum(int(leg.sink.control[OPS_DONE]) for leg in self._all_legs)
        line["bytes_moved"] = sum(int(leg.sink.control[BYTES_MOVED]) for leg in self._all_legs)
        if state == State.RUNNING and not any(leg.started_ns for leg in self._legs):
            state = State.WAITING  # for its own release, which skew or stagger may have put off
        line["ops_done"], line["state"] = done, int(state)
        for leg in self._legs:
            index = int(leg.sink.control[OPS_DONE])
            if index < len(leg.program.ops):
                row = leg.program.ops[index]
                line["kind"], line["file"], line["offset_bytes"] = row["kind"], row["file"], row["offset_bytes"]
                line["program"] = min(self._all_legs.index(leg), _PROGRAM_MOST)
                break
