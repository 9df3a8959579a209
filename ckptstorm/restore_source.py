"""Which rank's shards each rank restores, so that no node reads back what its own page cache holds."""

from __future__ import annotations

from functools import lru_cache

from ckptstorm.errors import JobError
from ckptstorm.job import Job
from ckptstorm.model.parallel import World
from ckptstorm.scene import sides_of


def check_restore(job: Job, world: World) -> None:
    """Refuse `[restore] from = "other-node"` where it cannot hold for every rank.

    Raises:
        JobError: one node only, a node with more than half of the ranks, or another world that restores.
    """
    if job.restore.from_ != "other-node":
        return
    sides = sides_of(job, world)
    world = sides.restore
    if not sides.is_same:
        raise JobError(
            '[restore] from = "other-node" cannot be promised beside [restore.parallel]: a rank reads parts of'
            " many shards, its own node's among them",
            'set [restore] from = "auto"',
        )
    if world.node_count == 1:
        raise JobError('[restore] from = "other-node" needs two nodes; there is one', 'set [restore] from = "own"')
    if 2 * _most_on_a_node(world) > world.rank_count:
        raise JobError(
            f'[restore] from = "other-node" is impossible: one node has {_most_on_a_node(world)}'
            f" of {world.rank_count} ranks, more than half",
            'spread the ranks evenly, or set [restore] from = "auto"',
        )


def restore_source(job: Job, world: World, rank: int) -> int:
    """The rank whose shards `rank` restores; over all ranks a bijection.

    Ranks are lined up node by node and shifted by the largest node's rank count m. A node's s <= m
    ranks lie side by side, so a shift by m leaves the node; and going round, it does not come back
    into it while s + m <= N. With m <= N/2 that holds for every node. Beyond, N - m ranks of the
    large node and all ranks of the others still move, which is all that can.
    """
    if job.restore.from_ == "own" or world.node_count == 1:
        return rank
    shift = _most_on_a_node(world)
    if isinstance(world.node_index, int):
        return (rank + shift) % world.rank_count
    line, place = _line(world.node_index)
    return line[(place[rank] + shift) % world.rank_count]


def restore_note(job: Job, world: World) -> str:
    """One sentence about whose shards are read; "" when every rank reads another node's."""
    sides = sides_of(job, world)
    if not sides.is_same:
        return f"{sides.restore.rank_count} ranks restore what {sides.save.rank_count} ranks saved, cut anew"
    if job.restore.from_ == "own":
        return "every rank restores its own shard"
    if world.node_count == 1:
        return "one node: every rank restores its own shard"
    own = max(2 * _most_on_a_node(world) - world.rank_count, 0)
    return f"one node has more than half of the ranks: {own} of them restore shards of their own node" if own else ""


def _most_on_a_node(world: World) -> int:
    if isinstance(world.node_index, int):
        return min(world.node_index, world.rank_count)
    return _most(world.node_index)


@lru_cache(maxsize=8)
def _most(node_index: tuple[int, ...]) -> int:
    counts: dict[int, int] = {}
    for node in node_index:
        counts[node] = counts.get(node, 0) + 1
    return max(counts.values())


@lru_cache(maxsize=8)
def _line(node_index: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """(ranks node by node, place of each rank in that line)."""
    line = sorted(range(len(node_index)), key=lambda rank: (node_index[rank], rank))
    place = [0] * len(line)
    for at, rank in enumerate(line):
        place[rank] = at
    return line, place
