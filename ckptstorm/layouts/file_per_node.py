"""One file a node: fewer files and longer streams than one a rank, without all ranks in one file.

What aggregating checkpointers do (VELOC, ADIOS2 with one aggregator a node): the ranks of a node hand
their shards to one writer, or write side by side into the node's file. A node is so many ranks in a
row; the plan does not ask where they really run, so that clean-up finds the same names afterwards.
Bytes in a file are one image whoever writes them: they are stamped with the node's first rank.
"""

from __future__ import annotations

import errno
import os
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ckptstorm.errors import JobError
from ckptstorm.layouts.contract import Census, LayoutOptions, Reader, Scene, no_reshard
from ckptstorm.layouts.shards import Shards, tensor_records, whole_reads
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Meet, ReadFile, Run, Step, WriteFile

Int64s = NDArray[np.int64]

_NAME = "file_per_node"
_DIRECTORY = Path(STEP, "")


class FilePerNodeOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "file_per_node"."""

    #: Ranks of a node, in a row, as the launcher places them. Must be given.
    ranks_per_node: Annotated[int, msgspec.Meta(ge=0, le=65536)] = 0
    #: "one": the node's first rank writes all; "all": every rank writes its own range.
    writers: Literal["one", "all"] = "one"


class FilePerNodeLayout:
    """Weights and moments of a node's ranks, rank after rank, in `node-00003.ckpt`."""

    Options: ClassVar[type[LayoutOptions]] = FilePerNodeOptions
    pointer: ClassVar[None] = None

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene = scene
        self._options: FilePerNodeOptions = options
        self._shards = Shards(scene)

    def check(self) -> None:
        """Refuse nodes without ranks, and shardings that are no plain cut of the tensors."""
        if self._options.ranks_per_node == 0:
            raise JobError(
                f'[layout] ranks_per_node is missing: layout "{_NAME}" must know a node',
                "give [layout] ranks_per_node, the ranks that the launcher puts on one node (8, say)",
            )
        self._shards.check(_NAME)

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: the node's file or its range in it, synced, then the directory."""
        made = Run(((Call(Kind.MKDIR, _DIRECTORY, expect=errno.EEXIST, mode=0o777),),))
        data = Run(((self._write(rank),),))
        named = (Run(((Call(Kind.FSYNC_DIR, _DIRECTORY),),), part="commit"),) if self._is_first(rank) else ()
        durable = Meet("barrier", "all files are durable")
        if self._options.writers == "all":
            return (made, Meet("barrier", "the directory is there"), data, *named, durable)
        gather = Meet("gather", "shards to the writer of each node (in its memory: not moved here)")
        return (made, gather, data, *named, durable) if self._is_first(rank) else (gather, durable)

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that read the shard of `rank` out of its node's file, one read a tensor."""
        sizes = self._shards.sizes(rank)
        offsets = self._start(rank) + np.cumsum([0, *sizes], dtype=np.int64)[:-1]
        file = ReadFile(self._path(rank), tuple(offsets.tolist()), whole_reads(sizes), "direct")
        return (Run(((file,),)), Meet("barrier", "all ranks have their shards"))

    def resharded(self, scene: Scene) -> Reader:
        """Refused by name."""
        raise no_reshard(
            "file_per_node",
            "is one stream a node: no framework cuts it anew",
            'choose [layout] name = "file_per_rank", or remove [restore.parallel]',
        )

    def created(self, rank: int) -> tuple[str, ...]:
        """The node's file, in the name of its first rank."""
        return (self._path(rank).name,) if self._is_first(rank) else ()

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """First ranks of a node sync the directory, and with one writer are the only ones that write."""
        nodes, others = self._node_count, self._scene.rank_count - self._node_count
        return ((0, nodes), (1, others)) if others else ((0, nodes),)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each distinct shard."""
        return self._shards.classes

    def census(self) -> Census:
        """Counts over all ranks, from one rank of each class."""
        records = self._shards.record_counts(lambda rank: tensor_records(self._shards.sizes(rank)))
        sizes = self._shards.bytes_by_rank
        if self._options.writers == "one":
            firsts = np.arange(0, len(sizes), self._options.ranks_per_node)
            of_nodes = np.add.reduceat(sizes, firsts)
            sizes = np.zeros_like(sizes)
            sizes[firsts] = of_nodes
        return Census(records, sizes, self._node_count)

    @property
    def _node_count(self) -> int:
        return -(-self._scene.rank_count // self._options.ranks_per_node)

    def _first(self, rank: int) -> int:
        """The first rank of the node of `rank`."""
        return rank - rank % self._options.ranks_per_node

    def _is_first(self, rank: int) -> bool:
        return self._first(rank) == rank

    def _ranks(self, rank: int) -> range:
        """All ranks of the node of `rank`."""
        first = self._first(rank)
        return range(first, min(first + self._options.ranks_per_node, self._scene.rank_count))

    def _start(self, rank: int) -> int:
        """Where the shard of `rank` starts in its node's file."""
        return int(self._shards.starts[rank] - self._shards.starts[self._first(rank)])

    def _path(self, rank: int) -> Path:
        ranks = self._ranks(rank)
        size = int(self._shards.starts[ranks.stop] - self._shards.starts[ranks.start])
        node = ranks.start // self._options.ranks_per_node
        return Path(STEP, f"node-{node:05d}.ckpt", ranks.start, size)

    def _write(self, rank: int) -> WriteFile:
        path = self._path(rank)
        if self._options.writers == "one":
            sizes = [size for other in self._ranks(rank) for size in self._shards.sizes(other)]
            return WriteFile(path, tensor_records(sizes), "direct", True, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        # Nobody may truncate what another rank of the node has written.
        records = tensor_records(self._shards.sizes(rank))
        return WriteFile(path, records, "direct", True, os.O_WRONLY | os.O_CREAT, offset_bytes=self._start(rank))
