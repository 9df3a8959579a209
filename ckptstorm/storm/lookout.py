"""The view of all ranks while they work: live progress, and the rank that has stopped making any."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster.slots import State
from ckptstorm.errors import LostRankError
from ckptstorm.job import Job
from ckptstorm.measure.rows import Phase
from ckptstorm.storm.lost import Finder, Lost
from ckptstorm.units import bytes_text, rate_text, time_text

#: A terminal's line is rewritten this often; a log gets a line this often.
_TERMINAL_NS, _LOG_NS = NS_PER_S // 4, 5 * NS_PER_S
#: Shorter phases pass without a word.
_QUIET_NS = NS_PER_S // 2
#: So many lost ranks are named one by one.
_NAMED = 4
_REMEDY = 'raise [storm] timeout if the storage may take longer, or let it be waited for: on_timeout = "wait"'

#: Names the op of a board line: "write at offset 8192 of __3_0.distcp".
Namer = Callable[[np.void], str]


@dataclass(frozen=True, slots=True)
class Names:
    """How ranks and their ops are called."""

    host_of: Callable[[int], str]
    op_of: Namer

    def sentence(self, lost: Lost) -> str:
        """One lost rank in full."""
        return lost.sentence(self.host_of(lost.rank), self.op_of(lost.line))

    def sentences(self, lost: list[Lost]) -> str:
        """The first few in full, the rest counted."""
        named = [self.sentence(one) for one in lost[:_NAMED]]
        more = len(lost) - len(named)
        others = [f"{more} other ranks are lost too"] if more > 1 else ["one other rank is lost too"] if more else []
        return "; ".join(named + others)


class Patience:
    """What happens after `[storm] timeout`: the storm ends, or the rank is named again and again and waited for.

    Attributes:
        waits: each wait that was told, as plain values for the record.
    """

    def __init__(self, names: Names, timeout_ns: int, on_timeout: Literal["stop", "wait"]) -> None:
        self._names, self._timeout_ns, self._on_timeout = names, timeout_ns, on_timeout
        self._told_ns: dict[int, int] = {}
        self._open: dict[int, dict[str, Any]] = {}
        self.waits: list[dict[str, Any]] = []

    def judge(self, lost: list[Lost]) -> list[str]:
        """What is to be said of these.

        Raises:
            LostRankError: a rank died, or is lost and the job does not wait.
        """
        if lost and (self._on_timeout == "stop" or lost[0].how == "died"):
            raise LostRankError(self._names.sentences(lost), "" if lost[0].how == "died" else _REMEDY)
        return [*self._going_on({one.rank for one in lost}), *self._waiting(lost)]

    def _waiting(self, lost: list[Lost]) -> list[str]:
        said = []
        for one in lost:
            if one.rank not in self._open:
                what, line = self._names.op_of(one.line), one.line
                wait = {"rank": one.rank, "host": self._names.host_of(one.rank), "op": what, "seconds": 0.0}
                wait |= {
                    "phase": Phase(int(line["phase"])).word if int(line["phase"]) else "",
                    "round": int(line["round"]),
                }
                self._open[one.rank] = wait
                self.waits.append(wait)
            self._open[one.rank]["seconds"] = one.for_ns / NS_PER_S
            if one.for_ns - self._told_ns.get(one.rank, 0) >= self._timeout_ns:
                self._told_ns[one.rank] = one.for_ns
                said.append(f"{self._names.sentence(one)}; waiting")
        return said

    def _wait_of(self, one: Lost) -> dict[str, Any]:
        where, phase = self._names.host_of(one.rank), int(one.line["phase"])
        wait = {"rank": one.rank, "host": where, "op": self._names.op_of(one.line), "seconds": 0.0}
        return wait | {"phase": Phase(phase).word if phase else "", "round": int(one.line["round"])}

    def _going_on(self, still: set[int]) -> list[str]:
        said = []
        for rank in [rank for rank in self._open if rank not in still]:
            wait = self._open.pop(rank)
            self._told_ns.pop(rank, None)
            said.append(f"rank {rank} on {wait['host']} goes on after {time_text(int(wait['seconds'] * NS_PER_S))}")
        return said


def look_out(job: Job, names: Names) -> LookOut:
    """A look-out as the job asks for it."""
    timeout_ns = int(job.storm.timeout)
    return LookOut(Finder(timeout_ns), Patience(names, timeout_ns, job.storm.on_timeout))


class LookOut:
    """Progress and time-outs; called with every board line that is known.

    Attributes:
        patience: what is made of lost ranks.
    """

    def __init__(self, finder: Finder, patience: Patience) -> None:
        self._finder, self.patience = finder, patience
        self._is_terminal = sys.stderr.isatty()
        self._now: tuple[Phase, int] | None = None
        self._began_ns = self._said_ns = 0
        self._has_line = False

    def __call__(self, phase: Phase, round_number: int, lines: NDArray[np.void]) -> None:
        """Look; raises LostRankError when a rank is lost and the job does not wait for it."""
        now = monotonic_ns()
        if self._now != (phase, round_number):
            self.end_line()
            self._now, self._began_ns, self._said_ns = (phase, round_number), now, now
        self._judge(lines, now)
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

    def _judge(self, lines: NDArray[np.void], now_ns: int) -> None:
        lost = self._finder.find(lines, now_ns)
        if lost:
            self.end_line()
        for sentence in self.patience.judge(lost):
            sys.stderr.write(f"ckptstorm: {sentence}\n")
            sys.stderr.flush()

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
