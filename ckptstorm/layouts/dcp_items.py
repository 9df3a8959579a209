"""What DCP stores, item by item, as arrays: so that one rank of 100,000 costs one pass.

Every rank numbers the items of the whole state dict alike. A *slot* is that number: first the
weights, then `step`, `exp_avg`, `exp_avg_sq` of one parameter after the other. Blobs stand apart.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.dcp_replicas import Grid, ReplicaDeal, deal_replicas
from ckptstorm.layouts.formats import torch_zip
from ckptstorm.layouts.formats.dcp_dedup import Deal, deal
from ckptstorm.model.shard import Rows, rows
from ckptstorm.model.tensors import ModelSpec

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Made = TypeVar("Made")

#: Parameter-group entries of AdamW in the order of `get_state_dict`; each is a blob of its own.
GROUP_ENTRIES = (
    "lr", "betas", "eps", "weight_decay", "amsgrad", "maximize",
    "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay", "params",
)  # fmt: skip
#: All entries but the list of names are a number or a short tuple.
_SMALL_PICKLE_BYTES = 20
SCALAR_BYTES = 4


@dataclass(frozen=True, eq=False)
class Items:
    """The items of a model on `rank_count` ranks.

    Rank i holds shard i % shards (FSDP2: as many shards as ranks; HSDP: the mesh is replicas x
    shards, row by row; DDP: one shard).

    Attributes:
        model: what is saved.
        rank_count: all ranks.
        order: "plan" keeps slot order in the file; "size" sorts by the whole tensor's bytes, as
            DCP does when a GPU is there.
    """

    model: ModelSpec
    rank_count: int
    order: Literal["plan", "size"]
    replica_count: int = 1

    @property
    def shard_count(self) -> int:
        """Parts that a tensor is cut into."""
        return self.rank_count // self.replica_count

    @cached_property
    def rows(self) -> Rows:
        """The model's tensors as arrays."""
        return rows(self.model, self.shard_count)

    @property
    def state_count(self) -> int:
        """Tensors saved of each parameter."""
        return 1 + len(self.model.states)

    @property
    def tensor_count(self) -> int:
        """Parameters."""
        return self.rows.tensor_count

    @cached_property
    def has_optimizer(self) -> bool:
        """Whether there are scalars and blobs."""
        return bool(self.model.states)

    @cached_property
    def blob_bytes(self) -> tuple[int, ...]:
        """Size of each parameter-group blob."""
        if not self.has_optimizer:
            return ()
        names = torch_zip.names_pickle_bytes(int(self.rows.name_bytes.sum()), self.tensor_count)
        small = torch_zip.blob_bytes(_SMALL_PICKLE_BYTES)
        return (small,) * (len(GROUP_ENTRIES) - 1) + (torch_zip.blob_bytes(names),)

    @cached_property
    def deal(self) -> Deal:
        """Who writes what many ranks hold, when no shard has replicas."""
        total = self.rows.row_count * self.rows.row_bytes
        used = self.rows.used_parts(self.rank_count)
        return deal(total, used, self.rank_count, self.state_count, len(self.blob_bytes))

    @cached_property
    def replica_deal(self) -> ReplicaDeal:
        """Who writes what many ranks hold, when shards have replicas."""
        used = self.spread(self.rows.used_parts(self.shard_count), np.zeros(self.tensor_count, dtype=np.int64))
        grid = Grid(self.shard_count, self.replica_count)
        return deal_replicas(self.total_bytes, used, len(self.blob_bytes), grid)

    @cached_property
    def total_bytes(self) -> Int64s:
        """By slot: bytes of the whole tensor, by which DCP sorts and deals."""
        total = self.rows.row_count * self.rows.row_bytes
        return self.spread(total, np.full(self.tensor_count, SCALAR_BYTES, dtype=np.int64))

    @cached_property
    def scalar_rank(self) -> Int64s:
        """By parameter: who writes its `step`."""
        if self.replica_count == 1:
            return self.deal.scalar_rank
        return self.replica_deal.shared_rank[self.scalar_slots]

    @cached_property
    def blob_rank(self) -> Int64s:
        """By blob: who writes it."""
        return self.deal.blob_rank if self.replica_count == 1 else self.replica_deal.blob_rank

    def spread(self, weights: Int64s, scalars: Int64s) -> Int64s:
        """By slot: `weights` for every state of a parameter, `scalars` for its `step`."""
        if not self.has_optimizer:
            return weights
        return np.concatenate([weights, np.stack([scalars, weights, weights], axis=1).ravel()])

    @cached_property
    def scalar_slots(self) -> Int64s:
        """The slot of each parameter's `step`."""
        count = self.tensor_count if self.has_optimizer else 0
        return self.tensor_count + 3 * np.arange(count, dtype=np.int64)

    @cached_property
    def is_scalar(self) -> Bools:
        """By slot."""
        flags = np.zeros(self.tensor_count * (4 if self.has_optimizer else 1), dtype=np.bool_)
        flags[self.scalar_slots] = True
        return flags

    @cached_property
    def file_order(self) -> Int64s:
        """Slots in the order in which a file holds them."""
        if self.order == "plan":
            return np.arange(len(self.is_scalar), dtype=np.int64)
        return np.argsort(self.total_bytes, kind="stable").astype(np.int64)

    def data_bytes(self, rank: int) -> Int64s:
        """By slot: bytes of the tensor that `rank` holds; a scalar is held by all."""
        shard = self.rows.shard_rows(self.shard_count, rank % self.shard_count) * self.rows.row_bytes
        return self.spread(shard, np.full(self.tensor_count, SCALAR_BYTES, dtype=np.int64))

    def message_bytes(self, item_bytes: int) -> int:
        """Bytes of a pickled message about every item that a rank holds, names included."""
        names = self.rows.name_bytes + 15
        return len(self.is_scalar) * item_bytes + int(self.spread(names, names).sum())

    def shard_writer(self, rank: int) -> Int64s:
        """By slot: which rank writes the shard that `rank` holds; of no meaning where it holds no rows."""
        if self.replica_count == 1:
            return np.full(len(self.is_scalar), rank, dtype=np.int64)
        return self.replica_deal.writers(rank % self.shard_count)

    def written_bytes(self, rank: int) -> Int64s:
        """By slot: bytes of the shard that `rank` writes; 0 for no rows, a replica's shard, and a scalar."""
        data = np.where(self.is_scalar, 0, self.data_bytes(rank))
        return data if self.replica_count == 1 else np.where(self.shard_writer(rank) == rank, data, 0)

    @cached_property
    def breakpoints(self) -> Int64s:
        """Shards from which on some tensor's shard has another number of rows."""
        shape, parts = self.rows, self.shard_count
        return np.unique(np.concatenate([shape.row_count // shape.most_rows(parts), shape.used_parts(parts)]))

    def held_class(self, rank: int) -> Hashable:
        """Equal for ranks whose `written_bytes` are equal."""
        shape = int(np.searchsorted(self.breakpoints, rank % self.shard_count, side="right"))
        if self.replica_count == 1:
            return shape
        return shape, self.replica_deal.role(rank)

    @cached_property
    def _empties(self) -> tuple[Int64s, Int64s]:
        """(ranks, slots) of the empty records, rank by rank."""
        if self.replica_count > 1:
            slots = np.flatnonzero((self.replica_deal.shared_rank >= 0) & ~self.is_scalar)
            return _by_rank(self.replica_deal.shared_rank[slots], slots.astype(np.int64))
        state, tensor = np.nonzero(self.deal.empty_rank >= 0)
        slots = np.where(state == 0, tensor, self.tensor_count + 3 * tensor + state)
        return _by_rank(self.deal.empty_rank[state, tensor], slots.astype(np.int64))

    @cached_property
    def _scalars(self) -> tuple[Int64s, Int64s]:
        """(ranks, slots) of the scalars, rank by rank."""
        return _by_rank(self.scalar_rank, self.scalar_slots)

    def empty_slots(self, rank: int) -> Int64s:
        """Slots whose one empty record `rank` writes."""
        return _of_rank(self._empties, rank)

    def empty_counts(self) -> Int64s:
        """Empty records by rank."""
        return np.bincount(self._empties[0], minlength=self.rank_count).astype(np.int64)

    def own_scalar_slots(self, rank: int) -> Int64s:
        """Slots of the scalars that `rank` writes, ascending."""
        return _of_rank(self._scalars, rank)

    def own_blobs(self, rank: int) -> list[int]:
        """Indices of the blobs that `rank` writes, in file order."""
        return np.flatnonzero(self.blob_rank == rank).tolist()

    def file_slots(self, rank: int) -> Int64s:
        """Slots in the files of `rank`, in the order of one file; blobs stand before them."""
        written = self.written_bytes(rank) > 0
        written[self.own_scalar_slots(rank)] = True
        written[self.empty_slots(rank)] = True
        return np.asarray(self.file_order[written[self.file_order]])


def record_bytes(data_bytes: Int64s) -> Int64s:
    """`torch_zip.tensor_record_bytes` of each."""
    return np.where(data_bytes == 0, 1513, data_bytes - data_bytes % 64 + 1577)


def flyweights(make: Callable[[int], Made], sizes: Int64s) -> list[Made]:
    """`make` of each size; one object for all of a size."""
    values, places = np.unique(sizes, return_inverse=True)
    made = [make(size) for size in values.tolist()]
    return [made[place] for place in places.tolist()]


def _by_rank(ranks: Int64s, slots: Int64s) -> tuple[Int64s, Int64s]:
    order = np.argsort(ranks, kind="stable")
    return ranks[order], slots[order]


def _of_rank(dealt: tuple[Int64s, Int64s], rank: int) -> Int64s:
    ranks, slots = dealt
    low, high = np.searchsorted(ranks, [rank, rank + 1])
    return slots[low:high]
