"""The board: 64 bytes a rank in memory that all ranks of a node share, so that a stuck rank can be named by others.

It lives outside the directory under test. Each rank's main thread keeps its own line; the node's first
rank looks at the node's processes and forwards their lines to rank 0 as a heartbeat; the second one does
while the first is gone or stopped, so that one lost process is not taken for a lost node. The parent that
started the ranks offers a board of its own, and then sees what rank 0 sees; else rank 0's deputy, the
lowest other rank, looks after rank 0.
"""

from __future__ import annotations

import contextlib
import os

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster import slots
from ckptstorm.cluster.comm import Cluster
from ckptstorm.cluster.slots import SLOT_DTYPE, Shared

_TAG = 78
_HEARTBEAT_NS = NS_PER_S // 4
#: How often a node's first rank asks the kernel for its node's processes: one small read each.
_PROCESSES_NS = NS_PER_S // 2
#: The lowest rank besides rank 0.
DEPUTY = 1


class Board:
    """One node's lines, and on rank 0 what is known of the other nodes'.

    Attributes:
        mine: this rank's line.
        has_parent: whether a parent looks on.
    """

    def __init__(self, cluster: Cluster, storm_id: str = "") -> None:
        self._cluster = cluster
        node, place = cluster.node_comm, cluster.place
        made = _offered(cluster.rank_count) or _make_file(cluster.rank_count) if place.local_index == 0 else ""
        path = node.bcast(made, root=0)
        self._shared: Shared = slots.map_board(path, cluster.rank_count)
        node.Barrier()
        if place.local_index == 0 and not path.startswith("/proc/"):
            os.unlink(path)  # every rank has it mapped: nothing is left behind, however the storm ends
        self._all: NDArray[np.void] = self._shared.slots
        self.has_parent = path.startswith("/proc/")
        self._local = np.flatnonzero(cluster.node_of_rank == place.node_index)
        self.mine = self._all[cluster.rank : cluster.rank + 1]
        self._fill_in(storm_id)
        self._is_proven = np.zeros(len(self._local), dtype=np.bool_)
        self._stands_in = False  # for the node's first rank
        self._sent: list[MPI.Request] = []
        self._message = self.mine.copy()
        self._last_beat_ns = self._last_look_ns = 0

    def _fill_in(self, storm_id: str) -> None:
        cluster = self._cluster
        self.mine[:] = 0
        self.mine["rank"], self.mine["pid"] = cluster.rank, os.getpid()
        self.mine["node"], self.mine["started"] = cluster.place.node_index, slots.process_start(os.getpid())[1]
        if cluster.rank == 0:
            self._shared.header["storm_id"] = storm_id.encode()
        cluster.node_comm.Barrier()

    @property
    def is_deputy(self) -> bool:
        """Whether this rank is to look after rank 0: nobody else does."""
        return self._cluster.rank == DEPUTY and not self.has_parent

    def beat(self) -> bool:
        """At most four times a second: look at this node's processes, send and take lines.

        Returns:
            Whether it was time to; then whoever looks out may look.
        """
        now = monotonic_ns()
        if now - self._last_beat_ns < _HEARTBEAT_NS:
            return False
        self._last_beat_ns = now
        self._look_at_processes(now)
        self._send()
        self._receive()
        return True

    def everyone(self) -> NDArray[np.void]:
        """Rank 0: the newest line of every rank heard of, in rank order; its deputy: that of rank 0."""
        return self._all[self._all["pid"] != 0] if self._cluster.rank == 0 else self._all[:1]

    def give_up(self) -> None:
        """Rank 0: the world is about to be aborted; a parent need not wait for it longer than a moment."""
        self._shared.header["is_ending"] = 1

    def settle(self) -> None:
        """Before the end: take every heartbeat still under way, so that no message outlives the storm."""
        for request in self._sent:
            self._cluster.wait(request)
        self._cluster.barrier()
        self._receive()
        self.mine["state"] = slots.State.ENDED

    def _look_at_processes(self, now_ns: int) -> None:
        """The kernel's letter for each process of this node; one never seen alive (another PID namespace) stays 0."""
        index = self._cluster.place.local_index
        if index > 1 or now_ns - self._last_look_ns < _PROCESSES_NS:
            return
        is_first_look, self._last_look_ns = self._last_look_ns == 0, now_ns
        # The second rank looks at all once, to know which processes it can see at all.
        self._look_at(self._local if index == 0 or is_first_look or self._stands_in else self._local[:1])
        # Nobody but rank 0 takes lines: without it there is nothing to stand in for.
        first = int(self._local[0])
        self._stands_in = index == 1 and first != 0 and int(self._all["process"][first]) in (slots.GONE, *slots.STOPPED)

    def _look_at(self, ranks: NDArray[np.intp]) -> None:
        for at, rank in enumerate(ranks):
            letter = slots.process_letter(int(self._all["pid"][rank]), int(self._all["started"][rank]))
            self._is_proven[at] |= letter != slots.GONE
            if self._is_proven[at]:
                self._all["process"][rank] = letter

    def _send(self) -> None:
        """A node's lines to rank 0; rank 0's own to a deputy elsewhere. A message at a time: the newest counts."""
        self._sent = [request for request in self._sent if not request.Test()]
        cluster = self._cluster
        if self._sent:
            return
        if cluster.rank == 0:
            is_far = cluster.rank_count > DEPUTY and cluster.node_of_rank[DEPUTY] != cluster.node_of_rank[0]
            self._message, to = self.mine.copy(), DEPUTY if is_far and not self.has_parent else -1
        else:
            is_forwarding = cluster.place.local_index == 0 or self._stands_in
            self._message, to = self._all[self._local] if is_forwarding else self.mine[:0], 0 if is_forwarding else -1
        if to >= 0:
            self._sent = [cluster.comm.Isend([self._message.view(np.uint8), MPI.BYTE], dest=to, tag=_TAG)]

    def _receive(self) -> None:
        comm, status = self._cluster.comm, MPI.Status()
        if self._cluster.rank > DEPUTY:
            return
        while comm.Iprobe(source=MPI.ANY_SOURCE, tag=_TAG, status=status):
            lines = np.empty(status.Get_count(MPI.BYTE) // SLOT_DTYPE.itemsize, dtype=SLOT_DTYPE)
            comm.Recv([lines.view(np.uint8), MPI.BYTE], source=status.Get_source(), tag=_TAG)
            self._all[lines["rank"]] = lines


def _offered(rank_count: int) -> str:
    """The parent's board, when it is this very one: the ranks may have been started on another node."""
    path, _, token = os.environ.get(slots.VARIABLE, "").rpartition(":")
    if not path.startswith("/proc/"):
        return ""
    with contextlib.suppress(OSError, ValueError):
        if slots.map_board(path, rank_count).header["token"][0] == token.encode():
            return path
    return ""


def _make_file(rank_count: int) -> str:
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
    path = f"{folder}/ckptstorm-board-{os.getpid()}-{monotonic_ns():x}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, slots.size_bytes(rank_count))
    finally:
        os.close(fd)
    return path
