"""One clock for all nodes: each rank's offset to rank 0's monotonic clock, with its uncertainty.

Ranks whose kernel has one and the same clock (same boot, same time namespace) have offset 0, exactly.
One leader for each other clock measures: it sends a ping and takes the exchange with the shortest
round trip, as NTP does (Mills, RFC 5905 section 8): offset = theirs − (sent + received) / 2, never
wrong by more than half of that round trip. Leaders ask their parent in a binomial tree, so a world
of n nodes takes log2 n steps, and uncertainties add up along the way.
"""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass

import numpy as np

from ckptstorm.clock import Clock, monotonic_ns
from ckptstorm.cluster.comm import Cluster

_PINGS = 24
_TAG = 77


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """What to add to this rank's clock to get rank 0's.

    Attributes:
        offset_ns: rank 0's clock − this rank's clock.
        uncertainty_ns: the offset is within ± this; 0 where it is the same clock.
        measured_by: the lowest rank that reads this clock; it measured the offset.
        is_one: all ranks read one and the same clock.
    """

    offset_ns: int = 0
    uncertainty_ns: int = 0
    measured_by: int = 0
    is_one: bool = True


def measure_offset(cluster: Cluster, clock: Clock = monotonic_ns) -> ClockOffset:
    """This rank's offset; a collective of all ranks."""
    leaders, my_leader = _leaders(cluster)
    if len(leaders) == 1:
        return ClockOffset()
    found = np.zeros(2, dtype=np.int64)
    if cluster.rank == my_leader:
        found[:] = _climb(cluster, leaders, clock)
    everyone = np.empty((cluster.rank_count, 2), dtype=np.int64)
    cluster.wait(cluster.comm.Iallgather(found, everyone))
    return ClockOffset(int(everyone[my_leader][0]), int(everyone[my_leader][1]), my_leader, is_one=False)


@functools.cache  # asked before and after each phase, and the same for as long as the process lives
def clock_name() -> bytes:
    """8 bytes that are equal for two processes exactly when they read the same monotonic clock."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    try:
        namespace = os.readlink("/proc/self/ns/time")
    except OSError:  # kernels before 5.6 have no time namespaces
        namespace = ""
    return hashlib.blake2b(f"{boot} {namespace}".encode(), digest_size=8).digest()


def _leaders(cluster: Cluster) -> tuple[list[int], int]:
    """The lowest rank of each clock, rank 0 first, and this rank's."""
    name = np.frombuffer(clock_name(), dtype=np.int64).copy()
    names = np.empty(cluster.rank_count, dtype=np.int64)
    cluster.wait(cluster.comm.Iallgather(name, names))
    _, first = np.unique(names, return_index=True)
    return sorted(int(rank) for rank in first), int(np.flatnonzero(names == name[0])[0])


def _climb(cluster: Cluster, leaders: list[int], clock: Clock) -> tuple[int, int]:
    """Ask the parent in the binomial tree over leaders, then answer the children."""
    me, count = leaders.index(cluster.rank), len(leaders)
    offset = ClockOffset()
    if me > 0:
        offset = _ask(cluster, leaders[me & (me - 1)], clock)
    lowest = me & -me if me else 1 << count.bit_length()
    bit = lowest >> 1
    while bit:  # the largest subtree first: it has the longest way to go
        if me + bit < count:
            _answer(cluster, leaders[me + bit], offset, clock)
        bit >>= 1
    return offset.offset_ns, offset.uncertainty_ns


def _ask(cluster: Cluster, parent: int, clock: Clock) -> ClockOffset:
    comm, reply = cluster.comm, np.empty(3, dtype=np.int64)
    comm.Send(np.zeros(1, dtype=np.int64), dest=parent, tag=_TAG)
    cluster.wait(comm.Irecv(reply, source=parent, tag=_TAG))  # the parent's turn may come late
    best_ns, offset_ns = 1 << 62, 0
    for _ in range(_PINGS):
        sent = clock()
        comm.Send(np.zeros(1, dtype=np.int64), dest=parent, tag=_TAG)
        comm.Recv(reply, source=parent, tag=_TAG)
        received = clock()
        if received - sent < best_ns:
            best_ns, offset_ns = received - sent, int(reply[0]) - (sent + received) // 2
    return ClockOffset(offset_ns + int(reply[1]), int(reply[2]) + (best_ns + 1) // 2)


def _answer(cluster: Cluster, child: int, mine: ClockOffset, clock: Clock) -> None:
    comm, ping = cluster.comm, np.empty(1, dtype=np.int64)
    for turn in range(_PINGS + 1):
        if turn == 0:
            cluster.wait(comm.Irecv(ping, source=child, tag=_TAG))
        else:
            comm.Recv(ping, source=child, tag=_TAG)
        comm.Send(np.array([clock(), mine.offset_ns, mine.uncertainty_ns], dtype=np.int64), dest=child, tag=_TAG)
