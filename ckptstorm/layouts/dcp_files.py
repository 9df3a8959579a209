"""Which file of a rank each item lies in and where: DCP's three ways to cut a rank's plan into files.

* one file a rank: blobs, then tensors;
* `thread_count` files, each written by a thread of its own: blobs are dealt in turn, tensors by
  descending size (of the whole tensor) to the file that has least so far;
* one file an item (`single_file_per_rank=False`), in the order of the plan.

A reader must find a scalar in each of many other ranks' files, so places are worked out once for
all ranks that hold equal shards, and shifted by the few scalars, blobs and empty records of each.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts import dcp_census
from ckptstorm.layouts.dcp_items import SCALAR_BYTES, Items, record_bytes
from ckptstorm.layouts.formats import torch_zip
from ckptstorm.layouts.formats.dcp_buckets import deal_by_size

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """What one file holds.

    Attributes:
        blobs: parameter-group blobs at its start.
        slots: tensors behind them, in file order.
        size_bytes: all together.
    """

    blobs: tuple[int, ...]
    slots: Int64s
    size_bytes: int


class Files:
    """One file a rank."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._before_by_class: dict[Hashable, Int64s] = {}

    def count(self, rank: int) -> int:
        """How many files `rank` writes."""
        return 1

    def counts(self) -> Int64s:
        """How many files each rank writes."""
        return np.ones(self._items.rank_count, dtype=np.int64)

    def contents(self, rank: int) -> tuple[Content, ...]:
        """The files of `rank`."""
        items = self._items
        return (Content(tuple(items.own_blobs(rank)), items.file_slots(rank), self.size_bytes(rank, 0)),)

    def size_bytes(self, rank: int, file_index: int) -> int:
        """Size of a file."""
        return int(self.rank_bytes[rank])

    def places(self, rank: int, slots: Int64s) -> tuple[Int64s, Int64s]:
        """(file index, offset) of `slots`, all of which `rank` writes."""
        items, before = self._items, self._shard_bytes_before(rank)
        at = self._order_places[slots]
        offsets = before[slots] + self._blob_bytes_before(rank, len(items.blob_bytes))
        for others, size in (
            (items.own_scalar_slots(rank), torch_zip.tensor_record_bytes(SCALAR_BYTES)),
            (items.empty_slots(rank), torch_zip.tensor_record_bytes(0)),
        ):
            if len(others):
                offsets = offsets + np.searchsorted(np.sort(self._order_places[others]), at) * size
        return np.zeros(len(slots), dtype=np.int64), offsets

    @cached_property
    def scalar_places(self) -> tuple[Int64s, Int64s]:
        """By parameter: (file index, offset) of its `step` in the files of whoever writes it; every rank reads them."""
        items = self._items
        index, offset = np.zeros((2, len(items.scalar_rank)), dtype=np.int64)
        for holder in np.unique(items.scalar_rank).tolist():
            slots = items.own_scalar_slots(holder)
            mine = np.searchsorted(items.scalar_slots, slots)
            index[mine], offset[mine] = self.places(holder, slots)
        return index, offset

    def blob_place(self, rank: int, blob: int) -> tuple[int, int]:
        """(file index, offset) of `blob`, which `rank` writes."""
        return 0, self._blob_bytes_before(rank, blob)

    def _blob_bytes_before(self, rank: int, blob: int) -> int:
        return sum(self._items.blob_bytes[other] for other in self._items.own_blobs(rank) if other < blob)

    @cached_property
    def rank_bytes(self) -> Int64s:
        """Size of each rank's files together."""
        return dcp_census.file_bytes(self._items)

    @cached_property
    def _order_places(self) -> Int64s:
        """By slot: its place in file order."""
        places = np.empty_like(self._items.file_order)
        places[self._items.file_order] = np.arange(len(places))
        return places

    def _shard_bytes_before(self, rank: int) -> Int64s:
        """By slot: bytes of the shards before it in the file of `rank`; alike within a class."""
        held = self._items.held_class(rank)
        if held not in self._before_by_class:
            data = self._items.written_bytes(rank)
            sizes = np.where(data > 0, record_bytes(data), 0)[self._items.file_order]
            before = np.empty_like(sizes)
            before[self._items.file_order] = np.cumsum(sizes) - sizes
            self._before_by_class[held] = before
        return self._before_by_class[held]


class FilesByTensor(Files):
    """One file an item: tensors in slot order, blobs behind them."""

    def __init__(self, items: Items) -> None:
        super().__init__(items)
        self._earlier_by_class: dict[Hashable, Int64s] = {}

    def count(self, rank: int) -> int:
        """How many files `rank` writes."""
        return len(self._items.file_slots(rank)) + len(self._items.own_blobs(rank))

    def counts(self) -> Int64s:
        """How many files each rank writes."""
        return dcp_census.item_counts(self._items)

    def places(self, rank: int, slots: Int64s) -> tuple[Int64s, Int64s]:
        """(file index, offset) of `slots`, all of which `rank` writes."""
        items = self._items
        held = items.held_class(rank)
        if held not in self._earlier_by_class:
            is_own = (items.written_bytes(rank) > 0).astype(np.int64)
            self._earlier_by_class[held] = np.cumsum(is_own) - is_own
        indices = self._earlier_by_class[held][slots]
        for others in (items.own_scalar_slots(rank), np.sort(items.empty_slots(rank))):
            indices = indices + np.searchsorted(others, slots)
        return indices, np.zeros(len(slots), dtype=np.int64)

    def blob_place(self, rank: int, blob: int) -> tuple[int, int]:
        """(file index, offset) of `blob`, which `rank` writes."""
        own = self._items.own_blobs(rank)
        return len(self._items.file_slots(rank)) + own.index(blob), 0


@dataclass(frozen=True, slots=True, eq=False)
class _Dealt:
    """Tensors dealt to the files of a rank, without its blobs; alike for ranks that hold equal shards.

    Attributes:
        order: places among the rank's slots (`_slots`), as they are dealt.
        file_index, offset: of each, in that order.
        sizes: bytes of each file.
    """

    order: Int64s
    file_index: Int64s
    offset: Int64s
    sizes: tuple[int, ...]


class FilesByThread(Files):
    """As many files as threads."""

    def __init__(self, items: Items, thread_count: int) -> None:
        super().__init__(items)
        self._thread_count = thread_count
        self._known: dict[Hashable, _Dealt] = {}
        #: Then scalars come last whichever they are, and their number is all that matters.
        self._is_scalar_least = bool((items.total_bytes[~items.is_scalar] > SCALAR_BYTES).all())

    def count(self, rank: int) -> int:
        """How many files `rank` writes."""
        return self._thread_count

    def counts(self) -> Int64s:
        """How many files each rank writes."""
        return np.full(self._items.rank_count, self._thread_count, dtype=np.int64)

    def contents(self, rank: int) -> tuple[Content, ...]:
        """The files of `rank`."""
        dealt, slots = self._dealt(rank), self._slots(rank)
        own = self._items.own_blobs(rank)
        return tuple(
            Content(
                tuple(own[index :: self._thread_count]),
                slots[dealt.order[dealt.file_index == index]],
                self.size_bytes(rank, index),
            )
            for index in range(self._thread_count)
        )

    def size_bytes(self, rank: int, file_index: int) -> int:
        """Size of a file."""
        return self._dealt(rank).sizes[file_index] + self._blobs_of_file(rank, file_index)

    def places(self, rank: int, slots: Int64s) -> tuple[Int64s, Int64s]:
        """(file index, offset) of `slots`, all of which `rank` writes."""
        dealt, items = self._dealt(rank), self._items
        scalars = items.own_scalar_slots(rank)
        if self._is_scalar_least and len(slots) == len(scalars) and len(scalars) and items.is_scalar[slots[0]]:
            index, offset = dealt.file_index[-len(scalars) :], dealt.offset[-len(scalars) :]
        else:
            dealt_at = np.empty(len(items.is_scalar), dtype=np.int64)
            dealt_at[self._slots(rank)[dealt.order]] = np.arange(len(dealt.order))
            index, offset = dealt.file_index[dealt_at[slots]], dealt.offset[dealt_at[slots]]
        blobs = np.array([self._blobs_of_file(rank, at) for at in range(self._thread_count)], dtype=np.int64)
        return index, offset + blobs[index]

    def blob_place(self, rank: int, blob: int) -> tuple[int, int]:
        """(file index, offset) of `blob`, which `rank` writes."""
        own = self._items.own_blobs(rank)
        index = own.index(blob) % self._thread_count
        return index, sum(self._items.blob_bytes[other] for other in own[index :: self._thread_count] if other < blob)

    def _blobs_of_file(self, rank: int, file_index: int) -> int:
        own = self._items.own_blobs(rank)
        return sum(self._items.blob_bytes[blob] for blob in own[file_index :: self._thread_count])

    def _dealt(self, rank: int) -> _Dealt:
        items = self._items
        scalars, empties = items.own_scalar_slots(rank), items.empty_slots(rank)
        told = len(scalars) if self._is_scalar_least else tuple(scalars.tolist())
        key = (items.held_class(rank), told, tuple(empties.tolist()))
        if key not in self._known:
            self._known[key] = self._deal(rank)
        return self._known[key]

    def _slots(self, rank: int) -> Int64s:
        """Slots that `rank` writes, ascending; scalars, of which each rank has others, last if they may be."""
        slots, is_scalar = np.sort(self._items.file_slots(rank)), self._items.is_scalar
        if not self._is_scalar_least:
            return slots
        return np.concatenate([slots[~is_scalar[slots]], slots[is_scalar[slots]]])

    def _deal(self, rank: int) -> _Dealt:
        slots = self._slots(rank)
        order = np.argsort(-self._items.total_bytes[slots], kind="stable").astype(np.int64)
        files = deal_by_size(self._items.total_bytes[slots][order].tolist(), self._thread_count)
        stored = record_bytes(self._items.data_bytes(rank)[slots])[order]
        offset, sizes = np.zeros(len(order), dtype=np.int64), []
        for index in range(self._thread_count):
            mine = files == index
            offset[mine] = np.cumsum(stored[mine]) - stored[mine]
            sizes.append(int(stored[mine].sum()))
        return _Dealt(order, files, offset, tuple(sizes))
