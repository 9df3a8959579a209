"""From what one rank saw of one phase to its phase row: the only place that knows what the columns mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.durable import is_every_file_synced
from ckptstorm.measure.latency import succeeded
from ckptstorm.measure.rows import (
    KIND_SLOTS,
    PHASE_ROW_DTYPE,
    STATE_ERRORS,
    STATE_INCOMPLETE,
    STATE_MISMATCH,
    STATE_STOPPED,
    STATE_SYNC_DUE,
    STATE_SYNCED,
    Phase,
)
from ckptstorm.program import DATA, SYNCS, Program
from ckptstorm.sinks import OpTimes

Int64s = NDArray[np.int64]

#: Data ops of more than this many bytes count into `iops_over_4k`.
SMALL_OP_BYTES = 4096


class Tallies(Protocol):
    """What an engine notes besides the times (`engines.contract.Notes`)."""

    @property
    def generate_wait_ns(self) -> int:
        """What the ops waited for payload to be made."""

    @property
    def verify_wait_ns(self) -> int:
        """What the ops waited for payload to be compared."""

    @property
    def verified_bytes(self) -> int:
        """Bytes read that were compared."""

    @property
    def mismatch_count(self) -> int:
        """Reads that differed."""


@dataclass(frozen=True, slots=True, eq=False)
class PartRun:
    """One program of a phase, as it ran on one thread.

    Attributes:
        program: what was to be run.
        times: one row an op, CLOCK_MONOTONIC of this node.
        ops_run: ops from the first on that were run (the failed one included).
        part: "data", or "commit": what makes the checkpoint visible.
    """

    program: Program
    times: OpTimes
    ops_run: int
    part: Literal["data", "commit"] = "data"


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """All that one rank saw of one phase.

    Attributes:
        rank, node, round, phase: which.
        announced_release_ns: the announced instant, converted to this node's clock; the same
            instant on all ranks, before skew and stagger.
        started_ns: this node's clock when the rank really started.
        done_ns: this node's clock when the rank knew that the phase was over for it.
        parts: every program, in the order in which they ran.
        tallies: the notes of the finished programs.
        coordination_ns: spent in the framework's collectives.
        cpu_ns: CPU time of the process from release to done.
        drift_ns: what this node's clock lost against rank 0's from release to done: the offset
            measured after the phase minus the one that converted the release. Spread evenly.
        was_stopped: ended by a signal or by another rank's failure.
        is_sync_expected: the job or the layout claims that each file is synced after its last write.
    """

    rank: int
    node: int
    round: int
    phase: Phase
    announced_release_ns: int
    started_ns: int
    done_ns: int
    parts: tuple[PartRun, ...]
    tallies: Sequence[Tallies] = ()
    coordination_ns: int = 0
    cpu_ns: int = 0
    drift_ns: int = 0
    was_stopped: bool = False
    is_sync_expected: bool = False


def phase_row(observed: Observed) -> np.void:
    """The one record of dtype `PHASE_ROW_DTYPE` that a rank sends of a phase."""
    row = np.zeros(1, dtype=PHASE_ROW_DTYPE)
    row["rank"], row["node"] = observed.rank, observed.node
    row["round"], row["phase"] = observed.round, int(observed.phase)
    _fill_times(row, observed)
    _fill_counts(row, observed)
    for name in ("generate_wait_ns", "verify_wait_ns", "verified_bytes", "mismatch_count"):
        row[name] = sum(getattr(tally, name) for tally in observed.tallies)
    row["coordination_ns"], row["cpu_ns"] = observed.coordination_ns, observed.cpu_ns
    row["first_errno"] = _first_errno(observed)
    row["state"] = _state(observed, row)
    record: np.void = row[0]
    return record


def kind_ns(observed: Observed) -> Int64s:
    """What the rank's time went into: nanoseconds inside ops by kind, summed over threads.

    Returns:
        Shape (KIND_SLOTS,), indexed by the number of the kind; failed ops included: they took their time.
    """
    spent = np.zeros(KIND_SLOTS, dtype=np.int64)
    for part in observed.parts:
        ran = slice(0, part.ops_run)
        np.add.at(spent, part.program.ops["kind"][ran], part.times.end_ns[ran] - part.times.start_ns[ran])
    return spent


def _fill_times(row: NDArray[np.void], observed: Observed) -> None:
    row["release_ns"] = _after_release(observed, observed.started_ns)
    starts = [int(part.times.start_ns[: part.ops_run].min()) for part in observed.parts if part.ops_run]
    row["first_op_ns"] = _after_release(observed, min(starts)) if starts else -1
    durable_ns = _end_ns(observed, "data")
    committed_ns = max(durable_ns, _end_ns(observed, "commit")) if _is_whole(observed, "data") else -1
    row["durable_ns"], row["committed_ns"] = durable_ns, committed_ns if _is_whole(observed, "commit") else -1
    row["done_ns"] = _after_release(observed, observed.done_ns)


def _after_release(observed: Observed, local_ns: int) -> int:
    """A time of this node's clock as nanoseconds after the announced release on rank 0's clock."""
    elapsed, whole = local_ns - observed.announced_release_ns, observed.done_ns - observed.announced_release_ns
    return elapsed + (observed.drift_ns * elapsed // whole if whole > 0 else 0)


def _end_ns(observed: Observed, name: str) -> int:
    """When the last op of the parts of that name had returned; -1 without ops, or when some were not run."""
    ends = [int(part.times.end_ns.max()) for part in observed.parts if part.part == name and len(part.program.ops)]
    return _after_release(observed, max(ends)) if ends and _is_whole(observed, name) else -1


def _is_whole(observed: Observed, name: str) -> bool:
    return all(part.ops_run == len(part.program.ops) for part in observed.parts if part.part == name)


def _fill_counts(row: NDArray[np.void], observed: Observed) -> None:
    """What was achieved, summed over programs."""
    for counts in (_Ops(part).counts() for part in observed.parts):
        for name, count in counts.items():
            row[name] = int(row[name][0]) + count


class _Ops:
    """The ops of one program that were run, by what they are; failed ones count as errors and as nothing else."""

    def __init__(self, part: PartRun) -> None:
        ran = slice(0, part.ops_run)
        kinds, self.moved = part.program.ops["kind"][ran], part.times.result[ran]
        self.is_fine = succeeded(part.program, part.times)[ran]
        self.is_data, self.is_sync = np.isin(kinds, DATA), np.isin(kinds, SYNCS)

    def counts(self) -> dict[str, int]:
        """By the name of the row's column."""
        data, other = self.is_data & self.is_fine, ~self.is_data & ~self.is_sync & self.is_fine
        masks = {
            "data_op_count": data,
            "data_op_over_4k_count": data & (self.moved > SMALL_OP_BYTES),
            "metadata_op_count": other,
            "sync_count": self.is_sync & self.is_fine & (self.moved >= 0),
            "error_count": ~self.is_fine,
        }
        return {name: int(np.count_nonzero(mask)) for name, mask in masks.items()} | {
            "bytes": int(np.maximum(self.moved, 0)[self.is_data].sum(dtype=np.int64))
        }


def _first_errno(observed: Observed) -> int:
    first: tuple[int, int] | None = None
    for part in observed.parts:
        for index in np.flatnonzero(~succeeded(part.program, part.times)[: part.ops_run])[:1]:
            seen = (int(part.times.start_ns[index]), -int(part.times.result[index]))
            first = seen if first is None else min(first, seen)
    return first[1] if first else 0


def _state(observed: Observed, row: NDArray[np.void]) -> int:
    expected_bytes = sum(int(part.program.expected_bytes().sum()) for part in observed.parts)
    is_whole = _is_whole(observed, "data") and _is_whole(observed, "commit")
    bits = {
        STATE_ERRORS: bool(row["error_count"][0]),
        STATE_INCOMPLETE: not is_whole or int(row["bytes"][0]) < expected_bytes,
        STATE_STOPPED: observed.was_stopped,
        STATE_MISMATCH: bool(row["mismatch_count"][0]),
        STATE_SYNCED: is_every_file_synced(observed.parts),
        STATE_SYNC_DUE: observed.is_sync_expected,
    }
    return sum(bit for bit, is_set in bits.items() if is_set)
