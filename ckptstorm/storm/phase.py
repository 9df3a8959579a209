"""One phase of one rank: prepare, release at an announced instant, run the steps, observe."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster.clocks import ClockOffset, measure_offset
from ckptstorm.cluster.comm import Cluster, Group
from ckptstorm.engines.contract import Prepared, Preparer
from ckptstorm.measure.latency import succeeded
from ckptstorm.measure.pace import Pace, no_pace
from ckptstorm.measure.phase_row import Observed, PartRun
from ckptstorm.measure.rows import Phase
from ckptstorm.payload import Payload
from ckptstorm.program import Program
from ckptstorm.sinks import STOP, KeepTimes
from ckptstorm.steps import Meet
from ckptstorm.storm.frame import Frame
from ckptstorm.storm.lowered import Lowered
from ckptstorm.storm.own import NOTHING_OWN, Own
from ckptstorm.storm.watch import Watch

#: A rank sleeps until this long before the release and spins the rest: a sleep alone wakes 50 to 100 us late.
SPIN_NS = 200_000
#: The release is never announced for an instant nearer than this.
_LEAD_LEAST_NS = 5_000_000
#: How often a rank whose I/O is under way looks at signals, its board line and its heartbeat.
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A phase as one rank saw it, and what only rank 0 can say of its frame.

    Attributes:
        observed: times and counts.
        barrier_to_barrier_ns: this rank's own clock from the announced release to the closing barrier.
        clock: the offset that converted the release.
        has_failed: this rank had an error that ended its program, or was told that another one had.
        pace: what pacing and staging did to this rank; none when the job asks for neither.
    """

    observed: Observed
    barrier_to_barrier_ns: int
    clock: ClockOffset
    has_failed: bool
    pace: Pace = field(default_factory=no_pace)


Where = Literal["own", "main"]


class Leg:
    """A program on its own thread, or on the main one where its engine must be there."""

    def __init__(
        self, program: Program, prepared: Prepared, part: Literal["data", "commit"], where: Where = "own"
    ) -> None:
        self.program, self.prepared, self.part, self.where = program, prepared, part, where
        self.sink = KeepTimes(len(program.ops))
        self.ops_run = self.started_ns = 0
        self.release_ns = 0
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self, release_ns: int) -> None:
        """Begin at that instant of this node's clock (at once when it has passed)."""
        self.release_ns = release_ns
        self._thread.start()

    def run_here(self, release_ns: int) -> None:
        """The same on this thread."""
        self.release_ns = release_ns
        self._work()
        if self._raised is not None:
            raise self._raised

    def has_ended(self, patience_s: float) -> bool:
        """Wait that long at most; a bug in an engine is raised here (an I/O error never is)."""
        self._thread.join(patience_s)
        if self._raised is not None:
            raise self._raised
        return not self._thread.is_alive()

    @property
    def has_failed(self) -> bool:
        """Whether it was not run to its end, or an op failed (the last one too, which nothing follows)."""
        if self.ops_run < len(self.program.ops):
            return True
        return not bool(succeeded(self.program, self.sink.times).all())

    def _work(self) -> None:
        try:
            self._wait()
            self.started_ns = monotonic_ns()
            self._run()
        except BaseException as raised:  # noqa: BLE001 - carried to the main thread, which raises it
            self._raised = raised

    def _run(self) -> None:
        self.ops_run = self.prepared.run(self.sink, 0, len(self.program.ops))

    def _wait(self) -> None:
        """Until the release; a stop is obeyed meanwhile (the engine then runs nothing)."""
        while self.release_ns - monotonic_ns() > 2 * _LOOK_S * NS_PER_S and not self.sink.control[STOP]:
            time.sleep(_LOOK_S)
        if not self.sink.control[STOP]:
            wait_until(self.release_ns)


Stage = list[Leg] | Meet
#: By scope: the ranks that this one meets; what a phase needs, no more.
Groups = Mapping[str, Group]


class PhaseRun:
    """Runs one phase on this rank; every rank of the world makes one at the same time."""

    def __init__(self, cluster: Cluster, watch: Watch, broadcast_ns: int, groups: Groups) -> None:
        self._cluster, self._watch, self._broadcast_ns = cluster, watch, broadcast_ns
        self._groups = groups
        self._coordination_ns = 0
        self._has_failed = False

    def run(self, phase: Phase, round_number: int, stages: Sequence[Stage], own: Own = NOTHING_OWN) -> Seen:
        """Run prepared stages from this rank's own release to the closing barrier."""
        legs = [leg for stage in stages if isinstance(stage, list) for leg in stage]
        frame = self.framed(phase, round_number, stages, own)
        observed = Observed(
            rank=self._cluster.rank,
            node=self._cluster.place.node_index,
            round=round_number,
            phase=phase,
            announced_release_ns=frame.announced_ns,
            started_ns=frame.started_ns,
            done_ns=frame.done_ns,
            parts=tuple(PartRun(leg.program, leg.sink.times, leg.ops_run, leg.part) for leg in legs),
            tallies=[leg.prepared.finish() for leg in legs],
            coordination_ns=self._coordination_ns,
            cpu_ns=frame.cpu_ns,
            drift_ns=frame.drift_ns,
            was_stopped=self._watch.is_stopping,
            is_sync_expected=self._watch.is_sync_due,
        )
        return Seen(observed, frame.barrier_to_barrier_ns, frame.clock, frame.has_failed, frame.pace)

    def framed(self, phase: Phase, round_number: int, stages: Sequence[Stage], own: Own = NOTHING_OWN) -> Frame:
        """Run prepared stages, and tell when that was; what the legs saw is theirs to tell."""
        self._watch.begin(phase, round_number, [leg for stage in stages if isinstance(stage, list) for leg in stage])
        clock = measure_offset(self._cluster)
        self._cluster.barrier()
        announced_ns = self._announced_release_ns() - clock.offset_ns
        cpu_before_ns = time.process_time_ns()
        if own.hear is not None:
            own.hear(announced_ns)
        if own.trainer is not None:
            own.trainer.start(announced_ns + own.delay_ns)
        started_ns = self._run_stages(stages, announced_ns + own.delay_ns)
        pace = own.pace()
        done_ns, cpu_ns = monotonic_ns(), time.process_time_ns() - cpu_before_ns
        self._watch.done()
        self._cluster.barrier()
        closed_ns = monotonic_ns()
        drift_ns = measure_offset(self._cluster).offset_ns - clock.offset_ns
        elapsed_ns = closed_ns - announced_ns
        return Frame(announced_ns, started_ns, done_ns, elapsed_ns, clock, drift_ns, cpu_ns, self._has_failed, pace)

    def _announced_release_ns(self) -> int:
        """The instant of the release on rank 0's clock: far enough ahead for all to hear of it before."""
        instant = np.zeros(1, dtype=np.int64)
        if self._cluster.rank == 0:
            instant[0] = monotonic_ns() + max(_LEAD_LEAST_NS, 4 * self._broadcast_ns)
        self._cluster.from_rank_0(instant)
        return int(instant[0])

    def _run_stages(self, stages: Sequence[Stage], release_ns: int) -> int:
        """All stages in order; returns when this rank really started."""
        started_ns = 0
        for stage in stages:
            if isinstance(stage, list) and self._is_to_run(stage):
                self._run_legs(stage, release_ns)
                started_ns = started_ns or min((leg.started_ns for leg in stage), default=0)
            elif isinstance(stage, Meet):
                self._wait(release_ns)
                started_ns = started_ns or monotonic_ns()
                self._meet(stage)
        self._wait(release_ns)
        return started_ns or monotonic_ns()

    def _is_to_run(self, legs: list[Leg]) -> bool:
        """Whether to start these: not after a failure, but for those whose calls other ranks may wait in."""
        if not (self._has_failed or self._watch.is_stopping):
            return True
        for leg in legs:
            leg.sink.control[STOP] = 1
        return any(leg.where == "main" for leg in legs)

    def _wait(self, release_ns: int) -> None:
        """Until this rank's own release, looking at what there is to look at."""
        while release_ns - monotonic_ns() > 2 * _LOOK_S * NS_PER_S and not self._watch.is_stopping:
            self._watch.sleep(_LOOK_S)
        if not self._watch.is_stopping:
            wait_until(release_ns)

    def _run_legs(self, legs: list[Leg], release_ns: int) -> None:
        self._watch.running(legs)
        for leg in (leg for leg in legs if leg.where == "own"):
            leg.start(release_ns)
        for leg in (leg for leg in legs if leg.where == "main"):
            with self._watch.pulse():
                leg.run_here(release_ns)
            self._watch.tick()
        for leg in (leg for leg in legs if leg.where == "own"):
            while not leg.has_ended(_LOOK_S):
                self._watch.tick()
        self._watch.waiting()
        self._has_failed |= any(leg.has_failed for leg in legs)

    def _meet(self, meet: Meet) -> None:
        """The framework's collective, and what it would also carry: whether somebody failed."""
        before_ns = monotonic_ns()
        group = self._groups[meet.scope]
        group.exchange(meet.kind, meet.bytes_per_rank)
        failed = np.array([self._has_failed or self._watch.is_stopping], dtype=np.int8)
        self._has_failed = bool(group.greatest(failed)[0])
        self._coordination_ns += monotonic_ns() - before_ns


def prepared_stages(
    steps: Sequence[Lowered], engine: Preparer, payload: Payload, step: str, where: Where = "own"
) -> list[Stage]:
    """Lowered steps with the engine's buffers allocated: nothing of this falls into the phase's time."""
    stages: list[Stage] = []
    for entry in steps:
        if isinstance(entry, Meet):
            stages.append(entry)
            continue
        programs = [program.in_step(step) for program in entry.programs]
        stages.append([Leg(program, engine.prepare(program, payload), entry.part, where) for program in programs])
    return stages


def wait_until(instant_ns: int) -> None:
    """Sleep, then spin for the last stretch, until this node's clock shows the instant."""
    left_ns = instant_ns - monotonic_ns() - SPIN_NS
    if left_ns > 0:
        time.sleep(left_ns / NS_PER_S)
    while monotonic_ns() < instant_ns:
        pass
