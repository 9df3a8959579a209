"""Who writes what many ranks hold: DCP's deduplication of save plans, without making the plans.

`dedup_save_plans` (PyTorch 2.13) walks every distinct item, those of rank 0's plan first, and gives
it to the holder whose plan is smallest so far, by the *global* size of the tensors in it; a blob
counts as one byte. Three kinds of item matter under FSDP2:

* a shard with rows has one holder;
* `step` scalars and parameter-group blobs have all ranks as holders. Rank 0 has been charged for the
  whole model by then, so they go round robin to the others;
* the empty shards of a tensor (ranks beyond its rows) all carry the same index, so that *one* empty
  record is written for all of them, by whichever of those ranks is charged least at that moment.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

_SCALAR_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Deal:
    """Which rank writes each shared item.

    Attributes:
        scalar_rank: by tensor: who writes its `step`.
        blob_rank: by blob.
        empty_rank: by state (weight, exp_avg, exp_avg_sq) and tensor: who writes the record of its
            empty shards; -1 when no rank is without rows.
    """

    scalar_rank: Int64s
    blob_rank: Int64s
    empty_rank: Int64s


def deal(total_bytes: Int64s, used_parts: Int64s, rank_count: int, state_count: int, blob_count: int) -> Deal:
    """Deal the shared items out.

    Args:
        total_bytes: by tensor: bytes of the whole tensor.
        used_parts: by tensor: ranks that hold a row; the ranks from there on are empty.
        rank_count: how many ranks.
        state_count: tensors saved of each parameter (3: weight and two moments), 1 for no optimizer.
        blob_count: parameter-group blobs.
    """
    charged = np.zeros(rank_count, dtype=np.int64)
    scalars = _scalars(total_bytes, charged, blob_count) if state_count > 1 else np.zeros(0, dtype=np.int64)
    scalar_rank, blob_rank = scalars[: len(scalars) - blob_count], scalars[len(scalars) - blob_count :]
    empty_rank = np.full((state_count, len(total_bytes)), -1, dtype=np.int64)
    for first in np.unique(used_parts[used_parts < rank_count]).tolist():
        _empties(first, total_bytes, used_parts, charged, empty_rank)
    return Deal(scalar_rank, blob_rank, empty_rank)


def _scalars(total_bytes: Int64s, charged: Int64s, blob_count: int) -> Int64s:
    """Ranks of the scalars, then of the blobs; `charged` is brought up to date for all but rank 0."""
    tensor_count, rank_count = len(total_bytes), len(charged)
    # Only the first ranks can be reached: a rank without a charge wins over all behind it.
    others = [(0, rank) for rank in range(1, min(rank_count, tensor_count + blob_count + 1))]
    own = np.concatenate(([0], np.cumsum(2 * total_bytes))) + int(total_bytes.sum())
    ranks, extra = [], 0
    for item, weight in enumerate([_SCALAR_BYTES] * tensor_count + [1] * blob_count):
        if not others or int(own[min(item, tensor_count)]) + extra <= others[0][0]:
            extra += weight
            ranks.append(0)
            continue
        size, rank = others[0]
        heapq.heapreplace(others, (size + weight, rank))
        ranks.append(rank)
    for size, rank in others:
        charged[rank] = size
    return np.array(ranks, dtype=np.int64)


def _empties(first: int, total_bytes: Int64s, used_parts: Int64s, charged: Int64s, empty_rank: Int64s) -> None:
    """Deal the items that rank `first` is the first to hold without rows, in the order of its plan."""
    state_count, tensor_count = empty_rank.shape
    order = _plan_order(state_count, tensor_count)
    sizes, parts = total_bytes[order % tensor_count], used_parts[order % tensor_count]
    # What `first` itself is charged before each item, for its shards with rows.
    own = np.cumsum(np.where(parts > first, sizes, 0)) + int(charged[first])
    items = np.flatnonzero(parts == first)
    heap = _least(first, charged, len(items))
    own_extra, own_place = 0, first & _set_mask(len(charged) - first)
    for item in items.tolist():
        size, at = int(sizes[item]), int(order[item])
        candidate = (int(own[item]) + own_extra, own_place, first)
        winner = min(candidate, heap[0]) if heap else candidate
        if winner is candidate:
            own_extra += size
        else:
            heapq.heapreplace(heap, (winner[0] + size, winner[1], winner[2]))
            charged[winner[2]] += size
        empty_rank[at // tensor_count, at % tensor_count] = winner[2]


def _plan_order(state_count: int, tensor_count: int) -> Int64s:
    """Items (state x tensor) in plan order: all weights, then the moments tensor by tensor."""
    weights = np.arange(tensor_count, dtype=np.int64)
    moments = [weights + state * tensor_count for state in range(1, state_count)]
    return np.concatenate([weights, np.stack(moments, axis=1).ravel()]) if moments else weights


def _least(first: int, charged: Int64s, wanted: int) -> list[tuple[int, int, int]]:
    """The `wanted` ranks behind `first` that are charged least: (charge, place in the tie, rank), a heap."""
    ranks = np.arange(first + 1, len(charged), dtype=np.int64)
    places = ranks & _set_mask(len(charged) - first)
    best = np.lexsort((places, charged[ranks]))[:wanted]
    return list(zip(charged[ranks][best].tolist(), places[best].tolist(), ranks[best].tolist(), strict=True))


def _set_mask(member_count: int) -> int:
    """Mask of the hash table of a Python set that `member_count` consecutive integers were added to.

    DCP breaks ties by the order in which it meets the ranks of a set, which is by `rank & mask`
    (Objects/setobject.c: a table of 8 is made anew, four times the members or, above 50,000 of them,
    twice, whenever it is three fifths full).
    """
    mask, used = 7, 0
    while True:
        used = (mask * 3 + 4) // 5  # the member that makes fill * 5 >= mask * 3
        if member_count < used:
            return mask
        size, least = 8, used * 2 if used > 50000 else used * 4
        while size <= least:
            size <<= 1
        mask = size - 1
