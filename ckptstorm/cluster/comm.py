"""All ranks as one value: who is where, and every collective that a storm needs, waited for politely.

A blocking MPI call spins, and a rank that spins takes the CPU of the straggler beside it. Every wait
here tests, sleeps a little longer each time, and lets a tick run in between.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from ckptstorm.cluster.placement import Told, boot_id, told_by_slurm
from ckptstorm.cluster.shared_memory import forget, own_segments

#: What runs between two tests of a wait: progress, signals, time-outs. It may raise.
Tick = Callable[[], None]

_NAP_LEAST_S, _NAP_MOST_S = 20e-6, 1e-3
#: Ranks beyond the cores of a node share them, so each may look less often.
_NAP_MOST_CROWDED_S = 5e-3
#: While a large message moves, each look lets one more chunk through: a millisecond between them would
#: make it hundreds of times slower than it is.
_NAP_MOST_MOVING_S = 50e-6
#: No message of ours is larger, whatever the world: counts stay below 2^31, buffers bounded.
PIECE_BYTES = 64 << 20


def mpi_library() -> str:
    """The MPI library that this process runs on, in its own words."""
    return MPI.Get_library_version().splitlines()[0].strip().rstrip("\x00")


def _no_tick() -> None:
    """For waits in which nothing needs to happen."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank lives.

    Attributes:
        host: its node's name.
        node_index: nodes counted in the order of their lowest rank.
        local_index, local_count: of this rank among the ranks of its node.
        machine: tells one page cache from another: Slurm's node name, else the kernel's boot id.
    """

    host: str
    node_index: int
    local_index: int
    local_count: int
    machine: str


class Cluster:
    """A world of ranks.

    Attributes:
        comm: the communicator of all ranks; node_comm: of this node's; both for collectives only.
        rank, rank_count: of this process, of the world.
        place: where this rank lives.
        tick: runs while waiting; the storm sets it.
    """

    def __init__(self, comm: MPI.Intracomm, place: Place | None = None) -> None:
        self.comm = comm
        self.rank, self.rank_count = comm.rank, comm.size
        self.tick: Tick = _no_tick
        self._nap_most_s = _NAP_MOST_S
        self.barrier()  # ranks arrive seconds apart: wait politely before the first blocking call
        told = Told(place.host, place.node_index, local_id=-1) if place else _told_to_all(comm)
        self.node_comm = _of_node(comm, told)
        is_leader = self.node_comm.rank == 0
        if is_leader:  # all ranks of the node have it mapped since MPI_Init
            forget(own_segments())
        self._leaders = comm.Split(0 if is_leader else MPI.UNDEFINED, key=comm.rank)
        node_index = np.array([self._leaders.rank if is_leader else -1], dtype=np.int32)
        self.node_comm.Bcast(node_index)
        host = told.host if told else os.uname().nodename
        machine = told.host if told else boot_id()
        self.place = Place(host, int(node_index[0]), self.node_comm.rank, self.node_comm.size, machine)
        if self.node_comm.size > (os.cpu_count() or 1):
            self._nap_most_s = _NAP_MOST_CROWDED_S
        nodes = np.empty(self.rank_count, dtype=np.int32)
        comm.Allgather(node_index, nodes)
        self.node_of_rank: NDArray[np.int32] = nodes

    def part(self, ranks: Sequence[int]) -> Cluster | None:
        """A world of these ranks of this one, in their order here; None on the others. A collective of all ranks."""
        is_in = self.rank in set(ranks)
        comm = self.comm.Split(0 if is_in else MPI.UNDEFINED, key=self.rank)
        return Cluster(MPI.Intracomm(comm), self.place) if is_in else None

    def wait(self, request: MPI.Request, nap_most_s: float = 0.0) -> None:
        """Until the request is done: test, sleep, tick."""
        nap_s, slept_s, most_s = _NAP_LEAST_S, 0.0, nap_most_s or self._nap_most_s
        while not request.Test():
            time.sleep(nap_s)
            slept_s += nap_s
            nap_s = min(2 * nap_s, most_s)
            if slept_s >= _NAP_MOST_S:
                slept_s = 0.0
                self.tick()

    def barrier(self) -> None:
        """All ranks have come this far."""
        self.wait(self.comm.Ibarrier())

    def from_rank_0(self, numbers: NDArray[Any]) -> None:
        """Overwrite `numbers` on all ranks by those of rank 0."""
        self.wait(self.comm.Ibcast(numbers, root=0))

    def bytes_from_rank_0(self, raw: bytes) -> bytes:
        """Bytes that rank 0 gives and all get."""
        size = np.array([len(raw)], dtype=np.int64)
        self.from_rank_0(size)
        content = np.empty(int(size[0]), dtype=np.uint8)
        if self.rank == 0:
            content[:] = np.frombuffer(raw, dtype=np.uint8)
        for first in range(0, len(content), PIECE_BYTES):
            self.from_rank_0(content[first : first + PIECE_BYTES])
        return content.tobytes()

    def greatest(self, values: NDArray[Any]) -> NDArray[Any]:
        """The element-wise maximum over ranks, on all ranks."""
        most = np.empty_like(values)
        self.wait(self.comm.Iallreduce(values, most, op=MPI.MAX))
        return most

    def sum_on_rank_0(self, values: NDArray[Any]) -> NDArray[Any]:
        """The element-wise sum over ranks; of meaning on rank 0 only."""
        total = np.empty_like(values)
        self.wait(self.comm.Ireduce(values, total, op=MPI.SUM, root=0))
        return total

    def greatest_on_rank_0(self, values: NDArray[Any]) -> NDArray[Any]:
        """The element-wise maximum over ranks; of meaning on rank 0 only."""
        most = np.empty_like(values)
        self.wait(self.comm.Ireduce(values, most, op=MPI.MAX, root=0))
        return most

    def node_sums_on_rank_0(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The element-wise sum over the ranks of each node, in node order, on rank 0 (empty elsewhere).

        Args:
            values: of the same shape on all ranks.

        Returns:
            Shape (nodes, *values.shape); gathered in bounded pieces.
        """
        mine = np.ascontiguousarray(values).reshape(-1)
        total = np.empty_like(mine)
        self.wait(self.node_comm.Ireduce(mine, total, op=MPI.SUM, root=0))
        if self.node_comm.rank != 0:
            return np.empty((0, *values.shape), dtype=np.int64)
        nodes = self._leaders.size
        everyone = np.empty((nodes if self.rank == 0 else 0, len(mine)), dtype=np.int64)
        step = max(1, PIECE_BYTES // max(1, 8 * nodes))
        for first in range(0, len(mine), step):
            piece = np.ascontiguousarray(total[first : first + step])
            gathered = np.empty((len(everyone), len(piece)), dtype=np.int64)
            self.wait(self._leaders.Igather(piece, gathered if self.rank == 0 else None, root=0))
            everyone[:, first : first + step] = gathered
        return everyone.reshape(-1, *values.shape)

    def sum_on_node(self, values: NDArray[Any]) -> NDArray[Any]:
        """The element-wise sum over the ranks of this node; of meaning on its first rank only."""
        total = np.empty_like(values)
        self.wait(self.node_comm.Ireduce(values, total, op=MPI.SUM, root=0))
        return total

    def greatest_on_node(self, values: NDArray[Any]) -> NDArray[Any]:
        """The element-wise maximum over the ranks of this node; of meaning on its first rank only."""
        most = np.empty_like(values)
        self.wait(self.node_comm.Ireduce(values, most, op=MPI.MAX, root=0))
        return most

    def rows_on_rank_0(self, rows: NDArray[np.void]) -> NDArray[np.void]:
        """The same number of rows of each rank, in rank order, on rank 0; gathered in bounded pieces."""
        mine = np.ascontiguousarray(rows)
        each = mine.nbytes
        step = max(1, PIECE_BYTES // max(1, each))
        gathered = np.empty((self.rank_count, len(mine)), dtype=mine.dtype) if self.rank == 0 else None
        for first in range(0, self.rank_count, step):
            last = min(first + step, self.rank_count)
            counts = [each if first <= rank < last else 0 for rank in range(self.rank_count)]
            self._gather_piece(mine, gathered, counts, first)
        return np.empty(0, dtype=mine.dtype) if gathered is None else gathered.reshape(-1)

    def _gather_piece(
        self, mine: NDArray[np.void], gathered: NDArray[np.void] | None, counts: list[int], first: int
    ) -> None:
        send = [mine.view(np.uint8).reshape(-1)[: counts[self.rank]], MPI.BYTE]
        receive = None
        if gathered is not None:
            flat = gathered.view(np.uint8).reshape(-1)[first * mine.nbytes :]
            receive = [flat[: sum(counts)], counts, None, MPI.BYTE]
        self.wait(self.comm.Igatherv(send, receive, root=0))

    def texts_on_rank_0(self, text: str) -> list[str]:
        """A short text of each rank, on rank 0 (an empty list elsewhere): errors, host names."""
        raw = np.frombuffer(text.encode(), dtype=np.uint8).copy()
        sizes = self.rows_on_rank_0(np.array([(len(raw),)], dtype=[("size", "<i8")]))
        send = [raw, MPI.BYTE]
        if self.rank != 0:
            self.wait(self.comm.Igatherv(send, None, root=0))
            return []
        counts = [int(size) for size in sizes["size"]]
        everything = np.empty(sum(counts), dtype=np.uint8)
        self.wait(self.comm.Igatherv(send, [everything, counts, None, MPI.BYTE], root=0))
        ends = np.cumsum(counts)
        whole = everything.tobytes()
        return [whole[end - count : end].decode() for end, count in zip(ends, counts, strict=True)]

    def exchange(self, kind: str, bytes_per_rank: int) -> None:
        """A framework's collective of all ranks; see `Group.exchange`."""
        Group(self, self.comm).exchange(kind, bytes_per_rank)

    def split(self, color: int) -> Group | None:
        """The ranks of the same color, which meet by themselves; below 0: none. A collective of all ranks."""
        self.barrier()  # a split blocks: nobody shall spin in it until the last one comes
        comm = self.comm.Split(color if color >= 0 else MPI.UNDEFINED, key=self.rank)
        return Group(self, comm) if color >= 0 else None

    @property
    def everyone(self) -> Group:
        """All ranks."""
        return Group(self, self.comm)


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that meet by themselves: all, or a part; waited for as politely as the cluster's own meets.

    Attributes:
        cluster: whose waits these are.
        comm: the communicator of the group.
    """

    cluster: Cluster
    comm: MPI.Comm

    def greatest(self, values: NDArray[Any]) -> NDArray[Any]:
        """The element-wise maximum over the group, on all of its ranks."""
        most = np.empty_like(values)
        self.cluster.wait(self.comm.Iallreduce(values, most, op=MPI.MAX))
        return most

    def exchange(self, kind: str, bytes_per_rank: int) -> None:
        """A framework's collective with messages of its size: the first rank gathers from, or sends to, all.

        Memory stays bounded: what would not fit into 64 MiB on that rank goes in several rounds.
        """
        if kind == "barrier" or bytes_per_rank <= 0:
            self.cluster.wait(self.comm.Ibarrier())
            return
        piece = min(bytes_per_rank, max(1, PIECE_BYTES // (1 if kind == "bcast" else self.comm.size)))
        mine = np.zeros(piece, dtype=np.uint8)
        everyone = np.zeros(piece * self.comm.size if self.comm.rank == 0 and kind != "bcast" else 0, dtype=np.uint8)
        left = bytes_per_rank
        while left > 0:
            self.cluster.wait(self._exchange_piece(kind, mine, everyone), _NAP_MOST_MOVING_S)
            left -= piece

    def _exchange_piece(self, kind: str, mine: NDArray[np.uint8], everyone: NDArray[np.uint8]) -> MPI.Request:
        root = self.comm.rank == 0
        if kind == "gather":
            return self.comm.Igather(mine, everyone if root else None, root=0)
        if kind == "scatter":
            return self.comm.Iscatter(everyone if root else None, mine, root=0)
        return self.comm.Ibcast(mine, root=0)


def _told_to_all(comm: MPI.Intracomm) -> Told | None:
    """What Slurm says of this rank, when it tells every rank; else the MPI library is asked."""
    told = told_by_slurm(os.environ, comm.rank, comm.size)
    is_told = np.array([told is not None], dtype=np.int8)
    comm.Allreduce(MPI.IN_PLACE, is_told, op=MPI.MIN)
    return told if is_told[0] else None


def _of_node(comm: MPI.Intracomm, told: Told | None) -> MPI.Comm:
    """The ranks of this node, in the order of their local ranks."""
    if told is None:
        return MPI.Intracomm(comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank))
    return MPI.Intracomm(comm.Split(told.node_id, key=told.local_id if told.local_id >= 0 else comm.rank))
