"""A rank's steps as op tables, in the shape that `[io]` asks for; needs no MPI and no disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ckptstorm import reshaping
from ckptstorm.job import IoTable
from ckptstorm.lowering import lower
from ckptstorm.program import Program
from ckptstorm.steps import Facts, Meet, Step


@dataclass(frozen=True, slots=True)
class LoweredRun:
    """A run as op tables, one a thread."""

    programs: tuple[Program, ...]
    part: Literal["data", "commit"]


Lowered = LoweredRun | Meet


def lowered(steps: tuple[Step, ...], facts: Facts, io: IoTable) -> tuple[Lowered, ...]:
    """Every run as op tables, in the shape that [io] asks for; meets stay as they are."""
    stages: list[Lowered] = []
    for step in steps:
        if isinstance(step, Meet):
            stages.append(step)
            continue
        programs = [lower(draft, facts) for draft in step.drafts]
        if step.part == "data":  # what commits is small, and of the framework's own making
            programs = [shaped for program in programs for shaped in _shaped(program, io)]
        stages.append(LoweredRun(tuple(programs), step.part))
    return tuple(stages)


def _shaped(program: Program, io: IoTable) -> tuple[Program, ...]:
    size_bytes = int(io.coalesce)
    if size_bytes:
        program = reshaping.coalesced(program, size_bytes)
    if io.direct:
        program = reshaping.direct(program, size_bytes)
    return reshaping.dealt(program, io.threads)


def programs_of(stages: tuple[Lowered, ...]) -> list[Program]:
    """The op tables of all runs."""
    return [program for stage in stages if isinstance(stage, LoweredRun) for program in stage.programs]
