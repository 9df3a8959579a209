"""The board: 64 bytes a rank in a file that all ranks of a node map, so that a stuck rank can be named by others.

It lives in memory, outside the directory under test. Each rank's main thread keeps its own line; the
node's lowest rank forwards the node's lines to rank 0 as a heartbeat.
"""

from __future__ import annotations

import enum
import mmap
import os

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster.comm import Cluster

#: since_ns: when `ops_done` last changed, on the node's own clock; a heartbeat turns it into an age.
SLOT_DTYPE = np.dtype(
    [
        ("rank", "<u4"),
        ("pid", "<u4"),
        ("state", "u1"),
        ("phase", "u1"),
        ("kind", "u1"),
        ("padding", "u1"),
        ("file", "<u4"),
        ("offset_bytes", "<u8"),
        ("since_ns", "<i8"),
        ("ops_done", "<i8"),
        ("bytes_moved", "<i8"),
        ("padding2", "<i8"),
        ("padding3", "<i8"),
    ]
)
assert SLOT_DTYPE.itemsize == 64
_TAG = 78
_HEARTBEAT_NS = NS_PER_S // 4


class State(enum.IntEnum):
    """What a rank is doing, as far as anyone waits for it."""

    WAITING = 0  # for others
    RUNNING = 1  # an op
    DONE = 2  # with the phase


class Board:
    """One node's lines, and on rank 0 what is known of the other nodes'."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        node, place = cluster.node_comm, cluster.place
        path = _make_file(place.local_count) if place.local_index == 0 else ""
        path = node.bcast(path, root=0)
        self._map = _map_file(path)
        node.Barrier()
        if place.local_index == 0:
            os.unlink(path)  # every rank has it mapped: nothing is left behind, however the storm ends
        self.slots: NDArray[np.void] = np.frombuffer(self._map, dtype=SLOT_DTYPE)
        self.mine = self.slots[place.local_index : place.local_index + 1]
        self.mine["rank"], self.mine["pid"] = cluster.rank, os.getpid()
        self._elsewhere: dict[int, NDArray[np.void]] = {}
        self._sent: MPI.Request | None = None
        self._last_beat_ns = 0

    def beat(self) -> None:
        """Forward this node's lines to rank 0, at most four times a second; on rank 0: take what has come."""
        now = monotonic_ns()
        if now - self._last_beat_ns < _HEARTBEAT_NS:
            return
        self._last_beat_ns = now
        if self._cluster.rank == 0:
            self._receive()
        elif self._cluster.place.local_index == 0 and (self._sent is None or self._sent.Test()):
            self._message = _with_ages(self.slots, now)
            self._sent = self._cluster.comm.Isend([self._message.view(np.uint8), MPI.BYTE], dest=0, tag=_TAG)

    def everyone(self) -> NDArray[np.void]:
        """Rank 0: the newest line of every rank heard of; `since_ns` is an age here."""
        here = _with_ages(self.slots, monotonic_ns())
        return np.concatenate([here, *self._elsewhere.values()])

    def settle(self) -> None:
        """Before the end: take every heartbeat still under way, so that no message outlives the storm."""
        if self._sent is not None:
            self._cluster.wait(self._sent)
        self._cluster.barrier()
        if self._cluster.rank == 0:
            self._receive()

    def _receive(self) -> None:
        comm, status = self._cluster.comm, MPI.Status()
        while comm.Iprobe(source=MPI.ANY_SOURCE, tag=_TAG, status=status):
            lines = np.empty(status.Get_count(MPI.BYTE) // SLOT_DTYPE.itemsize, dtype=SLOT_DTYPE)
            comm.Recv([lines.view(np.uint8), MPI.BYTE], source=status.Get_source(), tag=_TAG)
            self._elsewhere[status.Get_source()] = lines


def _with_ages(slots: NDArray[np.void], now_ns: int) -> NDArray[np.void]:
    lines = slots.copy()
    lines["since_ns"] = now_ns - lines["since_ns"]
    return lines


def _make_file(rank_count: int) -> str:
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
    path = f"{folder}/ckptstorm-board-{os.getpid()}-{monotonic_ns():x}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, rank_count * SLOT_DTYPE.itemsize)
    finally:
        os.close(fd)
    return path


def _map_file(path: str) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(fd, 0)
    finally:
        os.close(fd)
