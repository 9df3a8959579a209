"""When there have been rounds enough: a fixed number, until the median is sure, or until a time is over."""

from __future__ import annotations

import itertools

import numpy as np

from ckptstorm.clock import monotonic_ns
from ckptstorm.cluster.comm import Cluster
from ckptstorm.job import StormTable
from ckptstorm.measure.rows import Phase
from ckptstorm.record.confidence import median_interval
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.rounds import median_of, ops_per_s
from ckptstorm.record.summary import phase_summary


class Enough:
    """Rank 0 looks at its record after each round, and all ranks hear what it finds."""

    def __init__(self, storm: StormTable, cluster: Cluster) -> None:
        self._storm, self._cluster = storm, cluster
        self._values: dict[str, list[float]] = {}
        self._began_ns = 0

    def begin(self, number: int) -> None:
        """A round begins; the duration counts from the first measured one."""
        if number >= 1 and not self._began_ns:
            self._began_ns = monotonic_ns()

    def is_reached(self, number: int, record: StormRecord | None) -> bool:
        """Whether this round was the last one needed; a collective of all ranks where it depends on what was seen."""
        if number >= self._storm.rounds:
            return True
        if not (self._storm.rounds.within or self._storm.duration):
            return False
        answer = np.zeros(1, dtype=np.int8)
        if record is not None and number >= 1:
            self._note(record, number)
            answer[0] = self._is_over() or self._is_sure()
        self._cluster.from_rank_0(answer)
        return bool(answer[0])

    def _is_over(self) -> bool:
        duration_ns = int(self._storm.duration)
        return bool(duration_ns) and monotonic_ns() - self._began_ns >= duration_ns

    def _is_sure(self) -> bool:
        within = self._storm.rounds.within
        intervals = [(median_of(values), median_interval(values)) for values in self._values.values()]
        return bool(within and intervals) and all(
            interval is not None and interval.within(median) <= within for median, interval in intervals
        )

    def _note(self, record: StormRecord, number: int) -> None:
        for phase in _of_round(record, number):
            summary = phase_summary(phase, record)
            if not summary.is_finished:
                continue
            if phase.phase in (Phase.SAVE, Phase.RESTORE):
                self._values.setdefault(phase.word, []).append(summary.seconds)
            elif phase.load is not None and phase.load.beside is None:  # its time may be what the job says
                self._values.setdefault(phase.word, []).append(ops_per_s(summary))


def _of_round(record: StormRecord, number: int) -> list[PhaseRecord]:
    return list(itertools.takewhile(lambda phase: phase.round == number, reversed(record.phases)))
