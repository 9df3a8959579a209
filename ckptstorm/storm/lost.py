"""Which ranks are lost: died, stopped, stuck in an op, or silent; told from board lines, whoever looks at them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.cluster.slots import GONE, STOPPED, Ages, State
from ckptstorm.measure.rows import Phase
from ckptstorm.units import time_text

How = Literal["died", "stopped", "stuck", "silent"]

#: A rank whose process lives and only does not answer gets this much longer: its main thread may be making
#: buffers or, on rank 0, writing the journal. Progress of ops is looked at without it.
_SILENCE_NS = 30 * NS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class Lost:
    """A rank that nobody can wait for any more.

    Attributes:
        rank: which.
        how: died: its process is no more. stopped: by a signal. stuck: one op does not return.
            silent: its main thread does not look at anything.
        for_ns: how long nothing has changed.
        line: its board line.
    """

    rank: int
    how: How
    for_ns: int
    line: np.void

    def sentence(self, host: str, what: str) -> str:
        """Who, where, how long, at what; `what` is "write at offset 8192 of step-1/__3_0.distcp"."""
        number = int(self.line["phase"])
        phase = f"the {Phase(number).word}" if number else "the start"
        who, long = f"rank {self.rank} on {host}", time_text(self.for_ns)
        process = f"process {int(self.line['pid'])}"
        if self.how == "died":
            return f"{who} died in {phase} ({process}: killed, crashed, or out of memory), last seen at {what}"
        if self.how == "stopped":
            return f"{who} made no progress in {phase} for {long}: {what} ({process} is stopped: kill -CONT wakes it)"
        if self.how == "stuck":
            return f"{who} made no progress in {phase} for {long}: {what}"
        return f"{who} has not answered in {phase} for {long} (its node may be gone), last seen at {what}"


class Finder:
    """Looks at all lines again and again; remembers since when each has not changed."""

    def __init__(self, timeout_ns: int, silence_ns: int = _SILENCE_NS) -> None:
        self._timeout_ns, self._silence_ns = timeout_ns, silence_ns
        self._ages = Ages()

    def find(self, lines: NDArray[np.void], now_ns: int) -> list[Lost]:
        """The lost ranks, those first whose loss explains the others'."""
        idle_ns = self._ages.look(lines, "ops_done", now_ns)
        quiet_ns = self._ages.look(lines, "beat", now_ns)
        state_ns = self._ages.look(lines, "state", now_ns)
        is_storming = lines["state"] != State.ENDED
        is_dead = lines["process"] == GONE
        is_stopped = np.isin(lines["process"], STOPPED)
        is_stuck = (lines["state"] == State.RUNNING) & (np.minimum(idle_ns, state_ns) > self._timeout_ns)
        is_quiet = quiet_ns > self._timeout_ns
        kinds: tuple[tuple[How, NDArray[np.bool_]], ...] = (
            ("died", is_dead),
            ("stopped", is_stopped & is_quiet),
            ("stuck", is_stuck & ~is_stopped & ~is_dead),
            ("silent", (quiet_ns > self._timeout_ns + self._silence_ns) & ~is_stuck & ~is_stopped & ~is_dead),
        )
        found = []
        for how, mask in kinds:
            still_ns = np.minimum(idle_ns, state_ns) if how == "stuck" else quiet_ns
            at = np.flatnonzero(mask & is_storming)
            for index in at[np.argsort(-still_ns[at], kind="stable")]:
                found.append(Lost(int(lines["rank"][index]), how, int(still_ns[index]), lines[index]))
        return found
