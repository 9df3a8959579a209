"""Plain tensors restored in another world: which ranges of whose files a rank reads.

A rank holds a box of a tensor; so did the ranks that saved. Of every stored box that overlaps with its
own a rank reads the one range of bytes that covers the overlap: all of it where rows were cut, rows with
gaps between where columns were (which readers such as MPI-IO's data sieving read too).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ckptstorm.layouts.contract import Scene, spread_classes
from ckptstorm.layouts.shards import Shards, whole_reads
from ckptstorm.model.parallel import Coordinates
from ckptstorm.model.shard import chunk_rows, data_place, is_held, owner, pieces
from ckptstorm.model.tensors import TensorSpec
from ckptstorm.program import Path
from ckptstorm.steps import Meet, ReadFile, Run, Step


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a tensor: from `start` to `stop` in each dimension."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    def overlap(self, other: Box) -> Box:
        """What both hold; empty in some dimension when nothing."""
        start = tuple(map(max, self.start, other.start))
        return Box(
            start, tuple(max(low, stop) for low, stop in zip(start, map(min, self.stop, other.stop), strict=True))
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each dimension."""
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))

    def covering(self, part: Box) -> tuple[int, int]:
        """(first element, elements) of the shortest run of this box, row by row, that covers `part` of it."""
        first = last = 0
        for size, base, low, stop in zip(self.shape, self.start, part.start, part.stop, strict=True):
            first, last = first * size + low - base, last * size + stop - 1 - base
        return first, last - first + 1


class Recut:
    """The restore of `scene` from what `stored` holds."""

    def __init__(self, saved: Scene, scene: Scene, stored: Shards, path: Callable[[int], Path]) -> None:
        self._saved, self._scene, self._stored, self._path = saved, scene, stored, path
        self._places: dict[int, dict[str, int]] = {}

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that read what `rank` holds, file by file, one range a stored tensor."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for holder, offset, size in self._ranges(rank):
            ranges.setdefault(holder, []).append((offset, size))
        files = tuple(
            ReadFile(
                self._path(holder),
                tuple(offset for offset, _ in sorted(ranges[holder])),
                whole_reads(size for _, size in sorted(ranges[holder])),
                "direct",
            )
            for holder in sorted(ranges)
        )
        return (Run((files,)), Meet("barrier", "all ranks have their shards"))

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """Ranks here and there: which stored boxes overlap differs from one to the next."""
        return spread_classes(self._scene.rank_count)

    def _ranges(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """(holder, offset, bytes) of each range."""
        model, scene = self._scene.model, self._scene
        if model.architecture == "opaque":
            yield from self._plain_ranges(rank)
            return
        copies, at = 1 + len(model.states), scene.parallel.coords(rank)
        for piece in pieces(model, scene.parallel, scene.sharding, rank):
            own = _box(scene, piece.tensor, at)
            for holder, held in self._holders(piece.tensor, own, at):
                first, count = held.covering(held.overlap(own))
                size = math.prod(held.shape) * model.element_bytes
                start = self._place(holder)[piece.tensor.name]
                for copy in range(copies):
                    yield holder, start + copy * size + first * model.element_bytes, count * model.element_bytes

    def _plain_ranges(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """Shards of plain bytes: all of them as one stream, cut anew."""
        each, count = self._saved.model.shard_bytes, self._scene.rank_count
        total = each * self._saved.rank_count
        low = min(rank * -(-total // count), total)
        high = low + chunk_rows(total, count, rank)
        while low < high:
            holder, within = divmod(low, each)
            size = min(each - within, high - low)
            yield holder, within, size
            low += size

    def _holders(self, tensor: TensorSpec, own: Box, at: Coordinates) -> Iterator[tuple[int, Box]]:
        """(rank, box) of each stored part that overlaps; of copies, the one whose place is most like the reader's."""
        parallel, model = self._saved.parallel, self._saved.model
        like = Coordinates(
            at.tensor % parallel.tensor,
            at.context % parallel.context,
            at.expert % parallel.expert
            if tensor.expert is None
            else owner(model.experts, parallel.expert, tensor.expert),
            at.data % parallel.data,
            self._stage(tensor),
        )
        assert is_held(model, parallel, tensor, like)
        cuts = range(parallel.tensor) if tensor.tensor_dim is not None else (like.tensor,)
        for cut in cuts:
            for there in self._data_places(tensor, replace(like, tensor=cut), own):
                box = _box(self._saved, tensor, there)
                if math.prod(own.overlap(box).shape):
                    yield parallel.rank_of(there), box

    def _stage(self, tensor: TensorSpec) -> int:
        pipeline = self._saved.parallel.pipeline
        if tensor.stage != "layer":
            return 0 if tensor.stage == "first" else pipeline - 1
        return owner(self._saved.model.layer_count, pipeline, tensor.layer)

    def _data_places(self, tensor: TensorSpec, like: Coordinates, own: Box) -> Iterator[Coordinates]:
        """Those among whom rows were cut and whose rows may be wanted; with copies, one."""
        parallel = self._saved.parallel
        if self._saved.sharding == "ddp":
            yield like
            return
        parts, _ = data_place(parallel, tensor, like)
        low, high = 0, tensor.shape[0]
        if tensor.tensor_dim == 0:
            low, high = _cut(low, high, parallel.tensor, like.tensor)
        each = -(-(high - low) // parts)
        if not each:
            return
        first, last = max(own.start[0] - low, 0) // each, min(own.stop[0] - low - 1, high - low - 1) // each
        for index in range(first, last + 1):
            rest, context = divmod(index, parallel.context)
            if tensor.expert is not None:
                yield replace(like, data=rest, context=context)
                continue
            data, expert = divmod(rest, parallel.expert)
            yield replace(like, data=data, expert=expert, context=context)

    def _place(self, holder: int) -> dict[str, int]:
        """Where each tensor starts in the file of `holder`."""
        known = self._stored.class_of(holder)
        coordinates = self._saved.parallel.coords(holder)
        key = (known * self._saved.parallel.pipeline + coordinates.pipeline) * self._saved.parallel.expert
        key += coordinates.expert
        if key not in self._places:
            places, at = {}, 0
            copies = 1 + len(self._saved.model.states)
            for piece in pieces(self._saved.model, self._saved.parallel, self._saved.sharding, holder):
                places[piece.tensor.name] = at
                at += copies * piece.element_count * self._saved.model.element_bytes
            self._places[key] = places
        return self._places[key]


def _box(scene: Scene, tensor: TensorSpec, at: Coordinates) -> Box:
    """What the rank that stands there holds of a tensor that it holds a part of."""
    start, stop = [0] * len(tensor.shape), list(tensor.shape)
    if tensor.tensor_dim is not None:
        dim, width = tensor.tensor_dim, tensor.shape[tensor.tensor_dim]
        start[dim], stop[dim] = _cut(0, width, scene.parallel.tensor, at.tensor)
    if scene.sharding != "ddp":
        start[0], stop[0] = _cut(start[0], stop[0], *data_place(scene.parallel, tensor, at))
    return Box(tuple(start), tuple(stop))


def _cut(start: int, stop: int, parts: int, index: int) -> tuple[int, int]:
    """(start, stop) of a part of a range, as `torch.chunk` cuts it."""
    count = stop - start
    low = start + min(index * -(-count // parts), count)
    return low, low + chunk_rows(count, parts, index)
