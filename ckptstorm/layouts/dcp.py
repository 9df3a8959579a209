"""torch.distributed.checkpoint with FSDP2, HSDP or DDP: `.distcp` files, `.metadata` renamed as the commit.

Facts from PyTorch 2.13 under strace; tests/real compares them again wherever torch is installed. One
of them: `finish` calls fsync on `.metadata.tmp` without flushing the file object first, so whatever
is in Python's buffer (all of it where st_blksize is larger than the file) is written after the fsync.
The commit of a default DCP save is then not durable, and the plan says so by the order of its ops.
"""

from __future__ import annotations

import errno
import os
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ckptstorm.errors import JobError
from ckptstorm.layouts import dcp_census
from ckptstorm.layouts.contract import Census, LayoutOptions, Pointer, Scene
from ckptstorm.layouts.dcp_files import Files, FilesByTensor, FilesByThread
from ckptstorm.layouts.dcp_items import Items, flyweights
from ckptstorm.layouts.dcp_restore import DcpRestore, file_name
from ckptstorm.layouts.formats import dcp_metadata, torch_zip
from ckptstorm.layouts.options import size_option
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Draft, Meet, Record, Run, Step, WriteFile
from ckptstorm.units import bytes_text

Int64s = NDArray[np.int64]

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_DIRECTORY_MODE = 0o777


_SHARDINGS = ("fsdp2", "hsdp", "ddp")


class DcpOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "dcp"."""

    #: Order of tensors in a file: "plan" as on CPU, "size" ascending as DCP does when a GPU is there.
    order: Literal["plan", "size"] = "plan"
    #: `thread_count`: files of a rank, each written by a thread of its own.
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    #: `single_file_per_rank=False`: a file for each tensor and blob.
    file_per_tensor: bool = False
    #: `.metadata` is made no larger than this; 0: as large as DCP makes it (gigabytes, in large worlds).
    metadata_cap: str | int = 0


class DcpLayout:
    """DCP's default writer with `sync_files`."""

    Options: ClassVar[type[LayoutOptions]] = DcpOptions
    pointer: ClassVar[Pointer | None] = Pointer(".metadata", "marker")

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene, self._options = scene, options
        self._items = Items(scene.model, scene.rank_count, options.order, replica_count(scene))
        self._cap_bytes = size_option("metadata_cap", options.metadata_cap) if options.metadata_cap else 0

    @cached_property
    def _own(self) -> DcpRestore:
        """The readers are the world that saved."""
        items = self._items
        return DcpRestore(items, self._files, self._metadata(), items.rank_count, items.replica_count)

    @cached_property
    def _files(self) -> Files:
        if self._options.file_per_tensor:
            return FilesByTensor(self._items)
        return FilesByThread(self._items, self._options.threads) if self._options.threads > 1 else Files(self._items)

    def check(self) -> None:
        """Refuse what DCP is not made of here."""
        options = self._options
        check_scene(self._scene, "parallel")
        if options.file_per_tensor and options.threads > 1:
            raise JobError(
                f"[layout] threads = {options.threads} beside file_per_tensor = true: which thread takes which"
                " of a rank's files is a race in DCP, so no plan can say it",
                "remove [layout] threads, or set [layout] file_per_tensor = false",
            )
        if options.order == "size" and options.threads > 1:
            raise JobError(
                f'[layout] order = "size" means nothing beside [layout] threads = {options.threads}',
                "remove [layout] order: with threads DCP writes by descending size",
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
            self._items.message_bytes(dcp_metadata.PLAN_ITEM_BYTES),
            self._items.message_bytes(dcp_metadata.RESULT_ITEM_BYTES),
        )
        return (
            Run((tuple(opening),)),
            Meet("gather", "save plans to rank 0", bytes_per_rank=plan),
            Meet("scatter", "deduplicated plans from rank 0", bytes_per_rank=plan),
            Run(self._drafts(rank)),
            Meet("gather", "write results to rank 0", bytes_per_rank=results),
            *commit,
            Meet("bcast", "metadata to all ranks", bytes_per_rank=self.metadata_bytes),
        )

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load the shards of `rank`: all of `.metadata`, then files in the order of first need."""
        return self._own.restore(rank)

    def resharded(self, scene: Scene) -> DcpRestore:
        """DCP reads whole records of every stored shard that overlaps, whatever the mesh of the readers."""
        check_scene(scene, "restore.parallel")
        return DcpRestore(self._items, self._files, self._metadata(), scene.rank_count, replica_count(scene))

    def created(self, rank: int) -> tuple[str, ...]:
        """The rank's data files; rank 0 also makes `.metadata`, by way of `.metadata.tmp`."""
        commit = (".metadata.tmp", ".metadata") if rank == 0 else ()
        return (*(file_name(rank, index) for index in range(self._files.count(rank))), *commit)

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """Rank 0 commits; all others do alike but for the number of their files."""
        counts = self._files.counts()[1:]
        _, first, ranks = np.unique(counts, return_index=True, return_counts=True)
        return ((0, 1), *zip((first + 1).tolist(), ranks.tolist(), strict=True))

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each set of shard shapes; who holds which scalar or replica differs inside a class."""
        return self._own.restore_classes()

    def census(self) -> Census:
        """Counts over all ranks, in closed form."""
        return Census(
            records=dcp_census.record_counts(self._items),
            file_bytes=self._files.rank_bytes,
            file_count=int(self._files.counts().sum()),
            commit_bytes=self.metadata_bytes,
            commit_files=1,
            notes=self.notes,
        )

    @cached_property
    def metadata_bytes(self) -> int:
        """Size of `.metadata`: DCP's own, or the cap."""
        whole = dcp_census.metadata_bytes(self._items)
        return min(whole, self._cap_bytes) if self._cap_bytes else whole

    @property
    def notes(self) -> tuple[str, ...]:
        """That `.metadata` is not what DCP would make of it."""
        whole = dcp_census.metadata_bytes(self._items)
        if whole <= self.metadata_bytes:
            return ()
        return (
            f".metadata is {bytes_text(self.metadata_bytes)} by [layout] metadata_cap; PyTorch would write and every"
            f" rank would read {bytes_text(whole)}",
        )

    def _metadata(self) -> Path:
        return Path(STEP, ".metadata", 0, self.metadata_bytes)

    def _commit(self) -> tuple[WriteFile | Call, ...]:
        temporary = Path(STEP, ".metadata.tmp", 0, self.metadata_bytes, content=".metadata")
        final = self._metadata()
        # The first save of all finds no `.metadata` and unlinks nothing; a plan has no round, so it asks anyway.
        replaced = (Call(Kind.UNLINK, final, expect=errno.ENOENT),) if self._scene.overwrite else ()
        return (
            WriteFile(temporary, dcp_metadata.write_records(self.metadata_bytes), "python", True, _CREATE),
            Call(Kind.STAT, final, expect=errno.ENOENT),
            *replaced,
            Call(Kind.RENAME, temporary, target=final),
        )

    def _drafts(self, rank: int) -> tuple[Draft, ...]:
        """A thread for each file; with a file for each tensor, one thread for all."""
        data, sizes = self._items.data_bytes(rank), self._items.blob_bytes
        if self._options.file_per_tensor:
            slots = np.sort(self._items.file_slots(rank))
            records = flyweights(torch_zip.tensor_record, data[slots])
            records += [torch_zip.blob_record(sizes[blob]) for blob in self._items.own_blobs(rank)]
            return (tuple(_file(rank, index, record.size_bytes, (record,)) for index, record in enumerate(records)),)
        return tuple(
            (
                _file(
                    rank,
                    index,
                    content.size_bytes,
                    (
                        *(torch_zip.blob_record(sizes[blob]) for blob in content.blobs),
                        *map(torch_zip.tensor_record, data[content.slots].tolist()),
                    ),
                ),
            )
            for index, content in enumerate(self._files.contents(rank))
        )


def _file(rank: int, index: int, size_bytes: int, records: tuple[Record, ...]) -> WriteFile:
    return WriteFile(Path(STEP, file_name(rank, index), rank, size_bytes), records, "python", True, _CREATE)


def replica_count(scene: Scene) -> int:
    """Copies of each shard."""
    return {"ddp": scene.rank_count, "hsdp": scene.replicas}.get(scene.sharding, 1)


def check_scene(scene: Scene, table: str) -> None:
    """Refuse ways to cut a model that are not planned for DCP.

    Raises:
        JobError: names the key, in [parallel] or in [restore.parallel].
    """
    if scene.sharding not in _SHARDINGS:
        raise JobError(
            f'[{table}] sharding = "{scene.sharding}" is not planned for [layout] name = "dcp"',
            f'allowed: {", ".join(_SHARDINGS)}; or choose [layout] name = "file_per_rank"',
        )
    for key in ("tensor", "pipeline", "expert"):
        if getattr(scene.parallel, key) > 1:
            raise JobError(
                f'[{table}] {key} = {getattr(scene.parallel, key)} is not planned for [layout] name = "dcp" yet',
                f'set [{table}] {key} = 1, or choose [layout] name = "file_per_rank"',
            )
    if scene.sharding == "hsdp" and scene.rank_count % scene.replicas:
        raise JobError(
            f"[{table}] replicas = {scene.replicas} does not divide the {scene.rank_count} ranks",
            f"start a multiple of {scene.replicas} ranks, or choose replicas among the divisors",
        )
