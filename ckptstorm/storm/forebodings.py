"""Nodes that have fallen silent, told at once: a launcher may kill us all before `[storm] timeout` has passed.

`srun --wait` ends the ranks that are left some time after the first one died, without a signal that could be
heard; a batch system that finds a node dead does alike. So what rank 0 fears is said and journalled early, and
withdrawn when the node answers again. It ends nothing: that is for the look-out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster.slots import Ages, State
from ckptstorm.measure.rows import Phase
from ckptstorm.record import last_words
from ckptstorm.storm.lookout import Names
from ckptstorm.storm.lost import Lost

#: Thirty heartbeats; well below the 30 s that our batch scripts give `srun --wait`.
SILENCE_NS = 8 * NS_PER_S


class Forebodings:
    """Rank 0's: which other nodes show no sign of life, all their ranks alike."""

    def __init__(self, names: Names, partial: Path, silence_ns: int = SILENCE_NS) -> None:
        self._names, self._partial, self._silence_ns = names, partial, silence_ns
        self._ages = Ages()
        self._told: tuple[int, ...] = ()

    def look(self, phase: Phase, round_number: int, lines: NDArray[np.void]) -> None:
        """Say what has changed since the last look."""
        del phase, round_number
        silent = self.find(lines, monotonic_ns())
        ranks = tuple(one.rank for one in silent)
        if ranks == self._told:
            return
        self._told = ranks
        if silent:
            sentence = self._names.sentences(silent)
            last_words.forebode(self._partial, sentence)
        else:
            sentence = "all nodes answer again"
            last_words.withdraw(self._partial)
        sys.stderr.write(f"ckptstorm: {sentence}\n")
        sys.stderr.flush()

    def find(self, lines: NDArray[np.void], now_ns: int) -> list[Lost]:
        """The ranks of silent nodes. A rank of rank 0's own node is seen by its process, never by silence."""
        quiet_ns = self._ages.look(lines, "beat", now_ns)
        quiet_ns[lines["state"] == State.ENDED] = 0
        node_of = lines["node"].astype(np.intp)
        of_node_ns = np.full(int(node_of.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(of_node_ns, node_of, quiet_ns)
        is_silent = (of_node_ns[node_of] >= self._silence_ns) & (node_of != node_of[0])
        return [
            Lost(int(lines["rank"][at]), "silent", int(quiet_ns[at]), lines[at]) for at in np.flatnonzero(is_silent)
        ]
