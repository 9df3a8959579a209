"""The folding sink: what it tells equals what kept times tell, and its memory does not grow."""

from __future__ import annotations

import errno
import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.measure import latency
from ckptstorm.measure.folding import FoldTimes
from ckptstorm.program import Kind, Path, Program, op, table
from ckptstorm.sinks import OpTimes

_PROGRAM = Program(
    table([op(Kind.OPEN, 0), op(Kind.READ, 0, 0, 4096), op(Kind.WRITE, 0, 0, 70_000), op(Kind.STAT, 0, expect=2)]),
    (Path(0, "f", size_bytes=70_000),),
)
_S = 1_000_000_000


def _times(count, chance):
    start = np.sort(chance.integers(_S, 4 * _S, count))
    result = np.array([0, 4096, 70_000, -errno.ENOENT])[np.arange(count) % 4]
    return OpTimes(start, start + chance.integers(100, 10**9, count), result)


@given(st.integers(1, 400), st.integers(1, 97), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_folding_equals_keeping(count, chunk, seed):
    """Histograms, maxima, sums, worst ops and bins are those of the kept times, however the chunks fall."""
    times = _times(count, np.random.default_rng(seed))
    fold = FoldTimes(_PROGRAM, worst_count=5)
    for first in range(0, count, chunk):
        part = slice(first, first + chunk)
        fold.store(first, times.start_ns[part], times.end_ns[part], times.result[part])
    laps = Program(_PROGRAM.ops[np.arange(count) % 4], _PROGRAM.paths)
    kept, folded = latency.observe([(laps, times)]), fold.latency()
    assert kept.keys == folded.keys
    assert (kept.counts == folded.counts).all()
    assert (kept.max_ns == folded.max_ns).all()
    assert (kept.sum_ns == folded.sum_ns).all()
    slowest = np.sort(times.end_ns - times.start_ns)[::-1][:5].tolist()
    assert [worst.elapsed_ns for worst in fold.worst()] == slowest
    _, seconds = fold.seconds()
    assert seconds.sum(axis=0).tolist() == [count, int(np.maximum(times.result, 0).sum())]
    assert fold.error_counts == {}


def test_failures_are_counted_and_not_timed():
    """An op that fails is in the errors by errno, and in no histogram."""
    fold = FoldTimes(_PROGRAM, first=1, stop=3)
    ones = np.ones(4, dtype=np.int64)
    fold.store(0, ones, ones + 500, np.array([-errno.EIO, 70_000, 4096, -errno.ENOSPC]))
    assert fold.error_counts == {errno.EIO: 1, errno.ENOSPC: 1}
    assert int(fold.latency().counts.sum()) == 2
    assert {worst.op_index for worst in fold.worst()} == {1, 2}


def test_memory_does_not_grow_with_the_ops():
    """Five million ops take no more than a hundred thousand do: a minute at 500,000 IOPS stays far below 200 MB."""
    fold, chunk = FoldTimes(_PROGRAM), _times(4096, np.random.default_rng(1))
    peaks = []
    tracemalloc.start()
    for ops in (100_000, 5_000_000):
        for first in range(0, ops, 4096):
            fold.store(first, chunk.start_ns, chunk.end_ns, chunk.result)
        peaks.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    assert peaks[1] < 20 << 20
    assert peaks[1] - peaks[0] < 1 << 20
