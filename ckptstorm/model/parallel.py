"""Which part of the model a rank stands for: its coordinates in Megatron's rank order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class World:
    """All ranks, and the node that each runs on.

    Attributes:
        rank_count: how many ranks.
        node_index: ranks per node, filled in rank order (so that 100,000 ranks cost nothing), or
            the node of each rank.
    """

    rank_count: int
    node_index: int | tuple[int, ...] = 1

    def __post_init__(self) -> None:
        assert self.rank_count >= 1
        if isinstance(self.node_index, tuple):
            assert len(self.node_index) == self.rank_count
        else:
            assert self.node_index >= 1

    def node_of(self, rank: int) -> int:
        """The node that `rank` runs on."""
        return self.node_index[rank] if isinstance(self.node_index, tuple) else rank // self.node_index

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        if isinstance(self.node_index, tuple):
            return len(set(self.node_index))
        return -(-self.rank_count // self.node_index)

    def first(self, rank_count: int) -> World:
        """The world of the first so many ranks."""
        if isinstance(self.node_index, tuple):
            return World(rank_count, self.node_index[:rank_count])
        return World(rank_count, self.node_index)

    @property
    def most_ranks_per_node(self) -> int:
        """Ranks of the fullest node."""
        if isinstance(self.node_index, tuple):
            return max(Counter(self.node_index).values())
        return min(self.node_index, self.rank_count)


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A rank's place along each kind of parallelism, each from 0."""

    tensor: int
    context: int
    expert: int
    data: int
    pipeline: int


@dataclass(frozen=True, slots=True)
class ParallelSpec:
    """How many ranks stand along each kind of parallelism; their product is the world.

    Ranks are numbered in Megatron's order tp-cp-ep-dp-pp: neighbours differ in tensor first.
    """

    tensor: int = 1
    context: int = 1
    expert: int = 1
    data: int = 1
    pipeline: int = 1

    @property
    def rank_count(self) -> int:
        """All of them."""
        return self.tensor * self.context * self.expert * self.data * self.pipeline

    def coords(self, rank: int) -> Coordinates:
        """Where `rank` stands (a bijection; `rank_of` is the way back)."""
        assert 0 <= rank < self.rank_count
        rest, tensor = divmod(rank, self.tensor)
        rest, context = divmod(rest, self.context)
        rest, expert = divmod(rest, self.expert)
        pipeline, data = divmod(rest, self.data)
        return Coordinates(tensor, context, expert, data, pipeline)

    def rank_of(self, at: Coordinates) -> int:
        """The rank that stands there."""
        rest = at.pipeline * self.data + at.data
        rest = rest * self.expert + at.expert
        rest = rest * self.context + at.context
        return rest * self.tensor + at.tensor

    def group_of(self, rank: int, scope: str) -> int:
        """The lowest rank of those that `rank` meets in a scope: they differ in that kind of parallelism only."""
        at = self.coords(rank)
        if scope == "data":
            return self.rank_of(replace(at, data=0, context=0, expert=0))
        return self.rank_of(replace(at, **{scope: 0}))
