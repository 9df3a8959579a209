"""Counts of what DCP stores for all ranks, without planning each of them.

`torch.chunk` gives the first d0 // c ranks c = ceil(d0 / N) rows each, the next one the rest, and the
others none. So a tensor contributes at most three record sizes, whatever N is.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.dcp_items import SCALAR_BYTES, Items, record_bytes
from ckptstorm.layouts.formats import dcp_metadata, torch_zip
from ckptstorm.steps import Record

Int64s = NDArray[np.int64]

# Letters around a parameter's name in the state dict: "model.", and "optim.state." with the state.
_WEIGHT_AROUND = len("model.")
_STATES_AROUND = (len("optim.state..exp_avg"), len("optim.state..exp_avg_sq"))
_SCALAR_AROUND = len("optim.state..step")
#: "optim.param_groups.0." and an entry's name, on average.
_BLOB_NAME = 29


def record_counts(items: Items) -> Counter[Record]:
    """How many of each record all ranks write together."""
    parts, counts = items.shard_count, Counter[Record]()
    for row_count, row_bytes, tensor_count in _groups(items):
        most = -(-row_count // parts)
        full, rest = divmod(row_count, most)
        copies = tensor_count * items.state_count
        counts[torch_zip.tensor_record(most * row_bytes)] += full * copies
        if rest:
            counts[torch_zip.tensor_record(rest * row_bytes)] += copies
        if full + bool(rest) < parts:
            counts[torch_zip.tensor_record(0)] += copies
    if items.has_optimizer:
        counts[torch_zip.tensor_record(SCALAR_BYTES)] += items.tensor_count
    for size in items.blob_bytes:
        counts[torch_zip.blob_record(size)] += 1
    return counts


def file_bytes(items: Items) -> Int64s:
    """Size of each rank's files, by rank."""
    sizes = _by_rank(items, record_bytes)
    np.add.at(sizes, items.blob_rank, np.array(items.blob_bytes, dtype=np.int64))
    return sizes


def item_counts(items: Items) -> Int64s:
    """How many tensors and blobs each rank writes."""
    counts = _by_rank(items, np.ones_like)
    np.add.at(counts, items.blob_rank, 1)
    return counts


def _by_rank(items: Items, measure: Callable[[Int64s], Int64s]) -> Int64s:
    """By rank: `measure` of the bytes of each tensor that it writes, added up; ranks with equal shards in one go."""
    sums = np.zeros(items.rank_count, dtype=np.int64)
    edges = items.breakpoints[items.breakpoints < items.shard_count].tolist()
    for low, high in itertools.pairwise([0, *edges, items.shard_count]):
        data = np.where(items.is_scalar, 0, items.data_bytes(low))
        weights = np.where(data > 0, measure(data), 0)
        if items.replica_count == 1:
            sums[low:high] = weights.sum()
            continue
        dealt, known = items.replica_deal, dict[int, Int64s]()
        for shard in range(low, high):
            deal = int(dealt.deal_of[shard])
            if deal not in known:
                known[deal] = np.zeros(items.replica_count, dtype=np.int64)
                np.add.at(known[deal], dealt.places[deal], weights)
            sums[list(dealt.replicas[shard])] = known[deal]
    scalar, empty = (int(measure(np.array([size], dtype=np.int64))[0]) for size in (SCALAR_BYTES, 0))
    scalars = np.bincount(items.scalar_rank, minlength=items.rank_count)
    return np.asarray(sums + items.empty_counts() * empty + scalars * scalar, dtype=np.int64)


def metadata_bytes(items: Items) -> int:
    """Size of `.metadata`, by the law in `dcp_metadata`."""
    names, used = items.rows.name_bytes, items.rows.used_parts(items.shard_count)
    stored = used + (used < items.shard_count)
    # (letters around the name, items of each tensor) of every entry of a parameter.
    entries = [(_WEIGHT_AROUND, stored)]
    if items.has_optimizer:
        entries += [(around, stored) for around in _STATES_AROUND]
        entries.append((_SCALAR_AROUND, np.ones_like(stored)))
    blob_count = len(items.blob_bytes)
    return dcp_metadata.metadata_bytes(
        name_count=items.tensor_count * len(entries) + blob_count,
        name_bytes=sum(int((names + around).sum()) for around, _ in entries) + _BLOB_NAME * blob_count,
        item_count=sum(int(count.sum()) for _, count in entries) + blob_count,
        item_name_bytes=sum(int(((names + around) * count).sum()) for around, count in entries)
        + _BLOB_NAME * blob_count,
    )


def _groups(items: Items) -> list[tuple[int, int, int]]:
    """(rows, bytes of a row, how many tensors have these)."""
    both = np.stack([items.rows.row_count, items.rows.row_bytes], axis=1)
    groups, counts = np.unique(both, axis=0, return_counts=True)
    return [(int(group[0]), int(group[1]), int(count)) for group, count in zip(groups, counts, strict=True)]
