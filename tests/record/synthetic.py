"""Storm records made up to order: a known cause for every number that a report then shows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ckptstorm.measure import histogram, latency
from ckptstorm.measure.clocks import CLOCK_DTYPE, Clocks
from ckptstorm.measure.latency import LatencyKey, LatencyTable
from ckptstorm.measure.rows import (
    KIND_SLOTS,
    PHASE_ROW_DTYPE,
    STATE_SYNC_DUE,
    STATE_SYNCED,
    Phase,
    Rows,
)
from ckptstorm.measure.timeline import BIN_DTYPE, Timeline, bin_width_ns
from ckptstorm.measure.visibility import NOTHING, VISIBILITY_DTYPE, Visibility, not_looked_at
from ckptstorm.program import Kind
from ckptstorm.record.record import Node, PhaseRecord, StormRecord
from ckptstorm.sizes import size_class

S = 1_000_000_000
MS = 1_000_000

JOB: dict[str, Any] = {
    "storm": {"rounds": 3, "warmup": 0, "allow": []},
    "model": {"name": "llama3-8b"},
    "parallel": {"sharding": "fsdp2"},
    "layout": {"name": "dcp"},
    "io": {"engine": "auto", "direct": False, "threads": 1, "durability": "layout"},
    "restore": {"from": "auto", "verify": "all"},
    "slo": {},
    "fault": [],
}


@dataclass(frozen=True)
class Make:
    """What a made-up storm is like.

    Attributes:
        ranks, nodes, rounds: how large; ranks fill nodes in blocks.
        save_s, restore_s: the median rank's time.
        late: {rank: extra seconds}, spent in the op kind `late_kind` of the save.
        bytes_per_rank: moved by each rank in each phase.
        generate_share: of each rank's time.
        resident_share: before each restore.
    """

    ranks: int = 4
    nodes: int = 1
    rounds: int = 3
    save_s: float = 2.0
    restore_s: float = 1.0
    late: dict[int, float] = field(default_factory=dict)
    late_kind: Kind = Kind.FSYNC
    bytes_per_rank: int = 1 << 30
    generate_share: float = 0.02
    resident_share: float = 0.0


def record(make: Make | None = None, **changes: Any) -> StormRecord:
    """A record; `changes` replace its fields."""
    make = make or Make()
    node_of_rank = tuple(rank * make.nodes // make.ranks for rank in range(make.ranks))
    phases: list[PhaseRecord] = []
    for index in range(1, make.rounds + 1):
        phases += [save_phase(make, index), restore_phase(make, index)]
    made = StormRecord(
        storm_id="llama3-8b-20261101-120000",
        job=JOB,
        job_text='# How long does a save hold the GPUs?\n[model]\nname = "llama3-8b"\n',
        asked={"io.engine": ("auto", "posix"), "restore.from": ("auto", "other-node" if make.nodes > 1 else "own")},
        environment={
            "engine": {"name": "posix", "moves_data": True},
            "mount": {"type": "lustre", "path": "/scratch", "source": "mgs@o2ib:/scratch"},
            "directory": "/scratch/ckptstorm-data",
            "launcher": "srun",
            "versions": {"ckptstorm": "0.1.0", "python": "3.11.7", "mpi": "MPICH 4.3"},
            "started": "2026-11-01T12:00:00Z",
        },
        nodes=tuple(Node(f"gpu{node:03d}", node_of_rank.count(node)) for node in range(make.nodes)),
        node_of_rank=node_of_rank,
        phases=tuple(phases),
    )
    return replace(made, **changes)


def with_job(made: StormRecord, table: str, **keys: Any) -> StormRecord:
    """The same record, its job asking for something else."""
    return replace(made, job=made.job | {table: made.job[table] | keys})


def with_phase(made: StormRecord, index: int, **changes: Any) -> StormRecord:
    """The same record with one phase changed."""
    phases = list(made.phases)
    phases[index] = replace(phases[index], **changes)
    return replace(made, phases=tuple(phases))


def with_column(made: StormRecord, index: int, column: str, values: Any) -> StormRecord:
    """The same record with a column of one phase's rows changed."""
    rows = made.phases[index].rows.copy()
    rows[column] = values
    return with_phase(made, index, rows=rows)


def save_phase(make: Make, index: int) -> PhaseRecord:
    """A save: every rank writes 1 MiB at a time and syncs once; rank 0 renames."""
    rows = _rows(make, Phase.SAVE, index, make.save_s)
    rows["state"] = STATE_SYNCED | STATE_SYNC_DUE
    rows["sync_count"], rows["metadata_op_count"] = 1, 3
    rows["generate_wait_ns"] = (make.generate_share * make.save_s * S).__round__()
    kind_ns = np.zeros((make.ranks, KIND_SLOTS), dtype=np.int64)
    kind_ns[:, Kind.WRITE] = 0.8 * make.save_s * S
    kind_ns[:, Kind.FSYNC] = 0.1 * make.save_s * S
    syncs = np.full(make.ranks, 0.1 * make.save_s * S, dtype=np.int64)
    for rank, seconds in make.late.items():
        for column in ("durable_ns", "committed_ns", "done_ns"):
            rows[column][rank] += int(seconds * S)
        kind_ns[rank, make.late_kind] += int(seconds * S)
        syncs[rank] += int(seconds * S)
    rows["committed_ns"][0] += 5 * MS
    rows["done_ns"] = int(rows["committed_ns"].max()) + 2 * MS
    table = latency.merge([_ops(make, Kind.WRITE, 1 << 20), _table(Kind.FSYNC, syncs), _metadata(make)])
    return _phase(make, Phase.SAVE, index, rows, table, kind_ns, make.ranks)


def restore_phase(make: Make, index: int) -> PhaseRecord:
    """A restore: every rank reads 1 MiB at a time."""
    rows = _rows(make, Phase.RESTORE, index, make.restore_s)
    rows["verified_bytes"], rows["metadata_op_count"] = rows["bytes"], 2
    rows["verify_wait_ns"] = int(0.01 * make.restore_s * S)
    kind_ns = np.zeros((make.ranks, KIND_SLOTS), dtype=np.int64)
    kind_ns[:, Kind.READ] = 0.9 * make.restore_s * S
    table = latency.merge([_ops(make, Kind.READ, 1 << 20), _metadata(make)])
    return _phase(make, Phase.RESTORE, index, rows, table, kind_ns, 0)


def _phase(
    make: Make, phase: Phase, index: int, rows: Rows, table: LatencyTable, kind_ns: Any, sync_count: int
) -> PhaseRecord:
    return PhaseRecord(
        phase,
        index,
        rows,
        table,
        barrier_to_barrier_ns=int(rows["done_ns"].max()) + 3 * MS,
        barrier_cost_ns=MS,
        clock_uncertainty_ns=20_000 if make.nodes > 1 else 0,
        planned_bytes=make.ranks * make.bytes_per_rank,
        planned_sync_count=sync_count,
        planned_op_count=int(rows["data_op_count"].sum()),
        resident_share=make.resident_share if phase == Phase.RESTORE else -1.0,
        kind_ns=kind_ns,
        timeline=_timeline(rows, make.nodes),
        clocks=_clocks(rows, make.nodes),
        visibility=_visibility(make.nodes) if phase == Phase.SAVE else not_looked_at(),
    )


def _visibility(nodes: int) -> Visibility:
    """Each node sees the pointer a millisecond after the one before it; there is no handle to look through."""
    seen = np.zeros(nodes if nodes > 1 else 0, dtype=VISIBILITY_DTYPE)
    seen["node"] = np.arange(len(seen))
    seen["pointer_ns"] = (1 + seen["node"].astype(np.int64)) * MS
    seen["handle_ns"], seen["step_ns"] = NOTHING, 2 * MS
    return seen


def _clocks(rows: Rows, nodes: int) -> Clocks:
    """Each node but rank 0's was started an hour before the one before it."""
    clocks = np.zeros(nodes - 1, dtype=CLOCK_DTYPE)
    clocks["rank"] = np.unique(rows["node"], return_index=True)[1][1:]
    clocks["offset_ns"] = -3600 * S * np.arange(1, nodes)
    clocks["uncertainty_ns"], clocks["drift_ns"] = 20_000, 150
    return clocks


def _timeline(rows: Rows, nodes: int) -> Timeline:
    """Every rank moves its bytes evenly from its release until it is durable."""
    bin_ns = bin_width_ns(int(rows["durable_ns"].max()))
    edges = np.arange(-(-int(rows["durable_ns"].max()) // bin_ns) + 1) * bin_ns
    share = np.clip(edges / rows["durable_ns"][:, None], 0.0, 1.0)
    bins = np.zeros((nodes, len(edges) - 1), dtype=BIN_DTYPE)
    for name, column in (("bytes", "bytes"), ("data_op_count", "data_op_count")):
        moved = np.diff(np.rint(share * rows[column][:, None]).astype(np.int64), axis=1)
        for node in range(nodes):
            bins[name][node] = moved[rows["node"] == node].sum(axis=0)
    return Timeline(bin_ns, bins)


def _rows(make: Make, phase: Phase, index: int, median_s: float) -> Rows:
    """Ranks a per mille apart around the median time; each round is 1 % slower than the one before."""
    rows = np.zeros(make.ranks, dtype=PHASE_ROW_DTYPE)
    rank = np.arange(make.ranks)
    rows["rank"], rows["node"] = rank, rank * make.nodes // make.ranks
    rows["round"], rows["phase"] = index, int(phase)
    rows["release_ns"] = 20_000 + rank % 50 * 1000
    rows["first_op_ns"] = rows["release_ns"] + 5000
    spread = 1 + 0.05 * (rank - make.ranks / 2) / make.ranks
    rows["durable_ns"] = median_s * S * spread * (1 + 0.01 * (index - 1))
    rows["committed_ns"] = rows["done_ns"] = rows["durable_ns"]
    rows["bytes"] = make.bytes_per_rank
    rows["data_op_count"] = rows["data_op_over_4k_count"] = make.bytes_per_rank >> 20
    rows["cpu_ns"] = int(0.3 * median_s * S)
    return rows


def _ops(make: Make, kind: Kind, size: int) -> LatencyTable:
    count = max(make.ranks * (make.bytes_per_rank >> 20), 1)
    random = np.random.default_rng(7)
    elapsed = (random.lognormal(0.0, 0.5, min(count, 20_000)) * 1.5 * MS).astype(np.int64)
    return _table(kind, elapsed, int(size_class(np.array([size]))[0]))


def _metadata(make: Make) -> LatencyTable:
    opens = _table(Kind.OPEN, np.full(make.ranks, 300_000, dtype=np.int64))
    return latency.merge([opens, _table(Kind.CLOSE, np.full(make.ranks, 20_000, dtype=np.int64))])


def _table(kind: Kind, elapsed_ns: Any, size: int = -1) -> LatencyTable:
    counts = histogram.fold(elapsed_ns)[None, :]
    maxima = np.array([elapsed_ns.max()], dtype=np.int64)
    return LatencyTable((LatencyKey(kind, size),), counts, maxima, np.array([elapsed_ns.sum()], dtype=np.int64))
