"""The frame of a phase on one rank: when it was, on which clock; what the threads saw stands elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from ckptstorm.cluster.clocks import ClockOffset
from ckptstorm.measure.pace import Pace


@dataclass(frozen=True, slots=True)
class Frame:
    """When a phase was, on this rank's clock.

    Attributes:
        announced_ns: the release as announced.
        started_ns, done_ns: when this rank really started, and when it knew that the phase was over for it.
        barrier_to_barrier_ns: from the announced release to the return from the closing barrier.
        clock: the offset that converted the release.
        drift_ns: what this clock lost against rank 0's meanwhile.
        cpu_ns: of the process, from release to done.
        has_failed: this rank had an error that ended a program, or was told that another one had.
        pace: what set this rank apart.
    """

    announced_ns: int
    started_ns: int
    done_ns: int
    barrier_to_barrier_ns: int
    clock: ClockOffset
    drift_ns: int
    cpu_ns: int
    has_failed: bool
    pace: Pace
