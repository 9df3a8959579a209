"""Who writes what when shards have replicas (HSDP, DDP): DCP's deduplication, shard by shard.

`dedup_save_plans` (PyTorch 2.13) walks the distinct items, those of rank 0's plan first, and gives
each to the holder that is charged least so far. With a mesh of replicas x shards the items of shard
0 come first, among them the scalars and blobs that all ranks hold, then those of shard 1, and so on.
A shard's replicas see only its own items, so two shards whose replicas start with equal charges
are dealt alike: a thousand shards take a few deals.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grid:
    """A mesh of ranks: rank = replica x shards + shard."""

    shard_count: int
    replica_count: int

    @property
    def rank_count(self) -> int:
        """All of them."""
        return self.shard_count * self.replica_count

    def replicas(self, shard: int) -> tuple[int, ...]:
        """Ranks that hold `shard`, in the order in which DCP meets them: that of a Python set, which decides ties."""
        return _met(range(shard, self.rank_count, self.shard_count))


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaDeal:
    """Which rank writes each item.

    Attributes:
        grid: the mesh.
        shared_rank: by slot: who writes the scalar, or the one record of all empty shards; -1 for neither.
        blob_rank: by blob.
        replicas: by shard: its ranks, in the order of `places`.
        deal_of: by shard: which of `places` it follows.
        places: of each distinct deal, by slot: which of the replicas writes it.
    """

    grid: Grid
    shared_rank: Int64s
    blob_rank: Int64s
    replicas: tuple[tuple[int, ...], ...]
    deal_of: Int64s
    places: tuple[Int64s, ...]

    def writers(self, shard: int) -> Int64s:
        """By slot: the rank that writes this shard of it."""
        ranks = np.array(self.replicas[shard], dtype=np.int64)
        return np.asarray(ranks[self.places[self.deal_of[shard]]])

    def role(self, rank: int) -> tuple[int, int]:
        """(deal, place in it): ranks with equal roles write the same slots of their shards."""
        shard = rank % self.grid.shard_count
        return int(self.deal_of[shard]), self.replicas[shard].index(rank)


def deal_replicas(sizes: Int64s, used: Int64s, blob_count: int, grid: Grid) -> ReplicaDeal:
    """Deal all items out.

    Args:
        sizes: by slot: bytes of the whole tensor, which DCP charges for each of its shards.
        used: by slot: shards with rows; 0 for a scalar, which every rank holds.
        blob_count: parameter-group blobs, behind all slots.
        grid: the mesh.
    """
    game = _Game(np.maximum(sizes, 1).tolist() + [1] * blob_count, used, grid)
    for shard in range(grid.shard_count):
        game.play(shard)
    shared = game.shared_rank
    return ReplicaDeal(
        grid,
        shared[: len(sizes)],
        shared[len(sizes) :],
        tuple(game.replicas),
        np.array(game.deal_of),
        tuple(game.places),
    )


class _Game:
    """Charges so far, and the deals that are known."""

    def __init__(self, sizes: list[int], used: Int64s, grid: Grid) -> None:
        self._sizes, self._used, self._grid = sizes, used, grid
        self._charged = [0] * grid.rank_count
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._added: list[list[int]] = []
        self.shared_rank = np.full(len(sizes), -1, dtype=np.int64)
        self.replicas: list[tuple[int, ...]] = []
        self.deal_of: list[int] = []
        self.places: list[Int64s] = []

    def play(self, shard: int) -> None:
        """Deal the items of `shard` that no shard before it has."""
        group = self._grid.replicas(shard)
        self.replicas.append(group)
        before = [self._charged[rank] for rank in group]
        # Which slots have rows changes only where some tensor ends.
        row_class = int(np.count_nonzero(self._used > shard))
        is_first_empty = shard > 0 and bool((self._used == shard).any())
        if shard > 0 and not is_first_empty and (row_class, tuple(before)) in self._known:
            deal = self._known[row_class, tuple(before)]
        else:
            deal = len(self.places)
            self.places.append(self._deal(shard, group))
            self._added.append([self._charged[rank] - was for rank, was in zip(group, before, strict=True)])
            if shard > 0 and not is_first_empty:
                self._known[row_class, tuple(before)] = deal
        for rank, was, more in zip(group, before, self._added[deal], strict=True):
            self._charged[rank] = was + more
        self.deal_of.append(deal)

    def _deal(self, shard: int, group: tuple[int, ...]) -> Int64s:
        """By slot: the place in `group` of the rank that gets it; scalars, blobs and empties are noted."""
        blob_count = (len(self._sizes) - len(self._used)) if shard == 0 else 0
        # Everyone holds scalars and blobs; ranks from the first empty shard on, the empty record.
        is_shared = np.concatenate([self._used == shard, np.ones(blob_count, dtype=np.bool_)])
        is_own = np.concatenate([self._used > shard, np.zeros(blob_count, dtype=np.bool_)])
        own = [(self._charged[rank], place, rank) for place, rank in enumerate(group)]
        heapq.heapify(own)
        shared = self._everyone_from(shard) if is_shared.any() else []
        place_of = {rank: place for place, rank in enumerate(group)}
        places = np.zeros(len(self._used), dtype=np.int64)
        for slot in np.flatnonzero(is_shared | is_own).tolist():
            if is_shared[slot]:
                self.shared_rank[slot] = self._take(shared, self._sizes[slot])
            else:
                places[slot] = place_of[self._take(own, self._sizes[slot])]
        return places

    def _take(self, heap: list[tuple[int, int, int]], size: int) -> int:
        """The rank of the heap that is charged least gets `size`. Charges only grow, so a stale entry sinks."""
        while heap[0][0] != self._charged[heap[0][2]]:
            _, place, rank = heap[0]
            heapq.heapreplace(heap, (self._charged[rank], place, rank))
        _, place, rank = heap[0]
        self._charged[rank] += size
        heapq.heapreplace(heap, (self._charged[rank], place, rank))
        return rank

    def _everyone_from(self, shard: int) -> list[tuple[int, int, int]]:
        """(charge, place in the tie, rank) of all ranks whose shard is `shard` or a later one: a heap."""
        ranks = _met(rank for rank in range(self._grid.rank_count) if rank % self._grid.shard_count >= shard)
        heap = [(self._charged[rank], place, rank) for place, rank in enumerate(ranks)]
        heapq.heapify(heap)
        return heap


def _met(ranks: Iterable[int]) -> tuple[int, ...]:
    """The order in which a set hands out ranks that were added one by one."""
    members: set[int] = set()
    for rank in ranks:
        members.add(rank)
    return tuple(members)
