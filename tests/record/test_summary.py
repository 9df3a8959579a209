"""The numbers of a phase, against cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ckptstorm.measure.rows import PHASE_ROW_DTYPE, Phase
from ckptstorm.program import Kind
from ckptstorm.record.clockcheck import POLITE_SLEEP_NS, SCHEDULING_NS, clock_check
from ckptstorm.record.rounds import over_rounds
from ckptstorm.record.stragglers import STRAGGLER_MULTIPLE, STRAGGLERS_KEPT
from ckptstorm.record.summary import phase_summary, summarize
from tests.record import synthetic
from tests.record.synthetic import MS, Make, S, with_column, with_phase


def _save(made, index=0):
    return phase_summary(made.phases[index], made)


def test_t_is_the_last_durable_minus_the_first_release():
    """Four ranks released at 1 to 4 ms, durable at 1, 2, 3 and 9 s: T is 8.999 s, whoever started first."""
    made = with_column(synthetic.record(), 0, "release_ns", [4 * MS, MS, 2 * MS, 3 * MS])
    summary = _save(with_column(made, 0, "durable_ns", [S, 2 * S, 3 * S, 9 * S]))
    assert summary.seconds == summary.last_done_s == summary.rank_seconds.max == 8.999
    assert summary.first_done_s == pytest.approx(0.999)
    assert summary.median_done_s == pytest.approx(1.999)
    assert summary.tail_s == pytest.approx(8.0)
    assert summary.straggler_ratio == pytest.approx(8.999 / 1.999)
    assert summary.stall_gpu_seconds == pytest.approx(4 * 9 - 0.010)
    assert (summary.skew_median_s, summary.skew_max_s) == (0.001, 0.003)


def test_rates_are_ratios_of_sums():
    """All ranks' bytes and ops over T: the slow rank counts in full, and no rank's own rate is averaged."""
    made = with_column(synthetic.record(), 0, "release_ns", [0] * 4)
    made = with_column(made, 0, "durable_ns", [S, S, S, 8 * S])
    summary = _save(made)
    assert summary.bytes_per_s == 4 * 2**30 / 8
    assert summary.iops == summary.iops_over_4k == 4 * 1024 / 8
    assert _save(with_column(made, 0, "data_op_over_4k_count", [8, 0, 0, 0])).iops_over_4k == 1.0


def test_coordination_is_of_the_median_rank_and_the_most_of_any():
    """Four ranks wait 0, 1, 1 and 3 s in collectives of a save of 4 s."""
    made = with_column(synthetic.record(Make(save_s=4.0)), 0, "release_ns", [0] * 4)
    made = with_column(made, 0, "durable_ns", [4 * S, 3 * S, 3 * S, S])
    summary = _save(with_column(made, 0, "coordination_ns", [0, S, S, 3 * S]))
    assert (summary.coordination_median_s, summary.coordination_max_s, summary.coordination_share) == (1.0, 3.0, 0.75)


def test_a_straggler_is_in_the_headline_and_named():
    """Rank 2 is 4 s late in its sync: T contains the 4 s, and it is named with host and cause."""
    summary = _save(synthetic.record(Make(ranks=4, nodes=2, late={2: 4.0})))
    assert summary.seconds > 5.9
    (straggler,) = summary.stragglers
    assert (straggler.rank, straggler.host, straggler.cause) == (2, "gpu001", "fsync")
    assert straggler.cause_seconds == pytest.approx(4.0)


@pytest.mark.parametrize("kind", [Kind.WRITE, Kind.RENAME, Kind.OPEN])
def test_the_cause_of_a_straggler_is_the_op_that_took_the_excess(kind):
    """Whatever op it is."""
    (straggler,) = _save(synthetic.record(Make(late={1: 4.0}, late_kind=kind))).stragglers
    assert straggler.cause == kind.word


def test_a_straggler_without_times_by_kind_has_no_made_up_cause():
    """When kind_ns was not gathered, only the rows' own columns can be blamed."""
    made = with_phase(synthetic.record(Make(late={1: 4.0})), 0, kind_ns=np.zeros((0, 37), dtype=np.int64))
    assert _save(made).stragglers[0].cause == ""


def test_waiting_for_bytes_can_be_the_cause():
    """A rank that waits 4 s for its payload is late by its own doing."""
    made = with_column(synthetic.record(Make(late={1: 4.0})), 0, "generate_wait_ns", [0, 4 * S, 0, 0])
    made = with_phase(made, 0, kind_ns=np.zeros((0, 37), dtype=np.int64))
    assert _save(made).stragglers[0].cause == "making bytes"


def test_twice_the_median_is_no_straggler_yet():
    """The multiple must be exceeded, and by more than the scheduler's noise."""
    made = with_column(synthetic.record(), 0, "release_ns", [0] * 4)
    at = with_column(made, 0, "durable_ns", [S, S, S, STRAGGLER_MULTIPLE * S])
    assert _save(at).stragglers == ()
    above = with_column(made, 0, "durable_ns", [S, S, S, STRAGGLER_MULTIPLE * S + 1])
    assert len(_save(above).stragglers) == 1
    short = with_column(made, 0, "durable_ns", [MS, MS, MS, 5 * MS])
    assert _save(short).stragglers == ()


def test_stragglers_come_slowest_first_and_are_bounded():
    """A hundred of a thousand ranks late: the slowest 32 are named."""
    late = {rank: 10.0 + rank / 1000 for rank in range(100)}
    stragglers = _save(synthetic.record(Make(ranks=1000, nodes=10, late=late))).stragglers
    assert [each.rank for each in stragglers] == list(range(99, 99 - STRAGGLERS_KEPT, -1))


def test_ranks_with_nothing_to_move_are_not_first_done():
    """A rank whose durable never happened is in no time, and its bytes are none."""
    made = with_column(synthetic.record(), 0, "durable_ns", [-1, S, 2 * S, 3 * S])
    assert _save(made).first_done_s == pytest.approx(1 - 20e-6)


def test_a_phase_without_rows_or_ends_has_zeros():
    """No rank reported, or none got there: no division by zero, and no time made up."""
    empty = with_phase(synthetic.record(), 0, rows=np.zeros(0, dtype=PHASE_ROW_DTYPE))
    nowhere = with_column(synthetic.record(), 0, "durable_ns", [-1] * 4)
    for made in (empty, nowhere):
        summary = _save(made)
        assert (summary.seconds, summary.bytes_per_s, summary.iops, summary.stall_gpu_seconds) == (0, 0, 0, 0)
        assert not summary.is_finished


def test_latencies_are_by_kind_and_size_class():
    """Writes of 1 MiB stand under "1M" and under "all"; a sync has no size. The maximum is exact."""
    tree = _save(synthetic.record()).latency_ns
    assert set(tree["write"]) == {"all", "1M"}
    assert set(tree["fsync"]) == {"all"}
    assert tree["write"]["all"] == tree["write"]["1M"]
    assert tree["fsync"]["all"].max == 200 * MS
    assert tree["open"]["all"].count == 4


def test_waits_are_shares_of_t():
    """The worst rank's wait, over T and the I/O threads."""
    made = with_column(synthetic.record(), 0, "generate_wait_ns", [0, 0, S, 0])
    one = _save(made)
    assert one.generate_share == pytest.approx(1 / one.seconds)
    two = _save(synthetic.with_job(made, "io", threads=2))
    assert two.generate_share == pytest.approx(one.generate_share / 2)


def test_rounds_give_median_spread_and_worst():
    """2.0, 2.02 and 2.04 s: the median is the middle one; the spread is (slowest - fastest) ÷ median."""
    made = synthetic.record()
    rounds = over_rounds(summarize(made), Phase.SAVE)
    times = [_save(made, index).seconds for index in (0, 2, 4)]
    assert rounds.round_count == 3
    assert (rounds.seconds.median, rounds.seconds.least, rounds.seconds.most) == (times[1], times[0], times[2])
    assert rounds.seconds.spread == pytest.approx((times[2] - times[0]) / times[1])
    assert (rounds.worst.round, rounds.middle.round) == (3, 2)


def test_warm_up_and_failed_rounds_do_not_count():
    """A round numbered 0 is warm-up; a round in which an op failed has no time."""
    made = with_phase(synthetic.record(), 0, round=0)
    assert over_rounds(summarize(made), Phase.SAVE).round_count == 2
    made = with_column(made, 2, "error_count", [0, 1, 0, 0])
    assert over_rounds(summarize(made), Phase.SAVE).round_count == 1
    assert over_rounds(summarize(made), Phase.CLEAN_UP) is None


def test_the_barrier_may_never_be_shorter_than_t():
    """By a nanosecond: rows that tell more time than passed on rank 0's clock are wrong."""
    phase = synthetic.record().phases[0]
    rows_ns = clock_check(phase).rows_ns
    assert rows_ns >= _save(synthetic.record()).seconds * S
    for longer, agrees in ((0, True), (-1, False)):
        made = with_phase(synthetic.record(), 0, barrier_to_barrier_ns=rows_ns + longer)
        assert clock_check(made.phases[0]).agrees is agrees


def test_the_barrier_may_cost_what_barriers_cost():
    """Its measured cost, twice the uncertainty, one polite sleep a step of its tree, and the scheduler."""
    allowed = MS + 2 * 500 + 3 * POLITE_SLEEP_NS + SCHEDULING_NS
    made = with_phase(synthetic.record(), 0, clock_uncertainty_ns=500)
    rows_ns = clock_check(made.phases[0]).rows_ns
    for longer, agrees in ((allowed, True), (allowed + 1, False)):
        check = clock_check(with_phase(made, 0, barrier_to_barrier_ns=rows_ns + longer).phases[0])
        assert (check.allowed_ns, check.agrees) == (allowed, agrees)


def test_a_barrier_not_taken_checks_nothing():
    """0 says so."""
    check = clock_check(with_phase(synthetic.record(), 0, barrier_to_barrier_ns=0).phases[0])
    assert check.agrees and not check.is_taken
