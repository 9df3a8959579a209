"""Runs on every rank of a real world: each check asserts, on all ranks; run by test_cluster under mpiexec."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from mpi4py import MPI

from ckptstorm.clock import monotonic_ns
from ckptstorm.cluster import clocks, comm, shared_memory
from ckptstorm.cluster.board import Board
from ckptstorm.cluster.comm import Cluster
from ckptstorm.cluster.slots import State
from ckptstorm.measure.rows import PHASE_ROW_DTYPE
from ckptstorm.storm.costs import measure_costs


def check_bytes_and_reductions(cluster):
    """Bytes of rank 0 reach all in pieces; maxima everywhere; sums and maxima on rank 0."""
    raw = bytes(range(256)) * 20
    assert cluster.bytes_from_rank_0(raw if cluster.rank == 0 else b"") == raw
    mine = np.array([cluster.rank, -cluster.rank], dtype=np.int64)
    assert cluster.greatest(mine).tolist() == [cluster.rank_count - 1, 0]
    total, most = cluster.sum_on_rank_0(mine), cluster.greatest_on_rank_0(mine)
    if cluster.rank == 0:
        expected = sum(range(cluster.rank_count))
        assert total.tolist() == [expected, -expected]
        assert most.tolist() == [cluster.rank_count - 1, 0]


def check_rows(cluster):
    """Rows arrive in rank order, whatever the piece size."""
    rows = np.zeros(3, dtype=PHASE_ROW_DTYPE)
    rows["rank"], rows["bytes"] = cluster.rank, [1, 2, 3]
    gathered = cluster.rows_on_rank_0(rows)
    if cluster.rank == 0:
        assert gathered["rank"].tolist() == [rank for rank in range(cluster.rank_count) for _ in range(3)]
        assert gathered["bytes"].tolist() == [1, 2, 3] * cluster.rank_count
    else:
        assert len(gathered) == 0


def check_node_sums(cluster):
    """Each node's sum arrives once, in the shape of the values, whatever the piece size."""
    mine = np.arange(60, dtype=np.int64).reshape(3, 20) * (cluster.rank + 1)
    sums = cluster.node_sums_on_rank_0(mine)
    if cluster.rank == 0:
        ranks = np.arange(1, cluster.rank_count + 1)
        assert (sums == np.arange(60).reshape(1, 3, 20) * ranks.sum()).all()
    else:
        assert sums.shape == (0, 3, 20)


def check_texts(cluster):
    """Texts of unequal length, some empty, some not ASCII."""
    texts = cluster.texts_on_rank_0("é" * cluster.rank)
    assert texts == (["é" * rank for rank in range(cluster.rank_count)] if cluster.rank == 0 else [])


def check_exchanges(cluster):
    """A framework's collectives with messages larger than a piece end on all ranks."""
    for kind in ("barrier", "gather", "scatter", "bcast"):
        for size in (0, 1, 1000):
            cluster.exchange(kind, size)


def check_places(cluster):
    """Ranks of one host share a node; every rank knows every rank's node."""
    assert cluster.place.local_index == cluster.rank
    assert cluster.node_of_rank.tolist() == [0] * cluster.rank_count


def check_offsets(cluster):
    """One clock: offset 0 exactly. Shifted clocks: found within their uncertainty."""
    assert clocks.measure_offset(cluster) == clocks.ClockOffset(0, 0)
    shift = 5_000_000_000 * cluster.rank
    own_name = clocks.clock_name
    clocks.clock_name = lambda: cluster.rank.to_bytes(8, "little")
    try:
        found = clocks.measure_offset(cluster, lambda: monotonic_ns() + shift)
    finally:
        clocks.clock_name = own_name
    assert abs(found.offset_ns + shift) <= found.uncertainty_ns
    assert found.uncertainty_ns < 500_000_000


def check_drift(cluster):
    """A clock that gains one part in a thousand: what it gained between two measurements is found, and no more."""
    gain, own_name = cluster.rank / 1000, clocks.clock_name
    clocks.clock_name = lambda: cluster.rank.to_bytes(8, "little")
    began = monotonic_ns()

    def fast() -> int:
        now = monotonic_ns()
        return now + int(gain * (now - began))

    try:
        before = clocks.measure_offset(cluster, fast)
        time.sleep(0.2)
        after = clocks.measure_offset(cluster, fast)
    finally:
        clocks.clock_name = own_name
    found, known = before.offset_ns - after.offset_ns, before.uncertainty_ns + after.uncertainty_ns
    # At least what it gained while we slept, at most what it gained since the first look at it.
    assert gain * 0.2e9 - known <= found <= gain * (monotonic_ns() - began) + known


def check_part(cluster):
    """A world of the first half, and one of rank 0 alone: numbered anew, on the same nodes; the others have none."""
    for count in {1, (cluster.rank_count + 1) // 2}:
        part = cluster.part(range(count))
        assert (part is None) == (cluster.rank >= count)
        if part is not None:
            assert (part.rank, part.rank_count) == (cluster.rank, count)
            assert part.place.host == cluster.place.host
            assert part.greatest(np.array([part.rank]))[0] == count - 1
        cluster.barrier()


def check_polite_waiting(cluster):
    """While rank 0 works, the others sleep: a barrier costs them little CPU."""
    cluster.barrier()
    before = time.process_time()
    if cluster.rank == 0:
        time.sleep(0.3)
    cluster.barrier()
    assert time.process_time() - before < 0.2


def check_board(cluster):
    """Each rank's line is seen by rank 0, with its process as the kernel has it; no MPI segment keeps its name."""
    board = Board(cluster, "a storm")
    board.mine["state"], board.mine["ops_done"] = State.RUNNING, 7
    cluster.barrier()
    board.beat()
    if cluster.rank == 0:
        lines = board.everyone()
        assert sorted(lines["rank"].tolist()) == list(range(cluster.rank_count))
        assert set(lines["ops_done"].tolist()) == {7}
        assert all(chr(letter) in "RSD" for letter in lines["process"])
    assert not [path for path in shared_memory.own_segments() if os.path.exists(path)]
    board.settle()


def check_costs(cluster):
    """The instrument's own costs are the same number on all ranks."""
    costs = measure_costs(cluster)
    assert costs.barrier_ns > 0
    assert cluster.greatest(np.array([costs.barrier_ns]))[0] == costs.barrier_ns


def main():
    """All checks, in an order that all ranks share."""
    cluster = Cluster(MPI.COMM_WORLD)
    for piece_bytes in (comm.PIECE_BYTES, 200):
        comm.PIECE_BYTES = piece_bytes
        for name, check in sorted(globals().items()):
            if name.startswith("check_"):
                check(cluster)
    if cluster.rank == 0:
        print("all checks passed")


if __name__ == "__main__":
    sys.exit(main())
