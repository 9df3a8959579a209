"""One file for all ranks (N-1): what MPI-IO and HDF5 jobs write, and what locks of a file system are for.

Each rank's shard is a stream, written in blocks at offsets of its own: one rank's after the other's
("segmented"), or block by block in turns ("strided"), where neighbours in the file are always two
ranks. All ranks open the file with O_CREAT and none truncates it, so who comes first does not matter.

The content of a file is one image whoever writes which part of it, so all its bytes are stamped with
rank 0: a mismatch in a shared file is traced to its writer by offset, not by stamp.
"""

from __future__ import annotations

import errno
import os
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from ckptstorm.layouts.contract import Census, LayoutOptions, Reader, Scene, first_apart, no_reshard
from ckptstorm.layouts.options import size_option
from ckptstorm.layouts.shards import Shards, block_records, whole_reads
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Meet, ReadFile, Record, Run, Step, WriteFile

_FILE_NAME = "shared.ckpt"
_DIRECTORY = Path(STEP, "")


class SharedFileOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "shared_file"."""

    #: "segmented": each rank's bytes side by side; "strided": one block of each rank in turn.
    pattern: Literal["segmented", "strided"] = "segmented"
    #: Bytes of a block: one write and one read.
    block_size: str | int = "4MiB"


class SharedFileLayout:
    """Weights and moments of all ranks in `shared.ckpt`.

    Strided, a rank's last block is short and a rank with less to save has fewer blocks: their places
    stay holes, as in a file of records of a fixed size.
    """

    Options: ClassVar[type[LayoutOptions]] = SharedFileOptions
    pointer: ClassVar[None] = None

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene = scene
        self._options: SharedFileOptions = options
        self._block_bytes = size_option("block_size", self._options.block_size)
        self._shards = Shards(scene)

    def check(self) -> None:
        """Refuse shardings that are no plain cut of the tensors."""
        self._shards.check("shared_file")

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: its blocks, synced by itself; rank 0 then syncs the directory."""
        file = WriteFile(
            self._path,
            self._records(rank),
            "direct",
            True,
            os.O_WRONLY | os.O_CREAT,
            offset_bytes=self._start(rank),
            stride_bytes=self._stride_bytes,
            longest=self._longest,
        )
        named = (Run(((Call(Kind.FSYNC_DIR, _DIRECTORY),),), part="commit"),) if rank == 0 else ()
        return (
            Run(((Call(Kind.MKDIR, _DIRECTORY, expect=errno.EEXIST, mode=0o777),),)),
            Meet("barrier", "the directory is there"),
            Run(((file,),)),
            *named,
            Meet("barrier", "all parts are durable"),
        )

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that read the blocks of `rank` back."""
        sizes = [record.size_bytes for record in self._records(rank) for _ in range(record.count)]
        step = self._stride_bytes or self._block_bytes
        offsets = tuple(self._start(rank) + index * step for index in range(len(sizes)))
        most = [record.size_bytes for record in self._longest for _ in range(record.count)]
        file = ReadFile(self._path, offsets, whole_reads(sizes), "direct", longest=whole_reads(most))
        return (Run(((file,),)), Meet("barrier", "all ranks have their shards"))

    def resharded(self, scene: Scene) -> Reader:
        """Refused by name."""
        raise no_reshard(
            "shared_file",
            "is one stream of blocks a rank: no framework cuts it anew",
            'choose [layout] name = "file_per_rank", or remove [restore.parallel]',
        )

    def created(self, rank: int) -> tuple[str, ...]:
        """The one file, in the name of rank 0 (whoever opens it first)."""
        return (_FILE_NAME,) if rank == 0 else ()

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """Rank 0 syncs the directory; all else is alike."""
        return first_apart(self._scene.rank_count)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each distinct shard."""
        return self._shards.classes

    def census(self) -> Census:
        """Counts over all ranks, from one rank of each class."""
        return Census(self._shards.record_counts(self._records), self._shards.bytes_by_rank, 1)

    def _records(self, rank: int) -> tuple[Record, ...]:
        sizes = self._shards.sizes(rank)
        return block_records(sum(sizes), self._block_bytes, len(sizes))

    @cached_property
    def _longest(self) -> tuple[Record, ...]:
        """The records of the rank that has most of them."""
        return block_records(int(self._shards.bytes_by_rank.max()), self._block_bytes, 1)

    @property
    def _stride_bytes(self) -> int:
        return self._block_bytes * self._scene.rank_count if self._options.pattern == "strided" else 0

    def _start(self, rank: int) -> int:
        return self._block_bytes * rank if self._stride_bytes else int(self._shards.starts[rank])

    @cached_property
    def _path(self) -> Path:
        return Path(STEP, _FILE_NAME, 0, self._size_bytes(), is_shared=True)

    def _size_bytes(self) -> int:
        """Up to the end of the last block in the file."""
        sizes = self._shards.bytes_by_rank
        if not self._stride_bytes:
            return int(sizes.sum())
        last = np.maximum(-(-sizes // self._block_bytes) - 1, 0)
        starts = last * self._stride_bytes + np.arange(len(sizes)) * self._block_bytes
        ends = np.where(sizes > 0, starts + sizes - last * self._block_bytes, 0)
        return int(ends.max())
