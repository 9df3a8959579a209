"""How DCP's writers deal tensors to the files of a rank: by descending size, to the one that has least so far."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def deal_by_size(sizes: list[int], bin_count: int) -> Int64s:
    """The bin of each item when each, in this order, goes to the first of those that have least so far."""
    bins = [(0, index) for index in range(bin_count)]
    chosen = []
    for size in sizes:
        held, index = bins[0]
        heapq.heapreplace(bins, (held + size, index))
        chosen.append(index)
    return np.array(chosen, dtype=np.int64)
