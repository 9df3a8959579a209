"""The flat buffer of Megatron's distributed optimizer: how parameters fall into buckets, and these to ranks.

Read in NVIDIA/Megatron-LM@d98e8a6 (`_compute_per_buffer_param_layout`, `sharded_param_state_dp_reshardable`):
parameters lie in it last first, each at a multiple of 64 elements; a bucket is closed by the parameter
that fills it, and padded for the data-parallel ranks, each of which owns one contiguous slice. The
checkpoint (`dp_reshardable`) holds a tensor for each parameter that a slice touches, and for each gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

_PARAMETER_ALIGNMENT, _BUCKET_ALIGNMENT = 64, 128
#: A bucket is full at this many elements, or a million for each data-parallel rank.
_LEAST_BUCKET, _BUCKET_OF_RANK = 40_000_000, 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Intervals of elements (parameters, and the gaps between them) and the buckets that they fill.

    Attributes:
        starts, ends: of each interval, ascending, in the whole buffer.
        bucket: of each interval.
        bucket_starts: of each bucket.
        bucket_elements: of each bucket, without the padding at its end.
        slice_elements: of each bucket: what a data-parallel rank owns, padding included.
    """

    starts: Int64s
    ends: Int64s
    bucket: Int64s
    bucket_starts: Int64s
    bucket_elements: Int64s
    slice_elements: Int64s

    def fragments(self, member: int) -> tuple[Int64s, Int64s]:
        """(bucket, elements) of each tensor that data-parallel rank `member` stores, in buffer order."""
        low = (self.bucket_starts + member * self.slice_elements)[self.bucket]
        high = low + self.slice_elements[self.bucket]
        held = np.minimum(self.ends, high) - np.maximum(self.starts, low)
        return self.bucket[held > 0], held[held > 0]

    def overlapping(self, member: int) -> Int64s:
        """Intervals that data-parallel rank `member` holds a part of."""
        low = (self.bucket_starts + member * self.slice_elements)[self.bucket]
        return np.flatnonzero(
            np.minimum(self.ends, low + self.slice_elements[self.bucket]) > np.maximum(self.starts, low)
        )

    def held(self, member: int, interval: int) -> tuple[int, int]:
        """(from, to) of what `member` holds of an interval, in its bucket."""
        bucket = int(self.bucket[interval])
        base, size = int(self.bucket_starts[bucket]), int(self.slice_elements[bucket])
        low = max(int(self.starts[interval]) - base, member * size)
        return low, min(int(self.ends[interval]) - base, (member + 1) * size)

    def holders(self, interval: int, low: int, high: int) -> range:
        """Members whose slices reach into [low, high) of the interval's bucket."""
        size = int(self.slice_elements[int(self.bucket[interval])])
        return range(low // size, (high - 1) // size + 1)

    def member_elements(self, member_count: int) -> Int64s:
        """Elements that each data-parallel rank stores."""
        members = np.arange(member_count, dtype=np.int64)[:, None]
        left = self.bucket_elements[None, :] - members * self.slice_elements[None, :]
        return np.asarray(np.clip(left, 0, self.slice_elements[None, :]).sum(axis=1))


def bucket_limit(data_parallel_count: int) -> int:
    """Elements at which a bucket is closed, when gradients are reduced while the backward pass runs."""
    return max(_LEAST_BUCKET, _BUCKET_OF_RANK * data_parallel_count)


def buffer(element_counts: Iterable[int], limit: int, member_count: int) -> Buffer:
    """The buffer of these parameters.

    Args:
        element_counts: of each parameter, in the module's order.
        limit: elements at which a bucket is closed; 0 for one bucket.
        member_count: ranks that share the buffer (data x context).
    """
    intervals: list[tuple[int, int, int]] = []
    buckets: list[tuple[int, int, int]] = []
    divisor = math.lcm(member_count, _BUCKET_ALIGNMENT)
    at = start = 0

    def close() -> None:
        nonlocal at, start
        padded = -(-at // divisor) * divisor
        buckets.append((start, at - start, (padded - start) // member_count))
        at = start = padded

    for count in reversed(list(element_counts)):
        aligned = -(-at // _PARAMETER_ALIGNMENT) * _PARAMETER_ALIGNMENT
        if aligned > at:
            intervals.append((at, aligned, len(buckets)))
        intervals.append((aligned, aligned + count, len(buckets)))
        at = aligned + count
        if limit and at - start >= limit:
            close()
    if at > start:
        close()
    return Buffer(*_columns(intervals), *_columns(buckets))


def _columns(rows: list[tuple[int, int, int]]) -> tuple[Int64s, Int64s, Int64s]:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]
