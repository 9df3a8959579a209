"""How a tensor falls into shards: `torch.chunk`'s rows, pipeline stages, and a rank's own pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ckptstorm.model.parallel import Coordinates, ParallelSpec
from ckptstorm.model.tensors import ModelSpec, TensorSpec

Int64s = NDArray[np.int64]


def chunk_rows(row_count: int, parts: int, index: int) -> int:
    """Rows of part `index` when `row_count` rows are cut as `torch.chunk` cuts them.

    Every part gets ceil(row_count / parts) rows while there are any: the tail is short or empty.
    """
    most = -(-row_count // parts)
    return min(max(row_count - index * most, 0), most)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A model's tensors as arrays, for plans that cut every tensor in dimension 0.

    Attributes:
        row_count: rows of each tensor.
        row_bytes: bytes of one row of each tensor.
        name_bytes: length of each tensor's name.
    """

    row_count: Int64s
    row_bytes: Int64s
    name_bytes: Int64s

    @property
    def tensor_count(self) -> int:
        """How many tensors."""
        return len(self.row_count)

    def most_rows(self, parts: int) -> Int64s:
        """Rows of the first shard of each tensor in `parts`."""
        return -(-self.row_count // parts)

    def shard_rows(self, parts: int, index: int) -> Int64s:
        """Rows of shard `index` of each tensor: `chunk_rows`, for all tensors at once."""
        most = self.most_rows(parts)
        return np.asarray(np.minimum(np.maximum(self.row_count - index * most, 0), most))

    def used_parts(self, parts: int) -> Int64s:
        """How many of the `parts` shards of each tensor hold a row."""
        return np.asarray(-(-self.row_count // self.most_rows(parts)))


@lru_cache(maxsize=4)
def _tensors(model: ModelSpec) -> tuple[TensorSpec, ...]:
    """The model's list, kept: DeepSeek-V3 takes 0.1 s to walk, and every class of ranks walks it."""
    return tuple(model.tensors())


@lru_cache(maxsize=8)
def rows(model: ModelSpec, rank_count: int) -> Rows:
    """The tensors of `model`; an opaque one is a flat tensor of every rank's bytes together."""
    if model.architecture == "opaque":
        return Rows(_array([model.shard_bytes * rank_count]), _array([1]), _array([len("shard")]))
    tensors = _tensors(model)
    return Rows(
        _array([tensor.shape[0] for tensor in tensors]),
        _array([math.prod(tensor.shape[1:]) * model.element_bytes for tensor in tensors]),
        _array([len(tensor.name) for tensor in tensors]),
    )


def _array(values: list[int]) -> Int64s:
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Piece:
    """What one rank holds of one tensor.

    Attributes:
        tensor: of which.
        shape: elements per dimension; a dimension may be 0.
    """

    tensor: TensorSpec
    shape: tuple[int, ...]

    @property
    def element_count(self) -> int:
        """Elements in it."""
        return math.prod(self.shape)


def pieces(model: ModelSpec, parallel: ParallelSpec, sharding: str, rank: int) -> Iterator[Piece]:
    """What `rank` holds, in the model's order; pieces without elements are left out.

    Tensor parallelism cuts `tensor_dim`, pipeline stages take layers, expert parallelism takes whole
    experts. What is left is data parallelism: with sharding "ddp" every rank holds a copy, else
    dimension 0 is cut over the data, context and (for all but the experts) expert ranks.
    """
    at = parallel.coords(rank)
    for tensor in _tensors(model):
        if not is_held(model, parallel, tensor, at):
            continue
        shape = list(tensor.shape)
        if tensor.tensor_dim is not None:
            dim = tensor.tensor_dim
            shape[dim] = chunk_rows(shape[dim], parallel.tensor, at.tensor)
        if sharding != "ddp" and model.architecture != "opaque":
            shape[0] = chunk_rows(shape[0], *data_place(parallel, tensor, at))
        if math.prod(shape):
            yield Piece(tensor, tuple(shape))


def is_held(model: ModelSpec, parallel: ParallelSpec, tensor: TensorSpec, at: Coordinates) -> bool:
    """Whether the rank that stands there holds any of `tensor`, as pipeline stages and experts are dealt out."""
    if tensor.expert is not None and owner(model.experts, parallel.expert, tensor.expert) != at.expert:
        return False
    if model.architecture == "opaque":
        return True
    if tensor.stage == "first":
        return at.pipeline == 0
    if tensor.stage == "last":
        return at.pipeline == parallel.pipeline - 1
    return owner(model.layer_count, parallel.pipeline, tensor.layer) == at.pipeline


def owner(count: int, parts: int, item: int) -> int:
    """Which part `item` falls to when `count` items are dealt out in order, the first parts one more."""
    share, more = divmod(count, parts)
    long = more * (share + 1)
    return item // (share + 1) if item < long else more + (item - long) // share


def data_place(parallel: ParallelSpec, tensor: TensorSpec, at: Coordinates) -> tuple[int, int]:
    """(parts, index) of the rank among those that share the tensor's rows."""
    if tensor.expert is not None:
        return parallel.data * parallel.context, at.data * parallel.context + at.context
    parts = parallel.data * parallel.expert * parallel.context
    return parts, (at.data * parallel.expert + at.expert) * parallel.context + at.context


def shard_classes(model: ModelSpec, parallel: ParallelSpec, sharding: str) -> Int64s:
    """Keys by rank (one row a kind of parallelism): ranks with equal keys hold pieces of equal sizes.

    `torch.chunk` gives all parts but the last used ones the same rows, so an axis of 100,000 ranks
    falls into a few classes, at the parts where some tensor's shard gets short or empty.
    """
    ranks = np.arange(parallel.rank_count, dtype=np.int64)
    if model.architecture == "opaque":
        return np.zeros((1, len(ranks)), dtype=np.int64)
    rest, tensor = np.divmod(ranks, parallel.tensor)
    rest, context = np.divmod(rest, parallel.context)
    rest, expert = np.divmod(rest, parallel.expert)
    pipeline, data = np.divmod(rest, parallel.data)
    cut = {item.shape[item.tensor_dim] for item in _tensors(model) if item.tensor_dim is not None}
    keys = [pipeline, _axis_class(cut, parallel.tensor, tensor)]
    if model.experts:
        # The first ranks hold one expert more when they do not come out even.
        keys.append((expert < model.experts % parallel.expert).astype(np.int64))
    if sharding != "ddp":
        heights = _row_counts(model, parallel.tensor)
        dense = (data * parallel.expert + expert) * parallel.context + context
        keys.append(_axis_class(heights, parallel.data * parallel.expert * parallel.context, dense))
        keys.append(_axis_class(heights, parallel.data * parallel.context, data * parallel.context + context))
    return np.stack(keys)


def _row_counts(model: ModelSpec, tensor: int) -> set[int]:
    """Rows that a tensor can have after tensor parallelism."""
    heights: set[int] = set()
    for item in _tensors(model):
        rows_all = item.shape[0]
        most = -(-rows_all // tensor) if item.tensor_dim == 0 else rows_all
        heights |= {most, rows_all % most} if rows_all % most else {most}
    return heights


def _axis_class(heights: set[int], parts: int, index: Int64s) -> Int64s:
    """Class of each place on an axis of `parts` over which dimensions of these sizes are cut."""
    edges: set[int] = set()
    for height in heights:
        most = -(-height // parts)
        edges |= {height // most, -(-height // most)}
    return np.searchsorted(np.array(sorted(edges), dtype=np.int64), index, side="right").astype(np.int64)
