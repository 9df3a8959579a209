"""What all ranks saw of a phase, brought together on rank 0: rows, histograms, errors."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from ckptstorm.cluster.comm import Cluster
from ckptstorm.measure import latency, timeline
from ckptstorm.measure.clocks import CLOCK_DTYPE, Clocks, no_clocks
from ckptstorm.measure.failure import Failure, failures, merge_failures
from ckptstorm.measure.latency import LatencyTable
from ckptstorm.measure.pace import no_pace
from ckptstorm.measure.phase_row import Observed, kind_ns, phase_row
from ckptstorm.measure.rows import KIND_SLOTS, Phase
from ckptstorm.measure.timeline import BIN_DTYPE, Timeline
from ckptstorm.program import SYNCS
from ckptstorm.record.record import MismatchSeen, PhaseRecord
from ckptstorm.storm.phase import Seen

#: A rank describes at most this many error classes and mismatches; all are counted.
_DESCRIBED = 8
#: In the others nothing moves that anybody waits for.
_WITH_TIMELINE = (Phase.SAVE, Phase.RESTORE)


def collect(cluster: Cluster, seen: Seen, barrier_cost_ns: int, rank_count: int) -> PhaseRecord | None:
    """The phase of its first `rank_count` ranks, on rank 0 (None elsewhere); a collective of all ranks."""
    observed = seen.observed
    rows = cluster.rows_on_rank_0(phase_row(observed).reshape(1))
    spent = cluster.rows_on_rank_0(kind_ns(observed).view([("kinds", "<i8", (KIND_SLOTS,))]))
    pairs = [(part.program, part.times) for part in observed.parts]
    table = latency_of_all(cluster, latency.observe(pairs, observed.announced_release_ns))
    planned = cluster.sum_on_rank_0(planned_of(observed))
    moved_when = _timeline_of_all(cluster, observed)
    uncertainty = cluster.greatest(np.array([seen.clock.uncertainty_ns], dtype=np.int64))
    clocks = _clocks_of_all(cluster, seen)
    sentences = [one.sentence() for notes in observed.tallies for one in getattr(notes, "mismatches", ())]
    failed, mismatched = words_of_all(cluster, failures(observed, cluster.place.host), sentences)
    pace = cluster.rows_on_rank_0(seen.pace) if len(seen.pace) else no_pace()
    if cluster.rank != 0:
        return None
    return PhaseRecord(
        phase=observed.phase,
        round=observed.round,
        rows=rows[:rank_count],
        latency=table,
        barrier_to_barrier_ns=seen.barrier_to_barrier_ns,
        barrier_cost_ns=barrier_cost_ns,
        clock_uncertainty_ns=int(uncertainty[0]),
        planned_bytes=int(planned[0]),
        planned_sync_count=int(planned[1]),
        planned_op_count=int(planned[2]),
        failures=failed,
        mismatches=mismatched,
        kind_ns=spent["kinds"][:rank_count],
        timeline=moved_when,
        clocks=clocks,
        pace=pace[:rank_count],
    )


def _clocks_of_all(cluster: Cluster, seen: Seen) -> Clocks:
    """What was measured of each clock that is not rank 0's; of meaning on rank 0 only."""
    if seen.clock.is_one:
        return no_clocks()
    mine = np.zeros(1, dtype=CLOCK_DTYPE)
    mine["rank"], mine["drift_ns"] = seen.clock.measured_by, seen.observed.drift_ns
    mine["offset_ns"], mine["uncertainty_ns"] = seen.clock.offset_ns, seen.clock.uncertainty_ns
    rows = cluster.rows_on_rank_0(mine)
    kept: Clocks = rows[(rows["rank"] == np.arange(len(rows))) & (rows["rank"] > 0)]
    return kept


def latency_of_all(cluster: Cluster, mine: LatencyTable) -> LatencyTable:
    """The histograms of all ranks; of meaning on rank 0 only."""
    anywhere = cluster.greatest(latency.present(mine).astype(np.int8)).astype(np.bool_)
    counts, max_ns, sum_ns = latency.aligned(mine, anywhere)
    sums = cluster.sum_on_rank_0(np.concatenate([counts.reshape(-1), sum_ns]))
    maxima = cluster.greatest_on_rank_0(max_ns)
    whole = sums[: counts.size].reshape(counts.shape)
    return latency.from_aligned(anywhere, whole, maxima, sums[counts.size :])


def _timeline_of_all(cluster: Cluster, observed: Observed) -> Timeline:
    """Bytes and ops by node and bin, of the phases in which checkpoints move; of meaning on rank 0 only.

    The clock's drift within a phase is far below a bin, so it is left out here.
    """
    if observed.phase not in _WITH_TIMELINE:
        return Timeline()
    parts, release_ns = observed.parts, observed.announced_release_ns
    whole_ns = int(cluster.greatest(np.array([timeline.whole_ns(parts, release_ns)], dtype=np.int64))[0])
    bin_ns = timeline.bin_width_ns(whole_ns)
    bin_count = -(-whole_ns // bin_ns)
    if not bin_count:
        return Timeline()
    mine = np.stack(timeline.spread(parts, release_ns, bin_ns, bin_count))
    sums = cluster.node_sums_on_rank_0(mine)
    bins = np.zeros((len(sums), bin_count), dtype=BIN_DTYPE)
    for column, name in enumerate(BIN_DTYPE.names or ()):
        bins[name] = np.minimum(sums[:, column], np.iinfo(BIN_DTYPE[name]).max)
    return Timeline(bin_ns, bins)


def planned_of(observed: Observed) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Sums of the plan over this rank's programs: bytes, syncs, ops."""
    programs = [part.program for part in observed.parts]
    return np.array(
        [
            sum(int(program.expected_bytes().sum()) for program in programs),
            sum(int(np.isin(program.ops["kind"], SYNCS).sum()) for program in programs),
            sum(len(program.ops) for program in programs),
        ],
        dtype=np.int64,
    )


def words_of_all(
    cluster: Cluster, failed: tuple[Failure, ...], sentences: list[str]
) -> tuple[tuple[Failure, ...], tuple[MismatchSeen, ...]]:
    """Error classes and mismatches; words travel only when some rank has any."""
    failed, host = failed[:_DESCRIBED], cluster.place.host
    if not cluster.greatest(np.array([bool(failed or sentences)], dtype=np.int8))[0]:
        return (), ()
    words = {"failures": [asdict(one) for one in failed], "mismatches": sentences[:_DESCRIBED], "host": host}
    texts = [json.loads(text) for text in cluster.texts_on_rank_0(json.dumps(words))]
    merged = merge_failures(_failure(one) for text in texts for one in text["failures"])
    seen = [
        MismatchSeen(rank, text["host"], sentence) for rank, text in enumerate(texts) for sentence in text["mismatches"]
    ]
    return merged, tuple(seen[:_DESCRIBED])


def _failure(told: dict[str, Any]) -> Failure:
    """What a rank told of one class; JSON knows no tuples."""
    lists = {name: tuple((key, int(count)) for key, count in told[name]) for name in ("ranks", "files")}
    return Failure(**told | lists)
