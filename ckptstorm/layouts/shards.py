"""Every rank's shard as tensors and bytes, for layouts that store plain tensors and no framework's records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ckptstorm.errors import JobError
from ckptstorm.layouts.contract import Scene
from ckptstorm.model.shard import pieces, shard_classes
from ckptstorm.steps import ReadRecord, Record, Seek

Int64s = NDArray[np.int64]

_SHARDINGS = ("fsdp2", "ddp")


class Shards:
    """What each rank of a scene holds: weights and moments, tensor after tensor."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._sizes_by_rank: dict[int, tuple[int, ...]] = {}

    def check(self, layout: str, table: str = "parallel") -> None:
        """Refuse shardings that are no plain cut of the tensors.

        Raises:
            JobError: names the layout and what it takes.
        """
        if self._scene.sharding not in _SHARDINGS:
            raise JobError(
                f'[{table}] sharding = "{self._scene.sharding}" is not planned for [layout] name = "{layout}"',
                f"allowed: {', '.join(_SHARDINGS)}",
            )

    def sizes(self, rank: int) -> tuple[int, ...]:
        """Bytes of each tensor of `rank`, in the model's order."""
        if rank not in self._sizes_by_rank:
            model, copies = self._scene.model, 1 + len(self._scene.model.states)
            held = pieces(model, self._scene.parallel, self._scene.sharding, rank)
            self._sizes_by_rank[rank] = tuple(
                size for piece in held for size in (piece.element_count * model.element_bytes,) * copies
            )
        return self._sizes_by_rank[rank]

    def class_of(self, rank: int) -> int:
        """Equal for ranks whose shards have equal sizes."""
        return int(self._classes[1][rank])

    @cached_property
    def bytes_by_rank(self) -> Int64s:
        """Bytes of each rank's shard."""
        return self.by_rank(lambda rank: sum(self.sizes(rank)))

    def by_rank(self, value: Callable[[int], int]) -> Int64s:
        """A number for each rank, when ranks of a class have the same."""
        first, class_of, _ = self._classes
        return np.array([value(rank) for rank in first.tolist()], dtype=np.int64)[class_of]

    @cached_property
    def starts(self) -> Int64s:
        """Bytes of all shards before that of each rank; one more at the end: of all shards."""
        return np.concatenate([[0], np.cumsum(self.bytes_by_rank)]).astype(np.int64)

    @property
    def classes(self) -> tuple[tuple[int, int], ...]:
        """(rank, how many ranks it stands for): one for each distinct shard."""
        first, _, counts = self._classes
        return tuple(zip(first.tolist(), counts.tolist(), strict=True))

    def record_counts(self, records: Callable[[int], Iterable[Record]]) -> Counter[Record]:
        """How many of each record all ranks have, when ranks of a class have the same `records`."""
        counts = Counter[Record]()
        for rank, rank_count in self.classes:
            for record in records(rank):
                counts[Record(record.pieces, tensor_count=record.tensor_count)] += record.count * rank_count
        return counts

    @cached_property
    def _classes(self) -> tuple[Int64s, Int64s, Int64s]:
        """(first rank, class by rank, how many ranks) of each set of ranks whose shards have equal sizes."""
        scene = self._scene
        keys = shard_classes(scene.model, scene.parallel, scene.sharding)
        _, first, class_of, counts = np.unique(keys, axis=1, return_index=True, return_inverse=True, return_counts=True)
        return first.astype(np.int64), class_of.reshape(-1).astype(np.int64), counts.astype(np.int64)


def tensor_records(sizes: Iterable[int]) -> tuple[Record, ...]:
    """One write a tensor, equal neighbours as one run."""
    records: list[Record] = []
    for size in sizes:
        if records and records[-1].pieces == (size,):
            records[-1] = Record((size,), count=records[-1].count + 1)
        else:
            records.append(Record((size,)))
    return tuple(records)


def block_records(size_bytes: int, block_bytes: int, tensor_count: int) -> tuple[Record, ...]:
    """A stream in blocks, the last one short; its tensors are counted with the last block, which completes them."""
    if not size_bytes:
        return ()
    full, rest = divmod(size_bytes, block_bytes)
    before = full if rest else full - 1
    last = Record((rest or block_bytes,), tensor_count=tensor_count)
    return (Record((block_bytes,), count=before, tensor_count=0), last) if before else (last,)


def whole_reads(sizes: Iterable[int]) -> tuple[ReadRecord, ...]:
    """One read an item; one value for all items of a size."""
    made: dict[int, ReadRecord] = {}
    return tuple(made.setdefault(size, ReadRecord(size, (Seek(0, size),))) for size in sizes)
