"""When this rank comes to each save: the interval between saves, its own delay, and the drain that holds it up."""

from __future__ import annotations

from collections.abc import Callable

from ckptstorm import pacing
from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.measure.rows import SAVES, Phase
from ckptstorm.pacing import Skew
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.own import Own
from ckptstorm.storm.phase import Seen
from ckptstorm.storm.staging import Trainer
from ckptstorm.storm.watch import Watch


class Pacer:
    """One rank's timetable over the rounds."""

    def __init__(self, crew: Crew, watch: Watch) -> None:
        self._crew, self._watch = crew, watch
        self._due_ns = self._drained_ns = 0  # of the next save, of the last one: on this node's clock

    def wait(self, tell_lateness: Callable[[int], None]) -> None:
        """Until the next save is due: `interval` after the one before (at once when that has passed)."""
        while monotonic_ns() < self._due_ns and not self._watch.is_stopping:
            self._watch.sleep(min(0.05, (self._due_ns - monotonic_ns()) / NS_PER_S))
        if self._due_ns and self._crew.job.storm.interval:
            tell_lateness(monotonic_ns() - self._due_ns)

    def own(self, phase: Phase, number: int) -> Own:
        """This rank's own release in a phase, and its trainer when the save is staged."""
        crew, storm = self._crew, self._crew.job.storm
        delays = pacing.delays_ns(
            storm.skew if phase in SAVES else Skew("0s"),
            storm.stagger,
            crew.cluster.node_of_rank[: crew.rank_count(phase)],
            crew.orders.seed,
            number,
        )
        is_inside = crew.cluster.rank < len(delays)
        delay_ns, is_told = int(delays[crew.cluster.rank]) if is_inside else 0, bool(delays.any())
        if phase not in SAVES or crew.area is None:
            return Own(delay_ns, None, is_told)
        crew.area.begin()
        backpressure_ns = max(0, self._drained_ns - self._due_ns) if self._due_ns else 0
        return Own(delay_ns, Trainer(crew.area, int(storm.step), backpressure_ns), is_told=True)

    def saved(self, seen: Seen, own: Own) -> None:
        """A save is over: the next one is due an interval after this rank's own release."""
        self._due_ns = seen.observed.announced_release_ns + own.delay_ns + int(self._crew.job.storm.interval)
        self._drained_ns = seen.observed.done_ns
