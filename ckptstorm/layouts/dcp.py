"""torch.distributed.checkpoint with FSDP2: one `.distcp` file a rank, `.metadata` renamed as the commit.

Facts from PyTorch 2.13 under strace; tests/real compares them again wherever torch is installed. One
of them: `finish` calls fsync on `.metadata.tmp` without flushing the file object first, so whatever
is in Python's buffer (all of it where st_blksize is larger than the file) is written after the fsync.
The commit of a default DCP save is then not durable, and the plan says so by the order of its ops.
"""

from __future__ import annotations

import errno
import itertools
import os
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ckptstorm.errors import JobError
from ckptstorm.layouts import dcp_census
from ckptstorm.layouts.contract import Census, LayoutOptions, Scene
from ckptstorm.layouts.dcp_items import SCALAR_BYTES, Items, record_bytes
from ckptstorm.layouts.formats import dcp_metadata, torch_zip
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Meet, ReadFile, ReadRecord, Run, Step, WriteFile

Int64s = NDArray[np.int64]

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_DIRECTORY_MODE = 0o777


class DcpOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "dcp"."""

    #: Order of tensors in a file: "plan" as on CPU, "size" ascending as DCP does when a GPU is there.
    order: Literal["plan", "size"] = "plan"


class DcpLayout:
    """DCP's default writer: `single_file_per_rank`, `sync_files`, one thread."""

    Options: ClassVar[type[LayoutOptions]] = DcpOptions

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene = scene
        self._items = Items(scene.model, scene.rank_count, options.order)

    def check(self) -> None:
        """Refuse what FSDP2 through DCP is not (yet) made of here."""
        parallel = self._scene.parallel
        if self._scene.sharding != "fsdp2":
            raise JobError(
                f'[parallel] sharding = "{self._scene.sharding}" is not planned for [layout] name = "dcp"',
                'allowed: fsdp2; or choose [layout] name = "file_per_rank"',
            )
        for key in ("tensor", "pipeline", "expert"):
            if getattr(parallel, key) > 1:
                raise JobError(
                    f'[parallel] {key} = {getattr(parallel, key)} is not planned for [layout] name = "dcp" yet',
                    f'set [parallel] {key} = 1, or choose [layout] name = "file_per_rank"',
                )

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank` up to and including the rename of `.metadata`."""
        directory, metadata = Path(STEP, ""), self._metadata()
        opening = [Call(Kind.MKDIR, directory, expect=errno.EEXIST, mode=_DIRECTORY_MODE)]
        if rank > 0:
            # One rank makes the directory; pathlib has the others look whether it is one. Which rank
            # wins is a race: the count is exact, the loser is not.
            opening.append(Call(Kind.STAT, directory))
        opening.append(Call(Kind.STAT, metadata, expect=errno.ENOENT))
        commit = (Run((self._commit(),), part="commit"),) if rank == 0 else ()
        plan, results = (
            self._item_message(dcp_metadata.PLAN_ITEM_BYTES),
            self._item_message(dcp_metadata.RESULT_ITEM_BYTES),
        )
        return (
            Run((tuple(opening),)),
            Meet("gather", "save plans to rank 0", bytes_per_rank=plan),
            Meet("scatter", "deduplicated plans from rank 0", bytes_per_rank=plan),
            Run(((self._data_file(rank),),)),
            Meet("gather", "write results to rank 0", bytes_per_rank=results),
            *commit,
            Meet("bcast", "metadata to all ranks", bytes_per_rank=self.metadata_bytes),
        )

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load the shards of `rank`: all of `.metadata`, its own file, and others' scalars and blobs."""
        plan = self._item_message(dcp_metadata.PLAN_ITEM_BYTES)
        return (
            Run(((self._metadata_read,),)),
            Meet("gather", "load plans to rank 0", bytes_per_rank=plan),
            Meet("scatter", "load plans from rank 0", bytes_per_rank=plan),
            Run((tuple(self._reads(rank)),)),
            Meet("barrier", "results of all ranks (all-gather of a few bytes)"),
        )

    def created(self, rank: int) -> tuple[str, ...]:
        """The rank's data file; rank 0 also makes `.metadata`, by way of `.metadata.tmp`."""
        commit = (".metadata.tmp", ".metadata") if rank == 0 else ()
        return (_file_name(rank), *commit)

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """Rank 0 commits; all others do alike."""
        others = self._scene.rank_count - 1
        return ((0, 1), (1, others)) if others else ((0, 1),)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each set of shard shapes; who holds which scalar differs inside a class."""
        edges = [0, *self._breakpoints[self._breakpoints < self._scene.rank_count].tolist(), self._scene.rank_count]
        spans = itertools.pairwise(edges)
        return tuple((low + (high - low) // 2, high - low) for low, high in spans if high > low)

    def census(self) -> Census:
        """Counts over all ranks, in closed form."""
        return Census(
            records=dcp_census.record_counts(self._items),
            file_bytes=self._file_bytes,
            file_count=self._scene.rank_count,
            commit_bytes=self.metadata_bytes,
            commit_files=1,
        )

    @cached_property
    def metadata_bytes(self) -> int:
        """Size of `.metadata`."""
        return dcp_census.metadata_bytes(self._items)

    def _item_message(self, item_bytes: int) -> int:
        """Bytes of a pickled message about every item that a rank holds, names included."""
        names = self._items.rows.name_bytes + 15
        return len(self._items.is_scalar) * item_bytes + int(self._items.spread(names, names).sum())

    def _metadata(self) -> Path:
        return Path(STEP, ".metadata", 0, self.metadata_bytes)

    def _commit(self) -> tuple[WriteFile | Call, ...]:
        temporary = Path(STEP, ".metadata.tmp", 0, self.metadata_bytes, content=".metadata")
        final = self._metadata()
        replaced = (Call(Kind.UNLINK, final, expect=errno.ENOENT),) if self._scene.overwrite else ()
        return (
            WriteFile(temporary, dcp_metadata.write_records(self.metadata_bytes), "python", True, _CREATE),
            Call(Kind.STAT, final, expect=errno.ENOENT),
            *replaced,
            Call(Kind.RENAME, temporary, target=final),
        )

    def _data_file(self, rank: int) -> WriteFile:
        items = self._items
        blobs = [torch_zip.blob_record(items.blob_bytes[blob]) for blob in items.own_blobs(rank)]
        tensors = items.data_bytes(rank)[items.file_slots(rank)]
        path = Path(STEP, _file_name(rank), rank, self._size_bytes(rank))
        return WriteFile(path, (*blobs, *_flyweights(torch_zip.tensor_record, tensors)), "python", True, _CREATE)

    @cached_property
    def _file_bytes(self) -> Int64s:
        return dcp_census.file_bytes(self._items)

    def _size_bytes(self, rank: int) -> int:
        return int(self._file_bytes[rank])

    @cached_property
    def _metadata_read(self) -> ReadFile:
        return ReadFile(self._metadata(), *dcp_metadata.reads(self.metadata_bytes), "python")

    def _reads(self, rank: int) -> list[ReadFile]:
        """Files in the order in which the load plan first needs each."""
        items = self._items
        by_rank: dict[int, list[tuple[int, int, ReadRecord]]] = {}  # slot, offset, how
        scalar = torch_zip.tensor_read(SCALAR_BYTES)
        holders = np.unique(items.deal.scalar_rank).tolist()
        for holder in holders:
            slots, offsets = self._scalar_offsets(holder)
            by_rank[holder] = [(slot, offset, scalar) for slot, offset in zip(slots, offsets, strict=True)]
        own = self._own_reads(rank)
        by_rank[rank] = sorted(by_rank.get(rank, []) + own, key=lambda read: read[0])
        after_all = len(items.is_scalar)
        for blob, holder in enumerate(items.deal.blob_rank.tolist()):
            read = (after_all + blob, self._blob_offset(holder, blob), torch_zip.blob_read(items.blob_bytes[blob]))
            by_rank.setdefault(holder, []).append(read)
        files = sorted((reads[0][0], holder) for holder, reads in by_rank.items() if reads)
        return [self._read_file(holder, by_rank[holder]) for _, holder in files]

    def _read_file(self, holder: int, reads: list[tuple[int, int, ReadRecord]]) -> ReadFile:
        path = Path(STEP, _file_name(holder), holder, self._size_bytes(holder))
        return ReadFile(path, tuple(read[1] for read in reads), tuple(read[2] for read in reads), "python")

    def _own_reads(self, rank: int) -> list[tuple[int, int, ReadRecord]]:
        """The shards of `rank`, out of its own file; nobody reads an empty record."""
        items, slots = self._items, self._items.file_slots(rank)
        data = items.data_bytes(rank)[slots]
        offsets = self._blob_offset(rank, len(items.blob_bytes)) + np.cumsum(record_bytes(data)) - record_bytes(data)
        wanted = (data > 0) & ~items.is_scalar[slots]
        how = _flyweights(torch_zip.tensor_read, data[wanted])
        return list(zip(slots[wanted].tolist(), offsets[wanted].tolist(), how, strict=True))

    def _blob_offset(self, holder: int, blob: int) -> int:
        """Where `blob` starts in the file of `holder`; past the last blob: where its tensors start."""
        return sum(self._items.blob_bytes[other] for other in self._items.own_blobs(holder) if other < blob)

    def _scalar_offsets(self, holder: int) -> tuple[list[int], list[int]]:
        """(slots, offsets) of the scalars in the file of `holder`."""
        items, before = self._items, self._shard_bytes_before(holder)
        slots = items.own_scalar_slots(holder)
        empties = np.sort(self._places[items.empty_slots(holder)])
        earlier = np.searchsorted(empties, self._places[slots]) * torch_zip.tensor_record_bytes(0)
        scalars = np.arange(len(slots)) * torch_zip.tensor_record_bytes(SCALAR_BYTES)
        offsets = self._blob_offset(holder, len(items.blob_bytes)) + before[slots] + scalars + earlier
        return slots.tolist(), offsets.tolist()

    @cached_property
    def _places(self) -> Int64s:
        """By slot: its place in file order."""
        places = np.empty_like(self._items.file_order)
        places[self._items.file_order] = np.arange(len(places))
        return places

    @cached_property
    def _breakpoints(self) -> Int64s:
        """Ranks from which on some tensor's shard has another number of rows."""
        shape, parts = self._items.rows, self._items.rank_count
        return np.unique(np.concatenate([shape.row_count // shape.most_rows(parts), shape.used_parts(parts)]))

    @cached_property
    def _before_by_class(self) -> dict[int, Int64s]:
        return {}

    def _shard_bytes_before(self, rank: int) -> Int64s:
        """By slot: bytes of the non-empty shards before it in the file of `rank`; alike within a class."""
        shape_class = int(np.searchsorted(self._breakpoints, rank, side="right"))
        if shape_class not in self._before_by_class:
            items = self._items
            data = items.data_bytes(rank)
            sizes = np.where((data > 0) & ~items.is_scalar, record_bytes(data), 0)[items.file_order]
            before = np.empty_like(sizes)
            before[items.file_order] = np.cumsum(sizes) - sizes
            self._before_by_class[shape_class] = before
        return self._before_by_class[shape_class]


def _file_name(rank: int) -> str:
    return f"__{rank}_0.distcp"


def _flyweights(make: Any, sizes: Int64s) -> list[Any]:
    """`make` of each size; one object for all of a size."""
    values, places = np.unique(sizes, return_inverse=True)
    made = [make(size) for size in values.tolist()]
    return [made[place] for place in places.tolist()]
