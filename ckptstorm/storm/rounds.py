"""All rounds of a storm: every rank runs this same function, rank 0 also keeps the record.

A round is a save, a settling, a restore. After each phase the ranks agree on how it went, so that
all of them take the same way: go on, or end the storm in order with what is known.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster.comm import Cluster
from ckptstorm.measure.durable import is_every_file_synced
from ckptstorm.measure.phase_row import PartRun
from ckptstorm.measure.rows import Phase
from ckptstorm.program import Program
from ckptstorm.record.record import PhaseRecord
from ckptstorm.sinks import OpTimes
from ckptstorm.storm import ground, removal, settle
from ckptstorm.storm.collect import collect
from ckptstorm.storm.counting import Counted, Counting
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.lowered import Lowered, programs_of
from ckptstorm.storm.phase import PhaseRun, Seen, Stage, prepared_stages
from ckptstorm.storm.watch import Watch


class Keeper(Protocol):
    """Rank 0's record."""

    def take(self, phase: PhaseRecord) -> None:
        """A finished phase."""

    def take_direct(self, evidence: settle.DirectEvidence) -> None:
        """What shows that O_DIRECT was in force in a save."""

    def take_cannot(self, ability: str, reason: str) -> None:
        """What the file system's adapter turned out not to be able to do here."""


_BARRIERS_TIMED = 5


class Outcome(enum.IntEnum):
    """How a phase, or the storm, went; the worst of all ranks counts."""

    FINE = 0
    FAILED = 1
    STOPPED = 2


@dataclass(frozen=True, slots=True)
class Costs:
    """What the instrument's own collectives cost here, measured before the first round."""

    broadcast_ns: int
    barrier_ns: int


class Rounds:
    """One rank's way through a storm."""

    def __init__(self, crew: Crew, watch: Watch, keeper: Keeper | None) -> None:
        self._crew, self._watch, self._keeper = crew, watch, keeper
        self._cluster = crew.cluster
        self._steps = ground.step_names(crew.round_count, crew.job.layout.overwrite)
        self._present: list[int] = []  # rounds whose files are there
        self._costs = measure_costs(crew.cluster)
        self._claims_durable = _claims_durable(crew)
        self._last_save_ns = 0
        self._resident_share = -1.0
        self._counting = Counting(crew)

    def run(self) -> Outcome:
        """All rounds, then the clean-up; a collective of all ranks."""
        outcome = Outcome.FINE
        for index in range(self._crew.round_count):
            worst = self._round(index)
            outcome = max(outcome, worst)
            if worst == Outcome.STOPPED or (worst == Outcome.FAILED and self._crew.job.storm.on_error == "stop"):
                break
        kept = 1 if self._crew.orders.keeps_files and outcome == Outcome.FINE else 0
        self._remove_older(kept)
        return outcome

    def _round(self, index: int) -> Outcome:
        number = index + 1 - self._crew.job.storm.warmup
        step = self._steps[index]
        self._wait_for_interval()
        self._present.append(index)
        outcome = self._phase(Phase.SAVE, number, self._crew.save, step)
        if outcome != Outcome.FINE:
            return outcome
        outcome = self._settle(number, step)
        if outcome != Outcome.FINE:
            return outcome
        outcome = self._phase(Phase.RESTORE, number, self._crew.restore, step)
        if index + 1 < self._crew.round_count and outcome == Outcome.FINE:
            self._remove_older(self._crew.job.storm.keep)
        return outcome

    def _phase(self, phase: Phase, number: int, steps: tuple[Lowered, ...], step: str) -> Outcome:
        crew = self._crew
        stages = prepared_stages(steps, crew.engine(phase, number), crew.payload(number), step, crew.thread)
        self._watch.is_sync_due = phase == Phase.SAVE and self._claims_durable
        seen, counted = self._run(phase, number, stages)
        self._keep(seen, counted, self._resident_share if phase == Phase.RESTORE else -1.0)
        if phase == Phase.SAVE and crew.job.io.direct:
            evidence = settle.direct_evidence(crew, seen, step)
            if self._keeper is not None:
                self._keeper.take_direct(evidence)
        return self._agree(seen)

    def _settle(self, number: int, step: str) -> Outcome:
        """Drain what was not synced, drop the page cache, and look whether it let go."""
        crew = self._crew
        steps = () if self._claims_durable else crew.drain
        stages = prepared_stages(steps, crew.drain_engine(), crew.payload(number), step)
        self._watch.is_sync_due = False
        seen, counted = self._run(Phase.SETTLE, number, stages)
        self._cannot("drop_cache", settle.drop_written(crew, step))
        self._cluster.barrier()
        self._resident_share = settle.resident_share(crew, step) if crew.file_system.proves_residency else -1.0
        seen = replace(seen, observed=replace(seen.observed, done_ns=monotonic_ns()), barrier_to_barrier_ns=0)
        self._keep(seen, counted)
        return self._agree(seen)

    def _keep(self, seen: Seen, counted: Counted, resident_share: float = -1.0) -> None:
        record = collect(self._cluster, seen, self._costs.barrier_ns, self._crew.rank_count(seen.observed.phase))
        if record is not None and self._keeper is not None:
            found = replace(record, traffic=counted.traffic, due_bytes=counted.due_bytes)
            self._keeper.take(replace(found, resident_share=resident_share))
            self._cannot("counters", counted.reason)

    def _run(self, phase: Phase, number: int, stages: list[Stage]) -> tuple[Seen, Counted]:
        """A phase, between two readings of the storage's counters."""
        run = PhaseRun(self._cluster, self._watch, self._costs.broadcast_ns, self._crew.groups(phase))
        self._counting.begin()
        seen = run.run(phase, number, stages)
        return seen, self._counting.end(phase, seen.observed.announced_release_ns)

    def _cannot(self, ability: str, reason: str) -> None:
        if reason and self._keeper is not None:
            self._keeper.take_cannot(ability, reason)

    def _agree(self, seen: Seen) -> Outcome:
        own = Outcome.FAILED if seen.has_failed else Outcome.FINE
        own = Outcome.STOPPED if self._watch.is_stopping else own
        agreed = Outcome(int(self._cluster.greatest(np.array([own], dtype=np.int8))[0]))
        if agreed == Outcome.STOPPED:
            self._watch.stop()
        return agreed

    def _remove_older(self, keep: int) -> None:
        """Delete all checkpoints but the newest `keep`, as a phase of its own."""
        if not self._present:
            return
        if self._crew.job.layout.overwrite:
            old = [] if keep else self._present[-1:]
        else:
            old = self._present[: max(0, len(self._present) - keep)]
        for index in old:
            self._clean_up(index)
        self._present = self._present[len(self._present) - keep :] if keep else []

    def _clean_up(self, index: int) -> None:
        number, step = index + 1 - self._crew.job.storm.warmup, self._steps[index]
        root_fd, created = self._crew.root_fd, self._crew.plan.created
        parents = {f"{step}/{os.path.dirname(name)}".rstrip("/") for name in created} | {step}
        is_ours = not any(removal.leads_elsewhere(root_fd, parent) for parent in parents)
        stages = prepared_stages(
            self._crew.clean_up if is_ours else (), self._crew.clean_up_engine(), self._crew.payload(number), step
        )
        self._watch.is_sync_due = False
        self._watch.resume()
        seen, counted = self._run(Phase.CLEAN_UP, number, stages)
        removal.remove_directories(root_fd, step, created)
        self._cluster.barrier()
        if self._cluster.rank == 0:
            removal.remove_step(root_fd, step)
        self._cluster.barrier()
        self._keep(seen, counted)

    def _wait_for_interval(self) -> None:
        """The next save is released `interval` after the one before (at once when that has passed)."""
        due_ns = self._last_save_ns + int(self._crew.job.storm.interval)
        while monotonic_ns() < due_ns and not self._watch.is_stopping and self._last_save_ns:
            self._watch.sleep(min(0.05, (due_ns - monotonic_ns()) / NS_PER_S))
        self._last_save_ns = monotonic_ns()


def measure_costs(cluster: Cluster) -> Costs:
    """The slowest of a few barriers and broadcasts, entered together, over all ranks."""
    barriers, broadcasts = [], []
    number = np.zeros(1, dtype=np.int64)
    for _ in range(_BARRIERS_TIMED):
        cluster.barrier()
        begun = monotonic_ns()
        cluster.barrier()
        barriers.append(monotonic_ns() - begun)
        begun = monotonic_ns()
        cluster.from_rank_0(number)
        broadcasts.append(monotonic_ns() - begun)
    most = cluster.greatest(np.array([max(broadcasts), max(barriers)], dtype=np.int64))
    return Costs(int(most[0]), int(most[1]))


def _claims_durable(crew: Crew) -> bool:
    """Whether the plan itself, run without an error, leaves each file synced after its last write.

    A layout may sync too early (DCP on large blocks writes the end of `.metadata` after its fsync),
    or not at all: then nothing is claimed, the record says so, and the drain is measured.
    """
    if crew.job.io.durability == "none":
        return False
    is_claimed = is_every_file_synced([_in_order(program) for program in programs_of(crew.save)])
    return not crew.cluster.greatest(np.array([not is_claimed], dtype=np.int8))[0]


def _in_order(program: Program) -> PartRun:
    """A program as if each op had succeeded, one nanosecond after the other."""
    ends = np.arange(1, len(program.ops) + 1, dtype=np.int64)
    return PartRun(program, OpTimes(ends, ends, program.expected_bytes()), len(program.ops))
