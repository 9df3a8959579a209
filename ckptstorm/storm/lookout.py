"""Rank 0's view of all ranks while they work: live progress, and the rank that has stopped making any."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster.board import State
from ckptstorm.errors import LostRankError
from ckptstorm.measure.rows import Phase
from ckptstorm.units import bytes_text, rate_text, time_text

#: A terminal's line is rewritten this often; a log gets a line this often.
_TERMINAL_NS, _LOG_NS = NS_PER_S // 4, 5 * NS_PER_S
#: Shorter phases pass without a word.
_QUIET_NS = NS_PER_S // 2

#: Names an op of a rank: (rank, phase, board line) -> "write at offset 8192 of step-1/__3_0.distcp".
Namer = Callable[[int, Phase, np.void], str]


class LookOut:
    """Progress and time-outs; called with every board line that is known."""

    def __init__(self, timeout_ns: int, host_of: Callable[[int], str], name_op: Namer) -> None:
        self._timeout_ns, self._host_of, self._name_op = timeout_ns, host_of, name_op
        self._is_terminal = sys.stderr.isatty()
        self._now: tuple[Phase, int] | None = None
        self._began_ns = self._said_ns = 0
        self._has_line = False

    def __call__(self, phase: Phase, round_number: int, lines: NDArray[np.void]) -> None:
        """Look; raises LostRankError when a rank has been stuck in one op for too long."""
        now = monotonic_ns()
        if self._now != (phase, round_number):
            self.end_line()
            self._now, self._began_ns, self._said_ns = (phase, round_number), now, now
        self._refuse_to_hang(phase, lines)
        interval = _TERMINAL_NS if self._is_terminal else _LOG_NS
        if now - self._said_ns >= interval and now - self._began_ns >= _QUIET_NS:
            self._said_ns = now
            self._say(phase, round_number, lines, (now - self._began_ns) / NS_PER_S)

    def end_line(self) -> None:
        """Leave the terminal's line clean for what comes next."""
        if self._has_line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._has_line = False

    def _say(self, phase: Phase, round_number: int, lines: NDArray[np.void], seconds: float) -> None:
        done = int(np.count_nonzero(lines["state"] == State.DONE))
        moved = int(lines["bytes_moved"].sum())
        which = f"round {round_number}" if round_number >= 1 else "warm-up"
        text = (
            f"{which} {phase.word}: {done} of {len(lines)} ranks done, "
            f"{bytes_text(moved)}, {rate_text(moved / seconds)}, {time_text(seconds * NS_PER_S)}"
        )
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[K{text[:79]}")
            self._has_line = True
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def _refuse_to_hang(self, phase: Phase, lines: NDArray[np.void]) -> None:
        stuck = (lines["state"] == State.RUNNING) & (lines["since_ns"] > self._timeout_ns)
        if not stuck.any():
            return
        self.end_line()
        worst = lines[stuck][int(lines[stuck]["since_ns"].argmax())]
        rank = int(worst["rank"])
        count = int(np.count_nonzero(stuck))
        others = f"; {count - 1} other ranks are stuck too" if count > 1 else ""
        raise LostRankError(
            f"rank {rank} on {self._host_of(rank)} made no progress in the {phase.word} for "
            f"{time_text(int(worst['since_ns']))}: {self._name_op(rank, phase, worst)}"
            f"{others}",
            "raise [storm] timeout if the storage may take longer; then remove the files with ckptstorm clean",
        )
