"""What each data-parallel rank of one Megatron model-parallel rank stores, file by file.

A *group* is the data-parallel ranks (data x context) of one model-parallel rank; a *member* is one of
them. All members hold the same bf16 parameters, each stores some of them (`distribute_shards_to_ranks`),
and each stores its own slices of the optimizer's buffer.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.formats import torch_zip
from ckptstorm.layouts.formats.dcp_buckets import deal_by_size
from ckptstorm.layouts.megatron_buffer import Buffer
from ckptstorm.layouts.megatron_shard import Parameter

Int64s = NDArray[np.int64]

#: bf16 parameters; fp32 parameter, exp_avg and exp_avg_sq.
MODEL_BYTES, STATE_BYTES, STATE_COUNT = 2, 4, 3
#: Of param, exp_avg, exp_avg_sq: which comes how late by its name.
_STATES_BY_NAME = np.array([2, 0, 1], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """One file of a member.

    Attributes:
        blobs: sizes of the objects at its start.
        data_bytes: of each tensor behind them, in file order.
        size_bytes: all together.
    """

    blobs: tuple[int, ...]
    data_bytes: Int64s
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """All that a member stores.

    Attributes:
        files: those that are not empty.
        file_index, offset: of each of its tensors (model tensors, then optimizer), in plan order.
        blob_places: (file index, offset) of each of its objects.
    """

    files: tuple[Content, ...]
    file_index: Int64s
    offset: Int64s
    blob_places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Group:
    """The members of one model-parallel rank, and what they store.

    Attributes:
        parameters: of the model-parallel rank, in module order.
        buffer: the optimizer's.
        member_count: how many members.
        key_elements: elements of the whole tensor behind each key.
        is_first_tensor_rank: whether this group stores what all tensor-parallel ranks hold.
        spread: "members" gives each parameter to one of them, "first" all to the first.
        blobs: objects that member 0 stores.
        worker_count: files of a member.
    """

    parameters: tuple[Parameter, ...]
    buffer: Buffer
    member_count: int
    key_elements: dict[str, int]
    is_first_tensor_rank: bool
    spread: str
    blobs: tuple[int, ...]
    worker_count: int

    @cached_property
    def _items(self) -> list[tuple[Parameter, int]]:
        """(parameter, part) of each model tensor, in module order."""
        return [(parameter, part) for parameter in self.parameters for part in range(len(parameter.parts))]

    @cached_property
    def _keys(self) -> Int64s:
        """By model tensor: the number of its key."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(item.key, len(numbers)) for item, _ in self._items], dtype=np.int64)

    def in_plan_order(self, items: Int64s) -> Int64s:
        """Model tensors key by key, as Megatron plans them: a key stands where the first of these tensors has it."""
        _, first, number = np.unique(self._keys[items], return_index=True, return_inverse=True)
        return items[np.argsort(first[number], kind="stable")]

    @cached_property
    def model_bytes(self) -> Int64s:
        """Of each model tensor, in module order."""
        return np.array([parameter.parts[part] * MODEL_BYTES for parameter, part in self._items], dtype=np.int64)

    @cached_property
    def is_elsewhere(self) -> NDArray[np.bool_]:
        """By model tensor: whether the group of tensor-parallel rank 0 stores it."""
        copied = np.array([parameter.is_copied for parameter, _ in self._items], dtype=np.bool_)
        return copied & (not self.is_first_tensor_rank)

    @cached_property
    def owner(self) -> Int64s:
        """By model tensor: the member that reads it when the load is fully parallel, and stores it if the group does.

        Greedy: what every member holds goes, largest first, to the one with least; optimizer slices,
        which one member holds, are charged before. What is stored elsewhere comes last.
        """
        charged = self.buffer.member_elements(self.member_count) * (STATE_BYTES * STATE_COUNT)
        heap = [(size, member) for member, size in enumerate(charged.tolist())]
        heapq.heapify(heap)
        sizes, elsewhere = self.model_bytes.tolist(), self.is_elsewhere.tolist()

        def rank_of(item: int) -> tuple[bool, int, str, int, int]:
            parameter, part = self._items[item]
            return elsewhere[item], -sizes[item], parameter.key, parameter.layer, part

        owner = np.zeros(len(sizes), dtype=np.int64)
        for item in sorted(range(len(sizes)), key=rank_of):
            size, member = heap[0]
            heapq.heapreplace(heap, (size + sizes[item], member))
            owner[item] = member
        return owner

    @cached_property
    def writer(self) -> Int64s:
        """By model tensor: the member that stores it; -1 when another group does."""
        chosen = self.owner if self.spread == "members" else np.zeros_like(self.owner)
        return np.where(self.is_elsewhere, -1, chosen)

    @cached_property
    def written(self) -> tuple[Int64s, ...]:
        """By member: the model tensors that it stores, in plan order."""
        return tuple(self.in_plan_order(np.flatnonzero(self.writer == member)) for member in range(self.member_count))

    @cached_property
    def place(self) -> Int64s:
        """By model tensor: its place among those that its writer stores."""
        places = np.zeros(len(self.writer), dtype=np.int64)
        for items in self.written:
            places[items] = np.arange(len(items))
        return places

    @cached_property
    def _global_bytes(self) -> Int64s:
        """By model tensor: bytes of the whole tensor behind its key."""
        elements = [self.key_elements[parameter.key] for parameter, _ in self._items]
        return np.array(elements, dtype=np.int64) * MODEL_BYTES

    def optimizer_bytes(self, member: int) -> tuple[Int64s, Int64s]:
        """(bytes, bytes of the whole bucket) of each optimizer tensor of `member`: by bucket, state, place."""
        bucket, _, elements = self._optimizer(member)
        return elements * STATE_BYTES, self.buffer.bucket_elements[bucket] * STATE_BYTES

    def _optimizer(self, member: int) -> tuple[Int64s, Int64s, Int64s]:
        """(bucket, state, elements) of each optimizer tensor of `member`, in plan order."""
        bucket, elements = self.buffer.fragments(member)
        states = np.repeat(np.arange(STATE_COUNT), len(bucket))
        order = np.lexsort((states, np.tile(bucket, STATE_COUNT)))  # stable: places stay ascending
        return np.tile(bucket, STATE_COUNT)[order], states[order], np.tile(elements, STATE_COUNT)[order]

    def state_place(self, member: int, interval: int, state: int) -> int:
        """Where in the plan order of `member`'s optimizer tensors that of an interval stands."""
        if member not in self._overlapping:
            self._overlapping[member] = self.buffer.overlapping(member)
        own, bucket = self._overlapping[member], self.buffer.bucket[interval]
        first, last = np.searchsorted(self.buffer.bucket[own], [bucket, bucket + 1])
        within = int(np.searchsorted(own, interval)) - int(first)
        return STATE_COUNT * int(first) + state * int(last - first) + within

    @cached_property
    def _overlapping(self) -> dict[int, Int64s]:
        """Made before, by member: intervals that it holds a part of."""
        return {}

    def states_in_load_order(self, member: int) -> list[tuple[int, int]]:
        """(interval, state) of `member`'s optimizer tensors, by name: "…bucket_idx_10.…" comes before "…_2.…"."""
        held = np.tile(self.buffer.overlapping(member), STATE_COUNT)
        state = np.repeat(np.arange(STATE_COUNT), len(held) // STATE_COUNT)
        by_name = sorted(range(len(self.buffer.bucket_elements)), key=lambda index: f"{index}.")
        rank = np.empty(len(by_name), dtype=np.int64)
        rank[by_name] = np.arange(len(by_name))
        order = np.lexsort((held, _STATES_BY_NAME[state], rank[self.buffer.bucket[held]]))
        return list(zip(held[order].tolist(), state[order].tolist(), strict=True))

    def in_load_order(self, items: Int64s) -> tuple[Int64s, Int64s]:
        """Model tensors by name: those before the optimizer's, those behind them."""
        named = sorted(items.tolist(), key=lambda item: self._items[item][0].key)
        before = [item for item in named if self._items[item][0].key < "optimizer"]
        return np.array(before, dtype=np.int64), np.array(named[len(before) :], dtype=np.int64)

    @cached_property
    def stored(self) -> tuple[Stored, ...]:
        """By member."""
        return tuple(self._stored(member) for member in range(self.member_count))

    def _stored(self, member: int) -> Stored:
        own = self.written[member]
        optimizer, whole = self.optimizer_bytes(member)
        data = np.concatenate([self.model_bytes[own], optimizer])
        blobs = self.blobs if member == 0 else ()
        bins = np.zeros(len(data), dtype=np.int64)
        order = np.arange(len(data), dtype=np.int64)
        if self.worker_count > 1:
            sizes = np.concatenate([self._global_bytes[own], whole])
            order = np.argsort(-sizes, kind="stable").astype(np.int64)
            bins[order] = deal_by_size(sizes[order].tolist(), self.worker_count)
        return _filed(data, order, bins, blobs, self.worker_count)


def _filed(data: Int64s, order: Int64s, bins: Int64s, blobs: tuple[int, ...], worker_count: int) -> Stored:
    """Tensors written in `order`, each to its bin, behind the blobs, which are dealt in turn."""
    records = record_bytes(data)
    file_index, offset = np.zeros(len(data), dtype=np.int64), np.zeros(len(data), dtype=np.int64)
    files: list[Content] = []
    blob_places: dict[int, tuple[int, int]] = {}
    for worker in range(worker_count):
        mine = order[bins[order] == worker]
        objects = blobs[worker::worker_count]
        if not objects and not len(mine):
            continue  # a worker without items opens no file
        for at in range(len(objects)):
            blob_places[worker + at * worker_count] = (len(files), sum(objects[:at]))
        file_index[mine] = len(files)
        offset[mine] = sum(objects) + np.cumsum(records[mine]) - records[mine]
        files.append(Content(objects, data[mine], sum(objects) + int(records[mine].sum())))
    return Stored(tuple(files), file_index, offset, tuple(blob_places[blob] for blob in range(len(blobs))))


def record_bytes(data_bytes: Int64s) -> Int64s:
    """`torch_zip.tensor_record_bytes` of each; Megatron stores no empty tensor."""
    empty = torch_zip.tensor_record_bytes(0)
    return np.where(data_bytes == 0, empty, data_bytes - data_bytes % 64 + torch_zip.tensor_record_bytes(64) - 64)
