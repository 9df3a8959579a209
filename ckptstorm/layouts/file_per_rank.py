"""One file a rank, one write a tensor, no header: a stream of tensors, and what storage can do at best.

No framework writes exactly this; it is the yardstick beside those that do, and the layout for shards
of any size (`[model] shard_bytes`) and any parallelism.
"""

from __future__ import annotations

import errno
import os
from typing import Any, ClassVar

import numpy as np

from ckptstorm.layouts.contract import Census, LayoutOptions, Reader, Scene
from ckptstorm.layouts.recut import Recut
from ckptstorm.layouts.shards import Shards, tensor_records, whole_reads
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Meet, ReadFile, Run, Step, WriteFile

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class FilePerRankOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "file_per_rank": none."""


class FilePerRankLayout:
    """Weights and moments, tensor after tensor, in `rank-00012.ckpt`."""

    Options: ClassVar[type[LayoutOptions]] = FilePerRankOptions
    pointer: ClassVar[None] = None

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene = scene
        self._shards = Shards(scene)

    def check(self) -> None:
        """Refuse shardings that are no plain cut of the tensors."""
        self._shards.check("file_per_rank")

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: its file, then the directory that names it."""
        directory = Path(STEP, "")
        file = WriteFile(self._path(rank), tensor_records(self._shards.sizes(rank)), "direct", True, _CREATE)
        return (
            Run(((Call(Kind.MKDIR, directory, expect=errno.EEXIST, mode=0o777),),)),
            Meet("barrier", "the directory is there"),
            Run(((file,),)),
            Run(((Call(Kind.FSYNC_DIR, directory),),), part="commit"),
            Meet("barrier", "all files are durable"),
        )

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that read the file of `rank` back, one read a tensor."""
        sizes = self._shards.sizes(rank)
        offsets = (np.cumsum(sizes) - np.array(sizes, dtype=np.int64)).tolist() if sizes else []
        file = ReadFile(self._path(rank), tuple(offsets), whole_reads(sizes), "direct")
        return (Run(((file,),)), Meet("barrier", "all ranks have their shards"))

    def resharded(self, scene: Scene) -> Reader:
        """Each rank reads, of every stored tensor that it shares, the range that covers what it holds."""
        self._shards.check("file_per_rank")
        Shards(scene).check("file_per_rank", "restore.parallel")
        return Recut(self._scene, scene, self._shards, self._path)

    def created(self, rank: int) -> tuple[str, ...]:
        """The rank's one file."""
        return (_file_name(rank),)

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """All ranks do alike."""
        return ((0, self._scene.rank_count),)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each distinct shard."""
        return self._shards.classes

    def census(self) -> Census:
        """Counts over all ranks, from one rank of each class."""
        records = self._shards.record_counts(lambda rank: tensor_records(self._shards.sizes(rank)))
        return Census(records, self._shards.bytes_by_rank, self._scene.rank_count)

    def _path(self, rank: int) -> Path:
        return Path(STEP, _file_name(rank), rank, sum(self._shards.sizes(rank)))


def _file_name(rank: int) -> str:
    return f"rank-{rank:05d}.ckpt"
