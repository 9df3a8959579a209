"""The parent of the ranks: no MPI process, so it is left when ranks die or hang, and ends the storm in order.

It reads the same board as rank 0. A rank that dies is named at once; a hung one is named by rank 0, and by
the parent when rank 0 is the one that hangs. Whatever happened, no process is left that can be ended.
"""

from __future__ import annotations

import os
import platform
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster import launch, slots
from ckptstorm.cluster.forward import Forward
from ckptstorm.cluster.offer import Offer
from ckptstorm.cluster.slots import State
from ckptstorm.errors import EXIT_INTERRUPTED, EXIT_LOST_RANK, LostRankError
from ckptstorm.job import Job
from ckptstorm.model.parallel import World
from ckptstorm.record import last_words
from ckptstorm.storm.lookout import Names, Patience
from ckptstorm.storm.lost import Finder, Lost
from ckptstorm.storm.naming import OpNamer
from ckptstorm.storm.recorder import partial_folder

_LOOK_MS = 250
#: Rank 0 names a hung rank first; the parent only when that did not happen.
_RANK_0_FIRST_NS = 5 * NS_PER_S
#: A launcher cleans up after a dead rank, or an abort, within a second; then it is ended too.
_CLEAN_UP_NS = 10 * NS_PER_S
_END_S = 5.0
#: The first signal ends the storm in order, the second its clean-up; after them nobody waits any more.
_SIGNALS_BORNE = 2


@dataclass(frozen=True, slots=True)
class Ended:
    """How a world of ranks ended.

    Attributes:
        exit_code: for the shell.
        lost: who was lost, one sentence; "" when the ranks ended in order, or told it themselves.
        lost_ranks: their numbers, when the parent saw it.
        lost_ns: when the parent knew of it, on its monotonic clock; 0 when nobody was lost.
        partial: the journal that a lost storm left; None when there is none.
    """

    exit_code: int
    lost: str = ""
    lost_ranks: tuple[int, ...] = ()
    lost_ns: int = 0
    partial: Path | None = None


def run_world(job: Job, rank_count: int, results: str, block_size_bytes: int, arguments: list[str]) -> Ended:
    """Start the ranks, look after them until all have ended, whatever happens to them.

    Raises:
        LaunchError: they cannot be started.
    """
    launch.adopt_orphans()
    offer = Offer(rank_count)
    try:
        process = launch.start(rank_count, arguments, offer.environment())
        assert process.stdout is not None
        said = Forward(process.stdout)
        with launch.passing_signals_on(process) as signals:
            parent = _Parent(job, results, block_size_bytes, offer, process)
            code, left = parent.look_after(signals)
        said.finish(_END_S)
        return parent.ended(code, left, is_interrupted=bool(signals))
    finally:
        offer.close()


class _Parent:
    """One world's end, from outside."""

    def __init__(
        self, job: Job, results: str, block_size_bytes: int, offer: Offer, process: subprocess.Popen[bytes]
    ) -> None:
        self._job, self._results, self._block_size_bytes = job, results, block_size_bytes
        self._offer, self._process = offer, process
        self._deaths = _Deaths(offer)
        timeout_ns = int(job.storm.timeout)
        self._finder = Finder(timeout_ns + _RANK_0_FIRST_NS)
        self._names = Names(self._host_of, self._op_of)
        self._patience = Patience(self._names, timeout_ns, job.storm.on_timeout)
        self._lost, self._lost_ns, self._sentence = list[Lost](), 0, ""

    def look_after(self, signals: list[int]) -> tuple[int | None, list[int]]:
        """Until the launcher has ended, or was ended.

        Returns:
            Its exit code, None when it did not end by itself; and the processes that cannot be ended.
        """
        while self._process.poll() is None:
            self._deaths.wait(_LOOK_MS)
            self._sentence = self._sentence or self._look()
            is_overdue = self._lost_ns and monotonic_ns() - self._lost_ns > _CLEAN_UP_NS
            if is_overdue or len(signals) > _SIGNALS_BORNE:
                break
        code = self._process.poll()
        return code, [] if self._is_orderly(code) else launch.end_descendants(_END_S)

    def ended(self, code: int | None, left: list[int], *, is_interrupted: bool) -> Ended:
        """How it ended; says who was lost, and leaves last words in the journal."""
        if self._is_orderly(code):
            return Ended(int(code or 0))
        if is_interrupted and not self._sentence and not self._lost_ns:
            return Ended(EXIT_INTERRUPTED)  # before the ranks were up, there was nobody to answer
        return self._lost_world(self._sentence or self._dead_sentence(code), left)

    def _is_orderly(self, code: int | None) -> bool:
        """The launcher's code is one of ours, and no rank vanished in the middle of a storm."""
        is_ours = code in (*launch.ORDERLY, -signal.SIGPIPE) and code != EXIT_LOST_RANK
        return (
            is_ours and not self._sentence and not self._offer.is_ending and not self._deaths.dead(self._deaths.lines())
        )

    def _look(self) -> str:
        """Who hangs by now; "" when nobody does, rank 0 has told it, or a launcher cleans up after a death."""
        lines = self._deaths.lines()
        if self._lost_ns:
            return ""
        self._lost = self._deaths.dead(lines)
        if self._lost or self._offer.is_ending:
            self._lost_ns = monotonic_ns()
            return ""
        lost = self._finder.find(lines, monotonic_ns())
        is_rank_0_lost = any(one.rank == 0 and one.how != "stuck" for one in lost)
        if self._job.storm.on_timeout == "wait" and not is_rank_0_lost:
            lost = []  # rank 0 tells it again and again
        try:
            said = self._patience.judge(lost)
        except LostRankError as error:
            self._lost, self._lost_ns = lost, monotonic_ns()
            launch.end_descendants(_END_S)
            return str(error)
        for sentence in said:
            _say(sentence)
        return ""

    def _dead_sentence(self, code: int | None) -> str:
        """Who died; "" when a rank has told it itself, and aborted the others."""
        if self._offer.is_ending or code == EXIT_LOST_RANK:
            return ""
        if not self._lost:
            return f"a rank was lost: mpiexec ended with {code}"
        return self._names.sentences(self._lost)

    def _lost_world(self, sentence: str, left: list[int]) -> Ended:
        if sentence:
            _say(sentence)
        for pid in left:
            _say(f"process {pid} does not end: it waits inside the kernel for the storage, and goes when that answers")
        storm_id = self._offer.storm_id
        partial = partial_folder(self._results, storm_id) if storm_id else None
        if partial is not None and not partial.is_dir():
            partial = None
        if partial is not None and sentence:
            last_words.say(partial, sentence)
        ranks = tuple(one.rank for one in self._lost)
        return Ended(EXIT_LOST_RANK, sentence, ranks, self._lost_ns or monotonic_ns(), partial)

    def _host_of(self, rank: int) -> str:
        node = int(self._offer.shared.slots["node"][rank])
        return platform.node() if node == int(self._offer.shared.slots["node"][0]) else f"node {node}"

    def _op_of(self, line: np.void) -> str:
        nodes = self._offer.shared.slots["node"]
        world = World(len(nodes), tuple(int(node) for node in nodes))
        return OpNamer(self._job, world, self._block_size_bytes).name(line)


class _Deaths:
    """The processes of this node's ranks, each held by a descriptor that tells of its end at once."""

    def __init__(self, offer: Offer) -> None:
        self._offer, self._poll = offer, select.poll()
        self._fds: dict[int, int] = {}
        self._first: tuple[int, ...] = ()

    def wait(self, patience_ms: int) -> None:
        """Until a rank's process ends, or that long."""
        self._hold_new_ones()
        if self._first:
            time.sleep(patience_ms / 1e3)
            return
        ended = {fd for fd, _ in self._poll.poll(patience_ms)}
        slots_now = self._offer.shared.slots
        dead = [rank for rank, fd in self._fds.items() if fd in ended]
        for rank in dead:
            self._poll.unregister(self._fds[rank])
        self._first = tuple(rank for rank in dead if slots_now["state"][rank] != State.ENDED)

    def lines(self) -> NDArray[np.void]:
        """All lines that a rank has filled in, with the processes as this parent sees them."""
        known: NDArray[np.void] = self._offer.shared.slots.copy()
        for rank in self._fds:
            known["process"][rank] = slots.process_letter(int(known["pid"][rank]), int(known["started"][rank]))
        filled: NDArray[np.void] = known[known["pid"] != 0]
        return filled

    def dead(self, lines: NDArray[np.void]) -> list[Lost]:
        """The ranks that died first, before the launcher took the others along."""
        of_rank = {int(line["rank"]): line for line in lines if int(line["pid"])}
        return [Lost(rank, "died", 0, of_rank[rank]) for rank in self._first if rank in of_rank]

    def _hold_new_ones(self) -> None:
        board = self._offer.shared.slots
        for rank in np.flatnonzero((board["pid"] != 0) & (board["node"] == board["node"][0])):
            pid = int(board["pid"][rank])
            if int(rank) in self._fds or slots.process_start(pid)[1] != int(board["started"][rank]):
                continue
            try:
                fd = os.pidfd_open(pid)
            except OSError:
                continue
            self._fds[int(rank)] = fd
            self._poll.register(fd, select.POLLIN)


def _say(sentence: str) -> None:
    sys.stderr.write(f"ckptstorm: {sentence}\n")
    sys.stderr.flush()
