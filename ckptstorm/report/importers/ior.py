"""IOR's JSON summary: every repetition's time from the first open to the last close."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from ckptstorm.report.importers.reading import json_of, not_one
from ckptstorm.report.importers.seen import PhaseSeen, Seen
from ckptstorm.units import MIB

_TOOL = "IOR"
_WORDS = {"write": "save", "read": "restore"}
_BASIS = (
    "from the first open to the last close, over all tasks, on the nodes' wall clocks: their skew is in it; sync"
    " included only with -e"
)
_Natural = Annotated[int, msgspec.Meta(ge=0)]
_Positive = Annotated[float, msgspec.Meta(ge=0)]


class _Parameters(msgspec.Struct, frozen=True):
    nodes: _Natural
    tasksPerNode: _Natural
    segmentCount: _Natural
    transferSize: _Natural
    blockSize: _Natural
    deadlineForStonewall: int = 0
    fsync: int = 0


class _Options(msgspec.Struct, frozen=True):
    tasks: _Natural


class _Result(msgspec.Struct, frozen=True):
    access: str
    bwMiB: _Positive
    totalTime: _Positive
    iops: float = 0.0


class _Test(msgspec.Struct, frozen=True):
    TestID: int
    StartTime: str
    Parameters: _Parameters
    Options: _Options
    Results: list[_Result]


class _Summary(msgspec.Struct, frozen=True):
    Version: str
    tests: list[_Test]


def read(path: str) -> tuple[Seen, ...]:
    """One run a test of the file.

    Raises:
        PlaceError: the file is none of IOR's.
    """
    found = json_of(Path(path), _TOOL, _Summary)
    if not any(test.Results for test in found.tests):
        raise not_one(Path(path), _TOOL, "no test in it has a result")
    return tuple(_run(test, found.Version, path) for test in found.tests)


def _run(test: _Test, version: str, path: str) -> Seen:
    rounds: dict[str, int] = {}
    phases = []
    for result in test.Results:
        rounds[result.access] = rounds.get(result.access, 0) + 1
        phases.append(_phase(test, result, rounds[result.access]))
    is_partial = test.Parameters.deadlineForStonewall > 0
    notes = (
        *(("stonewalled: how much was moved is not told, so only IOR's own rate is",) if is_partial else ()),
        *(() if test.Parameters.fsync else ("without -e a write counts as done before it is durable",)),
    )
    name = f"ior:{Path(path).name}:{test.TestID}"
    return Seen(
        "IOR", version, name, path, test.Options.tasks, test.Parameters.nodes, test.StartTime, tuple(phases), notes
    )


def _phase(test: _Test, result: _Result, number: int) -> PhaseSeen:
    asked = test.Parameters
    moved = asked.blockSize * asked.segmentCount * test.Options.tasks
    is_whole = asked.deadlineForStonewall == 0
    return PhaseSeen(
        _WORDS.get(result.access, result.access),
        number,
        result.totalTime or None,
        _BASIS,
        tool_seconds=result.totalTime or None,
        tool_bytes_per_s=result.bwMiB * MIB,
        tool_per_s=result.iops or None,
        bytes=moved if is_whole else None,
        data_op_count=moved // asked.transferSize if is_whole and asked.transferSize else None,
    )
