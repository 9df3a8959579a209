"""Loads beside save and restore: own threads of the ranks they name, at a fixed rate, told apart by what went on.

A round with such loads begins with a save without them, so that what they cost the save can be told. Then they start,
run for a while by themselves, through the save, for a while by themselves again, and on to the end of the round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster.clocks import ClockOffset
from ckptstorm.engines.contract import Repeating
from ckptstorm.errors import LostRankError
from ckptstorm.load_tables import LoadTable, directory_of, name_of
from ckptstorm.loads.contract import Load, Stage
from ckptstorm.loads.schedule import Beat, beats
from ckptstorm.measure.actions import FoldActions
from ckptstorm.measure.folding import Failed, FoldTimes
from ckptstorm.measure.load_row import LoadObserved, ThreadSeen
from ckptstorm.measure.pace import no_pace
from ckptstorm.measure.rows import Phase
from ckptstorm.measure.windows import Kept, Window, Windows
from ckptstorm.program import Program
from ckptstorm.record.beside import DURING_RESTORE, DURING_SAVE, Beside
from ckptstorm.record.record import PhaseRecord
from ckptstorm.sinks import NEVER_NS, STOP, Int64s
from ckptstorm.storm.costs import Costs
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.frame import Frame
from ckptstorm.storm.load_collect import collect_load
from ckptstorm.storm.load_leg import LoadLeg
from ckptstorm.storm.load_phases import LoadPhases
from ckptstorm.storm.outcome import Keeper, Outcome
from ckptstorm.storm.scheduled import scheduled
from ckptstorm.storm.watch import Watch
from ckptstorm.units import time_text

#: From the call to start until the first action is due: threads are made, files opened.
_LEAD_NS = 20_000_000
_LOOK_S = 0.02


class _Folded:
    """A window's sink."""

    def __init__(self, fold: FoldTimes, actions: FoldActions) -> None:
        self.fold, self.actions, self.control = fold, actions, fold.control

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """See `sinks.Sink.store`."""
        self.actions.store(first, start_ns, end_ns, result)


class BesideLeg(LoadLeg):
    """A thread of a load that goes on until it is told to stop.

    Attributes:
        windows: what it was seen to do, by what went on.
    """

    def __init__(self, stage: Stage, beat: Beat, program: Program, prepared: Repeating) -> None:
        super().__init__(stage, beat.thread, program, scheduled(prepared, beat.thread, program))
        due_ns = program.due_ns
        assert due_ns is not None
        ring = slice(beat.thread.first, beat.thread.stop)
        self._lap_ns = beat.lap_ns
        self.windows = Windows(self._new_window, beat.begins, due_ns[ring], beat.lap_ns)
        self.windows.control = self.fold.control

    def _new_window(self) -> _Folded:
        thread = self.thread
        fold = FoldTimes(self.program, thread.first, thread.stop)
        ring = self.program.ops[thread.first : thread.stop]
        return _Folded(fold, FoldActions(fold, ring, thread.action_of, thread.leads, len(self._stage.actions)))

    def _run(self) -> None:
        thread = self.thread
        try:
            self._has_opened = self.prepared.run(self.opening, 0, thread.first) == thread.first
            if self._has_opened:
                self.windows.begin(self.release_ns)
                self._repeating.schedule(self.release_ns, self._lap_ns)  # type: ignore[attr-defined]
                self._repeating.repeat(self.windows, thread.first, thread.stop, NEVER_NS, None, self._refiller)
                self.fold.control[STOP] = 0  # what is open is closed all the same
                self._close()
        finally:
            if self._refiller is not None:
                self._refiller.end()


@dataclass(frozen=True, slots=True, eq=False)
class _InWindow:
    """What one thread did in one window, in the shape in which stages are collected."""

    program: Program
    fold: FoldTimes
    actions: FoldActions
    kept: Kept

    @property
    def failed(self) -> tuple[Failed, ...]:
        """Classes of errors."""
        return tuple(self.fold.failed.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """A load that is under way."""

    entry: LoadTable
    load: Load
    stage: Stage
    legs: list[BesideLeg]


class BesideLoads(LoadPhases):
    """One rank's part in all loads that run beside save and restore."""

    when = "beside"

    def __init__(self, crew: Crew, watch: Watch, keeper: Keeper | None, costs: Costs) -> None:
        super().__init__(crew, watch, keeper, costs)
        self._running: list[_Running] = []
        self._cuts: list[tuple[int, str]] = []
        self._release_ns = 0

    def start(self, number: int) -> Outcome:
        """Prepare what is not there, and begin; a collective of all ranks."""
        for entry, load in self._loads:
            if name_of(entry) not in self._prepared:
                outcome = self._prepare(entry, load, number)
                if outcome != Outcome.FINE:
                    return outcome
            self._running.append(self._ready(entry, load))
        self._crew.cluster.barrier()
        self._release_ns = monotonic_ns() + _LEAD_NS
        for leg in self._legs():
            leg.start(self._release_ns)
        return Outcome.FINE

    def cut(self, instant_ns: int, name: str) -> None:
        """From that instant of this node's clock on, actions belong to the window of that name ("": to none)."""
        if not self._running:
            return
        self._cuts.append((instant_ns, name))
        for leg in self._legs():
            leg.windows.cut(instant_ns, name)

    def alone(self, name: str) -> None:
        """Let them run by themselves for the time that the job says, as a window of that name."""
        if not self._running:
            return
        begin_ns = max(monotonic_ns(), self._release_ns)
        self.cut(begin_ns, name)
        until_ns = begin_ns + int(self._crew.job.storm.around)
        while monotonic_ns() < until_ns and not self._watch.is_stopping:
            self._watch.sleep(_LOOK_S)
        self.cut(monotonic_ns(), "")

    def hearing(self, phase: Phase) -> Callable[[int], None] | None:
        """What is to hear of a phase's release: it begins a window; None where no load runs."""
        names = {Phase.SAVE: DURING_SAVE, Phase.RESTORE: DURING_RESTORE}
        if not self._running or phase not in names:
            return None
        return lambda release_ns: self.cut(release_ns, names[phase])

    def finish(self, number: int) -> None:
        """Stop, and bring together what was seen; a collective of all ranks."""
        if not self._running:
            return
        for leg in self._legs():
            leg.fold.control[STOP] = 1
        self._wait_for_the_end()
        ends = [*(instant_ns for instant_ns, _ in self._cuts[1:]), monotonic_ns()]
        named = [(name, begin, end) for (begin, name), end in zip(self._cuts, ends, strict=True) if name]
        for running in self._running:
            for leg in running.legs:
                leg.prepared.finish()
            seen = [leg.windows.finish() for leg in running.legs]
            for which, window in enumerate(named):
                parts = [_in_window(leg, each[which]) for leg, each in zip(running.legs, seen, strict=True)]
                self._collect(running, parts, window, number)
            if not running.load.is_kept:
                self._clean_up(running.entry, running.load, number)
        self._running, self._cuts = [], []

    def _wait_for_the_end(self) -> None:
        """Of every thread; one whose call does not return in time is named, as in a save."""
        until_ns = monotonic_ns() + int(self._crew.job.storm.timeout)
        for running in self._running:
            for leg in running.legs:
                while not leg.has_ended(_LOOK_S):
                    self._watch.tick()
                    if monotonic_ns() > until_ns:
                        raise LostRankError(
                            f"rank {self._crew.cluster.rank} on {self._crew.cluster.place.host}: an op of load "
                            f"{name_of(running.entry)} has not returned for {time_text(self._crew.job.storm.timeout)}",
                            "raise [storm] timeout if the storage may take longer",
                        )

    def _legs(self) -> list[BesideLeg]:
        return [leg for running in self._running for leg in running.legs]

    def _ready(self, entry: LoadTable, load: Load) -> _Running:
        crew = self._crew
        stage = load.stage(crew.cluster.rank, 0)
        engine = self._engine(stage)
        payload = self._payload if stage.content == "own" else None
        legs = []
        for beat in beats(entry, crew.world, crew.cluster.rank, stage):
            program = beat.thread.program.in_step(directory_of(entry))
            legs.append(BesideLeg(stage, beat, program, engine.prepare(program, payload)))
        return _Running(entry, load, stage, legs)

    def _collect(self, running: _Running, parts: list[_InWindow], window: tuple[str, int, int], number: int) -> None:
        name, begin_ns, end_ns = window
        cluster = self._crew.cluster
        threads = tuple(ThreadSeen(part.fold, part.failed, end_ns, is_whole=True) for part in parts)
        place = (cluster.rank, cluster.place.node_index, number)
        observed = LoadObserved(*place, begin_ns, begin_ns, end_ns, 0, 0, threads)
        frame = Frame(begin_ns, begin_ns, end_ns, 0, ClockOffset(), 0, 0, False, no_pace())
        record = collect_load(cluster, running.entry, running.stage, parts, (observed, frame, 0))
        counts = [sum(part.kept.due_count for part in parts), sum(part.kept.ended_count for part in parts)]
        sums = cluster.sum_on_rank_0(np.array(counts, dtype=np.int64))
        late = max((part.kept.late_ns_max for part in parts), default=0)
        latest = cluster.greatest_on_rank_0(np.array([late], dtype=np.int64))
        if record is not None and self._keeper is not None:
            kept = Beside(name, (end_ns - begin_ns) / NS_PER_S, int(sums[0]), int(sums[1]), int(latest[0]))
            self._keeper.take(_named(record, kept))


def _named(record: PhaseRecord, kept: Beside) -> PhaseRecord:
    assert record.load is not None
    return replace(record, name=f"{record.name} {kept.window}", load=replace(record.load, beside=kept))


def _in_window(leg: BesideLeg, window: Window) -> _InWindow:
    folded = window.inner
    assert isinstance(folded, _Folded)
    return _InWindow(leg.program, folded.fold, folded.actions, window.kept())
