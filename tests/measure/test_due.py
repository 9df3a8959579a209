"""Times of actions that are due at fixed instants, and actions of several ops."""

from __future__ import annotations

import numpy as np

from ckptstorm.measure.actions import AfterRamp, FoldActions
from ckptstorm.measure.due import FromDue
from ckptstorm.measure.folding import FoldTimes
from ckptstorm.program import Kind, Path, Program, op, table

#: Two actions: an open with its close, and a stat that may find nothing.
_RING = Program(table([op(Kind.OPEN, 0), op(Kind.CLOSE, 0), op(Kind.STAT, 0, expect=2)]), (Path(0, "f"),))
_ACTION_OF, _LEADS = np.array([0, 0, 1], dtype=np.uint8), np.array([True, False, True])


def _sinks():
    fold = FoldTimes(_RING)
    return fold, FoldActions(fold, _RING.ops, _ACTION_OF, _LEADS, 2)


def _laps(count):
    """Laps of 100 ns: each op takes 10 ns and begins 10 ns after the one before."""
    start = np.concatenate([lap * 100 + np.array([0, 20, 40]) for lap in range(count)]) + 1000
    return start, start + 10, np.tile([0, 0, -2], count)


def test_an_action_is_the_sum_of_its_ops_wherever_chunks_end():
    """Stored op by op, or all at once: five opens with closes of 20 ns, five stats of 10 ns; ENOENT is an answer."""
    start, end, result = _laps(5)
    for step in (1, 2, 4, 15):
        fold, actions = _sinks()
        for first in range(0, 15, step):
            part = slice(first, first + step)
            actions.store(first, start[part], end[part], result[part])
        assert actions.table.counts.sum(axis=1).tolist() == [5, 5]
        assert actions.table.max_ns.tolist() == [20, 10]
        assert fold.failed == {} and int(fold.latency().counts.sum()) == 15


def test_an_action_with_a_failed_op_is_an_error_and_no_action():
    """EIO at the second close: four whole actions, and the error is kept with its op."""
    start, end, result = _laps(5)
    result[4] = -5
    fold, actions = _sinks()
    actions.store(0, start, end, result)
    assert actions.table.counts.sum(axis=1).tolist() == [4, 5]
    (failed,) = fold.failed.values()
    assert (failed.errno, failed.kind, failed.op_index, failed.count) == (5, Kind.CLOSE, 1, 1)


def test_the_ramp_counts_for_nothing_but_its_errors_do():
    """From 1,220 on: two whole laps and the stat before them; an error in the ramp is still one."""
    start, end, result = _laps(5)
    result[0] = -13
    fold, actions = _sinks()
    ramp = AfterRamp(actions, fold, 1220)
    for first in range(0, 15, 2):
        part = slice(first, first + 2)
        ramp.store(first, start[part], end[part], result[part])
    assert actions.table.counts.sum(axis=1).tolist() == [2, 3]
    assert [failed.errno for failed in fold.failed.values()] == [13]


def test_a_late_action_counts_from_when_it_was_due():
    """Due each 50 ns, begun each 100 ns: the n-th lap is late by what the schedule has gained on it."""
    start, end, result = _laps(3)
    _, actions = _sinks()
    due = FromDue(actions, _LEADS, np.array([0, 0, 25]), 1000, 50)
    due.store(0, start, end, result)
    # Of lap 2 the open was due at 1,100 and ended at 1,210; the close took 10 more. The stat: due 1,125, over at 1,250.
    assert actions.table.max_ns.tolist() == [120, 125]


def test_of_single_ops_the_kinds_histograms_are_the_actions():
    """Reads and writes: counts, maxima and bytes of each, in rings of any chunks, errors left out."""
    ring = Program(table([op(Kind.WRITE, 0, 0, 4096), op(Kind.READ, 0, 0, 100)] * 3), (Path(0, "f", 0, 4096),))
    fold = FoldTimes(ring)
    actions = FoldActions(fold, ring.ops, np.array([1, 0] * 3, dtype=np.uint8), np.ones(6, dtype=np.bool_), 3)
    start = np.arange(10) * 100 + 5
    result = np.array([4096, 100] * 5)
    result[2] = -28
    for first in (0, 4, 8):
        part = slice(first, first + 4)
        actions.store(first, start[part], start[part] + np.arange(10)[part], result[part])
    assert actions.table.counts.sum(axis=1).tolist() == [5, 4, 0]
    assert actions.table.bytes.tolist() == [500, 4 * 4096, 0]
    assert actions.table.max_ns.tolist() == [9, 8, 0]
    assert fold.worst()[0].op_index == 9 % 6 and fold.seconds()[1].tolist() == [[10, 500 + 4 * 4096]]
