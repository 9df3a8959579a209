"""What moved when: the bytes and ops of a phase by node and short stretch of time, at a cost that no world makes large.

A phase has at most `BIN_LIMIT` bins, so it takes 2.4 KB a node however long it lasts and however many
ops it has. The bytes of an op are spread evenly from its start to its end: a write of two gigabytes that
took a minute moved throughout it, and counted where it ended it would be a spike that never was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.latency import succeeded
from ckptstorm.measure.phase_row import PartRun
from ckptstorm.program import DATA

Int64s = NDArray[np.int64]
Bins = NDArray[np.void]

#: Bins of a phase, at most: fine enough for a wide screen, and a second or shorter up to two and a half minutes.
BIN_LIMIT = 150
#: No bin is shorter than this: clocks of nodes agree no better.
_BIN_LEAST_NS = 1_000_000
#: One bin of one node. Ops count where they ended; failed ones do not.
BIN_DTYPE = np.dtype([("bytes", "<i8"), ("data_op_count", "<u4"), ("other_op_count", "<u4")])


def _no_bins() -> Bins:
    return np.zeros((0, 0), dtype=BIN_DTYPE)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A phase by node and bin.

    Attributes:
        bin_ns: width of a bin; the first begins at the announced release.
        bins: shape (nodes, bins) of `BIN_DTYPE`; (0, 0) when it was not gathered.
    """

    bin_ns: int = 0
    bins: Bins = field(default_factory=_no_bins)


def bin_width_ns(whole_ns: int) -> int:
    """The shortest of 1, 2, 5, 10 … ms in which a phase of that length has at most `BIN_LIMIT` bins."""
    decade_ns = _BIN_LEAST_NS
    while True:
        for width_ns in (decade_ns, 2 * decade_ns, 5 * decade_ns):
            if whole_ns <= width_ns * BIN_LIMIT:
                return width_ns
        decade_ns *= 10


def whole_ns(parts: Sequence[PartRun], release_ns: int) -> int:
    """From the release to the end of this rank's last op; 0 of none. `release_ns` is on the clock of the times."""
    ends = [int(part.times.end_ns[: part.ops_run].max()) for part in parts if part.ops_run]
    return max(0, *ends, release_ns) - release_ns if ends else 0


def spread(parts: Sequence[PartRun], release_ns: int, bin_ns: int, bin_count: int) -> tuple[Int64s, Int64s, Int64s]:
    """One rank's share of the bins.

    Args:
        parts: the programs as they ran.
        release_ns: the announced release on the clock of the times.
        bin_ns, bin_count: the same on all ranks; what lies outside counts in the nearest bin.

    Returns:
        bytes, data ops and other ops of each bin; their sums are those of the phase row.
    """
    moved = np.zeros(bin_count, dtype=np.int64)
    data, other = np.zeros(bin_count, dtype=np.int64), np.zeros(bin_count, dtype=np.int64)
    for part in parts:
        ran = slice(0, part.ops_run)
        is_fine = succeeded(part.program, part.times)[ran]
        is_data = np.isin(part.program.ops["kind"][ran], DATA)
        start_ns, end_ns = part.times.start_ns[ran] - release_ns, part.times.end_ns[ran] - release_ns
        ended_in = np.clip(end_ns // bin_ns, 0, bin_count - 1)
        data += np.bincount(ended_in[is_data & is_fine], minlength=bin_count)
        other += np.bincount(ended_in[~is_data & is_fine], minlength=bin_count)
        bytes_each = np.maximum(part.times.result[ran], 0)
        moves = is_data & (bytes_each > 0)
        moved += _spread_bytes(start_ns[moves], end_ns[moves], bytes_each[moves], bin_ns, bin_count)
    return moved, data, other


def _spread_bytes(start_ns: Int64s, end_ns: Int64s, bytes_each: Int64s, bin_ns: int, bin_count: int) -> Int64s:
    """Each op's bytes by the share of its time that falls into each bin; the sum is kept to the byte."""
    limit_ns = bin_ns * bin_count
    start_ns, end_ns = np.clip(start_ns, 0, limit_ns - 1), np.clip(end_ns, 1, limit_ns)
    end_ns = np.maximum(end_ns, start_ns + 1)
    first, last = start_ns // bin_ns, (end_ns - 1) // bin_ns
    rate = bytes_each / (end_ns - start_ns)
    total = np.bincount(first, rate * (np.minimum((first + 1) * bin_ns, end_ns) - start_ns), bin_count)
    later = last > first
    total += np.bincount(last[later], (rate * (end_ns - last * bin_ns))[later], bin_count)
    # What an op moved in each bin between its first and its last: on from the one after, off at the last.
    steps = np.bincount(first[later] + 1, rate[later] * bin_ns, bin_count)
    steps -= np.bincount(last[later], rate[later] * bin_ns, bin_count)
    total += np.cumsum(steps)
    so_far = np.maximum.accumulate(np.rint(np.cumsum(total))).astype(np.int64)
    whole = int(bytes_each.sum())
    so_far = np.minimum(so_far, whole)
    so_far[last.max(initial=0) :] = whole  # sums of floats are off by a few bytes
    return np.diff(so_far, prepend=0)
