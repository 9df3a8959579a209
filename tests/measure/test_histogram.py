"""The histogram: its error bound, its range, and that merging is adding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.measure import histogram as h

NS = st.integers(min_value=0, max_value=h.BEYOND_NS - 1)
LISTS = st.lists(st.integers(min_value=0, max_value=1 << 50), max_size=50)


def _array(values):
    return np.array(values, dtype=np.int64)


@given(NS)
def test_every_value_is_within_the_bounds_of_its_bucket(ns):
    """A value lies in its bucket, and the bucket's middle is within the error bound of it."""
    index = h.bucket_index(_array([ns]))
    low, high = int(h.bucket_low_ns(index)[0]), int(h.bucket_high_ns(index)[0])
    assert low <= ns <= high
    middle = low + (high - low) // 2
    assert abs(middle - ns) <= h.ERROR_BOUND * max(ns, 1)


def test_buckets_tile_the_range_without_gap_or_overlap():
    """Each bucket begins where the one before ends, from 0 to 2^44."""
    every = np.arange(h.BEYOND, dtype=np.int64)
    assert h.bucket_low_ns(every)[0] == 0
    assert np.array_equal(h.bucket_low_ns(every)[1:], h.bucket_high_ns(every)[:-1] + 1)
    assert h.bucket_high_ns(every)[-1] == h.BEYOND_NS - 1


@pytest.mark.parametrize("exponent", range(44))
def test_powers_of_two_begin_their_bucket(exponent):
    """Around each power of two the bucket is exact: a float logarithm would be off by one there."""
    around = _array([max(2**exponent - 1, 0), 2**exponent])
    below, at = h.bucket_index(around)
    assert h.bucket_low_ns(_array([at]))[0] == 2**exponent
    assert at == below + 1 or (exponent == 0 and at == 1)


def test_a_histogram_is_about_20_kilobytes_and_reaches_ten_thousand_seconds():
    """The promises of the module comment."""
    assert h.BUCKET_COUNT * 8 < 20_000
    assert h.BEYOND_NS > 10**4 * 10**9


def test_what_the_range_cannot_hold_is_counted_and_told():
    """A value beyond the range is in the last bucket, and its percentile is the exact maximum."""
    counts = h.fold(_array([1, 2, h.BEYOND_NS, h.BEYOND_NS * 3]))
    assert h.beyond_count(counts) == 2
    assert h.percentile(counts, 0.99, h.BEYOND_NS * 3) == h.BEYOND_NS * 3
    assert h.percentile(counts, 0.5, h.BEYOND_NS * 3) == 2


def test_an_op_of_94_seconds_is_reported_as_94_seconds():
    """One op of 94 s among fast ones is the maximum exactly; as a percentile it is within 0.8 %."""
    fast = np.full(99, 1_000_000, dtype=np.int64)
    counts = h.fold(np.concatenate([fast, _array([94 * 10**9])]))
    assert h.percentile(counts, 1.0, 94 * 10**9) == 94 * 10**9
    slow = h.fold(_array([94 * 10**9, 94 * 10**9, 95 * 10**9]))
    assert h.percentile(slow, 0.5, 95 * 10**9) == pytest.approx(94 * 10**9, rel=0.008)


@pytest.mark.parametrize("shape", ["lognormal", "uniform", "bimodal"])
def test_percentiles_of_a_million_ops_equal_the_exact_ones(shape):
    """p50 to p99.9 of 10^6 latencies are within 1 % of the sorted array's."""
    random = np.random.default_rng(1)
    values = {
        "lognormal": lambda: random.lognormal(14, 1.5, 10**6),
        "uniform": lambda: random.uniform(1, 1e9, 10**6),
        "bimodal": lambda: np.where(random.random(10**6) < 0.99, random.normal(1e6, 1e4, 10**6), 2e10),
    }[shape]().astype(np.int64)
    counts, ordered = h.fold(values), np.sort(values)
    for quantile in (0.5, 0.9, 0.99, 0.999):
        exact = int(ordered[h.nearest_rank(quantile, len(ordered)) - 1])
        assert h.percentile(counts, quantile, int(ordered[-1])) == pytest.approx(exact, rel=0.01)


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, h.BEYOND_NS - 1), min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0])
)
def test_any_percentile_is_within_the_bound_and_not_above_the_maximum(values, quantile):
    """For any values: |answer - exact order statistic| <= 1/128 of it, answer <= maximum."""
    ordered = sorted(values)
    exact = ordered[h.nearest_rank(quantile, len(ordered)) - 1]
    answer = h.percentile(h.fold(_array(values)), quantile, ordered[-1])
    assert abs(answer - exact) <= h.ERROR_BOUND * exact
    assert answer <= ordered[-1]


@given(LISTS, LISTS, LISTS)
def test_merging_is_adding_in_any_order(a, b, c):
    """fold(a + b + c) is the sum of the parts, whichever are added first."""
    parts = [h.fold(_array(values)) for values in (a, b, c)]
    whole = h.fold(_array(a + b + c))
    assert np.array_equal((parts[0] + parts[1]) + parts[2], whole)
    assert np.array_equal(parts[0] + (parts[2] + parts[1]), whole)


def test_nearest_rank_is_exact_where_floats_are_not():
    """0.07 of 100 is the 7th value; in floats the product is above 7 and the ceiling 8."""
    assert 0.07 * 100 > 7
    assert h.nearest_rank(0.07, 100) == 7
    assert h.nearest_rank(0.0, 5) == 1
    assert h.nearest_rank(1.0, 5) == 5


def test_the_median_of_two_ranks_is_the_faster_one():
    """Else the slower of two could never be more than twice the median."""
    assert h.order_statistic(_array([5, 1]), 0.5) == 1
    assert h.order_statistic(_array([]), 0.5) == 0


def test_nothing_has_no_percentiles():
    """A percentile of no values is refused, not 0."""
    with pytest.raises(ValueError, match="without values"):
        h.percentile(h.fold(_array([])), 0.5, 0)


def test_a_negative_time_is_a_defect():
    """A monotonic clock cannot go back; a histogram must not hide it if it seems to."""
    with pytest.raises(AssertionError, match="went back"):
        h.bucket_index(_array([-1]))
