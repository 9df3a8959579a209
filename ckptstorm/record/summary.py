"""The numbers of a phase, each by the one definition of `docs/reading-a-result.md`.

Everything is on rank 0's clock, nanoseconds after the announced release, as the rows hold it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure import pace
from ckptstorm.measure.histogram import beyond_count, order_statistic
from ckptstorm.measure.rows import STATE_INCOMPLETE, Phase, Rows
from ckptstorm.record import settings
from ckptstorm.record.clockcheck import ClockCheck, clock_check
from ckptstorm.record.latencies import LatencyTree, latency_tree
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.staged import Staged, staged
from ckptstorm.record.stragglers import Straggler, durable_times_ns, stragglers

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankSeconds:
    """How long ranks took, from the phase's release to durable; seconds."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """The numbers of one phase of one round.

    Attributes:
        phase, round: which; rounds from 1 are measured.
        reporting_ranks: ranks that sent a row.
        unfinished_ranks: of these, ranks that ran fewer ops or moved fewer bytes than planned.
        seconds: T = max over ranks (durable) - min over ranks (release); 0 when no rank got there.
        committed_seconds: the same until the checkpoint was visible.
        bytes: moved by data ops of all ranks. planned_bytes: what should have moved.
        bytes_per_s: bytes ÷ T, a ratio of sums.
        data_op_count, data_op_over_4k_count: ops as issued that succeeded.
        iops, iops_over_4k: these ÷ T.
        metadata_op_count, sync_count, error_count, mismatch_count: of all ranks.
        first_done_s, median_done_s, last_done_s: fastest, median and slowest rank; last_done_s is T.
        tail_s: last done - first done.
        straggler_ratio: slowest ÷ median rank, each from its own planned release; 0 when no rank finished.
        stragglers: ranks beyond the stated multiple of the median, slowest first.
        stall_gpu_seconds: sum over ranks of (last done - its release); of a staged save, of what it was blocked.
        skew_median_s, skew_max_s: how late ranks started after the earliest one.
        generate_share, verify_share: the largest wait of any rank for payload ÷ (threads × T).
        coordination_median_s, coordination_max_s: inside the framework's collectives, median and largest of the ranks.
        coordination_share: the largest ÷ T; above 1 when a rank waits for a commit that is long after T.
        latency_ns: op kind -> size class or "all" -> count, p50, p90, p99, p999, max.
        beyond_count: ops longer than a histogram can hold (nearly five hours).
        rank_seconds: percentiles over ranks, each from its own planned release (skew and stagger move it).
        clock: the barrier's independent check on T.
        staged: of an asynchronous save.
        name: of a load's phase; "" of all others.
    """

    phase: Phase
    round: int
    reporting_ranks: int
    unfinished_ranks: int
    seconds: float
    committed_seconds: float
    bytes: int
    planned_bytes: int
    bytes_per_s: float
    data_op_count: int
    data_op_over_4k_count: int
    iops: float
    iops_over_4k: float
    metadata_op_count: int
    sync_count: int
    error_count: int
    mismatch_count: int
    first_done_s: float
    median_done_s: float
    last_done_s: float
    tail_s: float
    straggler_ratio: float
    stragglers: tuple[Straggler, ...]
    stall_gpu_seconds: float
    skew_median_s: float
    skew_max_s: float
    generate_share: float
    verify_share: float
    coordination_median_s: float
    coordination_max_s: float
    coordination_share: float
    latency_ns: LatencyTree
    beyond_count: int
    rank_seconds: RankSeconds
    clock: ClockCheck = field(default_factory=ClockCheck)
    staged: Staged | None = None
    name: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether the round counts (warm-up rounds are 0 and below)."""
        return self.round >= 1

    @property
    def is_reading_back(self) -> bool:
        """Whether it is the reading back of what a load wrote: evidence, and no rate that anybody asks for."""
        return self.phase == Phase.LOAD and self.name.endswith(" verify")

    @property
    def is_finished(self) -> bool:
        """Whether every rank did all that was planned, without an error: only then is T a time of the save."""
        is_clean = not (self.error_count or self.mismatch_count or self.unfinished_ranks)
        return is_clean and self.bytes >= self.planned_bytes and self.seconds > 0


def summarize(record: StormRecord) -> tuple[PhaseSummary, ...]:
    """Every phase of the record, in the order they ran."""
    return tuple(phase_summary(phase, record) for phase in record.phases)


def phase_summary(phase: PhaseRecord, record: StormRecord) -> PhaseSummary:
    """The numbers of one phase; `record` lends the hosts and the number of I/O threads."""
    rows = phase.rows
    times, own = done_after_release_ns(rows), durable_times_ns(phase)
    whole_ns = int(times.max(initial=0))
    async_save = staged(phase, whole_ns)
    threads = settings.threads(record, phase.load.load if phase.load else "")
    sums = {name: int(rows[name].sum(dtype=np.int64)) for name in _SUMS}
    return PhaseSummary(
        phase=phase.phase,
        round=phase.round,
        reporting_ranks=len(rows),
        unfinished_ranks=int(np.count_nonzero(rows["state"] & STATE_INCOMPLETE)),
        seconds=whole_ns / NS_PER_S,
        committed_seconds=_committed_ns(rows) / NS_PER_S,
        planned_bytes=phase.planned_bytes,
        bytes_per_s=per_s(sums["bytes"], whole_ns),
        iops=per_s(sums["data_op_count"], whole_ns),
        iops_over_4k=per_s(sums["data_op_over_4k_count"], whole_ns),
        first_done_s=int(times.min(initial=whole_ns)) / NS_PER_S,
        median_done_s=order_statistic(times, 0.5) / NS_PER_S,
        last_done_s=whole_ns / NS_PER_S,
        tail_s=(whole_ns - int(times.min(initial=whole_ns))) / NS_PER_S,
        straggler_ratio=int(own.max(initial=0)) / max(order_statistic(own, 0.5), 1),
        stragglers=stragglers(phase, record),
        stall_gpu_seconds=async_save.stall_gpu_seconds if async_save else _stall_ns(rows) / NS_PER_S,
        skew_median_s=order_statistic(_late_ns(phase), 0.5) / NS_PER_S,
        skew_max_s=int(_late_ns(phase).max(initial=0)) / NS_PER_S,
        generate_share=_worst_share(rows["generate_wait_ns"], whole_ns * threads),
        verify_share=_worst_share(rows["verify_wait_ns"], whole_ns * threads),
        coordination_median_s=order_statistic(rows["coordination_ns"], 0.5) / NS_PER_S,
        coordination_max_s=int(rows["coordination_ns"].max(initial=0)) / NS_PER_S,
        coordination_share=_worst_share(rows["coordination_ns"], whole_ns),
        latency_ns=latency_tree(phase.latency),
        beyond_count=sum(beyond_count(counts) for counts in phase.latency.counts),
        rank_seconds=RankSeconds(*(order_statistic(own, q) / NS_PER_S for q in (0.5, 0.99, 1.0))),
        clock=clock_check(phase),
        staged=async_save,
        name=phase.name,
        **sums,
    )


_SUMS = (
    "bytes", "data_op_count", "data_op_over_4k_count", "metadata_op_count", "sync_count", "error_count",
    "mismatch_count",
)  # fmt: skip


def done_after_release_ns(rows: Rows) -> Int64s:
    """When each rank that got there was durable, after the earliest release of any rank; in rank order."""
    first = int(rows["release_ns"].min()) if len(rows) else 0
    durable = rows["durable_ns"]
    return np.asarray(durable[durable >= 0] - first, dtype=np.int64)


def per_s(count: int, ns: int) -> float:
    """A rate over a time; 0 when no time passed."""
    return count * NS_PER_S / ns if ns > 0 else 0.0


def _committed_ns(rows: Rows) -> int:
    committed = rows["committed_ns"]
    if not len(rows) or int(committed.max()) < 0:
        return 0
    return int(committed.max()) - int(rows["release_ns"].min())


def _stall_ns(rows: Rows) -> int:
    """Sum over ranks of (last done - own release): all of them wait for the last."""
    if not len(rows) or int(rows["durable_ns"].max()) < 0:
        return 0
    return int((rows["durable_ns"].max() - rows["release_ns"]).sum(dtype=np.int64))


def _late_ns(phase: PhaseRecord) -> Int64s:
    """How long after the earliest rank each one started, beyond what was planned."""
    begun = phase.rows["release_ns"] - pace.delays_ns(phase.pace, len(phase.rows))
    return np.asarray(begun - (begun.min() if len(begun) else 0), dtype=np.int64)


def _worst_share(waits_ns: NDArray[np.int64], whole_ns: int) -> float:
    """The wait of the worst rank as a share of T: the phase is as slow as that rank."""
    return int(waits_ns.max(initial=0)) / whole_ns if whole_ns > 0 else 0.0
