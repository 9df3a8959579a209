"""All rounds of a storm: every rank runs this same function, rank 0 also keeps the record.

A round is a save, a settling, a restore; with asynchronous saves it is a save, and one restore ends the storm. After
each phase the ranks agree on how it went, so that all of them take the same way: go on, or end the storm in order
with what is known.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import Any

from ckptstorm.clock import monotonic_ns
from ckptstorm.measure.rows import SAVES, Phase
from ckptstorm.measure.visibility import Visibility, not_looked_at
from ckptstorm.record.beside import AFTER_SAVE, BEFORE_SAVE
from ckptstorm.storm import ground, halves, removal, settle
from ckptstorm.storm.beside import BesideLoads
from ckptstorm.storm.claims import claims_durable
from ckptstorm.storm.collect import collect
from ckptstorm.storm.costs import measure_costs
from ckptstorm.storm.counting import Counted, Counting
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.enough import Enough
from ckptstorm.storm.load_phases import LoadPhases
from ckptstorm.storm.lowered import Lowered
from ckptstorm.storm.orders import Reading
from ckptstorm.storm.outcome import Keeper, Outcome, agreed
from ckptstorm.storm.own import NOTHING_OWN, Own
from ckptstorm.storm.pacer import Pacer
from ckptstorm.storm.phase import PhaseRun, Seen, Stage, prepared_stages
from ckptstorm.storm.placing import main_targets, placement
from ckptstorm.storm.recovery import Recovery, first_problem, problem_of
from ckptstorm.storm.sights import Sights
from ckptstorm.storm.tested import made_directories
from ckptstorm.storm.watch import Watch


class Rounds:
    """One rank's way through a storm."""

    def __init__(self, crew: Crew, watch: Watch, keeper: Keeper | None) -> None:
        self._crew, self._watch, self._keeper = crew, watch, keeper
        self._cluster = crew.cluster
        self._steps = ground.step_names(crew.round_count, crew.job.layout.overwrite)
        self._present: list[int] = []  # rounds whose files are there
        self._costs = measure_costs(crew.cluster)
        self._loads = LoadPhases(crew, watch, keeper, self._costs)
        self._beside = BesideLoads(crew, watch, keeper, self._costs)
        self._is_ending = False
        self._claims_durable = claims_durable(crew)
        self._enough = Enough(crew.job.storm, crew.cluster)
        self._pacer = Pacer(crew, watch)
        self._resident_share = -1.0
        self._counting = Counting(crew)
        self._keeps_placement = True
        self._sights = Sights(crew)

    def run(self) -> Outcome:
        """All rounds, then the clean-up; a collective of all ranks."""
        if self._crew.orders.reading is not None:
            return self._restore_saved(self._crew.orders.reading)
        if self._crew.orders.half == "recover":
            return self._recover()
        outcome, index = Outcome.FINE, 0
        for index in range(self._crew.round_count):
            worst, is_last = self._round(index)
            outcome = max(outcome, worst)
            if is_last or worst == Outcome.STOPPED or (worst == Outcome.FAILED and self._stops_on_error):
                break
            if worst == Outcome.FINE:
                self._remove_older(self._crew.job.storm.keep, Phase.DELETE, self._number(index))
        self._is_ending = True
        self._beside.finish(self._number(index))
        self._beside.clean_up(self._number(index))
        self._loads.clean_up(self._number(index))
        kept = 1 if self._crew.orders.keeps_files and outcome == Outcome.FINE else 0
        if self._crew.orders.half == "save" and outcome == Outcome.FINE:
            return self._leave_saved()
        self._remove_older(kept, Phase.CLEAN_UP)
        return outcome

    def _leave_saved(self) -> Outcome:
        """The end of a save on its own: the newest checkpoints stay, and rank 0 is told all about them."""
        self._remove_older(self._crew.job.storm.keep, Phase.CLEAN_UP)
        there = self._present[-1:] if self._crew.job.layout.overwrite else self._present
        rounds = halves.saved_rounds(self._crew, [(index, self._steps[index]) for index in there])
        if self._keeper is not None:
            self._keeper.take_saved(rounds)
        return Outcome.FINE

    def _restore_saved(self, reading: Reading) -> Outcome:
        """A restore on its own: each checkpoint that is there, once, then the clean-up."""
        outcome = Outcome.FINE
        self._present = list(reading.indices)
        for index in reading.indices:
            number, step = self._number(index), self._steps[index]
            outcome = self._settle(number, step)
            share = halves.own_share(self._crew, reading, step)
            if self._keeper is not None:
                self._keeper.take_own_share(share)
            if outcome == Outcome.FINE:
                outcome = self._phase(Phase.RESTORE, number, self._crew.restore, step)
            if outcome == Outcome.STOPPED or (outcome == Outcome.FAILED and self._stops_on_error):
                break
        self._is_ending = True
        is_evidence = outcome == Outcome.FAILED or halves.found_wrong_bytes(self._cluster, self._keeper)
        if not (is_evidence or (self._crew.orders.keeps_files and outcome == Outcome.FINE)):
            self._remove_older(0, Phase.CLEAN_UP)
        return outcome

    def _recover(self) -> Outcome:
        """After a loss, in a new world: what would the framework go on from, and what was there?"""
        told = Recovery(self._crew, self, self._steps).run()
        if self._keeper is not None:
            self._keeper.add_facts({"recovery": told})
        self._present = list(range(self._crew.round_count))
        if not self._crew.orders.keeps_files:
            self._remove_older(0, Phase.CLEAN_UP)
        return Outcome.STOPPED if self._watch.is_stopping else Outcome.FINE

    def attempt(self, number: int, step: str) -> str:
        """See `recovery.Attempts`."""
        crew = self._crew
        stages = prepared_stages(
            crew.restore, crew.engine(Phase.RECOVER, number), crew.payload(number), step, crew.thread
        )
        self._watch.is_sync_due = False
        seen, counted = self._run(Phase.RECOVER, number, stages)
        problem = problem_of(seen)
        self._keep(seen, counted)
        return first_problem(crew.cluster, problem)

    @property
    def _stops_on_error(self) -> bool:
        return self._crew.job.storm.on_error == "stop"

    def _number(self, index: int) -> int:
        return index + 1 - self._crew.job.storm.warmup

    def _round(self, index: int) -> tuple[Outcome, bool]:
        """One round: how it went, and whether there have been enough."""
        number, step, is_staged = self._number(index), self._steps[index], self._crew.area is not None
        self._pacer.wait(self._tell_lateness)
        self._beside.finish(number - 1)
        self._enough.begin(number)
        outcome = self._save(index, number) if self._crew.job.saves else Outcome.FINE
        if outcome == Outcome.FINE and not is_staged and self._crew.job.saves:
            outcome = self._read_back(number, step)
        if outcome == Outcome.FINE and self._loads.is_any:
            self._beside.finish(number)  # what runs alone does
            outcome = self._loads.run_round(number)
        if outcome == Outcome.STOPPED:
            return outcome, True
        is_last = self._enough.is_reached(number, self._keeper.record if self._keeper is not None else None)
        if is_staged and is_last and outcome == Outcome.FINE:
            outcome = self._read_back(number, step)
        return outcome, is_last

    def _save(self, index: int, number: int) -> Outcome:
        self._present.append(index)
        step, outcome = self._steps[index], Outcome.FINE
        if self._beside.is_any and self._crew.job.storm.control:
            outcome = self._phase(Phase.QUIET_SAVE, number, self._crew.save, step)
            self._remove(index, Phase.CLEAN_UP, number)
        if self._beside.is_any and outcome == Outcome.FINE:
            outcome = self._beside.start(number)
            self._beside.alone(BEFORE_SAVE)
        if outcome == Outcome.FINE:
            outcome = self._phase(Phase.SAVE, number, self._crew.save, step)
            self._beside.alone(AFTER_SAVE)
        return outcome

    def _read_back(self, number: int, step: str) -> Outcome:
        outcome = self._settle(number, step)
        if outcome == Outcome.FINE and self._crew.orders.half == "both":
            outcome = self._phase(Phase.RESTORE, number, self._crew.restore, step)
        return outcome

    def _phase(self, phase: Phase, number: int, steps: tuple[Lowered, ...], step: str) -> Outcome:
        crew = self._crew
        if phase == Phase.SAVE:
            crew.make_parents(step)
        stages = prepared_stages(steps, crew.engine(phase, number), crew.payload(number), step, crew.thread)
        self._watch.is_sync_due = phase in SAVES and self._claims_durable
        own = replace(self._pacer.own(phase, number), hear=self._beside.hearing(phase))
        if phase == Phase.SAVE:
            self._sights.before(step)
        seen, counted = self._run(phase, number, stages, own)
        self._beside.cut(seen.observed.announced_release_ns + seen.barrier_to_barrier_ns, "")
        visibility = not_looked_at()
        if phase == Phase.SAVE:
            self._pacer.saved(seen, own)
            visibility = self._sights.after(seen, crew.payload(number), step)
        self._keep(seen, counted, self._resident_share if phase == Phase.RESTORE else -1.0, visibility)
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
        if number == 1 and self._keeps_placement:
            self._tell_placement(placement(crew, step))
        if number >= 1:
            self._tell_targets(number, main_targets(crew, step))
        self._cannot("drop_cache", settle.drop_written(crew, step))
        self._cluster.barrier()
        self._resident_share = settle.resident_share(crew, step) if crew.proves_residency else -1.0
        seen = replace(seen, observed=replace(seen.observed, done_ns=monotonic_ns()), barrier_to_barrier_ns=0)
        self._keep(seen, counted)
        return self._agree(seen)

    def _keep(
        self, seen: Seen, counted: Counted, resident_share: float = -1.0, visibility: Visibility | None = None
    ) -> None:
        record = collect(self._cluster, seen, self._costs.barrier_ns, self._crew.rank_count(seen.observed.phase))
        if record is not None and self._keeper is not None:
            found = replace(record, traffic=counted.traffic, due_bytes=counted.due_bytes, shares=counted.shares)
            found = replace(found, visibility=not_looked_at() if visibility is None else visibility)
            self._keeper.take(replace(found, resident_share=resident_share))
            self._cannot("counters", counted.reason)

    def _run(self, phase: Phase, number: int, stages: list[Stage], own: Own = NOTHING_OWN) -> tuple[Seen, Counted]:
        """A phase, between two readings of the storage's counters."""
        run = PhaseRun(self._cluster, self._watch, self._costs.broadcast_ns, self._crew.groups(phase))
        self._counting.begin()
        seen = run.run(phase, number, stages, own)
        return seen, self._counting.end(seen)

    def _cannot(self, ability: str, reason: str) -> None:
        if reason and self._keeper is not None:
            self._keeper.take_cannot(ability, reason)

    def _agree(self, seen: Seen) -> Outcome:
        return agreed(self._cluster, self._watch, seen)

    def _remove_older(self, keep: int, phase: Phase, number: int | None = None) -> None:
        """Delete all checkpoints but the newest `keep`, as a phase of round `number` (of the one that made them)."""
        if not self._present:
            return
        if self._crew.job.layout.overwrite:
            old = [] if keep else self._present[-1:]
        else:
            old = self._present[: max(0, len(self._present) - keep)]
        for index in old:
            self._remove(index, phase, self._number(index) if number is None else number)
        self._present = self._present[len(self._present) - keep :] if keep else []

    def _remove(self, index: int, phase: Phase, number: int) -> None:
        step = self._steps[index]
        root_fd, created = self._crew.root_fd, self._crew.plan.created
        parents = {f"{step}/{os.path.dirname(name)}".rstrip("/") for name in created} | {step}
        is_ours = not any(removal.leads_elsewhere(root_fd, parent) for parent in parents)
        stages = prepared_stages(
            self._crew.clean_up if is_ours else (), self._crew.clean_up_engine(), self._crew.payload(number), step
        )
        self._watch.is_sync_due = False
        if self._is_ending:
            self._watch.resume()
        seen, counted = self._run(phase, number, stages)
        with contextlib.suppress(OSError):  # what cannot be removed still stands there, and is told at the end
            own = (f"{made}/" for made in made_directories(self._crew.save) if made)
            removal.remove_directories(root_fd, step, (*created, *own))
        self._cluster.barrier()
        with contextlib.suppress(OSError):
            if self._crew.is_first_there:
                removal.remove_step(root_fd, step)
        self._cluster.barrier()
        self._keep(seen, counted)

    def _tell_placement(self, found: dict[str, Any]) -> None:
        self._keeps_placement = False
        self._cannot("placement", found.pop("cannot", ""))
        if found and self._keeper is not None:
            self._keeper.take_placement(found)

    def _tell_targets(self, number: int, targets: list[str]) -> None:
        if self._keeper is not None and any(targets):
            self._keeper.take_targets(number, targets)

    def _tell_lateness(self, late_ns: int) -> None:
        if self._keeper is not None:
            self._keeper.take_lateness(late_ns)
