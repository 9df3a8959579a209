"""Says what a rank is at: its plan is pure, so any rank's op table can be made again by whoever must name it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ckptstorm.job import Job
from ckptstorm.measure.rows import SAVES, Phase
from ckptstorm.model.parallel import World
from ckptstorm.plan import facts_of, plan
from ckptstorm.program import DATA, Kind, Program
from ckptstorm.storm.lowered import lowered, programs_of

#: Phases whose ops follow from the plan of a checkpoint.
_PLANNED = (*SAVES, Phase.RESTORE, Phase.RECOVER, Phase.CLEAN_UP)


@dataclass(frozen=True, slots=True)
class OpNamer:
    """Names the op of a board line.

    Attributes:
        job, world: the storm's.
        block_size_bytes: of its target, which shapes the op tables.
    """

    job: Job
    world: World
    block_size_bytes: int

    def name(self, line: np.void) -> str:
        """ "write at offset 8192 of __3_0.distcp"."""
        if not int(line["kind"]):
            return "nothing yet: before its first op"
        kind, phase = Kind(int(line["kind"])), Phase(int(line["phase"]))
        where = f" at offset {int(line['offset_bytes'])}" if kind in DATA else ""
        if phase not in _PLANNED or not self.job.saves:
            return f"{kind.word}{where}"
        rank_plan = plan(self.job, self.world, int(line["rank"]))
        file, name = int(line["file"]), ""
        if phase != Phase.CLEAN_UP:
            steps = rank_plan.save if phase in SAVES else rank_plan.restore
            facts = facts_of(self.job, self.block_size_bytes)
            name = _name_in(programs_of(lowered(steps, facts, self.job.io)), int(line["program"]), file)
        else:
            name = rank_plan.created[file] if file < len(rank_plan.created) else ""
        return f"{kind.word}{where} of {name or 'a directory'}"


def _name_in(programs: list[Program], number: int, file: int) -> str:
    if number >= len(programs) or file >= len(programs[number].paths):
        return "an unknown file"
    return programs[number].paths[file].name or "the step directory"
