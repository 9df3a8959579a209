"""How ranks load a DCP checkpoint: whole records of every stored shard that overlaps what a rank holds.

The mesh that loads need not be the one that saved. A rank works out by itself which rows it holds and
which stored shards they lie in; `torch.load` reads each of those records whole and narrows it in memory,
so that a rank that wants a third of a shard reads all of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.dcp_files import Files, FilesByTensor
from ckptstorm.layouts.dcp_items import SCALAR_BYTES, Items, flyweights
from ckptstorm.layouts.formats import dcp_metadata, torch_zip
from ckptstorm.program import STEP, Path
from ckptstorm.steps import Meet, ReadFile, ReadRecord, Run, Step

Int64s = NDArray[np.int64]

#: Beyond so many kinds of reader, neighbours count as alike.
_CLASSES_MOST = 48


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Stored shards that a rank reads, in the order of its load plan.

    Attributes:
        slots: which tensor.
        parts: which of its stored shards.
        data_bytes: bytes of that shard.
        writers: who stored it.
    """

    slots: Int64s
    parts: Int64s
    data_bytes: Int64s
    writers: Int64s


class DcpRestore:
    """The load of a world of `rank_count` ranks, each shard of which has `replica_count` copies."""

    def __init__(self, items: Items, files: Files, metadata: Path, rank_count: int, replica_count: int) -> None:
        self._items, self._files, self._metadata = items, files, metadata
        self._shard_count, self._replica_count = rank_count // replica_count, replica_count
        self._latest: dict[int, tuple[ReadFile, ...]] = {}  # the reads of the shard asked for last
        self._sizes: dict[tuple[int, int], int] = {}  # of files that some rank reads, by rank and file index

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load the shards of `rank`: all of `.metadata`, then files in the order of first need."""
        plan = self._items.message_bytes(dcp_metadata.PLAN_ITEM_BYTES)
        return (
            Run(((self._metadata_read,),)),
            Meet("gather", "load plans to rank 0", bytes_per_rank=plan),
            Meet("scatter", "load plans from rank 0", bytes_per_rank=plan),
            Run((self._reads(rank),)),
            Meet("barrier", "results of all ranks (all-gather of a few bytes)"),
        )

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each set of shard shapes; who holds which scalar or replica differs inside a class."""
        if self._shard_count == self._items.shard_count:
            spans = self._spans_of_equal_shards()
        else:
            spans = self._spans_of_equal_overlaps()
        return tuple((low + (high - low) // 2, (high - low) * self._replica_count) for low, high in spans if high > low)

    def _spans_of_equal_shards(self) -> list[tuple[int, int]]:
        items = self._items
        edges = [0, *items.breakpoints[items.breakpoints < items.shard_count].tolist(), items.shard_count]
        return list(itertools.pairwise(edges))

    def _spans_of_equal_overlaps(self) -> list[tuple[int, int]]:
        """Runs of shards that read equally many stored shards of each kind; merged when there are too many."""
        shape, kept = self._items.rows, []
        _, first = np.unique(shape.row_count, return_index=True)
        most_held, most_stored = (
            shape.most_rows(parts)[first] for parts in (self._shard_count, self._items.shard_count)
        )
        for shard in range(self._shard_count):
            low, high, total = shard * most_held, (shard + 1) * most_held, shape.row_count[first]
            high = np.minimum(high, total)
            parts = np.where(high > low, (high - 1) // most_stored - low // most_stored + 1, 0)
            has_rest = (high == total) & (high > low) & (total % most_stored > 0)
            kept.append(np.concatenate([parts, has_rest]))
        table = np.stack(kept)
        edges = np.flatnonzero((table[1:] != table[:-1]).any(axis=1)) + 1
        if len(edges) >= _CLASSES_MOST:
            edges = np.linspace(0, self._shard_count, _CLASSES_MOST + 1).astype(np.int64)[1:-1]
        return list(itertools.pairwise([0, *edges.tolist(), self._shard_count]))

    @cached_property
    def _metadata_read(self) -> ReadFile:
        return ReadFile(self._metadata, *dcp_metadata.reads(self._metadata.size_bytes), "python")

    def wanted(self, rank: int) -> Wanted:
        """The stored shards that overlap the rows of `rank`; nobody reads an empty record."""
        items, shard = self._items, rank % self._shard_count
        shape, scalars = items.rows, np.zeros(items.tensor_count, dtype=np.int64)
        held, stored = shape.most_rows(self._shard_count), shape.most_rows(items.shard_count)
        low = shard * held
        high = np.minimum(low + held, shape.row_count)
        first = low // stored
        counts = items.spread(np.where(high > low, (high - 1) // stored - first + 1, 0), scalars)
        slots = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        within = np.arange(len(slots), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        parts = items.spread(first, scalars)[slots] + within
        most, total, row_bytes = (
            items.spread(each, scalars)[slots] for each in (stored, shape.row_count, shape.row_bytes)
        )
        data = np.minimum(total - parts * most, most) * row_bytes
        return Wanted(slots, parts, data, self._writers(slots, parts))

    def _writers(self, slots: Int64s, parts: Int64s) -> Int64s:
        if self._items.replica_count == 1:
            return parts
        writers = np.empty(len(slots), dtype=np.int64)
        for part in np.unique(parts).tolist():
            mine = parts == part
            writers[mine] = self._items.shard_writer(part)[slots[mine]]
        return writers

    def _reads(self, rank: int) -> tuple[ReadFile, ...]:
        """Files in the order in which the load plan first needs each, items in the plan's order."""
        shard = rank % self._shard_count
        if shard not in self._latest:  # replicas read the same: with DDP all ranks do
            make = self._reads_by_tensor if isinstance(self._files, FilesByTensor) else self._reads_by_file
            self._latest = {shard: tuple(make(rank))}
        return self._latest[shard]

    def _reads_by_tensor(self, rank: int) -> list[ReadFile]:
        """A file for each item: nothing to bring together but their order."""
        items, files, wanted = self._items, self._files, self.wanted(rank)
        index = np.empty(len(wanted.slots), dtype=np.int64)
        for holder, mine in _runs_of(wanted.writers):
            index[mine] = files.places(holder, wanted.slots[mine])[0]
        how = flyweights(torch_zip.tensor_read, wanted.data_bytes)
        columns = (column.tolist() for column in (wanted.slots, wanted.writers, index))
        made = [(slot, _only(holder, at, read)) for slot, holder, at, read in zip(*columns, how, strict=True)]
        made += self._scalar_files
        made.sort(key=lambda pair: pair[0])  # stable: the parts of a tensor stay in order
        blobs = enumerate(items.blob_rank.tolist())
        places = ((holder, files.blob_place(holder, blob)[0], items.blob_bytes[blob]) for blob, holder in blobs)
        return [file for _, file in made] + [
            _only(holder, at, torch_zip.blob_read(size)) for holder, at, size in places
        ]

    @cached_property
    def _scalar_files(self) -> list[tuple[int, ReadFile]]:
        read = torch_zip.tensor_read(SCALAR_BYTES)
        return [(slot, _only(holder, index, read)) for slot, holder, index, _ in self._scalars]

    def _reads_by_file(self, rank: int) -> list[ReadFile]:
        items, files, wanted = self._items, self._files, self.wanted(rank)
        by_file: dict[tuple[int, int], list[tuple[int, int, int, ReadRecord]]] = {}  # slot, part, offset, how
        for holder, mine in _runs_of(wanted.writers):
            slots = wanted.slots[mine]
            how = flyweights(torch_zip.tensor_read, wanted.data_bytes[mine])
            columns = (column.tolist() for column in (slots, wanted.parts[mine], *files.places(holder, slots)))
            for slot, part, index, offset, read in zip(*columns, how, strict=True):
                by_file.setdefault((holder, index), []).append((slot, part, offset, read))
        for slot, holder, index, offset in self._scalars:
            scalar = torch_zip.tensor_read(SCALAR_BYTES)
            by_file.setdefault((holder, index), []).append((slot, 0, offset, scalar))
        for reads in by_file.values():
            reads.sort(key=lambda read: read[:2])
        after_all = len(items.is_scalar)
        for blob, holder in enumerate(items.blob_rank.tolist()):
            index, offset = files.blob_place(holder, blob)
            size = items.blob_bytes[blob]
            by_file.setdefault((holder, index), []).append((after_all + blob, 0, offset, torch_zip.blob_read(size)))
        ordered = sorted(by_file.items(), key=lambda entry: entry[1][0][:2])
        return [self._read_file(place, reads) for place, reads in ordered]

    @cached_property
    def _scalars(self) -> list[tuple[int, int, int, int]]:
        """(slot, holder, file index, offset) of each `step`, which every rank reads."""
        index, offset = self._files.scalar_places
        columns = (self._items.scalar_slots, self._items.scalar_rank, index, offset)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _read_file(self, place: tuple[int, int], reads: list[tuple[int, int, int, ReadRecord]]) -> ReadFile:
        holder, index = place
        if place not in self._sizes:
            self._sizes[place] = self._files.size_bytes(holder, index)
        path = Path(STEP, file_name(holder, index), holder, self._sizes[place])
        return ReadFile(path, tuple(read[2] for read in reads), tuple(read[3] for read in reads), "python")


def _runs_of(writers: Int64s) -> Iterator[tuple[int, Int64s]]:
    """(writer, where it stands) of each writer."""
    if not len(writers):  # a rank without rows reads no shard
        return
    order = np.argsort(writers, kind="stable")
    holders, starts = np.unique(writers[order], return_index=True)
    yield from zip(holders.tolist(), np.split(order, starts[1:]), strict=True)


def _only(holder: int, index: int, read: ReadRecord) -> ReadFile:
    """A file that holds one item."""
    return ReadFile(Path(STEP, file_name(holder, index), holder, read.size_bytes), (0,), (read,), "python")


def file_name(rank: int, index: int) -> str:
    """A data file's name."""
    return f"__{rank}_{index}.distcp"
