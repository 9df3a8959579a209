"""The loads of a storm that run alone: their files made, their stages run one after the other, their files removed.

Every stage is a phase of its own. A load whose files serve all rounds (random) is prepared before its first
round and cleaned up after the last; the others make and remove their files in each.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import ClassVar

from ckptstorm import registry
from ckptstorm.engines import ENGINES
from ckptstorm.engines.contract import LoadEngine, Preparer, Setup
from ckptstorm.load_tables import LoadTable, directory_of, name_of
from ckptstorm.loads import load_of
from ckptstorm.loads.contract import Created, Load, Stage, Uncounted, removal
from ckptstorm.loads.schedule import beats
from ckptstorm.measure.load_row import LoadObserved, ThreadSeen
from ckptstorm.measure.rows import Phase
from ckptstorm.payload import Payload
from ckptstorm.program import STEP, Kind, Path, Program, op, table
from ckptstorm.steps import Meet
from ckptstorm.storm import removal as by_name
from ckptstorm.storm.collect import collect
from ckptstorm.storm.costs import Costs
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.load_collect import collect_load
from ckptstorm.storm.load_leg import LoadLeg
from ckptstorm.storm.lowered import Lowered, LoweredRun
from ckptstorm.storm.outcome import Keeper, Outcome, agreed
from ckptstorm.storm.paced_leg import PacedLeg
from ckptstorm.storm.phase import PhaseRun, Seen, prepared_stages
from ckptstorm.storm.settle import drop_files
from ckptstorm.storm.watch import Watch

#: The round whose payload the files of loads hold: their content does not change from round to round.
_CONTENT_ROUND = 0


class LoadPhases:
    """One rank's part in all loads that run alone."""

    when: ClassVar[str] = "alone"

    def __init__(self, crew: Crew, watch: Watch, keeper: Keeper | None, costs: Costs) -> None:
        self._crew, self._watch, self._keeper, self._costs = crew, watch, keeper, costs
        self._loads = [(entry, load_of(entry, crew.world)) for entry in crew.job.load if entry.when == self.when]
        self._prepared: set[str] = set()
        self._payload = Payload(crew.orders.seed, _CONTENT_ROUND)

    @property
    def is_any(self) -> bool:
        """Whether the job has such loads."""
        return bool(self._loads)

    def run_round(self, number: int) -> Outcome:
        """Every load once; a collective of all ranks."""
        for entry, load in self._loads:
            outcome = self._run_load(entry, load, number)
            if outcome != Outcome.FINE:
                return outcome
        return Outcome.FINE

    def clean_up(self, number: int) -> None:
        """Remove what is left of every load."""
        for entry, load in self._loads:
            self._clean_up(entry, load, number)

    def _run_load(self, entry: LoadTable, load: Load, number: int) -> Outcome:
        outcome = Outcome.FINE
        if name_of(entry) not in self._prepared:
            outcome = self._prepare(entry, load, number)
        done: tuple[int, ...] = ()
        for index in range(load.stage_count()):
            if outcome != Outcome.FINE:
                break
            outcome, done = self._stage(entry, load.stage(self._crew.cluster.rank, index, done), number)
        if not load.is_kept:
            self._clean_up(entry, load, number)
        return outcome

    def _prepare(self, entry: LoadTable, load: Load, number: int) -> Outcome:
        """The load's directory and what its stages find there, as a phase of its own."""
        self._prepared.add(name_of(entry))
        ready = load.prepare(self._crew.cluster.rank)
        steps = self._entering(entry) + _stages_of(ready)
        seen = self._run_uncounted(Phase.PREPARE, entry, steps, number, self._plain_engine())
        drop_files(self._crew, [f"{directory_of(entry)}/{name}" for name in ready.written])
        return agreed(self._crew.cluster, self._watch, seen)

    def _entering(self, entry: LoadTable) -> list[Lowered]:
        """Rank 0 makes the load's directory; it must not be there: a storm writes only into what it made."""
        row = op(Kind.MKDIR, 0, length_bytes=0o777)
        make = Program(table([row]), (Path(STEP, ""),), ("", directory_of(entry)))
        mine = (make,) if self._crew.cluster.rank == 0 else ()
        return [LoweredRun(mine, "data"), Meet("barrier", "the load's directory")]

    def _run_uncounted(
        self, phase: Phase, entry: LoadTable, steps: list[Lowered], number: int, engine: Preparer
    ) -> Seen:
        stages = prepared_stages(steps, engine, self._payload, directory_of(entry))
        self._watch.is_sync_due = False
        seen = self._phase_run(phase).run(phase, number, stages)
        record = collect(self._crew.cluster, seen, self._costs.barrier_ns, self._crew.cluster.rank_count)
        if record is not None and self._keeper is not None:
            self._keeper.take(replace(record, name=name_of(entry)))
        return seen

    def _stage(self, entry: LoadTable, stage: Stage, number: int) -> tuple[Outcome, tuple[int, ...]]:
        crew = self._crew
        engine = self._engine(stage)
        payload = self._payload if stage.content == "own" else None
        drop_files(crew, [f"{directory_of(entry)}/{name}" for name in stage.dropped])
        legs: list[LoadLeg] = []
        home = directory_of(entry)
        if entry.rate is None or not stage.is_paced:
            for thread in stage.threads:
                program = thread.program.in_step(home)
                legs.append(LoadLeg(stage, thread, program, engine.prepare(program, payload)))
        else:
            for beat in beats(entry, crew.world, crew.cluster.rank, stage):
                program = beat.thread.program.in_step(home)
                legs.append(PacedLeg(stage, beat, program, engine.prepare(program, payload)))
        self._watch.is_sync_due = False
        frame = self._phase_run(Phase.LOAD).framed(Phase.LOAD, number, [[*legs]])
        observed = LoadObserved(
            crew.cluster.rank,
            crew.cluster.place.node_index,
            number,
            frame.announced_ns + stage.ramp_ns,
            frame.started_ns,
            frame.done_ns,
            frame.drift_ns,
            frame.cpu_ns,
            tuple(ThreadSeen(leg.fold, leg.failed, leg.last_end_ns, leg.is_whole) for leg in legs),
            [leg.prepared.finish() for leg in legs],
            self._watch.is_stopping,
        )
        seen = (observed, frame, self._costs.barrier_ns)
        record = collect_load(crew.cluster, entry, stage, legs, seen)
        if record is not None and self._keeper is not None:
            self._keeper.take(record)
        return agreed(crew.cluster, self._watch, frame), tuple(leg.ring_ops_run for leg in legs)

    def _clean_up(self, entry: LoadTable, load: Load, number: int) -> None:
        """Unlink every name, then remove the directories, children first; each rank what it made."""
        if name_of(entry) not in self._prepared:
            return
        self._prepared.discard(name_of(entry))
        crew, home = self._crew, directory_of(entry)
        created = load.created(crew.cluster.rank)
        is_ours = not any(by_name.leads_elsewhere(crew.root_fd, place) for place in _places(home, created))
        files, directories = removal(created)
        steps: list[Lowered] = [
            LoweredRun((files,) if is_ours else (), "data"),
            Meet("barrier", "files removed"),
            LoweredRun((directories,) if is_ours else (), "data"),
        ]
        self._watch.resume()
        self._run_uncounted(Phase.CLEAN_UP, entry, steps, number, crew.clean_up_engine())
        crew.cluster.barrier()
        if crew.cluster.rank == 0:
            by_name.remove_step(crew.root_fd, home)
        crew.cluster.barrier()

    def _engine(self, stage: Stage) -> LoadEngine:
        crew = self._crew
        setup = Setup(
            crew.root_fd,
            stage.verify_share,
            crew.job.storm.on_error,
            stage.mode,
            stage.is_direct,
            stage.queue_depth,
        )
        engine: LoadEngine = registry.find("engine", ENGINES, crew.orders.engine)(setup)
        return engine

    def _plain_engine(self) -> Preparer:
        """For making files: one op after the other, through the page cache."""
        engine: Preparer = registry.find("engine", ENGINES, self._crew.orders.engine)(Setup(self._crew.root_fd))
        return engine

    def _phase_run(self, phase: Phase) -> PhaseRun:
        return PhaseRun(self._crew.cluster, self._watch, self._costs.broadcast_ns, self._crew.groups(phase))


def _places(home: str, created: Created) -> set[str]:
    """Every directory on the way to what is removed."""
    found = {home}
    for parent in {os.path.dirname(name) for name in (*created.files, *created.directories)}:
        while parent:
            found.add(f"{home}/{parent}")
            parent = os.path.dirname(parent)
    return found


def _stages_of(ready: Uncounted) -> list[Lowered]:
    """A barrier is a step of its own; programs side by side are one run."""
    return [step if isinstance(step, Meet) else LoweredRun(step, "data") for step in ready.steps]
