"""Latency tables: what is observed, how ranks agree on keys, that merging loses nothing."""

from __future__ import annotations

import errno
from dataclasses import replace

import numpy as np

from ckptstorm.measure import latency
from ckptstorm.measure.latency import ALL_KEYS, LatencyKey
from ckptstorm.program import DATA, Kind, op
from ckptstorm.sizes import SIZE_CLASSES, size_class
from tests.measure.programs import MS, RELEASE_NS, part, program, save_ops, times


def _observe(*parts):
    return latency.observe([(each.program, each.times) for each in parts])


def _count(table, kind, size=-1):
    return int(table.counts[table.keys.index(LatencyKey(kind, size))].sum())


def test_the_list_of_keys_is_all_kinds_and_sizes_once():
    """Data kinds have ten size classes, the other kinds one key."""
    assert len(ALL_KEYS) == len(set(ALL_KEYS)) == len(DATA) * 10 + (len(Kind) - len(DATA))


def test_a_phase_is_observed_by_kind_and_size_class():
    """Two writes of 4096 and 904 bytes fall into one class each (upper bounds are inclusive: both 4K)."""
    table = _observe(part(save_ops()))
    assert _count(table, Kind.WRITE, 2) == 2
    assert _count(table, Kind.FSYNC) == _count(table, Kind.MKDIR) == 1
    assert set(table.max_ns.tolist()) == {MS}
    assert table.sum_ns[table.keys.index(LatencyKey(Kind.WRITE, 2))] == 2 * MS


def test_upper_bounds_of_size_classes_are_inclusive():
    """4096 is "4K", 4097 is the next."""
    bounds = np.array(SIZE_CLASSES, dtype=np.int64)
    assert size_class(bounds).tolist() == list(range(9))
    assert size_class(bounds + 1).tolist() == list(range(1, 10))


def test_a_failed_op_is_no_fast_op():
    """A write refused with ENOSPC is not in the latencies; a mkdir that found what it expects is."""
    table = _observe(part(save_ops(), op0=-errno.EEXIST, op3=-errno.ENOSPC))
    assert int(latency.select(table, (Kind.WRITE,))[0].sum()) == _count(table, Kind.WRITE, 2) == 1
    assert _count(table, Kind.MKDIR) == 1


def test_ops_not_run_are_not_observed():
    """A program that stopped after its third op has three latencies."""
    made = part(save_ops())
    made.times.start_ns[3:] = made.times.end_ns[3:] = made.times.result[3:] = 0
    assert int(_observe(made).counts.sum()) == 3


def test_open_loop_ops_count_from_when_they_were_due():
    """An op due at the release that starts 1 ms late and takes 1 ms has waited 2 ms."""
    made = replace(program([op(Kind.STAT, 0)]), due_ns=np.zeros(1, dtype=np.int64))
    table = latency.observe([(made, times(made))], release_ns=RELEASE_NS)
    assert table.max_ns.tolist() == [2 * MS]


def test_merging_is_observing_together():
    """The merge of two ranks' tables is the table of both ranks' ops, whatever keys each has."""
    one = part(save_ops())
    other = part([op(Kind.READ, 0, 0, 5000), op(Kind.FSYNC, 0), op(Kind.STAT, 1)], step_ns=7 * MS)
    both, merged = _observe(one, other), latency.merge([_observe(one), _observe(other)])
    assert both.keys == merged.keys
    for name in ("counts", "max_ns", "sum_ns"):
        assert np.array_equal(getattr(both, name), getattr(merged, name))
    assert latency.merge([]).keys == ()


def test_ranks_that_hold_different_keys_reduce_by_adding():
    """Bitmap, then sums and maxima of aligned arrays, is the same as merging: what MPI does."""
    tables = [_observe(part(save_ops())), _observe(part([op(Kind.STAT, 0)], step_ns=5)), latency.empty()]
    anywhere = np.logical_or.reduce([latency.present(table) for table in tables])
    aligned = [latency.aligned(table, anywhere) for table in tables]
    assert {counts.shape for counts, _, _ in aligned} == {(int(anywhere.sum()), latency.BUCKET_COUNT)}
    reduced = latency.from_aligned(
        anywhere,
        sum(each[0] for each in aligned),
        np.max([each[1] for each in aligned], axis=0),
        sum(each[2] for each in aligned),
    )
    merged = latency.merge(tables)
    assert reduced.keys == merged.keys
    assert np.array_equal(reduced.counts, merged.counts)
    assert np.array_equal(reduced.max_ns, merged.max_ns)


def test_kinds_are_selected_over_all_their_sizes():
    """All writes in one histogram, with their maximum; a kind that is not there has none."""
    table = _observe(part(save_ops()))
    counts, max_ns = latency.select(table, (Kind.WRITE, Kind.WRITEV))
    assert (int(counts.sum()), max_ns) == (2, MS)
    assert int(latency.select(table, (Kind.READ,))[0].sum()) == 0
