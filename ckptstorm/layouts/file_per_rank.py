"""One file a rank, one write a tensor, no header: a stream of tensors, and what storage can do at best.

No framework writes exactly this; it is the yardstick beside those that do, and the layout for shards
of any size (`[model] shard_bytes`) and any parallelism.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ckptstorm.errors import JobError
from ckptstorm.layouts.contract import Census, LayoutOptions, Scene
from ckptstorm.model.shard import pieces, shard_classes
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Meet, ReadFile, ReadRecord, Record, Run, Seek, Step, WriteFile

Int64s = NDArray[np.int64]

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_SHARDINGS = ("fsdp2", "ddp")


class FilePerRankOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "file_per_rank": none."""


class FilePerRankLayout:
    """Weights and moments, tensor after tensor, in `rank-00012.ckpt`."""

    Options: ClassVar[type[LayoutOptions]] = FilePerRankOptions

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene = scene
        self._sizes_by_rank: dict[int, tuple[int, ...]] = {}

    def check(self) -> None:
        """Refuse shardings that are no plain cut of the tensors."""
        if self._scene.sharding not in _SHARDINGS:
            raise JobError(
                f'[parallel] sharding = "{self._scene.sharding}" is not planned for [layout] name = "file_per_rank"',
                f"allowed: {', '.join(_SHARDINGS)}",
            )

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: its file, then the directory that names it."""
        directory = Path(STEP, "")
        file = WriteFile(self._path(rank), self._records(rank), "direct", True, _CREATE)
        return (
            Run(((Call(Kind.MKDIR, directory, expect=errno.EEXIST, mode=0o777),),)),
            Meet("barrier", "the directory is there"),
            Run(((file,),)),
            Run(((Call(Kind.FSYNC_DIR, directory),),), part="commit"),
            Meet("barrier", "all files are durable"),
        )

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that read the file of `rank` back, one read a tensor."""
        sizes = self._sizes(rank)
        offsets = (np.cumsum(sizes) - np.array(sizes, dtype=np.int64)).tolist() if sizes else []
        made = {size: ReadRecord(size, (Seek(0, size),)) for size in set(sizes)}
        file = ReadFile(self._path(rank), tuple(offsets), tuple(made[size] for size in sizes), "direct")
        return (Run(((file,),)), Meet("barrier", "all ranks have their shards"))

    def created(self, rank: int) -> tuple[str, ...]:
        """The rank's one file."""
        return (_file_name(rank),)

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """All ranks do alike."""
        return ((0, self._scene.rank_count),)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each distinct shard."""
        first, _, counts = self._classes
        return tuple(zip(first.tolist(), counts.tolist(), strict=True))

    def census(self) -> Census:
        """Counts over all ranks, from one rank of each class."""
        first, class_of, counts = self._classes
        records = Counter[Record]()
        for rank, rank_count in zip(first.tolist(), counts.tolist(), strict=True):
            for record in self._records(rank):
                records[Record(record.pieces)] += record.count * rank_count
        sizes = np.array([sum(self._sizes(rank)) for rank in first.tolist()], dtype=np.int64)
        return Census(records, sizes[class_of], self._scene.rank_count)

    @cached_property
    def _classes(self) -> tuple[Int64s, Int64s, Int64s]:
        """(first rank, class by rank, how many ranks) of each set of ranks whose shards have equal sizes."""
        scene = self._scene
        keys = shard_classes(scene.model, scene.parallel, scene.sharding)
        _, first, class_of, counts = np.unique(keys, axis=1, return_index=True, return_inverse=True, return_counts=True)
        return first.astype(np.int64), class_of.reshape(-1).astype(np.int64), counts.astype(np.int64)

    def _path(self, rank: int) -> Path:
        return Path(STEP, _file_name(rank), rank, sum(self._sizes(rank)))

    def _sizes(self, rank: int) -> tuple[int, ...]:
        """Bytes of each tensor in the file of `rank`, in file order."""
        if rank not in self._sizes_by_rank:
            model, copies = self._scene.model, 1 + len(self._scene.model.states)
            held = pieces(model, self._scene.parallel, self._scene.sharding, rank)
            self._sizes_by_rank[rank] = tuple(
                size for piece in held for size in (piece.element_count * model.element_bytes,) * copies
            )
        return self._sizes_by_rank[rank]

    def _records(self, rank: int) -> tuple[Record, ...]:
        """Runs of equal tensors."""
        records: list[Record] = []
        for size in self._sizes(rank):
            if records and records[-1].pieces == (size,):
                records[-1] = Record((size,), count=records[-1].count + 1)
            else:
                records.append(Record((size,)))
        return tuple(records)


def _file_name(rank: int) -> str:
    return f"rank-{rank:05d}.ckpt"
