"""The timeline: nothing is lost between bins, bytes stand where they moved, no phase has too many bins."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.measure import timeline
from ckptstorm.measure.phase_row import PartRun, phase_row
from ckptstorm.program import Kind, Path, Program, op, table
from ckptstorm.sinks import OpTimes
from tests.measure.programs import MS, RELEASE_NS, observed, part, save_ops


def _part(starts, ends, moved):
    """Writes at given milliseconds after the release."""
    made = Program(table([op(Kind.WRITE, 0, 0, 1 << 40) for _ in starts]), (Path(0, "f", size_bytes=1 << 40),))
    times = (np.array(each, dtype=np.int64) * MS + RELEASE_NS for each in (starts, ends))
    return PartRun(made, OpTimes(*times, np.array(moved, dtype=np.int64)), len(starts))


def test_a_long_write_moves_throughout_its_time():
    """1,000 bytes from 5 ms to 25 ms, in bins of 10 ms: a quarter, a half, a quarter."""
    moved, data, other = timeline.spread([_part([5], [25], [1000])], RELEASE_NS, 10 * MS, 4)
    assert moved.tolist() == [250, 500, 250, 0]
    assert data.tolist() == [0, 0, 1, 0]
    assert other.tolist() == [0, 0, 0, 0]


def test_ops_count_where_they_end_and_failed_ones_do_not():
    """The program of a small save, one ms an op: data ops are writes, the rest is other, the failed sync nothing."""
    moved, data, other = timeline.spread([part(save_ops(), op4=-errno.EIO)], RELEASE_NS, 2 * MS, 4)
    assert moved.sum() == 5000
    assert data.tolist() == [0, 0, 2, 0]
    assert other.tolist() == [0, 2, 0, 1]


@given(
    st.lists(st.tuples(st.integers(-5, 3000), st.integers(0, 2000), st.integers(-5, 1 << 40)), max_size=60),
    st.integers(1, 700),
    st.integers(1, 40),
)
@settings(max_examples=200, deadline=None)
def test_not_a_byte_is_lost_or_made(ops, width_ms, bin_count):
    """However ops lie across bins, also before the release and after the last bin: sums are those of the ops."""
    starts, lengths, moved = ([each[column] for each in ops] for column in range(3))
    ran = _part(starts, np.add(starts, lengths), moved)
    found, data, other = timeline.spread([ran], RELEASE_NS, width_ms * MS, bin_count)
    assert found.sum() == sum(max(each, 0) for each in moved)
    assert (found >= 0).all()
    assert data.sum() == sum(each >= 0 for each in moved)
    assert other.sum() == 0


def test_sums_are_those_of_the_phase_row():
    """Two independent ways to count the same ops."""
    seen = observed(part(save_ops()), part(save_ops(), ops_run=3))
    row = phase_row(seen)
    moved, data, other = timeline.spread(seen.parts, RELEASE_NS, MS, 20)
    assert moved.sum() == row["bytes"]
    assert data.sum() == row["data_op_count"]
    assert other.sum() == row["metadata_op_count"] + row["sync_count"]


@pytest.mark.parametrize(
    ("whole_ns", "width_ns"),
    [
        (0, MS),
        (150 * MS, MS),
        (150 * MS + 1, 2 * MS),
        (750 * MS, 5 * MS),
        (30_000 * MS, 200 * MS),
        (150_000 * MS, 1000 * MS),
        (150_001 * MS, 2000 * MS),
        (10**18, 10**16),
    ],
)
def test_bins_are_as_short_as_the_limit_allows(whole_ns, width_ns):
    """1, 2, 5, 10 … ms; a second or shorter up to two and a half minutes; the limit holds for years."""
    assert timeline.bin_width_ns(whole_ns) == width_ns
    assert -(-whole_ns // width_ns) <= timeline.BIN_LIMIT


def test_the_end_is_that_of_the_last_op_run():
    """Ops that were not run have no end."""
    assert timeline.whole_ns([part(save_ops()), part(save_ops(), ops_run=0)], RELEASE_NS) == 7 * MS
    assert timeline.whole_ns([part(save_ops(), ops_run=0)], RELEASE_NS) == 0
    assert timeline.whole_ns([], RELEASE_NS) == 0
