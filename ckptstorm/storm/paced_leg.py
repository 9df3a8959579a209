"""A thread of a load that runs alone at a steady rate: actions begin when due, however late the last one was."""

from __future__ import annotations

from ckptstorm.engines.contract import Repeating
from ckptstorm.loads.contract import Stage
from ckptstorm.loads.schedule import Beat
from ckptstorm.measure.due import FromDue
from ckptstorm.program import Program
from ckptstorm.sinks import Sink
from ckptstorm.storm.load_leg import LoadLeg
from ckptstorm.storm.scheduled import scheduled


class PacedLeg(LoadLeg):
    """See the module's docstring; the schedule begins at the release."""

    def __init__(self, stage: Stage, beat: Beat, program: Program, prepared: Repeating) -> None:
        super().__init__(stage, beat.thread, program, scheduled(prepared, beat.thread, program))
        self._beat = beat

    def _ring_sink(self) -> Sink:
        beat, due_ns = self._beat, self.program.due_ns
        assert due_ns is not None
        self._repeating.schedule(self.release_ns, beat.lap_ns)  # type: ignore[attr-defined]
        ring = slice(beat.thread.first, beat.thread.stop)
        return FromDue(super()._ring_sink(), beat.begins, due_ns[ring], self.release_ns, beat.lap_ns)
