"""From what one rank saw of one stage of a load to its phase row; the columns mean what they do for a save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.folding import Failed, FoldTimes
from ckptstorm.measure.latency import LatencyTable, merge
from ckptstorm.measure.phase_row import SMALL_OP_BYTES, Tallies
from ckptstorm.measure.rows import (
    KIND_SLOTS,
    PHASE_ROW_DTYPE,
    STATE_ERRORS,
    STATE_INCOMPLETE,
    STATE_MISMATCH,
    STATE_STOPPED,
    Phase,
)
from ckptstorm.program import DATA, SYNCS
from ckptstorm.sizes import SIZE_CLASSES

_COUNT_MOST = (1 << 32) - 1


@dataclass(frozen=True, slots=True, eq=False)
class ThreadSeen:
    """One thread of a stage.

    Attributes:
        fold: its ops, folded.
        failed: every class of errors, those of the opens and closes among them.
        last_end_ns: when the last op that counts had returned; 0 when there was none.
        is_whole: whether it did all that it was to do.
    """

    fold: FoldTimes
    failed: tuple[Failed, ...]
    last_end_ns: int
    is_whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class LoadObserved:
    """All that one rank saw of one stage.

    Attributes:
        rank, node, round: which.
        counted_from_ns: the announced release and the ramp after it, on this node's clock.
        started_ns, done_ns, drift_ns, cpu_ns: as `phase_row.Observed`.
        threads: none for a rank that takes no part.
        tallies: the notes of the finished programs.
        was_stopped: ended by a signal or by another rank's failure.
    """

    rank: int
    node: int
    round: int
    counted_from_ns: int
    started_ns: int
    done_ns: int
    drift_ns: int
    cpu_ns: int
    threads: tuple[ThreadSeen, ...]
    tallies: Sequence[Tallies] = ()
    was_stopped: bool = False

    def latency(self) -> LatencyTable:
        """Of all ops."""
        return merge([thread.fold.latency() for thread in self.threads])


def load_row(observed: LoadObserved, latency: LatencyTable) -> np.void:
    """The one record of dtype `PHASE_ROW_DTYPE` that a rank sends of a stage; `latency` is the stage's own."""
    row = np.zeros(1, dtype=PHASE_ROW_DTYPE)
    row["rank"], row["node"] = observed.rank, observed.node
    row["round"], row["phase"] = observed.round, int(Phase.LOAD)
    _fill_times(row, observed)
    _fill_counts(row, observed, latency)
    for name in ("generate_wait_ns", "verify_wait_ns", "verified_bytes", "mismatch_count"):
        row[name] = sum(getattr(tally, name) for tally in observed.tallies)
    row["cpu_ns"] = observed.cpu_ns
    errors = [error for thread in observed.threads for error in thread.failed]
    row["error_count"] = min(sum(error.count for error in errors), _COUNT_MOST)
    row["first_errno"] = min(errors, key=lambda error: error.start_ns).errno if errors else 0
    bits = {
        STATE_ERRORS: bool(errors),
        STATE_INCOMPLETE: not all(thread.is_whole for thread in observed.threads),
        STATE_STOPPED: observed.was_stopped,
        STATE_MISMATCH: bool(row["mismatch_count"][0]),
    }
    row["state"] = sum(bit for bit, is_set in bits.items() if is_set)
    record: np.void = row[0]
    return record


def spent_ns(latency: LatencyTable) -> NDArray[np.int64]:
    """Nanoseconds inside ops by kind, summed over threads; shape (KIND_SLOTS,)."""
    spent = np.zeros(KIND_SLOTS, dtype=np.int64)
    for key, sum_ns in zip(latency.keys, latency.sum_ns.tolist(), strict=True):
        spent[key.kind] += sum_ns
    return spent


def _fill_times(row: NDArray[np.void], observed: LoadObserved) -> None:
    starts = [thread.fold.first_start_ns for thread in observed.threads if thread.fold.first_start_ns]
    ends = [thread.last_end_ns for thread in observed.threads if thread.last_end_ns]
    is_whole = bool(ends) and all(thread.is_whole for thread in observed.threads)
    row["release_ns"] = max(_after(observed, observed.started_ns), 0)
    row["first_op_ns"] = _after(observed, min(starts)) if starts else -1
    row["durable_ns"] = _after(observed, max(ends)) if is_whole else -1
    row["committed_ns"] = row["durable_ns"]
    row["done_ns"] = _after(observed, observed.done_ns)


def _after(observed: LoadObserved, local_ns: int) -> int:
    """A time of this node's clock as nanoseconds after the counted release, the drift spread evenly."""
    elapsed, whole = local_ns - observed.counted_from_ns, observed.done_ns - observed.counted_from_ns
    return elapsed + (observed.drift_ns * elapsed // whole if whole > 0 else 0)


def _fill_counts(row: NDArray[np.void], observed: LoadObserved, latency: LatencyTable) -> None:
    over = {size for size, bound in enumerate((*SIZE_CLASSES, 1 << 62)) if bound > SMALL_OP_BYTES}
    counts = dict.fromkeys(("data_op_count", "data_op_over_4k_count", "metadata_op_count", "sync_count"), 0)
    for key, histogram in zip(latency.keys, latency.counts, strict=True):
        count = int(histogram.sum())
        if key.kind in DATA:
            counts["data_op_count"] += count
            counts["data_op_over_4k_count"] += count if key.size_class in over else 0
        else:
            counts["sync_count" if key.kind in SYNCS else "metadata_op_count"] += count
    for name, count in counts.items():
        row[name] = min(count, _COUNT_MOST)
    row["bytes"] = sum(int(thread.fold.seconds()[1][:, 1].sum()) for thread in observed.threads)
