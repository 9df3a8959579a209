"""The storm record: everything known afterwards, as one frozen value.

Numbers are derived from it (`summary`), judged (`verdict`) and stored (`files`) elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.clocks import Clocks, no_clocks
from ckptstorm.measure.failure import Failure
from ckptstorm.measure.latency import LatencyTable
from ckptstorm.measure.pace import Pace, no_pace
from ckptstorm.measure.rows import KIND_SLOTS, Phase, Rows
from ckptstorm.measure.timeline import Timeline
from ckptstorm.measure.traffic import Share, Traffic
from ckptstorm.measure.visibility import Visibility, not_looked_at
from ckptstorm.record.load import LoadRecord

__all__ = [
    "SCHEMA",
    "Failure",
    "MismatchSeen",
    "Node",
    "PhaseRecord",
    "Receipt",
    "ReceiptState",
    "StormRecord",
    "Verdict",
]

#: Version of storm.json and storm.h5. History: 1 (2026-12) the first.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class MismatchSeen:
    """A read that differed from what was written, and who saw it."""

    rank: int
    host: str
    sentence: str


@dataclass(frozen=True, slots=True, eq=False)
class PhaseRecord:
    """One phase of one round, of all ranks.

    Attributes:
        phase, round: which; rounds from 1 are measured, 0 and below are warm-up.
        rows: one `PHASE_ROW_DTYPE` a rank, ordered by rank; ranks that did not report are absent.
        latency: of all ops of all ranks, by kind and size class.
        barrier_to_barrier_ns: rank 0's own clock from the announced release to its return from the
            closing barrier: the independent check on the time of the phase; 0 when it was not taken.
        barrier_cost_ns: what such a barrier costs by itself, measured in this storm.
        clock_uncertainty_ns: of the offset-corrected clock; 0 within one node.
        planned_bytes, planned_sync_count, planned_op_count: sums over ranks of the plan.
        drain_ns: settle only: until syncfs had returned everywhere; -1 when not measured.
        failures, mismatches: the classes of errors, and the first few mismatches.
        resident_share: restore only: share of the bytes to be read that the page caches of their
            readers held just before; -1 when it could not be told.
        kind_ns: what each rank's time went into, shape (len(rows), KIND_SLOTS) of nanoseconds by op
            kind (`phase_row.kind_ns` of each); shape (0, KIND_SLOTS) when it was not gathered.
        timeline: bytes and ops by node and short stretch of time.
        clocks: what was measured of each clock that is not rank 0's.
        visibility: save only: when each node saw the new checkpoint.
        traffic: what passed between clients and storage, by their counters; one of each thing counted,
            and none at all when a node could not read its counters.
        due_bytes: the least that must have passed; -1 when it was not worked out.
        shares: with several directories under test, one each; else none.
        pace: what pacing and staging did to each rank, one `PACE_DTYPE` a row; none when nothing did.
        name: of a load's phase: its stage, or for its prepare and clean up the load itself; "" of all others.
        load: actions, nodes and seconds of a load's stage; None of all others.
    """

    phase: Phase
    round: int
    rows: Rows
    latency: LatencyTable
    barrier_to_barrier_ns: int = 0
    barrier_cost_ns: int = 0
    clock_uncertainty_ns: int = 0
    planned_bytes: int = 0
    planned_sync_count: int = 0
    planned_op_count: int = 0
    drain_ns: int = -1
    failures: tuple[Failure, ...] = ()
    mismatches: tuple[MismatchSeen, ...] = ()
    resident_share: float = -1.0
    kind_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, KIND_SLOTS), dtype=np.int64))
    timeline: Timeline = field(default_factory=Timeline)
    clocks: Clocks = field(default_factory=no_clocks)
    visibility: Visibility = field(default_factory=not_looked_at)
    traffic: tuple[Traffic, ...] = ()
    due_bytes: int = -1
    shares: tuple[Share, ...] = ()
    pace: Pace = field(default_factory=no_pace)
    name: str = ""
    load: LoadRecord | None = None

    @property
    def word(self) -> str:
        """What reports call it: "save", or by its own name a load's stage."""
        if self.phase == Phase.LOAD:
            return self.name
        return f"{self.phase.word} of {self.name}" if self.name else self.phase.word


ReceiptState = Literal[
    "yes", "not_asked", "no", "cold", "warm", "unknown", "all", "share", "ok", "client_bound", "shown", "none"
]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Evidence, gathered while running, that a claim is true.

    Attributes:
        state: one of the states of docs/reading-a-result.md for this receipt.
        evidence: one sentence with the figures.
    """

    state: ReceiptState
    evidence: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Valid or not, met or not, with reasons.

    Attributes:
        valid: whether the numbers may be believed.
        met: whether every limit of [slo] held; True when there is none.
        reasons: one sentence each: why invalid, which limit was missed and by how much.
        exit_code: what the process ends with.
    """

    valid: bool
    met: bool
    reasons: tuple[str, ...]
    exit_code: int


@dataclass(frozen=True, slots=True)
class Node:
    """A host and the ranks it ran."""

    host: str
    rank_count: int


@dataclass(frozen=True, slots=True)
class StormRecord:
    """Everything known after a storm.

    Attributes:
        storm_id: its name, in the result folder and in the directory under test.
        job: the resolved job, plain values; `job_text` is the file, verbatim.
        asked: per setting with a choice ("io.engine"): (what the job asked, what took effect).
        environment: versions, mount, launcher, times of day: plain values.
        nodes: hosts in node order.
        node_of_rank: node index of each rank.
        phases: in the order they ran.
        ended: "complete", or how it ended early.
        ended_because: one sentence when it ended early.
        simulated: True for a forecast.
        schema: of the file it came from.

    Keys of `environment` that are read elsewhere, all optional: "engine" {"name", "moves_data"},
    "mount" {"type", "path", "source"}, "file_system" (what its adapter knows), "directory", "launcher",
    "versions" {name: version},
    "started" and "ended" (times of day), "command", "direct" {"flag_set", "aligned_write_count",
    "resident_share"}.
    """

    storm_id: str
    job: dict[str, Any]
    job_text: str
    asked: dict[str, tuple[str, str]]
    environment: dict[str, Any]
    nodes: tuple[Node, ...]
    node_of_rank: tuple[int, ...]
    phases: tuple[PhaseRecord, ...]
    ended: Literal["complete", "storage_failed", "lost_rank", "interrupted", "recovered"] = "complete"
    ended_because: str = ""
    simulated: bool = False
    schema: int = field(default=SCHEMA)
