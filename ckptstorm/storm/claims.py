"""What a rank's plan claims of durability before a byte has moved."""

from __future__ import annotations

import numpy as np

from ckptstorm.measure.durable import is_every_file_synced
from ckptstorm.measure.phase_row import PartRun
from ckptstorm.program import Program
from ckptstorm.sinks import OpTimes
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.lowered import programs_of


def claims_durable(crew: Crew) -> bool:
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
