"""What all ranks saw of a stage of a load, brought together on rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ckptstorm.cluster.comm import Cluster
from ckptstorm.load_tables import LoadTable, name_of
from ckptstorm.loads.contract import Stage
from ckptstorm.measure.actions import ActionTable, FoldActions
from ckptstorm.measure.failure import Failure, errno_name, merge_failures
from ckptstorm.measure.folding import Failed, FoldTimes
from ckptstorm.measure.load_row import LoadObserved, load_row, spent_ns
from ckptstorm.measure.rows import KIND_SLOTS, Phase
from ckptstorm.program import Kind, Program
from ckptstorm.record.latencies import percentiles
from ckptstorm.record.load import NODE_DTYPE, LoadRecord
from ckptstorm.record.record import PhaseRecord
from ckptstorm.storm.collect import latency_of_all, words_of_all
from ckptstorm.storm.frame import Frame

Int64s = NDArray[np.int64]


class Folded(Protocol):
    """What a thread did: a whole stage, or one window of a load beside a save."""

    @property
    def program(self) -> Program:
        """Its op table."""

    @property
    def fold(self) -> FoldTimes:
        """Its ops."""

    @property
    def actions(self) -> FoldActions:
        """Its actions."""

    @property
    def failed(self) -> tuple[Failed, ...]:
        """Its classes of errors."""


def collect_load(
    cluster: Cluster, table: LoadTable, stage: Stage, legs: Sequence[Folded], seen: tuple[LoadObserved, Frame, int]
) -> PhaseRecord | None:
    """The stage of all ranks, on rank 0 (None elsewhere); a collective of all ranks.

    Args:
        cluster: all ranks.
        table, stage: what was asked of this rank.
        legs: its threads.
        seen: what it observed, in which frame, and what a barrier costs here.
    """
    observed, frame, barrier_cost_ns = seen
    mine = observed.latency()
    rows = cluster.rows_on_rank_0(load_row(observed, mine).reshape(1))
    spent = cluster.rows_on_rank_0(spent_ns(mine).view([("kinds", "<i8", (KIND_SLOTS,))]))
    latency = latency_of_all(cluster, mine)
    actions = _actions_of_rank(legs, len(stage.actions))
    nodes = _nodes(cluster, actions)
    whole = _actions_of_all(cluster, actions)
    seconds = _seconds_of_all(cluster, legs)
    planned = cluster.sum_on_rank_0(np.array([stage.planned_bytes], dtype=np.int64))
    uncertainty = cluster.greatest(np.array([frame.clock.uncertainty_ns], dtype=np.int64))
    sentences = [one.sentence() for notes in observed.tallies for one in getattr(notes, "mismatches", ())]
    failed, mismatched = words_of_all(cluster, _failures(legs, observed.rank, cluster.place.host), sentences)
    if cluster.rank != 0:
        return None
    return PhaseRecord(
        phase=Phase.LOAD,
        round=observed.round,
        rows=rows,
        latency=latency,
        barrier_to_barrier_ns=max(frame.barrier_to_barrier_ns - stage.ramp_ns, 0),
        barrier_cost_ns=barrier_cost_ns,
        clock_uncertainty_ns=int(uncertainty[0]),
        planned_bytes=int(planned[0]),
        failures=failed,
        mismatches=mismatched,
        kind_ns=spent["kinds"],
        name=stage.name,
        load=LoadRecord(name_of(table), stage.actions, whole, nodes, seconds),
    )


def _actions_of_rank(legs: Sequence[Folded], count: int) -> ActionTable:
    table = ActionTable.blank(count)
    for leg in legs:
        table.add(leg.actions.table)
    return table


def _actions_of_all(cluster: Cluster, mine: ActionTable) -> ActionTable:
    sums = cluster.sum_on_rank_0(np.concatenate([mine.counts.reshape(-1), mine.bytes]))
    maxima = cluster.greatest_on_rank_0(mine.max_ns)
    return ActionTable(sums[: mine.counts.size].reshape(mine.counts.shape), maxima, sums[mine.counts.size :])


def _nodes(cluster: Cluster, mine: ActionTable) -> NDArray[np.void]:
    """A row a node and action that was done there; its percentiles are made by the node's first rank."""
    sums = cluster.sum_on_node(np.concatenate([mine.counts.reshape(-1), mine.bytes]))
    maxima = cluster.greatest_on_node(mine.max_ns)
    counts, moved = sums[: mine.counts.size].reshape(mine.counts.shape), sums[mine.counts.size :]
    rows = np.zeros(len(mine.bytes), dtype=NODE_DTYPE)
    rows["node"], rows["action"] = cluster.place.node_index, np.arange(len(rows))
    if cluster.place.local_index == 0:
        for number in range(len(rows)):
            found = percentiles(counts[number], int(maxima[number]))
            names = ("count", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")
            values = (found.count, found.p50, found.p90, found.p99, found.p999, found.max)
            for name, value in zip(names, values, strict=True):
                rows[name][number] = value
        rows["bytes"] = moved
    everyone = cluster.rows_on_rank_0(rows)
    return everyone[everyone["count"] > 0]


def _seconds_of_all(cluster: Cluster, legs: Sequence[Folded]) -> Int64s:
    """(ops, bytes) of each second after the release, over all ranks."""
    bins = [leg.fold.seconds()[1] for leg in legs]
    length = int(cluster.greatest(np.array([max((len(each) for each in bins), default=0)], dtype=np.int64))[0])
    mine = np.zeros((length, 2), dtype=np.int64)
    for each in bins:
        mine[: len(each)] += each
    return cluster.sum_on_rank_0(mine.reshape(-1)).reshape(-1, 2) if length else mine


def _failures(legs: Sequence[Folded], rank: int, host: str) -> tuple[Failure, ...]:
    """Error classes of this rank, the first ones first."""
    found: list[tuple[int, Failure]] = []
    for leg in legs:
        for failed in leg.failed:
            kind, row = Kind(failed.kind), leg.program.ops[failed.op_index]
            offset = 0 if kind in (Kind.RENAME, Kind.LINK) else int(row["offset_bytes"])
            where = leg.program.location(int(row["file"]))
            failure = Failure(errno_name(failed.errno), kind.word, rank, host, where, offset, failed.count)
            found.append((failed.start_ns, failure))
    return merge_failures(failure for _, failure in sorted(found, key=lambda pair: pair[0]))
