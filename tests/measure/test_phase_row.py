"""The phase row: times after the release, achieved counts, and states that nothing can talk out of."""

from __future__ import annotations

import errno
import os
from dataclasses import replace

import numpy as np
import pytest

from ckptstorm.engines.contract import Notes
from ckptstorm.measure.failure import SHORT, Failure, failures, merge_failures
from ckptstorm.measure.phase_row import kind_ns, phase_row
from ckptstorm.measure.rows import (
    KIND_SLOTS,
    PHASE_ROW_DTYPE,
    STATE_ERRORS,
    STATE_INCOMPLETE,
    STATE_MISMATCH,
    STATE_STOPPED,
    STATE_SYNC_DUE,
    STATE_SYNCED,
)
from ckptstorm.program import Kind, op, open_length
from tests.measure.programs import A_FINAL, MS, RELEASE_NS, WRITE_FLAGS, A, B, observed, part, save_ops


def _state(*parts, **changes):
    return int(phase_row(observed(*parts, **changes))["state"])


def test_a_good_save_is_told_in_one_row():
    """Times count from the announced release, bytes and ops by class, and the rank is durable."""
    row = phase_row(observed(part(save_ops())))
    assert row.dtype == PHASE_ROW_DTYPE
    assert (row["rank"], row["node"], row["round"], row["phase"]) == (3, 1, 2, 2)
    assert (row["release_ns"], row["first_op_ns"]) == (1000, MS)
    assert row["durable_ns"] == row["committed_ns"] == 7 * MS
    assert row["done_ns"] == 8 * MS
    assert (row["bytes"], row["data_op_count"], row["data_op_over_4k_count"]) == (5000, 2, 0)
    assert (row["metadata_op_count"], row["sync_count"], row["error_count"]) == (3, 1, 0)
    assert row["state"] == STATE_SYNCED | STATE_SYNC_DUE


def test_an_op_of_exactly_4k_is_not_above_4k():
    """4097 bytes is."""
    rows = [op(Kind.WRITE, A, 0, 4096), op(Kind.WRITE, A, 0, 4097)]
    assert phase_row(observed(part(rows)))["data_op_over_4k_count"] == 1


def test_commit_is_told_apart_from_data():
    """Durable when the data parts are over, committed when the rename has returned."""
    commit = part([op(Kind.RENAME, A, A_FINAL)], "commit", start_ns=RELEASE_NS + 20 * MS)
    row = phase_row(observed(part(save_ops()), commit))
    assert (row["durable_ns"], row["committed_ns"]) == (7 * MS, 21 * MS)


def test_a_rank_with_nothing_to_move_was_never_durable():
    """-1, so that it is not the first done of a storm that it took no part in."""
    row = phase_row(observed())
    assert row["durable_ns"] == row["committed_ns"] == row["first_op_ns"] == -1
    assert not row["state"] & STATE_INCOMPLETE


def test_a_drifting_clock_is_corrected_in_proportion():
    """A clock that lost 8 us from release to done: 8 us are added at the end, half of it half way."""
    row = phase_row(observed(part(save_ops()), drift_ns=8000))
    assert row["done_ns"] == 8 * MS + 8000
    assert row["durable_ns"] == 7 * MS + 7000


def test_an_error_is_an_error_unless_it_was_expected():
    """EEXIST of the mkdir that expects it counts as a metadata op; ENOSPC of a write as an error."""
    row = phase_row(observed(part(save_ops(), op0=-errno.EEXIST)))
    assert (row["error_count"], row["metadata_op_count"], row["first_errno"]) == (0, 3, 0)
    row = phase_row(observed(part(save_ops(), op3=-errno.ENOSPC, op4=-errno.EIO)))
    assert (row["error_count"], row["first_errno"]) == (2, errno.ENOSPC)
    assert (row["bytes"], row["data_op_count"], row["sync_count"]) == (4096, 1, 0)
    assert row["state"] & STATE_ERRORS


def test_another_errno_than_the_expected_one_is_an_error():
    """mkdir expects EEXIST, and gets EACCES."""
    assert _state(part(save_ops(), op0=-errno.EACCES)) & STATE_ERRORS


def test_ops_not_run_make_the_phase_incomplete():
    """And the rank was never durable."""
    row = phase_row(observed(part(save_ops(), ops_run=3), was_stopped=True))
    assert row["state"] & STATE_INCOMPLETE and row["state"] & STATE_STOPPED
    assert row["durable_ns"] == row["committed_ns"] == -1


def test_fewer_bytes_than_planned_make_the_phase_incomplete():
    """A short write that nobody noticed; a read that is short by plan does not."""
    assert _state(part(save_ops(), op3=900)) & STATE_INCOMPLETE
    past_the_end = [op(Kind.READ, A, 4096, 8192)]
    assert not _state(part(past_the_end)) & STATE_INCOMPLETE


def test_what_engines_note_is_summed_over_threads():
    """Waits, verified bytes and mismatches of all programs."""
    notes = (Notes(5, 7, 100, 1), Notes(6, 8, 50, 0))
    row = phase_row(observed(part(save_ops()), tallies=notes, coordination_ns=9, cpu_ns=11))
    assert (row["generate_wait_ns"], row["verify_wait_ns"], row["verified_bytes"]) == (11, 15, 150)
    assert (row["coordination_ns"], row["cpu_ns"], row["mismatch_count"]) == (9, 11, 1)
    assert row["state"] & STATE_MISMATCH


SYNCED = {
    "a sync after the last write": (save_ops(), {}, True),
    "no sync": ([*save_ops()[:4], save_ops()[5]], {}, False),
    "a sync before the last write": ([*save_ops()[:3], op(Kind.FSYNC, A), op(Kind.WRITE, A, 4096, 904)], {}, False),
    "a sync of another file": ([*save_ops()[:4], op(Kind.FSYNC, B)], {}, False),
    "a sync that failed": (save_ops(), {"op4": -errno.EIO}, False),
    "fdatasync": ([*save_ops()[:4], op(Kind.FDATASYNC, A)], {}, True),
    "syncfs": ([*save_ops()[:4], op(Kind.SYNCFS, B)], {}, True),
    "only a directory sync": ([*save_ops()[:4], op(Kind.FSYNC_DIR, 3)], {}, False),
    "O_DSYNC": ([op(Kind.OPEN, A, 0, open_length(WRITE_FLAGS | os.O_DSYNC)), *save_ops()[2:4]], {}, True),
    "O_DSYNC, and once without": (
        [op(Kind.OPEN, A, 0, open_length(WRITE_FLAGS | os.O_DSYNC)), *save_ops()[1:4]], {}, False,
    ),
    "nothing written": ([op(Kind.STAT, A)], {}, True),
}  # fmt: skip


@pytest.mark.parametrize("case", SYNCED)
def test_synced_is_read_from_the_ops_and_their_results(case):
    """Each way in which a file can be durable, or only seem so."""
    rows, results, is_synced = SYNCED[case]
    assert bool(_state(part(rows, **results)) & STATE_SYNCED) == is_synced


def test_a_file_that_two_threads_write_needs_a_sync_after_both():
    """Thread 2 writes on after thread 1 has synced; paths are compared by name."""
    first, second = part(save_ops()), part([op(Kind.WRITE, A, 0, 10)], start_ns=RELEASE_NS + 50 * MS)
    assert not _state(first, second) & STATE_SYNCED
    early = part([op(Kind.WRITE, A, 0, 10)], start_ns=RELEASE_NS)
    assert _state(first, early) & STATE_SYNCED


def test_time_inside_ops_is_told_by_kind():
    """Two writes of a millisecond are two milliseconds of writing."""
    spent = kind_ns(observed(part(save_ops())))
    assert spent.shape == (KIND_SLOTS,) and len(Kind) < KIND_SLOTS
    assert (spent[Kind.WRITE], spent[Kind.FSYNC], spent[Kind.READ]) == (2 * MS, MS, 0)
    assert int(spent.sum()) == 6 * MS


def test_errors_are_told_by_class_with_the_first_place():
    """Two ENOSPC from write are one class of two; the earlier one is described."""
    rows = [op(Kind.WRITE, A, 0, 10), op(Kind.WRITE, B, 90, 10), op(Kind.FSYNC, B)]
    seen = failures(observed(part(rows, op0=-errno.ENOSPC, op1=-errno.ENOSPC, op2=-errno.EIO)), "gpu7")
    assert seen == (
        Failure("ENOSPC", "write", 3, "gpu7", "a.tmp", 0, 2, 1, ((3, 2),), (("a.tmp", 1), ("b", 1))),
        Failure("EIO", "fsync", 3, "gpu7", "b", 0, 1, 1, ((3, 1),), (("b", 1),)),
    )
    other = replace(seen[0], rank=4, count=5, ranks=((4, 5),), files=(("b", 5),))
    merged = merge_failures([*seen, other])[0]
    assert (merged.rank, merged.count, merged.rank_count) == (3, 7, 2)
    assert (merged.ranks, merged.files) == (((4, 5), (3, 2)), (("b", 6), ("a.tmp", 1)))
    assert failures(observed(part(save_ops())), "gpu7") == ()


def test_a_short_transfer_is_a_class_of_its_own():
    """No errno, and yet not what was asked; a read at the end of its file is short by plan and none."""
    rows = [op(Kind.WRITE, A, 0, 10), op(Kind.FSYNC, A)]
    (seen,) = failures(observed(part(rows, op0=7)), "gpu7")
    assert (seen.errno, seen.op, seen.count, seen.file) == (SHORT, "write", 1, "a.tmp")


def test_an_errno_without_a_name_is_told_by_number():
    """A file system may answer what Python has no name for."""
    (seen,) = failures(observed(part([op(Kind.STAT, A)], op0=-9999)), "gpu7")
    assert seen.errno == "errno 9999"


def test_counts_do_not_overflow_with_large_programs():
    """A billion bytes in many ops stays exact."""
    rows = [op(Kind.WRITE, A, index << 30, 1 << 30) for index in range(64)]
    assert phase_row(observed(part(rows)))["bytes"] == np.int64(64 << 30)
