"""A latency histogram that holds every op of a storm, because means hide the rank that everybody waits for.

Executive summary
    64 linear buckets an octave from 1 ns to 2^44 ns (17,592 s: nearly five hours), and one bucket
    for what is beyond. A percentile is off by at most 1/128 = 0.79 %. A histogram is 2497 counters
    of 8 bytes, 20 KB, whatever it counts; two are merged by adding them, in any order, so a
    cluster's histogram is one sum over ranks. The exact maximum is kept beside it by the caller.

Details
    A value v below 128 ns has a bucket of its own, number v. Above, let `shift` be the number of
    halvings that bring v into 64 … 127; its bucket is

        shift * 64 + (v >> shift)

        v (ns)       width   buckets
        0 … 127          1   0 … 127
        128 … 255        2   128 … 191
        256 … 511        4   192 … 255
        …
        2^43 … 2^44-1   2^37 2432 … 2495
        2^44 and above    -  2496 ("beyond": counted, and told)

    Error: a bucket that starts at `low` has width w = 2^shift, and low >= 64 w. We answer with its
    middle, so no value in it is further away than w/2, and (w/2) / v <= (w/2) / (64 w) = 1/128.
    Clipping the answer to the exact maximum can only bring it nearer to any value in the bucket.

    The shift is found by comparing integers with powers of two: a floating-point logarithm puts
    some exact powers into the bucket below.

    Why the range ends there: the longest op that a storm waits for is a sync of a whole shard on
    a sick file system, minutes, not hours. fio's ends at 17 s, and says so of no op that is longer.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

#: Buckets an octave; 1 / (2 * BUCKETS_PER_OCTAVE) is the error bound.
BUCKETS_PER_OCTAVE = 64
_OCTAVE_BITS = 6
#: Values from here on are beyond the range, nanoseconds.
BEYOND_NS = 1 << 44
#: Halvings that the largest value within the range needs.
_SHIFTS = 44 - (_OCTAVE_BITS + 1)
#: The bucket of what is beyond the range: the last one.
BEYOND = (_SHIFTS + 1) * BUCKETS_PER_OCTAVE + BUCKETS_PER_OCTAVE
BUCKET_COUNT = BEYOND + 1
#: The largest relative error of a percentile within the range.
ERROR_BOUND = Fraction(1, 2 * BUCKETS_PER_OCTAVE)

assert 1 << _OCTAVE_BITS == BUCKETS_PER_OCTAVE
assert BUCKET_COUNT == 2497

#: 2^7, 2^8 … 2^43: a value needs as many halvings as there are of these not above it.
_POWERS = np.int64(1) << np.arange(_OCTAVE_BITS + 1, 44, dtype=np.int64)


def bucket_index(ns: Int64s) -> Int64s:
    """The bucket of each value.

    Args:
        ns: non-negative nanoseconds, any shape.
    """
    assert ns.size == 0 or int(ns.min()) >= 0, "a monotonic clock went back"
    held = np.minimum(ns, BEYOND_NS - 1)
    shift = np.searchsorted(_POWERS, held, side="right").astype(np.int64)
    return np.where(ns >= BEYOND_NS, BEYOND, shift * BUCKETS_PER_OCTAVE + (held >> shift))


def bucket_low_ns(index: Int64s) -> Int64s:
    """The smallest value of each bucket, nanoseconds."""
    shift = _shift(index)
    return np.asarray((index - shift * BUCKETS_PER_OCTAVE) << shift, dtype=np.int64)


def bucket_high_ns(index: Int64s) -> Int64s:
    """The largest value of each bucket, nanoseconds; the largest of all for the one beyond."""
    high = bucket_low_ns(index) + (np.int64(1) << _shift(index)) - 1
    return np.where(index >= BEYOND, np.iinfo(np.int64).max, high)


def fold(ns: Int64s) -> Int64s:
    """Values to counts, shape (BUCKET_COUNT,)."""
    return np.bincount(bucket_index(ns), minlength=BUCKET_COUNT).astype(np.int64)


def beyond_count(counts: Int64s) -> int:
    """How many values the range could not hold."""
    return int(counts[BEYOND])


def percentile(counts: Int64s, quantile: float, max_ns: int) -> int:
    """The value that a share of `quantile` of all values does not exceed (the nearest-rank order statistic).

    Within `ERROR_BOUND` of the exact one and never above the exact maximum. Of values beyond the
    range only the maximum is known, so that is the answer there.

    Args:
        counts: shape (BUCKET_COUNT,), not all zero.
        quantile: 0 to 1; 0.999 for p99.9.
        max_ns: the exact maximum.

    Raises:
        ValueError: nothing was counted.
    """
    total = int(counts.sum())
    if total == 0:
        raise ValueError("a histogram without values has no percentiles")
    rank = nearest_rank(quantile, total)
    if rank == total:
        return max_ns
    bucket = int(np.searchsorted(np.cumsum(counts), rank, side="left"))
    if bucket == BEYOND:
        return max_ns
    at = np.array([bucket], dtype=np.int64)
    low, high = int(bucket_low_ns(at)[0]), int(bucket_high_ns(at)[0])
    return min(low + (high - low) // 2, max_ns)


def nearest_rank(quantile: float, count: int) -> int:
    """Which of `count` sorted values, from 1, is the `quantile`: ceil(quantile * count), at least 1.

    In exact arithmetic: in floats 0.07 * 100 is above 7, and its ceiling 8.
    """
    exact = Fraction(quantile).limit_denominator(10**6) * count
    return min(max(-(-exact.numerator // exact.denominator), 1), count)


def order_statistic(values: Int64s, quantile: float) -> int:
    """The nearest-rank quantile of plain values; 0 of nothing.

    The median of two ranks is then the faster one: the mean of both could never show that the
    other takes more than twice as long.
    """
    index = nearest_rank(quantile, len(values)) - 1
    return int(np.partition(values, index)[index]) if len(values) else 0


def _shift(index: Int64s) -> Int64s:
    return np.asarray(np.clip(index // BUCKETS_PER_OCTAVE - 1, 0, _SHIFTS), dtype=np.int64)
