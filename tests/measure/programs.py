"""Small programs with made-up times."""

from __future__ import annotations

import errno
import os

import numpy as np

from ckptstorm.measure.phase_row import Observed, PartRun
from ckptstorm.measure.rows import Phase
from ckptstorm.program import Kind, Path, Program, op, open_length, table
from ckptstorm.sinks import OpTimes

A, A_FINAL, B, STEP_DIR = 0, 1, 2, 3
PATHS = (Path(0, "a.tmp", size_bytes=5000), Path(0, "a", size_bytes=5000), Path(0, "b", size_bytes=100), Path(0, ""))
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT
MS = 1_000_000
RELEASE_NS = 10**15


def save_ops():
    """mkdir that expects EEXIST, a file of two writes synced and closed."""
    return [
        op(Kind.MKDIR, STEP_DIR, expect=errno.EEXIST),
        op(Kind.OPEN, A, 0, open_length(WRITE_FLAGS)),
        op(Kind.WRITE, A, 0, 4096),
        op(Kind.WRITE, A, 4096, 904),
        op(Kind.FSYNC, A),
        op(Kind.CLOSE, A),
    ]


def program(rows):
    """A program over `PATHS`."""
    return Program(table(rows), PATHS)


def times(made, step_ns=MS, start_ns=RELEASE_NS + MS, **results):
    """Ops one after the other, `step_ns` each, all well; `results` replace results by "op<index>"."""
    count = len(made.ops)
    starts = start_ns + np.arange(count, dtype=np.int64) * step_ns
    result = made.expected_bytes().copy()
    for name, value in results.items():
        result[int(name.removeprefix("op"))] = value
    return OpTimes(starts, starts + step_ns, result)


def part(rows, name="data", ops_run=None, **kwargs):
    """A program that ran."""
    made = program(rows)
    return PartRun(made, times(made, **kwargs), len(rows) if ops_run is None else ops_run, name)


def observed(*parts, **changes):
    """What rank 3 saw of a save."""
    last = max((int(each.times.end_ns.max()) for each in parts if len(each.times.end_ns)), default=RELEASE_NS)
    facts = {
        "rank": 3,
        "node": 1,
        "round": 2,
        "phase": Phase.SAVE,
        "announced_release_ns": RELEASE_NS,
        "started_ns": RELEASE_NS + 1000,
        "done_ns": last + MS,
        "parts": tuple(parts),
        "is_sync_expected": True,
    }
    return Observed(**(facts | changes))
